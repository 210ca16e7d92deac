"""Hooks, in Claude Code's own terms: what they are told, when they run, and what their answers mean (CMP-10).

The fields of an event are the names of the JSON that a shell hook reads, beside `hook_event_name`, so that a script
written for Claude Code runs unchanged. Everything here is plain values; `engine.hooks` runs hooks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

import msgspec

from perdure.errors import PerdureError, nearest
from perdure.settings import HookCommand
from perdure.text.globs import matches_glob

MOST_CHARS = 10_000  # of each text that a hook gives
BLOCKED = 2  # the exit code
SESSION_END_SECONDS = 1.5  # nobody waits longer for a program that ends, unless a hook asks for more

HookMode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]
StartSource = Literal["startup", "resume", "clear", "compact"]
EndReason = Literal["clear", "resume", "prompt_input_exit", "other"]
CompactTrigger = Literal["manual", "auto"]


# --- what hooks are told ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """Something that hooks are told of. `agent_id` and `agent_type` are those of a sub-agent, None in a conversation.

    `cwd` is the folder that commands run in; empty: the project's.
    """

    matched: ClassVar[str] = ""  # the field that a matcher is compared with
    blocks: ClassVar[bool] = False  # whether exit code 2 stops what is about to happen, or is fed to the model
    adds: ClassVar[bool] = False  # whether plain output joins the conversation

    session_id: str
    cwd: str = ""
    permission_mode: HookMode | None = None
    agent_id: str | None = None
    agent_type: str | None = None

    @property
    def subject(self) -> str:
        """What a matcher is compared with; empty where there is nothing to match."""
        return str(getattr(self, self.matched) or "") if self.matched else ""

    def as_json(self, **more: Any) -> str:
        """The object that a shell hook reads; fields without a value are left out."""
        fields = {**asdict(self), **more}
        named = {name: value for name, value in fields.items() if value is not None}
        return json.dumps({"hook_event_name": type(self).__name__, **named})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart(HookEvent):
    """A conversation begins, goes on, or goes on behind a compaction."""

    matched: ClassVar[str] = "source"
    adds: ClassVar[bool] = True

    source: StartSource
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd(HookEvent):
    """A conversation is closed."""

    matched: ClassVar[str] = "reason"

    reason: EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPromptSubmit(HookEvent):
    """A person said something, and the model hasn't seen it yet."""

    blocks: ClassVar[bool] = True
    adds: ClassVar[bool] = True

    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreToolUse(HookEvent):
    """The model called a tool, and nothing was done or asked yet."""

    matched: ClassVar[str] = "tool_name"
    blocks: ClassVar[bool] = True

    tool_name: str
    tool_input: Mapping[str, Any]
    tool_use_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PostToolUse(HookEvent):
    """A tool did what it was called for."""

    matched: ClassVar[str] = "tool_name"
    blocks: ClassVar[bool] = True

    tool_name: str
    tool_input: Mapping[str, Any]
    tool_response: Mapping[str, Any]
    tool_use_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PostToolUseFailure(HookEvent):
    """A tool ran, and failed."""

    matched: ClassVar[str] = "tool_name"
    blocks: ClassVar[bool] = True

    tool_name: str
    tool_input: Mapping[str, Any]
    tool_use_id: str
    error: str
    is_interrupt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification(HookEvent):
    """A person is needed: the agent waits for their answer."""

    matched: ClassVar[str] = "notification_type"

    message: str
    notification_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(HookEvent):
    """The model calls for nothing more. `stop_hook_active`: it goes on because a hook wanted that."""

    blocks: ClassVar[bool] = True

    stop_hook_active: bool
    last_assistant_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentStop(HookEvent):
    """A sub-agent calls for nothing more."""

    matched: ClassVar[str] = "agent_type"
    blocks: ClassVar[bool] = True

    stop_hook_active: bool
    last_assistant_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreCompact(HookEvent):
    """A compaction is about to start. The sizes are in tokens."""

    matched: ClassVar[str] = "trigger"
    blocks: ClassVar[bool] = True

    trigger: CompactTrigger
    custom_instructions: str
    tokens: int
    window_tokens: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PostCompact(HookEvent):
    """A compaction was committed; `compact_summary` is what stands for the older part now."""

    matched: ClassVar[str] = "trigger"

    trigger: CompactTrigger
    compact_summary: str
    strategy: str
    tokens_before: int
    tokens_after: int
    kept: int


