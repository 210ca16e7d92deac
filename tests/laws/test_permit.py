"""permit: nothing in the input of a call makes it do more than the rules allow, for any spelling (LIB-1, SEC-3).

Whatever command line is allowed is run by the real bash, with every program a stub that writes down how it was called:
only what the rules name may stand there.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from perdure.agent.commands import only_looks, parse_command, runs
from perdure.agent.permissions import (
    CallPath,
    Mode,
    PermissionPolicy,
    PermissionRule,
    PermissionRules,
    ToolEffects,
    decide,
)
from perdure.errors import BadSetting
from perdure.text.globs import matches_glob

pytestmark = pytest.mark.laws

RULES = PermissionRules.of(allow=["Bash(git status:*)", "Bash(make test)"])
PIECES = st.sampled_from(
    [
        "git status", "git", "status", "make test", "make", "test", "rm", "evil", "-x", "git push", "FOO=1", "PATH=.",
        "FOO='1'", "LANG=C", "./git", "'git'", '"status"', "gi\\t", "g''it", " ", "  ", "\t", "\n", ";", "&&", "||",
        "|", "&", "|&", ">", ">>", "<", "2>&1", ">/dev/null", "2> /dev/null", "&>/dev/null", "$(evil)", "`evil`",
        "${X:-evil}", "$X", "<(evil)", "{evil,}", "{", "}", "(", ")", "!", "#", "~", "*", "?", "[a]", "'", '"', "\\",
        "<<E\nevil\nE\n", "\r", "eval evil", "bash -c evil", "env evil", "if", "then", "fi", "time", "function f", "=",
        "a=", "a[0]=evil", "git(){ evil; }", "é", ";;", "coproc evil", "exec evil", "x.y", "a,b", "%1", "@", "+=",
    ]
)  # fmt: skip
COMMANDS = st.lists(PIECES, min_size=1, max_size=7).map("".join) | st.lists(PIECES, min_size=1, max_size=6).map(
    " ".join
)
FINE = st.sampled_from(["git status", "git status -s a", "make test", "LANG=C git status 'b'", "echo hello", "ls x"])


@st.composite
def nearly_fine(draw: st.DrawFn) -> str:
    """A command line that would be allowed, with something put into it somewhere."""
    command = draw(st.lists(FINE, min_size=1, max_size=2).map(" && ".join))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(command)))
        before, behind = draw(st.sampled_from(["", " "])), draw(st.sampled_from(["", " "]))
        command = command[:at] + before + draw(PIECES) + behind + command[at:]
    return command


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with programs that only write down their names and words."""
    folder = tmp_path_factory.mktemp("stubs")
    for name in ("git", "make", "rm", "evil", "status", "test", "env", "bash", "x.y", "ls"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\0" "{name} $*" >> "$CALLED"\n')
        program.chmod(0o755)
    yield folder


@given(nearly_fine())
@example("git status && make test")
@example("FOO='1' evil")
@example("git status &evil")
@example("git status && if evil")
@example("git status\nevil")
@example("git status & evil")
@settings(examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_allowed_runs_nothing_else(stubs: Path, command: str) -> None:
    policy = PermissionPolicy(rules=RULES, root="/p", home="/h")
    verdict = decide(ToolEffects("Bash", "command", command=command), policy)
    if verdict.decision != "allow":
        return
    called, empty = stubs / "called", stubs / "empty"
    called.write_text("")
    empty.mkdir(exist_ok=True)
    environment = {"PATH": str(stubs), "CALLED": str(called)}
    subprocess.run(
        ["/bin/bash", "-c", command], cwd=empty, env=environment, capture_output=True, timeout=10, check=False
    )
    for line in filter(None, called.read_text().split("\0")):
        is_named = line.rstrip() == "make test" or line.split()[:2] == ["git", "status"] or line.split()[:1] == ["ls"]
        assert is_named, (command, line)
    assert not any(empty.iterdir()), command


@pytest.mark.parametrize(
    "command",
    [
        "git status", "git status -sb && make test", "git status | make test", "LANG=C git status", "git status;",
        "git status 2>&1", "git status >/dev/null 2>&1", "git 'status' \"a b\"", "git status\nmake test\n", "ls && pwd",
        "echo hello; git status src/*.py",
    ],
)  # fmt: skip
def test_plain_commands_with_rules_are_allowed(command: str) -> None:
    assert decide(ToolEffects("Bash", "command", command=command), PermissionPolicy(rules=RULES)).decision == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git push", "git statusx", "make test all", "git status && rm -rf x", "git status $(rm x)", "git status `rm x`",
        "PATH=. git status", "LD_PRELOAD=x git status", "./git status", "git status > out", "git status & rm x",
        "git status\nrm x", "git status <(rm x)", "git status; rm x", "g\\it status", "env git status", "git status *",
        "time git status", "! git status", "{ git status; }", "(git status)", "git status #", "git status || rm",
        "if git status; then rm x; fi", "PATH=. ; git status", "alias git=rm\ngit status", "cd / && git status",
    ],
)  # fmt: skip
def test_everything_else_is_asked_for(command: str) -> None:
    for mode in ("default", "accept_edits"):
        verdict = decide(ToolEffects("Bash", "command", command=command), PermissionPolicy(rules=RULES, mode=mode))  # type: ignore[arg-type]
        assert verdict.decision == "ask", (command, verdict)


