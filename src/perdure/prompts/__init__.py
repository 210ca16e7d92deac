"""Prompts: Markdown files, and a strict renderer. Text made for people never feeds a model; these texts do."""

from __future__ import annotations

import hashlib
import re
from functools import cache

_NAME = re.compile(r"\{\{(\w+)\}\}")


@cache
def source(name: str) -> str:
    """The text of a prompt file, without its last line break."""
    from importlib.resources import files  # half a dozen modules, for the first prompt only (LIB-6)

    return (files(__package__) / f"{name}.md").read_text(encoding="utf-8").rstrip("\n")


def version(name: str) -> str:
    """The version of a prompt: the start of its hash, as journals record it."""
    return hashlib.sha256(source(name).encode()).hexdigest()[:12]


def render(name: str, **values: str) -> str:
    """The prompt with every {{name}} filled. A name without a value, or a value without a place, is a `KeyError`."""
    text = source(name)
    wanted = set(_NAME.findall(text))
    if wanted != values.keys():
        odd = ", ".join(sorted(wanted ^ values.keys()))
        raise KeyError(f"prompt {name!r}: missing or unused: {odd}")
    return _NAME.sub(lambda found: values[found[1]], text)
