"""MEM-6, SEC-3: whatever an extractor calls, in any spelling, nothing outside the directory is named or changed."""

from __future__ import annotations

import posixpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from perdure.memory.permits import READS, WRITES, MemoryPermit, answer_read, parse_memory_command

pytestmark = pytest.mark.laws
ROOT = "/srv/memory"
PERMIT = MemoryPermit(ROOT)
PARTS = st.sampled_from(
    ["..", ".", "", "srv", "memory", "a.md", "team", ".perdure", "etc", "~", "MEMORY.md", "x\\y", "a%2fb", "／"]
)
PATHS = st.builds(
    lambda head, parts: head + "/".join(parts),
    st.sampled_from(["", "/", "//", ROOT + "/", "C:/"]),
    st.lists(PARTS, max_size=6),
)
TOOLS = st.sampled_from(
    ["Read", "Edit", "Write", "Grep", "Glob", "Bash", "bash", "Task", "mcp__x__Write", "NotebookEdit"]
)
PIECES = st.sampled_from(
    ["ls", "cat", "find", "rm", "head", "-n", "1", "a.md", "../x", "/etc/passwd", ";", "|", "&&", ">", "$(x)", "`x`",
     "-delete", "-exec", "-name", "*", "'", '"', "\\", "\n", "~", "{a,b}", ROOT, "-", "--", "-la", "#"]
)  # fmt: skip


@given(tool=TOOLS, path=PATHS, key=st.sampled_from(["file_path", "path", "file"]))
@examples(300)
def test_paths(tool: str, path: str, key: str) -> None:
    arguments: dict[str, Any] = {key: path, "pattern": "x", "content": "c"}
    if PERMIT.denial(tool, arguments) is not None:
        return
    assert tool in READS | WRITES
    whole = posixpath.normpath(path if path.startswith("/") else f"{ROOT}/{path}").replace("//", "/")
    assert whole == ROOT or whole.startswith(ROOT + "/")
    assert "/." not in whole[len(ROOT) :]
    if tool in WRITES:
        assert whole.endswith(".md") and not whole.lower().endswith("/memory.md")


@given(words=st.lists(PIECES, max_size=7), glue=st.sampled_from([" ", "", "  "]))
@examples(400)
def test_commands(words: list[str], glue: str) -> None:
    line = glue.join(words)
    if PERMIT.denial("Bash", {"command": line}) is not None:
        return
    said = parse_memory_command(line)
    assert not isinstance(said, str) and said.name in ("ls", "cat", "find", "head", "tail", "wc", "stat")
    assert all(PERMIT.name_of(path) is not None for path in said.paths)
    assert not set(line) & set(";|&><$`\n")
    answer, _ = answer_read("Bash", {"command": line}, {"a.md": "text\n"}, PERMIT)
    assert "root:" not in answer
