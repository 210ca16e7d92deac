"""Completion of what is typed: commands and what they take at the beginning, files anywhere else (CLI-6)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

_MOST = 100
Arguments = Mapping[str, Callable[[str], Iterable[str]]]


class Completions(Completer):
    """`/co` becomes `/compact`, `/model ant` a model; `@src/ho` and `src/ho` become paths.

    Paths without an @ only for Tab, or where a slash was typed.
    """

    def __init__(self, commands: Mapping[str, str], root: Path, arguments: Arguments | None = None) -> None:
        self._commands, self._root, self._arguments = commands, root, arguments or {}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith("/") and not set(before) & set(" \n"):
            for name, what in self._commands.items():
                if f"/{name}".startswith(before):
                    yield Completion(f"/{name}", start_position=-len(before), display_meta=what)
            return
        command, _, argument = before.partition(" ")
        if command[:1] == "/" and command[1:] in self._arguments:
            for value in self._arguments[command[1:]](argument):
                yield Completion(value, start_position=-len(argument))
            return
        word = document.get_word_before_cursor(WORD=True)
        mark = "@" if word.startswith("@") else ""
        if mark or (word and (complete_event.completion_requested or "/" in word)):
            for path in paths(self._root, word.removeprefix("@")):
                yield Completion(f"{mark}{path}", start_position=-len(word))


def paths(root: Path, word: str) -> Iterator[str]:
    """Paths under a folder that begin with a word, folders with a slash; hidden ones only when a dot was typed."""
    folder, _, start = word.rpartition("/")
    place = (
        Path(os.path.expanduser(folder)) if folder.startswith("~") else root / (folder or ("/" if "/" in word else ""))
    )
    try:
        with os.scandir(place) as found:
            entries = sorted((e.name, e.is_dir()) for e in found if e.name.startswith(start))
    except OSError:
        return
    shown = [(name, is_folder) for name, is_folder in entries if start or not name.startswith(".")]
    for name, is_folder in shown[:_MOST]:
        yield f"{word[: len(word) - len(start)]}{name}{'/' if is_folder else ''}"
