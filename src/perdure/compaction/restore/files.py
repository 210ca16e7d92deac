"""Recent files: which were read and edited, what is known of them, and their return (RST-1)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from perdure import prompts
from perdure.compaction.restore.registry import (
    CurrentFile,
    Restoration,
    RestoredEntry,
    Restorer,
    RestoreScene,
    TokenRoom,
    Tracker,
)
from perdure.context.reminders import name, neutralised, restored
from perdure.settings import Settings
from perdure.text.cleaning import LEAST_TOKENS
from perdure.transcript.blocks import ToolResult
from perdure.transcript.messages import MessageId, ToolUseId
from perdure.transcript.tool_calls.actions import AnsweredCall, Happened, Span
from perdure.transcript.tool_calls.files import FileAction, KnownLines, LineRun, file_actions, runs_of

KIND = "files"
FILES_KEPT = 60  # by the tracker; more than are ever restored, so that one that left out can be named
SPANS_KEPT = 4
_CANDIDATES = 12  # this many are read from disk at most, to find five that can be restored
# Instruction files, plans, memory and the transcripts of agents come back by other ways, or never (RST-1).
_OTHERS = re.compile(
    r"(?:^|[/\\])(?:CLAUDE(?:\.local)?\.md|AGENTS(?:\.override)?\.md|GEMINI\.md|QWEN\.md|MEMORY\.md|SKILL\.md"
    r"|\.cursorrules|\.windsurfrules|\.clinerules|copilot-instructions\.md)$"
    r"|[/\\]\.(?:claude|codex|perdure|holdfast|cursor)[/\\](?:projects|plans|rules|sessions|memory|history)[/\\]"
    r"|[/\\]tool-results[/\\]|[/\\]journal\.jsonl$|[/\\]tasks[/\\]\w+\.output$"
)


class FileInPlay(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file in play: what was done to it last, and the parts that were read, newest first."""

    how: str
    spans: tuple[Span, ...] = ()
    edits: int = 0


class FilesInPlay(msgspec.Struct):
    """The files in play by path, the most recent last."""

    seen: dict[str, FileInPlay] = {}


def same_file(path: str, others: Iterable[str]) -> str | None:
    """Which of these paths is the same file: itself, or one that a relative path is certainly the end of."""
    if path in others:
        return path
    own = _form(path)
    named = [other for other in others if other.endswith(own.name)]
    found = [other for other in named if (form := _form(other)).name == own.name and _is_same(own, form)]
    return found[0] if len(found) == 1 else None


class _PathForm(NamedTuple):
    """A path as paths are compared."""

    plain: str
    is_absolute: bool
    name: str


@lru_cache(maxsize=8_192)
def _form(path: str) -> _PathForm:
    plain = _plain(path)
    return _PathForm(plain, _is_absolute(path), plain.rpartition("/")[2])


def _is_same(one: _PathForm, other: _PathForm) -> bool:
    if one.is_absolute is other.is_absolute:
        return one.plain == other.plain
    return one.plain.endswith(f"/{other.plain}") or other.plain.endswith(f"/{one.plain}")


def _plain(path: str) -> str:
    """A path as any shell would write it: `D:\\a\\b`, `D:/a/b` and `/d/a/b` are one."""
    if path[1:2] == ":":
        path = f"/{path[0].lower()}{path[2:]}"
    return path.replace("\\", "/").removeprefix("./")


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "~", "\\")) or path[1:2] == ":"


def track(state: FilesInPlay, happened: Happened) -> FilesInPlay:
    """Take in what a call did to files."""
    if not isinstance(happened, AnsweredCall):
        return state
    for deed in file_actions(happened):
        path = same_file(deed.path, state.seen) or deed.path
        before = state.seen.pop(path, None)
        if before is None and deed.how in ("deleted", "output"):
            continue
        path = deed.path if _is_absolute(deed.path) else path
        spans = before.spans if before else ()
        if deed.how == "read" and deed.is_whole:
            spans = ()
        elif deed.span is not None:
            spans = (deed.span, *(span for span in spans if span != deed.span))[:SPANS_KEPT]
        edits = (before.edits if before else 0) + (deed.how != "read")
        state.seen[path] = FileInPlay("edited" if deed.how == "output" else deed.how, spans, edits)
    while len(state.seen) > FILES_KEPT:
        del state.seen[next(iter(state.seen))]
    return state


TRACKER = Tracker(KIND, FilesInPlay, track)


def is_other(path: str) -> bool:
    """Whether a file comes back in another way than as a recent file, or shouldn't at all."""
    return bool(_OTHERS.search(path))


