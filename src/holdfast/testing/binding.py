"""Thinking signatures bound to what stood before them: system, tools and all earlier messages, markers left out."""

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from .fields import THINKING
from .prompt import Prompt, link
from .request import BlockFacts

_OWN = "holdfast1."
MODIFIED = "Invalid `signature` in `thinking` block"
FOREIGN_CONVERSATION = (
    f"{MODIFIED}. The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A thinking block whose signature does not fit, and the text of the refusal."""

    position: int
    said: str


@dataclass(frozen=True, slots=True)
class Place:
    """What stands before a thinking block: everything without thinking, and the thinking block just before it."""

    prefix: bytes
    previous: bytes

    def then(self, block: BlockFacts) -> "Place":
        """The place after one more block."""
        if block.kind in THINKING:
            return Place(self.prefix, block.digest)
        return Place(link(self.prefix, block), self.previous)


class ThinkingBinding:
    """Signs thinking, and checks it when it comes back.

    A signature holds for all earlier blocks that are not thinking, and for the thinking block just before it: one
    between others may not be left out or moved; the earliest ones may go (`leading_may_go`). Signatures from elsewhere
    (recordings) are bound to the place and text they are first seen with.
    """

    def __init__(self, key: bytes = b"holdfast.testing", *, leading_may_go: bool = True) -> None:
        self._key = key
        self._leading_may_go = leading_may_go
        self._first_seen: dict[tuple[str, bytes], tuple[Place, bytes]] = {}
        self._genuine: dict[bytes, bool] = {}

    def sign(self, place: Place, words: str) -> str:
        """The signature of a thinking block that stands at this place."""
        head = f"{_OWN}{place.prefix.hex()}.{place.previous.hex()}"
        return f"{head}.{self._mac(head, words)}"

    def mismatches(self, prompt: Prompt) -> Iterator[Mismatch]:
        """Thinking blocks that may not stand where they stand, first to last."""
        previous, compacted = b"", b""
        for position, block in enumerate(prompt.blocks):
            if block.summary:  # it stands for turns that are gone: what follows is bound anew
                previous, compacted = b"", block.digest
            if block.kind not in THINKING:
                continue
            said = self._objection(block, Place(prompt.before(position), previous), compacted)
            if said:
                yield Mismatch(position, said)
            previous = block.digest

    def _objection(self, block: BlockFacts, place: Place, compacted: bytes) -> str:
        own = block.seal.startswith(_OWN)
        if own and not self._is_genuine(block):
            return MODIFIED
        if own and not compacted:
            _, prefix, previous, _ = block.seal.split(".")
            wanted = Place(bytes.fromhex(prefix), bytes.fromhex(previous))
        else:
            wanted, digest = self._first_seen.setdefault((block.seal, compacted), (place, block.digest))
            if digest != block.digest:
                return MODIFIED
        leading = self._leading_may_go and not place.previous
        holds = place.prefix == wanted.prefix and (place.previous == wanted.previous or leading)
        return "" if holds else FOREIGN_CONVERSATION

    def _is_genuine(self, block: BlockFacts) -> bool:
        known = self._genuine.get(block.digest)
        if known is None:
            head, _, mac = block.seal.rpartition(".")
            known = block.seal.count(".") == 3 and hmac.compare_digest(mac, self._mac(head, block.body))
            self._genuine[block.digest] = known
        return known

    def _mac(self, head: str, words: str) -> str:
        return hmac.new(self._key, f"{head}\n{words}".encode(), sha256).hexdigest()


def place_after(prompt: Prompt) -> Place:
    """Where the answer to this prompt begins."""
    return Place(prompt.before(len(prompt.blocks)), _last_thinking(prompt))


def _last_thinking(prompt: Prompt) -> bytes:
    for block in reversed(prompt.blocks):
        if block.summary:
            return b""
        if block.kind in THINKING:
            return block.digest
    return b""
