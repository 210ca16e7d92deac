"""From the name of a model to the model, and the model servers that run on this machine (LIB-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import anyio
import msgspec

from perdure.adapters.providers.offline import OfflineModel
from perdure.context.models import ModelSpec, model_spec
from perdure.errors import BadSetting, nearest
from perdure.ports.session import Model


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


def connect(name: str, environ: Mapping[str, str], *, known: tuple[ModelSpec, ...] = ()) -> Model:
    """The model of a name; nothing is sent yet. Raises `BadSetting` when its key is missing."""
    parsed = parse_name(name)
    if parsed.provider == OFFLINE:
        return OfflineModel()
    provider = PROVIDERS[parsed.provider]
    key = _key(parsed, provider, environ)
    base_url = parsed.base_url or provider.base_url
    mine = next((facts for facts in known if model_spec(parsed.model, known) is facts), None)
    window = mine.window_tokens if mine else None  # what the user wrote down of the model
    if provider.is_anthropic:
        from perdure.adapters.providers.anthropic import AnthropicModel

        return AnthropicModel(parsed.model, key=key, base_url=base_url, window_tokens=window)
    from perdure.adapters.providers.openai import OpenAIModel

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


SECONDS = 1.0  # a server on this machine answers at once, or isn't one
_MOST_BYTES = 1_000_000
_ANY = "vllm"  # speaks as all of them do, and is given no key that happens to be set
_PORTS = {name: p.base_url for name, p in PROVIDERS.items() if p.base_url and p.base_url.startswith("http://127.0.0.1")}


async def local_models(ports: Iterable[tuple[str, str]] = tuple(_PORTS.items())) -> tuple[str, ...]:
    """The names of the models that servers here have, as `connect` takes them; nothing when there is no server.

    `ports` are providers with the URLs of their servers. Never raises, and takes about a second at most.
    """
    found: dict[str, tuple[str, ...]] = {}
    urls = dict(ports)

    async def ask(provider: str, url: str) -> None:
        with anyio.move_on_after(SECONDS):
            try:
                is_usual = _PORTS.get(provider) == url
                found[provider] = tuple(
                    f"{provider}:{name}" if is_usual else f"{provider}:{name}@{url}" for name in await _listed(url)
                )
            except (OSError, ValueError, anyio.BrokenResourceError, anyio.EndOfStream, msgspec.DecodeError):
                pass  # nobody there, or no model server: then there is nothing to offer

    async with anyio.create_task_group() as tasks:
        for provider, url in urls.items():
            tasks.start_soon(ask, provider, url)
    return tuple(name for provider in urls for name in found.get(provider, ()))


async def models_at(url: str) -> tuple[str, ...]:
    """The names of the models of a server of one's own, by its URL (`http://HOST:PORT/v1`), without any key.

    Raises `BadSetting` when nobody there lists models, or the URL is none that can be asked so.
    """
    url = url.rstrip("/")
    if not url.startswith("http://"):
        raise BadSetting(f"{url}: name the model as well, as in openai:MODEL@{url}#NAME_OF_THE_KEY")
    for place in (url, f"{url}/v1"):
        if found := await local_models(((_ANY, place),)):
            return found
    raise BadSetting(
        f"{url}: no server there lists models; is it running? Its API is most often at http://HOST:PORT/v1"
    )


async def _listed(url: str) -> list[str]:
    """The ids that a server's list of models has, but for those that only embed."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    async with await anyio.connect_tcp(name, int(port or 80)) as stream:
        await stream.send(f"GET /{path}/models HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n".encode())
        answer = b""
        while len(answer) <= _MOST_BYTES and not _is_whole(answer):
            try:
                answer += await stream.receive()
            except anyio.EndOfStream:
                break
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0] + b" ":
        return []
    given = msgspec.json.decode(body)
    entries = given.get("data") if isinstance(given, dict) else None
    names = [e.get("id") for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    return [n for n in names if isinstance(n, str) and n.isprintable() and not set(n) & set("@#") and "embed" not in n]


def _is_whole(answer: bytes) -> bool:
    """Whether as much has come as the head promises; servers may keep the connection open."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return bool(gap) and len(body) >= int(value)
    return False
