"""Consolidation of a memory directory: read, put in order on a copy, applied as one change (MEM-11).

Duplicates, dates and the index by code; contradictions by a model, where there is one. All of it is one batch: one diff
to review, made if nobody changed a file meanwhile, and taken back by one undo.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec

from holdfast.context.asides import aside
from holdfast.context.replies import About, Reply
from holdfast.context.requests import Request
from holdfast.engine.models import OFFLINE, Models, ask_job
from holdfast.engine.remembering import Memory
from holdfast.engine.session import LiveSession
from holdfast.errors import FileRefused, MemoryChanged
from holdfast.events import MemoryConsolidated
from holdfast.memory.changes import Proposal, Stamp, diff, least_trusted
from holdfast.memory.contents import Limits
from holdfast.memory.frontmatter import front_matter
from holdfast.memory.trust.gate import added
from holdfast.memory.upkeep.order import Kept, Order, indexed, ordered, standing
from holdfast.memory.upkeep.rewriting import contested, question, rewritten, system_prompt
from holdfast.ports import MemoryLog, Model

MOST_FILES = 5_000
ANSWER_TOKENS = 4_000
COPIED = 4  # files of one second: they were copied or checked out, and weren't written then
_DAY = re.compile(r"(20\d\d)[-_](\d\d)[-_](\d\d)")
MOST_GROUPS = 20  # that a model is asked about in one go


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidated:
    """What was done, or with `dry_run` would be: the diff, what was merged and dropped, and what is left to look at.

    `outcome`: nothing, written, waits (in the inbox), changed (somebody wrote meanwhile: nothing was done) or dry-run.
    `change` is the id by which it is undone or reviewed.
    """

    outcome: str
    diff: str = ""
    change: str = ""
    order: Order = field(default_factory=Order)
    model: str = OFFLINE


@dataclass(frozen=True, slots=True)
class Consolidator:
    """Puts one directory in order. `log` tells where its files come from; `session` is for asking `models` only."""

    memory: Memory
    log: MemoryLog
    limits: Limits
    session: LiveSession | None = None
    models: Sequence[Model] = ()

    async def run(self, stamp: Stamp, *, dry_run: bool = False) -> Consolidated:
        """Read everything, make the plan, and apply it. Raises `FileRefused` for a directory that can't be read."""
        files = await self._files()
        order = ordered(files, self.limits)
        order, model = await self._contradictions(files, order)
        order = self._allowed(files, order)
        batch = order.batch(files)
        if batch is None:
            return self._told(Consolidated(outcome="nothing", order=order, model=model))
        done = Consolidated(outcome="dry-run", diff=diff(batch, None), order=order, model=model)
        if dry_run:
            return done
        origin = least_trusted((*batch.origins, stamp.origin))
        try:
            made = await self.memory.change(batch, msgspec.structs.replace(stamp, origin=origin))
        except MemoryChanged:
            return self._told(replace(done, outcome="changed"))
        if isinstance(made, Proposal):
            return self._told(replace(done, outcome="waits", change=made.id))
        return self._told(replace(done, outcome=made.outcome, change=made.entry))

    def _told(self, done: Consolidated) -> Consolidated:
        order = done.order
        removed = sum(text is None for text in order.texts.values())
        changed = len(order.texts) - removed
        self.memory.sink.emit(
            MemoryConsolidated(done.model, done.outcome, len(order.merged), changed, removed, len(order.left))
        )
        return done

    async def _files(self) -> dict[str, Kept]:
        """All files, as of when they were last written: what the file says of that, else the log, else the disk."""
        known = await self.log.provenance()
        found: dict[str, Kept] = {}
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
            found[stat.name] = Kept(
                name=stat.name, text=file.text, at=at or stat.mtime, is_dated=is_dated, origin=origin
            )
        return found

    def _allowed(self, files: dict[str, Kept], order: Order) -> Order:
        """Without the merges that the gate would refuse: they stay as they are, and are said."""
        batch = order.batch(files)
        for change in batch.changes if batch else ():
            broken = added(change)
            if broken is None:
                continue
            sources = {change.name, *(gone for gone, into in order.merged.items() if into == change.name)}
            kept = {name: one for name, one in files.items() if name not in sources}
            again = ordered(kept, self.limits)
            without = {n: t for n, t in again.texts.items() if not n.endswith("MEMORY.md")}
            return replace(again, texts=without, left=(*again.left, f"{change.name}: breaks the rule {broken[0]}"))
        return order

    # --- with a model

    async def _contradictions(self, files: dict[str, Kept], order: Order) -> tuple[Order, str]:
        """What a model makes of memories about one subject, as far as its answer accounts for every line."""
        models = [one for one in self.models if one.about.id != OFFLINE]
        if not models or self.session is None:
            return order, OFFLINE
        groups = contested(standing(files, order))[:MOST_GROUPS]
        asked, tried = OFFLINE, list[str]()
        for group in groups:
            facts = self.session.facts("memory")

            def asking(about: About, text: str = question(group)) -> tuple[Request, int]:
                tried.append(about.id)
                return aside(about, facts, system=system_prompt(), text=text, output_tokens=ANSWER_TOKENS)  # noqa: B023

            said = await ask_job(self.session, Models(extractor=tuple(models)), "extractor", asking)
            if not isinstance(said, Reply):
                order = replace(order, left=(*order.left, f"a model wasn't to be had: {said.reason}"))
                break
            asked = tried[-1]  # whoever answered: a fall-back, where the first didn't
            order = rewritten(group, said.text, order)
        return (indexed(files, order, self.limits) if asked != OFFLINE else order), asked


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
