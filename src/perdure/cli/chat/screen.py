"""What a person sees of an agent at work: its words as they come, tools in a line or two, diffs, and what was done."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from perdure.adapters.machine.edits import proposed_edits
from perdure.adapters.providers.connect import OFFLINE
from perdure.agent.progress import (
    AgentProgress,
    AnswerReceived,
    BackgroundEnded,
    HookMessage,
    MemoryUpdated,
    PermissionRefused,
    SubagentProgress,
    ToolEnded,
    ToolStarted,
    call_summary,
)
from perdure.cli.chat.agents import telling
from perdure.cli.output import clean, cut, is_fancy, is_terminal, plain, wrapped
from perdure.context.replies import ReplyStarted, TextDelta, ThinkingDelta
from perdure.events import Event, MemoryProposed

if TYPE_CHECKING:
    from perdure.cli.chat.markdown import MarkdownStream
    from perdure.context.replies import ModelInfo
    from perdure.ports.machine import FileDifference

_PIPE_WIDTH = 110
_SHOWN_LINES = 4  # of a tool's answer
_ECHOED_LINES = 8  # of what a person sent
_PAST_LINES = 12  # of an answer that was given before the session was taken up again
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class Screen:
    """Writes to the terminal, or to whatever stands there instead.

    On a terminal the model's words are Markdown, drawn block by block, and lines are wrapped between words. A pipe and
    a dumb terminal get them as they come. Colours only where they are wanted.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._is_fancy = is_fancy()
        self._is_drawn = is_terminal()
        self._is_at_start = True
        self._has_begun = False
        self._has_thought = False
        self._is_proposed = False  # what the person asked to remember waits for them; the line that says so comes next
        self._answer: MarkdownStream | None = None
        self.doing = ""  # what goes on, in a word or two
        self.asked = ""  # the call that was asked for just now: it was shown with the question
        self.refused = ""  # the call that was refused just now: its result says the same again
        self.running: dict[str, str] = {}  # tools of the agent at work now, by the ids of their calls
        self._styles: dict[str, tuple[str, str]] = {}

    @property
    def width(self) -> int:
        """Columns of the terminal, as it is now, without the last one."""
        try:
            return max(20, os.get_terminal_size(sys.__stdout__.fileno()).columns - 1) if sys.__stdout__ else 79
        except (OSError, ValueError):
            return 79

    # --- plain writing ----------------------------------------------------------------------------------------------

    def line(self, text: str = "", style: str = "") -> None:
        """A line of our own; what was streamed before gets its end first."""
        self.end()
        before, after = self._codes(style)
        text = plain(text)
        if self._is_drawn:
            text = "\n".join(wrapped(text, self.width))
        sys.stdout.write("".join(f"{before}{one}{after}\n" for one in text.split("\n")))
        sys.stdout.flush()

    def fields(self, rows: Iterable[tuple[str, str]]) -> None:
        """Names and what stands for each, in two columns."""
        rows = list(rows)
        start = max(len(name) for name, _ in rows) + 2
        for name, value in rows:
            lines = wrapped(value, self.width - start) if self._is_drawn else (value,)
            for number, line in enumerate(lines):
                self.line(f"{'' if number else name:<{start}}{line}")

    def brief(self, text: str, style: str = "") -> None:
        """One line at most, cut at the end of the terminal's."""
        text = " ".join(clean(text).split()) if not text.startswith(" ") else clean(text.expandtabs(4)).rstrip()
        if self._is_drawn:
            from perdure.cli.chat.markdown import cut_columns

            self.line(cut_columns(text, self.width), style)
        else:
            self.line(text if len(text) <= _PIPE_WIDTH else text[: _PIPE_WIDTH - 1].rstrip() + "…", style)

    def end(self) -> None:
        """End what is begun: the model's block, or a line."""
        if self._answer is not None:
            answer, self._answer = self._answer, None
            self._draw(answer.end())
        if not self._is_at_start:
            sys.stdout.write("\n")
            self._is_at_start = True

    def stream(self, text: str) -> None:
        """More of the model's words."""
        if not text:
            return
        if self._is_drawn:
            from perdure.cli.chat.markdown import MarkdownStream

            self._answer = self._answer or MarkdownStream()
            self._draw(self._answer.feed(plain(text)))
            return
        sys.stdout.write(plain(text))
        sys.stdout.flush()
        self._is_at_start = text.endswith("\n")

    def markdown(self, text: str) -> None:
        """A whole text of the model's."""
        self.stream(text)
        self.end()

    def _draw(self, text: str) -> None:
        """Whole blocks of Markdown, and a blank line behind them."""
        if text.strip():
            from perdure.cli.chat.markdown import rendered

            shown = rendered(text, self.width, is_colored=self._is_fancy)
            sys.stdout.write(f"{shown}\n\n")
            sys.stdout.flush()

    def live(self, columns: int, rows: int) -> list[str]:
        """The last lines of the block that is still coming, as it was written."""
        if self._answer is None or not self._answer.open.strip():
            return []
        from perdure.cli.chat.markdown import being_written

        text, most = self._answer.open.strip("\n"), columns * rows
        lines = being_written(text[-most:].lstrip() if len(text) > most else text, columns)
        if len(text) <= most and len(lines) <= rows:
            return lines
        return ["… (shown in full once it is complete)", *lines[len(lines) - rows + 1 :]]

    def echo(self, text: str) -> None:
        """What a person sent, where it was sent."""
        lines = plain(text).split("\n")
        more = [f"… {len(lines) - _ECHOED_LINES:,} more lines"] if len(lines) > _ECHOED_LINES + 1 else []
        shown = lines[:_ECHOED_LINES] + more if more else lines
        for number, line in enumerate(shown):
            self.line(f"{'  ' if number else '> '}{line}", "bold")

    def _codes(self, style: str) -> tuple[str, str]:
        """What switches a style on and off again."""
        if not style or not self._is_fancy:
            return "", ""
        if style not in self._styles:
            from rich.color import ColorSystem
            from rich.style import Style

            before, _, after = Style.parse(style).render("\0", color_system=ColorSystem.STANDARD).partition("\0")
            self._styles[style] = (before, after)
        return self._styles[style]

    # --- what happens -----------------------------------------------------------------------------------------------

    def begin(self, doing: str) -> None:
        """Something new is done; what was begun before it, and didn't come to its end, is over."""
        self.end()
        self._has_begun, self.doing = False, doing
        self.running.clear()

    def progress(self, progress: AgentProgress) -> None:
        """Show what an agent tells."""
        match progress:
            case ReplyStarted():
                if self._has_begun:
                    self.line("(this answer broke off and isn't kept; asking again)", "yellow")
                self._has_begun, self._has_thought, self.doing = True, False, "answering"
            case TextDelta():
                self.doing = "answering"
                self.stream(progress.text)
            case ThinkingDelta() if not self._has_thought:
                self._has_thought, self.doing = True, "thinking"
                self.line("(thinking)", "dim")
            case AnswerReceived():
                self.begin("working")
            case ToolStarted():
                self._started(progress)
            case ToolEnded():
                self.doing = "working"
                self.running.pop(progress.id, None)
                self._ended(progress)
            case PermissionRefused():
                self.refused = progress.id
                self.line(f"  {progress.tool} was refused: {progress.decision.why or progress.decision.by}", "yellow")
            case BackgroundEnded():
                self.brief(f"* {progress.work.kind} {cut(progress.work.what, 60)}: {progress.work.state}", "cyan")
            case MemoryUpdated():
                decides = "; decide with /memory review" if self._is_proposed else ""
                self._is_proposed = False
                self.line(f"- {progress.text}{decides}", "cyan")
            case HookMessage():
                self.line(f"hook {cut(progress.hook, 60)}: {progress.text}", "yellow")
            case SubagentProgress():
                self._of_subagent(progress.progress)

    def _started(self, call: ToolStarted) -> None:
        self.doing = f"running {call.tool}"
        self.running[call.id] = call.tool
        if call.id == self.asked:
            return
        self.brief(f"* {call.tool} {clean(call_summary(call.arguments))}", "bold")
        self.diff(edit_diff(call.tool, call.arguments, self.root))

    def _ended(self, call: ToolEnded) -> None:
        lines = call.text.splitlines()
        if call.id == self.refused:
            return
        if call.is_error:
            self.brief(f"  {lines[0] if lines else 'failed'}", "red")
        elif call.tool == "Bash":
            for line in lines[:_SHOWN_LINES]:
                self.brief(f"  {line}", "dim")
            if len(lines) > _SHOWN_LINES:
                self.line(f"  … {len(lines) - _SHOWN_LINES:,} more lines", "dim")
        elif call.tool not in ("Edit", "Write", "MultiEdit"):
            self.brief(f"  {lines[0]}" if len(lines) == 1 else f"  {len(lines):,} lines", "dim")

    def _of_subagent(self, progress: AgentProgress) -> None:
        """Of a sub-agent only what it does; its words come with the result."""
        if isinstance(progress, ToolStarted):
            self.brief(f"  | {progress.tool} {clean(call_summary(progress.arguments))}", "dim")
        elif isinstance(progress, PermissionRefused):
            self.line(f"  | {progress.tool} was refused: {progress.decision.why}", "yellow")

    def past(self, prompt: str, answer: str) -> None:
        """The last exchange of a session that is taken up again."""
        self.echo(prompt)
        lines = answer.strip().splitlines()
        if len(lines) > _PAST_LINES:
            self.line(f"(the last {_PAST_LINES} of {len(lines):,} lines of the answer)", "dim")
        self.markdown("\n".join(lines[-_PAST_LINES:]) + "\n")

    def diff(self, lines: list[str]) -> None:
        """A diff, with its colours."""
        for line in lines:
            self.line(f"  {line}", _DIFF_STYLES.get(line[:1], "dim"))

    def emit(self, event: Event) -> None:
        """`ports.Sink`: what the engine did, where a person should know."""
        if isinstance(event, MemoryProposed) and event.origin == "user":
            self._is_proposed = True
        elif (told := telling(event)) is not None:
            self.line(f"- {told[0]}", told[1])


