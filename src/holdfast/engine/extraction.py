"""The keeper that extracts memories after a turn (MEM-6).

A model proposes where the session has one for this job, rules do where it has none or the model fails. Whose word a
memory is, code decides; the gate before the store then writes it, or puts it into the inbox (MEM-10). The cursor goes
into the journal after the writes: a crash in between repeats a look at the same words, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import anyio.to_thread

from holdfast.context.cuts import legal_cuts
from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.context.voices import Heard, heard, voices, writes_memory
from holdfast.engine.extraction_fork import LISTED, by_model, listed
from holdfast.engine.fork import Fork
from holdfast.engine.helping import helping
from holdfast.engine.models import OFFLINE
from holdfast.engine.remembering import Memory
from holdfast.engine.session import LiveSession
from holdfast.errors import HoldfastError, MemoryChanged, MemoryRefused
from holdfast.events import ExtractionFellBack, ExtractionSkipped, MemoriesExtracted
from holdfast.memory import pace as pacing
from holdfast.memory.changes import Batch, Origin, Proposal, Save, Stamp
from holdfast.memory.pace import Answered, Limits, Pace
from holdfast.memory.retrieval.memories import TURN_FLOOR, Wanted
from holdfast.memory.spending import noted
from holdfast.memory.topics import INDEX, topic
from holdfast.memory.upkeep.remarks import Remark, remarks
from holdfast.memory.upkeep.saving import free_name, is_known, memory_text, with_line
from holdfast.ports import MemorySearch, Model
from holdfast.transcript.messages import Usage
from holdfast.transcript.records import Cursor, Record
from holdfast.transcript.spoken import spoken

NAME = "memory"  # of the keeper, its cursor, and the source of its requests (PRS-5)
MAIN = "user"
_TRIES = 3  # somebody may change the index while we write


@dataclass(slots=True)
class Tally:
    """What became of what was found."""

    written: int = 0
    proposed: int = 0
    known: int = 0
    refused: int = 0


@dataclass(slots=True)
class Extraction:
    """The keeper (`engine.keepers.Keeper`) of one session. It reads the session and never changes it."""

    session: LiveSession
    memory: Memory
    search: MemorySearch
    name: str = NAME
    pace: Pace | None = None
    fork: Fork | None = None  # the last one, with its own journal
    _said: str = ""
    _may_ask: bool = True
    _unrecorded: list[Record] = field(default_factory=list)  # spent, until a run that succeeds takes it along

    # --- when -------------------------------------------------------------------------------------------------------

    def is_due(self, view: View, facts: Facts) -> bool:
        settings = facts.settings
        if not (settings.memory and settings.memory_extract) or self.memory.mode in ("off", "read-only"):
            return False
        message = view.items[-1].message if view.items else None
        if message is None or message.role != "assistant" or message.tool_uses:
            return False  # in the middle of a turn
        why = self._why_not(view)
        if why:
            self._skipped(why)
            return False
        has_remarks = any(remarks(one.text, one.at) for one in self._heard(view, len(view.items)))
        limits = _limits(facts, has_models=bool(self._chain()), has_remarks=has_remarks)
        answered = Answered(
            message=message.id,
            tokens=view.size.base,
            calls=0,
            at=facts.now or 0.0,
            is_main=facts.source == MAIN,
            is_compacting=self.session.is_compacting,
        )
        self.pace, action = pacing.step(self.pace or self._resumed(), answered, limits)
        if isinstance(action, pacing.Skip):
            self._skipped(action.reason)
        if isinstance(action, pacing.Start):
            self._may_ask = action.may_ask
        return not isinstance(action, pacing.Skip)

    def _why_not(self, view: View) -> str:
        """Nothing was said since the last look, or the turn that ended wrote memory itself."""
        for item in reversed(view.items[_after(view) :]):
            if any(writes_memory(use, self.search.where) for use in item.message.tool_uses):
                return "turn_wrote"
            if spoken(item.message):
                return ""
        return "nothing_new"

    def _heard(self, view: View, upto: int) -> tuple[Heard, ...]:
        return heard(view, _after(view), upto, partial(writes_memory, where=self.search.where))

    def _resumed(self) -> Pace:
        """What models of this job read and wrote before this process counts, too (SM-9)."""
        return Pace(has_begun=True, spent=tuple((s.at, s.tokens) for s in self.session.spent if s.job == "extractor"))

    def _skipped(self, reason: str) -> None:
        if reason != self._said:
            self.session.world.sink.emit(ExtractionSkipped(reason))
        self._said = reason

    def _chain(self) -> tuple[Model, ...]:
        helpers = helping(self.session).helpers
        return tuple(one for one in helpers.extractor if one.about.id != OFFLINE)

    # --- how --------------------------------------------------------------------------------------------------------

    async def keep(self, view: View, facts: Facts) -> Sequence[Record]:
        self._said, self.fork = "", None
        facts = replace(facts, source=NAME)
        limits = _limits(facts, has_models=True, has_remarks=True)
        tally = Tally()
        try:
            covered = await self._by_model(view, facts, tally)
            if covered is None:
                covered = await self._by_rules(view, tally)
        except Exception:
            self._over(pacing.Failed(at=self._now, tokens=self._tokens), limits)
            raise
        self._over(pacing.Ended(at=self._now, tokens=self._tokens), limits)
        self._tell(tally)
        if covered <= _after(view):
            return ()
        spent, self._unrecorded = self._unrecorded, []
        return (Cursor(name=NAME, message=view.items[covered - 1].message.id), *spent)

    def _over(self, event: pacing.Event, limits: Limits) -> None:
        self.pace, action = pacing.step(self.pace or Pace(), event, limits)
        if isinstance(action, pacing.Start):
            self._may_ask = action.may_ask

    @property
    def _now(self) -> float:
        return self.session.world.clock.now()

    @property
    def _tokens(self) -> int:
        return self.fork.usage.total_tokens if self.fork else 0

    def _tell(self, tally: Tally) -> None:
        fork = self.fork
        usage = fork.usage if fork else Usage()
        self.session.world.sink.emit(
            MemoriesExtracted(
                fork.about.id if fork and not fork.reason else OFFLINE,
                tally.written,
                tally.proposed,
                tally.known,
                tally.refused,
                usage.total_tokens,
                fork.usd if fork else None,
            )
        )

    async def _by_model(self, view: View, facts: Facts, tally: Tally) -> int | None:
        """What a model wants saved is saved; how far it saw, or None when it didn't do it, which is said."""
        models = self._chain() if self._may_ask else ()
        if not models:
            return None
        words = self._heard(view, len(view.items))
        wanted = Wanted(query="\n".join(one.text for one in words)[-4_000:], limit=LISTED, floor=0.0, now=self._now)
        cards = (await self.search.find(wanted, fill=True)).cards
        since = f'"{words[0].text[:80]}"' if words else "the beginning"
        about = (self.search.where, listed(cards), since)
        fork, changes = await by_model(self.session, (view, facts), models, self.memory.store, about)
        self.fork = fork
        if (spent := fork.spent(self._now)) is not None:
            self._unrecorded.append(noted(spent))
        if fork.reason and not (changes and fork.reason.startswith("turns:")):
            self.session.world.sink.emit(ExtractionFellBack(fork.about.id, fork.reason))
            return None
        who = voices(view, fork.upto)
        message = words[-1].message if words else ""
        for change in changes:
            origin = await anyio.to_thread.run_sync(who.origin, change.text, change.base)
            await self._save(change, self._stamp(message, origin), tally)
        return fork.upto

    async def _by_rules(self, view: View, tally: Tally) -> int:
        """Save what the rules find in the user's words up to the last closed pair; how far that is."""
        upto = legal_cuts(view, loops=False)[-1]
        for one in self._heard(view, upto):
            for remark in remarks(one.text, one.at or self._now):
                await self._save_remark(remark, one, tally)
        return upto

    async def _save_remark(self, remark: Remark, source: Heard, tally: Tally) -> None:
        found = await self.search.find(Wanted(query=remark.text, floor=TURN_FLOOR, now=self._now))
        near = await self.search.read(tuple(one.card.file for one in found.chosen))
        names = {stat.name for stat in (await self.memory.store.listing()).files}
        own = f"{remark.stem}.md"  # the search may not have seen yet what was saved a moment ago
        if own in names and (file := await self.memory.store.read(own)) is not None:
            near = (*near, topic(own, file.text))
        if any(is_known(remark.text, one) for one in near):
            tally.known += 1
            return
        text = memory_text(name=remark.name, description=remark.text, type=remark.type, body=remark.body)
        change = Save(name=free_name(remark.stem, names), text=text)
        await self._save(change, self._stamp(source.message, "user"), tally)

    # --- saving -----------------------------------------------------------------------------------------------------

    def _stamp(self, message: str, origin: Origin) -> Stamp:
        return Stamp(origin=origin, at=self._now, session=self.session.name, message=message)

    async def _save(self, change: Save, stamp: Stamp, tally: Tally) -> None:
        """A memory and its line in the index, as one change; what waits already isn't proposed again."""
        if await self._waits(change):
            tally.known += 1
            return
        for left in reversed(range(_TRIES)):
            try:
                done = await self.memory.change(await self._with_index(change), stamp)
            except MemoryRefused:
                tally.refused += 1  # the gate said which rule it broke
                return
            except MemoryChanged:
                if left:
                    continue
                raise HoldfastError(
                    f"{change.name}: it kept changing while it was saved; the next turn tries"
                ) from None
            if isinstance(done, Proposal):
                tally.proposed += 1
            else:
                tally.written += done.outcome != "unchanged"
                tally.known += done.outcome == "unchanged"
            return

    async def _with_index(self, change: Save) -> Batch:
        folder = change.name.rpartition("/")[0]
        name = f"{folder}/{INDEX}" if folder else INDEX
        index = await self.memory.store.read(name)
        base = index.text if index else None
        line = Save(name=name, text=with_line(base, topic(change.name, change.text)), base=base)
        return Batch(name=change.name, changes=(change, line) if line.text != base else (change,))

    async def _waits(self, change: Save) -> bool:
        for proposal in await self.memory.store.pending():
            made = proposal.change.changes if isinstance(proposal.change, Batch) else (proposal.change,)
            if any(isinstance(one, Save) and (one.name, one.text) == (change.name, change.text) for one in made):
                return True
        return False


def _after(view: View) -> int:
    """The first position that no extraction has covered."""
    cursor = view.state.cursors.get(NAME)
    position = view.positions.get(cursor.message) if cursor is not None else None
    return 0 if position is None else position + 1


def _limits(facts: Facts, *, has_models: bool, has_remarks: bool) -> Limits:
    """Rules cost nothing, so they look after every turn; a model waits until there is something to read (SM-9)."""
    settings = facts.settings
    return Limits(
        first_tokens=0,
        growth_tokens=settings.memory_extract_growth_tokens if has_models and not has_remarks else 0,
        calls=0,
        runs_per_hour=settings.memory_extract_runs_per_hour if has_models else 0,
        tokens_per_hour=settings.memory_extract_tokens_per_hour,
    )
