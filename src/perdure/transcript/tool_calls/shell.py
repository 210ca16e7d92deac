"""What a command line does to files, as far as it says so in plain sight: the one reading of it (RST-10, CMP-5).

Nothing is run or filled in: a word with a variable, a pattern or a substitution names no file here. What a command
prints or writes counts as the text of a file only where the whole line is one plain command. `cd DIR` is followed.
What a command printed is told from the frame that the agent put around it.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

_CD = re.compile(r"^\s*cd\s+(?P<dir>'[^'\n]*'|\"[^\"\n$`]*\"|[^\s;&|$`'\"<>()*?]+)\s*(?:&&|;|\n)\s*")
_LONE_HEREDOC = re.compile(
    r"^\s*cat\s+(?:(?P<op1>>>?)\s*(?P<f1>\S+)\s+<<(?P<d1>-?)\s*(?P<q1>['\"]?)(?P<w1>\w+)(?P=q1)"
    r"|<<(?P<d2>-?)\s*(?P<q2>['\"]?)(?P<w2>\w+)(?P=q2)\s+(?P<op2>>>?)\s*(?P<f2>\S+))[ \t]*\n(?P<body>.*)\Z",
    re.DOTALL,
)
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
_SED_LINES = re.compile(r"^(\d+)(?:,(\d+|\$))?p$")
_REDIRECTED = re.compile(r"(?<![\w=-])\d*(?:<{1,3}-?|>>?\|?)[ \t]*[^\s<>]+")
_OUTPUT = re.compile(r"(?<![0-9&<>=-])>>?\|?[ \t]*([^\s&<>]+)")
# Quoted texts, put away while a line is cut into commands; and comments, whose apostrophes quote nothing. A text whose
# end is missing is one, too: a search for it from each of the quotes in it would take a second.
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]++|\\.)*+(?:\"|(?P<endless>\\?\Z))|(?<!\S)#[^\n]*", re.DOTALL)
_AWAY = re.compile(r"\0(\d+)\0")
_ASSIGNED = re.compile(r"\w+=")
_PARTS = re.compile(r"([;|&\n()]+)")
_CONDITION = re.compile(r"\s*(?:if|elif|then|else|while|until|for|case|do|function|select)\b")
_LEADS = frozenset("sudo command time nohup env then do else { !".split())
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_READERS = frozenset({"cat", "head", "tail", "less", "more", "nl", "bat", "wc"})
# A quoted word in which nothing is filled in, or a bare one without anything that a shell looks at.
_WORD = re.compile(r"('[^']*'|\"[^\"$`\\]*\"|[^\s;&|<>()$`*?{}!'\"\\]+)(?:\s+|\Z)")
_COMMAND_CHARS = 20_000  # of a command without its here-documents
_PLAIN_CHARS = 1_000  # a plain read of a file isn't longer
_SURE_PARTS = 400  # of a longer line nothing is certain: each of its commands would be weighed with all others
_NESTED = 3  # a shell in a shell in a shell; or so many folders, one after the other
_ODD = frozenset(";&|<>()$`*?{}!\n")
_NO_NAME = frozenset("[]=,\"'\0")


@dataclass(frozen=True, slots=True)
class ShellFile:
    """A file that a command names.

    `how`: read; edited, nobody knows how; written: `text` is all that it says now; output: of some command.
    Where `is_all`, the command prints nothing but lines `first` to `last` of it (None: to its end), with a number in
    front of each if `is_numbered`.
    """

    path: str
    how: Literal["read", "edited", "written", "output"]
    text: str | None = None
    is_all: bool = False
    first: int = 1
    last: int | None = None
    is_numbered: bool = False


@dataclass(frozen=True, slots=True)
class Removal:
    """Files that a command took away: `path` is a file, a folder or a pattern, or "" for all there are.

    `how`: deleted; moved, `to` another path; or undone, by version control, to what they were before, or gone.
    `is_sure`: that the line ended well says that this was done.
    """

    path: str
    how: Literal["deleted", "moved", "undone"]
    to: str = ""
    by: str = ""
    is_sure: bool = True


class ShellReading(NamedTuple):
    """All that a command line does; `written` is the text of its here-documents."""

    files: tuple[ShellFile, ...] = ()
    removals: tuple[Removal, ...] = ()
    written: str = ""


def read_shell(command: str, cwd: str | None = None) -> ShellReading:
    """What a command line does to files. Paths are joined to `cwd`, where that is known, and to what `cd` says."""
    bare, bodies = _without_heredocs(command)
    written = "\n".join(bodies)
    alone = _alone(command, cwd)
    if alone is not None:
        return ShellReading((alone,), (), written)
    files: list[ShellFile] = []
    removals: list[Removal] = []
    _read_parts(bare[:_COMMAND_CHARS], cwd, files, removals)
    return ShellReading(tuple(files), tuple(removals), written)


def bare_line(command: str) -> tuple[str, list[str]]:
    """A command line without here-documents and comments, with a mark in the place of each quoted text, which
    `unquoted` puts back; and these texts. Of a very long one only the beginning, and that something stands behind it.
    """
    line, quoted = _put_away(_without_heredocs(command)[0])
    return (line if len(line) <= _COMMAND_CHARS else f"{line[:_COMMAND_CHARS]}\n…"), quoted


def join(cwd: str | None, path: str) -> str:
    """A path as it would be opened from a folder; Windows paths stay as they are."""
    if "\\" in path or path.startswith("~") or cwd is None:
        return path
    return posixpath.normpath(posixpath.join(cwd, path))


def _without_heredocs(command: str) -> tuple[str, list[str]]:
    """A command without the texts of its here-documents, and these texts."""
    if "<<" not in command:
        return command, []
    lines = command.split("\n")
    ends: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        ends.setdefault(line.strip(" \t\r)\"'`;"), []).append(number)
    kept, bodies, at = list[str](), list[str](), 0
    while at < len(lines):
        line = lines[at]
        kept.append(line)
        at += 1
        for found in _HEREDOC.finditer(line):
            closing = ends.get(found[2], [])
            index = bisect_left(closing, at)
            if index < len(closing):
                bodies.append("\n".join(lines[at : closing[index]]))
                kept.append(lines[closing[index]].rpartition(found[2])[2])  # the end of what it stands in
                at = closing[index] + 1
    return "\n".join(kept), bodies


# --- one plain command, whose output or text is the file's


def _alone(command: str, cwd: str | None) -> ShellFile | None:
    where = cwd
    for _ in range(_NESTED):
        found = _CD.match(command)
        if found is not None:
            where = join(where, found["dir"].strip("'\""))
            command = command[found.end() :]
    file = _lone_heredoc(command) if "<<" in command else _lone_read(command.strip())
    return replace(file, path=join(where, file.path)) if file is not None else None


def _lone_heredoc(command: str) -> ShellFile | None:
    """What a lone `cat > FILE <<EOF` writes, unless a shell fills something in."""
    found = _LONE_HEREDOC.match(command)
    if found is None:
        return None
    side = "1" if found["f1"] else "2"
    path, word, quote = found[f"f{side}"].strip("'\""), found[f"w{side}"], found[f"q{side}"]
    if set(path) & _ODD:
        return None
    body, end, rest = ("\n" + found["body"] + "\n").partition(f"\n{word}\n")
    is_plain = bool(quote) or not set(body) & set("$`\\")
    if not end or rest.strip() or found[f"d{side}"] or found[f"op{side}"] == ">>" or not is_plain:
        return None
    return ShellFile(path, "written", text=body[1:] + "\n")


def _lone_read(command: str) -> ShellFile | None:
    """`cat FILE`, `nl -ba FILE`, `head -n N FILE`, `sed -n 'A,Bp' FILE`, and `nl -ba FILE | sed -n 'A,Bp'`."""
    if not command.startswith(("cat ", "nl ", "head ", "sed ")):
        return None
    first, bar, second = command.partition("|")
    words, others = _plain_words(first), _plain_words(second)
    if words is None or others is None:
        return None
    if bar:
        if words[:1] != ["nl"] or others[:2] != ["sed", "-n"] or len(others) != 3:
            return None
        read, span = _printed(words), _SED_LINES.match(others[2])
        return read if read is not None and span is not None else None
    return _printed(words)


def _plain_words(text: str) -> list[str] | None:
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


def _printed(words: list[str]) -> ShellFile | None:
    match words:
        case ["cat", path] if not path.startswith("-"):
            return ShellFile(path, "read", is_all=True)
        case ["cat", "-n", path] | ["nl", "-ba", path] | ["nl", "-b", "a", path]:
            return ShellFile(path, "read", is_all=True, is_numbered=True)
        case ["head", "-n", count, path] if count.isdigit():
            return ShellFile(path, "read", is_all=True, last=int(count))
        case ["head", count, path] if count[:1] == "-" and count[1:].isdigit():
            return ShellFile(path, "read", is_all=True, last=int(count[1:]))
        case ["sed", "-n", script, path]:
            found = _SED_LINES.match(script)
            if found is not None:
                last = None if found[2] == "$" else int(found[2] or found[1])
                return ShellFile(path, "read", is_all=True, first=int(found[1]), last=last)
    return None


# --- commands of any shape


def _read_parts(command: str, cwd: str | None, files: list[ShellFile], removals: list[Removal], depth: int = 0) -> None:
    line, quoted = _put_away(command)
    where = cwd
    parts = _PARTS.split(line)
    for index, part in enumerate(parts):
        if index % 2:
            continue
        targets = [unquoted(target, quoted) for target in _OUTPUT.findall(part)]
        words = [unquoted(word, quoted) for word in _REDIRECTED.sub(" ", part).split()]
        while words and (words[0] in _LEADS or _ASSIGNED.match(words[0])):
            words.pop(0)
        name = words[0].rpartition("/")[2] if words else ""
        if name == "cd" and len(words) == 2:
            where = None if set(words[1]) & _ODD or len(where or "") > _PLAIN_CHARS else join(where, words[1])
            continue
        if name in _SHELLS and depth < _NESTED and (script := _script(words)):
            _read_parts(_without_heredocs(script)[0], where, files, removals, depth + 1)
        if name == "tee":
            targets += [word for word in words[1:] if not word.startswith("-")]
        how: Literal["edited", "output"] = "edited" if "<<" in part and name in ("cat", "tee") else "output"
        files += [ShellFile(join(where, path), how) for path in targets if _is_path(path)]
        files += [ShellFile(join(where, path), "edited") for path in _edited_in_place(name, words) if _is_path(path)]
        if name in _READERS or (name == "sed" and "-n" in words and not _is_in_place(words)):
            named = [word for word in words[1:] if not word.startswith("-") and _is_path(word)]
            files += [ShellFile(join(where, path), "read") for path in named]
        for one in _removed(name, words[1:]):
            is_sure = _is_surely_done(parts, index, is_forced=name == "rm" and _is_forced(words))
            path, to = one.path and join(where, one.path), one.to and join(where, one.to)
            removals.append(replace(one, path=path, to=to, is_sure=is_sure))


def _is_surely_done(parts: list[str], index: int, *, is_forced: bool) -> bool:
    """Whether a command of a line that ended well was run, and ended well: `parts` are commands, and what parts them.

    One that no condition stands before has run. It ended well if all behind it hung on that, or when it is one that
    always does.
    """
    if len(parts) > _SURE_PARTS or any(_CONDITION.match(part) for part in parts[: index + 1 : 2]):
        return False
    before, behind = [mark.strip() for mark in parts[1:index:2]], [mark.strip() for mark in parts[index + 1 :: 2]]
    while behind and not "".join(parts[-2 * len(behind) :][1::2]).strip() and behind[-1] in ("", ";", ")"):
        behind.pop()
    if any(mark not in ("&&", "(", ")") for mark in behind):
        is_alone = not before or before[-1] in ("", ";")
        return is_forced and is_alone and behind[0] in ("", ";")
    return not any("|" in mark for mark in before)


def _is_forced(words: list[str]) -> bool:
    return any(word == "--force" or (word[:1] == "-" and word[:2] != "--" and "f" in word) for word in words[1:])


def _script(words: list[str]) -> str:
    """What `bash -c '…'` runs."""
    for flag, script in pairwise(words[1:]):
        if flag.startswith("-") and not flag.startswith("--") and flag.endswith("c"):
            return script
    return ""


def _is_in_place(words: list[str]) -> bool:
    flags = [word for word in words[1:] if word.startswith("-")]
    return any(flag.startswith("--in-place") or (flag[1:2] != "-" and "i" in flag) for flag in flags)


def _edited_in_place(name: str, words: list[str]) -> list[str]:
    """The files of `sed -i` and `perl -pi`: all words but the flags and the script."""
    if name not in ("sed", "perl") or not _is_in_place(words):
        return []
    files: list[str] = []
    has_script, is_script = False, False
    for word in words[1:]:
        if is_script:
            is_script, has_script = False, True
        elif word in ("--expression", "--file", "-e", "-f") or (
            name == "perl" and word[:1] == "-" and word[-1:] == "e"
        ):
            is_script = True
        elif word and not word.startswith("-"):
            if has_script:
                files.append(word)
            has_script = True
    return files


def _removed(name: str, rest: list[str]) -> list[Removal]:
    """What rm, mv and git's commands for it take away."""
    if name == "git":
        while len(rest) > 2 and rest[0] in ("-C", "-c"):
            rest = rest[2:]
        name, rest = (f"git {rest[0]}", rest[1:]) if rest else ("", [])
    paths = [word.rstrip("/") or word for word in rest if not word.startswith("-") and not set(word) & set("$`")]
    flags = "".join(word for word in rest if word.startswith("-"))
    match name:
        case "rm" | "unlink" | "rmdir" | "git rm" if "--cached" not in rest:
            return [Removal(path, "deleted", by=name) for path in paths]
        case "mv" | "git mv" if len(paths) >= 2:
            into = len(paths) > 2 or rest[-1].endswith("/")
            end = [f"{paths[-1]}/{path.rpartition('/')[2]}" if into else paths[-1] for path in paths[:-1]]
            return [Removal(path, "moved", to, name) for path, to in zip(paths[:-1], end, strict=True)]
        case "git checkout" | "git restore" if not {"-b", "-B", "--orphan", "--staged", "-S"} & set(rest):
            after = rest[rest.index("--") + 1 :] if "--" in rest else paths if name == "git restore" else []
            if name == "git checkout" and "--" not in rest:
                after = [path for path in paths if path == "." or "." in path.rpartition("/")[2] or "/" in path]
            return [Removal("" if path in (".", ":/", "*") else path, "undone", by=name) for path in after]
        case "git reset" if "--hard" in rest:
            return [Removal("", "undone", by="git reset --hard")]
        case "git clean" if "f" in flags and "n" not in flags.replace("--no", ""):
            return [Removal("", "undone", by="git clean")]
        case "git stash" if not rest or rest[0] in ("push", "save", "-u", "-q", "-k", "--"):
            return [Removal("", "undone", by="git stash")]
    return []


