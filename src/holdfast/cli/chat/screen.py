"""What a person sees of an agent at work: its words as they come, tools in a line or two, diffs, and what was done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from holdfast.agent.progress import (
    Answered,
    BackgroundEnded,
    OfSubagent,
    PermissionRefused,
    Progress,
    ToolEnded,
    ToolStarted,
)
from holdfast.cli.chat.diffs import edit_diff
from holdfast.cli.chat.tellings import telling
from holdfast.cli.door import cut, is_fancy
from holdfast.context.replies import Started, TextDelta, ThinkingDelta

if TYPE_CHECKING:
    from holdfast.events import Event

_WIDTH = 110
_SHOWN_LINES = 4  # of a tool's answer
# What a call is about, by the first of these fields that it has.
_ABOUT = ("command", "file_path", "pattern", "description", "skill", "id", "query", "bash_id", "shell_id", "focus")
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def plain(text: str) -> str:
    """Text of a model or a tool, safe to show: line ends and tabs stay, nothing that a terminal obeys does."""
    text = text.replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def about(arguments: dict[str, Any]) -> str:
    """One line on what a call is for."""
    named = next((arguments[name] for name in _ABOUT if arguments.get(name)), None)
    if named is None and isinstance(todos := arguments.get("todos"), list):
        done = sum(isinstance(one, dict) and one.get("status") == "completed" for one in todos)
        named = f"{done} of {len(todos)} done"
    return cut(str(named), _WIDTH) if named is not None else ""


class Screen:
    """Writes to the terminal, or to whatever stands there instead. Colours only where they are wanted."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._is_fancy = is_fancy()
        self._is_at_start = True
        self._has_begun = False
        self._has_thought = False
        self.asked = ""  # the call that was asked for just now: it was shown with the question
        self._refused = ""  # the call that was refused just now: its result says the same again
        self._styles: dict[str, tuple[str, str]] = {}

    # --- plain writing ----------------------------------------------------------------------------------------------

    def line(self, text: str = "", style: str = "") -> None:
        """A line of our own; what was streamed before gets its end first."""
        self.end()
        before, after = self._codes(style)
        sys.stdout.write(f"{before}{plain(text)}{after}\n")
        sys.stdout.flush()

    def end(self) -> None:
        """End the line that is begun."""
        if not self._is_at_start:
            sys.stdout.write("\n")
            self._is_at_start = True

    def stream(self, text: str) -> None:
        """More of the model's words."""
        if text:
            sys.stdout.write(plain(text))
            sys.stdout.flush()
            self._is_at_start = text.endswith("\n")

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

    def progress(self, progress: Progress) -> None:
        """Show what an agent tells."""
        match progress:
            case Started():
                if self._has_begun:
                    self.line("(the answer was cut off; asking again)", "yellow")
                self._has_begun, self._has_thought = True, False
            case TextDelta():
                self.stream(progress.text)
            case ThinkingDelta() if not self._has_thought:
                self._has_thought = True
                self.line("(thinking)", "dim")
            case Answered():
                self._has_begun = False
                self.end()
            case ToolStarted():
                self._started(progress)
            case ToolEnded():
                self._ended(progress)
            case PermissionRefused():
                self._refused = progress.id
                self.line(f"  {progress.tool} was refused: {progress.verdict.why or progress.verdict.by}", "yellow")
            case BackgroundEnded():
                self.line(f"* {progress.work.kind} {cut(progress.work.what, 60)}: {progress.work.state}", "cyan")
            case OfSubagent():
                self._of_subagent(progress.progress)

    def _started(self, call: ToolStarted) -> None:
        if call.id == self.asked:
            return
        self.line(f"* {call.tool} {about(call.arguments)}".rstrip(), "bold")
        self.diff(edit_diff(call.tool, call.arguments, self.root))

    def _ended(self, call: ToolEnded) -> None:
        lines = call.text.splitlines()
        if call.id == self._refused:
            return
        if call.is_error:
            self.line(f"  {cut(lines[0], _WIDTH) if lines else 'failed'}", "red")
        elif call.tool == "Bash":
            for line in lines[:_SHOWN_LINES]:
                self.line(f"  {cut(line, _WIDTH)}", "dim")
            if len(lines) > _SHOWN_LINES:
                self.line(f"  … {len(lines) - _SHOWN_LINES:,} more lines", "dim")
        elif call.tool not in ("Edit", "Write", "MultiEdit"):
            size = f"{len(lines):,} lines" if len(lines) != 1 else cut(lines[0], _WIDTH)
            self.line(f"  {size}", "dim")

    def _of_subagent(self, progress: Progress) -> None:
        """Of a sub-agent only what it does; its words come with the result."""
        if isinstance(progress, ToolStarted):
            self.line(f"  | {progress.tool} {about(progress.arguments)}".rstrip(), "dim")
        elif isinstance(progress, PermissionRefused):
            self.line(f"  | {progress.tool} was refused: {progress.verdict.why}", "yellow")

    def diff(self, lines: list[str]) -> None:
        """A diff, with its colours."""
        for line in lines:
            self.line(f"  {line}", _DIFF_STYLES.get(line[:1], "dim"))

    def emit(self, event: Event) -> None:
        """`ports.Sink`: what the engine did, where a person should know."""
        told = telling(event)
        if told is not None:
            self.line(f"- {told[0]}", told[1])
