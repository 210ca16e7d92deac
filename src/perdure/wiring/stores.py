"""The store that a person names: a folder, or a database (SCL-1)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.adapters.extras import install
from perdure.adapters.journal.home import FileHome, FileStore
from perdure.errors import BadSetting, JournalError
from perdure.ports.contents import HomeContents
from perdure.ports.home import Home, Store

if TYPE_CHECKING:
    from perdure.adapters.postgres.deletion import Vacuumed

CONNECTIONS = 8  # to a database, at most so many at a time
LEASE_SECONDS = 60.0
_DATABASES = ("postgresql://", "postgres://")


def is_shared(place: str | None) -> bool:
    """Whether several processes can be at the sessions of a store: of a folder one has each for as long as it likes."""
    return place is not None and place.startswith(_DATABASES)


def store_at(place: str | Path, *, connections: int = CONNECTIONS, lease_seconds: float = LEASE_SECONDS) -> Store:
    """The store at a place: `postgresql://user@host/database`, or a folder. Nothing is connected to or made yet.

    Args:
        place: Where it is.
        connections: How many connections to a database may be open at a time.
        lease_seconds: For how long a session in a database stays with a process that says nothing.

    Raises:
        BadSetting: There can't be a store there.
    """
    text = str(place)
    if not text.startswith(_DATABASES):
        if "://" in text:
            raise BadSetting(f"store: {text.partition('://')[0]}:// isn't known: write postgresql://user@host/database")
        return FileStore(Path(text).expanduser())
    try:
        from perdure.adapters.postgres.store import PostgresStore
    except ImportError as e:
        raise _missing(e) from e
    try:
        return PostgresStore(text, connections=connections, lease_seconds=lease_seconds)
    except JournalError as e:
        raise BadSetting(f"store: {e}") from None


async def migrated(database: str) -> int:
    """Bring a database to the schema of this version, as its owner; how many migrations that took.

    Raises:
        BadSetting: This is no database that can be one.
        JournalError: The database can't be reached, or refuses.
    """
    _check_database(database)
    from perdure.adapters.postgres.schema import migrate

    return await migrate(database)


async def with_bucket(database: str, address: str) -> str:
    """Have a database that is migrated keep its blobs in a bucket, as its owner; where in the bucket that is.

    Raises:
        BadSetting: The address, or what the environment says of the object store, can't be used.
        JournalError: Blobs are kept elsewhere already; the bucket or the database can't be used, or refuses.
    """
    from perdure.adapters.postgres.blobs import choose_bucket

    return await choose_bucket(database, address)


def both_stores(source: str, target: str) -> tuple[Store, Store]:
    """The store at a place, which has to be there if it is a folder, and another one.

    Raises:
        BadSetting: The first isn't there, or both are one, or there can't be one.
    """
    of, to = store_at(source), store_at(target)
    if isinstance(of, FileStore) and not of.path.is_dir():
        raise BadSetting(f"{of.path}: there is no such folder")
    is_in_files = isinstance(of, FileStore) and isinstance(to, FileStore)
    if of.name == to.name or (is_in_files and os.path.realpath(of.name) == os.path.realpath(to.name)):
        raise BadSetting(f"{of.name}: FROM and TO are the same store")
    return of, to


def contents_of(home: Home) -> HomeContents:
    """All that a home keeps, as bytes; of one that outlives its process."""
    if isinstance(home, FileHome):
        from perdure.adapters.journal.contents import FileContents

        return FileContents(home)
    from perdure.adapters.postgres.contents import PostgresContents
    from perdure.adapters.postgres.store import PostgresHome

    assert isinstance(home, PostgresHome)
    return PostgresContents(home)


async def vacuumed(database: str, on_table: Callable[[int, int, str], None]) -> Vacuumed:
    """Have the files of a database hold nothing any more that was deleted, as its owner or a superuser.

    Raises:
        BadSetting: This is no database.
        JournalError: A deletion isn't finished, or the database can't be reached, or refuses.
    """
    _check_database(database)
    from perdure.adapters.postgres.deletion import vacuum

    return await vacuum(database, on_table)


def _check_database(text: str) -> None:
    if not text.startswith(_DATABASES):
        raise BadSetting("store: only a database has a schema: write postgresql://owner@host/database")
    try:
        import psycopg  # noqa: F401
    except ImportError as e:
        raise _missing(e) from e


def _missing(error: ImportError) -> BadSetting:
    return BadSetting(f"store: a database needs another package ({error.name}): {install('postgres')}")
