"""Where a command finds sessions: in the files of this machine, or in a store that gateways and programs share (SCL-1).

Commands that take `--store` and `--tenant` make a `KeptIn` of them, and get a home, or the session that a person named.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.arguments import LAST, STORE, TENANT, home, located, short_name
from perdure.cli.output import note, plural
from perdure.errors import BadSetting, SessionNotFound

if TYPE_CHECKING:
    from perdure.ports.home import Home, SessionInfo, Store, StoredSession

_MOST_TENANTS = 100  # that are looked through for a session whose tenant nobody named
_NAMED = 5

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=STORE,
        show_envvar=False,
        help="A database (postgresql://user@host/name) instead of this machine's files; or $PERDURE_STORE.",
    ),
]
TenantName = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        envvar=TENANT,
        show_envvar=False,
        help="Whose sessions, where a gateway or a program keeps them for several; or $PERDURE_TENANT.",
    ),
]


@dataclass(frozen=True, slots=True)
class NamedSession:
    """A session that a person named, with the home that it stands in. On files, its path opens it, elsewhere its id."""

    home: Home
    reference: str | Path

    @property
    def id(self) -> str:
        """Its whole id."""
        return self.reference.name if isinstance(self.reference, Path) else self.reference

    @property
    def short(self) -> str:
        """What is enough to name it in the next command."""
        return short_name(self.reference) if isinstance(self.reference, Path) else self.reference

    async def opened(self, *, read_only: bool) -> StoredSession:
        """The session as it is kept; its journal is the caller's to close."""
        from perdure.adapters.journal.home import FileHome

        if isinstance(self.home, FileHome):
            return await self.home.open(self.reference, read_only=read_only)
        return await self.home.open(self.id, read_only=read_only)

    async def info(self) -> SessionInfo:
        """What a listing says of it."""
        if isinstance(self.reference, Path):
            from perdure.adapters.journal import JOURNAL
            from perdure.adapters.journal.store import describe

            return describe(self.reference / JOURNAL)
        if not (listed := await self.home.sessions(ids=(self.id,))):
            raise SessionNotFound(f"{self.id}: deleted just now")
        return listed[0]


@dataclass(frozen=True, slots=True)
class KeptIn:
    """A store, by default the files of this machine, and a tenant of it, by default the person's own home."""

    store: str | None = None
    tenant: str | None = None

    @property
    def is_database(self) -> bool:
        """Whether it isn't in files."""
        return "://" in (self.store or "")

    def only_files(self, why: str) -> None:
        """Refuse what can't be had of a database, where one was named.

        Raises:
            BadSetting: One was.
        """
        if self.is_database:
            raise BadSetting(f'{why}; `--store ""` means this machine\'s files')

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """The store, closed afterwards."""
        from perdure.wiring.stores import store_at

        if self.is_database and self.store != os.environ.get(STORE) and _has_password(self.store or ""):
            note("others see the password of --store in the list of processes: $PGPASSWORD or ~/.pgpass hides it")
        store = store_at(self.store or home())
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def home(self) -> AsyncIterator[Home]:
        """The home of the tenant, or of the person. `SessionNotFound` for a tenant that nothing is kept of."""
        async with self.opened() as store:
            yield await self.home_in(store)

    async def home_in(self, store: Store) -> Home:
        """As `home`, in a store that is open."""
        if not self.tenant:
            return store.home()
        tenants = sorted(await store.tenants())
        if self.tenant not in tenants:
            others = f"; it has {', '.join(tenants[:_NAMED])}" if tenants else ""
            more = f" and {len(tenants) - _NAMED:,} more" if len(tenants) > _NAMED else ""
            raise SessionNotFound(f"{store.name}: nothing is kept of a tenant {self.tenant!r}{others}{more}")
        return store.home(self.tenant)

    @asynccontextmanager
    async def session(self, text: str) -> AsyncIterator[NamedSession]:
        """The session that a person named: by its id or a part of it, as `@last`, as `@2`, and on files by a path.

        Where no tenant is named, it may be of any, on files and in a store of few tenants.

        Raises:
            SessionNotFound: None has this name, or several have it.
        """
        from perdure.adapters.journal.home import FileHome
        from perdure.adapters.journal.store import home_around

        async with self.opened() as store:
            kept_in = await self.home_in(store)
            if isinstance(kept_in, FileHome):
                directory = located(text, kept_in.path)
                around = home_around(directory)
                yield NamedSession(kept_in if around is None else FileHome(around), directory)
            else:
                yield await self._found(store, kept_in, text)

    async def _found(self, store: Store, own: Home, text: str) -> NamedSession:
        if text == LAST:
            if not (listed := await own.sessions(os.getcwd(), limit=1)):
                raise SessionNotFound(f"{text}: no session of this folder in {store.name}; @1 is the last of all")
            return NamedSession(own, listed[0].id)
        if re.fullmatch(r"@\d{1,9}", text):
            listed = await own.sessions(limit=int(text[1:]))
            if not 0 < int(text[1:]) <= len(listed):
                kept = plural(len(listed), "session")
                raise SessionNotFound(f"{text}: {kept} kept there; `perdure sessions` numbers them")
            return NamedSession(own, listed[-1].id)
        try:
            return await _named(own, text)
        except SessionNotFound as e:
            tenants = [] if self.tenant else sorted(await store.tenants())
            if len(tenants) > _MOST_TENANTS:
                raise SessionNotFound(f"{e}: it has {len(tenants):,} tenants; --tenant says whose it is") from None
            found = {}
            for tenant in tenants:
                try:
                    found[tenant] = await _named(store.home(tenant), text)
                except SessionNotFound:
                    continue
            if len(found) > 1:
                raise SessionNotFound(f"{text!r} names sessions of {', '.join(found)}: choose with --tenant") from None
            if not found:
                raise
            return next(iter(found.values()))


HERE = KeptIn()  # the files of this machine


async def _named(home: Home, text: str) -> NamedSession:
    """The session that a part of its id names; nothing of it is read."""
    return NamedSession(home, (await home.open(text, read_only=True)).id)


def _has_password(url: str) -> bool:
    return ":" in url.partition("://")[2].rpartition("@")[0] or "password=" in url
