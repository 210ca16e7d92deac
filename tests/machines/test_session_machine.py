"""A session against a naive model that keeps every message, with all laws checked after each step (REL-3, REL-4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests import plans
from tests.laws.recount import carried, recounted
from tests.laws.test_prefix import moves_are_told
from tests.tiers import examples
from tests.worlds import MODELS, World, done

from perdure.context.models import ModelSpec
from perdure.context.request import to_request
from perdure.context.view import project
from perdure.errors import JournalError
from perdure.settings import Settings
from perdure.testing import check_anthropic, check_openai
from perdure.transcript.blocks import Text
from perdure.transcript.messages import Message
from perdure.transcript.records import Compacted, Rewound, Undone

pytestmark = pytest.mark.machines


class Lost(Exception):
    """The process died before the journal acknowledged."""


def remembered(records: list[Any]) -> list[str]:
    """The naive model of a view: the ids that messages, boundaries, rewinds and undos leave, told from the start."""
    live: list[Any] = []
    left: dict[str, list[Any]] = {}
    for record in records:
        if isinstance(record, Rewound) and record.undoes:  # CKP-8
            live = left[record.undoes]
            continue
        if isinstance(record, Rewound):
            left[record.id] = live.copy()
        boundaries = [one for one in live if isinstance(one, Compacted)]
        if isinstance(record, Undone) and boundaries and boundaries[-1].id == record.id:
            live.remove(boundaries[-1])
            continue
        while isinstance(record, Rewound) and boundaries and record.to in boundaries[-1].kept[: boundaries[-1].read]:
            live.remove(boundaries.pop())
        live.append(record)
    expected: list[str] = []
    for record in live:
        if isinstance(record, Message) and record.agent_id is None:
            expected.append(record.id)
        elif isinstance(record, Rewound) and record.to in expected:
            del expected[expected.index(record.to) + 1 :]
        elif isinstance(record, Compacted):
            expected = list(record.order)
    return expected


class SessionMachine(RuleBasedStateMachine):
    """A session of a model that binds its thinking, of one that doesn't, or of one that nobody knows."""

    chosen = Settings(window_tokens=8_000, collapse=True, collapse_min_tokens=300)

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.chosen)

    @initialize(words=plans.texts(), model=st.sampled_from(MODELS), is_manual=st.booleans())
    def begin(self, words: str, model: ModelSpec | None, is_manual: bool) -> None:
        self.world = World(self.chosen, model=model, is_manual=is_manual)
        self.world.play(plans.Say(({"type": "text", "text": words},)))

    @rule(step=plans.says())
    def say(self, step: plans.Say) -> None:
        self.world.play(step)

    @rule(step=st.integers(0, 2**32 - 1).map(plans.answer_plan))
    def answer(self, step: plans.Answer) -> None:
        self.world.play(step)

    @rule()
    def prepare(self) -> None:
        self.world.play(plans.Retry())

    @rule(seconds=st.sampled_from((60.0, 4_000.0, 90_000.0)))
    def idle(self, seconds: float) -> None:
        self.world.play(plans.Idle(seconds))

    @rule()
    def compact(self) -> None:
        self.world.play(plans.Compact())

    @rule(back=st.integers(1, 5))
    def rewind(self, back: int) -> None:
        self.world.play(plans.Rewind(back))

    @precondition(lambda self: self.world.late)
    @rule()
    def late_results(self) -> None:
        self.world.play(plans.Late())

    @rule()
    def restart(self) -> None:
        before = self.world.session.view
        self.world.restart()
        assert self.world.session.view == before

    @rule(step=st.integers(0, 2**32 - 1).map(plans.answer_plan), survives=st.integers(0, 4))
    def crash(self, step: plans.Answer, survives: int) -> None:
        """The process dies within a turn: what was acknowledged is there, nothing else is."""
        self.world.journal, journal = _Dying(self.world.journal, survives), self.world.journal
        self.world.session.ports = self.world.ports(self.world.journal)
        count = len(self.world.records)
        try:
            self.world.play(step)
        except Lost:
            pass
        lost = self.world.journal
        self.world.journal = journal
        self.world.restart()
        assert len(self.world.records) == count + lost.acknowledged

    @invariant()
    def sums_are_right(self) -> None:
        assert carried(self.world.session.view) == recounted(self.world.session.view)

    @invariant()
    def the_journal_makes_the_view(self) -> None:
        short, whole = (done(self.world.journal.load(whole=w)).records for w in (False, True))
        view = self.world.session.view
        assert project(p.record for p in short) == project(p.record for p in whole) == view

    @invariant()
    def the_request_is_valid(self) -> None:
        view, facts = self.world.session.view, self.world.session.facts()
        assert not check_anthropic(to_request(view, facts).body, model_rules=self.world.rules)
        assert not check_openai(to_request(view, facts, protocol="openai").body)

    @invariant()
    def no_message_is_lost(self) -> None:
        """What was said since the last boundary and rewind is in the view, in order; what a boundary kept before it."""
        assert [item.message.id for item in self.world.session.view.items] == remembered(self.world.records)

    @invariant()
    def people_are_heard(self) -> None:
        view = self.world.session.view
        for identity, words in self.world.spoken.items():
            item = view.item(identity)
            if item is not None and not item.is_hidden and words.strip():
                assert words in [block.value.text for block in item.visible if isinstance(block.value, Text)]

    def teardown(self) -> None:
        moves_are_told(self.world)


class _Dying:
    """A journal that acknowledges so many appends and then takes the process with it."""

    def __init__(self, journal: object, survives: int) -> None:
        self._journal = journal
        self._left = survives
        self.acknowledged = 0

    async def append(self, records: tuple[object, ...]) -> object:
        if self._left == 0:
            raise Lost
        self._left -= 1
        receipt = await self._journal.append(records)  # type: ignore[attr-defined]
        self.acknowledged += len(records)
        return receipt

    async def load(self, *, whole: bool = False) -> object:
        return await self._journal.load(whole=whole)  # type: ignore[attr-defined]

    async def close(self) -> None:
        raise JournalError("not in this test")


TestSession = SessionMachine.TestCase
TestSession.settings = hypothesis(examples(30), stateful_step_count=25, deadline=None)
