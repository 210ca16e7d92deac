"""The log of checkpoints: a JSON line for each entry, on stable storage before the next thing happens."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from holdfast.adapters.files.rooted import Rooted
from holdfast.adapters.shadow.names import all_read, all_written
from holdfast.errors import FileMissing, JournalError
from holdfast.memory.checkpoints import Entry

LOG = "log.jsonl"
_LIMIT_BYTES = 2_000_000_000
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)
_ESCAPED = b"\\u0000"  # only names that aren't UTF-8 hold one


class Log:
    """The entries of a session, oldest first. A line that was cut short at the end never happened."""

    def __init__(self, own: Rooted) -> None:
        self._own = own
        self.entries: list[Entry] = []
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

    def append(self, entry: Entry) -> None:
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

    def rewrite(self, entries: Sequence[Entry]) -> None:
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


def _encoded(entry: Entry) -> bytes:
    try:
        return _ENCODER.encode(entry) + b"\n"
    except UnicodeEncodeError:  # a name that isn't UTF-8 (CKP-7)
        return _ENCODER.encode(all_written(msgspec.to_builtins(entry))) + b"\n"


def _decoded(line: bytes) -> Entry:
    if _ESCAPED not in line:
        return _DECODER.decode(line)
    return msgspec.convert(all_read(msgspec.json.decode(line)), Entry)
