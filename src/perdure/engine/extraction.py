"""The keeper that extracts memories after a turn, and the fork it asks (MEM-6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar

import anyio.to_thread

from perdure import prompts
from perdure.context.cuts import legal_cuts
from perdure.context.policy import Facts
from perdure.context.provenance import origin_of, writes_memory
from perdure.context.view import ContextView
from perdure.engine.ask import OFFLINE
from perdure.engine.background import PacedKeeper
from perdure.engine.fork import ForkResult, ForkTask, ForkToolResult, run_fork, tool_definitions
from perdure.engine.guarded_memory import ExtractionCounts, GuardedMemory, new_memory, save_change, save_remark
from perdure.engine.session import LiveSession
from perdure.errors import FileRefused
from perdure.events import ExtractionFellBack, ExtractionSkipped, MemoriesExtracted
from perdure.memory.changes import TRUST, Origin, SaveMemory, Stamp, least_trusted
from perdure.memory.dates import day_of
from perdure.memory.files import topic
from perdure.memory.pace import UpdatePace, UpdateTriggers
from perdure.memory.permits import BASH, EDIT, GLOB, GREP, WRITE, WRITES, MemoryPermit, answer_read
from perdure.memory.remarks import kind_of, remarks
from perdure.memory.retrieval import MemoryCard, MemoryQuery
from perdure.memory.save import memory_text
from perdure.memory.trust.labels import TrustLevel
from perdure.memory.trust.secrets import secrets_of
from perdure.ports.memory import MemorySearch, MemoryStore
from perdure.ports.session import Model
from perdure.text.frontmatter import front_matter
from perdure.transcript.messages import MessageId, Usage, spoken
from perdure.transcript.records import Cursor, Record

MOST_FILES = 2_000  # of a directory, whose texts an extractor may search
MOST_MEMORY_CHARS = 20_000  # of one that a model writes
LISTED = 200
_MEMORY = re.compile(r'^<memory file="([^"\n]+)">\n(.*?)^</memory>\s*$', re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class MemoryDraft:
    """The texts of a directory as the fork sees them: read when first wanted, and edited here only."""

    store: MemoryStore
    permit: MemoryPermit
    bases: dict[str, str | None] = field(default_factory=dict)  # as they were read
    texts: dict[str, str] = field(default_factory=dict)  # as they are now
    _has_all: bool = False

    async def run(self, tool: str, arguments: Mapping[str, Any]) -> ForkToolResult:
        """Do an allowed call."""
        try:
            if tool in WRITES:
                return await self._written(tool, arguments)
            if tool in (BASH, GREP, GLOB):
                await self._read_all()
            else:
                await self._text(self.permit.name_of(arguments.get("file_path") or arguments.get("path")) or "")
        except FileRefused as e:
            return ForkToolResult(str(e), is_error=True)
        return ForkToolResult(*answer_read(tool, arguments, self.texts, self.permit))

    async def _written(self, tool: str, arguments: Mapping[str, Any]) -> ForkToolResult:
        name = self.permit.name_of(arguments.get("file_path") or arguments.get("path")) or ""
        current = await self._text(name)
        if tool == WRITE:
            new = arguments.get("content")
            if not isinstance(new, str):
                return ForkToolResult("content has to be a text", is_error=True)
        else:
            old, to = arguments.get("old_string"), arguments.get("new_string")
            if current is None or not isinstance(old, str) or not isinstance(to, str):
                return ForkToolResult(
                    f"{name}: there is no such memory, or old_string or new_string is no text", is_error=True
                )
            times = current.count(old) if old else 0
            if times != 1 and not (times and arguments.get("replace_all") is True):
                return ForkToolResult(f"old_string is {times} times in {name}", is_error=True)
            new = current.replace(old, to)
        if len(new) > MOST_MEMORY_CHARS:
            return ForkToolResult(f"{name}: over {MOST_MEMORY_CHARS:,} characters: a memory is short", is_error=True)
        self.texts[name] = new if new.endswith("\n") else f"{new}\n"
        return ForkToolResult("done")

    async def read_answer(self, text: str) -> str | None:
        """Take the memories that an answer holds as text; what to say about those that were refused."""
        wrong = []
        for name, content in _MEMORY.findall(text):
            arguments = {"file_path": name, "content": content}
            denial = self.permit.denial(WRITE, arguments)
            answer = ForkToolResult(denial, is_error=True) if denial else await self.run(WRITE, arguments)
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
    def changes(self) -> tuple[SaveMemory, ...]:
        """What came of the edits."""
        return tuple(
            SaveMemory(name=name, text=text, base=self.bases.get(name))
            for name, text in self.texts.items()
            if text != self.bases.get(name)
        )


async def extract_by_model(
    session: LiveSession,
    seen: tuple[ContextView, Facts],
    models: Sequence[Model],
    store: MemoryStore,
    about: tuple[str, str, str],
) -> tuple[ForkResult, tuple[SaveMemory, ...]]:
    """Let a model say what is worth saving. `about`: the directory, its memories as a list, and since when to look.

    Gives the fork, with a reason in it where it failed, and the changes that it wants.
    """
    view, facts = seen
    where, memories, since = about
    turns = facts.settings.memory_extract_turns
    draft = MemoryDraft(store, MemoryPermit(where))
    has_tools = {EDIT, WRITE} <= tool_definitions(view).keys()
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

    async def run(tool: str, arguments: Mapping[str, Any]) -> ForkToolResult:
        was_writing.append(tool in WRITES)
        return await draft.run(tool, arguments)

    def goes_on(answers: Sequence[ForkToolResult]) -> bool:
        """Writing ends it, when all of it was done: nothing is paid for hearing so."""
        ran, wrote = bool(was_writing), bool(was_writing) and all(was_writing)
        was_writing.clear()
        return not (ran and wrote) or any(answer.is_error for answer in answers)

    task = ForkTask(
        job="extractor",
        instruction=words,
        permit=draft.permit.denial,
        run=run,
        continues=goes_on,
        reply=draft.read_answer,
        most_turns=turns,
    )
    return await run_fork(session, view, facts, models, task), draft.changes


def memory_list(cards: Sequence[MemoryCard]) -> str:
    """The memories that there are, a line for each, for a model that is to change one rather than add another."""
    lines = [f"- {card.file} [{card.type or 'untyped'}] {card.name}: {card.description[:120]}" for card in cards]
    return "\n".join(lines) or "none yet"


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a person said: the message, when (seconds), and its text."""

    message: MessageId
    at: float
    text: str


