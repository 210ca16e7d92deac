"""What a command says of version control, and whether it checks the work: a test run, a linter or a build (CMP-16)."""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import NamedTuple

from perdure.transcript.tool_calls.shell import bare_line, unquoted

MAYBE = "?"  # something was pushed, or checked out, and nothing says what
_TEXT = re.compile(r"\0\d+\0")  # a quoted text
_APART = re.compile(r"&&|\|\||[;|\n&(]")
_SEPARATOR = re.compile(r"(&&|\|\||[;|\n&])")
_REDIRECTED = re.compile(r"(?<!\d)\d*[<>]&-?\d*|&>>?|(?<=\|)&")
_STOPS = re.compile(r"\bset -\w*e")
_GIVES_UP = re.compile(r"\s*(?:exit|return|false)\b")
_GONE = re.compile(r"(?:cd|pushd)\s+([^\s)]+)")
_GIVEN = re.compile(
    r"(?:g?make|ninja|go|cargo|pnpm|just|npm|yarn|git)\s(?:-\S+\s){0,6}"
    r"(?:-C|--prefix|--cwd|--dir|--directory)[ =]?(\S+)"
)
_IN_FRONT = re.compile(
    r"\s*(?:(?:\w+=\S*|time|sudo|env|rtk|npx|bunx|exec|nice|(?:uv|poetry|pipenv|rye|hatch) run|bundle exec|"
    r"python[\d.]* -m|timeout \S+)\s+)*"
)
_CHECK = re.compile(
    r"(?:\S*/)?(?:pytest|unittest|mypy|pyright|ruff check|flake8|pylint|tox|nox|go (?:test|vet|build)|golangci-lint|"
    r"cargo (?:test|nextest|check|clippy|build)|jest|vitest|mocha|eslint|tsc|rspec|phpunit|ctest|"
    r"(?:npm|yarn|pnpm|bun|deno|mise|just|task)(?: run| -s)* (?:test|lint|build|typecheck|type-check|check)\S*|"
    r"(?:mvn|gradlew?) .*(?:test|verify|build|check)|dotnet (?:test|build)|swift (?:test|build)|mix test|"
    r"make (?:test|check|lint|build)\S*|rake test|biome (?:check|lint)|prettier --check|runtests\S*)(?![\w-])"
)
_CHECK_HINT = re.compile(
    r"test|lint|check|vet|build|mypy|pyright|ruff|flake8|tox|nox|jest|mocha|tsc|rspec|biome|clippy"
)
_CHECK_WORD = re.compile(
    r"(?<![a-z])(?:pytest|vitest|jest|tests?|lint|check|build|mypy|ruff|tsc|eslint|clippy)(?![a-z])"
)
_WRAPS = re.compile(
    r"(?:\S*/)?(?:bash|sh|zsh|dash|fish|docker|podman|kubectl|ssh|su|nix-shell|eval|xargs|watch)(?![\w-])"
)
_SHOWS = re.compile(
    r"(?:\S*/)?(?:cat|bat|head|tail|less|more|[ef]?grep|rg|ag|ack|sed|g?awk|cut|sort|uniq|wc|tr|nl|jq|yq|column|echo|"
    r"printf|diff|cd|pushd|popd|journalctl|(?:docker|podman|kubectl)(?: compose)? logs|"
    r"git(?: -[Cc] \S+)* (?:log|show|diff|blame|grep|reflog|cat-file))(?![\w-])"
)
_RUNS_NONE = re.compile(
    r"(?:\S*/)?(?:tee|find|fd|ls|tree|stat|rm|cp|mv|mkdir|touch|chmod|test|true|sleep|set|export|curl|wget|git|gh|glab)"
    r"(?![\w-])"
)
_ANSWERS = re.compile(
    r"(?:\S*/)?(?:[ef]?grep|rg|ag|ack|diff|cmp|test|\[|pgrep|which|command -v|type|"
    r"git(?: -[Cc] \S+)* (?:grep|diff .*--(?:exit-code|quiet)|show-ref|merge-base|check-ignore))(?![\w-])"
)
_GOES_ON = re.compile(r"(?:cd|pushd|popd|echo|printf|set|export|true|sleep)(?![\w-])")
_INLINE = re.compile(r"(?:python[\d.]*|node|ruby|perl|php) +(?:-(?:\s|\Z)|-[ce]\b|<<|\Z)")
_LOGS = re.compile(r"\blogs?\b|journalctl|\.(?:log|out|output|err)\b|\brun view\b")
_TEST_LOGS = re.compile(r"\bgh run (?:view|watch)\b|\bglab ci (?:trace|view)\b")
_GIT = re.compile(r"git(?: -C \S+| -c \S+)* (\S+)(.*)", re.DOTALL)
_COMMITTED = re.compile(r"^\[(\S+(?: HEAD)?)(?: \(root-commit\))? ([0-9a-f]{7,40})\] (\S.*)$", re.MULTILINE)
_LOGGED = re.compile(r"^([0-9a-f]{7,40}) (\S.*)$", re.MULTILINE)
_PUSHED = re.compile(
    r"^ ?[ *+] +(?:\[new branch\]|[0-9a-f]{7,40}\.{2,3}([0-9a-f]{7,40})) +(\S+) +-> +(\S+)", re.MULTILINE
)
_NOT_PUSHED = re.compile(r"^(?:error|fatal): | ! \[(?:remote )?rejected\]", re.MULTILINE)
_HEAD_AT = re.compile(r"^HEAD is now at ([0-9a-f]{7,40})\b", re.MULTILINE)
_BEFORE_HEAD = re.compile(r"(?:HEAD|@)(?:~(\d*)|(\^+))\s*\Z")
_SWITCHED = re.compile(r"^(?:Switched to (?:a new )?branch|Already on) '([^']+)'$", re.MULTILINE)
_ONE_NAME = re.compile(r"[\w./+-]+\Z")
_CONFLICT = re.compile(r"^CONFLICT \([^)]*\): (?:Merge conflict in (\S+)|(\S+) deleted in)", re.MULTILINE)
_PULL = re.compile(r"^https://\S+/(?:pull|merge_requests)/\d+$", re.MULTILINE)
_COMMITS = ("commit", "merge", "cherry-pick", "revert", "rebase", "pull", "am")


