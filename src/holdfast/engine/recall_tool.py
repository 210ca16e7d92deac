"""The recall tool, for any agent: a definition to send, and a coroutine that answers (RCL-1).

front = Front(tools=(..., msgspec.Raw(recall_tool.definition_json)))
text = await recall_tool.run(session, call.arguments())
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast import prompts
from holdfast.context.recall import TOOL, BadRecall, Wanted, range_of
from holdfast.engine.recall import recall, search
from holdfast.engine.session import LiveSession
from holdfast.errors import HoldfastError
from holdfast.ports import Found, Hit
from holdfast.transcript.blocks import encode

_MOST_HITS = 20
_HITS = 8
_ALSO = 5
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "Id of a result, message, summary or stored text; or its beginning."},
        "query": {"type": "string", "description": "Words to search for, instead of an id."},
        "session": {"type": "string", "description": "Another session, as a search result names it."},
        "lines": {"type": "string", "description": 'Lines of the original: "10-20", "10-" or "7".'},
        "pattern": {"type": "string", "description": "Only lines that match this regular expression (RE2)."},
        "chars": {"type": "string", "description": 'Characters of the original: "1-20000".'},
        "limit": {"type": "integer", "description": f"Search results, at most {_MOST_HITS}.", "minimum": 1},
    },
    "additionalProperties": False,
}


class RecallTool:
    """Has a `definition` for a request's tools, and `run`, which gives the text of the tool's result."""

    name = TOOL

    @property
    def definition(self) -> dict[str, Any]:
        """As the Messages API takes it."""
        return {"name": self.name, "description": prompts.source("recall_tool"), "input_schema": _SCHEMA}

    @property
    def definition_json(self) -> bytes:
        """The same as bytes, for `Front.tools`."""
        return encode(self.definition)

    async def run(self, session: LiveSession, arguments: Mapping[str, Any]) -> str:
        """Answer a call. What can't be done is said in the text: a model can only go on from what it reads."""
        try:
            return await _answered(session, _checked(arguments))
        except HoldfastError as e:
            return f"recall failed: {e}"


recall_tool = RecallTool()


def _checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(arguments) - _SCHEMA["properties"].keys())
    if unknown:
        raise BadRecall(f"unknown arguments {', '.join(unknown)}: give id or query")
    given = {name: value for name, value in arguments.items() if value not in (None, "")}
    for name, value in given.items():
        wanted = int if name == "limit" else str
        if isinstance(value, int) and not isinstance(value, bool) and wanted is str:
            given[name] = str(value)  # lines: 7
        elif not isinstance(value, wanted) or isinstance(value, bool):
            raise BadRecall(f"{name} has to be {'a number' if wanted is int else 'a text'}")
    if ("id" in given) == ("query" in given):
        raise BadRecall("give either id or query")
    return given


async def _answered(session: LiveSession, given: dict[str, Any]) -> str:
    other = given.get("session")
    if "query" in given:
        limit = max(1, min(given.get("limit", _HITS), _MOST_HITS))
        found = await search(session, given["query"], limit=limit, sessions=(other,) if other else ())
        return found_text(found, given["query"])
    wanted = Wanted(
        id=given["id"],
        lines=range_of(given["lines"], what="lines") if "lines" in given else None,
        chars=range_of(given["chars"], what="chars") if "chars" in given else None,
        pattern=given.get("pattern"),
    )
    return (await recall(session, wanted, other=other)).framed()


def found_text(found: Found, query: str) -> str:
    """Search results as text: the place of each, and what it says there."""
    note = f"\n[{found.note}]" if found.note else ""
    if not found.hits:
        return f"Nothing that was said fits {query!r}. Try fewer or other words.{note}"
    rows = [_row(number, hit) for number, hit in enumerate(found.hits, 1)]
    return "\n\n".join(rows) + f'\n\n[recall with id "…" gives the whole; for another session, name it too]{note}'


def _row(number: int, hit: Hit) -> str:
    who = f"result of {hit.tool}" if hit.role == "tool" and hit.tool else hit.role
    when = f", {_time(hit.at)}" if hit.at is not None else ""
    also = ""
    if hit.also:
        more = f" and {len(hit.also) - _ALSO} more" if len(hit.also) > _ALSO else ""
        also = f"\n   the same text also: {', '.join(f'{s}/{i}' for s, i, _ in hit.also[:_ALSO])}{more}"
    shown = "\n".join(f"   {line}" for line in hit.snippet.split("\n"))
    return f'{number}. id "{hit.id}", session {hit.session}, {who}{when}, line {hit.line}\n{shown}{also}'


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"
