"""`perdure memory`: memories found, read, checked, and changed by a person's own hand (MEM-4, MEM-7 to MEM-9, MEM-11).

What a person does here is written in every mode of `memory_mode`; secrets and planted instructions are refused to
everybody.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from perdure.cli.arguments import (
    Json,
    complete_models,
    complete_sessions,
    configured,
    examples,
    family,
    matching,
    open_editor,
)
from perdure.cli.kept import HERE, KeptIn, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import (
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    EXIT_OK,
    clean,
    cut,
    iso,
    moment,
    note,
    out,
    out_json,
    plural,
    size,
    table,
)
from perdure.errors import BadSetting, FileRefused, FolderBusy, NameTaken, PerdureError

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.adapters.memory.directory import MemoryDirectory
    from perdure.compaction.relevant import FactSource, RelevantFacts
    from perdure.engine.consolidate import ConsolidationResult
    from perdure.engine.guarded_memory import GuardedMemory
    from perdure.memory.changes import MemoryProposal, Stamp, WriteResult
    from perdure.memory.files import Topic
    from perdure.memory.retrieval import MemoryCard, MemoryQuery, RankedMemory
    from perdure.ports.home import KeptMemories


app = family(
    "Find, read, write and check memories.",
    'perdure memory search "how do I run the tests"',
    'perdure memory add "the staging database is read-only"',
    "perdure memory review",
)

Folder = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="This directory; without it, the one of this project.")
]
_EVERYTHING = 1_000_000  # memories of a directory
User = Annotated[bool, typer.Option("--user", help="Your own directory, for all projects.")]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """A directory of memories, as a person's own hand may change it: a folder, or a place of a database."""

    config: Config
    path: Path
    kept: KeptIn = HERE

    def run(self, work: Callable[[GuardedMemory], Awaitable[T]]) -> T:
        """Do something with the directory behind the gate, and wait for it."""

        async def body() -> T:
            async with self.kept.home() as home:
                return await work(_by_hand(home.memories(str(self.path), durability=self.config.settings.durability)))

        return in_loop(body)


def _by_hand(memories: KeptMemories) -> GuardedMemory:
    """A directory in which a person's own hand may write in every mode."""
    from perdure.adapters.sinks import NullSink
    from perdure.engine.guarded_memory import GuardedMemory

    return GuardedMemory(memories.store, NullSink(), "auto")


def memory_folder(
    directory: Path | None, is_user: bool, config: Config | None = None, kept: KeptIn = HERE
) -> MemoryFolder:
    """The directory that is meant, for changes by a person's own hand."""
    config = config or configured()
    return MemoryFolder(config, directory_of(config, directory, is_user=is_user, kept=kept), kept)


def directory_of(config: Config, given: Path | None, *, is_user: bool, kept: KeptIn = HERE) -> Path:
    """The directory that is meant; it needn't be there. `BadSetting` for two answers."""
    from perdure.memory.places import project_directory, user_directory

    if given is not None:
        if is_user:
            raise BadSetting("--dir can't be combined with --user")
        return given if kept.is_database else given.expanduser().absolute()
    if kept.is_database:
        from perdure.adapters.machine.repositories import memory_roots_in_rows

        roots = memory_roots_in_rows(os.getcwd(), directory=config.settings.memory_directory)
    else:
        from perdure.adapters.machine.repositories import memory_roots

        home = config.home if not (kept.store or kept.tenant) else _home_of(kept)
        roots = memory_roots(home, Path.cwd(), directory=config.settings.memory_directory)
    return Path(user_directory(roots) if is_user else project_directory(roots))


def _home_of(kept: KeptIn) -> Path:
    """The folder of a home on files."""

    from perdure.adapters.journal.home import FileHome

    async def found() -> Path:
        async with kept.home() as home:
            assert isinstance(home, FileHome)
            return home.path

    return in_loop(found)


class ShownMemories(Protocol):
    """A directory of memories as commands show it."""

    @property
    def path(self) -> Path: ...

    @property
    def cards(self) -> Mapping[str, MemoryCard]: ...

    def __len__(self) -> int: ...

    def left_out(self) -> tuple[tuple[str, str], ...]: ...

    def ask(self, wanted: MemoryQuery) -> tuple[RankedMemory, ...]: ...

    def read(self, file: str) -> Topic: ...


