"""Copies of an agent's files from before it changed them, and ways back (CKP-1 to CKP-7)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal, Protocol

from holdfast.memory.checkpoints import Missed
from holdfast.transcript.messages import MessageId

CHECKPOINTS = "checkpoints"  # the name under which failures of them are noted


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool that may change files. `looks`: at the whole tree, since nobody says what it changes."""

    tool: str
    prompt: MessageId
    looks: bool
    is_background: bool = False


@dataclass(frozen=True, slots=True)
class FileStep:
    """What a rewind does with a path; lines are of texts. `conflict`: why only force does it; `left`: why nothing."""

    path: str
    action: Literal["write", "create", "delete", "link", "folder", "keep"]
    added: int = 0
    removed: int = 0
    is_binary: bool = False
    conflict: str = ""
    left: str = ""


@dataclass(frozen=True, slots=True)
class FileRewind:
    """What a rewind of files does, or did (`is_done`). `to` is the prompt before which the files stand then.

    `number` is its place in the log. `note` is what to know beside it. `missed` is what was done meanwhile to things
    that aren't kept: it stays as it is (CKP-7).
    """

    steps: tuple[FileStep, ...]
    is_done: bool = False
    number: int = 0
    to: str = ""
    note: str = ""
    missed: tuple[Missed, ...] = ()

    @property
    def conflicts(self) -> tuple[FileStep, ...]:
        """Steps that wait for force."""
        return tuple(step for step in self.steps if step.conflict)

    @property
    def changes(self) -> tuple[FileStep, ...]:
        """Steps that change a file."""
        return tuple(step for step in self.steps if step.action != "keep")


class Checkpoints(Protocol):
    """Sees every call that may change files, in the order begin, save, end; calls of sub-agents may overlap.

    `begin` compares the tree, so that what somebody else did in between isn't taken for the agent's; `save` keeps what
    one of our tools is about to change (real paths), durably; `end` writes down what the call changed.
    """

    async def begin(self, call: Call) -> None: ...

    async def save(self, paths: tuple[str, ...], call: Call) -> None: ...

    async def end(self, call: Call) -> None: ...


class FileRewinder(Protocol):
    """Goes back. All of a rewind is done, or none of it, also when the process is killed (CKP-3).

    `rewind` puts the files back to before the first of these prompts (a message and all after it); `undo` takes back
    the last rewind. Not `is_forced`, a conflict raises `RewindRefused` with the names, and nothing is done. `is_dry`
    only says what would be.
    """

    async def rewind(
        self, prompts: AbstractSet[str], *, is_forced: bool = False, is_dry: bool = False
    ) -> FileRewind: ...

    async def undo(self, *, is_forced: bool = False, is_dry: bool = False) -> FileRewind: ...
