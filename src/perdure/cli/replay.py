"""`perdure replay`: recorded sessions run through the engine, as a report or as JSON lines (CLI-2)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.arguments import (
    Json,
    Sets,
    complete_model_ids,
    complete_models,
    configured,
    examples,
    family,
)
from perdure.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    Progress,
    clean,
    cut,
    note,
    out,
    out_json,
    plural,
    table,
    tokens,
    usd,
)
from perdure.cli.words import compaction_failure

app = family()
_SHOWN_PROBLEMS = 5
_NAME_CHARS = 48
Result = dict[str, Any]


@app.command(
    epilog=examples(
        "perdure replay ~/.claude/projects",
        "perdure replay session.jsonl --window 200k",
        "perdure replay logs/ --jobs 4 --json",
    )
)
def replay(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE|SESSION", readable=False, help="Logs, folders of logs, or sessions.")
    ],
    *,
    window: Annotated[str | None, typer.Option(metavar="TOKENS", help="The model's window, e.g. 200k or 1M.")] = None,
    max_output: Annotated[str | None, typer.Option(metavar="TOKENS", help="The model's output limit.")] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The model, instead of the one in the log.", autocompletion=complete_model_ids),
    ] = None,
    summarizer: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The model that writes records; offline, the default, has code do it.",
            autocompletion=complete_models,
        ),
    ] = None,
    sets: Sets = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Replay N files at once.")] = 1,
    forks: Annotated[
        bool,
        typer.Option("--forks", help="Also check requests that write notes, and what they read cached."),
    ] = False,
    json: Json = False,
) -> None:
    """Run recorded sessions through the engine.

    As if they were live: shows when results are cleared and the context is compacted, what changes the cached prefix,
    and what it all costs.
    """
    from perdure.adapters.providers.connect import OFFLINE, connect
    from perdure.cli.opened import named_logs
    from perdure.lab.replay.drive import ReplayOptions
    from perdure.lab.replay.run import replay_files
    from perdure.lab.replay.verdict import facts_of_all, verdict

    flags = [*(sets or ())]
    flags += [f"window_tokens={window}"] if window else []
    flags += [f"max_output_tokens={max_output}"] if max_output else []
    config = configured(flags)
    logs = named_logs(files, has_sessions=True)
    found = logs.paths
    asked = summarizer or OFFLINE
    connect(asked, os.environ)  # a name that can't be asked is said once, before anything runs
    options = ReplayOptions(settings=config.settings, model=model, models=config.models, summarizer=asked, forks=forks)
    progress = Progress()
    results: list[Result] = []
    for result in replay_files(found, options, jobs=jobs, on_progress=progress):
        progress.clear()
        if json:
            out_json(result)
        else:
            report(result)
        results.append(_kept(result))
    progress.clear()
    if len(results) > 1 or (found and any(path.is_dir() for path in files)):
        found_price = verdict(results)
        if not json:
            summary(results)
            _show_verdict(found_price, facts_of_all(results))
        elif found_price is not None:
            out_json({"verdict": found_price})
    for refused in logs.refused:
        note(f"skipped: {clean(refused)}")
    if logs.others:
        note(f"skipped {plural(logs.others, 'JSON file')} without sessions")
    failed = [result for result in results if "error" in result]
    if failed and (len(results) > 1 or json):
        note(f"{len(failed)} of {len(results)} failed; each has its reason above")
    raise typer.Exit(EXIT_FAILED if failed or logs.refused else EXIT_OK)


def _kept(result: dict[str, Any]) -> dict[str, Any]:
    """What the summary needs of a result, so that a long run doesn't fill the memory."""
    names = (
        "file",
        "error",
        "session",
        "turns",
        "tokens_final",
        "cost",
        "cache_writes",
        "invalid_requests",
        "unexplained_prefix_moves",
        "forks",
        "facts",
    )
    short = {name: result[name] for name in names if name in result}
    for name in ("compactions", "microcompactions", "offloads", "prefix_moves", "problems"):
        short[name] = len(result.get(name, ()))
    if "error" not in result:
        short["logged"] = {**result["logged"], "compactions": len(result["logged"]["compactions"])}
    return short


