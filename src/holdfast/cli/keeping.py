"""`holdfast sessions rename|tag|fork`: what people do to sessions without talking in them (SES-1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from holdfast.cli.door import clean, configured, out, out_json, reference_of
from holdfast.errors import BadSetting
from holdfast.transcript.records import Titled
from holdfast.wiring import Parts, fork_session, open_session

if TYPE_CHECKING:
    from holdfast.engine.session import LiveSession

TITLE_CHARS = 200
TAG_CHARS = 50


def rename_command(reference: str, title: str, *, is_json: bool) -> None:
    """Record another title."""
    told = _title(title)

    async def rename(session: LiveSession) -> dict[str, Any]:
        await session.record(Titled(title=told))
        return {"title": told}

    done = anyio.run(_changed, reference, rename)
    out_json(done) if is_json else out(f"{done['session']} is now {clean(told)!r}")


def tag_command(reference: str, add: Sequence[str], remove: Sequence[str], *, is_json: bool) -> None:
    """Record which tags there are now."""
    add, remove = [_tag(tag) for tag in add], [_tag(tag) for tag in remove]

    async def retag(session: LiveSession) -> dict[str, Any]:
        before = session.view.state.title.tags or ()
        if unknown := [tag for tag in remove if tag not in before]:
            raise BadSetting(f"--remove: the session has no tag {unknown[0]!r}; it has: {', '.join(before) or 'none'}")
        now = tuple(dict.fromkeys(tag for tag in (*before, *add) if tag not in remove))
        if now != before:
            await session.record(Titled(tags=now))
        return {"tags": list(now)}

    done = anyio.run(_changed, reference, retag)
    out_json(done) if is_json else out(f"{done['session']}: {clean(', '.join(done['tags'])) or 'no tags'}")


def fork_command(reference: str, title: str | None, *, is_json: bool) -> None:
    """Make the fork, and say its id."""
    told = None if title is None else _title(title)

    async def body() -> dict[str, Any]:
        config = configured()
        session = await fork_session(config.home, reference_of(reference), parts=Parts(settings=config.settings))
        try:
            if told is not None:
                await session.record(Titled(title=told))
            header = (await session.world.journal.load()).header
            return {
                "session": header.session,
                "forked_from": header.forked_from,
                "title": session.view.state.title.title,
            }
        finally:
            await session.close()

    done = anyio.run(body)
    out_json(done) if is_json else out(f"{done['session']} goes on from {done['forked_from']}")


async def _changed(reference: str, change: Callable[[LiveSession], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    config = configured()
    session = await open_session(config.home, reference_of(reference), parts=Parts(settings=config.settings))
    try:
        done = await change(session)
        return {"session": (await session.world.journal.load()).header.session, **done}
    finally:
        await session.close()


def _title(text: str) -> str:
    title = " ".join(text.split())
    if not title or len(title) > TITLE_CHARS:
        raise BadSetting(f"a title has 1 to {TITLE_CHARS} characters on one line")
    return title


def _tag(text: str) -> str:
    tag = text.strip()
    if not tag or len(tag) > TAG_CHARS or any(c.isspace() or c == "," for c in tag):
        raise BadSetting(f"{text!r}: a tag is one word of 1 to {TAG_CHARS} characters")
    return tag
