"""hermes-agent itself, with Perdure as its context engine (LIB-7)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from bench.clients import Worker, entry_points, framework
from tests.environments import CODE, CRATE, SCRIPTS, example, needs, python, write_parts

from perdure.testing import FakeServer, ScriptedAnswer, say, tool_use
from perdure.testing.request import DecodedRequest

HERMES = framework("hermes-agent")
pytestmark = [pytest.mark.e2e, needs(HERMES), pytest.mark.timeout(500)]
WINDOW = 65_536  # it takes no smaller one
CALLS = 200
ASKED = f"What is in {CRATE}?"


class Asked(Worker):
    """Reads all parts; then looks up what left its context, if it can, and quotes it."""

    server: FakeServer

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        messages = json.loads(self.server.received[-1].body)["messages"]
        asked = next(n for n in range(len(messages) - 1, -1, -1) if messages[n]["role"] == "user")
        if ASKED not in str(messages[asked]):
            return super().reply_to(request)
        if asked < len(messages) - 1:
            return say(CODE if CODE in str(messages[asked:]) else "It wasn't found.")
        self.is_gone = CODE not in str(messages)
        has_recall = any(tool.get("name") == "recall" for tool in request.tools)
        return say(tool_use("recall", {"query": CRATE})) if has_recall else say("There is no way to look it up.")

    is_gone = False


async def hermes(folder: Path, worker: Worker, engine: str, *prompts: str, **environ: str) -> list[str]:
    project = folder / "project"
    write_parts(project, worker.calls)
    async with FakeServer(worker) as server:
        if isinstance(worker, Asked):
            worker.server = server
        told = await python(
            HERMES,
            str(SCRIPTS / "hermes_agent_agent.py"),
            engine,
            server.url,
            *prompts,
            cwd=project,
            HERMES_HOME=str(folder / "hermes"),
            PERDURE_HOME=str(folder / "home"),
            TERMINAL_CWD=str(project),
            WINDOW=str(WINDOW),
            PYTHONPATH=entry_points(folder / "installed"),
            **environ,
        )
    return [line for line in told.splitlines() if line.startswith(("engine: ", "said: ", "compressions: "))]


def test_200_turns_in_a_small_window_and_what_left_comes_back(tmp_path: Path) -> None:
    """LIB-7, RCL-3: found by its entry point; no request is refused or breaks a rule, and recall has the original."""
    worker = Asked(CALLS, WINDOW)
    said = asyncio.run(hermes(tmp_path, worker, "perdure", "Read all parts.", ASKED))
    assert said[0] == "engine: perdure"
    assert said[1] == "said: I am done: all parts are read."
    assert said[2] == f"said: {CODE}" and worker.is_gone
    assert int(said[3].split()[1]) >= 4
    statistics = worker.statistics
    assert not statistics.violations and not statistics.refused and statistics.answered >= CALLS + 2


def in_environment(tmp_path: Path, script: str, **environ: str) -> list[str]:
    head = """
import copy, json, logging, sys
from perdure.integrations.hermes_agent import PerdureContextEngine

