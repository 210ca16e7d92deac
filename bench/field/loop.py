"""The loop in which every peer of `bench/peers.py` meets the same recorded session, and what is counted in it.

Runs in the environment of the peer, on the standard library alone: `python PEER.py SCRIPT SETTING [--seconds N]`. The
script is one JSON object: `system`, `window`, and `calls`, each with `said` (what was said before it), `answer`,
`at`, `measured` and `watched`. Printed are lines of JSON: `{"at": call}` now and then, `{"view": …}` at watched calls,
and at the end `{"done": …}`.

Counted the same for all, outside of what is timed. A request is a list of parts (a text, a call, a result); a part has
a fourth of its characters in tokens. What a request shares with the last one, whole parts from its beginning, is read
from the cache if that was less than five minutes ago; all behind it is uncached. The prefix breaks where a request no
longer begins with all of the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

CACHE_SECONDS = 300.0
SUMMARY_TOKENS = 2_500  # about what Claude Code's own summaries in the recordings take
_PROGRESS = 25  # calls


class Part(NamedTuple):
    """One text, call or result of a request; `call` is the id of a call, and of what answers it."""

    kind: str  # system, user, assistant, call or result
    text: str
    call: str = ""


def tokens_of(text: str) -> int:
    """A fourth of the characters: the same count for all."""
    return (len(text) + 3) // 4


Said = dict[str, Any]
"""A message of the script: `role` (user, assistant, tool), `text`; an assistant's `calls`, a tool's `id` and `name`."""


class Peer:
    """One way to keep a context within its window. A subclass says how, by the public interface of its package."""

    is_stateless = False  # a request follows from the whole history alone, whatever was sent before

    def __init__(self, script: Mapping[str, Any]) -> None:
        self.window: int = script["window"]
        self.system: str = script["system"]

    def made(self, said: Said) -> list[Any]:
        """A message in the peer's own words; not timed."""
        raise NotImplementedError

    def add(self, made: list[Any]) -> None:
        """Take up what was said."""
        raise NotImplementedError

    def prepared(self) -> Any:
        """The request for the next call."""
        raise NotImplementedError

    def parts(self, request: Any) -> Iterator[Part]:
        """What stands in a request, without the system prompt; not timed."""
        raise NotImplementedError


# --- the scripted summariser -----------------------------------------------------------------------------------------

_TELLING = re.compile(
    r"[\w.-]*/[\w./-]+|\b\w+\.(?:py|go|ts|tsx|js|json|md|rs|toml|yaml|yml|sh)\b|\b[a-z]+_\w+\b|\b[a-z]+[A-Z]\w+\b"
    r"|\b[0-9a-f]{7,40}\b|--[a-z][\w-]+|\b\d{3,}\b"
)


@dataclass
class Summariser:
    """Stands in for the model that a peer asks for a summary.

    It copies lines: those that name most that wasn't named yet (paths, names, numbers), for their length, up to 2,500
    tokens, in their order. It invents nothing and reads all that it is handed, whatever the prompt asks for.
    """

    calls: int = 0
    read: int = 0
    written: int = 0
    seconds: float = 0.0

    def __call__(self, text: str) -> str:
        began = time.process_time()
        chosen = self._lines(text)
        self.calls += 1
        self.read += tokens_of(text)
        self.written += tokens_of(chosen)
        self.seconds += time.process_time() - began
        return chosen

    @staticmethod
    def _lines(text: str) -> str:
        lines = [line[:400] for line in text.splitlines() if line.strip()]
        named: set[str] = set()
        scored: list[tuple[float, int]] = []
        for number, line in enumerate(lines):
            new = set(_TELLING.findall(line)) - named
            named |= new
            if new:
                scored.append((len(new) / (len(line) + 40), number))
        left, chosen = SUMMARY_TOKENS * 4, set[int]()
        for _, number in sorted(scored, reverse=True):
            if len(lines[number]) + 1 <= left:
                chosen.add(number)
                left -= len(lines[number]) + 1
        return "\n".join(lines[number] for number in sorted(chosen)) or text[: SUMMARY_TOKENS * 4]


SUMMARISER = Summariser()


# --- what is counted -------------------------------------------------------------------------------------------------


@dataclass
class Counts:
    """What a session came to."""

    calls: int = 0
    breaks: int = 0
    read: int = 0
    uncached: int = 0
    output: int = 0
    beyond: int = 0  # requests that the window doesn't hold
    invalid: int = 0  # requests that a provider refuses: a result without its call, a call without its result, nothing
    largest: int = 0
    stopped: str = ""
    summaries: dict[str, float] = field(default_factory=dict)
    timed: list[tuple[int, float]] = field(default_factory=list)  # tokens said so far, seconds of processor time