_MOMENTS: tuple[type[HookEvent], ...] = (
    SessionStart, UserPromptSubmit, PreToolUse, PostToolUse, PostToolUseFailure, Notification, Stop, SubagentStop,
    PreCompact, PostCompact, SessionEnd,
)  # fmt: skip
EVENTS = {moment.__name__: moment for moment in _MOMENTS}


# --- what hooks say ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDecision:
    """What a hook wants; what doesn't fit the moment is ignored.

    Attributes:
        block: why what is about to happen mustn't. After a tool, what is wrong with what it did; when an agent wants to
            stop, what it should do first. Both go to the model.
        permission: `allow` runs a tool without a question, as far as rules and protected files let it; `ask` asks.
        reason: why, for the person who is asked.
        updated_input: what a tool is given instead of what the model wrote.
        stop: why the agent stops working on the prompt altogether.
        context: what joins the conversation; before a compaction, what is added to the instructions.
        message: a line for the person at the screen.
        instructions: before a compaction, instead of the instructions.
        summary: before a compaction, the record itself.
    """

    block: str | None = None
    permission: Literal["allow", "ask"] | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    stop: str | None = None
    context: str = ""
    message: str = ""
    instructions: str | None = None
    summary: str | None = None


@dataclass(frozen=True, slots=True)
class Hook:
    """A named callable. One that raises, or takes longer than its time, is reported and otherwise as if it weren't.

    `matches` says which events it wants, before anything is started for it; by default all. `is_async`: nobody waits
    for it, so what it wants comes too late, but for what it adds to the conversation and tells the person.
    """

    name: str
    run: Callable[[HookEvent], Awaitable[HookDecision | None]]
    timeout_seconds: float = 60.0
    matches: Callable[[HookEvent], bool] = lambda told: True
    is_async: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOutcome:
    """What all hooks of an event together want. `by` is the hook that blocks, stops or decides."""

    block: str | None = None
    by: str = ""
    permission: Literal["allow", "ask"] | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    stop: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    instructions: str | None = None
    summary: str | None = None


def outcome_of(said: Sequence[tuple[str, HookDecision]]) -> HookOutcome:
    """What these hooks want together, in the order of their settings, whichever of them was done first.

    Stopping wins over blocking, blocking over asking, asking over allowing. Of two that give the same thing, the later
    one holds, as a later setting does.
    """
    stops = [(name, one.stop) for name, one in said if one.stop is not None]
    blocks = [(name, one.block) for name, one in said if one.block is not None]
    decided = sorted(((one.permission == "allow", n) for n, (_, one) in enumerate(said) if one.permission))
    chosen = said[decided[0][1]] if decided else ("", HookDecision())
    context: dict[str, str] = {}
    for name, one in said:
        if one.context.strip():
            context[name] = "\n".join(part for part in (context.get(name), one.context) if part)
    return HookOutcome(
        block=blocks[0][1] if blocks else None,
        by=(stops or blocks or [(chosen[0], "")])[0][0],
        permission=chosen[1].permission,
        reason=chosen[1].reason,
        updated_input=next((one.updated_input for _, one in reversed(said) if one.updated_input is not None), None),
        stop=stops[0][1] if stops else None,
        context=context,
        instructions=next((one.instructions for _, one in reversed(said) if one.instructions is not None), None),
        summary=next((one.summary for _, one in reversed(said) if one.summary), None),
    )


# --- what a shell hook's end means ------------------------------------------------------------------------------------


class _Specific(msgspec.Struct, frozen=True, rename="camel"):
    hook_event_name: str | None = None
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, Any] | None = None
    additional_context: str | None = None
    custom_instructions: str | None = None  # this and the next are ours, for a PreCompact
    compact_summary: str | None = None


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    goes_on: bool = msgspec.field(default=True, name="continue")
    stop_reason: str | None = None
    decision: Literal["block", "approve"] | None = None
    reason: str | None = None
    system_message: str | None = None
    hook_specific_output: _Specific | None = None


