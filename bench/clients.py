"""Real coding agents through the gateway, each in a window a quarter of what it needs (GW-2, GW-6 to GW-8).

Usage: python bench/clients.py [NAME …] [--calls 60] [--window 60000] [--keep FOLDER]

Each client is installed from its registry into `build/clients` at the version written below, gets a home and a project
of its own, and is told one thing: its base URL. No model is named, so that each runs with the one of its own, and with
the form of request that this one has. "pinned" rows name one; so do those of clients that refuse to start without one
and have none of their own, of which the table says "no default of its own".
The model behind the gateway is the fake one, with every rule of the real API on; it makes the client run a command that
prints a long file, once for each file, until there are none left. Then it recalls a line of an early file.
Printed for each client: the model that it asked for, calls it was answered, errors it saw, violations upstream, markers
without their recall (requests that say "recall with id" to a model without the tool; one without any tool may be told
what else to do), whether the line came back, moves of the prefix
(and how many of them nobody had announced), compactions, and what `perdure sessions --gateway` shows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from perdure.gateway.config import WIRES
from perdure.testing import FakeServer, FakeUpstream, ModelRules, ScriptedAnswer, say, thinking, tool_use
from perdure.testing.request import DecodedRequest
from perdure.testing.upstream import UpstreamReply

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "clients"
WORDS = "alpha beta gamma delta value index count total error warning file line path module class test result".split()
PROMPT = "Read all parts of this project, one after the other, with one command each. Then tell me that you are done."
KEY = "sk-not-a-key-0123456789"
READ = "I am done: all parts are read."
FACT = re.compile(r"the vault of Lisbon opens with (QX-\d{5})")
ASKED = {"query": "vault Lisbon opens"}
MARKER, TOLD = b"recall with id", b"There is no recall tool here"
HAS_TOOLS = re.compile(rb'"tools": ?\[ ?{')
TOOL = b"Brings back what is no longer in view"  # how our tool describes itself
SECONDS = 1_200
SKIPPED = 2  # what `make nightly` takes for a part of which nothing can run here
_COMPLETE = ".complete"  # an installation that came to its end


# --- the model -------------------------------------------------------------------------------------------------------


class Worker(FakeUpstream):
    """Lets the client run one command after the other; whoever offers no tool that runs commands gets a word.

    `ending`: the command that ends a task. `thinks`: with a thought before each command. With `recalls_from`, whose
    requests it sees as they came, it recalls what an early file tells before it says that it is done.
    """

    recalls_from: FakeServer | None = None

    def __init__(self, calls: int, window: int, ending: str | None = None, *, thinks: bool = False) -> None:
        # Merged roles are what some compatible servers demand; clients that say two things in a row fail there alone.
        super().__init__(rules=ModelRules(window_tokens=window, max_output_tokens=128_000), strict=False)
        self.calls, self.ending, self.thinks = calls, ending, thinks
        self.made: Counter[str] = Counter()  # by conversation
        self.asked: set[str] = set()  # the conversations in which the fact was recalled …
        self.facts: list[str] = []  # … and what came back that wasn't in view any more
        self.was_in_view = False
        self.models: Counter[str] = Counter()  # that were asked for

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        """What the model says next, whatever the protocol."""
        run, number = _runner(request.tools), self.made[conversation_of(request)]
        if run is None:
            return say(f"I am done with this: part {number}.")
        thoughts = [thinking(f"{self.calls - number} parts are left.")] if self.thinks else []
        if number < self.calls:
            return say(*thoughts, f"Now part {number}.", run(f"cat part_{number:03}.txt"))
        if self.recalls_from is not None and (recall := _recall(request.tools)) is not None:
            conversation, found = conversation_of(request), FACT.findall(self.recalls_from.received[-1].body.decode())
            if conversation not in self.asked:
                self.asked.add(conversation)
                self.was_in_view = bool(found)
                return say(*thoughts, tool_use(recall, ASKED))
            if not self.was_in_view:
                self.facts += found[-1:]
        ending = [] if self.ending is None else [run(self.ending)]
        return say(*thoughts, " ".join([READ, *self.facts[-1:]]), *ending)

    def answer(self, request: DecodedRequest, rules: ModelRules, **more: Any) -> UpstreamReply:
        """Conversations are told apart by what they are, since not every client says which it is."""
        name = conversation_of(request)
        reply = super().answer(request, rules, **{**more, "session": name})
        self.made[name] += 1
        self.models[str(request.fields.get("model"))] += 1
        return reply


def conversation_of(request: DecodedRequest) -> str:
    """What tells a conversation from others of the same client: its model and its tools."""
    names = sorted(str(tool.get("name")) for tool in request.tools)
    return hashlib.sha256(msgspec.json.encode([names, request.fields.get("model")])).hexdigest()[:12]


def _runner(tools: list[dict[str, Any]]) -> Callable[[str], dict[str, Any]] | None:
    """What makes a call of the tool that runs commands."""
    for tool in tools:
        if tool.get("type") == "custom" and "tools.exec_command" in tool.get("description", ""):  # Codex's scripts
            return lambda command, tool=tool: tool_use(tool["name"], {"input": _SCRIPT % json.dumps(command)})
        schema = tool.get("input_schema") or tool.get("parameters") or {}  # of Messages, and of Responses
        properties = schema.get("properties") or {}
        for name in ("command", "cmd", "commands"):
            if name in properties and "path" not in properties:
                return lambda command, tool=tool, schema=schema, name=name: tool_use(
                    tool["name"], _arguments(schema, name, command)
                )
    return None


_SCRIPT = "text((await tools.exec_command({cmd: %s, max_output_tokens: 20000})).output);"


def _recall(tools: list[dict[str, Any]]) -> str | None:
    """The name of the gateway's own tool."""
    described = ((tool, (tool.get("function") or tool).get("description") or "") for tool in tools)
    ours = (tool.get("function") or tool for tool, about in described if about.startswith(TOOL.decode()))
    return next((str(tool["name"]) for tool in ours), None)