def _put_away(command: str) -> tuple[str, list[str]]:
    """A command with a mark in the place of each quoted text, and these texts: `unquoted` puts them back."""
    quoted: list[str] = []

    def away(found: re.Match[str]) -> str:
        if found[0].startswith("#"):
            return ""
        if found["endless"] is not None:
            return found[0]
        quoted.append(found[0][1:-1])
        return f"\0{len(quoted) - 1}\0"

    return _QUOTED.sub(away, command), quoted


def unquoted(word: str, quoted: list[str]) -> str:
    """A word with the quoted texts that `bare_line` took out of it."""
    return _AWAY.sub(lambda found: quoted[int(found[1])], word)


def _is_path(word: str) -> bool:
    """Whether a word is certainly a file: it has a folder or an ending, and nothing that a shell would fill in."""
    if set(word) & _ODD or set(word) & _NO_NAME or word.startswith("/dev/"):
        return False
    return bool(re.search(r"/[^/]+$|\.\w{1,8}$", word)) and not word[:1].isdigit()


# --- what came back

# Where common agents put the exit code: at the beginning of the result, or in its last line. What stands elsewhere is
# what the command printed: a log, a page of a manual, the end of another command.
_EXIT_HEAD = re.compile(
    r"\s*(?:Chunk ID: .*\n|Wall time: .*\n)*(?:<returncode>\s*|Process exited with code |Exit code:? |"
    r"Command failed with exit code |\{.{0,40}\"exit_code\": ?)(-?\d{1,3})\b",
    re.IGNORECASE,
)
_EXIT_JSON = re.compile(r"\"exit_code\": ?(-?\d{1,3})\b")
_EXIT_LINE = re.compile(
    r"^(?:\[.{0,60}exit code:? (-?\d{1,3})\.?\]?|\[?Process exited with code (-?\d{1,3})\]?|Exit Code: (-?\d{1,3}))$",
    re.IGNORECASE,
)
_LAST_LINES = 4  # behind the code OpenHands tells the folder and the interpreter, Gemini the signal
_CODEX = re.compile(r"\A(?:Chunk ID: .*\n)?(?:Exit code: -?\d+\n)?Wall time: .*\n")
_HEAD_CHARS = 400  # of Codex's
_MINI = re.compile(r"\A\s{0,9}<returncode>\s{0,9}-?\d+\s{0,9}</returncode>\s{0,9}<output>\n?")
_HEAD = re.compile(r"\AExit code:? \d+\n", re.IGNORECASE)


