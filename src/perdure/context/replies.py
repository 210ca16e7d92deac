"""What a model answers: the deltas of a stream, and the reply at its end. Plain values; blocks keep their bytes.

A stream is deltas in their order, then one `Reply`. `BlockDone` comes with each block that is whole, so whoever reads
along knows at any moment what could be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from perdure.transcript.blocks import Block, ToolUse
from perdure.transcript.messages import ResponseId, Usage, WireFields

WireProtocol = Literal["anthropic", "openai", "responses"]
StopReason = Literal[
    "end_turn",
    "tool_use",
    "max_tokens",
    "stop_sequence",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
    "compaction",
]
_THINKING = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What a model says of itself. None: it doesn't know, and the table of models decides (PRS-8)."""

    id: str
    protocol: WireProtocol
    window_tokens: int | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The answer begins. A second one means that the first was lost, and everything starts anew."""

    response: ResponseId


@dataclass(frozen=True, slots=True)
class TextDelta:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """A piece of a tool call's input, as JSON text; the first one of a block has no text."""

    index: int
    name: str
    json: str


@dataclass(frozen=True, slots=True)
class BlockDone:
    """A block is whole."""

    index: int
    block: Block


Delta = ReplyStarted | TextDelta | ThinkingDelta | ToolInputDelta | BlockDone


@dataclass(frozen=True, slots=True)
class ProviderEdit:
    """What the provider did to the context by itself: how many things it cleared, and their tokens (TURN-4c)."""

    kind: str
    cleared: int = 0
    cleared_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's whole answer.

    Attributes:
        response: its id, as the provider gave it.
        model: who answered.
        blocks: its content; each has a `type`, and a `value` to read.
        stop_reason: why it ended, such as `end_turn` or `tool_use`.
        usage: the size of the context in tokens (the last sampling step, when the provider reports several), if
            anything was reported.
        billed: what is paid for, when that differs.
        edits: what the provider did to the context by itself.
        wire: what the answer says besides, in words that only its protocol has.

    Example:
        from perdure.testing import ScriptedModel
        reply = await session.run("What is 6 times 7?", ScriptedModel(["42"]))
        assert reply.text == "42"
        assert [block.type for block in reply.blocks] == ["text"]
    """

    response: ResponseId
    model: str
    blocks: tuple[Block, ...]
    stop_reason: str
    usage: Usage | None = None
    billed: Usage | None = None
    edits: tuple[ProviderEdit, ...] = ()
    wire: WireFields | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it but thinking and blank text."""
        return not any(_says_something(block) for block in self.blocks)

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The tools that the model wants used: `id`, `name`, and `input`, an object. The next prompt answers all."""
        return tuple(block.value for block in self.blocks if isinstance(block.value, ToolUse))

    @property
    def text(self) -> str:
        """All its text."""
        return "\n\n".join(text for block in self.blocks if (text := _text(block)))


def _text(block: Block) -> str:
    return str(getattr(block.value, "text", "")) if block.type == "text" else ""


def _says_something(block: Block) -> bool:
    return bool(_text(block).strip()) if block.type == "text" else block.type not in _THINKING


@dataclass(slots=True)
class PartialReply:
    """As much of an answer as has come; what an interruption leaves."""

    response: ResponseId = ResponseId("")  # noqa: RUF009 - a NewType of str, immutable
    blocks: dict[int, Block] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)

    def feed(self, delta: Delta) -> None:
        """Enter a delta."""
        match delta:
            case ReplyStarted():
                self.response = delta.response
                self.blocks.clear()
                self.begun.clear()
            case BlockDone():
                self.blocks[delta.index] = delta.block
                self.begun.add(delta.index)
            case _:
                self.begun.add(delta.index)

    def kept(self) -> tuple[Block, ...]:
        """The whole blocks that a conversation can go on from: an answer doesn't end with thinking."""
        whole = [self.blocks[index] for index in sorted(self.blocks)]
        while whole and not _says_something(whole[-1]):
            whole.pop()
        return tuple(whole)
