"""Recalls of a model between whatever else happens: the client never sees one, and what goes up is valid (GW-8)."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateways import CodingClient, fake, serving
from tests.tiers import examples

from perdure.testing import CutStream, FakeUpstream, ModelRules, prompt_too_long, rate_limited, say, thinking, tool_use
from perdure.testing.upstream import ScriptedAnswer

pytestmark = pytest.mark.machines

RECALLS: list[Any] = [{"query": "remark"}, {"id": "call_0"}, {"id": "nowhere"}, {"lines": "x"}, {"_raw": "{broken"}]
PARTS = st.one_of(
    st.text("abc ", min_size=1, max_size=5).filter(str.strip),
    st.sampled_from(RECALLS).map(lambda given: ("recall", given)),
    st.just(("Read", {"file_path": "a.py"})),
)
ANSWERS = st.lists(st.lists(PARTS, min_size=1, max_size=4), min_size=1, max_size=4)
FAULTS = st.sampled_from(["", "", "", "busy", "too long", "cut"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "say", "again", "earlier", "restart"]), ANSWERS, FAULTS, st.integers(0, 3)),
    min_size=1,
    max_size=4,
)


def scripted(parts: list[Any], *, thinks: bool) -> Any:
    """An answer. Models that think have ids for their calls; small servers count them anew with each answer."""
    calls, blocks = 0, list[Any]([thinking("hm")] if thinks else [])
    for part in parts:
        if isinstance(part, str):
            blocks.append(part)
        else:
            blocks.append(tool_use(part[0], part[1], id=None if thinks else f"call_{calls}"))
            calls += 1
    return say(*blocks)


class Obliging(FakeUpstream):
    """Answers by its script, but calls no tool that it isn't offered."""

    def reply_to(self, request: Any) -> Any:
        offered = {tool.get("name") or tool["function"]["name"] for tool in request.tools}
        if "recall" not in offered and self.script and isinstance(self.script[0], ScriptedAnswer):
            blocks = [block for block in self.script.popleft().content if block.get("name") != "recall"]
            return say(*blocks) if any(block["type"] != "thinking" for block in blocks) else "ok"
        return None


def shown(answers: list[list[Any]]) -> tuple[list[str], list[str]]:
    """The texts and the calls that a client is to see of answers that follow each other, as far as they do."""
    texts, calls = list[str](), list[str]()
    for parts in [*answers, ["ok"]]:
        texts.append("".join(part for part in parts if isinstance(part, str)))
        names = [part[0] for part in parts if not isinstance(part, str)]
        calls += [name for name in names if name != "recall"]
        if "recall" not in names or calls:
            break
    return texts, calls


class Conversation:
    """A client that says things, asks again, goes back, and comes back to a gateway that was started anew."""

    def __init__(self, client: CodingClient, upstream: FakeUpstream, *, thinks: bool) -> None:
        self.client, self.upstream, self.thinks = client, upstream, thinks
        self.said: list[list[Any]] = []  # the history before each thing that was said

    async def say(self, answers: list[list[Any]], fault: str, at: int) -> None:
        self.said.append([*self.client.messages])
        number = len(self.said)
        self.client.messages.append({"role": "user", "content": f"remark {number}: " + "so it goes. " * 150})
        await self.answered(answers, fault, at)

    async def answered(self, answers: list[list[Any]], fault: str, at: int) -> None:
        """Ask until there is an answer, and give the client's calls what they want."""
        before = [*self.client.messages]
        script = [scripted(parts, thinks=self.thinks) for parts in answers]
        if fault in ("busy", "too long"):
            script.insert(min(at, len(script)), rate_limited(0) if fault == "busy" else prompt_too_long(13_000, 12_000))
        self.upstream.script.extend(script)
        faults = self.client.at.server.faults
        faults.extend([None] * at + [CutStream(2)] if fault == "cut" and self.client.is_stream else [])
        try:
            text, calls = await self.client.go_on()
        except Exception:  # whatever the client's library makes of it
            if not fault:
                raise
            self.client.messages[:] = before
            self.upstream.script.clear()
            faults.clear()
            return await self.answered(answers, "", 0)
        self.upstream.script.clear()
        faults.clear()
        if not fault:
            texts, names = shown(answers)
            assert [name for name, _ in calls] == names
            assert "".join(text.split()) == "".join("".join(texts).split())
        assert len({call for _, call in calls}) == len(calls)
        if calls:
            self.upstream.script.append("read")
            await self.client.answer(*((call, "what the file says") for _, call in calls))
            self.upstream.script.clear()


async def played(home: Path, wire: str, steps: list[Any], *, is_stream: bool, thinks: bool) -> None:
    upstream = Obliging(rules=ModelRules(window_tokens=12_000))
    routes = {"default": {"anthropic": "anthropic", "openai": "openai", "settings": {"window_tokens": 12_000}}}
    messages, said, answers = list[Any](), list[Any](), list[Any]()
    async with fake(upstream) as server:
        while True:
            async with serving(home, server, routes=routes) as at:
                client = CodingClient(at, wire, is_stream=is_stream)
                client.messages, client.answers = messages, answers
                talk = Conversation(client, upstream, thinks=thinks)
                talk.said = said
                while steps:
                    kind, rounds, fault, number = steps.pop(0)
                    if kind == "restart":
                        break
                    if kind != "say" and said:
                        back = 1 if kind == "again" else min(number + 1, len(said))
                        messages[:] = said[-back]
                        del said[-back:]
                    await talk.say(rounds, fault, number)
                else:
                    await talk.say([["the end"]], "", 0)
                    break
        assert not upstream.statistics.violations, upstream.statistics.violations
        assert all("recall" not in answer.model_dump_json().replace("remark", "") for answer in answers)


@examples(6)
@given(
    steps=STEPS,
    wire=st.sampled_from(["anthropic", "openai", "responses"]),
    is_stream=st.booleans(),
    thinks=st.booleans(),
)
def test_hidden_calls_stay_hidden_whatever_happens(steps: list[Any], wire: str, is_stream: bool, thinks: bool) -> None:
    """GW-8: parallel calls, retries, forks, restarts, faults of the upstream, compactions in between."""
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(played(Path(home), wire, [*steps], is_stream=is_stream, thinks=thinks and wire != "openai"))
