"""What each tenant has used today, and whether it may use more (GW-9)."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
import msgspec
from msgspec.structs import replace

from perdure.errors import JournalError
from perdure.gateway.admission import Refusal
from perdure.gateway.config import TenantLimits
from perdure.ports.home import Documents, Store
from perdure.transcript.messages import Usage

_LOG = logging.getLogger("perdure.gateway")
USAGE = "usage"  # the kind of document, and the name of the only one
_KEPT_DAYS = 400
_DAY_SECONDS = 86_400
_ALONE_SECONDS = 120  # longer than a minute's requests are counted
_FRESH_SECONDS = 5.0  # after which it is looked what other gateways counted, if that may be too much


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
    version: str | None = None  # of the document that they were read from
    is_saved: bool = True
    saved: dict[str, DayUsage] = field(init=False)  # what that says
    seen: float = 0.0
    read: float = 0.0  # when what is kept was looked at last
    left: float = math.inf  # requests
    refilled: float = 0.0

    def __post_init__(self) -> None:
        self.saved = _copied(self.days)

    def go_on_from(self, theirs: dict[str, DayUsage], version: str | None) -> None:
        """Add what was used since the last time to what others have kept meanwhile; whoever holds a day holds it on."""
        for name in {*self.days, *theirs}:
            day, before, now = self.days.setdefault(name, DayUsage()), self.saved.get(name), theirs.get(name)
            for count in DayUsage.__struct_fields__:
                more = getattr(now, count, 0) - getattr(before, count, 0)
                setattr(day, count, getattr(day, count) + more)
        self.saved, self.version = _copied(theirs), version

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
    """What all tenants used, each in a document of its home.

    What a kill takes is what was used since the last `save`. Other gateways may count in the same documents: what was
    used here is added to what they say by then, and seen by the others when they save the next time, or look at it.
    """

    store: Store
    _known: dict[str, TenantUsage] = field(default_factory=dict)
    _turn: anyio.Lock = field(default_factory=anyio.Lock)  # what is written here isn't taken for what others used

    async def of(self, tenant: str, now: float, limits: TenantLimits | None = None) -> TenantUsage:
        """What a tenant used, to be looked at or counted in now; where there are quotas of a day, by others as well."""
        found = self._known.get(tenant)
        if found is None:
            read = TenantUsage({}, read=now)
            with suppress(JournalError):
                read = TenantUsage(*await self._read(tenant), read=now)
            found = self._known.setdefault(tenant, read)
        elif limits is not None and limits.are_daily and now - found.read > _FRESH_SECONDS:
            found.read = now
            with suppress(JournalError):
                async with self._turn:
                    found.go_on_from(*await self._read(tenant))
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
                try:
                    async with self._turn:
                        await self._write(tenant, used)
                    used.read = now
                except JournalError as e:
                    used.is_saved = False
                    _LOG.info("the usage of %s can't be saved: %s", tenant, type(e.__cause__ or e).__name__)

    async def _read(self, tenant: str) -> tuple[dict[str, DayUsage], str | None]:
        """The days as they are kept, none where nobody can read them, and their version."""
        kept = await self._documents(tenant).get(USAGE)
        if kept is None:
            return {}, None
        with suppress(msgspec.MsgspecError):
            return msgspec.json.decode(kept.data, type=_UsageFile).days, kept.version
        return {}, kept.version

    async def _write(self, tenant: str, used: TenantUsage) -> None:
        while True:
            days = _copied(used.days)
            data = msgspec.json.encode(_UsageFile(days))
            version = await self._documents(tenant).put(USAGE, data, instead_of=used.version)
            if version is not None:
                used.saved, used.version = days, version
                return
            theirs, version = await self._read(tenant)
            used.go_on_from(theirs, version)

    def _documents(self, tenant: str) -> Documents:
        return self.store.home(tenant).documents(USAGE)


def _copied(days: dict[str, DayUsage]) -> dict[str, DayUsage]:
    return {name: replace(day) for name, day in days.items()}


def _day(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).date().isoformat()
