"""A corpus of turns as sessions of a store, searched as `perdure search` does: what the product finds is measured as it
is, from journals over the index to what is shown (QLT-6, MEM-15).
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio

from perdure.adapters.journal import SessionStore
from perdure.adapters.journal.search import StoreArchive
from perdure.ports.session import SearchResults
from perdure.recall.turns import DialogueTurn, date_parts
from perdure.transcript.messages import Message, MessageId

_ROLES: Final = ("user", "assistant")


@dataclass(slots=True, weakref_slot=True)
class SearchedStore:
    """A store that holds turns as messages. Whoever isn't the user or the assistant speaks under a name."""

    turns: Sequence[DialogueTurn]
    _folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="perdure-bench-")))
    _numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        anyio.run(self._fill)
        self._archive.take_in(lambda done, of: None)

    @property
    def _archive(self) -> StoreArchive:
        return StoreArchive(self._folder)

    def scores(self, query: str, *, limit: int) -> list[float]:
        """Of each turn what it scores, for those that are among the first; 0 for the others."""
        found = [0.0] * len(self.turns)
        hits = anyio.run(self._search, query, limit).hits
        for place, hit in enumerate(hits):
            found[self._numbers[hit.message]] = float(len(hits) - place)
        return found

    async def _search(self, query: str, limit: int) -> SearchResults:
        return await self._archive.search(query, limit=limit)

    async def _fill(self) -> None:
        store = SessionStore(self._folder)
        speakers = list(dict.fromkeys(turn.speaker for turn in self.turns))
        by_session: dict[str, list[int]] = {}
        for number, turn in enumerate(self.turns):
            by_session.setdefault(turn.session, []).append(number)
        for place, numbers in enumerate(by_session.values()):
            files = await store.create(f"s{place:05}", project="/p", created=1.0, durability="process")
            messages = []
            for number in numbers:
                turn = self.turns[number]
                is_role = turn.speaker in _ROLES
                role = turn.speaker if is_role else _ROLES[speakers.index(turn.speaker) % 2]
                text = turn.text if is_role or not turn.speaker else f"{turn.speaker}: {turn.text}"
                identity = f"turn-{number:09}"
                self._numbers[identity] = number
                at = _day(turn.time) + number
                messages.append(Message.of(role, text or " ", id=MessageId(identity), at=at))  # type: ignore[arg-type]
            await files.journal.append(tuple(messages))
            await files.journal.close()


def _day(time: str) -> float:
    """The seconds at which the day of a date began; 0 where there is none in it."""
    parts = date_parts(time)
    return datetime(*parts, tzinfo=UTC).timestamp() if parts else 0.0
