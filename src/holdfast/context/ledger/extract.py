"""What one message says, read once as it arrives: pieces of text with their facts, and what happened (CMP-5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from holdfast.context import jobs
from holdfast.context.jobs import Heard
from holdfast.context.ledger.facts import facts_in, kind_of, normal_path, short_path
from holdfast.context.ledger.outcomes import Outcome, outcome, runner_of
from holdfast.context.ledger.pieces import clipped, pieces, unnumbered, without_reminders
from holdfast.context.ledger.todos import Todo, TodoChange, created_key, todo_change
from holdfast.context.ledger.tools import Deeds, Tools
from holdfast.context.restore import happened as told
from holdfast.context.restore.shell import Fate
from holdfast.transcript.blocks import Block, Text, Thinking, ToolResult, ToolUse
from holdfast.transcript.messages import Message
from holdfast.transcript.spoken import is_of_person, spoken_text
from holdfast.transcript.tokens import base_tokens

SAID, INPUT, USER, OUTPUT, THOUGHT = range(5)  # who said it; the order is that of the counts of a fact

_DECIDED = re.compile(
    r"\b(?:I(?:'ll| will| decided| chose| am going to|'m going to)|[Ww]e(?:'ll| will| should| decided)|[Ll]et's|"
    r"[Dd]ecision|[Dd]ecided|[Ii]nstead of|[Rr]oot cause|"
    r"[Tt]he (?:fix|problem|issue|bug|cause|reason|plan|approach)\b.{0,40}?\b(?:is|was)|"
    r"[Bb]ecause|[Ss]o that|[Mm]ust (?:not )?|[Ww]on't|[Ff]ixed|[Cc]onfirmed|[Ff]ound (?:it|the))\b"
)
_ABOUT = ("subject", "description", "pattern", "query", "task_id", "bash_id", "session_id", "url", "prompt", "content")
_AWAY = re.compile(r"^\s*cd\s+\S+\s*(?:&&|;)\s*")  # where a command runs says nothing of what it does
_FAILED = ("Error", "error:", "apply_patch verification failed", "Your proposed edit has introduced")
_TITLE_CHARS = 44
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
# A call that was never done: a person, a hook or the host refused it. What a failing program prints begins otherwise.
_REFUSED = re.compile(
    r"\s*(?:The user doesn't want to (?:proceed|take this action)|\[Request interrupted by user|<tool_use_error>|"
    r"Permission to use |Permission denied by|(?:PreToolUse:?\S* )?(?:[Hh]ook|operation)\b.{0,80}\bblocked|"
    r"This command requires approval|Claude requested permissions)"
)


class Piece(NamedTuple):
    """A piece of about 200 characters: who said it, its facts, and the call or message that it stands in."""

    voice: int
    text: str
    keys: tuple[str, ...]
    source: str


class Words(NamedTuple):
    """What a person said."""

    id: str
    at: float | None
    text: str


class Said(NamedTuple):
    """What the assistant told the user, and the sentences in it that state a decision."""

    id: str
    at: float | None
    text: str
    decisions: tuple[str, ...]


class Touched(NamedTuple):
    """A file was read or changed; `names` are the identifiers written into it.

    It isn't certain when a command failed that was to change it, or when a command was to print it.
    """

    path: str
    deed: str
    span: str
    names: tuple[str, ...]
    is_certain: bool = True


class Gone(NamedTuple):
    """Files were taken away, or put back to what they were; `is_certain` when the command says that it worked."""

    fate: Fate
    is_certain: bool


class Ran(NamedTuple):
    """A command was run."""

    id: str
    at: float | None
    command: str
    runner: str


class Ended(NamedTuple):
    """A call came back; `command` is empty when it wasn't a command."""

    id: str
    command: str
    runner: str
    what: Outcome


class Planned(NamedTuple):
    """The plan changed."""

    change: TodoChange


