"""What a shell command certainly runs. Pure, and unsure on purpose: what isn't plain is not understood.

Understood are plain commands of words, some of them quoted, with `&&`, `||`, `;`, `|` or line ends between, and the
redirections that write nowhere (`2>&1`, `>/dev/null`). Everything in which a shell fills something in, or starts
something else (`$…`, backticks, `<(…)`, `{…}`, `( … )`, `&`, here-documents, other redirections, backslashes, comments)
is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS = ("&&", "||", ";", "|", "\n")
_NOWHERE = re.compile(r"(?:[012]?>>?[ \t]*/dev/null|2>&1|&>[ \t]*/dev/null|1>&2)(?=[\s;|&]|\Z)")
_PLAIN = re.compile(r"[\w./:=@%+,~^*?\[\]-]+", re.ASCII)
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_KEYWORDS = frozenset(
    "if then else elif fi for while until do done case esac in function select time coproc { } [[ ]] !".split()
)
# Run what they are given, so that whom they run has to be looked for behind them.
_WRAPPERS = frozenset(
    "sudo doas env command builtin exec nohup nice ionice timeout time xargs find watch parallel setsid stdbuf chroot "
    "unshare flock strace busybox ssh script".split()
)
_SHELLS = frozenset("sh bash zsh dash ksh eval".split())
_DEPTH = 4
_LONGEST = 16  # words of a rule that are compared


@dataclass(frozen=True, slots=True)
class Plain:
    """One plain command: its words as the shell passes them on, and the variables set in front of it.

    `is_expanded`: an unquoted word begins with a wildcard, so a file's name could become an option.
    """

    words: tuple[str, ...]
    assigned: tuple[str, ...] = ()
    is_expanded: bool = False


def parsed(command: str) -> tuple[Plain, ...] | None:
    """The plain commands that a command line consists of; None when it isn't certain what it runs."""
    found: list[Plain] = []
    words: list[tuple[str, str]] = []
    at = 0
    while at < len(command):
        if command[at] in " \t":
            at += 1
            continue
        operator = next((o for o in _OPERATORS if command.startswith(o, at)), None)
        if operator is not None:
            if not _ends(words, found, operator, command[at + len(operator) : at + len(operator) + 1]):
                return None
            at += len(operator)
            continue
        nowhere = _NOWHERE.match(command, at)
        if nowhere is not None:
            at = nowhere.end()
            continue
        word = _word(command, at)
        if word is None:
            return None
        text, head, at = word
        words.append((text, head))
    if words and not _closed(words, found):
        return None
    return tuple(found) or None


def _ends(words: list[tuple[str, str]], found: list[Plain], operator: str, following: str) -> bool:
    """An operator ends a command; an empty one is fine only between lines."""
    if operator in ("|", ";") and following in ("&", ";", "|"):
        return False
    if not words:
        return operator == "\n"
    return _closed(words, found)


def _closed(words: list[tuple[str, str]], found: list[Plain]) -> bool:
    texts = [text for text, _ in words]
    first = next((n for n, (_, head) in enumerate(words) if not _ASSIGNED.match(head)), len(words))
    if first < len(words) and (texts[first] in _KEYWORDS or not texts[first] or set(texts[first]) & set("*?[]~")):
        return False
    expanded = any(head[:1] in ("*", "?", "[") for _, head in words[first:])
    found.append(Plain(tuple(texts[first:]), tuple(texts[:first]), expanded))
    words.clear()
    return True


def _word(command: str, at: int) -> tuple[str, str, int] | None:
    """The word that begins here: its text, the part of it before any quote, and where it ends."""
    text, start, head = "", at, ""
    is_quoted = False
    while at < len(command) and command[at] not in " \t\n;|&":
        sign = command[at]
        if sign == "'" or sign == '"':
            end = command.find(sign, at + 1)
            inner = command[at + 1 : end]
            if end < 0 or (sign == '"' and set(inner) & set("$`\\!")):
                return None
            text, is_quoted, at = text + inner, True, end + 1
            continue
        plain = _PLAIN.match(command, at)
        if plain is None or (at == start and sign == "#"):
            return None
        text, at = text + plain[0], plain.end()
        head = head if is_quoted else text
    return (text, head, at) if at > start else None  # a sign that begins no word


def runs(command: str, wanted: tuple[str, ...]) -> bool:
    """Whether a command line runs, or may run, a command that begins with these words. Rather too often than not."""
    return any(_begins(words, wanted[:_LONGEST]) for words in _all(command, _DEPTH))


def _all(command: str, depth: int) -> Iterator[tuple[str, ...]]:
    """The commands that may be run by a line, also by those that run others."""
    plain = parsed(command)
    if plain is None:
        loose = re.sub(r"[\\'\"]", "", command)
        for part in re.split(r"[;&|\n(){}`<>]|\$\(", loose):
            words = tuple(part.split())
            yield from (words[n : n + _LONGEST] for n in range(len(words)))
        return
    for one in plain:
        yield one.words
        name = one.words[0].rsplit("/", 1)[-1] if one.words else ""
        if name in _WRAPPERS:
            yield from (one.words[n : n + _LONGEST] for n in range(1, len(one.words)))
        if depth and (name in _SHELLS or name in _WRAPPERS):
            for word in one.words[1:]:
                yield from _all(word, depth - 1)


def _begins(words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    if not words or len(words) < len(wanted):
        return False
    return (words[0].rsplit("/", 1)[-1], *words[1 : len(wanted)]) == wanted or words[: len(wanted)] == wanted


# --- commands that only look -----------------------------------------------------------------------------------------

_HARMLESS_VARIABLES = frozenset({"LANG", "LC_ALL", "NO_COLOR", "FORCE_COLOR", "TZ", "CI", "TERM", "COLUMNS"})
_LOOKS: dict[tuple[str, ...], frozenset[str] | None] = {  # the options that are fine; None: any word is
    ("pwd",): frozenset(),
    ("true",): None,
    ("echo",): None,
    ("ls",): None,
    ("whoami",): frozenset(),
    ("date",): frozenset(),
    ("git", "status"): frozenset("-s -b -sb --short --branch --porcelain -uno --untracked-files=no".split()),
    ("git", "log"): frozenset("--oneline --stat -1 -2 -3 -5 -10 -20 --graph --all".split()),
    ("git", "branch"): frozenset("--show-current -a -v -vv --list".split()),
    ("git", "rev-parse"): frozenset("HEAD --abbrev-ref --show-toplevel".split()),
}
_NO_WORDS = frozenset({"branch", "rev-parse", "pwd", "whoami", "date"})  # a word that is no option would do something


def only_looks(command: str) -> bool:
    """Whether a command line certainly changes nothing and shows no content of files."""
    plain = parsed(command)
    return plain is not None and all(looks(one) for one in plain)


def looks(one: Plain) -> bool:
    """Whether one plain command certainly changes nothing and shows no content of files."""
    if not sets_harmless(one) or not one.words:
        return False
    for size in (2, 1):
        if one.words[:size] in _LOOKS and len(one.words) >= size:
            allowed, rest = _LOOKS[one.words[:size]], one.words[size:]
            if allowed is None:
                return True
            if one.is_expanded:
                return False
            is_named = one.words[size - 1] in _NO_WORDS
            return all(w in allowed or (not w.startswith("-") and not is_named) for w in rest)
    return False


def sets_harmless(one: Plain) -> bool:
    """Whether the variables set in front of a command can't change what it runs."""
    return all(word.split("=", 1)[0] in _HARMLESS_VARIABLES for word in one.assigned)
