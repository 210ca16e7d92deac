"""Instruction files, the CLAUDE.md family: where they are looked for, which load and why, and how much is sent (INS-1
to INS-5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from perdure.text.frontmatter import FrontMatter, front_matter
from perdure.text.globs import matches
from perdure.text.markdown import cut_at_section, imports, without_comments
from perdure.transcript.tokens import base_tokens

Scope = Literal["managed", "user", "project", "local"]
Why = Literal["start", "rule", "import", "nested"]

POLICY: Final = "(managed policy)"  # stands for the path of a policy text
MANAGED: Final = {  # INS-1: the system path, by the platform's name
    "darwin": "/Library/Application Support/ClaudeCode/CLAUDE.md",
    "win32": "C:/Program Files/ClaudeCode/CLAUDE.md",
    "linux": "/etc/claude-code/CLAUDE.md",
}
MISSING: Final = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionPlaces:
    """Where to look. All paths are absolute, with `/`.

    `root` is the project: the git root, or the working directory where there is none; nothing outside of it is read for
    the project unless it stands in `approved` (a file, or a folder with all below). `excludes` are globs on absolute
    paths. `managed` and `policy` can't be excluded, and `own_excludes`, the project's, leave out what is the project's.
    Of a project that isn't trusted (SEC-8) every file is text of the project, and the user's word in none.
    """

    cwd: str
    root: str
    home: str
    user: str | None = None  # the user's folder, such as ~/.claude
    managed: str | None = None
    policy: str = ""
    local: bool = True
    agents: bool = False  # AGENTS.md as well
    excludes: tuple[str, ...] = ()
    own_excludes: tuple[str, ...] = ()
    is_trusted: bool = True
    approved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as a reader gives it: its text, or why there is none; `real` is its path without links."""

    text: str | None = None
    why: str = MISSING
    real: str = ""


