"""The Claude Agent SDK itself, with the program that it brings along, and Perdure in it (LIB-4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.adapters import run as run_in_framework
from bench.clients import KEY, framework
from tests.environments import CODE, CRATE, SCRIPTS, example, needs, python, write_parts

from perdure.sync import Session
from perdure.testing import FakeServer, FakeUpstream, ModelRules, ScriptedAnswer, say, tool_use
from perdure.testing.request import DecodedRequest

SDK = framework("claude-agent-sdk")
pytestmark = [pytest.mark.e2e, needs(SDK), pytest.mark.timeout(400)]
PARTS = 10
PRICED = "claude-sonnet-5-5"
ASKED = f"What is in {CRATE}?"
RECALL = "mcp__perdure__recall"


class Worker(FakeUpstream):
    """Reads all parts, sums them up badly, and looks things up with our tools when it is asked."""

    server: FakeServer

    def __init__(self) -> None:
        super().__init__(rules=ModelRules(window_tokens=200_000, max_output_tokens=128_000), strict=False)
        self.parts = 0
        self.answers: dict[str, Callable[[str], ScriptedAnswer | None]] = {}  # by words of the last prompt

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        messages = json.loads(self.server.received[-1].body)["messages"]
        prompts = [n for n, one in enumerate(messages) if one["role"] == "user" and "tool_result" not in str(one)]
        asked, since = str(messages[prompts[-1]]), str(messages[prompts[-1] :])
        for words, answer in self.answers.items():
            if words in asked and (reply := answer(since)) is not None:
                return reply
        if "Read all" in asked and self.parts < PARTS:
            # What `cat` or `grep` gives, the program may put behind a summary by itself, as a file that was read.
            command = {"command": f"awk 1 part_{self.parts:03}.txt", "description": "Read a part"}
            self.parts += 1
            return say(f"Part {self.parts}.", tool_use("Bash", command))
        return say("<summary>Some parts were read.</summary>")

    def bodies(self) -> list[str]:
        return [one.body.decode() for one in self.server.received]


def looking_up(tool: str, arguments: dict[str, Any], done: str) -> Callable[[str], ScriptedAnswer | None]:
    """Loads a tool, calls it, and says what it gave as soon as that has come."""

    def answer(since: str) -> ScriptedAnswer | None:
        if done in since:
            return say(f"It is {done}.")
        if "tool_reference" in since or "Loaded" in since or since.count("tool_result") >= 1:
            return say(tool_use(tool, arguments)) if f"'name': '{tool}'" not in since else None
        return say(tool_use("ToolSearch", {"query": f"select:{tool}", "max_results": 5}))

    return answer


async def agent(folder: Path, worker: Worker, home: str, *prompts: str) -> list[str]:
    if not (folder / "project").exists():
        write_parts(folder / "project", PARTS)
    return await run(folder, worker, str(SCRIPTS / "claude_agent_sdk_agent.py"), home, *prompts)


async def run(folder: Path, worker: Worker, *argv: str) -> list[str]:
    async with FakeServer(worker) as server:
        worker.server = server
        said = await python(
            SDK,
            *argv,
            cwd=folder / "project",
            HOME=str(folder),
            CLAUDE_CONFIG_DIR=str(folder / "config"),
            ANTHROPIC_BASE_URL=server.url,
            ANTHROPIC_API_KEY=KEY,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            IS_SANDBOX="1",
        )
    assert not worker.statistics.violations, worker.statistics.violations
    return said.splitlines()


def test_the_store_keeps_every_contract_of_the_sdks_own_suite(tmp_path: Path) -> None:
    """LIB-4: all 14 of them, none left out."""
    script = """
import itertools, anyio, sys
from claude_agent_sdk.testing import run_session_store_conformance
from perdure.integrations.claude_agent_sdk import PerdureSessionStore
made = itertools.count()
anyio.run(run_session_store_conformance, lambda: PerdureSessionStore(f"homes/{next(made)}"))
print(next(made))
"""
    told = asyncio.run(python(SDK, "-c", script, cwd=tmp_path))
    assert int(told) == 15, "a store for each contract, and one to look at"


def test_what_is_deleted_is_the_session_of_that_name(tmp_path: Path) -> None:
    """LIB-4: no other one whose name holds it, and none that a path leads to."""
    script = """
