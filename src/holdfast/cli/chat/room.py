"""/context, /compact, /autocompact, /undo, /cost: the window, how room is made in it, and what it costs (CLI-1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.adapters.values import Unusable, parsed
from holdfast.cli.tables import Cell, table, tokens, usd
from holdfast.cli.window import show_window
from holdfast.context.policy import Thresholds
from holdfast.engine.compaction import Done, compact
from holdfast.engine.undo import uncompact
from holdfast.errors import BadSetting
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.cli.chat.talk import Chat


async def context_command(chat: Chat, argument: str) -> None:
    """The same grid and table as `holdfast context`, of the view as it is."""
    await chat.agent.open()
    session = chat.agent.session
    show_window(session.name, session.view, session.facts())


async def compact_command(chat: Chat, focus: str) -> None:
    """Compact now. The event that tells of it says what was done."""
    session = chat.agent.session
    outcome = await compact(session, trigger="manual", focus=focus)
    if not isinstance(outcome, Done):
        chat.screen.line(f"not compacted: {outcome.reason}; the session is as it was", "yellow")


async def autocompact_command(chat: Chat, argument: str) -> None:
    """Show what auto-compaction does here, or set the window that it counts with, for this process (PRS-3)."""
    session = chat.agent.session
    if argument:
        session.configure(_changed(session.settings, argument))
        chat.place.config = replace(chat.place.config, settings=session.settings)
    for line in told(session.limits, session.settings):
        chat.screen.line(line)


def _changed(settings: Settings, argument: str) -> Settings:
    if argument in ("on", "off"):
        return replace(settings, auto_compact=argument == "on")
    try:
        window = None if argument == "default" else parsed("auto_compact_window", argument, None)
    except Unusable as e:
        raise BadSetting(f"/autocompact {argument}: {e}; give a window such as 100k, on, off or default") from None
    return replace(settings, auto_compact_window=window)


def told(limits: Thresholds, settings: Settings) -> list[str]:
    """What auto-compaction does with these settings, in words."""
    lines = [f"window {limits.window:,} tokens (from: {limits.window_source}), of which {limits.usable:,} are usable"]
    if not settings.compact:
        return [*lines, "compaction is switched off altogether (the setting compact, or DISABLE_COMPACT)"]
    if not limits.auto:
        return [*lines, f"auto-compaction is off; calls stop at {limits.block:,} tokens. /compact makes room by hand"]
    counted = min(limits.window, settings.auto_compact_window or limits.window)
    lines.append(f"auto-compaction counts with a window of {counted:,} and begins at {limits.trigger:,} tokens")
    lines.append("what is old gives way to a record then; the newest messages, your words and pins stay word for word")
    lines.append(
        "/autocompact 100k sets the window, off and on switch; both for this chat. In the config: auto_compact_window"
    )
    return lines


async def undo_command(chat: Chat, argument: str) -> None:
    """Take the last compaction back (CMP-11)."""
    done = await uncompact(chat.agent.session)
    chat.screen.line(f"undone: {done.tokens_before:,} -> {done.tokens_after:,} tokens", "cyan")
    chat.screen.line("automatic compaction now waits until the window is nearly full")


async def cost_command(chat: Chat, argument: str) -> None:
    """What the models were asked for and what that cost, since this chat began."""
    rows: list[tuple[Cell, ...]] = [
        (job, model, one.calls, tokens(one.read), tokens(one.cached), tokens(one.written), one.usd)
        for (job, model), one in chat.spent.rows.items()
    ]
    if not rows:
        chat.screen.line("no model was asked yet")
        return
    table(("job", "model", "calls", "read", "of it cached", "written", "usd"), rows)
    chat.screen.line(f"in all {usd(chat.spent.usd)} since this chat began" if chat.spent.is_priced else _UNPRICED)


_UNPRICED = "no prices are known for this model; add them to the config under [models]"
