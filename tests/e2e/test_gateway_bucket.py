"""A gateway whose store keeps its blobs in a bucket (SCL-1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.gateways import fake, in_loop, serving, upstream

from perdure.adapters.postgres.store import PostgresStore
from perdure.testing import say, tool_use
from perdure.testing.s3 import FakeS3

pytestmark = [pytest.mark.e2e, pytest.mark.only_on("files", "it names its store itself")]


@in_loop
async def test_a_bucket_that_is_away_fails_no_request(tmp_path: Path, postgres_with_bucket: tuple[str, FakeS3]) -> None:
    """SCL-1, GW-2: what would be moved there is passed on as it came; once the bucket answers, it is moved."""
    url, s3 = postgres_with_bucket
    read: Any = {"name": "Read", "description": "reads", "input_schema": {"type": "object"}}
    answers = (say(tool_use("Read", {"path": "a"}, id="toolu_1")), "first", "second")
    store = PostgresStore(url)
    async with fake(upstream(*answers)) as server, serving(tmp_path, server, store=store) as at:
        ask: Any = at.claude(max_retries=0).messages.create
        messages: list[Any] = [{"role": "user", "content": "look"}]
        made = await ask(model="fake-model", max_tokens=50, messages=messages, tools=[read])
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a line of many\n" * 20_000}
        messages += [{"role": "assistant", "content": made.content}, {"role": "user", "content": [result]}]
        buckets, s3.buckets = s3.buckets, {}
        made = await ask(model="fake-model", max_tokens=50, messages=messages, tools=[read])
        assert made.content[0].text == "first"
        assert at.metric("perdure_passed_total", reason="journal") == 1
        assert len(str(at.bodies[-1])) > 300_000, "as it came"
        s3.buckets = buckets
        made = await ask(model="fake-model", max_tokens=50, messages=messages, tools=[read])
        assert made.content[0].text == "second"
        assert len(str(at.bodies[-1])) < 100_000 and [key for key in s3.buckets["blobs"] if "/tenant/" in key]
        assert at.metric("perdure_passed_total", reason="journal") == 1
    assert not server.upstream.statistics.violations
