"""Front matter: strict, then line by line; bounded, nothing resolved (INS-2, MEM-3, SEC-6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.text.frontmatter import MAX_CHARS, MAX_DEPTH, MAX_VALUES, _plain_fields, _strict, front_matter

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("a: 1\nb: two words", {"a": "1", "b": "two words"}),
        ("paths:\n  - 'a/*.{ts,tsx}'\n  - b", {"paths": ["a/*.{ts,tsx}", "b"]}),
        ("paths: [a, b]", {"paths": ["a", "b"]}),
        ("n: n\nmetadata:\n  type: user\n  m:\n    x: y", {"n": "n", "metadata": {"type": "user", "m": {"x": "y"}}}),
        ("date: 2026-01-02\nyes: yes\nnull: null", {"date": "2026-01-02", "yes": "yes", "null": "null"}),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("# only a comment", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_strict(text: str, fields: dict[str, Any]) -> None:
    """MEM-3, both schemas; every value is the text that stands there."""
    found = front_matter(f"---\n{text}\n---\nbody")
    assert (found.fields, found.body, found.problems) == (fields, "body", ())


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("paths: **/*.ts", {"paths": "**/*.ts"}),
        ("paths: [src/**, **/*.{ts,tsx}]", {"paths": ["src/**", "**/*.{ts,tsx}"]}),
        ("paths:\n  - **/*.ts\n  - \"q\"", {"paths": ["**/*.ts", "q"]}),
        ("description: Use when: it rains\ntype: user", {"description": "Use when: it rains", "type": "user"}),
        ("a: @x\nmetadata:\n  type: feedback", {"a": "@x", "metadata": {"type": "feedback"}}),
        ("no colon here\na: `b`", {"a": "`b`"}),
    ],
)  # fmt: skip
def test_lenient(text: str, fields: dict[str, Any]) -> None:
    """MEM-3: bad YAML is read by line, and said."""
    found = front_matter(f"---\n{text}\n---\nbody")
    assert (found.fields, found.body, len(found.problems)) == (fields, "body", 1)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [1]\nb: *x",
        "a: !!python/object/apply:os.system [id]",
        "a: !t x",
        "[" * 30_000 + "]" * 30_000,
        "a:\n" + "".join(" " * n + "b:\n" for n in range(1, MAX_DEPTH + 3)),
        "a:\n" + " - x\n" * (MAX_VALUES + 1),
        "a: b\n--- c",
        "a: \x07",
        "? [x]\n: y",
    ],
)
def test_refused_yaml_becomes_text(text: str) -> None:
    """SEC-6: anchors, aliases, tags, depth and count; nothing expands, nothing raises, and it is said why."""
    found = front_matter(f"---\n{text}\n---\nbody")
    assert found.problems and found.body == "body"
    assert all(isinstance(value, str | list | dict) for value in found.fields.values())


def test_what_has_none() -> None:
    """A rule that starts a text isn't front matter, nor is a fence that never closes."""
    assert front_matter("text\n---\na: b\n---\n").body == "text\n---\na: b\n---\n"
    assert front_matter("---\na: b\n").problems
    assert not front_matter("---\n" + "a: b\n" * MAX_CHARS + "---\n").is_present
    found = front_matter("\ufeff---\r\na: b\r\n---\r\nbody")
    assert (found.fields, found.body, found.start) == ({"a": "b"}, "body", len("\ufeff---\r\na: b\r\n---\r\n"))


def test_long_lines_take_linear_time() -> None:
    """SEC-6: lines made to confuse a pattern are read like any other."""
    for line in ("a" + " " * 60_000, "a: " + "[" * 60_000, "a: [" + "{," * 30_000 + "]", "a: b" + " #" * 30_000):
        assert front_matter(f"---\n{line}\n@\n---\nbody").body == "body"


_WORDS = st.text("ab:#'\"-*&![]{}, \n\té1", max_size=40)


@given(st.lists(_WORDS, max_size=4))
def test_by_hand_is_as_by_yaml(values: list[str]) -> None:
    """What is read by hand for speed, strict YAML reads the same."""
    text = "\n".join(f"k{n}: {value}" for n, value in enumerate(values))
    by_hand = _plain_fields(text)
    if by_hand is not None:
        assert by_hand == _strict(text)


@given(st.text(st.sampled_from("ab:-#*&!\"'[]{}|> \n\t?.%@`é\x00\ufeff"), max_size=200))
def test_never_raises(text: str) -> None:
    """REL: any text is read."""
    found = front_matter(f"---\n{text}\n---\nbody")
    assert found.body or found.is_present
