"""What a client's hook starts: it reads on in the client's log, and after a compaction gives the record (PLG-1).

A hook never fails in the client's eyes: whatever happens, it ends with 0 and prints nothing but what it has to say.
What went wrong stands in `errors.log` beside the state.
"""

from __future__ import annotations

import gc
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final

BEGAN = time.monotonic()
FOLDS_FROM: Final = 192 * 1024  # of new log: then a tool's hook reads on, and the others have little left to read
READING_SECONDS: Final = 0.25  # after which no further part of a log is begun; what is left, later hooks read
WAIT_SECONDS: Final = 0.1  # for another hook of the same session
KEPT_DAYS: Final = 30  # as Claude Code keeps its logs
MOST_INPUT_BYTES: Final = 32 * 1024 * 1024
MOST_ERROR_BYTES: Final = 64 * 1024
HEAD_BYTES: Final = 16 * 1024
STATE: Final = "state"
ENDING: Final = "ending"  # beside a state, while a SessionEnd saves memories: it tells the next session what is left
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


def main(arguments: list[str]) -> int:
    """Answer a hook, or print the status line, from what the client writes to our input. Gives 0, always."""
    gc.disable()  # the process ends before there would be anything to collect
    numbers = [int(one) for one in arguments[1:] if one.isdigit()]
    part, parts = (numbers[0], numbers[1]) if len(numbers) == 2 else (1, 1)
    folder = ""
    try:
        given = json.loads(sys.stdin.buffer.read(MOST_INPUT_BYTES))
        if isinstance(given, dict):
            is_line = arguments[:1] == ["statusline"]
            folder = _line_folder(os.environ) if is_line else data_folder(os.environ)
            said = _status_line(given, folder) if is_line else answer(given, folder, part, parts)
            sys.stdout.buffer.write(said.encode("utf-8", "replace"))  # whatever a terminal's encoding is
            sys.stdout.flush()
    except Exception:
        _note(folder)
    return 0


def data_folder(environ: Mapping[str, str]) -> str:
    """Where the state of all sessions is kept: in the folder that the client gives a plugin, and takes away with it."""
    given = environ.get("CLAUDE_PLUGIN_DATA") or environ.get("PLUGIN_DATA")
    if given and os.path.isabs(given):
        return given
    return os.path.join(environ.get("PERDURE_HOME") or os.path.expanduser("~/.perdure"), "plugin")


def session_folder(data: str, session: str) -> str:
    """The folder of one session's state. An id that is no plain word can't lead anywhere else."""
    if not _PLAIN_ID.fullmatch(session):
        import hashlib

        session = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:32]
    return os.path.join(data, "sessions", session)


def answer(given: Mapping[str, Any], data: str, part: int = 1, parts: int = 1) -> str:
    """What a hook has to say; mostly nothing.

    Args:
        given: What the client told the hook.
        data: The folder of our state.
        part: Which part of the record this hook gives.
        parts: How many hooks give one: a client takes no more than 10,000 characters of each.
    """
    event, session, log = given.get("hook_event_name"), given.get("session_id"), given.get("transcript_path")
    if not (isinstance(session, str) and isinstance(log, str) and os.path.isabs(log)):
        return ""
    folder, source = session_folder(data, session), given.get("source")
    if event == "SessionStart" and source not in ("compact", "resume"):
        _tidy(data)
        return ""
    if event == "PostToolUse" and log_size(log) - head_of(folder).get("offset", 0) < FOLDS_FROM:
        return ""
    if log_size(log):
        return _with_log(given, folder, log, part, parts)
    return ""


def _with_log(given: Mapping[str, Any], folder: str, log: str, part: int, parts: int) -> str:
    """What a hook has to say that reads the log: from here on imports are dear.

    Raises:
        LogElsewhere: The log isn't one of the client's.
        OSError: The log can't be read, or nothing can be kept of it.
    """
    event, data = given.get("hook_event_name"), os.path.dirname(os.path.dirname(folder))
    if not _is_clients_log(log, data, os.environ):
        raise LogElsewhere
    is_start = event == "SessionStart"  # the model gets its record, whether anything can be kept here or not
    try:
        _make_private(folder)
    except OSError:
        if not is_start:
            raise
        _note(data)
    waits = WAIT_SECONDS if event != "PostToolUse" else 0.0
    with _locked(folder, waits) if part == 1 else nullcontext(False) as is_ours:  # one of a record's hooks keeps it
        if event == "SessionEnd":
            _end(folder, log, str(given.get("cwd") or ""), str(given.get("session_id")), is_ours)
            return ""
        if not is_ours and not is_start:
            return ""  # another hook of this session reads the same
        began = time.monotonic()
        from perdure.plugin.carried import open_carried

        if is_start:
            from perdure.plugin.record import hook_output
        # What follows the reading takes as long as these imports (a record) or a part of that (saving what was read),
        # and they have just shown how fast this machine is now.
        took = time.monotonic() - began
        with open_carried(folder, log) as carried:
            carried.read_on(BEGAN + READING_SECONDS - took * (1.0 if is_start else 0.2))
            said = ""
            if is_start:
                said = hook_output(carried, str(given.get("source")), part=part, parts=parts)
            if is_ours:
                try:
                    carried.save()
                except OSError:
                    if not said:
                        raise
                    _note(data)
            return said


def _make_private(folder: str) -> None:
    """Make a folder with what is missing above it, which may be our home, for nobody else to look into."""
    if not os.path.isdir(folder):
        _make_private(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)


class LogElsewhere(Exception):
    """A hook was told of a log that isn't the client's own: what stands there may be anybody's words."""


