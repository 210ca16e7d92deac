"""Session notes written by a model: the errand of a fork, and what becomes of its edits (SM-3, SM-4, SM-6).

The model never touches the file. Its edits are made on a text in memory, by the exact rule of `memory.permit.edited`;
what comes of them all is written in one step, and only while the file is what the model was shown. When somebody saved
it meanwhile, the same edits are made on what stands there then, all of them or none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.context.noted import budget_of
from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.engine.fork import Answer, Errand, Fork, run_fork
from holdfast.engine.session import LiveSession
from holdfast.errors import BadSetting
from holdfast.memory.budgets import update_prompt
from holdfast.memory.notes import Notes, adopted, parse, render
from holdfast.memory.permit import EDIT, EditPermit, edited, edits_in, lexical
from holdfast.memory.trust.secrets import redact
from holdfast.ports import Model, NotesFile

PROMPT = "prompt.md"
_TRIES = 3  # somebody may save the file while we write
_FIELDS = ("file_path", "old_string", "new_string")

Start = Callable[[], Awaitable[tuple[bytes | None, Notes]]]
"""Reads the file and says what it has to be while we write (None: no file), and the notes to start from."""


@dataclass(slots=True)
class Desk:
    """The text that the fork edits, and every edit that was made on it."""

    text: str
    form: Notes
    made: list[Mapping[str, Any]] = field(default_factory=list)

    async def edit(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Do one edit, or say what is wrong with it."""
        self.text, wrong = edited(self.text, arguments, self.form)
        if wrong is not None:
            return Answer(wrong, is_error=True)
        self.made.append(dict(arguments))
        return Answer("done")

    async def read(self, text: str) -> str | None:
        """Do the edits that an answer holds as text; what to say about those that failed, None when none did."""
        answers = [await self.edit(EDIT, one) for one in edits_in(text)]
        wrong = [f"edit {number}: {one.text}" for number, one in enumerate(answers, 1) if one.is_error]
        if not wrong:
            return None
        lead = "These edits were not made; the others were. Send only these again, so that they fit:"
        return "\n".join((lead, *wrong))


def wants_more(answers: Sequence[Answer]) -> bool:
    """A turn whose edits were all made is the last: nothing is paid for hearing that it is done."""
    return any(answer.is_error for answer in answers)


def has_edit(view: View) -> bool:
    """Whether the conversation has a tool of that name that takes what an exact edit needs."""
    for raw in view.front.tools if view.front else ():
        tool = msgspec.json.decode(raw)
        tool = tool.get("function") or tool  # as either protocol defines one
        if isinstance(tool, dict) and tool.get("name") == EDIT:
            schema = tool.get("input_schema") or tool.get("parameters") or {}
            return set(_FIELDS) <= set(schema.get("properties") or {})
    return False


@dataclass(frozen=True, slots=True)
class Written:
    """The file as a model left it, and the notes before and after."""

    data: bytes
    before: Notes
    after: Notes


async def by_model(
    session: LiveSession, seen: tuple[View, Facts], models: Sequence[Model], file: NotesFile, begin: tuple[Start, Notes]
) -> tuple[Fork | None, Written | str]:
    """Let a model bring the notes up to date. Gives the fork, if there was one, and what was written, or why not."""
    view, facts = seen
    start, form = begin
    instead_of, before = await start()
    shown = adopted(before)
    has_tool = has_edit(view)
    try:
        custom = await file.custom(PROMPT)
        words = update_prompt(shown, budget_of(facts), file.path, custom, has_tool=has_tool)
    except BadSetting as e:
        return None, f"prompt: {e}"
    desk, permit = Desk(render(shown), form), EditPermit(lexical(file.path))
    errand = Errand(
        job="notes",
        instruction=words,
        permit=permit.denial,
        run=desk.edit,
        goes_on=wants_more,
        reply=desk.read,
        most_turns=facts.settings.notes_turns,
    )
    fork = await run_fork(session, view, facts, models, errand)
    fork.reason, data = await _kept(desk, fork.reason, file, (start, instead_of), facts.secret_key)
    return fork, fork.reason if data is None else Written(data, before, parse(data.decode()))


async def _kept(
    desk: Desk, reason: str, file: NotesFile, begin: tuple[Start, bytes | None], key: bytes
) -> tuple[str, bytes | None]:
    """Write what the fork made of the notes; gives its bytes, or None and the reason why nothing was written."""
    start, instead_of = begin
    if reason and not (desk.made and reason.startswith("turns:")):
        return reason, None
    if not desk.made:
        return "no_edits: the model made no edit, so what it saw isn't known to be in the notes", None
    for _ in range(_TRIES):
        data = redact(desk.text, key).text.encode("utf-8", "replace")  # SEC-5
        if data == instead_of or await file.write(data, instead_of=instead_of):
            return reason, data
        instead_of, now = await start()  # somebody saved it meanwhile: theirs stays, and ours goes on top
        made, desk = desk.made, Desk(render(adopted(now)), desk.form)
        if any([(await desk.edit(EDIT, one)).is_error for one in made]):
            return "edited_meanwhile: the edits don't fit what was saved while the model wrote", None
    return "edited_meanwhile: the file kept changing while the notes were written", None
