"""Real clients' recordings as conversations over the three wires, and the model server that answers as recorded.

A client has its whole history and says all of it each time. What it gets back is what it goes on with, so an answer
that it never got is asked for again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn

import aiohttp
import msgspec
from tests.recordings.made import Story

from perdure.errors import ForeignFormat
from perdure.logs.detect import read_recordings
from perdure.testing import FakeServer, FakeUpstream, ModelRules, say, thinking, tool_use
from perdure.testing.block_rules import Violation
from perdure.testing.server import RawAnswer, ReceivedRequest
from perdure.testing.upstream import Scripted, ScriptedAnswer
from perdure.transcript.blocks import Text, ToolResult, ToolUse
from perdure.transcript.messages import Message

DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDERS: Final = ("claude_code", "codex", "claude_code_fixtures", "swe_agent", "mini_swe_agent", "tau_bench")
WIRES: Final = ("anthropic", "openai", "responses")
WINDOW: Final = 16_000
SUMMARIZER: Final = "summarizer-1"
ANSWER_SECONDS: Final = (0.0, 0.25)  # until an answer begins
SUMMARY_SECONDS: Final = (0.3, 1.5)
MARK: Final = "x-scale"  # a header that reaches the model server: whose request it is
_SUFFIXES: Final = (".jsonl", ".json", ".traj")
_MOST_FILE_BYTES: Final = 3_000_000
_MOST_SAID: Final = 6_000  # characters of a text; a recorded one may be longer than the window
_MOST_ANSWER: Final = 1_200
_MOST_RESULT: Final = 90_000
_TOOL_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_MARKER: Final = re.compile(rb',?"cache_control":\{[^{}]*\}')

Json = dict[str, Any]


# --- what is said -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, with its result."""

    name: str
    arguments: Json
    result: str


@dataclass(frozen=True, slots=True)
class Round:
    """What a client says, and what its model answers; the results of the calls are said in the next round."""

    said: str
    answer: str
    calls: tuple[Call, ...]