def decision_of(told: HookEvent, code: int, output: str, errors: str) -> HookDecision:
    """What a shell hook wants, by its exit code and what it printed.

    Exit 0: a JSON object, or plain text, which joins the conversation where the event has that. Exit 2 blocks, with
    stderr as the reason, or is shown where nothing can be blocked. Raises `PerdureError` for every other end, and for
    an object that can't be understood.
    """
    if code == BLOCKED:
        reason = _cut(errors) or "the hook gave no reason"
        return HookDecision(block=reason) if told.blocks else HookDecision(message=reason)
    if code != 0:
        raise PerdureError(f"it ended with exit code {code}")
    text = output.strip()
    if not text.startswith("{"):
        return HookDecision(context=_cut(text)) if told.adds else HookDecision()
    try:
        return _decision_in(told, msgspec.json.decode(text, type=_Answer))
    except (msgspec.DecodeError, RecursionError, UnicodeError) as e:
        if told.adds and not isinstance(e, msgspec.ValidationError):
            return HookDecision(context=_cut(text))
        raise PerdureError(f"its answer can't be used: {e}") from None


def _decision_in(told: HookEvent, answer: _Answer) -> HookDecision:
    own = answer.hook_specific_output or _Specific()
    name = type(told).__name__
    if own.hook_event_name not in (None, name):
        raise msgspec.ValidationError(f"hookSpecificOutput is for {own.hook_event_name!r:.40}, and this is {name}")
    block = None
    if told.blocks and (answer.decision == "block" or own.permission_decision == "deny"):
        block = _cut(own.permission_decision_reason or answer.reason or "") or "the hook gave no reason"
    permission: Literal["allow", "ask"] | None = None
    if own.permission_decision in ("ask", "defer"):
        permission = "ask"
    elif own.permission_decision == "allow" or (answer.decision == "approve" and not own.permission_decision):
        permission = "allow"
    return HookDecision(
        block=block,
        permission=permission if block is None else None,
        reason=_cut(own.permission_decision_reason or answer.reason or ""),
        updated_input=own.updated_input,
        stop=None if answer.goes_on else _cut(answer.stop_reason or "") or "the hook gave no reason",
        context=_cut(own.additional_context or ""),
        message=_cut(answer.system_message or ""),
        instructions=own.custom_instructions,
        summary=own.compact_summary,
    )


def _cut(text: str) -> str:
    text = text.strip()
    left = len(text) - MOST_CHARS
    return f"{text[:MOST_CHARS]}\n[{left:,} more characters left out]" if left > 0 else text


# --- the settings that name them --------------------------------------------------------------------------------------


def hook_commands(given: object) -> tuple[tuple[HookCommand, ...], tuple[str, ...]]:
    """The shell hooks that settings name, in the form of Claude Code's `hooks`, and what of them can't be used.

    Args:
        given: a table of events, each a list of groups with a `matcher` and a list of `hooks`.

    Returns:
        The hooks in their order, and a line for each thing that isn't one.
    """
    if not isinstance(given, Mapping):
        return (), ("hooks has to be a table of events, as in [[hooks.PreToolUse]]",)
    found = _FoundHooks()
    for event, groups in given.items():
        name = str(event)[:60]
        if name not in EVENTS:
            found.odd.append(f"hooks.{name}: there is no such event here{nearest(name, tuple(EVENTS))}")
        elif not isinstance(groups, list | tuple):
            found.odd.append(f"hooks.{name} has to be a list of groups, each with its own list `hooks`")
        else:
            for number, group in enumerate(groups, 1):
                _take_group(name, f"hooks.{name}, group {number}", group, found)
    if found.other_types:
        types = ", ".join(map(repr, found.other_types))
        where = "; ".join(dict.fromkeys(place for places in found.other_types.values() for place in places))
        of = "type" if len(found.other_types) == 1 else "types"
        found.odd.append(f"hooks of the {of} {types} aren't supported, and aren't run; only 'command' is ({where})")
    return tuple(dict.fromkeys(found.commands)), tuple(found.odd)


@dataclass(slots=True)
class _FoundHooks:
    """What settings name: commands, lines for what isn't a hook, and where hooks of types stand that aren't run."""

    commands: list[HookCommand] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    other_types: dict[str, list[str]] = field(default_factory=dict)


