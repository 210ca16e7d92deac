"""Consolidation of a memory directory, and the keeper that does it when it is due (MEM-11)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec

from perdure import prompts
from perdure.compaction.side_requests import side_request
from perdure.context.policy import Facts
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.context.view import ContextView
from perdure.engine.ask import OFFLINE, JobModels, ask_job, background_models
from perdure.engine.background import MAIN, answered
from perdure.engine.guarded_memory import GuardedMemory
from perdure.engine.session import LiveSession
from perdure.errors import FileRefused, FolderBusy, MemoryChanged
from perdure.events import MemoryConsolidated
from perdure.memory.changes import MemoryProposal, Stamp, diff, least_trusted
from perdure.memory.consolidation import (
    ConsolidationPlan,
    DatedMemory,
    files_after,
    overlapping_groups,
    plan_consolidation,
    plan_indexed,
    question,
    rewritten,
)
from perdure.memory.index_file import IndexLimits
from perdure.memory.pace import HOUR_SECONDS
from perdure.memory.trust.gate import new_violation
from perdure.ports.session import Model
from perdure.text.frontmatter import front_matter
from perdure.transcript.records import Record

MOST_FILES = 5_000
ANSWER_TOKENS = 4_000
COPIED = 4  # files of one second: they were copied or checked out, and weren't written then
_DAY = re.compile(r"(20\d\d)[-_](\d\d)[-_](\d\d)")
MOST_GROUPS = 20  # that a model is asked about in one go


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationResult:
    """What was done, or with `dry_run` would be: the diff, what was merged and dropped, and what is left to look at.

    `outcome`: nothing, written, waits (in the inbox), changed (somebody wrote meanwhile: nothing was done) or dry-run.
    `change` is the id by which it is undone or reviewed.
    """

    outcome: str
    diff: str = ""
    change: str = ""
    plan: ConsolidationPlan = field(default_factory=ConsolidationPlan)
    model: str = OFFLINE


@dataclass(frozen=True, slots=True)
class Consolidator:
    """Puts one directory in order. `session` is for asking `models` only."""

    memory: GuardedMemory
    limits: IndexLimits
    session: LiveSession | None = None
    models: Sequence[Model] = ()

    async def run(self, stamp: Stamp, *, dry_run: bool = False) -> ConsolidationResult:
        """Read everything, make the plan, and apply it. Raises `FileRefused` for a directory that can't be read."""
        files = await self._files()
        plan = plan_consolidation(files, self.limits)
        plan, model = await self._contradictions(files, plan)
        plan = self._allowed(files, plan)
        batch = plan.batch(files)
        if batch is None:
            return self._emitted(ConsolidationResult(outcome="nothing", plan=plan, model=model))
        done = ConsolidationResult(outcome="dry-run", diff=diff(batch, None), plan=plan, model=model)
        if dry_run:
            return done
        origin = least_trusted((*batch.origins, stamp.origin))
        try:
            made = await self.memory.change(batch, msgspec.structs.replace(stamp, origin=origin))
        except MemoryChanged:
            return self._emitted(replace(done, outcome="changed"))
        if isinstance(made, MemoryProposal):
            return self._emitted(replace(done, outcome="waits", change=made.id))
        return self._emitted(replace(done, outcome=made.outcome, change=made.entry))

    def _emitted(self, done: ConsolidationResult) -> ConsolidationResult:
        plan = done.plan
        removed = sum(text is None for text in plan.texts.values())
        changed = len(plan.texts) - removed
        self.memory.sink.emit(
            MemoryConsolidated(done.model, done.outcome, len(plan.merged), changed, removed, len(plan.left))
        )
        return done

    async def _files(self) -> dict[str, DatedMemory]:
        """All files, as of when they were last written: what the file says of that, else the log, else the disk."""
        known = await self.memory.store.provenance()
        found: dict[str, DatedMemory] = {}
        stats = (await self.memory.store.listing()).files[:MOST_FILES]
        times = Counter(int(stat.mtime) for stat in stats)
        for stat in stats:
            if not stat.name.endswith(".md"):
                continue
            try:
                file = await self.memory.store.read(stat.name)
            except FileRefused:
                continue
            if file is None or "\udc80" <= max(file.text, default="") <= "\udcff":
                continue  # gone, or no UTF-8: nobody should rewrite that
            about = known.get(stat.name)
            is_ours = about is not None and about.digest == file.digest
            at = about.stamp.at if about is not None and is_ours else None
            at = _said_at(stat.name, file.text) or at
            is_dated = at is not None or times[int(stat.mtime)] < COPIED
            origin = about.least if about is not None else "assistant"
            found[stat.name] = DatedMemory(
                name=stat.name, text=file.text, at=at or stat.mtime, is_dated=is_dated, origin=origin
            )
        return found

    def _allowed(self, files: dict[str, DatedMemory], plan: ConsolidationPlan) -> ConsolidationPlan:
        """Without the merges that the gate would refuse: they stay as they are, and are said."""
        batch = plan.batch(files)
        for change in batch.changes if batch else ():
            broken = new_violation(change)
            if broken is None:
                continue
            sources = {change.name, *(gone for gone, into in plan.merged.items() if into == change.name)}
            kept = {name: one for name, one in files.items() if name not in sources}
            again = plan_consolidation(kept, self.limits)
            without = {n: t for n, t in again.texts.items() if not n.endswith("MEMORY.md")}
            return replace(again, texts=without, left=(*again.left, f"{change.name}: breaks the rule {broken[0]}"))
        return plan

    # --- with a model

    async def _contradictions(
        self, files: dict[str, DatedMemory], plan: ConsolidationPlan
    ) -> tuple[ConsolidationPlan, str]:
        """What a model makes of memories about one subject, as far as its answer accounts for every line."""
        models = [one for one in self.models if one.about.id != OFFLINE]
        if not models or self.session is None:
            return plan, OFFLINE
        groups = overlapping_groups(files_after(files, plan))[:MOST_GROUPS]
        asked, tried = OFFLINE, list[str]()
        for group in groups:
            facts, system = self.session.facts("memory"), prompts.source("memory_consolidate_system")

            def asking(about: ModelInfo, text: str = question(group)) -> tuple[ModelRequest, int]:
                tried.append(about.id)
                return side_request(about, facts, system=system, text=text, output_tokens=ANSWER_TOKENS)  # noqa: B023

            said = await ask_job(
                self.session, JobModels(extractor=tuple(models)), "extractor", asking, billed_as="consolidation"
            )
            if not isinstance(said, Reply):
                plan = replace(plan, left=(*plan.left, f"a model wasn't to be had: {said.reason}"))
                break
            asked = tried[-1]  # whoever answered: a fall-back, where the first didn't
            plan = rewritten(group, said.text, plan)
        return (plan_indexed(files, plan, self.limits) if asked != OFFLINE else plan), asked


