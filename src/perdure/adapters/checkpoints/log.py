"""The log of checkpoints, the names of files in it, and what checkpoints take on the disk (CKP-2, CKP-6, CKP-7)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perdure.adapters.machine.rooted import RootedFolder
from perdure.errors import FileMissing, JournalError
from perdure.memory.checkpoints import CheckpointEntry, snapshots
from perdure.memory.places import OWN

_LONE = re.compile("[\udc80-\udcff]")
_WRITTEN = re.compile("\0([0-9a-f]{2})")


def escaped_name(name: str) -> str:
    """A name as it stands in a file of ours."""
    return name if name.isascii() else _LONE.sub(lambda found: f"\0{ord(found[0]) - 0xDC00:02x}", name)


def unescaped_name(text: str) -> str:
    """The name again."""
    return _WRITTEN.sub(lambda found: chr(0xDC00 + int(found[1], 16)), text) if "\0" in text else text


def escaped_names(value: Any) -> Any:
    """Every text in a value of plain lists and dicts, as `escaped_name` has it."""
    return _mapped(value, escaped_name)


def unescaped_names(value: Any) -> Any:
    """The inverse of `escaped_names`."""
    return _mapped(value, unescaped_name)


def _mapped(value: Any, how: Any) -> Any:
    if isinstance(value, str):
        return how(value)
    if isinstance(value, dict):
        return {how(key): _mapped(inner, how) for key, inner in value.items()}
    return [_mapped(inner, how) for inner in value] if isinstance(value, list | tuple) else value


FOLDER = "checkpoints"
PLAN = "plan.json"  # of a rewind that is at work, or was cut short


@dataclass(frozen=True, slots=True)
class CheckpointUsage:
    """What the checkpoints of a session are: prompts to go back to, and bytes on the disk."""

    snapshots: int
    bytes: int
    is_cut_short: bool


def checkpoint_usage(session_folder: Path) -> CheckpointUsage | None:
    """Of the session in a folder; None when it has none. Raises `JournalError` for a damaged log."""
    store = session_folder / FOLDER
    if not (store / LOG).is_file():
        return None
    with RootedFolder.open(store, rules=OWN) as own:
        return CheckpointUsage(len(snapshots(CheckpointLog(own).entries)), size_of(store), (store / PLAN).exists())


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


LOG = "log.jsonl"
_LIMIT_BYTES = 2_000_000_000
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(CheckpointEntry)
_ESCAPED = b"\\u0000"  # only names that aren't UTF-8 hold one


class CheckpointLog:
    """The entries of a session, oldest first. A line that was cut short at the end never happened."""

    def __init__(self, own: RootedFolder) -> None:
        self._own = own
        self.entries: list[CheckpointEntry] = []
        self._end = 0
        try:
            data = own.read(LOG, limit_bytes=_LIMIT_BYTES)
        except FileMissing:
            return
        *lines, _ = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                self.entries.append(_decoded(line))
            except msgspec.MsgspecError as e:
                raise JournalError(f"{own.path}/{LOG}: line {number} is damaged: {e}; move it away") from None
            self._end += len(line) + 1

    @property
    def next_seq(self) -> int:
        return self.entries[-1].seq + 1 if self.entries else 1

    def append(self, entry: CheckpointEntry) -> None:
        """Durable on return; after an error it isn't there."""
        line = _encoded(entry)
        try:
            self._cut()
            self._own.append(LOG, line)
        except BaseException:
            try:
                self._cut()
            except OSError:
                pass  # the next append cuts it off, and so does whoever reads a half line
            raise
        self.entries.append(entry)
        self._end += len(line)

    def rewrite(self, entries: Sequence[CheckpointEntry]) -> None:
        """Put others in their place, in one step."""
        data = b"".join(map(_encoded, entries))
        self._own.write(LOG, data)
        self.entries, self._end = list(entries), len(data)

    def _cut(self) -> None:
        """Take off what an append that failed left behind the last line."""
        path = os.path.join(self._own.path, LOG)
        try:
            if os.stat(path).st_size > self._end:
                os.truncate(path, self._end)
        except FileNotFoundError:
            pass


def _encoded(entry: CheckpointEntry) -> bytes:
    try:
        return _ENCODER.encode(entry) + b"\n"
    except UnicodeEncodeError:  # a name that isn't UTF-8 (CKP-7)
        return _ENCODER.encode(escaped_names(msgspec.to_builtins(entry))) + b"\n"


def _decoded(line: bytes) -> CheckpointEntry:
    if _ESCAPED not in line:
        return _DECODER.decode(line)
    return msgspec.convert(unescaped_names(msgspec.json.decode(line)), CheckpointEntry)