from pathlib import Path
import anyio
from perdure.integrations.claude_agent_sdk import PerdureSessionStore
from perdure.sync import Session

store, entry = PerdureSessionStore("home"), {"type": "user", "uuid": "a", "timestamp": "2026-11-22T10:00:00.000Z"}
for name in ("other-2", "mine"):
    Session.create(".", home="home", id=name).close()
(other,) = Path("home").resolve().rglob("other-2")
for name in ("other", "mine", str(other)):
    key = {"project_key": "p", "session_id": name}
    if name != str(other):
        anyio.run(store.append, key, [entry])
    try:
        anyio.run(store.delete, key)
    except Exception as e:
        print(type(e).__name__)
print(sorted(one.parent.name for one in Path("home").rglob("journal.jsonl")))
"""
    told = asyncio.run(python(SDK, "-c", script, cwd=tmp_path)).splitlines()
    assert told[-1] == "['other-2']"


def test_after_a_compaction_our_record_is_there_and_recall_answers(tmp_path: Path) -> None:
    """LIB-4, RCL-3: what the summary lost is in the record, and the original behind it comes back through the tool."""
    worker = Worker()
    line = f"{CRATE} {CODE}"  # the record has the code, among many, but not of what it is
    worker.answers[ASKED] = looking_up(RECALL, {"query": CRATE}, line)
    home = tmp_path / "home"
    prompts = ("Read all parts.", "/compact", "Go on.", "/compact", ASKED)
    said = asyncio.run(agent(tmp_path, worker, str(home), *prompts))
    assert said[-1] == f"ok: It is {line}."
    behind = [body for body in worker.bodies() if "Some parts were read." in body and ASKED in body]
    assert line not in behind[0], "nothing but recall could have given it"
    assert [f'<perdure-record part=\\"{n} of 2\\">' in behind[0] for n in (1, 2)] == [True, True]
    assert "awk 1 part_002.txt" in behind[0] and RECALL in behind[0]
    assert behind[0].count("Beside the summary of the conversation") == 1, "a record isn't made of a record"
    assert "hook-" not in behind[0], "a longer one would be put into a file"
    (kept,) = (home / "projects").glob("*/*")
    with Session.open(kept.name, home=home, read_only=True) as session:
        assert session.search(CRATE).hits


def test_a_long_run_in_a_small_window_ends_with_us_as_without() -> None:
    """LIB-4: 60 calls in 60,000 tokens, in which its program compacts by itself; our record and tools still fit in."""
    without, ours = (
        run_in_framework(f"Claude Agent SDK{more}", 60, 1_500, 60_000, PRICED) for more in ("", ", Perdure")
    )
    for outcome in (without, ours):
        assert outcome.ended == "done" and outcome.invalid == 0 and outcome.largest < 50_000
        assert outcome.requests == outcome.turns > 61, "each part, the end, and some summaries"
    assert without.usd < ours.usd < 1.3 * without.usd


def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    """LIB-4: as it stands in docs/use/integrations.md."""
    (tmp_path / "project").mkdir()
    worker = Worker()
    worker.parts = PARTS - 2
    said = asyncio.run(run(tmp_path, worker, "-c", example("perdure.integrations.claude_agent_sdk")))
    assert any("ResultMessage" in line and "is_error=False" in line for line in said)
    assert "mcp__perdure__recall" in worker.bodies()[0] and len(list(tmp_path.rglob("transcripts/*/*.jsonl"))) == 1


def test_a_conversation_goes_on_from_our_store_alone(tmp_path: Path) -> None:
    """LIB-4: the SDK's own transcripts are gone; what was said is in the request of the process that resumes."""
    worker = Worker()
    prompts = ("Read all parts.", "resume", "What now?")
    asyncio.run(agent(tmp_path, worker, str(tmp_path / "home"), *prompts))
    last = worker.bodies()[-1]
    assert "What now?" in last and "Read all parts." in last and CODE in last
    (session,) = (tmp_path / "home" / "transcripts").glob("*/*.jsonl")
    ids = [uuid for line in session.read_text().splitlines() if (uuid := json.loads(line).get("uuid"))]
    assert len(ids) == len(set(ids))


