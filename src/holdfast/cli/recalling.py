"""`holdfast recall` and `holdfast search` (RCL-1, SES-2)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from holdfast.adapters.files import SessionStore
from holdfast.adapters.files.store import PROJECTS, slug_of
from holdfast.adapters.search import StoreArchive
from holdfast.cli.door import clean, note, out, out_json, reference_of
from holdfast.cli.tables import plural
from holdfast.context.recall import Shown, Wanted, range_of
from holdfast.engine.recall import recall
from holdfast.errors import BadSetting
from holdfast.ports import Archive, Found, Hit
from holdfast.wiring import Parts, open_session

if TYPE_CHECKING:
    from holdfast.adapters.config import Config

_UNBOUNDED = 1 << 62  # a person's pipe takes everything; what models get is bounded
_ALSO = 3


def recall_command(
    session: str,
    identity: str,
    config: Config,
    *,
    lines: str | None,
    pattern: str | None,
    chars: str | None,
    limit: int | None,
    is_json: bool,
) -> None:
    """Print the original, exactly; what is left out is said on stderr."""
    wanted = Wanted(
        id=identity,
        lines=range_of(lines, what="--lines") if lines else None,
        chars=range_of(chars, what="--chars") if chars else None,
        pattern=pattern,
        limit_chars=limit or _UNBOUNDED,
    )
    shown = anyio.run(_recall, session, config, wanted)
    if is_json:
        out_json(_shown_data(shown))
        return
    sys.stdout.write(shown.body)
    if (sys.stdout.isatty() or shown.matches) and not shown.body.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    if sys.stdout.isatty() or shown.left_out:
        note(f"{shown.original.id}: {shown.original.what}" + (f"; {shown.left_out}" if shown.left_out else ""))


async def _recall(reference: str, config: Config, wanted: Wanted) -> Shown:
    session = await open_session(
        config.home, reference_of(reference), read_only=True, parts=Parts(settings=config.settings)
    )
    try:
        return await recall(session, wanted)
    finally:
        await session.world.journal.close()


def _shown_data(shown: Shown) -> dict[str, Any]:
    original = shown.original
    return {
        "id": original.id,
        "kind": original.kind,
        "what": original.what,
        "at": _iso(original.at),
        "text": shown.body,
        "lines": shown.lines,
        "chars": shown.chars,
        "matches": shown.matches,
        "total_lines": shown.total_lines,
        "total_chars": len(original.text),
        "is_whole": shown.is_whole,
        "left_out": shown.left_out,
        "raw": [msgspec.Raw(raw) for raw in original.raw] if original.kind != "blob" else [],
    }


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to search: one session, a project, or everything kept here."""

    session: str | None = None
    project: Path | None = None
    is_all: bool = False


def search_command(query: str, config: Config, scope: Scope, *, limit: int, rebuild: bool, is_json: bool) -> None:
    """Print what fits, best first."""
    if scope.session is not None and (scope.is_all or scope.project):
        raise BadSetting("--session: goes without --all and --project")
    if rebuild:
        pieces = StoreArchive(config.home).rebuild()
        note(f"made the index anew: {plural(pieces, 'piece')}")
    archive, sessions = _archive(scope, config.home)
    found: Found = anyio.run(lambda: archive.search(query, limit=limit, sessions=sessions))
    if found.note:
        note(found.note)
    if is_json:
        for rank, hit in enumerate(found.hits, 1):
            out_json(_hit_data(rank, hit))
        return
    if not found.hits:
        out("nothing that was said fits; try fewer or other words, or --all")
        return
    for rank, hit in enumerate(found.hits, 1):
        _show(rank, hit)


def _archive(scope: Scope, home: Path) -> tuple[Archive, tuple[str, ...]]:
    store = SessionStore(home)
    if scope.session is not None:
        directory = store.locate(reference_of(scope.session))
        folder = directory.parent
        if folder.parent.name != PROJECTS:
            raise BadSetting(f"{directory}: only sessions in a store can be searched: import it")
        return StoreArchive(folder.parent.parent, folder.name), (directory.name,)
    if scope.is_all:
        return StoreArchive(home), ()
    slug = slug_of(scope.project or Path.cwd())
    if scope.project is None and next(store.directories(slug=slug), None) is None:
        note("this folder's project has no sessions: searching those of all projects")
        return StoreArchive(home), ()
    return StoreArchive(home, slug), ()


def _hit_data(rank: int, hit: Hit) -> dict[str, Any]:
    data = {name: getattr(hit, name) for name in Hit.__dataclass_fields__}
    data["at"] = _iso(hit.at)
    data["also"] = [{"session": s, "id": i, "message": m} for s, i, m in hit.also]
    return {"rank": rank, **data}


def _show(rank: int, hit: Hit) -> None:
    who = f"result of {hit.tool}" if hit.role == "tool" and hit.tool else hit.role
    when = f", {_when(hit.at)}" if hit.at is not None else ""
    out(f"{rank}. {hit.session} {hit.id}")
    out(f"   {clean(who)}{when}, line {hit.line}")
    for line in hit.snippet.split("\n"):
        out(f"   | {clean(line)}")
    if hit.also:
        more = f" and {len(hit.also) - _ALSO} more" if len(hit.also) > _ALSO else ""
        out(f"   the same text also: {', '.join(f'{s} {i}' for s, i, _ in hit.also[:_ALSO])}{more}")


def _when(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def _iso(at: float | None) -> str | None:
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