# --- the report: one part for each session, a table over all of them --------------------------------------------------


def report(result: Result) -> None:
    """One session."""
    if "error" in result:
        name = f" ({clean(str(result['session']))})" if result.get("session") else ""
        out(f"{clean(result['file'])}{name}: failed: {clean(result['error'])}\n")
        return
    out(f"{clean(result['file'])}")
    model = f", model {clean(str(result['model']))}" if result.get("model") else ""
    out(f"  session {clean(result['session'])}, format {result['format']}{model}")
    out(
        f"  window {result['window']:,} (from: {result['window_source']}), usable {result['usable']:,}, "
        f"trigger {result['trigger']:,}"
    )
    out(f"  {plural(result['turns'], 'turn')}, {result['tokens_final']:,} tokens at the end")
    _fired(result)
    _helped(result)
    _cost(result)
    _logged(result["logged"])
    if "forks" in result:
        _forks(result["forks"])
    _trouble(result)
    out()


def _fired(result: Result) -> None:
    rows: list[tuple[int, str, str, int | None]] = []
    for one in result["compactions"]:
        what = f"{one['tokens_before']:,} -> {one['tokens_after']:,} tokens ({one['strategy']}, {one['trigger']})"
        what += _restored(one.get("restored", ()))
        tried = dict.fromkeys(
            f"{failed['strategy']} didn't: {compaction_failure(failed['reason'])}" for failed in one.get("tried", ())
        )
        what += f", {'; '.join(clean(why) for why in tried)}" if tried else ""
        rows.append((one["turn"], "compaction", what, one["tokens_before"] - one["tokens_after"]))
    for one in result["microcompactions"]:
        what = f"{plural(len(one['cleared']), 'result')} cleared ({one['reason']})"
        rows.append((one["turn"], "microcompaction", what, one["tokens_saved"]))
    if rows:
        rows.sort(key=lambda row: row[0])
        table(("turn", "what", "details", "saved"), rows, indent="  ")
    offloads = result["offloads"]
    if offloads:
        left = sum(one["preview_bytes"] for one in offloads)
        moved = sum(one["bytes"] for one in offloads)
        out(f"  {plural(len(offloads), 'large result')} offloaded: {moved:,} bytes, of which {left:,} stay as previews")
    moves = result["prefix_moves"]
    if moves:
        reasons = Counter(one["reason"] for one in moves)
        told = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        rewritten = sum(one["tokens_rewritten"] for one in moves)
        out(f"  {plural(len(moves), 'prefix move')} ({told}): {tokens(rewritten)} tokens written to the cache again")
    if not (rows or offloads or moves):
        out("  nothing fired: the session fits the window as it is")


def _restored(rows: Sequence[Result]) -> str:
    """What came back behind a boundary, in a few words."""
    kinds = Counter(row["kind"] for row in rows if row["name"] is not None)
    left = sum(len(row["left_out"]) for row in rows)
    told = [f"{kind.replace('_', ' ')} {count}" for kind, count in kinds.items()] + (
        [f"left out {left}"] if left else []
    )
    return f", back: {', '.join(told)}" if told else ""


def _cost(result: Result) -> None:
    cost = result["cost"]
    prompt = cost["input"] + cost["cache_write"] + cost["cache_read"]
    out(
        f"  cost with caching {usd(cost['usd'])}: {tokens(cost['cache_read'])} read from the cache, "
        f"{tokens(cost['cache_write'])} written, {tokens(cost['input'])} uncached, {tokens(cost['output'])} output"
    )
    if prompt and (without := uncached_usd(result)) is not None:
        share = f", {100 - 100 * cost['usd'] / without:.0f}% less" if without > cost["usd"] else ""
        out(f"  cost without caching {usd(without)}{share}")
    _writes(result["cache_writes"])


_WHY_AGAIN = {
    "expired": "the cache had expired",
    "compacted": "compactions",
    "cleared": "clearings",
    "snipped": "worthless history left out",
    "collapsed": "finished work folded",
    "media_replaced": "media over the limits",
    "front": "another system prompt or tools",
    "rewound": "rewinds",
}