def shown_files(scene: RestoreScene, *, since: int | None = None) -> set[str]:
    """The files whose content the view shows from an item on (by default: from the first kept one).

    This is the read-state: a fold of the view, so a boundary resets it by itself (CMP-8).
    """
    start = scene.keep_from if since is None else since
    found: set[str] = set()
    for used in scene.happened:
        if not isinstance(used, AnsweredCall):
            continue
        position = scene.view.positions.get(used.message, -1)
        if position < start and (since is not None or position >= scene.start):
            if since is None:  # what is kept before the part that leaves may be out of date by then
                found -= {deed.path for deed in file_actions(used) if deed.how != "read"}
            continue
        for deed in file_actions(used):
            if deed.how == "deleted":
                found.discard(deed.path)
            elif _is_shown(scene, used, deed):
                found.add(deed.path)
    return found


def _is_shown(scene: RestoreScene, used: AnsweredCall, deed: FileAction) -> bool:
    """Whether the view still shows what the deed tells: a write in its call, a read in its result."""
    view = scene.view
    if deed.text is not None and not deed.runs:
        call = view.calls.get(ToolUseId(used.use.id))
        item = view.items[call.position] if call else None
        return bool(item and call and not item.is_hidden and item.shown[call.block] is not None)
    if deed.how != "read" and not deed.runs:
        return False
    item = view.item(MessageId(used.message))
    block = item.shown[used.block] if item is not None and not item.is_hidden else None
    value = block.value if block is not None else None
    said = used.result.text()
    return isinstance(value, ToolResult) and value.text() in (said, neutralised(said), neutralised(said, tokens=True))


def candidates(scene: RestoreScene) -> list[str]:
    """The files that could come back, newest first; behind the two newest those that open work names."""
    state = scene.states.get(KIND)
    if not isinstance(state, FilesInPlay):
        return []
    shown = shown_files(scene)
    plan = scene.states.get("plan")
    plan_path = getattr(plan, "path", None)
    others = {*shown, plan_path} if plan_path else shown
    paths = [path for path in reversed(state.seen) if same_file(path, others) is None and not is_other(path)]
    todos = getattr(scene.states.get("todos"), "items", ())
    named = named_by([todo.text for todo in todos if todo.state not in _FINISHED], paths)[:_NAMED]
    newest = [path for path in paths if path not in named][:_NEWEST]
    return list(dict.fromkeys((*newest, *named, *paths)))


_NEWEST, _NAMED = 3, 2  # of the five that come back
_FINISHED = frozenset({"completed", "cancelled", "deleted"})
_TELLING_CHARS = 4
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def named_by(work: Iterable[str], paths: Sequence[str]) -> list[str]:
    """The file that each piece of work is likely about: most of its words stand in that path and in few others."""
    words = {path: _words(path) for path in paths}
    often = Counter(word for some in words.values() for word in some)
    found: dict[str, None] = {}
    for text in work:
        wanted = _words(text)
        fits = {path: sum(1 / often[word] for word in words[path] & wanted) for path in paths}
        best = max((path for path in paths if path not in found), key=fits.__getitem__, default=None)
        if best is not None and fits[best] * 2 >= 1:  # a word that only two paths have says it, or several together
            found[best] = None
    return list(found)


def _words(text: str) -> set[str]:
    """The words of a path or a sentence, without an s at their end."""
    return {part.lower().rstrip("s") for part in _PARTS.findall(text) if len(part) >= _TELLING_CHARS}


def wants(scene: RestoreScene) -> tuple[str, ...]:
    return tuple(candidates(scene)[:_CANDIDATES])


def contents(scene: RestoreScene, paths: Iterable[str]) -> dict[str, KnownLines]:
    """What the log shows of files, as of now: reads and writes, with the edits that came after them.

    What the last boundary restored is as of that boundary, so it already holds what the messages kept there did.
    """
    wanted = set(paths)
    known: dict[str, KnownLines] = {}
    places = scene.restored.get(KIND, {})
    for path, place in places.items():
        text = scene.text_at(place)
        if text is not None and (same := same_file(path, wanted)) is not None:
            known[same] = _read_back(text)
    restored_then = set(known)
    kept_then = set(scene.view.boundary.kept) if scene.view.boundary else set()
    for used in scene.happened:
        if not isinstance(used, AnsweredCall):
            continue
        for deed in file_actions(used):
            same = same_file(deed.path, wanted)
            if same is None or (same in restored_then and used.message in kept_then):
                continue
            now = deed.on(known.get(same))
            if now is None:
                known.pop(same, None)
            else:
                known[same] = now
    return {path: text for path, text in known.items() if text.runs or text.is_whole}


