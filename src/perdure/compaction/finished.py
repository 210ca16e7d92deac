"""Which stretches of the history are finished, so that they can be folded (TURN-6): work on a todo that was closed,
runs of sub-agents, and attempts that were taken back.

Each begins and ends at legal cuts, was sent whole, and isn't folded yet. An attempt counts as taken back where that is
certain: an edit whose exact reverse followed, a file that version control or a rewind put back, a new file that was
deleted. Whatever else changed files in between keeps it from being folded, as does a command that merely failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from perdure.context.cuts import legal_cuts
from perdure.context.view import CallInView, ContextView
from perdure.transcript.blocks import Text, ToolResult, ToolUse
from perdure.transcript.messages import FILES_REWOUND, Message
from perdure.transcript.tool_calls.actions import ActionKind, AnsweredCall, HistoryReader, MessageText, ToolTable
from perdure.transcript.tool_calls.background import background_updates
from perdure.transcript.tool_calls.files import FileAction, KnownLines, file_actions
from perdure.transcript.tool_calls.patches import TextEdit
from perdure.transcript.tool_calls.shell import whole_output
from perdure.transcript.tool_calls.todos import todo_update

_CHANGING: tuple[ActionKind, ...] = ("edit", "write", "delete")
_HARMLESS: tuple[ActionKind, ...] = ("read", "search", "run", *_CHANGING)
_PUTS_BACK = re.compile(rb"\bgit\b.*\b(?:checkout|restore|reset)\b|\brm\b|\bunlink\b", re.DOTALL)
# What it kept can't be told from what was there before, so nothing earlier counts as taken back by a later checkout.
_KEEPS = re.compile(
    rb"\bgit\b.*\b(?:commit|add|stash|merge|rebase|pull|am|apply|cherry-pick|revert|switch)\b", re.DOTALL
)
_CD = re.compile(r"\s*cd\s+([^\s;&|]+)")
_REMINDER_END = "\n</system-reminder>"
_SCRATCH = ("/tmp/", "/dev/")


class FinishedRange(NamedTuple):
    """Items from `first` to `last`; `title` says of what, for whoever reads the projection."""

    first: int
    last: int
    title: str
    what: Literal["task", "agents", "attempt"]


class AgentReport(NamedTuple):
    """What a sub-agent said in the end; `source` is the id that recalls it: of a call, or of the message it came in."""

    title: str
    text: str
    source: str


def finished_ranges(view: ContextView, tools: ToolTable) -> list[FinishedRange]:
    """All finished stretches that can be folded, the first first, of those that begin together the longest."""
    kinds = {call.name: tools.kind(call.name) for call in view.calls.values()}
    if not {"todo", "agent", *_CHANGING} & set(kinds.values()):
        return []
    cuts = legal_cuts(view, loops=False)
    found = [*_closed_todos(view, kinds, cuts), *_agent_runs(view, tools, kinds, cuts)]
    if set(_CHANGING) & set(kinds.values()):
        found += _undone_attempts(view, tools, kinds, cuts)
    whole = (one for one in found if not any(item.is_hidden for item in view.items[one.first : one.last + 1]))
    return sorted(whole, key=lambda one: (one.first, -one.last))


def _between(cuts: list[int], first: int, last: int, view: ContextView) -> tuple[int, int] | None:
    """The smallest range between cuts that holds these positions; None when not all of it was sent."""
    start = next((cut for cut in reversed(cuts) if cut <= first), None)
    end = next((cut for cut in cuts if cut > last), None)
    return None if start is None or end is None or end > view.sent else (start, end - 1)


def _answered(view: ContextView, call: CallInView, tools: ToolTable) -> AnsweredCall | None:
    """A call with its result, as they were said; None while it is open."""
    result = view.results.get(call.id)
    if result is None:
        return None
    use = view.items[call.position].message.blocks[call.block].value
    said = view.items[result.position].message
    value = said.blocks[result.block].value
    if not isinstance(use, ToolUse) or not isinstance(value, ToolResult):
        return None
    given = use.input
    return AnsweredCall(use, given, tools.action(use.name, given), value, said.id, result.block)


# --- todos ------------------------------------------------------------------------------------------------------------


def _closed_todos(view: ContextView, kinds: dict[str, ActionKind], cuts: list[int]) -> Iterator[FinishedRange]:
    """The work between the call that began a todo and the one that closed it."""
    started: dict[str, int] = {}
    for call in view.calls.values():
        if kinds[call.name] != "todo" or view.items[call.position].is_hidden:
            continue
        value = view.items[call.position].message.blocks[call.block].value
        update = todo_update("todo", call.name, value.input) if isinstance(value, ToolUse) else None
        for todo, status, _ in update.items if update is not None else ():
            if not todo:
                continue  # named by its id alone
            if status == "in_progress":
                started.setdefault(todo, call.position)
            elif status == "completed" and todo in started:
                first = next((cut for cut in cuts if cut > started[todo]), None)
                last = next((cut for cut in reversed(cuts) if cut <= call.position), None)
                del started[todo]
                if first is not None and last is not None and first < last <= view.sent:
                    yield FinishedRange(first, last - 1, todo, "task")


# --- sub-agents -------------------------------------------------------------------------------------------------------


def _agent_runs(
    view: ContextView, tools: ToolTable, kinds: dict[str, ActionKind], cuts: list[int]
) -> Iterator[FinishedRange]:
    """Stretches in which nothing was done but to start sub-agents, wait for them, and hear what they found."""
    if "agent" not in kinds.values():
        return
    rounds: dict[int, list[CallInView]] = {}
    for call in view.calls.values():
        rounds.setdefault(call.position, []).append(call)
    first, titles, running, last = 0, list[str](), set[str](), -1
    for start, end in pairwise(cuts):
        heard = _agents_heard(view, tools, kinds, rounds, range(start, end), running)
        if heard is None or end > view.sent:
            if titles and not running:
                yield FinishedRange(first, last, ", ".join(titles), "agents")
            titles, running = [], set()
            continue
        if not titles:
            first = start
        titles += heard
        if titles:
            last = end - 1
    if titles and not running:
        yield FinishedRange(first, last, ", ".join(titles), "agents")


def _agents_heard(
    view: ContextView,
    tools: ToolTable,
    kinds: dict[str, ActionKind],
    rounds: dict[int, list[CallInView]],
    between: range,
    running: set[str],
) -> list[str] | None:
    """The runs that begin between two cuts; None when something else happens there. `running` is brought up to date."""
    titles: list[str] = []
    for position in between:
        item = view.items[position]
        message = item.message
        is_said = any(isinstance(block.value, Text) for block in message.blocks)
        calls = rounds.get(position, [])
        if item.is_hidden or (message.origin == "user" and is_said) or (message.role == "assistant" and not calls):
            return None
        for call in calls:
            used = _answered(view, call, tools)
            if used is None or kinds[call.name] not in ("agent", "input", "stop"):
                return None
            updates = list(background_updates(used))
            if kinds[call.name] == "agent":
                titles.append(_agent_title(used))
            elif not updates or any(update.id not in running for update in updates):
                return None
            running |= {update.id for update in updates if not update.has_ended}
            running -= {update.id for update in updates if update.has_ended}
        for index, block in enumerate(message.blocks):
            if isinstance(block.value, Text) and message.role == "user":
                updates = list(background_updates(MessageText(block.value.text, message.origin, message.id, index)))
                running -= {update.id for update in updates if update.has_ended}
    return titles


def agent_reports(messages: Iterable[Message], tools: ToolTable) -> list[AgentReport]:
    """The final answers of the sub-agents that ran in these messages, in the order in which they were heard."""
    titles: dict[str, str] = {}
    reports: dict[str, AgentReport] = {}
    for one in HistoryReader(tools).read(messages):
        updates = list(background_updates(one))
        if isinstance(one, AnsweredCall) and one.action.kind == "agent":
            titles |= {update.id: _agent_title(one) for update in updates}
            if not updates and one.text.strip():
                reports[one.use.id] = AgentReport(_agent_title(one), one.text.strip(), one.use.id)
        for update in updates:
            if update.result.strip():
                source = one.use.id if isinstance(one, AnsweredCall) else one.message
                reports[update.id] = AgentReport(titles.get(update.id, update.id), update.result.strip(), source)
    return list(reports.values())


def _agent_title(used: AnsweredCall) -> str:
    return used.word("description", "name", "task", "prompt") or used.name


# --- attempts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Change:
    """A file was changed by a call. `before` is all that it said until then, where that is known."""

    call: CallInView
    edits: tuple[TextEdit, ...] | None = None
    before: str | None = None
    is_new: bool = False


class _Changes:
    """The changes to each file that still stand, and those that were taken back, by whom."""

    def __init__(self) -> None:
        self.standing: dict[str, list[_Change]] = {}
        self.texts: dict[str, KnownLines] = {}
        self.until: dict[tuple[str, str], int] = {}  # call and file whose change is gone: position from which it is
        self.since: dict[tuple[str, str], int] = {}  # call that took changes of a file back: position of the first
        self.spans: dict[tuple[int, int], list[str]] = {}

    def take_back(self, path: str, keep: int, position: int, by: CallInView | None) -> None:
        """All changes of a file but the first `keep` are gone."""
        gone = self.standing[path][keep:]
        if not gone:
            return
        del self.standing[path][keep:]
        self.texts.pop(path, None)
        if gone[0].before is not None:
            self.texts[path] = KnownLines.whole(gone[0].before)
        first = gone[0].call.position
        self.until |= {(change.call.id, path): position for change in gone}
        if by is not None:
            self.since[by.id, path] = first
        self.spans.setdefault((first, position), []).append(path)

    def change(self, call: CallInView, used: AnsweredCall, action: FileAction, position: int) -> None:
        """A file was edited or written: one change more, or earlier ones taken back."""
        stack = self.standing.setdefault(action.path, [])
        known = self.texts.get(action.path)
        after = action.on(known)
        before, now = _whole(known), _whole(after)
        same = next((i for i, change in enumerate(stack) if now is not None and change.before == now), None)
        if same is None and stack and _is_reverse(stack[-1].edits, action.edits):
            same = len(stack) - 1
        if same is not None:
            self.take_back(action.path, same, position, call)
        else:
            is_new = action.how == "written" and not stack and "creat" in used.text[:200].lower()
            stack.append(_Change(call, action.edits, before, is_new))
        if after is None:
            self.texts.pop(action.path, None)
        else:
            self.texts[action.path] = after

    def named(self, path: str) -> str | None:
        """The changed file that a command names, if it can be only one."""
        found = [one for one, stack in self.standing.items() if stack and (one == path or one.endswith(f"/{path}"))]
        return found[0] if len(found) == 1 else None


def _whole(known: KnownLines | None) -> str | None:
    return None if known is None or not known.is_whole else "\n".join(line for run in known.runs for line in run.lines)


def _is_reverse(edits: tuple[TextEdit, ...] | None, later: tuple[TextEdit, ...] | None) -> bool:
    if not edits or not later or any(everywhere for _, _, everywhere in (*edits, *later)):
        return False
    return tuple((new, old, False) for old, new, _ in reversed(edits)) == tuple(later)


def _undone_attempts(
    view: ContextView, tools: ToolTable, kinds: dict[str, ActionKind], cuts: list[int]
) -> Iterator[FinishedRange]:
    """From the first of some changes to what took them back, where nothing else in between left a trace."""
    changes = _Changes()
    rewinds = [at for at, item in enumerate(view.items) if (item.message.note or "").startswith(FILES_REWOUND)]
    for call in view.calls.values():
        while rewinds and rewinds[0] < call.position:
            _rewound(view, changes, rewinds.pop(0))
        if not view.items[call.position].is_hidden:
            _follow(view, changes, call, tools, kinds[call.name])
    for position in rewinds:
        _rewound(view, changes, position)
    for (first, last), paths in changes.spans.items():
        span = _between(cuts, first, last, view)
        if span is not None and _leaves_nothing(view, changes, span, tools, kinds):
            yield FinishedRange(*span, ", ".join(dict.fromkeys(paths)), "attempt")


def _follow(view: ContextView, changes: _Changes, call: CallInView, tools: ToolTable, kind: ActionKind) -> None:
    """Take in what one call did to files that matter here."""
    if kind == "run":
        value = view.items[call.position].message.blocks[call.block].value
        raw = bytes(value.raw_input) if isinstance(value, ToolUse) else b""
        if _KEEPS.search(raw):
            changes.standing.clear()
            return
        if not _PUTS_BACK.search(raw):
            return
    elif kind not in _CHANGING:
        return
    used = _answered(view, call, tools)
    if used is None:
        return
    position = view.results[call.id].position
    if used.arguments.get("command") == "undo_edit" and not used.has_failed:
        for file in used.action.files:
            if changes.standing.get(file.path):
                changes.take_back(file.path, len(changes.standing[file.path]) - 1, position, call)
        return
    if kind != "run":
        for action in file_actions(used):
            if action.how in ("edited", "written"):
                changes.change(call, used, action, position)
    if used.has_failed or whole_output(used.text) is None:
        return
    for gone in used.action.removals:
        if gone.how == "undone":
            _put_back(changes, call, gone.path, used, position)
        elif gone.how == "deleted" and (path := changes.named(gone.path)) and changes.standing[path][0].is_new:
            changes.take_back(path, 0, position, call)


def _put_back(changes: _Changes, call: CallInView, path: str, used: AnsweredCall, position: int) -> None:
    """Version control put a file, or all files of a folder, back to what they were."""
    if path and (named := changes.named(path)) is not None:
        changes.take_back(named, 0, position, call)
        return
    moved = _CD.match(used.action.command)
    folder = path if path.startswith("/") else used.word("workdir", "cwd") or (moved[1] if moved else "")
    for one, stack in changes.standing.items():
        # A new file stays where all of a folder is put back, so its changes do; without a folder nothing is certain.
        if folder.startswith("/") and one.startswith(folder.rstrip("/") + "/") and not any(c.is_new for c in stack):
            changes.take_back(one, 0, position, call)


def _rewound(view: ContextView, changes: _Changes, position: int) -> None:
    """A person put files back to before a prompt, and the conversation went on."""
    message = view.items[position].message
    prompt = (message.note or "").removeprefix(FILES_REWOUND)
    text = "\n".join(block.value.text for block in message.blocks if isinstance(block.value, Text))
    since = next((at for at, item in enumerate(view.items) if item.message.id == prompt), len(view.items))
    names = tuple(f"/{name.lstrip('/')}" for name in text.rpartition(": ")[2].removesuffix(_REMINDER_END).split(", "))
    for path, stack in changes.standing.items():
        keep = sum(change.call.position < since for change in stack)
        if f"/{path.lstrip('/')}".endswith(names):
            changes.take_back(path, keep, position, None)


def _leaves_nothing(
    view: ContextView, changes: _Changes, span: tuple[int, int], tools: ToolTable, kinds: dict[str, ActionKind]
) -> bool:
    """Whether every change to a file between two positions was taken back there, and nothing else was begun."""
    first, last = span
    for call in view.calls.values():
        if not first <= call.position <= last:
            continue
        kind = kinds[call.name]
        used = _answered(view, call, tools) if kind in _HARMLESS else None
        if used is None or used.arguments.get("run_in_background"):
            return False
        if kind in ("read", "search"):
            continue
        took_back = [since for (by, _), since in changes.since.items() if by == call.id]
        if any(since < first for since in took_back):
            return False
        put_back = [gone.path for gone in used.action.removals] if took_back else []
        for action in file_actions(used):
            key = (call.id, action.path)
            is_gone = key in changes.since or changes.until.get(key, last + 1) <= last
            if action.how != "read" and not (is_gone or action.path in put_back or action.path.startswith(_SCRATCH)):
                return False
    return True
