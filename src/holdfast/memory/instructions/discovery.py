"""Which instruction files load, in which order, and why (INS-1 to INS-5).

`at_start` is what loads with a session, `touched` what loads once a tool touches a path, `again` reads known files
once more. Nothing raises: what can't be read is told in `Gathered.skipped`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.memory.frontmatter import FrontMatter, front_matter
from holdfast.memory.instructions.markdown import imports, without_comments
from holdfast.memory.instructions.places import (
    MISSING,
    POLICY,
    Found,
    Gathered,
    Instruction,
    Places,
    Reader,
    Scope,
    Skipped,
    Why,
    folders_down,
    is_below,
    lexical,
)
from holdfast.transcript.globs import matches
from holdfast.transcript.tokens import base_tokens

HOPS: Final = 4  # INS-3
MAX_FILES: Final = 300  # SEC-6: of one search; more are a mistake, or an attack
REVISION_CHARS: Final = 12


def at_start(places: Places, reader: Reader) -> Gathered:
    """What loads with a session, in loading order: managed, user, project from the root down, local beside each."""
    search = _Search(places, reader)
    if places.policy.strip():
        search.take(_Asked(POLICY, "managed"), Found(places.policy, "", POLICY))
    if places.managed:
        search.add(_Asked(places.managed, "managed"))
    if places.user:
        search.add(_Asked(f"{places.user}/CLAUDE.md", "user"))
        search.rules(f"{places.user}/rules", "user", places.root)
    for folder in folders_down("/", places.cwd) or (places.cwd,):
        search.folder(folder, "start")
    return search.gathered()


def touched(places: Places, reader: Reader, paths: Iterable[str]) -> Gathered:
    """What loads because tools touched these paths: nested files of their folders, and rules for them (INS-2, INS-4).

    Paths outside the project bring nothing.
    """
    search = _Search(places, reader)
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


def again(places: Places, reader: Reader, paths: Iterable[str]) -> Gathered:
    """These files as they are now, whatever made them load; a file that is gone is missing in the answer (INS-6)."""
    search = _Search(places, reader, follows=False)
    for path in paths:
        is_rule = "/rules/" in path
        search.add(_Asked(path, "project", why="nested", is_rule=is_rule, is_wanted=True))
    return search.gathered()


@dataclass(frozen=True, slots=True)
class _Asked:
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
class _Search:
    places: Places
    reader: Reader
    follows: bool = True  # imports
    touched: tuple[str, ...] = ()
    files: list[Instruction] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)  # real path, and digest of the content: the path that loaded

    def gathered(self) -> Gathered:
        once = {(one.path, one.code): one for one in reversed(self.skipped)}  # a folder can be met on two ways
        return Gathered(tuple(self.files), tuple(reversed(once.values())))

    def folder(self, folder: str, why: Why, trigger: str = "") -> None:
        """Everything that a folder of the project has."""
        inner = folder.rstrip("/")
        names = ["CLAUDE.md", *(["AGENTS.md"] if self.places.agents else []), ".claude/CLAUDE.md"]
        for name in names:
            self.add(_Asked(f"{inner}/{name}", "project", why, trigger))
        self.rules(f"{inner}/.claude/rules", "project", folder)
        if self.places.local:
            self.add(_Asked(f"{inner}/CLAUDE.local.md", "local", why, trigger))

    def rules(self, folder: str, scope: Scope, base: str) -> None:
        """The rules below a folder: those without paths, and those that a touched path matches (INS-2)."""

        def may(path: str, real: str) -> bool:
            asked = _Asked(path, scope, "rule")
            if self._may_read(asked, real):
                return True
            self._skip(asked, "not_approved", f"{real} is outside the project")
            return False

        for path in self.reader.rules(folder, may):
            self.add(_Asked(path, scope, "rule", base=base, is_rule=True))

    def add(self, asked: _Asked) -> None:
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

    def _read(self, asked: _Asked, real: str) -> None:
        found = self.reader.read(asked.path)
        if found.text is not None and found.real == real:
            self.take(asked, found)
        elif found.text is not None:
            self._skip(asked, "unreadable", "it became a link to elsewhere just now")
        elif found.why == MISSING:
            self._missing(asked)
        else:
            self._skip(asked, "unreadable", found.why)

    def _missing(self, asked: _Asked) -> None:
        if asked.chain and ("/" in asked.path.removeprefix(self._base(asked)) or "." in asked.path):
            self._skip(asked, "missing", "no such file")

    def _is_excluded(self, asked: _Asked, path: str) -> bool:
        places = self.places
        if asked.scope == "managed":
            return False
        return matches(path, places.excludes) or (is_below(path, places.root) and matches(path, places.own_excludes))

    def take(self, asked: _Asked, found: Found) -> None:
        """Enter a file that may load, then its imports."""
        front = front_matter(found.text or "") if asked.is_rule else FrontMatter(body=found.text or "")
        globs, problems = front.several("paths"), front.problems
        trigger = asked.trigger
        if globs and not asked.is_wanted:
            hit = next((path for path in self.touched if _applies(path, globs, asked.base)), None)
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

    def _is_known(self, asked: _Asked, real: str, digest: str) -> bool:
        first = self.seen.get(real) or self.seen.get(digest)
        if first is None:
            self.seen[real] = self.seen[digest] = asked.path
            return False
        if first != asked.path:
            self._skip(asked, "same", f"the same as {first}")
        return True

    def _import(self, asked: _Asked, real: str, text: str) -> None:
        """What the text imports, relative to the file that says so (INS-3)."""
        if real == POLICY:
            return
        chain = (*asked.chain, real)
        for name in imports(text):
            path = lexical(name, real.rsplit("/", 1)[0], self.places.home)
            target = _Asked(path, asked.scope, "import", asked.trigger, chain=chain)
            if len(asked.chain) < HOPS:
                self.add(target)
            elif self.reader.real(path):
                self._skip(target, "depth", f"more than {HOPS} hops")

    def _base(self, asked: _Asked) -> str:
        return asked.chain[-1].rsplit("/", 1)[0] + "/" if asked.chain else ""

    def _may_read(self, asked: _Asked, real: str) -> bool:
        """Managed and user files are trusted with what they name; a project only with what is its own (INS-3)."""
        if asked.scope in ("managed", "user") or is_below(real, self.places.root):
            return True
        if any(is_below(real, folder) for folder in self.places.approved):
            return True
        return not asked.chain and real == asked.path  # above the project: the file itself, and no link to elsewhere

    def _skip(self, asked: _Asked, code: str, detail: str) -> None:
        parent = asked.chain[-1] if asked.chain else ""
        self.skipped.append(Skipped(asked.path, asked.scope, code, detail, parent))  # type: ignore[arg-type]


def _applies(path: str, globs: tuple[str, ...], base: str) -> bool:
    """Whether a touched path is one that a rule is for; globs are relative to the folder that has the rules."""
    absolute = tuple(glob for glob in globs if glob.startswith("/"))
    if absolute and matches(path, absolute):
        return True
    inner = path[len(base.rstrip("/")) + 1 :] if is_below(path, base) else ""
    return bool(inner) and matches(inner, globs)