def _arguments(schema: Mapping[str, Any], name: str, command: str) -> dict[str, Any]:
    """The arguments that a schema asks for."""
    properties = schema["properties"]
    made: dict[str, Any] = {}
    for required in schema.get("required") or []:
        wanted = properties.get(required, {})
        usual = {"boolean": False, "number": 60, "integer": 60, "array": [], "object": {}}.get(
            wanted.get("type"), "look"
        )
        made[required] = next(iter(wanted.get("enum") or ()), usual)
    is_list = properties[name].get("type") == "array"
    made[name] = [command] if name == "commands" else ["bash", "-lc", command] if is_list else command
    return made


# --- the clients -----------------------------------------------------------------------------------------------------


OWN, PINNED, NO_DEFAULT = "its own", "named", "no default of its own"


@dataclass(frozen=True)
class RealClient:
    """How a client is installed and started. `{url}`, `{home}`, `{prompt}` and `{bin}` are filled in."""

    name: str
    wire: str
    package: str
    version: str
    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # beneath its home
    before: tuple[tuple[str, ...], ...] = ()  # commands that set it up
    registry: str = "npm"
    python: str = sys.executable  # for packages of PyPI
    beside: tuple[str, ...] = ()  # packages that it needs and doesn't name
    ending: str | None = None  # the command that ends a task; None: an answer without a call does
    returns_reasoning: bool = True  # Responses; where the client doesn't, the model doesn't think
    model: str = OWN  # whose choice the model is
    cache: Path = CACHE  # where it is installed


_COMPATIBLE = {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_BASE": "{url}/v1", "OPENAI_API_KEY": KEY}
_OPENCODE: dict[str, Any] = {"permission": "allow", "share": "disabled", "autoupdate": False}
_OPENCODE_OWN = {**_OPENCODE, "provider": {"openai": {"options": {"baseURL": "{url}/v1", "apiKey": KEY}}}}
_OPENCODE_PINNED = {
    **_OPENCODE,
    "provider": {
        "perdure": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "{url}/v1", "apiKey": KEY},
            "models": {"bench": {"tool_call": True, "limit": {"context": 1_000_000, "output": 8_000}}},
        }
    },
}