Event = Words | Said | Touched | Gone | Ran | Ended | Planned | Heard


@dataclass(frozen=True, slots=True)
class Extract:
    """All that the ledger takes from one message."""

    id: str
    at: float | None
    tokens: int
    pieces: tuple[Piece, ...]
    events: tuple[Event, ...]
    titles: tuple[tuple[str, str], ...] = ()  # a line for each call: its tool and what it was about


@dataclass(slots=True)
class Open:
    """A call whose result has not come."""

    use: ToolUse
    deeds: Deeds
    added: str  # an entry of the plan, whose id the result will tell
    title: str
    events: tuple[Event, ...]  # what it does, if it is not refused


@dataclass(slots=True)
class Extractor:
    """Reads messages in order; it remembers open calls, the file that is open, and the tools of this agent."""

    tools: Tools = field(default_factory=Tools)
    _calls: dict[str, Open] = field(default_factory=dict)
    _file: str = ""  # the file that an editor without paths has open

    def extract(self, message: Message) -> Extract:
        """What a message says. Summaries and restored content are never a source: they repeat what was said."""
        found: list[Piece] = []
        events: list[Event] = []
        tokens = 0
        if message.origin in ("summary", "restored") or message.agent_id is not None:
            return Extract(message.id, message.at, 0, (), ())
        for index, block in enumerate(message.blocks):
            value = block.value
            if isinstance(value, Text):
                tokens += self._text(message, value.text, found, events)
            elif isinstance(value, ToolUse):
                tokens += self._use(message, value, found, events)
            elif isinstance(value, ToolResult):
                tokens += self._result(message, index, found, events)
            elif isinstance(value, Thinking):
                _add(found, THOUGHT, value.thinking, message.id)
                tokens += base_tokens(value.thinking)
        titles = tuple((use.id, self._calls[use.id].title) for use in message.tool_uses if use.id in self._calls)
        return Extract(message.id, message.at, tokens, tuple(found), tuple(events), titles)

    def _text(self, message: Message, text: str, found: list[Piece], events: list[Event]) -> int:
        tokens = base_tokens(text)
        if message.origin == "model":
            _add(found, SAID, text, message.id)
            if text.strip():
                events.append(Said(message.id, message.at, text.strip(), _decisions(text)))
            return tokens
        events += jobs.heard(told.Words(text, message.origin, message.id, 0))
        words = spoken_text(text) if is_of_person(message) else ""
        if words:
            _add(found, USER, words, message.id)
            events.append(Words(message.id, message.at, words))
        else:
            _add(found, OUTPUT, text, message.id)
        return tokens

    def _use(self, message: Message, use: ToolUse, found: list[Piece], events: list[Event]) -> int:
        arguments = use.arguments()
        deeds = self.tools.deeds(use.name, arguments)
        text = "\n".join(_strings(arguments))
        _add(found, INPUT, text, use.id)
        names = _names(deeds.written)
        does: list[Event] = []
        if deeds.deed in ("edit", "write") and not deeds.touches and self._file:
            does.append(Touched(self._file, "edit", "", names or _names(text)))
        for touch in deeds.touches:
            self._file = normal_path(touch.path)
            does.append(Touched(self._file, touch.deed, touch.span, names if touch.deed in ("edit", "write") else ()))
        if deeds.deed == "run" and deeds.command:
            does.append(Ran(use.id, message.at, deeds.command, runner_of(deeds.command)))
        added = ""
        if deeds.deed == "todo":
            change = todo_change(use.name, arguments)
            if change is not None and (change.is_whole or change.todos[0].key):
                events.append(Planned(change))
            elif change is not None:
                added = change.todos[0].text
        about = next((v for k in _ABOUT if isinstance(v := arguments.get(k), str) and v), deeds.command)
        subject = short_path(deeds.touches[0].path) if deeds.touches and not deeds.command else deeds.command or about
        title = " ".join(f"{use.name} {_AWAY.sub('', subject[:300])}".split())[:_TITLE_CHARS].rstrip()
        self._calls[use.id] = Open(use, deeds, added, title, tuple(does))
        return base_tokens(text)

    def _result(self, message: Message, index: int, found: list[Piece], events: list[Event]) -> int:
        result = message.blocks[index].value
        assert isinstance(result, ToolResult)
        whole = result.text()
        call = self._calls.pop(result.tool_use_id, None)
        deeds = call.deeds if call else Deeds("other")
        text = clipped(without_reminders(whole))
        if deeds.deed == "read":
            text = unnumbered(text)
        if deeds.deed != "todo":
            _add(found, OUTPUT, text, result.tool_use_id)
        is_refused = bool(_REFUSED.match(whole)) and (bool(result.is_error) or whole.startswith(told.DENIED))
        is_run = deeds.deed in ("run", "input")
        what = outcome(text, is_error=bool(result.is_error), is_run=is_run and not is_refused)
        if is_run and what.errors and what.code is None and result.is_error is None:
            what = replace(what, ok=None)  # nothing says that it went well, and something that it may not have
        is_certain = bool(what.ok) and not whole.startswith(_FAILED)
        background = list(jobs.heard(told.Used(call.use, result, message.id, index))) if call else []
        if call and not is_refused:
            events += _done(call.events, is_run=is_run, is_certain=is_certain)
            written = {normal_path(touch.path).rpartition("/")[2] for touch in deeds.touches if touch.deed != "read"}
            for fate in deeds.fates if is_certain or is_run else ():
                events.append(Gone(fate, is_certain and fate.path.rpartition("/")[2] not in written))
        if is_refused:
            pass  # nothing was done, and the refusal is no error of the work
        elif background and any(not one.has_ended for one in background) and deeds.deed == "run":
            started = Outcome(None, None, "started in the background")
            events.append(Ended(result.tool_use_id, deeds.command, "", started))
        elif is_run or what.errors:
            command = deeds.command if deeds.deed == "run" else ""
            events.append(Ended(result.tool_use_id, command, runner_of(command), what))
        if call and call.added and not result.is_error:
            entry = Todo(created_key(whole) or call.added, call.added, "open")
            events.append(Planned(TodoChange((entry,), is_whole=False)))
        events += background
        return base_tokens(whole)


