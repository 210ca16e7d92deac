"""What version 0.1 was called, when its name was Holdfast, and where its own is found: the one table.

A home, a project's folder and variables under the old name hold as long as nothing stands under the new one, so an
update changes nothing for anybody; `perdure doctor --repair` moves the folders. Its journals open by what stands in
them (`transcript.codec`), its notes by their mark (`memory.notes`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from perdure.adapters.machine.system import open_itself, try_lock
from perdure.errors import FolderBusy
from perdure.memory.places import FOLDER

FORMER_FOLDER = ".holdfast"  # the home, a project's folder, and what is kept beside the files of a memory directory
PREFIX, FORMER_PREFIX = "PERDURE_", "HOLDFAST_"
FORMER_STAGING = ".holdfast-rewind-"  # what a rewind of files works with; left behind by a crash


def folder_in(parent: Path) -> Path:
    """Our folder in another one: under today's name, or under the former one where only that is there."""
    now, former = parent / FOLDER, parent / FORMER_FOLDER
    return former if former.is_dir() and not now.exists() else now


def variables(names: Iterable[str]) -> Iterator[str]:
    """Names of variables, each of ours followed by the one it had."""
    for name in names:
        yield name
        if name.startswith(PREFIX):
            yield FORMER_PREFIX + name.removeprefix(PREFIX)


def adopt(directory: Path) -> None:
    """Give what 0.1 kept beside the memories of a directory its name of today. Where nothing may change, nothing does.

    Raises:
        FolderBusy: A process of 0.1 is writing there.
    """
    former, now = directory / FORMER_FOLDER, directory / FOLDER
    if now.exists() or not former.is_dir() or former.is_symlink():
        return
    try:
        fd = open_itself(former / "lock", os.O_RDWR | os.O_CREAT)
    except OSError:
        return
    try:
        if not try_lock(fd):
            raise FolderBusy(f"{directory}: Holdfast 0.1 is writing there; try again when it is done")
        former.rename(now)
    except OSError:
        return
    finally:
        os.close(fd)
