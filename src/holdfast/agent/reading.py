"""What the agent has read: a fold of the view, so compactions, rewinds and resumes need not reset it (CMP-8, TURN-4).

A file may be edited when the view still holds a call that read or wrote it, and nobody changed it since. For files
that this process read, that is known by their digest; for others (after a resume, or restored behind a boundary) by
what the log shows of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from holdfast.context.restore.files import contents, same_file
from holdfast.context.restore.happened import Hearing
from holdfast.context.restore.play import InPlay
from holdfast.context.restore.registry import Scene
from holdfast.engine.session import LiveSession
from holdfast.transcript.messages import ToolUseId

Known = Literal["current", "changed", "unknown"]


@dataclass(slots=True)
class ReadState:
    """Which files of the session were read, and how they were then."""

    session: LiveSession
    _seen: dict[str, tuple[str, ToolUseId]] = field(default_factory=dict)  # real path -> digest, and the call

    def saw(self, path: str, data: bytes, call: str) -> None:
        """A call read or wrote a file (a real path)."""
        self._seen.pop(path, None)
        self._seen[path] = (_digest(data), ToolUseId(call))

    def known(self, path: str, data: bytes, names: tuple[str, ...] = ()) -> Known:
        """Whether the view tells of a file as it is now. `names` are other ways in which it was called."""
        seen = self._seen.get(path)
        if seen is not None and seen[1] in self.session.view.calls:
            return "current" if seen[0] == _digest(data) else "changed"
        return self._told(path, data, names)

    def _told(self, path: str, data: bytes, names: tuple[str, ...]) -> Known:
        view = self.session.view
        happened = tuple(Hearing().of(item.message for item in view.items))
        scene = Scene(
            view=view,
            keep_from=0,
            facts=self.session.facts(),
            states={},
            happened=happened,
            restored=InPlay.of(view.state).restored,
        )
        known = contents(scene, {path, *names})
        name = same_file(path, known) or next((name for name in names if name in known), None)
        if name is None:
            return "unknown"
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        return "current" if known[name].agrees(text) else "changed"

    def shown(self, name: str, path: str, span: str, text: str) -> ToolUseId | None:
        """The call of a tool whose result shows exactly this text of a path, in the view as it is; else None."""
        view = self.session.view
        for call in reversed(view.calls.values()):
            result = view.results.get(call.id)
            if call.name != name or call.path != path or call.span != span or result is None:
                continue
            block = view.shown_result(result)
            if block is not None and not block.is_error and block.text() == text:
                return call.id
        return None


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
