"""What commands print: lines, tables, JSON, notes on stderr, files; and the exit codes (CLI-5)."""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, Literal

from perdure.adapters.machine.system import CLOSE_ON_EXEC, replace
from perdure.errors import BadSetting

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_BUSY = 4
EXIT_INTERRUPTED = 130

STDOUT = Path("-")
Cell = str | int | float | None
_FOLDED = 16
_STACKED = 2  # how far in a cell stands below the name of its column
# Control characters, changes of direction, line separators, halves of characters, annotations.
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]")
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})
_LAYOUT = re.compile(r"([\n\t])")
# Blanks at which no line may end: rich takes them for any other blank, so they are others while it wraps.
HELD = {0xA0: "\U0010fff0", 0x202F: "\U0010fff1", 0x2007: "\U0010fff2"}
RELEASED = {ord(held): chr(blank) for blank, held in HELD.items()}

# --- lines ------------------------------------------------------------------------------------------------------------


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


def note_if_typed(client: str) -> None:
    """Tell a person who typed a command that waits for the messages of a program: whose, and how to leave."""
    if sys.stdin is not None and sys.stdin.isatty():
        note(f"{client} starts this command and speaks with it over standard input and output; Ctrl-C ends it")


def note(text: str) -> None:
    """A line beside the output: a warning, or what is going on."""
    sys.stderr.write(f"perdure: {clean(' '.join(text.split()))}\n")


