"""RCL-1, SES-2, REL-12: searching sessions, and an index that may be lost at any time."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure.adapters.journal import SessionStore, search, short_ids
from perdure.adapters.journal import search as searching
from perdure.adapters.journal.search import INDEX, StoreArchive
from perdure.engine.tools import original, recall_tool
from perdure.errors import SessionNotFound
from perdure.ports.session import SearchResults
from perdure.transcript.messages import Message, MessageId
from perdure.wiring import create_session, memory_session, open_session

pytestmark = pytest.mark.unit


def say(home: Path, session: str, *texts: str, project: str = "/p", at: float = 1.0) -> None:
    async def body() -> None:
        exists = any(d.name == session for d in SessionStore(home).directories())
        opened = await (
            open_session(home, session) if exists else create_session(home, project=project, session=session)
        )
        for text in texts:
            await opened.append(Message.of("user", text, at=at))
        await opened.ports.journal.close()

    anyio.run(body)


def find(archive: StoreArchive, query: str, **more: Any) -> SearchResults:
    async def body() -> SearchResults:
        return await archive.search(query, **more)

    return anyio.run(body)


def texts(found: SearchResults) -> list[str]:
    return [hit.snippet for hit in found.hits]


@pytest.fixture(params=[True, False], ids=["index", "scan"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> StoreArchive:
    return StoreArchive(tmp_path, has_index=request.param)


@pytest.mark.parametrize(
    "query",
    ["snake_case_name", "snake", "case_name", "src/pkg/mod.py", "mod.py", "mod", "a.dotted.name", "dotted",
     "parseHTTPResponse", "HTTP", "response", "漢字", "字", "errors", "error", "Größe", "große"],
)  # fmt: skip
def test_names_are_found_by_parts_and_whole(archive: StoreArchive, query: str) -> None:
    say(archive.home, "s1", "snake_case_name in src/pkg/mod.py and a.dotted.name", "parseHTTPResponse", "漢字を読む")
    say(archive.home, "s2", "many errors here", "Die Größe zählt", "something else")
    assert len(find(archive, query).hits) == 1


def test_an_index_finds_what_is_inside_a_word(tmp_path: Path) -> None:
    say(tmp_path, "s1", "commit 9f3b092ac fixed it", "other")
    assert texts(find(StoreArchive(tmp_path), "b092")) == ["commit 9f3b092ac fixed it"]


def test_a_hit_names_its_place(archive: StoreArchive) -> None:
    say(archive.home, "s1", "first", "second\nneedle here")
    (hit,) = find(archive, "needle").hits
    assert (hit.session, hit.role, hit.line, hit.offset, hit.at) == ("s1", "user", 2, 7, 1.0)
    journal = (SessionStore(archive.home).directory("s1", project="/p") / "journal.jsonl").read_bytes()
    assert journal[hit.journal_offset :].startswith(b'{"seq":2,') and hit.message.encode() in journal
    assert hit.id == hit.message and hit.project == "/p"


def test_equal_texts_are_one_result_with_all_their_places(archive: StoreArchive) -> None:
    say(archive.home, "s1", "the very same", at=1.0)
    say(archive.home, "s2", "the very same", at=2.0)
    (hit,) = find(archive, "very same").hits
    assert hit.session == "s2" and [place[0] for place in hit.also] == ["s1"]


def test_the_newest_of_equals_is_first(archive: StoreArchive) -> None:
    for number, at in ((1, 5.0), (2, 9.0), (3, 7.0)):
        say(archive.home, f"s{number}", f"needle number{number}", at=at)
    assert [hit.session for hit in find(archive, "needle").hits] == ["s2", "s3", "s1"]


def test_projects_and_sessions_narrow(archive: StoreArchive) -> None:
    say(archive.home, "s1", "needle one", project="/p")
    say(archive.home, "s2", "needle two", project="/q")
    here = StoreArchive(archive.home, "/p", has_index=archive.has_index)
    assert texts(find(here, "needle")) == ["needle one"]
    assert len(find(archive, "needle").hits) == 2
    assert texts(find(archive, "needle", sessions=("s2",))) == ["needle two"]
    for name in ("s2", "../q/s2", "nobody"):
        with pytest.raises(SessionNotFound):
            find(here, "needle", sessions=(name,))


def test_only_what_was_said_since_is_found(archive: StoreArchive) -> None:
    """CLI-6: with and without an index; a text that was said again has only its later places, and none has no time."""
    say(archive.home, "s1", "the parser fails", "a parser again", at=100.0)
    say(archive.home, "s2", "the parser fails", at=200.0)
    assert len(find(archive, "parser").hits) == 2
    (hit,) = find(archive, "parser", since=150.0).hits
    assert (hit.session, hit.snippet, hit.also) == ("s2", "the parser fails", ())
    assert not find(archive, "parser", since=201.0).hits
    assert not find(archive, "parser", sessions=("s1",), since=150.0).hits
    assert len(find(archive, "parser", since=100.0).hits) == 2


def test_a_session_is_named_by_the_part_of_its_id_that_listings_show(archive: StoreArchive) -> None:
    """CLI-6, SES-2: recall takes what `search` and `sessions` print, not only the beginning of an id."""
    say(archive.home, "session-06abc123", "needle one")
    say(archive.home, "session-06abd456", "needle two")
    short = short_ids(["session-06abc123", "session-06abd456"])["session-06abd456"]
    assert not "session-06abd456".startswith(short)
    assert texts(find(archive, "needle", sessions=(short,))) == ["needle two"]
    with pytest.raises(SessionNotFound, match="names 2 sessions"):
        find(archive, "needle", sessions=("06ab",))


def test_what_is_new_is_found_and_only_that_is_read(tmp_path: Path) -> None:
    archive = StoreArchive(tmp_path)
    say(tmp_path, "s1", "one needle")
    assert len(find(archive, "needle").hits) == 1
    say(tmp_path, "s1", "another needle")
    journal = SessionStore(tmp_path).directory("s1", project="/p") / "journal.jsonl"
    with search.open_search_index(tmp_path / INDEX) as opened:
        assert opened.refresh([journal], forget_others=False) == 1
        assert opened.refresh([journal], forget_others=False) == 0
    assert len(find(archive, "needle").hits) == 2


@pytest.mark.parametrize("damage", ["lost", "garbage", "cut", "old", "overwritten"])
def test_a_lost_or_damaged_index_loses_nothing(tmp_path: Path, damage: str) -> None:
    """REL-12."""
    archive, path = StoreArchive(tmp_path), tmp_path / INDEX
    say(tmp_path, "s1", *(f"needle {number} {'filler ' * number}" for number in range(200)))
    before = find(archive, "needle 7")
    if damage == "lost":
        path.unlink()
    elif damage == "garbage":
        path.write_bytes(b"garbage" * 1000)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "overwritten":
        data = bytearray(path.read_bytes())
        data[4096:] = b"\xff" * (len(data) - 4096)
        path.write_bytes(data)
    else:
        with sqlite3.connect(path) as db:
            db.execute("UPDATE meta SET version = 0")
        db.close()
    after = find(archive, "needle 7")
    assert after == before and after.note == ""


def test_a_session_that_is_gone_or_replaced_is_forgotten(tmp_path: Path) -> None:
    archive = StoreArchive(tmp_path)
    say(tmp_path, "s1", "a secretword here")
    say(tmp_path, "s2", "another")
    assert len(find(archive, "secretword").hits) == 1
    SessionStore(tmp_path).delete("s1")
    assert find(archive, "secretword").hits == ()
    assert b"secretword" not in (tmp_path / INDEX).read_bytes()
    SessionStore(tmp_path).delete("s2")
    say(tmp_path, "s2", "a new one")
    assert find(archive, "another").hits == () and len(find(archive, "new").hits) == 1


def test_without_fts5_or_room_everything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say(tmp_path, "s1", "needle")
    monkeypatch.setattr(search, "_TABLES", search._TABLES.replace("fts5", "fts99"))
    found = find(StoreArchive(tmp_path), "needle")
    assert texts(found) == ["needle"] and "FTS5" in found.note


def test_an_index_that_somebody_holds_is_gone_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say(tmp_path, "s1", "needle")
    find(StoreArchive(tmp_path), "needle")
    say(tmp_path, "s1", "needle two")
    monkeypatch.setattr(search, "BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(tmp_path / INDEX, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    found = find(StoreArchive(tmp_path), "needle")
    holder.close()
    assert len(found.hits) == 2 and "locked" in found.note
    assert (tmp_path / INDEX).exists()


@pytest.mark.parametrize("has_index", [True, False])
def test_a_session_that_cannot_be_read_is_said(tmp_path: Path, has_index: bool) -> None:
    """SES-2: what was passed over may hold what is looked for, so a search names it, every time."""
    say(tmp_path, "s1", "needle")
    say(tmp_path, "s2", "needle too")
    (SessionStore(tmp_path).locate("s2") / "journal.jsonl").write_bytes(b"no journal\n")
    for _ in range(2):
        found = find(StoreArchive(tmp_path, has_index=has_index), "needle")
        assert texts(found) == ["needle"] and "1 session could not be read" in found.note


def test_the_index_is_private(tmp_path: Path) -> None:
    say(tmp_path, "s1", "needle")
    find(StoreArchive(tmp_path), "needle")
    assert stat.S_IMODE((tmp_path / INDEX).stat().st_mode) == 0o600
    with sqlite3.connect(tmp_path / INDEX) as db:
        wal = sqlite3.sqlite_version_info >= (3, 51, 3)
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == ("wal" if wal else "delete")
    db.close()


def test_what_the_recall_tool_gave_back_comes_last(archive: StoreArchive) -> None:
    async def body() -> None:
        session = await create_session(archive.home, project="/p", session="s1")
        await session.append(Message.of("user", "the needle was said here by a person, with more words around", at=1.0))
        use = {"type": "tool_use", "id": "r", "name": "recall", "input": {"query": "hay"}}
        await session.append(Message.of("assistant", [use], at=2.0))
        echo = {"type": "tool_result", "tool_use_id": "r", "content": "needle needle"}
        await session.append(Message.of("user", [echo], at=3.0))
        await session.ports.journal.close()

    anyio.run(body)
    assert [hit.role for hit in find(archive, "needle").hits] == ["user", "tool"]


def test_queries_are_never_a_syntax_error(archive: StoreArchive) -> None:
    say(archive.home, "s1", "needle AND other NEAR thing")
    for query in ('"', "AND", "NEAR(", "a OR", "text:", "*", "^a", "-", "{}", "needle*", 'x" OR "y', "\0", "(", "+"):
        found = find(archive, query)
        assert "error" not in found.note, query
    assert searching.terms_of("needle*")[0].words == ("needle",)


def test_the_tool_answers_in_text(tmp_path: Path) -> None:
    """RCL-1: ids of this session and of others, searches, and every mistake a model can make."""
    say(tmp_path, "other", "an old secret plan")

    async def body() -> None:
        session = await create_session(tmp_path, project="/p", session="now")
        await session.append(Message.of("user", "our plan", id=MessageId("message-x"), at=5.0))
        run = recall_tool.run
        assert "our plan" in await run(session, {"id": "message-x"})
        found = await run(session, {"query": "secret plan", "limit": 50})
        assert "session other" in found and found.index("other") < found.index("now")
        identity = found.split('id "')[1].split('"')[0]
        assert "an old secret plan" in await run(session, {"id": identity, "session": "other"})
        assert "an old secret plan" in await run(session, {"query": "plan", "session": "other"})
        assert (await run(session, {"id": "message-x", "lines": 1})).endswith("our plan")
        known: dict[str, Any] = {"id": "message-x"}
        mistakes: list[dict[str, Any]] = [
            *({}, {"id": "a", "query": "b"}, {"id": 1.5}, {"x": "y"}, {"id": "unknown"}, {**known, "lines": "z"}),
            *({"id": "x", "session": "../../etc"}, {"query": "a", "limit": "many"}, {**known, "lines": True}),
        ]
        for wrong in mistakes:
            assert (await run(session, wrong)).startswith("recall failed: "), wrong
        assert "our plan" in await run(session, '{"id": "message-x"}')
        for broken in ("", "[", "[1]", "null", '{"id": ', "[" * 100_000, "\ud800"):
            assert (await run(session, broken)).startswith("recall failed: "), broken[:9]
        assert "Nothing that was said fits" in await run(session, {"query": "zebra"})
        await session.ports.journal.close()

    anyio.run(body)


def test_the_definition_is_one_that_apis_take() -> None:
    definition = recall_tool.definition
    assert definition["name"] == "recall" and definition["input_schema"]["type"] == "object"
    assert len(definition["description"]) > 200


def test_a_session_in_memory_can_be_searched_and_recalled() -> None:
    async def body() -> None:
        session = await memory_session()
        await session.append(Message.of("user", "needle", id=MessageId("message-1")))
        assert 'id "message-1"' in await recall_tool.run(session, {"query": "needle"})
        assert (await original(session, "message-1")).text == "needle"
        assert "recall failed" in await recall_tool.run(session, {"query": "needle", "session": "elsewhere"})

    anyio.run(body)


# --- questions in words (MEM-15)


def talk(home: Path, session: str, *said: str, at: float = 1.0) -> None:
    """A conversation of a user and an assistant."""

    async def body() -> None:
        opened = await create_session(home, project="/p", session=session)
        for number, text in enumerate(said):
            await opened.append(Message.of(("user", "assistant")[number % 2], text, at=at + number))
        await opened.ports.journal.close()

    anyio.run(body)


PAGES = "Here is how to go about the deadline of a sprint, its review and the release that ends it. " * 40


def test_what_the_user_said_in_a_line_answers_before_pages_that_hold_its_words(archive: StoreArchive) -> None:
    talk(archive.home, "s1", "What is a sprint?", PAGES, "Plan the release of June.", PAGES)
    talk(archive.home, "s2", "My sprint review is on Tuesday, help me.", PAGES, "And the tests?", PAGES)
    assert texts(find(archive, "When is the review of my sprint?"))[0].startswith("My sprint review is on Tuesday")


def test_a_question_in_quotes_and_one_without_blanks_are_questions(archive: StoreArchive) -> None:
    talk(archive.home, "s1", "I like jazz from the forties.", "Noted.", "我最喜欢在公园里跑步。", "好的。")
    assert texts(find(archive, '"What kind of jazz do I like?"'))[0].startswith("I like jazz")
    assert texts(find(archive, "你记得我喜欢在哪里跑步吗？"))[0] == "我最喜欢在公园里跑步。"


def test_an_answer_is_found_by_what_was_asked_before_it(archive: StoreArchive) -> None:
    talk(archive.home, "s1", "What did you paint?", "A sunset.", "Nice.", "Thanks.")
    talk(archive.home, "s2", "Shall we go?", "Yes.", "Where to?", "The lake.")
    assert "A sunset." in texts(find(archive, "What did Ann paint?"))[:2]


def test_of_a_value_that_changed_the_newest_stands_first(archive: StoreArchive) -> None:
    talk(
        archive.home, "s1", "The quota of the weather key is 1000 calls a day, a quota for each key.", "Right.", at=1.0
    )
    talk(archive.home, "s2", "They increased the quota of the key to 1200 calls.", "Good.", at=900_000.0)
    assert texts(find(archive, "What is the quota of calls for the weather key?"))[0].startswith("They increased")
    before = texts(find(archive, "What was the quota of calls for the weather key before?"))
    assert before[0].startswith("The quota of the weather key is 1000")


def test_words_in_a_list_are_looked_for_as_they_stand(archive: StoreArchive) -> None:
    talk(archive.home, "s1", "the pool", "connection pool timeout after 30 s " + "and so on " * 300, "a pool", "no")
    assert texts(find(archive, "connection pool timeout"))[0].startswith("connection pool timeout")


def test_a_time_that_no_calendar_has_keeps_nothing_from_being_found(archive: StoreArchive) -> None:
    """REL-15: a log may claim any."""
    say(archive.home, "s1", "the parser fails in the lexer", at=1e20)
    say(archive.home, "s2", "the lexer is slow", at=2.0)
    assert find(archive, "why does the parser fail in the lexer?").hits[0].session == "s1"


def test_an_index_with_a_damaged_card_is_made_anew(tmp_path: Path) -> None:
    """MEM-15, REL-15."""
    archive = StoreArchive(tmp_path, "/p")
    say(tmp_path, "s1", "the parser fails in the lexer")
    assert find(archive, "parser").hits
    with closing(sqlite3.connect(tmp_path / "index.db")) as index:
        index.execute("UPDATE sessions SET card = x'c1'")
        index.commit()
    found = anyio.run(archive.sessions, "why does the parser fail")
    assert [one.session for one in found.sessions] == ["s1"] and not found.note
