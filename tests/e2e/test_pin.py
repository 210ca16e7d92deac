"""`perdure pin` (RST-8): set, list, remove, refuse."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from tests.commands import Done, command

from perdure import Message
from perdure.wiring import create_session

pytestmark = pytest.mark.e2e


@pytest.fixture
def home(tmp_path: Path) -> Path:
    async def body() -> None:
        session = await create_session(tmp_path / "home", project=tmp_path, session="pinned1")
        await session.append(Message.of("user", "hello"))
        await session.close()

    anyio.run(body)
    return tmp_path / "home"


def perdure(home: Path, *words: str) -> Done:
    return command(*words, cwd=home, env={"PERDURE_HOME": str(home), "PATH": ""})


def test_set_list_and_remove(home: Path) -> None:
    done = json.loads(perdure(home, "pin", "pinned1", "never touch prod", "--json").stdout)
    identity = done["pinned"]["id"]
    assert done["pins"] == [{"id": identity, "text": "never touch prod", "tokens": 4}]
    assert "never touch prod" in perdure(home, "pin", "pinned1", "--list").stdout
    gone = perdure(home, "pin", "pinned1", "--remove", identity, "--json")
    assert json.loads(gone.stdout)["pins"] == []
    assert perdure(home, "pin", "pinned1", "--list").stdout.startswith("no pins")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pin", "pinned1"), 2, "say one of the three"),
        (("pin", "pinned1", "x", "--list"), 2, "say one of the three"),
        (("pin", "pinned1", "x" * 4_000, "--set", "pins_tokens=10"), 1, "the pin takes 1,000 tokens, and 0 of the 10"),
        (("pin", "pinned1", "--remove", "nope"), 1, "no pin 'nope'"),
        (("pin", "nowhere", "x"), 3, "no session"),
    ],
)
def test_what_is_refused(home: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = perdure(home, *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