class Commit(NamedTuple):
    """A commit as git told of it; `branch` is empty where it didn't."""

    sha: str
    subject: str
    branch: str


class RepositoryNews(NamedTuple):
    """What a command did to a repository, as far as its output says so.

    `pushed`: the branch, or that something was pushed. `branch`: what the work is on now, None if nothing says so.
    """

    commits: tuple[Commit, ...] = ()
    is_amended: bool = False
    pushed: str = ""
    pushed_to: str = ""  # the commit that the branch is at since
    is_pushed_first: bool = False
    branch: str | None = None
    pull: str = ""
    conflicts: tuple[str, ...] = ()
    dropped: int = 0  # so many of the last commits were taken back, or
    head: str = ""  # all behind this one
    is_dropped_last: bool = False  # after the commits were made
    is_settled: bool = False  # a merge with conflicts was given up
    is_unseen: bool = False  # something was committed, and nothing says what
    folder: str = ""  # where git was told to work


@lru_cache(maxsize=256)  # each error and test that is known is asked where it was
def folder_of(command: str, *, is_of_git: bool = False) -> str:
    """Where a command runs its tests, or git, or else goes, as far as it says so; empty when it doesn't."""
    folder = ""
    line, quoted = _read(command)
    for program in map(_program, _APART.split(line)):
        if gone := _GONE.match(program):
            folder = _joined(folder, unquoted(gone[1], quoted))
            continue
        is_git = bool(_GIT.match(program))
        if is_git == is_of_git and (given := _GIVEN.match(program)):
            return _joined(folder, unquoted(given[1], quoted))
        if is_git if is_of_git else _CHECK.match(program):
            return folder
    return folder


def _joined(folder: str, where: str) -> str:
    """A folder seen from another; one beside or above it, or the one before, could be any."""
    path = posixpath.normpath(where if where[:1] in ("/", "~") or not folder else f"{folder}/{where}")
    return "" if path in (".", "-") or path.startswith("..") else path


def may_be_same(one: str, other: str) -> bool:
    """Whether two folders may be the same one, as far as commands say where they go."""
    return not one or not other or one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


def within(inner: str, outer: str) -> str:
    """What leads from a folder to one within it; empty when it isn't."""
    return inner[len(outer) :].strip("/") if outer and inner.startswith(f"{outer.rstrip('/')}/") else ""