def test_what_the_model_remembers_is_there_in_the_next_conversation(tmp_path: Path) -> None:
    """LIB-4, MEM-7, MEM-10: the memory tool writes through the one writer: the user's word at once, others' waits."""
    worker = Worker()
    word = "Deploys go through the blue gate."
    text = f"---\nname: {word}\ndescription: {word}\ntype: project\n---\n{word}\n"
    create = {"command": "create", "path": "/memories/deploys.md", "file_text": text}
    guess = {**create, "path": "/memories/guess.md", "file_text": text.replace("blue", "red")}
    tool = "mcp__perdure__memory"
    worker.answers["Remember"] = looking_up(tool, create, "created successfully")
    worker.answers["Guess"] = looking_up(tool, guess, "waits for approval")
    worker.answers["How are"] = looking_up(tool, {"command": "view", "path": "/memories/deploys.md"}, "the blue gate")
    home = str(tmp_path / "home")
    said = asyncio.run(agent(tmp_path, worker, home, f"Remember: {word}", "Guess."))
    assert said == ["ok: It is created successfully.", "ok: It is waits for approval."]
    assert asyncio.run(agent(tmp_path, worker, home, "How are deploys done?")) == ["ok: It is the blue gate."]


def test_options_of_ones_own_stay_and_mistakes_are_said(tmp_path: Path) -> None:
    """LIB-4, CLI-5: other hooks, servers, tools and stores are kept; a clash is one clear line."""
    script = """
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, InMemorySessionStore
from perdure.errors import BadSetting, SessionNotFound
from perdure.integrations.claude_agent_sdk import PerdureMemory
import anyio

memory = PerdureMemory(".", home="home")
mine, store = HookMatcher(hooks=[]), InMemorySessionStore()
given = ClaudeAgentOptions(
    allowed_tools=["Bash"], hooks={"PreCompact": [mine], "Stop": [mine]}, mcp_servers={"x": {"command": "x"}},
    session_store=store, system_prompt="Be brief.",
)
made = memory.options(given)
assert made.hooks["PreCompact"][0] is mine and len(made.hooks["PreCompact"]) == 2 and made.hooks["Stop"] == [mine]
assert set(made.mcp_servers) == {"x", "perdure"} and made.session_store is store and made.system_prompt == "Be brief."
assert made.allowed_tools == ["Bash", "mcp__perdure__recall", "mcp__perdure__memory"]
assert given.hooks == {"PreCompact": [mine], "Stop": [mine]} and given.allowed_tools == ["Bash"], "untouched"
assert memory.options().session_store is memory.store
assert memory.options(ClaudeAgentOptions(enable_file_checkpointing=True)).session_store is None, "the SDK refuses both"
for wrong in (made, ClaudeAgentOptions(mcp_servers="servers.json")):
    try:
        memory.options(wrong)
    except BadSetting as e:
        print(e)
try:
    anyio.run(memory.session)
except SessionNotFound as e:
    print(e)
"""
    told = asyncio.run(python(SDK, "-c", script, cwd=tmp_path)).splitlines()
    assert len(told) == 3 and all("perdure" in line for line in told[:2]) and "has begun" in told[2]


def test_a_hook_that_cannot_do_its_part_stops_nobody(tmp_path: Path) -> None:
    """LIB-4: here the home is a file; the agent compacts and goes on, and the log says why there is no record."""
    worker = Worker()
    (tmp_path / "home").write_text("no folder")
    said = asyncio.run(agent(tmp_path, worker, str(tmp_path / "home"), "Read all parts.", "/compact", "What now?"))
    assert said[-1].startswith("ok:") and worker.parts == PARTS
    assert any("SessionStart of the Claude Agent SDK" in line for line in said)
