"""`holdfast memory search|ls|show|doctor`: memories from the outside, read only (MEM-4, MEM-7)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.adapters.files.memory_index import MemoryDirectory, cache_of
from holdfast.adapters.files.roots import grounds_of
from holdfast.cli.door import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_OK, clean, cut, note, out, out_json
from holdfast.cli.tables import plural, size, table
from holdfast.errors import BadSetting
from holdfast.memory.checkup import findings
from holdfast.memory.contents import Limits
from holdfast.memory.directory import project_directory, user_directory
from holdfast.memory.retrieval.memories import SEARCH_FLOOR, Wanted

if TYPE_CHECKING:
    from holdfast.adapters.config import Config


def directory_of(config: Config, given: Path | None, *, is_user: bool) -> Path:
    """The directory that is meant; it needn't be there. `BadSetting` for two answers."""
    if given is not None:
        if is_user:
            raise BadSetting("--dir: goes without --user")
        return given.expanduser().absolute()
    grounds = grounds_of(config.home, Path.cwd(), directory=config.settings.memory_directory)
    return Path(user_directory(grounds) if is_user else project_directory(grounds))


def opened(config: Config, given: Path | None, *, is_user: bool) -> MemoryDirectory:
    """The directory, read anew where it changed. One that was named and isn't there is a `BadSetting`."""
    path = directory_of(config, given, is_user=is_user)
    found = MemoryDirectory(path, cache=cache_of(config.home, path))
    try:
        found.rescan()
    except FileNotFoundError:
        if given is not None:
            raise BadSetting(f"{path}: no such directory: name one with Markdown files") from None
        note(f"no memories yet: {path} isn't there")
    except OSError as e:
        raise BadSetting(f"{path}: {e.strerror or e}: name a directory that can be read") from None
    return found


def search_command(
    query: str, config: Config, *, directory: Path | None, is_user: bool, limit: int, is_json: bool
) -> None:
    """Print what matters to a question, best first."""
    began = time.perf_counter()
    memories = opened(config, directory, is_user=is_user)
    found = memories.ask(Wanted(query=query, limit=limit, floor=SEARCH_FLOOR, now=time.time())) if len(memories) else ()
    spent = 1000 * (time.perf_counter() - began)
    if is_json:
        results = [
            {"file": one.card.file, "score": one.score, "name": one.card.name, "type": one.card.type, "why": one.why}
            for one in found
        ]
        out_json({"results": results, "scanned": len(memories), "ms": round(spent, 2)})
        return
    if not found:
        out(f"nothing in {plural(len(memories), 'file')} matters to that")
        return
    for number, one in enumerate(found, 1):
        kind = f" [{one.card.type}]" if one.card.type else ""
        out(f"{number}. {clean(one.card.file)}{kind} {one.score:.2f}: {cut(one.card.name, 80)}")
        if one.card.description:
            out(f"   {cut(one.card.description, 160)}")
        out(f"   {clean(one.why)}")


def list_command(config: Config, *, directory: Path | None, is_user: bool, is_json: bool) -> None:
    """Print all memories, newest first."""
    memories = opened(config, directory, is_user=is_user)
    cards = sorted(memories.cards.values(), key=lambda card: (-card.modified, card.file))
    if is_json:
        rows = [
            {
                "file": card.file,
                "name": card.name,
                "description": card.description,
                "type": card.type,
                "modified": _iso(card.modified),
                "bytes": card.size,
                "problems": list(card.problems),
            }
            for card in cards
        ]
        out_json({"directory": str(memories.path), "memories": rows})
        return
    out(clean(str(memories.path)))
    if cards:
        head = ("file", "type", "changed", "size", "about")
        table(head, [(c.file, c.type, _day(c.modified), size(c.size), cut(c.name, 60)) for c in cards])


def show_command(file: str, config: Config, *, directory: Path | None, is_user: bool, is_json: bool) -> int:
    """Print one memory; names that fit more than one are listed, and nothing is shown."""
    memories = opened(config, directory, is_user=is_user)
    names = [one for one in memories.cards if one in (file, f"{file}.md")]
    names = names or sorted(one for one in memories.cards if one.startswith(file))
    if len(names) != 1:
        what = "no memory" if not names else f"{len(names)} memories"
        note(f"{what} {clean(file)!r} in {memories.path}" + (f": {', '.join(names[:5])}" if names else ""))
        return EXIT_NOT_FOUND
    found, card = memories.read(names[0]), memories.cards[names[0]]
    if is_json:
        out_json(
            {
                "file": found.file,
                "name": found.name,
                "description": found.description,
                "type": found.type,
                "keywords": list(found.keywords),
                "modified": _iso(card.modified),
                "body": found.body,
                "problems": list(found.problems),
            }
        )
        return EXIT_OK
    out(f"{clean(found.name)}" + (f" [{found.type}]" if found.type else ""))
    out(f"{clean(found.file)}, changed {_day(card.modified)}")
    if found.description:
        out(clean(found.description))
    out()
    out("\n".join(clean(line) if not line.isprintable() else line for line in found.body.split("\n")))
    return EXIT_OK


def doctor_command(config: Config, *, directory: Path | None, is_user: bool, is_json: bool) -> int:
    """Print what is wrong, errors first; the exit code says whether there are any."""
    memories = opened(config, directory, is_user=is_user)
    folders = {"": None, **dict.fromkeys(file.rpartition("/")[0] for file in memories.cards)}
    indexes = {folder: memories.index_text(folder) for folder in folders}
    settings = config.settings
    limits = Limits(settings.memory_index_lines, settings.memory_index_bytes)
    found = findings({file: card.problems for file, card in memories.cards.items()}, indexes, limits)
    unread = memories.unread
    is_wrong = bool(unread) or any(one.weight == "error" for one in found)
    if is_json:
        rows: list[dict[str, Any]] = [
            {"file": one.file, "line": one.line, "weight": one.weight, "text": one.text} for one in found
        ]
        rows += [{"file": one.file, "line": None, "weight": "error", "text": one.why} for one in unread]
        out_json({"directory": str(memories.path), "memories": len(memories), "findings": rows, "is_ok": not is_wrong})
        return EXIT_FAILED if is_wrong else EXIT_OK
    for bad in unread:
        out(f"error    {clean(bad.file)}: can't be read: {bad.why}")
    for one in sorted(found, key=lambda one: (one.weight, one.file, one.line or 0)):
        place = f"{one.file}:{one.line}" if one.line else one.file
        out(f"{one.weight:<8} {clean(place)}: {clean(one.text)}")
    errors = len(unread) + sum(one.weight == "error" for one in found)
    out(
        f"{len(memories):,} memories, {plural(errors, 'error')}, {plural(len(found) + len(unread) - errors, 'warning')}"
    )
    return EXIT_FAILED if is_wrong else EXIT_OK


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d")
