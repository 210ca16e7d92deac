"""The probe's own eyes: which facts a text names, and among which words they stand (QLT-1).

Written from the description in docs/fidelity.md alone; it shares nothing with what the engine extracts, so that an
engine cannot score by having the same blind spots as its judge. Everything works line by line, and lines are
remembered: the views of one recording repeat each other's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal, NamedTuple

Kind = Literal["path", "file", "name", "kebab", "flag", "url", "hash", "number"]


class Name(NamedTuple):
    """A fact as it is compared: its kind, and its normalised spelling."""

    kind: Kind
    key: str


class Sighting(NamedTuple):
    """A fact in a line of text, and where in that line it starts and ends."""

    name: Name
    start: int
    end: int


_LONGEST_CHARS: Final = 120  # what is longer is data, not a name
_DIGITS: Final = 3  # a number of fewer digits says nothing
_HASH_DIGITS: Final = 7
_KEBAB_CHARS: Final = 6  # a-z and p-3 are no names
_CACHED_LINES: Final = 400_000

_URL: Final = re.compile(r"https?://[^\s\"'`<>()\[\]{}|\\^]+")
_DRIVE: Final = re.compile(r"[A-Za-z]:$")
_ESCAPE: Final = re.compile(r"\\+[nrtbfv]?")
_BACKSLASHES: Final = re.compile(r"[\\/]+")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CHUNK: Final = re.compile(r"[\w./\\@~+-]+(?:,\d{3}(?!\d))*", re.ASCII)
_FLAG: Final = re.compile(r"--[A-Za-z][\w-]+", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)*|\d{4}-\d{2}-\d{2}|\d{1,3}(?:,\d{3})+")
_KEBAB: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+")
_HEX: Final = re.compile(r"[0-9a-f]{7,64}|[0-9A-F]{7,64}")
_HUMPS: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_FILE: Final = re.compile(
    r"[\w.@+-]*\w\.(?:astro|avsc|bash|bat|bazel|bzl|c|cc|cfg|cjs|clj|cmake|cmd|conf|cpp|cs|css|csv|cts|cue|dart|db|diff|"
    r"dockerfile|ejs|elm|env|erl|ex|exs|fish|fs|gif|gitignore|go|gradle|graphql|groovy|h|hbs|hpp|hs|html?|ico|ini|ipynb|"
    r"java|jl|jpe?g|js|json|json5|jsonc|jsonl|jsx|kt|kts|less|lock|log|lua|m|make|md|mdx|mjs|mk|ml|mod|mts|nix|nu|patch|"
    r"pdf|php|pl|png|po|properties|proto|ps1|psm1|py|pyi|pyx|r|rb|rs|rst|sass|scala|scss|sh|snap|sql|sqlite|sum|svelte|"
    r"svg|swift|tar|tex|tf|tmpl|toml|traj|ts|tsx|txt|vue|wasm|webp|xml|xsd|ya?ml|zig|zip|zsh)",
    re.ASCII,
)
_CALLS: Final = frozenset("console.log math.log t.log np.log torch.log logger.log self.db this.db".split())
_ROUND: Final = re.compile(r"[1-9]\d?0+|(?:19|20)\d\d|0+|0?\.\d0*")
_PLACED: Final = re.compile(r"[/~]|\.{1,2}/|[A-Za-z]:/")
_SIGNS: Final = re.compile(r"[._\-@\d]|[a-z][A-Z]")

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,}")
_STOP: Final = frozenset(
    "the and for with that this from are was were not but you your have has had can will would should could into then "
    "than when where which what who how why all any each its our out one two new now also only just let use used using "
    "get got see there here they them their been being does did done because about after before over under more most "
    "some such very same other make made need needs like line lines file files null true false none".split()
)


@lru_cache(maxsize=_CACHED_LINES)
def sightings(line: str) -> tuple[Sighting, ...]:
    """The facts in one line, in order. A path gives itself (its last two parts) and the file it ends with."""
    found: list[Sighting] = []
    if "://" in line:
        for match in _URL.finditer(line):
            url = match[0].rstrip(".,:;!?*_~/")
            found.append(Sighting(Name("url", url), match.start(), match.end()))
        line = _URL.sub(lambda match: " " * len(match[0]), line)
    for match in _CHUNK.finditer(line):
        chunk = match[0]
        if len(chunk) <= 2 or (chunk.isalpha() and (chunk.islower() or chunk.istitle())) or "REDACTED" in chunk:
            continue
        if "\\" in chunk and not _is_windows_path(line, match.start(), chunk):
            chunk = _ESCAPE.sub(" ", chunk)
        for name in (name for part in chunk.split() for name in _names(part)):
            if len(name.key) <= _LONGEST_CHARS:
                found.append(Sighting(name, match.start(), match.end()))
    return tuple(found)


def names_in(text: str) -> Iterator[Name]:
    """The facts in a text, as often as they stand there."""
    for line in text.splitlines():
        for sighting in sightings(line):
            yield sighting.name


def words_around(text: str, start: int, end: int, chars: int) -> frozenset[str]:
    """The telling words within so many characters before and after a place, without what stands there itself."""
    own = {word.lower() for word in _WORD.findall(text[start:end])}
    around = text[max(0, start - chars) : start] + " " + text[end : end + chars]
    return frozenset(word.lower() for word in _WORD.findall(around)) - _STOP - own


def _is_windows_path(line: str, start: int, chunk: str) -> bool:
    """Whether backslashes part the folders of a path, rather than escape what follows: D:\\a\\b, src\\main.go."""
    if _DRIVE.search(line, max(0, start - 2), start):
        return True
    parts = _BACKSLASHES.split(chunk)
    return bool(parts[0].strip(".") or chunk.startswith(".")) and _FILE.fullmatch(parts[-1]) is not None


def _names(chunk: str) -> Iterator[Name]:
    """The names in a run of characters without blanks."""
    if chunk.startswith("--"):
        flag = _FLAG.match(chunk)
        if flag is not None:
            yield Name("flag", flag[0].rstrip("-_"))
            return
    if "," in chunk and not _NUMBER.fullmatch(chunk):
        for part in chunk.split(","):
            yield from _names(part)
        return
    if "/" in chunk or "\\" in chunk:
        yield from _path_names(_BACKSLASHES.sub("/", chunk))
    else:
        yield from _plain_names(chunk.strip(".@~+-"))


def _path_names(path: str) -> Iterator[Name]:
    parts = [part for part in path.rstrip(".@~+-").split("/") if part.strip(".~")]
    if not parts or path == "/dev/null":  # which nobody has to remember
        return
    if len(parts) == 1:
        yield from _plain_names(parts[0].strip("@~+-"))
        return
    is_file = _FILE.fullmatch(parts[-1]) is not None
    has_letters = any(c.isalpha() for c in parts[-1]) and any(c.isalpha() for c in parts[-2])
    if has_letters and (is_file or _PLACED.match(path) or len(parts) > 2 or _SIGNS.search("/".join(parts[-2:]))):
        yield Name("path", "/".join(parts[-2:]))
        if is_file:
            yield Name("file", parts[-1])
        return
    for part in parts:
        yield from _plain_names(part)


def _plain_names(chunk: str) -> Iterator[Name]:
    """Names in what has no separator of a path."""
    if _NUMBER.fullmatch(chunk):
        number = chunk.replace(",", "")
        if sum(c.isdigit() for c in number) >= _DIGITS and not _ROUND.fullmatch(number):
            yield Name("number", number)
    elif "." in chunk:
        if _FILE.fullmatch(chunk) and chunk.lower() not in _CALLS:
            yield Name("file", chunk)
        else:
            for part in chunk.split("."):
                yield from _plain_names(part.strip("-+@~"))
    elif "-" in chunk:
        yield from _dashed(chunk)
    elif "@" in chunk or "+" in chunk or "~" in chunk:
        for part in re.split(r"[@+~]", chunk):
            yield from _plain_names(part)
    else:
        yield from _word_names(chunk)


def _dashed(chunk: str) -> Iterator[Name]:
    if _UUID.fullmatch(chunk):
        yield Name("hash", chunk[:_HASH_DIGITS].lower())
    elif _KEBAB.fullmatch(chunk):
        if len(chunk) >= _KEBAB_CHARS:
            yield Name("kebab", chunk)
    else:
        for part in chunk.split("-"):
            yield from _plain_names(part)


def _word_names(word: str) -> Iterator[Name]:
    """A single word: a hash, or a name in snake case, camel case or mixed with digits."""
    has_digit = any(c.isdigit() for c in word)
    if len(word) < 4 or not any(c.isalpha() for c in word):
        return
    if has_digit and _HEX.fullmatch(word):
        yield Name("hash", word[:_HASH_DIGITS].lower())
    elif "_" in word.strip("_") or has_digit or _HUMPS.search(word):
        yield Name("name", word)
