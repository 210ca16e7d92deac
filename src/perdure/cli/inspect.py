"""`perdure inspect`: what a session consists of, what happened to it, and what is odd about it (CLI-2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from perdure.cli.arguments import Json, OneOfFile, Reference, Sets, configured, examples, family
from perdure.cli.kept import KeptIn, StoreUrl, TenantName
from perdure.cli.output import clean, cut, out, out_json, plural, table

if TYPE_CHECKING:
    from perdure.cli.opened import ReadSession
    from perdure.transcript.messages import Message


app = family()
_SHOWN_PROBLEMS = 10
# A jump is a step of the reported prompt that what was said can't explain, by more than this.
_JUMP_TOKENS = 5_000
_SHOWN_IDS = 3


@app.command(epilog=examples("perdure inspect @last", "perdure inspect ~/logs/session.jsonl --json"))
def inspect(
    file: Reference,
    *,
    session: OneOfFile = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Show what a session consists of.

    Its tokens by category at the end, its compactions, and what is odd about it.
    """
    from perdure.cli.opened import read_sessions

    found = read_sessions(file, configured(sets or ()), session=session, kept=KeptIn(store, tenant))
    if not json and len(found) > 1:
        out(f"{clean(file)}: {plural(len(found), 'session')}\n")
    for one in found:
        if json:
            out_json(_data(one))
        else:
            _report(one)


def _data(one: ReadSession) -> dict[str, Any]:
    from perdure.cli.context import window_data
    from perdure.context.accounting import account

    roles = Counter(message.role for message in one.messages if message.agent_id is None)
    return {
        "file": one.name,
        "session": one.session,
        "format": one.format,
        "title": one.title,
        "model": one.view.front.model if one.view.front else None,
        "messages": dict(roles),
        "responses": one.view.state.responses,
        "sub_agents": len({m.agent_id for m in one.messages if m.agent_id is not None}),
        **window_data(one, account(one.view, one.facts)),
        "boundaries": [
            {
                "id": b.id,
                "after_messages": b.after,
                "trigger": b.trigger,
                "tokens_before": b.tokens_before,
                "tokens_after": b.tokens_after,
            }
            for b in one.boundaries
        ],
        "microcompactions": one.microcompactions,
        "anomalies": [
            {"kind": a.kind, "count": a.count, "what": a.what, "where": list(a.where)} for a in anomalies(one.messages)
        ],
        "problems": [{"line": problem.line, "what": problem.what} for problem in one.problems],
    }


def _report(one: ReadSession) -> None:
    from perdure.cli.context import category_table
    from perdure.cli.room import room_line
    from perdure.context.accounting import account

    data = _data(one)
    title = f": {cut(one.title, 80)}" if one.title else ""
    out(f"{clean(one.session)}{title}")
    counts = ", ".join(f"{count:,} {role}" for role, count in data["messages"].items()) or "none"
    model = f", model {clean(data['model'])}" if data["model"] else ""
    out(f"  {clean(one.name)}, format {one.format}{model}")
    agents = f"; {plural(data['sub_agents'], 'sub-agent')} beside them" if data["sub_agents"] else ""
    out(f"  messages: {counts} ({plural(data['responses'], 'response')}){agents}")
    out(f"  at the end: {room_line(one.view, one.facts)}\n")
    category_table(account(one.view, one.facts))
    out()
    _boundaries(one)
    _anomalies(anomalies(one.messages), one)
    out()


def _boundaries(one: ReadSession) -> None:
    if not one.boundaries:
        out("  no compactions")
    else:
        rows = [(b.after, b.trigger, b.tokens_before, b.tokens_after, b.id) for b in one.boundaries]
        table(("after messages", "compaction", "tokens before", "after", "id"), rows, indent="  ")
    if one.microcompactions:
        out(f"  old results were cleared {plural(one.microcompactions, 'time')}")


def _anomalies(found: list[Anomaly], one: ReadSession) -> None:
    for anomaly in found:
        more = ", …" if anomaly.count > len(anomaly.where) else ""
        out(f"  {anomaly.what}: {anomaly.count:,} ({clean(', '.join(anomaly.where))}{more})")
    for problem in one.problems[:_SHOWN_PROBLEMS]:
        place = f"line {problem.line}: " if problem.line else ""
        out(f"  {place}{cut(problem.what, 160)}")
    if len(one.problems) > _SHOWN_PROBLEMS:
        out(f"  … and {len(one.problems) - _SHOWN_PROBLEMS} more (--json lists all)")
    if not found and not one.problems:
        out("  nothing odd")


# --- what is odd: things that a log should not hold, each with how often ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`kind` is stable, for programs; `what` is for people; `where` are ids of messages or calls."""

    kind: str
    count: int
    what: str
    where: tuple[str, ...] = ()


def anomalies(messages: Sequence[Message]) -> list[Anomaly]:
    """All that was found in the main conversation, most telling first."""
    main = [message for message in messages if message.agent_id is None]
    found = [*_calls(main), *_repeated(main), *_jumps(main), *_times(main)]
    return [anomaly for anomaly in found if anomaly.count]


def _anomaly(kind: str, what: str, where: Sequence[str]) -> Anomaly:
    return Anomaly(kind, len(where), what, tuple(where[:_SHOWN_IDS]))


def _calls(messages: list[Message]) -> Iterator[Anomaly]:
    calls = Counter(use.id for message in messages for use in message.tool_uses)
    results = Counter(result.tool_use_id for message in messages for result in message.tool_results)
    yield _anomaly("calls_without_result", "calls without a result", [i for i in calls if i not in results])
    yield _anomaly("results_without_call", "results without a call", [i for i in results if i not in calls])
    yield _anomaly("repeated_call_ids", "call ids used more than once", [i for i, n in calls.items() if n > 1])
    yield _anomaly("repeated_results", "calls answered more than once", [i for i, n in results.items() if n > 1])


def _repeated(messages: list[Message]) -> Iterator[Anomaly]:
    ids = Counter(message.id for message in messages)
    yield _anomaly("repeated_message_ids", "message ids used more than once", [i for i, n in ids.items() if n > 1])


def _jumps(messages: list[Message]) -> Iterator[Anomaly]:
    """Steps of the reported usage between API responses that the messages between them don't explain."""
    from perdure.transcript.tokens import block_size

    up: list[str] = []
    down: list[str] = []
    last_total, since, response = None, 0, None
    for message in messages:
        usage = message.usage
        is_repeat = message.response_id is not None and message.response_id == response
        if message.role == "assistant" and usage is not None and usage.total_tokens and not is_repeat:
            if last_total is not None:
                gained = usage.prompt_tokens - last_total
                slack = _JUMP_TOKENS + since
                if gained > since + slack:
                    up.append(message.id)
                elif gained < -_JUMP_TOKENS:
                    down.append(message.id)
            last_total, since, response = usage.total_tokens, 0, message.response_id
        elif is_repeat and usage is not None and last_total is not None:
            last_total = max(last_total, usage.total_tokens)  # the last record of a response states all of it
        elif not is_repeat:
            since += sum(block_size(block).live for block in message.blocks)
    yield _anomaly("usage_jumps", "rises of the reported size beyond what was said", up)
    yield _anomaly("usage_drops", "falls of the reported size (compacted, cleared or rewound)", down)


def _times(messages: list[Message]) -> Iterator[Anomaly]:
    timed = [message for message in messages if message.at is not None]
    late = [b.id for a, b in pairwise(timed) if (b.at or 0) < (a.at or 0)]
    yield _anomaly("times_out_of_order", "messages dated before the one they follow", late)
