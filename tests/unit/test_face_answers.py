"""What any provider's API gives as a whole answer is taken, an empty one as well (LIB-10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure import Message, Session
from perdure.errors import RecordRefused
from perdure.testing import check_anthropic, check_openai, check_responses

pytestmark = pytest.mark.unit

CHECKS: Any = {"anthropic": check_anthropic, "openai": check_openai, "responses": check_responses}
COUNTED = {"input_tokens": 10, "output_tokens": 1}


def of_messages(*content: Any, stop: str = "end_turn") -> dict[str, Any]:
    said = {"role": "assistant", "content": list(content), "stop_reason": stop, "stop_sequence": None}
    return {"id": "msg_1", "type": "message", "model": "m", **said, "usage": COUNTED}


def of_chat(reason: str = "stop", **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}
    counted = {"prompt_tokens": 10, "completion_tokens": 0, "total_tokens": 10}
    return {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": counted}


def of_responses(*output: Any, **more: Any) -> dict[str, Any]:
    said = {"status": "completed", "output": list(output), "usage": COUNTED}
    return {"id": "resp_1", "object": "response", "model": "m", **said, **more}


WHOLE = {
    "Messages, no content": of_messages(),
    "Messages, a refusal": of_messages(stop="refusal"),
    "Messages, an empty text": of_messages({"type": "text", "text": ""}),
    "Messages, line breaks": of_messages({"type": "text", "text": "\n\n"}),
    "Chat, null": of_chat(content=None, refusal=None),
    "Chat, an empty text": of_chat(content=""),
    "Chat, no content": of_chat(),
    "Chat, no calls": of_chat(content=None, tool_calls=[]),
    "Chat, an empty list": of_chat(content=[]),
    "Chat, all of it spent on thinking": of_chat("length", content=None, reasoning_content="Well, …"),
    "Responses, no output": of_responses(),
    "Responses, cut off": of_responses(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    "Responses, an empty message": of_responses({"type": "message", "id": "m", "role": "assistant", "content": []}),
}
SAID = {
    "a message without content": {"role": "assistant", "content": []},
    "a message with nothing": {"role": "assistant", "content": None},
    "a message, as SDKs dump it": {"role": "assistant"},
    "a Message": Message.of("assistant", []),
}


async def _loop(home: Path, answer: Any, protocol: Any) -> None:
    """The documented loop: a prompt, its empty answer, the next prompt; and the same after a restart."""
    async with Session.create(".", home=home, id="s") as session:
        await session.set_prefix(model="m", system="Be brief.")
        await session.append("What is the weather?")
        await session.prepare(protocol)
        await session.append(answer)
        assert [item.message.role for item in session.view.items] == ["user", "assistant"]
        again = (await session.prepare(protocol)).data
        await session.append("And now?")
        request = (await session.prepare(protocol)).data
        said = session.messages(protocol)
    for body in (again, request):
        assert CHECKS[protocol](body) == []
    assert "What is the weather?" in str(said) and "And now?" in str(said) and "assistant" not in str(said)
    async with Session.open("s", home=home) as session:
        assert session.messages(protocol) == said
        assert (await session.prepare(protocol)).data == request


@pytest.mark.parametrize("protocol", CHECKS)
@pytest.mark.parametrize("answer", [*WHOLE.values(), *SAID.values()], ids=[*WHOLE, *SAID])
def test_an_empty_answer_is_a_whole_one(answer: Any, protocol: str, tmp_path: Path) -> None:
    """Finding L1: the documented loop takes an answer that says nothing, in each API's words, and goes on."""
    anyio.run(_loop, tmp_path, answer, protocol)


@pytest.mark.parametrize("answer", WHOLE.values(), ids=WHOLE)
def test_what_an_empty_answer_cost_is_kept(answer: Any) -> None:
    """Finding L1: the id and the usage of an empty answer are kept, so that the size of the prompt is known."""

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.append("What is the weather?", answer)
            message = session.view.items[-1].message
            assert message.usage is not None and message.usage.input_tokens == 10
            assert message.response_id == answer["id"] and message.model == "m"

    anyio.run(main)


def test_words_that_an_answer_has_elsewhere_are_kept() -> None:
    """LIB-10: of an answer in sound its words are kept; a message that has them in an unknown place is refused."""

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.append("Sing!", of_chat(content=None, audio={"id": "a", "data": "UklG", "transcript": "La."}))
            assert session.messages("openai")[-1] == {"role": "assistant", "content": "La."}
            for wrong in ({"role": "assistant", "text": "x"}, {"role": "user", "content": []}, {"role": "user"}):
                with pytest.raises(RecordRefused, match="content"):
                    await session.append(wrong)

    anyio.run(main)


def test_an_empty_answer_in_a_history_that_is_followed() -> None:
    """Finding L1: a framework's history may hold an empty answer, whose usage is kept as well."""

    async def main() -> None:
        async with Session.in_memory() as session:
            history: list[Any] = [{"role": "user", "content": "What is the weather?"}]
            await session.follow(history)
            history += [of_messages(), {"role": "user", "content": "And now?"}]
            await session.follow(history)
            usage = session.view.items[1].message.usage
            assert usage is not None and usage.input_tokens == 10
            assert not check_anthropic((await session.prepare()).data)

    anyio.run(main)
