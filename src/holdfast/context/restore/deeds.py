"""What a tool call did to files, by name patterns of common agents (RST-10).

Claude Code, Codex, Gemini and Qwen, Cline and Roo, OpenHands, SWE-agent, opencode, Cursor, and the shell of all of
them. A name that isn't known does nothing here: its tracker can be registered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.context.items import PATH_KEYS
from holdfast.context.restore import shell
from holdfast.context.restore.happened import Used
from holdfast.context.restore.known import Edit, Known, Run, Span, is_cut, numbered
from holdfast.context.restore.patches import patched_files, search_replace
from holdfast.context.restore.play import NAME_CHARS


@dataclass(frozen=True, slots=True)
class Deed:
    """Something was done to a file. `text` is all of it now; `edits` changed parts; `runs` were shown.

    With none of the three the file was changed (or shown) without saying how it reads now.
    """

    path: str
    how: str  # read, edited, written, deleted; output: of some command, which is a file in play only if it was before
    runs: tuple[Run, ...] = ()
    is_whole: bool = False
    text: str | None = None
    edits: tuple[Edit, ...] | None = None
    span: Span | None = None

    def on(self, known: Known | None) -> Known | None:
        """What is known of the file's text after this; None when it isn't."""
        if self.text is not None:
            return Known.whole(self.text)
        if self.how == "edited":
            known = known.edited(self.edits) if self.edits and known is not None else None
        for run in self.runs:
            known = (known or Known()).seen(run, is_whole=self.is_whole)
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


def deeds_of(used: Used) -> list[Deed]:
    """What an answered call did to files; paths are absolute where the call says the folder."""
    if used.deeds is None:
        used.deeds = _deeds(used)
    return used.deeds


def _deeds(used: Used) -> list[Deed]:
    if used.has_failed or used.text.startswith(_FAILED):
        return []
    teller = _TELLERS.get(used.kind)
    deeds = teller(used, None) if teller is not None else []
    window = _swe_window(used)
    if window is not None:
        deeds = [*deeds, window] if used.kind not in READS else [window]
    return [deed for deed in deeds if deed.path and len(deed.path) <= NAME_CHARS]


def _path(used: Used, cwd: str | None) -> str:
    path = used.word(*PATH_KEYS)
    return shell.join(cwd, path) if path else ""


def _number(used: Used, *keys: str) -> int | None:
    value = next((v for key in keys if (v := used.arguments.get(key)) is not None), None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _span(used: Used) -> Span | None:
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


def _read(used: Used, cwd: str | None) -> list[Deed]:
    path = _path(used, cwd)
    span = _span(used)
    text = _without_reminder(used.text)
    run = numbered(text)
    if run is not None:
        is_whole = span is None and run.first <= 1 and len(run.lines) < 2_000 and not is_cut(text)
        return [Deed(path, "read", (run,), is_whole, span=(run.first, run.last) if span else None)]
    is_plain = used.kind in ("readfile", "readtextfile", "getfilecontents", "view") and not text.startswith("<")
    if is_plain and text and span is None and not is_cut(text):
        return [Deed(path, "read", Known.whole(text).runs, is_whole=True)]
    return [Deed(path, "read", span=span)]


def _edit(used: Used, cwd: str | None) -> list[Deed]:
    path, given = _path(used, cwd), used.arguments
    if isinstance(diff := given.get("diff"), str):
        return [Deed(path, "edited", edits=search_replace(diff) or None)]
    some = given.get("edits")
    pairs = [e for e in some if isinstance(e, dict)] if isinstance(some, list) else [given]
    return [Deed(path, "edited", edits=_pairs(pairs))]


def _pairs(pairs: list[dict[str, object]]) -> tuple[Edit, ...] | None:
    edits: list[Edit] = []
    for pair in pairs:
        old = next((pair[k] for k in ("old_string", "old_str", "oldText", "search") if k in pair), None)
        new = next((pair[k] for k in ("new_string", "new_str", "newText") if k in pair), "")
        if not isinstance(old, str) or not isinstance(new, str):
            return None
        edits.append((old, new, bool(pair.get("replace_all"))))
    return tuple(edits) or None


def _write(used: Used, cwd: str | None) -> list[Deed]:
    text = used.word("content", "contents", "file_text", "text")
    return [Deed(_path(used, cwd), "written", text=text)]


def _notebook(used: Used, cwd: str | None) -> list[Deed]:
    return [Deed(_path(used, cwd), "edited")]


def _editor(used: Used, cwd: str | None) -> list[Deed]:
    """OpenHands, Anthropic's text editor: one tool, the command says what it does."""
    command = used.word("command")
    if command == "view":
        return _read(used, cwd)
    if command == "create":
        return _write(used, cwd)
    if command == "str_replace":
        return _edit(used, cwd)
    return [Deed(_path(used, cwd), "edited")] if command in ("insert", "undo_edit") else []