@lru_cache(maxsize=64)  # one command is asked many things
def _read(command: str) -> tuple[str, list[str]]:
    return bare_line(command.replace("\\\n", " "))


@lru_cache(maxsize=64)
def programs_in(command: str) -> tuple[str, ...]:
    """The programs that a command line calls, each with its arguments; what is quoted is left out."""
    return tuple(_program(part) for part in _APART.split(_bare(command)))


def _bare(command: str) -> str:
    return _TEXT.sub("_", _read(command)[0])


def _chain(command: str) -> tuple[list[str], list[str]]:
    """The programs of a command line, and what parts each from the next."""
    parts = _SEPARATOR.split(_REDIRECTED.sub(" ", _bare(command)).replace("(", " "))
    return [_program(part).rstrip(" \t)") for part in parts[::2]], parts[1::2]


def _passing_on(command: str) -> set[str]:
    """Behind which marks a program that failed ends the whole line, or has the line end so."""
    passed_on = {"&&"}
    passed_on |= {"|"} if "pipefail" in command or "PIPESTATUS" in command else set()
    return passed_on | ({";", "\n"} if _STOPS.search(command) else set())


def _program(part: str) -> str:
    return part[_IN_FRONT.match(part).end() :].strip()  # type: ignore[union-attr]


def checks(command: str) -> bool:
    """Whether a command runs tests, a linter or a build: a program of it does, not a word in it."""
    return bool(_CHECK_HINT.search(command)) and any(_CHECK.match(program) for program in programs_in(command))


def starts_in_background(command: str) -> bool:
    """Whether a shell goes on at once behind a command, whose end nobody sees: it ends with `&`."""
    return _bare(command).rstrip().endswith("&")


def hides_outcome(command: str) -> bool:
    """Whether how a command ended says nothing of the tests, linter or build that it ran: behind these stand a pipe,
    another command, or `||`, or they run in the background.
    """
    if not checks(command):
        return False
    programs, marks = _chain(command)
    passed_on = _passing_on(command)
    is_hidden = False  # by what stands behind
    for index in reversed(range(len(programs))):
        program, mark = programs[index], marks[index - 1] if index else ""
        if _CHECK.match(program) and (is_hidden or mark == "||"):
            return True
        is_end = not program and mark != "&"
        if mark and mark not in passed_on and not is_end and not (mark == "||" and _GIVES_UP.match(program)):
            is_hidden = True
    return False


def runs_checks(command: str) -> bool:
    """Whether what a command prints may be what tests, a linter or a build say: one of its programs calls them, also
    in a shell or a container. What only shows text, such as `cat test.log`, tells of others.
    """
    lines = [command]
    if any(_WRAPS.match(program) for program in programs_in(command)):
        lines += _read(command)[1]
    return any(
        _CHECK.match(program)
        or (_CHECK_WORD.search(program) and not (_SHOWS.match(program) or _RUNS_NONE.match(program)))
        for line in lines
        for program in programs_in(line)
    )


def shows_log(command: str, *, of_tests: bool = False) -> bool:
    """Whether what a command shows was written by a program as it ran; `of_tests`: by the tests of a server."""
    return bool((_TEST_LOGS if of_tests else _LOGS).search(command))


def only_shows(command: str) -> bool:
    """Whether a command only shows texts that are there."""
    programs = [program for program in programs_in(command) if program]
    return bool(programs) and all(_SHOWS.match(program) for program in programs)


def answers(command: str) -> bool:
    """Whether a command that ends with 1 says no, as `grep` does that finds nothing and `diff` of two that differ.

    Only where none of the programs before that one can have ended the line so.
    """
    programs, marks = _chain(command)
    while programs and not programs[-1]:
        programs.pop()
    if not programs or not _ANSWERS.match(programs[-1]):
        return False
    passed_on = _passing_on(command)
    mark = ""  # between a program and the next one that isn't empty
    for index in reversed(range(len(programs) - 1)):
        mark = marks[index] if mark in ("", "\n") else mark
        if not programs[index]:
            continue
        if mark not in passed_on and mark != "|":
            return ";" not in passed_on
        if mark in passed_on and not (_ANSWERS.match(programs[index]) or _GOES_ON.match(programs[index])):
            return False
        mark = ""
    return True


