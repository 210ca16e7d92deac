"""The journal's lines: one transaction each, with a checksum over its bytes (ENG-3).

    {"format":"perdure-journal","version":1,"session":"…","created":…,"crc":"1f2e3d4c"}
    {"seq":1,"records":[{"type":"message",…}],"crc":"89abcdef"}

The checksum is the CRC-32 of everything before `,"crc":`, in eight hex digits, always last, so that a reader checks a
line without parsing it. A record of an unknown type inside a good line comes from a newer version of the same format:
it is refused by name rather than skipped, since skipping an edit would show the model another view.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import msgspec

from perdure.errors import DamagedLine, NewerFormat
from perdure.transcript.records import Header, Record, Transaction

FORMAT = "perdure-journal"
FORMATS_READ = frozenset({FORMAT, "holdfast-journal"})  # 0.1's name for it: its journals open for ever
VERSION = 1
# One line for every version that was ever written; the newest last.
VERSIONS = {1: "messages, edits, checkpoints; CRC-32 on every line"}

_TRAILER = b',"crc":"'
_TRAILER_BYTES = len(_TRAILER) + 8 + 2  # ,"crc":"89abcdef"}
_UNKNOWN_TYPE = re.compile(r"Invalid value .* - at `\$\.records\[\d+\]\.type`")
_ENCODER = msgspec.json.Encoder()
_TRANSACTION = msgspec.json.Decoder(Transaction)
_HEADER = msgspec.json.Decoder(Header)


def seal(body: bytes) -> bytes:
    """A JSON object's bytes with the checksum as its last member, and the line end."""
    open_body = body[:-1]
    return b'%b,"crc":"%08x"}\n' % (open_body, zlib.crc32(open_body))


def unseal(line: bytes) -> bytes:
    """The object without its checksum; `DamagedLine` when line and checksum disagree."""
    line = line.rstrip(b"\r\n")
    at = len(line) - _TRAILER_BYTES
    if at < 1 or line[at : at + len(_TRAILER)] != _TRAILER or line[-2:] != b'"}':
        raise DamagedLine("no checksum at the end of the line (cut short, or not written by Perdure)")
    open_body = line[:at]
    if b"%08x" % zlib.crc32(open_body) != line[at + len(_TRAILER) : -2]:
        raise DamagedLine("checksum mismatch (the bytes changed after they were written)")
    return open_body + b"}"


def encode_header(header: Header) -> bytes:
    """The first line of a journal, with its line end."""
    return seal(_ENCODER.encode(header))


def encode_line(seq: int, records: tuple[Record, ...]) -> bytes:
    """One transaction as a line, with its line end."""
    return seal(_ENCODER.encode(Transaction(seq=seq, records=records)))


def decode_header(line: bytes) -> Header:
    """Read the first line. Raises `NewerFormat` for a version above ours and `DamagedLine` for anything unreadable."""
    body = unseal(line)
    try:
        header = _HEADER.decode(body)
    except msgspec.MsgspecError as e:
        raise DamagedLine(f"not a journal header: {e}") from None
    if header.format not in FORMATS_READ:
        raise DamagedLine(f"not a Perdure journal: format {header.format!r}")
    if header.version > VERSION:
        raise NewerFormat(
            f"journal format version {header.version} is newer than this Perdure reads ({VERSION}): upgrade Perdure"
        )
    return header


def decode_line(line: bytes, version: int = VERSION) -> Transaction:
    """Read one transaction of a journal of the given format version, upgraded to the current one."""
    body = unseal(line)
    try:
        if version < VERSION:
            return msgspec.convert(_upgraded(msgspec.json.decode(body), version), Transaction)
        return _TRANSACTION.decode(body)
    except msgspec.ValidationError as e:
        if _UNKNOWN_TYPE.search(str(e)):
            raise NewerFormat(f"a record type that this Perdure doesn't know ({e}): upgrade Perdure") from None
        raise DamagedLine(f"not a transaction: {e}") from None
    except msgspec.MsgspecError as e:
        raise DamagedLine(f"not JSON: {e}") from None


def _upgraded(data: Any, version: int) -> Any:
    """A decoded transaction of an old version as the current version would have written it, one step at a time."""
    for step in range(version, VERSION):
        data = UPGRADES[step](data)
    return data


# From version n to n + 1. Golden journals of every version stand in tests/golden/journals and are never edited.
UPGRADES: dict[int, Any] = {}