def _writes(writes: Result) -> None:
    """What was written to the cache more than once, and why (SPD-7)."""
    again = sum(writes["again"].values())
    if not again or not writes["first"]:
        return
    parts = sorted(writes["again"].items(), key=lambda part: -part[1])
    told = ", ".join(f"{_WHY_AGAIN.get(why, why)} {tokens(count)}" for why, count in parts)
    times = (writes["first"] + again) / writes["first"]
    out(f"  {times:.2f} cache writes for each token: {tokens(writes['first'])} for the first time, again: {told}")


def _forks(forks: Result) -> None:
    """The requests for session notes, of one session or of all."""
    share = "" if forks["share"] is None else f"; {100 * forks['share']:.1f}% of the prefix read from the cache"
    out(
        f"  notes by forks: {plural(forks['runs'], 'fork')}, {plural(forks['requests'], 'request')}, "
        f"{forks['invalid_requests']} invalid{share}"
    )
    for reason, count in forks["failed"].items():
        out(f"    {plural(count, 'fork')} ended early: {reason}")


def _forks_of_all(results: Sequence[Result]) -> None:
    kept = [one["forks"] for one in results if "forks" in one]
    if not kept:
        return
    names = ("runs", "requests", "invalid_requests", "prefix_tokens", "cache_read_tokens")
    sums: Result = {name: sum(one[name] for one in kept) for name in names}
    failed: Counter[str] = Counter()
    for one in kept:
        failed.update(one["failed"])
    share = sums["cache_read_tokens"] / sums["prefix_tokens"] if sums["prefix_tokens"] else None
    _forks({**sums, "share": share, "failed": failed})


def uncached_usd(result: Result) -> float | None:
    """What the same calls would cost if nothing were cached; None without a price."""
    from perdure.context.cost import usage_usd
    from perdure.context.models import model_spec
    from perdure.transcript.messages import Usage

    cost, model = result["cost"], model_spec(result.get("model"))
    if cost["usd"] is None or model.input_usd is None:
        return None
    prompt = cost["input"] + cost["cache_write"] + cost["cache_read"]
    return usage_usd(Usage(input_tokens=prompt, output_tokens=cost["output"]), model)


def _helped(result: Result) -> None:
    """What was done beside the conversation: notes, and a model that was asked for records."""
    if updates := result["notes"]["updates"]:
        failed = result["notes"]["failures"]
        out(f"  notes written {plural(updates, 'time')}{f', {failed} failed' if failed else ''}")
    if (asked := result["summarizer"]) is not None:
        paid = "" if asked["usd"] is None else f" for {usd(asked['usd'])}"
        said = f"{plural(asked['requests'], 'request')}, {plural(asked['answers'], 'answer')}{paid}"
        wrong = f", {asked['invalid']} invalid: a defect of Perdure, please report it" if asked["invalid"] else ""
        out(f"  {clean(asked['model'])} was asked for records: {said}{wrong}")


def _logged(logged: Result) -> None:
    for one in logged["compactions"]:
        pre = one["pre_tokens"]
        said = "without a size" if pre is None else f"at {pre:,} tokens; our size there: {one['our_tokens']:,}"
        error = "" if pre is None else f" ({one['our_tokens'] - pre:+,})"
        out(f"  the log compacted ({clean(one['trigger'])}) {said}{error}")
    for one in logged["microcompactions"]:
        if one["ids"] or one["our_ids"]:  # some clients note each time that they looked
            same = set(one["ids"]) & set(one["our_ids"])
            out(
                f"  the log cleared {plural(len(one['ids']), 'result')}; our rule picks {len(one['our_ids'])}, "
                f"{len(same)} of them the same"
            )
    if cost := logged.get("cost"):
        out(f"  the log itself paid {usd(cost['usd'])} ({tokens(cost['cache_read'])} read from the cache)")


