"""An answer of the Responses API as server-sent events, in the order of the real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

Json = dict[str, Any]
_PAD = "perdure-perdure-"


@dataclass(frozen=True, slots=True)
class ResponseEvents:
    """Iterate to get the events of a response as bytes, one event at a time; `chars` is the size of a delta."""

    response: Mapping[str, Any]
    chars: int = 40
    obfuscates: bool = True  # stream_options.include_obfuscation

    def __iter__(self) -> Iterator[bytes]:
        for number, (kind, fields) in enumerate(self._events()):
            payload = {"type": kind, "sequence_number": number, **fields}
            if self.obfuscates and kind.endswith(".delta"):
                payload["obfuscation"] = _PAD[len(fields["delta"]) % len(_PAD) :]
            yield response_event(payload)

    @property
    def body(self) -> bytes:
        """The whole stream at once."""
        return b"".join(self)

    def _events(self) -> Iterator[tuple[str, Json]]:
        begun = {**self.response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        yield "response.created", {"response": begun}
        yield "response.in_progress", {"response": begun}
        for index, item in enumerate(self.response["output"]):
            begins, filling = self._filling(item)
            yield "response.output_item.added", {"output_index": index, "item": begins}
            for kind, fields in filling:
                yield f"response.{kind}", {"item_id": item["id"], "output_index": index, **fields}
            yield "response.output_item.done", {"output_index": index, "item": item}
        yield f"response.{self.response['status']}", {"response": self.response}

    def _filling(self, item: Json) -> tuple[Json, Iterator[tuple[str, Json]]]:
        """An item as it is announced, and the events that fill it."""
        match item["type"]:
            case "message":
                return {**item, "status": "in_progress", "content": []}, self._message(item)
            case "reasoning":
                return {**item, "summary": [], "encrypted_content": ""}, self._summary(item)
            case "function_call":
                events = self._words("function_call_arguments", "arguments", item["arguments"], {})
                return {**item, "status": "in_progress", "arguments": ""}, events
            case "custom_tool_call":
                events = self._words("custom_tool_call_input", "input", item["input"], {})
                return {**item, "status": "in_progress", "input": ""}, events
            case "compaction":
                return {**item, "encrypted_content": ""}, iter([("compaction.compacting", {})])
            case _:
                return item, iter(())

    def _message(self, item: Json) -> Iterator[tuple[str, Json]]:
        for index, part in enumerate(item["content"]):
            at = {"content_index": index}
            yield "content_part.added", {**at, "part": {**part, "text": ""}}
            yield from self._words("output_text", "text", part["text"], {**at, "logprobs": []})
            yield "content_part.done", {**at, "part": part}

    def _summary(self, item: Json) -> Iterator[tuple[str, Json]]:
        for index, part in enumerate(item["summary"]):
            at = {"summary_index": index}
            yield "reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}
            yield from self._words("reasoning_summary_text", "text", part["text"], at)
            yield "reasoning_summary_part.done", {**at, "part": part}

    def _words(self, kind: str, field: str, words: str, at: Json) -> Iterator[tuple[str, Json]]:
        for start in range(0, len(words), self.chars):
            yield f"{kind}.delta", {**at, "delta": words[start : start + self.chars]}
        yield f"{kind}.done", {**at, field: words}


def response_event(payload: Mapping[str, Any]) -> bytes:
    """One event of the Responses API."""
    return b"event: %b\ndata: %b\n\n" % (payload["type"].encode(), msgspec.json.encode(payload))


def failure_events(told: Mapping[str, Any], number: int, response: str = "resp_failed") -> bytes:
    """How a stream ends that fails after `number` events: the error, and the response of that id as failed."""
    inner = told["error"]
    error = {"type": "error", "sequence_number": number}
    error |= {name: inner[name] for name in ("code", "message", "param")}
    failed = {"id": response, "object": "response", "created_at": 0, "model": "", "status": "failed", "output": []}
    failed |= {"error": {"code": inner["code"] or "server_error", "message": inner["message"]}, "usage": None}
    failed |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    last = {"type": "response.failed", "sequence_number": number + 1, "response": failed}
    return response_event(error) + response_event(last)
