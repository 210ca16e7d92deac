"""What happened, as trackers see it: answered tool calls, and words that nobody called for (RST-10).

Calls are paired with their results, in the order in which the results came. Content is taken as it was said: what a
pass offloaded or cleared since is still known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.transcript.blocks import Text, ToolResult, ToolUse
from holdfast.transcript.messages import Message, MessageId

if TYPE_CHECKING:
    from holdfast.context.restore.deeds import Deed

DENIED = "The user doesn't want to proceed with this tool use"


@dataclass(eq=False)
class Used:
    """A tool was called and answered. `message` is the one that holds the result, `block` where in it."""

    use: ToolUse
    result: ToolResult
    message: MessageId
    block: int
    deeds: list[Deed] | None = None  # what it did to files, once somebody asked

    @property
    def name(self) -> str:
        return self.use.name

    @cached_property
    def kind(self) -> str:
        """The name as patterns compare it: no server in front, no case, no underscores or dashes."""
        return kind_of(self.use.name)

    @cached_property
    def arguments(self) -> dict[str, Any]:
        return self.use.arguments()

    @cached_property
    def text(self) -> str:
        """All text of the result, with plain line ends."""
        return self.result.text().replace("\r\n", "\n")

    @property
    def has_failed(self) -> bool:
        """The call did nothing: an error, or a person said no."""
        if self.result.is_error:
            return True
        return self.text.startswith((DENIED, "<tool_use_error>"))

    def word(self, *keys: str) -> str | None:
        """The first argument among these that is a text."""
        return next((v for key in keys if isinstance(v := self.arguments.get(key), str) and v), None)


@dataclass(frozen=True)
class Words:
    """A text that stands in a message by itself; `origin` says whose it is."""

    text: str
    origin: str
    message: MessageId
    block: int


Happened = Used | Words


def kind_of(name: str) -> str:
    """A tool's name without its server and spelling: `mcp__fs__read_file` and `ReadFile` are both `readfile`."""
    return name.rsplit("__", 1)[-1].lower().replace("_", "").replace("-", "").replace(".", "")


@dataclass
class Hearing:
    """Turns messages into what happened; remembers the calls that are still open."""

    open_calls: dict[str, ToolUse] = field(default_factory=dict)

    def of(self, messages: Iterable[Message]) -> Iterator[Happened]:
        """What happened in these messages. Summaries and restored content repeat what was said, and tell nothing."""
        for message in messages:
            if message.origin in ("summary", "restored") or message.agent_id is not None:
                continue
            for index, block in enumerate(message.blocks):
                value = block.value
                if isinstance(value, ToolUse):
                    self.open_calls[value.id] = value
                elif isinstance(value, ToolResult):
                    use = self.open_calls.pop(value.tool_use_id, None)
                    if use is not None:
                        yield Used(use, value, message.id, index)
                elif isinstance(value, Text):
                    yield Words(value.text, message.origin, message.id, index)
