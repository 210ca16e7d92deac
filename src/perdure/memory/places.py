"""Where memories stand, and which names a file below a root may have (MEM-1, MEM-13, SEC-2)."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, Literal, get_args

from perdure.errors import BadSetting, NameRefused
from perdure.memory.files import INDEX

MEMORY: Final = "memory"
TEAM: Final = "team"
AGENTS: Final = "agent-memory"
AGENTS_LOCAL: Final = "agent-memory-local"
FOLDER: Final = ".perdure"

Scope = Literal["user", "project", "local"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
Right = Literal["none", "read", "write"]

_ABSOLUTE = re.compile(r"/|[A-Za-z]:/")
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRoots:
    """What places follow from: the store's home, where it keeps a project's, the git root, the user's home.

    Paths are absolute, with slashes.
    """

    home: str
    kept: str  # where the store keeps those of the project
    root: str
    user_home: str
    directory: str | None = None  # the setting memory_directory
    folder: str = FOLDER  # the name of our folder in the root


def project_directory(grounds: MemoryRoots) -> str:
    """The directory of the project. `BadSetting` when the setting names no absolute path."""
    if not grounds.directory:
        return grounds.kept
    given = grounds.directory.replace("\\", "/").rstrip("/") or "/"
    if given == "~" or given.startswith("~/"):
        return grounds.user_home + given[1:]
    if not _ABSOLUTE.match(given):
        raise BadSetting(f"memory_directory = {given!r}: has to be absolute, or begin with ~/")
    return given


def user_directory(grounds: MemoryRoots) -> str:
    """The directory of the user, for all projects."""
    return f"{grounds.home}/{MEMORY}"


def agent_directory(grounds: MemoryRoots, agent: str, scope: Scope) -> str:
    """The directory of an agent. `BadSetting` for a name that could lead elsewhere."""
    if not _AGENT.fullmatch(agent) or ".." in agent:
        raise BadSetting(f"agent {agent[:80]!r}: letters, digits, dots, dashes and underscores only, at most 64")
    if scope == "user":
        return f"{grounds.home}/{AGENTS}/{agent}"
    return f"{grounds.root}/{grounds.folder}/{AGENTS if scope == 'project' else AGENTS_LOCAL}/{agent}"


def is_memory(file: str) -> bool:
    """Whether a path within a directory is that of a memory: a Markdown file that is no index and isn't hidden."""
    parts = file.split("/")
    return file.endswith(".md") and parts[-1] != INDEX and not any(part.startswith(".") for part in parts)


# --- who may --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRights:
    """What an agent may do with memories: of its own scopes, and of the project's directory (MEM-13)."""

    agent: str = ""  # nobody: the main agent
    scopes: tuple[Scope, ...] = ()
    own: Right = "write"
    project: Right = "read"
    user: Right = "read"


MAIN_RIGHTS = MemoryRights(own="none", project="write", user="write")


@dataclass(frozen=True, slots=True)
class AllowedDirectory:
    """A directory an agent may use, and how."""

    path: str
    right: Right
    what: Literal["project", "user", "agent"]


def allowed_directories(grounds: MemoryRoots, rights: MemoryRights) -> tuple[AllowedDirectory, ...]:
    """The directories an agent may read or write, its own first. What isn't in it is closed to it."""
    own = [AllowedDirectory(agent_directory(grounds, rights.agent, one), rights.own, "agent") for one in rights.scopes]
    common = [
        AllowedDirectory(project_directory(grounds), rights.project, "project"),
        AllowedDirectory(user_directory(grounds), rights.user, "user"),
    ]
    return tuple(one for one in (*own, *common) if one.right != "none")


