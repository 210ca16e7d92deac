"""What answered calls did to files, and what is known of the text of a file since (RST-10, INS-4)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from perdure.transcript.messages import Message
from perdure.transcript.tool_calls.actions import (
    NAME_CHARS,
    NEW_KEYS,
    OLD_KEYS,
    PATH_KEYS,
    TEXT_KEYS,
    TO_THE_END,
    UNDONE,
    AnsweredCall,
    HistoryReader,
    Span,
    ToolTable,
)
from perdure.transcript.tool_calls.patches import PatchedFile, TextEdit, search_replace
from perdure.transcript.tool_calls.shell import ShellFile, join, whole_output

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
        if self.how in ("edited", "written", "output"):
            known = known.edited(self.edits) if self.edits and known is not None else None
        for run in self.runs:
            known = (known or KnownLines()).seen(run, is_whole=self.is_whole)
        return None if self.how == "deleted" else known


_SWE_FILE = re.compile(r"^\[File: (?P<path>.+?) \((?P<lines>\d+) lines total\)\]\n", re.MULTILINE)
_SWE_OPEN = re.compile(r"^\(Open file: (?P<path>/.+)\)$", re.MULTILINE)
_REMINDER = "<system-reminder>"
# Tools whose results are the text of a file as it is, without numbers.
_PLAIN: Final = frozenset({"readfile", "readtextfile", "getfilecontents", "view"})


def file_actions(used: AnsweredCall) -> list[FileAction]:
    """What an answered call did to files; paths are absolute where the call says the folder."""
    if used.file_actions is None:
        used.file_actions = _file_actions(used)
    return used.file_actions


def _file_actions(used: AnsweredCall) -> list[FileAction]:
    if used.has_failed or used.text.startswith(UNDONE):
        return []
    match used.action.kind:
        case "read":
            actions = _read(used)
        case "edit":
            actions = _edit(used)
        case "write":
            actions = [FileAction(file.path, "written", text=used.word(*TEXT_KEYS)) for file in used.action.files]
        case "run":
            actions = _shell(used)
        case _:
            actions = [FileAction(gone.path, "deleted") for gone in used.action.removals]
    window = _swe_window(used)
    if window is not None:
        actions = [*actions, window] if used.action.kind != "read" else [window]
    return [action for action in actions if action.path and len(action.path) <= NAME_CHARS]


def _without_reminder(text: str) -> str:
    """A result without the reminder that an agent hung on its end."""
    if not text.rstrip().endswith("</system-reminder>"):
        return text
    return text[: text.rfind(_REMINDER)].rstrip("\n") if _REMINDER in text else text


def _read(used: AnsweredCall) -> list[FileAction]:
    files = used.action.files
    if len(files) != 1:  # which lines are whose isn't told
        return [FileAction(file.path, "read", span=file.span) for file in files]
    path, span, text = files[0].path, files[0].span, _without_reminder(used.text)
    run = numbered_lines(text)
    if run is not None:
        is_whole = span is None and run.first <= 1 and len(run.lines) < 2_000 and not is_cut(text)
        return [FileAction(path, "read", (run,), is_whole, span=(run.first, run.last) if span else None)]
    if used.plain_name in _PLAIN and text and not text.startswith("<") and span is None and not is_cut(text):
        return [FileAction(path, "read", KnownLines.whole(text).runs, is_whole=True)]
    return [FileAction(path, "read", span=span)]


def _edit(used: AnsweredCall) -> list[FileAction]:
    given = used.arguments
    if used.action.patch:
        return _patch(used.action.patch)
    if isinstance(diff := given.get("diff"), str):
        edits = search_replace(diff) or None
    else:
        some = given.get("edits")
        edits = _pairs([e for e in some if isinstance(e, dict)] if isinstance(some, list) else [given])
    return [FileAction(file.path, "edited", edits=edits) for file in used.action.files]


def _pairs(pairs: list[dict[str, object]]) -> tuple[TextEdit, ...] | None:
    edits: list[TextEdit] = []
    for pair in pairs:
        old = next((pair[key] for key in OLD_KEYS if key in pair), None)
        new = next((pair[key] for key in NEW_KEYS if key in pair), "")
        if not isinstance(old, str) or not isinstance(new, str):
            return None
        edits.append((old, new, bool(pair.get("replace_all"))))
    return tuple(edits) or None


def _patch(patch: Iterable[PatchedFile]) -> list[FileAction]:
    """What a patch did to each of its files."""
    actions: list[FileAction] = []
    for file in patch:
        if file.is_deleted:
            actions.append(FileAction(file.path, "deleted"))
        elif file.text is not None:
            actions.append(FileAction(file.path, "written", text=file.text))
        else:
            actions.append(FileAction(file.path, "edited", edits=file.edits or None))
        if file.moved_to:
            actions += [FileAction(file.path, "deleted"), FileAction(file.moved_to, "edited")]
    return actions


def _shell(used: AnsweredCall) -> list[FileAction]:
    """What a command did. What it only read counts where it printed nothing else; what it took away, where it says."""
    action = used.action
    if used.arguments.get("run_in_background"):
        return []
    output = whole_output(used.text)
    if output is None:
        return []
    actions = _patch(action.patch)
    for file in action.shell:
        if file.is_all:
            actions.append(_printed(file, _without_reminder(output)))
        elif file.how != "read":
            actions.append(FileAction(file.path, file.how, text=file.text))
    for gone in action.removals:
        actions.append(FileAction(gone.path, "output" if gone.how == "undone" else "deleted"))
    return actions


def _printed(file: ShellFile, output: str) -> FileAction:
    """A file as a command printed it."""
    span = None if file.first == 1 and file.last is None else (file.first, file.last or TO_THE_END)
    if is_cut(output) or not output.strip():
        return FileAction(file.path, "read", span=span)
    if file.is_numbered:
        run = numbered_lines(output)
        return FileAction(file.path, "read", (run,) if run else (), is_whole=False, span=span)
    lines = tuple(output.removesuffix("\n").split("\n"))
    is_whole = span is None and not output.startswith(("cat: ", "bash: ", "sed: ", "sh: "))
    if span is None and not is_whole:
        return FileAction(file.path, "read")
    return FileAction(file.path, "read", (LineRun(file.first, lines),), is_whole, span=span)


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
    how = "read" if used.action.kind == "read" else "edited"
    if how == "read":
        return FileAction(path, "read", (run,), is_whole, span=None if is_whole else (run.first, run.last))
    text = "\n".join(run.lines) + "\n" if is_whole else None
    return FileAction(path, how, (run,), is_whole, text=text, span=(run.first, run.last))


MOST: Final = 200  # paths of one turn
_KEYS: Final = (*PATH_KEYS, "paths", "files", "directory", "dir", "folder", "workdir", "cwd")
_WORD = re.compile(r"[^\s'\"`;|&<>()$*?\[\]{}]+")
_FOLDER = re.compile(r"\b(?:cd|pushd|ls|tree)\s+([\w.-]+)(?![\w./-])")  # a word without a slash, and still a folder
_COMMAND_CHARS: Final = 8_000
_PATH_CHARS: Final = 1_000


def touched_paths(messages: Iterable[Message], tools: ToolTable) -> tuple[str, ...]:
    """The paths that answered calls touched in some messages, each once, as the calls name them."""
    found: dict[str, None] = {}
    for used in HistoryReader(tools).read(messages):
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
    if isinstance(pattern, str) and "/" in pattern and used.plain_name in ("glob", "findfiles", "listfiles"):
        yield pattern.split("*", 1)[0].rsplit("/", 1)[0]
    yield from (deed.path for deed in file_actions(used))
    command = used.action.command
    if command:
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
