"""What each tenant has used today, and whether it may use more (GW-9)."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import anyio.to_thread
import msgspec

from perdure.adapters.journal.disk import DISK, make_private, write_new
from perdure.gateway.admission import Refusal
from perdure.gateway.config import TenantLimits
from perdure.transcript.messages import Usage

_LOG = logging.getLogger("perdure.gateway")
USAGE = "usage.json"
_KEPT_DAYS = 400
_DAY_SECONDS = 86_400
_ALONE_SECONDS = 120  # longer than a minute's requests are counted


class DayUsage(msgspec.Struct):
    """What a tenant used on one day, by UTC."""

    requests: int = 0
    prompt_tokens: int = 0
    cache_read_tokens: int = 0  # of the prompts
    output_tokens: int = 0
    usd: float = 0.0  # of models whose price is known

    @property
    def tokens(self) -> int:
        """Prompts and answers."""
        return self.prompt_tokens + self.output_tokens


class _UsageFile(msgspec.Struct):
    days: dict[str, DayUsage] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class TenantUsage:
    """The days of one tenant, and how many requests it may still make in this minute."""

    days: dict[str, DayUsage]
    is_saved: bool = True
    seen: float = 0.0
    left: float = math.inf  # requests
    refilled: float = 0.0

    def today(self, now: float) -> DayUsage:
        """What was used today."""
        return self.days.setdefault(_day(now), DayUsage())

    def admit(self, limits: TenantLimits, now: float) -> None:
        """Count a request. Raises `Refusal` when it is beyond a limit."""
        used = self.today(now)
        until_midnight = math.ceil(_DAY_SECONDS - now % _DAY_SECONDS)
        for name, value, most, said in (
            ("tokens_per_day", used.tokens, limits.tokens_per_day, f"{limits.tokens_per_day or 0:,} tokens"),
            ("usd_per_day", used.usd, limits.usd_per_day, f"${limits.usd_per_day or 0:,.2f}"),
        ):
            if most is not None and value >= most:
                text = f"the day's quota of {said} is used up; it begins anew at midnight UTC"
                raise Refusal(name, 429, text, retry_after=until_midnight, is_worth_waiting=False)
        if (rate := limits.requests_per_minute) is not None:
            self.left = min(rate, self.left + (now - self.refilled) * rate / 60)
            self.refilled = now
            if self.left < 1:
                seconds = math.ceil((1 - self.left) * 60 / rate)
                text = f"more than {rate:,} requests a minute; come back in {seconds} s"
                raise Refusal("requests_per_minute", 429, text, retry_after=seconds)
            self.left -= 1
        used.requests += 1

    def count(self, usage: Usage, usd: float | None, now: float) -> None:
        """Count what answers cost."""
        used = self.today(now)
        used.prompt_tokens += usage.prompt_tokens
        used.cache_read_tokens += usage.cache_read_input_tokens
        used.output_tokens += usage.output_tokens
        used.usd += usd or 0.0
        self.is_saved = False


@dataclass(slots=True)
class UsageBook:
    """What all tenants used, each in a file of its own folder under `home`.

    Files are read and written in threads. What a kill takes is what was used since the last `save`.
    """

    home: Path
    _known: dict[str, TenantUsage] = field(default_factory=dict)

    async def of(self, tenant: str, now: float) -> TenantUsage:
        """What a tenant used, to be looked at or counted in now."""
        found = self._known.get(tenant)
        if found is None:
            read = await anyio.to_thread.run_sync(self._read, tenant)
            found = self._known.setdefault(tenant, read)
        found.seen = now
        return found

    async def save(self, now: float) -> None:
        """Write what isn't written yet; what can't be is tried again the next time. Who was left alone is let go of."""
        for tenant, used in list(self._known.items()):
            if used.is_saved and now - used.seen > _ALONE_SECONDS:
                del self._known[tenant]
            if not used.is_saved:
                used.is_saved = True
                for day in sorted(used.days)[:-_KEPT_DAYS]:
                    del used.days[day]
                data = msgspec.json.encode(_UsageFile(used.days))
                try:
                    await anyio.to_thread.run_sync(self._write, tenant, data)
                except OSError as e:
                    used.is_saved = False
                    _LOG.info("the usage of %s can't be saved: %s", tenant, type(e).__name__)

    def _read(self, tenant: str) -> TenantUsage:
        with suppress(OSError, msgspec.MsgspecError):
            return TenantUsage(msgspec.json.decode((self.home / tenant / USAGE).read_bytes(), type=_UsageFile).days)
        return TenantUsage({})

    def _write(self, tenant: str, data: bytes) -> None:
        folder = self.home / tenant
        make_private(folder)
        draft = folder / f"{USAGE}.new"
        draft.unlink(missing_ok=True)
        write_new(DISK, draft, data)
        draft.replace(folder / USAGE)


def _day(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).date().isoformat()
