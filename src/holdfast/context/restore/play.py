"""What is in play, as it travels in a boundary's checkpoint: no contents, only names and where to find them (RST-10).

Everything here is bounded: by the trackers in what they keep, and by `STATE_BYTES` for each tracker whatever it keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from holdfast.context.state import State
from holdfast.transcript.edits import Returned
from holdfast.transcript.messages import Message

STATE_BYTES = 128_000  # of one tracker in a checkpoint; a state that is larger is refused and the older one stays
NAME_CHARS = 500  # a longer path or label is no name


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A block of a message: what was said or restored there can be read again while the message is in the view."""

    message: str
    block: int


class InPlay(msgspec.Struct, frozen=True, omit_defaults=True):
    """The trackers' states after the messages that left the view, and where the last boundary put what it restored.

    A content older than the boundary is found again on disk, or, where there is none (a replay), in the block that the
    last boundary restored it to, which is still in the view. What was left out there is known by name only.
    """

    states: dict[str, msgspec.Raw] = {}
    restored: dict[str, dict[str, Place]] = {}  # kind, then name

    @classmethod
    def of(cls, state: State) -> InPlay:
        """What the last boundary handed on; an empty one where there was none."""
        return _DECODER.decode(state.in_play)

    def encoded(self) -> msgspec.Raw:
        """As `State` carries it."""
        return msgspec.Raw(msgspec.json.encode(self))


_DECODER = msgspec.json.Decoder(InPlay)


@dataclass(frozen=True, slots=True)
class Back:
    """What comes back behind a boundary: messages, what to say of them, and the trackers' states for its checkpoint."""

    messages: tuple[Message, ...] = ()
    rows: tuple[Returned, ...] = ()
    in_play: InPlay | None = None
    prompts: tuple[str, ...] = ()  # the prompt files that were used


NOTHING_BACK = Back()
