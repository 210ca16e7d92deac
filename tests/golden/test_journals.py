"""Journals of every format version open, and their lines encode to the bytes that stand there (ENG-3, REL-6).

The files of a released version are never edited: `make golden` may change v1 only as long as it isn't released.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import anyio
import msgspec
import pytest

from perdure.adapters.journal import FileJournal, verify
from perdure.transcript.blocks import text_block
from perdure.transcript.codec import VERSION, decode_header, decode_line, encode_header, encode_line
from perdure.transcript.messages import (
    BlobId,
    Message,
    MessageId,
    Origin,
    ResponseId,
    Role,
    ToolUseId,
    Usage,
    WireFields,
)
from perdure.transcript.records import (
    BlockChange,
    Calibrated,
    Cleared,
    Collapsed,
    Compacted,
    CompactionFailed,
    Cursor,
    Front,
    Header,
    InFlight,
    MediaReplaced,
    Neutralised,
    Noted,
    Offloaded,
    Pinned,
    Record,
    Repaired,
    Rewound,
    Settled,
    Snipped,
    StoredOriginal,
    ThinkingDropped,
    Titled,
    Undone,
    Worded,
)

pytestmark = pytest.mark.golden

JOURNALS = Path(__file__).parent / "journals"
RAW = msgspec.Raw
HEADER = Header(
    format="holdfast-journal",  # 0.1's name
    version=1,
    session="s-golden",
    created=1750000000.25,
    project="/home/ann/proj",
    source="x",
)


def message(name: str, role: Role, origin: Origin, *blocks: bytes) -> Message:
    return Message(id=MessageId(name), role=role, origin=origin, content=tuple(map(RAW, blocks)), at=1750000001.5)


def changes(message: str, text: str) -> tuple[BlockChange, ...]:
    return (BlockChange(MessageId(message), 0, RAW(text_block(text).raw)), BlockChange(MessageId(message), 1))


MODEL = Message(
    id=MessageId("m2"),
    role="assistant",
    origin="model",
    content=(
        RAW(b'{"type":"thinking","thinking":"hm","signature":"c2ln"}'),
        RAW(b'{"type":"tool_use","id":"t1","name":"Read","input":{"file_path":"/a\\u00e9","limit":1.0e1}}'),
        RAW(b'{"type":"brand_new","field": [1, 2]}'),
    ),
    at=1750000002.0,
    response_id=ResponseId("r1"),
    model="some-model",
    usage=Usage(input_tokens=10, output_tokens=5, cache_read_input_tokens=3, cache_creation_input_tokens=2),
    stop_reason="tool_use",
    agent_id="agent-1",
    note="n",
)
RESULT = b'{"type":"tool_result","tool_use_id":"t1","content":"caf\xc3\xa9 \xe2\x80\xa8 \\u2028"}'
T1 = (ToolUseId("t1"),)

# One line each. The last but one is a boundary that keeps m4.
LINES: tuple[tuple[Record, ...], ...] = (
    (Front(model="some-model", system=(RAW(b'{"type":"text","text":"sys"}'),), tools=(RAW(b"{}"),), dynamic_from=1),),
    (message("m1", "user", "user", b'{"type":"text","text":"do it"}'), Titled(title="T", tags=("a",), branch="main")),
    (MODEL, Calibrated(model="some-model", ratio=1.0625, window_tokens=200000)),
    (
        message("m3", "user", "tool", RESULT, b'{"type":"image","source":{"type":"url","url":"u"}}'),
        Offloaded(changes=changes("m3", "cut"), stored=(StoredOriginal(T1[0], BlobId("0" * 64), 9),), preview_bytes=3),
    ),
    (Snipped(changes=changes("m1", "snip"), tokens_saved=4, reason="superseded read"),),
    (Cleared(trigger="size", tool_use_ids=T1, images=1, attachments=(MessageId("m1"),), tokens_saved=7),),
    (
        Collapsed(id="c1", first=MessageId("m1"), last=MessageId("m3"), projection=message("p1", "user", "summary")),
        Undone(id="c1", reason="asked to"),
    ),
    (
        ThinkingDropped(changes=changes("m2", "x"), reason="edit before it"),
        MediaReplaced(changes=changes("m3", "image")),
    ),
    (Settled(tool_use_ids=T1, reason="interrupted"), Rewound(to=MessageId("m3"), reason="asked to")),
    (Pinned(id="pin1", text="never push"), Pinned(id="pin2")),
    (
        CompactionFailed(trigger="auto", reason="empty summary"),
        Cursor(name="notes", message=MessageId("m3"), digest="d"),
    ),
    (Repaired(line=99, what="torn", quarantine="q"), Noted(kind="hook", data={"a": [1, None, {"b": 1.5}]})),
    (
        InFlight(id="command-1", kind="command", what="make", where="/t/command-1.output", began=1750000002.5),
        InFlight(id="agent-1", kind="agent", state="failed", code=1, ended=1750000002.75, result="r", is_told=True),
    ),
    (message("m4", "user", "user", b'{"type":"text","text":"go on"}'),),
)
BOUNDARY = Compacted(
    id="b1",
    trigger="manual",
    strategy="full",
    summary=(message("s1", "user", "summary", b'{"type":"text","text":"so far"}'),),
    kept=(MessageId("m4"),),
    changes=changes("m4", "kept as"),
    state={"pins": {"pin1": "never push"}, "n": [1, 2]},
    at=1750000003.0,
    tokens_before=1000,
    tokens_after=100,
    summary_tokens=20,
    kept_tokens=5,
    prompts={"summary": "abcd"},
)


WIRE = WireFields(
    protocol="openai",
    role="developer",
    fields={"reasoning_content": RAW(b'"hm\\u2026"')},
    parts={"t1": RAW(b'{"extra_content":{"n": 1.0e1}}')},
    is_list=True,
)
NEWEST = JOURNALS / "v1" / "every-record-and-worded.jsonl"
# Records that came later within the version; the files of before stay as they are.
LATER: tuple[tuple[Record, ...], ...] = (
    (Neutralised(changes=changes("m1", "<_system-reminder>"), reason="why"),),
    (Worded(message=MessageId("m2"), wire=WIRE), msgspec.structs.replace(message("m6", "user", "user"), wire=WIRE)),
)


def sample() -> bytes:
    """A version 1 journal that holds every record type."""
    lines = [encode_header(HEADER)]
    for seq, records in enumerate((*LINES[:-1], *LATER, LINES[-1]), 1):
        kept_from = sum(map(len, lines))
        lines.append(encode_line(seq, records))
    boundary = msgspec.structs.replace(BOUNDARY, kept_from=kept_from)
    lines.append(encode_line(len(lines), (boundary,)))
    lines.append(encode_line(len(lines), (message("m5", "assistant", "model", b'{"type":"text","text":"ok"}'),)))
    return b"".join(lines)


def test_the_sample_is_what_this_version_writes(golden: Callable[[Path, str | bytes], None]) -> None:
    """REL-6: the same records give the same bytes as when the file was made."""
    if VERSION > 1:
        pytest.skip("version 1 is no longer written; its file stays as it is")
    golden(NEWEST, sample())


def test_the_samples_hold_every_record_type() -> None:
    async def body() -> None:
        loaded = await (await FileJournal.open(NEWEST, read_only=True)).load(whole=True)
        assert {type(p.record) for p in loaded.records} == set(get_args(Record))

    anyio.run(body)


def golden_files() -> list[Path]:
    return sorted(JOURNALS.glob("v*/*.jsonl"))


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_golden_journal_opens(path: Path) -> None:
    """REL-6: without damage, wholly and from its boundary."""

    async def body() -> None:
        journal = await FileJournal.open(path, read_only=True)
        quick = await journal.load()
        whole = await journal.load(whole=True)
        assert not quick.repairs and not whole.repairs and not quick.whole and whole.whole
        assert [getattr(p.record, "id", None) for p in quick.records] == ["m4", "b1", "m5"]

    anyio.run(body)
    assert verify(path) == ()


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_golden_transactions_encode_to_their_own_bytes(path: Path) -> None:
    """REL-6: what was read goes out again byte for byte, in the version that is written now."""
    if path.parent.name != f"v{VERSION}":
        pytest.skip("lines of older versions are upgraded on read and never written again")
    header, *lines = path.read_bytes().splitlines(keepends=True)
    assert encode_header(decode_header(header)) == header
    for line in lines:
        transaction = decode_line(line)
        assert encode_line(transaction.seq, transaction.records) == line
