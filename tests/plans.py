"""Hypothesis strategies: blocks, messages, and whole sessions as a real agent would make them.

`raw_blocks` and `messages` are values. `sessions` are sequences of steps for a driver that owns a session: what a
person says, what the model answers (parallel calls, one response over several messages), what comes of each call (late,
twice, never, huge, as an error), and what happens in between (idle hours, other settings, a manual compaction, a
rewind, a restart). A step holds no ids and no token counts: the driver gives those as the session goes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from perdure.transcript.messages import Message, MessageId, Role

Json = dict[str, Any]
Usage = Literal["reported", "absent", "placeholder", "none yet"]
Outcome = Literal["text", "error", "parts", "image", "huge", "dense", "progress", "empty", "missing", "late", "twice"]

# A picture of 640 by 480 pixels, as far as anyone reads it; base64 so that it can stand in a block.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAIAAAA="
PATHS = ("src/engine.py", "src/view.py", "docs/tour.md", "tests/test_view.py")
READ, RUN, SEARCH, CHANGE, TODO, OTHER, RECALL = "Read", "Bash", "Grep", "Edit", "TodoWrite", "mcp__web__shot", "recall"


@dataclass(frozen=True, slots=True)
class Say:
    """A person (or, with another origin, the host) says something."""

    content: tuple[Json, ...]
    origin: Literal["user", "reminder"] = "user"
    note: str | None = None


@dataclass(frozen=True, slots=True)
class CallPlan:
    """A call the model makes, and what comes of it. `size` is in lines; `numbering_faults`: before the response has
    ended."""

    name: str
    input: Json
    outcome: Outcome = "text"
    size: int = 3
    between: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The model answers: the driver prepares a request, sends it, and appends what comes back."""

    text: str = ""
    thinking: str | None = None
    calls: tuple[CallPlan, ...] = ()
    is_split: bool = False  # one message for each block, as some logs have it
    usage: Usage = "reported"
    shuffle: int = 0  # turns the order of the results


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The person stopped the answer: its text, and the marker that the client leaves."""

    text: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """A result that no call asked for."""

    text: str


@dataclass(frozen=True, slots=True)
class SubAgent:
    """Something said inside a sub-agent's run."""

    text: str


@dataclass(frozen=True, slots=True)
class Late:
    """The results that had not come yet arrive."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A request is prepared, and fails for a reason of the network's."""


@dataclass(frozen=True, slots=True)
class Idle:
    seconds: float


@dataclass(frozen=True, slots=True)
class Configure:
    """Other settings from now on."""

    changes: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Compact:
    """The person asks for a compaction."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """The person goes back by so many messages."""

    back: int


@dataclass(frozen=True, slots=True)
class NewFront:
    """Another system prompt or other tools."""

    number: int


@dataclass(frozen=True, slots=True)
class Pin:
    """Text that has to survive."""

    text: str


@dataclass(frozen=True, slots=True)
class Undo:
    """The last collapse is undone; without any, the last compaction."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The process ends, and another opens the session."""


Step = (
    Say
    | Answer
    | Interrupted
    | Orphan
    | SubAgent
    | Late
    | Retry
    | Idle
    | Configure
    | Compact
    | Rewind
    | NewFront
    | Pin
    | Undo
    | Restart
)

# --- values ---------------------------------------------------------------------------------------------------------

_ODD = 'é\u00a0\u2028\U0001f600\u200b漢字\x7f\t\n"\\/<>'
names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)


def texts(max_size: int = 30, *, is_blank_allowed: bool = False) -> st.SearchStrategy[str]:
    """Text in many scripts, without lone surrogates (no JSON holds them)."""
    some = st.one_of(
        st.text(st.characters(codec="utf-8"), max_size=max_size),
        st.text(_ODD + "abc 1", max_size=max_size),
        st.sampled_from(
            ("go on", "fix the bug in src/view.py", "What does line 40 do?", "漢字を読む", "[tool_result]")
        ),
    )
    return some if is_blank_allowed else some.map(lambda text: text if text.strip() else f"{text}.")