def recorded_talks(most: int, rounds: int) -> list[list[Round]]:
    """Conversations out of the recordings, of all kinds of clients; none where they aren't here."""
    found: list[list[Round]] = []
    of_each = -(-most // len(FOLDERS))
    for folder in FOLDERS:
        paths = sorted(path for path in (DATA / folder).rglob("*") if path.suffix in _SUFFIXES)
        taken = 0
        for path in (one for one in paths if one.stat().st_size <= _MOST_FILE_BYTES):
            try:
                recordings = read_recordings(path.read_bytes(), path.name)
            except ForeignFormat:
                continue
            for recording in recordings[:3]:
                made = list(_rounds(recording.messages, rounds))
                if len(made) >= min(rounds, 8):
                    found.append(made)
                    taken += 1
            if taken >= of_each:
                break
    return found[:most]


def made_talks(most: int, rounds: int) -> list[list[Round]]:
    """The same of sessions that never happened."""
    return [made for seed in range(most) if (made := list(_rounds(_told(seed, rounds), rounds)))]


def _told(seed: int, rounds: int) -> Iterator[Message]:
    number = 0
    for one in Story(seed, rounds).told():
        uses = [f"toolu_{number + place}" for place in range(len(one.calls))]
        calls = [{"type": "tool_use", "id": use, "name": call.tool, "input": call.arguments}
                 for use, call in zip(uses, one.calls, strict=True)]  # fmt: skip
        yield Message.of(one.role, [*([{"type": "text", "text": one.text}] if one.text else []), *calls])  # type: ignore[arg-type]
        if calls:
            number += len(calls)
            times = 1 + 30 * (number % 8 == 0)  # now and then a large result
            yield Message.of("user", [{"type": "tool_result", "tool_use_id": use, "content": call.result * times}
                                      for use, call in zip(uses, one.calls, strict=True)])  # fmt: skip


def _rounds(messages: Iterable[Message], most: int) -> Iterator[Round]:
    """Runs of one side become one message; calls without a result, and results without a call, are left out."""
    said: list[str] = []
    answer: list[str] = []
    uses: dict[str, ToolUse] = {}
    results: dict[str, str] = {}

    def made() -> Round:
        calls = []
        for identity, use in uses.items():
            if identity in results:
                arguments = msgspec.json.decode(use.raw_input)
                arguments = arguments if isinstance(arguments, dict) else {"given": arguments}
                name = _TOOL_NAME.sub("_", use.name)[:60] or "tool"
                calls.append(Call(name, arguments, results[identity][:_MOST_RESULT]))
        text = "\n".join(answer).strip()[:_MOST_ANSWER].strip()
        return Round("\n".join(said).strip()[:_MOST_SAID].strip(), text or ("" if calls else "ok"), tuple(calls))

    count = 0
    for message in messages:
        if message.agent_id is not None or message.role == "system":
            continue
        values = [block.value for block in message.blocks]
        is_reply = message.role == "assistant"
        if not is_reply and (answer or uses) and any(isinstance(value, Text) for value in values):
            results |= {value.tool_use_id: value.text() for value in values if isinstance(value, ToolResult)}
            yield made()
            said, answer, uses, results, count = [], [], {}, {}, count + 1
        elif is_reply and results:
            yield made()
            said, answer, uses, results, count = [], [], {}, {}, count + 1
        if count >= most:
            return
        for value in values:
            if isinstance(value, Text):
                (answer if is_reply else said).append(value.text)
            elif isinstance(value, ToolUse) and is_reply:
                uses.setdefault(value.id, value)
            elif isinstance(value, ToolResult):
                results[value.tool_use_id] = value.text()


# --- a client ---------------------------------------------------------------------------------------------------------


class Unanswered(Exception):
    """The whole answer didn't come. The argument is a short reason."""


class Refused(Exception):
    """An answer that no client expects: its status and what it says."""


Atom = tuple[str, str, str]  # who or what; an id; a text


@dataclass(slots=True)
class Attempt:
    """One request of a client: in which round, to which gateway, with how long a history; and what it was told."""

    round: int
    gateway: int
    length: int
    mode: str = ""  # and the reason; empty where nothing was told
    is_answered: bool = False


@dataclass(slots=True)
class Talk:
    """A conversation over one wire, with all that its client knows."""

    name: str
    wire: str
    rounds: Sequence[Round]
    is_stream: bool
    thinks: bool = False  # the model thinks aloud, and wants that back as it was
    history: list[Json] = field(default_factory=list)
    atoms: list[Atom] = field(default_factory=list)  # the same, as whoever reads the journal has to find it
    called: list[str] = field(default_factory=list)  # the ids of the calls in the last answer
    settled: int = 0  # how many of these there were with the last answer
    done: int = 0  # rounds that were answered
    attempts: list[Attempt] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)  # as gateways named them, each time it was another one

    def say(self, number: int) -> None:
        """Say results of calls, and the words of a round; thanks behind the last one, as often as asked."""
        before = self.rounds[number - 1].calls if 0 < number <= len(self.rounds) else ()
        results = list(zip(self.called, (call.result for call in before), strict=True))
        words = self.rounds[number].said if number < len(self.rounds) else "Thank you, that is all."
        words = f"[{self.name}] {words}".strip() if not number else words
        words = words or ("" if results else "Go on.")
        self.atoms += [("result", identity, text) for identity, text in results]
        self.atoms += [("user", "", words)] if words else []
        if self.wire == "anthropic":
            blocks = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in results]
            self.history.append({"role": "user", "content": [*blocks, *_text_blocks(words)]})
        elif self.wire == "openai":
            self.history += [{"role": "tool", "tool_call_id": one, "content": text} for one, text in results]
            self.history += [{"role": "user", "content": words}] if words else []
        else:
            self.history += [{"type": "function_call_output", "call_id": one, "output": text} for one, text in results]
            part = {"type": "input_text", "text": words}
            self.history += [{"type": "message", "role": "user", "content": [part]}] if words else []

    def body(self) -> bytes:
        """The request for the next answer."""
        tools = sorted({call.name for one in self.rounds for call in one.calls} or {"Read"})
        system = "You are a coding agent. You work in the folder /srv/project, and you say what you do."
        schema = {"type": "object", "properties": {}}
        if self.wire == "anthropic":
            asked: Json = {"model": "claude-opus-5-5" if self.thinks else "fake-model", "max_tokens": 2_000}
            asked |= {"system": [{"type": "text", "text": system}], "metadata": {"user_id": self.name}}
            asked |= {"thinking": {"type": "adaptive"}} if self.thinks else {}
            asked |= {"tools": [{"name": name, "input_schema": schema} for name in tools], "messages": self.history}
        elif self.wire == "openai":
            messages = [{"role": "system", "content": system}, *self.history]
            functions = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in tools]
            asked = {"model": "fake-model", "messages": messages, "tools": functions}
            asked |= {"stream_options": {"include_usage": True}} if self.is_stream else {}
        else:
            functions = [{"type": "function", "name": name, "parameters": schema, "strict": False} for name in tools]
            asked = {"model": "fake-model", "instructions": system, "input": self.history, "tools": functions}
            asked |= {"store": False, "prompt_cache_key": self.name}
        return msgspec.json.encode(asked | {"stream": self.is_stream})

    def take(self, answer: Json) -> None:
        """The client goes on with what it got."""
        known = len(self.atoms)
        if self.wire == "anthropic":
            self.history.append({"role": "assistant", "content": answer["content"]})
            for block in answer["content"]:
                if block["type"] == "text":
                    self.atoms.append(("assistant", "", block["text"]))
                elif block["type"] == "tool_use":
                    self.atoms.append(("call", block["id"], block["name"]))
        elif self.wire == "openai":
            message = {key: answer[key] for key in ("role", "content", "tool_calls") if answer.get(key) is not None}
            self.history.append(message)
            self.atoms += [("assistant", "", answer["content"])] if answer.get("content") else []
            self.atoms += [("call", one["id"], one["function"]["name"]) for one in answer.get("tool_calls") or ()]
        else:
            self.history += answer["output"]
            for item in answer["output"]:
                if item["type"] == "message":
                    self.atoms += [("assistant", "", part["text"]) for part in item["content"]]
                elif item["type"] == "function_call":
                    self.atoms.append(("call", item["call_id"], item["name"]))
        self.called = [identity for kind, identity, _ in self.atoms[known:] if kind == "call"]
        self.settled = len(self.atoms)

    async def ask(self, http: aiohttp.ClientSession, gateway: int, url: str, patience: float) -> Json:
        """The whole answer of a gateway to what was said. Raises `Unanswered` or `Refused`."""
        attempt = Attempt(self.done, gateway, len(self.history))
        self.attempts.append(attempt)
        paths = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions", "responses": "/v1/responses"}
        headers = {"content-type": "application/json", "authorization": "Bearer scale-key"}
        headers |= {MARK: f"{self.name} {self.done} {len(self.attempts) - 1}"}
        headers |= {"anthropic-version": "2023-06-01"} if self.wire == "anthropic" else {}
        timeout = aiohttp.ClientTimeout(total=patience, sock_connect=2.0)
        try:
            async with http.post(url + paths[self.wire], data=self.body(), headers=headers, timeout=timeout) as answer:
                if answer.status == 200:
                    told = answer.headers
                    attempt.mode = f"{told.get('x-perdure-mode')} {told.get('x-perdure-reason', '')}".strip()
                    session = told.get("x-perdure-session")
                got = await answer.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as e:
            raise Unanswered(type(e).__name__) from e
        if answer.status >= 500 or answer.status == 429:
            raise Unanswered(str(answer.status))
        if answer.status != 200:
            raise Refused(f"{answer.status} {got[:300]!r}")
        whole = self._whole(got)
        attempt.is_answered = True
        if session is not None and session not in self.sessions[-1:]:
            self.sessions.append(session)
        return whole

    def _whole(self, got: bytes) -> Json:
        if not self.is_stream:
            answer = msgspec.json.decode(got)
            return answer["choices"][0]["message"] if self.wire == "openai" else answer  # type: ignore[no-any-return]
        lines = (line.partition(b"data: ")[2] for line in got.split(b"\n") if line.startswith(b"data: "))
        events = [msgspec.json.decode(line) for line in lines if line != b"[DONE]"]
        if any(event.get("type") in ("error", "response.failed") or "error" in event for event in events
               if "response" not in event or event.get("type") == "response.failed"):  # fmt: skip
            raise Unanswered("error in the stream")
        made = {"anthropic": _message_of, "openai": _completion_of, "responses": _response_of}[self.wire](events)
        if made is None:
            raise Unanswered("the stream was cut")
        return made


