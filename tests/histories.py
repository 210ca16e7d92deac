"""Histories of a loop that owns its messages, in the words of each API: what integrations give a session to follow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from perdure.context.replies import WireProtocol

Json = dict[str, Any]
FORMATS: tuple[WireProtocol, ...] = ("anthropic", "openai", "responses")


@dataclass(frozen=True, slots=True)
class Step:
    """What happens before a request: a person says something, or the model called tools, whose results have so many
    lines each."""

    words: str = ""
    lines: tuple[int, ...] = ()


def messages_of(steps: Sequence[Step], format: WireProtocol) -> Iterator[list[Any]]:
    """What each step adds to the history."""
    for number, step in enumerate(steps):
        if not step.lines:
            said: list[Any] = [{"role": "user", "content": f"{number}: {step.words}"}]
            if number:  # the model had ended its turn
                said.insert(0, {"role": "assistant", "content": f"Done with {number - 1}."})
            yield said
            continue
        calls = [(f"call_{number}_{n}", {"path": f"f{n}.py"}) for n in range(len(step.lines))]
        texts = [f"line {number} of a file\n" * lines for lines in step.lines]
        yield list(_called(calls, texts, format))


def _called(calls: Sequence[tuple[str, Json]], texts: Sequence[str], format: WireProtocol) -> Iterator[Any]:
    named = list(zip(calls, texts, strict=True))
    if format == "responses":
        for id, path in calls:
            yield {"type": "function_call", "call_id": id, "name": "read", "arguments": json.dumps(path)}
        yield from ({"type": "function_call_output", "call_id": id, "output": text} for (id, _), text in named)
    elif format == "openai":
        functions = [(id, {"name": "read", "arguments": json.dumps(path)}) for id, path in calls]
        tool_calls = [{"id": id, "type": "function", "function": function} for id, function in functions]
        yield {"role": "assistant", "content": None, "tool_calls": tool_calls}
        yield from ({"role": "tool", "tool_call_id": id, "content": text} for (id, _), text in named)
    else:
        uses = [{"type": "tool_use", "id": id, "name": "read", "input": path} for id, path in calls]
        yield {"role": "assistant", "content": uses}
        results = [{"type": "tool_result", "tool_use_id": id, "content": text} for (id, _), text in named]
        yield {"role": "user", "content": results}


def plans() -> st.SearchStrategy[list[Step]]:
    """Steps of a loop, the first of them what a person says."""
    said = st.builds(Step, st.text("abc de", min_size=1, max_size=30))
    called = st.builds(Step, lines=st.lists(st.sampled_from((0, 2, 40, 400)), min_size=1, max_size=3).map(tuple))
    return st.lists(st.one_of(called, called, said), max_size=12).map(lambda steps: [Step("begin"), *steps])
