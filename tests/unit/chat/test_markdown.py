"""Markdown in a terminal: nothing is lost, no word of any script is broken, and blocks come when they are whole."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from perdure.cli.chat.markdown import MarkdownStream, being_written, cut_columns, rendered
from perdure.cli.output import wrapped

pytestmark = pytest.mark.unit

ANSWER = """# A heading

Some *words* in a paragraph that is
on two lines.

- one

  still one
- two

```python
def f():

    return 1
```

| a | b |
|---|---|
| 1 | 2 |

The end
"""


def plain(text: str, width: int) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", rendered(text, width, is_colored=True))


def test_blocks_are_given_when_they_are_whole_and_none_is_lost() -> None:
    """CLI-6: a list and a table wait for their ends, a paragraph for its blank line."""
    stream, given_out = MarkdownStream(), []
    for sign in ANSWER:
        given_out.append(stream.feed(sign))
    given_out.append(stream.end())
    parts = [part for part in given_out if part]
    assert "".join(parts) == ANSWER and len(parts) == 6
    assert [part.split()[0] for part in parts] == ["#", "Some", "-", "```python", "|", "The"]


@given(st.text(alphabet=st.sampled_from("ab \n-#`|>1.*"), max_size=120), st.lists(st.integers(1, 9), max_size=30))
def test_whatever_comes_in_whatever_pieces_all_of_it_comes_out(text: str, sizes: list[int]) -> None:
    """CLI-6."""
    stream, out, at = MarkdownStream(), "", 0
    for size in sizes:
        out += stream.feed(text[at : at + size])
        at += size
    assert out + stream.feed(text[at:]) + stream.end() == text


@pytest.mark.parametrize("width", [24, 60, 140])
def test_no_word_is_broken_and_none_is_missing(width: int) -> None:
    """CLI-6: a table whose words don't fit is a list of its rows; HTML is shown as it was written."""
    text = (
        "Some *long* paragraph with 100\N{NO-BREAK SPACE}% of **words**, `code` and <b>tags</b>.\n\n"
        "| name | explanation | value |\n|---|---|---|\n| configuration | unbelievable words | internationally |\n"
    )
    shown = plain(text, width)
    words = "Some long paragraph with 100\N{NO-BREAK SPACE}% of words, code and <b>tags</b>. "
    words += "configuration unbelievable internationally"
    assert [word for word in words.split(" ") if word not in shown] == []
    assert max(map(cell_len, shown.splitlines())) <= width


@pytest.mark.parametrize(
    "text",
    ["12\N{NO-BREAK SPACE}%", "\u5168\u89d2\N{IDEOGRAPHIC SPACE}\u7a7a\u767d",
     "\u0645\u06cc\N{ZERO WIDTH NON-JOINER}\u062e\u0648\u0627\u0647\u0645",
     "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}", "\u0915\N{ZERO WIDTH JOINER}\u094d\u0937"],
)  # fmt: skip
def test_every_script_passes_as_it_is(text: str) -> None:
    """CLI-6: as Markdown and as a line."""
    assert plain(f"a {text} b", 40) == f"a {text} b" and list(wrapped(f"a {text} b", 40)) == [f"a {text} b"]


def test_soft_hyphens_are_left_out_of_prose_and_stay_in_code() -> None:
    """CLI-6: no line is broken at one, and some terminals draw it."""
    soft = "ver\N{SOFT HYPHEN}ify"
    assert plain(f"to {soft} *{soft}* `{soft}`", 40) == f"to verify verify {soft}"
    assert plain(f"```\n{soft}\n```", 40).strip() == soft
    assert being_written(f"to {soft}", 40) == ["to verify"]


def test_what_of_a_line_of_code_goes_on_below_is_marked() -> None:
    """CLI-6: a lone `return` would read as returning nothing."""
    shown = plain("```python\ndef f():\n    return compute(first, second, third)\n```\n", 32)
    lines = ["  def f():", "      return compute(first,", "        ↪ second, third)"]
    assert shown.split("\n") == lines


def test_code_and_tables_take_the_width_that_prose_leaves() -> None:
    """CLI-6: prose is as wide as can be read with ease."""
    code = "x = " + " + ".join(["number"] * 14)
    shown = plain(f"{'word ' * 60}\n\n```\n{code}\n```\n", 139)
    assert f"\n  {code}" in shown and len(code) > 110
    assert max(len(line) for line in shown.split("\n") if line.startswith("word")) <= 110


def test_a_cell_below_its_neighbours_goes_on_further_in() -> None:
    """CLI-6: in a list of rows no value stands where a name would."""
    shown = plain("| a | explanation |\n|---|---|\n| internationally | unbelievable words of many kinds |\n", 24)
    assert shown.split("\n")[:4] == ["a: internationally", "explanation:", "  unbelievable words of", "  many kinds"]


def test_lines_break_and_links_lead_as_they_were_written() -> None:
    """CLI-6: verses stay verses, an address is seen."""
    assert plain("one\ntwo", 40) == "one\ntwo"
    assert plain("[here](https://example.org/a)", 60) == "here (https://example.org/a)"


def test_further_lines_stand_where_the_first_one_began() -> None:
    """CLI-6: wrapped between words; a blank that holds its neighbours is no place to break."""
    assert list(wrapped("  one two three", 9)) == ["  one two", "  three"]
    assert list(wrapped("aaa b\N{NO-BREAK SPACE}c", 6)) == ["aaa", "b\N{NO-BREAK SPACE}c"]
    assert list(wrapped("", 9)) == [""] and cut_columns("\u5168\u89d2\u7a7a\u767d", 5) == "\u5168\u89d2…"


def test_without_colours_there_are_none() -> None:
    """CLI-6: NO_COLOR leaves bold type, and no colour."""
    shown = rendered("# A\n\n`b` *c*\n\n```python\ndef f(): return 1\n```\n", 40, is_colored=False)
    assert not re.search(r"\x1b\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-7])[;m]", shown) and "\x1b[1m" in shown
