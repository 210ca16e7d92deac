"""`holdfast doctor --repair`: what can be mended without losing a byte (SES-1, ENG-3, ENG-4)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio

from holdfast.adapters.files import SessionStore, verify
from holdfast.cli.door import home
from holdfast.cli.tables import plural
from holdfast.errors import HoldfastError, SessionBusy

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
        damage = list(verify(journal))
        if any(not problem.what.endswith("(set aside and recorded)") for problem in damage):
            count = anyio.run(_opened, journal.parent)
            if count:
                yield Finding(name, "note", f"repaired: {plural(count, 'damaged piece')} set aside and recorded")
        if damage:
            yield from anyio.run(_restored, journal.parent, name)
        if closed := sum(map(_made_private, (journal.parent, *journal.parent.rglob("*")))):
            yield Finding(name, "note", f"repaired: {plural(closed, 'name')} closed to others")
    except SessionBusy as e:
        yield Finding(name, "note", f"not repaired: {e}")
    except HoldfastError as e:
        yield Finding(name, "problem", f"can't be repaired: {e}")
    except OSError as e:
        yield Finding(name, "problem", f"can't be repaired: {e.filename}: {e.strerror or e}")


async def _opened(directory: Path) -> int:
    """Open the session for writing, which sets damage aside; how many pieces that were."""
    files = await SessionStore(home()).open(directory, mend=True)
    try:
        return len((await files.journal.load(whole=True)).repairs)
    finally:
        await files.journal.close()


async def _restored(directory: Path, name: str) -> list[Finding]:
    """Lines of an import come back from the log that it kept (ENG-8)."""
    from holdfast.settings import Settings
    from holdfast.wiring.restoring import with_lines_of_source

    store = SessionStore(home())
    files, told = await with_lines_of_source(store, await store.open(directory), Settings())
    await files.journal.close()
    return [Finding(name, "note", f"line {one.line}: {one.what}") for one in told]


def _made_private(path: Path) -> bool:
    about = path.lstat()
    mode = stat.S_IMODE(about.st_mode)
    if os.name != "posix" or stat.S_ISLNK(about.st_mode) or not mode & 0o077:
        return False
    path.chmod(mode & ~0o077)
    return True
