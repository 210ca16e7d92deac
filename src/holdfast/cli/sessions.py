"""`holdfast sessions`: list, show and delete what is kept here (ENG-5)."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.adapters.files import SessionInfo, SessionStore, read_holder
from holdfast.adapters.files.listing import describe
from holdfast.cli.door import EXIT_FAILED, EXIT_OK, clean, cut, home, out, out_json, reference_of
from holdfast.cli.tables import plural, size, table
from holdfast.errors import BadSetting

JOURNAL = "journal.jsonl"


def list_command(project: Path | None, *, is_json: bool) -> None:
    """All sessions, or those of one project."""
    place = home()
    found = SessionStore(place).list(project)
    if is_json:
        for info in found:
            out_json(_data(info))
        return
    if not found:
        where = f"for {project}" if project is not None else f"in {place}"
        out(f"no sessions {where}")
        return
    rows = [
        (
            cut(info.id, 36),
            _when(info.modified),
            info.messages,
            size(info.bytes),
            cut(info.title or info.last_prompt or info.problem or "", 60),
            cut(_short(info.project), 40),
        )
        for info in found
    ]
    table(("session", "last written", "messages", "size", "title or last prompt", "project"), rows)
    if problems := [info for info in found if info.problem]:
        out(f"\n{plural(len(problems), 'session')} with problems: `holdfast doctor` tells more")


def show_command(reference: str, *, is_json: bool) -> None:
    """One session, from the ends of its journal and what lies beside it."""
    info = describe(SessionStore(home()).locate(reference_of(reference)) / JOURNAL)
    holder = read_holder(info.directory)
    data = _data(info) | {
        "blobs": sum(1 for path in (info.directory / "blobs").rglob("*") if path.is_file()),
        "held_by": None if holder is None else {"pid": holder.pid, "host": holder.host},
        "checkpoints": _checkpoints(info.directory),
        "beside": sorted(path.name for path in info.directory.glob(f"{JOURNAL}.*")),
    }
    if is_json:
        out_json(data)
        return
    for name, value in data.items():
        if value is None or value == []:
            continue
        if isinstance(value, dict):
            value = f"process {value['pid']} on {value['host']}"
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        out(f"{name.replace('_', ' '):<12} {clean(text)}")


def _checkpoints(directory: Path) -> str | None:
    """CKP-6: how many prompts can be gone back to, and what that takes."""
    from holdfast.adapters.shadow.usage import usage

    used = usage(directory)
    return None if used is None else f"{used.snapshots} ({used.bytes:,} bytes)"


def delete_command(reference: str, *, is_sure: bool, is_json: bool) -> int:
    """Delete one session; asks first, unless told not to."""
    store = SessionStore(home())
    directory = store.locate(reference_of(reference))
    if not is_sure and not sys.stdin.isatty():
        raise BadSetting(f"{directory.name}: deleting is for good; add --yes to do it without being asked")
    if not is_sure:
        sys.stderr.write(f"Delete {directory.name} with everything it stored, for good? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            out("kept")
            return EXIT_FAILED
    store.delete(directory)
    if is_json:
        out_json({"deleted": directory.name, "directory": str(directory)})
    else:
        out(f"deleted {directory.name}")
    return EXIT_OK


def _data(info: SessionInfo) -> dict[str, Any]:
    return {
        "session": info.id,
        "title": info.title,
        "last_prompt": info.last_prompt,
        "messages": info.messages,
        "tags": list(info.tags),
        "branch": info.branch,
        "project": info.project,
        "created": None if info.created is None else _iso(info.created),
        "modified": _iso(info.modified),
        "bytes": info.bytes,
        "directory": str(info.directory),
        "problem": info.problem,
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _when(at: float) -> str:
    """Local time, to the minute."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _short(project: str) -> str:
    """A path with the home directory as `~`, and its end where it is too long."""
    own = str(Path.home())
    text = f"~{project[len(own) :]}" if project.startswith(own + "/") else project
    return text if len(text) <= 40 else "…" + text[-39:]