def _cline(provider: str, base: str) -> dict[str, str]:
    """Cline's settings for a provider, of which `cline auth` writes the same; that refuses to go on without a model."""
    of_provider = {"settings": {"provider": provider, "apiKey": KEY, "baseUrl": base}, "tokenSource": "manual"}
    of_provider["updatedAt"] = "2026-01-01T00:00:00.000Z"
    settings = {"version": 1, "lastUsedProvider": provider, "modes": {}, "providers": {provider: of_provider}}
    return {".cline/data/settings/providers.json": json.dumps(settings)}


_CLINE_ARGV = ("{bin}/cline", "--auto-approve", "true", "{prompt}")
_QWEN_ARGV = ("{bin}/qwen", "-p", "{prompt}", "--yolo", "--auth-type", "openai")
_AIDER_ARGV = (
    "--yes-always", "--no-git", "--no-stream", "--load", "{home}/load",
    "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--message", "Are you done?",
)  # fmt: skip
_AIDER_FILES = {"load": "".join(f"/run cat part_{n:03}.txt\n/ask What does it say?\n" for n in range(60))}
_CODEX = """
approval_policy = "never"
sandbox_mode = "danger-full-access"
"""
_CODEX_SNIPPET = """model_provider = "perdure"
[model_providers.perdure]
name = "perdure"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""

LIBRARY = ("msgspec", "google-re2", "pyyaml")  # what Perdure needs in an environment to run there from its sources

HAVE_DEFAULTS = ("langchain", "openai-agents")  # of the libraries

CLIENTS = [
    RealClient(
        "claude-code", "Messages", "@anthropic-ai/claude-code", "2.1.330",
        ("{bin}/claude", "-p", "{prompt}", "--output-format", "json", "--allowedTools", "Bash"),
        {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": KEY, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    ),
    RealClient(
        "codex, snippet", "Responses", "@openai/codex", "0.169.0",
        ("{bin}/codex", "exec", "--skip-git-repo-check", "{prompt}"),
        {"OPENAI_API_KEY": KEY},
        {".codex/config.toml": _CODEX + _CODEX_SNIPPET},
    ),
    RealClient(
        "codex, defaults", "Responses", "@openai/codex", "0.169.0",
        ("{bin}/codex", "exec", "--skip-git-repo-check", "{prompt}"),
        {"OPENAI_API_KEY": KEY, "CODEX_API_KEY": KEY},
        {".codex/config.toml": _CODEX + 'openai_base_url = "{url}/v1"\n'},
    ),
    RealClient(
        "codex, pinned", "Responses", "@openai/codex", "0.169.0",
        ("{bin}/codex", "exec", "--skip-git-repo-check", "{prompt}"),
        {"OPENAI_API_KEY": KEY},
        {".codex/config.toml": 'model = "gpt-5.4"\n' + _CODEX + _CODEX_SNIPPET},
        model=PINNED,
    ),
    RealClient(
        "opencode", "Responses", "opencode-ai", "1.18.33",
        ("{bin}/opencode", "run", "{prompt}"),
        {"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        {".config/opencode/opencode.json": json.dumps(_OPENCODE_OWN)},
    ),
    RealClient(
        "opencode, pinned", "Chat", "opencode-ai", "1.18.33",
        ("{bin}/opencode", "run", "-m", "perdure/bench", "{prompt}"),
        {"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        {".config/opencode/opencode.json": json.dumps(_OPENCODE_PINNED)},
        model=PINNED,
    ),
    RealClient("qwen-code", "Chat", "@qwen-code/qwen-code", "0.24.4", _QWEN_ARGV, _COMPATIBLE),
    RealClient(
        "qwen-code, pinned", "Chat", "@qwen-code/qwen-code", "0.24.4",
        _QWEN_ARGV,
        {**_COMPATIBLE, "OPENAI_MODEL": "bench"},
        model=PINNED,
    ),
    RealClient("cline", "Chat", "cline", "3.0.65", _CLINE_ARGV, files=_cline("openai-compatible", "{url}/v1")),
    RealClient("cline, anthropic", "Messages", "cline", "3.0.65", _CLINE_ARGV, files=_cline("anthropic", "{url}/v1")),
    RealClient(
        "cline, openai", "Responses", "cline", "3.0.65",
        _CLINE_ARGV,
        files=_cline("openai-native", "{url}/v1"),
        returns_reasoning=False,
    ),
    RealClient(
        "cline, pinned", "Chat", "cline", "3.0.65",
        _CLINE_ARGV,
        before=(("{bin}/cline", "auth", "-p", "openai", "-k", KEY, "-m", "bench", "-b", "{url}/v1"),),
        model=PINNED,
    ),
    RealClient(
        "mini-swe-agent", "Chat", "mini-swe-agent", "2.4.6",
        ("{bin}/mini", "-t", "{prompt}", "-y", "--exit-immediately", "-m", "openai/bench", "-l", "0"),
        {**_COMPATIBLE, "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"},
        registry="PyPI",
        beside=("mcp==2.3.0",),
        ending="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
        model=NO_DEFAULT,
    ),
    RealClient(
        "goose", "Chat", "@aaif/goose", "0.20.1",
        ("{bin}/goose", "run", "--no-session", "--with-builtin", "developer", "--max-turns", "1000", "-t", "{prompt}"),
        {"GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "bench", "GOOSE_MODE": "auto", "GOOSE_DISABLE_KEYRING": "1",
         "OPENAI_HOST": "{url}", "OPENAI_API_KEY": KEY},
        model=NO_DEFAULT,
    ),
    RealClient(
        "openhands", "Chat", "openhands", "1.16.0",
        ("{bin}/openhands", "--headless", "--always-approve", "--override-with-envs", "-t", "{prompt}"),
        {"LLM_MODEL": "openai/bench", "LLM_BASE_URL": "{url}/v1", "LLM_API_KEY": KEY,
         "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1"},
        registry="PyPI",
        python="python3.12",
        model=NO_DEFAULT,
    ),
    *(
        RealClient(
            name, "Chat", "aider-chat", "0.86.2",
            ("{bin}/aider", *more, *_AIDER_ARGV),
            _COMPATIBLE,
            _AIDER_FILES,
            registry="PyPI",
            model=model,
        )
        for name, more, model in (("aider", (), OWN), ("aider, pinned", ("--model", "openai/bench"), PINNED))
    ),
    *(
        RealClient(
            f"{name} {wire.lower()}" if name != "litellm" else name, wire, package, version,
            ("{bin}/python", f"{{scripts}}/{script}", "{prompt}", *more),
            _COMPATIBLE,
            registry="PyPI",
            beside=beside,
            returns_reasoning=name != "pydantic-ai",
            model=OWN if name in HAVE_DEFAULTS else NO_DEFAULT,
        )
        for name, wire, package, version, script, more, beside in (
            ("langchain", "Chat", "langchain", "1.5.0", "langchain_agent.py", (), ("langchain-openai==1.7.3",)),
            ("pydantic-ai", "Chat", "pydantic-ai-slim[openai]", "2.66.0", "pydantic_ai_agent.py",
             ("openai-chat:bench",), ()),
            ("pydantic-ai", "Responses", "pydantic-ai-slim[openai]", "2.66.0", "pydantic_ai_agent.py",
             ("openai-responses:bench",), ()),
            ("openai-agents", "Chat", "openai-agents", "0.24.0", "openai_agents_agent.py", ("chat_completions",), ()),
            ("openai-agents", "Responses", "openai-agents", "0.24.0", "openai_agents_agent.py", ("responses",), ()),
            ("litellm", "Chat", "litellm[proxy]", "1.106.2", "litellm_loop.py", (), LIBRARY),
        )
    ),
    *(
        RealClient(
            f"ai-sdk {wire.lower()}", wire, "ai", "7.0.173",
            ("node", "{scripts}/ai_sdk_agent.mjs", "{prompt}", wire.lower(), "{url}"),
            {"OPENAI_API_KEY": KEY, "PACKAGES": "{bin}/.."},
            beside=("@ai-sdk/openai@4.0.118", "@ai-sdk/anthropic@4.0.105", "zod@4.6.7"),
            model=NO_DEFAULT,
        )
        for wire in ("Messages", "Chat", "Responses")
    ),
    *(
        RealClient(
            f"anthropic sdk {host.lower()}", host, "anthropic[bedrock,vertex]", "2.12.0",
            ("{bin}/python", "{scripts}/anthropic_hosted.py", "{prompt}", host.lower(), "{url}"),
            registry="PyPI",
            model=NO_DEFAULT,
        )
        for host in ("Bedrock", "Mantle", "Vertex")
    ),
]  # fmt: skip

WITHOUT_TOOLS = ("aider", "aider, pinned")  # it runs what its user types

# Frameworks whose adapters are tested in environments of their own: they are large, or pin what others need newer.
FRAMEWORKS = [
    RealClient("claude-agent-sdk", "Messages", "claude-agent-sdk", "0.2.187", (), registry="PyPI", beside=LIBRARY),
    RealClient("hermes-agent", "Chat", "hermes-agent", "0.19.0", (), registry="PyPI", beside=LIBRARY),
]


def folder_of(client: RealClient) -> Path:
    """Where a client is installed; several entries may share one package."""
    name = re.sub("[^a-z-]", "", client.package.rpartition("/")[2])
    return client.cache / f"{name}-{client.version}"


def is_installed(client: RealClient) -> bool:
    """Whether a client can be run without its registry."""
    return (folder_of(client) / _COMPLETE).exists()


def install(client: RealClient) -> None:
    """Install a client where it isn't yet. Raises `CalledProcessError` or `FileNotFoundError`."""
    folder = folder_of(client)
    if is_installed(client):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if client.registry == "npm":
        (folder / "package.json").write_text("{}")
        command = ["npm", "install", "--no-fund", "--no-audit", f"{client.package}@{client.version}"]
    else:
        subprocess.run([client.python, "-m", "venv", str(folder)], check=True, capture_output=True)
        command = [str(folder / "bin/pip"), "install", "-q", f"{client.package}=={client.version}"]
    subprocess.run([*command, *client.beside], cwd=folder, check=True, capture_output=True)
    (folder / _COMPLETE).touch()


