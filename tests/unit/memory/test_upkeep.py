"""MEM-3, MEM-6, MEM-11: what is worth keeping, dates, and what an extractor may call."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.memory.consolidation import DatedMemory, plan_consolidation
from perdure.memory.dates import absolute
from perdure.memory.files import topic
from perdure.memory.index_file import IndexLimits
from perdure.memory.permits import MemoryPermit, answer_read
from perdure.memory.remarks import remarks
from perdure.memory.save import index_line, is_known, memory_text, with_line

pytestmark = pytest.mark.unit
AT = 1_795_316_400.0  # 2026-11-22, a Sunday
PERMIT = MemoryPermit("/srv/memory")


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("Remember that the deploy key is in the vault", "project", "The deploy key is in the vault"),
        ("Merk dir, dass wir freitags deployen.", "project", "Wir freitags deployen."),
        ("No, use pnpm instead of npm.", "feedback", "Use pnpm instead of npm."),
        ("don't add comments to generated code", "feedback", "Don't add comments to generated code"),
        ("Stop summarizing your work at every turn", "feedback", "Stop summarizing your work at every turn"),
        ("I prefer tabs over spaces", "user", "I prefer tabs over spaces"),
        ("I'm a data scientist at Acme", "user", "I'm a data scientist at Acme"),
        ("We decided to use Postgres for billing.", "project", "We decided to use Postgres for billing."),
        ("The code freeze is on Friday.", "project", "The code freeze is on 2026-11-27."),
        ("Bugs are tracked in Linear at https://linear.app/x", "reference", "Bugs are tracked in Linear at https://linear.app/x"),
    ],
)  # fmt: skip
def test_what_is_worth_keeping(said: str, kind: str, text: str) -> None:
    """MEM-3: typed, in the words that were said, with dates that stay true."""
    [one] = remarks(said, AT)
    assert (one.type, one.text) == (kind, text)
    assert remarks(f"Fix it first.\n\n{said}\n\nThanks!", AT) == (one,)


@pytest.mark.parametrize(
    "said",
    [
        "don't touch that file", "Please fix the bug in line 4", "Why don't you use it?", "I'd like to do a loop:",
        "run the tests", "no, the other one", "remember to commit", "> always use tabs", "always do this here",
        "<command>always use tabs</command>", "```\nalways use tabs everywhere\n```", "use it instead of that", "",
        "can you always run make lint?", "x" * 5_000, "I like it", "don't do that again",
        "No mocks in tests, use real ones in general", "remember to commit your changes often",
    ],
)  # fmt: skip
def test_what_is_said_for_the_moment(said: str) -> None:
    """MEM-3: passing state, questions, what points at something, what a program put there."""
    assert remarks(said, AT) == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("We ship tomorrow", "We ship 2026-11-23"),
        ("done the day before yesterday", "done 2026-11-20"),
        ("due by Friday", "due by 2026-11-27"),
        ("since Monday", "since 2026-11-16"),
        ("next Sunday", "2026-11-29"),
        ("it will end in two weeks", "it will end on 2026-12-06"),
        ("grew tenfold in two weeks", "grew tenfold in two weeks"),
        ("3 days ago", "on 2026-11-19"),
        ("last week", "the week of 2026-11-09"),
        ("the last week of March", "the last week of March"),
        ("next month", "2026-12"),
        ("last year", "2025"),
        ("Every Friday we ship today's build", "Every Friday we ship today's build"),
        ('she said "see you tomorrow"', 'she said "see you tomorrow"'),
        ("`git log --since yesterday`", "`git log --since yesterday`"),
    ],
)
def test_dates(before: str, after: str) -> None:
    """MEM-11."""
    assert absolute(before, AT) == after
    assert absolute(after, AT + 1e7) == after  # once


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "/srv/memory/a.md"}), ("Read", {"file_path": "/srv//memory/./team/../a.md"}),
        ("Grep", {"pattern": "x"}), ("Glob", {"pattern": "**/*.md", "path": "/srv/memory"}),
        ("Write", {"file_path": "/srv/memory/team/b.md", "content": "x"}), ("Bash", {"command": "cat a.md"}),
        ("Bash", {"command": "find /srv/memory -name '*.md' -type f"}), ("Bash", {"command": "head -n 5 a.md"}),
        ("Edit", {"file_path": "a.md", "old_string": "a", "new_string": "b"}), ("Bash", {"command": "ls -la"}),
    ],
)  # fmt: skip
def test_allowed(tool: str, arguments: dict[str, Any]) -> None:
    """MEM-6."""
    assert PERMIT.denial(tool, arguments) is None


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "/srv/memory/../secret"}), ("Read", {"file_path": "/srv/memory2/a.md"}), ("Read", {}),
        ("Read", {"file_path": "/srv/memory/.perdure/audit.jsonl"}), ("Read", {"file_path": "a\0.md"}),
        ("read", {"file_path": "/srv/memory/a.md"}), ("mcp__fs__Read", {"file_path": "/srv/memory/a.md"}),
        ("Glob", {"pattern": "../*"}), ("Glob", {"pattern": "/etc/*"}), ("Grep", {"pattern": "x", "path": "/etc"}),
        ("Write", {"file_path": "/srv/memory/MEMORY.md"}), ("Write", {"file_path": "/srv/memory/team/memory.md"}),
        ("Write", {"file_path": "/srv/memory/x.sh"}), ("Write", {"file_path": "/srv/memory"}),
        ("Write", {"file_path": "a.md", "path": "/etc/passwd"}), ("Task", {}), ("WebFetch", {"url": "x"}),
        ("Bash", {"command": "rm a.md"}), ("Bash", {"command": "cat a.md; rm a.md"}), ("Bash", {"command": "cat $(x)"}),
        ("Bash", {"command": "cat a.md > b.md"}), ("Bash", {"command": "cat ../../etc/passwd"}), ("Bash", {}),
        ("Bash", {"command": "find . -delete"}), ("Bash", {"command": "find . -exec rm {} +"}),
        ("Bash", {"command": "find . -name x -o -delete"}), ("Bash", {"command": "tail -f a.md"}),
        ("Bash", {"command": "ls\nrm a.md"}), ("Bash", {"command": "/bin/ls"}), ("Bash", {"command": "'ls' -Z"}),
        ("Bash", {"command": "ls", "run_in_background": True}), ("Bash", {"command": "cat ~/x"}),
    ],
)  # fmt: skip
def test_denied(tool: str, arguments: dict[str, Any]) -> None:
    """MEM-6, SEC-3: any other tool, spelling, path or command."""
    assert PERMIT.denial(tool, arguments) is not None


TEXTS = {"MEMORY.md": "- [A](a.md)\n", "a.md": "one\ntwo pnpm\nthree\n", "team/b.md": "Pnpm rules\n"}


@pytest.mark.parametrize(
    ("tool", "arguments", "answer"),
    [
        ("Bash", {"command": "ls"}, "MEMORY.md\na.md\nteam/"),
        ("Bash", {"command": "find . -name 'b*'"}, "team/b.md"),
        ("Bash", {"command": "head -n 1 a.md"}, "one"),
        ("Bash", {"command": "tail -1 a.md"}, "three"),
        ("Bash", {"command": "wc a.md"}, "3 4 19 a.md"),
        ("Bash", {"command": "stat a.md"}, "a.md: 19 bytes, 3 lines"),
        ("Bash", {"command": "cat -n team/b.md"}, "     1\tPnpm rules\n     2\t"),
        ("Glob", {"pattern": "**/*.md", "path": "/srv/memory/team"}, "team/b.md"),
        ("Grep", {"pattern": "pnpm"}, "a.md\nteam/b.md"),
        ("Grep", {"pattern": "one|rul.*s", "output_mode": "content"}, "a.md:1:one\nteam/b.md:1:Pnpm rules"),
        ("Read", {"file_path": "a.md", "offset": 2, "limit": 1}, "two pnpm"),
    ],
)
def test_reads_are_answered_from_the_texts(tool: str, arguments: dict[str, Any], answer: str) -> None:
    """MEM-6: in this process, without a shell."""
    assert PERMIT.denial(tool, arguments) is None
    assert answer_read(tool, arguments, TEXTS, PERMIT) == (answer, False)


def test_reads_of_what_isnt_there() -> None:
    assert answer_read("Read", {"file_path": "zz.md"}, TEXTS, PERMIT)[1]
    assert answer_read("Bash", {"command": "cat zz.md"}, TEXTS, PERMIT)[1]


def test_the_line_of_a_memory_that_changed_is_replaced() -> None:
    """MEM-2: no stale line stays, and every writer begins and writes an index the same way."""
    old = topic("t/x.md", memory_text(name="Tabs", description="use tabs", type="feedback", body="b"))
    new = topic("t/x.md", memory_text(name="Blanks", description="use blanks", type="feedback", body="b"))
    index = with_line("# Mine\n\n- [Other](y.md)\n\nA note.\n", "x.md", old)
    assert index == "# Mine\n\n- [Other](y.md)\n\nA note.\n\n- [Tabs](x.md) — use tabs\n"
    assert with_line(index, "x.md", new) == index.replace("[Tabs](x.md) — use tabs", "[Blanks](x.md) — use blanks")
    assert with_line("", "x.md", new) == "- [Blanks](x.md) — use blanks\n"


def test_a_new_index_is_its_lines_whoever_writes_it() -> None:
    """MEM-2: putting a directory in order writes the same index as saving its only memory does."""
    text = memory_text(name="Tabs", description="use tabs", type="feedback", body="b")
    plan = plan_consolidation({"x.md": DatedMemory(name="x.md", text=text, at=0.0)}, IndexLimits())
    assert plan.texts["MEMORY.md"] == with_line("", "x.md", topic("x.md", text)) == "- [Tabs](x.md) — use tabs\n"


def test_a_memory_and_its_line() -> None:
    """MEM-2, MEM-3: whatever a title holds, it is read back."""
    for name in ("Use pnpm", 'A: "quoted" [x] # y', "- dash", "数据库", "'"):
        text = memory_text(name=name, description="d", type="user", body="Body of it here\n")
        found = topic("user_x.md", text)
        assert (found.name, found.type, found.problems) == (name, "user", ())
        assert with_line(with_line("# Memory\n", found.file, found), found.file, found).count("(user_x.md)") == 1
    found = topic("t/x.md", memory_text(name="N", description="about", type="user", body="b"))
    assert index_line("t/x.md", found) == "- [N](t/x.md) — about"
    assert is_known("Use the pnpm tool", topic("a.md", "We use the pnpm tool here.\n"))