_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³])(?:\..*)?", re.IGNORECASE)
_NOT_PORTABLE = frozenset('<>:"|?*')
_SLASHES = frozenset("/\\")
_LOOKS_LIKE_SLASH = frozenset("∕⁄⧸⟋⧵⟍╱╲ノ丿")
_DOTS = frozenset({".", ".."})
# Cc control, Cf format (bidi, zero-width, tags), Cs surrogates, Co private, Cn unassigned, Zl and Zp separators
_UNSEEN = {
    "Cc": "a control character",
    "Cf": "an invisible or direction-changing character",
    "Cs": "half of a surrogate pair",
    "Co": "a private-use character",
    "Cn": "an unassigned character",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # blank, though letters, marks or symbols
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRules:
    """What a name may be. `is_portable`: only what every system can hold; `has_hidden`: parts may begin with a dot.

    `is_any`: whatever the disk holds, also what is no text: such names come from the disk, and nobody has to read them.
    """

    is_portable: bool = True
    has_hidden: bool = False
    is_any: bool = False
    part_bytes: int = 255  # what file systems hold
    name_bytes: int = 1_024
    parts: int = 20


MEMORY_NAMES = NameRules()
OWN = NameRules(has_hidden=True)  # for our own state beside the files
PROJECT = NameRules(is_portable=False, has_hidden=True)  # a project may hold what its system allows
DISK = NameRules(
    is_any=True, name_bytes=65_536
)  # for checkpoints: every file there is, by the bytes of its name (CKP-7)


def name_for_people(name: str, *, limit: int = _SHOWN_CHARS) -> str:
    """A name for people: one line, of which nothing is hidden; at most so many characters of it."""
    text = name if len(name) <= limit else name[: limit - 1] + "…"
    return text if text and all(c.isprintable() for c in text) else ascii(text)


def parts_of(name: str, rules: NameRules = MEMORY_NAMES) -> tuple[str, ...]:
    """The parts of a relative name, or `NameRefused` with the reason."""
    why = refusal(name, rules)
    if why is not None:
        raise NameRefused(f"{name_for_people(name)}: not a name that may be used: {why}")
    return tuple(name.split("/"))


def refusal(name: str, rules: NameRules = MEMORY_NAMES) -> str | None:
    """Why a name may not be used; None when it may."""
    if not name:
        return "it is empty"
    if rules.is_any:
        return _any_refusal(name, rules)
    if name.startswith(("/", "~")):
        return "it has to be relative to the folder"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair"
    if size > rules.name_bytes:
        return f"it has {size:,} bytes, at most {rules.name_bytes:,} are allowed"
    parts = name.split("/")
    if len(parts) > rules.parts:
        return f"it is {len(parts)} folders deep, at most {rules.parts} are allowed"
    return next((why for part in parts if (why := _part_refusal(part, rules)) is not None), None)


def _any_refusal(name: str, rules: NameRules) -> str | None:
    """What even a disk doesn't hold under one name."""
    if "\0" in name or not {"", *_DOTS}.isdisjoint(name.split("/")):
        return "it is empty in part, goes through . or .., or holds a NUL"
    if len(name) > rules.name_bytes:
        return f"it has more than {rules.name_bytes:,} characters"
    return None


def _part_refusal(part: str, rules: NameRules) -> str | None:
    if part == "":
        return "it has an empty part (two slashes, or one at the end)"
    if part in _DOTS:
        return "it goes through . or .."
    if len(part.encode()) > rules.part_bytes:
        return f"a part of it is longer than {rules.part_bytes} bytes"
    unseen = next((_UNSEEN[kind] for c in part if (kind := unicodedata.category(c)) in _UNSEEN), None)
    if unseen is not None:
        return f"it holds {unseen}"
    if not rules.has_hidden and part.startswith("."):
        return "a part of it begins with a dot: hidden files aren't shown to anybody"
    return _portable_refusal(part) if rules.is_portable else None


def _portable_refusal(part: str) -> str | None:
    """Names that some system, some decoder or some eye takes for another."""
    if any(c != " " and (unicodedata.category(c) == "Zs" or c in _FILLERS) for c in part):
        return "it holds a blank that isn't a plain space"
    if "\\" in part or not _NOT_PORTABLE.isdisjoint(part):
        return 'it holds one of \\ < > : " | ? *'
    if not _LOOKS_LIKE_SLASH.isdisjoint(part):
        return "it holds a character that looks like a slash"
    if part[-1] in ". " or part[0] == " ":
        return "a part of it begins with a space, or ends with a space or a dot"
    if _ENCODED.search(part):
        return "it holds a percent-encoding: write the character itself"
    if _DEVICE.fullmatch(part):
        return "it is the name of a device on some systems"
    if unicodedata.normalize("NFC", part) != part:
        return "its letters aren't composed (NFC), so that it has two spellings"
    folded = unicodedata.normalize("NFKC", part)
    if folded != part and (folded in _DOTS or not (_SLASHES | _NOT_PORTABLE).isdisjoint(folded) or ".." in folded):
        return "it holds a character that some systems take for a dot, a slash or a colon"
    return None
