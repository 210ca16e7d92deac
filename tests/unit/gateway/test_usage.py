"""What tenants used, counted by one gateway or several (GW-9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.gateways import in_loop

from perdure.adapters.journal import FileStore
from perdure.adapters.journal.memory_home import MemoryDocuments, MemoryHomes
from perdure.gateway.admission import Refusal
from perdure.gateway.config import TenantLimits
from perdure.gateway.quotas import USAGE, UsageBook
from perdure.transcript.messages import Usage
from perdure.wiring.stores import store_at

NOW = 1_700_000_000.0


@in_loop
async def test_two_gateways_count_in_the_same_days(tmp_path: Path) -> None:
    """GW-9, SCL-3: what both used is kept; each learns of the other's when it saves."""
    one, other = UsageBook(FileStore(tmp_path)), UsageBook(FileStore(tmp_path))
    for book, tokens in ((one, 10), (other, 500), (one, 7)):
        (await book.of("ann", NOW)).count(Usage(input_tokens=tokens, output_tokens=1), 0.5, NOW)
        await book.save(NOW)
    assert (await one.of("ann", NOW)).today(NOW).prompt_tokens == 517
    assert (await other.of("ann", NOW)).today(NOW).prompt_tokens == 510, "not looked at since it saved"
    told = (await UsageBook(FileStore(tmp_path)).of("ann", NOW)).today(NOW)
    assert (told.prompt_tokens, told.output_tokens, told.usd) == (517, 3, 1.5)


@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_a_quota_of_a_day_is_that_of_all_gateways(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """GW-9, SCL-3: what was used up at one is refused at the other, which asked for nothing itself meanwhile."""
    place = tmp_path if kind == "files" else request.getfixturevalue("postgres")
    limits, most = TenantLimits(tokens_per_day=1_000), Usage(input_tokens=900, output_tokens=90)

    async def body() -> None:
        one, other = (UsageBook(store_at(place)) for _ in range(2))
        for book in (one, other):
            (await book.of("ann", NOW, limits)).admit(limits, NOW)
        for n in range(2):
            (await one.of("ann", NOW, limits)).count(most, 0.5, NOW)
            await one.save(NOW)
            used = (await other.of("ann", NOW + 6 * (n + 1), limits)).today(NOW)
            assert (used.tokens, used.usd) == (990 * (n + 1), 0.5 * (n + 1))
        with pytest.raises(Refusal, match="quota of 1,000 tokens"):
            (await other.of("ann", NOW + 13, limits)).admit(limits, NOW + 13)
        (await other.of("ann", NOW + 13)).count(Usage(input_tokens=1), None, NOW + 13)
        await other.save(NOW + 13)
        assert (await UsageBook(other.store).of("ann", NOW)).today(NOW).tokens == 1_981, "nothing is counted twice"
        for book in (one, other):
            await book.store.close()

    anyio.run(body)


@in_loop
async def test_what_is_looked_at_while_it_is_saved_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-9: what a gateway has just written isn't what others used, though it doesn't know yet that it is written."""
    put = MemoryDocuments.put

    async def slow(self: MemoryDocuments, name: str, data: bytes, *, instead_of: str | None) -> str | None:
        version = await put(self, name, data, instead_of=instead_of)
        await asyncio.sleep(0.02)
        return version

    monkeypatch.setattr(MemoryDocuments, "put", slow)
    limits, book = TenantLimits(tokens_per_day=1_000), UsageBook(MemoryHomes())
    (await book.of("ann", NOW, limits)).count(Usage(input_tokens=7), None, NOW)
    async with asyncio.TaskGroup() as group:
        group.create_task(book.save(NOW))
        await asyncio.sleep(0.01)
        await book.of("ann", NOW + 6, limits)
    assert (await book.of("ann", NOW + 6)).today(NOW).tokens == 7
    await book.save(NOW + 6)
    assert (await UsageBook(book.store).of("ann", NOW)).today(NOW).tokens == 7


@in_loop
async def test_usage_that_cannot_be_read_is_counted_anew(tmp_path: Path) -> None:
    """GW-9, REL-15: a damaged file costs what it said, and nobody's request."""
    path = tmp_path / "gateway" / "tenants" / "ann" / f"{USAGE}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{half")
    book = UsageBook(FileStore(tmp_path))
    (await book.of("ann", NOW)).count(Usage(input_tokens=3), None, NOW)
    await book.save(NOW)
    (day,) = msgspec.json.decode(path.read_bytes())["days"].values()
    assert day["prompt_tokens"] == 3
