"""What the hooks know of a session, on disk: a line that tells how far its log was read, and the memory (PLG-1).

The file is replaced as a whole, so that a hook that is killed leaves the one before. This module imports little: a hook
may need no more than the line.
"""

from __future__ import annotations

import os
from typing import Final, Literal
from zlib import crc32

import msgspec

from perdure.adapters.machine.system import open_itself, read_at
from perdure.plugin.hook import STATE

VERSION: Final = 2
DAMAGED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # what reading something damaged raises
_SEAM_BYTES = 64  # in front of where reading goes on: whether it is still the same log

LoggedClient = Literal["claude-code", "codex"]


class StateHead(msgspec.Struct, omit_defaults=True):
    """How far a log was read, in bytes from its beginning, and what was given and kept of it.

    `is_given`: the model was given a record for the last boundary; `is_due`: for one that the log doesn't show yet;
    `given`: how long the log was then. `remembered`: up to when a person's words were looked through for memories.
    """

    version: int = VERSION
    log: str = ""
    client: LoggedClient = "claude-code"
    offset: int = 0
    line: int = 1
    boundaries: int = 0
    is_given: bool = False
    is_due: bool = False
    given: int = -1
    remembered: float = 0.0
    seam: str = ""


def read_state(folder: str, log: str, fd: int, size: int) -> tuple[StateHead, bytes]:
    """The line of the state and what stands behind it; a fresh line alone where it is of another log, or damaged."""
    try:
        with open(os.path.join(folder, STATE), "rb") as file:
            first, _, body = file.read().partition(b"\n")
        head = msgspec.json.decode(first, type=StateHead)
        is_same = head.offset <= size and head.seam == _seam(fd, head.offset)
        if (head.version, head.log) == (VERSION, log) and is_same and (body or not head.offset):
            return head, body
    except (OSError, *DAMAGED):
        pass
    beginning = read_at(fd, 4096, 0)
    is_codex = b'"payload"' in beginning or b'"session_meta"' in beginning
    return StateHead(log=log, client="codex" if is_codex else "claude-code"), b""


def write_state(folder: str, fd: int, head: StateHead, body: bytes) -> None:
    """Replace the state; for the hook that holds the lock."""
    head.seam = _seam(fd, head.offset)
    temporary = os.path.join(folder, f"{STATE}.new")  # one name, as one hook writes at a time: what is left is one file
    out = open_itself(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with open(out, "wb") as file:
            file.write(msgspec.json.encode(head) + b"\n" + body)
        os.replace(temporary, os.path.join(folder, STATE))
    except OSError:  # a full disk, of which no part is kept
        os.unlink(temporary)
        raise


def _seam(fd: int, offset: int) -> str:
    """Return a checksum of what is before the place where reading goes on: by it a log is known for the same."""
    return f"{crc32(read_at(fd, min(_SEAM_BYTES, offset), max(0, offset - _SEAM_BYTES))):08x}"