@dataclass(frozen=True, slots=True)
class DatabaseMemories:
    """`ShownMemories` of a database, which is asked anew for each."""

    folder: MemoryFolder
    path: Path
    cards: Mapping[str, MemoryCard]

    @classmethod
    def of(cls, folder: MemoryFolder) -> DatabaseMemories:
        """Those of a directory, as they are now."""
        from perdure.memory.retrieval import MemoryQuery

        async def listed(memories: KeptMemories) -> dict[str, MemoryCard]:
            everything = MemoryQuery(query="", limit=_EVERYTHING, now=time.time())
            found = await memories.search.find(everything, fill=True)
            return {card.file: card for card in found.cards}

        return cls(folder, folder.path, _searched(folder, listed))

    def __len__(self) -> int:
        return len(self.cards)

    def left_out(self) -> tuple[tuple[str, str], ...]:
        """Nothing: a database has no links."""
        return ()

    def ask(self, wanted: MemoryQuery) -> tuple[RankedMemory, ...]:
        """The memories for a question."""

        async def asked(memories: KeptMemories) -> tuple[RankedMemory, ...]:
            return (await memories.search.find(wanted)).chosen

        return _searched(self.folder, asked)

    def read(self, file: str) -> Topic:
        """One memory, whole."""

        async def read(memories: KeptMemories) -> tuple[Topic, ...]:
            return await memories.search.read((file,))

        if not (topics := _searched(self.folder, read)):
            raise FileNotFoundError(2, "removed just now", file)
        return topics[0]


def _searched(folder: MemoryFolder, work: Callable[[KeptMemories], Awaitable[T]]) -> T:

    async def body() -> T:
        async with folder.kept.home() as home:
            return await work(home.memories(str(folder.path)))

    return in_loop(body)


def opened_memories(config: Config, given: Path | None, *, is_user: bool, kept: KeptIn = HERE) -> ShownMemories:
    """The directory, read anew where it changed; of a project that has none yet, with nothing in it.

    Raises:
        BadSetting: One that was named isn't there, or can't be read.
    """
    if kept.is_database:
        return DatabaseMemories.of(memory_folder(given, is_user, config, kept))
    return _read_folder(config, given, is_user=is_user, kept=kept)


def _read_folder(config: Config, given: Path | None, *, is_user: bool, kept: KeptIn = HERE) -> MemoryDirectory:
    from perdure.adapters.memory.directory import MemoryDirectory, cache_of

    path = directory_of(config, given, is_user=is_user, kept=kept)
    found = MemoryDirectory(path, cache=cache_of(config.home, path))
    try:
        found.rescan()
    except FileNotFoundError:
        if given is not None:
            raise BadSetting(f"{path}: no such directory: name one with Markdown files") from None
    except OSError as e:
        raise BadSetting(f"{path}: {e.strerror or e}: name a directory that can be read") from None
    return found


def _none_yet(path: Path) -> str:
    return f"no memories yet; they will be kept in {clean(str(path))}"


