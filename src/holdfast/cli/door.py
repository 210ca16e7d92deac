"""What commands share: exit codes, the settings that hold here, and output for people and for programs (CLI-5)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.adapters.config import Config

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_BUSY = 4
EXIT_INTERRUPTED = 130


@dataclass(slots=True)
class Door:
    """The options that stand before the command."""

    debug: bool = False


def configured(flags: Iterable[str] = (), *, cwd: Path | None = None, trusts: bool = False) -> Config:
    """The settings that hold in a directory, by default this one; what isn't used is said on stderr (PRS-3, SEC-8)."""
    from holdfast.adapters.config import load

    config = load(os.environ, cwd=cwd or Path.cwd(), flags=flags, trusts=trusts)
    if config.held:
        folder, held = config.folder, ", ".join(config.held)
        note(f"{folder.root}: not trusted ({folder.why}), so it isn't used: {held}; `holdfast trust` trusts the folder")
    for warning in config.warnings:
        note(f"{warning.name}: {warning.reason}")
    return config


def home() -> Path:
    """Where sessions are kept, without reading any settings."""
    from holdfast.adapters.config import home_of

    return home_of(os.environ)


def reference_of(text: str) -> str | Path:
    """What names a session on the command line: a path when there is one, else an id or the beginning of one."""
    path = Path(text)
    return path if path.exists() else text


def out(text: str = "") -> None:
    """A line, or several, for people."""
    sys.stdout.write(text + "\n")


def out_json(value: Any) -> None:
    """One JSON value on one line, for programs. What a terminal would obey, or not show, is escaped: the same value."""
    import msgspec

    text = msgspec.json.encode(value).decode()
    if not text.isprintable():
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """A line beside the output: a warning, or what is going on."""
    sys.stderr.write(f"holdfast: {clean(' '.join(text.split()))}\n")


def is_fancy() -> bool:
    """Whether colours and drawn tables are wanted: on a terminal, unless NO_COLOR says otherwise."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Progress:
    """One line on stderr that is written over; silent when nobody looks."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._width = 0

    def __call__(self, done: int, of: int, name: str) -> None:
        if self._is_shown and of > 1:
            self._write(f"{done}/{of} {name}"[:100])

    def clear(self) -> None:
        """Take the line away, so that output can follow."""
        if self._is_shown and self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + clean(text).ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)


def clean(text: str) -> str:
    """Text out of a log, safe to show: on one line, without control characters that a terminal would obey."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


def cut(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where something is missing."""
    text = " ".join(clean(text).split())
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
