"""Prompt caching and thinking signatures as a provider does them: what a request reads, writes, and is bound to."""

import hmac
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from perdure.testing.block_rules import THINKING
from perdure.testing.request import MESSAGES, DecodedBlock, DecodedMessage, DecodedRequest, ProtocolWays


def link(before: bytes, block: DecodedBlock) -> bytes:
    """One more link of a hash chain."""
    return sha256(before + block.digest).digest()


@dataclass(slots=True)
class PromptBlocks:
    """All blocks of one request in the order tools, system, messages.

    `chain[i]` is a hash of the blocks 0..i; `bound[i]` the same without thinking blocks; `totals[i]` their tokens.
    """

    head: tuple[DecodedBlock, ...] = ()
    head_paths: tuple[str, ...] = ()
    messages: list[DecodedMessage] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # position of the first block of each message
    blocks: list[DecodedBlock] = field(default_factory=list)
    chain: list[bytes] = field(default_factory=list)
    bound: list[bytes] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    ways: ProtocolWays = MESSAGES

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
        return self.ways.path.format(message=message, block=block) if message >= 0 else self.head_paths[block]

    def add(self, blocks: Sequence[DecodedBlock]) -> None:
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

    def add_message(self, message: DecodedMessage) -> None:
        self.starts.append(len(self.blocks))
        self.messages.append(message)
        self.add(message.blocks)

    def shared_with(self, other: "PromptBlocks") -> int:
        """How many leading blocks are the same; a binary search, since a chain link vouches for all before it."""
        low, high = 0, min(len(self.chain), len(other.chain))
        while low < high:
            middle = (low + high + 1) // 2
            if self.chain[middle - 1] == other.chain[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low

    def without(self, gone: Callable[[int], bool]) -> "PromptBlocks":
        """The prompt that is left when the server drops blocks."""
        left = PromptBlocks(self.head, self.head_paths, ways=self.ways)
        left.add([block for at, block in enumerate(self.blocks) if not gone(at)])
        return left


def prompt_of(request: DecodedRequest, previous: PromptBlocks | None) -> PromptBlocks:
    """The prompt of a request; what it shares with the previous one of its session is copied, not hashed again."""
    prompt = PromptBlocks(request.head, request.head_paths, ways=request.ways)
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


TTL_SECONDS = {"5m": 300.0, "30m": 1800.0, "1h": 3600.0}


@dataclass(frozen=True, slots=True)
class CacheBreakpoint:
    """A breakpoint: write the cache up to and including this block position."""

    position: int
    ttl: str


@dataclass(frozen=True, slots=True)
class CacheUse:
    """How the prompt's tokens divide. The three parts sum to the prompt."""

    read_tokens: int
    written_tokens: int
    plain_tokens: int
    written_1h_tokens: int = 0


@dataclass(slots=True)
class _CacheEntry:
    ttl: str
    ends: float


class PromptCache:
    """Entries exist only at breakpoints of earlier requests, keyed by the hash of everything before them."""

    def __init__(self, min_tokens: int) -> None:
        self._min_tokens = min_tokens
        self._entries: dict[tuple[str, bytes, bytes], _CacheEntry] = {}

    def use(
        self, prompt: PromptBlocks, markers: Sequence[CacheBreakpoint], root: tuple[str, bytes], now: float
    ) -> CacheUse:
        """Account for a request sent at `now`. `root` is the model, and a hash of what else voids the message part."""
        totals = prompt.totals
        usable = [marker for marker in markers if totals[marker.position] >= self._min_tokens]
        if not usable:
            return CacheUse(0, 0, prompt.tokens)
        keys = _Keys(prompt, root)
        hit = max((self._longest(keys, marker.position, now) for marker in usable), default=-1)
        for marker in usable:
            entry = self._live(keys.at(marker.position), now)
            if entry is None:
                entry = self._entries[keys.at(marker.position)] = _CacheEntry(marker.ttl, now)
            entry.ends = now + TTL_SECONDS[entry.ttl]
        if hit >= 0 and (found := self._entries.get(keys.at(hit))):
            found.ends = now + TTL_SECONDS[found.ttl]  # a read refreshes it for free
        read = totals[hit] if hit >= 0 else 0
        last = max(totals[usable[-1].position], read)
        hour = max((totals[marker.position] for marker in usable if marker.ttl == "1h"), default=0)
        return CacheUse(read, last - read, prompt.tokens - last, max(0, hour - read))

    def _longest(self, keys: "_Keys", position: int, now: float) -> int:
        """The nearest live entry, looking back as far as the server does, the breakpoint itself being the first."""
        for at in range(position, keys.first_looked_at(position) - 1, -1):
            if self._live(keys.at(at), now):
                return at
        return -1

    def _live(self, key: tuple[str, bytes, bytes], now: float) -> _CacheEntry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and now < entry.ends else None


class _Keys:
    """Cache keys of a prompt; the message part also depends on tool choice and thinking settings."""

    def __init__(self, prompt: PromptBlocks, root: tuple[str, bytes]) -> None:
        self._prompt = prompt
        self._model, self._settings = root

    def first_looked_at(self, position: int) -> int:
        lookback = self._prompt.ways.lookback_blocks
        return 0 if lookback is None else max(0, position - lookback + 1)

    def at(self, position: int) -> tuple[str, bytes, bytes]:
        settings = self._settings if position >= len(self._prompt.head) else b""
        return self._model, settings, self._prompt.chain[position]


_OWN = "perdure1."
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
class ThinkingPosition:
    """What stands before a thinking block: everything without thinking, and the thinking block just before it."""

    prefix: bytes
    previous: bytes

    def then(self, block: DecodedBlock) -> "ThinkingPosition":
        """The place after one more block."""
        if block.kind in THINKING:
            return ThinkingPosition(self.prefix, block.digest)
        return ThinkingPosition(link(self.prefix, block), self.previous)


class ThinkingBinding:
    """Signs thinking, and checks it when it comes back.

    A signature holds for all earlier blocks that are not thinking, and for the thinking block just before it: one
    between others may not be left out or moved; the earliest ones may go (`leading_may_go`). Signatures from elsewhere
    (recordings) are bound to the place and text they are first seen with.
    """

    def __init__(self, key: bytes = b"perdure.testing", *, leading_may_go: bool = True) -> None:
        self._key = key
        self._leading_may_go = leading_may_go
        self._first_seen: dict[tuple[str, bytes], tuple[ThinkingPosition, bytes]] = {}
        self._genuine: dict[bytes, bool] = {}

    def sign(self, place: ThinkingPosition, words: str) -> str:
        """The signature of a thinking block that stands at this place."""
        head = f"{_OWN}{place.prefix.hex()}.{place.previous.hex()}"
        return f"{head}.{self._mac(head, words)}"

    def is_own(self, seal: str, words: str) -> bool:
        """Whether this is a signature of ours for this thinking, wherever it stands."""
        head, _, mac = seal.rpartition(".")
        is_formed = seal.startswith(_OWN) and seal.count(".") == 3
        return is_formed and hmac.compare_digest(mac.encode(), self._mac(head, words).encode())

    def mismatches(self, prompt: PromptBlocks) -> Iterator[Mismatch]:
        """Thinking blocks that may not stand where they stand, first to last."""
        previous, compacted = b"", b""
        for position, block in enumerate(prompt.blocks):
            if block.summary:  # it stands for turns that are gone: what follows is bound anew
                previous, compacted = b"", block.digest
            if block.kind not in THINKING:
                continue
            said = self._objection(block, ThinkingPosition(prompt.before(position), previous), compacted)
            if said:
                yield Mismatch(position, said)
            previous = block.digest

    def _objection(self, block: DecodedBlock, place: ThinkingPosition, compacted: bytes) -> str:
        own = block.seal.startswith(_OWN)
        if own and not self._is_genuine(block):
            return MODIFIED
        if own and not compacted:
            _, prefix, previous, _ = block.seal.split(".")
            wanted = ThinkingPosition(bytes.fromhex(prefix), bytes.fromhex(previous))
        else:
            wanted, digest = self._first_seen.setdefault((block.seal, compacted), (place, block.digest))
            if digest != block.digest:
                return MODIFIED
        leading = self._leading_may_go and not place.previous
        holds = place.prefix == wanted.prefix and (place.previous == wanted.previous or leading)
        return "" if holds else FOREIGN_CONVERSATION

    def _is_genuine(self, block: DecodedBlock) -> bool:
        known = self._genuine.get(block.digest)
        if known is None:
            known = self._genuine[block.digest] = self.is_own(block.seal, block.body)
        return known

    def _mac(self, head: str, words: str) -> str:
        return hmac.new(self._key, f"{head}\n{words}".encode(), sha256).hexdigest()


def position_after(prompt: PromptBlocks) -> ThinkingPosition:
    """Where the answer to this prompt begins."""
    return ThinkingPosition(prompt.before(len(prompt.blocks)), _last_thinking(prompt))


def _last_thinking(prompt: PromptBlocks) -> bytes:
    for block in reversed(prompt.blocks):
        if block.summary:
            return b""
        if block.kind in THINKING:
            return block.digest
    return b""
