"""A fork at the gateway that fails leaves nothing behind, and nobody's session is let go of under them (GW-2, GW-3)."""

from __future__ import annotations

import errno
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.gateways import fake, in_loop, serving

from perdure.adapters.journal import store
from perdure.adapters.journal.home import FileHome
from perdure.errors import JournalError
from perdure.gateway import sessions

pytestmark = pytest.mark.faults


async def ask(client: Any, messages: list[dict[str, Any]]) -> str:
    answer = await client.messages.create(model="fake-model", max_tokens=200, messages=messages)
    return str(answer.content[0].text)


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def broken(*_: Any, **__: Any) -> Any:
    raise JournalError("no space left on device")


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("module", "seam", "fault"),
    [(store, "copy_records", full), (store, "_copy_folders", broken), (sessions, "open_session", broken)],
)
@in_loop
async def test_a_fork_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, seam: str, fault: Any
) -> None:
    """GW-2, GW-3: no half made session, no count below nothing; asked again, the fork is made."""
    async with fake() as server, serving(tmp_path, server) as at:
        client = at.claude(max_retries=0)
        talk = [said("user", "one")]
        for text in ("two", "three"):
            talk += [said("assistant", await ask(client, talk)), said("user", text)]
        await ask(client, talk)
        (own,) = at.gateway._sessions.values()
        assert isinstance(own.home, FileHome)
        (held,) = own.open.values()
        fork = [*talk[:2], said("user", "another way"), said("assistant", "so"), said("user", "and on")]
        with monkeypatch.context() as patched:
            patched.setattr(module, seam, fault)
            assert await ask(client, fork), "what fails here is no reason to keep the client from its model"
        assert at.metric("perdure_forks_total") == 0
        assert held.users == 0 and [one.users for one in own.open.values()] == [0]
        assert [info.id for info in own.home.files.list()] == [held.id]
        assert not list(own.home.path.rglob(".forking-*"))
        assert await ask(client, fork)
        assert at.metric("perdure_forks_total") == 1 and len(own.open) == 2
        assert [one.users for one in own.open.values()] == [0, 0]
        found = own.home.files.list()
        assert len(found) == 2 and not any(info.problem for info in found)
