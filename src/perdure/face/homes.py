"""Where the sessions of a program are kept: in a folder, in a database, or in a home of a store that was opened once
and is shared by many of them (LIB-1, SCL-1).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.errors import BadSetting
from perdure.face.opening import Opening

if TYPE_CHECKING:
    from perdure.ports.home import Home, SessionInfo, Store

_CONNECTIONS = 8


class SharedStore:
    """A database, or a folder, that is opened once and shared by any number of sessions, each in the home of a tenant.

    Open one with `SharedStore.at`, as `async with SharedStore.at("postgresql://…") as store`, and give its homes to
    `Session.create`, `open` and `named`, to `Agent.create` and to integrations. Close the sessions first.

    Attributes:
        name: where it is, without a user and a password.

    Example:
        async with SharedStore.at("store") as store:
            for person in ("alice", "bob"):
                async with Session.create(".", home=store.home(person), id="letters") as session:
                    await session.append(f"I am {person}.")
            assert store.name.endswith("store")
    """

    def __init__(self, store: Store) -> None:
        self._store, self.name = store, store.name

    @classmethod
    def at(cls, place: str | Path, *, connections: int = _CONNECTIONS) -> Opening[SharedStore]:
        """Open a store; a database is asked whether it has the schema of this version.

        Args:
            place: `postgresql://user@host/database`, or a folder. A password is better kept in $PGPASSWORD, in
                ~/.pgpass or in a service file.
            connections: to a database, at most so many at a time. A call needs one for a moment, a session none.

        Returns:
            The store, to be awaited or entered with `async with`.

        Raises:
            BadSetting: there can't be a store there, or a package is missing.
            JournalError: the database can't be reached or refuses, or isn't of this version's schema.

        Example:
            async with SharedStore.at("store") as store:
                async with Session.named("a letter to Ann", home=store.home()) as session:
                    await session.append("Dear Ann,")
        """

        async def opened() -> SharedStore:
            from perdure.wiring.stores import store_at

            store = store_at(place if _is_url(place) else path_of(place, "place"), connections=connections)
            try:
                await store.tenants()
            except BaseException:
                await store.close()
                raise
            return cls(store)

        return Opening("SharedStore.at(…)", opened)

    def home(self, tenant: str = "") -> Home:
        """Return the home of a tenant, for `home=`. Tenants see nothing of each other.

        Args:
            tenant: any name, such as that of a customer; without one, the home of the program itself.

        Returns:
            The home, as `home=` takes it. It holds nothing by itself.

        Raises:
            BadSetting: it isn't a text.
            JournalError: the store can't have a home of this name.

        Example:
            async with SharedStore.at("store") as store:
                async with Session.create(".", home=store.home("alice")) as session:
                    await session.append("Hello")
        """
        if not isinstance(tenant, str):
            raise BadSetting(f"the name of a tenant must be a text, not {type(tenant).__name__}")
        return self._store.home(tenant)

    async def sessions(
        self, tenant: str = "", *, project: str | Path | None = None, limit: int = 100
    ) -> list[SessionInfo]:
        """List the sessions of a tenant, the last written first.

        Args:
            tenant: whose they are.
            project: only those about this folder.
            limit: at most so many.

        Returns:
            Of each its `id`, `title`, `last_prompt`, `messages`, `modified`, `bytes` and more.

        Raises:
            JournalError: the store can't be read.

        Example:
            async with SharedStore.at("store") as store:
                async with Session.create(".", home=store.home("alice")) as session:
                    await session.append("Hello")
                assert [one.last_prompt for one in await store.sessions("alice", limit=5)] == ["Hello"]
        """
        folder = None if project is None else str(path_of(project, "project"))
        return list(await self.home(tenant).sessions(folder, limit=limit))

    async def delete(self, session: str, tenant: str = "") -> None:
        """Delete a session with all that it keeps, for good.

        Args:
            session: its whole id.
            tenant: whose it is.

        Raises:
            SessionNotFound: there is none of this id.
            SessionBusy: somebody has it open.
            JournalError: the store refuses.

        Example:
            async with SharedStore.at("store") as store:
                await (await Session.create(".", home=store.home("alice"), id="letters")).close()
                await store.delete("letters", "alice")
        """
        await self.home(tenant).delete(session)

    async def tenants(self) -> list[str]:
        """List the tenants that keep anything.

        Returns:
            Their names, sorted.

        Raises:
            JournalError: the store can't be read.

        Example:
            async with SharedStore.at("store") as store:
                assert await store.tenants() == []
        """
        return sorted(await self._store.tenants())

    async def delete_tenant(self, tenant: str) -> None:
        """Delete all that a tenant keeps, for good.

        Args:
            tenant: its name; one that nothing is kept of is no mistake.

        Raises:
            SessionBusy: one of its sessions is being written, where the store is a folder.
            JournalError: the store refuses.

        Example:
            async with SharedStore.at("store") as store:
                await store.delete_tenant("alice")
        """
        if not tenant:
            raise BadSetting("name the tenant whose home is to be deleted")
        await self._store.delete_tenant(tenant)

    async def close(self) -> None:
        """Let go of the store; its sessions have to be closed by then. Twice is no mistake.

        Example:
            store = await SharedStore.at("store")
            await store.close()
        """
        await self._store.close()

    async def __aenter__(self) -> SharedStore:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def home_of_program(home: Any) -> tuple[Path | Home, Store | None]:
    """Return what `home=` means: a folder or a home; and a store of its own, to be closed with it, where it is a URL.

    Raises:
        BadSetting: It means nothing.
    """
    if _is_url(home):
        from perdure.wiring.stores import store_at

        store = store_at(home)
        return store.home(), store
    if home is None or isinstance(home, str | Path):
        return home_folder(home), None
    if isinstance(home, SharedStore):
        raise BadSetting("home: a store has a home for each tenant: write store.home(), or store.home('alice')")
    if not (hasattr(home, "archive") and hasattr(home, "secret_key")):
        raise BadSetting(
            f"home must be the path of a folder, postgresql://user@host/database or store.home(…), not {home!r:.60}"
        )
    found: Home = home
    return found, None


def home_folder(home: str | Path | None) -> Path:
    """Return the folder that `home=` names, for what is kept in files only.

    Raises:
        BadSetting: It isn't the path of one.
    """
    from perdure.adapters.config import home_of

    return home_of(os.environ) if home is None else Path(path_of(home, "home")).expanduser()


def path_of(given: Any, what: str) -> Path:
    """Return a path as it was given. Raises `BadSetting` for what no system has as one."""
    if isinstance(given, str | os.PathLike) and str(given):
        path = Path(given)
        if "\0" in str(path):
            raise BadSetting(f"{what} must be the path of a folder, got {str(path)!r:.60}: take the NUL character out")
        names = (len(part.encode("utf-8", "surrogatepass")) for part in path.parts)
        if len(str(path)) > _LONGEST_PATH or max(names, default=0) > _LONGEST_NAME:
            raise BadSetting(f"{what} must be the path of a folder, got {len(str(path)):,} characters: shorten it")
        return path
    raise BadSetting(f"{what} must be the path of a folder, not {given!r:.60}")


_LONGEST_NAME, _LONGEST_PATH = 255, 4_000  # bytes of a name, and characters of a path, that any system has


def _is_url(place: Any) -> bool:
    return isinstance(place, str) and "://" in place
