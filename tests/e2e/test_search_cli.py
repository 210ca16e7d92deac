"""CLI-6, RCL-1: `perdure search --all`, whatever is asked for, for people at terminals and for programs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import pytest
from tests.commands import Done, command, command_at_terminal
from tests.terminals import environment

from perdure.recall.queries import MAX_WORDS
from perdure.transcript.messages import Message
from perdure.wiring import create_session

pytestmark = pytest.mark.e2e

LONG = "the needle is at the end of a line that no terminal has room for, " * 3
PAGE = " ".join(f"step{n} done" for n in range(3_000))
SAID = (
    "漢字を読む日本語のテキスト",
    "party 🎉 at noon",
    'quoted "needle text" here',
    "x AND y NOT z",
    LONG,
    "a\x1b[31mb red",
    PAGE,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two projects that have a session of the same name."""
    place = tmp_path_factory.mktemp("search")
    (place / "p").mkdir()

    async def body() -> None:
        for project, texts in (("/x/a-b", SAID), ("/x/a/b", ("needle elsewhere",))):
            one = await create_session(place / ".perdure", project=project, session="same")
            for text in texts:
                await one.append(Message.of("user", text, at=1.0))
            await one.ports.journal.close()
        walrus = await create_session(place / ".perdure", project="/x/w", session="walrus")
        await walrus.append(Message.of("user", "the walrus closes each connection of the gateway", at=1.0))
        for n in range(9):
            given = {"file_path": f"/x/w/src/gateway/handler{n}.py", "content": "x = 1\n"}
            call = {"type": "tool_use", "id": f"t{n}", "name": "Write", "input": given}
            await walrus.append(Message.of("assistant", [call], at=2.0 + n))
            result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "File created"}
            await walrus.append(Message.of("user", [result], at=2.5 + n))
        await walrus.ports.journal.close()

    anyio.run(body)
    return place


def search(place: Path, *words: str) -> Done:
    return command("search", "--all", "--places", "--json", "--", *words, cwd=place / "p", env=environment(place))


def found(place: Path, *words: str) -> list[str]:
    done = search(place, *words)
    assert done.returncode == 0 and done.stderr == "", words
    return [json.loads(line)["snippet"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("query", ["", "  ", "!!!", '"', "🎉", "()", "*", "\n"])
def test_a_query_without_words_is_refused_in_a_line(place: Path, query: str) -> None:
    """CLI-5: rather than finding nothing, and with advice that wouldn't help."""
    done = search(place, query)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "give at least one letter or digit" in done.stderr


@pytest.mark.parametrize(
    ("query", "snippet"),
    [
        ("漢字", SAID[0]), ("本語", SAID[0]), ("🎉 party", SAID[1]),
        ('"needle text"', SAID[2]), ('"needle text', SAID[2]),
        ("NOT z", SAID[3]), ("NEAR(x, y)", SAID[3]), ("text:quoted", SAID[2]), ("quot*", SAID[2]), ("^quoted", SAID[2]),
        ("-quoted", SAID[2]), ("{quoted}", SAID[2]), ("quoted\udc80", SAID[2]), ("quoted\0", SAID[2]),
    ],
)  # fmt: skip
def test_what_means_something_to_an_index_are_words_here(place: Path, query: str, snippet: str) -> None:
    """RCL-1: neither an error of the index nor another meaning."""
    assert found(place, query)[0] == snippet
    assert found(place, *query.split(" "))[0] == snippet


@pytest.mark.parametrize("query", ["w" * 10_240, " ".join(f"w{n}" for n in range(2_000)), "'; DROP TABLE said; --"])
def test_what_was_never_said_is_not_found(place: Path, query: str) -> None:
    """RCL-1, CLI-6: and nothing breaks by the looking."""
    assert found(place, query) == []
    assert found(place, f'"{query}"') == [] and found(place, "quoted")


def test_a_page_that_is_pasted_is_found_by_its_beginning(place: Path) -> None:
    """RCL-1: a phrase of thousands of words took minutes; its first ones say enough."""
    began = time.process_time()
    (snippet,) = found(place, f'"{PAGE}"')
    assert snippet.startswith("step0 done step1")
    assert time.process_time() - began < 10 and MAX_WORDS < 100


def test_a_result_has_its_own_project_and_stays_within_the_terminal(place: Path) -> None:
    """CLI-6, CLI-1: sessions of one name are told apart; long lines are wrapped, and nothing moves the cursor."""
    env = environment(place, COLUMNS="72", NO_COLOR="1")
    done = command_at_terminal("search", "--all", "--places", "needle", cwd=place / "p", env=env)
    lines = done.stdout.replace("\r", "").splitlines()
    assert done.returncode == 0 and max(map(len, lines)) <= 72 and "\x1b" not in done.stdout
    assert any(line == "   needle elsewhere, /x/a/b" for line in lines), lines
    wrapped = [line for line in lines if line.startswith("   | ")]
    assert " ".join(line.removeprefix("   | ") for line in wrapped).count(LONG.strip()[:60]) == 3
    piped = command("search", "--all", "--places", "needle", cwd=place / "p", env=env)
    assert any(len(line) > 72 for line in piped.stdout.splitlines()), "a line stays one for programs"
    assert "\x1b" not in command("search", "--all", "--places", "red", cwd=place / "p", env=env).stdout


def test_sessions_that_matter_stay_within_the_terminal(place: Path) -> None:
    """CLI-6: the lines of what was said and of the files that were touched are wrapped as well."""
    env = environment(place, COLUMNS="60", NO_COLOR="1")
    words = "walrus gateway connection " + " ".join(f"handler{n}" for n in range(9))
    done = command_at_terminal("search", "--all", words, cwd=place / "p", env=env)
    lines = done.stdout.replace("\r", "").splitlines()
    assert done.returncode == 0 and max(map(len, lines)) < 60, lines
    (begin,) = (number for number, line in enumerate(lines) if line.startswith("   touched "))
    further = [line for line in lines[begin + 1 :] if line.startswith("     ")]
    files = " ".join([lines[begin].removeprefix("   touched "), *map(str.strip, further)])
    assert further and "src/gateway/handler0.py" in files, lines
    piped = command("search", "--all", words, cwd=place / "p", env=env).stdout.splitlines()
    assert f"   touched {files}" in piped, "a line stays one for programs"


def test_sessions_and_places_are_either_or(place: Path) -> None:
    """CLI-6: the last one used to hold, without a word."""
    for order in (("--sessions", "--places"), ("--places", "--sessions")):
        done = command("search", *order, "needle", cwd=place / "p", env=environment(place))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "perdure: --sessions can't be combined with --places: give one of them\n"
