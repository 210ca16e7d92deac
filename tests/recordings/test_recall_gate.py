"""RCL-1, RCL-2, SES-2: after compaction everything of a recording is found, by id and by its rarest words.

Of every fifth one; of each in `make nightly`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.recordings import made
from tests.recordings.conftest import ABSENT, session_files
from tests.tiers import NIGHTLY

from perdure.adapters.journal.search import StoreArchive
from perdure.engine.compact import CompactionSuccess, compact
from perdure.engine.imports import import_recording
from perdure.engine.tools import original
from perdure.errors import PerdureError
from perdure.logs.detect import read_recordings
from perdure.logs.recording import Recording
from perdure.recall.originals import Originals
from perdure.recall.queries import words_of
from perdure.settings import Settings
from perdure.transcript.messages import Message
from perdure.transcript.texts import SpokenPiece, pieces, tools_called
from perdure.wiring import SessionOptions, create_session

WORDS = 8  # of a query
FIRST = 5  # results that are looked at
SAMPLE = 1_000 if NIGHTLY else 60  # pieces that are searched for; all are recalled
pytestmark = pytest.mark.xdist_group("recall")  # the sessions are made once
PARTS = SessionOptions(settings=Settings(durability="process", restore=False))


@dataclass(frozen=True)
class Kept:
    """A recording as a compacted session."""

    name: str
    messages: tuple[Message, ...]

    def pieces(self) -> Iterator[SpokenPiece]:
        calls: dict[str, str] = {}
        for message in self.messages:
            calls |= tools_called(message)
            yield from pieces(message, calls)


def recordings(files: list[Path]) -> Iterator[tuple[Path, bytes, Recording, int]]:
    for path in files:
        data = path.read_bytes()
        try:
            found = [one for one in read_recordings(data, path.name) if one.messages]
        except PerdureError:
            continue
        for one in found:
            yield path, data, one, len(found)


@pytest.fixture(scope="module", params=["real", "made"])
def files(request: pytest.FixtureRequest, made_data: Path) -> list[Path]:
    real = session_files()[:: 1 if NIGHTLY else 12]
    found = real if request.param == "real" else [made_data / name for name in made.FILES]
    return found or pytest.skip(ABSENT)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, files: list[Path]) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def kept(home: Path, files: list[Path]) -> list[Kept]:
    """Every recording, imported and compacted as often as that changes something, up to twice."""
    found = list(recordings(files))

    async def body() -> list[Kept]:
        made = []
        for number, (path, data, recording, many) in enumerate(found):
            session = await create_session(home, project="/p", session=f"s{number}", parts=PARTS)
            await import_recording(session, recording, data, file=path.name, is_whole=many == 1)
            loaded = await session.ports.journal.load(whole=True)
            messages = tuple(p.record for p in loaded.records if isinstance(p.record, Message))
            for _ in range(2):
                if not isinstance(await compact(session, trigger="manual"), CompactionSuccess):
                    break
            await session.close()
            made.append(Kept(f"s{number}", messages))
        return made

    return anyio.run(body)


@pytest.mark.quick(1)
@pytest.mark.timeout(600)
def test_every_message_and_result_is_recalled_by_id(kept: list[Kept], home: Path) -> None:
    """RCL-2: byte for byte, wherever it is now."""
    archive = StoreArchive(home, "/p")

    async def body() -> int:
        count = 0
        for one in kept:
            loaded, _ = await archive.load(one.name)
            originals = Originals(placed.record for placed in loaded.records)
            for message in one.messages:
                found = originals.find(message.id)
                assert found is not None and found.raw == tuple(bytes(raw) for raw in message.content)
                for block in message.blocks:
                    if block.type == "tool_result":
                        identity = block.value.tool_use_id  # type: ignore[union-attr]
                        result = originals.find(identity)
                        assert result is not None and block.raw in result.raw, identity
                        count += 1
                count += 1
        return count

    assert anyio.run(body) > len(kept)


@pytest.mark.nightly
def test_the_engine_recalls_from_a_compacted_session(kept: list[Kept], home: Path) -> None:
    """RCL-1: through the session, as the tool and the command do it."""

    async def body() -> None:
        from perdure.wiring import open_session

        for one in random.Random(1).sample(kept, min(12, len(kept))):
            session = await open_session(home, one.name, read_only=True, parts=PARTS)
            for message in random.Random(2).sample(one.messages, min(5, len(one.messages))):
                assert (await original(session, message.id)).raw == tuple(bytes(raw) for raw in message.content)
            await session.ports.journal.close()

    anyio.run(body)


@pytest.mark.nightly
@pytest.mark.quick(1)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_one_session", [True, False], ids=["in its session", "in all sessions"])
def test_every_piece_is_found_by_its_rarest_words(kept: list[Kept], home: Path, is_one_session: bool) -> None:
    """RCL-1: in the first 5 results; more than 5 texts that hold all the words can't be told apart, and don't count."""
    said = [(one.name, piece) for one in kept for piece in one.pieces()]
    words = [set(words_of(piece.text)) for _, piece in said]
    common: Counter[str] = Counter(word for some in words for word in some)
    chosen = random.Random(3).sample(range(len(said)), min(SAMPLE, len(said)))
    archive = StoreArchive(home)
    missed, asked = [], 0
    for number in chosen:
        session, piece = said[number]
        query = sorted(words[number], key=lambda word: (common[word], word))[:WORDS]
        if not query:
            continue
        asked += 1
        names = (session,) if is_one_session else ()
        hits = anyio.run(lambda q, n: archive.search(q, limit=FIRST, sessions=n), " ".join(query), names).hits
        places = {(hit.session, hit.id) for hit in hits} | {(s, i) for hit in hits for s, i, _ in hit.also}
        if (session, piece.recall_id) in places:
            continue
        alike = {
            other.text
            for (name, other), some in zip(said, words, strict=True)
            if (name == session or not is_one_session) and some.issuperset(query)
        }
        if len(alike) <= FIRST:
            missed.append((session, piece.recall_id, query))
    assert not missed, f"{len(missed)} of {asked}: {missed[:5]}"