def _take_group(event: str, place: str, group: object, found: _FoundHooks) -> None:
    hooks = group.get("hooks") if isinstance(group, Mapping) else None
    matcher = (group.get("matcher") or "") if isinstance(group, Mapping) else ""
    if not isinstance(hooks, list | tuple) or not isinstance(matcher, str):
        found.odd.append(f"{place}: needs a list `hooks`, and its `matcher` has to be a text")
        return
    if why := _bad_matcher(matcher):
        found.odd.append(f"{place}: matcher {matcher[:60]!r}: {why}")
        return
    for one in hooks:
        kind = one.get("type", "command") if isinstance(one, Mapping) else None
        if not isinstance(one, Mapping) or not isinstance(kind, str):
            found.odd.append(f'{place}: {one!r:.60} is no hook; write {{ type = "command", command = "…" }}')
        elif kind != "command":
            found.other_types.setdefault(kind[:40], []).append(place)
        else:
            _take_command(event, place, matcher, one, found)


def _take_command(event: str, place: str, matcher: str, one: Mapping[str, Any], found: _FoundHooks) -> None:
    command, seconds, condition = one.get("command"), one.get("timeout"), one.get("if") or ""
    is_async, odd = one.get("async", False), found.odd
    if not isinstance(command, str) or not command.strip():
        odd.append(f"{place}: `command` has to be a shell command")
    elif seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0):
        odd.append(f"{place}: `timeout` has to be a number of seconds above 0")
    elif not isinstance(condition, str):
        odd.append(f"{place}: `if` has to be a permission rule, as Bash(git push:*)")
    elif not isinstance(is_async, bool):
        odd.append(f"{place}: `async` has to be true or false")
    else:
        limit = None if seconds is None else float(seconds)
        found.commands.append(HookCommand(event, command, matcher, limit, condition, is_async))


def _bad_matcher(matcher: str) -> str:
    try:
        re.compile("" if matcher == "*" else matcher)
    except re.error as e:
        return f"not a regular expression: {e}"
    return ""


_NAMES = re.compile(r"[A-Za-z0-9_\-\s,|]+")
_CONDITION = re.compile(r"([\w-]+)(?:\((.*)\))?", re.DOTALL)
_ASSIGNMENTS = re.compile(r"\s*(?:[A-Za-z_]\w*=\S*\s+)*")
_PARTS = re.compile(r"&&|\|\||[;|&\n]")


def wants(command: HookCommand, told: HookEvent) -> bool:
    """Whether a shell hook of the settings runs at this event.

    A matcher of plain names, with `|` or commas between, means exactly these; any other is a regular expression that is
    searched for. Empty and `*` mean all.
    """
    if command.event != type(told).__name__ or not _is_matched(command.matcher, told.subject):
        return False
    if not command.condition or not isinstance(told, PreToolUse | PostToolUse | PostToolUseFailure):
        return True
    return _holds(command.condition, told.tool_name, told.tool_input)


def _is_matched(matcher: str, subject: str) -> bool:
    if matcher in ("", "*") or not subject:
        return True
    if _NAMES.fullmatch(matcher):
        return subject in {name.strip() for name in re.split(r"[|,]", matcher)}
    return re.search(matcher, subject) is not None


def _holds(condition: str, tool: str, given: Mapping[str, Any]) -> bool:
    """Whether a call is what a permission rule speaks of; in doubt it is, as a hook that runs can still say no."""
    found = _CONDITION.fullmatch(condition.strip())
    if found is None:
        return True
    if found[1] != tool:
        return False
    pattern, path, command = found[2], given.get("file_path"), given.get("command")
    if pattern in (None, "", "*"):
        return True
    if isinstance(command, str):
        words = re.escape(f"{pattern[:-2]} *" if pattern.endswith(":*") else pattern).replace(r"\*", ".*")
        wanted = re.compile(words.replace(r"\ .*", r"(?:\ .*)?"), re.DOTALL)
        parts = (_ASSIGNMENTS.sub("", part, count=1).strip() for part in _PARTS.split(command))
        return any(wanted.fullmatch(part) for part in parts) or "$(" in command or "`" in command
    if isinstance(path, str):
        return matches_glob(pattern, path) or matches_glob(f"**/{pattern.removeprefix('./')}", path)
    return True
