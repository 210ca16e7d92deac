"""The probe of QLT-1, axis by axis: a conversation that counts, and one that doesn't."""

from __future__ import annotations

import pytest
from tests.unit.bench.talk import calls, gold, says, shows, user

from perdure.lab.bench.probe import FAR_TOKENS, HORIZON_TOKENS, Gold, names_in
from perdure.lab.bench.scores import AXES, KeptCount, score
from perdure.transcript.messages import Message

pytestmark = pytest.mark.unit

FILLER = "some plain words that name nothing at all\n"


def names(text: str) -> set[str]:
    return {f"{name.kind} {name.key}" for name in names_in(text)}


def needed(before: list[Message], after: list[Message]) -> set[str]:
    return {fact.name.key for fact in gold(before, after).facts}


def percent(found: Gold, view: str, axis: str) -> float | None:
    return score(found, view).tallies[axis].percent


# --- what is a fact


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see /home/me/app/src/main.py", {"path src/main.py", "file main.py"}),
        ("see src/main.py:120 there", {"path src/main.py", "file main.py"}),
        (r"see D:\work\app\src\main.py", {"path src/main.py", "file main.py"}),
        (r"see D:\\work\\app\\src\\main.py", {"path src/main.py", "file main.py"}),
        (r"see src\app\main.py", {"path app/main.py", "file main.py"}),
        ("open main.py.", {"file main.py"}),
        ("call parse_row(x)", {"name parse_row"}),
        ("call parseRow(x) and HTTPServer", {"name parseRow", "name HTTPServer"}),
        ("with utf8_bom and sha256", {"name utf8_bom", "name sha256"}),
        ("a dead-letter queue", {"kebab dead-letter"}),
        ("pass --dry-run=yes", {"flag --dry-run"}),
        ("at https://example.com/a/b?c=1.", {"url https://example.com/a/b?c=1"}),
        ("commit 9f3c2ab7d1e0", {"hash 9f3c2ab"}),
        ("commit 9f3c2ab", {"hash 9f3c2ab"}),
        ("it took 1,234 or 98.75 and 4711", {"number 1234", "number 98.75", "number 4711"}),
    ],
)
def test_what_counts_as_a_fact(text: str, found: set[str]) -> None:
    """QLT-1: paths by their last two parts, files, identifiers, kebab words, flags, URLs, hashes, numbers."""
    assert names(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "plain words, read/write and/or nothing",
        "12 of 34, 1.5",
        "a-z, p-3, x-1",
        "limit 100, 200, 120000 in 2024",
        "console.log and /dev/null",
        r"'one\ntwo\tthree'",
        "/home/REDACTED/x",
        "x" * 500 + "_y",
        "self.total = other.value",
    ],
)
def test_what_does_not(text: str) -> None:
    """Prose, small and round numbers, escapes, what was redacted and data are no facts."""
    assert names(text) == set()


# --- facts


def test_a_fact_is_needed_when_the_agent_brings_it_up_unprompted() -> None:
    before = [user("look"), shows("def parse_row(x):\ndef other_name(x):")]
    assert needed(before, [says("I change parse_row now")]) == {"parse_row"}
    assert needed(before, [calls("Bash", command="grep parse_row")]) == {"parse_row"}


def test_a_fact_is_not_needed_when_it_was_shown_again_or_is_new() -> None:
    before = [user("look"), shows("def parse_row(x):")]
    assert needed(before, [user("what of parse_row?"), says("parse_row is fine")]) == set()
    assert needed(before, [shows("def parse_row(x):"), says("parse_row is fine")]) == set()
    assert needed(before, [says("brand_new is fine")]) == set()
    assert needed([user("nothing")], [says("parse_row is fine")]) == set()


