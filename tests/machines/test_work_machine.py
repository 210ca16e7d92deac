"""A queue of background work beside a model of it: wishes, workers and accidents in any order (SCL-2, SCL-4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.contract.test_work import LONG, NoPause, finish
from tests.tiers import examples

from perdure.adapters.postgres.database import Database
from perdure.adapters.postgres.work import PostgresWorkQueue
from perdure.adapters.work import ATTEMPTS, SqliteWorkQueue
from perdure.errors import ClaimLost
from perdure.ports.home import Claim, WorkQueue
from perdure.testing.postgres import PostgresServer

pytestmark = pytest.mark.machines

ROWS = st.tuples(st.sampled_from(["", "t"]), st.sampled_from("ab"), st.sampled_from(["notes", "memories"]))
Row = tuple[str, str, str]


@dataclass
class Modelled:
    """What is known of a row. `holder` is the fence of who was given it last and hasn't let go; `is_late`: its time is
    over."""

    want: int
    done: int = 0
    attempts: int = 0
    fence: int = 0
    holder: int | None = None
    is_late: bool = False
    rests: bool = False

    @property
    def is_free(self) -> bool:
        return self.want > self.done and (self.holder is None or self.is_late)

    def let_go(self) -> None:
        self.holder, self.is_late, self.rests = None, False, False


class WorkMachine(RuleBasedStateMachine):
    """Committed effects are kept as ranges, which have to join without a gap and without an overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[Row, Modelled] = {}
        self.claims: list[Claim] = []
        self.ranges: dict[Row, list[tuple[int, int]]] = {}
        self.portal_context = start_blocking_portal()
        self.portal = self.portal_context.__enter__()
        self.queue = self.portal.call(self.opened)

    async def opened(self) -> WorkQueue:
        return SqliteWorkQueue(chance=NoPause())

    def teardown(self) -> None:
        self.portal.call(self.queue.close)
        self.portal_context.__exit__(None, None, None)

    def now(self, work: Any, *given: Any, **named: Any) -> Any:
        return self.portal.call(lambda: work(*given, **named))

    @rule(row=ROWS, upto=st.integers(1, 20))
    def want(self, row: Row, upto: int) -> None:
        self.now(self.queue.want, *row, upto)
        known = self.rows.setdefault(row, Modelled(0))
        if upto > known.want:
            known.want, known.attempts = upto, min(known.attempts, ATTEMPTS - 1)

    @rule(limit=st.integers(1, 3), seconds=st.sampled_from([0.0, LONG]))
    def claim(self, limit: int, seconds: float) -> None:
        due = {r for r, m in self.rows.items() if m.is_free and not m.rests and m.attempts < ATTEMPTS}
        given = self.now(self.queue.claim, "w", limit=limit, seconds=seconds)
        rows = [claim[:3] for claim in given]
        assert len(set(rows)) == len(rows) == min(limit, len(due)) and set(rows) <= due
        for claim in given:
            known = self.rows[claim[:3]]
            known.attempts += 1
            assert (claim.done, claim.want, claim.attempts) == (known.done, known.want, known.attempts)
            assert claim.fence > known.fence
            known.fence = known.holder = claim.fence
            known.is_late = seconds == 0
        self.claims += given

    def drawn(self, data: st.DataObject) -> tuple[Claim, Modelled, bool]:
        """Any claim that was ever given, and whether its fence stands."""
        claim = data.draw(st.sampled_from(self.claims))
        known = self.rows[claim[:3]]
        return claim, known, known.holder == claim.fence

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        claim, known, stands = self.drawn(data)
        try:
            self.now(finish, self.queue, claim)
        except ClaimLost:
            assert not stands
            return
        assert stands
        self.ranges.setdefault(claim[:3], []).append((claim.done, claim.want))
        known.done, known.attempts = claim.want, 0
        known.let_go()

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        claim, known, stands = self.drawn(data)
        self.now(self.queue.fail, claim, "it failed")
        if stands:
            known.let_go()

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), seconds=st.sampled_from([0.0, LONG]))
    def release(self, data: st.DataObject, seconds: float) -> None:
        claim, known, stands = self.drawn(data)
        self.now(self.queue.release, claim, seconds=seconds)
        if stands:
            known.let_go()
            known.attempts, known.rests = max(known.attempts - 1, 0), seconds > 0

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), seconds=st.sampled_from([0.0, LONG]))
    def renew(self, data: st.DataObject, seconds: float) -> None:
        claim, known, stands = self.drawn(data)
        assert self.now(self.queue.renew, claim, seconds=seconds) == stands
        if stands:
            known.is_late = seconds == 0

    @rule(row=ROWS)
    def revive(self, row: Row) -> None:
        self.now(self.queue.revive, *row)
        known = self.rows.get(row)
        if known is not None and known.is_free and known.attempts >= ATTEMPTS:
            known.attempts = 0
            known.let_go()

    @invariant()
    def the_dead_are_known(self) -> None:
        dead = {row for row, known in self.rows.items() if known.is_free and known.attempts >= ATTEMPTS}
        assert {claim[:3] for claim, _ in self.now(self.queue.dead)} == dead

    @invariant()
    def ranges_join(self) -> None:
        for row, ranges in self.ranges.items():
            assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
            assert ranges[-1][1] == self.rows[row].done


def test_a_queue_in_postgresql_is_what_the_model_says(postgres: str, postgres_server: PostgresServer) -> None:
    """SCL-2, SCL-4: the same, where workers share no memory."""

    class InDatabase(WorkMachine):
        async def opened(self) -> WorkQueue:
            postgres_server.execute("TRUNCATE perdure.work", url=postgres.replace("gateway@", "postgres@"))
            self.db = Database(postgres, connections=1)
            return PostgresWorkQueue(self.db, chance=NoPause())

        def teardown(self) -> None:
            self.portal.call(self.db.close)
            super().teardown()

    run_state_machine_as_test(InDatabase, settings=settings(examples(15), stateful_step_count=40))


class TestWork(WorkMachine.TestCase):  # type: ignore[name-defined, misc]
    """SCL-2: what is claimed, done, late, dead is what the model says; nothing is lost, nothing has an effect twice."""

    settings = settings(examples(60), stateful_step_count=40)
