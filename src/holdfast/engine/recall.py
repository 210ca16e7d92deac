"""Recall and search over a session: what left the view comes back from the journal and the blobs (RCL-1)."""

from __future__ import annotations

from holdfast.context.originals import Original, Originals, blob_original
from holdfast.context.recall import BadRecall, Shown, Wanted, shown
from holdfast.engine.session import LiveSession
from holdfast.errors import HoldfastError, JournalError
from holdfast.ports import Blobs, Found, Loaded
from holdfast.transcript.messages import BlobId

_BLOB_CHARS = 64
_NAMED = 5


async def recall(session: LiveSession, wanted: Wanted, *, other: str | None = None) -> Shown:
    """What an id stands for, in this session or another of its project. Raises `BadRecall` when it is unknown."""
    return shown(await original(session, wanted.id, other=other), wanted)


async def original(session: LiveSession, identity: str, *, other: str | None = None) -> Original:
    """The exact original behind an id, or behind a beginning of one that no other id has."""
    if other is not None:
        if session.world.archive is None:
            raise BadRecall("no other session can be reached from here")
        loaded, blobs = await session.world.archive.load(other)
    else:
        if (shown := in_view(session, identity)) is not None:
            return shown
        loaded, blobs = await session.world.journal.load(whole=True), session.world.blobs
    return await original_in(loaded, blobs, identity)


def in_view(session: LiveSession, identity: str) -> Original | None:
    """The original of something that is in the view, as said, whatever is shown in its place."""
    view = session.view
    if identity not in view.positions and identity not in view.results:
        return None
    return Originals(item.message for item in view.items).find(identity)


async def original_in(loaded: Loaded, blobs: Blobs, identity: str) -> Original:
    """The same, of a journal that was read."""
    originals = Originals(placed.record for placed in loaded.records)
    named = originals.named(identity.strip())
    if len(named) > 1:
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        raise BadRecall(
            f"{identity[:80]!r} begins {len(named)} ids: {', '.join(named[:_NAMED])}{more}; give more of it"
        )
    found = originals.find(named[0]) if named else None
    if found is not None:
        return found
    blob = named[0] if named else identity.strip()
    if len(blob) == _BLOB_CHARS:
        try:
            return blob_original(blob, await blobs.get(BlobId(blob)))
        except JournalError:
            pass  # said below, in the words of who asked
    raise BadRecall(f"nothing here has the id {identity[:80]!r}: search for what it says instead")


async def search(session: LiveSession, query: str, *, limit: int = 10, sessions: tuple[str, ...] = ()) -> Found:
    """Everything that fits a query, in this session and the others of its project, best first."""
    if session.world.archive is None:
        raise HoldfastError("nothing can be searched here: the session has no archive")
    return await session.world.archive.search(query, limit=limit, sessions=sessions)
