"""Commands on a store: `--store` and `--tenant`, or $PERDURE_STORE and $PERDURE_TENANT (CLI-3, CLI-5, CLI-6, SCL-1)."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.commands import Done, command
from tests.e2e.test_cli import messages

from perdure import Session, SharedStore
from perdure.adapters.journal.memory_home import MemoryHomes
from perdure.engine.reminders import RecallReminder
from perdure.engine.session import LiveSession
from perdure.transcript.messages import Message
from perdure.wiring import create_session
from perdure.wiring.stores import contents_of, store_at

if TYPE_CHECKING:
    from perdure.testing.postgres import PostgresServer

pytestmark = pytest.mark.e2e


@dataclass
class Place:
    """A store with a tenant of the test's own, and commands that look there."""

    url: str
    tenant: str
    folder: Path

    def run(self, *words: str, given: str | None = None, flags: bool = True, **env: str) -> Done:
        there = ["--store", self.url, "--tenant", self.tenant] if flags else []
        around = {"PERDURE_HOME": str(self.folder / "own"), "HOME": str(self.folder), "PATH": os.environ["PATH"], **env}
        done = command(*words, *there, cwd=self.folder, env=around, given=given)
        assert "Traceback" not in done.stdout + done.stderr
        return done

    def said(self, *words: str, **more: Any) -> str:
        done = self.run(*words, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def data(self, *words: str, **more: Any) -> list[Any]:
        return [json.loads(line) for line in self.said(*words, "--json", **more).splitlines()]

    def begin(
        self, session: str, *texts: str | Message, project: Path | None = None, tenant: str | None = None
    ) -> None:
        (project or self.folder).mkdir(parents=True, exist_ok=True)

        async def body() -> None:
            async with (
                SharedStore.at(self.url) as store,
                Session.create(
                    project or self.folder, home=store.home(self.tenant if tenant is None else tenant), id=session
                ) as one,
            ):
                await LiveSession.append(
                    one, *(text if isinstance(text, Message) else Message.of("user", text) for text in texts)
                )

        anyio.run(body)

    async def work(self, body: Callable[[Any], Any]) -> Any:
        store = store_at(self.url)
        try:
            return await body(store)
        finally:
            await store.close()


@pytest.fixture(params=("files", "postgres"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    (tmp_path / "work").mkdir()
    url = str(tmp_path / "store") if request.param == "files" else str(request.getfixturevalue("postgres"))
    return Place(url, f"tenant-{secrets.token_hex(4)}", tmp_path / "work")


@pytest.fixture
def database(postgres: str, tmp_path: Path) -> Place:
    (tmp_path / "work").mkdir()
    return Place(postgres, f"tenant-{secrets.token_hex(4)}", tmp_path / "work")


# --- listing and changing ---------------------------------------------------------------------------------------------


def test_sessions_are_listed_shown_and_changed(place: Place) -> None:
    """CLI-3, SES-1, ENG-5: list, show, rename, tag, fork and delete, by any name that a person has for a session."""
    place.begin("session-first", "Where is the walrus?")
    time.sleep(0.02)
    place.begin("session-second", "And the seal?", project=place.folder / "elsewhere")
    first, second = place.data("sessions")[::-1]
    assert (first["session"], first["last_prompt"], first["number"]) == ("session-first", "Where is the walrus?", 2)
    assert (second["number"], second["messages"]) == (1, 1)
    assert [one["session"] for one in place.data("sessions", "list", "--project", ".")] == ["session-first"]
    assert [one["session"] for one in place.data("sessions", "list", "--grep", "SEAL")] == ["session-second"]
    assert len(place.data("sessions", "--limit", "1")) == 1
    assert not place.data("sessions", "--since", "2099-01-01")
    table = place.said("sessions")
    assert "@1" in table and "@2" in table and first["short"] in table
    for name in ("@last", "@2", "session-first", "first", first["short"], "sion-fir"):
        (shown,) = place.data("sessions", "show", name)
        assert shown["session"] == "session-first", name
    assert "session-first" in place.said("sessions", "show", "@2")
    place.said("sessions", "rename", "@last", "The walrus hunt")
    assert place.data("sessions", "tag", "first", "animals")[0]["tags"] == ["animals"]
    (shown,) = place.data("sessions", "show", "first")
    assert (shown["title"], shown["tags"]) == ("The walrus hunt", ["animals"])
    (forked,) = place.data("sessions", "fork", "first", "--title", "Again")
    assert forked["forked_from"] == "session-first" and forked["title"] == "Again"
    assert len(place.data("sessions")) == 3
    kept = place.run("sessions", "delete", "second")
    assert kept.returncode == 2 and "--yes" in kept.stderr
    assert place.data("sessions", "delete", "second", "--yes")[0]["deleted"] == "session-second"
    gone = place.run("sessions", "show", "second")
    assert gone.returncode == 3 and gone.stderr.count("\n") == 1 and "second" in gone.stderr


def test_a_name_that_means_nothing_or_several_is_one_line(place: Place) -> None:
    """CLI-5, CLI-6: no session, several, a number beyond the list, a tenant of whom nothing is kept."""
    place.begin("session-abc1", "x")
    place.begin("session-abc2", "y")
    for name, said in (("abc", "several" if "://" in place.url else "2 sessions"), ("nobody", "nobody"), ("@7", "@7")):
        done = place.run("recall", name, "m")
        assert done.returncode == 3 and done.stderr.count("\n") == 1 and said in done.stderr, name
    (place.folder / "empty").mkdir()
    done = command(
        "recall", "@last", "m", "--store", place.url, "--tenant", place.tenant, cwd=place.folder / "empty",
        env={"HOME": str(place.folder), "PERDURE_HOME": str(place.folder / "own")},
    )  # fmt: skip
    assert done.returncode == 3 and "this folder" in done.stderr
    done = place.run("sessions", "--store", place.url, "--tenant", "stranger", flags=False)
    assert done.returncode == 3 and "nothing is kept of a tenant 'stranger'" in done.stderr
    behind = place.run("sessions", "--store", place.url, "show", "abc1", flags=False)
    assert behind.returncode == 2 and "behind show" in behind.stderr


def test_a_tenant_s_name_commands_no_terminal(place: Place) -> None:
    """CLI-5: wherever a program's tenants are named, what a terminal would obey is shown as something else."""
    if "://" not in place.url:
        pytest.skip("a folder can't have this name everywhere")
    tenant = f"{place.tenant}\x1b]0;gone\x07\u202e"
    place.begin("session-1", "x", tenant=tenant)
    for words in (
        ("sessions",),
        ("sessions", "--tenant", tenant),
        ("sessions", "--tenant", "stranger"),
        ("doctor",),
        ("store", "delete-tenant", place.url, tenant),
        ("store", "delete-tenant", place.url, tenant, "--yes"),
    ):
        there = () if words[0] == "store" else ("--store", place.url)
        done = place.run(*words, *there, flags=False)
        said = done.stdout + done.stderr
        assert not {"\x1b", "\x07", "\u202e"} & set(said), words
    assert done.returncode == 0


def test_the_environment_names_the_store_and_the_tenant(place: Place) -> None:
    """CLI-6, SCL-1: so do the variables, which an empty option overrules."""
    place.begin("session-one", "hello")
    env = {"PERDURE_STORE": place.url, "PERDURE_TENANT": place.tenant}
    assert [one["session"] for one in place.data("sessions", flags=False, **env)] == ["session-one"]
    assert [one["session"] for one in place.data("sessions", "show", "one", flags=False, **env)] == ["session-one"]
    assert place.data("sessions", "--store", "", "--tenant", "", flags=False, **env) == []


def test_a_session_of_any_tenant_is_found_without_naming_it(place: Place) -> None:
    """GW-9, SCL-1: what a gateway tells a model to have recalled is found, as on files; but not where it is unclear."""
    name = f"session-{secrets.token_hex(6)}"
    place.begin(name, Message.of("user", "The number is 7.", id="m1"))
    assert place.said("recall", name, "m1", "--store", place.url, flags=False).strip() == "The number is 7."
    place.begin(name, "other", tenant=f"{place.tenant}-too")
    done = place.run("recall", name, "m1", "--store", place.url, flags=False)
    assert done.returncode == 3 and done.stderr.count("\n") == 1


def test_a_large_store_is_listed_in_pages(database: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENG-5, SCL-7: as many rows as are shown; who looks for an old one reads page after page."""
    from perdure.adapters.postgres.store import PostgresHome
    from perdure.cli import sessions as command_of_sessions

    async def fill(store: Any) -> None:
        home = store.home(database.tenant)
        for number in range(25):
            made = await home.create(f"s{number:03}", project=database.folder, created=1.0)
            await made.journal.append((Message.of("user", f"prompt {number}"),))
            await made.journal.close()

    anyio.run(database.work, fill)
    asked: list[int] = []
    real = PostgresHome.sessions

    async def counted(self: PostgresHome, *args: Any, **more: Any) -> Any:
        rows = await real(self, *args, **more)
        asked.append(len(rows))
        return rows

    monkeypatch.setattr(PostgresHome, "sessions", counted)
    monkeypatch.setattr(command_of_sessions, "_PAGE", 10)
    monkeypatch.setattr(command_of_sessions, "_MOST_SHOWN", 5)
    table = database.said("sessions")
    assert "@5" in table and "@6" not in table and "and more: --limit 10" in table
    assert sum(asked) <= 7, asked
    assert [one["number"] for one in database.data("sessions", "--limit", "12")] == list(range(1, 13))
    (old,) = database.data("sessions", "--grep", "prompt 0")
    assert (old["session"], old["number"]) == ("s000", 25)
    assert len(database.data("sessions")) == 25
    monkeypatch.setattr(command_of_sessions, "_MOST_TOLD", 20)
    told = database.run("sessions", "--json")
    assert told.stdout.count("\n") == 20 and "the last 20: --limit" in told.stderr
    (shown,) = database.data("sessions", "show", "@25")
    assert shown["session"] == "s000"


def test_an_empty_home_names_the_tenants(database: Place) -> None:
    """CLI-6, SCL-6: whoever forgot --tenant is told whose sessions there are."""
    database.begin("session-one", "hello")
    said = database.said("sessions", "--store", database.url, "--grep", "nothing has this", flags=False)
    assert "tenants: " in said or "no session" in said
    nothing = database.run("search", "zeppelin", "--store", database.url, flags=False)
    assert nothing.returncode == 0 and ("--tenant" in nothing.stdout or "matches" in nothing.stdout)
    listed = database.run("sessions", "list", "--gateway")
    assert listed.returncode == 2 and "--tenant" in listed.stderr


# --- looking ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def long(place: Place) -> Place:
    """A store with one session that has something to show."""
    place.begin("session-parser", *messages())
    return place


def test_what_was_said_is_found_and_recalled(long: Place) -> None:
    """RCL-1, SES-2: search in a project, in all of them, in one session and since a time; recall, whole and in part."""
    long.begin("session-other", "Another parser", project=long.folder / "elsewhere")
    (hit,) = long.data("search", "bug parser", "--limit", "1")
    assert (hit["session"], hit["id"], hit["rank"]) == ("session-parser", "m0", 1)
    assert {one["session"] for one in long.data("search", "parser")} == {"session-parser"}
    assert {one["session"] for one in long.data("search", "parser", "--all", "--places")} == {
        "session-parser",
        "session-other",
    }
    assert {one["session"] for one in long.data("search", "parser", "--session", "other")} == {"session-other"}
    assert {one["session"] for one in long.data("search", "parser", "--all", "--places", "--since", "1d")} == {
        "session-other"
    }
    assert "session-parser" in long.said("search", "bug") or "parser" in long.said("search", "bug")
    assert "nothing that was said matches" in long.said("search", "zeppelin")
    assert long.said("recall", "parser", "c1").startswith("line1-0 line1-1")
    assert long.data("recall", "parser", "m0")[0]["text"] == "Find the bug in parser.py"
    missing = long.run("recall", "parser", "nothing")
    assert missing.returncode != 0 and missing.stderr.count("\n") == 1


def test_a_session_is_looked_at_from_all_sides(long: Place) -> None:
    """CLI-2, CLI-4, TOK-6, ENG-6: inspect, context, report and export, as of files."""
    (seen,) = long.data("inspect", "parser")
    assert seen["session"] == "session-parser" and seen["messages"] == {"user": 5, "assistant": 5}
    (window,) = long.data("context", "parser")
    assert window["tokens"] == seen["tokens"] > 1_000
    (page,) = long.data("report", "parser", "-o", "report.html")
    assert page["turns"] == 5 and "Find the bug" in (long.folder / "report.html").read_text()
    assert "It is in line 7." in long.said("export", "parser", "-o", "-", "--format", "markdown")
    log = long.said("export", "parser", "-o", "-")
    assert [json.loads(line)["type"] for line in log.splitlines()].count("assistant") == 5


def test_secrets_stay_out_of_what_is_exported(place: Place) -> None:
    """SEC-5: numbered by the key of the store that the session stands in."""
    token = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    place.begin("session-secret", f"My token is {token}.")
    assert token not in place.said("export", "secret", "-o", "-", "--format", "markdown")
    place.said("report", "secret", "-o", "page.html")
    assert token not in (place.folder / "page.html").read_text()


def test_everything_of_a_tenant_comes_out(place: Place) -> None:
    """OPS-2, SCL-1, SCL-6: sessions as single exports have them, notes and memories; unread when nothing went on."""
    place.begin("session-parser", *messages())
    place.begin("session-lexer", "Where is the walrus?", project=place.folder / "else where")
    place.begin("session-theirs", "not yours", tenant=f"{place.tenant}-other")
    place.said("memory", "add", "Never push to main.", "--file", "push.md")

    async def note(store: Any) -> None:
        stored = await store.home(place.tenant).open("session-lexer", read_only=True)
        assert await stored.notes.write(b"# A walrus\n", instead_of=None)
        await stored.journal.close()

    anyio.run(place.work, note)
    told = place.data("export", "--all", "-o", "out")
    assert {one["session"]: one["outcome"] for one in told[:-1]} == dict.fromkeys(
        ("session-parser", "session-lexer"), "exported"
    )
    folder = place.folder / "out" / "tenants" / place.tenant
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = {name.rpartition("/")[2]: data for name, data in files.items()}
    for session in ("session-parser", "session-lexer"):
        assert found[f"{session}.jsonl"] == place.said("export", session, "-o", "-").encode()
        assert found[f"{session}.md"] == place.said("export", session, "-o", "-", "--format", "markdown").encode()
    assert found["session-lexer.notes.md"] == b"# A walrus\n" and b"Never push to main." in found["push.md"]
    assert len({name.rpartition("/")[0] for name in files if "/session-" in name}) == 2
    assert not any("theirs" in name for name in os.listdir(place.folder / "out" / "tenants"))
    assert place.data("export", "--all", "-o", "out")[-1]["total"]["exported_before"] == 2
    assert {path.read_bytes() for path in folder.rglob("*") if path.is_file()} == set(files.values())


def test_no_name_of_a_database_leads_out_of_an_export(database: Place) -> None:
    """OPS-2, SEC-2: a memory that is called like a file elsewhere stands in its folder; one with no way is left out."""
    elsewhere = database.folder / "elsewhere" / "a.md"
    elsewhere.parent.mkdir()
    names = {
        str(elsewhere): b"absolute",
        "../../../../b.md": b"up",
        "c//d.md": b"odd",
        "long/" + "n" * 300 + ".md": b"",
    }

    async def keep(store: Any) -> None:
        contents = contents_of(store.home(database.tenant))
        await contents.keep_memories("/memory", {n: (d, 1_750_000_000.0) for n, d in names.items()}, instead_of={})

    anyio.run(database.work, keep)
    done = database.run("export", "--all", "-o", "out")
    assert done.returncode == 1 and "file name too long" in done.stderr and "2 files of memories, 1 fail" in done.stdout
    assert not elsewhere.exists() and not [*database.folder.parent.rglob("b.md")]
    below = database.folder / "out" / "tenants" / database.tenant / "memory"
    found = {path.relative_to(below).as_posix(): path.read_bytes() for path in below.rglob("*.md")}
    assert found == {str(elsewhere).lstrip("/"): b"absolute", "c/d.md": b"odd"}


def test_what_calls_cost_is_added_up(database: Place) -> None:
    """OBS-2, SM-9: of one session, and of all of a tenant; what a fork has from its parent counts once."""
    database.begin("session-dear", *messages())
    database.begin("session-cheap", "hello")
    (one,) = database.data("spend", "dear")
    assert one["by"] == "job" and one["usd"] > 0 and one["rows"][0]["job"] == "main"
    (all_of_it,) = database.data("spend", "--by", "session")
    assert [row["session"] for row in all_of_it["rows"]] == ["session-dear"] and all_of_it["usd"] == one["usd"]
    database.said("sessions", "fork", "dear")
    assert database.data("spend")[0]["usd"] == one["usd"]
    assert database.data("spend", "--since", "1d")[0]["usd"] == 0


# --- changing what the model sees -------------------------------------------------------------------------------------


def test_a_view_is_compacted_pinned_and_rewound(long: Place) -> None:
    """CMP-11, RST-8, CKP-3: compact and take it back, pin, go back in the conversation."""
    (pinned,) = long.data("pin", "parser", "never touch the walrus")
    assert [one["text"] for one in long.data("pin", "parser", "--list")[0]["pins"]] == ["never touch the walrus"]
    done = long.run("compact", "parser", "--set", "window_tokens=20k", "--json")
    assert done.returncode in (0, 1), done.stderr
    if done.returncode == 0:
        (undone,) = long.data("uncompact", "parser")
        assert undone["messages"] >= 10
    long.data("pin", "parser", "--remove", pinned["pinned"]["id"])
    assert long.data("pin", "parser", "--list")[0]["pins"] == []
    (back,) = long.data("rewind", "parser", "-1", "--conversation")
    assert back["prompt"] == "Find the bug in parser.py"
    long.said("rewind", "parser", "--undo")


def test_notes_are_shown_and_edited(long: Place) -> None:
    """SM-10: also where they are no file; what a person writes stays."""
    editor = long.folder / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/^# .*Current.*/&\\n\\nEdited by hand./' \"$1\"\n")
    editor.chmod(0o700)
    missing = long.run("notes", "show", "parser")
    assert missing.returncode == 0 and "no notes yet" in missing.stderr
    edited = long.run("notes", "edit", "parser", EDITOR=str(editor))
    assert edited.returncode == 0, edited.stderr
    assert "Edited by hand." in long.said("notes", "show", "parser")


def test_notes_that_somebody_else_changed_meanwhile_are_not_overwritten(database: Place) -> None:
    """SM-10: what was written in the editor stays in a file that is named."""
    database.begin("session-notes", "hello")
    database.run("notes", "edit", "notes", EDITOR="true")
    other = database.folder / "other.py"
    other.write_text(
        "import anyio, sys\nfrom perdure.wiring.stores import contents_of, store_at\n"
        f"async def main():\n    store = store_at({database.url!r})\n"
        f"    notes = (await store.home({database.tenant!r}).open('session-notes', read_only=True)).notes\n"
        "    await notes.write(b'# Somebody else\\n', instead_of=await notes.read())\n    await store.close()\n"
        "anyio.run(main)\nopen(sys.argv[1], 'a').write('MINE')\n"
    )
    import sys

    done = database.run("notes", "edit", "notes", EDITOR=f"{sys.executable} {other}")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "changed by somebody else" in done.stderr
    copy = Path(done.stderr.strip().rpartition(" in ")[2])
    assert copy.read_text().endswith("MINE")
    copy.unlink()
    copy.parent.rmdir()


# --- memories ---------------------------------------------------------------------------------------------------------


def test_memories_are_read_and_changed_by_hand(place: Place) -> None:
    """MEM-4, MEM-7 to MEM-9, SCL-1: add, ls, search, show, edit, rm, undo, log and review, in a home of any store."""
    place.begin("session-first", "hello")
    (added,) = place.data("memory", "add", "Never push to main.", "--about", "branches only", "--file", "push.md")
    assert (added["file"], added["outcome"]) == ("push.md", "written")
    taken = place.run("memory", "add", "Again.", "--file", "push.md")
    assert taken.returncode == 1 and "already exists" in taken.stderr
    (listed,) = place.data("memory", "ls")
    assert [one["file"] for one in listed["memories"]] == ["push.md"]
    (found,) = place.data("memory", "search", "may I push to main")
    assert [one["file"] for one in found["results"]] == ["push.md"] and found["scanned"] == 1
    assert "Never push to main." in place.data("memory", "show", "push")[0]["body"]
    editor = place.folder / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/Never/Please never/' \"$1\"\n")
    editor.chmod(0o700)
    place.said("memory", "edit", "push", EDITOR=str(editor))
    assert "Please never push" in place.data("memory", "show", "push")[0]["body"]
    assert "removed" in place.said("memory", "rm", "push")
    assert place.data("memory", "ls")[0]["memories"] == []
    place.said("memory", "undo")
    assert "Please never push" in place.data("memory", "show", "push")[0]["body"]
    assert len(place.data("memory", "log")[0]["entries"]) >= 3
    assert place.data("memory", "review")[0]["pending"] == []
    other = place.run("memory", "ls", "--json", "--store", place.url, flags=False)
    assert json.loads(other.stdout)["memories"] == [], "another home has none"
    gone = place.run("memory", "show", "nothing")
    assert gone.returncode == 3 and gone.stderr.count("\n") == 1


def test_what_a_session_of_a_store_knows_is_what_a_person_wrote_there(place: Place) -> None:
    """MEM-1, SCL-1: the same directory, for sessions about the same folder."""
    stranger = place.run("memory", "add", "Never push to main.", "--file", "push.md")
    assert stranger.returncode == 3 and "nothing is kept of a tenant" in stranger.stderr, "a misspelt name makes none"
    place.begin("session-first", "hello")
    place.said("memory", "add", "Never push to main.", "--file", "push.md")

    async def body() -> None:
        async with (
            SharedStore.at(place.url) as store,
            Session.create(place.folder, home=store.home(place.tenant)) as session,
        ):
            assert session.services.memories is not None
            (mount, *_) = session.services.memories.mounts
            read = await mount.memory.store.read("push.md")
            assert read is not None and "Never push" in read.text

    anyio.run(body)


# --- what can't be done, and stores that can't be used ----------------------------------------------------------------


def test_what_a_database_cannot_do_is_said_in_a_line(database: Place) -> None:
    """CLI-5: nothing is looked for on files instead, and nothing is changed."""
    database.begin("session-one", "hello", "again")
    there = ("--store", database.url)
    for words, said in (
        (("purge", *there), "sessions delete"),
        (("notes", "path", "one", *there, "--tenant", database.tenant), "notes show"),
        (("rewind", "one", "-1", *there, "--tenant", database.tenant), "--conversation"),
        (("search", "hello", "--rebuild", *there), "--rebuild"),
        (("doctor", "--repair", *there), "--repair"),
    ):
        done = database.run(*words, flags=False)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and said in done.stderr, words
    assert not (database.folder / "own").exists()


WORDS = (
    ("sessions",), ("sessions", "show", "x"), ("search", "word"), ("recall", "x", "m"), ("report", "x", "-o", "-"),
    ("inspect", "x"), ("context", "x"), ("notes", "show", "x"), ("pin", "x", "--list"), ("doctor",),
)  # fmt: skip


def test_a_store_that_cannot_be_used_is_one_line_without_its_password(
    database: Place, postgres_server: PostgresServer
) -> None:
    """CLI-5, SEC-7: one that is down, a wrong user, no schema, an older and a newer one, no URL; text and JSON."""
    port, name = postgres_server.port, f"old_{secrets.token_hex(4)}"
    postgres_server.execute(f"CREATE DATABASE {name} OWNER perdure_owner")
    try:
        owner = postgres_server.url_of(name, "perdure_owner").replace("perdure_owner@", "perdure_owner:s3cret@")
        bad = [
            ("postgresql://me:s3cret@127.0.0.1:1/perdure", "127.0.0.1:1/perdure"),
            (f"postgresql://nobody-at-all:s3cret@127.0.0.1:{port}/perdure", "nobody-at-all"),
            (owner, "perdure store migrate"),
            ("postgresql://me:s3cret@[db/perdure", "not the URL"),
            ("mysql://me:s3cret@db/perdure", "mysql:// isn't known"),
        ]
        for url, said in bad:
            for words in WORDS:
                done = database.run(*words, flags=False, PERDURE_STORE=url)
                told = done.stdout + done.stderr
                assert done.returncode in (1, 2, 3) and said in told and "s3cret" not in told, (url, words, told)
                assert done.stderr.count("\n") <= 1 or words == ("doctor",), told
        done = database.run("sessions", "--json", "--store", bad[0][0], flags=False)
        assert done.returncode == 1 and "s3cret" not in done.stdout + done.stderr and "PGPASSWORD" in done.stderr
        migrated = database.run("store", "migrate", owner, flags=False)
        assert migrated.returncode == 0, migrated.stderr
        postgres_server.execute(
            "INSERT INTO perdure.migrations (version) VALUES (999)", url=postgres_server.url_of(name)
        )
        newer = database.run("sessions", flags=False, PERDURE_STORE=owner)
        assert newer.returncode == 1 and "upgrade Perdure" in newer.stderr and newer.stderr.count("\n") == 1
    finally:
        postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


# --- doctor -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sick(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[tuple[Place, Callable[[str], Any]]]:
    """A database of the test's own, and a way to break it as its superuser."""
    (tmp_path / "work").mkdir()
    name = f"sick_{secrets.token_hex(4)}"
    postgres_server.execute(f"CREATE DATABASE {name} OWNER perdure_owner")
    place = Place(postgres_server.url_of(name, "gateway"), "alice", tmp_path / "work")
    assert place.run("store", "migrate", postgres_server.url_of(name, "perdure_owner"), flags=False).returncode == 0
    if not postgres_server.execute("SELECT 1 FROM pg_roles WHERE rolname = 'gateway'"):
        postgres_server.execute("CREATE ROLE gateway LOGIN IN ROLE perdure_serving")
    yield place, lambda statement: postgres_server.execute(statement, url=postgres_server.url_of(name))
    postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def findings(place: Place, *words: str, url: str = "") -> dict[str, list[tuple[str, str]]]:
    done = place.run("doctor", "--store", url or place.url, "--json", *words, flags=False)
    found: dict[str, list[tuple[str, str]]] = {}
    for line in done.stdout.splitlines():
        one = json.loads(line)
        found.setdefault(one["check"], []).append((one["state"], one["what"]))
    is_ill = any(state == "problem" for some in found.values() for state, _ in some)
    assert done.returncode == is_ill, done.stderr
    return found


def test_the_doctor_says_that_a_store_is_well(sick: tuple[Place, Any]) -> None:
    """CLI-3, SCL-6: what answers, as whom, what keeps tenants apart, how long a write takes, and the sessions."""
    place, _ = sick
    place.begin("session-one", *messages())
    place.begin("session-two", "hello", tenant="")
    found = findings(place)
    assert {state for some in found.values() for state, _ in some} == {"ok"}, found
    assert "PostgreSQL" in found["database"][0][1] and "owns nothing" in found["role"][0][1]
    assert found["blobs"][0][1] == "in the database"
    assert "durable after" in found["storage"][0][1] and found["clocks"][0][1] == "agree"
    assert found["sessions"][0][1] == "2 of 2 are sound" and found["tenants"][0][1].startswith("1;")
    assert findings(place, "--tenant", "alice")["sessions"][0][1] == "1 of 1 are sound"
    said = place.said("doctor", "--store", place.url, flags=False)
    lines = [line for line in said.splitlines() if line and line != "all is well"]
    assert "all is well" in said and all(line.startswith("ok       ") for line in lines)


def test_the_doctor_names_what_is_wrong_with_a_store(sick: tuple[Place, Any], postgres_server: PostgresServer) -> None:
    """CLI-3, SCL-2, SCL-6, ENG-9: a user who may all, tables without row security, work given up, damaged sessions."""
    place, execute = sick
    place.begin("session-one", *messages())
    place.begin("session-two", "hello")

    async def give_up(store: Any) -> None:
        await store.work.want("alice", "session-one", "notes", 5)

    anyio.run(place.work, give_up)
    execute("UPDATE perdure.work SET attempts = 8, problem = 'the model is away'")
    execute(
        "UPDATE perdure.records SET line = substr(line, 1, 40) || 'X' || substr(line, 42) WHERE seq = 2 "
        "AND session = (SELECT number FROM perdure.sessions WHERE id = 'session-one')"
    )
    execute("ALTER TABLE perdure.notes NO FORCE ROW LEVEL SECURITY")
    found = findings(place)
    assert found["tables"] == [("problem", found["tables"][0][1])] and "notes" in found["tables"][0][1]
    assert any(state == "problem" and "the model is away" in what for state, what in found["work"])
    assert found["session session-one of alice"][0][0] == "problem"
    assert found["sessions"][0][1].startswith("1 of 2")
    above = findings(place, url=place.url.replace("gateway@", "postgres@"))
    assert above["role"][0][0] == "problem" and "is a superuser" in above["role"][0][1]
    owner = findings(place, url=place.url.replace("gateway@", "perdure_owner@"))
    assert owner["role"][0][0] == "problem" and "owns the tables" in owner["role"][0][1]
    postgres_server.execute("CREATE ROLE between NOINHERIT IN ROLE perdure_owner")
    postgres_server.execute("CREATE ROLE sly LOGIN IN ROLE perdure_serving, between")
    try:
        sly = findings(place, url=place.url.replace("gateway@", "sly@"))
    finally:
        postgres_server.execute("DROP ROLE sly, between")
    assert "owns the tables" in sly["role"][0][1], "who may become the owner, too"


# --- what models are told ---------------------------------------------------------------------------------------------


def test_a_model_is_told_where_a_store_is_looked_into(tmp_path: Path) -> None:
    """RCL-3, SCL-1: the command that it may have a person run finds the session, where the variables are set."""

    def where(session: LiveSession) -> str:
        (reminder,) = [one for one in session.services.reminders if isinstance(one, RecallReminder)]
        return reminder.where

    async def body() -> None:
        kept = await create_session(MemoryHomes().home("alice"), project=tmp_path, session="one")
        assert "PERDURE_STORE" in where(kept) and "PERDURE_TENANT" in where(kept)
        await kept.close()
        files = await create_session(tmp_path / "home", project=tmp_path, session="one")
        assert where(files) == "on the machine that keeps it"
        await files.close()

    anyio.run(body)
