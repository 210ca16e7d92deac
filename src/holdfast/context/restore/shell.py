"""What a shell command certainly does to a file, where it is one plain command (RST-10).

Pipes, loops, variables and lists of commands may do anything; they are left alone. `cd DIR &&` in front is followed.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Literal

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
class Read:
    """The whole output is this part of the file; `is_numbered` when each line has its number in front."""

    path: str
    first: int = 1
    last: int | None = None
    is_numbered: bool = False


@dataclass(frozen=True, slots=True)
class Wrote:
    """The file has this text now."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Touched:
    """The file was changed, nobody knows how; or removed; or some output went into it."""

    path: str
    how: Literal["edited", "deleted", "output"] = "edited"


Deed = Read | Wrote | Touched


def deeds_of(command: str, cwd: str | None = None) -> list[Deed]:
    """What a command does to files, as far as it is certain."""
    where = cwd
    while (found := _CD.match(command)) is not None:
        where = join(where, found["dir"].strip("'\""))
        command = command[found.end() :]
    heredoc = _heredoc(command) if "<<" in command else None
    if heredoc is not None:
        path, text = heredoc
        return [Wrote(join(where, path), text)] if text is not None else [Touched(join(where, path))]
    read = _read(command.strip())
    if read is not None:
        return [Read(join(where, read.path), read.first, read.last, read.is_numbered)]
    return [Touched(join(where, deed.path), deed.how) for deed in _touched(command)]


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


def _read(command: str) -> Read | None:
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


def _plain(words: list[str]) -> Read | None:
    match words:
        case ["cat", path] if not path.startswith("-"):
            return Read(path)
        case ["cat", "-n", path] | ["nl", "-ba", path] | ["nl", "-b", "a", path]:
            return Read(path, is_numbered=True)
        case ["head", "-n", count, path] if count.isdigit():
            return Read(path, 1, int(count))
        case ["head", count, path] if count[:1] == "-" and count[1:].isdigit():
            return Read(path, 1, int(count[1:]))
        case ["sed", "-n", script, path]:
            found = _SED.match(script)
            if found is None:
                return None
            last = None if found[2] == "$" else int(found[2] or found[1])
            return Read(path, int(found[1]), last)
    return None


def _touched(command: str) -> list[Touched]:
    """Files that a command of any shape changes in plain sight: `sed -i … FILE`, `> FILE`, `rm FILE`."""
    head = command.split("<<", 1)[0][:_HEAD_CHARS]  # a here-document is text, not commands
    if not any(sign in head for sign in (">", "sed ", "rm ")):
        return []
    head, quoted = _put_away(head)
    found: list[Touched] = []
    for part in re.split(r"[;|\n()]+|&&", head):
        for redirect in _REDIRECT.finditer(part):
            found.append(Touched(_unquoted(redirect[1], quoted), "output"))
        words = [_unquoted(word, quoted) for word in _REDIRECT.sub("", part).split()]
        if _SED_IN_PLACE.match(part.lstrip()) and len(words) > 3 and not words[-1].startswith("-"):
            found.append(Touched(words[-1]))
        elif words[:1] == ["rm"] and all(word.startswith("-") and "r" not in word for word in words[1:-1]):
            found += [Touched(word, "deleted") for word in words[1:] if not word.startswith("-")]
    return [deed for deed in found if _is_path(deed.path)]


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of files that a command took away: `path` is a file, a folder or a pattern, or "" for all there are.

    `how`: deleted; moved, `to` another path; or undone, by version control, to what they were before, or gone.
    """

    path: str
    how: Literal["deleted", "moved", "undone"]
    to: str = ""
    by: str = ""


def fates_of(command: str, cwd: str | None = None) -> list[Fate]:
    """What a command of any shape plainly takes away, by rm and mv, and by git's commands for it."""
    head = command.split("<<", 1)[0][:_HEAD_CHARS]  # a here-document is text, not commands
    if not _TAKES_AWAY.search(head):
        return []
    head, quoted = _put_away(head)
    found: list[Fate] = []
    where = cwd
    for part in re.split(r"[;|&\n()]+", head):
        words = [_unquoted(word, quoted) for word in _REDIRECT.sub("", part).split()]
        while words and ("=" in words[0] or words[0] in ("sudo", "then", "do", "else", "command")):
            words.pop(0)
        if words[:1] == ["cd"] and len(words) == 2 and not set(words[1]) & _ODD:
            where = join(where, words[1])
        for one in _fates(words):
            path, to = (each and join(where, each) for each in (one.path, one.to))
            found.append(Fate(path, one.how, to, one.by))
    return found


def _fates(words: list[str]) -> list[Fate]:
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
            return [Fate(path, "deleted", by=by) for path in paths]
        case "mv" | "git mv" if len(paths) >= 2:
            into = len(paths) > 2 or rest[-1].endswith("/")
            end = [f"{paths[-1]}/{path.rpartition('/')[2]}" if into else paths[-1] for path in paths[:-1]]
            return [Fate(path, "moved", to, by) for path, to in zip(paths[:-1], end, strict=True)]
        case "git checkout" | "git restore" if not {"-b", "-B", "--orphan", "--staged", "-S"} & set(rest):
            after = rest[rest.index("--") + 1 :] if "--" in rest else paths if name == "git restore" else []
            if name == "git checkout" and "--" not in rest:
                after = [path for path in paths if path == "." or "." in path.rpartition("/")[2] or "/" in path]
            return [Fate("" if path in (".", ":/", "*") else path, "undone", by=by) for path in after]
        case "git reset" if "--hard" in rest:
            return [Fate("", "undone", by="git reset --hard")]
        case "git clean" if "f" in flags and "n" not in flags.replace("--no", ""):
            return [Fate("", "undone", by="git clean")]
        case "git stash" if not rest or rest[0] in ("push", "save", "-u", "-q", "-k", "--"):
            return [Fate("", "undone", by="git stash")]
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