class InstructionReader(Protocol):
    """The files, as they are now. It raises nothing for what is wrong with one of them."""

    def real(self, path: str) -> str:
        """Where a path leads, links followed; empty where nothing is. Nothing is opened."""
        ...

    def read(self, path: str) -> FoundFile: ...

    def rules(self, folder: str, may: Callable[[str, str], bool]) -> tuple[str, ...]:
        """The paths of all `*.md` files below a folder, in a fixed order; each link is followed once (INS-2).

        `may` says of a folder, by its path and where that leads, whether to look into it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Instruction:
    """A file that loads. `text` is what is sent of it, `revision` tells two states of it apart (INS-6).

    `parent` imports it; `globs` and `trigger` say why a rule or a nested file loaded; `tokens` are by the base rule.
    `is_strange`: it came with a project that nobody said to trust.
    """

    path: str
    scope: Scope
    why: Why
    text: str
    revision: str
    tokens: int
    parent: str = ""
    globs: tuple[str, ...] = ()
    trigger: str = ""
    problems: tuple[str, ...] = ()
    is_strange: bool = False


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was named or found and doesn't load, and why. `code` is for programs."""

    path: str
    scope: Scope
    code: Literal["excluded", "not_approved", "unreadable", "same", "cycle", "depth", "waits", "missing", "many"]
    detail: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class LoadedInstructions:
    """What loads, in loading order (later is read last), and what doesn't."""

    files: tuple[Instruction, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()


def lexical(path: str, base: str, home: str) -> str:
    """An absolute path without `.` and `..`; `~` is the home directory, and relative paths start at `base`."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    elif not path.startswith("/") and path[1:3] != ":/":
        path = f"{base}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    lead = "" if parts and parts[0][1:] == ":" else "/"
    return lead + "/".join(parts)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or stands below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def folders_down(root: str, to: str) -> tuple[str, ...]:
    """The folders from `root` down to `to`, both included; empty when `to` isn't below."""
    if not is_below(to, root):
        return ()
    found = [root.rstrip("/") or "/"]
    for part in to[len(root.rstrip("/")) :].split("/"):
        if part:
            found.append(f"{found[-1].rstrip('/')}/{part}")
    return tuple(found)


HOPS: Final = 4  # INS-3
MAX_FILES: Final = 300  # SEC-6: of one search; more are a mistake, or an attack
REVISION_CHARS: Final = 12


def load_at_start(places: InstructionPlaces, reader: InstructionReader) -> LoadedInstructions:
    """What loads with a session, in loading order: managed, user, project from the root down, local beside each."""
    search = _InstructionSearch(places, reader)
    if places.policy.strip():
        search.take(_FileToLoad(POLICY, "managed"), FoundFile(places.policy, "", POLICY))
    if places.managed:
        search.add(_FileToLoad(places.managed, "managed"))
    if places.user:
        search.add(_FileToLoad(f"{places.user}/CLAUDE.md", "user"))
        search.rules(f"{places.user}/rules", "user", places.root)
    for folder in folders_down("/", places.cwd) or (places.cwd,):
        search.folder(folder, "start")
    return search.gathered()


def load_for_paths(places: InstructionPlaces, reader: InstructionReader, paths: Iterable[str]) -> LoadedInstructions:
    """What loads because tools touched these paths: nested files of their folders, and rules for them (INS-2, INS-4).

    Paths outside the project bring nothing.
    """
    search = _InstructionSearch(places, reader)
    absolute = dict.fromkeys(lexical(path, places.cwd, places.home) for path in paths)
    inside = tuple(path for path in absolute if is_below(path, places.root))
    above = set(folders_down("/", places.cwd))
    nested: dict[str, str] = {}
    for path in inside:
        for folder in folders_down(places.root, path):
            if folder not in above:
                nested.setdefault(folder, path)
    search.touched = inside
    if inside and places.user:
        search.rules(f"{places.user}/rules", "user", places.root)
    for folder in folders_down("/", places.cwd) if inside else ():
        search.rules(f"{folder}/.claude/rules", "project", folder)
    for folder in sorted(nested, key=lambda one: (one.count("/"), one)):
        search.folder(folder, "nested", nested[folder])
    return search.gathered()


def reload_files(places: InstructionPlaces, reader: InstructionReader, paths: Iterable[str]) -> LoadedInstructions:
    """These files as they are now, whatever made them load; a file that is gone is missing in the answer (INS-6)."""
    search = _InstructionSearch(places, reader, follows=False)
    for path in paths:
        is_rule = "/rules/" in path
        search.add(_FileToLoad(path, "project", why="nested", is_rule=is_rule, is_wanted=True))
    return search.gathered()


@dataclass(frozen=True, slots=True)
class _FileToLoad:
    """A file to look at, and what brought us to it. `chain` are the files that import it, from the outermost on."""

    path: str
    scope: Scope
    why: Why = "start"
    trigger: str = ""
    base: str = ""  # of a rule: what its globs are relative to
    is_rule: bool = False
    is_wanted: bool = False  # known already: a rule loads whatever its globs say
    chain: tuple[str, ...] = ()


@dataclass(slots=True)
class _InstructionSearch:
    places: InstructionPlaces
    reader: InstructionReader
    follows: bool = True  # imports
    touched: tuple[str, ...] = ()
    files: list[Instruction] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)  # real path, and digest of the content: the path that loaded

    def gathered(self) -> LoadedInstructions:
        once = {(one.path, one.code): one for one in reversed(self.skipped)}  # a folder can be met on two ways
        return LoadedInstructions(tuple(self.files), tuple(reversed(once.values())))

    def folder(self, folder: str, why: Why, trigger: str = "") -> None:
        """Everything that a folder of the project has."""
        inner = folder.rstrip("/")
        names = ["CLAUDE.md", *(["AGENTS.md"] if self.places.agents else []), ".claude/CLAUDE.md"]
        for name in names:
            self.add(_FileToLoad(f"{inner}/{name}", "project", why, trigger))
        self.rules(f"{inner}/.claude/rules", "project", folder)
        if self.places.local:
            self.add(_FileToLoad(f"{inner}/CLAUDE.local.md", "local", why, trigger))

    def rules(self, folder: str, scope: Scope, base: str) -> None:
        """The rules below a folder: those without paths, and those that a touched path matches (INS-2)."""

        def may(path: str, real: str) -> bool:
            asked = _FileToLoad(path, scope, "rule")
            if self._may_read(asked, real):
                return True
            self._skip(asked, "not_approved", f"{real} is outside the project")
            return False

        for path in self.reader.rules(folder, may):
            self.add(_FileToLoad(path, scope, "rule", base=base, is_rule=True))

    def add(self, asked: _FileToLoad) -> None:
        """Look at a file, and take it in with what it imports, if it may load."""
        if len(self.files) + len(self.skipped) >= MAX_FILES:
            if not self.skipped or self.skipped[-1].code != "many":
                self._skip(asked, "many", f"more than {MAX_FILES} files")
            return
        real = self.reader.real(asked.path)
        if not real:
            self._missing(asked)
        elif self._is_excluded(asked, asked.path):
            self._skip(asked, "excluded", "by the setting instructions_excludes")
        elif real in asked.chain:
            self._skip(asked, "cycle", "it is being imported already")
        elif not self._may_read(asked, real):  # before it is opened: a link may lead to what the project can't read
            self._skip(asked, "not_approved", f"{real} is outside the project")
        elif self._is_excluded(asked, real):
            self._skip(asked, "excluded", "by the setting instructions_excludes")
        else:
            self._read(asked, real)

    def _read(self, asked: _FileToLoad, real: str) -> None:
        found = self.reader.read(asked.path)
        if found.text is not None and found.real == real:
            self.take(asked, found)
        elif found.text is not None:
            self._skip(asked, "unreadable", "it became a link to elsewhere just now")
        elif found.why == MISSING:
            self._missing(asked)
        else:
            self._skip(asked, "unreadable", found.why)

    def _missing(self, asked: _FileToLoad) -> None:
        if asked.chain and ("/" in asked.path.removeprefix(self._base(asked)) or "." in asked.path):
            self._skip(asked, "missing", "no such file")

    def _is_excluded(self, asked: _FileToLoad, path: str) -> bool:
        places = self.places
        if asked.scope == "managed":
            return False
        return matches(path, places.excludes) or (is_below(path, places.root) and matches(path, places.own_excludes))

    def take(self, asked: _FileToLoad, found: FoundFile) -> None:
        """Enter a file that may load, then its imports."""
        front = front_matter(found.text or "") if asked.is_rule else FrontMatter(body=found.text or "")
        globs, problems = front.several("paths"), front.problems
        trigger = asked.trigger
        if globs and not asked.is_wanted:
            hit = next((path for path in self.touched if glob_applies(path, globs, asked.base)), None)
            if hit is None:
                self._skip(asked, "waits", ", ".join(globs))
                return
            trigger = hit
        text = without_comments(front.body).strip()
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if not text or self._is_known(asked, found.real, digest):
            return
        is_strange = asked.scope in ("project", "local") and not self.places.is_trusted
        one = Instruction(
            path=asked.path,
            scope="project" if is_strange else asked.scope,
            why=asked.why,
            text=text,
            revision=digest[:REVISION_CHARS],
            tokens=base_tokens(text),
            parent=asked.chain[-1] if asked.chain else "",
            globs=globs,
            trigger=trigger,
            problems=problems,
            is_strange=is_strange,
        )
        self.files.append(one)
        if self.follows:
            self._import(asked, found.real, text)

    def _is_known(self, asked: _FileToLoad, real: str, digest: str) -> bool:
        first = self.seen.get(real) or self.seen.get(digest)
        if first is None:
            self.seen[real] = self.seen[digest] = asked.path
            return False
        if first != asked.path:
            self._skip(asked, "same", f"the same as {first}")
        return True

    def _import(self, asked: _FileToLoad, real: str, text: str) -> None:
        """What the text imports, relative to the file that says so (INS-3)."""
        if real == POLICY:
            return
        chain = (*asked.chain, real)
        for name in imports(text):
            path = lexical(name, real.rsplit("/", 1)[0], self.places.home)
            target = _FileToLoad(path, asked.scope, "import", asked.trigger, chain=chain)
            if len(asked.chain) < HOPS:
                self.add(target)
            elif self.reader.real(path):
                self._skip(target, "depth", f"more than {HOPS} hops")

    def _base(self, asked: _FileToLoad) -> str:
        return asked.chain[-1].rsplit("/", 1)[0] + "/" if asked.chain else ""

    def _may_read(self, asked: _FileToLoad, real: str) -> bool:
        """Managed and user files are trusted with what they name; a project only with what is its own (INS-3)."""
        if asked.scope in ("managed", "user") or is_below(real, self.places.root):
            return True
        if any(is_below(real, folder) for folder in self.places.approved):
            return True
        return not asked.chain and real == asked.path  # above the project: the file itself, and no link to elsewhere

    def _skip(self, asked: _FileToLoad, code: str, detail: str) -> None:
        parent = asked.chain[-1] if asked.chain else ""
        self.skipped.append(SkippedFile(asked.path, asked.scope, code, detail, parent))  # type: ignore[arg-type]


