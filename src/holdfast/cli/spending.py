"""`holdfast notes spend`: what the models that keep a session's notes cost, from its journal (SM-9)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.cli.door import out, out_json, reference_of
from holdfast.cli.tables import plural, table, tokens, usd

if TYPE_CHECKING:
    from holdfast.adapters.config import Config
    from holdfast.memory.spending import Spent

_HOUR_SECONDS = 3_600.0


def spend_command(reference: str, config: Config, *, is_json: bool) -> None:
    """A row for each job and model, and what the last hour took of its budget."""
    import anyio

    data = _data(anyio.run(_spent, reference, config), config)
    if is_json:
        out_json(data)
        return
    if not data["runs"]:
        out("nothing was spent: no model was asked in the background of this session")
        return
    rows = [
        (
            one["job"],
            one["model"],
            one["runs"],
            one["failed"],
            one["turns"],
            one["cache_read"],
            one["cache_write"],
            one["input"],
            one["output"],
            one["usd"],
        )
        for one in data["jobs"]
    ]
    table(("job", "model", "runs", "failed", "calls", "cached", "written", "uncached", "output", "usd"), rows)
    hour, most = data["last_hour"], data["per_hour"]
    out(f"\nin all {usd(data['usd'])}; {plural(data['runs'], 'run')}")
    out(
        f"notes in the last hour: {hour['runs']} of {most['runs'] or 'any number of'} runs, "
        f"{tokens(hour['tokens'])} of {tokens(most['tokens']) if most['tokens'] else 'any number of'} tokens"
    )


async def _spent(reference: str, config: Config) -> tuple[Spent, ...]:
    from holdfast.adapters.files import SessionStore
    from holdfast.memory.spending import read

    files = await SessionStore(config.home).open(reference_of(reference), read_only=True)
    try:
        loaded = await files.journal.load(whole=True)
    finally:
        await files.journal.close()
    return read(placed.record for placed in loaded.records)


def _data(spent: tuple[Spent, ...], config: Config) -> dict[str, Any]:
    from holdfast.memory.spending import summed

    jobs = summed(spent)
    prices = [one["usd"] for one in jobs]
    recent = [one for one in spent if one.job == "notes" and time.time() - one.at < _HOUR_SECONDS]
    return {
        "runs": len(spent),
        "usd": None if None in prices else round(sum(prices), 6),
        "jobs": jobs,
        "last_hour": {"runs": len(recent), "tokens": sum(one.tokens for one in recent)},
        "per_hour": {
            "runs": config.settings.notes_runs_per_hour,
            "tokens": config.settings.notes_tokens_per_hour,
        },
    }
