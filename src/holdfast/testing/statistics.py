"""What a fake upstream has seen, for assertions at the end of a run."""

from collections import Counter
from dataclasses import dataclass, field

from .cache import CacheUse


@dataclass(frozen=True, slots=True)
class PrefixMove:
    """A request that was not an extension of the one before it in its session."""

    session: str
    request: int  # the number of the request, from 1
    position: int  # the first block that differs
    path: str  # the same as a path into the request
    kept_tokens: int
    rewritten_tokens: int


@dataclass(slots=True)
class Statistics:
    """Counts over the life of one upstream."""

    requests: int = 0
    answered: int = 0
    refused: int = 0  # requests that broke a rule, the window or a binding
    failed: int = 0  # scripted errors
    violations: Counter[str] = field(default_factory=Counter)  # by rule
    prefix_moves: list[PrefixMove] = field(default_factory=list)
    thinking_dropped: int = 0
    plain_tokens: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    output_tokens: int = 0
    content_tokens: int = 0  # every block counted once, when it is first sent
    hashed_bytes: int = 0  # bytes of content that were hashed
    chain_links: int = 0  # links of hash chains, 64 bytes each

    @property
    def writes_per_content_token(self) -> float:
        """Tokens written to the cache for each token of content: near 1 when the prefix never moves."""
        return self.written_tokens / self.content_tokens if self.content_tokens else 0.0

    def count(self, use: CacheUse, output_tokens: int) -> None:
        self.answered += 1
        self.plain_tokens += use.plain_tokens
        self.read_tokens += use.read_tokens
        self.written_tokens += use.written_tokens
        self.output_tokens += output_tokens