def _patch(used: Used, cwd: str | None) -> list[Deed]:
    patch = used.word("input", "patch", "diff") or ""
    return patch_deeds(patch, cwd)


def patch_deeds(patch: str, cwd: str | None) -> list[Deed]:
    """What an `apply_patch` envelope did."""
    deeds: list[Deed] = []
    for file in patched_files(patch):
        path = shell.join(cwd, file.path)
        if file.is_deleted:
            deeds.append(Deed(path, "deleted"))
        elif file.text is not None:
            deeds.append(Deed(path, "written", text=file.text))
        else:
            deeds.append(Deed(path, "edited", edits=file.edits or None))
        if file.moved_to:
            deeds += [Deed(path, "deleted"), Deed(shell.join(cwd, file.moved_to), "edited")]
    return deeds


def command_of(used: Used) -> str | None:
    """The command line of a shell tool; a list of words is one when it is `bash -lc …`."""
    given = used.arguments.get("command", used.arguments.get("cmd"))
    if isinstance(given, list) and len(given) == 3 and given[1] in ("-lc", "-c") and isinstance(given[2], str):
        return given[2]
    return given if isinstance(given, str) else None


def output_of(used: Used) -> tuple[int | None, str]:
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


def _shell(used: Used, cwd: str | None) -> list[Deed]:
    command = command_of(used)
    if command is None or used.arguments.get("run_in_background"):
        return []
    code, output = output_of(used)
    if code not in (0, None):
        return []
    where = shell.join(cwd, used.word("workdir", "cwd") or "") if used.word("workdir", "cwd") else cwd
    if "*** Begin Patch" in command and "apply_patch" in command[:400]:
        return patch_deeds(command, where)
    deeds: list[Deed] = []
    for deed in shell.deeds_of(command, where):
        if isinstance(deed, shell.Read):
            deeds.append(_listed(deed, _without_reminder(output)))
        elif isinstance(deed, shell.Wrote):
            deeds.append(Deed(deed.path, "written", text=deed.text))
        else:
            deeds.append(Deed(deed.path, deed.how))
    return deeds


def _listed(read: shell.Read, output: str) -> Deed:
    """A file as a command printed it."""
    span = None if read.first == 1 and read.last is None else (read.first, read.last or 10**7)
    if is_cut(output) or not output.strip():
        return Deed(read.path, "read", span=span)
    if read.is_numbered:
        run = numbered(output)
        return Deed(read.path, "read", (run,) if run else (), is_whole=False, span=span)
    lines = tuple(output.removesuffix("\n").split("\n"))
    is_whole = span is None and not output.startswith(("cat: ", "bash: ", "sed: ", "sh: "))
    if span is None and not is_whole:
        return Deed(read.path, "read")
    return Deed(read.path, "read", (Run(read.first, lines),), is_whole, span=span)


def _swe_window(used: Used) -> Deed | None:
    """SWE-agent shows the open file as a window after every step in it: `[File: PATH (N lines total)]`."""
    found = _SWE_FILE.search(used.text) if "[File: " in used.text else None
    if found is None:
        return None
    run = numbered(used.text[found.end() :], colon=True)
    opened = _SWE_OPEN.search(used.text, found.end())
    path = found["path"]
    if opened and opened["path"].endswith(path.lstrip("./")):
        path = opened["path"]
    if run is None:
        return Deed(path, "read")
    is_whole = run.first == 1 and len(run.lines) >= int(found["lines"])
    how = "read" if used.kind in READS else "edited"
    if how == "read":
        return Deed(path, "read", (run,), is_whole, span=None if is_whole else (run.first, run.last))
    text = "\n".join(run.lines) + "\n" if is_whole else None
    return Deed(path, how, (run,), is_whole, text=text, span=(run.first, run.last))


_Teller = Callable[[Used, "str | None"], list[Deed]]
_TELLERS: Final[dict[str, _Teller]] = {
    **dict.fromkeys(READS, _read),
    **dict.fromkeys((*EDITS, "multiedit", "applydiff", "multistrreplace"), _edit),
    **dict.fromkeys(WRITES, _write),
    **dict.fromkeys(("notebookedit", "editnotebook"), _notebook),
    **dict.fromkeys(EDITORS, _editor),
    **dict.fromkeys(PATCHES, _patch),
    **dict.fromkeys(SHELLS, _shell),
}
