"""What a command says of version control, and whether it checks the work: a test run, a linter or a build (CMP-16)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MAYBE = "?"  # something was pushed, or checked out, and nothing says what
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?.*?\n\s*\1\b", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*")
_APART = re.compile(r"&&|\|\||[;|\n&(]")
_SEPARATOR = re.compile(r"(&&|\|\||[;|\n&])")
_REDIRECTED = re.compile(r"\d*[<>]&-?\d*|&>>?|(?<=\|)&")
_STOPS = re.compile(r"\bset -\w*e")
_GIVES_UP = re.compile(r"\s*(?:exit|return|false)\b")
_FOLDERS = re.compile(
    r"(?:\A|[;&|(]\s*)(?:cd|pushd)\s+(['\"]?)([^\s;&|)'\"]+)\1|"
    r"\b(?:g?make|ninja|go|cargo|pnpm|just|npm|yarn|git)\s(?:-\S+\s)*(?:-C|--prefix|--cwd|--dir|--directory)[ =]?(\S+)"
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
_INLINE = re.compile(r"(?:python[\d.]*|node|ruby|perl|php) +(?:-(?:\s|\Z)|-[ce]\b|<<|\Z)")
_LOGS = re.compile(r"\blogs?\b|journalctl|\.(?:log|out|output|err)\b|\brun view\b")
_TEST_LOGS = re.compile(r"\bgh run (?:view|watch)\b|\bglab ci (?:trace|view)\b")
_GIT = re.compile(r"git(?: -C \S+| -c \S+)* (\S+)(.*)", re.DOTALL)
_COMMITTED = re.compile(r"^\[(\S+(?: HEAD)?)(?: \(root-commit\))? ([0-9a-f]{7,40})\] (\S.*)$", re.MULTILINE)
_LOGGED = re.compile(r"^([0-9a-f]{7,40}) (\S.*)$", re.MULTILINE)
_PUSHED = re.compile(
    r"^ ?[ *+] +(?:\[new branch\]|[0-9a-f]{7,40}\.{2,3}[0-9a-f]{7,40}) +(\S+) +-> +(\S+)", re.MULTILINE
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
    is_pushed_first: bool = False
    branch: str | None = None
    pull: str = ""
    conflicts: tuple[str, ...] = ()
    dropped: int = 0  # so many of the last commits were taken back, or
    head: str = ""  # all behind this one
    is_settled: bool = False  # a merge with conflicts was given up
    is_unseen: bool = False  # something was committed, and nothing says what
    folder: str = ""  # where git was told to work


def folder_of(command: str) -> str:
    """Where a command goes first, as far as it says so; empty when it doesn't."""
    folder = ""
    for _, gone, given in _FOLDERS.findall(_HEREDOC.sub(" ", command)):
        where = (gone or given).rstrip("/")
        folder = where if where[:1] in ("/", "~") or not folder else f"{folder}/{where}"
    return folder


def may_be_same(one: str, other: str) -> bool:
    """Whether two folders may be the same one, as far as commands say where they go."""
    return not one or not other or one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


def programs_in(command: str) -> Iterator[str]:
    """The programs that a command line calls, each with its arguments; what is quoted is left out."""
    for part in _APART.split(_bare(command)):
        yield _program(part)


def _bare(command: str) -> str:
    return _COMMENT.sub(" ", _QUOTED.sub(" _ ", _HEREDOC.sub(" ", command)))


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
    parts = _SEPARATOR.split(
        _REDIRECTED.sub(" ", _bare(command)).replace("(", " ")
    )  # programs, with what parts them between
    passed_on = {"&&"}
    passed_on |= {"|"} if "pipefail" in command or "PIPESTATUS" in command else set()
    passed_on |= {";", "\n"} if _STOPS.search(command) else set()
    for index in range(0, len(parts), 2):
        if not _CHECK.match(_program(parts[index])):
            continue
        if index and parts[index - 1] == "||":
            return True
        for mark, program in zip(parts[index + 1 :: 2], parts[index + 2 :: 2], strict=True):
            is_end = not program.strip(" \t)") and mark != "&"
            if mark not in passed_on and not is_end and not (mark == "||" and _GIVES_UP.match(program)):
                return True
    return False


def runs_checks(command: str) -> bool:
    """Whether what a command prints may be what tests, a linter or a build say: one of its programs calls them, also
    in a shell or a container. What only shows text, such as `cat test.log`, tells of others.
    """
    lines = [command]
    if any(_WRAPS.match(program) for program in programs_in(command)):
        lines += [quoted[1:-1] for quoted in _QUOTED.findall(command)]
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
    """Whether a command says no by ending with 1: `grep` that finds nothing, `diff` of two that differ."""
    programs = [program for program in programs_in(command) if program and not program.startswith("cd ")]
    return bool(programs) and bool(_ANSWERS.match(programs[-1]))


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
        head=_HEAD_AT.findall(text)[-1] if "reset" in verbs and _HEAD_AT.search(text) else "",
        is_settled=ok and any("--abort" in rest or (verb == "reset" and "--hard" in rest) for verb, rest in deeds),
    )
    news = news._replace(is_unseen=ok and not news.commits and bool(set(verbs) & set(_COMMITS)))
    if "push" in verbs:
        found = _PUSHED.search(text)
        news = news._replace(
            pushed=found[1] if found else "" if not ok and _NOT_PUSHED.search(text) else MAYBE,
            is_pushed_first="commit" in verbs and verbs.index("push") < verbs.index("commit"),
        )
    return news._replace(folder=folder_of(command) or folder) if news != RepositoryNews() else None


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
