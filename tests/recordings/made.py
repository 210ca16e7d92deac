"""Recordings of sessions that never happened, for those who lack the real ones: Claude Code logs, OpenAI messages.

    python -m tests.recordings.made FOLDER

writes them, for benchmarks to read. All words are invented, drawn from a seed: the same bytes on every machine. A story
can be told in both formats: what a person asked for, forbade and decided, what an agent read, ran, changed and broke.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.golden.made import Log

Data = dict[str, Any]
SYLLABLES = "ba cor del fen gar hul isk jor kel lom mar nis orn pel quo rast sul tem und vey wic yor zan".split()
VERBS = "loads keeps sorts merges checks renames splits counts writes reads drops".split()
REASONS = ("it is faster", "nobody maintains it any more", "the licence allows it", "it fails on Mondays")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, and what came of it."""

    tool: str
    arguments: Data
    result: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What one side said; an agent may call tools with it."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()


@dataclass(slots=True)
class Story:
    """A project that doesn't exist, and the work on it."""

    seed: int
    steps: int
    chance: Random = field(init=False)
    files: dict[str, list[str]] = field(init=False)  # by path: its functions
    failing: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        names = [self.word() for _ in range(18)]
        self.files = {f"/srv/{names[0]}/src/{name}.py": [self.name() for _ in range(12)] for name in names}

    def pick(self, of: Any) -> Any:
        """One of them; in the same way in every version of Python."""
        return of[int(self.chance.random() * len(of))]

    def word(self) -> str:
        return "".join(self.pick(SYLLABLES) for _ in range(3))

    def name(self) -> str:
        return f"{self.pick(VERBS).rstrip('s')}_{self.word()}"

    def words(self, count: int) -> str:
        """A few sentences that say little, each in words of its own."""
        said = (f"The {self.word()} {self.pick(VERBS)} the {self.word()} of {self.word()}." for _ in range(count))
        return " ".join(said)

    def code(self, path: str) -> str:
        body = (f"def {name}({self.word()}):\n    return {self.word()}({number})" for number, name in
                enumerate(self.files[path]))  # fmt: skip
        lines = "\n\n\n".join(body).split("\n")
        return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, 1))

    def told(self) -> Iterator[Said]:
        """The whole of it."""
        paths = list(self.files)
        yield Said("user", f"Never change {paths[0]}: it is generated. Always run the tests before you are done.")
        yield Said("assistant", f"Understood. {self.words(2)}")
        for number in range(self.steps):
            yield from self.task(number, self.pick(paths[1:]))

    def task(self, number: int, path: str) -> Iterator[Said]:
        name, old = self.name(), self.pick(self.files[path])
        asked = f"{number}: let {old} {self.pick(VERBS)[:-1]} the {self.word()} too. {self.words(1)}"
        if number % 4 == 1:
            asked += f" We use {self.word()} instead of {self.word()}, because {self.pick(REASONS)}."
        yield Said("user", asked)
        read = Call("Read", {"file_path": path}, self.code(path))
        found = "\n".join(f"{other}:{self.chance.randrange(1, 90)}: {old}" for other in list(self.files)[:5])
        yield Said("assistant", self.words(3), (read, Call("Grep", {"pattern": old}, found)))
        yield self.changed(path, old, name)
        yield self.tested(number, path)
        if number % 5 == 2:
            fresh = f"{path.rpartition('/')[0]}/{self.word()}.py"
            self.files[fresh] = [self.name() for _ in range(6)]
            content = self.code(fresh).replace("\t", "")
            yield Said("assistant", "", (Call("Write", {"file_path": fresh, "content": content}, "File created."),))
        if number % 6 == 3:
            states = ("completed", "in_progress", "pending")
            todos = [{"content": f"Look at {self.word()}", "status": states[place]} for place in range(3)]
            yield Said("assistant", "", (Call("TodoWrite", {"todos": todos}, "Todos have been modified."),))
        if number % 7 == 4:
            missing = f"/srv/{self.word()}.toml"
            yield Said("assistant", "", (Call("Read", {"file_path": missing}, "File does not exist.", is_error=True),))
        yield Said("assistant", f"Done: {name} is there. {self.words(2)}")
        if number % 3 == 2:
            yield Said("user", f"No, keep the {self.word()} as it was, and call it {self.word()}.")
            yield Said("assistant", f"As you say. {self.words(2)}")

    def changed(self, path: str, old: str, name: str) -> Said:
        self.files[path][self.files[path].index(old)] = name
        edit = {"file_path": path, "old_string": f"def {old}", "new_string": f"def {name}"}
        return Said("assistant", self.words(1), (Call("Edit", edit, f"The file {path} has been updated."),))

    def tested(self, number: int, path: str) -> Said:
        """Each third run fails, and the next one is told of all that failed before and passes now."""
        test = f"tests/test_{path.rpartition('/')[2][:-3]}.py::test_{self.word()}"
        command = {"command": "python -m pytest -q", "description": f"Run the tests of {self.word()}"}
        text = f"I run the tests. {self.words(1)}"
        if number % 3 == 1:
            self.failing.append(test)
            lines = [f"FAILED {one} - AssertionError: {self.word()} != {self.word()}" for one in self.failing]
            result = "\n".join([*lines, f"{len(lines)} failed, {40 + number} passed in 1.{number % 10}s"])
            return Said("assistant", text, (Call("Bash", command, f"Exit code 1\n{result}", True),))
        self.failing.clear()
        return Said("assistant", text, (Call("Bash", command, f"{41 + number} passed in 1.2s"),))


