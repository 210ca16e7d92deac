"""A folder with an agent's calls and a user's own work in it, and what a rewind of it has to be (CKP-2, CKP-3, REL-11).

The oracle knows nothing of checkpoints: it takes pictures around everything that is done, and who did it.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.trees import Picture, Worker, differing, picture

from perdure.adapters.checkpoints.checkpoints import SessionCheckpoints
from perdure.adapters.machine.clock import SystemClock
from perdure.adapters.sinks import ListSink
from perdure.ports.machine import FileCall
from perdure.settings import Settings
from perdure.transcript.messages import MessageId


def shadow(folder: Path, **given: Any) -> SessionCheckpoints:
    """The checkpoints of `folder/project`, kept in `folder/store`; arguments are settings, but for `calls`."""
    more = {"calls": given.pop("calls")} if "calls" in given else {}
    settings = Settings(**{"checkpoint_file_bytes": 300_000, **given})
    (folder / "project").mkdir(exist_ok=True)
    return SessionCheckpoints(str(folder / "project"), folder / "store", settings, SystemClock(), ListSink(), **more)


def call(prompt: str, tool: str = "Bash", *, is_background: bool = False) -> FileCall:
    return FileCall(tool, MessageId(prompt), looks=tool == "Bash", is_background=is_background)


def shell(one: SessionCheckpoints, prompt: str, command: str) -> None:
    """A command of the agent's, with what checkpoints do around it."""
    one.begin(call(prompt))
    subprocess.run(["bash", "-c", command], cwd=one.root, check=True, capture_output=True)
    one.end(call(prompt))


@dataclass
class Story:
    """What happened in a folder; `starts` are pictures from before each prompt, `deeds` who changed which paths."""

    folder: Path
    random: Random
    shadow: SessionCheckpoints
    starts: dict[str, Picture] = field(default_factory=dict)
    deeds: list[tuple[str, str, set[str]]] = field(default_factory=list)  # prompt, who, paths

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def now(self) -> Picture:
        return picture(self.project)

    @classmethod
    def of(cls, folder: Path, seed: int, *, has_foreign: bool, prompts: int = 4) -> Story:
        random = Random(seed)
        story = cls(folder, random, shadow(folder))
        first = Worker(story.project, random, "first")
        for _ in range(random.randrange(12)):
            first.act()
        agent, user = Worker(story.project, random, "agent"), Worker(story.project, random, "user")
        for number in range(prompts):
            prompt = f"m{number}"
            story.starts[prompt] = story.now()
            for _ in range(random.randrange(4)):
                story._call(prompt, agent)
                if has_foreign and random.random() < 0.4:
                    story._watched(prompt, "user", user.act)
            if random.random() < 0.1:  # the agent's process ends, and another goes on
                story.shadow.close()
                story.shadow = shadow(folder)
        return story

    def _call(self, prompt: str, agent: Worker) -> None:
        if self.random.random() < 0.4:
            one = call(prompt, "Write")
            self.shadow.begin(one)
            self._watched(prompt, "agent", lambda: self._write(one, agent))
            self.shadow.end(one)
            return
        one = call(prompt)
        self.shadow.begin(one)
        for _ in range(self.random.randrange(1, 5)):
            self._watched(prompt, "agent", agent.act)
        self.shadow.end(one)

    def _write(self, one: FileCall, agent: Worker) -> None:
        path = agent.path()
        if path.is_symlink() or path.is_dir() or any(p.is_symlink() or p.is_file() for p in path.parents):
            return
        self.shadow.save((str(path),), one)
        agent._put(path, agent.text())

    def _watched(self, prompt: str, who: str, act: Any) -> None:
        before = self.now()
        act()
        if paths := differing(before, self.now()):
            self.deeds.append((prompt, who, paths))

    def last(self, path: str) -> str:
        """Who changed a path last."""
        return next(who for _, who, paths in reversed(self.deeds) if path in paths)

    def foreign(self, prompt: str) -> set[str]:
        """The paths that the user changed since a prompt."""
        return {p for at, who, paths in self.deeds if who == "user" and at >= prompt for p in paths}
