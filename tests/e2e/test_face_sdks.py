"""LIB-5: loops of one's own with the official SDKs, unmodified, through a server that checks every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure import PreparedRequest, Session, connect
from perdure.errors import RecordRefused
from perdure.testing import (
    FakeServer,
    FakeUpstream,
    check_anthropic,
    check_openai,
    check_responses,
    say,
    thinking,
    tool_use,
)

pytestmark = pytest.mark.e2e

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SHORT = {"max_output_tokens": 8_000}
SCRIPT = [say(tool_use("weather", {"city": "Oslo"})), "It rains.", "Still rain."]


def test_openais_client(tmp_path: Path) -> None:
    """Requests from `prepare`, answers appended as the SDK gives them, resumed in between; all in OpenAI's words."""
    openai = pytest.importorskip("openai")
    function = {"name": "weather", "description": "The weather.", "parameters": SCHEMA}

    async def body() -> None:
        async with FakeServer(FakeUpstream(script=list(SCRIPT))) as server:
            client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)

            async def asked(session: Session) -> Any:
                request = await session.prepare("openai")
                assert not check_openai(request.body)
                answer = await client.chat.completions.create(**request.data)
                await session.append(answer)
                return answer.choices[0].message

            async with Session.create(tmp_path, home=tmp_path / "home", id="mine", settings=SHORT) as session:
                await session.set_prefix(
                    model="gpt-6", system="Be brief.", tools=[{"type": "function", "function": function}]
                )
                await session.append({"role": "user", "content": "Weather?"})
                for call in (await asked(session)).tool_calls:
                    assert call.function.name == "weather"
                    await session.append({"role": "tool", "tool_call_id": call.id, "content": "rain"})
                assert (await asked(session)).content == "It rains."
                before = session.messages("openai")
                assert session.view.items[-1].message.usage is not None
            async with Session.open("mine", home=tmp_path / "home", settings=SHORT) as session:
                assert session.messages("openai") == before
                await session.append("And now?")
                assert (await asked(session)).content == "Still rain."
            await client.close()

    anyio.run(body)


