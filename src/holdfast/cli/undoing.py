"""`holdfast compact` and `uncompact` for sessions kept here: preview, an edited record, undo (CMP-11)."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from holdfast.adapters.hooks import shell_hook
from holdfast.adapters.sinks import ListSink
from holdfast.cli.door import EXIT_FAILED, EXIT_OK, cut, note, out, out_json, reference_of
from holdfast.cli.tables import plural, table
from holdfast.context.parts import Part as Chosen
from holdfast.engine.compaction import Done, Failed, compact
from holdfast.engine.session import LiveSession, Services
from holdfast.engine.undo import Part, Preview, preview, uncompact
from holdfast.errors import BadSetting, HoldfastError
from holdfast.events import CompactionAttemptFailed, HookFailed
from holdfast.transcript.edits import Compacted
from holdfast.wiring import Parts, connected, open_session

if TYPE_CHECKING:
    from holdfast.adapters.config import Config

_SHOWN = 12  # of the messages dropped, in a table for people


@dataclass(frozen=True, slots=True)
class Asked:
    """How to compact: what to look at, only to look, a record to edit or one that is there, the model to write it."""

    focus: str = ""
    is_dry: bool = False
    edits: bool = False
    summary: Path | None = None
    model: str | None = None
    start: str | None = None
    end: str | None = None
    hooks: tuple[str, ...] = ()

    @property
    def part(self) -> Chosen | None:
        """What to summarise, when not all that isn't recent (CMP-6)."""
        is_chosen = self.start is not None or self.end is not None  # an empty id is a mistake, not the whole
        return Chosen(start=self.start, end=self.end) if is_chosen else None


def compact_command(reference: str, config: Config, asked: Asked, *, is_json: bool) -> int:
    """Compact a session, or show what that would do."""
    if asked.edits and asked.summary is not None:
        raise BadSetting("--edit: goes without --summary; edit the file first")
    if asked.model is not None and asked.summary is not None:
        raise BadSetting("--model: goes without --summary; there is nothing left to write")
    record = _read(asked.summary) if asked.summary is not None else None
    return anyio.run(_compact, reference, config, asked, record, is_json)


async def _compact(reference: str, config: Config, asked: Asked, record: str | None, is_json: bool) -> int:
    sink = ListSink()
    seconds = config.settings.hook_timeout_seconds
    hooks = tuple(shell_hook(command, timeout_seconds=seconds) for command in asked.hooks)
    names = (asked.model,) if asked.model else config.settings.summarizer_models
    async with connected(names, os.environ) as models:
        services = Services(hooks=hooks, summarizer=models if record is None else ())
        parts = Parts(settings=config.settings, sink=sink, services=services)
        session = await open_session(config.home, reference_of(reference), read_only=asked.is_dry, parts=parts)
        try:
            code = await _compacted(session, asked, record, is_json=is_json)
        finally:
            await session.world.journal.close()
    for event in sink.events:
        if isinstance(event, HookFailed):
            note(f"the hook {event.hook} failed: {event.reason}; it went on without it")
        if isinstance(event, CompactionAttemptFailed) and event.strategy == "full":
            note(f"the model's record was not taken: {event.reason}")
    return code


async def _compacted(session: LiveSession, asked: Asked, record: str | None, *, is_json: bool) -> int:
    """Preview, edit, commit, as asked."""
    if asked.is_dry or asked.edits:
        looked = await preview(session, record=record, focus=asked.focus, part=asked.part)
        if isinstance(looked, Failed):
            return _failed(looked, is_json=is_json)
        if asked.is_dry:
            _show_preview(looked, is_json=is_json)
            return EXIT_OK
        record = _edited(looked.plan.record)
    return await _commit(session, asked, record, is_json=is_json)


async def _commit(session: LiveSession, asked: Asked, record: str | None, *, is_json: bool) -> int:
    outcome = await compact(session, trigger="manual", record=record, focus=asked.focus, part=asked.part)
    if not isinstance(outcome, Done):
        return _failed(outcome, is_json=is_json)
    boundary = outcome.boundary
    if is_json:
        out_json(_boundary_data(boundary))
    else:
        out(f"compacted ({boundary.strategy}): {boundary.tokens_before:,} -> {boundary.tokens_after:,} tokens")
        out(f"kept {plural(len(boundary.kept), 'message')} word for word; undo it with `holdfast uncompact`")
    return EXIT_OK


