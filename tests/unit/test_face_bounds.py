"""What is given to the library and can't be used is refused in one clear line (findings L10; LIB-5, LIB-10)."""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure import Agent, Session, SharedStore
from perdure.engine.turn import prepare
from perdure.errors import BadSetting, PerdureError, RecordRefused
from perdure.testing import ScriptedModel, check_anthropic
from perdure.transcript.records import Front, MediaReplaced
from perdure.wiring import memory_session

pytestmark = pytest.mark.unit

ODD = {"a NUL": "a\0b", "a long name": "x" * 300, "a long path": "/".join(["d" * 100] * 60)}
WAYS: dict[str, Callable[[str, Path], Any]] = {
    "create": lambda odd, home: Session.create(odd, home=home),
    "named": lambda odd, home: Session.named("n", odd, home=home),
    "agent": lambda odd, home: Agent.create(odd, model=ScriptedModel([]), home=home),
    "home": lambda odd, home: Session.create(".", home=odd),
    "store": lambda odd, home: SharedStore.at(odd),
    "open": lambda odd, home: Session.open(odd, home=home),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_path_that_no_system_has_is_refused(odd: str, way: str, tmp_path: Path) -> None:
    """Finding L10: a NUL, or too long a name, is no bare ValueError or OSError, wherever a path is given."""

    async def main() -> None:
        with pytest.raises(PerdureError) as refused:
            async with WAYS[way](odd, tmp_path):
                pass
        assert len(str(refused.value)) < 400 and "\n" not in str(refused.value)

    anyio.run(main)


def test_a_project_that_is_not_there_is_refused_when_it_is_begun(tmp_path: Path) -> None:
    """Finding L10: a misspelt project would be another one; a conversation goes on where its folder is gone."""
    folder, home = tmp_path / "project", tmp_path / "home"
    folder.mkdir()

    async def main() -> None:
        for wrong in (tmp_path / "projcet", Path(__file__)):
            for way in (WAYS["create"], WAYS["named"]):
                with pytest.raises(BadSetting, match="must be a folder that is there, got"):
                    async with way(str(wrong), home):
                        pass
        assert not home.exists() or not list(home.rglob("journal*"))
        for _ in range(2):
            async with Session.named("n", folder, home=home) as session:
                await session.append("Hello")
            if folder.exists():
                folder.rmdir()

    anyio.run(main)


def _picture(size: int) -> dict[str, Any]:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 100, 100)
    data = base64.b64encode(head + os.urandom(size)).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}


@pytest.mark.quick(1)
@pytest.mark.parametrize("place", ["said", "result"])
def test_a_picture_that_the_model_is_never_shown_is_refused(place: str) -> None:
    """Finding L10: 10 MB are more than Messages takes; a model that isn't known may take them."""

    def said(picture: dict[str, Any]) -> dict[str, Any]:
        result = {"type": "tool_result", "tool_use_id": "t1", "content": [picture]}
        return {"role": "user", "content": [picture if place == "said" else result]}

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.set_prefix(model="claude-sonnet-5-5")
            await session.append("Look!", *([{"role": "assistant", "content": [USE]}] if place == "result" else []))
            with pytest.raises(RecordRefused, match="an image must have at most 5,242,880 bytes of base64, got 13,333"):
                await session.append(said(_picture(10_000_000)))
            await session.append(said(_picture(3_000_000)))
            assert not check_anthropic((await session.prepare()).data)
        for model, size, is_taken in (("gpt-6", 10**7, True), ("mine", 10**7, True), ("mine", 2 * 10**7, False)):
            async with Session.in_memory() as session:
                await session.set_prefix(model=model)
                refused: list[str] = []
                try:
                    await session.append({"role": "user", "content": [_picture(size)]})
                except RecordRefused as e:
                    refused.append(str(e))
                assert bool(refused) != is_taken

    anyio.run(main)


def test_a_picture_that_came_another_way_leaves_the_request() -> None:
    """TURN-9: where nobody can be told, such as in an imported history, a placeholder stands in its place."""

    async def main() -> None:
        session = await memory_session()
        await session.record(Front(model="claude-sonnet-5-5"))
        await session.append({"role": "user", "content": [_picture(5_000_000), {"type": "text", "text": "Look!"}]})
        request = await prepare(session)
        assert not check_anthropic(request.data)
        loaded = await session.ports.journal.load(whole=True)
        assert [one.record.reason for one in loaded.records if isinstance(one.record, MediaReplaced)]

    anyio.run(main)
