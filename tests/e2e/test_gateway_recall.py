"""What a gateway's client, which has no recall tool, is told of what left its view (RCL-1, GW-2, GW-3)."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from tests.commands import command
from tests.gateways import fake, in_loop, serving

from perdure.events import CompactionDone
from perdure.testing import FakeUpstream, ModelRules, say, tool_use

pytestmark = pytest.mark.e2e
COMMAND = re.compile(r"`perdure recall (session-\w+) X`")


def upstream(turns: int) -> FakeUpstream:
    script: list[Any] = []
    for n in range(turns):
        script += [say(tool_use("Read", {"file_path": f"f{n}.py"}, id=f"toolu_{n}")), f"done {n}"]
    rules = ModelRules(window_tokens=100_000)
    return FakeUpstream(rules=rules, script=script)


@in_loop
async def test_it_is_told_once_where_originals_are_and_the_command_works(tmp_path: Path) -> None:
    """It stands once in each body that needs it, also behind compactions, and what it names gives the original."""
    turns = 12
    async with fake(upstream(turns)) as server, serving(tmp_path, server) as at:
        client, messages = at.claude(max_retries=0), list[Any]()
        for n in range(turns):
            messages.append({"role": "user", "content": f"Look at {n}. " + f"Remark {n}: keep it short. " * 1_500})
            for _ in range(2):
                said = await client.messages.create(model="fake-model", max_tokens=500, messages=messages)
                messages.append(
                    {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in said.content]}
                )
                if calls := [block for block in said.content if block.type == "tool_use"]:
                    content = f"line of file {n}: value {n * 7}\n" * 3_000
                    result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": content}
                    messages.append({"role": "user", "content": [result]})
        assert [e for e in at.sink.events if isinstance(e, CompactionDone)]
        stats = server.upstream.statistics
        moves = len([e for e in at.sink.events if type(e).__name__ == "PrefixMoved"])
        assert not stats.violations and stats.refused == 0 and len(stats.prefix_moves) <= moves
        told = [str(body["messages"]).count("There is no recall tool here") for body in at.bodies]
        assert told == [0] + [1] * (len(told) - 1), "once, from the first offloaded result on"
        last = str(at.bodies[-1]["messages"])
        assert "with the recall tool" not in last and "a person gets by its id" in last
        (session,) = set(COMMAND.findall(last))
        recall = partial(command, "recall", session, "toolu_0", cwd=tmp_path, env={"PERDURE_HOME": str(tmp_path)})
        assert (await anyio.to_thread.run_sync(recall)).stdout.startswith("line of file 0: value 0\n" * 3_000)
