"""LiteLLM itself, with Perdure's hook among its callbacks (LIB-4). The proxy with it is in test_real_litellm.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from bench.clients import Worker, framework
from tests.environments import CODE, CRATE, SCRIPTS, example, needs, python, write_parts

from perdure.testing import FakeServer, ScriptedAnswer, say, tool_use
from perdure.testing.request import DecodedRequest

LITELLM = framework("litellm")
pytestmark = [pytest.mark.e2e, needs(LITELLM), pytest.mark.timeout(500)]
WINDOW = 30_000
ASKED = f"What is in {CRATE}?"


class Asked(Worker):
    """Reads all parts; then looks up what left its context, and quotes it."""

    server: FakeServer
    is_gone = False

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        messages = json.loads(self.server.received[-1].body).get("messages") or []
        asked = next((n for n in range(len(messages) - 1, -1, -1) if messages[n]["role"] == "user"), 0)
        if not messages or ASKED not in str(messages[asked]):
            return super().reply_to(request)
        if asked < len(messages) - 1:
            return say(CODE if CODE in str(messages[asked:]) else "It wasn't found.")
        self.is_gone = CODE not in str(messages)
        return say(tool_use("recall", {"query": CRATE}))


async def loop(folder: Path, worker: Worker, wire: str, home: str, *prompts: str, window: int = WINDOW, **environ: str):
    write_parts(folder / "project", worker.calls)
    async with FakeServer(worker) as server:
        if isinstance(worker, Asked):
            worker.server = server
        told = await python(
            LITELLM,
            str(SCRIPTS / "litellm_hook.py"),
            wire,
            home,
            *prompts,
            cwd=folder / "project",
            BASE_URL=server.url,
            WINDOW=str(window),
            LITELLM_LOCAL_MODEL_COST_MAP="True",
            **environ,
        )
    return [line for line in told.splitlines() if line.startswith(("said: ", "failed: ", "WARNING:perdure"))]


@pytest.mark.parametrize("wire", ["Stream", "Messages", "Responses"])
def test_every_form_of_request_is_brought_into_the_window(tmp_path: Path, wire: str) -> None:
    """LIB-4: 40 turns and two prompts in a window that holds ten results; no request is refused or breaks a rule."""
    worker = Worker(40, WINDOW)
    said = asyncio.run(loop(tmp_path, worker, wire, "home", "Read all parts.", "And now?"))
    assert said == ["said: I am done: all parts are read."] * 2
    statistics = worker.statistics
    assert not statistics.violations and not statistics.refused and statistics.answered == 42


def test_200_turns_and_what_left_comes_back(tmp_path: Path) -> None:
    """LIB-4, RCL-3: with the hook's own tool, whose calls the application answers with the hook."""
    worker = Asked(200, WINDOW)
    said = asyncio.run(loop(tmp_path, worker, "Chat", "home", "Read all parts.", ASKED))
    assert said == ["said: I am done: all parts are read.", f"said: {CODE}"] and worker.is_gone
    assert not worker.statistics.violations and not worker.statistics.refused


def test_without_the_hook_the_window_ends_it(tmp_path: Path) -> None:
    """LIB-4: what the others are compared with."""
    worker = Worker(40, WINDOW)
    said = asyncio.run(loop(tmp_path, worker, "Chat", "-", "Read all parts."))
    assert len(said) == 1 and said[0].startswith("failed: ContextWindowExceededError")


