"""`holdfast memory add|edit|rm|review|undo|log`: memories changed by a person's own hand (MEM-7, MEM-8, MEM-9).

What a person does here is written in every mode of `memory_mode`; secrets and planted instructions are refused to
everybody.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from holdfast.adapters.files.memories import file_memories
from holdfast.adapters.sinks import NullSink
from holdfast.cli.door import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_OK, clean, cut, note, out, out_json
from holdfast.cli.remembering import directory_of
from holdfast.cli.tables import plural, table
from holdfast.engine.mounts import Mount
from holdfast.engine.remembered import approve, indexed
from holdfast.engine.remembering import Memory
from holdfast.engine.taking_back import undo
from holdfast.errors import BadSetting, FileRefused, NameTaken
from holdfast.memory.changes import Delete, Proposal, Rename, Save, Stamp, Written, diff
from holdfast.memory.contents import Limits, too_large
from holdfast.memory.directory import is_memory
from holdfast.memory.entries import file_name, title_of, topic_text
from holdfast.memory.names import refusal
from holdfast.memory.spoken import kind_of
from holdfast.memory.topics import INDEX, TYPES, topic

if TYPE_CHECKING:
    from holdfast.adapters.config import Config


@dataclass(frozen=True, slots=True)
class Place:
    """Which directory: a given one, the user's, or the project's."""

    config: Config
    directory: Path | None = None
    is_user: bool = False
    is_json: bool = False

    @property
    def path(self) -> Path:
        return directory_of(self.config, self.directory, is_user=self.is_user)

    def mount(self) -> Mount:
        """The directory behind the gate."""
        return Mount("", Memory(file_memories(self.path, self.config.settings), NullSink(), "auto"))

    async def over(self, mount: Mount, index: str = INDEX) -> str | None:
        """What is said when an index is too large by now (MEM-2)."""
        read = await mount.memory.store.read(index)
        limits = Limits(self.config.settings.memory_index_lines, self.config.settings.memory_index_bytes)
        return None if read is None else too_large(read.text, limits, name=index)


@dataclass(frozen=True, slots=True)
class New:
    """A memory to be added."""

    text: str
    name: str | None = None
    kind: str | None = None
    about: str | None = None
    file: str | None = None


def add_command(new: New, place: Place) -> int:
    """Save a new memory, and its line in the index."""
    text = _given(new.text)
    if not text.strip():
        raise BadSetting("TEXT: nothing to save")
    try:
        "".join((text, new.name or "", new.about or "")).encode()
    except UnicodeEncodeError:
        raise BadSetting("TEXT: not in UTF-8, as memories are") from None
    kind = next((one for one in TYPES if one == new.kind), None) if new.kind else kind_of(text)
    if kind is None:
        raise BadSetting(f"--type: {new.kind!r} isn't one of {', '.join(TYPES)}")
    title = title_of(new.name or text)
    about = new.about or title_of(text, 200)
    name = new.file or file_name(kind, title, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())
    name = name if name.endswith(".md") else f"{name}.md"
    if (why := refusal(name)) is not None or not is_memory(name):
        raise BadSetting(f"--file: {clean(name)}: {why or 'not the name of a memory'}")
    change = Save(name=name, text=topic_text(name=title, description=about, kind=kind, body=text))

    async def adding() -> tuple[Written | Proposal, str | None]:
        mount = place.mount()
        if await mount.memory.store.read(name) is not None:
            raise NameTaken(f"{name}: there is such a memory already: edit it, or give another --file")
        done = await indexed(mount, _hand(), change, title, new.about or "")
        return done, await place.over(mount)

    done, over = anyio.run(adding)
    return _said(done, place, f"{name}: saved as a memory of type {kind}", over)


def edit_command(file: str, place: Place) -> int:
    """Open a memory in the editor, and save what became of it; what others wrote meanwhile is kept."""

    async def found() -> tuple[str, str] | None:
        store = place.mount().memory.store
        for name in (file, f"{file}.md"):
            read = await store.read(name) if refusal(name) is None else None
            if read is not None:
                return name, read.text
        return None

    there = anyio.run(found)
    if there is None:
        return _no_such(file, place)
    name, base = there
    folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
    draft = folder / Path(name).name
    try:
        draft.write_bytes(base.encode("utf-8", "surrogateescape"))
    except OSError as e:
        shutil.rmtree(folder, ignore_errors=True)
        raise OSError(e.errno, e.strerror or str(e), str(draft)) from e
    try:
        _edit(draft)
    except BadSetting:
        shutil.rmtree(folder, ignore_errors=True)  # said to be not saved, and a memory may be private
        raise
    text = draft.read_bytes().decode("utf-8", "surrogateescape")

    async def saving() -> tuple[Written | Proposal, str | None]:
        mount = place.mount()
        done = await mount.memory.change(Save(name=name, text=text, base=base), _hand())
        return done, await place.over(mount, name) if name.rpartition("/")[2] == INDEX else None

    try:
        done, over = anyio.run(saving)
    except FileRefused as e:
        note(f"{e}; what you wrote is kept in {draft}")
        return EXIT_FAILED
    draft.unlink()
    folder.rmdir()
    for problem in topic(name, text).problems if is_memory(name) else ():
        note(f"{name}: {problem}")
    said = {"unchanged": "nothing changed", "merged": "saved, with what others changed meanwhile"}
    return _said(done, place, f"{name}: {said.get(getattr(done, 'outcome', ''), 'saved')}", over)


def rm_command(file: str, place: Place) -> int:
    """Remove a memory, and its lines in the index."""

    async def removing() -> tuple[str, Written | Proposal] | None:
        mount = place.mount()
        for name in (file, f"{file}.md"):
            read = await mount.memory.store.read(name) if refusal(name) is None else None
            if read is not None:
                return name, await indexed(mount, _hand(), Delete(name=name, base=read.text))
        return None

    done = anyio.run(removing)
    if done is None:
        return _no_such(file, place)
    return _said(done[1], place, f"{done[0]}: removed; `holdfast memory undo` brings it back", None)


def undo_command(entry: str | None, place: Place) -> int:
    """Take back the last thing that was done, or one change."""
    done = anyio.run(undo, place.mount().memory.store, entry, _hand())
    if place.is_json:
        out_json({"directory": str(place.path), "undone": [_data(one) for one in done]})
        return EXIT_OK
    for one in done:
        out(f"{clean(one.name)}: {'gone again' if one.outcome == 'deleted' else 'as it was before'}")
    return EXIT_OK


def log_command(file: str | None, limit: int, place: Place) -> int:
    """Print the last changes, newest first."""

    async def reading() -> Any:
        return await place.mount().memory.store.entries(limit=limit, name=file)

    entries = anyio.run(reading)
    if place.is_json:
        import msgspec

        rows = [msgspec.to_builtins(entry) for entry in entries]
        out_json({"directory": str(place.path), "entries": rows})
        return EXIT_OK
    head = ("id", "when", "what", "file", "whose word", "session")
    rows = [
        (e.id, _time(e.stamp.at), e.outcome if e.action != "void" else "void", cut(e.name, 48), _whose(e.stamp),
         cut(e.stamp.session, 14))
        for e in entries
    ]  # fmt: skip
    table(head, rows) if rows else out("no changes were logged")
    return EXIT_OK


# --- what waits -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a person decided beforehand: by id, or for all that waits."""

    approve: Sequence[str] = ()
    reject: Sequence[str] = ()
    all: str = ""  # approve, reject or nothing


