"""`holdfast doctor --repair`: what can be mended without losing a byte (SES-1, ENG-3, ENG-4)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio

from holdfast.adapters.files import BlobTrouble, FileBlobs, SessionStore, blob_troubles, examined, originals
from holdfast.adapters.files.reading import BESIDE, SET_ASIDE
from holdfast.adapters.files.rebuilding import set_aside
from holdfast.cli.door import home
from holdfast.cli.tables import plural
from holdfast.errors import HoldfastError, SessionBusy
from holdfast.transcript.messages import BlobId

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; a `problem` makes the exit code 1, a `note` is worth knowing."""

    check: str
    state: State
    what: str


def repaired(journal: Path) -> Iterator[Finding]:
    """Set damage aside as opening the session would, and take its files from the eyes of others; say what was done."""
    name = f"session {journal.parent.name}"
    try:
        found, scan = examined(journal)
        damage = list(found)
        is_lacking = scan is not None and bool(set_aside(journal, scan))
        if is_lacking or any(not problem.what.endswith(SET_ASIDE) for problem in damage):
            yield from anyio.run(_opened, journal.parent, name)
        if damage:
            yield from anyio.run(_restored, journal.parent, name)
        if scan is not None and (troubles := blob_troubles(FileBlobs(journal.parent / "blobs"), scan)):
            yield from anyio.run(_blobs, journal.parent, name, originals(scan, troubles), troubles)
        if closed := sum(map(_made_private, (journal.parent, *journal.parent.rglob("*")))):
            yield Finding(name, "note", f"repaired: {plural(closed, 'file')} closed to others")
    except SessionBusy as e:
        yield Finding(name, "note", f"not repaired: {e}")
    except HoldfastError as e:
        yield Finding(name, "problem", f"can't be repaired: {e}")
    except OSError as e:
        yield Finding(name, "problem", f"can't be repaired: {e.filename}: {e.strerror or e}")


async def _opened(directory: Path, name: str) -> list[Finding]:
    """Open the session for writing, which sets damage aside, and say what that did."""
    files = await SessionStore(home()).open(directory, mend=True)
    try:
        repairs = (await files.journal.load(whole=True)).repairs
    finally:
        await files.journal.close()
    told = [repaired for repaired in repairs if repaired.line == BESIDE]  # no piece of the file: in its own words
    pieces = len(repairs) - len(told)
    found = [Finding(name, "note", f"repaired: {plural(pieces, 'damaged piece')} set aside and recorded")]
    return [*(found if pieces else ()), *(Finding(name, "note", f"repaired: {one.what}") for one in told)]


async def _restored(directory: Path, name: str) -> list[Finding]:
    """Lines of an import come back from the log that it kept (ENG-8)."""
    from holdfast.settings import Settings
    from holdfast.wiring.restoring import with_lines_of_source

    store = SessionStore(home())
    files, told = await with_lines_of_source(store, await store.open(directory), Settings())
    await files.journal.close()
    return [Finding(name, "note", f"line {one.line}: {one.what}") for one in told]


async def _blobs(
    directory: Path, name: str, known: Mapping[BlobId, bytes], troubles: Sequence[BlobTrouble]
) -> list[Finding]:
    """Put damaged blobs aside, and store anew those whose bytes are known elsewhere (ENG-9)."""
    files = await SessionStore(home()).open(directory)
    told = []
    try:
        for trouble in troubles:
            if not trouble.is_gone:
                files.blobs.set_aside(trouble.blob)
            if trouble.blob in known:
                await files.blobs.put((known[trouble.blob],))
                told.append(Finding(name, "note", f"blob {trouble.blob[:12]}: restored, {trouble.used_by}"))
    finally:
        await files.journal.close()
    return told


def _made_private(path: Path) -> bool:
    about = path.lstat()
    mode = stat.S_IMODE(about.st_mode)
    if os.name != "posix" or stat.S_ISLNK(about.st_mode) or not mode & 0o077:
        return False
    path.chmod(mode & ~0o077)
    return True
