"""What tenants used, counted by one gateway or several (GW-9)."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.gateways import in_loop

from perdure.adapters.journal import FileStore
from perdure.gateway.quotas import USAGE, UsageBook
from perdure.transcript.messages import Usage

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