def is_terminal() -> bool:
    """Whether lines can be drawn and edited where we write: on a terminal that isn't a dumb one."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def is_fancy() -> bool:
    """Whether colours are wanted: on a terminal that draws, unless NO_COLOR says otherwise."""
    return is_terminal() and not os.environ.get("NO_COLOR")


_BAR = 20
_WIDEST = 100


class Progress:
    """A bar on stderr that is written over; silent when nobody looks. `shown` writes the amounts, such as bytes."""

    def __init__(self, shown: Callable[[int], str] = str) -> None:
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._width = 0
        self._shown = shown

    def __call__(self, done: int, of: int, name: str) -> None:
        if self._is_shown and of > 1:
            bar = ("#" * round(_BAR * min(done, of) / of)).ljust(_BAR, ".")
            self._write(f"[{bar}] {self._shown(done)}/{self._shown(of)} {name}")

    def tell(self, text: str) -> None:
        """Say how far it is where nobody knows how much there is."""
        if self._is_shown:
            self._write(text)

    def clear(self) -> None:
        """Take the line away, so that output can follow."""
        if self._is_shown and self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _write(self, text: str) -> None:
        text = clean(text)[: min(_WIDEST, get_terminal_size().columns - 1)]  # a line that wraps isn't written over
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)


def clean(text: str) -> str:
    """Text out of a log, safe to show: on one line, without what a terminal would obey.

    Whatever else scripts and emoji need stays: joiners, unusual spaces, soft hyphens.
    """
    return _OBEYED.sub(lambda found: " " if found[0].isspace() else "\N{REPLACEMENT CHARACTER}", text)


def plain(text: str) -> str:
    """Text of a model or a tool, safe to show: as `clean` has it, but line ends and tabs stay."""
    return "".join(part if part in ("\n", "\t") else clean(part) for part in _LAYOUT.split(text.replace("\r\n", "\n")))


def for_stdout(text: str) -> str:
    """A text that is wanted word for word: as it stands for a file or a pipe, and as `plain` has it for a terminal."""
    return plain(text) if sys.stdout.isatty() else text


def cut(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where something is missing."""
    text = " ".join(clean(text).split())
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` columns, parted between words; what a line was indented by stays on its further ones."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=io.StringIO(), width=max(1, width))
    for line in text.expandtabs(8).split("\n"):
        rest = line.lstrip(" ")
        indent = min(len(line) - len(rest), width // 2)
        if not rest:
            yield ""
            continue
        for piece in Text(rest.translate(HELD)).wrap(console, max(1, width - indent)):
            yield " " * indent + piece.plain.rstrip(" ").translate(RELEASED)


# --- tables: drawn by rich on a terminal, aligned plain text everywhere else ------------------------------------------


def table(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], *, indent: str = "", numbers: Collection[str] = ()
) -> None:
    """A table with a head; columns that hold only numbers stand right, and so do those whose `numbers` are texts."""
    texts = [[shown(cell) for cell in row] for row in rows]
    right = [
        name in numbers or (bool(rows) and all(isinstance(row[n], int | float | None) for row in rows))
        for n, name in enumerate(head)
    ]
    if is_terminal():
        _draw(head, texts, right)
        return
    lines = [list(head), *texts]
    widths = [max(width_of(line[n]) for line in lines) for n in range(len(head))]
    for line in lines:
        cells = [padded(text, widths[n], is_right=right[n]) for n, text in enumerate(line)]
        out((indent + "  ".join(cells)).rstrip())


def shown(cell: Cell) -> str:
    """A cell as text: numbers with thousands apart, nothing for None."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.2f}" if isinstance(cell, float) else clean(cell)


def _draw(head: Sequence[str], texts: list[list[str]], right: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(color_system="auto" if is_fancy() else None)
    console.width -= 1  # a full line moves the cursor on in some terminals, and chat wraps before that
    if _needed(head, texts, right) > console.width:
        _stack(head, texts, console.width)
        return
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, is_right in zip(head, right, strict=True):
        drawn.add_column(name, justify="right" if is_right else "left", no_wrap=is_right, overflow="fold")
    for line in texts:
        drawn.add_row(*(Text(text) for text in line))
    console.print(drawn)


def _needed(head: Sequence[str], texts: list[list[str]], right: list[bool]) -> int:
    """Columns of a terminal that a table needs to be readable: numbers whole, texts folded at a word or so."""
    widths = [max(width_of(line[n]) for line in [list(head), *texts]) for n in range(len(head))]
    return sum(w if is_right else min(w, _FOLDED) for w, is_right in zip(widths, right, strict=True)) + 3 * len(head)


def _stack(head: Sequence[str], texts: list[list[str]], columns: int) -> None:
    """On a narrow terminal: a line for each cell that says something, a blank line between rows.

    Where a word of a column doesn't fit beside the column's name, all its cells stand below their name.
    """
    start = max(map(width_of, head)) + 2
    words = [max((width_of(word) for line in texts for word in line[n].split()), default=0) for n in range(len(head))]
    for line in texts:
        for name, text, longest in zip(head, line, words, strict=True):
            if not text:
                continue
            is_below = start + longest > columns
            if is_below:
                out(name)
            indent = _STACKED if is_below else start
            for number, piece in enumerate(wrapped(text, columns - indent)):
                out((" " * indent if is_below or number else padded(name, start)) + piece)
        out()


def width_of(text: str) -> int:
    """Columns of a terminal: wide characters take two; marks, joiners and other formats none."""
    return sum(
        0 if unicodedata.category(c) in _NO_WIDTH else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def padded(text: str, width: int, *, is_right: bool = False) -> str:
    """A text in so many columns, with blanks behind it or before it; a longer one as it is."""
    space = " " * (width - width_of(text))
    return space + text if is_right else text + space


# --- quantities and times ---------------------------------------------------------------------------------------------


def tokens(count: int) -> str:
    """A token count for people: 940, 12.4k, 1.2M."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.2f}M"


def about(count: int, *, rounds: Literal["nearest", "up", "down"] = "nearest") -> str:
    """A count that is estimated: three digits of it, and the word. A bound is rounded to the side where it holds."""
    unit = 10 ** max(0, len(str(count)) - 3)
    digits = {"nearest": round(count / unit), "up": -(-count // unit), "down": count // unit}[rounds]
    return f"about {max(0, digits * unit):,}"


def usd(amount: float | None) -> str:
    """Dollars, or that the price isn't known."""
    return "unknown" if amount is None else f"${amount:,.2f}"


def short_path(path: str) -> str:
    """A path with the home directory as `~`, and its end where it is too long."""
    own = str(Path.home())
    text = clean(f"~{path[len(own) :]}" if path.startswith(own + "/") else path)
    return text if len(text) <= 40 else "…" + text[-39:]


def size(count: int) -> str:
    """A number of bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def plural(count: int, word: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def moment(at: float | None) -> str:
    """A time for people: local, to the minute."""
    try:
        return "" if at is None else datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def iso(at: float | None, *, timespec: str = "seconds") -> str | None:
    """A time for programs: UTC; None where it isn't known."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


# --- files ------------------------------------------------------------------------------------------------------------


def check_target(reference: str, target: Path, *, force: bool, advice: str = "--force overwrites it") -> None:
    """Refuse a target that can't be written, or that must not be replaced: never a device, whoever we are."""
    if target.is_dir():
        raise BadSetting(f"{target}: is a folder; name the file to write")
    if target.exists() and not target.is_file():
        raise BadSetting(f"{target}: is no file but a device or a pipe; -o - writes to stdout")
    if not target.parent.is_dir():
        raise BadSetting(f"{target}: there is no folder {target.parent}; make it first")
    source = Path(reference)
    if source.exists() and target.exists() and source.samefile(target):
        raise BadSetting(f"{target}: is the file that is exported; name another one")
    if target.exists() and not force:
        raise BadSetting(f"{target}: already exists; {advice}")


def write_whole(target: Path, data: bytes, *, force: bool) -> None:
    """A private file with these bytes, complete or not there at all; without `force` never over another one.

    With it, what a link leads to is replaced, and the link stays.
    """
    from perdure.adapters.journal.disk import DISK

    target = target.resolve() if force else target
    draft = target.with_name(f".{target.name[:50]}.{secrets.token_hex(6)}")  # a character has up to 4 of 255 bytes
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            replace(draft, target)
        else:
            DISK.link(draft, target)
    except FileExistsError:
        raise BadSetting(f"{target}: already exists; --force overwrites it") from None
    except OSError as e:  # of the draft, or of no file at all: what nobody asked for says nothing
        raise OSError(e.errno, e.strerror or str(e), str(target)) from e
    finally:
        draft.unlink(missing_ok=True)


def deliver(target: Path, data: bytes, *, force: bool) -> bool:
    """Write to a file, whole or not at all, or to stdout; False for stdout, where nothing more may be printed."""
    if target == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return False
    write_whole(target, data, force=force)
    return True
