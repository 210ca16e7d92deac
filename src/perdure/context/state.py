"""What a session knows beside its messages, and how its model counts tokens (TOK-4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from perdure.context.models import CACHE_SECONDS, model_spec
from perdure.settings import REMEMBERED
from perdure.transcript.messages import ResponseId, Usage
from perdure.transcript.records import (
    Calibrated,
    CompactionFailed,
    Cursor,
    Front,
    InFlight,
    Noted,
    Pinned,
    Record,
    Titled,
)
from perdure.transcript.tokens import NOTHING, Size, json_size

IN_FLIGHT_KEPT = 20  # of background work that ended and was told

# What compaction hands from one boundary to the next is written and read by itself alone; to the fold it is bytes.
NOTHING_KNOWN: Final = msgspec.Raw(b"{}")

# Kinds of notes that the fold remembers.
HELD, REQUESTED, PUT_OFF = "summary_held", "compaction_requested", "compaction_put_off"
SETTINGS = "settings"  # the note of those that a session is opened again with


# TOK-4: a report teaches the ratio when the messages it held were estimated at this much or more …
CALIBRATION_MIN_TOKENS = 2_000
# … and what it says is believable at all; …
CALIBRATION_BELIEVED = (0.3, 3.0)
# … then the ratio moves towards it by at most this share, less for shorter contexts, and stays in its range.
CALIBRATION_STEP = 0.25
CALIBRATION_FULL_TOKENS = 20_000
CALIBRATION_RANGE = (0.5, 2.0)
# More than this in front of the first messages isn't a system prompt with tools but history said elsewhere (a log that
# goes on from another one), which a compaction leaves behind.
OVERHEAD_MAX_TOKENS = 60_000


class Calibration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reported tokens for each live-estimated token, and the tokens of the front that the estimate doesn't see.

    `overhead_tokens` is what the first report held beyond the messages (system prompt, tools); None before any report.
    """

    ratio: float = 1.0
    overhead_tokens: int | None = None
    window_tokens: int | None = None
    model: str | None = None
    output_tokens: int | None = None

    def forgotten(self) -> Calibration:
        """Without what the provider of a model stated of it."""
        return msgspec.structs.replace(self, window_tokens=None, output_tokens=None)

    def learned(self, usage: Usage, before: Size, model: str | None) -> Calibration:
        """The calibration after a report on a request whose messages were estimated at `before`."""
        old = self
        if model is not None and old.model != model:
            old = old if old.model is None else old.forgotten()
            old = msgspec.structs.replace(old, ratio=model_spec(model).tokens_ratio, model=model)
        if old.overhead_tokens is None:
            overhead = min(max(0, usage.prompt_tokens - round(old.ratio * before.live)), OVERHEAD_MAX_TOKENS)
            return msgspec.structs.replace(old, overhead_tokens=overhead)
        if before.live < CALIBRATION_MIN_TOKENS:
            return old
        observed = (usage.prompt_tokens - old.overhead_tokens) / before.live
        if not CALIBRATION_BELIEVED[0] < observed < CALIBRATION_BELIEVED[1]:
            return old
        low, high = CALIBRATION_RANGE
        share = CALIBRATION_STEP * min(1.0, before.live / CALIBRATION_FULL_TOKENS)
        ratio = old.ratio + share * (min(max(observed, low), high) - old.ratio)
        return msgspec.structs.replace(old, ratio=round(ratio, 4))


class Breaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive failures of compaction (PRS-5), and how soon the window refilled after the last ones (PRS-6)."""

    failures: int = 0
    refills: int = 0
    responses_since_boundary: int = 0
    boundaries: int = 0
    waits: bool = False  # a compaction was undone: the next automatic one waits for the block threshold (CMP-11)


class PrecomputedSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A summary that was made ahead of time: of everything up to `message`, as it was when `digest` was taken (CMP-6).

    `instructions` were followed; `dropped` is how many of the oldest API rounds the model didn't see.
    """

    message: str
    digest: str
    text: str
    model: str = ""
    dropped: int = 0
    instructions: str = ""


class RequestedCompaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model asked for a compaction: put off once, or to be done at the next legal point (CMP-6)."""

    focus: str = ""
    is_accepted: bool = False


class SessionState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that outlives a boundary; persisted whole in its checkpoint."""

    front: Front | None = None
    title: Titled = Titled()
    pins: tuple[Pinned, ...] = ()
    cursors: dict[str, Cursor] = {}
    calibration: Calibration = Calibration()
    breaker: Breaker = Breaker()
    in_flight: dict[str, InFlight] = {}  # background work by id, the newest last (SES-3)
    messages: int = 0  # said so far, over the whole session
    responses: int = 0  # API responses so far
    answered_at: float | None = None  # when the model last answered: how cold the cache is
    has_paused: bool = False  # some call came more than five minutes after the answer before it (TURN-16)
    ledger: msgspec.Raw = NOTHING_KNOWN  # what was gathered from the messages before the boundary: a `PackedLedger`
    held: PrecomputedSummary | None = None
    requested: RequestedCompaction | None = None
    put_off: int | None = None  # API responses when a compaction below the trigger changed nothing (TURN-16)
    settings: dict[str, Any] = {}  # that it was opened with last, as far as a session remembers them
    in_play: msgspec.Raw = NOTHING_KNOWN  # what the trackers learned from them: a `TrackerStates` (RST-10)

    def with_message(self) -> SessionState:
        return msgspec.structs.replace(self, messages=self.messages + 1)

    def with_answer(self, at: float | None, *, is_new: bool, asked_at: float | None = None) -> SessionState:
        """A message of the model arrived; `is_new` when it is the first of an API response asked for at `asked_at`."""
        breaker = self.breaker
        if is_new:
            since = breaker.responses_since_boundary + 1
            breaker = msgspec.structs.replace(breaker, responses_since_boundary=since)
        return msgspec.structs.replace(
            self,
            messages=self.messages + 1,
            responses=self.responses + is_new,
            has_paused=self.has_paused or (is_new and self._outlived(asked_at)),
            answered_at=self.answered_at if at is None else at,
            breaker=breaker,
        )

    def _outlived(self, asked_at: float | None) -> bool:
        """Whether a call at some time found what was written for five minutes gone."""
        if asked_at is None or self.answered_at is None:
            return False
        return asked_at - self.answered_at > CACHE_SECONDS["5m"]

    def after(self, record: Record) -> SessionState:
        """The state once a record is known; itself when the record tells nothing that outlives a boundary."""
        if isinstance(record, Titled):
            return self.with_title(record)
        if isinstance(record, Pinned):
            return self.with_pin(record)
        if isinstance(record, Cursor):
            return msgspec.structs.replace(self, cursors={**self.cursors, record.name: record})
        if isinstance(record, Noted):
            return self.with_note(record)
        if isinstance(record, InFlight):
            return self.with_in_flight(record)
        return self.with_failure(record.trigger) if isinstance(record, CompactionFailed) else self

    def with_note(self, note: Noted) -> SessionState:
        """A summary is held, a compaction was asked for, or one could wait, or settings hold; other notes, and what
        can't be read, tell nothing."""
        if note.kind == SETTINGS:
            return msgspec.structs.replace(self, settings={k: v for k, v in note.data.items() if k in REMEMBERED})
        if note.kind == PUT_OFF:
            return msgspec.structs.replace(self, put_off=self.responses)
        try:
            if note.kind == HELD:
                return msgspec.structs.replace(self, held=msgspec.convert(note.data, PrecomputedSummary))
            if note.kind == REQUESTED:
                return msgspec.structs.replace(self, requested=msgspec.convert(note.data, RequestedCompaction))
        except msgspec.ValidationError:
            pass
        return self

    def with_in_flight(self, record: InFlight) -> SessionState:
        """The newest word on a piece of background work; of what ended and was told, only the latest are kept."""
        known = {**self.in_flight, record.id: record}
        over = [i for i, one in known.items() if one.state != "running" and one.is_told][:-IN_FLIGHT_KEPT]
        return msgspec.structs.replace(self, in_flight={i: one for i, one in known.items() if i not in over})

    def with_failure(self, trigger: str) -> SessionState:
        """An attempt to compact failed; one by hand closes the breaker all the same, since somebody looked (PRS-5)."""
        if trigger == "model":  # it asked too early, perhaps; that is no failure of the automatic one
            return msgspec.structs.replace(self, requested=None)
        if trigger == "manual":
            return msgspec.structs.replace(self, breaker=msgspec.structs.replace(self.breaker, failures=0))
        breaker = msgspec.structs.replace(self.breaker, failures=self.breaker.failures + 1)
        return msgspec.structs.replace(self, breaker=breaker)

    def with_compaction_undone(self, latest: SessionState, *, waits: bool) -> SessionState:
        """This is the state without the last compaction; what was learned about the model since is in `latest`."""
        breaker = msgspec.structs.replace(self.breaker, waits=waits or self.breaker.waits)
        return msgspec.structs.replace(
            self,
            calibration=latest.calibration,
            answered_at=latest.answered_at,
            has_paused=latest.has_paused,
            breaker=breaker,
        )

    def with_title(self, record: Titled) -> SessionState:
        """The newest word on each field of the metadata (ENG-5)."""
        fields = {name: getattr(record, name) for name in record.__struct_fields__ if getattr(record, name) is not None}
        return msgspec.structs.replace(self, title=msgspec.structs.replace(self.title, **fields))

    def with_pin(self, pin: Pinned) -> SessionState:
        others = tuple(p for p in self.pins if p.id != pin.id)
        return msgspec.structs.replace(self, pins=(*others, pin) if pin.text else others)

    def with_calibrated(self, record: Calibrated) -> SessionState:
        """What a provider stated; what it stated of another model is forgotten (TOK-4)."""
        old = self.calibration if self.calibration.model in (None, record.model) else self.calibration.forgotten()
        calibration = msgspec.structs.replace(
            old,
            ratio=record.ratio,
            model=record.model,
            window_tokens=record.window_tokens or old.window_tokens,
            output_tokens=record.output_tokens or old.output_tokens,
        )
        return msgspec.structs.replace(self, calibration=calibration)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(SessionState)


def to_checkpoint(state: SessionState) -> msgspec.Raw:
    """The state as JSON, for the boundary record."""
    return msgspec.Raw(_ENCODER.encode(state))


def from_checkpoint(data: msgspec.Raw) -> SessionState:
    """The state that a boundary record carries."""
    return _DECODER.decode(data)


# `Message.note` of an answer whose provider had read less than was sent: its usage doesn't tell how tokens count.
PROVIDER_EDITED = "provider edited"
# … and that of an answer in a log of another system, which sent more than its log shows.
LOGGED = "logged"


@dataclass(frozen=True, slots=True)
class UsageAnchor:
    """A known size. The view's size now is `tokens` plus what its estimate gained since `at` was taken.

    `is_reported`: the provider said it (else it was estimated from the calibration, after a boundary).
    """

    tokens: int
    at: Size
    response: ResponseId | None
    is_reported: bool


def front_size(front: Front | None) -> Size:
    """System prompt and tool definitions, estimated; nothing when they aren't known (TOK-2)."""
    total = NOTHING
    if front is not None:
        front = front.unmarked()
        for raw in (*front.system, *front.tools):
            total = total.plus(json_size(bytes(raw)))
    return total