def exit_code(text: str) -> int | None:
    """The exit code that a result tells; None when it tells none."""
    head = _EXIT_HEAD.match(text)
    if head is None and text.startswith("{"):
        head = _EXIT_JSON.search(text, max(0, len(text) - 300))
    if head is not None:
        return int(head[1])
    for line in reversed(text[-600:].rstrip().split("\n")[-_LAST_LINES:]):
        found = _EXIT_LINE.match(line.strip())
        if found is not None:
            return int(found[1] or found[2] or found[3])
    return None


def without_head(text: str) -> str:
    """A result without what Codex writes above the output: the id of a chunk, times, counts of tokens."""
    if not _CODEX.match(text):
        return text
    head, mark, output = text.partition("\nOutput:\n")
    return output if mark and len(head) < _HEAD_CHARS else text


def whole_output(text: str) -> str | None:
    """What a command printed until it ended well; None when it failed, or hasn't ended."""
    code = exit_code(text)
    if code not in (0, None):
        return None
    mini, end = _MINI.match(text), text.rfind("</output>")
    if mini is not None and end >= mini.end():
        return text[mini.end() : end].removesuffix("\n")
    if _CODEX.match(text):
        return None if code is None else text.partition("\nOutput:\n")[2]
    head = _HEAD.match(text)
    return text[head.end() :] if head else text
