"""What is known about models: windows, limits, prices and traits. Data, not code; users add to it by settings.

Prices are US dollars for a million tokens (Anthropic list prices and cache multipliers as of November 2026; OpenAI
entries state the input limit, so their window is input plus output). A model that isn't listed gets `UNKNOWN`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

CacheTtl = Literal["5m", "1h"]
CACHE_SECONDS: dict[CacheTtl, float] = {"5m": 300.0, "1h": 3_600.0}  # how long a provider keeps what was written


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """`prefix` is matched against the start of the model id; the longest match wins."""

    prefix: str
    window_tokens: int = 200_000
    max_output_tokens: int = 64_000
    input_usd: float | None = None
    output_usd: float | None = None
    read_factor: float = 0.1  # cached input, relative to input
    write_factor: float = 1.25  # writing to the 5-minute cache
    write_1h_factor: float = 2.0
    cache_minimum_tokens: int = 1_024
    thinking_is_bound: bool = False  # signatures hold only for an unchanged prefix (TURN-7)
    tokens_ratio: float = 1.0  # reported tokens for each live-estimated one, from recordings; where learning starts
    image_cap_tokens: int = 1_568
    max_images: int = 100
    max_image_edge_pixels: int | None = 8_000  # TURN-9: a request with a longer edge is refused
    max_image_bytes: int | None = 5 * 1024 * 1024  # of its base64; a request with a larger one is refused
    many_images: int = 20  # with more images than this …
    many_image_edge_pixels: int = 2_000  # … the longest edge allowed is this
    provider: str = "anthropic"
    reads_tokens: bool = (
        True  # SEC-11: special tokens of its chat template may be read out of any text, as local servers do
    )

    def input_price(self) -> float:
        """Dollars for one uncached input token; 0 when unknown."""
        return (self.input_usd or 0.0) / 1e6

    def factor_to_write(self, ttl: CacheTtl) -> float:
        """What writing a token to a cache that lives for `ttl` costs, in prices of a plain input token."""
        return self.write_1h_factor if ttl == "1h" else self.write_factor


def _million(prefix: str, usd: float, out: float, **more: float | bool | int) -> ModelSpec:
    return ModelSpec(
        prefix=prefix,
        window_tokens=1_000_000,
        max_output_tokens=128_000,
        input_usd=usd,
        output_usd=out,
        max_images=600,
        image_cap_tokens=4_784,
        reads_tokens=False,
        **more,  # type: ignore[arg-type]
    )


def _openai(prefix: str, window: int, output: int = 128_000) -> ModelSpec:
    return ModelSpec(
        prefix=prefix,
        window_tokens=window,
        max_output_tokens=output,
        write_factor=1.25,
        max_image_edge_pixels=None,  # larger ones are scaled there
        max_image_bytes=None,
        reads_tokens=False,
        provider="openai",
    )


UNKNOWN = ModelSpec(prefix="", max_output_tokens=32_000, thinking_is_bound=True, max_image_bytes=None)

TABLE: tuple[ModelSpec, ...] = (
    _million("claude-fable-5-", 10, 50, read_factor=0.025, thinking_is_bound=True, cache_minimum_tokens=512),
    _million("claude-mythos-5-", 10, 50, read_factor=0.025, thinking_is_bound=True, cache_minimum_tokens=512),
    _million("claude-fable-5", 10, 50, cache_minimum_tokens=512),
    _million("claude-mythos", 10, 50, cache_minimum_tokens=512),
    _million("claude-opus-5-5", 4, 20, read_factor=0.05, thinking_is_bound=True, cache_minimum_tokens=512),
    _million("claude-opus-5", 5, 25, cache_minimum_tokens=512, tokens_ratio=1.44),
    _million("claude-sonnet-5-5", 2, 10, read_factor=0.05, thinking_is_bound=True),
    _million("claude-sonnet-5", 3, 15),
    _million("claude-haiku-5-5", 0.1, 0.5, thinking_is_bound=True, cache_minimum_tokens=4_096),
    _million("claude-opus-4-8", 5, 25, tokens_ratio=1.5),
    _million("claude-opus-4-7", 5, 25, cache_minimum_tokens=2_048),
    # The 1M window of 4.6 has to be asked for in the agent that most logs come from, so the table says 200k (PRS-8).
    ModelSpec(
        prefix="claude-opus-4-6",
        reads_tokens=False,
        tokens_ratio=1.2,
        max_output_tokens=128_000,
        input_usd=5,
        output_usd=25,
        cache_minimum_tokens=4_096,
    ),
    ModelSpec(prefix="claude-sonnet-4-6", max_output_tokens=128_000, input_usd=3, output_usd=15, reads_tokens=False),
    ModelSpec(
        prefix="claude-opus-4-5",
        tokens_ratio=1.17,
        input_usd=5,
        output_usd=25,
        cache_minimum_tokens=4_096,
        reads_tokens=False,
    ),
    ModelSpec(prefix="claude-opus-4", max_output_tokens=32_000, input_usd=15, output_usd=75, reads_tokens=False),
    ModelSpec(prefix="claude-sonnet-4-5", input_usd=3, output_usd=15, reads_tokens=False),
    ModelSpec(prefix="claude-sonnet-4", input_usd=3, output_usd=15, reads_tokens=False),
    ModelSpec(prefix="claude-haiku-4-5", input_usd=1, output_usd=5, cache_minimum_tokens=4_096, reads_tokens=False),
    _openai("gpt-6", 1_050_000),
    _openai("gpt-5.6", 1_050_000),
    _openai("gpt-5.5", 1_050_000),
    _openai("gpt-5.4-", 400_000),
    _openai("gpt-5.4", 1_050_000),
    _openai("gpt-5", 400_000),
    _openai("gpt-4o", 128_000, 16_384),
)


@cache
def model_spec(model: str | None, more: tuple[ModelSpec, ...] = ()) -> ModelSpec:
    """The entry for a model id; `more` (the user's own entries) goes before the table. `UNKNOWN` when nothing fits."""
    if not model:
        return UNKNOWN
    name = model.rsplit("/", 1)[-1].rpartition("anthropic.")[2]  # as Bedrock calls them: `us.anthropic.claude-…`
    for table in (more, TABLE):
        fits = [facts for facts in table if name.startswith(facts.prefix)]
        if fits:
            return max(fits, key=lambda facts: len(facts.prefix))
    return UNKNOWN