def claude_code(seed: int, steps: int) -> bytes:
    """A story as a Claude Code log, with a compaction of its own in the middle."""
    log, told = Log(f"{seed:08d}-2222-4222-8222-222222222222"), list(Story(seed, steps).told())
    for number, said in enumerate(told):
        if said.role == "user":
            log.says(said.text)
            continue
        uses = [
            {"type": "tool_use", "id": f"toolu_{seed}_{number}_{place}", "name": call.tool, "input": call.arguments}
            for place, call in enumerate(said.calls)
        ]
        log.answers(number, *([{"type": "text", "text": said.text}] if said.text else ()), *uses)
        for use, call in zip(uses, said.calls, strict=True):
            log.returns(str(use["id"]), call.result, is_error=call.is_error)
        if number == len(told) // 2:
            log.compacts(Story(seed + 1, 0).words(30))
    return b"\n".join(log.lines) + b"\n"


def openai(seed: int, steps: int) -> bytes:
    """Two stories as OpenAI chat messages."""
    sessions = [_chat(Story(seed + number, steps)) for number in range(2)]
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in TOOLS]
    return json.dumps(
        [
            {"task_id": number, "traj": messages, "tools": tools, "model": "gpt-4o"}
            for number, messages in enumerate(sessions)
        ]
    ).encode()


def _chat(story: Story) -> list[Data]:
    messages: list[Data] = [{"role": "system", "content": f"You write programs. {Story(story.seed + 1, 0).words(20)}"}]
    for number, said in enumerate(story.told()):
        if said.role == "user" or not said.calls:
            messages.append({"role": said.role, "content": said.text})
            continue
        calls = [
            {
                "id": f"call_{story.seed}_{number}_{place}",
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
            }
            for place, call in enumerate(said.calls)
        ]
        messages.append({"role": "assistant", "content": said.text or None, "tool_calls": calls})
        for use, call in zip(calls, said.calls, strict=True):
            messages.append({"role": "tool", "tool_call_id": use["id"], "content": call.result})
    return messages


TOOLS = ("Read", "Grep", "Edit", "Write", "Bash", "TodoWrite")
FILES: Final[dict[str, Callable[[], bytes]]] = {
    "claude_code/kelorn.jsonl": lambda: claude_code(11, 40),
    "claude_code/sulvey.jsonl": lambda: claude_code(12, 24),
    "claude_code/tempel.jsonl": lambda: claude_code(13, 12),
    "openai/marund.json": lambda: openai(21, 30),
    "openai/fengar.json": lambda: openai(31, 12),
}


def write(folder: Path) -> Path:
    """All of them, below a folder that is laid out like ../shared/data."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content())
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m tests.recordings.made FOLDER")
    print(write(Path(sys.argv[1])))
