"""From the name of a model to the model: `provider:model`, with `@URL` for another server and `#NAME` for its key.

    anthropic:claude-sonnet-5-5
    ollama:qwen3:8b
    openai:my-model@http://127.0.0.1:9000/v1#MY_KEY
    offline

A key is only ever named: it is read from the environment when the model is made, and kept by the SDK's client alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.adapters.offline import OfflineModel
from holdfast.adapters.values import nearest
from holdfast.context.models import ModelFacts, model_facts
from holdfast.errors import BadSetting
from holdfast.ports import Model


@dataclass(frozen=True, slots=True)
class Provider:
    """Where a kind of server usually is, and where its key usually stands. No key names: it needs none."""

    is_anthropic: bool = False
    base_url: str | None = None
    keys: tuple[str, ...] = ()


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(is_anthropic=True, keys=("ANTHROPIC_API_KEY",)),
    "openai": Provider(keys=("OPENAI_API_KEY",)),
    "openrouter": Provider(base_url="https://openrouter.ai/api/v1", keys=("OPENROUTER_API_KEY",)),
    "mistral": Provider(base_url="https://api.mistral.ai/v1", keys=("MISTRAL_API_KEY",)),
    "gemini": Provider(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai", keys=("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
    "ollama": Provider(base_url="http://127.0.0.1:11434/v1"),
    "vllm": Provider(base_url="http://127.0.0.1:8000/v1"),
    "llamacpp": Provider(base_url="http://127.0.0.1:8080/v1"),
    "lmstudio": Provider(base_url="http://127.0.0.1:1234/v1"),
}
OFFLINE = "offline"
# Who makes a model is told by the beginning of its name, when nobody says where it runs.
_MAKERS = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}


@dataclass(frozen=True, slots=True)
class ModelName:
    """A name, taken apart. `key` is the name of the variable that holds the key, when one is given."""

    provider: str
    model: str
    base_url: str | None = None
    key: str | None = None


def parse_name(name: str) -> ModelName:
    """Raises `BadSetting` for a name that names nothing."""
    rest, _, key = name.strip().partition("#")
    rest, _, url = rest.partition("@")
    if rest == OFFLINE:
        return ModelName(OFFLINE, OFFLINE)
    provider, colon, model = rest.partition(":")
    if not colon or provider not in PROVIDERS:
        maker = next((known for start, known in _MAKERS.items() if rest.startswith(start)), None)
        if maker is None:
            hint = nearest(provider, (*PROVIDERS, OFFLINE))
            raise BadSetting(f"{name!r} names no model{hint}; write provider:model, with one of {', '.join(PROVIDERS)}")
        provider, model = maker, rest
    if not model:
        raise BadSetting(f"{name!r}: which model? Write {provider}:model")
    if url and not url.startswith(("http://", "https://")):
        raise BadSetting(f"{name!r}: what stands behind @ has to be a URL")
    return ModelName(provider, model, url or None, key or None)


def connect(name: str, environ: Mapping[str, str], *, known: tuple[ModelFacts, ...] = ()) -> Model:
    """The model of a name; nothing is sent yet. Raises `BadSetting` when its key is missing."""
    parsed = parse_name(name)
    if parsed.provider == OFFLINE:
        return OfflineModel()
    provider = PROVIDERS[parsed.provider]
    key = _key(parsed, provider, environ)
    base_url = parsed.base_url or provider.base_url
    mine = next((facts for facts in known if model_facts(parsed.model, known) is facts), None)
    window = mine.window_tokens if mine else None  # what the user wrote down of the model
    if provider.is_anthropic:
        from holdfast.adapters.anthropic import AnthropicModel

        return AnthropicModel(parsed.model, key=key, base_url=base_url, window_tokens=window)
    from holdfast.adapters.openai import OpenAIModel

    return OpenAIModel(parsed.model, key=key, base_url=base_url, window_tokens=window)


def _key(parsed: ModelName, provider: Provider, environ: Mapping[str, str]) -> str | None:
    names = (parsed.key,) if parsed.key else provider.keys
    key = next((environ[name] for name in names if environ.get(name)), None)
    if key is None and names and (parsed.key or parsed.base_url is None):
        raise BadSetting(f"the model {parsed.provider}:{parsed.model} needs a key: set {' or '.join(names)}")
    return key


def default_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What is asked when no model is set: whoever the environment has a key for, else nobody."""
    if environ.get("ANTHROPIC_API_KEY"):
        return ("anthropic:claude-sonnet-5-5",)
    if environ.get("OPENAI_API_KEY"):
        return ("openai:gpt-6-sol",)
    return ()
