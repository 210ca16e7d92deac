"""A conversation far beyond the window, by unmodified SDKs: through the gateway, alone, and with truncation (GW-2).

Usage: python bench/endless.py [--turns 400] [--tokens 2000000] [--window 100000] [--sdk anthropic openai responses]

The upstream is the fake one, which checks every request against the rules of the real API and accounts for the prompt
cache. Each turn is a prompt, a call of a tool, its result, and a word. Printed for each way: turns that were answered,
errors that the client saw, violations, moves of the prefix (and how many of them the gateway announced), tokens by what
they cost, and the price in units of uncached input (reads 0.1, writes 1.25; as in reference prices of the model table).
`truncating` is a client that drops its oldest turns whenever its history is over 80 % of the window.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perdure.testing import FakeServer, FakeUpstream, ModelRules, ScriptedAnswer, say, thinking, tool_use
from perdure.testing.request import DecodedRequest

THINKER = "bench-reasoning"  # the model of Responses: its reasoning has to come back in its place
WORDS = "alpha beta gamma delta value index count total error warning file line path module class test result".split()


class Agent(FakeUpstream):
    """Calls a tool when a person spoke, says a word when it has the result."""

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        number = self.statistics.answered
        if any(block.kind == "tool_result" for block in request.messages[-1].blocks):
            return say(f"Part {number} is done.")
        call = tool_use("Read", {"file_path": f"src/part_{number}.py"}, id=f"toolu_{number:06d}")
        thought = (thinking(f"Part {number} comes next."),) if request.fields["model"] == THINKER else ()
        return say(*thought, f"Looking at part {number}.", call)


@dataclass
class Told:
    """What came of one way."""

    name: str
    turns: int
    errors: int
    first_error: str
    seconds: float
    server: FakeUpstream
    announced: int | None = None

    def row(self) -> str:
        stats = self.server.statistics
        price = stats.plain_tokens + 0.1 * stats.read_tokens + 1.25 * stats.written_tokens
        announced = "" if self.announced is None else f" ({self.announced} announced)"
        plain, read, written = stats.plain_tokens / 1e6, stats.read_tokens / 1e6, stats.written_tokens / 1e6
        return (
            f"{self.name:>24} {self.turns:6d} {self.errors:7d} {sum(stats.violations.values()):11d} "
            f"{len(stats.prefix_moves):6d}{announced:<16} {plain:8.2f} {read:8.2f} "
            f"{written:8.2f} {price / 1e6:8.2f} {self.seconds:8.0f}"
        )


class Talk:
    """Prompts and results of about so many tokens a turn."""

    def __init__(self, tokens: int) -> None:
        self.chance, self.tokens = random.Random(5), tokens

    def prompt(self, number: int) -> str:
        return f"Now part {number}. " + " ".join(self.chance.choices(WORDS, k=60))

    def result(self) -> str:
        lines, size = list[str](), 0
        while size < self.tokens * 4 - 500:
            lines.append(" ".join(self.chance.choices(WORDS, k=12)) + f" {self.chance.randrange(10**6)}")
            size += len(lines[-1]) + 1
        return "\n".join(lines)


async def by_anthropic(url: str, turns: int, talk: Talk, *, keep_chars: int | None = None) -> tuple[int, int, str]:
    import anthropic

    messages: list[Any] = []
    tools: Any = [{"name": "Read", "input_schema": {"type": "object"}}]
    async with anthropic.AsyncAnthropic(api_key="bench", base_url=url, max_retries=0, timeout=300) as client:

        async def ask() -> Any:
            more: Any = {"cache_control": {"type": "ephemeral"}}
            async with client.messages.stream(
                model="bench", max_tokens=500, messages=messages, tools=tools, extra_body=more
            ) as stream:
                said = await stream.get_final_message()
            messages.append({"role": "assistant", "content": [block.to_dict() for block in said.content]})
            return said

        for number in range(turns):
            messages.append({"role": "user", "content": talk.prompt(number)})
            while keep_chars is not None and sum(len(str(m["content"])) for m in messages) > keep_chars:
                del messages[:4]
            try:
                calls = [block for block in (await ask()).content if block.type == "tool_use"]
                block = {"type": "tool_result", "tool_use_id": calls[0].id, "content": talk.result()}
                messages.append({"role": "user", "content": [block]})
                await ask()
            except anthropic.APIError as e:
                return number, 1, str(e)[:150]
    return turns, 0, ""


async def by_openai(url: str, turns: int, talk: Talk) -> tuple[int, int, str]:
    import openai

    messages: list[Any] = [{"role": "system", "content": "You help."}]
    tools: Any = [{"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}]
    async with openai.AsyncOpenAI(api_key="bench", base_url=f"{url}/v1", max_retries=0, timeout=300) as client:

        async def ask() -> Any:
            async with client.chat.completions.stream(
                model="bench", messages=messages, tools=tools, stream_options={"include_usage": True}
            ) as stream:
                said = (await stream.get_final_completion()).choices[0].message
            messages.append(said.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
            return said

        for number in range(turns):
            messages.append({"role": "user", "content": talk.prompt(number)})
            try:
                call = (await ask()).tool_calls[0]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": talk.result()})
                await ask()
            except openai.APIError as e:
                return number, 1, str(e)[:150]
    return turns, 0, ""


async def by_responses(url: str, turns: int, talk: Talk) -> tuple[int, int, str]:
    import openai

    items: list[Any] = []
    tools: Any = [{"type": "function", "name": "Read", "parameters": {"type": "object"}, "strict": False}]
    async with openai.AsyncOpenAI(api_key="bench", base_url=f"{url}/v1", max_retries=0, timeout=300) as client:

        async def ask() -> Any:
            async with client.responses.stream(
                model=THINKER, instructions="You help.", input=items, tools=tools, store=False
            ) as stream:
                said = await stream.get_final_response()
            items.extend(item.model_dump(exclude={"parsed_arguments"}, exclude_none=True) for item in said.output)
            return said

        for number in range(turns):
            items.append({"role": "user", "content": talk.prompt(number)})
            try:
                call = (await ask()).output[-1]
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": talk.result()})
                await ask()
            except openai.APIError as e:
                return number, 1, str(e)[:150]
    return turns, 0, ""


ASKING = {"anthropic": by_anthropic, "openai": by_openai, "responses": by_responses}


@contextlib.contextmanager
def gateway(url: str, window: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """`perdure serve` in front of the upstream, with its events in a file."""
    home, events = folder / "home", folder / "events.jsonl"
    home.mkdir()
    upstreams = "".join(f'[gateway.upstreams.{name}]\nurl = "{url}"\n' for name in ("anthropic", "openai"))
    home.joinpath("config.toml").write_text(f"window_tokens = {window}\n[gateway]\n{upstreams}")
    command = [sys.executable, "-m", "perdure", "serve", "--port", "0", "--json", "--events", str(events)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PERDURE_HOME": str(home)}
    )
    try:
        assert process.stdout is not None
        yield msgspec.json.decode(process.stdout.readline())["url"], events
    finally:
        process.terminate()
        process.wait(30)


def upstream(window: int) -> FakeUpstream:
    return Agent(rules=ModelRules(window_tokens=window))


async def way(name: str, told: argparse.Namespace, folder: Path) -> Told:
    talk, server = Talk(told.tokens // told.turns - 120), upstream(told.window)
    began, announced = time.monotonic(), None
    async with FakeServer(server, keeps_requests=False) as fake:
        if name.startswith("gateway"):
            with gateway(fake.url, told.window, folder) as (url, events):
                turns, errors, first = await ASKING[name.rpartition(" ")[2]](url, told.turns, talk)
            lines = await asyncio.to_thread(events.read_bytes)
            announced = lines.count(b'"event":"PrefixMoved"')
        else:
            keep = int(told.window * 4 * 0.8) if name == "truncating" else None
            turns, errors, first = await by_anthropic(fake.url, told.turns, talk, keep_chars=keep)
    return Told(name, turns, errors, first, time.monotonic() - began, server, announced)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--window", type=int, default=100_000)
    parser.add_argument("--sdk", nargs="*", choices=list(ASKING), default=list(ASKING))
    told = parser.parse_args()
    names = ["no gateway", "truncating", *(f"gateway, {sdk}" for sdk in told.sdk)]
    print(f"{told.turns} turns, {told.tokens:,} tokens, window {told.window:,}; tokens in millions")
    head = f"{'':>24} {'turns':>6} {'errors':>7} {'violations':>11} {'moves':>6} {'':<15} {'plain':>8} {'read':>8}"
    print(f"{head} {'written':>8} {'price':>8} {'seconds':>8}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            row = asyncio.run(way(name, told, Path(folder)))
        print(row.row(), flush=True)
        if row.first_error:
            print(f"{'':>25}turn {row.turns}: {row.first_error}")


if __name__ == "__main__":
    main()
