"""The window of a model on a server of one's own (LIB-3, PRS-8): each kind of server tells it in another place.

Asked in order, the first answer counts. Asked for is the window that holds now, not the model's best: Ollama and
llama.cpp run models with less, and Ollama cuts prompts to it without a word.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Probe:
    """A question: a path under the API (`is_api`) or beside it; with a body it is posted."""

    path: str
    body: dict[str, Any] | None = None
    is_api: bool = False


Ask = Callable[[Probe], Awaitable[Any]]


async def window_of(model: str, ask: Ask) -> int | None:
    """The window in tokens; None when the server doesn't say."""
    listed = await ask(Probe("/models", is_api=True))
    entry = _entry(listed, model)
    # vLLM; OpenRouter; some proxies
    if (window := _first(entry, "max_model_len", "context_length", "context_window", "max_input_tokens")) is not None:
        return window
    for find in (_llama_cpp, _lm_studio, _ollama):
        if (window := await find(model, ask)) is not None:
            return window
    return None


async def _llama_cpp(model: str, ask: Ask) -> int | None:
    """llama-server: the context of one slot, which is what a request has."""
    props = await ask(Probe("/props"))
    return _first(_object(_object(props).get("default_generation_settings")), "n_ctx") or _first(
        _object(props), "n_ctx"
    )


async def _lm_studio(model: str, ask: Ask) -> int | None:
    listed = await ask(Probe("/api/v0/models"))
    return _first(_entry(listed, model), "loaded_context_length", "max_context_length")


async def _ollama(model: str, ask: Ask) -> int | None:
    """Ollama: what the loaded model runs with, else what its Modelfile sets, else the server's default of 4,096."""
    running = _object(await ask(Probe("/api/ps"))).get("models")
    for entry in running if isinstance(running, list) else ():
        names = (_object(entry).get("name"), _object(entry).get("model"))
        if (model in names or f"{model}:latest" in names) and (window := _first(entry, "context_length")) is not None:
            return window
    shown = _object(await ask(Probe("/api/show", body={"model": model})))
    if not shown:
        return None
    for line in str(shown.get("parameters") or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "num_ctx" and words[1].isdigit():
            return int(words[1])
    best = max(_lengths(shown.get("model_info")), default=None)
    return None if best is None else min(best, OLLAMA_DEFAULT)


OLLAMA_DEFAULT = 4_096


def _lengths(info: object) -> Iterator[int]:
    for name, value in _object(info).items():
        if name.endswith(".context_length") and isinstance(value, int):
            yield value


def _entry(listed: object, model: str) -> dict[str, Any]:
    """The model's entry in a list of models; the only one, when there is just one."""
    data = _object(listed).get("data")
    entries = [_object(one) for one in data] if isinstance(data, list) else []
    named = [one for one in entries if one.get("id") == model]
    return named[0] if named else entries[0] if len(entries) == 1 else {}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(fields: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
