"""Gateways, workers and a database in a storm (SCL-3, SCL-4, GW-5); `make scale` does it at length."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bench import _scale_judge as judges
from bench import chaos, scale
from bench._talks import made_talks

from perdure.testing.postgres import PostgresServer, why_there_is_no_server

pytestmark = pytest.mark.faults


@pytest.mark.nightly
def test_sessions_move_between_gateways_in_a_storm(tmp_path: Path) -> None:
    """SCL-3, SCL-4, GW-5, SCL-2: nothing is lost, said twice or sent otherwise; and who judges it would say so."""
    if (reason := why_there_is_no_server()) is not None:
        pytest.skip(reason)
    with PostgresServer.start(is_durable=True, settings=scale.SETTINGS) as server:
        running = scale.run(tmp_path, server, made_talks(6, 12), kills=12, seconds=8.0, enqueues=300, seed=1)
        came = asyncio.run(running)
        if not came.is_right:
            pytest.fail("\n".join(scale.report(came, 1)), pytrace=False)
        assert came.enqueues >= 300 and came.verdict.counts["answers"] > 20
        assert came.verdict.counts["of these, at another gateway than the one before"] > 5

        url = server.url_of("scale")

        def found(statement: str) -> set[str]:
            """What is wrong once this was done to the database."""
            server.execute(statement, url=url)
            verdict = judges.judge(server, url, came.load.model, came.s3.buckets[scale.BUCKET])
            return {what for what, where in verdict.wrong.items() if where}

        last = "seq = (SELECT max(seq) FROM perdure.records WHERE session = r.session)"
        one = "(SELECT number FROM perdure.sessions WHERE seq > 9 ORDER BY number LIMIT 1)"
        head = "INSERT INTO public.heads (tenant, session, owner, fence, fence_before, was_held, seq, seq_before)"
        owned = f"FROM (SELECT * FROM public.heads WHERE session = {one} AND owner <> '' ORDER BY n LIMIT 1) AS h"
        assert found("SELECT 1") == set()
        stolen = f"{head} SELECT tenant, session, 'process 1', 99, 98, true, 9, 9 {owned}"
        assert found(stolen) == {judges.HELD}
        late = f"{head} SELECT tenant, session, owner, fence, 98, false, 11, 10 {owned}"
        assert found(late) == {judges.HELD, judges.ZOMBIES, judges.BACK}
        assert found("INSERT INTO public.note_writes (session, name, tx) VALUES (1, 'late', '1')") >= {judges.NOTES}
        assert judges.DAMAGED in found(f"DELETE FROM perdure.records r WHERE session = {one} AND seq = 4")
        assert judges.LOST in found(f"DELETE FROM perdure.records r WHERE {last}")
        came.s3.buckets[scale.BUCKET].clear()
        assert judges.BLOBS in found("SELECT 1")
        queue = chaos.Chaos()
        chaos.judge(server, url, {f"{scale.KIND} of nobody": 1}, queue)
        assert len(queue.lost) == 1
