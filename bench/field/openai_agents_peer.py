"""The sessions of OpenAI's Agents SDK, and its filter that trims results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from agents.extensions import ToolOutputTrimmer
from agents.memory import OpenAIResponsesCompactionSession
from agents.run import CallModelData, ModelInputData
from loop import SUMMARISER, Loop, Part, Peer, Said, call_text, main

from agents import Agent, SessionSettings, SQLiteSession

WAIT = Loop()


class Stored(Peer):
    """A session in SQLite, read before each call, as if each were a run of its own."""

    def __init__(self, script: Mapping[str, Any], limit: int | None = None) -> None:
        super().__init__(script)
        settings = None if limit is None else SessionSettings(limit=limit)
        self.session: Any = SQLiteSession("bench", session_settings=settings)

    def made(self, said: Said) -> list[Any]:
        if said["role"] == "user":
            return [{"role": "user", "content": said["text"]}]
        if said["role"] == "tool":
            return [{"type": "function_call_output", "call_id": said["id"], "output": said["text"]}]
        items: list[Any] = []
        if said["text"]:
            content = [{"type": "output_text", "text": said["text"], "annotations": []}]
            items.append({"type": "message", "role": "assistant", "status": "completed", "content": content})
        for call in said["calls"]:
            arguments = json.dumps(call["arguments"])
            items.append({"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": arguments})
        return items

    def add(self, made: list[Any]) -> None:
        if made:
            WAIT(self.session.add_items(made))

    def prepared(self) -> Any:
        return WAIT(self.session.get_items())

    def parts(self, request: Any) -> Iterator[Part]:
        for item in request:
            kind, content = item.get("type", "message"), item.get("content")
            if kind == "message":
                text = content if isinstance(content, str) else "".join(part["text"] for part in content)
                yield Part(item["role"], text)
            elif kind == "function_call":
                arguments = json.loads(item["arguments"])
                yield Part("call", call_text({"name": item["name"], "arguments": arguments}), item["call_id"])
            elif kind == "function_call_output":
                yield Part("result", item["output"], item["call_id"])
            else:  # what `responses.compact` gave: its text is for the probe, since no one can read the real one
                yield Part("user", item["encrypted_content"])


class Compacted(Stored):
    """`OpenAIResponsesCompactionSession` on a client whose `responses.compact` is the scripted summariser.

    As the real one does, it gives back what the user said and one item for all else.
    """

    def __init__(self, script: Mapping[str, Any], **how: Any) -> None:
        super().__init__(script)
        client: Any = SimpleNamespace(responses=SimpleNamespace(compact=self.compact))
        self.session = OpenAIResponsesCompactionSession(
            "bench", self.session, client=client, compaction_mode="input", **how
        )

    async def compact(self, *, model: str, input: list[Any]) -> Any:
        text = "\n".join(part.text for part in self.parts(input))
        users = [item for item in input if item.get("role") == "user"]
        summary = {"type": "compaction", "id": f"cmp_{SUMMARISER.calls}", "encrypted_content": SUMMARISER(text)}
        return SimpleNamespace(output=[*users, summary], usage=None)

    def prepared(self) -> Any:
        items = super().prepared()
        if items and items[-1].get("type") == "function_call_output":  # a turn has ended: all calls are answered
            WAIT(self.session.run_compaction({"store": False}))
            items = super().prepared()
        return items


class Trimmed(Stored):
    """`ToolOutputTrimmer` as the run's `call_model_input_filter`."""

    def __init__(self, script: Mapping[str, Any], **how: Any) -> None:
        super().__init__(script)
        self.trimmer, self.agent = ToolOutputTrimmer(**how), Agent(name="bench")

    def prepared(self) -> Any:
        given = CallModelData(ModelInputData(super().prepared(), self.system), self.agent, None)
        return self.trimmer(given).input


def by_size(script: Mapping[str, Any]) -> Compacted:
    """Compacts when the session fills 80 % of the window, rather than at ten items."""
    most = script["window"] * 0.8 * 4
    return Compacted(script, should_trigger_compaction=lambda told: len(json.dumps(told["session_items"])) > most)


if __name__ == "__main__":
    main(
        {
            "session, default": Stored,
            "session, limit 100": lambda script: Stored(script, limit=100),
            "compaction session, default": Compacted,
            "compaction session, by size": by_size,
            "output trimmer, default": Trimmed,
        }
    )