def test_a_fact_needed_beyond_the_horizon_does_not_count() -> None:
    before = [user("look"), shows("def parse_row(x):")]
    much = FILLER * (HORIZON_TOKENS * 4 // len(FILLER) + 1)
    assert needed(before, [shows(much), says("parse_row")]) == set()
    assert needed(before, [shows(much[: len(much) // 2]), says("parse_row")]) == {"parse_row"}


def test_a_fact_knows_where_it_was_seen_and_needed() -> None:
    before = [user("parse_row first"), says("parse_row again"), shows("nothing")]
    (fact,) = gold(before, [shows("still nothing"), says("parse_row")]).facts
    assert (fact.seen_line, fact.needed_line) == (2, 5)


def test_far_facts_were_last_seen_ten_thousand_tokens_ago() -> None:
    much = FILLER * (FAR_TOKENS * 4 // len(FILLER) + 1)
    far = gold([shows("near_one far_one"), shows(much), says("near_one")], [says("near_one far_one")])
    assert {fact.name.key for fact in far.facts if fact.is_far} == {"far_one"}
    assert score(far, "near_one").tallies["far"] == KeptCount(0, 1)
    assert score(far, "far_one").tallies["far"] == KeptCount(1, 1)


def test_a_fact_survives_when_the_same_eyes_find_it() -> None:
    found = gold([shows("def parse_row(x):")], [says("parse_row")])
    assert percent(found, "... parse_row ...", "facts") == 100
    assert percent(found, "... parse_rows ...", "facts") == 0
    assert percent(found, r'{"text": "a\nparse_row"}', "facts") == 100, "JSON escapes are undone"


def test_a_windows_path_survives_in_either_spelling() -> None:
    found = gold([shows(r"D:\app\src\main.py")], [calls("Read", file_path="D:\\app\\src\\main.py")])
    assert percent(found, "src/main.py", "facts") == 100


def test_in_context_needs_the_words_it_stood_among() -> None:
    before = [shows("the retry budget of parse_row depends on upstream latency and jitter")]
    found = gold(before, [says("parse_row")])
    assert percent(found, "names: parse_row, other_name", "context") == 0
    assert percent(found, "parse_row: retry budget depends on upstream latency", "context") == 100
    assert percent(found, "retry budget depends on upstream latency", "context") == 0, "the fact itself is missing"


def test_without_words_around_it_a_fact_is_not_asked_in_context() -> None:
    found = gold([shows("parse_row")], [says("parse_row")])
    assert percent(found, "parse_row", "context") is None


# --- lines and anchors

LINE = "    total = sum(row.amount for row in rows)"


@pytest.mark.parametrize("shown", [LINE, f"  12\N{RIGHTWARDS ARROW}{LINE}", f"src/a.py:12:{LINE}", f"+{LINE}"])
def test_lines_written_again_without_reading_them(shown: str) -> None:
    found = gold([shows(shown)], [calls("Write", file_path="a.py", content=f"x\n{LINE}\n")])
    assert found.lines == (LINE.strip(),)
    assert percent(found, f"12: {LINE}", "line") == 100
    assert percent(found, "total = sum(row.amount)", "line") == 0


def test_lines_that_do_not_count() -> None:
    write = calls("Write", file_path="a.py", content=LINE)
    assert gold([shows(LINE)], [shows(f"  12\N{RIGHTWARDS ARROW}{LINE}", "Read"), write]).lines == ()
    assert gold([shows("nothing")], [write]).lines == ()
    assert gold([shows("return total")], [calls("Write", file_path="a.py", content="return total")]).lines == ()
    assert gold([shows("-" * 40)], [says("-" * 40)]).lines == (), "a ruler is no memory"
    path = "/a/very/long/folder/of/the/project/main.py"
    assert gold([shows(path)], [calls("Read", file_path=path)]).lines == ()


def test_anchors_are_the_old_texts_of_edits() -> None:
    edit = calls("Edit", file_path="a.py", old_string=LINE, new_string=LINE + "  # net of taxes")
    found = gold([shows(LINE)], [edit])
    assert (found.anchors, found.lines) == ((LINE.strip(),), ())
    assert percent(found, LINE, "anchor") == 100
    patch = f"*** Begin Patch\n*** Update File: a.py\n@@\n-{LINE}\n+    total = 0\n*** End Patch"
    assert gold([shows(LINE)], [calls("apply_patch", input=patch)]).anchors == (LINE.strip(),)
    assert gold([shows(LINE)], [shows(LINE, "Read"), edit]).anchors == ()


# --- what was done


def test_commands_run_again() -> None:
    before = [calls("Bash", command="cd /work && make  check\nmore"), shows("ok"), calls("Bash", command="ls -la src")]
    found = gold(before, [calls("Bash", command="make check")])
    assert found.commands == ("make check",)
    assert percent(found, "ran `make check` (ok)", "commands") == 100
    assert percent(found, "ran the checks", "commands") == 0
    assert gold(before, [user("please run make check"), calls("Bash", command="make check")]).commands == ()
    assert gold(before, [calls("Bash", command="make other")]).commands == ()


def test_edited_files_are_named() -> None:
    before = [
        calls("Edit", file_path="/repo/app/src/main.py", old_string="a", new_string="b"),
        shows("done", "Edit"),
        calls("Write", file_path="/repo/app/notes.md", content="x"),
        shows("no such folder", "Write", is_error=True),
        calls("Read", file_path="/repo/app/src/other.py"),
    ]
    found = gold(before, [])
    assert [one.name for one in found.edited] == ["src/main.py"]
    assert percent(found, "changed main.py", "edited") == 100
    assert percent(found, "changed domain.py", "edited") == 0


def test_a_file_whose_name_is_not_alone_needs_its_folder() -> None:
    before = [calls("Edit", file_path="/w/a/index.ts", old_string="a", new_string="b"), shows("/w/b/index.ts", "Edit")]
    found = gold(before, [])
    assert percent(found, "index.ts", "edited") == 0
    assert percent(found, "a/index.ts", "edited") == 100


def test_user_messages_are_kept_to_nine_tenths() -> None:
    words = " ".join(f"word{number:02}" for number in range(80))
    found = gold([user(words), says("yes")], [])
    assert percent(found, f"> {words}", "user") == 100
    most = " ".join(words.split()[:72])
    assert percent(found, most, "user") == 100
    half = " ".join(words.split()[:40])
    assert percent(found, half, "user") == 0
    assert 45 < (percent(found, half, "words") or 0) < 55
    assert gold([user("<command-name>/exit</command-name>"), shows("x")], []).users == ()


def test_the_first_and_the_last_user_message_are_there() -> None:
    found = gold([user("do the first thing"), says("ok"), user("do the last thing")], [])
    view = score(found, "asked: do the first thing").tallies
    assert (view["first"].percent, view["last"].percent) == (100, 0)


@pytest.mark.parametrize(
    ("output", "test"),
    [
        ("    --- FAIL: TestRow/empty (0.00s)", "TestRow/empty"),
        ("FAILED tests/test_a.py::test_row - assert 1", "tests/test_a.py::test_row"),
        ("tests/test_a.py::test_row FAILED [ 10%]", "tests/test_a.py::test_row"),
        ("test rows::empty ... FAILED", "rows::empty"),
        ("FAIL: test_row (tests.A)", "test_row"),
        ("  ● table › keeps rows", "table › keeps rows"),
        ("  ✕ keeps rows (3 ms)", "keeps rows"),
        ("(fail) table > keeps rows [1.00ms]", "table > keeps rows"),
        ("not ok 3 - keeps rows", "keeps rows"),
    ],
)
def test_failing_tests_are_named(output: str, test: str) -> None:
    found = gold([calls("Bash", command="make test"), shows(output)], [])
    assert found.failing == (test,)
    assert percent(found, f"still failing: {test}", "failing") == 100
    assert percent(found, "some tests fail", "failing") == 0
    assert gold([calls("Read", file_path="log"), shows(output, "Read")], []).failing == (), "only output of commands"


@pytest.mark.parametrize(
    "line",
    [
        "NameError: name 'rows' is not defined",
        "src/app.py:12: error: Incompatible types in assignment",
        "error: failed to push some refs",
        "bash: frobnicate: command not found",
        "E   AssertionError: 3 != 4",
        "[ERROR] could not resolve dependencies: app",
    ],
)
def test_error_lines_that_come_again(line: str) -> None:
    """QLT-7: seen in two results before the cut, or once and again behind it."""
    once = [calls("Bash", command="make"), shows(f"building\n{line}\ndone")]
    flat = " ".join(line.split())
    found = gold([*once, *once], [])
    assert found.errors == (flat,)
    assert percent(found, f"- {flat} (2x)", "errors") == 100
    assert percent(found, "it failed", "errors") == 0
    assert gold(once, [shows(line)]).errors == (flat,), "a tool shows it again"
    assert gold(once, [says(f"Still this:\n{line}")]).errors == (flat,), "the agent does"
    assert gold(once, [says("Now for something else.")]).errors == ()


def test_error_lines_that_dont_count() -> None:
    for text in ("FAILED tests/test_a.py::test_rows - assert 3 == 4", "src/app.py:12:    raise ValueError('error: x')"):
        once = [calls("Bash", command="make"), shows(text)]
        assert gold([*once, *once], []).errors == (), "a failing test has an axis of its own; a search shows programs"
    read = [calls("Read", file_path="log"), shows("error: failed to push some refs", "Read")]
    assert gold([*read, *read], []).errors == (), "only what commands say, and calls that failed"


def test_open_todos_are_named() -> None:
    todos = [{"content": "Write the parser", "status": "pending"}, {"content": "Read the spec", "status": "completed"}]
    found = gold([calls("TodoWrite", todos=[]), calls("TodoWrite", todos=todos)], [])
    assert found.todos == ("Write the parser",)
    assert percent(found, "open: Write the parser", "todos") == 100
    tasks = [calls("TaskCreate", subject="Fix rows"), shows("Task #1 created", "TaskCreate")]
    assert gold(tasks, []).todos == ("Fix rows",)
    assert gold([*tasks, calls("TaskUpdate", taskId="1", status="completed")], []).todos == ()


def test_every_axis_is_scored() -> None:
    assert set(score(Gold(), "").tallies) == set(AXES)
