"""Background work survives what is done to its workers, connections and server (SCL-2, SCL-3); `python -m bench.chaos`
does it at length.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import chaos

from perdure.testing.postgres import PostgresServer, why_there_is_no_server

pytestmark = pytest.mark.faults


@pytest.mark.nightly
def test_nothing_is_lost_or_done_twice_by_workers_that_are_killed_and_paused(tmp_path: Path) -> None:
    """SCL-2, SCL-3: and the judge of it would say so."""
    if (reason := why_there_is_no_server()) is not None:
        pytest.skip(reason)
    with PostgresServer.start(settings=chaos.SETTINGS) as server:
        came = chaos.run(server, tmp_path, enqueues=500, kills=12, seconds=5.0, seed=1)
        assert came.wrong == 0, list(chaos.report(came, 1))
        assert (came.enqueues, came.kills, came.crashes) == (500, 12, 2) and 0 < came.commits <= 500

        url, acknowledged = server.url_of("chaos"), {f"notes of s{number:02}": 10 for number in range(chaos.SESSIONS)}

        def judged() -> chaos.Chaos:
            chaos.judge(server, url, acknowledged, told := chaos.Chaos())
            return told

        server.execute("DELETE FROM public.effects WHERE session = 'notes of s01' AND start = 0", url=url)
        assert len(judged().lost) == 1
        server.execute(
            "INSERT INTO public.effects SELECT * FROM public.effects WHERE session = 'notes of s02'", url=url
        )
        assert judged().twice and judged().overlaps
        server.execute("UPDATE perdure.work SET owner = 'w', fence = fence + 1 WHERE session = 's03'", url=url)
        server.execute("INSERT INTO public.effects VALUES ('notes of s03', 10, 10, 0)", url=url)
        server.execute("UPDATE perdure.work SET want = want + 1 WHERE session = 's04'", url=url)
        told = judged()
        assert "notes of s03: fence 0" in told.zombies and len(told.left) == 1
