"""Servers with opinions: what compatible servers want beyond the API that they are compatible with (GW-7).

Each of them is a `FakeServer` that takes requests the way such a server does, and refuses in its words what it would.
`refused` says what it refused. They are for whoever stands between a client and such a server: what a session there
never meets when it goes direct, it must not meet on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from perdure.testing.block_rules import Violation
from perdure.testing.openai_rules import as_messages, check_openai, openai_error
from perdure.testing.server import EventStream, FakeServer, RawAnswer, ReceivedRequest, StreamFault, openai_completion
from perdure.testing.upstream import UpstreamError, UpstreamReply

Chat = Mapping[str, Any]
_CHAT = "/v1/chat/completions"


def _open_turn(messages: list[Any]) -> list[Any]:
    """The messages since a person last spoke."""
    start = max((n for n, one in enumerate(messages) if one.get("role") == "user"), default=-1)
    return messages[start + 1 :]


def _calls(message: Any) -> list[Any]:
    return list(message.get("tool_calls") or ()) if message.get("role") == "assistant" else []


class ServerOpinion:
    """What a server wants. This one takes every field, every order and both kinds of content; others say more."""

    path = _CHAT
    ignores = frozenset({"message_field", "system_first", "alternation"})  # rules of OpenAI's that it doesn't have

    def refusal(self, request: ReceivedRequest, chat: Chat) -> UpstreamError | None:
        """Why a request is refused; None when it isn't."""
        return None

    def decorate(self, message: dict[str, Any], number: int) -> None:
        """Add to the answer to request `number` what such a server says besides."""

    def overflowed(self, error: UpstreamError, chat: Chat) -> RawAnswer:
        """What comes in the place of an answer to a prompt that is too long."""
        return _json(openai_error(error), error.status)


class DeepSeekReasoner(ServerOpinion):
    """Answers bring their reasoning, and no request may bring it back."""

    def refusal(self, request: ReceivedRequest, chat: Chat) -> UpstreamError | None:
        if any("reasoning_content" in message for message in chat["messages"]):
            return _bad("The reasoning_content field is not supported in the input messages")
        return None

    def decorate(self, message: dict[str, Any], number: int) -> None:
        message["reasoning_content"] = f"Thinking about request {number}."


@dataclass
class DeepSeekThinking(ServerOpinion):
    """Answers bring their reasoning. While a turn with calls goes on, each of them has to come back with its own."""

    issued: dict[str, str] = field(default_factory=dict)  # by the id of a call

    def refusal(self, request: ReceivedRequest, chat: Chat) -> UpstreamError | None:
        for number, message in enumerate(chat["messages"]):
            is_open = any(message is one for one in _open_turn(chat["messages"]))
            for call in _calls(message) if is_open else ():
                if message.get("reasoning_content") != self.issued.get(call["id"], message.get("reasoning_content")):
                    return _bad(f"Missing `reasoning_content` field in the assistant message at message index {number}")
        return None

    def decorate(self, message: dict[str, Any], number: int) -> None:
        message["reasoning_content"] = f"Thinking\u2026 about request {number}."
        self.issued |= {call["id"]: message["reasoning_content"] for call in message.get("tool_calls") or ()}


@dataclass
class GeminiSignatures(ServerOpinion):
    """Calls are signed, and those of the turn that goes on have to come back with the signature that they came with."""

    issued: dict[str, str] = field(default_factory=dict)

    def refusal(self, request: ReceivedRequest, chat: Chat) -> UpstreamError | None:
        for message in _open_turn(chat["messages"]):
            for call in _calls(message):
                given = (call.get("extra_content") or {}).get("google", {}).get("thought_signature")
                if given != self.issued.get(call["id"], given):
                    name = call["function"]["name"]
                    return _bad(f"Function call is missing a thought_signature in functionCall parts: {name}")
        return None

    def decorate(self, message: dict[str, Any], number: int) -> None:
        for call in message.get("tool_calls") or ():
            signature = f"c2lnbmF0dXJl/{number}+{call['id']}=="
            call["extra_content"] = {"google": {"thought_signature": signature}}
            self.issued[call["id"]] = signature


class StringsOnly(ServerOpinion):
    """Contents are strings; anything else breaks it (llama.cpp's Python server)."""

    def refusal(self, request: ReceivedRequest, chat: Chat) -> UpstreamError | None:
        if any(isinstance(message.get("content"), list) for message in chat["messages"]):
            return UpstreamError(500, "internal_server_error", 'can only concatenate str (not "list") to str')
        return None


@dataclass
class AzureDeployment(ServerOpinion):
    """The model is in the path, a version in the query, the key in a header of its own; unknown fields are refused."""

    key: str = "azure-key"
    deployment: str = "gpt"
    ignores = frozenset({"system_first", "alternation"})

    @property
    def path(self) -> str:  # type: ignore[override]
        return f"/openai/deployments/{self.deployment}/chat/completions"

    def refusal(self, request: ReceivedRequest, chat: Chat) -> UpstreamError | None:
        if request.headers.get("api-key") != self.key:
            said = "Access denied due to invalid subscription key or wrong API endpoint."
            return UpstreamError(401, "401", said)
        if "api-version=" not in request.query:
            return UpstreamError(404, "404", "Resource not found")
        return None