def _trouble(result: Result) -> None:
    if result["invalid_requests"]:
        out(f"  {plural(result['invalid_requests'], 'invalid request')}: a defect of Perdure, please report it")
    if result["unexplained_prefix_moves"]:
        out(f"  {plural(result['unexplained_prefix_moves'], 'prefix move')} without a reason: please report it")
    problems = result["problems"]
    if not problems:
        return
    out(f"  {plural(len(problems), 'problem')} in the recording:")
    for one in problems[:_SHOWN_PROBLEMS]:
        place = f"line {one['line']}: " if one["line"] else ""
        out(f"    {place}{cut(one['what'], 160)}")
    if len(problems) > _SHOWN_PROBLEMS:
        out(f"    … and {len(problems) - _SHOWN_PROBLEMS} more (--json lists all)")


def summary(results: Sequence[Result]) -> None:
    """All sessions of a run, a row each, as `_kept` leaves them (counts for lists)."""
    rows: list[tuple[str | int | float | None, ...]] = []
    for one in results:
        name = _end(one["file"], one.get("session"))
        if "error" in one:
            rows.append((name, None, None, None, None, None, None, "failed"))
            continue
        sound = not one["invalid_requests"] and not one["unexplained_prefix_moves"]
        state = ("ok" if sound else "defect") + (f", {plural(one['problems'], 'problem')}" if one["problems"] else "")
        rows.append(
            (
                name,
                one["turns"],
                one["tokens_final"],
                one["compactions"],
                one["microcompactions"],
                one["offloads"],
                one["cost"]["usd"],
                state,
            )
        )
    table(("session", "turns", "tokens", "compact", "micro", "offload", "usd", "state"), rows)
    failed = sum("error" in one for one in results)
    turns = sum(one.get("turns", 0) for one in results)
    out(f"\n{plural(len(results), 'session')}, {plural(turns, 'turn')}, {failed} failed")
    _writes(_writes_of_all(results))
    _forks_of_all(results)


def _writes_of_all(results: Sequence[Result]) -> Result:
    kept = [one["cache_writes"] for one in results if "cache_writes" in one]
    again: Counter[str] = Counter()
    for one in kept:
        again.update(one["again"])
    return {"first": sum(one["first"] for one in kept), "again": again}


def _show_verdict(found: Result | None, facts: Result | None) -> None:
    if found is None:
        out("\nno verdict on the price: none of these logs says what its calls took, of a model with a known price")
        show_facts(facts)
        return
    paid, ours = found["paid_usd"], found["ours_usd"]
    change = f"{usd(abs(paid - ours))} ({100 * abs(paid - ours) / paid:.0f}%) {'less' if ours <= paid else 'more'}"
    change = change if usd(paid) != usd(ours) else "about as much"
    some = plural(found["sessions"], "session")
    some = some if found["sessions"] == found["of"] else f"{found['sessions']} of {found['of']} sessions"
    out(f"\nverdict on {some}: the logs paid {usd(paid)}; with Perdure the same calls cost {usd(ours)}, {change}")
    bought = []
    if found["compactions"] != found["logged_compactions"]:
        bought.append(f"{plural(found['compactions'], 'compaction')} instead of {found['logged_compactions']:,}")
    written, before = found["cache_write_tokens"], found["logged_cache_write_tokens"]
    if written < before:
        bought.append(f"{tokens(before - written)} tokens fewer written to the cache")
    bought.append("whatever left the window can be recalled word for word")
    out(f"what that buys: {', and '.join(bought) if len(bought) < 3 else ', '.join(bought)}")
    show_facts(facts)


def show_facts(facts: Result | None) -> None:
    if facts is None:
        out("facts kept: unknown, since none of these logs shows a compaction with what it kept")
        return
    needed, behind = facts["needed"], plural(facts["places"], "compaction")
    out(
        f"facts kept: of {plural(needed, 'fact')} that the work needed after {behind} of the "
        f"logs, our record keeps {100 * facts['kept'] / needed:.0f}%, theirs {100 * facts['logged_kept'] / needed:.0f}%"
    )


def _end(file: str, session: str | None) -> str:
    """What tells the sessions apart: the end of the path, and the session where the file isn't named after it."""
    name = file.rsplit("/", 1)[-1]
    if session is not None and session not in name:
        stem = name.rsplit(".", 1)[0]
        name = session if session.startswith(stem) else f"{name} {session}"
    name = clean(name)
    return name if len(name) <= _NAME_CHARS else "…" + name[1 - _NAME_CHARS :]