def glob_applies(path: str, globs: tuple[str, ...], base: str) -> bool:
    """Whether a path is one that these globs are for; they are relative to `base`, unless they begin with a slash."""
    absolute = tuple(glob for glob in globs if glob.startswith("/"))
    if absolute and matches(path, absolute):
        return True
    inner = path[len(base.rstrip("/")) + 1 :] if is_below(path, base) else ""
    return bool(inner) and matches(inner, globs)


HEAD_TOKENS: Final = 60  # what stands around a file: its path, why it loads, the notice that it is cut
LEAST_TOKENS: Final = 80  # less of a file than this says nothing


@dataclass(frozen=True, slots=True)
class FittedFile:
    """A file as it is sent. `text` is all of it, or its beginning; empty when there was no room at all."""

    file: Instruction
    text: str

    @property
    def is_cut(self) -> bool:
        return len(self.text) < len(self.file.text)


def fit_files(
    files: Sequence[Instruction], limit_tokens: int, cost: Callable[[str], int] = base_tokens
) -> tuple[FittedFile, ...]:
    """The files in their order, with what there is room for of each.

    A policy goes first, since nobody may leave it out; then the file that is read last, and so on outwards.
    """
    left = limit_tokens
    order = sorted(range(len(files)), key=lambda at: (files[at].scope != "managed", -at))
    texts: dict[int, str] = {}
    for at in order:
        room = left - HEAD_TOKENS
        texts[at] = _fitting(files[at].text, room, cost)
        left -= min(HEAD_TOKENS, max(0, left)) + (cost(texts[at]) if texts[at] else 0)
    return tuple(FittedFile(file, texts[at]) for at, file in enumerate(files))


def _fitting(text: str, room: int, cost: Callable[[str], int]) -> str:
    """As much of a text as costs at most `room` tokens."""
    whole = cost(text)
    if whole <= room:
        return text
    fits = len(text) * max(0, room) // whole
    while room >= LEAST_TOKENS and fits > 0:
        part = cut_at_section(text, fits)
        if cost(part) <= room:
            return part
        fits = fits * 9 // 10
    return ""