def in_environment(tmp_path: Path, script: str, worker: Worker) -> list[str]:
    head = """
import asyncio, json, logging, os, sys
import litellm
from perdure import Session
from perdure.integrations.litellm import PerdureHook
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)

async def ask(messages, **more):
    at = {"api_base": os.environ["BASE_URL"] + "/v1", "api_key": "k", "max_retries": 0}
    return await litellm.acompletion(model="openai/bench", messages=messages, **at, **more)

def user(text):
    return {"role": "user", "content": text}
"""

    async def body() -> str:
        async with FakeServer(worker) as server:
            environ = {"BASE_URL": server.url, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            return await python(LITELLM, "-c", head + script, cwd=tmp_path, **environ)

    return asyncio.run(body()).splitlines()


def test_conversations_without_names_are_known_by_their_messages(tmp_path: Path) -> None:
    """LIB-4, GW-2: two that begin alike are two as soon as they differ; each answer's usage is its own."""
    told = in_environment(
        tmp_path,
        """
async def main():
    hook = PerdureHook(".", home="home")
    litellm.callbacks = [hook]
    one = [user("Hello.")]
    for words in ("First?", "Second?", "Third?"):
        one += [(await ask(one)).choices[0].message, user(words)]
    other = [one[0], one[1], user("Something else?")]
    for words in ("A?", "B?"):
        other += [(await ask(other)).choices[0].message, user(words)]
        one += [(await ask(one)).choices[0].message, user(words)]
    await asyncio.sleep(0.2)
    for known in hook._open.values():
        said = [m["content"] for m in known.session.messages("openai") if m["role"] == "user"]
        used = [item.message.usage for item in known.session.view.items if item.message.role == "assistant"]
        print("SESSION", json.dumps([said, sum(usage is not None for usage in used), len(used)]))
    await hook.close()
    assert not hook._heads and not hook._open

asyncio.run(main())
""",
        Worker(0, WINDOW),
    )
    found = [json.loads(line.removeprefix("SESSION ")) for line in told if line.startswith("SESSION ")]
    first = ["Hello.", "First?", "Second?", "Third?", "A?"]
    assert sorted(said for said, _, _ in found) == [first, ["Hello.", "Something else?", "A?"]], told
    assert all(reported >= 1 for _, reported, _ in found)


def test_a_conversation_with_a_name_goes_on_in_another_process(tmp_path: Path) -> None:
    """LIB-4: what left in the first is recalled in the second; nothing is said twice."""
    script = """
async def main():
    hook = PerdureHook(".", home="home", settings={"window_tokens": 30_000})
    litellm.callbacks = [hook]
    messages = json.load(open("history.json")) if os.path.exists("history.json") else []
    messages += [user("a long text " * 2_000 + (" KX-4711-ZT" if not messages else ""))]
    answer = await ask(messages, litellm_session_id="my talk, 1")
    messages += [{"role": "assistant", "content": answer.choices[0].message.content}]
    json.dump(messages, open("history.json", "w"))
    print("FOUND", (await hook.recall("my talk, 1", '{"query": "KX-4711-ZT"}')).count("KX-4711-ZT"))
    print("WRONG", await hook.recall("another", "{}"), await hook.recall("my talk, 1", "[]"))
    await hook.close()

asyncio.run(main())
"""
    for _ in range(8):
        told = in_environment(tmp_path, script, Worker(0, 30_000))
    assert int(next(line for line in told if line.startswith("FOUND")).split()[1]) >= 1
    assert sum("recall failed" in line for line in told) == 1 and "JSON object" in told[-1]
    (journal,) = (tmp_path / "home").glob("projects/*/*/journal.jsonl")
    assert journal.read_text().count('"origin":"user"') == 8 and journal.parent.name.startswith("my-talk-1-")


def test_the_users_of_a_proxy_have_conversations_of_their_own(tmp_path: Path) -> None:
    """LIB-4, GW-4: the same name, and the same words, under another key are another conversation."""
    told = in_environment(
        tmp_path,
        """
async def main():
    hook = PerdureHook(".", home="home")
    for name in ("talk", None):
        for owner in ("a", "b", "a"):
            given = {"model": "m", "messages": [user("Hello.")], "metadata": {"user_api_key_hash": owner}}
            await hook.async_pre_call_deployment_hook({**given, "litellm_session_id": name}, "acompletion")
        print(len(hook._open), [known.session.id[:5] for known in hook._open.values()])
    print(await hook.recall("talk", {"query": "Hello"}))
    await hook.close()

asyncio.run(main())
""",
        Worker(0, WINDOW),
    )
    assert told[0] == "2 ['talk-', 'talk-']" and told[1].startswith("4 ") and told[2].startswith("recall failed"), told


def test_a_window_smaller_than_what_is_told_is_learned(tmp_path: Path) -> None:
    """LIB-4, PRS-8: LiteLLM says that the prompt was too long; the same call, made again, is answered."""
    told = in_environment(
        tmp_path,
        """
async def main():
    hook = PerdureHook(".", home="home")
    litellm.callbacks = [hook]
    messages = [user("Begin.")]
    for n in range(12):
        messages += [{"role": "assistant", "content": f"Answer {n}."}, user(f"Text {n}: " + "some words " * 1_500)]
    try:
        await ask(messages, litellm_session_id="x")
    except litellm.ContextWindowExceededError:
        print("REFUSED")
    await asyncio.sleep(0.3)
    print("SAID", (await ask(messages, litellm_session_id="x")).choices[0].message.content)

asyncio.run(main())
""",
        Worker(0, 20_000),
    )
    assert "REFUSED" in told and "SAID I am done with this: part 0." in told


def test_what_cannot_be_managed_goes_as_it_came(tmp_path: Path) -> None:
    """LIB-4, GW-7: a home that can't be used, and a session that another process writes; the log says why."""
    (tmp_path / "file").write_text("no folder")
    told = in_environment(
        tmp_path,
        """
async def main():
    for hook, more in ((PerdureHook(".", home="file"), {}), (PerdureHook(".", home="home"), {"tools": [{"odd": 1}]})):
        litellm.callbacks = [hook]
        given = {"messages": [user("Hi")], "model": "m", **more}
        assert await hook.async_pre_call_deployment_hook(given, "acompletion") is None
        assert await hook.async_pre_call_deployment_hook({"messages": "odd"}, "acompletion") is None
        assert await hook.async_pre_call_deployment_hook({"model": "m"}, "acompletion") is None
        assert await hook.async_pre_call_deployment_hook({"input": ["x"]}, "aembedding") is None
        print("SAID", (await ask([user("Hello.")])).choices[0].message.content)
    async with Session.create(".", home="home", id="held"):
        assert await hook.async_pre_call_deployment_hook(
            {"messages": [user("Hi")], "litellm_session_id": "held"}, "acompletion"
        ) is None

asyncio.run(main())
""",
        Worker(0, WINDOW),
    )
    assert sum(line.startswith("SAID I am done with this") for line in told) == 2
    assert sum("goes as it came" in line for line in told) >= 3 and sum("messages=…" in line for line in told) == 2


def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    """LIB-4: as it stands in docs/use/integrations.md."""
    worker = Worker(3, WINDOW)

    async def body() -> str:
        write_parts(tmp_path / "project", 3)
        async with FakeServer(worker) as server:
            environ = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_BASE": f"{server.url}/v1"}
            environ |= {"OPENAI_API_KEY": "k", "PERDURE_HOME": str(tmp_path / "home")}
            script = example("perdure.integrations.litellm")
            return await python(LITELLM, "-c", script, cwd=tmp_path / "project", **environ)

    assert "I am done" in asyncio.run(body())
