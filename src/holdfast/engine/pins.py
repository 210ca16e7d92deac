"""Setting and removing pins (RST-8)."""

from __future__ import annotations

from holdfast.context.pins import pin_refusal
from holdfast.engine.session import LiveSession
from holdfast.errors import PinRefused
from holdfast.transcript.records import Pinned


async def pin(session: LiveSession, text: str) -> Pinned:
    """Pin a text word for word; durable when this returns. Raises `PinRefused` when it is empty or doesn't fit."""
    why = pin_refusal(session.view, text, session.facts())
    if why is not None:
        raise PinRefused(why)
    taken = {one.id for one in session.view.state.pins}
    identity = session.world.ids.new("pin")
    while identity in taken:
        identity = session.world.ids.new("pin")
    record = Pinned(id=identity, text=text)
    await session.record(record)
    return record


async def unpin(session: LiveSession, identity: str) -> Pinned:
    """Take a pin back, by its id or a beginning of it that only one has. Raises `PinRefused` when there is no such."""
    found = [one for one in session.view.state.pins if one.id == identity]
    found = found or [one for one in session.view.state.pins if identity and one.id.startswith(identity)]
    if len(found) != 1:
        raise PinRefused(f"no pin {identity!r} in this session" if not found else f"{identity!r} means several pins")
    await session.record(Pinned(id=found[0].id))
    return found[0]