DENIED = [
    "rm x", "a && rm x", "FOO=1 rm x", "FOO='1' rm x", "/bin/rm x", "r''m x", "\\rm x", "sudo rm x", "xargs rm",
    "env A=1 rm x", "timeout 5 rm x", "bash -c 'rm x'", "sh -c \"cd a && rm x\"", "eval 'rm x'", "find . -exec rm {} +",
    "$(rm x)", "`rm x`", "echo a | rm", "if true; then rm x; fi", "(rm x)", "{ rm x; }", "! rm x", "a\nrm x",
    "bash -c \"sudo env rm x\"", "nice -n 3 rm x",
]  # fmt: skip


@pytest.mark.parametrize("command", DENIED)
@pytest.mark.parametrize("mode", ["default", "accept_edits", "plan", "bypass"])
def test_what_is_denied_is_never_allowed_in_any_spelling(command: str, mode: Mode) -> None:
    rules = PermissionRules.of(deny=["Bash(rm:*)"], allow=["Bash"])
    verdict = decide(ToolEffects("Bash", "command", command=command), PermissionPolicy(rules=rules, mode=mode))
    assert verdict.decision == "deny", (command, verdict)


@given(COMMANDS)
def test_what_can_not_be_read_is_not_let_through_where_some_is_forbidden(command: str) -> None:
    """Also not by `bypass`: a denial would mean nothing otherwise."""
    policy = PermissionPolicy(rules=PermissionRules.of(deny=["Bash(evil:*)"]), mode="bypass")
    verdict = decide(ToolEffects("Bash", "command", command=command), policy)
    if parse_command(command) is None:
        assert verdict.decision != "allow"
    if verdict.decision == "allow":
        assert runs(command, ("evil",)) == "no"


TOOLS = st.sampled_from(
    [("Bash", "command"), ("Read", "look"), ("Edit", "edit"), ("Write", "edit"), ("Task", "other"), ("Grep", "look")]
)
PATHS = st.sampled_from(
    ["/p/a.py", "/p/src/a.py", "/p/.git/config", "/etc/passwd", "/p/.env", "/p2/a", "/h/.ssh/id", "/p/src/sub/.env"]
)
PATTERNS = ["src/**", "*.py", ".env", "//etc/**", "~/.ssh/**", "//**", "src", "a.py", "**"]
RULE = st.sampled_from(
    ["Bash", "Read", "Edit", "Write", "Task", "Bash(git:*)", "Bash(git status)"]
    + [f"{tool}({pattern})" for tool in ("Read", "Edit", "Write") for pattern in PATTERNS]
)


def touch_of(tool: tuple[str, Any], path: str, command: str) -> ToolEffects:
    name, kind = tool
    where = CallPath(path, path, path.startswith("/p/"))
    return ToolEffects(
        name, kind, () if kind in ("command", "other") else (where,), command if kind == "command" else None
    )