def uncompact_command(reference: str, config: Config, *, is_json: bool) -> None:
    """Undo the last compaction of a session."""
    done = anyio.run(_uncompact, reference, config)
    if is_json:
        out_json(done)
    else:
        out(f"undone: {done['boundary']}; {done['tokens_before']:,} -> {done['tokens_after']:,} tokens")
        out("automatic compaction now waits until the window is nearly full")


async def _uncompact(reference: str, config: Config) -> dict[str, Any]:
    session = await open_session(config.home, reference_of(reference), parts=Parts(settings=config.settings))
    try:
        done = await uncompact(session)
        return {
            "boundary": done.boundary.id,
            "tokens_before": done.tokens_before,
            "tokens_after": done.tokens_after,
            "messages": len(session.view.items),
        }
    finally:
        await session.world.journal.close()


def _failed(failed: Failed, *, is_json: bool) -> int:
    if is_json:
        out_json({"failed": failed.reason})
    note(f"not compacted: {failed.reason}; the session is as it was")
    return EXIT_FAILED


def _boundary_data(boundary: Compacted) -> dict[str, Any]:
    return {
        "boundary": boundary.id,
        "strategy": boundary.strategy,
        "tokens_before": boundary.tokens_before,
        "tokens_after": boundary.tokens_after,
        "summary_tokens": boundary.summary_tokens,
        "kept_tokens": boundary.kept_tokens,
        "kept": list(boundary.kept),
    }


def _show_preview(looked: Preview, *, is_json: bool) -> None:
    boundary = looked.boundary
    if is_json:
        parts = {"kept": looked.kept, "dropped": looked.dropped, "restored": looked.restored}
        told = {name: [{"id": p.id, "what": p.what, "tokens": p.tokens} for p in some] for name, some in parts.items()}
        out_json({**_boundary_data(boundary), "boundary": None, "dry_run": True, "record": looked.plan.record, **told})
        return
    out(f"would compact ({boundary.strategy}): {boundary.tokens_before:,} -> {boundary.tokens_after:,} tokens")
    rows = [(name, what, count, size) for name, some in _groups(looked) for what, count, size in _counted(some)]
    table(("", "what", "number", "tokens"), [("record", "what stands for it", 1, boundary.summary_tokens), *rows])
    largest = sorted(looked.dropped, key=lambda part: -part.tokens)[:_SHOWN]
    if largest:
        out("\nthe largest of what would leave the view (recall brings them back)")
        table(("id", "what", "tokens"), [(cut(p.id, 48), p.what, p.tokens) for p in largest], indent="  ")
    out(f"\nthe record\n\n{looked.plan.record}")


def _groups(looked: Preview) -> list[tuple[str, tuple[Part, ...]]]:
    return [("kept", looked.kept), ("dropped", looked.dropped), ("restored", looked.restored)]


def _counted(parts: tuple[Part, ...]) -> list[tuple[str, int, int]]:
    counts, sizes = Counter[str](), Counter[str]()
    for part in parts:
        counts[part.what] += 1
        sizes[part.what] += part.tokens
    return [(what, count, sizes[what]) for what, count in counts.items()]


def _read(path: Path) -> str:
    if path == Path("-"):
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadSetting(f"{path}: not a text in UTF-8") from None


def _edited(record: str) -> str:
    """The record after a person had it in an editor."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        path = Path(folder) / "record.md"
        try:
            path.write_text(record, encoding="utf-8")
        except OSError as e:
            raise OSError(e.errno, e.strerror or str(e), str(path)) from e
        try:
            code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
        except (OSError, ValueError) as e:
            raise HoldfastError(f"{editor}: {e}: the editor can't be run; set EDITOR, or use --summary") from e
        if code != 0:
            raise HoldfastError(f"{editor}: ended with {code}; nothing was committed")
        text = path.read_text(encoding="utf-8", errors="replace")
    if not text.strip():
        raise HoldfastError("the record is empty; nothing was committed")
    return text
