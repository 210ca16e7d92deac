"""Models by their names, as programs write them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.ports.session import Model


def connect(name: str, *, environ: Mapping[str, str] | None = None) -> Model:
    """Return a model by its name. Nothing is sent yet; close it with `await model.close()` when you no longer need it.

    Args:
        name: `provider:model`, with `@URL` for another server and `#NAME` for the variable that holds its key: such as
            `anthropic:claude-sonnet-5-5`, `ollama:qwen3:8b`, `openai:mine@http://127.0.0.1:9000/v1#MY_KEY`, `offline`.
        environ: where keys are looked for; by default the environment of this process.

    Returns:
        The model, for `Session.run` and `Agent.create`.

    Raises:
        BadSetting: the name names no model, or its key isn't set.
        KeyRefused: the SDK for it isn't installed.

    Example:
        from perdure import connect
        model = connect("ollama:qwen3:8b")
        assert model.about.id == "qwen3:8b"
    """
    from perdure.adapters.providers.connect import connect as connected

    if not isinstance(name, str):
        raise BadSetting(f"the name of a model must be a text such as 'anthropic:claude-…', not {type(name).__name__}")
    return connected(name, os.environ if environ is None else environ)


def model_id(name: str) -> str:
    """Return the name that requests carry, of one that may be written as `connect` takes it."""
    if ":" not in name:
        return name
    from perdure.adapters.providers.connect import PROVIDERS, parse_name

    return parse_name(name).model if name.strip().partition(":")[0] in PROVIDERS else name  # qwen3:8b is a model