def talk(count, prefix=""):
    messages = [{"role": "user", "content": "Read all parts."}]
    for n in range(count):
        function = {"name": "terminal", "arguments": json.dumps({"command": f"cat {n}"})}
        call = {"id": f"{prefix}c{n}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call], "finish_reason": "tool_calls"})
        content = f"part {n} holds crate-{n} " + "words " * 400
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return messages

def engine(window=24_000, **named):
    made = PerdureContextEngine(home="home", **named)
    made.update_model("bench", window, base_url="http://x", api_key="k", provider="custom")
    return made
"""
    return asyncio.run(python(HERMES, "-c", head + script, cwd=tmp_path, **environ)).splitlines()


def test_an_agent_of_its_own_gets_an_engine_of_its_own(tmp_path: Path) -> None:
    """LIB-7: by `clone_for_agent`, and by the copy that today's hermes-agent makes; a live session is no obstacle."""
    told = in_environment(
        tmp_path,
        """
first = engine()
first.get_tool_schemas()
first.on_session_start("one", model="bench")
before = talk(30)
assert first.compress(before) is not before
for other in (first.clone_for_agent(), copy.deepcopy(first)):
    assert type(other) is PerdureContextEngine and other.threshold_tokens == first.threshold_tokens > 0
    other.update_model("other", 1_000_000)
    other.on_session_start("two", model="other")
    assert first.context_length == 24_000 and first.threshold_tokens < 24_000 and other.compression_count == 0
    assert "crate-3" not in other.handle_tool_call("recall", {"id": "c3"}, messages=[])
    other.on_session_end("two", [])
print(json.loads(first.handle_tool_call("recall", {"id": "c3"}, messages=[]))["result"][:200].count("crate-3"))
""",
    )
    assert told[-1] == "1"


def test_what_is_compacted_is_valid_goes_on_and_survives_another_process(tmp_path: Path) -> None:
    """LIB-7, SES-1: several compactions of one conversation; its session is found by the id that it began with."""
    told = in_environment(
        tmp_path,
        """
first = engine()
first.get_tool_schemas()
first.on_session_start("one", model="bench")
messages, sizes = talk(30), []
for round in range(4):
    assert first.should_compress(23_000) and not first.should_compress(5_000)
    shorter = first.compress(messages, current_tokens=23_000, focus_topic="the crates", memory_context="Ann likes tea.")
    assert len(shorter) < len(messages) and messages[-1] in shorter, "the latest is as it was"
    assert "the crates" in str(shorter[0]) and "Ann likes tea." in str(shorter[0])
    sizes.append(len(str(shorter)))
    first.on_session_start(f"one-{round}", boundary_reason="compression", old_session_id="one")
    first.update_from_response({"prompt_tokens": 6_000, "completion_tokens": 10, "total_tokens": 6_010})
    messages = [*shorter, {"role": "user", "content": "(todo: go on)"}, *talk(30, f"r{round}")[1:]]
    print("MESSAGES", json.dumps(messages))
assert first.compression_count == 4 and max(sizes) < 2 * min(sizes), sizes
first.on_session_end("one-3", messages)
second = engine()
second.on_session_start("one", model="bench")
print("FOUND", second.handle_tool_call("recall", {"id": "c3"}, messages=messages).count("crate-3"))
print("FOUND", second.handle_tool_call("recall", {"query": "crate-29"}, messages=messages).count("crate-29"))
print("WRONG", second.handle_tool_call("other", {}), second.handle_tool_call("recall", {"id": "unknown"}))
""",
    )
    from perdure.testing import check_openai

    rounds = [json.loads(line.removeprefix("MESSAGES ")) for line in told if line.startswith("MESSAGES ")]
    assert len(rounds) == 4
    for messages in rounds:
        plain = [{key: value for key, value in one.items() if key != "finish_reason"} for one in messages]
        assert check_openai({"model": "bench", "messages": plain}, strict=False) == []
    found = [line for line in told if line.startswith("FOUND")]
    assert all(int(line.split()[1]) for line in found) and len(found) == 2
    assert "there is no tool" in told[-1] and "recall failed" in told[-1]


def test_a_home_that_cannot_be_used_and_a_session_in_use_stop_nobody(tmp_path: Path) -> None:
    """LIB-7, REL-1: nothing is raised into the agent's loop; what was given comes back, and the log says why."""
    (tmp_path / "file").write_text("no folder")
    told = in_environment(
        tmp_path,
        """
logging.basicConfig(stream=sys.stdout, level=logging.WARNING)
broken = PerdureContextEngine(home="file")
broken.update_model("bench", 24_000)
broken.on_session_start("one")
messages = talk(30)
assert broken.compress(messages) is messages and broken.compression_count == 0
assert "error" in json.loads(broken.handle_tool_call("recall", {"id": "c3"}, messages=messages))
broken.on_session_end("one", messages)
short = [{"role": "user", "content": "Hello"}]
first, second = engine(), engine()
for one in (first, second):
    one.on_session_start("same")
    assert one.compress(short) is short, "nothing can be gained"
    assert len(one.compress(messages)) < len(messages)
assert "crate-3" in second.handle_tool_call("recall", {"id": "c3"}, messages=[])
print("DONE")
""",
    )
    assert told[-1] == "DONE"
    assert any("not compacted" in line for line in told) and any("kept in memory alone" in line for line in told)


def test_the_plugin_of_the_docs_registers_an_engine(tmp_path: Path) -> None:
    """LIB-7: as it stands in docs/use/integrations.md."""
    script = (
        example("def register(context)")
        + """
from types import SimpleNamespace

made = []
register(SimpleNamespace(register_context_engine=made.append))
made[0].update_model("bench", 64_000)
print(made[0].name, 0 < made[0].threshold_tokens < 64_000)
"""
    )
    assert asyncio.run(python(HERMES, "-c", script, cwd=tmp_path)).split() == ["perdure", "True"]


def test_without_its_tool_the_model_is_told_who_has_the_originals(tmp_path: Path) -> None:
    """LIB-7, RCL-3: where the toolset `context_engine` isn't enabled, the tool is never asked for."""
    told = in_environment(
        tmp_path,
        """
for offers in (True, False):
    one = engine()
    if offers:
        one.get_tool_schemas()
    name = "offers" if offers else "offers-nothing"
    one.on_session_start(name)
    print(f"perdure recall {name} " in str(one.compress(talk(30))))
""",
    )
    assert told[-2:] == ["False", "True"]