def _said_at(name: str, text: str) -> float | None:
    """The day that a file, or its name, says it was last changed on, in seconds; None when it doesn't say."""
    front = front_matter(text)
    fields = [front.text(one) or front.inner("metadata").get(one) for one in ("modified", "updated", "date", "created")]
    for value in (*fields, name, front.text("name")):
        found = _DAY.search(value) if isinstance(value, str) else None
        if found is not None:
            try:
                return datetime(*map(int, found.groups()), tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]
            except ValueError:
                continue
    return None


NAME = "consolidation"


@dataclass(slots=True)
class ConsolidationKeeper:
    """It looks once an hour at the end of a turn, when nobody waits for anything. What agents may do, it may do."""

    session: LiveSession
    memory: GuardedMemory
    name: str = NAME
    _looked: float | None = None

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        settings, now, answer = facts.settings, facts.now or 0.0, answered(view)
        is_on = settings.memory and settings.memory_consolidate and self.memory.mode not in ("off", "read-only")
        if not is_on or facts.source != MAIN or answer is None or answer.tool_uses:
            return False
        if self._looked is not None and now - self._looked < HOUR_SECONDS:
            return False
        self._looked = now
        return True

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        settings, clock, store = facts.settings, self.session.ports.clock, self.memory.store
        seconds = settings.memory_consolidate_hours * HOUR_SECONDS
        wanted = settings.memory_consolidate_sessions
        if not await store.is_due(self.session.id, clock.now(), seconds=seconds, sessions=wanted):
            return ()
        helpers = background_models(self.session).helpers
        limits = IndexLimits.of(settings)
        consolidator = Consolidator(self.memory, limits, session=self.session, models=helpers.extractor)
        try:
            async with store.alone():
                stamp = Stamp(origin="assistant", at=clock.now(), session=self.session.id)
                if (await consolidator.run(stamp)).outcome != "changed":
                    await store.done(clock.now())
        except FolderBusy:
            return ()  # somebody else is at it
        return ()
