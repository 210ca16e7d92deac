"""Tool calls as restoration reads them: what happened, and what it did to files (RST-10)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from perdure.context.items import PATH_KEYS
from perdure.context.state import SessionState
from perdure.context.view import ContextView
from perdure.transcript.blocks import Text, ToolResult, ToolUse
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import RestoredItem

STATE_BYTES = 128_000  # of one tracker in a checkpoint; a state that is larger is refused and the older one stays
NAME_CHARS = 500  # a longer path or label is no name


class BlockPosition(msgspec.Struct, frozen=True, array_like=True):
    """A block of a message: what was said or restored there can be read again while the message is in the view."""

    message: str
    block: int


class TrackerStates(msgspec.Struct, frozen=True, omit_defaults=True):
    """The trackers' states after the messages that left the view, and where the last boundary put what it restored.

    A content older than the boundary is found again on disk, or, where there is none (a replay), in the block that the
    last boundary restored it to, which is still in the view. What was left out there is known by name only.
    """

    states: dict[str, msgspec.Raw] = {}
    restored: dict[str, dict[str, BlockPosition]] = {}  # kind, then name

    @classmethod
    def of(cls, state: SessionState) -> TrackerStates:
        """What the last boundary handed on; an empty one where there was none."""
        return _DECODER.decode(state.in_play)

    def encoded(self) -> msgspec.Raw:
        """As `State` carries it."""
        return msgspec.Raw(msgspec.json.encode(self))


_DECODER = msgspec.json.Decoder(TrackerStates)


@dataclass(frozen=True, slots=True)
class RestoredMessages:
    """What comes back behind a boundary: messages, what to say of them, and the trackers' states for its checkpoint."""

    messages: tuple[Message, ...] = ()
    rows: tuple[RestoredItem, ...] = ()
    in_play: TrackerStates | None = None
    prompts: tuple[str, ...] = ()  # the prompt files that were used


NOTHING_BACK = RestoredMessages()


DENIED = "The user doesn't want to proceed with this tool use"


@dataclass(eq=False)
class AnsweredCall:
    """A tool was called and answered. `message` is the one that holds the result, `block` where in it."""

    use: ToolUse
    result: ToolResult
    message: MessageId
    block: int
    deeds: list[FileAction] | None = None  # what it did to files, once somebody asked

    @property
    def name(self) -> str:
        return self.use.name

    @cached_property
    def kind(self) -> str:
        """The name as patterns compare it: no server in front, no case, no underscores or dashes."""
        return kind_of(self.use.name)

    @cached_property
    def arguments(self) -> dict[str, Any]:
        return self.use.input

    @cached_property
    def text(self) -> str:
        """All text of the result, with plain line ends."""
        return self.result.text().replace("\r\n", "\n")

    @property
    def has_failed(self) -> bool:
        """The call did nothing: an error, or a person said no."""
        if self.result.is_error:
            return True
        return self.text.startswith((DENIED, "<tool_use_error>"))

    def word(self, *keys: str) -> str | None:
        """The first argument among these that is a text."""
        return next((v for key in keys if isinstance(v := self.arguments.get(key), str) and v), None)


@dataclass(frozen=True)
class MessageText:
    """A text that stands in a message by itself; `origin` says whose it is."""

    text: str
    origin: str
    message: MessageId
    block: int


Happened = AnsweredCall | MessageText


def kind_of(name: str) -> str:
    """A tool's name without its server and spelling: `mcp__fs__read_file` and `ReadFile` are both `readfile`."""
    return name.rsplit("__", 1)[-1].lower().replace("_", "").replace("-", "").replace(".", "")


@dataclass
class HistoryReader:
    """Turns messages into what happened; remembers the calls that are still open."""

    open_calls: dict[str, ToolUse] = field(default_factory=dict)

    def of(self, messages: Iterable[Message]) -> Iterator[Happened]:
        """What happened in these messages. Summaries and restored content repeat what was said, and tell nothing."""
        for message in messages:
            if message.origin in ("summary", "restored") or message.agent_id is not None:
                continue
            for index, block in enumerate(message.blocks):
                value = block.value
                if isinstance(value, ToolUse):
                    self.open_calls[value.id] = value
                elif isinstance(value, ToolResult):
                    use = self.open_calls.pop(value.tool_use_id, None)
                    if use is not None:
                        yield AnsweredCall(use, value, message.id, index)
                elif isinstance(value, Text):
                    yield MessageText(value.text, message.origin, message.id, index)


Span = tuple[int, int]  # first and last line, from 1
TextEdit = tuple[str, str, bool]  # old, new, everywhere

# How agents number the lines of a file: "   12→text", "12<tab>text", "00012| text", "12 | text", SWE-agent "12:text".
_NUMBERED = re.compile(r"^ {0,8}(\d{1,7})(?:→|\t|\| ?| \| ?)(.*)$", re.MULTILINE)
_COLON = re.compile(r"^(\d{1,7}):(.*)$", re.MULTILINE)
_LEAD_LINES = 12  # a header of at most this many lines may stand before the first number
_CUT = ("tokens truncated…", "characters truncated", "output_head>", "<truncated", "[truncated", "lines truncated")