def restore(scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    """At most so many files as the setting says, newest first; those that are gone or unreadable are said."""
    paths = candidates(scene)
    state = scene.states.get(KIND)
    if not paths or not isinstance(state, FilesInPlay):
        return None
    most = scene.facts.settings.restore_files
    known = contents(scene, paths[:_CANDIDATES])
    entries: list[RestoredEntry] = []
    left_out: list[str] = []
    for path in paths:
        if state.seen[path].how == "deleted" and scene.files is None:
            left_out.append(f"{path} (deleted)")
            continue
        if len(entries) >= most:
            left_out.append(path)
            continue
        text, why = _entry(scene, path, known.get(path), room)
        if text is not None and room.admits(text):
            entries.append(RestoredEntry(path, text))
        else:
            left_out.append(f"{path} ({why})" if why else path)
    return Restoration(tuple(entries), tuple(left_out))


def _entry(scene: RestoreScene, path: str, known: KnownLines | None, room: TokenRoom) -> tuple[str | None, str]:
    """The text of a file, or why there is none."""
    now, state = _current(scene, path), scene.states[KIND].seen[path]
    if scene.files is not None and now is None:
        return None, ""
    if now is not None and now.text is None:
        return None, now.why
    as_of = "as last shown"
    if now is not None and now.text is not None:
        changed = known is not None and not known.agrees(now.text)
        as_of = "changed since it was last shown" if changed else "as on disk now"
        known = KnownLines.whole(now.text)
    if known is None:
        return None, "its content is not in the log any more"
    if not known.runs:
        return None, "empty"
    return _fitted(path, known, (state.spans, as_of), room), ""


def _current(scene: RestoreScene, path: str) -> CurrentFile | None:
    return scene.files.get(path) if scene.files is not None else None


def _fitted(path: str, known: KnownLines, about: tuple[tuple[Span, ...], str], room: TokenRoom) -> str | None:
    """The file within the room, cut at lines; None when not even one line fits."""
    spans, as_of = about
    fits = room.next - room.cost(_framed(path, "", "lines 1-1000000 of 1000000, ", as_of)) - 2
    sample = "\n".join(line for run in known.runs for line in run.lines)
    price = max(0.05, room.cost(sample[:200_000]) / max(1, min(len(sample), 200_000)))
    for _ in range(6):
        if fits < LEAST_TOKENS and room.cost(sample[: 8 * LEAST_TOKENS]) > fits:
            return None
        runs, left = chosen(known, spans, fits, price)
        if not runs:
            return None
        parts = ", ".join(f"{run.first}-{run.last}" for run in runs)
        of = f" of {known.last}" if known.is_whole else ""
        lines = "" if known.is_whole and not left else f"lines {parts[:200]}{of}, "
        text = _framed(path, neutralised(numbered_listing(runs)), lines, as_of)
        if room.cost(text) <= room.next:
            return text
        fits = fits * 3 // 4
    return None


def numbered_listing(runs: Sequence[LineRun]) -> str:
    """Runs as numbered lines, with a mark where lines are missing; `numbered_runs` reads it back."""
    rows: list[str] = []
    for index, run in enumerate(runs):
        if index:
            rows.append("…")
        rows += [f"{run.first + i}\t{line}" for i, line in enumerate(run.lines)]
    return "\n".join(rows)


def numbered_runs(text: str) -> tuple[LineRun, ...]:
    """The runs of a listing made by `listing`."""
    lines: dict[int, str] = {}
    for row in text.split("\n"):
        number, tab, line = row.partition("\t")
        if tab and number.isdigit():
            lines[int(number)] = line
    return runs_of(lines)


def chosen(known: KnownLines, focus: Sequence[Span], fits: int, price: float) -> tuple[tuple[LineRun, ...], int]:
    """The lines to show within `fits` units, at `price` units a character: all, else the spans in focus, then the
    head. Gives the runs and how many known lines were left out.
    """
    lines = known.lines
    cost = {number: (len(line) + len(str(number)) + 2) * price for number, line in lines.items()}
    if sum(cost.values()) <= fits:
        return known.runs, 0
    taken: dict[int, str] = {}
    room = fits - 4.0
    order = [number for first, last in focus for number in range(first, min(last, known.last) + 1)]
    for number in dict.fromkeys((*order, *sorted(lines))):
        if number not in lines:
            continue
        room -= cost[number] + (0 if number - 1 in taken or number + 1 in taken else 4 * price)
        if room < 0:
            break
        taken[number] = lines[number]
    return runs_of(taken), len(lines) - len(taken)


def _framed(path: str, body: str, lines: str, as_of: str) -> str:
    return prompts.render("restored_file", path=name(path).replace('"', "'"), about=f"{lines}{as_of}", body=body)


def _read_back(text: str) -> KnownLines:
    """What a restored file said, from its block."""
    runs = numbered_runs(restored(text))
    is_whole = "lines " not in text.split("\n", 1)[0].rsplit('state="', 1)[-1]
    return KnownLines(runs, is_whole=is_whole)


def budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_file_tokens, settings.restore_files_tokens


RESTORER = Restorer(KIND, restore, budget, lead=prompts.source("restored_files"), rank=80, wants=wants)
