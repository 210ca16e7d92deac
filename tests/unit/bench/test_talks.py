"""The talks that benchmarks of gateways send (SCL-3)."""

from __future__ import annotations

import pytest
from bench._talks import Call, Round, Talk

pytestmark = pytest.mark.unit


def test_thanks_are_said_until_they_are_recorded() -> None:
    """SCL-3: a last word that a gateway only passed on is said again, as often as it takes, with no round behind it."""
    talk = Talk("t", "anthropic", [Round("look", "", (Call("Read", {}, "nothing"),))], is_stream=False)
    talk.say(0)
    talk.take({"content": [{"type": "tool_use", "id": "c1", "name": "Read"}]})
    for number in (1, 2, 3):
        talk.say(number)
        talk.take({"content": [{"type": "text", "text": "You are welcome."}]})
    assert [kind for kind, _, _ in talk.atoms] == ["user", "call", "result", *("user", "assistant") * 3]
