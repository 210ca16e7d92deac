"""What the ledger costs: reading messages as they arrive, and a compaction, incremental and from cold (SPD-2).

    python bench/ledger.py [FILE...]

Without files it makes a session of its own: reads, edits, test runs and talk, the same in every run. Prints CPU
milliseconds for each 1,000 tokens read, and for compacting 75,000 and 200,000 tokens to 12,000: the record alone
(incremental: the index was kept up), the checkpoint that goes into the boundary, and everything from cold. No name was
seen before, as in a process that has just begun.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from perdure.compaction.ledger.facts import keys_of, worth_of
from perdure.compaction.ledger.memory import PackedLedger, pack_ledger
from perdure.compaction.ledger.reader import ExtractIndex
from perdure.compaction.ledger.render import RecordSurroundings, render
from perdure.logs.detect import read_recordings
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.tokens import base_tokens

SIZES = (75_000, 200_000)
BUDGET = 12_000
WORDS = "the a to of and is in that for with as on was by this be from at are not have when which or an if all".split()


def made(tokens: int) -> list[Message]:
    """A session of about so many tokens."""
    chance = random.Random(7)
    names = [f"{chance.choice(WORDS)}_{chance.choice(WORDS)}_{n}" for n in range(3_000)]
    found: list[Message] = []
    total = 0

    def line() -> str:
        words = chance.choices(WORDS, k=9)
        words[chance.randrange(9)] = f"{chance.choice(names)}({chance.randrange(9_999)})"
        return " ".join(words)

    def say(role: str, blocks: list[dict[str, object]] | str) -> None:
        nonlocal total
        message = Message.of(
            "assistant" if role == "assistant" else "user", blocks, id=MessageId(f"message-{len(found)}")
        )
        found.append(message)
        total += sum(base_tokens(raw.decode()) for raw in map(bytes, message.content))

    while total < tokens:
        number, path = len(found), f"/home/u/project/src/part_{chance.randrange(40)}/module_{chance.randrange(200)}.py"
        if number % 60 == 0:
            say("user", f"Please look at {path} and {line()}")
        kind = chance.choice(("Read", "Read", "Bash", "Edit"))
        given = {
            "Read": {"file_path": path, "offset": chance.randrange(900)},
            "Bash": {"command": f"pytest -q {path} -k {chance.choice(names)}"},
            "Edit": {"file_path": path, "old_string": line(), "new_string": f"{line()}\n{line()}"},
        }[kind]
        use = {"type": "tool_use", "id": f"toolu_{number:08}", "name": kind, "input": given}
        say("assistant", [{"type": "text", "text": f"I'll see why {line()}."}, use])
        shown = "\n".join(f"{n:6}→    {line()}" for n in range(chance.randrange(4, 90)))
        say("user", [{"type": "tool_result", "tool_use_id": use["id"], "content": shown}])
    return found


def recorded(path: Path) -> list[Message]:
    """The messages of a log."""
    return [m for one in read_recordings(path.read_bytes(), path.name) for m in one.messages if m.agent_id is None]


def forget_names() -> None:
    """Forget which facts are in a name, and what they are worth."""
    keys_of.cache_clear()
    worth_of.cache_clear()


def cpu_ms(work: Callable[[], object], before: Callable[[], object] = forget_names, *, times: int = 3) -> float:
    """The least CPU time of some runs."""
    best = float("inf")
    for _ in range(times):
        before()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best * 1_000


def fresh(messages: list[Message]) -> list[Message]:
    """The same messages with nothing decoded yet."""
    for message in messages:
        message.__dict__.clear()
    return messages


def index_of(messages: list[Message]) -> ExtractIndex:
    index = ExtractIndex()
    for message in messages:
        index.take(message)
    return index


def row(name: str, messages: list[Message]) -> str:
    index = index_of(fresh(messages))
    memory = PackedLedger().memory(index.extracts(0, len(index)))
    tokens = memory.tokens
    reading = cpu_ms(lambda: index_of(fresh(messages)))
    compacting = cpu_ms(
        lambda: render(PackedLedger().memory(index.extracts(0, len(index))), BUDGET, RecordSurroundings()),
        lambda: None,  # what its names are worth was looked up when they were read
    )
    packing = cpu_ms(lambda: pack_ledger(memory), memory.__dict__.clear)
    size = len(pack_ledger(memory).data)
    cold = reading + compacting + packing
    cells = (f"{tokens:,}", f"{reading / tokens * 1_000:.2f}", *(f"{ms:.0f}" for ms in (compacting, packing, cold)))
    return f"{name:24}" + "".join(f"{cell:>12}" for cell in (*cells, f"{size:,}"))


def up_to(messages: list[Message], tokens: int) -> list[Message]:
    total = 0
    for position, message in enumerate(messages):
        total += sum(len(bytes(raw)) // 4 for raw in message.content)
        if total >= tokens:
            return messages[: position + 1]
    return messages


def main(paths: list[str]) -> None:
    titles = ("tokens", "read ms/1k", "compact ms", "checkpoint", "cold ms", "bytes")
    print(f"{'session':24}" + "".join(f"{title:>12}" for title in titles))
    for path in paths:
        print(row(Path(path).name[:24], recorded(Path(path))))
    if not paths:
        whole = made(max(SIZES))
        for size in SIZES:
            print(row(f"made, {size:,}", up_to(whole, size)))


if __name__ == "__main__":
    main(sys.argv[1:])
