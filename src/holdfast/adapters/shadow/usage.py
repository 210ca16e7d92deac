"""What checkpoints take on the disk (CKP-6); light, for listings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.files.rooted import Rooted
from holdfast.adapters.shadow.log import LOG, Log
from holdfast.memory.checkpoints import snapshots
from holdfast.memory.names import OWN

FOLDER = "checkpoints"
PLAN = "plan.json"  # of a rewind that is at work, or was cut short


@dataclass(frozen=True, slots=True)
class Usage:
    """What the checkpoints of a session are: prompts to go back to, and bytes on the disk."""

    snapshots: int
    bytes: int
    is_cut_short: bool


def usage(session_folder: Path) -> Usage | None:
    """Of the session in a folder; None when it has none. Raises `JournalError` for a damaged log."""
    store = session_folder / FOLDER
    if not (store / LOG).is_file():
        return None
    with Rooted.open(store, rules=OWN) as own:
        return Usage(len(snapshots(Log(own).entries)), size_of(store), (store / PLAN).exists())


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; 0 when there is none."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(at, name)).st_size
            except FileNotFoundError:
                continue
    return total