@given(
    TOOLS, PATHS, COMMANDS, st.lists(RULE, max_size=3), st.lists(RULE, max_size=3), st.lists(RULE, max_size=3),
    st.sampled_from(["default", "accept_edits", "plan", "bypass"]), RULE,
)  # fmt: skip
def test_deny_beats_ask_beats_allow(
    tool: Any, path: str, command: str, allow: list[str], ask: list[str], deny: list[str], mode: Any, more: str
) -> None:
    """More that is denied or asked for never lets more through; more that is allowed never overrules either."""
    touch = touch_of(tool, path, command)

    def decided(a: list[str], b: list[str], c: list[str]) -> str:
        policy = PermissionPolicy(rules=PermissionRules.of(allow=a, ask=b, deny=c), mode=mode, root="/p", home="/h")
        return decide(touch, policy).decision

    order = {"deny": 0, "ask": 1, "allow": 2}
    base = decided(allow, ask, deny)
    assert order[decided(allow, ask, [*deny, more])] <= order[base]
    if base != "deny":
        assert order[decided(allow, [*ask, more], deny)] <= order[base]
    assert order[decided([*allow, more], ask, deny)] >= order[base] or base == "allow"
    if base == "deny":
        assert decided([*allow, more], ask, deny) == "deny"


@pytest.mark.parametrize(
    ("given_path", "real", "inside", "kind", "decision"),
    [
        ("a.py", "/p/a.py", True, "look", "allow"),
        ("a.py", "/p/a.py", True, "edit", "ask"),
        ("../x", "/x", False, "look", "ask"),
        ("link", "/etc/passwd", False, "look", "ask"),
        ("src/a.py", "/p/src/a.py", True, "edit", "allow"),
        ("src/../b.py", "/p/b.py", True, "edit", "ask"),
        ("src/link", "/etc/passwd", False, "edit", "ask"),
        ("secret/k", "/p/other/k", True, "look", "deny"),
        ("x", "/p/secret/k", True, "look", "deny"),
        ("a/.env", "/p/a/.env", True, "look", "deny"),
        ("tmp", "/tmp/x", False, "edit", "allow"),
    ],
)
def test_paths_are_judged_where_they_lead(given_path: str, real: str, inside: bool, kind: Any, decision: str) -> None:
    rules = PermissionRules.of(allow=["Edit(src/**)", "Edit(//tmp/**)"], deny=["Read(secret/**)", "Read(.env)"])
    tool = "Read" if kind == "look" else "Edit"
    touch = ToolEffects(tool, kind, (CallPath(given_path, real, inside),))
    assert decide(touch, PermissionPolicy(rules=rules, root="/p", home="/h")).decision == decision


@pytest.mark.parametrize("command", ["cat .env", "cat a/.env", "cat '.env'", 'head ./.e""nv', "cp .env x", "cat<.env"])
def test_commands_that_name_a_forbidden_file_are_denied(command: str) -> None:
    policy = PermissionPolicy(rules=PermissionRules.of(allow=["Bash"], deny=["Read(.env)"]), root="/p")
    assert decide(ToolEffects("Bash", "command", command=command), policy).decision == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "npm test --prefix /elsewhere", "npm test --prefix=/elsewhere", "npm test -C /x",
        "npm test --script-shell=/x", "npm --prefix /x test", "make test -C /x", "make test -f /x",
        "make test SHELL=/x", "make -C /x test", "git diff --output=/x", "git diff --ext-diff", "git log --textconv",
        "git diff -O/x", "find . -delete", "find . -execdir x '{}' ';'", "find . -fprint x", "rg --pre x y",
        "rg --hostname-bin x y", "sort -o x y", "sort -ox y", "sort --compress-program x y", "tree -o x",
        "file -m x y", "file -C -m x", "tar tf x --checkpoint-action=exec=x", "tar tf x -I y", "tar tf x --to-comm y",
        "date -s 1", "date --set=1", "man -P x y", "sed -i s/a/b/ x", "sed s/a/b/e x", "sed 's/a/b/w x' y",
        "awk 'BEGIN{system(1)}'", "uniq a b", "less -o x y", "curl -o x y", "curl -K x", "rsync -e x y z",
        "cargo test --config x", "cargo test --manifest-path=/x", "go test -exec x", "go test -toolexec=x",
        "pytest -p x", "pytest --rootdir=/x", "pytest -c x", "python3 -c x", "node --require x", "env -S x",
        "npm test && npm run x",
    ],
)  # fmt: skip
def test_a_rule_that_allows_means_no_more_than_it_names(command: str) -> None:
    """SEC-9: an option that leads elsewhere, writes or runs more is asked about."""
    programs = "find rg sort tree file date man sed awk uniq less curl rsync pytest python3 node env".split()
    names = ["npm test", "make test", "git diff", "git log", "tar tf", "cargo test", "go test", *programs]
    policy = PermissionPolicy(
        rules=PermissionRules.of(allow=[f"Bash({name}:*)" for name in names]), root="/p", home="/h"
    )
    verdict = decide(ToolEffects("Bash", "command", command=command), policy)
    assert verdict.decision == "ask", (command, verdict)


