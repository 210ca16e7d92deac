"""Instruction files as reminders: at the start, when calls touch a folder that has its own, when they change (INS-1 to
INS-6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perdure.context.instructions import (
    ShownInstructions,
    block_text,
    change_text,
    changes_message,
    gone_text,
    head_line_path,
    nested_message,
    pack_instructions,
    start_message,
)
from perdure.context.policy import tool_table
from perdure.context.view import item_has_results
from perdure.engine.reminders import Moment
from perdure.engine.session import LiveSession, Services
from perdure.events import InstructionsChanged, InstructionsLoaded
from perdure.memory.instructions import FittedFile, Instruction, LoadedInstructions, fit_files
from perdure.ports.memory import InstructionFiles
from perdure.transcript.messages import Message
from perdure.transcript.tokens import base_tokens
from perdure.transcript.tool_calls.files import touched_paths

NAME = "instructions"
_NESTED_SHARE = 10  # of the budget: what a nested load may take at least, however much stands there already


class InstructionReminders:
    """The source of reminders that instruction files are; `again` gives them for a compaction (RST-7)."""

    name = NAME

    def __init__(self, session: LiveSession, files: InstructionFiles) -> None:
        self._session = session
        self._files = files
        self._told = ShownInstructions()

    async def remind(self, session: LiveSession, moment: Moment) -> Sequence[Message]:
        told = self._told.follow(session.view)
        found = await (self._before(told) if moment == "before" else self._behind(told))
        return [message for message in found if message is not None]

    async def current_text(self) -> str | None:
        """The files as they are now, for the restorer; None when nothing loads."""
        gathered = await self._files.at_start()
        self._tell(gathered, "compact")
        return pack_instructions(gathered.files) if gathered.files else None

    async def _before(self, told: ShownInstructions) -> list[Message | None]:
        gathered = await self._files.at_start()
        if not told.files:
            self._tell(gathered, "start")
            return [start_message(fit_files(gathered.files, self._budget()))]
        return [changes_message(await self._changes(told, gathered))]

    async def _changes(self, told: ShownInstructions, gathered: LoadedInstructions) -> list[str]:
        """What to say of files that changed, came, or went since they were told (INS-6)."""
        files = {head_line_path(file.path): file for file in gathered.files}
        nested = tuple(path for path in told.files if path not in files and told.files[path].is_nested)
        if nested:
            files |= {head_line_path(file.path): file for file in (await self._files.reload(nested)).files}
        same = {file.revision for file in files.values()}
        new = [file for path, file in files.items() if path not in told.files]
        texts = [block_text(one) for one in self._fitted(told, new)]
        for path, known in told.files.items():
            file = files.get(path)
            if file is None and known.revision not in same:  # one of the same content goes on in its place
                texts.append(gone_text(path))
            elif file is not None and file.revision != known.revision:
                texts.append(change_text(file, known, self._session.settings.instructions_diff_tokens))
        if texts:
            self._session.emit(InstructionsChanged(len(texts)))
        return texts

    async def _behind(self, told: ShownInstructions) -> list[Message | None]:
        """Nested files of what the calls since the last answer touched; none twice, by path or content (INS-4)."""
        view = self._session.view
        if not any(item_has_results(item) for item in view.items[view.sent :]):
            return []
        tools = tool_table(self._session.settings)
        paths = touched_paths((item.message for item in view.items[view.sent :] if not item.is_hidden), tools)
        if not paths:
            return []
        gathered = await self._files.touched(paths)
        revisions = {known.revision for known in told.files.values()}
        new = [f for f in gathered.files if head_line_path(f.path) not in told.files and f.revision not in revisions]
        if new:
            self._tell(LoadedInstructions(tuple(new)), "nested")
        return [nested_message(self._fitted(told, new))]

    def _fitted(self, told: ShownInstructions, new: Sequence[Instruction]) -> tuple[FittedFile, ...]:
        if not new:
            return ()
        budget = self._budget()
        used = sum(base_tokens(known.shown) for known in told.files.values())
        return fit_files(new, max(budget - used, budget // _NESTED_SHARE))

    def _budget(self) -> int:
        return self._session.limits.scaled(self._session.settings.instructions_tokens)

    def _tell(self, gathered: LoadedInstructions, why: str) -> None:
        if gathered.files:
            tokens = sum(file.tokens for file in gathered.files)
            self._session.emit(InstructionsLoaded(why, len(gathered.files), tokens))


def with_instructions(session: LiveSession, services: Services, files: InstructionFiles) -> Services:
    """The services with these instruction files: as reminders, and back after a compaction."""
    source = InstructionReminders(session, files)
    sources = {**services.sources, NAME: source.current_text}
    return replace(services, reminders=(*services.reminders, source), sources=sources)