def model_name(about: ModelInfo) -> str:
    """A model's name; what only demonstrates isn't called offline, as if a model didn't answer."""
    return "none (a demonstration)" if about.id == OFFLINE else about.id


# --- the diff of an edit, before it is made ---------------------------------------------------------------------------

_CONTEXT = 2
DIFF_LINES = 40


def edit_diff(tool: str, arguments: dict[str, Any], root: str, *, most: int = DIFF_LINES) -> list[str]:
    """Lines that begin with `+`, `-`, ` ` or `@`; empty for what is no edit, or changes nothing that can be shown.

    It reads the file as it is now; where the edit doesn't fit that, only its own texts are compared.
    """
    edits = proposed_edits(tool, arguments, root)
    return _first((line for one in edits for line in _diffed(one.before or "", one.after)), most)


def difference_lines(one: FileDifference) -> list[str]:
    """A file as it was and as it is, as lines of a diff; none where it is no text, or can't be compared."""
    before, after = one.before or b"", one.after or b""
    if b"\0" in before or b"\0" in after or (one.before is None and one.after is None):
        return []
    return list(_diffed(before.decode("utf-8", "replace"), after.decode("utf-8", "replace")))


def _diffed(before: str, after: str) -> Iterator[str]:
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), n=_CONTEXT, lineterm="")
    return (line for number, line in enumerate(diff) if number > 1)  # without the two names


def _first(lines: Iterator[str], most: int) -> list[str]:
    found = list(lines)
    rest = len(found) - most
    return found if rest <= 1 else [*found[:most], f"@@ {rest} more lines @@"]