def test_openais_client_with_items(tmp_path: Path) -> None:
    """LIB-5, GW-6: the same in items: responses are appended whole, reasoning comes back, nothing is stored there."""
    openai = pytest.importorskip("openai")
    tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
    script = [say(thinking("hm"), tool_use("weather", {"city": "Oslo"})), say(thinking("so"), "It rains."), "Still."]

    async def body() -> None:
        async with FakeServer(FakeUpstream(script=script)) as server:
            client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)

            async def asked(session: Session) -> Any:
                request = await session.prepare("responses")
                assert not check_responses(request.body) and request.data["store"] is False
                await session.append(answer := await client.responses.create(**request.data))
                return answer

            async with Session.create(tmp_path, home=tmp_path / "home", id="mine", settings=SHORT) as session:
                await session.set_prefix(model="gpt-6", system="Be brief.", tools=[tool])
                await session.append({"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]})
                calls = [item for item in (await asked(session)).output if item.type == "function_call"]
                await session.append({"type": "function_call_output", "call_id": calls[0].call_id, "output": "rain"})
                assert (await asked(session)).output_text == "It rains."
                before = session.messages("responses")
                kinds = "message reasoning function_call function_call_output reasoning message"
                assert [item.get("type", "message") for item in before] == kinds.split()
                assert session.messages()[1]["content"][0]["type"] == "tool_use", "and no word of it in another wire"
            async with Session.open("mine", home=tmp_path / "home", settings=SHORT) as session:
                assert session.messages("responses") == before
                await session.append("And now?")
                assert (await asked(session)).output_text == "Still."
                with pytest.raises(RecordRefused, match="no whole answer"):
                    await session.append({"object": "response", "status": "failed", "error": {"message": "no"}})
            await client.close()
            assert not server.upstream.statistics.violations

    anyio.run(body)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_anthropics_client(tmp_path: Path, is_streamed: bool) -> None:
    """LIB-5: as docs/use/library.md has it: streamed, or with a timeout, without which the SDK refuses to wait."""
    anthropic = pytest.importorskip("anthropic")
    tool = {"name": "weather", "description": "The weather.", "input_schema": SCHEMA}

    async def body() -> None:
        async with FakeServer(FakeUpstream(script=list(SCRIPT))) as server:
            client = anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0)

            async def asked(request: PreparedRequest) -> Any:
                words = {**request.data, "extra_headers": request.headers}
                if is_streamed:
                    async with client.messages.stream(**words) as answer:
                        return await answer.get_final_message()
                with pytest.raises(ValueError, match="Streaming is required"):
                    await client.messages.create(**words)
                return await client.messages.create(**words, timeout=600)

            async with Session.create(tmp_path, home=tmp_path / "home") as session:
                await session.set_prefix(model="claude-sonnet-5-5", system="Be brief.", tools=[tool])
                await session.append("Weather?")
                said: list[str] = []
                while not said:
                    request = await session.prepare()
                    assert not check_anthropic(request.body)
                    await session.append(answer := await asked(request))
                    results = [
                        {"type": "tool_result", "tool_use_id": block.id, "content": "rain"}
                        for block in answer.content
                        if block.type == "tool_use"
                    ]
                    if results:
                        await session.append({"role": "user", "content": results})
                    said = [block.text for block in answer.content if block.type == "text"]
                assert said == ["It rains."] and len(session.messages()) == 4
                usages = [item.message.usage for item in session.view.items if item.message.role == "assistant"]
                assert len(usages) == 2 and all(usages), "what a call took is kept"
            await client.close()
            assert not server.upstream.statistics.violations

    anyio.run(body)


def test_a_model_by_its_name_is_closed_with_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name connects once and is closed at the end; `connect` gives a model that several sessions share."""
    pytest.importorskip("openai")
    monkeypatch.setenv("MY_KEY", "none")

    async def body() -> None:
        async with FakeServer(FakeUpstream(script=["One.", "Two.", "Three."])) as server:
            name = f"openai:mine@{server.url}/v1#MY_KEY"
            async with Session.in_memory() as session:
                assert (await session.run("1", name)).text == "One."
                assert (await session.run("2")).text == "Two."
                assert list(session._connected) == [name]
            shared = connect(name)
            async with Session.in_memory() as session:
                assert (await session.run("3", shared)).text == "Three."
            await shared.close()

    anyio.run(body)


@pytest.mark.parametrize("protocol", ["anthropic", "openai", "responses"])
def test_an_empty_answer_of_each_sdk_goes_into_the_loop(protocol: Any, tmp_path: Path) -> None:
    """Finding L1: the documented loop, with an answer that says nothing as each SDK gives it, and the next prompt."""
    openai, anthropic = pytest.importorskip("openai"), pytest.importorskip("anthropic")

    async def main() -> None:
        async with FakeServer(FakeUpstream(script=[say(), "Sleet."])) as server:
            chat = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
            messages = anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)
            create = {
                "anthropic": messages.messages.create,
                "openai": chat.chat.completions.create,
                "responses": chat.responses.create,
            }[protocol]
            async with Session.create(tmp_path, home=tmp_path / "home", settings=SHORT) as session:
                await session.set_prefix(model="gpt-6", system="Be brief.")
                for prompt in ("Weather?", "And now?"):
                    await session.append(prompt)
                    await session.append(await create(**(await session.prepare(protocol)).data))
                said = [(one.message.role, len(one.message.blocks)) for one in session.view.items]
                assert said == [("user", 1), ("assistant", 0), ("user", 1), ("assistant", 1)], said
                assert "Sleet." in str(session.messages(protocol)[-1])
            await chat.close()
            await messages.close()
            assert not server.upstream.statistics.violations

    anyio.run(main)


def test_flat_and_custom_tools_with_openais_client(tmp_path: Path) -> None:
    """Finding L2: Responses' own definitions and items go round with the SDK, which the server checks each time."""
    openai = pytest.importorskip("openai")
    flat: Any = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
    custom: Any = {"type": "custom", "name": "patch", "description": "Changes files."}
    calls = say(tool_use("weather", {"city": "Oslo"}), tool_use("patch", {"input": "*** Begin"}))

    async def main() -> None:
        async with FakeServer(FakeUpstream(script=[calls, "Done."])) as server:
            client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
            async with Session.create(tmp_path, home=tmp_path / "home", settings=SHORT) as session:
                await session.set_prefix(model="gpt-6", tools=[flat, custom])
                await session.append("Weather, and a patch?")
                answer = await client.responses.create(**(await session.prepare("responses")).data)
                for item in answer.output:
                    await session.append(item)  # one by one, as a loop over the output has them
                assert [one.input for one in session.open_calls()] == [{"city": "Oslo"}, {"input": "*** Begin"}]
                for item in answer.output:
                    kind = f"{item.type}_output"
                    await session.append({"type": kind, "call_id": item.call_id, "output": "done"})
                request = (await session.prepare("responses")).data
                assert request["tools"] == [flat, custom]
                await session.append(await client.responses.create(**request))
                assert "Done." in str(session.messages("responses")[-1])
            await client.close()
            assert not server.upstream.statistics.violations

    anyio.run(main)
