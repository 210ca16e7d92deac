"""`holdfast pin`: set, list and remove pins (RST-8)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.door import clean, cut, out, out_json
from holdfast.cli.tables import plural, table
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from holdfast.adapters.config import Config
    from holdfast.engine.session import LiveSession


def pin_command(
    reference: str, config: Config, *, text: str | None, is_list: bool, remove: str | None, is_json: bool
) -> None:
    """Do the one thing that was asked for."""
    import anyio

    if sum((text is not None, is_list, remove is not None)) != 1:
        raise BadSetting("say one of the three: a TEXT to pin, --list, or --remove ID")
    path = Path(reference)
    done = anyio.run(_run, path if path.exists() else reference, config, text, remove)
    if is_json:
        out_json(done)
    elif text is not None:
        out(f"pinned as {done['pinned']['id']}: {taken(done)}")
    elif remove is not None:
        out(f"removed {done['removed']['id']}: {taken(done)}")
    else:
        show_pins(done)


async def _run(reference: str | Path, config: Config, text: str | None, remove: str | None) -> dict[str, Any]:
    from holdfast.engine.pins import pin, unpin
    from holdfast.wiring import Parts, open_session

    is_reading = text is None and remove is None
    session = await open_session(config.home, reference, read_only=is_reading, parts=Parts(settings=config.settings))
    try:
        done: dict[str, Any] = {}
        if text is not None:
            done["pinned"] = {"id": (await pin(session, text)).id, "text": text}
        elif remove is not None:
            gone = await unpin(session, remove)
            done["removed"] = {"id": gone.id, "text": gone.text}
        return done | pins_of(session)
    finally:
        await (session.world.journal.close() if is_reading else session.close())


def pins_of(session: LiveSession) -> dict[str, Any]:
    """The pins of a session, and what they take of their budget."""
    from holdfast.context.pins import pin_budget
    from holdfast.transcript.tokens import base_tokens

    view = session.view
    budget = pin_budget(view, session.facts())
    pins = [{"id": pin.id, "text": pin.text, "tokens": base_tokens(pin.text)} for pin in view.state.pins]
    return {"pins": pins, "tokens": budget.used, "limit_tokens": budget.limit}


def taken(done: dict[str, Any]) -> str:
    """How much of the budget the pins take, in words."""
    return f"{plural(len(done['pins']), 'pin')}, {done['tokens']:,} of {done['limit_tokens']:,} tokens"


def show_pins(done: dict[str, Any]) -> None:
    """All pins, as a table."""
    if not done["pins"]:
        out(f"no pins; they may take {done['limit_tokens']:,} tokens")
        return
    table(("pin", "tokens", "text"), [(clean(p["id"]), p["tokens"], cut(p["text"], 80)) for p in done["pins"]])
    out(taken(done))