def block_text(block: Block) -> str:
    """What a block says, as the ledger reads it."""
    value = block.value
    if isinstance(value, Text):
        return value.text
    if isinstance(value, ToolUse):
        return "\n".join(_strings(value.arguments()))
    return value.text() if isinstance(value, ToolResult) else ""


def _done(events: tuple[Event, ...], *, is_run: bool, is_certain: bool) -> Iterator[Event]:
    """What a call did, as its result has it: an edit that failed changed nothing, a command that failed perhaps did."""
    for event in events:
        if not isinstance(event, Touched):
            yield event
        elif is_certain or (is_run and event.deed != "read"):
            yield event._replace(is_certain=is_certain and not (is_run and event.deed == "read"))


def _add(found: list[Piece], voice: int, text: str, source: str) -> None:
    for piece in pieces(text):
        found.append(Piece(voice, piece, tuple(facts_in(piece)), source))


def _strings(value: Any) -> Iterator[str]:
    """Every string of an input, in its order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _names(text: str) -> tuple[str, ...]:
    """The first identifiers of a text."""
    if not text:
        return ()
    names = [key for key in facts_in(text[:6_000]) if kind_of(key) == "name"]
    return tuple(names[:12])


def _decisions(text: str) -> tuple[str, ...]:
    """Sentences that state what was decided or found out, at most 4 of a message."""
    found = [s.strip() for s in _SENTENCES.split(text) if 25 <= len(s) <= 320 and _DECIDED.search(s)]
    return tuple(s.lstrip("-*# ") for s in found[:4])