def framework(name: str) -> RealClient:
    """The one of this name."""
    return next(one for one in (*FRAMEWORKS, *CLIENTS) if one.name == name)


async def python_of(client: RealClient, *argv: str, cwd: Path, seconds: float = SECONDS, **environ: str) -> str:
    """What a program prints that the interpreter of a framework's environment runs, with the sources of this tree.

    Raises:
        CalledProcessError: It ended with an error; `output` is what it printed.
        TimeoutError: It took too long, and was killed.
    """
    base = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": str(ROOT / "src"), "NO_PROXY": "127.0.0.1"}
    code, told = await printed_by(
        str(folder_of(client) / "bin/python"), *argv, cwd=cwd, env=base | environ, seconds=seconds
    )
    if code:
        raise subprocess.CalledProcessError(code, argv[0], told)
    return told


async def printed_by(*argv: str, cwd: Path, env: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """The exit code of a program without input, and all that it prints. Raises `TimeoutError` once it was killed."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        os.killpg(process.pid, 9)
        raise
    return process.returncode or 0, output.decode(errors="replace")


def entry_points(folder: Path) -> str:
    """A path for Python on which Perdure says of itself what its package says: the entry points that it has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = folder / f"perdure-{project['version']}.dist-info"
    about.mkdir(parents=True)
    about.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: perdure\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in points.items()) for group, points in groups]
    about.joinpath("entry_points.txt").write_text("\n".join(lines))
    return f"{ROOT / 'src'}:{folder}"


