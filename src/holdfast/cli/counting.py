"""`holdfast context --exact`: the size by someone who knows: the provider, or a tokenizer in a file (TOK-7)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from holdfast.context.requests import to_request
from holdfast.context.wire import flatten
from holdfast.errors import BadSetting, HoldfastError
from holdfast.transcript.blocks import Block, Text, Thinking, ToolResult
from holdfast.wiring import connected

if TYPE_CHECKING:
    from holdfast.cli.opened import Opened


def exact_tokens(one: Opened, by: str) -> int:
    """Tokens of the request that would be sent next, by a model's provider (which is sent it) or a tokenizer file."""
    path = Path(by).expanduser()
    if path.suffix == ".json":
        return _local(one, path)
    counted = anyio.run(_asked, one, by)
    if counted is None:
        raise HoldfastError(f"{by}: its server counts no tokens; name another model, or a tokenizer.json")
    return counted


async def _asked(one: Opened, name: str) -> int | None:
    async with connected((name,), os.environ) as models:
        if not models:
            raise BadSetting(f"--exact {name}: no model that counts; name one, or a tokenizer.json")
        (model,) = models
        request = to_request(one.view, one.facts, protocol=model.about.protocol, model=model.about.id)
        return await model.count(request)


def _local(one: Opened, path: Path) -> int:
    """Every text of the request by a Hugging Face tokenizer; what the provider adds around them isn't in it."""
    try:
        from tokenizers import Tokenizer
    except ImportError as e:
        raise BadSetting(f"--exact {path}: needs the package tokenizers: pip install tokenizers") from e
    try:
        tokenizer: Any = Tokenizer.from_file(str(path))
    except Exception as e:  # the library raises plain Exception for a file that is none
        raise HoldfastError(f"{path}: no tokenizer can be read from it: {e}") from e
    texts = list(_texts(one))
    return sum(len(found.ids) for found in tokenizer.encode_batch(texts, add_special_tokens=False))


def _texts(one: Opened) -> Iterator[str]:
    front = one.view.front
    for raw in (*front.system, *front.tools) if front else ():
        yield bytes(raw).decode("utf-8", "replace")
    for group in flatten(one.view):
        for part in group.parts():
            yield from _text(Block(part.raw))


def _text(block: Block) -> Iterator[str]:
    value = block.value
    if isinstance(value, Text):
        yield value.text
    elif isinstance(value, Thinking):
        yield value.thinking
    elif isinstance(value, ToolResult) and isinstance(value.content, str):
        yield value.content
    elif isinstance(value, ToolResult):
        for part in value.parts():
            yield from _text(part)
    elif block.kind not in ("image", "document"):
        yield block.raw.decode("utf-8", "replace")
