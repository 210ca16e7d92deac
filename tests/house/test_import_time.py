"""SPD-5, LIB-2: `import perdure` stays light. A structural check: what it loads, not how long that took here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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