def runs_no_tests(command: str) -> bool:
    """Whether none of the programs of a command can have run tests: what it prints of tests is of others."""
    return all(
        any(kind.match(program) for kind in (_SHOWS, _RUNS_NONE, _INLINE))
        for program in programs_in(command)
        if program
    )


def repository_news(command: str, text: str, *, ok: bool, folder: str = "") -> RepositoryNews | None:
    """What a command, run in a folder, and what it printed say of version control; None when that is nothing."""
    if "git " not in command and "gh pr" not in command:
        return None
    deeds: list[tuple[str, str]] = []
    is_pull = False
    for program in programs_in(command):
        found = _GIT.match(program)
        if found and not (found[1] in ("push", "commit") and "--dry-run" in found[2]):
            deeds.append((found[1], found[2]))
        is_pull = is_pull or program.startswith(("gh pr create", "glab mr create"))
    verbs = [verb for verb, _ in deeds]
    news = RepositoryNews(
        commits=_commits(command, text, verbs),
        is_amended=ok and any(verb == "commit" and "--amend" in rest for verb, rest in deeds),
        branch=_branch(deeds, text, ok=ok),
        pull=found_url[0] if ok and is_pull and (found_url := _PULL.search(text)) else "",
        conflicts=tuple(dict.fromkeys(one or other for one, other in _CONFLICT.findall(text)))
        if set(verbs) & set(_COMMITS) | {"stash"} & set(verbs)
        else (),
        dropped=_taken_back(deeds) if ok else 0,
        head=_HEAD_AT.findall(text)[-1] if _moves_head(deeds) and _HEAD_AT.search(text) else "",
        is_dropped_last="commit" in verbs and verbs[::-1].index("commit") > [*verbs[::-1], "reset"].index("reset"),
        is_settled=ok and any("--abort" in rest or (verb == "reset" and "--hard" in rest) for verb, rest in deeds),
    )
    news = news._replace(is_unseen=ok and not news.commits and bool(set(verbs) & set(_COMMITS)))
    if "push" in verbs:
        found = _PUSHED.search(text)
        news = news._replace(
            pushed=found[2] if found else "" if not ok and _NOT_PUSHED.search(text) else MAYBE,
            pushed_to=(found[1] or "") if found else "",
            is_pushed_first="commit" in verbs and verbs.index("push") < verbs.index("commit"),
        )
    return news._replace(folder=folder_of(command, is_of_git=True) or folder) if news != RepositoryNews() else None


def _commits(command: str, text: str, verbs: list[str]) -> tuple[Commit, ...]:
    """Commits that git named as it made them, or in the log behind a quiet one, by the subject that was given."""
    if not set(verbs) & set(_COMMITS):
        return ()
    told = [Commit(sha, subject.strip(), branch) for branch, sha, subject in _COMMITTED.findall(text)]
    if not told and "commit" in verbs and "log" in verbs:
        logged = [Commit(sha, subject.strip(), "") for sha, subject in _LOGGED.findall(text) if subject in command]
        told = list(reversed(logged))
    return tuple(dict.fromkeys(told))


def _taken_back(deeds: list[tuple[str, str]]) -> int:
    """How many commits `git reset HEAD~2` took back."""
    found = [_BEFORE_HEAD.search(rest) for verb, rest in deeds if verb == "reset"]
    return sum(int(one[1] or 1) if one[1] is not None else len(one[2]) for one in found if one is not None)


def _moves_head(deeds: list[tuple[str, str]]) -> bool:
    """Whether a `git reset` goes to another commit: a bare `HEAD` takes no commit back."""
    resets = [[word for word in rest.split() if not word.startswith("-")] for verb, rest in deeds if verb == "reset"]
    return any(words and words[0] not in ("HEAD", "@") for words in resets)


def _branch(deeds: list[tuple[str, str]], text: str, *, ok: bool) -> str | None:
    verbs = {verb for verb, _ in deeds}
    switched: list[str] = _SWITCHED.findall(text)
    if switched:
        return switched[-1]
    if ok and deeds == [("branch", " --show-current")] and _ONE_NAME.match(text.strip()):
        return text.strip()
    if committed := _COMMITTED.findall(text):
        return str(committed[-1][0]) if verbs & set(_COMMITS) else None
    return MAYBE if verbs & {"checkout", "switch"} and ok else None
