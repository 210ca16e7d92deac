"""A memory service for a benchmark on this machine: the calls of PrecisionMemBench, answered by the library (QLT-6).

Each user and scope is a project; each belief a memory, a Markdown file as a person would write it. What is found for a
query is what a session of the library shows the model behind a prompt that says it: nothing else ranks.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final

from perdure.adapters.machine.repositories import memory_roots
from perdure.errors import PerdureError
from perdure.memory.places import project_directory
from perdure.memory.recalled import memories_told
from perdure.sync import Session

_MOST_BYTES: Final = 1_000_000
_MOST_SHOWN: Final = 100
_NOT_A_NAME = re.compile(r"[^a-z0-9]+")


class BenchedMemories:
    """The memories of a benchmark, in a home of their own.

    `known`: what the benchmark knows of a belief beside what its contract sends, by id; empty: nothing.
    """

    def __init__(self, folder: Path, known: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder = folder
        self._known = known
        self._beliefs: dict[str, dict[str, Any]] = {}  # by id, as sent
        self._files: dict[str, str] = {}

    def answer(self, path: str, sent: Mapping[str, Any]) -> dict[str, Any]:
        """What the benchmark's contract says to answer."""
        if path == "/reset":
            self.reset()
        elif path in ("/add", "/update"):
            self.add(sent)
        elif path == "/search":
            return {"results": [{"id": one, "memory": ""} for one in self.search(sent)]}
        return {"ok": True}

    def reset(self) -> None:
        """Forget all."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._beliefs.clear()
        self._files.clear()

    def add(self, sent: Mapping[str, Any]) -> None:
        """Keep a belief; one that is kept already is changed."""
        about = sent.get("metadata") or {}
        belief = str(about.get("beliefId") or sent.get("beliefId") or "")
        before = self._beliefs.get(belief, {})
        said = {
            "aliases": before.get("aliases") or [],
            **sent,
            "scope": about.get("scope") or before.get("scope") or "",
        }
        self._beliefs[belief] = {**said, "first": before.get("first") or sent.get("text") or ""}
        self._files.setdefault(belief, f"memory_{len(self._files) + 1}.md")
        for one in self._beliefs:  # what it supersedes may have come before it
            self._write(one)

    def search(self, asked: Mapping[str, Any]) -> list[str]:
        """The ids of the beliefs that a session shows for a prompt, best first, without those that are always shown."""
        project = self._project(str(asked.get("user_id") or ""), str(asked.get("scope") or ""))
        limit = int(asked.get("limit") or 20)
        settings = {"memory_results": _MOST_SHOWN, "memory_extract": False}
        with Session.create(project, home=self._folder / "home", settings=settings) as session:
            session.set_prefix(model="claude-sonnet-4-5")
            session.append({"role": "user", "content": str(asked.get("query") or "")})
            data = session.prepare().data
        texts = [part.get("text", "") for message in data["messages"] for part in message["content"]]
        shown = [file for text in texts for file in memories_told(text)]
        ids = {(self._place(belief), file): belief for belief, file in self._files.items()}
        here = (str(asked.get("user_id") or ""), str(asked.get("scope") or ""))
        found = [ids[here, file] for file in shown if (here, file) in ids]
        return [belief for belief in found if not self._about(belief).get("pinned")][:limit]

    def _about(self, belief: str) -> Mapping[str, Any]:
        return self._known.get(belief, {})

    def _place(self, belief: str) -> tuple[str, str]:
        sent = self._beliefs[belief]
        return str(sent.get("user_id") or ""), str(sent.get("scope") or "")

    def _project(self, user: str, scope: str) -> Path:
        name = _NOT_A_NAME.sub("-", f"{user} {scope}".lower())
        path = self._folder / "projects" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _write(self, belief: str) -> None:
        project = self._project(*self._place(belief))
        memories = Path(project_directory(memory_roots(self._folder / "home", project, directory="")))
        memories.mkdir(parents=True, exist_ok=True)
        path = memories / self._files[belief]
        if self._about(belief).get("resolved_at"):
            path.unlink(missing_ok=True)  # it is settled: a person would delete it
        else:
            path.write_text(self._text(belief), encoding="utf-8")

    def _text(self, belief: str) -> str:
        sent, about = self._beliefs[belief], self._about(belief)
        said, first = " ".join(str(sent.get("text") or "").split()), " ".join(str(sent["first"]).split())
        name = said.partition(" ")[0]
        aliases = [str(one) for one in sent.get("aliases") or ()]
        rest = first.removeprefix(" ".join((name, *aliases))).strip() or first
        if said != first and said.endswith(rest):  # its names were added to
            aliases.append(said.removeprefix(" ".join((name, *aliases))).removesuffix(rest).strip())
        if about:
            rest = f"{about.get('content', '')}\n\nWhy: {about.get('why_it_matters', '')}"
        fields = {
            "name": name.replace("_", " "),
            "description": rest.partition("\n")[0],
            "keywords": ", ".join(dict.fromkeys(one for one in aliases if one)),
            "supersedes": ", ".join(
                self._files[other]
                for other in self._files
                if self._about(other).get("superseded_by") == belief and self._place(other) == self._place(belief)
            ),
            "pinned": "true" if about.get("pinned") else "",
        }
        head = "\n".join(f"{field}: {value}" for field, value in fields.items() if value)
        return f"---\n{head}\n---\n\n{rest}\n"


@contextmanager
def benched_memories(known: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The address of a service with no memories yet, as long as it is needed."""
    with TemporaryDirectory(prefix="perdure-bench-") as name:
        memories = BenchedMemories(Path(name) / "kept", known)

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                size = min(int(self.headers.get("content-length") or 0), _MOST_BYTES)
                data = self.rfile.read(size)
                try:
                    status, answer = 200, memories.answer(self.path, json.loads(data or b"{}"))
                except (PerdureError, OSError, ValueError) as e:
                    status, answer = 500, {"error": str(e)}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_PUT = do_DELETE = _answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