@pytest.mark.parametrize(
    "command",
    [
        "npm test", "npm test -- -t name", "make test -j4", "git diff --stat HEAD", "git log -p -3",
        "find . -name '*.py'", "rg -n foo src", "sort -n x", "tree src", "file x", "tar tf x.tgz", "sed -n 1,5p x",
        "sed s/a/b/g x", "cargo test --release", "go test ./...", "pytest -q -x tests", "python3 x.py", "node x.js",
        "uniq x", "curl -s http://localhost",
    ],
)  # fmt: skip
def test_and_no_less(command: str) -> None:
    test_names = "find rg sort tree file sed uniq curl pytest python3 node".split()
    names = ["npm test", "make test", "git diff", "git log", "tar tf", "cargo test", "go test", *test_names]
    policy = PermissionPolicy(
        rules=PermissionRules.of(allow=[f"Bash({name}:*)" for name in names]), root="/p", home="/h"
    )
    verdict = decide(ToolEffects("Bash", "command", command=command), policy)
    assert verdict.decision == "allow", (command, verdict)


@pytest.mark.parametrize(
    "path",
    [
        ".husky/pre-commit", ".githooks/pre-push", ".npmrc", "web/.npmrc", ".pre-commit-config.yaml", ".zshenv",
        ".bashrc", ".devcontainer/devcontainer.json", "sitecustomize.py", "lib/usercustomize.py", "x.pth",
        "CLAUDE.md", "sub/AGENTS.md", ".github/workflows/ci.yml", ".gitlab-ci.yml", ".vscode/tasks.json",
        ".idea/runConfigurations/x.xml", ".envrc", ".gitattributes", ".gitmodules", ".yarnrc.yml", ".pnpmfile.cjs",
        "pip.conf", ".cargo/config.toml", ".perdure/config.toml", ".claude/settings.json", ".codex/config.toml",
        ".mcp.json", ".git/hooks/pre-commit", ".GIT/config", ".Git/Hooks/x", ".HUSKY/x", "claude.md", "HEAD",
        "sub/HEAD", ".venv/bin/python", "node_modules/.bin/ls", ".config/git/config", "rust-toolchain.toml",
        "Jenkinsfile", ".husky", ".git",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["default", "accept_edits"])
def test_what_others_execute_is_asked_about(path: str, mode: Mode) -> None:
    """SEC-9: also where it is called so through a link, and where a rule allows edits or commands as such."""
    rules = PermissionRules.of(allow=["Edit", "Bash", "Bash(cp:*)"])
    policy = PermissionPolicy(rules=rules, mode=mode, root="/p", home="/h")
    for where in (CallPath(path, f"/p/{path}", True), CallPath(f"./sub/../{path}", "/p/elsewhere", True)):
        for tool in ("Write", "Edit", "MultiEdit"):
            assert decide(ToolEffects(tool, "edit", (where,)), policy).decision == "ask"
    for command in (f"cp x {path}", f"cp x ./{path}", f"tee {path}", f"echo x > {path}", f"cp x $HOME/../p/{path}"):
        assert decide(ToolEffects("Bash", "command", command=command), policy).decision == "ask", command
    linked = ToolEffects("Bash", "command", command="cp x link", leads=("/p/x", f"/p/{path}"))
    assert decide(linked, policy).decision == "ask"
    assert decide(ToolEffects("Bash", "command", command=f"cat {path}"), policy).decision == "allow"
    meant = PermissionPolicy(rules=PermissionRules.of(allow=[f"Edit({path})"]), mode=mode, root="/p", home="/h")
    assert decide(ToolEffects("Write", "edit", (CallPath(path, f"/p/{path}", True),)), meant).decision == "allow"
    bypass = PermissionPolicy(mode="bypass", root="/p", home="/h")
    assert decide(ToolEffects("Write", "edit", (CallPath(path, f"/p/{path}", True),)), bypass).decision == "allow"


def test_a_rule_for_much_is_not_one_for_what_others_execute() -> None:
    """SEC-9: `Edit(**)` doesn't mean hooks."""
    for pattern in ("**", "src/**", "*", "//p/**"):
        policy = PermissionPolicy(
            rules=PermissionRules.of(allow=[f"Edit({pattern})"]), mode="accept_edits", root="/p", home="/h"
        )
        for path in ("/p/src/.husky/pre-commit", "/p/src/CLAUDE.md"):
            assert decide(ToolEffects("Write", "edit", (CallPath(path, path, True),)), policy).decision == "ask"


BUILTINS = st.sampled_from(
    [
        "evil", "'evil'", "e''vil", "ev*", "[e]vil", "command", "builtin", "exec", "eval", "trap", "EXIT",
        "hash -p /bin/x y", "alias x=evil", "x", "y", "source ./evil", ".", "cd", "-p", "-a", "-c", "--", "coproc",
        "time", "!", "&&", "||", ";", "|", "&", "\n", "$(", ")", "`", '"', "'", "\\", "{", "}", "(", "X=evil", "$X",
        "printf -v X evil", "<<<", "<(", "if", "then", "fi", "2>&1", "/dev/stdin", "echo evil |", "read X",
        "set -- evil", "$1", "declare -n", "type", "enable", "function f", "f()", "~", "~+/evil", "./evil",
        "../stubs/evil", "bash -c", "bash", "env", "xargs", "git", "--", "-x", "shopt -s expand_aliases", "PATH=.",
        "export PATH=.",
    ]
)  # fmt: skip


@given(st.lists(BUILTINS, min_size=1, max_size=6).map(" ".join))
@example("trap 'evil' EXIT")
@example("hash -p ./evil x && x")
@example("command -p evil")
@example("exec -a x evil")
@settings(examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_denied_does_not_run_in_the_real_shell(denying: Path, command: str) -> None:
    """SEC-9: what `bypass` lets through beside a rule that denies doesn't run what is denied."""
    policy = PermissionPolicy(rules=PermissionRules.of(deny=["Bash(evil:*)"]), mode="bypass", root="/p", home="/h")
    if decide(ToolEffects("Bash", "command", command=command), policy).decision != "allow":
        return
    called = denying / "called"
    called.unlink(missing_ok=True)
    environment = {"PATH": f"{denying}:/usr/bin:/bin", "CALLED": str(called)}
    subprocess.run(
        ["/bin/bash", "-c", command], cwd=denying, env=environment, capture_output=True, timeout=20, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert not called.exists(), command


@pytest.fixture(scope="module")
def denying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program that is denied, which leaves a mark."""
    folder = tmp_path_factory.mktemp("stubs")
    program = folder / "evil"
    program.write_text('#!/bin/sh\necho x >> "$CALLED"\n')
    program.chmod(0o755)
    return folder


def test_what_people_run_by_name_is_ordinary_work() -> None:
    policy = PermissionPolicy(mode="accept_edits", root="/p", home="/h")
    for path in (
        "Makefile",
        "tests/conftest.py",
        "package.json",
        "setup.py",
        "build.rs",
        "src/hooks/useState.ts",
        "docs/head.md",
    ):
        assert decide(ToolEffects("Write", "edit", (CallPath(path, f"/p/{path}", True),)), policy).decision == "allow"


def test_what_decides_later_runs_is_asked_for_even_where_edits_are_accepted() -> None:
    policy = PermissionPolicy(mode="accept_edits", root="/p", home="/h")
    for path in ("/p/.git/hooks/pre-commit", "/p/.perdure/config.toml", "/p/sub/.claude/settings.json"):
        assert decide(ToolEffects("Write", "edit", (CallPath(path, path, True),)), policy).decision == "ask"
    plain = CallPath("/p/a", "/p/a", True)
    assert decide(ToolEffects("Write", "edit", (plain,)), policy).decision == "allow"
    anywhere = PermissionPolicy(rules=PermissionRules.of(allow=["Edit"]), root="/p")
    outside = CallPath("/x", "/x", False)
    assert decide(ToolEffects("Write", "edit", (outside,)), anywhere).decision == "ask"
    assert decide(ToolEffects("Write", "edit", (plain,)), anywhere).decision == "allow"


def test_plan_mode_changes_nothing_but_the_plan() -> None:
    policy = PermissionPolicy(
        rules=PermissionRules.of(allow=["Edit", "Bash", "Write"]), mode="plan", root="/p", own=("/p/plan.md",)
    )
    plain, plan = CallPath("/p/a", "/p/a", True), CallPath("/p/plan.md", "/p/plan.md", True)
    assert decide(ToolEffects("Write", "edit", (plain,)), policy).decision == "deny"
    assert decide(ToolEffects("Write", "edit", (plan,)), policy).decision == "allow"
    assert decide(ToolEffects("Bash", "command", command="touch a"), policy).decision == "deny"
    assert decide(ToolEffects("Bash", "command", command="git status -s"), policy).decision == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "find . -exec x",
        "find .",
        "rg x",
        "rg --pre x",
        "sort -o x",
        "sort x",
        "less x",
        "man x",
        "tar t",
        "awk 1",
        "sed p",
        "xargs x",
        "env",
        "env x",
        "date 0101",
        "tree -o x",
        "file -m x",
        "git -C . status",
        "git -c a=b status",
        "git --git-dir=x status",
        "git log -p",
        "git log --format=%G?",
        "git log --show-signature",
        "git status -v",
        "git status --ignored",
        "git branch -d x",
        "git branch -m x",
        "GIT_DIR=x git status",
        "GIT_EXTERNAL_DIFF=x git log",
        "PAGER=x git log",
        "git log --ext-diff",
        "git diff",
        "git show",
        "git remote -v",
        "pwd x",
        "whoami x",
        "git rev-parse --git-dir=x",
        "git log --output=x",
        "git diff",
        "git branch new",
        "git status --ext",
        "ls > x",
        "date -s 1",
        "echo $X",
        "cat a",
    ],
)
def test_only_few_commands_only_look(command: str) -> None:
    assert not only_looks(command)


@given(st.text(alphabet="ab*?[]-!{},/", max_size=12), st.text(alphabet="ab/-", max_size=12))
def test_patterns_never_raise_and_literal_ones_fit_themselves(pattern: str, path: str) -> None:
    matches_glob(pattern, path)
    if path and not path.startswith("/"):
        assert matches_glob(path, path) and matches_glob("**", path) and matches_glob("**/*", path)


def test_patterns_take_time_in_proportion() -> None:
    """SEC-6: no pattern backs up without end."""
    assert not matches_glob("*a" * 200 + "b", "a" * 4_000)
    assert not matches_glob("**/a/" * 100 + "b", "a/" * 500 + "c")


def test_rules_read_as_they_are_written() -> None:
    for text in ("Bash(git status:*)", "Read(//etc/**)", "Task", "mcp__server__tool"):
        assert str(PermissionRule.of(text)) == text
    with pytest.raises(BadSetting, match="too many patterns"):
        PermissionRule.of("Read(" + "{a,b}" * 20 + ")")
    for wrong in ("", "Bash(", "Bash()", "two words", "(x)"):
        with pytest.raises(BadSetting, match="permission rule"):
            PermissionRule.of(wrong)


# --- finding R6: what rules deny is in a history, too ----------------------------------------------------------------

SECRET = "hunter2-of-the-history"
VERBS = st.sampled_from(
    "log show diff status branch tag stash commit add reset checkout restore cat-file rev-parse rev-list ls-tree "
    "ls-files grep blame archive bundle format-patch reflog shortlog whatchanged config worktree clone for-each-ref "
    "notes "
    "fast-export diff-tree diff-index show-branch merge-base describe fsck".split()
)
GIT_WORDS = st.sampled_from(
    [
        "HEAD", "HEAD~1", "HEAD~1:.en", "main", "side", "@", "--", ".", "*", "-p", "-u", "--patch", "--pat", "-v",
        "-vv",
        "--verbose", "--verb", "--stat", "--name-only", "--oneline", "--all", "-1", "-U9", "-S", "-G", "--cc", "-c",
        "-m",
        "--root", "--stdout", "--format=%H", "--format=%(raw)", "--format=%(contents)", "--batch", "--batch-check",
        "--batch-all-objects", "-t", "-s", "-e", "--raw", "--output=x", "list", "show", "push", "pop", "apply",
        "create",
        "add", "../out", "x.bundle", "-L1,1:.env", "hunter", "--cached", "--hard", "-b", "new", "--dry-run", "-q", "-a",
        "--no-patch", "--quiet", "--summary", "--word-diff", "--lost-found", "--full-index", "--binary", "-z",
        "--check",
        "BLOB", "--ext-diff", "--textconv", "-r", "--pretty=raw", "-g", "--reverse", "--follow", "-n", "-l",
    ]
)  # fmt: skip
BEFORE = st.sampled_from(["", "-C .", "--no-pager", "-c log.showRoot=true", "--git-dir=.git", "-P", "-c alias.x=show"])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose history, index and stash hold what no file has any more."""
    place = tmp_path_factory.mktemp("kept") / "p"
    place.mkdir()

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=place, env=GIT, capture_output=True, check=True, text=True)
        return done.stdout

    git("init", "-q", "-b", "main")
    for text in ("a\n", "b\n"):
        (place / "a.py").write_text(text)
        (place / ".env").write_text(f"PASSWORD={SECRET}\n{text}")
        git("add", "-A")
        git("commit", "-qm", text.strip())
    git("branch", "side")
    (place / ".env").write_text(f"OTHER={SECRET}\n")
    git("stash")
    (place / "BLOB").write_text(git("rev-parse", "HEAD:.env").strip())
    (place / ".env").unlink()
    return place


GIT = {
    "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_PAGER": "cat",
    "GIT_EDITOR": "cat",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
}  # fmt: skip


@given(BEFORE, VERBS, st.lists(GIT_WORDS, max_size=4))
@example("", "log", ["-p"])
@example("", "show", [])
@example("", "show", ["--stat", "BLOB"])
@example("", "cat-file", ["--batch-all-objects", "--batch"])
@example("", "commit", ["--dry-run", "-v"])
@example("", "stash", ["list", "-p"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_git_that_is_allowed_prints_what_may_not_be_read(
    kept: Path, tmp_path_factory: pytest.TempPathFactory, before: str, verb: str, words: list[str]
) -> None:
    """Finding R6, SEC-9: by the real git, in bypass mode: neither in what it prints nor in another file."""
    blob = (kept / "BLOB").read_text()
    command = " ".join(filter(None, ["git", before, verb, *words])).replace("BLOB", blob)
    policy = PermissionPolicy(rules=PermissionRules.of(deny=["Read(.env)"]), mode="bypass", root="/p", home="/h")
    if decide(ToolEffects("Bash", "command", command=command), policy).decision != "allow":
        return
    place = tmp_path_factory.mktemp("run")
    shutil.copytree(kept, place / "p")
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=place / "p",
        env=GIT,
        capture_output=True,
        timeout=20,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert SECRET.encode() not in done.stdout + done.stderr, command
    told = [file for file in place.rglob("*") if file.is_file() and file.name != ".env" and ".git/" not in str(file)]
    assert not [file for file in told if SECRET.encode() in file.read_bytes()], command


PRINTS = [
    "git log -p", "git log --patch -1", "git log -u", "git log -L1,9:src/a.py", "git log -Sx -p", "git show",
    "git show HEAD", "git show HEAD~3:x", "git show --stat abc1234", "git format-patch --root HEAD --stdout",
    "git cat-file --batch-all-objects --batch", "git cat-file -p abc1234", "git cat-file blob abc1234",
    "git archive HEAD", "git archive HEAD | tar x -O", "git grep x", "git grep x HEAD~1", "git diff", "git diff HEAD~1",
    "git diff --cached", "git diff --stat -p", "git stash show -p", "git stash show", "git stash list -p",
    "git bundle create x --all", "git whatchanged -p", "git reflog -p", "git fast-export --all", "git difftool",
    "git range-diff a b c", "git merge-tree a b", "git worktree add ../x", "git clone . ../x", "git clone /p ../x",
    "git --work-tree=../x checkout main -- .", "git -c core.worktree=../x checkout main", "git -c alias.x=show x",
    "git config alias.x 'log -p'", "git x", "git fsck --lost-found", "git for-each-ref --format='%(raw)'",
    "git tag --format='%(raw)'", "git commit -v --dry-run", "git add -p", "git checkout -p", "git stash -p",
    "git unpack-file abc1234", "git checkout-index -a --prefix=../x/", "git-show HEAD", "/usr/lib/git-core/git-show",
    "git --no-pager show", "git -C . show", "git -C sub log -p", "cd sub && git show", "sh -c 'git show HEAD'",
    "timeout 5 git show", "nice git log -p", "git log --oneline && git show", "git notes show", "git annotate-x",
    "hg cat -r 1 x", "hg log -p", "hg diff", "jj show", "jj diff", "svn cat x", "svn diff", "fossil cat x",
]  # fmt: skip
SILENT = [
    "git status", "git status -sb", "git log --oneline -5", "git log --stat", "git log --format='%h %s' --since=x",
    "git log --graph --all --decorate", "git diff --stat", "git diff --name-only HEAD~1", "git show --stat HEAD~1",
    "git add -A", "git add src/a.py", "git commit -m 'say why'", "git commit -am x", "git commit --amend --no-edit",
    "git push -u origin main", "git pull --rebase", "git fetch --all --prune", "git checkout -b x", "git switch main",
    "git merge --no-ff x", "git rebase main", "git stash", "git stash pop", "git stash list", "git branch -vv",
    "git tag -a v1 -m x", "git reset --soft HEAD~1", "git restore --staged a.py", "git cherry-pick abc1234",
    "git revert --no-edit abc1234", "git clone https://example.com/x.git", "git rev-parse HEAD", "git ls-files",
    "git blame src/a.py", "git config user.name", "git config user.email a@b", "git remote -v",
    "git worktree list --porcelain",
    "git submodule update --init", "git --no-pager log --oneline", "git -C sub status", "git cat-file -t HEAD",
    "hg status", "jj status", "svn up", "grep -n show src/a.py", "echo git show", "cat src/git.py",
]  # fmt: skip


@pytest.mark.parametrize("rule", ["Read(.env)", "Read(secrets/**)", "Grep(*.pem)", "Read(//p/keys/**)"])
def test_what_prints_a_history_is_asked_about_where_reading_is_denied(rule: str) -> None:
    """Finding R6: in bypass mode, whatever allows commands; without such a rule nothing is asked for it."""
    asked = PermissionPolicy(rules=PermissionRules.of(deny=[rule], allow=["Bash"]), mode="bypass", root="/p", home="/h")
    free = PermissionPolicy(rules=PermissionRules.of(deny=["Edit(ci/**)"]), mode="bypass", root="/p", home="/h")
    for command in PRINTS:
        assert decide(ToolEffects("Bash", "command", command=command), asked).decision != "allow", command
    unlimited = [ToolEffects("Bash", "command", command=command, is_walked=True) for command in PRINTS]
    let = [effects.command for effects in unlimited if decide(effects, free).decision == "allow"]
    assert len(let) > len(PRINTS) * 0.8  # what is asked about besides can't be read for certain
    for command in SILENT:
        effects = ToolEffects("Bash", "command", command=command, is_walked=True)
        assert decide(effects, asked).decision == "allow", command


def test_a_rule_for_what_no_repository_holds_asks_nothing() -> None:
    """Finding R6: a key in the user's home isn't in the history of a project; where the home is one, it is."""
    for root, home, decision in (("/home/u/p", "/home/u", "allow"), ("/home/u", "/home/u", "ask")):
        policy = PermissionPolicy(
            rules=PermissionRules.of(deny=["Read(~/.ssh/**)"]), mode="bypass", root=root, home=home
        )
        assert decide(ToolEffects("Bash", "command", command="git log -p"), policy).decision == decision
    above = PermissionPolicy(
        rules=PermissionRules.of(deny=["Read(//data/mono/keys/**)"]), mode="bypass", root="/data/mono/app", home="/h"
    )
    assert decide(ToolEffects("Bash", "command", command="git show"), above).decision == "ask"