def review_command(decisions: Decisions, place: Place) -> int:
    """Show what waits for a decision, and make those decisions."""
    store = place.mount().memory.store
    pending = anyio.run(store.pending)
    wanted = {**dict.fromkeys(decisions.approve, "approve"), **dict.fromkeys(decisions.reject, "reject")}
    if twice := set(decisions.approve) & set(decisions.reject):
        raise BadSetting(f"{min(twice)}: both approved and rejected")
    if decisions.all:
        wanted = {one.id: decisions.all for one in pending} | wanted
    if not wanted and not place.is_json and sys.stdin.isatty() and sys.stdout.isatty():
        return _interactive(pending, place)
    if not wanted:
        return _show_pending(pending, place)
    known, results, code = {one.id: one for one in pending}, [], EXIT_OK
    for identity, decision in wanted.items():
        if identity not in known:
            note(f"{clean(identity)}: no change with this id waits in {place.path}")
            code = EXIT_NOT_FOUND
            continue
        row = _decide(known[identity], decision, place)
        code = EXIT_FAILED if row["outcome"] in ("conflict", "refused") else code
        results.append(row)
    if place.is_json:
        out_json({"directory": str(place.path), "decided": results})
    else:
        for row in results:
            out(f"{clean(row['file'])}: {clean(row['said'])}")
    return code


