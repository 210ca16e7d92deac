"""What a million sessions take in PostgreSQL, from a hundred thousand that are really there (SCL-7).

Usage: python -m bench.million [FOLDER] [--sessions 100000] [--long 0.012] [--tenants 200] [--searched 4000] [--cold]
           [--within FOLDER]

The recordings under FOLDER (../shared/data) are imported, and appended to journals in a PostgreSQL of its own, from
a wheel, which syncs what it commits. Sessions are then copies of these, whole and line for line, drawn with a fixed
seed: `--long` of them from the recordings of more than a hundred lines, the others from the shorter ones. COPY loads
them; a fifth belong to one tenant, the rest to the others. Beside the lines stands what the gateway enters of
histories. The server's settings are those of `SETTINGS`.

Printed is what they take in tables, indexes and TOAST, by line and by session; what a turn asks of the database,
counted by pg_stat_statements; how long opening, reading, appending, listing, finding a history, searching and deleting
take at that size; what vacuum takes after appends and after a tenant has gone; and from all that, a million sessions.

What was said in `--searched` sessions of the large tenant is in its index for search, each text with a word of its own.
`--cold`: the server is started again, the system's cache of files dropped (as root), and some of it asked once more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import psycopg
from bench.postgres import asked_since, forget
from tests.gateways import CodingClient, fake, serving

from perdure import Message
from perdure.adapters.journal import JOURNAL
from perdure.adapters.postgres.links import key_of
from perdure.adapters.postgres.schema import SERVING, migrate
from perdure.adapters.postgres.search import indexed_pieces
from perdure.adapters.postgres.store import PostgresHome, PostgresStore
from perdure.testing.postgres import PostgresServer, why_there_is_no_server
from perdure.transcript.codec import decode_header, decode_line

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDERS = ("claude_code", "claude_code_fixtures", "codex", "swe_agent", "mini_swe_agent", "tau_bench")
SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "maintenance_work_mem": "256MB",
    "shared_preload_libraries": "pg_stat_statements",
}
LONG = 100  # lines: more are a long session
LARGE_TENANT, TEMPLATES = 0.2, "templates"
IN_TEN = {"links": 7, "answers": 3}  # lines, as turns through the gateway enter them; this is measured again below
TABLES = ("sessions", "records", "links", "answers")
TIMES = 300
PROJECTS = 50
FIRST = 1_000_000  # the number of the first session that is loaded
_COLUMNS = "tenant, session, seq, at, needs, line"
_HEAD = "project, created, header, seq, bytes, fence, owner, modified, messages, about"  # but for whose it is


@dataclass(frozen=True, slots=True)
class Template:
    """A recorded session as it stands in the database: its row but for whose it is, and the rows of its lines."""

    head: tuple[object, ...]
    lines: tuple[tuple[object, ...], ...]
    bytes: int


# --- loading ----------------------------------------------------------------------------------------------------------


def imported(folder: Path) -> list[list[bytes]]:
    """The journals that importing all recordings makes: the header's line, and the others."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "perdure", "import", *(str(folder / name) for name in FOLDERS)]
        subprocess.run(command, env={**os.environ, "PERDURE_HOME": home}, cwd=home, check=False, capture_output=True)
        return [path.read_bytes().splitlines(keepends=True) for path in sorted(Path(home).rglob(JOURNAL))]


async def appended_again(store: PostgresStore, journals: Sequence[Sequence[bytes]]) -> None:
    """Append to journals in the database what these hold, line for line."""
    home = store.home(TEMPLATES)
    for number, (first, *lines) in enumerate(journals):
        header = decode_header(first)
        name = f"s_{number:08d}"
        session = await home.create(name, project="/", created=header.created, durability="process")
        for line in lines:
            await session.journal.append(decode_line(line, header.version).records)
        await session.journal.close()


def templates(db: psycopg.Connection) -> list[Template]:
    """What stands in the database of these sessions."""
    found = []
    heads = db.execute(f"SELECT number, {_HEAD} FROM perdure.sessions".encode()).fetchall()
    for number, *head in heads:
        lines = db.execute(
            "SELECT seq, at, needs, line FROM perdure.records WHERE session = %s ORDER BY seq", (number,), binary=True
        ).fetchall()
        found.append(Template(tuple(head), tuple(lines), sum(len(line[3]) for line in lines)))
    return found