class Meter:
    """Follows the cache from request to request."""

    def __init__(self, window: int) -> None:
        self.counts, self.window = Counts(), window
        self._last: list[Part] = []
        self._last_at: float | None = None

    def sent(self, parts: list[Part], at: float | None, *, is_counted: bool = True) -> int:
        """Enter a request; returns its tokens."""
        sizes = [tokens_of(part.text) for part in parts]
        shared = 0
        for old, new in zip(self._last, parts, strict=False):
            if old != new:
                break
            shared += 1
        counts, total = self.counts, sum(sizes)
        is_cold = at is not None and self._last_at is not None and at - self._last_at > CACHE_SECONDS
        read = 0 if is_cold else sum(sizes[:shared])
        if is_counted:
            counts.calls += 1
            counts.breaks += shared < len(self._last)
            counts.read += read
            counts.uncached += total - read
            counts.beyond += total > self.window
            counts.invalid += not is_valid(parts)
            counts.largest = max(counts.largest, total)
        self._last, self._last_at = parts, at
        return total


def is_valid(parts: Sequence[Part]) -> bool:
    """Whether calls and results belong together, and anything is said at all."""
    open_calls: set[str] = set()
    is_answering = False
    for part in parts:
        if part.kind == "result":
            if part.call not in open_calls:
                return False
            open_calls.discard(part.call)
            is_answering = True
            continue
        if open_calls and (part.kind == "user" or is_answering):
            return False
        is_answering = False
        if part.kind == "call":
            open_calls.add(part.call)
    return not open_calls and any(part.kind != "system" for part in parts)


# --- the loop --------------------------------------------------------------------------------------------------------


def run(peer: Peer, script: Mapping[str, Any], seconds: float) -> Counts:
    """Drive the whole session."""
    meter, said = Meter(peer.window), 0
    began = time.process_time()
    is_sampled = any(call["measured"] for call in script["calls"]) and peer.is_stateless
    for number, call in enumerate(script["calls"]):
        if time.process_time() - began > seconds:
            meter.counts.stopped = f"stopped at call {number} of {len(script['calls'])} after {seconds:.0f} s"
            break
        made = [one for message in call["said"] for one in peer.made(message)]
        said += sum(size_of(message) for message in call["said"])
        spent = _timed(lambda made=made: peer.add(made))[1]
        output = size_of(call["answer"])
        prompt = 0
        if not is_sampled or call["measured"]:
            request, more = _timed(peer.prepared)
            parts = [Part("system", peer.system), *peer.parts(request)]
            prompt = meter.sent(parts, call["at"])
            meter.counts.output += output
            meter.counts.timed.append((said, spent + more))
            if call["watched"]:
                print(json.dumps({"view": number, "text": "\n".join(part.text for part in parts)}), flush=True)
        answer = {**call["answer"], "prompt_tokens": prompt, "output_tokens": output}
        made = peer.made(answer)
        _, spent = _timed(lambda made=made: peer.add(made))
        if meter.counts.timed:
            size, before = meter.counts.timed[-1]
            meter.counts.timed[-1] = (size, before + (spent if prompt else 0.0))
        said += output
        if number % _PROGRESS == 0:
            print(json.dumps({"at": number}), flush=True)
    meter.counts.summaries = {name: value for name, value in asdict(SUMMARISER).items() if name != "seconds"}
    return meter.counts


def size_of(message: Said) -> int:
    """Its tokens."""
    return tokens_of(message["text"]) + sum(tokens_of(call_text(call)) for call in message.get("calls", ()))


def call_text(call: Mapping[str, Any]) -> str:
    """A call as text, the same for all."""
    return f"[{call['name']}] {json.dumps(call['arguments'], ensure_ascii=False)}"


def _timed(doing: Callable[[], Any]) -> tuple[Any, float]:
    """What it gave, and the processor time that it took without that of the summariser."""
    began, asked = time.process_time(), SUMMARISER.seconds
    done = doing()
    return done, time.process_time() - began - (SUMMARISER.seconds - asked)


class Loop:
    """Runs coroutines of a peer one after the other, in one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def __call__(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(doing)


def main(settings: Mapping[str, Callable[[Mapping[str, Any]], Peer]]) -> None:
    """The command line of a peer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("script", type=Path)
    parser.add_argument("setting", choices=sorted(settings))
    parser.add_argument("--seconds", type=float, default=120.0)
    given = parser.parse_args()
    script = json.loads(given.script.read_text())
    counts = run(settings[given.setting](script), script, given.seconds)
    print(json.dumps({"done": asdict(counts)}), flush=True)
    sys.stdout.flush()
