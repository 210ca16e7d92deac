"""Markdown for a terminal, block by block as it comes: rich draws it, and no word of any script is broken."""

from __future__ import annotations

import re
from io import StringIO
from typing import ClassVar

from markdown_it import MarkdownIt
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.constrain import Constrain
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, Paragraph, TableElement
from rich.measure import Measurement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from perdure.cli.output import HELD, RELEASED, wrapped

_TRAILING = re.compile(r"[ ]+((?:\x1b\[0m)?)[ ]*$", re.MULTILINE)
_ANY_WIDTH = 10_000
_CODE_INDENT, _FURTHER = 2, 4  # of code, and of what of a line of it goes on below
_GOES_ON = "↪"  # before what of a line of code goes on below: a lone `return` would read as returning nothing
_MOST_WIDTH = 110  # of prose: longer lines are hard to read
_SOFT_HYPHEN = "\N{SOFT HYPHEN}"
_CLOSED = frozenset({"paragraph_open", "heading_open", "hr", "table_open"})  # blocks that a blank line ends


class MarkdownStream:
    """An answer while it comes: whole blocks are given out as soon as they are whole, `open` is the rest."""

    def __init__(self) -> None:
        self.open = ""

    def feed(self, text: str) -> str:
        """More of the answer. Returns the blocks that are whole now, as Markdown; empty while there are none."""
        self.open += text
        if "\n" not in text or not re.search(r"\n[ \t]*\n\Z|\n[ \t]*\n[^\n]*\n\Z", self.open):
            return ""
        lines = self.open.splitlines(keepends=True)
        at = _whole_lines(lines, is_after_blank=not lines[-1].strip())
        self.open = "".join(lines[at:])
        return "".join(lines[:at])

    def end(self) -> str:
        """The rest, whole or not: nothing more comes."""
        rest, self.open = self.open, ""
        return rest


def _whole_lines(lines: list[str], *, is_after_blank: bool) -> int:
    """How many lines belong to blocks to which nothing can be added."""
    blocks = [token for token in _parser().parse("".join(lines)) if token.level == 0 and token.map is not None]
    if not blocks:
        return 0
    last = next(token for token in reversed(blocks) if token.nesting >= 0)
    start, end = last.map or (0, 0)
    is_fence_closed = last.type == "fence" and end - start > 1 and lines[end - 1].strip().startswith(last.markup)
    if is_fence_closed or (is_after_blank and last.type in _CLOSED):
        return len(lines)
    return start


def _parser() -> MarkdownIt:
    """Without HTML: what looks like it is shown as it was written, and not left out."""
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


def rendered(text: str, width: int, *, is_colored: bool) -> str:
    """Markdown as lines for a terminal of this width, with what switches colours and bold type on and off."""
    out = StringIO()
    console = Console(file=out, width=width, force_terminal=True, no_color=not is_colored, highlight=False)
    console.print(TerminalMarkdown(text.translate(HELD)))
    lines = _TRAILING.sub(r"\1", out.getvalue()).strip("\n")
    return re.sub(r"\n{3,}", "\n\n", lines).translate(RELEASED)


class LeftHeading(Heading):
    """Headings stand left, where a terminal's text begins."""

    LEVEL_ALIGN: ClassVar = dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "left")


class NarrowParagraph(Paragraph):
    """Prose takes no more of a wide terminal than can be read with ease; code and tables may take all of it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            assert isinstance(part, Text)
            yield Constrain(part, _MOST_WIDTH)


class PlainCodeBlock(CodeBlock):
    """Code in the terminal's own colours, without a background, so that it can be copied.

    What doesn't fit goes on below, marked and further in than its line, so that it isn't taken for a line of its own.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip().expandtabs(4)
        colored = Syntax(code, self.lexer_name, theme="ansi_dark", background_color="default").highlight(code)
        colored.rstrip()
        for line in colored.split("\n", allow_blank=True):
            indent = min(len(line.plain) - len(line.plain.lstrip(" ")), options.max_width // 2)
            start, rest = _CODE_INDENT + indent, line[indent:]
            room = options.max_width - start
            further = 0 if cell_len(rest.plain) <= room else max(2, min(_FURTHER, room // 2))
            for number, piece in enumerate(rest.wrap(console, max(1, room - further)) or [rest]):
                piece.rstrip()
                if number:
                    piece = Text.assemble((f"{_GOES_ON:>{further - 1}} ", "dim"), piece)
                yield Padding(piece, (0, 0, 0, start), expand=False)


class FittingTable(TableElement):
    """A table; where its words don't fit beside each other, each row is a list of its cells."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        (table,) = super().__rich_console__(console, options)
        assert isinstance(table, Table)
        table.box, table.show_edge = box.SIMPLE_HEAD, False
        wide = options.update(width=_ANY_WIDTH)
        if Measurement.get(console, wide, table).minimum <= options.max_width:
            for column in table.columns:  # rich would rather cut a long word than make another column narrower
                column.min_width = max(Measurement.get(console, wide, cell).minimum for cell in column.cells)
            yield table
            return
        heads = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        for row in self.body.rows if self.body else ():
            for number, cell in enumerate(row.cells):
                head = heads[number].plain if number < len(heads) else ""
                text = Text.assemble((f"{head}: ", "bold"), cell.content) if head else cell.content
                for line, piece in enumerate(text.wrap(console, max(1, options.max_width - _CODE_INDENT))):
                    piece.rstrip()
                    yield Padding(piece, (0, 0, 0, _CODE_INDENT * bool(line)), expand=False)
            yield Text()


class TerminalMarkdown(Markdown):
    """Markdown in which line breaks stay, links show where they lead, and HTML is text.

    Soft hyphens of prose are left out: no line is broken at one here, and some terminals draw each of them. Code keeps
    what it has.
    """

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": LeftHeading,
        "paragraph_open": NarrowParagraph,
        "fence": PlainCodeBlock,
        "code_block": PlainCodeBlock,
        "table_open": FittingTable,
    }

    def __init__(self, markup: str) -> None:
        super().__init__(markup, hyperlinks=False)
        self.parsed = _parser().parse(markup)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
                elif child.type == "text":
                    child.content = child.content.replace(_SOFT_HYPHEN, "")


def being_written(text: str, width: int) -> list[str]:
    """The lines of a block that still comes, as it is written; prose or code, nobody can tell yet."""
    return list(wrapped(text.replace(_SOFT_HYPHEN, ""), min(width, _MOST_WIDTH)))


def cut_columns(text: str, columns: int) -> str:
    """At most so many columns of a terminal, with an ellipsis where something is missing."""
    cut = Text(text)
    cut.truncate(max(1, columns), overflow="ellipsis")
    return cut.plain