def drawn(found: Sequence[Template], sessions: int, long: float) -> Iterator[Template]:
    """Copies of these, so many, the long ones among them as often as is asked for."""
    chance = random.Random(7)
    short_ones = [one for one in found if len(one.lines) <= LONG]
    long_ones = [one for one in found if len(one.lines) > LONG]
    for _ in range(sessions):
        yield chance.choice(long_ones if chance.random() < long else short_ones)


def indexed(template: Template, table: str) -> list[int]:
    """The lines of a session that have a link, or the id of an answer."""
    return [line for line in range(len(template.lines)) if line % 10 < IN_TEN[table]]


def loaded(db: psycopg.Connection, plan: Sequence[Template], tenants: Sequence[int]) -> None:
    """COPY sessions and their lines. Foreign keys hold by the way it is made; so they aren't checked for each row."""
    chance, large = random.Random(8), int(len(plan) * LARGE_TENANT)
    whose = [tenants[0] if n < large else tenants[1 + chance.randrange(len(tenants) - 1)] for n in range(len(plan))]
    past = datetime.fromtimestamp(0, UTC)
    db.execute("SET session_replication_role = replica")
    heads = f"COPY perdure.sessions (tenant, number, id, lease_until, {_HEAD}) FROM STDIN (FORMAT BINARY)"
    with db.cursor() as cursor, cursor.copy(heads.encode()) as copy:
        copy.set_types(
            "int8 int8 text timestamptz text float8 bytea int8 int8 int8 text timestamptz int8 bytea".split()
        )
        for n, one in enumerate(plan):
            copy.write_row((whose[n], FIRST + n, f"s_{n:032x}", past, f"/p{n % PROJECTS}", *one.head[1:]))
    with db.cursor() as cursor, cursor.copy(f"COPY perdure.records ({_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types("int8 int8 int8 int8 int8 bytea".split())
        for n, one in enumerate(plan):
            for line in one.lines:
                copy.write_row((whose[n], FIRST + n, *line))
    for table, columns in (("links", "link, session, messages"), ("answers", "answer, link, messages")):
        statement = f"COPY perdure.{table} (tenant, {columns}) FROM STDIN (FORMAT BINARY)"
        with db.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            copy.set_types(["int8", "bytea", "text" if table == "links" else "bytea", "int8"])
            for n, one in enumerate(plan):
                session = f"s_{n:032x}"
                for line in indexed(one, table):
                    key = chance.randbytes(32)
                    copy.write_row((whose[n], key, session if table == "links" else key, line))
    db.execute("SET session_replication_role = origin")


def made_searchable(db: psycopg.Connection, plan: Sequence[Template], tenant: int, sessions: int) -> Counter[str]:
    """Have the index for search hold what was said in the first sessions; in how many of its texts each word stands."""
    db.execute(
        "CREATE TEMP TABLE staged (session bigint, at bigint, recall bytea, message bytea, piece int, role text, "
        "tool bytea, agent bytea, said float8, text bytea, stems text)"
    )
    known: dict[int, list[tuple[tuple[object, ...], str, tuple[str, ...]]]] = {}
    words: Counter[str] = Counter()
    with db.cursor() as cursor, cursor.copy("COPY staged FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types("int8 int8 bytea bytea int4 text bytea bytea float8 bytea text".split())
        for n, one in enumerate(plan[:sessions]):
            if (pieces := known.get(id(one))) is None:
                rows = [(line[0], line[1], line[3]) for line in one.lines]
                pieces = known[id(one)] = [
                    (
                        (i.at, key_of(i.piece.recall_id), key_of(i.piece.message), i.number, i.piece.role,
                         key_of(i.piece.tool), None, i.piece.at),
                        i.piece.text, i.stems,
                    )
                    for i in indexed_pieces(rows, 0, tenant)
                ]  # fmt: skip
            own = f"copy{n}"
            for place, text, stems in pieces:
                words.update(stem.partition(":")[2] for stem in stems)
                copy.write_row((FIRST + n, *place, key_of(f"{text} {own}"), " ".join((*stems, f"{tenant}:{own}"))))
    of_it = (tenant,)
    db.execute(
        "INSERT INTO perdure.texts (tenant, digest, text, stems) SELECT DISTINCT ON (sha256(text)) %s, sha256(text), "
        "text, array_to_tsvector(string_to_array(stems, ' ')) FROM staged ORDER BY sha256(text)", of_it
    )  # fmt: skip
    db.execute(
        "INSERT INTO perdure.places (tenant, session, at, text, recall, message, piece, role, tool, agent, said) "
        "SELECT t.tenant, session, at, t.number, recall, message, piece, role, tool, agent, said "
        "FROM staged JOIN perdure.texts t ON t.tenant = %s AND t.digest = sha256(staged.text)", of_it
    )  # fmt: skip
    db.execute("INSERT INTO perdure.indexed SELECT tenant, number, seq FROM perdure.sessions WHERE tenant = %s", of_it)
    db.execute("DROP TABLE staged")
    return words


# --- measuring --------------------------------------------------------------------------------------------------------


def said(what: str, value: str, more: str = "") -> None:
    print(f"{what:<46}{value:>16}   {more}".rstrip(), flush=True)


def sizes(db: psycopg.Connection, table: str) -> dict[str, int]:
    """Bytes of a table's rows, its indexes and what stands beside it (TOAST)."""
    row = db.execute(
        "SELECT pg_relation_size(c.oid), pg_indexes_size(c.oid), "
        "coalesce(pg_total_relation_size(nullif(reltoastrelid, 0)), 0) FROM pg_class c WHERE oid = %s::regclass",
        (f"perdure.{table}",),
    ).fetchone()
    assert row is not None
    return dict(zip(("rows", "indexes", "TOAST"), row, strict=True))


async def timed(times: int, work: Callable[[int], Awaitable[object]]) -> list[float]:
    """Milliseconds of each."""
    took = []
    for n in range(times):
        began = time.perf_counter()
        await work(n)
        took.append((time.perf_counter() - began) * 1e3)
    return took


def told(what: str, took: Sequence[float], more: str = "") -> None:
    said(what, f"{statistics.median(took):.2f} ms", f"p99 {statistics.quantiles(took, n=100)[98]:.2f} ms   {more}")


def message(n: int) -> Message:
    text = f"{n} " + " ".join(str(random.Random(n).random()) for _ in range(100))
    return Message.of("user", [{"type": "text", "text": text[:1_900]}])


async def asked_by_a_turn(db: psycopg.Connection, url: str, times: int = 40) -> None:
    """Statements that turns through two gateways on this database make."""
    first, second = PostgresStore(url), PostgresStore(url)
    with tempfile.TemporaryDirectory() as homes:
        async with (
            fake() as upstream,
            serving(Path(homes, "one"), upstream, store=first) as one,
            serving(Path(homes, "two"), upstream, store=second) as two,
        ):
            client = CodingClient(one, "anthropic", is_stream=True)

            async def begins(n: int) -> None:
                await CodingClient(one, "anthropic", is_stream=True).say(f"new {n}")

            async def stays(n: int) -> None:
                await client.say(f"stays {n}")

            async def moves(n: int) -> None:
                client.at = (two, one)[n % 2]
                await client.say(f"moves {n}")

            for what, work in (
                ("the first turn of a conversation", begins),
                ("a turn at the gateway of the last one", stays),
                ("a turn at another gateway each time", moves),
            ):
                await work(-1)
                await asyncio.sleep(0.5)
                forget(db)
                took = await timed(times, work)
                await asyncio.sleep(0.5)
                more = " ".join(f"{count / times:.1f} {name}," for name, count in asked_since(db).items()).rstrip(",")
                told(f"  {what}", took, more)
    await first.close()
    await second.close()
    row = db.execute(
        "SELECT count(*), (SELECT count(*) FROM perdure.links l WHERE l.tenant = t.id), "
        "(SELECT count(*) FROM perdure.answers a WHERE a.tenant = t.id), count(DISTINCT r.session) "
        "FROM perdure.records r JOIN perdure.tenants t ON t.id = r.tenant "
        "WHERE t.name NOT LIKE 't%' GROUP BY t.id ORDER BY 1 DESC LIMIT 1"
    ).fetchone()
    assert row is not None
    said("  lines of these turns", f"{row[0]:,}", f"{row[1]:,} links, {row[2]:,} answers, {row[3]:,} sessions")


def shown_index(db: psycopg.Connection, tenant: int, sessions: int) -> int:
    """Say what the index for search takes; how many texts it has."""
    for table in ("texts", "places"):
        db.execute(f"VACUUM (ANALYZE) perdure.{table}".encode())
    row = db.execute(
        "SELECT count(*), sum(octet_length(text)), sum(pg_column_size(text)), sum(pg_column_size(stems)) "
        "FROM perdure.texts WHERE tenant = %s", (tenant,)
    ).fetchone()  # fmt: skip
    assert row is not None
    count, raw, text, stems = map(int, row)
    said("  texts", f"{count:,}", f"{raw / count:,.0f} bytes each, {count / sessions:.0f} a session")
    said("  a text as it stands there", f"{text / count:,.0f} bytes", f"and its stems {stems / count:,.0f}")
    for table in ("texts", "places"):
        for part, size in sizes(db, table).items():
            said(f"  {table}: {part}", f"{size / 1e6:,.1f} MB", f"{size / count:,.0f} bytes a text")
    both = sum(sum(sizes(db, table).values()) for table in ("texts", "places"))
    said("  all", f"{both / 1e6:,.1f} MB", f"{both / sessions:,.0f} bytes a session, {both / raw:.2f} of what was said")
    return count


async def searched(store: PostgresStore, words: Counter[str], texts: int, what: str, times: int = 8) -> None:
    """A word that many texts hold, one that some do and one that a single session does; in all, and in one project."""
    common = next(word for word, count in words.most_common() if count < texts * 0.15 and len(word) > 4)
    some = next(word for word, count in words.most_common() if count < texts * 0.01 and len(word) > 4)
    for name, word in (("common", common), ("less common", some), ("rare", "copy77"), ("several", f"{some} {common}")):
        for place, project in (("all projects", None), ("one project", "/p7")):
            archive = store.home("t0").archive(project)
            took = await timed(times, lambda _, archive=archive, word=word: archive.search(word))  # type: ignore[misc]
            held = f"in {words[word]:,} texts, " if word in words else ""
            told(f"  search, {name}, {place}{what}", took, f"{held}{len((await archive.search(word)).hits)} found")


def started_cold(server: PostgresServer) -> bool:
    """Start the server again with nothing in memory; whether the system's cache of files could be dropped."""
    server.stop()
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    finally:
        server.resume()
    return True


async def appended(store: PostgresStore, whose: Sequence[tuple[str, str]], writers: int, seconds: float) -> list[float]:
    """Milliseconds of appends by so many writers at a time, each to a session of its own."""
    took: list[float] = []

    async def write(tenant: str, session: str) -> None:
        opened, n, until = await store.home(tenant).open(session), 0, time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            await opened.journal.append((message(n),))
            took.append((time.perf_counter() - began) * 1e3)
            n += 1
        await opened.journal.close()

    await asyncio.gather(*(write(*one) for one in whose[:writers]))
    return took


def log_bytes(db: psycopg.Connection) -> int:
    """How much was written to the write-ahead log so far."""
    row = db.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8").fetchone()
    assert row is not None
    return int(row[0])


def vacuumed(db: psycopg.Connection, table: str) -> float:
    began = time.perf_counter()
    db.execute(f"VACUUM (ANALYZE) perdure.{table}".encode())
    return time.perf_counter() - began


async def measure(options: argparse.Namespace, server: PostgresServer, journals: Sequence[Sequence[bytes]]) -> None:
    server.execute("CREATE ROLE perdure_owner LOGIN CREATEROLE")
    server.execute("CREATE DATABASE million OWNER perdure_owner")
    await migrate(server.url_of("million", "perdure_owner"))
    server.execute(f"CREATE ROLE gateway LOGIN IN ROLE {SERVING}")
    url = server.url_of("million", "gateway")
    store = PostgresStore(url, connections=32, patience=60.0)
    await appended_again(store, journals)
    with closing(psycopg.connect(server.url_of("million"), autocommit=True)) as db:
        db.execute("CREATE EXTENSION pg_stat_statements")
        found = templates(db)
        names = [f"t{n}" for n in range(options.tenants)]
        numbers = [await store.db.make_tenant(name) for name in names]
        await measured(options, db, store, url, found, dict(zip(names, numbers, strict=True)), server)
    await store.close()


async def measured(
    options: argparse.Namespace,
    db: psycopg.Connection,
    store: PostgresStore,
    url: str,
    found: Sequence[Template],
    tenants: dict[str, int],
    server: PostgresServer,
) -> None:
    kinds = {"short": [t for t in found if len(t.lines) <= LONG], "long": [t for t in found if len(t.lines) > LONG]}
    averages: dict[str, tuple[float, float]] = {}
    for kind, ones in kinds.items():
        lines, size = statistics.mean(len(t.lines) for t in ones), statistics.mean(t.bytes for t in ones)
        averages[kind] = lines, size
        said(f"recordings, {kind}", f"{len(ones)}", f"{lines:,.0f} lines and {size:,.0f} bytes of lines on average")
    plan = list(drawn(found, options.sessions, options.long))
    count, raw = sum(len(t.lines) for t in plan), sum(t.bytes for t in plan)
    said("to load", f"{len(plan):,} sessions", f"{count:,} lines, {raw / 1e6:,.0f} MB, {len(tenants)} tenants")
    before = {table: sizes(db, table) for table in TABLES}
    began = time.perf_counter()
    loaded(db, plan, list(tenants.values()))
    took = time.perf_counter() - began
    said("COPY", f"{took:,.0f} s", f"{count / took:,.0f} lines/s, {raw / took / 1e6:.1f} MB/s")
    for table in TABLES:
        said(f"VACUUM (ANALYZE) {table}, after the load", f"{vacuumed(db, table):,.1f} s")

    print("\nwhat stands there")
    total, journals = 0, 0
    indexes = (sum(len(indexed(t, table)) for t in plan) for table in IN_TEN)
    for table, rows in zip(TABLES, (len(plan), count, *indexes), strict=True):
        for part, size in sizes(db, table).items():
            grown = size - before[table][part]
            total += grown
            journals += 0 if table in IN_TEN else grown
            said(f"  {table}: {part}", f"{grown / 1e6:,.1f} MB", f"{grown / rows:,.1f} bytes a row")
    said("  all", f"{total / 1e6:,.1f} MB", f"{total / len(plan):,.0f} bytes a session, {total / raw:.2f} of the lines")

    print("\nat that size")
    chance = random.Random(9)
    owned: dict[int, list[tuple[str, int]]] = {}
    large = tenants["t0"]
    for tenant, session, seq in db.execute(
        "SELECT tenant, id, seq FROM perdure.sessions WHERE tenant = ANY(%s) ORDER BY random()",
        ([tenants["t0"], tenants["t1"]],),
    ):
        owned.setdefault(tenant, []).append((session, seq))
    for name in ("t0", "t1"):
        own, home = owned[tenants[name]], store.home(name)
        short_ones = [session for session, seq in own if seq <= LONG]
        long_ones = [session for session, seq in own if seq > LONG] or short_ones[-1:]
        what = f"a tenant of {len(own):,} sessions"

        async def opened(n: int, home: PostgresHome = home, ids: Sequence[str] = short_ones) -> None:
            session = await home.open(ids[n % len(ids)])
            await session.journal.close()

        async def read(n: int, home: PostgresHome = home, ids: Sequence[str] = short_ones) -> None:
            await (await home.open(ids[n % len(ids)], read_only=True)).journal.load()

        told(f"open and close, {what}", await timed(TIMES, opened))
        told("  open and read a short one", await timed(TIMES, read))
        took_long = await timed(min(TIMES, 100), lambda n, home=home, ids=long_ones: read(n, home, ids))  # type: ignore[misc]
        told("  open and read a long one", took_long)
        told("  list all", await timed(5, lambda _, home=home: home.sessions()))  # type: ignore[misc]
        told("  list the last 50", await timed(20, lambda _, home=home: home.sessions(limit=50)))  # type: ignore[misc]
    links = db.execute("SELECT link FROM perdure.links WHERE tenant = %s ORDER BY random() LIMIT %s", (large, TIMES))
    known_links = [bytes(link) for (link,) in links.fetchall()]

    async def followed(n: int) -> None:
        await store.home("t0").links.longest([chance.randbytes(32) for _ in range(20)] + [known_links[n]])

    told("find the session of a history", await timed(TIMES, followed))

    print("\nsearch")
    began, own = time.perf_counter(), owned[tenants["t1"]]
    await store.home("t1").archive().search("copy")
    took, lines = time.perf_counter() - began, sum(seq for _, seq in own)
    said(
        "  the first one of a tenant, which makes its index",
        f"{took:,.1f} s",
        f"{len(own):,} sessions, {lines:,} lines",
    )
    began = time.perf_counter()
    words = made_searchable(db, plan, large, options.searched)
    said("  texts taken in", f"{options.searched:,} sessions", f"{time.perf_counter() - began:,.0f} s")
    texts = shown_index(db, large, options.searched)
    await searched(store, words, texts, "")
    if options.cold:
        await store.db.renew()
        is_dropped = started_cold(server)
        db = psycopg.connect(server.url_of("million"), autocommit=True)
        print(
            "\nafter a new start of the server" + (", nothing in memory" if is_dropped else "; files may be in memory")
        )
        home = store.home("t0")

        async def read_cold(n: int) -> None:
            await (await home.open(owned[large][-50 - n][0], read_only=True)).journal.load()

        told("  open and read a session", await timed(50, read_cold))
        told("  find the session of a history", await timed(50, followed))
        await searched(store, words, texts, ", cold", times=2)
    gone = [session for session, _ in owned[tenants["t0"]][-40:]]

    async def deleted(n: int) -> None:
        await store.home("t0").delete(gone[n])

    told("delete a session", await timed(len(gone), deleted))
    everyone = [("t0", session) for session, _ in owned[tenants["t0"]][:-40]]
    chance.shuffle(everyone)
    db.execute("CHECKPOINT")
    logged, stood, appends = log_bytes(db), sum(sizes(db, "sessions").values()), 0
    for writers in (1, 8, 32):
        took_each = await appended(store, everyone, writers, options.seconds)
        appends += len(took_each)
        told(f"append 2 KB, {writers} writers", took_each, f"{len(took_each) / options.seconds:,.0f} appends/s")
    said("  write-ahead log", f"{(log_bytes(db) - logged) / appends:,.0f} bytes", f"an append, over {appends:,}")
    grown = sum(sizes(db, "sessions").values()) - stood
    said("  heads grow", f"{grown / appends:,.0f} bytes", "an append, until they are vacuumed")

    print("\nwhat a turn asks of the database")
    await asked_by_a_turn(db, url)

    print("\nvacuum")
    for table in TABLES:
        said(f"  {table}, after the appends", f"{vacuumed(db, table):,.1f} s")
    row = db.execute("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'sessions'").fetchone()
    assert row is not None
    said("  updates of heads within their page (HOT)", f"{100 * row[1] / max(1, row[0]):.0f} %", f"of {row[0]:,}")
    gone = len(owned[tenants["t0"]])
    batches = [(time.perf_counter(), 0)]
    await store.delete_tenant("t0", on_deleted=lambda _, rows: batches.append((time.perf_counter(), rows)))
    took, rows = batches[-1][0] - batches[0][0], sum(rows for _, rows in batches)
    longest = max(after - before for (before, _), (after, _) in pairwise(batches))
    more = f"{rows:,} rows in {len(batches) - 1} statements, the longest took {longest:,.2f} s"
    said(f"  delete a tenant of {gone:,} sessions", f"{took:,.1f} s", more)
    for table in TABLES:
        said(f"  {table}, after that", f"{vacuumed(db, table):,.1f} s")

    print("\na million sessions")
    for mix, long in (("as loaded", options.long), ("as the recordings", len(kinds["long"]) / len(found))):
        lines_each = long * averages["long"][0] + (1 - long) * averages["short"][0]
        of_lines = (long * averages["long"][1] + (1 - long) * averages["short"][1]) * journals / raw
        bytes_each = of_lines + lines_each * (total - journals) / count
        more = f"{lines_each:,.0f} million lines, {bytes_each:,.0f} bytes a session"
        said(f"  {mix}: {100 * long:.1f} % long", f"{bytes_each / 1e3:,.0f} GB", more)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--long", type=float, default=0.012, help="the part of sessions that are long")
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--searched", type=int, default=4_000, help="sessions that are in the index for search")
    parser.add_argument("--cold", action="store_true", help="start the server again, and ask without caches")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run of appends")
    parser.add_argument("--within", type=Path, default=Path(tempfile.gettempdir()), help="where the database stands")
    chosen = parser.parse_args()
    if why := why_there_is_no_server():
        raise SystemExit(why)
    known = imported(chosen.folder)
    if not any(len(lines) > LONG + 1 for lines in known):
        raise SystemExit(f"{chosen.folder}: no long recordings there: name a folder with {', '.join(FOLDERS)}")
    with PostgresServer.start(chosen.within, is_durable=True, settings=SETTINGS) as running:
        asyncio.run(measure(chosen, running, known))
