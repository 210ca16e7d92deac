"""The picture of the front page: a made session live, what was said and what stood in the window, as an SVG."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Final

from bench._shop import JOBS, MODEL, SYSTEM, TOOLS, Shop
from msgspec.structs import replace

from perdure import Message, Session, Usage
from perdure.engine.session import ModelWindow
from perdure.events import CompactionDone, Event, ResultsCleared
from perdure.testing import FakeUpstream, ModelRules, UpstreamError, say
from perdure.transcript.blocks import Text, ToolResult
from perdure.transcript.tokens import block_size
from perdure.wiring import SessionOptions, memory_session

WINDOW: Final = 200_000
SEED, SIZE = 3, 1.6

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What happened: tokens said and tokens sent at each call, and what was counted."""

    said: tuple[int, ...]
    sent: tuple[int, ...]
    clearings: tuple[int, ...]  # the calls before which old results left the view
    compactions: tuple[int, ...]  # and those before which the session was compacted
    refused: int
    ends: int  # the call at which a server refuses the whole history
    texts: int
    found: int  # texts that are recalled as they were said

    @classmethod
    def read(cls, picture: str) -> Run:
        """The run that a picture shows. Raises `ValueError` when it isn't one of these."""
        match = re.search(r"<metadata>(.*?)</metadata>", picture)
        if match is None:
            raise ValueError("it doesn't say which run it shows")
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(match[1]).items()}
        return cls(**fields)

    def differs_from(self, other: Run) -> str:
        """What a reader would see differently: another count, or sizes by more than a hundredth of the window."""
        for name in ("clearings", "compactions", "refused", "ends", "texts", "found"):
            if getattr(self, name) != getattr(other, name):
                return f"{name}: {getattr(self, name)}, and now {getattr(other, name)}"
        pairs = zip((*self.said, *self.sent), (*other.said, *other.sent), strict=True)
        far = max(abs(one - two) for one, two in pairs) if len(self.said) == len(other.said) else WINDOW
        return f"sizes by up to {far:,} tokens" if far > WINDOW / 100 else ""


class _MadeRoom:
    """The calls before which room was made."""

    def __init__(self) -> None:
        self.call = 1
        self.clearings: list[int] = []
        self.compactions: list[int] = []

    def emit(self, event: Event) -> None:
        if isinstance(event, CompactionDone):
            self.compactions.append(self.call)
        elif isinstance(event, ResultsCleared):
            self.clearings.append(self.call)


class _WholeHistory:
    """A client that sends all of it each time, until the server refuses."""

    def __init__(self) -> None:
        self.server = FakeUpstream(rules=ModelRules(window_tokens=WINDOW))
        self.messages: list[Json] = []
        self.ends = 0

    def says(self, message: Message) -> None:
        if not self.ends:
            self.messages.append({"role": message.role, "content": _blocks(message)})

    def asks(self, call: int) -> None:
        if self.ends:
            return
        body: Json = {"model": MODEL, "max_tokens": 8_000, "system": SYSTEM, "tools": TOOLS, "messages": self.messages}
        try:
            self.server.respond(json.dumps(body).encode(), reply=say("so"), session="whole")
        except UpstreamError:
            self.ends = call


async def run() -> Run:
    """Drive the session, with a fake server that checks every request by the API's rules."""
    told, whole = _MadeRoom(), _WholeHistory()
    server = FakeUpstream(rules=ModelRules(window_tokens=WINDOW))
    said, sizes, total = list[int](), list[int](), 0
    texts: dict[str, str] = {}
    parts = SessionOptions(sink=told, window=ModelWindow(WINDOW, "model"), kind=Session)
    async with await memory_session(parts=parts) as session:
        await session.set_prefix(model=MODEL, system=SYSTEM, tools=list(TOOLS))
        for message in Shop(SEED, SIZE).messages(JOBS):
            if message.role == "assistant":
                told.call = len(sizes) + 1
                request = await session.prepare()
                said.append(total)
                sizes.append(request.tokens)
                whole.asks(told.call)
                blocks = _blocks(message)
                answer = server.respond(request.body, reply=say(*blocks), session="shop").message
                await session.append(Message.of("assistant", answer["content"], id=message.id, usage=_usage(answer)))
            else:
                await session.append(replace(message, at=None))
            whole.says(message)
            total += sum(block_size(block).base for block in message.blocks)
            texts |= _texts(message)
        found = sum([await session.recall(id) == text for id, text in texts.items()])
    return Run(
        said=tuple(said),
        sent=tuple(sizes),
        clearings=tuple(told.clearings),
        compactions=tuple(told.compactions),
        refused=server.statistics.refused,
        ends=whole.ends,
        texts=len(texts),
        found=found,
    )


def _blocks(message: Message) -> list[Json]:
    return [json.loads(bytes(raw)) for raw in message.content]