class EmptyWhenFull(ServerOpinion):
    """A prompt that is too long gets a success that says nothing."""

    def overflowed(self, error: UpstreamError, chat: Chat) -> RawAnswer:
        if chat.get("stream"):
            return RawAnswer(b"", 200, "text/event-stream")
        return _json({"id": "chatcmpl-0", "object": "chat.completion", "choices": []})


class KnownFieldsOnly(ServerOpinion):
    """Every field that the API doesn't have is refused."""

    ignores = frozenset({"system_first", "alternation"})


class UserFirst(ServerOpinion):
    """Behind the system messages a user speaks first."""

    def refusal(self, request: ReceivedRequest, chat: Chat) -> UpstreamError | None:
        roles = [message.get("role") for message in chat["messages"]]
        first = next((role for role in roles if role not in ("system", "developer")), "user")
        return None if first == "user" else _bad("Conversation must start with a user message")


class AnswerAfterTools(ServerOpinion):
    """Behind the results of calls the model speaks, and nobody else (Mistral's API)."""

    def refusal(self, request: ReceivedRequest, chat: Chat) -> UpstreamError | None:
        roles = [message.get("role") for message in chat["messages"]]
        behind = next((two for one, two in pairwise(roles) if one == "tool" and two not in ("tool", "assistant")), None)
        return None if behind is None else _bad(f"Unexpected role '{behind}' after role 'tool'")


class StrictAlternation(ServerOpinion):
    """User and assistant take turns, and system messages stand in front."""

    ignores = frozenset({"message_field"})


OPINIONS: dict[str, type[ServerOpinion]] = {
    "deepseek-reasoner": DeepSeekReasoner,
    "deepseek-thinking": DeepSeekThinking,
    "gemini": GeminiSignatures,
    "strings-only": StringsOnly,
    "azure": AzureDeployment,
    "empty-when-full": EmptyWhenFull,
    "known-fields-only": KnownFieldsOnly,
    "user-first": UserFirst,
    "answer-after-tools": AnswerAfterTools,
    "strict-alternation": StrictAlternation,
}
"""Every kind of server that there is here, by a name."""


@dataclass(slots=True)
class OpinionatedServer(FakeServer):
    """A `FakeServer` for chat completions with an opinion: `async with OpinionatedServer(opinion=GeminiSignatures())`.

    Attributes:
        opinion: what it wants
        refused: what it refused, in order
    """

    opinion: ServerOpinion = field(default_factory=ServerOpinion)
    refused: list[UpstreamError] = field(default_factory=list)

    def _respond(self, request: ReceivedRequest) -> RawAnswer | tuple[Iterator[bytes], StreamFault]:
        if (request.method, request.path) != ("POST", self.opinion.path):
            return FakeServer._respond(self, request)
        chat = msgspec.json.decode(request.body)
        found = [one for one in check_openai(request.body) if one.rule not in self.opinion.ignores]
        refusal = _violated(found[0]) if found else self.opinion.refusal(request, chat)
        if refusal is not None:
            return self._refuse(refusal)
        try:
            reply = self.upstream.respond(msgspec.json.encode(as_messages(chat)))
        except UpstreamError as e:
            self.refused.append(e)
            return self.opinion.overflowed(e, chat) if "prompt is too long" in e.message else self._refused_with(e)
        return self._answered(reply, chat)

    def _refuse(self, error: UpstreamError) -> RawAnswer:
        self.refused.append(error)
        return self._refused_with(error)

    def _refused_with(self, error: UpstreamError) -> RawAnswer:
        return _json(openai_error(error), error.status)

    def _answered(self, reply: UpstreamReply, chat: Chat) -> RawAnswer | tuple[Iterator[bytes], StreamFault]:
        completion = openai_completion(reply)
        message = completion["choices"][0]["message"]
        self.opinion.decorate(message, self.upstream.statistics.answered)
        if not chat.get("stream"):
            return _json(completion)
        with_usage = bool((chat.get("stream_options") or {}).get("include_usage"))
        return _decorated(EventStream(reply, dialect="openai", include_usage=with_usage), message), None


def _decorated(events: EventStream, message: Mapping[str, Any]) -> Iterator[bytes]:
    """The stream of an answer, with what its message has beyond the API, where such servers put it."""
    extras = {call["id"]: call.get("extra_content") for call in message.get("tool_calls") or ()}
    thought = message.get("reasoning_content")
    for event in events:
        chunk = None if event.startswith(b"data: [") else msgspec.json.decode(event.removeprefix(b"data: "))
        delta = chunk["choices"][0]["delta"] if chunk and chunk["choices"] else {}
        for call in delta.get("tool_calls") or ():
            if extra := extras.get(call.get("id")):
                call["extra_content"] = extra
        yield event if chunk is None else b"data: " + msgspec.json.encode(chunk) + b"\n\n"
        if thought and "role" in delta:  # before the first word, in two pieces
            for piece in (thought[: len(thought) // 2], thought[len(thought) // 2 :]):
                choice = {"index": 0, "delta": {"reasoning_content": piece}, "finish_reason": None}
                yield b"data: " + msgspec.json.encode({**(chunk or {}), "choices": [choice]}) + b"\n\n"


def _violated(violation: Violation) -> UpstreamError:
    return UpstreamError(400, "invalid_request_error", violation.text, violations=[violation])


def _bad(message: str) -> UpstreamError:
    return UpstreamError(400, "invalid_request_error", message)


def _json(data: object, status: int = 200) -> RawAnswer:
    return RawAnswer(msgspec.json.encode(data), status)
