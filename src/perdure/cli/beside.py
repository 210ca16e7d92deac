"""How `perdure bench beside` shows two texts: side by side where a terminal has room, one below the other elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

from perdure.cli.output import (
    check_target,
    clean,
    cut,
    is_terminal,
    out,
    padded,
    plain,
    table,
    tokens,
    width_of,
    wrapped,
    write_whole,
)
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.lab.bench.beside import BesideAxis, BesidePlace, BesideReport

_LEAST_COLUMN: Final = 50  # narrower columns can't be read
_BETWEEN: Final = " │ "
_TAB: Final = 4
_STEM_CHARS: Final = 60  # of a file's name, in up to four bytes each
_NAMED: Final = 12
_QUOTED: Final = 4
_QUOTED_CHARS: Final = 160
_MARK: Final = re.compile(
    r" {0,8}(?:[-*•]|\d{1,3}[.)]) "
)  # of an item in a list; its further lines stand below its text
_QUOTES: Final = ("line", "anchor", "commands", "user")  # axes whose items are lines rather than names
_WORDS: Final = {
    "facts": "facts needed later",
    "context": "facts in their context",
    "line": "lines written later",
    "anchor": "lines edited later",
    "commands": "commands run again",
    "edited": "files changed",
    "user": "messages of the user",
    "failing": "failing tests",
    "todos": "open todos",
    "names": "other names",
}


def columns_of() -> int:
    """Columns of the terminal; on one, a full line may move its cursor on, so one is left."""
    return get_terminal_size().columns - is_terminal()


def show(report: BesideReport, width: int, *, with_texts: bool) -> None:
    """Each place with what both hold, what only one of them holds, and the texts; below them the sums."""
    for number, place in enumerate(report.places):
        if number:
            out()
        _show_place(place, width, with_texts=with_texts)
    if len(report.places) > 1:
        out(f"\nin all {len(report.places)} compactions")
        _show_axes(report.totals)


def _show_place(place: BesidePlace, width: int, *, with_texts: bool) -> None:
    out(f"{clean(place.file)}:{place.line} · {tokens(place.tokens_before)} tokens before it")
    _show_axes(place.axes)
    out()
    pair = (
        [f"ONLY IN THE RECORD, of {tokens(place.record.tokens)} tokens", *_only(place.axes, is_record=True)],
        [f"ONLY IN THE SUMMARY, of {tokens(place.summary.tokens)} tokens", *_only(place.axes, is_record=False)],
    )
    _put_beside("\n".join(pair[0]), "\n".join(pair[1]), width)
    if with_texts:
        out()
        _put_beside(f"THE RECORD\n\n{place.record.text}", f"THE SUMMARY\n\n{place.summary.text}", width)


def _show_axes(axes: Sequence[BesideAxis]) -> None:
    rows = [(one.axis, one.of, one.record, one.summary) for one in axes]
    table(("holds", "of", "record", "summary"), rows, indent="  ")


def _only(axes: Sequence[BesideAxis], *, is_record: bool) -> Iterator[str]:
    """What only one of the texts has: counted, the most important named; a fact is named once."""
    named: set[str] = set()
    found = False
    for one in axes:
        some = one.record_only if is_record else one.summary_only
        if one.axis == "facts":
            named.update(some)
        elif one.axis == "context":
            some = tuple(name for name in some if name not in named)
        if some:
            found = True
            yield from _listed(_WORDS.get(one.axis, one.axis), some, as_lines=one.axis in _QUOTES)
    if not found:
        yield "nothing that the other lacks"


def _listed(what: str, some: Sequence[str], *, as_lines: bool) -> Iterator[str]:
    most = _QUOTED if as_lines else _NAMED
    more = f"{len(some) - most:,} more" if len(some) > most else ""
    if as_lines:
        yield f"{what}: {len(some):,}"
        yield from (f"  {cut(item, _QUOTED_CHARS)}" for item in some[:most])
        if more:
            yield f"  … and {more}"
    else:
        names = ", ".join(cut(item, _QUOTED_CHARS) for item in some[:most])
        yield f"{what}: {len(some):,}: {names}{f' … and {more}' if more else ''}"


def _put_beside(left: str, right: str, width: int) -> None:
    column = (width - len(_BETWEEN)) // 2
    if column < _LEAST_COLUMN:
        for number, text in enumerate((left, right)):
            out(("\n" if number else "") + "\n".join(_lines(text, width)))
        return
    for ours, theirs in zip_longest(_lines(left, column), _lines(right, column), fillvalue=""):
        out(f"{padded(ours, column)}{_BETWEEN}{theirs}".rstrip())


def _lines(text: str, width: int) -> Iterator[str]:
    for line in plain(text).expandtabs(_TAB).split("\n"):
        mark = _MARK.match(line)
        start = mark[0] if mark else ""
        for number, piece in enumerate(_pieces(line[len(start) :], width - len(start))):
            yield (" " * len(start) if number else start) + piece


def _pieces(text: str, width: int) -> Iterator[str]:
    for line in wrapped(text, width):
        over = width_of(line) - width  # marks of some scripts take a column of their own, or none, as one counts
        yield from _pieces(line, width - over) if 0 < over < width else (line,)


def write(report: BesideReport, folder: Path, *, force: bool) -> int:
    """Both texts of each place as files of a folder; nothing is written when one of them is there already. How many."""
    files: dict[Path, tuple[str, str]] = {}
    for place in report.places:
        name = stem = f"{clean(Path(place.file).stem)[:_STEM_CHARS]}-{place.line}"
        number = 1
        while folder / f"{name}.record.md" in files:
            number += 1
            name = f"{stem}-{number}"
        files[folder / f"{name}.record.md"] = (place.file, place.record.text)
        files[folder / f"{name}.summary.md"] = (place.file, place.summary.text)
    if folder.exists() and not folder.is_dir():
        raise BadSetting(f"--out {folder}: is no folder")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, (log, _) in files.items():
        check_target(log, path, force=force)
    for path, (_, text) in files.items():
        write_whole(path, f"{text}\n".encode(errors="replace"), force=force)
    return len(files)
