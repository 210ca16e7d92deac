"""Which paths a tool call touches: read, edit, search or shell, by name patterns of common agents (INS-4).

Generous on purpose: a word of a command that looks like a path counts, since all it can bring is an instruction file of
the project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from holdfast.context.items import PATH_KEYS
from holdfast.context.restore.deeds import command_of, deeds_of
from holdfast.context.restore.happened import Hearing, Used
from holdfast.context.restore.shell import join
from holdfast.context.view import View

MOST: Final = 200  # paths of one turn
_KEYS: Final = (*PATH_KEYS, "paths", "files", "directory", "dir", "folder", "relative_path", "workdir", "cwd")
_WORD = re.compile(r"[^\s'\"`;|&<>()$*?\[\]{}]+")
_FOLDER = re.compile(r"\b(?:cd|pushd|ls|tree)\s+([\w.-]+)(?![\w./-])")  # a word without a slash, and still a folder
_COMMAND_CHARS: Final = 8_000
_PATH_CHARS: Final = 1_000


def touched_paths(view: View, start: int) -> tuple[str, ...]:
    """The paths that answered calls touched in the items from `start` on, each once, as the calls name them."""
    found: dict[str, None] = {}
    for used in Hearing().of(item.message for item in view.items[start:] if not item.is_hidden):
        if isinstance(used, Used) and not used.has_failed:
            for path in _paths(used):
                if 0 < len(path) <= _PATH_CHARS and "\0" not in path and "\n" not in path:
                    found.setdefault(path)
        if len(found) >= MOST:
            break
    return tuple(found)[:MOST]


def _paths(used: Used) -> Iterable[str]:
    arguments = used.arguments
    for key in _KEYS:
        value = arguments.get(key)
        several = value if isinstance(value, list) else [value]
        yield from (one.removeprefix("file://") for one in several if isinstance(one, str))
    pattern = arguments.get("pattern")  # of a glob: the folder that it starts in
    if isinstance(pattern, str) and "/" in pattern and used.kind in ("glob", "findfiles", "listfiles"):
        yield pattern.split("*", 1)[0].rsplit("/", 1)[0]
    yield from (deed.path for deed in deeds_of(used))
    command = command_of(used)
    if command is not None:
        where = used.word("workdir", "cwd")
        command = command[:_COMMAND_CHARS]
        yield from (f"{folder}/" for folder in _FOLDER.findall(command))
        for word in _WORD.findall(command):
            word = word.rsplit("=", 1)[-1]
            if _is_pathlike(word):
                yield join(where, word) if where else word


def _is_pathlike(word: str) -> bool:
    if word.startswith("-") or "://" in word:
        return False
    return "/" in word or bool(re.search(r"\w\.[A-Za-z]\w{0,7}$", word))