NAME = "memory"  # of the keeper, its cursor, and the source of its requests (PRS-5)


@dataclass(eq=False)
class ExtractionKeeper(PacedKeeper):
    """The keeper of one session's memories. It reads the session and never changes it."""

    name: ClassVar = NAME
    job = "extractor"
    skipped = ExtractionSkipped
    is_on = attrgetter("memory_extract")

    memory: GuardedMemory
    search: MemorySearch
    _looked_at: MessageId | None = field(default=None, init=False)  # nothing to keep up to this message

    # --- when -------------------------------------------------------------------------------------------------------

    def is_wanted(self, view: ContextView, facts: Facts) -> bool:
        if not facts.settings.memory or self.memory.mode in ("off", "read-only"):
            return False
        if view.items[-1].message.tool_uses:
            return False  # in the middle of a turn
        why = self._why_not(view)
        if why:
            self.skip(why)
            return False
        has_models = bool(self.models())
        has_remarks = any(remarks(one.text, one.at) for one in self._heard(view, len(view.items)))
        if not (has_models or has_remarks):  # code would find nothing
            self._looked_at = view.items[-1].message.id
            self.skip("no_remark")
            return False
        triggers = _limits(facts, has_models=has_models, has_remarks=has_remarks)
        if self.is_too_early(view, triggers.growth_tokens):
            return False
        return self.is_time(view, facts, triggers, lambda: UpdatePace(has_begun=True, spent=self.paid()))

    def _why_not(self, view: ContextView) -> str:
        """Nothing was said since the last look, or the turn that ended wrote memory itself."""
        for item in reversed(view.items[self._after(view) :]):
            if any(writes_memory(use, self.search.where) for use in item.message.tool_uses):
                return "turn_wrote"
            if spoken(item.message):
                return ""
        return "nothing_new"

    def _after(self, view: ContextView) -> int:
        """The first position that no extraction has covered, and no look found empty."""
        cursor = view.state.cursors.get(NAME)
        seen = (cursor.message if cursor is not None else None, self._looked_at)
        return 1 + max(view.positions.get(one, -1) if one is not None else -1 for one in seen)

    def _heard(self, view: ContextView, upto: int) -> tuple[UserMessage, ...]:
        """What a person said since, up to a position, but for turns in which memory was written."""
        found: list[list[UserMessage]] = []
        for item in view.items[self._after(view) : upto]:
            text = spoken(item.message)
            if text:
                found.append([UserMessage(item.message.id, item.message.at or 0.0, text)])
            elif found and any(writes_memory(use, self.search.where) for use in item.message.tool_uses):
                found[-1].clear()
        return tuple(one for turn in found for one in turn)

    # --- how --------------------------------------------------------------------------------------------------------

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        self.begin()
        facts = replace(facts, source=NAME)
        triggers = _limits(facts, has_models=True, has_remarks=True)
        tally = ExtractionCounts()
        is_changed: bool | None = None
        try:
            covered = await self._by_model(view, facts, tally)
            if covered is None:
                covered = await self._by_rules(view, tally)
            is_changed = True
        finally:
            self.end(triggers, is_changed=is_changed)
        self._tell(tally)
        if covered <= self._after(view):
            return ()
        return (Cursor(name=NAME, message=view.items[covered - 1].message.id), *self.spent())

    @property
    def _now(self) -> float:
        return self.session.ports.clock.now()

    def _tell(self, tally: ExtractionCounts) -> None:
        fork = self.fork
        usage = fork.usage if fork else Usage()
        self.session.emit(
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

    async def _by_model(self, view: ContextView, facts: Facts, tally: ExtractionCounts) -> int | None:
        """What a model wants saved is saved; how far it saw, or None when it didn't do it, which is said."""
        models = self.models() if self._may_ask else ()
        if not models:
            return None
        words = self._heard(view, len(view.items))
        wanted = MemoryQuery(
            query="\n".join(one.text for one in words)[-4_000:], limit=LISTED, floor=0.0, now=self._now
        )
        cards = (await self.search.find(wanted, fill=True)).cards
        since = f'"{words[0].text[:80]}"' if words else "the beginning"
        about = (self.search.where, memory_list(cards), since)
        fork, changes = await extract_by_model(self.session, (view, facts), models, self.memory.store, about)
        self.spend(fork)
        if fork.reason and not (changes and fork.reason.startswith("turns:")):
            self.session.emit(ExtractionFellBack(fork.about.id, fork.reason))
            return None
        message = words[-1].message if words else ""
        heard = frozenset(secret for one in words for secret in secrets_of(one.text))
        judge = await self._judge(view, fork.upto)
        for draft in changes:
            change, origin = await anyio.to_thread.run_sync(_vouched, draft, judge)
            if not change.name:
                change = await new_memory(self.memory.store, change.text)
            await save_change(self.memory, change, self._stamp(message, origin), tally, heard=heard)
        return fork.upto

    async def _judge(self, view: ContextView, upto: int) -> Callable[[str, str | None], Origin]:
        """Whose word a text is: by what the model saw, which is that much of the view and the memories (MEM-10)."""
        access = self.session.services.memories
        known = await access.origins() if access is not None else {}
        seen = [one.least for one in (await self.memory.store.provenance()).values()]
        inherited: Origin = access.inherited if access is not None and access.inherited is not None else "user"

        def judge(text: str, base: str | None) -> Origin:
            return least_trusted((inherited, origin_of(view, text, base, memories=known, seen=seen, upto=upto)))

        return judge

    async def _by_rules(self, view: ContextView, tally: ExtractionCounts) -> int:
        """Save what the rules find in the user's words up to the last closed pair; how far that is."""
        upto = legal_cuts(view, loops=False)[-1]
        for one in self._heard(view, upto):
            for remark in remarks(one.text, one.at or self._now):
                stamp = self._stamp(one.message, "user" if remark.is_typed else "web")
                await save_remark(self.memory, self.search, remark, stamp, tally)
        return upto

    # --- saving -----------------------------------------------------------------------------------------------------

    def _stamp(self, message: str, origin: Origin) -> Stamp:
        return Stamp(origin=origin, at=self._now, session=self.session.id, message=message)


def _vouched(change: SaveMemory, judge: Callable[[str, str | None], Origin]) -> tuple[SaveMemory, Origin]:
    """The change with whose word it is. A new memory in the user's words gets a title of ours, where its own isn't."""
    origin, body = judge(change.text, change.base), front_matter(change.text).body
    if TRUST[origin] is TrustLevel.OUTSIDE and change.base is None and judge(body, None) == "user":
        kind = topic(change.name, change.text).type or kind_of(body)
        return SaveMemory(name="", text=memory_text(type=kind, body=body)), "user"
    return change, origin


def _limits(facts: Facts, *, has_models: bool, has_remarks: bool) -> UpdateTriggers:
    """Rules cost nothing, so they look after every turn; a model waits until there is something to read (SM-9)."""
    settings = facts.settings
    return UpdateTriggers(
        first_tokens=0,
        growth_tokens=settings.memory_extract_growth_tokens if has_models and not has_remarks else 0,
        calls=0,
        runs_per_hour=settings.memory_extract_runs_per_hour if has_models else 0,
        tokens_per_hour=settings.memory_extract_tokens_per_hour,
    )