def _is_clients_log(log: str, data: str, environ: Mapping[str, str]) -> bool:
    """Whether a log lies where the clients keep theirs, in the end: links count for what they lead to."""
    from perdure.adapters.machine.clients import claude_folders, codex_folder

    client, is_given, _ = data.rpartition("/plugins/data/")
    clients = [*([client] if is_given else []), *map(str, claude_folders(environ)), str(codex_folder(environ))]
    folders = [os.path.join(client, name) for client in clients for name in ("projects", "sessions")]
    return os.path.realpath(log).startswith(tuple(f"{os.path.realpath(folder)}/" for folder in folders))


def log_size(log: str) -> int:
    """How large a log is; 0 for what is no regular file."""
    try:
        found = os.stat(log)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def head_of(folder: str) -> dict[str, Any]:
    """The first line of a state: how far the log was read, and what is told of it. Empty where there is none."""
    try:
        with open(os.path.join(folder, STATE), "rb") as file:
            head = json.loads(file.readline(HEAD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    is_sound = isinstance(head, dict) and all(type(head.get(name, 0)) is int for name in ("offset", "boundaries"))
    return head if is_sound else {}


@contextmanager
def _locked(folder: str, seconds: float) -> Iterator[bool]:
    """Whether this hook is the one that may write the state; a lock ends with its process, however that ends."""
    from perdure.adapters.machine.system import lock_now, open_folder_lock

    try:
        fd = open_folder_lock(folder)
    except OSError:  # where it couldn't be made
        yield False
        return
    try:
        until = time.monotonic() + seconds
        while True:
            try:
                lock_now(fd)
            except OSError:
                if time.monotonic() >= until:
                    yield False
                    return
                time.sleep(0.005)
            else:
                yield True
                return
    finally:
        os.close(fd)


def _end(folder: str, log: str, project: str, session: str, is_ours: bool) -> None:
    """Save what a person asked to remember. A hook that is killed over it leaves a note of what is left to do."""
    from perdure.adapters.machine.system import open_itself

    path = os.path.join(folder, ENDING)
    try:
        fd = open_itself(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with open(fd, "w", encoding="utf-8", errors="surrogatepass") as file:
            json.dump([log, project, session], file)
    except OSError:  # a full disk: then it is tried this once
        pass
    from perdure.plugin.memories import remember

    remember(folder, log, project, session, is_kept=is_ours)
    _unlink(path)


def _tidy(data: str) -> None:
    """Save what the end of another session hasn't, once more; remove the state of those that nobody went on with."""
    now = time.time()
    try:
        with os.scandir(os.path.join(data, "sessions")) as entries:
            known = [(one.path, one.stat(follow_symlinks=False).st_mtime) for one in entries]
    except OSError:
        return
    old = [path for path, at in known if now - at > KEPT_DAYS * 86_400]
    left = next((path for path, _ in known if os.path.exists(os.path.join(path, ENDING))), None)
    if left is not None:
        with _locked(left, 0.0) as is_ours:  # else it is being done
            if is_ours:
                _end_again(left, data)
    if old:
        import shutil

        for folder in old[:50]:
            shutil.rmtree(folder, ignore_errors=True)


def _end_again(folder: str, data: str) -> None:
    path = os.path.join(folder, ENDING)
    try:
        with open(path, encoding="utf-8", errors="surrogatepass") as file:
            log, project, session = map(str, json.loads(file.read(MOST_ERROR_BYTES)))
        _unlink(path)  # what fails twice would fail each time
        if log_size(log) and _is_clients_log(log, data, os.environ):
            from perdure.plugin.memories import remember

            remember(folder, log, project, session, is_kept=True)
    except (OSError, ValueError, TypeError, RecursionError):
        _unlink(path)
        _note(data)


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _note(data: str) -> None:
    """What went wrong, for us: no text of the session, only where in our code."""
    import traceback

    error = sys.exc_info()[1]
    where = "; ".join(
        f"{os.path.basename(f.filename)}:{f.lineno}" for f in traceback.extract_tb(sys.exc_info()[2])[-4:]
    )
    try:
        path = os.path.join(data or data_folder(os.environ), "errors.log")
        _make_private(os.path.dirname(path))
        if log_size(path) > MOST_ERROR_BYTES:
            os.replace(path, f"{path}.old")
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {type(error).__name__} at {where}\n")
    except OSError:
        pass


# --- the status line --------------------------------------------------------------------------------------------------


def _line_folder(environ: Mapping[str, str]) -> str:
    """Where the plugin's hooks keep their state: a status line isn't told, and takes nobody's word for it."""
    from perdure.adapters.machine.clients import claude_folder

    return str(claude_folder(environ) / "plugins" / "data" / "perdure-perdure")


def _status_line(given: Mapping[str, Any], data: str) -> str:
    """How full the window is, and what we know of the session."""
    head = head_of(session_folder(data, str(given.get("session_id") or "")))
    window = given.get("context_window")
    said = []
    if isinstance(window, dict) and isinstance(window.get("used_percentage"), int | float):
        said.append(f"context {window['used_percentage']:.0f}%")
    if head:
        boundaries, offset = int(head.get("boundaries", 0)), int(head.get("offset", 0))
        behind = log_size(str(given.get("transcript_path") or "")) - offset
        said.append(f"{boundaries} compaction{'' if boundaries == 1 else 's'}")
        said.append("all of the log read" if behind < 2 * FOLDS_FROM else f"{behind / 1e6:.1f} MB of the log to read")
    else:
        said.append("nothing recorded yet")
    return f"perdure: {', '.join(said)}\n"
