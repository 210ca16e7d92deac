"""What is read of an instruction file's Markdown (INS-3, INS-5, CMP-3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.text.markdown import MAX_IMPORTS, compact_instructions, cut_at_section, imports, sections, without_comments

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("See @docs/a.md and @~/b.md, or (@/abs/c.md).", ("docs/a.md", "~/b.md", "/abs/c.md")),
        ("@./x.md\n@../y.md", ("./x.md", "../y.md")),
        ("twice @a.md and @a.md", ("a.md",)),
        ("@with\\ space.md", ("with space.md",)),
        ("@a.md#part", ("a.md",)),
        ("mail me@example.com, not `@code.md` nor ``@a ` @b``", ()),
        ("a lone ` tick, @a.md", ("a.md",)),
        ("one `x` two @a.md three `y`", ("a.md",)),
        ("```\n@in/fence.md\n```\n@out.md", ("out.md",)),
        ("~~~~md\n@in.md\n~~~\n@in2.md\n~~~~\n@out.md", ("out.md",)),
        ("- item\n  ```sh\n  @in.md\n  ```\n@out.md", ("out.md",)),
        ("> ```\n> @in.md\n> ```\n@out.md", ("out.md",)),
        ("```a`b\n@out.md", ("out.md",)),
        ("```\n@never/closed.md", ()),
        ("@ @/ @~ @!x", ()),
        ("", ()),
    ],
)
def test_imports(text: str, found: tuple[str, ...]) -> None:
    """INS-3: not in code spans or fences."""
    assert imports(text) == found


def test_imports_are_bounded() -> None:
    assert len(imports(" ".join(f"@f{n}.md" for n in range(5_000)))) == MAX_IMPORTS


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\n<!-- note -->\nb", "a\nb"),
        ("a\n<!-- one\ntwo\nthree -->\nb", "a\nb"),
        ("<!-- x --> rest\n", " rest\n"),
        ("a <!-- inline stays --> b", "a <!-- inline stays --> b"),
        ("```html\n<!-- code stays -->\n```", "```html\n<!-- code stays -->\n```"),
        ("    <!-- indented code stays -->", "    <!-- indented code stays -->"),
        ("a\n<!-- never closed\nb", "a\n<!-- never closed\nb"),
        ("<!-- ```\n-->\n@a.md", "@a.md"),
    ],
)
def test_block_comments_go(text: str, left: str) -> None:
    """INS-3: outside code; a comment without an end hides nothing."""
    assert without_comments(text) == left


def test_sections_and_cuts() -> None:
    """INS-5: cut at section ends, else paragraphs, else lines."""
    text = "intro\n\n# A\naaa\n```\n# no heading\n```\n## B\nbbb\n# C\nccc"
    assert [(one.level, one.title) for one in sections(text)] == [(0, ""), (1, "A"), (2, "B"), (1, "C")]
    assert "".join(one.text for one in sections(text)) == text
    assert cut_at_section(text, len(text)) == text
    assert cut_at_section(text, text.index("# C") + 2) == text[: text.index("# C")].rstrip()
    assert cut_at_section("one two\n\nthree four\nfive", 20) == "one two"
    assert cut_at_section("one\ntwo three", 8) == "one"
    assert cut_at_section("oneline", 3) == ""


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("# Compact Instructions\nKeep ids.\n## More\nand dates\n# Other\nno", "Keep ids.\n## More\nand dates"),
        ("## Summary instructions\nx", "x"),
        ("# compact instruction:\nx\n# A\ny\n# Compaction instructions\nz", "x\nz"),
        ("# Compact\nx", ""),
        ("```\n# Compact Instructions\nx\n```", ""),
    ],
)
def test_compact_instructions(text: str, wish: str) -> None:
    """CMP-3."""
    assert compact_instructions(text) == wish


@given(st.text(st.sampled_from("ab@`~<!->#\n \\./"), max_size=200))
def test_nothing_raises_and_text_is_kept(text: str) -> None:
    assert "".join(one.text for one in sections(text)) == text
    assert all(line in text for line in without_comments(text).splitlines())
    assert all(path and not path.startswith("@") for path in imports(text))
    assert text.startswith(cut_at_section(text, 50)) and len(cut_at_section(text, 50)) <= 50


def test_odd_texts_take_linear_time() -> None:
    """SEC-6."""
    for text in ("`" * 200_000, "`a``b" * 40_000, "@" * 200_000, "<!--" * 50_000, "\\ " * 100_000, "#" * 200_000):
        assert len(imports(text)) <= MAX_IMPORTS
        assert without_comments(text) and sections(text)
