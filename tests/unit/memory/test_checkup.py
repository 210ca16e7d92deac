"""MEM-2, MEM-3: whatever is wrong with a directory of memories is said."""

from __future__ import annotations

import pytest

from perdure.memory.index_file import IndexLimits, memory_findings

pytestmark = pytest.mark.unit


def said(
    files: dict[str, tuple[str, ...]], indexes: dict[str, str | None], limits: IndexLimits | None = None
) -> list[str]:
    found = memory_findings(files, indexes, limits or IndexLimits())
    return [f"{one.weight} {one.file}{f':{one.line}' if one.line else ''} {one.text}" for one in found]


def test_a_tidy_directory_has_nothing() -> None:
    assert said({"a.md": (), "team/b.md": ()}, {"": "- [A](a.md) — x", "team": "- [B](b.md) — y"}) == []


@pytest.mark.parametrize(
    ("files", "indexes", "text"),
    [
        ({"a.md": ("no type",)}, {"": "- [A](a.md)"}, "warning a.md no type"),
        ({"a.md": ()}, {"": None}, "warning MEMORY.md missing: 1 memories are in no index"),
        ({"a.md": ()}, {"": "- [A](a.md) — x\n- [B](b.md) — y"}, "error MEMORY.md:2 names b.md, which isn't there"),
        ({"a.md": ()}, {"": "# M"}, "warning a.md in no line of MEMORY.md: found by search only"),
        ({"a.md": ()}, {"": "- [A](a.md) — x\n- [A](a.md) — y"}, "warning MEMORY.md:2 names a.md again (line 1)"),
        ({"a.md": ()}, {"": "- [A](a.md) — " + "x" * 200}, "warning MEMORY.md:1 214 characters: over 150"),
        ({"t/b.md": ()}, {"": "# M", "t": "# T"}, "warning t/b.md in no line of t/MEMORY.md: found by search only"),
    ],
)
def test_what_is_wrong_is_said(files: dict[str, tuple[str, ...]], indexes: dict[str, str | None], text: str) -> None:
    assert text in said(files, indexes)


def test_an_index_over_its_limits_is_an_error_with_the_numbers() -> None:
    (one,) = said({}, {"": "text\n" * 9}, IndexLimits(5, 1_000))
    assert one == "error MEMORY.md 9 lines and 44 bytes: only 5 lines and 1,000 bytes are read"


def test_links_to_the_web_and_out_of_the_directory_are_no_memories() -> None:
    assert said({}, {"": "- [A](https://x.org/a.md)\n- [B](../b.md)\n- [C](c.png)"}) == []
