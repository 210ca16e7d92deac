"""Where a Claude Code user went back: parent pointers read against line order (ENG-6).

Line order is the order of a recording; parent pointers only tell that a prompt goes on from an earlier place. They
form a DAG (parallel calls, progress lines, queued prompts, retries), so most jumps are no rewinds. A prompt counts as
one only if all of this holds: it was typed; its nearest said ancestor stands before the latest API response of the main
chain; that ancestor is still part of the conversation and was said after the last compaction; and an earlier typed
prompt followed the very same ancestor, which is what going back to that prompt means.
"""

from __future__ import annotations

from holdfast.transcript.messages import MessageId


class Chain:
    """The main chain as far as it was read."""

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}
        self._ids: dict[str, MessageId] = {}  # uuid -> id of what was said
        self._alive: dict[str, None] = {}  # uuids said since the last boundary and not abandoned, in order
        self._answered: set[str] = set()  # ancestors that a typed prompt already followed
        self._round: set[str] = set()  # said since the latest response began
        self._response: str | None = None

    def link(self, uuid: str | None, parent: str | None) -> None:
        """Every entry that has a uuid, said or not."""
        if uuid and uuid not in self._parents:
            self._parents[uuid] = parent

    def said(self, uuid: str | None, message: MessageId, response: str | None = None) -> None:
        """A message of the main chain; `response` when it is part of an API response."""
        if not uuid:
            return
        if response is not None and response != self._response:
            self._response = response
            self._round = set()
        self._ids[uuid] = message
        self._alive[uuid] = None
        self._round.add(uuid)

    def boundary(self) -> None:
        """A compaction: nobody goes back behind it."""
        self._alive = {}
        self._answered = set()
        self._round = set()
        self._response = None

    def back_to(self, parent: str | None) -> MessageId | None:
        """For a typed prompt about to be said: the message that it goes back to, or None when it just follows."""
        ancestor = self._ancestor(parent)
        if ancestor is None:
            return None
        followed = ancestor in self._answered
        self._answered.add(ancestor)
        if not followed or ancestor in self._round or ancestor not in self._alive:
            return None
        order = list(self._alive)
        for gone in order[order.index(ancestor) + 1 :]:
            del self._alive[gone]
        return self._ids[ancestor]

    def _ancestor(self, parent: str | None) -> str | None:
        """The nearest entry upwards that was said."""
        seen: set[str] = set()
        while parent is not None and parent not in self._ids:
            if parent in seen:
                return None
            seen.add(parent)
            parent = self._parents.get(parent)
        return parent

    def segment(self, head: str | None, tail: str | None) -> tuple[MessageId, ...]:
        """What was said from `head` to `tail`, both included; only the ends if no path leads from one to the other."""
        path: dict[str, None] = {}
        at = tail
        while at is not None and at not in path:
            path[at] = None
            if at == head:
                return self.known(list(path)[::-1])
            at = self._parents.get(at)
        return self.known([uuid for uuid in (head, tail) if uuid])

    def known(self, uuids: list[str]) -> tuple[MessageId, ...]:
        """The ids of those that were said, each once."""
        return tuple(dict.fromkeys(self._ids[uuid] for uuid in uuids if uuid in self._ids))