# --- to find and read -------------------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        'perdure memory search "how do I run the tests"', "perdure memory search deploy --dir docs --limit 3"
    )
)
def search(
    query: Annotated[list[str], typer.Argument(metavar="WORD", help="What you want to know, in your own words.")],
    *,
    directory: Folder = None,
    user: User = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Show at most N memories.")] = 5,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Find the memories that matter to a question.

    Any directory of Markdown files will do; nothing is written into it.
    """
    search_memories(
        " ".join(query),
        configured(),
        directory=directory,
        is_user=user,
        limit=limit,
        is_json=json,
        kept=KeptIn(store, tenant),
    )


def search_memories(
    query: str,
    config: Config,
    *,
    directory: Path | None,
    is_user: bool,
    limit: int,
    is_json: bool,
    kept: KeptIn = HERE,
) -> None:
    """Print what matters to a question, best first."""
    from perdure.memory.retrieval import SEARCH_FLOOR, MemoryQuery

    began = time.perf_counter()
    memories = opened_memories(config, directory, is_user=is_user, kept=kept)
    by_meaning = config.settings.retrieval_semantic
    wanted = MemoryQuery(query=query, limit=limit, floor=SEARCH_FLOOR, now=time.time(), by_meaning=by_meaning)
    found = memories.ask(wanted) if len(memories) else ()
    spent = 1000 * (time.perf_counter() - began)
    if is_json:
        results = [
            {"file": one.card.file, "score": one.score, "name": one.card.name, "type": one.card.type, "why": one.why}
            for one in found
        ]
        out_json({"results": results, "scanned": len(memories), "ms": round(spent, 2)})
        return
    if not found:
        out(f"nothing in {plural(len(memories), 'file')} matches" if len(memories) else _none_yet(memories.path))
        return
    for number, one in enumerate(found, 1):
        kind = f" [{one.card.type}]" if one.card.type else ""
        out(f"{number}. {clean(one.card.file)}{kind} {one.score:.2f}: {cut(one.card.name, 80)}")
        if one.card.description:
            out(f"   {cut(one.card.description, 160)}")
        out(f"   {clean(one.why)}")


@app.command(
    epilog=examples(
        'perdure memory facts "deploy the site"',
        'perdure memory facts "fix the parser" --session @last',
        'perdure memory facts "fix the parser" --session @last --model anthropic:claude-haiku-4-5',
    )
)
def facts(
    task: Annotated[list[str], typer.Argument(metavar="TASK", help="What is to be done, in your own words.")],
    *,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION", help="Look in the record of this session, too.", autocompletion=complete_sessions
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The model that picks the facts; without one, code does.",
            autocompletion=complete_models,
        ),
    ] = None,
    directory: Folder = None,
    user: User = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Show at most N facts.")] = 12,
    json: Json = False,
) -> None:
    """Show the facts that matter to a task.

    Looks in the memories, and with --session in what happened there. Nothing is written.
    """

    config = configured()
    sources = [
        *_memory_sources(config, directory, is_user=user, task=" ".join(task)),
        *_session_sources(config, session),
    ]
    found = in_loop(_facts, config, " ".join(task), sources, model, limit)
    if json:
        rows = [{"fact": one.text, "source": one.source} for one in found.facts]
        out_json({"task": found.task, "by": found.by, "why": found.why, "facts": rows, "sources": len(sources)})
        return
    if found.why:
        note(f"picked by code: {found.why}")
    if not found.facts:
        out(f"nothing in {plural(len(sources), 'source')} bears on that")
    for one in found.facts:
        out(f"- {clean(one.text)} ({clean(one.source)})")


def _memory_sources(config: Config, directory: Path | None, *, is_user: bool, task: str) -> list[FactSource]:
    """The memories that matter to a task, whole."""
    from perdure.compaction.relevant import FactSource
    from perdure.memory.retrieval import SEARCH_FLOOR, MemoryQuery

    memories = opened_memories(config, directory, is_user=is_user)
    wanted = MemoryQuery(query=task, limit=10, floor=SEARCH_FLOOR, now=time.time())
    cards = [one.card for one in memories.ask(wanted)] if len(memories) else []
    topics = [memories.read(card.file) for card in cards]
    return [FactSource(one.file, "\n".join((one.name, one.description, one.body))) for one in topics]


def _session_sources(config: Config, reference: str | None) -> list[FactSource]:
    """What the ledger says of a session; none where none is named."""
    if reference is None:
        return []
    from perdure.cli.opened import read_session
    from perdure.engine.relevant import record_source

    one = read_session(reference, config)
    return [record_source(one.view, config.settings, one.session)]


async def _facts(config: Config, task: str, sources: list[FactSource], model: str | None, limit: int) -> RelevantFacts:
    from perdure.engine.relevant import relevant_facts
    from perdure.wiring import command_session, connected

    async with (
        command_session(config.home, settings=config.settings, known=config.models, tell=note) as session,
        connected((model,) if model else (), os.environ) as models,
    ):
        return await relevant_facts(session, task, sources=sources, models=models, limit=limit)


@app.command(
    epilog=examples("perdure memory ls", "perdure memory ls --grep deploy --limit 5", "perdure memory ls --user")
)
def ls(
    *,
    directory: Folder = None,
    user: User = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Show at most N memories.")] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only those whose file, name or description match.")
    ] = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """List the memories, newest first."""
    kept = KeptIn(store, tenant)
    list_memories(configured(), directory=directory, is_user=user, is_json=json, limit=limit, grep=grep, kept=kept)


def list_memories(
    config: Config,
    *,
    directory: Path | None,
    is_user: bool,
    is_json: bool,
    limit: int | None = None,
    grep: str | None = None,
    kept: KeptIn = HERE,
) -> None:
    """Print the memories, newest first."""
    matches = matching(grep)
    memories = opened_memories(config, directory, is_user=is_user, kept=kept)
    if left := memories.left_out():
        more = f" ({len(left) - 1:,} more like it)" if len(left) > 1 else ""
        note(f"{memories.path / left[0][0]}: left out: {left[0][1]}{more}")
    cards = sorted(memories.cards.values(), key=lambda card: (-card.modified, card.file))
    cards = [card for card in cards if matches(f"{card.file}\n{card.name}\n{card.description}")][:limit]
    if is_json:
        rows = [
            {
                "file": card.file,
                "name": card.name,
                "description": card.description,
                "type": card.type,
                "modified": iso(card.modified),
                "bytes": card.size,
                "problems": list(card.problems),
            }
            for card in cards
        ]
        out_json({"directory": str(memories.path), "memories": rows})
        return
    if not cards:
        out("no memory matches" if memories.cards else _none_yet(memories.path))
    else:
        out(clean(str(memories.path)))
    if cards:
        head = ("file", "type", "changed", "size", "about")
        table(head, [(c.file, c.type, _day(c.modified), size(c.size), cut(c.name, 60)) for c in cards])


@app.command(epilog=examples("perdure memory show build", "perdure memory show feedback/tests.md --json"))
def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A memory as ls names it, or how its name begins.")],
    *,
    directory: Folder = None,
    user: User = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Print a memory: what it is about, and what it says."""
    memories = opened_memories(configured(), directory, is_user=user, kept=KeptIn(store, tenant))
    names = [one for one in memories.cards if one in (file, f"{file}.md")]
    names = names or sorted(one for one in memories.cards if one.startswith(file))
    if len(names) != 1:
        what = "no memory" if not names else f"{len(names)} memories"
        note(f"{what} {clean(file)!r} in {memories.path}" + (f": {', '.join(names[:5])}" if names else ""))
        raise typer.Exit(EXIT_NOT_FOUND)
    found, card = memories.read(names[0]), memories.cards[names[0]]
    if json:
        out_json(
            {
                "file": found.file,
                "name": found.name,
                "description": found.description,
                "type": found.type,
                "keywords": list(found.keywords),
                "modified": iso(card.modified),
                "scope": {"paths": list(found.scope.paths), "agent": list(found.scope.agents)},
                "body": found.body,
                "problems": list(found.problems),
            }
        )
        return
    out(f"{clean(found.name)}" + (f" [{found.type}]" if found.type else ""))
    out(f"{clean(found.file)}, changed {_day(card.modified)}")
    if found.description:
        out(clean(found.description))
    if found.scope:
        out(f"holds {clean(str(found.scope))}")
    out()
    out("\n".join(clean(line) if not line.isprintable() else line for line in found.body.split("\n")))


@app.command(epilog=examples("perdure memory doctor", "perdure memory doctor --dir ~/notes"))
def doctor(*, directory: Folder = None, user: User = False, json: Json = False) -> None:
    """Find everything that is wrong with a directory of memories.

    The exit code is 1 when something keeps a memory from being found or read.
    """
    from perdure.memory.index_file import IndexLimits, memory_findings
    from perdure.memory.retrieval import current_memories

    config = configured()
    memories = _read_folder(config, directory, is_user=user)
    folders = {"": None, **dict.fromkeys(file.rpartition("/")[0] for file in memories.cards)}
    indexes = {folder: memories.index_text(folder) for folder in folders}
    limits = IndexLimits.of(config.settings)
    after = current_memories(memories.cards)
    writers = memories.writers({*after, *after.values()})
    hidden = {
        old: f"hidden by {now}, which supersedes it (that one is by {writers[now]}, this one by {writers[old]})"
        for old, now in after.items()
    }
    problems = {file: card.problems for file, card in memories.cards.items()}
    found = memory_findings(problems, indexes, limits, hidden)
    unread = memories.unread
    is_wrong = bool(unread) or any(one.weight == "error" for one in found)
    if json:
        rows: list[dict[str, Any]] = [
            {"file": one.file, "line": one.line, "weight": one.weight, "text": one.text} for one in found
        ]
        rows += [{"file": one.file, "line": None, "weight": "error", "text": one.why} for one in unread]
        out_json({"directory": str(memories.path), "memories": len(memories), "findings": rows, "is_ok": not is_wrong})
        raise typer.Exit(EXIT_FAILED if is_wrong else EXIT_OK)
    for bad in unread:
        out(f"error    {clean(bad.file)}: can't be read: {bad.why}")
    for one in sorted(found, key=lambda one: (one.weight, one.file, one.line or 0)):
        place = f"{one.file}:{one.line}" if one.line else one.file
        out(f"{one.weight:<8} {clean(place)}: {clean(one.text)}")
    errors = len(unread) + sum(one.weight == "error" for one in found)
    warnings = sum(one.weight == "warning" for one in found)
    out(f"{len(memories):,} memories, {plural(errors, 'error')}, {plural(warnings, 'warning')}")
    raise typer.Exit(EXIT_FAILED if is_wrong else EXIT_OK)


def _day(at: float) -> str:
    return moment(at)[:10]


# --- to change by hand ------------------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        'perdure memory add "the staging database is read-only"',
        "perdure memory add - --type reference --file team/build.md < build.md",
    )
)
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember; - reads it from standard input.")],
    *,
    name: Annotated[
        str | None, typer.Option(metavar="TITLE", help="Its title; without it, the first sentence.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="user, feedback, project or reference.")
    ] = None,
    about: Annotated[str | None, typer.Option(metavar="LINE", help="What it is about, for the index.")] = None,
    file: Annotated[str | None, typer.Option(metavar="NAME", help="Its file, such as team/build.md.")] = None,
    directory: Folder = None,
    user: User = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Save a memory, with its line in the index."""

    from perdure.engine.guarded_memory import over_limits, write_with_index
    from perdure.memory.changes import SaveMemory
    from perdure.memory.files import TYPES
    from perdure.memory.places import is_memory, refusal
    from perdure.memory.remarks import kind_of
    from perdure.memory.save import file_names, memory_text, title_of

    folder = memory_folder(directory, user, kept=KeptIn(store, tenant))
    text = _given(text)
    if not text.strip():
        raise BadSetting("TEXT: nothing to save")
    try:
        "".join((text, name or "", about or "")).encode()
    except UnicodeEncodeError:
        raise BadSetting("TEXT: not in UTF-8, as memories are") from None
    of_type = next((one for one in TYPES if one == kind), None) if kind else kind_of(text)
    if of_type is None:
        raise BadSetting(f"--type: {kind!r} isn't one of {', '.join(TYPES)}")
    title = title_of(name or text)
    target = file or next(file_names(of_type, title))
    target = target if target.endswith(".md") else f"{target}.md"
    if (why := refusal(target)) is not None or not is_memory(target):
        raise BadSetting(f"--file: {clean(target)}: {why or 'not the name of a memory'}")
    body = memory_text(type=of_type, body=text, name=title, description=about or "")

    async def adding(memory: GuardedMemory) -> tuple[WriteResult | MemoryProposal, str | None]:
        if await memory.store.read(target) is not None:
            raise NameTaken(f"{target}: this memory already exists: edit it, or give another --file")
        done = await write_with_index(memory, _hand(), SaveMemory(name=target, text=body))
        return done, await over_limits(memory.store, folder.config.settings)

    done, over = folder.run(adding)
    raise typer.Exit(_said(done, folder, f"{target}: saved as a memory of type {of_type}", over, is_json=json))


@app.command(epilog=examples("perdure memory edit build", "perdure memory edit MEMORY.md"))
def edit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A memory, or MEMORY.md.")],
    *,
    directory: Folder = None,
    user: User = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Open a memory in your editor ($VISUAL or $EDITOR).

    What others change meanwhile is merged, or kept in a file beside it.
    """

    from perdure.adapters.stores import DRAFTS
    from perdure.engine.guarded_memory import over_limits
    from perdure.memory.changes import SaveMemory
    from perdure.memory.files import INDEX, topic
    from perdure.memory.places import is_memory

    folder = memory_folder(directory, user, kept=KeptIn(store, tenant))
    there = folder.run(partial(_named, file))
    if there is None:
        raise typer.Exit(_no_such(file, folder))
    name, base = there
    drafts = Path(tempfile.mkdtemp(prefix=DRAFTS))
    draft = drafts / Path(name).name
    try:
        draft.write_bytes(base.encode("utf-8", "surrogateescape"))
    except OSError as e:
        shutil.rmtree(drafts, ignore_errors=True)
        raise OSError(e.errno, e.strerror or str(e), str(draft)) from e
    try:
        open_editor(draft)
    except PerdureError:
        shutil.rmtree(drafts, ignore_errors=True)  # said to be not saved, and a memory may be private
        raise
    text = draft.read_bytes().decode("utf-8", "surrogateescape")

    async def saving(memory: GuardedMemory) -> tuple[WriteResult | MemoryProposal, str | None]:
        done = await memory.change(SaveMemory(name=name, text=text, base=base), _hand())
        is_index = name.rpartition("/")[2] == INDEX
        return done, await over_limits(memory.store, folder.config.settings, name) if is_index else None

    try:
        done, over = folder.run(saving)
    except FileRefused as e:
        note(f"{e}; what you wrote is kept in {draft}")
        raise typer.Exit(EXIT_FAILED) from None
    draft.unlink()
    drafts.rmdir()
    for problem in topic(name, text).problems if is_memory(name) else ():
        note(f"{name}: {problem}")
    said = {"unchanged": "nothing changed", "merged": "saved, with what others changed meanwhile"}
    how = said.get(getattr(done, "outcome", ""), "saved")
    raise typer.Exit(_said(done, folder, f"{name}: {how}", over, is_json=json))


async def _named(file: str, memory: GuardedMemory) -> tuple[str, str] | None:
    """The name and the text of a memory; the ending may be left out."""
    from perdure.memory.places import refusal

    for name in (file, f"{file}.md"):
        read = await memory.store.read(name) if refusal(name) is None else None
        if read is not None:
            return name, read.text
    return None


@app.command(epilog=examples("perdure memory rm build"))
def rm(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A memory as ls names it.")],
    *,
    directory: Folder = None,
    user: User = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Remove a memory, with its line in the index.

    `memory undo` brings both back.
    """

    from perdure.engine.guarded_memory import write_with_index
    from perdure.memory.changes import DeleteMemory

    folder = memory_folder(directory, user, kept=KeptIn(store, tenant))

    async def removing(memory: GuardedMemory) -> tuple[str, WriteResult | MemoryProposal] | None:
        there = await _named(file, memory)
        if there is None:
            return None
        return there[0], await write_with_index(memory, _hand(), DeleteMemory(name=there[0], base=there[1]))

    done = folder.run(removing)
    if done is None:
        raise typer.Exit(_no_such(file, folder))
    said = f"{done[0]}: removed; `perdure memory undo` brings it back"
    raise typer.Exit(_said(done[1], folder, said, None, is_json=json))


@app.command(epilog=examples("perdure memory undo", "perdure memory undo 20261122-3f"))
def undo(
    entry: Annotated[
        str | None, typer.Argument(metavar="ID", help="A change, as log names it; without it, the last one.")
    ] = None,
    *,
    directory: Folder = None,
    user: User = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Undo the last change of the memory, or another one.

    An undo is a change, too, and can be undone by its id.
    """

    folder = memory_folder(directory, user, kept=KeptIn(store, tenant))

    async def undone(memory: GuardedMemory) -> tuple[WriteResult, ...]:
        return await memory.store.undo(entry, _hand())

    done = folder.run(undone)
    if json:
        out_json({"directory": str(folder.path), "undone": [_data(one) for one in done]})
        return
    for one in done:
        out(f"{clean(one.name)}: {'removed again' if one.outcome == 'deleted' else 'as it was before'}")


@app.command(epilog=examples("perdure memory log", "perdure memory log build.md --limit 5"))
def log(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Only the changes of this memory.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Show at most N changes.")] = 20,
    directory: Folder = None,
    user: User = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Show the last changes: when, what, and on whose word."""

    folder = memory_folder(directory, user, kept=KeptIn(store, tenant))

    async def reading(memory: GuardedMemory) -> Any:
        return await memory.store.entries(limit=limit, name=file)

    entries = folder.run(reading)
    if json:
        import msgspec

        out_json({"directory": str(folder.path), "entries": [msgspec.to_builtins(entry) for entry in entries]})
        return
    head = ("id", "when", "what", "file", "whose word", "session")
    rows = [
        (e.id, moment(e.stamp.at), e.outcome if e.action != "void" else "void", cut(e.name, 48), _whose(e.stamp),
         cut(e.stamp.session, 14))
        for e in entries
    ]  # fmt: skip
    table(head, rows) if rows else out("no changes were logged")


def _given(text: str) -> str:
    """The text; `-` is standard input."""
    if text != "-":
        return text
    if sys.stdin is None:
        raise BadSetting("-: there is no standard input to read from")
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def _hand() -> Stamp:
    from perdure.memory.changes import Stamp

    return Stamp(origin="user", at=time.time(), by="user")


def _said(
    done: WriteResult | MemoryProposal, folder: MemoryFolder, text: str, over: str | None, *, is_json: bool
) -> int:
    from perdure.memory.changes import WriteResult

    assert isinstance(done, WriteResult)  # a person's own hand needs nobody's approval
    is_conflict = done.outcome == "conflict"
    if is_json:
        out_json({"directory": str(folder.path), **_data(done), "warning": over})
    elif is_conflict:
        note(f"{done.name}: others changed the same lines; your text is in {done.beside}: merge the two by hand")
    else:
        out(clean(text))
    if over is not None:
        note(over)
    return EXIT_FAILED if is_conflict else EXIT_OK


def _data(done: WriteResult) -> dict[str, Any]:
    return {"file": done.name, "outcome": done.outcome, "entry": done.entry, "beside": done.beside or None}


def _no_such(file: str, folder: MemoryFolder) -> int:
    note(f"no memory {clean(file)!r} in {folder.path}")
    return EXIT_NOT_FOUND


def _whose(stamp: Stamp) -> str:
    return "your hand" if stamp.by == "user" else stamp.origin


# --- what waits for a decision ----------------------------------------------------------------------------------------


@app.command(epilog=examples("perdure memory review", "perdure memory review --approve p1 --reject p2"))
def review(
    *,
    approve: Annotated[list[str] | None, typer.Option(metavar="ID", help="Make this change; may be repeated.")] = None,
    reject: Annotated[list[str] | None, typer.Option(metavar="ID", help="Drop this change; may be repeated.")] = None,
    approve_all: Annotated[bool, typer.Option("--approve-all", help="Make all that isn't rejected.")] = False,
    reject_all: Annotated[bool, typer.Option("--reject-all", help="Drop all that isn't approved.")] = False,
    directory: Folder = None,
    user: User = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Decide on the changes that wait for you.

    They are shown as diffs. On a terminal, without a decision, it asks about each of them.
    """

    if approve_all and reject_all:
        raise BadSetting("--approve-all can't be combined with --reject-all")
    folder = memory_folder(directory, user, kept=KeptIn(store, tenant))
    pending = folder.run(lambda memory: memory.store.pending())
    wanted = {**dict.fromkeys(approve or (), "approve"), **dict.fromkeys(reject or (), "reject")}
    if twice := set(approve or ()) & set(reject or ()):
        raise BadSetting(f"{min(twice)}: both approved and rejected")
    if approve_all or reject_all:
        wanted = {one.id: "approve" if approve_all else "reject" for one in pending} | wanted
    if not wanted and not json and sys.stdin.isatty() and sys.stdout.isatty():
        _interactive(pending, folder)
        return
    if not wanted:
        _show_pending(pending, folder, is_json=json)
        return
    known, results, code = {one.id: one for one in pending}, [], EXIT_OK
    for identity, decision in wanted.items():
        if identity not in known:
            note(f"{clean(identity)}: no change with this id waits in {folder.path}")
            code = EXIT_NOT_FOUND
            continue
        row = decide_proposal(known[identity], decision, folder)
        code = EXIT_FAILED if row["outcome"] in ("conflict", "refused") else code
        results.append(row)
    if json:
        out_json({"directory": str(folder.path), "decided": results})
    else:
        for row in results:
            out(f"{clean(row['file'])}: {clean(row['said'])}")
    raise typer.Exit(code)


def decide_proposal(one: MemoryProposal, decision: str, folder: MemoryFolder) -> dict[str, Any]:
    """Approve or reject a change; one that can't be made any more stays, and says why."""
    from perdure.engine.guarded_memory import approve

    row: dict[str, Any] = {"id": one.id, "file": one.change.name, "decision": decision, "outcome": "rejected"}
    if decision == "reject":
        folder.run(lambda memory: memory.store.reject(one.id))
        return {**row, "said": "rejected"}
    try:
        done = folder.run(lambda memory: approve(memory, one))
    except FileRefused as e:
        return {**row, "outcome": "refused", "said": f"still waits: {e}"}
    said = f"approved, and {done.outcome}"
    if done.outcome == "conflict":
        said = f"it was changed meanwhile; the text is in {done.beside}: merge the two by hand"
    return {**row, "outcome": done.outcome, "said": said}


def _interactive(pending: Sequence[MemoryProposal], folder: MemoryFolder) -> None:
    if not pending:
        out("nothing is waiting")
    for number, one in enumerate(pending, 1):
        out(f"\n{number} of {len(pending)}")
        show_proposal(one, folder)
        answer = ""
        while answer not in ("a", "r", "s", "q"):
            try:
                answer = input("[a]pprove, [r]eject, [s]kip, [q]uit? ").strip().lower()[:1]
            except EOFError:
                answer = "q"
        if answer == "q":
            return
        if answer != "s":
            out(decide_proposal(one, "approve" if answer == "a" else "reject", folder)["said"])


def _show_pending(pending: Sequence[MemoryProposal], folder: MemoryFolder, *, is_json: bool) -> None:
    if is_json:
        rows = [
            {
                "id": one.id,
                "action": str(one.change.__struct_config__.tag),
                "file": one.change.name,
                "why": one.why,
                "origin": one.stamp.origin,
                "session": one.stamp.session,
                "message": one.stamp.message,
                "at": one.stamp.at,
                "diff": _diff(one, folder),
            }
            for one in pending
        ]
        out_json({"directory": str(folder.path), "pending": rows})
        return
    for one in pending:
        show_proposal(one, folder)
        out()
    out(f"{plural(len(pending), 'change')} waiting" + ("; --approve ID, --reject ID" if pending else ""))


def show_proposal(one: MemoryProposal, folder: MemoryFolder) -> None:
    """A change that waits, with the ids by which it is decided on and found."""
    out(f"{one.id}  {clean(one.change.name)}, {moment(one.stamp.at)}: {clean(one.why)}")
    if one.stamp.session:
        out(f"from {clean(', '.join(filter(None, (one.stamp.session, one.stamp.message))))}")
    show_change(one, folder)


def show_change(one: MemoryProposal, folder: MemoryFolder) -> None:
    """What it would change, as a diff."""
    for line in _diff(one, folder).splitlines():
        out(f"  {clean(line)}")


def _diff(one: MemoryProposal, folder: MemoryFolder) -> str:
    from perdure.memory.changes import RenameMemory, diff

    if isinstance(one.change, RenameMemory):
        return diff(one.change, None)
    read = folder.run(lambda memory: memory.store.read(one.change.name))
    return diff(one.change, None if read is None else read.text)


# --- to put in order --------------------------------------------------------------------------------------------------


@app.command(epilog=examples("perdure memory consolidate --dry-run", "perdure memory consolidate --user"))
def consolidate(
    *,
    directory: Folder = None,
    user: User = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")] = False,
    json: Json = False,
) -> None:
    """Tidy the memories: duplicates, relative dates, the index.

    With a model for the job extractor, also texts that contradict one another. All of it is one change, and one undo
    takes it back.
    """

    config = configured()
    path = opened_memories(config, directory, is_user=user).path
    if not path.is_dir():
        if json:
            out_json({"directory": str(path), "outcome": "nothing"})
        else:
            out(_none_yet(path))
        return
    try:
        done = in_loop(_consolidated, config, path, dry_run)
    except FolderBusy:
        note(f"{path}: is being tidied already; try again in a minute")
        raise typer.Exit(EXIT_FAILED) from None
    except PerdureError as e:
        raise PerdureError(f"{path}: {e}") from e
    if json:
        out_json(_as_json(path, done))
    else:
        _show_consolidation(done)
    raise typer.Exit(EXIT_FAILED if done.outcome == "changed" else EXIT_OK)


async def _consolidated(config: Config, path: Path, dry_run: bool) -> ConsolidationResult:
    from perdure.adapters.memory.directory import file_memories
    from perdure.adapters.sinks import NullSink
    from perdure.engine.consolidate import Consolidator
    from perdure.engine.guarded_memory import GuardedMemory
    from perdure.memory.changes import Stamp
    from perdure.memory.index_file import IndexLimits
    from perdure.wiring import command_session, connect_models

    settings = config.settings
    store = file_memories(path, settings)
    memory = GuardedMemory(store, NullSink(), settings.memory_mode)
    models = connect_models(settings, os.environ)
    stamp = Stamp(origin="user", by="user", at=time.time())
    try:
        async with command_session(config.home, settings=settings, known=config.models, tell=note) as session:
            limits = IndexLimits.of(settings)
            consolidator = Consolidator(memory, limits, session=session, models=models.extractor)
            if dry_run:
                return await consolidator.run(stamp, dry_run=True)
            async with store.alone():
                done = await consolidator.run(stamp)
                await store.done(stamp.at)
                return done
    finally:
        await models.close()


def _as_json(path: Path, done: ConsolidationResult) -> dict[str, object]:
    plan = done.plan
    return {
        "directory": str(path),
        "outcome": done.outcome,
        "change": done.change,
        "model": done.model,
        "merged": dict(plan.merged),
        "removed": sorted(name for name, text in plan.texts.items() if text is None),
        "changed": sorted(name for name, text in plan.texts.items() if text is not None),
        "dropped": [{"file": one.file, "line": one.line, "reason": one.reason} for one in plan.dropped],
        "left": list(plan.left),
        "diff": done.diff,
    }


def _show_consolidation(done: ConsolidationResult) -> None:
    plan = done.plan
    for line in done.diff.splitlines():
        out(clean(line))
    for drop in plan.dropped:
        out(f"dropped  {clean(drop.file)}: {clean(drop.line)} ({clean(drop.reason)})")
    for left in plan.left:
        out(f"left     {clean(left)}")
    count = plural(len(plan.texts), "file")
    match done.outcome:
        case "nothing":
            out("nothing to do")
        case "dry-run":
            out(f"{count} would change; nothing was written")
        case "changed":
            out("someone changed the memory meanwhile, so nothing was written; run it again")
        case _:
            out(f"{count} changed, as change {done.change}; one undo takes all of it back")
