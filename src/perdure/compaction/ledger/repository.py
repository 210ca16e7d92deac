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
    r"(?:\S*/)?(?:cat|bat|head|tail|less|more|[ef]?grep|rg|ag|ack|sed|g?awk|cut|sort|uniq|wc|tr|tee|nl|jq|yq|column|echo|"
    r"printf|find|fd|ls|tree|stat|diff|cd|pushd|popd|rm|cp|mv|mkdir|touch|chmod|test|curl|wget|git|gh|glab|journalctl|"
    r"(?:docker|podman|kubectl)(?: compose)? logs)(?![\w-])"
)
_GIT = re.compile(r"git(?: -C \S+| -c \S+)* (\S+)(.*)", re.DOTALL)
_COMMITTED = re.compile(r"^\[(\S+(?: HEAD)?)(?: \(root-commit\))? ([0-9a-f]{7,40})\] (\S.*)$", re.MULTILINE)
_LOGGED = re.compile(r"^([0-9a-f]{7,40}) (\S.*)$", re.MULTILINE)
_PUSHED = re.compile(
    r"^ ?[ *+] +(?:\[new branch\]|[0-9a-f]{7,40}\.{2,3}[0-9a-f]{7,40}) +(\S+) +-> +(\S+)", re.MULTILINE
)
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
    is_settled: bool = False  # a merge with conflicts was given up
    is_unseen: bool = False  # something was committed, and nothing says what


def programs_in(command: str) -> Iterator[str]:
    """The programs that a command line calls, each with its arguments; what is quoted is left out."""
    bare = _COMMENT.sub(" ", _QUOTED.sub(" _ ", _HEREDOC.sub(" ", command)))
    for part in _APART.split(bare):
        yield part[_IN_FRONT.match(part).end() :].strip()  # type: ignore[union-attr]


def checks(command: str) -> bool:
    """Whether a command runs tests, a linter or a build: a program of it does, not a word in it."""
    return bool(_CHECK_HINT.search(command)) and any(_CHECK.match(program) for program in programs_in(command))


def runs_checks(command: str) -> bool:
    """Whether what a command prints may be what tests, a linter or a build say: one of its programs calls them, also
    in a shell or a container. What only shows text, such as `cat test.log`, tells of others.
    """
    lines = [command]
    if any(_WRAPS.match(program) for program in programs_in(command)):
        lines += [quoted[1:-1] for quoted in _QUOTED.findall(command)]
    return any(
        _CHECK.match(program) or (_CHECK_WORD.search(program) and not _SHOWS.match(program))
        for line in lines
        for program in programs_in(line)
    )


def repository_news(command: str, text: str, *, ok: bool) -> RepositoryNews | None:
    """What a command and what it printed say of version control; None when that is nothing."""
    if "git " not in command and "gh pr" not in command:
        return None
    deeds: list[tuple[str, str]] = []
    is_pull = False
    for program in programs_in(command):
        found = _GIT.match(program)
        if found:
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
        is_settled=ok and any("--abort" in rest or (verb == "reset" and "--hard" in rest) for verb, rest in deeds),
    )
    news = news._replace(is_unseen=ok and not news.commits and bool(set(verbs) & set(_COMMITS)))
    if "push" in verbs:
        found = _PUSHED.search(text)
        news = news._replace(
            pushed=found[1] if found else MAYBE if ok else "",
            is_pushed_first="commit" in verbs and verbs.index("push") < verbs.index("commit"),
        )
    return news if news != RepositoryNews() else None


def _commits(command: str, text: str, verbs: list[str]) -> tuple[Commit, ...]:
    """Commits that git named as it made them, or in the log behind a quiet one, by the subject that was given."""
    if not set(verbs) & set(_COMMITS):
        return ()
    told = [Commit(sha, subject.strip(), branch) for branch, sha, subject in _COMMITTED.findall(text)]
    if not told and "commit" in verbs and "log" in verbs:
        logged = [Commit(sha, subject.strip(), "") for sha, subject in _LOGGED.findall(text) if subject in command]
        told = list(reversed(logged))
    return tuple(dict.fromkeys(told))


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
