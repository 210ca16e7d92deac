"""Prompt-cache accounting: what a request reads, what it writes, what it pays for in full."""

from collections.abc import Sequence
from dataclasses import dataclass

from .prompt import Prompt

LOOKBACK_BLOCKS = 20
TTL_SECONDS = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True, slots=True)
class Marker:
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
class _Entry:
    ttl: str
    ends: float


class PromptCache:
    """Entries exist only at breakpoints of earlier requests, keyed by the hash of everything before them."""

    def __init__(self, min_tokens: int) -> None:
        self._min_tokens = min_tokens
        self._entries: dict[tuple[str, bytes, bytes], _Entry] = {}

    def use(self, prompt: Prompt, markers: Sequence[Marker], root: tuple[str, bytes], now: float) -> CacheUse:
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
                entry = self._entries[keys.at(marker.position)] = _Entry(marker.ttl, now)
            entry.ends = now + TTL_SECONDS[entry.ttl]
        if hit >= 0 and (found := self._entries.get(keys.at(hit))):
            found.ends = now + TTL_SECONDS[found.ttl]  # a read refreshes it for free
        read = totals[hit] if hit >= 0 else 0
        last = max(totals[usable[-1].position], read)
        hour = max((totals[marker.position] for marker in usable if marker.ttl == "1h"), default=0)
        return CacheUse(read, last - read, prompt.tokens - last, max(0, hour - read))

    def _longest(self, keys: "_Keys", position: int, now: float) -> int:
        """The nearest live entry, looking back at most 20 positions, the breakpoint itself being the first."""
        for at in range(position, max(-1, position - LOOKBACK_BLOCKS), -1):
            if self._live(keys.at(at), now):
                return at
        return -1

    def _live(self, key: tuple[str, bytes, bytes], now: float) -> _Entry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and now < entry.ends else None


class _Keys:
    """Cache keys of a prompt; the message part also depends on tool choice and thinking settings."""

    def __init__(self, prompt: Prompt, root: tuple[str, bytes]) -> None:
        self._prompt = prompt
        self._model, self._settings = root

    def at(self, position: int) -> tuple[str, bytes, bytes]:
        settings = self._settings if position >= len(self._prompt.head) else b""
        return self._model, settings, self._prompt.chain[position]