def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value, small."""
    leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        leaves | texts(8, is_blank_allowed=True),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=5,
    )


def _object(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


def image() -> Json:
    """An image block."""
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}


def document(text: str) -> Json:
    """A document block that holds plain text."""
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text or "-"}}


def known_blocks() -> st.SearchStrategy[Json]:
    """Blocks whose shape we know, each valid."""
    parts = st.lists(_object("text", text=texts()) | st.builds(image), max_size=3)
    return st.one_of(
        _object("text", text=texts(is_blank_allowed=True)),
        _object("thinking", thinking=texts(is_blank_allowed=True), signature=names),
        _object("redacted_thinking", data=names),
        _object("tool_use", id=names, name=names, input=st.dictionaries(names, json_values(), max_size=3)),
        _object("tool_result", tool_use_id=names, content=texts(is_blank_allowed=True) | parts, is_error=st.booleans()),
        _object("server_tool_use", id=names, name=names, input=st.dictionaries(names, json_values(), max_size=2)),
        _object("web_search_tool_result", tool_use_id=names, content=json_values()),
        _object("compaction", content=st.none() | texts()),
        st.builds(image),
        st.builds(document, texts()),
    )


def unknown_blocks() -> st.SearchStrategy[Json]:
    """Blocks of types that nobody here has heard of."""
    return st.builds(
        lambda kind, more: {**more, "type": f"new_{kind}"}, names, st.dictionaries(names, json_values(), max_size=4)
    )


def _spelled(block: Json, style: int) -> bytes:
    """The same JSON in another spelling: key order, spaces, escapes."""
    raw = msgspec.json.encode(dict(reversed(block.items())) if style & 1 else block)
    return msgspec.json.format(raw, indent=1 if style & 4 else 0) if style & 2 else raw


def raw_blocks() -> st.SearchStrategy[bytes]:
    """Bytes of any block that a provider could send, known or not, with fields added and spelled in many ways."""
    extra = st.dictionaries(names.map(lambda name: f"x_{name}"), json_values(), max_size=2)
    whole = st.builds(lambda block, more: {**more, **block}, known_blocks() | unknown_blocks(), extra)
    return st.builds(_spelled, whole, st.integers(0, 7))


_ROLES: tuple[Role, ...] = ("user", "assistant")


@st.composite
def messages(draw: st.DrawFn, *, identity: str = "m") -> Message:
    """One message with any blocks; not necessarily one that an API would take."""
    role: Role = draw(st.sampled_from(_ROLES))
    return Message(
        id=MessageId(f"{identity}-{draw(st.integers(0, 10**6))}"),
        role=role,
        content=tuple(msgspec.Raw(raw.replace(b"\n", b" ")) for raw in draw(st.lists(raw_blocks(), max_size=4))),
        origin="model" if role == "assistant" else "user",
        at=draw(st.none() | st.integers(0, 10**9).map(float)),
        agent_id=draw(st.sampled_from((None, None, None, "agent-1"))),
    )


# --- plans ----------------------------------------------------------------------------------------------------------


FIRST = Say(({"type": "text", "text": "please fix the failing test"},))


def says() -> st.SearchStrategy[Say]:
    """What people and hosts say: text mostly, sometimes with an image, a document, or as a memory attachment."""
    text = texts().map(lambda words: {"type": "text", "text": words})
    long = st.integers(1, 40).map(lambda n: {"type": "text", "text": "please look at this again, closely. " * n})
    media = st.one_of(st.builds(image), st.builds(document, texts()))
    plain = st.one_of(text, long).map(lambda block: Say((block,)))
    mixed = st.tuples(text, media).map(Say)
    blank = st.just(Say(({"type": "text", "text": "  \n"}, {"type": "text", "text": "and now?"})))
    host = st.sampled_from((None, "memory", "nested_instructions"))
    attached = st.builds(lambda block, note: Say((block,), "reminder", note), long, host)
    return st.one_of(plain, plain, plain, mixed, attached, blank)


_TOOLS = (READ, READ, READ, RUN, RUN, SEARCH, CHANGE, TODO, OTHER, RECALL)
_OUTCOMES: tuple[Outcome, ...] = (
    *("text",) * 8,
    *("error", "parts", "image", "huge", "dense", "progress", "empty", "missing", "late", "twice"),
)


SETTINGS: tuple[tuple[tuple[str, Any], ...], ...] = (
    (("window_tokens", 8_000),),
    (("window_tokens", 16_000),),
    (("window_tokens", 200_000),),
    (("collapse", True), ("collapse_min_tokens", 300)),
    (("auto_compact", False),),
    (("auto_compact", True),),
    (("max_images", 1),),
    (("microcompact_keep_tokens", 500), ("microcompact_min_saved_tokens", 100)),
    (("policy", "thrifty"),),
    (("snip", False),),
)


def sessions(
    *, min_steps: int = 4, max_steps: int = 24, without: tuple[type, ...] = ()
) -> st.SearchStrategy[list[Step]]:
    """Whole sessions: it begins with a person, and then anything follows anything, but the steps `without`.

    Each step is drawn at once from its own seed: sessions are long and rich, and still shrink by losing steps.
    """
    seeds = st.lists(st.integers(0, 2**32 - 1), min_size=min_steps, max_size=max_steps)
    return seeds.map(lambda drawn: [FIRST, *(s for seed in drawn if not isinstance(s := step_of(seed), without))])


def tool_mixes(*, max_size: int = 24) -> st.SearchStrategy[list[Answer]]:
    """Answers of one call each, whose results fill a small window: of tools that are cleared first and of others, some
    too small to be cleared, in any order."""
    names = st.sampled_from((READ, RUN, OTHER, OTHER, TODO))
    answers = st.builds(answer_with, names, st.sampled_from((1, 4, 8, 12, 30)), st.integers(0, 99))
    return st.lists(answers, min_size=2, max_size=max_size)


def answer_with(name: str, size: int, number: int = 0) -> Answer:
    """An answer that only makes a call, whose result has so many lines."""
    return Answer(calls=(CallPlan(name, {"file_path": f"src/part_{number}.py"}, size=size),))


def session_plan(seed: int, steps: int) -> list[Step]:
    """One session of so many steps, the same for the same seed."""
    chance = random.Random(seed)
    return [FIRST, *(step_of(chance.getrandbits(32)) for _ in range(steps))]


def step_of(seed: int) -> Step:
    """A step as chance has it, with the weights of a real session."""
    chance = random.Random(seed)
    kind = chance.random()
    return _an_answer(chance) if kind < 0.6 else _a_word(chance) if kind < 0.75 else _an_event(chance)


def answer_plan(seed: int) -> Answer:
    """An answer with its calls, as chance has it."""
    return _an_answer(random.Random(seed))


def _an_answer(chance: random.Random) -> Answer:
    return Answer(
        text=chance.choice(("", "I will look at the file.", "Done: 漢字 é.", "A longer remark. " * 20)),
        thinking=chance.choice((None, "", "let me think about it")),
        calls=tuple(_a_call(chance) for _ in range(chance.choice((0, 1, 1, 2, 3, 8)))),
        is_split=chance.random() < 0.5,
        usage=chance.choice(("reported", "reported", "reported", "absent", "placeholder")),
        shuffle=chance.randrange(4),
    )


def _a_call(chance: random.Random) -> CallPlan:
    name, path = chance.choice(_TOOLS), chance.choice(PATHS)
    states = ("pending", "in_progress", "completed")
    todos = [{"content": f"{which} task", "status": chance.choice(states)} for which in ("first", "second")]
    inputs: dict[str, Json] = {
        READ: {"file_path": path, **chance.choice(({}, {"offset": 1, "limit": 20}))},
        RUN: {"command": f"pytest -q {path}"},
        SEARCH: {"pattern": chance.choice(("def ", "class ")), "path": "src"},
        CHANGE: {"file_path": path, "old_string": "a", "new_string": "b"},
        TODO: {"todos": todos},
    }
    size = chance.choice((1, 5, 30, 60, 120))
    return CallPlan(name, inputs.get(name, {"id": "toolu-1"}), chance.choice(_OUTCOMES), size, chance.random() < 0.5)


def _a_word(chance: random.Random) -> Say:
    text = chance.choice(("go on", "please look at this again, closely. " * 12, "  \n", "漢字を読む"))
    block: Json = {"type": "text", "text": text}
    if chance.random() < 0.2:
        return Say((block,), "reminder", chance.choice((None, "memory", "nested_instructions")))
    return Say((block, image()) if chance.random() < 0.3 else (block,))


def _an_event(chance: random.Random) -> Step:
    return chance.choice(
        (
            *(Restart(), Compact(), Retry(), Late(), Late(), Undo(), Orphan("nobody asked"), SubAgent("aside")),
            Idle(chance.choice((60.0, 4_000.0, 90_000.0))),
            *(Configure(chance.choice(SETTINGS)), Configure(chance.choice(SETTINGS))),
            Rewind(chance.randint(1, 6)),
            NewFront(chance.randint(1, 3)),
            Pin(chance.choice(("never touch prod", "use tabs"))),
            Interrupted("I would begin with a long explanation of it all. " * 12),
        )
    )


def outcome_content(plan: CallPlan, number: int) -> Any:
    """The content of a call's result. The same read gives the same text; `number` tells other results apart."""
    lines = [f"{n}: value_{n} = compute({plan.input!s:.60})" for n in range(plan.size)]
    if plan.outcome == "parts":
        return [{"type": "text", "text": "\n".join(lines)}, image(), {"type": "text", "text": "as seen above"}]
    if plan.outcome == "image":
        return [image()]
    if plan.outcome == "huge":
        return "\n".join(f"{n}: error or not, line {n} of output" for n in range(plan.size * 30))
    if plan.outcome == "dense":
        return "漢字カナ" * (plan.size * 20)
    if plan.outcome == "progress":
        return "\n".join(f"{n}% [=========>    ] 3.1MB/s" for n in range(30 + plan.size))
    if plan.outcome == "empty":
        return ""
    stamp = [] if plan.name == READ else [f"run {number}"]
    return "\n".join([*stamp, *lines])
