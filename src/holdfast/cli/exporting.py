"""`holdfast export`: a session as a Claude Code log (ENG-6)."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.door import out, out_json
from holdfast.cli.opened import Opened, opened_one
from holdfast.cli.tables import plural
from holdfast.errors import BadSetting, ForeignFormat
from holdfast.memory.trust.redaction import RedactedJson, redact_json
from holdfast.transcript.blocks import Text
from holdfast.transcript.messages import MessageId

if TYPE_CHECKING:
    from holdfast.adapters.config import Config
    from holdfast.transcript.foreign.export import Boundary

FORMATS = ("claude-code",)
STDOUT = Path("-")
JOURNAL = "journal.jsonl"


def export_command(
    reference: str, target: Path, config: Config, *, form: str, force: bool, session: str | None, is_json: bool
) -> None:
    """Write the session to `target`, whole or not at all."""
    if form not in FORMATS:
        raise BadSetting(f"--format {form}: what can be written is {', '.join(FORMATS)}")
    if target != STDOUT:
        check_target(reference, target, force=force)
    from holdfast.adapters.files.keys import secret_key

    unchanged = _unchanged(reference, config) if session is None else None
    if unchanged is not None:
        data, how = unchanged, "copied unchanged"
    else:
        one = opened_one(reference, config, session=session)
        lines = [redact_json(line, secret_key(config.home)) for line in claude_code_lines(one)]
        data, how = b"".join(line.raw.rstrip(b"\n") + b"\n" for line in lines), _how(len(one.messages), lines)
    if target == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    write_whole(target, data, force=force)
    if is_json:
        out_json({"file": reference, "out": str(target), "format": form, "bytes": len(data), "how": how})
    else:
        out(f"{target}: {len(data):,} bytes, {how}")


def _how(messages: int, lines: list[RedactedJson]) -> str:
    """What was written, and that secrets were left out of it; a log that is copied unchanged keeps them (SEC-5)."""
    secrets_found = sum(len(line.families) for line in lines)
    return f"{plural(messages, 'message')} written" + (
        f", {plural(secrets_found, 'secret')} left out" if secrets_found else ""
    )


def check_target(reference: str, target: Path, *, force: bool) -> None:
    """Refuse a target that can't be written, or that must not be replaced: never a device, whoever we are."""
    if target.is_dir():
        raise BadSetting(f"{target}: is a folder; name the file to write")
    if target.exists() and not target.is_file():
        raise BadSetting(f"{target}: is no file but a device or a pipe; -o - writes to stdout")
    if not target.parent.is_dir():
        raise BadSetting(f"{target}: there is no folder {target.parent}; make it first")
    source = Path(reference)
    if source.exists() and target.exists() and source.samefile(target):
        raise BadSetting(f"{target}: is the file that is exported; name another one")
    if target.exists() and not force:
        raise BadSetting(f"{target}: is there already; --force writes over it")


def _unchanged(reference: str, config: Config) -> bytes | None:
    """The bytes of a log that nobody changed: the file itself, or what a session was imported from."""
    path = Path(reference)
    if path.is_file() and path.name != JOURNAL:
        return _claude_code_bytes(path)

    import anyio

    return anyio.run(_imported_bytes, path if path.exists() else reference, config)


async def _imported_bytes(reference: str | Path, config: Config) -> bytes | None:
    from holdfast.adapters.files import SessionStore
    from holdfast.engine.imports import source_of

    files = await SessionStore(config.home).open(reference, read_only=True)
    try:
        loaded = await files.journal.load(whole=True)
        source = source_of(tuple(placed.record for placed in loaded.records))
        if source is None or source.format != "claude-code" or not source.is_whole:
            return None
        return await files.blobs.get(source.blob)
    finally:
        await files.journal.close()


def _claude_code_bytes(path: Path) -> bytes | None:
    """The bytes of a Claude Code log that reads as one; None for anything else."""
    from holdfast.transcript.foreign.detect import HEAD_BYTES, detect, read_recordings

    if not path.is_file():
        return None
    data = path.read_bytes()
    if detect(data[:HEAD_BYTES], path.name) == "holdfast":
        return None
    found = read_recordings(data, path.name)
    if len(found) != 1 or found[0].format != "claude-code":
        return None
    if not found[0].steps and found[0].problems:
        raise ForeignFormat(f"{path}: none of its lines can be read: {found[0].problems[0].what}")
    return data


def claude_code_lines(one: Opened) -> Iterable[bytes]:
    """The session as lines of a Claude Code log."""
    from importlib.metadata import PackageNotFoundError, version

    from holdfast.transcript.foreign.export import to_claude_code

    try:
        release = version("holdfast")
    except PackageNotFoundError:
        release = "0"
    return to_claude_code(
        one.messages,
        session=one.session,
        cwd=one.cwd or "",
        version=release,
        boundaries=_boundaries(one),
        branch=one.branch or "",
        title=one.title,
    )


def _boundaries(one: Opened) -> dict[MessageId, Boundary]:
    """Our own compactions, each by the last message before it."""
    from holdfast.transcript.foreign.export import Boundary

    found: dict[MessageId, Boundary] = {}
    for seen, boundary in zip(one.boundaries, one.compactions, strict=False):
        texts = [b.value.text for m in boundary.summary for b in m.blocks if isinstance(b.value, Text)]
        if seen.after:
            found[one.messages[seen.after - 1].id] = Boundary(
                summary="\n\n".join(texts),
                trigger=boundary.trigger,
                pre_tokens=boundary.tokens_before,
                post_tokens=boundary.tokens_after,
                kept=boundary.kept,
                at=boundary.at,
            )
    return found


def write_whole(target: Path, data: bytes, *, force: bool) -> None:
    """A private file with these bytes, complete or not there at all; without `force` never over another one.

    With it, what a link leads to is replaced, and the link stays.
    """
    target = target.resolve() if force else target
    draft = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            os.replace(draft, target)
        else:
            os.link(draft, target)
    except FileExistsError:
        raise BadSetting(f"{target}: is there already; --force writes over it") from None
    except OSError as e:  # of the draft, or of no file at all: what nobody asked for says nothing
        raise OSError(e.errno, e.strerror or str(e), str(target)) from e
    finally:
        draft.unlink(missing_ok=True)