@dataclass(frozen=True, slots=True)
class LineRun:
    """Lines that stand together; `first` is the number of the first one."""

    first: int
    lines: tuple[str, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


@dataclass(frozen=True, slots=True)
class KnownLines:
    """The known runs of a file, in order, apart from each other; `is_whole` when they are all of it."""

    runs: tuple[LineRun, ...] = ()
    is_whole: bool = False

    @classmethod
    def whole(cls, text: str) -> KnownLines:
        """All of a file."""
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        return cls((LineRun(1, tuple(lines)),) if lines else (), is_whole=True)

    @property
    def lines(self) -> dict[int, str]:
        return {run.first + i: line for run in self.runs for i, line in enumerate(run.lines)}

    @property
    def last(self) -> int:
        return self.runs[-1].last if self.runs else 0

    def seen(self, run: LineRun, *, is_whole: bool = False) -> KnownLines:
        """With the lines of a newer read, which win where they differ from older ones."""
        if is_whole or not run.lines:
            return KnownLines((run,) if run.lines else (), is_whole=True) if is_whole else self
        lines = self.lines | {run.first + i: line for i, line in enumerate(run.lines)}
        return KnownLines(runs_of(lines), is_whole=self.is_whole and run.last <= self.last)

    def edited(self, edits: Iterable[TextEdit]) -> KnownLines | None:
        """After replacements, one after the other; None when it isn't certain what it says now."""
        known: KnownLines | None = self
        for edit in edits:
            known = known._replaced(edit) if known is not None else None
        return known

    def _replaced(self, edit: TextEdit) -> KnownLines | None:
        old, new, everywhere = edit
        if not old or old == new:
            return self if old == new else None
        texts = ["\n".join(run.lines) + "\n" for run in self.runs]
        hits = [text.count(old) for text in texts]
        shift = new.count("\n") - old.count("\n")
        if not sum(hits) or (sum(hits) > 1 and not everywhere):
            return None
        if everywhere and not self.is_whole and shift:
            return None  # the places that aren't known may have moved the lines as well
        if not self.is_whole and any(text.find(old, 0, 2 * len(old)) >= 0 for text in texts) and _overlaps_itself(old):
            return None  # it may have been found a little earlier, where the lines aren't known
        runs, moved = [], 0
        for run, text, count in zip(self.runs, texts, hits, strict=True):
            changed = text.replace(old, new) if count else text
            if changed and not changed.endswith("\n") and not self.is_whole:
                return None  # it joins a line that isn't known
            lines = tuple(changed.removesuffix("\n").split("\n")) if changed.strip("\n") or count == 0 else ()
            if lines:
                runs.append(LineRun(run.first + moved, lines))
            moved += shift * count
        return KnownLines(tuple(runs), self.is_whole)

    def agrees(self, text: str) -> bool:
        """Whether every known run still stands in a text, wherever."""
        haystack = "\n" + text.rstrip("\n") + "\n"
        if self.is_whole:
            return "\n".join(line for run in self.runs for line in run.lines).rstrip("\n") == text.rstrip("\n")
        return all("\n" + "\n".join(run.lines).rstrip("\n") + "\n" in haystack for run in self.runs)


def _overlaps_itself(text: str) -> bool:
    """Whether a text ends as it begins, so that two places of it can overlap.

    Knuth, Morris and Pratt's table of borders: one look at each character, whatever the text (SPD-8).
    """
    borders = [0] * len(text)
    border = 0
    for at in range(1, len(text)):
        while border and text[at] != text[border]:
            border = borders[border - 1]
        border += text[at] == text[border]
        borders[at] = border
    return border > 0


def runs_of(lines: dict[int, str]) -> tuple[LineRun, ...]:
    """Lines by number as runs."""
    runs: list[LineRun] = []
    start, some = 0, list[str]()
    for number in sorted(lines):
        if some and number == start + len(some):
            some.append(lines[number])
            continue
        if some:
            runs.append(LineRun(start, tuple(some)))
        start, some = number, [lines[number]]
    if some:
        runs.append(LineRun(start, tuple(some)))
    return tuple(runs)


def numbered_lines(text: str, *, colon: bool = False) -> LineRun | None:
    """The lines of a listing with numbers; None when it isn't one. What stands behind the listing is left out."""
    rows, shape = text.split("\n"), _COLON if colon else _NUMBERED
    start = next((i for i, row in enumerate(rows[:_LEAD_LINES]) if shape.match(row)), None)
    if start is None:
        return None
    if (whole := _all_numbered(rows[start:], shape)) is not None:
        return whole
    match, following, lines = shape.match, -1, list[str]()
    for row in rows[start:]:
        found = match(row)
        if found is None:
            break
        number, text = found.group(1, 2)
        if following >= 0 and int(number) != following:
            break
        following = int(number) + 1
        lines.append(text)
    return LineRun(following - len(lines), tuple(lines))


def _all_numbered(rows: list[str], shape: re.Pattern[str]) -> LineRun | None:
    """The run when every row is numbered, as it nearly always is: one call for all of them."""
    while rows and not rows[-1]:
        rows.pop()
    found = shape.findall("\n".join(rows))
    if len(found) != len(rows):
        return None
    first = int(found[0][0])
    is_run = [int(number) for number, _ in found] == list(range(first, first + len(found)))
    return LineRun(first, tuple(text for _, text in found)) if is_run else None


def is_cut(text: str) -> bool:
    """Whether a tool left something out of its own output."""
    return any(mark in text for mark in _CUT)


def numbered_listing(runs: Sequence[LineRun]) -> str:
    """Runs as numbered lines, with a mark where lines are missing; `numbered_runs` reads it back."""
    rows: list[str] = []
    for index, run in enumerate(runs):
        if index:
            rows.append("…")
        rows += [f"{run.first + i}\t{line}" for i, line in enumerate(run.lines)]
    return "\n".join(rows)


def numbered_runs(text: str) -> tuple[LineRun, ...]:
    """The runs of a listing made by `listing`."""
    lines: dict[int, str] = {}
    for row in text.split("\n"):
        number, tab, line = row.partition("\t")
        if tab and number.isdigit():
            lines[int(number)] = line
    return runs_of(lines)


def chosen(known: KnownLines, focus: Sequence[Span], fits: int, price: float) -> tuple[tuple[LineRun, ...], int]:
    """The lines to show within `fits` units, at `price` units a character: all, else the spans in focus, then the
    head. Gives the runs and how many known lines were left out.
    """
    lines = known.lines
    cost = {number: (len(line) + len(str(number)) + 2) * price for number, line in lines.items()}
    if sum(cost.values()) <= fits:
        return known.runs, 0
    taken: dict[int, str] = {}
    room = fits - 4.0
    order = [number for first, last in focus for number in range(first, min(last, known.last) + 1)]
    for number in dict.fromkeys((*order, *sorted(lines))):
        if number not in lines:
            continue
        room -= cost[number] + (0 if number - 1 in taken or number + 1 in taken else 4 * price)
        if room < 0:
            break
        taken[number] = lines[number]
    return runs_of(taken), len(lines) - len(taken)


_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_MOVE = "*** Move to: "
_SEARCH = re.compile(r"[<-]{6,9} SEARCH")
_DIVIDER = re.compile(r"={6,9}[ \t]{0,9}\Z")
_REPLACE = re.compile(r"[>+]{6,9} REPLACE")
_RULE = re.compile(r"-{5,}\Z")


@dataclass(frozen=True, slots=True)
class PatchedFile:
    """What a patch does to one file: `text` is all of a new one, `edits` replace parts, neither: it is deleted."""

    path: str
    text: str | None = None
    edits: tuple[TextEdit, ...] = ()
    moved_to: str | None = None
    is_deleted: bool = False


def patched_files(patch: str) -> list[PatchedFile]:
    """The files of an `apply_patch` envelope, in order."""
    found: list[PatchedFile] = []
    rows: list[str] = []
    head: tuple[str, str] | None = None
    for row in [*patch.split("\n"), "*** End Patch"]:
        start = _FILE.match(row)
        if (start or row.startswith("*** End Patch")) and head is not None:
            found.append(_file(head, rows))
            head = None
        if start:
            head, rows = (start[1], start[2].strip()), []
        elif head is not None:
            rows.append(row)
    return found


def _file(head: tuple[str, str], rows: list[str]) -> PatchedFile:
    what, path = head
    if what == "Delete":
        return PatchedFile(path, is_deleted=True)
    if what == "Add":
        return PatchedFile(path, text="".join(row[1:] + "\n" for row in rows if row.startswith("+")))
    moved = next((row.removeprefix(_MOVE).strip() for row in rows if row.startswith(_MOVE)), None)
    return PatchedFile(path, edits=tuple(_hunks(rows)), moved_to=moved)


def _hunks(rows: list[str]) -> list[TextEdit]:
    """Each hunk as a replacement of whole lines; one that only names its place changes nothing."""
    edits: list[TextEdit] = []
    old: list[str] = []
    new: list[str] = []
    for row in [*rows, "@@"]:
        if row.startswith("@@"):
            if old != new:
                edits.append(("".join(line + "\n" for line in old), "".join(line + "\n" for line in new), False))
            old, new = [], []
        elif row.startswith("-"):
            old.append(row[1:])
        elif row.startswith("+"):
            new.append(row[1:])
        elif row.startswith(" ") or not row:
            old.append(row[1:])
            new.append(row[1:])
    return edits


def search_replace(diff: str) -> tuple[TextEdit, ...]:
    """The replacements of SEARCH/REPLACE blocks, as Cline, Roo and Aider write them."""
    edits: list[TextEdit] = []
    old: list[str] = []
    new: list[str] = []
    into: list[str] | None = None
    for row in diff.split("\n"):
        if _SEARCH.match(row):
            old, new = [], []
            into = old
        elif into is old and _DIVIDER.match(row):
            into = new
        elif into is new and _REPLACE.match(row):
            edits.append((_lines(_without_place(old)), _lines(new), False))
            into = None
        elif into is not None:
            into.append(row)
    return tuple(edits)


def _without_place(rows: list[str]) -> list[str]:
    """Roo writes `:start_line:7` and a rule before the text that it looks for."""
    if not rows or not rows[0].startswith(":start_line:"):
        return rows
    rest = [row for row in rows[1:3] if not row.startswith(":end_line:") and not _RULE.match(row)]
    return rest + rows[3:]


def _lines(rows: list[str]) -> str:
    return "".join(row + "\n" for row in rows)


_CD = re.compile(r"^\s*cd\s+(?P<dir>'[^'\n]*'|\"[^\"\n$`]*\"|[^\s;&|$`'\"<>()*?]+)\s*(?:&&|;|\n)\s*")
_HEREDOC = re.compile(
    r"^\s*cat\s+(?:(?P<op1>>>?)\s*(?P<f1>\S+)\s+<<(?P<d1>-?)\s*(?P<q1>['\"]?)(?P<w1>\w+)(?P=q1)"
    r"|<<(?P<d2>-?)\s*(?P<q2>['\"]?)(?P<w2>\w+)(?P=q2)\s+(?P<op2>>>?)\s*(?P<f2>\S+))[ \t]*\n(?P<body>.*)\Z",
    re.DOTALL,
)
_SED = re.compile(r"^(\d+)(?:,(\d+|\$))?p$")
_SED_IN_PLACE = re.compile(r"sed\s+(?:-[a-zA-Z]*i\S*|--in-place\S*)\s")
_REDIRECT = re.compile(r"(?<![^\s])>>?[ \t]*([^\s&<>]+)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_AWAY = re.compile(r"\0(\d+)\0")
_TAKES_AWAY = re.compile(r"\b(?:rm|mv|unlink|rmdir)\s|\bgit\b.*\b(?:checkout|restore|clean|reset|stash)\b", re.DOTALL)
_READERS = ("cat ", "nl ", "head ", "sed ")
# A quoted word in which nothing is filled in, or a bare one without anything that a shell looks at.
_WORD = re.compile(r"('[^']*'|\"[^\"$`\\]*\"|[^\s;&|<>()$`*?{}!'\"\\]+)(?:\s+|\Z)")
_HEAD_CHARS = 4_000
_PLAIN_CHARS = 1_000  # a plain read of a file isn't longer
_ODD = frozenset(";&|<>()$`*?{}!\n")


@dataclass(frozen=True, slots=True)
class ShellRead:
    """The whole output is this part of the file; `is_numbered` when each line has its number in front."""

    path: str
    first: int = 1
    last: int | None = None
    is_numbered: bool = False


@dataclass(frozen=True, slots=True)
class ShellWrite:
    """The file has this text now."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class ShellTouch:
    """The file was changed, nobody knows how; or removed; or some output went into it."""

    path: str
    how: Literal["edited", "deleted", "output"] = "edited"


ShellAction = ShellRead | ShellWrite | ShellTouch


def shell_actions(command: str, cwd: str | None = None) -> list[ShellAction]:
    """What a command does to files, as far as it is certain."""
    where = cwd
    while (found := _CD.match(command)) is not None:
        where = join(where, found["dir"].strip("'\""))
        command = command[found.end() :]
    heredoc = _heredoc(command) if "<<" in command else None
    if heredoc is not None:
        path, text = heredoc
        return [ShellWrite(join(where, path), text)] if text is not None else [ShellTouch(join(where, path))]
    read = _read(command.strip())
    if read is not None:
        return [ShellRead(join(where, read.path), read.first, read.last, read.is_numbered)]
    return [ShellTouch(join(where, deed.path), deed.how) for deed in _touched(command)]


def join(cwd: str | None, path: str) -> str:
    """A path as it would be opened from a folder; Windows paths stay as they are."""
    if "\\" in path or path.startswith("~") or cwd is None:
        return path
    return posixpath.normpath(posixpath.join(cwd, path))


def _heredoc(command: str) -> tuple[str, str | None] | None:
    """The file and the text that a lone `cat > FILE <<EOF` writes; None for the text where a shell fills it in."""
    found = _HEREDOC.match(command)
    if found is None:
        return None
    side = "1" if found["f1"] else "2"
    path, word, quote = found[f"f{side}"].strip("'\""), found[f"w{side}"], found[f"q{side}"]
    if set(path) & _ODD:
        return None
    body, end, rest = ("\n" + found["body"] + "\n").partition(f"\n{word}\n")
    is_plain = bool(quote) or not set(body) & set("$`\\")
    if not end or rest.strip() or found[f"d{side}"] or found[f"op{side}"] == ">>" or not is_plain:
        return path, None
    return path, body[1:] + "\n"


def _read(command: str) -> ShellRead | None:
    """`cat FILE`, `nl -ba FILE`, `head -n N FILE`, `sed -n 'A,Bp' FILE`, and `nl -ba FILE | sed -n 'A,Bp'`."""
    if not command.startswith(_READERS):
        return None
    first, bar, second = command.partition("|")
    words, others = _words(first), _words(second)
    if words is None or others is None:
        return None
    if bar:
        if words[:1] != ["nl"] or others[:2] != ["sed", "-n"] or len(others) != 3:
            return None
        read, span = _plain(words), _SED.match(others[2])
        return read if read is not None and span is not None else None
    return _plain(words)


def _words(text: str) -> list[str] | None:
    """The words of one plain command; None when it is more than that."""
    if len(text) > _PLAIN_CHARS:
        return None
    words: list[str] = []
    at, text = 0, text.strip()
    while at < len(text):
        found = _WORD.match(text, at)
        if found is None:
            return None
        words.append(found[1][1:-1] if found[1][0] in "'\"" else found[1])
        at = found.end()
    return words


def _plain(words: list[str]) -> ShellRead | None:
    match words:
        case ["cat", path] if not path.startswith("-"):
            return ShellRead(path)
        case ["cat", "-n", path] | ["nl", "-ba", path] | ["nl", "-b", "a", path]:
            return ShellRead(path, is_numbered=True)
        case ["head", "-n", count, path] if count.isdigit():
            return ShellRead(path, 1, int(count))
        case ["head", count, path] if count[:1] == "-" and count[1:].isdigit():
            return ShellRead(path, 1, int(count[1:]))
        case ["sed", "-n", script, path]:
            found = _SED.match(script)
            if found is None:
                return None
            last = None if found[2] == "$" else int(found[2] or found[1])
            return ShellRead(path, int(found[1]), last)
    return None


def _touched(command: str) -> list[ShellTouch]:
    """Files that a command of any shape changes in plain sight: `sed -i … FILE`, `> FILE`, `rm FILE`."""
    head = command.split("<<", 1)[0][:_HEAD_CHARS]  # a here-document is text, not commands
    if not any(sign in head for sign in (">", "sed ", "rm ")):
        return []
    head, quoted = _put_away(head)
    found: list[ShellTouch] = []
    for part in re.split(r"[;|\n()]+|&&", head):
        for redirect in _REDIRECT.finditer(part):
            found.append(ShellTouch(_unquoted(redirect[1], quoted), "output"))
        words = [_unquoted(word, quoted) for word in _REDIRECT.sub("", part).split()]
        if _SED_IN_PLACE.match(part.lstrip()) and len(words) > 3 and not words[-1].startswith("-"):
            found.append(ShellTouch(words[-1]))
        elif words[:1] == ["rm"] and all(word.startswith("-") and "r" not in word for word in words[1:-1]):
            found += [ShellTouch(word, "deleted") for word in words[1:] if not word.startswith("-")]
    return [deed for deed in found if _is_path(deed.path)]


@dataclass(frozen=True, slots=True)
class ShellRemoval:
    """What became of files that a command took away: `path` is a file, a folder or a pattern, or "" for all there are.

    `how`: deleted; moved, `to` another path; or undone, by version control, to what they were before, or gone.
    """

    path: str
    how: Literal["deleted", "moved", "undone"]
    to: str = ""
    by: str = ""


def shell_removals(command: str, cwd: str | None = None) -> list[ShellRemoval]:
    """What a command of any shape plainly takes away, by rm and mv, and by git's commands for it."""
    head = command.split("<<", 1)[0][:_HEAD_CHARS]  # a here-document is text, not commands
    if not _TAKES_AWAY.search(head):
        return []
    head, quoted = _put_away(head)
    found: list[ShellRemoval] = []
    where = cwd
    for part in re.split(r"[;|&\n()]+", head):
        words = [_unquoted(word, quoted) for word in _REDIRECT.sub("", part).split()]
        while words and ("=" in words[0] or words[0] in ("sudo", "then", "do", "else", "command")):
            words.pop(0)
        if words[:1] == ["cd"] and len(words) == 2 and not set(words[1]) & _ODD:
            where = join(where, words[1])
        for one in _fates(words):
            path, to = (each and join(where, each) for each in (one.path, one.to))
            found.append(ShellRemoval(path, one.how, to, one.by))
    return found


def _fates(words: list[str]) -> list[ShellRemoval]:
    name, rest = (words[0], words[1:]) if words else ("", [])
    if name == "git":
        while len(rest) > 2 and rest[0] in ("-C", "-c"):
            rest = rest[2:]
        name, rest = (f"git {rest[0]}", rest[1:]) if rest else ("", [])
    paths = [word.rstrip("/") or word for word in rest if not word.startswith("-") and not set(word) & set("$`")]
    flags = "".join(word for word in rest if word.startswith("-"))
    by = name
    match name:
        case "rm" | "unlink" | "rmdir" | "git rm" if "--cached" not in rest:
            return [ShellRemoval(path, "deleted", by=by) for path in paths]
        case "mv" | "git mv" if len(paths) >= 2:
            into = len(paths) > 2 or rest[-1].endswith("/")
            end = [f"{paths[-1]}/{path.rpartition('/')[2]}" if into else paths[-1] for path in paths[:-1]]
            return [ShellRemoval(path, "moved", to, by) for path, to in zip(paths[:-1], end, strict=True)]
        case "git checkout" | "git restore" if not {"-b", "-B", "--orphan", "--staged", "-S"} & set(rest):
            after = rest[rest.index("--") + 1 :] if "--" in rest else paths if name == "git restore" else []
            if name == "git checkout" and "--" not in rest:
                after = [path for path in paths if path == "." or "." in path.rpartition("/")[2] or "/" in path]
            return [ShellRemoval("" if path in (".", ":/", "*") else path, "undone", by=by) for path in after]
        case "git reset" if "--hard" in rest:
            return [ShellRemoval("", "undone", by="git reset --hard")]
        case "git clean" if "f" in flags and "n" not in flags.replace("--no", ""):
            return [ShellRemoval("", "undone", by="git clean")]
        case "git stash" if not rest or rest[0] in ("push", "save", "-u", "-q", "-k", "--"):
            return [ShellRemoval("", "undone", by="git stash")]
    return []


def _put_away(command: str) -> tuple[str, list[str]]:
    """A command with a mark in the place of each quoted text, and these texts: `_unquoted` puts them back."""
    quoted: list[str] = []

    def away(found: re.Match[str]) -> str:
        quoted.append(found[0][1:-1])
        return f"\0{len(quoted) - 1}\0"

    return _QUOTED.sub(away, command), quoted


def _unquoted(word: str, quoted: list[str]) -> str:
    return _AWAY.sub(lambda found: quoted[int(found[1])], word)


def _is_path(word: str) -> bool:
    """Whether a word is certainly a file: it has a folder or an ending, and nothing that a shell would fill in."""
    if set(word) & _ODD or set(word) & set("[]=,\"'\0") or word.startswith("/dev/"):
        return False
    return bool(re.search(r"/[^/]+$|\.\w{1,8}$", word)) and not word[:1].isdigit()


@dataclass(frozen=True, slots=True)
class FileAction:
    """Something was done to a file. `text` is all of it now; `edits` changed parts; `runs` were shown.

    With none of the three the file was changed (or shown) without saying how it reads now.
    """

    path: str
    how: str  # read, edited, written, deleted; output: of some command, which is a file in play only if it was before
    runs: tuple[LineRun, ...] = ()
    is_whole: bool = False
    text: str | None = None
    edits: tuple[TextEdit, ...] | None = None
    span: Span | None = None

    def on(self, known: KnownLines | None) -> KnownLines | None:
        """What is known of the file's text after this; None when it isn't."""
        if self.text is not None:
            return KnownLines.whole(self.text)
        if self.how == "edited":
            known = known.edited(self.edits) if self.edits and known is not None else None
        for run in self.runs:
            known = (known or KnownLines()).seen(run, is_whole=self.is_whole)
        return None if self.how == "deleted" else known


READS: Final = frozenset(
    "read readfile viewfile fileread view openfile open cat readtextfile getfilecontents readmanyfiles fsread".split()
)
EDITS: Final = frozenset("edit replace editfile fileedit searchreplace edittool strreplace replaceinfile".split())
WRITES: Final = frozenset("write writefile createfile writetofile filewrite create savefile".split())
SHELLS: Final = frozenset(
    "bash shell execcommand runcommand executebash localshell runshellcommand executecommand runinterminal terminal "
    "shellcommand unifiedexec".split()
)
EDITORS: Final = frozenset("strreplaceeditor strreplacebasededittool texteditor fileeditor".split())
PATCHES: Final = frozenset("applypatch patch".split())
_SWE_FILE = re.compile(r"^\[File: (?P<path>.+?) \((?P<lines>\d+) lines total\)\]\n", re.MULTILINE)
_SWE_OPEN = re.compile(r"^\(Open file: (?P<path>/.+)\)$", re.MULTILINE)
_CODEX_HEAD = re.compile(r"\A(?:Chunk ID: .*\n)?(?:Exit code: (?P<a>-?\d+)\n)?Wall time: .*\n", re.MULTILINE)
_CODEX_EXIT = re.compile(r"^Process exited with code (-?\d+)$", re.MULTILINE)
_MINI = re.compile(r"\A\s{0,9}<returncode>\s{0,9}(-?\d+)\s{0,9}</returncode>\s{0,9}<output>\n?")
_REMINDER = "<system-reminder>"
_FAILED = ("Error", "error:", "apply_patch verification failed", "Your proposed edit has introduced")


def file_actions(used: AnsweredCall) -> list[FileAction]:
    """What an answered call did to files; paths are absolute where the call says the folder."""
    if used.deeds is None:
        used.deeds = _deeds(used)
    return used.deeds


def _deeds(used: AnsweredCall) -> list[FileAction]:
    if used.has_failed or used.text.startswith(_FAILED):
        return []
    teller = _TELLERS.get(used.kind)
    deeds = teller(used, None) if teller is not None else []
    window = _swe_window(used)
    if window is not None:
        deeds = [*deeds, window] if used.kind not in READS else [window]
    return [deed for deed in deeds if deed.path and len(deed.path) <= NAME_CHARS]


def _path(used: AnsweredCall, cwd: str | None) -> str:
    path = used.word(*PATH_KEYS)
    return join(cwd, path) if path else ""


def _number(used: AnsweredCall, *keys: str) -> int | None:
    value = next((v for key in keys if (v := used.arguments.get(key)) is not None), None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _span(used: AnsweredCall) -> Span | None:
    """The part that was asked for, from 1."""
    view = used.arguments.get("view_range")
    if isinstance(view, list) and len(view) == 2 and all(isinstance(n, int) for n in view):
        return (view[0], view[1] if view[1] > 0 else 10**7)
    first, limit = _number(used, "offset", "start_line", "line_start"), _number(used, "limit")
    last = _number(used, "end_line", "line_end")
    if first is None and limit is None and last is None:
        return None
    first = first or 1
    return (first, last or (first + limit - 1 if limit else 10**7))


def _without_reminder(text: str) -> str:
    """A result without the reminder that an agent hung on its end."""
    if not text.rstrip().endswith("</system-reminder>"):
        return text
    return text[: text.rfind(_REMINDER)].rstrip("\n") if _REMINDER in text else text


def _deeds_read(used: AnsweredCall, cwd: str | None) -> list[FileAction]:
    path = _path(used, cwd)
    span = _span(used)
    text = _without_reminder(used.text)
    run = numbered_lines(text)
    if run is not None:
        is_whole = span is None and run.first <= 1 and len(run.lines) < 2_000 and not is_cut(text)
        return [FileAction(path, "read", (run,), is_whole, span=(run.first, run.last) if span else None)]
    is_plain = used.kind in ("readfile", "readtextfile", "getfilecontents", "view") and not text.startswith("<")
    if is_plain and text and span is None and not is_cut(text):
        return [FileAction(path, "read", KnownLines.whole(text).runs, is_whole=True)]
    return [FileAction(path, "read", span=span)]


def _edit(used: AnsweredCall, cwd: str | None) -> list[FileAction]:
    path, given = _path(used, cwd), used.arguments
    if isinstance(diff := given.get("diff"), str):
        return [FileAction(path, "edited", edits=search_replace(diff) or None)]
    some = given.get("edits")
    pairs = [e for e in some if isinstance(e, dict)] if isinstance(some, list) else [given]
    return [FileAction(path, "edited", edits=_pairs(pairs))]


def _pairs(pairs: list[dict[str, object]]) -> tuple[TextEdit, ...] | None:
    edits: list[TextEdit] = []
    for pair in pairs:
        old = next((pair[k] for k in ("old_string", "old_str", "oldText", "search") if k in pair), None)
        new = next((pair[k] for k in ("new_string", "new_str", "newText") if k in pair), "")
        if not isinstance(old, str) or not isinstance(new, str):
            return None
        edits.append((old, new, bool(pair.get("replace_all"))))
    return tuple(edits) or None


def _write(used: AnsweredCall, cwd: str | None) -> list[FileAction]:
    text = used.word("content", "contents", "file_text", "text")
    return [FileAction(_path(used, cwd), "written", text=text)]


def _notebook(used: AnsweredCall, cwd: str | None) -> list[FileAction]:
    return [FileAction(_path(used, cwd), "edited")]


def _editor(used: AnsweredCall, cwd: str | None) -> list[FileAction]:
    """OpenHands, Anthropic's text editor: one tool, the command says what it does."""
    command = used.word("command")
    if command == "view":
        return _deeds_read(used, cwd)
    if command == "create":
        return _write(used, cwd)
    if command == "str_replace":
        return _edit(used, cwd)
    return [FileAction(_path(used, cwd), "edited")] if command in ("insert", "undo_edit") else []


def _patch(used: AnsweredCall, cwd: str | None) -> list[FileAction]:
    patch = used.word("input", "patch", "diff") or ""
    return patch_actions(patch, cwd)


def patch_actions(patch: str, cwd: str | None) -> list[FileAction]:
    """What an `apply_patch` envelope did."""
    deeds: list[FileAction] = []
    for file in patched_files(patch):
        path = join(cwd, file.path)
        if file.is_deleted:
            deeds.append(FileAction(path, "deleted"))
        elif file.text is not None:
            deeds.append(FileAction(path, "written", text=file.text))
        else:
            deeds.append(FileAction(path, "edited", edits=file.edits or None))
        if file.moved_to:
            deeds += [FileAction(path, "deleted"), FileAction(join(cwd, file.moved_to), "edited")]
    return deeds


def command_of(used: AnsweredCall) -> str | None:
    """The command line of a shell tool; a list of words is one when it is `bash -lc …`."""
    given = used.arguments.get("command", used.arguments.get("cmd"))
    if isinstance(given, list) and len(given) == 3 and given[1] in ("-lc", "-c") and isinstance(given[2], str):
        return given[2]
    return given if isinstance(given, str) else None


def output_of(used: AnsweredCall) -> tuple[int | None, str]:
    """Exit code (None: not said) and output of a command, without the frame that the agent put around it."""
    text = used.text
    mini, end = _MINI.match(text), text.rfind("</output>")
    if mini is not None and end >= mini.end():
        return int(mini[1]), text[mini.end() : end].removesuffix("\n")
    head = _CODEX_HEAD.match(text)
    if head is not None:
        before, _, output = text.partition("\nOutput:\n")
        said = _CODEX_EXIT.search(before)
        code = head["a"] or (said[1] if said else None)
        return (int(code) if code is not None else -1), output
    found = re.match(r"\A(?:Exit code|exit code:?) (\d+)\n", text)
    return (int(found[1]), text[found.end() :]) if found else (None, text)


def _shell(used: AnsweredCall, cwd: str | None) -> list[FileAction]:
    command = command_of(used)
    if command is None or used.arguments.get("run_in_background"):
        return []
    code, output = output_of(used)
    if code not in (0, None):
        return []
    where = join(cwd, used.word("workdir", "cwd") or "") if used.word("workdir", "cwd") else cwd
    if "*** Begin Patch" in command and "apply_patch" in command[:400]:
        return patch_actions(command, where)
    deeds: list[FileAction] = []
    for deed in shell_actions(command, where):
        if isinstance(deed, ShellRead):
            deeds.append(_listed(deed, _without_reminder(output)))
        elif isinstance(deed, ShellWrite):
            deeds.append(FileAction(deed.path, "written", text=deed.text))
        else:
            deeds.append(FileAction(deed.path, deed.how))
    return deeds


def _listed(read: ShellRead, output: str) -> FileAction:
    """A file as a command printed it."""
    span = None if read.first == 1 and read.last is None else (read.first, read.last or 10**7)
    if is_cut(output) or not output.strip():
        return FileAction(read.path, "read", span=span)
    if read.is_numbered:
        run = numbered_lines(output)
        return FileAction(read.path, "read", (run,) if run else (), is_whole=False, span=span)
    lines = tuple(output.removesuffix("\n").split("\n"))
    is_whole = span is None and not output.startswith(("cat: ", "bash: ", "sed: ", "sh: "))
    if span is None and not is_whole:
        return FileAction(read.path, "read")
    return FileAction(read.path, "read", (LineRun(read.first, lines),), is_whole, span=span)


def _swe_window(used: AnsweredCall) -> FileAction | None:
    """SWE-agent shows the open file as a window after every step in it: `[File: PATH (N lines total)]`."""
    found = _SWE_FILE.search(used.text) if "[File: " in used.text else None
    if found is None:
        return None
    run = numbered_lines(used.text[found.end() :], colon=True)
    opened = _SWE_OPEN.search(used.text, found.end())
    path = found["path"]
    if opened and opened["path"].endswith(path.lstrip("./")):
        path = opened["path"]
    if run is None:
        return FileAction(path, "read")
    is_whole = run.first == 1 and len(run.lines) >= int(found["lines"])
    how = "read" if used.kind in READS else "edited"
    if how == "read":
        return FileAction(path, "read", (run,), is_whole, span=None if is_whole else (run.first, run.last))
    text = "\n".join(run.lines) + "\n" if is_whole else None
    return FileAction(path, how, (run,), is_whole, text=text, span=(run.first, run.last))


_Teller = Callable[[AnsweredCall, "str | None"], list[FileAction]]
_TELLERS: Final[dict[str, _Teller]] = {
    **dict.fromkeys(READS, _deeds_read),
    **dict.fromkeys((*EDITS, "multiedit", "applydiff", "multistrreplace"), _edit),
    **dict.fromkeys(WRITES, _write),
    **dict.fromkeys(("notebookedit", "editnotebook"), _notebook),
    **dict.fromkeys(EDITORS, _editor),
    **dict.fromkeys(PATCHES, _patch),
    **dict.fromkeys(SHELLS, _shell),
}


MOST: Final = 200  # paths of one turn
_KEYS: Final = (*PATH_KEYS, "paths", "files", "directory", "dir", "folder", "relative_path", "workdir", "cwd")
_TOUCHED_WORD = re.compile(r"[^\s'\"`;|&<>()$*?\[\]{}]+")
_FOLDER = re.compile(r"\b(?:cd|pushd|ls|tree)\s+([\w.-]+)(?![\w./-])")  # a word without a slash, and still a folder
_COMMAND_CHARS: Final = 8_000
_PATH_CHARS: Final = 1_000


def touched_paths(view: ContextView, start: int) -> tuple[str, ...]:
    """The paths that answered calls touched in the items from `start` on, each once, as the calls name them."""
    found: dict[str, None] = {}
    for used in HistoryReader().of(item.message for item in view.items[start:] if not item.is_hidden):
        if isinstance(used, AnsweredCall) and not used.has_failed:
            for path in _paths(used):
                if 0 < len(path) <= _PATH_CHARS and "\0" not in path and "\n" not in path:
                    found.setdefault(path)
        if len(found) >= MOST:
            break
    return tuple(found)[:MOST]


def _paths(used: AnsweredCall) -> Iterable[str]:
    arguments = used.arguments
    for key in _KEYS:
        value = arguments.get(key)
        several = value if isinstance(value, list) else [value]
        yield from (one.removeprefix("file://") for one in several if isinstance(one, str))
    pattern = arguments.get("pattern")  # of a glob: the folder that it starts in
    if isinstance(pattern, str) and "/" in pattern and used.kind in ("glob", "findfiles", "listfiles"):
        yield pattern.split("*", 1)[0].rsplit("/", 1)[0]
    yield from (deed.path for deed in file_actions(used))
    command = command_of(used)
    if command is not None:
        where = used.word("workdir", "cwd")
        command = command[:_COMMAND_CHARS]
        yield from (f"{folder}/" for folder in _FOLDER.findall(command))
        for word in _TOUCHED_WORD.findall(command):
            word = word.rsplit("=", 1)[-1]
            if _is_pathlike(word):
                yield join(where, word) if where else word


def _is_pathlike(word: str) -> bool:
    if word.startswith("-") or "://" in word:
        return False
    return "/" in word or bool(re.search(r"\w\.[A-Za-z]\w{0,7}$", word))
