"""Model servers on this machine that answer at their usual ports (LIB-3): what there is to talk to without a key.

Only 127.0.0.1 is asked, and only for its list of models. Whoever uses one of them says so first.
"""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import msgspec

from holdfast.adapters.connecting import PROVIDERS
from holdfast.errors import BadSetting

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
