"""Memories extracted by a model: the errand of a fork, and the desk on which its edits are made (MEM-6).

The model never touches a file. It reads texts of the directory, and its edits are made on copies in this process; what
became of each is a change of its own, on a word that code decides (`memory.upkeep.origins`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast import prompts
from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.engine.fork import Answer, Errand, Fork, run_fork
from holdfast.engine.session import LiveSession
from holdfast.errors import FileRefused
from holdfast.memory.changes import Save
from holdfast.memory.retrieval.memories import Card
from holdfast.memory.upkeep.dates import day_of
from holdfast.memory.upkeep.permit import BASH, EDIT, GLOB, GREP, WRITE, WRITES, MemoryPermit
from holdfast.memory.upkeep.reading import answered
from holdfast.ports import Memories, Model

MOST_FILES = 2_000  # of a directory, whose texts an extractor may search
MOST_MEMORY_CHARS = 20_000  # of one that a model writes
LISTED = 200
_MEMORY = re.compile(r'^<memory file="([^"\n]+)">\n(.*?)^</memory>\s*$', re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Desk:
    """The texts of a directory as the fork sees them: read when first wanted, and edited here only."""

    store: Memories
    permit: MemoryPermit
    bases: dict[str, str | None] = field(default_factory=dict)  # as they were read
    texts: dict[str, str] = field(default_factory=dict)  # as they are now
    _has_all: bool = False

    async def run(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Do an allowed call."""
        try:
            if tool in WRITES:
                return await self._written(tool, arguments)
            if tool in (BASH, GREP, GLOB):
                await self._read_all()
            else:
                await self._text(self.permit.name_of(arguments.get("file_path") or arguments.get("path")) or "")
        except FileRefused as e:
            return Answer(str(e), is_error=True)
        return Answer(*answered(tool, arguments, self.texts, self.permit))

    async def _written(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        name = self.permit.name_of(arguments.get("file_path") or arguments.get("path")) or ""
        current = await self._text(name)
        if tool == WRITE:
            new = arguments.get("content")
            if not isinstance(new, str):
                return Answer("content has to be a text", is_error=True)
        else:
            old, to = arguments.get("old_string"), arguments.get("new_string")
            if current is None or not isinstance(old, str) or not isinstance(to, str):
                return Answer(f"{name}: there is no such memory, or old_string or new_string is no text", is_error=True)
            times = current.count(old) if old else 0
            if times != 1 and not (times and arguments.get("replace_all") is True):
                return Answer(f"old_string is {times} times in {name}", is_error=True)
            new = current.replace(old, to)
        if len(new) > MOST_MEMORY_CHARS:
            return Answer(f"{name}: over {MOST_MEMORY_CHARS:,} characters: a memory is short", is_error=True)
        self.texts[name] = new if new.endswith("\n") else f"{new}\n"
        return Answer("done")

    async def read_answer(self, text: str) -> str | None:
        """Take the memories that an answer holds as text; what to say about those that were refused."""
        wrong = []
        for name, content in _MEMORY.findall(text):
            arguments = {"file_path": name, "content": content}
            denial = self.permit.denial(WRITE, arguments)
            answer = Answer(denial, is_error=True) if denial else await self.run(WRITE, arguments)
            wrong += [f"{name}: {answer.text}"] if answer.is_error else []
        return "\n".join(("These were not saved:", *wrong)) if wrong else None

    async def _text(self, name: str) -> str | None:
        if name and name not in self.bases:
            file = await self.store.read(name)
            self.bases[name] = file.text if file else None
            if file:
                self.texts[name] = file.text
        return self.texts.get(name)

    async def _read_all(self) -> None:
        if not self._has_all:
            for stat in (await self.store.listing()).files[:MOST_FILES]:
                await self._text(stat.name)
        self._has_all = True

    @property
    def changes(self) -> tuple[Save, ...]:
        """What came of the edits."""
        return tuple(
            Save(name=name, text=text, base=self.bases.get(name))
            for name, text in self.texts.items()
            if text != self.bases.get(name)
        )


async def by_model(
    session: LiveSession,
    seen: tuple[View, Facts],
    models: Sequence[Model],
    store: Memories,
    about: tuple[str, str, str],
) -> tuple[Fork, tuple[Save, ...]]:
    """Let a model say what is worth saving. `about`: the directory, its memories as a list, and since when to look.

    Gives the fork, with a reason in it where it failed, and the changes that it wants.
    """
    view, facts = seen
    where, memories, since = about
    turns = facts.settings.memory_extract_turns
    desk = Desk(store, MemoryPermit(where))
    has_tools = {EDIT, WRITE} <= _tools(view)
    how = "memory_extract_by_tool" if has_tools else "memory_extract_by_text"
    words = prompts.render(
        "memory_extract",
        since=since,
        directory=where,
        memories=memories,
        today=day_of(facts.now or 0.0).isoformat(),
        how=prompts.render(how, turns=str(turns)) if has_tools else prompts.source(how),
    )
    was_writing: list[bool] = []

    async def run(tool: str, arguments: Mapping[str, Any]) -> Answer:
        was_writing.append(tool in WRITES)
        return await desk.run(tool, arguments)

    def goes_on(answers: Sequence[Answer]) -> bool:
        """Writing ends it, when all of it was done: nothing is paid for hearing so."""
        ran, wrote = bool(was_writing), bool(was_writing) and all(was_writing)
        was_writing.clear()
        return not (ran and wrote) or any(answer.is_error for answer in answers)

    errand = Errand(
        job="extractor",
        instruction=words,
        permit=desk.permit.denial,
        run=run,
        goes_on=goes_on,
        reply=desk.read_answer,
        most_turns=turns,
    )
    return await run_fork(session, view, facts, models, errand), desk.changes


def listed(cards: Sequence[Card]) -> str:
    """The memories that there are, a line for each, for a model that is to change one rather than add another."""
    lines = [f"- {card.file} [{card.type or 'untyped'}] {card.name}: {card.description[:120]}" for card in cards]
    return "\n".join(lines) or "none yet"


def _tools(view: View) -> set[str]:
    found = set()
    for raw in view.front.tools if view.front else ():
        tool = msgspec.json.decode(raw)
        found.add((tool.get("function") or tool).get("name"))
    return found
