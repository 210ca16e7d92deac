"""The replay's own checks of every request: is it valid, does an open loop bring its thinking back, and is each move of
the prefix explained?

Independent of the engine: validity is the shipped rule checker's word, and prefixes are compared as bytes. Checking
the whole body at every call would cost more than the engine itself, so a request that extends the one before is checked
from the last exchange they share (the rules look at neighbours), and whole at every move, every 50th call and the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.context.items import THINKING
from holdfast.context.requests import Request
from holdfast.context.wire import Group
from holdfast.testing import check_anthropic
from holdfast.testing.model_rules import ModelRules
from holdfast.transcript.sendable import SERVER_RESULTS

_WHOLE_EVERY = 50
_STUB = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"-"},%b]}'


@dataclass(slots=True)
class RequestCheck:
    """Feed it every request in order, then call `finish`."""

    rules: ModelRules
    calls: int = 0
    invalid: int = 0
    unexplained: int = 0
    first_violation: str | None = None
    _thoughts: dict[str, tuple[bytes, ...]] = field(default_factory=dict)  # by call, as they were first sent beside it
    _last: list[tuple[str, bytes]] = field(default_factory=list)
    _groups: int = 0  # of the last request
    _unchecked: Request | None = None  # the last request, when only its end was checked

    def take(self, request: Request, *, is_announced: bool) -> None:
        """Check a request; `is_announced` when the engine said since the last one that the prefix moves."""
        parts = [(role, part.raw) for role, part in request.parts()]
        extends = _extends(parts, self._last)
        if not is_announced and not extends:
            self.unexplained += 1
        if not extends or self.calls % _WHOLE_EVERY == 0:
            self._judge(request.body)
            self._unchecked = None
        else:
            self._judge(self._end(request.groups) or request.body)
            self._unchecked = request
        self._judge_loop(request.groups)
        self._last, self._groups = parts, len(request.groups)
        self.calls += 1

    def finish(self) -> None:
        """Check the last request as a whole."""
        if self._unchecked is not None:
            self._judge(self._unchecked.body)

    def _end(self, groups: tuple[Group, ...]) -> bytes:
        """A request of the new groups, from the assistant's last one before them; empty where only all of it tells."""
        start = max(0, self._groups - 2)
        while start > 0 and groups[start].role != "assistant":
            start -= 1
        tail = groups[start:] if groups[start].role == "assistant" else groups[start + 1 :]
        if not tail or any(part.kind in SERVER_RESULTS for group in tail for part in group.blocks):
            return b""  # the call of such a result may stand anywhere before
        return _STUB % b",".join(_message(group) for group in tail)

    def _judge(self, body: bytes) -> None:
        found = check_anthropic(body, model_rules=self.rules)
        if found:
            self._violated(f"{found[0].rule}: {found[0].text}")

    def _judge_loop(self, groups: Sequence[Group]) -> None:
        """The thinking of the loop that the request continues stands there as it was first sent (TURN-15)."""
        has_results = False
        for number in range(len(groups) - 1, -1, -1):
            group = groups[number]
            if group.role == "user":
                has_results = has_results or bool(group.results)
                continue
            if not has_results:
                return
            has_results = False
            thoughts = tuple(part.raw for part in group.blocks if part.kind in THINKING)
            if any(self._thoughts.setdefault(call, thoughts) != thoughts for call in group.calls):
                self._violated(f"open_loop_thinking: messages.{number}: thinking of an open loop isn't as it was sent")
                return

    def _violated(self, what: str) -> None:
        self.invalid += 1
        self.first_violation = self.first_violation or what


def _message(group: Group) -> bytes:
    content = b",".join(part.raw for part in group.parts())
    return b'{"role":"%b","content":[%b]}' % (group.role.encode(), content)


def _extends(parts: list[tuple[str, bytes]], earlier: list[tuple[str, bytes]]) -> bool:
    if len(parts) < len(earlier):
        return False
    for (role, raw), (old_role, old) in zip(parts, earlier, strict=False):
        if role != old_role or (raw is not old and raw != old):
            return False
    return True