# --- one run ---------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What came of a client."""

    client: RealClient
    calls: int
    answers: dict[str, int]  # by the class of their status, as the client got them
    is_done: bool
    upstream: Worker
    announced: int  # moves of the prefix
    edits: int  # that the client made to its own history
    compactions: int
    bare: int  # requests with a marker that needs a tool which isn't there, and no word of what else to do
    sessions: list[str]
    seconds: float
    said: str

    @property
    def errors(self) -> int:
        """How many answers of the client were errors."""
        return sum(count for kind, count in self.answers.items() if kind != "2xx")

    @property
    def unannounced(self) -> int:
        """How many moves of the prefix were neither announced nor the client's own, who edits its history or begins
        a new one."""
        own = self.edits + len(self.sessions) - len(self.upstream.made)
        return max(0, len(self.upstream.statistics.prefix_moves) - self.announced - own)

    @property
    def recalled(self) -> str:
        """Whether the fact came back and the client says it; "-" for a client without tools."""
        if not self.upstream.asked and self.client.name in WITHOUT_TOOLS:
            return "-"
        return "yes" if any(fact in self.said for fact in self.upstream.facts) else "no"

    @property
    def is_held(self) -> bool:
        """Whether the client came to its end, nobody saw an error, no prefix moved unannounced, no marker was left
        without its recall, and the fact came back."""
        is_wrong = self.errors or self.upstream.statistics.violations or self.unannounced or self.bare
        return self.is_done and not is_wrong and self.recalled != "no"

    @property
    def model(self) -> str:
        """The model that it asked for most, and whether that was its own choice."""
        asked = next((name for name, _ in self.upstream.models.most_common(1)), "none")
        return f"{asked[:17]}, {self.client.model}"

    def row(self) -> str:
        statistics = self.upstream.statistics
        moves = f"{len(statistics.prefix_moves)} ({self.unannounced})"
        done = "yes" if self.is_done else "no"
        return (
            f"{self.client.name:<24} {self.client.wire:<10} {self.model:<40} {self.calls:>5} {done:>5} "
            f"{self.errors:>7} {sum(statistics.violations.values()):>11} {self.bare:>8} {self.recalled:>9} {moves:>10} "
            f"{self.compactions:>12} {self.seconds:>8.0f}  "
            f"{len(self.sessions)}: {', '.join(dict.fromkeys(self.sessions))[:80]}"
        )


