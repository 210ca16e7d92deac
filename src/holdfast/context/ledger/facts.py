"""Facts in a text: the names and values by which an agent goes on (CMP-5).

A fact is a path (its last two parts), a file name, an identifier (snake, camel, mixed with digits), a kebab word or
long flag, a URL, a hash, or a number of some length. Plain words are none: what they say is kept as evidence.
"""

from __future__ import annotations

import re
from functools import lru_cache

# A URL, or a run of characters that names are made of. ASCII on purpose: names in other scripts stand in the evidence.
_RUN = re.compile(r"https?://[^\s\"'<>`)\]}|\\,]+|\d{1,3}(?:,\d{3})+(?![\w.])|[A-Za-z0-9_.@~+/\\:$-]{3,160}")
_FILE = re.compile(r"[\w.+@-]*\w\.[A-Za-z][A-Za-z0-9]{0,7}\Z", re.ASCII)
_HASH = re.compile(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}\Z")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_KEBAB = re.compile(r"(?=.{3})[A-Za-z][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)+\Z")
_PLACE = re.compile(r"(?::\d+)+(?:-\d+)?:?\Z|#L\d+(?:-L?\d+)?\Z")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
_PARTS = re.compile(r"[^A-Za-z0-9_-]+")
_KNOWN_ENDS = frozenset(
    "py pyi go rs ts tsx js jsx mjs cjs json jsonl md mdx rst txt toml yaml yml ini cfg conf lock sum mod sql sh bash "
    "ps1 bat c h cc cpp hpp cs java kt kts swift rb php pl lua ex exs erl hs ml scala clj dart vue svelte html css "
    "scss less xml svg png jpg gif csv tsv proto graphql tf ipynb log diff patch env gradle plist tpl".split()
)
_LEAST_DIGITS = 3
_LONGEST_WORD = 80


def facts_in(text: str) -> dict[str, None]:
    """The facts of a text, each once, in the order in which they first stand there."""
    found: dict[str, None] = {}
    for run in _RUN.findall(text):
        for key in keys_of(run):
            found[key] = None
    return found


@lru_cache(maxsize=1 << 16)
def keys_of(run: str) -> tuple[str, ...]:
    """The facts that one run of name characters states."""
    if run.startswith("http"):
        return (run.rstrip(".:;/"),)
    if run.isalpha() and (run.islower() or run[1:].islower()):
        return ()
    if "," in run:
        return (run,)
    run = run.strip(".:-$+@") if not run.startswith("--") else run.rstrip(".:-")
    if "\\" in run and not _is_windows(run):
        return tuple(dict.fromkeys(key for part in run.split("\\") for key in keys_of(part)))
    if "/" in run or "\\" in run:
        return _path_keys(run)
    return tuple(dict.fromkeys(key for part in run.split(":") for key in _word_keys(part.strip(".$+@~"))))


def _is_windows(run: str) -> bool:
    return bool(_DRIVE.match(run)) or run.startswith(("..\\", ".\\")) or _ending(run) in _KNOWN_ENDS


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower()


def normal_path(path: str) -> str:
    """A path with forward slashes, without doubled ones; Windows paths keep their drive, in capitals."""
    path = path.strip().strip("\"'`").replace("\\", "/")
    while "//" in path:
        path = path.replace("//", "/")
    if len(path) > 1 and path[1] == ":" and path[0].isalpha():
        path = path[0].upper() + path[1:]
    return path.removeprefix("./")


def short_path(path: str) -> str:
    """The last two parts: what a path is known by."""
    return "/".join([part for part in normal_path(path).split("/") if part][-2:])


def _path_keys(run: str) -> tuple[str, ...]:
    run = _PLACE.sub("", run)
    parts = [part for part in normal_path(run).split("/") if part not in ("", ".", "..", "~")]
    parts = [part.rstrip(".") for part in parts]
    if not parts or not any(part[:1].isalpha() or part[:1] in "._@" for part in parts):
        return ()
    name = parts[-1]
    own = _word_keys(name)
    if len(parts) == 1:
        return own
    return tuple(dict.fromkeys((f"{parts[-2]}/{name}", *own)))


def _word_keys(word: str) -> tuple[str, ...]:
    """The facts of a run without separators of paths: a file name, a flag, a kebab word, identifiers, a value."""
    if len(word) < 3 or len(word) > _LONGEST_WORD:
        return ()
    if word.startswith("--"):
        return (word,) if len(word) > 4 else ()
    if "." in word:
        if word[0].isdigit() and not any(c.isalpha() for c in word):
            return (word,) if sum(c.isdigit() for c in word) >= _LEAST_DIGITS else ()
        if _FILE.match(word) and _ending(word) in _KNOWN_ENDS:
            return (word,)
        return tuple(dict.fromkeys(key for part in word.split(".") for key in _word_keys(part)))
    if "-" in word:
        return (word,) if _KEBAB.match(word) else _plain_keys(word)
    return (word,) if _is_name(word) else ()


def _plain_keys(word: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in _PARTS.split(word.replace("-", " ")) if _is_name(part)))


def _is_name(word: str) -> bool:
    """An identifier of a program, a hash or a number; not a plain word."""
    if len(word) < 3:
        return False
    if word.isdigit():
        return len(word) >= _LEAST_DIGITS
    if word.isalpha():
        return len(word) > 3 and bool(_CAMEL.search(word))
    if "_" in word.strip("_"):
        return True
    has_digit = any(c.isdigit() for c in word)
    return has_digit and (bool(_HASH.match(word)) or (len(word) > 2 and any(c.isalpha() for c in word)))


def kind_of(key: str) -> str:
    """What kind of fact a key is: url, path, file, flag, value or name."""
    if key.startswith("http"):
        return "url"
    if "/" in key:
        return "path"
    if key.startswith("--"):
        return "flag"
    if key[0].isdigit() or _HASH.match(key):
        return "value"
    if "." in key:
        return "file"
    return "name"
