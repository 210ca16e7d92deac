"""Messages for the ledger's tests: what a person says, what an agent calls, and what comes back."""

from __future__ import annotations

from typing import Any, Literal

from perdure.compaction.ledger import compact_messages
from perdure.compaction.ledger.memory import LedgerMemory
from perdure.compaction.ledger.render import memory_of_messages
from perdure.transcript.messages import Message, MessageId, RefusedCall, ToolUseId


class Talk:
    """A conversation that grows; ids count up, a minute passes with each message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def _add(self, role: Any, content: Any, **more: Any) -> Talk:
        number = len(self.messages)
        message = Message.of(role, content, id=MessageId(f"m{number}"), at=1_700_000_000.0 + 60 * number, **more)
        self.messages.append(message)
        return self

    def user(self, text: str) -> Talk:
        return self._add("user", text)

    def says(self, text: str) -> Talk:
        return self._add("assistant", text)

    def calls(self, name: str, given: dict[str, Any]) -> Talk:
        use = {"type": "tool_use", "id": f"call-{len(self.messages)}", "name": name, "input": given}
        return self._add("assistant", [use])

    def ran(self, name: str, given: dict[str, Any], result: str = "done", *, is_error: bool = False) -> Talk:
        """A call and what came back."""
        identity = f"call-{len(self.messages)}"
        self.calls(name, given)
        answer = {"type": "tool_result", "tool_use_id": identity, "content": result, "is_error": is_error}
        return self._add("user", [answer])

    def refused(self, name: str, given: dict[str, Any], result: str, by: Literal["user", "host"] = "user") -> Talk:
        """A call that was never made, and what stands in place of its result."""
        call = f"call-{len(self.messages)}"
        self.calls(name, given)
        answer = {"type": "tool_result", "tool_use_id": call, "content": result, "is_error": True}
        return self._add("user", [answer], refused=[RefusedCall(ToolUseId(call), by)])

    def answered(self, name: str, given: dict[str, Any], result: str) -> Talk:
        """A call by which the program put something to the user, and what they answered."""
        call = f"call-{len(self.messages)}"
        self.calls(name, given)
        answer = {"type": "tool_result", "tool_use_id": call, "content": result}
        return self._add("user", [answer], answered=[call])

    def bash(self, command: str, result: str = "", *, is_error: bool = False) -> Talk:
        return self.ran("Bash", {"command": command}, result, is_error=is_error)

    @property
    def memory(self) -> LedgerMemory:
        return memory_of_messages(self.messages)

    def text(self, budget: int = 4_000) -> str:
        return compact_messages(self.messages, budget).text
