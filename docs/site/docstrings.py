"""Docstrings for Sphinx: ours are Google's sections around Markdown's code marks, Sphinx reads reStructuredText."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import cache
from typing import Any

import pages
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.nodes import find_pending_xref_condition

CODE = re.compile(r"`([^`\n]+)`")
HEADINGS = {"Args:", "Attributes:", "Raises:"}
MADE_BY = {"create", "at", "of"}  # class methods by which one is made: then nobody calls the class itself


def role(code: str) -> str:
    """Names of the library lead to their entries; `on_read` finds them."""
    return "py:obj" if code[0].isupper() and code in by_short_name() else "code"


def marked(line: str) -> str:
    """A line with its code marks as Sphinx reads them; nothing else in it is a mark."""
    parts = CODE.split(line)
    plain = [re.sub(r"([\\*|_`])", r"\\\1", part) for part in parts[::2]]
    code = [f":{role(part)}:`{part.replace(chr(92), chr(92) * 2)}`" for part in parts[1::2]]
    joined = [plain[0]]
    for before, after in zip(code, plain[1:], strict=True):
        # A mark has to end at a space or a sign; `\ ` is nothing, and ends it.
        joined += [r"\ " if joined[-1] and not joined[-1][-1].isspace() else "", before, r"\ " if after else "", after]
    return "".join(joined)


def language(lines: list[str]) -> str:
    """Python, unless it can't be; what an example leaves out (…) is no mistake in it."""
    code = textwrap.dedent("\n".join(lines)).replace("…", "...")
    try:
        compile(code, "example", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return "text"
    return "python"


def restructured(lines: list[str]) -> list[str]:
    """A docstring as napoleon takes it: examples and indented code in blocks, marks in prose alone."""
    found: list[str] = []
    section, at = "", 0
    while at < len(lines):
        line = lines[at]
        indent = len(line) - len(line.lstrip())
        if line.strip() in HEADINGS and not indent:
            section = line.strip()
            found.append(line)
        elif line == "Returns:":
            section = line  # not left to napoleon, for which what stands before a colon is a type
            found += ["", f":returns: {marked(lines[at + 1].strip())}"]
            at += 1
        elif line == "Example:":
            section = "Example:"
            found += [".. rubric:: Example", "", ".. code-block:: python", "   :force:", ""]
        elif not line.strip() or (section == "Example:" and indent):
            found.append(line)
        elif indent >= 4 and not section and (at == 0 or not lines[at - 1].strip()):
            start = len(found)
            while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
                found.append(lines[at])
                at += 1
            found[start:start] = [f".. code-block:: {language(found[start:])}", "   :force:", ""]
            found.append("")
            continue
        else:
            if not indent:
                section = ""
            found.append(marked(line))
        at += 1
    return found


def on_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    words = vars(value).get("__doc__") if inspect.isclass(value) else None
    if inspect.isclass(value) and (not words or words.startswith(f"{value.__name__}(")):
        lines[:] = []  # what a dataclass or a parent says of itself
    lines[:] = restructured(lines)


@cache
def by_short_name() -> dict[str, str]:
    """Where a name leads that stands without its module: to the library's face first."""
    found: dict[str, str] = {}
    for full in (*pages.public_names(), *pages.told_types()):
        found.setdefault(full.rpartition(".")[2], full)
    return found


def on_signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    is_made = what == "class" and name.startswith(("perdure.", "perdure.sync.")) and MADE_BY & set(vars(value))
    return (
        ("", None) if is_made and name.removeprefix("perdure.sync.").removeprefix("perdure.").isidentifier() else None
    )


def on_read(app: Sphinx, tree: nodes.document) -> None:
    """A type in a signature leads to its entry, where it has one; all others are words."""
    public = set(pages.public_names())
    for node in list(tree.findall(pending_xref)):
        if node.get("refdomain") != "py" or node.get("refexplicit"):
            continue
        target = str(node["reftarget"]).removeprefix("typing.")
        here = f"{node.get('py:module')}.{target}"
        full = here if here in public else by_short_name().get(target.rpartition(".")[2])
        if full is None:
            condition = find_pending_xref_condition(node, "*")
            node.replace_self(condition.children if condition is not None else node.children)
        else:
            node["reftarget"] = full
            node["reftype"] = "obj"


def setup(app: Sphinx) -> dict[str, Any]:
    sync = pages.module("perdure.sync")
    for name in ("Session", "Agent", "SharedStore"):  # else they are told as other names of SyncSession and so on
        getattr(sync, name).__name__ = name
    app.connect("autodoc-process-docstring", on_docstring, priority=100)  # before napoleon's, at 500
    app.connect("autodoc-process-signature", on_signature)
    app.connect("doctree-read", on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
