"""Which files a command line may name: in any of the ways in which programs take names, and rather too many (SEC-9).

A name may be a word, stand behind an option (`-T.env`), an `=`, `@` or `:` (`HEAD:.env`, `-d @.env`), in a piece of
code, be encoded as in addresses, relative to a folder that another word names (`-C ~`) or that `cd` went to, or be
filled in by the shell. Pure: where links lead is for the disk to say.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from holdfast.agent.commands import Plain, name_of, parsed, tells

MOST_NAMES = 3_000  # of one command; one with more isn't certain
_MOST_PLACES = 24  # folders that names may be relative to
_MOST_LETTERS = 8  # options of one letter in front of a name in one word
_MOST_VARIANTS = 64
_MOST_INNER = 40  # words of a command that may begin another
_MOST_DEPTH = 4
_SPLITS = re.compile(r"[\s=@:,;'\"()\[\]{}<>|&$`\\!]+")
_JOINS = re.compile(r"[=@:,]")
_WILD = frozenset("*?[")
_THROUGH_PROCESSES = re.compile(r"/+(?:proc/(?:self|thread-self|\d+|[^/]*[*?\[])(?:/|\Z)|dev/fd/)")
_LISTERS = frozenset("ls cd pushd echo pwd du df stat mkdir test [ tree touch".split())
_SEARCHES = frozenset("grep egrep fgrep rgrep rg ripgrep ag ack ugrep diff".split())
_TARS = frozenset("tar bsdtar gtar star".split())
_HERE = frozenset("find fd fdfind npm pnpm yarn cargo hg stow".split())  # at work where they are called
_LISTS = re.compile(r"--(?:files0?-from|arg-file|exclude-from|include-from)|--files-")  # files that name others
_CLASS = re.compile(r"\[[^/]*\[[:.=]")  # `[[:alpha:]]`, which only a shell reads as it is meant
_RECURSES: dict[str, re.Pattern[str] | None] = {  # that read or write what is below a folder; with which options
    **dict.fromkeys(("grep", "egrep", "fgrep"), re.compile(r"-\w*[rRd]|--(?:deref|rec|dir)")),
    **dict.fromkeys(("cp", "scp", "chmod", "chown", "rm"), re.compile(r"-\w*[rRa]|--(?:rec|arc)")),
    **dict.fromkeys(
        "rg ripgrep ag ack ugrep rgrep tar bsdtar gtar star rsync zip 7z 7za mv ln pax cpio rclone restic borg jar "
        "mksquashfs mkisofs genisoimage xorriso stow "
        "unison meld kdiff3 zipfile tarfile icdiff difft difftastic".split(),
        None,
    ),
    **dict.fromkeys(("fd", "fdfind"), re.compile(r"-[xX]|--exec")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "cargo"), re.compile(r"(?:pack|publish|package)\Z")),
    **dict.fromkeys(("svn", "hg"), re.compile(r"(?:add|addremove|import)\Z")),
    "find": re.compile(r"-exec|-execdir|-ok|-okdir|-delete"),
    **dict.fromkeys(("diff", "colordiff"), re.compile(r"-\w*r|--rec")),
    "git": re.compile(r"(?:add|grep|archive|clean)\Z|--no-in|--no-index"),
    **dict.fromkeys(("docker", "podman"), re.compile(r"-v|--volume|--mount|build\Z|cp\Z")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """A path that a command may mean: absolute, with its links and `..`; `is_wild`: a pattern of the shell's."""

    path: str
    is_wild: bool = False

    @property
    def lexical(self) -> str:
        """Without `..` and doubled slashes, as if there were no links."""
        return "/" + posixpath.normpath(self.path).lstrip("/")


@dataclass(frozen=True, slots=True)
class Names:
    """What a command names. `doubt`: why there may be more. `below` are folders that it goes through."""

    paths: tuple[Named, ...] = ()
    below: tuple[str, ...] = ()
    doubt: str = ""


@lru_cache(maxsize=64)
def names(command: str, cwd: str, home: str) -> Names:
    """The files that a command line may name.

    Args:
        command: the line, as bash gets it.
        cwd: the folder that it runs in.
        home: what `~` stands for.

    Returns:
        Paths, folders, and a doubt when something may be named in a way that can't be followed.
    """
    found: dict[Named, None] = {}
    below: dict[str, None] = {}
    doubt = ""
    for one, places in _placed(command, cwd, home):
        operands: list[str] = []
        for number, word in enumerate((*one.words, *one.assigned)):
            doubt = doubt or _doubt(word)
            if name_of(one.words) in _TARS and re.match(r"-\w*T", word):
                doubt = doubt or "a file says which files are meant"
            for piece in _pieces(word):
                is_wild = bool(_WILD & set(piece))
                doubt = doubt or _doubt(piece)
                for place in places:
                    path = _joined(place, piece, home)
                    if not is_wild:
                        found[Named(path)] = None
                    else:
                        is_shells = number in one.wild
                        found.update((Named(each, True), None) for each in _filled_in(path, is_shells))
                        if _THROUGH_PROCESSES.match(path):
                            doubt = doubt or f"{piece[:80]} leads through /proc"
                    if is_wild and number in one.wild and _CLASS.search(piece):
                        doubt = doubt or f"{piece[:80]} stands for more names than can be told"
                if number and not word.startswith("-"):
                    operands += (_joined(place, piece, home) for place in places)
        for some in _inner(one):
            if _recurses(some):
                below.update(dict.fromkeys((*operands, *(places if _goes_through_here(some) else ()))))
        if len(found) > MOST_NAMES or len(places) > _MOST_PLACES:
            return Names(tuple(found)[:MOST_NAMES], tuple(below), "it names too much to be certain of")
    for each in found:
        if _THROUGH_PROCESSES.match(each.lexical):
            doubt = doubt or "it names files by way of a process (/proc, /dev/fd)"
    return Names(tuple(found), tuple(dict.fromkeys("/" + posixpath.normpath(p).lstrip("/") for p in below)), doubt)


