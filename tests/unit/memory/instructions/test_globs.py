"""The one matcher of patterns: permission rules, searches, rules and excludes (INS-2, INS-5, LIB-1, SEC-6, SEC-9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.text.globs import MAX_PATTERNS, expand_braces, matches, matches_glob, may_overlap, problem

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.md", ["a.md", ".md"], ["a/b.md", "a.mdx"]),
        ("**/*.ts", ["a.ts", "a/b/c.ts"], ["a.tsx"]),
        ("src/**/*", ["src/a", "src/a/b.py"], ["src", "lib/src/a"]),
        ("src/**", ["src/a", "src/a/b"], ["srca"]),
        ("src/", ["src/a/b"], ["src"]),
        ("**/*.{ts,tsx}", ["a.ts", "x/a.tsx"], ["a.js"]),
        ("{src,lib}/**/*.{a,b{1,2}}", ["src/x.a", "lib/y/x.b2"], ["src/x.b"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("[ab].py", ["a.py"], ["c.py"]),
        ("[!ab].py", ["c.py"], ["a.py", "/.py"]),
        ("./a.py", ["a.py"], ["b.py"]),
        ("a[b.py", ["a[b.py"], ["ab.py"]),
        ("[]a].py", ["].py", "a.py"], ["b.py"]),
        ("src/**", ["src/a"], ["src"]),
        ("**", ["a", "a/b"], []),
        ("a/**/b", ["a/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("{a,{secrets,b}}/**", ["a/x", "secrets/x", "b/x/y"], ["c/x"]),
        ("{a{x}b,c}", ["a{x}b", "c"], ["axb"]),
        ("{a}", ["{a}"], ["a"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("\\.env", [".env"], ["xenv"]),
        ("\\{a,b}", ["{a,b}"], ["a", "b"]),
        ("{a.py", ["{a.py"], ["a.py"]),
        ("a.+$()|^", ["a.+$()|^"], ["aa"]),
        ("/abs/**/CLAUDE.md", ["/abs/CLAUDE.md", "/abs/x/CLAUDE.md"], ["/other/CLAUDE.md"]),
        ("x" * 3_000, [], ["x" * 3_000]),
    ],
)
def test_matches(glob: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches(path, [glob])] == []
    assert [path for path in no if matches(path, [glob])] == []


def test_braces_are_bounded() -> None:
    """SEC-6: over the bound a pattern is taken literally."""
    assert len(expand_braces("{a,b}" * 9)) == 512
    bomb = "{a,b}" * 40
    assert expand_braces(bomb) == (bomb,)
    assert len(expand_braces("{" + ",".join(map(str, range(5_000))) + "}")) <= MAX_PATTERNS


def test_patterns_made_to_be_slow_are_not() -> None:
    """SEC-6: linear in the path, whatever a project says."""
    assert not matches("a" * 5_000, ["*a" * 200 + "b"])


@given(st.text(st.sampled_from("ab*?[]{},!^/\\.-"), max_size=30), st.text("ab/.", max_size=20))
def test_nothing_raises(glob: str, path: str) -> None:
    assert matches(path, [glob]) in (True, False)


GLOBS = st.text(st.sampled_from("ab.*?/{,}[]!\\"), max_size=7)


@given(GLOBS, GLOBS, st.text("ab./", min_size=1, max_size=5))
def test_patterns_that_share_a_path_meet(one: str, two: str, path: str) -> None:
    """SEC-9: a shell's pattern may name what a rule's pattern names."""
    assert may_overlap(one, two) == may_overlap(two, one)
    if matches_glob(one, path) and matches_glob(two, path):
        assert may_overlap(one, two)


def test_patterns_that_share_none_do_not_meet() -> None:
    for one, two in (("*.py", "**/.env"), ("/p/a*", "/p/b*"), ("a?c", "ab"), ("[!.]*env", ".env"), ("/q/**", "/p/**")):
        assert not may_overlap(one, two)


def test_what_can_not_be_held_to_is_said() -> None:
    assert problem("{a,b}" * 20) and problem("x" * 3_000)
    assert not problem("{a,b}" * 5) and not problem("{a") and not problem("a{b}")