def _text_blocks(words: str) -> list[Json]:
    return [{"type": "text", "text": words}] if words else []


def _message_of(events: Sequence[Json]) -> Json | None:
    blocks: list[Json] = []
    partial_input: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "content_block_start":
                blocks.append(dict(event["content_block"]))
            case "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case "input_json_delta":
                        at = event["index"]
                        partial_input[at] = partial_input.get(at, "") + delta["partial_json"]
            case "message_stop":
                for at, text in partial_input.items():
                    blocks[at]["input"] = msgspec.json.decode(text) if text else {}
                return {"content": blocks}
    return None


def _completion_of(events: Sequence[Json]) -> Json | None:
    message: Json = {"role": "assistant", "content": None}
    calls: dict[int, Json] = {}
    is_whole = False
    for event in events:
        for choice in event["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            for part in delta.get("tool_calls") or ():
                call = calls.setdefault(part["index"], {"function": {"name": "", "arguments": ""}})
                call |= {key: part[key] for key in ("id", "type") if key in part}
                for key, text in part.get("function", {}).items():
                    call["function"][key] += text or ""
            is_whole = is_whole or choice.get("finish_reason") is not None
    return (message | ({"tool_calls": list(calls.values())} if calls else {})) if is_whole else None


def _response_of(events: Sequence[Json]) -> Json | None:
    return next((event["response"] for event in events if event["type"] == "response.completed"), None)


# --- the model server -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """What reached the model of a talk: digests of the bytes of each message, breakpoints of caches left out."""

    attempt: int
    front: bytes
    messages: tuple[bytes, ...]
    meanings: tuple[bytes, ...]  # the same of what they say, however that is written
    is_own: bool  # the messages are the client's own bytes
    is_managed: bool  # it offers our recall tool, which nothing that passes through does


class RecordedModel(FakeUpstream):
    """Answers each request of a talk with what was recorded there; whoever else asks gets a summary."""

    def __init__(self) -> None:
        super().__init__(rules=_rules)
        self.talks: dict[str, Talk] = {}
        self.sent: dict[str, list[Sent]] = {}
        self.asked = ""  # whose request is being answered; empty for one that isn't of a talk
        self.summaries = 0
        self.refusals: list[tuple[str, str]] = []  # whose requests broke which rule

    def reply_to(self, request: Any) -> Scripted:
        if not self.asked:
            self.summaries += 1
            return SUMMARY
        name, number, _ = self.asked.split()
        talk, number = self.talks[name], int(number)
        if number >= len(talk.rounds):
            return "You are welcome."
        one = talk.rounds[number]
        thought = [thinking(f"Round {number}: I look at what came back.")] if talk.thinks else []
        words = [one.answer] if one.answer else []
        return say(*thought, *words, *(tool_use(call.name, call.arguments) for call in one.calls))

    def refuse(self, found: Sequence[Violation], status: int = 400) -> NoReturn:
        self.refusals += [(self.asked, one.rule) for one in found]
        super().refuse(found, status)

    def note(self, request: ReceivedRequest) -> None:
        """Keep what was sent for a talk, to be compared with what is sent for it next."""
        name, _, attempt = self.asked.split()
        fields = msgspec.json.decode(request.body, type=dict[str, msgspec.Raw])
        key = "messages" if "messages" in fields else "input"
        raws = msgspec.json.decode(fields[key], type=list[msgspec.Raw])
        shown = tuple(_MARKER.sub(b"", bytes(raw)) for raw in raws)
        fronts = (bytes(fields.get(name, b"")) for name in ("system", "instructions", "tools"))
        own = msgspec.json.decode(self.talks[name].body(), type=dict[str, msgspec.Raw])
        said = msgspec.json.decode(own[key], type=list[msgspec.Raw])[: len(raws)]
        is_own = [bytes(raw) for raw in said] == [bytes(raw) for raw in raws]
        front = _digest(b"\0".join(_MARKER.sub(b"", one) for one in fronts))
        digests, meanings = tuple(map(_digest, shown)), tuple(_digest(_meaning(one)) for one in shown)
        self.sent.setdefault(name, []).append(
            Sent(int(attempt), front, digests, meanings, is_own, bytes(fields["tools"]) != bytes(own["tools"]))
        )


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()[:12]


def _meaning(message: bytes) -> bytes:
    """What a message says, without what may be said in two ways: a text by itself, or as a list of one."""
    fields = {key: value for key, value in msgspec.json.decode(message).items() if value is not None}
    content = fields.get("content")
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") == "text":
        fields["content"] = content[0]["text"]
    return msgspec.json.encode(fields, order="sorted")


def _rules(model: str) -> ModelRules:
    return ModelRules(window_tokens=200_000 if model == SUMMARIZER else WINDOW)


SUMMARY: Final = ScriptedAnswer(
    (
        {
            "type": "text",
            "text": "<analysis>The conversation so far is about a project in /srv/project.</analysis>\n<summary>\n"
            "1. Primary Request and Intent: the user wants the work in /srv/project to go on as it was asked for.\n"
            "2. Key Technical Concepts: the tools that were called, and the files that they read and changed.\n"
            "3. Files and Code: see the calls.\n4. Errors and fixes: those that the results name.\n"
            "5. Problem Solving: each step followed from the one before.\n6. All user messages: they are kept beside.\n"
            "7. Pending Tasks: what was asked for last.\n8. Current Work: the last call and its result.\n"
            "9. Next Step: go on with what the user said last.\n</summary>",
        },
    )
)


class RecordedServer(FakeServer):
    """The same over a socket, as slow as a quick model."""

    def __init__(self, model: RecordedModel, chance: Random) -> None:
        super().__init__(model, delay_seconds=0.005, keeps_requests=False)
        self._model, self._chance = model, chance

    async def _answer(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(self._chance.uniform(*(ANSWER_SECONDS if MARK in request.headers else SUMMARY_SECONDS)))
        return await super()._answer(request, writer)

    def _respond(self, request: ReceivedRequest) -> RawAnswer | tuple[Iterator[bytes], Any]:
        self._model.asked = request.headers.get(MARK, "")
        if self._model.asked:
            self._model.note(request)
        return super()._respond(request)