def _inner(one: Plain) -> Iterator[Plain]:
    """A command, and those that it may run for another: `nice tar …`, `busybox cp -r …`."""
    yield one
    if not tells(one.words):
        yield from (Plain(one.words[n:]) for n in range(1, min(len(one.words), _MOST_INNER)))


def only_lists(command: str) -> bool:
    """Whether each part of a command only lists names or goes to a folder."""
    plain = parsed(command)
    return plain is not None and all(name_of(one.words) in _LISTERS for one in plain)


def _placed(command: str, cwd: str, home: str) -> Iterator[tuple[Plain, Sequence[str]]]:
    """The plain commands, each with the folders that its names may be relative to."""
    plain = parsed(command)
    if plain is None:
        words = tuple(re.split(r"[\s;&|<>(){}$`=]+", re.sub(r"[\\'\"]", "", command)))
        wild = frozenset(n for n, word in enumerate(words) if _WILD & set(word))
        plain = (Plain(words, wild=wild),)
    yield from _walked(plain, [cwd], home, _MOST_DEPTH)


def _walked(plain: Sequence[Plain], been: list[str], home: str, depth: int) -> Iterator[tuple[Plain, Sequence[str]]]:
    """Each command with its places; `been` are the folders that the shell has gone to, and grows."""
    for one in plain:
        places = list(been)
        for before, word in zip(one.words, one.words[1:], strict=False):
            value = word.partition("=")[2] if word.startswith("-") else word if before.startswith("-") else ""
            attached = word[2:] if re.match(r"-[A-Za-z][/~.]", word) else ""
            places += (_joined(been[0], folder, home) for folder in (value, attached) if folder and folder != ".")
        yield one, tuple(dict.fromkeys(places))
        for n, word in enumerate(one.words):
            if name_of((word,)) in ("cd", "pushd") and (n == 0 or not tells(one.words)):
                to = next((word for word in one.words[n + 1 :] if not word.startswith("-")), "~")
                been += [_joined(place, to, home) for place in been[:_MOST_PLACES]]
        if depth and not tells(one.words):
            texts = [" ".join(one.words[1:])] if name_of(one.words) == "eval" else one.words[1:]
            for text in texts:
                if re.search(r"\s", text) and (inner := parsed(text)) is not None:
                    yield from _walked(inner, been, home, depth - 1)


def _recurses(one: Plain) -> bool:
    name = name_of(one.words)
    if one.words[:2] == ("git", "stash"):
        return any(re.match(r"-\w*[ua]|--(?:all|inc)", word) for word in one.words[2:])
    if name not in _RECURSES:
        return False
    options = _RECURSES[name]
    return options is None or any(options.match(word) for word in one.words[1:])


def _goes_through_here(one: Plain) -> bool:
    """Whether a program that goes through folders may take the current one, since none is named."""
    name, rest = name_of(one.words), one.words[1:]
    if name == "git":
        return len(rest) < 2 or rest[0] != "add" or any(re.match(r"-\w*[Au]|--all|--update", word) for word in rest[1:])
    if name in _HERE:
        return True
    if name not in _SEARCHES:
        return False
    pairs = zip(one.words, rest, strict=False)
    named = [w for before, w in pairs if w[:1] != "-" and not re.match(r"-\w*[ABCDEMTdefgjmrt]\Z|--[^=]+\Z", before)]
    return len(named) < 2  # the first is what is looked for


def _pieces(word: str) -> Iterator[str]:
    """The parts of a word that may be names."""
    pieces = {word, *_JOINS.split(word), *_SPLITS.split(word)}
    if "%" in word:
        pieces |= {unquote(word), *_SPLITS.split(unquote(word))}
    if re.match(r"-[^-]", word):
        pieces |= {word[n:] for n in range(2, min(len(word), 2 + _MOST_LETTERS))}
        pieces |= {part for n in range(2, min(len(word), 4)) for part in _SPLITS.split(word[n:])}
    for piece in tuple(pieces):
        if piece.startswith("//") and "/" in piece[2:]:  # the host of an address
            pieces.add("/" + piece[2:].split("/", 1)[1])
    pieces -= {"", "-", "--"}
    yield from sorted(pieces)


def _doubt(piece: str) -> str:
    if _LISTS.match(piece):
        return "a file says which files are meant"
    if re.match(r"~[^/]", piece):
        return f"{piece[:80]} is another user's home, or a folder of the shell's"
    if re.match(r"file:.*[\[{*?%]", piece, re.DOTALL):
        return "an address of a file that is filled in"
    return ""


def _joined(place: str, piece: str, home: str) -> str:
    if piece == "~" or piece.startswith("~/"):
        piece = home.rstrip("/") + piece[1:]
    return posixpath.join(place, piece)


def _filled_in(path: str, is_shells: bool) -> Iterator[str]:
    """Patterns of the paths; for the shell, a wildcard at the beginning of a name doesn't stand for a dot."""
    path = "/" + posixpath.normpath(path).lstrip("/")
    if not is_shells:
        yield path
        return
    variants = [""]
    for name in path.split("/")[1:]:
        begins = [name]
        if name.startswith("*"):
            begins = [name.lstrip("*") or "[!.]*", "[!.]" + name]
        elif name.startswith("?"):
            begins = ["[!.]" + name[1:]]
        if len(variants) > _MOST_VARIANTS:
            begins = [name]
        variants = [f"{before}/{begin}" for before in variants for begin in begins]
    yield from variants if len(variants) <= _MOST_VARIANTS else (path,)
