"""REL-4, TURN-15: the replay's own check of requests sees what the rules of a single request can't."""

from __future__ import annotations

import pytest
from tests.unit.context.making import UNBOUND, Talk, call, facts, thinking

from perdure.context.request import to_request
from perdure.lab.replay.checks import RequestCheck
from perdure.testing.block_rules import ModelRules
from perdure.transcript.messages import MessageId
from perdure.transcript.records import BlockChange, ThinkingDropped

pytestmark = pytest.mark.unit


def loop() -> Talk:
    some = Talk()
    some.user()
    some.model(thinking("one"), call("a"))
    some.result("a", "y")
    return some


@pytest.mark.parametrize(("is_open", "said"), [(True, "open_loop_thinking: messages.1"), (False, "")])
def test_thinking_that_goes_from_an_open_loop_makes_an_invalid_request(is_open: bool, said: str) -> None:
    """TURN-15: out of a loop that goes on it may not be taken; behind its end it may."""
    check = RequestCheck(ModelRules(allow_unknown=True))
    check.add(to_request(loop().view, facts(model=UNBOUND)), is_announced=False)
    some = loop()
    if not is_open:
        some.model({"type": "text", "text": "done"})
        some.user()
    some.records.append(ThinkingDropped(changes=(BlockChange(message=MessageId("m2"), block=0),)))
    check.add(to_request(some.view, facts(model=UNBOUND)), is_announced=True)
    check.finish()
    assert check.invalid == is_open
    assert (check.first_violation or "").startswith(said) and bool(check.first_violation) == is_open