@dataclass(frozen=True)
class ServedGateway:
    """`perdure serve` in a process of its own."""

    url: str
    process: subprocess.Popen[str]
    events: Path  # its events, a line each


@contextlib.contextmanager
def gateway(url: str, window: int | None, home: Path, port: int = 0) -> Iterator[ServedGateway]:
    """`perdure serve` in front of the upstream; without a window it has to find out."""
    events = home / "events.jsonl"
    home.mkdir(exist_ok=True)
    upstreams = "".join(f'[gateway.upstreams.{name}]\nurl = "{url}"\n' for name in WIRES)
    told = "" if window is None else f"window_tokens = {window}\n"
    home.joinpath("config.toml").write_text(f"{told}[gateway]\n{upstreams}")
    command = [sys.executable, "-m", "perdure", "serve", "--port", str(port), "--json", "--events", str(events)]
    environ = {**os.environ, "PERDURE_HOME": str(home)}
    with (
        open(home / "said.txt", "a") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environ) as process,
    ):
        assert process.stdout is not None
        try:
            yield ServedGateway(msgspec.json.decode(process.stdout.readline())["url"], process, events)
        finally:
            process.terminate()


@dataclass(frozen=True)
class ClientHome:
    """A client with a home of its own, that knows the gateway's address."""

    client: RealClient
    folder: Path
    url: str

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def begin(self, calls: int) -> None:
        """Make its home, with its files, and a project with as many long files as it is to read."""
        self.project.mkdir()
        chance = random.Random(7)
        for number in range(calls):
            lines = (" ".join(chance.choices(WORDS, k=12)) + f" {chance.randrange(10**6)}" for _ in range(170))
            told = list(lines)
            if number == 1:
                # Behind what a preview shows, and before what clients cut out of the middle of long outputs.
                told[40] = f"the vault of Lisbon opens with QX-{random.randrange(10_000, 100_000)}"
            (self.project / f"part_{number:03}.txt").write_text("\n".join(told) + "\n")
        for name, content in {".begun": "", **self.client.files}.items():
            path = self.folder / "home" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._filled(content))

    async def run(self, argv: Sequence[str]) -> str:
        """Run a command of the client in the project; everything it prints."""
        programs = self._filled("{bin}")
        environ = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": self._filled("{home}")}
        environ |= {"TERM": "dumb", "NO_COLOR": "1"}
        environ |= {name: self._filled(value) for name, value in self.client.environ.items()}
        try:
            _, told = await printed_by(*map(self._filled, argv), cwd=self.project, env=environ, seconds=SECONDS)
        except TimeoutError:
            return f"killed after {SECONDS} seconds"
        finally:
            self._end_daemons()
        return told

    def _end_daemons(self) -> None:
        """End what the client left running in its project, as Cline does; another client would ask it."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended, or is somebody else's
                if Path(os.readlink(process / "cwd")).is_relative_to(self.project):
                    os.kill(int(process.name), 9)

    def _filled(self, text: str) -> str:
        programs = folder_of(self.client) / ("node_modules/.bin" if self.client.registry == "npm" else "bin")
        values = {
            "url": self.url,
            "home": str(self.folder / "home"),
            "prompt": PROMPT,
            "bin": str(programs),
            "scripts": str(ROOT / "bench" / "frameworks"),
        }
        for name, value in values.items():
            text = text.replace("{" + name + "}", value)
        return text


@dataclass(frozen=True)
class ClientAtWork:
    """A client before the gateway, and the upstream behind it."""

    home: ClientHome
    gateway: ServedGateway
    upstream: FakeServer
    folder: Path  # of the gateway

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the gateway told of one kind so far."""
        decoded = map(msgspec.json.decode, self.gateway.events.read_bytes().splitlines())
        return [event for event in decoded if event["event"] == name]

    def sessions(self) -> list[str]:
        """What `perdure sessions --gateway` calls the sessions of all clients."""
        command = [sys.executable, "-m", "perdure", "sessions", "--gateway", "--json"]
        environ = {**os.environ, "PERDURE_HOME": str(self.folder)}
        done = subprocess.run(command, capture_output=True, env=environ, check=True)
        shown = map(msgspec.json.decode, done.stdout.splitlines())
        return [str(session["title"] or session["last_prompt"])[:60] for session in shown]


