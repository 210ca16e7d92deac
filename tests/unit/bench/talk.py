"""Hand-made conversations for the probe."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from perdure.lab.bench.probe import Gold, gold_of, utterances_of
from perdure.transcript.messages import Message, MessageId

_numbers = count()


def user(text: str) -> Message:
    return Message.of("user", text, id=_id())


def says(text: str) -> Message:
    return Message.of("assistant", text, id=_id())


def calls(tool: str, **arguments: Any) -> Message:
    call = {"type": "tool_use", "id": f"call-{tool}", "name": tool, "input": arguments}
    return Message.of("assistant", [call], id=_id())


def shows(text: str, tool: str = "Bash", *, is_error: bool = False) -> Message:
    result = {"type": "tool_result", "tool_use_id": f"call-{tool}", "content": text, "is_error": is_error}
    return Message.of("user", [result], id=_id())


def gold(before: list[Message], after: list[Message]) -> Gold:
    lines = {message.id: number for number, message in enumerate([*before, *after], 1)}
    return gold_of(utterances_of(before, lines), utterances_of(after, lines))


def log_of(messages: list[tuple[str, Any]], path: Path, *, cwds: tuple[str, ...] = ("/repo/app",)) -> Path:
    """A Claude Code log; ("boundary", text) is a compaction with its summary."""
    rows: list[dict[str, Any]] = []
    for number, (role, content) in enumerate(messages):
        common = {"sessionId": path.stem, "uuid": f"u{number}", "cwd": cwds[number % len(cwds)]}
        common["parentUuid"] = f"u{number - 1}" if number else None
        if role == "boundary":
            meta = {"trigger": "auto", "preTokens": 100_000}
            rows.append({**common, "type": "system", "subtype": "compact_boundary", "compactMetadata": meta})
            message = {"role": "user", "content": content}
            rows.append({**common, "uuid": f"s{number}", "type": "user", "isCompactSummary": True, "message": message})
        else:
            body = {"role": role, "content": content, "id": f"msg-{number}"}
            rows.append({**common, "type": role, "message": body})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _id() -> MessageId:
    return MessageId(f"m{next(_numbers)}")
