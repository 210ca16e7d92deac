"""One prompt, 200 calls of a tool, in each framework with and without Perdure (LIB-4).

Usage: python -m bench.adapters [--turns 200] [--tokens 1500] [--window 60000] [--price-of claude-sonnet-5-5] [NAME …]

LiteLLM, hermes-agent and the Claude Agent SDK run in environments of their own (`make clients ARGS=--frameworks`
installs them), and read such files with a command. hermes-agent takes no window below 65,536, and gets that one;
without Perdure it compacts with a model. The Claude Agent SDK's program does so in any case: with Perdure the model
gets a record beside each of its summaries, and two more tools, which is what the difference in price is for.

The script of the model is the same for all; its server is the fake one with every rule on, and has that window.
`turns` is how many answers came, `invalid` how many requests broke a rule other than the window's, and `largest` the
longest prompt. The price is of all prompts and answers, cached as Anthropic does, at the prices of a model.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.clients import KEY, READ, ROOT, Worker, conversation_of, entry_points, framework, is_installed, python_of

from perdure import Session, Usage
from perdure.context.cost import usage_usd
from perdure.context.models import model_spec
from perdure.testing import FakeServer, FakeUpstream, ModelRules, ScriptedAnswer, UpstreamReply, say, tool_use
from perdure.testing.request import DecodedRequest

WORDS = "alpha beta gamma delta value index count total error warning file line path module class test result".split()
PROMPT, DONE, SYSTEM = "Read all of the files, one after the other.", "All of it is read.", "You read files."


APART = ("LiteLLM", "hermes-agent", "Claude Agent SDK")  # in environments of their own
HERMES_WINDOW = 65_536
SCRIPTS = ROOT / "bench" / "frameworks"


class MeasuredUpstream(FakeUpstream):
    """Remembers the longest prompt that it answered."""

    largest = 0

    def answer(self, *given: Any, **named: Any) -> UpstreamReply:
        reply = super().answer(*given, **named)
        used = reply.usage
        prompt = used.input_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens
        self.largest = max(self.largest, prompt)
        return reply


class MeasuredWorker(MeasuredUpstream, Worker):
    """The same for programs whose tool is a command line; when one wants a summary of its work, it gets one."""

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        if request.tools and "<analysis>" in request.messages[-1].text:
            self.made[conversation_of(request)] -= 1  # no part was read
            return say("<summary>Some parts were read.</summary>")
        return super().reply_to(request)


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done, and in which window."""

    turns: int
    tokens: int
    window: int
    folder: Path

    def read(self, path: str) -> str:
        """Read a file."""
        words = random.Random(path).choices(WORDS, k=self.tokens)
        return "\n".join(" ".join(words[n : n + 12]) for n in range(0, len(words), 12))

    def upstream(self) -> MeasuredUpstream:
        script = [say(tool_use("read", {"path": f"src/f{n}.py"})) for n in range(self.turns)]
        return MeasuredUpstream(script=[*script, DONE], rules=ModelRules(window_tokens=self.window))

    def worker(self, window: int) -> MeasuredWorker:
        """For a program that reads files of its own, which are made here."""
        (self.folder / "project").mkdir()
        for number in range(self.turns):
            (self.folder / "project" / f"part_{number:03}.txt").write_text(self.read(f"src/f{number}.py"))
        return MeasuredWorker(self.turns, window)

    @property
    def settings(self) -> dict[str, Any]:
        return {"window_tokens": self.window}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went in one framework."""

    name: str
    turns: int
    requests: int
    invalid: int
    largest: int
    usd: float
    seconds: float
    ended: str

    def row(self) -> str:
        return (
            f"{self.name:34} {self.turns:>6} {self.requests:>9} {self.invalid:>8} {self.largest:>8,} "
            f"{self.usd:>8.2f} {self.seconds:>8.1f}  {self.ended}"
        )


Agent = Callable[[Task, MeasuredUpstream], Awaitable[str]]


async def langchain(task: Task, upstream: MeasuredUpstream, **more: Any) -> str:
    from bench.frameworks.langchain_server import ServerModel
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage

    from perdure.integrations.langchain import PerdureMiddleware

    middleware = [PerdureMiddleware(task.folder, home=task.folder / "home", settings=task.settings, **more)]
    agent = create_agent(
        ServerModel(upstream=upstream), tools=[task.read], system_prompt=SYSTEM, middleware=middleware if more else []
    )
    said = await agent.ainvoke({"messages": [HumanMessage(PROMPT)]}, {"recursion_limit": 10 * task.turns})
    return str(said["messages"][-1].content)


async def openai_agents(task: Task, upstream: MeasuredUpstream, *, is_ours: bool) -> str:
    from openai import AsyncOpenAI

    from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from perdure.integrations.openai_agents import PerdureSession

    set_tracing_disabled(True)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FakeServer(upstream))
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        model: Any = OpenAIResponsesModel("fake", openai_client=await stack.enter_async_context(client))
        more: dict[str, Any] = {"max_turns": 10 * task.turns}
        tools: list[Any] = [function_tool(task.read)]
        if is_ours:
            memory = PerdureSession("bench", task.folder, home=task.folder / "home", settings=task.settings)
            await stack.enter_async_context(memory)
            more |= {"session": memory, "run_config": memory.run_config()}
            model, tools = memory.model(model), [*tools, memory.recall_tool]
        settings = ModelSettings(max_tokens=500)
        agent = Agent(name="worker", instructions=SYSTEM, model=model, tools=tools, model_settings=settings)
        return str((await Runner.run(agent, PROMPT, **more)).final_output)


async def pydantic_ai(task: Task, upstream: MeasuredUpstream, **more: Any) -> str:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from perdure.integrations.pydantic_ai import PerdureCapability

    async with (
        FakeServer(upstream) as server,
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        Session.create(task.folder, home=task.folder / "home", settings=task.settings) as session,
    ):
        model = OpenAIChatModel("fake", provider=OpenAIProvider(openai_client=client))
        capabilities = [PerdureCapability(session, **more)] if more else []
        agent: Agent[None, str] = Agent(
            model,
            instructions=SYSTEM,
            tools=[task.read],
            capabilities=capabilities,
            model_settings={"max_tokens": 500},
        )
        return (await agent.run(PROMPT, usage_limits=UsageLimits(request_limit=None))).output


async def litellm(task: Task, upstream: MeasuredUpstream, home: str) -> str:
    async with FakeServer(upstream) as server:
        argv = (str(SCRIPTS / "litellm_hook.py"), "Chat", home, PROMPT)
        about = {"BASE_URL": server.url, "WINDOW": str(task.window), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        return await python_of(framework("litellm"), *argv, cwd=task.folder / "project", **about)


async def hermes(task: Task, upstream: MeasuredUpstream, engine: str) -> str:
    async with FakeServer(upstream) as server:
        return await python_of(
            framework("hermes-agent"),
            str(SCRIPTS / "hermes_agent_agent.py"),
            engine,
            server.url,
            PROMPT,
            cwd=task.folder / "project",
            HERMES_HOME=str(task.folder / "hermes"),
            PERDURE_HOME=str(task.folder / "home"),
            TERMINAL_CWD=str(task.folder / "project"),
            WINDOW=str(HERMES_WINDOW),
            PYTHONPATH=entry_points(task.folder / "installed"),
        )


async def claude_agent_sdk(task: Task, upstream: MeasuredUpstream, home: str) -> str:
    async with FakeServer(upstream) as server:
        return await python_of(
            framework("claude-agent-sdk"),
            str(SCRIPTS / "claude_agent_sdk_agent.py"),
            home,
            PROMPT,
            cwd=task.folder / "project",
            HOME=str(task.folder),
            CLAUDE_CONFIG_DIR=str(task.folder / "config"),
            ANTHROPIC_BASE_URL=server.url,
            ANTHROPIC_API_KEY=KEY,
            ANTHROPIC_MODEL="bench",  # of a model that it knows, it knows the window
            CLAUDE_CODE_MAX_CONTEXT_TOKENS=str(task.window),
            CLAUDE_CODE_MAX_OUTPUT_TOKENS="4000",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            IS_SANDBOX="1",
        )


AGENTS: dict[str, Agent] = {
    "LangChain": langchain,
    "LangChain, Perdure": lambda task, upstream: langchain(task, upstream, persistent=False),
    "LangChain, Perdure, persistent": lambda task, upstream: langchain(task, upstream, persistent=True),
    "OpenAI Agents": lambda task, upstream: openai_agents(task, upstream, is_ours=False),
    "OpenAI Agents, Perdure": lambda task, upstream: openai_agents(task, upstream, is_ours=True),
    "Pydantic AI": pydantic_ai,
    "Pydantic AI, Perdure": lambda task, upstream: pydantic_ai(task, upstream, persistent=False),
    "Pydantic AI, Perdure, persistent": lambda task, upstream: pydantic_ai(task, upstream, persistent=True),
    "LiteLLM": lambda task, upstream: litellm(task, upstream, "-"),
    "LiteLLM, Perdure": lambda task, upstream: litellm(task, upstream, str(task.folder / "home")),
    "hermes-agent": lambda task, upstream: hermes(task, upstream, "compressor"),
    "hermes-agent, Perdure": lambda task, upstream: hermes(task, upstream, "perdure"),
    "Claude Agent SDK": lambda task, upstream: claude_agent_sdk(task, upstream, "-"),
    "Claude Agent SDK, Perdure": lambda task, upstream: claude_agent_sdk(task, upstream, str(task.folder / "home")),
}


def run(name: str, turns: int, tokens: int, window: int, price_of: str) -> Outcome:
    """Have one agent do it all."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        task = Task(turns, tokens, window, Path(folder))
        window = HERMES_WINDOW if name.startswith("hermes-agent") else window
        upstream = task.worker(window) if name.startswith(APART) else task.upstream()
        try:
            said = asyncio.run(AGENTS[name](task, upstream))  # type: ignore[arg-type]
            ended = "done" if said == DONE or READ in said else f"said {said[-40:]!r}"
            if "ContextWindowExceeded" in said:
                ended = "died at the window: ContextWindowExceededError"
        except Exception as e:  # whatever the framework makes of the server's refusal
            ended = f"died at the window: {type(e).__name__}" if upstream.statistics.violations["window"] else repr(e)
    counts = upstream.statistics
    used = Usage(counts.plain_tokens, counts.output_tokens, counts.read_tokens, counts.written_tokens)
    invalid = sum(count for rule, count in counts.violations.items() if rule != "window")
    usd, seconds = usage_usd(used, model_spec(price_of)), time.perf_counter() - began
    return Outcome(name, counts.answered, counts.requests, invalid, upstream.largest, usd, seconds, ended)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only those whose names begin so")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=1_500, help="words of each result")
    parser.add_argument("--window", type=int, default=60_000)
    parser.add_argument("--price-of", default="claude-sonnet-5-5")
    told = parser.parse_args()
    print(f"{'':34} {'turns':>6} {'requests':>9} {'invalid':>8} {'largest':>8} {'USD':>8} {'seconds':>8}  ended")
    for name in AGENTS:
        if name.startswith(APART) and not is_installed(framework(name.partition(",")[0].lower().replace(" ", "-"))):
            print(f"{name:34} skipped: not installed (make clients ARGS=--frameworks)")
        elif not told.names or any(name.startswith(one) for one in told.names):
            print(run(name, told.turns, told.tokens, told.window, told.price_of).row(), flush=True)


if __name__ == "__main__":
    main()
