"""What is odd about a recorded session: things that a log should not hold, each with how often (CLI-2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.transcript.messages import Message
from holdfast.transcript.sizes import block_size

# A jump is a step of the reported prompt that what was said can't explain, by more than this.
_JUMP_TOKENS = 5_000
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`kind` is stable, for programs; `what` is for people; `where` are ids of messages or calls."""

    kind: str
    count: int
    what: str
    where: tuple[str, ...] = ()


def anomalies(messages: Sequence[Message]) -> list[Anomaly]:
    """All that was found in the main conversation, most telling first."""
    main = [message for message in messages if message.agent_id is None]
    found = [*_calls(main), *_repeated(main), *_jumps(main), *_times(main)]
    return [anomaly for anomaly in found if anomaly.count]


def _anomaly(kind: str, what: str, where: Sequence[str]) -> Anomaly:
    return Anomaly(kind, len(where), what, tuple(where[:_SHOWN]))


def _calls(messages: list[Message]) -> Iterator[Anomaly]:
    calls = Counter(use.id for message in messages for use in message.tool_uses)
    results = Counter(result.tool_use_id for message in messages for result in message.tool_results)
    yield _anomaly("calls_without_result", "calls without a result", [i for i in calls if i not in results])
    yield _anomaly("results_without_call", "results without a call", [i for i in results if i not in calls])
    yield _anomaly("repeated_call_ids", "call ids used more than once", [i for i, n in calls.items() if n > 1])
    yield _anomaly("repeated_results", "calls answered more than once", [i for i, n in results.items() if n > 1])


def _repeated(messages: list[Message]) -> Iterator[Anomaly]:
    ids = Counter(message.id for message in messages)
    yield _anomaly("repeated_message_ids", "message ids used more than once", [i for i, n in ids.items() if n > 1])


def _jumps(messages: list[Message]) -> Iterator[Anomaly]:
    """Steps of the reported usage between API responses that the messages between them don't explain."""
    up: list[str] = []
    down: list[str] = []
    last_total, since, response = None, 0, None
    for message in messages:
        usage = message.usage
        is_repeat = message.response_id is not None and message.response_id == response
        if message.role == "assistant" and usage is not None and usage.total_tokens and not is_repeat:
            if last_total is not None:
                gained = usage.prompt_tokens - last_total
                slack = _JUMP_TOKENS + since
                if gained > since + slack:
                    up.append(message.id)
                elif gained < -_JUMP_TOKENS:
                    down.append(message.id)
            last_total, since, response = usage.total_tokens, 0, message.response_id
        elif is_repeat and usage is not None and last_total is not None:
            last_total = max(last_total, usage.total_tokens)  # the last record of a response states all of it
        elif not is_repeat:
            since += sum(block_size(block).live for block in message.blocks)
    yield _anomaly("usage_jumps", "rises of the reported size beyond what was said", up)
    yield _anomaly("usage_drops", "falls of the reported size (compacted, cleared or rewound)", down)


def _times(messages: list[Message]) -> Iterator[Anomaly]:
    timed = [message for message in messages if message.at is not None]
    late = [b.id for a, b in pairwise(timed) if (b.at or 0) < (a.at or 0)]
    yield _anomaly("times_out_of_order", "messages dated before the one they follow", late)
