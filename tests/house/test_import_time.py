"""SPD-5, LIB-2: `import perdure` stays light. A structural check: what it loads, not how long that took here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from bench.first_use import PROGRAMS

pytestmark = pytest.mark.house

# Each of these costs more than the whole budget allows, or belongs to a door the importer may never open.
HEAVY = frozenset(
    "aiohttp anthropic anyio asyncio click fastapi h11 httpcore httpcore2 httpx httpx2 hypothesis mcp multiprocessing "
    "openai opentelemetry orjson psycopg pydantic pytest requests rich sqlite3 ssl starlette typer uvicorn yaml".split()
)


def modules_after(statement: str) -> set[str]:
    code = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys, json; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout)) - set(json.loads(bare.stdout))


def test_import_perdure_loads_nothing_heavy() -> None:
    loaded = {name.partition(".")[0] for name in modules_after("import perdure")}
    assert not loaded & HEAVY, f"import perdure pulls in {sorted(loaded & HEAVY)}"


def test_import_perdure_opens_no_door() -> None:
    doors = ("cli", "gateway", "mcp", "integrations", "adapters", "agent", "testing", "report", "bench", "demo")
    loaded = modules_after("import perdure")
    opened = sorted(name for name in loaded if name.startswith(tuple(f"perdure.{door}" for door in doors)))
    assert not opened, f"import perdure opens {opened}"


# What belongs to compaction, memory, disks or doors: a short conversation in memory uses none of it.
UNUSED = (
    "agent agent.loop cli compaction.ledger.reader compaction.plan compaction.restore.kinds engine.compact "
    "engine.consolidate engine.extraction engine.memory_recall engine.notes engine.remember gateway lab logs memory "
    "adapters.journal.journal adapters.journal.search adapters.memory adapters.machine.shell ports.machine "
    "ports.memory recall testing transcript.tool_calls.todos wiring.agents wiring.sessions"
).split()
FIRST_USE, SYNC_USE = PROGRAMS["first use of a session"], PROGRAMS["the same without an event loop"]


@pytest.mark.parametrize("program", [FIRST_USE, SYNC_USE], ids=["await", "sync"])
def test_the_first_use_of_a_session_loads_what_it_uses(program: str) -> None:
    """LIB-6: what a program imports loads only what it uses, and no package that belongs to a door."""
    loaded = modules_after(f"exec({program!r})")
    assert not {name for name in UNUSED if f"perdure.{name}" in loaded}
    doors = "aiohttp anthropic dulwich openai opentelemetry pathspec prompt_toolkit re2 rich sqlite3 typer uvicorn yaml"
    assert not {name.partition(".")[0] for name in loaded} & set(doors.split())


def test_events_and_large_patterns_cost_a_first_use_nothing() -> None:
    """LIB-6: 64 events as dataclasses took 30 ms to define, and patterns that few programs need 15 ms to compile."""
    code = """
import re
from dataclasses import is_dataclass

compiled, real = [], re._compiler.compile
re._compiler.compile = lambda pattern, flags=0: (compiled.append(str(pattern)), real(pattern, flags))[1]
large = lambda: [one for one in compiled if "function_calls" in one or "prompt is too long" in one]

import perdure.engine.turn, perdure.events
from perdure.context import failures, reminders
assert not [name for name in perdure.events.__all__ if is_dataclass(getattr(perdure.events, name))]
assert not large(), large()
failures.classify(failures.ErrorResponse(status=400, message="prompt is too long"))
reminders.neutralised("<system-reminder>")
assert len(large()) == 2, "this test would not see them"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_mcp_server_answers_first_and_loads_the_engine_then() -> None:
    """MCP-1: a client starts its servers before the first prompt, which needn't wait for the engine."""
    loaded = modules_after("import perdure.mcp.serving")
    assert "perdure.mcp.tools" in loaded and not loaded & {"perdure.mcp.project", "perdure.wiring.sessions", "sqlite3"}
