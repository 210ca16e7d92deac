"""Hand-made log lines."""

from __future__ import annotations

import json
from typing import Any

Data = dict[str, Any]


def jsonl(*entries: Data | bytes) -> bytes:
    return b"".join(e + b"\n" if isinstance(e, bytes) else json.dumps(e).encode() + b"\n" for e in entries)


def entry(kind: str, uuid: str, parent: str | None, **more: Any) -> Data:
    common = {"sessionId": "s1", "isSidechain": False, "timestamp": "2026-01-02T03:04:05.500Z", "cwd": "/p"}
    return {"parentUuid": parent, **common, "type": kind, "uuid": uuid, "gitBranch": "main", **more}


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> Data:
    return entry("user", uuid, parent, message={"role": "user", "content": content}, **more)


def answer(uuid: str, parent: str | None, *content: Data, response: str = "msg_1", **more: Any) -> Data:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 7, "output_tokens": 11}
    body = {"id": response, "role": "assistant", "model": "claude-x", "content": list(content), "usage": usage}
    return entry("assistant", uuid, parent, message=body, **more)


def text(words: str) -> Data:
    return {"type": "text", "text": words}


def call(name: str, **arguments: Any) -> Data:
    return {"type": "tool_use", "id": name, "name": "Read", "input": arguments}


def result(name: str, content: Any = "ok") -> Data:
    return {"type": "tool_result", "tool_use_id": name, "content": content}
