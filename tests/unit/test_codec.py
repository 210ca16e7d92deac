"""The journal's lines: one transaction each, sealed by a checksum (ENG-3)."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from perdure.errors import DamagedLine, NewerFormat
from perdure.transcript.blocks import Block
from perdure.transcript.codec import FORMAT, VERSION, VERSIONS, decode_header, decode_line, encode_header, encode_line
from perdure.transcript.messages import Message, MessageId, ToolUseId, Usage, content_of
from perdure.transcript.records import BlockChange, Cleared, Header, Noted, Record

pytestmark = pytest.mark.unit

HEADER = Header(format=FORMAT, version=VERSION, session="s1", created=1.5, project="/home/ann/proj")
MESSAGE = Message(
    id=MessageId("m1"),
    role="assistant",
    content=content_of(
        [Block(b'{"type":"text","text":"caf\\u00e9 \xe2\x82\xac"}'), Block(b'{"type":"new_kind","x":1.50}')]
    ),
    origin="model",
    at=2.25,
    usage=Usage(input_tokens=3, output_tokens=4),
)
CLEARED = Cleared(trigger="size", tool_use_ids=(ToolUseId("t1"),), changes=(BlockChange(MessageId("m1"), 0),))
LINE = encode_line(7, (MESSAGE, CLEARED))


def sealed(body: bytes) -> bytes:
    """A line around any body, with a right checksum."""
    return b'%b,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body[:-1]))


@pytest.mark.parametrize(
    "records", [(MESSAGE,), (CLEARED,), (MESSAGE, CLEARED), (Noted(kind="x", data={"a": [1, None]}),)]
)
def test_a_transaction_comes_back_as_it_was(records: tuple[Record, ...]) -> None:
    """ENG-3: encode, decode, encode again: equal values and equal bytes."""
    line = encode_line(7, records)
    back = decode_line(line)
    assert back.seq == 7
    assert [type(r) for r in back.records] == [type(r) for r in records]
    assert encode_line(back.seq, back.records) == line


def test_blocks_keep_their_bytes() -> None:
    """ENG-1: escapes, number spellings and unknown types go through a line unchanged."""
    (message, _) = decode_line(LINE).records
    assert isinstance(message, Message)
    assert [bytes(raw) for raw in message.content] == [bytes(raw) for raw in MESSAGE.content]


def test_a_header_comes_back_as_it_was() -> None:
    """ENG-3: the first line names format and version."""
    assert decode_header(encode_header(HEADER)) == HEADER


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_line_end_is_not_part_of_the_checksum(end: bytes) -> None:
    assert decode_line(LINE.rstrip(b"\n") + end).seq == 7


def test_every_single_bit_flip_is_found() -> None:
    """ENG-3: each bit of each byte, the checksum's own digits and the line end among them."""
    for line, decode in ((LINE, decode_line), (encode_header(HEADER), decode_header)):
        for at in range(len(line)):
            for bit in range(8):
                flipped = bytearray(line)
                flipped[at] ^= 1 << bit
                with pytest.raises(DamagedLine):
                    decode(bytes(flipped))


def test_every_cut_is_found() -> None:
    """REL-2: a line that was cut short is damaged wherever it was cut."""
    for length in range(len(LINE) - 1):
        with pytest.raises(DamagedLine):
            decode_line(LINE[:length])


def test_a_newer_version_is_refused_by_name() -> None:
    """ENG-3: a journal of a later format says so, whatever else its header holds."""
    body = msgspec.json.encode({"format": FORMAT, "version": VERSION + 1, "session": "s", "created": 1.0, "new": {}})
    with pytest.raises(NewerFormat, match=f"version {VERSION + 1} is newer"):
        decode_header(sealed(body))


def test_a_record_of_an_unknown_type_is_refused_by_name() -> None:
    """ENG-3: skipping an edit would show the model another view."""
    with pytest.raises(NewerFormat, match="upgrade Perdure"):
        decode_line(sealed(b'{"seq":1,"records":[{"type":"transmogrified"}]}'))


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq":1}',
        b'{"seq":"1","records":[]}',
        b'{"seq":1,"records":[{"type":"message","id":"m"}]}',
        b'{"seq":1,"records":[{"type":"message"',
        b"[]",
        b"nonsense}",
    ],
)
def test_a_sound_checksum_does_not_excuse_a_wrong_shape(body: bytes) -> None:
    with pytest.raises(DamagedLine):
        decode_line(sealed(body))


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"\0" * 500 + b"\n", b"{}\n", b'{"seq":1,"records":[]}\n', b'","crc":"00000000"}\n']
)
def test_what_is_no_line_of_ours_is_damaged(line: bytes) -> None:
    with pytest.raises(DamagedLine):
        decode_line(line)


@pytest.mark.parametrize(
    "body", [b'{"format":"other","version":1,"session":"s","created":1}', b'{"seq":1,"records":[]}']
)
def test_a_file_of_another_format_is_no_journal(body: bytes) -> None:
    with pytest.raises(DamagedLine):
        decode_header(sealed(body))


def test_line_breaks_inside_raw_blocks_do_not_break_the_line() -> None:
    """ENG-3: pretty-printed blocks become one line; a line break inside a string is escaped and stays."""
    pretty = Block(b'{\r\n  "type": "text",\n  "text": "one\\ntwo"\n}')
    line = encode_line(1, (Message(id=MessageId("m"), role="user", content=content_of([pretty]), origin="user"),))
    assert line.count(b"\n") == 1 and line.count(b"\r") == 0
    (message,) = decode_line(line).records
    assert isinstance(message, Message)
    assert msgspec.json.decode(message.content[0]) == {"type": "text", "text": "one\ntwo"}


def test_every_version_has_its_line() -> None:
    """ENG-3: the current version is the last of those described."""
    assert max(VERSIONS) == VERSION and sorted(VERSIONS) == list(range(1, VERSION + 1))
