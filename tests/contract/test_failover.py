"""What a store does when its database moves: to a standby that is promoted, or away from a primary that no longer takes
writes (SCL-1, SCL-3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import anyio
import pytest
from tests.contract.test_homes import begun, names, new_name, said

from perdure.adapters.postgres.schema import SERVING, migrate
from perdure.adapters.postgres.store import PostgresStore
from perdure.errors import JournalError
from perdure.testing.postgres import PostgresServer, why_there_is_no_server

pytestmark = pytest.mark.contract


class Pair:
    """A primary and the standby that its commits wait for, with a migrated database."""

    def __init__(self, stack: ExitStack) -> None:
        self.primary = stack.enter_context(PostgresServer.start(is_replicated=True))
        self.owner = self.primary.database("pair")
        anyio.run(migrate, self.owner)
        self.primary.execute(f"CREATE ROLE gateway LOGIN IN ROLE {SERVING}")
        self.standby = stack.enter_context(self.primary.standby())
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in (self.standby, self.primary))
        self.url = f"postgresql://gateway@{hosts}/pair"


@pytest.fixture
def pair() -> Iterator[Pair]:
    if why_not := why_there_is_no_server():
        pytest.skip(why_not)
    with ExitStack() as stack:
        yield Pair(stack)


def run(url: str, body: Callable[[PostgresStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = PostgresStore(url)
        try:
            await body(store)
        finally:
            await store.close()

    anyio.run(main)


@pytest.mark.nightly
def test_a_session_goes_on_at_the_standby_that_takes_over(pair: Pair) -> None:
    """SCL-3: nothing that was acknowledged is lost, and no owner has to open its session again."""

    async def body(store: PostgresStore) -> None:
        home = store.home(new_name())
        made = await begun(home, "s1", said("a"), said("b"))
        pair.primary.kill()
        with pytest.raises(JournalError, match="nothing was acknowledged") as refused:
            await made.journal.append((said("lost"),))
        assert "\n" not in str(refused.value)
        pair.standby.promote()
        await made.journal.append((said("c"),))
        await made.journal.close()
        assert names(await home.load("s1")) == ["a", "b", "c"]
        assert await store.probe() < 5

    run(pair.url, body)


def test_a_primary_that_takes_no_writes_any_more_is_left(pair: Pair) -> None:
    """SCL-3: its connections stay open, and the one that takes them is found all the same."""

    async def body(store: PostgresStore) -> None:
        home = store.home(new_name())
        made = await begun(home, "s1", said("a"))
        pair.standby.promote()  # it follows nobody: the former primary would wait for it for good
        pair.primary.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        pair.primary.execute("SELECT pg_reload_conf()")
        while True:  # each of its processes hears of that by itself
            async with store.db.connection() as connection:
                told = await (await connection.execute("SHOW default_transaction_read_only")).fetchone()
            if told == ("on",):
                break
        await made.journal.append((said("b"),))
        await store.work.want("t", "s1", "k", 1)
        await made.journal.close()
        assert names(await home.load("s1")) == ["a", "b"]
        held = pair.standby.execute("SELECT count(*) FROM perdure.records", url=pair.standby.url_of("pair"))
        assert held == [(2,)]

    run(pair.url, body)


@pytest.mark.nightly
def test_a_standby_alone_is_refused_in_a_line(pair: Pair) -> None:
    """SCL-1, CLI-5: whoever names only that hears why nothing can be kept there."""

    async def body(store: PostgresStore) -> None:
        with pytest.raises(JournalError, match="read-only") as refused:
            await store.probe()
        assert "\n" not in str(refused.value)

    only = urlsplit(pair.url)._replace(netloc=f"gateway@127.0.0.1:{pair.standby.port}").geturl()
    run(only, body)
    run(f"{only}?target_session_attrs=any", body)
