"""Hashes of everything that the engine sends and writes while recordings are driven through it.

A row speaks of one stream of one recording: how many there were, and a rolling hash after every tenth and after the
last, so that two rows tell between which two requests they part. Nothing of a recording stands in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perdure.context.replies import Delta, ModelInfo, Reply, ReplyStarted
from perdure.context.request import ModelRequest, to_request
from perdure.engine.ask import JobModels
from perdure.lab.replay.checks import JudgedModel, RequestCheck
from perdure.lab.replay.drive import ReplayDrive, ReplayOptions
from perdure.logs.recording import RecordedMessage, Recording
from perdure.settings import Settings
from perdure.transcript.blocks import Block, text_block
from perdure.transcript.codec import encode_line
from perdure.transcript.messages import ResponseId

EVERY = 10
SUMMARY = "<analysis>what happened</analysis><summary>1. Primary request: see the ledger below.</summary>"

# How a recording is driven: in its own window; in a small one, compacted by the ledger, from notes, and by a model.
VARIANTS = ("plain", "ledger", "notes", "model")


@dataclass(slots=True)
class Rolling:
    """A hash of all that was taken so far, and what it was on the way."""

    keep: Path | None = None  # a folder for everything that is taken, one file each
    count: int = 0
    marks: list[str] = field(default_factory=list)
    _hash: Any = field(default_factory=hashlib.sha256)

    def take(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._hash.update(len(piece).to_bytes(8, "big") + piece)
        self.count += 1
        if self.count % EVERY == 0:
            self.marks.append(self._now())
        if self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            (self.keep / f"{self.count:05}").write_bytes(b"\n".join(pieces))

    def row(self) -> str:
        ends = [] if self.count % EVERY == 0 else [self._now()]
        return " ".join([str(self.count), *self.marks, *ends])

    def _now(self) -> str:
        return str(self._hash.hexdigest()[:10])


def parted(before: str, now: str) -> str:
    """Where two rows part, in words."""
    (count, *marks), (count_now, *marks_now) = before.split(), now.split()
    same = 0
    while same < min(len(marks), len(marks_now)) and marks[same] == marks_now[same]:
        same += 1
    first, last = same * EVERY + 1, min((same + 1) * EVERY, max(int(count), int(count_now)))
    return f"{count} before, {count_now} now; the first difference is among {first} to {last}"


@dataclass(slots=True)
class Sent(RequestCheck):
    """Takes the requests of a replay as its check does, and only hashes them: other tests judge them."""

    into: Rolling = field(default_factory=Rolling)

    def add(self, request: ModelRequest, *, is_announced: bool) -> None:
        self.into.take(" ".join(request.betas).encode(), request.body)


@dataclass(slots=True)
class Listening:
    """`ports.Model` that answers everything with a summary, and hashes what it is asked."""

    into: Rolling
    model: str

    @property
    def about(self) -> ModelInfo:
        return ModelInfo(id=self.model, protocol="anthropic")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        self.into.take(" ".join(request.betas).encode(), request.body)
        name = ResponseId(f"answer-{self.into.count}")
        yield ReplyStarted(name)
        blocks: tuple[Block, ...] = (text_block(SUMMARY),)
        yield Reply(response=name, model=self.model, blocks=blocks, stop_reason="end_turn")

    async def count(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        pass


async def hashed(recording: Recording, variant: str, window: int, keep: Path | None = None) -> dict[str, str]:
    """The rows of one recording by stream: the requests in both protocols, those of helpers, and the journal's lines.

    `window` is the small one that all variants but the plain one have.

    With `keep` all of it is written into that folder, to compare with what another version of the code sends.
    """
    names = ("anthropic", "openai", "helpers", "journal")
    streams = {name: Rolling(keep / name if keep else None) for name in names}
    model = Listening(streams["helpers"], recording.model or "another-model")
    asked = (JudgedModel(model),) if variant == "model" else ()
    settings = Settings(window_tokens=None if variant == "plain" else window, notes=variant != "ledger")
    drive = await ReplayDrive.start(recording, ReplayOptions(settings=settings), asked)
    drive.check = Sent(drive.check.rules, into=streams["anthropic"])

    def watch(now: ReplayDrive, step: RecordedMessage) -> None:
        request = to_request(now.session.view, now.session.facts(), protocol="openai")
        streams["openai"].take(request.body)

    drive.watch = watch
    if asked:
        drive.session.services = replace(drive.session.services, helpers=JobModels(notes=(model,)))
    await drive.run()
    loaded = await drive.session.ports.journal.load(whole=True)
    for number, placed in enumerate(loaded.records):
        streams["journal"].take(encode_line(number, (placed.record,)))
    return {name: stream.row() for name, stream in streams.items() if stream.count}


def opaque(name: str) -> str:
    """A name that tells nothing of what it stands for."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def rows_in(path: Path) -> dict[str, str]:
    """The rows of a file of hashes, by recording, number, variant and stream."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    rows = (line.split(" ", 4) for line in lines if not line.startswith("#"))
    return {" ".join(key): row for *key, row in rows}


def written(path: Path, rows: dict[str, str], heading: Sequence[str]) -> None:
    """Write a file of hashes."""
    lines = [*(f"# {line}" for line in heading), *(f"{key} {row}" for key, row in sorted(rows.items()))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def differing(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    """A line for each stream that isn't what it was."""
    for key in sorted(before.keys() | now.keys()):
        if key not in now:
            yield f"{key}: there is none now"
        elif key not in before:
            yield f"{key}: there was none before"
        elif before[key] != now[key]:
            yield f"{key}: {parted(before[key], now[key])}"
