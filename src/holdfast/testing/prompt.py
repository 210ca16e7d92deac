"""The block sequence of a request: a hash chain and running token totals, extended from the last request."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from .fields import THINKING
from .request import BlockFacts, MessageFacts, Request


def link(before: bytes, block: BlockFacts) -> bytes:
    """One more link of a hash chain."""
    return sha256(before + block.digest).digest()


@dataclass(slots=True)
class Prompt:
    """All blocks of one request in the order tools, system, messages.

    `chain[i]` is a hash of the blocks 0..i; `bound[i]` the same without thinking blocks; `totals[i]` their tokens.
    """

    head: tuple[BlockFacts, ...] = ()
    head_paths: tuple[str, ...] = ()
    messages: list[MessageFacts] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # position of the first block of each message
    blocks: list[BlockFacts] = field(default_factory=list)
    chain: list[bytes] = field(default_factory=list)
    bound: list[bytes] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    steps: int = 0  # links hashed to build this prompt

    @property
    def tokens(self) -> int:
        return self.totals[-1] if self.totals else 0

    def before(self, position: int) -> bytes:
        """The hash that a thinking block at this position is bound to."""
        return self.bound[position - 1] if position else b""

    def place(self, position: int) -> tuple[int, int]:
        """(message, block) at a position; the message is -1 in tools and system."""
        message = bisect_right(self.starts, position) - 1
        return (message, position - self.starts[message]) if message >= 0 else (-1, position)

    def path(self, position: int) -> str:
        if position >= len(self.blocks):
            return "end"
        message, block = self.place(position)
        return f"messages.{message}.content.{block}" if message >= 0 else self.head_paths[block]

    def add(self, blocks: Sequence[BlockFacts]) -> None:
        chain = self.chain[-1] if self.chain else b""
        bound = self.bound[-1] if self.bound else b""
        total = self.tokens
        for block in blocks:
            chain = link(chain, block)
            if block.kind not in THINKING:
                bound = link(bound, block)
            total += block.tokens
            self.blocks.append(block)
            self.chain.append(chain)
            self.bound.append(bound)
            self.totals.append(total)
        self.steps += len(blocks)

    def add_message(self, message: MessageFacts) -> None:
        self.starts.append(len(self.blocks))
        self.messages.append(message)
        self.add(message.blocks)

    def shared_with(self, other: "Prompt") -> int:
        """How many leading blocks are the same; a binary search, since a chain link vouches for all before it."""
        low, high = 0, min(len(self.chain), len(other.chain))
        while low < high:
            middle = (low + high + 1) // 2
            if self.chain[middle - 1] == other.chain[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low

    def without(self, gone: Callable[[int], bool]) -> "Prompt":
        """The prompt that is left when the server drops blocks."""
        left = Prompt(self.head, self.head_paths)
        left.add([block for at, block in enumerate(self.blocks) if not gone(at)])
        return left


def prompt_of(request: Request, previous: Prompt | None) -> Prompt:
    """The prompt of a request; what it shares with the previous one of its session is copied, not hashed again."""
    prompt = Prompt(request.head, request.head_paths)
    kept = 0
    if previous is not None and previous.head == request.head:
        pairs = zip(previous.messages, request.messages, strict=False)
        for old, new in pairs:
            if old is not new:
                break
            kept += 1
        end = previous.starts[kept] if kept < len(previous.starts) else len(previous.blocks)
        prompt.messages, prompt.starts = previous.messages[:kept], previous.starts[:kept]
        prompt.blocks, prompt.chain = previous.blocks[:end], previous.chain[:end]
        prompt.bound, prompt.totals = previous.bound[:end], previous.totals[:end]
    else:
        prompt.add(request.head)
    for message in request.messages[kept:]:
        prompt.add_message(message)
    return prompt