def _decide(one: Proposal, decision: str, place: Place) -> dict[str, Any]:
    """Approve or reject a change; one that can't be made any more stays, and says why."""
    store = place.mount().memory.store
    row: dict[str, Any] = {"id": one.id, "file": one.change.name, "decision": decision, "outcome": "rejected"}
    if decision == "reject":
        anyio.run(store.reject, one.id)
        return {**row, "said": "rejected"}
    try:
        done = anyio.run(approve, place.mount(), one)
    except FileRefused as e:
        return {**row, "outcome": "refused", "said": f"still waits: {e}"}
    said = f"approved, and {done.outcome}"
    if done.outcome == "conflict":
        said = f"it was changed meanwhile: the text is in {done.beside}, put both together"
    return {**row, "outcome": done.outcome, "said": said}


def _interactive(pending: Sequence[Proposal], place: Place) -> int:
    if not pending:
        out("nothing waits")
    for number, one in enumerate(pending, 1):
        out(f"\n{number} of {len(pending)}")
        _show(one, place)
        answer = ""
        while answer not in ("a", "r", "s", "q"):
            try:
                answer = input("[a]pprove, [r]eject, [s]kip, [q]uit? ").strip().lower()[:1]
            except EOFError:
                answer = "q"
        if answer == "q":
            break
        if answer != "s":
            out(_decide(one, "approve" if answer == "a" else "reject", place)["said"])
    return EXIT_OK


def _show_pending(pending: Sequence[Proposal], place: Place) -> int:
    if place.is_json:
        rows = [
            {
                "id": one.id,
                "action": str(one.change.__struct_config__.tag),
                "file": one.change.name,
                "why": one.why,
                "origin": one.stamp.origin,
                "session": one.stamp.session,
                "message": one.stamp.message,
                "at": one.stamp.at,
                "diff": _diff(one, place),
            }
            for one in pending
        ]
        out_json({"directory": str(place.path), "pending": rows})
        return EXIT_OK
    for one in pending:
        _show(one, place)
        out()
    out(f"{plural(len(pending), 'change')} waiting" + ("; --approve ID, --reject ID" if pending else ""))
    return EXIT_OK


def _show(one: Proposal, place: Place) -> None:
    out(f"{one.id}  {clean(one.change.name)}, {_time(one.stamp.at)}: {clean(one.why)}")
    if one.stamp.session:
        out(f"from session {clean(one.stamp.session)}, message {clean(one.stamp.message)}")
    for line in _diff(one, place).splitlines():
        out(f"  {clean(line)}")


def _diff(one: Proposal, place: Place) -> str:
    if isinstance(one.change, Rename):
        return diff(one.change, None)
    read = anyio.run(place.mount().memory.store.read, one.change.name)
    return diff(one.change, None if read is None else read.text)


# --- what is said -----------------------------------------------------------------------------------------------------


def _given(text: str) -> str:
    """The text; `-` is standard input."""
    if text != "-":
        return text
    if sys.stdin is None:
        raise BadSetting("-: there is no standard input to read from")
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def _hand() -> Stamp:
    return Stamp(origin="user", at=time.time(), by="user")


def _said(done: Written | Proposal, place: Place, text: str, over: str | None) -> int:
    assert isinstance(done, Written)  # a person's own hand needs nobody's approval
    is_conflict = done.outcome == "conflict"
    if place.is_json:
        out_json({"directory": str(place.path), **_data(done), "warning": over})
    elif is_conflict:
        note(f"{done.name}: others changed the same lines meanwhile; your text is in {done.beside}: put both together")
    else:
        out(clean(text))
    if over is not None:
        note(over)
    return EXIT_FAILED if is_conflict else EXIT_OK


def _data(done: Written) -> dict[str, Any]:
    return {"file": done.name, "outcome": done.outcome, "entry": done.entry, "beside": done.beside or None}


def _no_such(file: str, place: Place) -> int:
    note(f"no memory {clean(file)!r} in {place.path}")
    return EXIT_NOT_FOUND


def _whose(stamp: Stamp) -> str:
    return "your hand" if stamp.by == "user" else stamp.origin


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "?"


def _edit(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as e:
        raise BadSetting(f"{editor}: {e}: the editor can't be run; set EDITOR") from None
    if code != 0:
        raise BadSetting(f"{editor}: ended with {code}; nothing was saved")
