"""CMP-5: which names and values of a text are facts, and how paths are written."""

from __future__ import annotations

import pytest

from perdure.compaction.ledger.facts import facts_in, kind_of, normal_path, short_path, weight

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("see src/perdure/view.py:12 for it", ["perdure/view.py", "view.py"]),
        ("D:\\work\\site\\src\\pages\\index.tsx", ["pages/index.tsx", "index.tsx"]),
        ('{"path": "C:\\\\Users\\\\me\\\\notes.md"}', ["me/notes.md", "notes.md"]),
        ("view.items[3] and foo_bar.bazQux", ["foo_bar", "bazQux"]),
        ("MAX_TOKENS, HTTPServer, sha256sum", ["MAX_TOKENS", "HTTPServer", "sha256sum"]),
        ("git commit --no-edit -m x", ["--no-edit"]),
        ("the fetch-drops-mappings branch", ["fetch-drops-mappings"]),
        ("at 369627091e78", ["369627091e78"]),
        ("https://example.com/a/b?c=1).", ["https://example.com/a/b?c=1"]),
        ("saved 20,480 of 131072 bytes", ["20,480", "131072"]),
        ("version 1.26.3", ["1.26.3"]),
        ("plain words only, nothing else 42", []),
        ("使用foo_bar函数", ["foo_bar"]),
        ("", []),
    ],
)
def test_facts(text: str, facts: list[str]) -> None:
    assert list(facts_in(text)) == facts


@pytest.mark.parametrize(
    ("path", "normal", "short"),
    [
        ("c:\\Users\\me\\a.py", "C:/Users/me/a.py", "me/a.py"),
        ("./src//a.py", "src/a.py", "src/a.py"),
        ("'/etc/hosts'", "/etc/hosts", "etc/hosts"),
        ("a.py", "a.py", "a.py"),
    ],
)
def test_paths_are_written_one_way(path: str, normal: str, short: str) -> None:
    assert (normal_path(path), short_path(path)) == (normal, short)


@pytest.mark.parametrize(
    ("key", "kind"),
    [("a/b.py", "path"), ("b.py", "file"), ("--all", "flag"), ("a1b2c3d4", "value"), ("fooBar", "name")],
)
def test_kinds(key: str, kind: str) -> None:
    assert kind_of(key) == kind


def test_who_said_it_and_how_crowded_it_stood_decide() -> None:
    """What was named on purpose outweighs what scrolled by; a name among few outweighs one among many."""
    assert weight("fooBar", 4, 3) > weight("fooBar", 1, 3)
    assert weight("fooBar", 4, 3) > weight("fooBar", 4, 300)
    assert weight("node_modules", 4, 3) < weight("fooBar", 4, 3)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (r'{"body":"## Goal\n\nAdd it.\nPublishAll now","id":"\u003ctrace-id\u003e"}', ["PublishAll", "trace-id"]),
        (r"agentv grade \u003crunId\u003e", ["runId"]),
        (r"written twice: \\nUserService\\n", ["UserService"]),
        (r"src\nodes\testService.py", ["nodes/testService.py", "testService.py"]),
        (r"src\\nodes\\testService.py", ["nodes/testService.py", "testService.py"]),
        (r"C:\new\taskRunner.go", ["new/taskRunner.go", "taskRunner.go"]),
        (r"..\new\taskRunner.go", ["new/taskRunner.go", "taskRunner.go"]),
        (r'{"path":"C:\\Users\\nameThing\\x.py"}', ["nameThing/x.py", "x.py"]),
        (r'grep "one\|barBaz"', ["barBaz"]),
    ],
)
def test_escapes_of_json_are_no_part_of_a_name(text: str, names: list[str]) -> None:
    """CMP-5: nor is a path of Windows taken for escapes."""
    assert list(facts_in(text)) == names


def test_a_time_is_no_name() -> None:
    """CMP-5: 18T02 and 57Z are what was left of it."""
    assert list(facts_in("2026-06-18T02:12:57Z readRows 2026-06-18T02:12:57.123+02:00")) == ["readRows"]
