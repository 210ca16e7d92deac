"""Which names a file below a root may have: one spelling each, that no system reads as another place (SEC-2).

Pure, so that permits and tools can ask before anything is touched. What a name means on disk (a link, a pipe, a second
name of another file) only the disk knows: `adapters.files.rooted` asks it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from holdfast.errors import NameRefused

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
class Rules:
    """What a name may be. `is_portable`: only what every system can hold; `has_hidden`: parts may begin with a dot.

    `is_any`: whatever the disk holds, also what is no text: such names come from the disk, and nobody has to read them.
    """

    is_portable: bool = True
    has_hidden: bool = False
    is_any: bool = False
    part_bytes: int = 255  # what file systems hold
    name_bytes: int = 1_024
    parts: int = 20


MEMORY = Rules()
OWN = Rules(has_hidden=True)  # for our own state beside the files
PROJECT = Rules(is_portable=False, has_hidden=True)  # a project may hold what its system allows
DISK = Rules(is_any=True, name_bytes=65_536)  # for checkpoints: every file there is, by the bytes of its name (CKP-7)


def shown(name: str, *, limit: int = _SHOWN_CHARS) -> str:
    """A name for people: one line, of which nothing is hidden; at most so many characters of it."""
    text = name if len(name) <= limit else name[: limit - 1] + "…"
    return text if text and all(c.isprintable() for c in text) else ascii(text)


def parts_of(name: str, rules: Rules = MEMORY) -> tuple[str, ...]:
    """The parts of a relative name, or `NameRefused` with the reason."""
    why = refusal(name, rules)
    if why is not None:
        raise NameRefused(f"{shown(name)}: not a name that may be used: {why}")
    return tuple(name.split("/"))


def refusal(name: str, rules: Rules = MEMORY) -> str | None:
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


def _any_refusal(name: str, rules: Rules) -> str | None:
    """What even a disk doesn't hold under one name."""
    if "\0" in name or not {"", *_DOTS}.isdisjoint(name.split("/")):
        return "it is empty in part, goes through . or .., or holds a NUL"
    if len(name) > rules.name_bytes:
        return f"it has more than {rules.name_bytes:,} characters"
    return None


def _part_refusal(part: str, rules: Rules) -> str | None:
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
