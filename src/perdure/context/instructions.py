"""Instruction files as messages, and what of them the view holds: both directions of one text (INS-1, INS-4, INS-6).

A file is one text block under a head line that names its path, scope and revision; so what was told of the files is a
pure fold of the view, also after a resume, and needs no record of its own. The text of a file can't imitate a head,
since each file has a block to itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from perdure import prompts
from perdure.context.reminders import neutralised, restored
from perdure.context.view import ContextView, ViewItem
from perdure.memory.instructions import FittedFile, Instruction
from perdure.text.markdown import compact_instructions
from perdure.transcript.blocks import Text, text_block
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.tokens import base_tokens

NOTE: Final = "instructions"
NESTED: Final = "nested_instructions"
OPEN, CLOSE = "<system-reminder>\n", "</system-reminder>"
_HEAD = re.compile(
    r"\A## (?P<path>[^\n]+)\n\((?P<scope>managed|user|project|local)(?P<about>[^\n]*); "
    r"(?P<state>whole|cut|changed|gone) (?P<revision>[0-9a-f]{12}|-)\)(?:\n\n|\Z)"
)
_GONE = "-"
_DIFF_CHARS: Final = 400_000  # of both texts together; comparing takes more than linear time
_SCOPES: Final = {
    "managed": "set by those who run this environment",
    "user": "the user's, for all projects",
    "project": "of the project",
    "local": "the user's, for this project",
}
_STRANGE: Final = "text of the project, whose folder the user has not said to trust"  # SEC-8


@dataclass(frozen=True, slots=True)
class ShownInstructionFile:
    """What the view says of a file: the revision told last, and the text it was shown with (INS-6)."""

    revision: str
    shown: str
    is_whole: bool
    is_nested: bool


@dataclass(slots=True)
class ShownInstructions:
    """All files that the view tells of, by path. `upto` items were read, of which some tell of files."""

    files: dict[str, ShownInstructionFile] = field(default_factory=dict)
    upto: int = 0
    last: MessageId | None = None
    _telling: list[tuple[int, ViewItem]] = field(default_factory=list)  # with their positions, hidden ones as well

    def follow(self, view: ContextView, start: int = 0) -> ShownInstructions:
        """Take in what came since; all of it again where the view isn't a continuation of the one before, or where
        something that told of files left it, or came back.

        `start` leaves out the items in front of it, the first time.
        """
        is_same = self.upto <= len(view.items) and (not self.upto or view.items[self.upto - 1].message.id == self.last)
        if not is_same or any(view.items[position] is not item for position, item in self._telling):
            self.files, self.upto, self._telling = {}, 0, []
        for position, item in enumerate(view.items[max(self.upto, start) :], max(self.upto, start)):
            if item.message.note in (NOTE, NESTED) and item.message.origin in ("reminder", "restored"):
                self._telling.append((position, item))
                self._take(item)
        self.upto = len(view.items)
        self.last = view.items[-1].message.id if view.items else None
        return self

    def _take(self, item: ViewItem) -> None:
        for block in item.visible:
            value = block.value
            found = _HEAD.match(value.text) if isinstance(value, Text) else None
            if found is None or not isinstance(value, Text):
                continue
            path, revision = restored(found["path"]), found["revision"]
            before = self.files.get(path)
            if found["state"] in ("whole", "cut"):
                body = restored(value.text[found.end() :].rstrip("\n"))
                is_whole, is_nested = found["state"] == "whole", item.message.note == NESTED
                self.files[path] = ShownInstructionFile(revision, body, is_whole, is_nested)
            elif found["state"] == "gone":
                self.files.pop(path, None)
            elif before is not None:
                self.files[path] = replace(before, revision=revision)


def head_line_path(path: str) -> str:
    """A path as head lines have it, on one line; the key of `ShownInstructions.files`."""
    return " ".join(path.split())


def _head(file: Instruction, state: str) -> str:
    why = {"start": "", "rule": "", "nested": "", "import": f", imported by {file.parent}"}[file.why]
    rule = f", for {', '.join(file.globs)}" if file.globs else ""
    revision = _GONE if state == "gone" else file.revision
    whose = _STRANGE if file.is_strange else _SCOPES[file.scope]
    about = " ".join(f"{whose}{why}{rule}".split())[:300]
    path = neutralised(head_line_path(file.path))
    return f"## {path}\n({file.scope}: {neutralised(about)}; {state} {revision})"


def block_text(fitted: FittedFile) -> str:
    """One file as the model sees it; a file that was cut says so, and how much there is."""
    file = fitted.file
    if not fitted.is_cut:
        return f"{_head(file, 'whole')}\n\n{neutralised(file.text)}"
    shown = base_tokens(fitted.text)
    notice = f"[Cut here for room: {shown:,} of {file.tokens:,} tokens are shown. Read the file for the rest.]"
    body = f"{neutralised(fitted.text)}\n{notice}" if fitted.text else notice
    return f"{_head(file, 'cut')}\n\n{body}"


def start_message(files: Sequence[FittedFile]) -> Message | None:
    """The reminder in front of the first message (INS-1); None when nothing loads."""
    return _message("instructions", [block_text(one) for one in files], NOTE)


def nested_message(files: Sequence[FittedFile]) -> Message | None:
    """The reminder at the end that brings nested files and rules (INS-4)."""
    return _message("instructions_nested", [block_text(one) for one in files], NESTED)


def changes_message(texts: Sequence[str]) -> Message | None:
    """The reminder at the end that tells what changed on disk (INS-6)."""
    return _message("instructions_changed", texts, NOTE)


def _message(lead: str, texts: Sequence[str], note: str) -> Message | None:
    if not texts:
        return None
    blocks = [OPEN + prompts.source(lead), *texts]
    content = content_of([text_block(_sayable(text) + "\n") for text in blocks] + [text_block(CLOSE)])
    return Message(id=MessageId(""), role="user", content=content, origin="reminder", note=note)


def _sayable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def change_text(file: Instruction, known: ShownInstructionFile, limit_tokens: int) -> str:
    """What to say of a file that isn't as it was told: its difference to the text that stands in the view."""
    head = _head(file, "changed")
    large = f"{head}\n\n[It changed in many places. Read the file.]"
    if not known.is_whole:
        return f"{head}\n\n[Only a part of it was shown. Read the file.]"
    if file.text == known.shown:
        return f"{head}\n\n[It is again as it was first shown.]"
    if len(known.shown) + len(file.text) > _DIFF_CHARS:
        return large
    rows = difflib.unified_diff(known.shown.splitlines(), file.text.splitlines(), n=2, lineterm="")
    diff = "\n".join(list(rows)[2:])
    return large if base_tokens(diff) > limit_tokens else f"{head}\n\n{neutralised(diff)}"


def gone_text(path: str) -> str:
    """What to say of a file that is no longer there, or no longer loads."""
    return f"## {neutralised(path)}\n(project; gone {_GONE})\n\n[It is gone: what it said no longer holds.]"


def compact_instructions_shown(view: ContextView) -> str:
    """What the Compact Instructions of the files in the view ask of a record (CMP-3); empty when they ask nothing."""
    told = ShownInstructions().follow(view)
    found = [text for known in told.files.values() if (text := compact_instructions(known.shown))]
    return prompts.render("instructions_compact", text="\n\n".join(found)) if found else ""


# --- between the engine, which reads, and the restorer, which is pure

_FILES = msgspec.json.Decoder(list[Instruction])


def pack_instructions(files: Iterable[Instruction]) -> str:
    """The files as a text, for `RestoreScene.given`."""
    return msgspec.json.encode(list(files)).decode()


def unpack_instructions(text: str) -> list[Instruction]:
    """The files again. Raises `msgspec.MsgspecError` for another text."""
    found: Any = _FILES.decode(text)
    return list(found)