def _texts(message: Message) -> Json:
    """What can be asked for by an id: a person's words, the model's, and each result of a tool."""
    values = [block.value for block in message.blocks]
    if [type(value) for value in values] == [Text]:
        return {message.id: values[0].text}
    return {value.tool_use_id: value.text() for value in values if isinstance(value, ToolResult)}


def _usage(answer: Json) -> Usage:
    return Usage(**{name: answer["usage"][name] for name in ("input_tokens", "output_tokens", *_CACHED)})


_CACHED: Final = ("cache_creation_input_tokens", "cache_read_input_tokens")

# --- drawing ----------------------------------------------------------------------------------------------------------

WIDE, HIGH = 760, 442
LEFT, RIGHT, TOP, BOTTOM = 14, 746, 22, 330
STYLE: Final = """
svg { font: 19px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.paper { fill: #ffffff; } .ink { fill: #1c2430; } .soft { fill: #5c6773; }
.bad { fill: #c0392b; } .light { fill: #ffffff; } .end { stroke: #c0392b; stroke-width: 3; }
.said { fill: none; stroke: #7d8794; stroke-width: 2.5; stroke-dasharray: 7 5; }
.view { fill: #3d6fc4; } .window { stroke: #1c2430; stroke-width: 1.5; stroke-dasharray: 2 4; }
.base { stroke: #b8c0ca; stroke-width: 1; } .mark { fill: #3d6fc4; }
@media (prefers-color-scheme: dark) { .paper { fill: #12161c; } .ink { fill: #e6eaf0; } .soft { fill: #98a4b3; }
.bad { fill: #ff8676; } .said { stroke: #98a4b3; } .end { stroke: #e8695b; }
.view { fill: #3f6dbd; } .window { stroke: #e6eaf0; } .base { stroke: #3a4552; } .mark { fill: #6391e0; } }
"""


def drawn(told: Run) -> str:
    """The picture of a run."""
    top = max(told.said)
    xs = [LEFT + (RIGHT - LEFT) * n / (len(told.said) - 1) for n in range(len(told.said))]

    def y(tokens: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * tokens / top

    def points(values: Sequence[int]) -> str:
        return " ".join(f"{x:.0f},{y(value):.0f}" for x, value in zip(xs, values, strict=True))

    at, window = xs[told.ends - 1], y(WINDOW)
    marks = "".join(f'<path class="mark" d="M{xs[n - 1]:.0f} {BOTTOM + 4}l7 12h-14z"/>' for n in told.compactions)
    refused = f"{told.refused} refused" if told.refused else "none refused"
    return "".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" role="img" aria-labelledby="t">',
        f'<title id="t">{escape(told_in_words(told))}</title>',
        f"<metadata>{json.dumps(asdict(told), separators=(',', ':'))}</metadata><style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDE}" height="{HIGH}" rx="10"/>',
        f'<polygon class="view" points="{LEFT},{BOTTOM} {points(told.sent)} {RIGHT},{BOTTOM}"/>',
        f'<polyline class="said" points="{points(told.said)}"/>',
        f'<line class="window" x1="{LEFT}" x2="{RIGHT}" y1="{window:.0f}" y2="{window:.0f}"/>',
        f'<line class="base" x1="{LEFT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>{marks}',
        f'<path class="end" d="M{at - 8:.0f} {window - 8:.0f}l16 16m0 -16l-16 16"/>',
        _text(RIGHT - 92, TOP + 4, f"said: {top:,} tokens", "soft", "end"),
        _text(LEFT + 2, window - 44, "the whole history:", "bad"),
        _text(LEFT + 2, window - 20, f"refused at call {told.ends}", "bad"),
        _text(RIGHT - 2, window - 9, f"the model's window: {WINDOW:,}", "ink", "end"),
        _text(at + 24, BOTTOM - 11, f"sent: {max(told.sent):,} tokens at most", "light"),
        _text(LEFT + 2, BOTTOM + 46, f"{_made_room(told)} \u25b2", "ink"),
        _text(LEFT + 2, BOTTOM + 73, f"{len(told.said)} calls, {refused}", "ink"),
        _text(LEFT + 2, BOTTOM + 100, f"{told.found:,} of {told.texts:,} texts found again, word for word", "ink"),
        "</svg>\n",
    ))  # fmt: skip


def told_in_words(told: Run) -> str:
    return (
        f"A session of {len(told.said)} calls: {max(told.said):,} tokens were said, and at most {max(told.sent):,} "
        f"were sent in a window of {WINDOW:,}; {_made_room(told)}. Sending the whole history would have been refused "
        f"at call {told.ends}. {told.found:,} of {told.texts:,} texts were found again word for word."
    )


def _made_room(told: Run) -> str:
    return f"old results cleared {_times(told.clearings)}, the session compacted {_times(told.compactions)}"


def _times(calls: Sequence[int]) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(len(calls), f"{len(calls)} times")


def _text(x: float, y: float, words: str, css: str, anchor: str = "start") -> str:
    return f'<text class="{css}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'
