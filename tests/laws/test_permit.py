"""permit: nothing in the input of a call makes it do more than the rules allow, for any spelling (LIB-1, SEC-3).

Whatever command line is allowed is run by the real bash, with every program a stub that writes down how it was called:
only what the rules name may stand there.
"""

from __future__ import annotations

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