@contextlib.asynccontextmanager
async def at_work(
    client: RealClient, worker: Worker, window: int, folder: Path, *, files: int, keeps_requests: bool = True
) -> AsyncIterator[ClientAtWork]:
    """A client with a project of so many files, the gateway, and the model behind it; the client isn't started yet."""
    async with FakeServer(worker, keeps_requests=keeps_requests) as fake:
        with gateway(fake.url, window, folder / "perdure") as served:
            home = ClientHome(client, folder, served.url)
            home.begin(files)
            yield ClientAtWork(home, served, fake, folder / "perdure")


async def run(client: RealClient, calls: int, window: int, folder: Path) -> Outcome:
    """Let a client do its work, in folders of its own."""
    worker = Worker(calls, window, client.ending, thinks=client.wire == "Responses" and client.returns_reasoning)
    began = time.monotonic()
    async with at_work(client, worker, window, folder, files=calls) as at:
        worker.recalls_from = at.upstream
        said = ""
        for argv in (*client.before, client.argv):
            said = await at.home.run(argv)
        (folder / "said.txt").write_text(said)
        answers, edits = await asyncio.to_thread(_metrics, at.gateway.url)
        bodies = [request.body for request in at.upstream.received]
    return Outcome(
        client,
        worker.statistics.answered,
        answers,
        calls <= max(worker.made.values(), default=0) and "done" in said.lower(),
        worker,
        len(at.events("PrefixMoved")),
        edits,
        len(at.events("CompactionDone")),
        sum(map(_is_bare, bodies)),
        at.sessions(),
        time.monotonic() - began,
        said,
    )


