"""The plugin as clients use it: its hooks started as they start them, and logs as they write them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SESSION = "5950a83a-2d2f-4359-bbac-a47117bd0be8"


@dataclass
class HookRunner:
    """Starts the hooks of one session, in a process each."""

    folder: Path
    log: Path
    session: str = SESSION
    said: list[str] = field(default_factory=list)  # what hooks wrote to stderr

    @property
    def data(self) -> Path:
        return self.folder / ".claude" / "plugins" / "data" / "perdure-perdure"

    @property
    def state(self) -> Path:
        return self.data / "sessions" / self.session / "state"

    @property
    def head(self) -> dict[str, Any]:
        """The line of the state that tells how far the log was read."""
        found: dict[str, Any] = json.loads(self.state.read_bytes().partition(b"\n")[0])
        return found

    @property
    def errors(self) -> str:
        path = self.data / "errors.log"
        return path.read_text() if path.exists() else ""

    def environ(self) -> dict[str, str]:
        own = {"CLAUDE_PLUGIN_DATA": str(self.data), "PERDURE_HOME": str(self.folder / "home")}
        return {**os.environ, "HOME": str(self.folder), **own}

    def start(self, event: str, **more: Any) -> subprocess.Popen[bytes]:
        given = {"session_id": self.session, "transcript_path": str(self.log), "cwd": str(self.folder)}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "perdure.plugin", "hook"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environ(),
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"hook_event_name": event, **given, **more}).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, event: str, **more: Any) -> str:
        """What the hook gives the model; it must have ended well and said nothing else."""
        output, wrong = self.start(event, **more).communicate()
        self.said.append(wrong.decode())
        if not output:
            return ""
        told = json.loads(output)["hookSpecificOutput"]
        assert told["hookEventName"] == event
        return str(told["additionalContext"])


@dataclass
class ClaudeCodeLog:
    """A log as Claude Code writes it: entries in a chain, one after the other."""

    path: Path
    last: str | None = None
    count: int = 0

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def entry(self, kind: str, *, parent: str | None = None, **more: Any) -> str:
        self.count += 1
        uuid = f"{self.count:08d}-0000-4000-8000-{self.count:012d}"
        about = {"type": kind, "uuid": uuid, "parentUuid": parent or self.last, "sessionId": SESSION, "cwd": "/srv/app"}
        stamp = f"2026-11-22T{10 + self.count // 3600:02d}:{self.count // 60 % 60:02d}:{self.count % 60:02d}.000Z"
        self._write({**about, "timestamp": stamp, "isSidechain": False, **more})
        self.last = uuid
        return uuid

    def user(self, text: str, **more: Any) -> str:
        return self.entry("user", message={"role": "user", "content": text}, **more)

    def assistant(self, text: str) -> str:
        return self.entry("assistant", message=self._answer({"type": "text", "text": text}))

    def call(self, name: str, **arguments: Any) -> str:
        """A call that nothing answers yet; gives its id."""
        call = f"toolu_{self.count:06d}"
        block = {"type": "tool_use", "id": call, "name": name, "input": arguments}
        self.entry("assistant", message=self._answer(block))
        return call

    def result(self, call: str, text: str, *, is_error: bool = False) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}
        return self.entry("user", message={"role": "user", "content": [block]})

    def run(self, command: str, output: str = "done") -> None:
        self.result(self.call("Bash", command=command), output)

    def edit(self, path: str) -> None:
        call = self.call("Edit", file_path=path, old_string="a", new_string="b")
        self.result(call, f"The file {path} has been updated.")

    def compact(self, summary: str = "What happened so far.") -> None:
        self.last = None
        about = {"trigger": "manual", "preTokens": 9_000}
        self.entry("system", subtype="compact_boundary", content="Conversation compacted", compactMetadata=about)
        self.entry("user", message={"role": "user", "content": summary}, isCompactSummary=True)

    def context(self, text: str) -> None:
        """What a hook gave the model, as the log shows it."""
        self.entry("attachment", attachment={"type": "hook_additional_context", "content": [text]})

    def _answer(self, block: dict[str, Any]) -> dict[str, Any]:
        return {"role": "assistant", "id": f"msg_{self.count}", "model": "claude-sonnet-4-6", "content": [block]}

    def _write(self, entry: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")


def children_of(pid: int) -> Iterator[int]:
    """The processes that a process started and that still run."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            yield int(stat.parent.name)
