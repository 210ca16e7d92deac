"""What a replay can be told, and the window it then uses (PRS-8)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from holdfast.adapters.connecting import OFFLINE
from holdfast.context.models import ModelFacts
from holdfast.engine.session import Window
from holdfast.settings import Settings
from holdfast.transcript.foreign.recording import Recording, Said

DEFAULT_WINDOW_TOKENS = 200_000
LONG_WINDOW_TOKENS = 1_000_000
_SAYS_LONG = re.compile(r"\[1m\]|(?:^|[-_:])1m(?:$|[-_:])", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """`window_tokens` and `model` overrule what the recording says; `models` are the user's own entries.

    `summarizer` is the name of the model that is asked for records (docs/models.md); `offline` asks none.
    With `forks` the notes of each session are kept as if a model wrote them, and the requests for that are checked.
    """

    settings: Settings = field(default_factory=Settings)
    window_tokens: int | None = None
    model: str | None = None
    models: tuple[ModelFacts, ...] = ()
    summarizer: str = OFFLINE
    forks: bool = False


def window_of(recording: Recording, options: ReplayOptions) -> Window:
    """The user's word, else what the log states, else 200,000 unless its usage or its model id says 1M (PRS-8)."""
    asked = options.window_tokens or options.settings.window_tokens
    if asked:
        return Window(asked, "setting")
    if recording.window_tokens:
        return Window(recording.window_tokens, "log")
    if _SAYS_LONG.search(options.model or recording.model or ""):
        return Window(LONG_WINDOW_TOKENS, "model")
    most = 0
    for step in recording.steps:
        if isinstance(step, Said) and step.message.usage and step.message.agent_id is None:
            most = max(most, step.message.usage.total_tokens)
    if most > DEFAULT_WINDOW_TOKENS:
        return Window(max(LONG_WINDOW_TOKENS, most), "log")
    return Window(DEFAULT_WINDOW_TOKENS, "default")