def _is_bare(body: bytes) -> bool:
    """Whether a request has a marker that needs a tool which isn't there; without tools, it may say what else to do."""
    return MARKER in body and TOOL not in body and (TOLD not in body or HAS_TOOLS.search(body) is not None)


def _metrics(url: str) -> tuple[dict[str, int], int]:
    """How many answers the client got, by the class of their status; and how often it had edited its history."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode()
    found = re.findall(r'^perdure_answers_total\{status="(\dxx)"\} ([\d.]+)', lines, re.MULTILINE)
    edits = re.search(r"^perdure_edited_total ([\d.]+)", lines, re.MULTILINE)
    return {kind: int(float(count)) for kind, count in found}, int(float(edits[1])) if edits else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", help="only these clients (by the beginning of their name)")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--window", type=int, default=60_000)
    parser.add_argument("--frameworks", action="store_true", help="only install those of adapters")
    parser.add_argument("--keep", type=Path, help="keep homes, projects and what the clients said here")
    told = parser.parse_args()
    if told.frameworks:
        for client in (*FRAMEWORKS, next(one for one in CLIENTS if one.name == "litellm")):
            install(client)
        return 0
    print(f"{told.calls} calls of a tool, window {told.window:,}")
    print(
        f"{'client':<24} {'wire':<10} {'model':<40} {'calls':>5} {'done':>5} {'errors':>7} {'violations':>11} "
        f"{'markers':>8} {'recalled':>9} {'moves':>10} {'compactions':>12} {'seconds':>8}  sessions"
    )
    failed, outcomes, skipped = 0, list[Outcome](), list[str]()
    for client in CLIENTS:
        if told.names and not any(client.name.startswith(name) for name in told.names):
            continue
        with contextlib.ExitStack() as stack:
            if told.keep:
                folder = told.keep / client.name.replace(", ", "-")
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
            else:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                install(client)
            except (subprocess.CalledProcessError, FileNotFoundError) as e:
                print(f"{client.name:<24} {client.wire:<10} skipped: it can't be installed here ({reason(e)})")
                skipped.append(client.name)
                continue
            outcome = asyncio.run(run(client, told.calls, told.window, folder))
            print(outcome.row(), flush=True)
            if broken := outcome.upstream.statistics.violations:
                print(f"{'':<24} violations: {', '.join(f'{rule} {count}' for rule, count in broken.items())}")
            failed += not outcome.is_held
            outcomes.append(outcome)
    able = [outcome for outcome in outcomes if outcome.recalled != "-"]
    errors, bare = sum(one.errors for one in outcomes), sum(one.bare for one in outcomes)
    own = sum(one.client.model == OWN for one in outcomes)
    recalled = sum(one.recalled == "yes" for one in able)
    print(f"{len(outcomes)} runs, {own} with the client's own model,", end=" ")
    print(f"{told.calls} calls each in a window of {told.window:,}: {errors} errors,", end=" ")
    print(f"{bare} markers without their recall, the fact recalled by {recalled} of {len(able)} with tools")
    held = f"{failed} didn't hold" if failed else "each held"
    print(held + (f"; {len(skipped)} skipped, which can't be installed here: {', '.join(skipped)}" if skipped else ""))
    return 1 if failed else 0 if outcomes else SKIPPED


def reason(error: Exception) -> str:
    """Why an installation failed, in one line: the first that tells of an error, else the last."""
    outputs = (getattr(error, "stderr", None), getattr(error, "output", None))
    said = next((output.decode(errors="replace") for output in outputs if output), str(error))
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if re.search(r"error:|not found", line, re.IGNORECASE)), lines[-1])[:160]


if __name__ == "__main__":
    sys.exit(main())
