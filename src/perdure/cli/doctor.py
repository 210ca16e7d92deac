"""`perdure doctor`: whether this machine and what is kept on it are well, and repairs that lose no byte.

CLI-3, REL-1, SES-1, ENG-3, ENG-4.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from perdure.adapters.journal import JOURNAL
from perdure.adapters.machine.system import CLOSE_ON_EXEC, HAS_MODES, user_id
from perdure.cli.arguments import Json, beside_home, configured, examples, family, home
from perdure.cli.kept import KeptIn, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import EXIT_FAILED, EXIT_OK, clean, out, out_json, plural
from perdure.errors import BadSetting, PerdureError, SessionBusy, SessionNotFound

if TYPE_CHECKING:
    from perdure.adapters.journal import BlobProblem
    from perdure.adapters.journal.reading import JournalScan
    from perdure.transcript.messages import BlobId


app = family()
State = Literal["ok", "note", "problem"]
PACKAGES = ("perdure", "msgspec", "anyio", "typer", "rich", "anthropic", "openai")
_SHOWN = 3
_BESIDE = {
    ".new-": "a draft that was never finished; it can be deleted",
    ".refused-": "what a failed write left behind; its caller was told",
    ".before-": "the journal before it was rewritten; delete it when you miss nothing",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; a `problem` makes the exit code 1, a `note` is worth knowing."""

    check: str
    state: State
    what: str


@app.command(
    epilog=examples(
        "perdure doctor",
        "perdure doctor --repair",
        "perdure doctor ~/backup/sessions --json",
        "perdure doctor --store postgresql://perdure@db/perdure",
    )
)
def doctor(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="PATH", help="Sessions or folders to check.")] = None,
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Set damage aside, and close files to other users.")] = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Check this machine and every journal on it.

    With --store: a database, its user, its background work, and the sessions in it that were written last. The exit
    code is 1 when something is wrong.
    """

    kept, findings = KeptIn(store, tenant), list[Finding]()

    def tell(finding: Finding) -> None:
        findings.append(finding)
        if json:
            out_json(asdict(finding))
        else:
            out(f"{finding.state:<8} {finding.check}: {clean(finding.what)}")

    async def look() -> None:
        from perdure.cli.store_health import store_findings

        async for finding in store_findings(kept):
            tell(finding)

    paths = paths or ([Path(kept.store).expanduser()] if kept.store and not kept.is_database else None)
    if kept.is_database and not paths:
        if repair:
            raise BadSetting("--repair: a damaged session of a database is mended when it is opened for writing next")
        in_loop(look)
    else:
        for finding in _check_paths(paths, repair) if paths else _check_all(home(), repair):
            tell(finding)
    problems = sum(finding.state == "problem" for finding in findings)
    if not json:
        is_mendable = not (repair or (kept.is_database and not paths))
        mend = "; `perdure doctor --repair` mends what can be mended" if is_mendable else ""
        out(f"\n{plural(problems, 'problem')} found{mend}" if problems else "\nall is well")
    raise typer.Exit(EXIT_FAILED if problems else EXIT_OK)


def _check_all(place: Path, repairs: bool) -> Iterator[Finding]:
    from perdure.adapters.former import FORMER_FOLDER
    from perdure.adapters.journal.store import every_journal
    from perdure.adapters.machine.repositories import trust_root

    yield _python()
    yield Finding("packages", "ok", ", ".join(f"{name} {version_of(name)}" for name in PACKAGES))
    yield from _settings()
    yield _sandbox()
    yield from _clients(place)
    for folder in (place, trust_root(Path.cwd()) / FORMER_FOLDER):
        yield from _former(folder, repairs)
    place = home()  # it may have its new name by now
    yield from _home(place, repairs)
    if place.is_dir():
        yield _storage(place)
    yield from _stores(place, repairs)
    yield from _sessions(list(every_journal(place)), repairs)
    yield from _leftovers(place / "projects")


def _check_paths(paths: Sequence[Path], repairs: bool) -> Iterator[Finding]:
    from perdure.adapters.journal import SessionStore

    for path in paths:
        if path.is_dir():
            found = sorted(path.rglob(JOURNAL))
        elif path.is_file():
            found = [path]
        else:
            found = [SessionStore(home()).locate(str(path)) / JOURNAL]
        if not found:
            raise SessionNotFound(f"{path}: there are no sessions in it")
        yield from _sessions(found, repairs)


# --- the machine ------------------------------------------------------------------------------------------------------


def _python() -> Finding:
    import platform

    is_known = (3, 11) <= sys.version_info[:2] < (3, 15)
    what = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding(
        "python", "ok" if is_known else "problem", what if is_known else f"{what}; Perdure is made for 3.11 to 3.14"
    )


def version_of(package: str) -> str:
    """Which version of a package is installed, in words."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _settings() -> Iterator[Finding]:
    try:
        config = configured()
    except BadSetting as e:
        yield Finding("settings", "problem", str(e))
        yield _semantic(is_on=True)
        return
    for warning in config.warnings:  # what others wrote into a project is nothing that is wrong with this machine
        is_theirs = warning in config.theirs
        yield Finding("settings", "note" if is_theirs else "problem", f"{warning.name}: {warning.reason}")
    files = ", ".join(map(str, config.files)) or "no files: defaults and environment"
    yield Finding("settings", "ok", f"from {files}")
    folder = config.folder
    what = f"{folder.root}: {'trusted' if folder.is_trusted else 'not trusted'} ({folder.why})"
    held = f", so it isn't used: {', '.join(config.unapproved)}" if config.unapproved else ""
    yield Finding("folder", "note" if held else "ok", what + held)
    yield _semantic(is_on=config.settings.retrieval_semantic)


def _semantic(*, is_on: bool) -> Finding:
    """MEM-15: whether memories are found by their meaning, too."""
    from perdure.adapters.semantic import semantic_state

    here = semantic_state()
    if not is_on:
        return Finding("semantic", "note", "switched off by the setting retrieval_semantic")
    return Finding("semantic", "ok" if here.is_there else "note", here.said)


def _sandbox() -> Finding:
    """SEC-10: what commands run in that nobody was asked about."""
    from perdure.adapters.machine.sandbox import WORDS, find_sandbox

    here = find_sandbox()
    if here.kind == "none":
        return Finding("sandbox", "note", f"none: {here.why}; commands run without one")
    return Finding("sandbox", "ok" if here.kind == "bubblewrap" else "note", f"{WORDS[here.kind]}, {here.why}")


def _clients(place: Path) -> Iterator[Finding]:
    """PLG-1: the coding agents that `perdure setup` set up."""
    if not (place / "setup").is_dir():
        return
    from perdure.plugin.setup import CLIENTS, ClientSetup

    for kind in CLIENTS.values():
        one = ClientSetup(kind, place, os.environ)
        try:
            if (receipt := one.receipt()) is None:
                continue
            what = "with the plugin" if receipt.how == "plugin" else f"for the gateway at {receipt.url}"
            trouble = one.trouble()
        except PerdureError as e:
            yield Finding(kind.name, "problem", str(e))
            continue
        yield Finding(kind.name, "note" if trouble else "ok", f"set up {what}{f'; {trouble}' if trouble else ''}")


def _former(folder: Path, repairs: bool) -> Iterator[Finding]:
    """What has the name of version 0.1: it is used as it is, and gets its new name when that is asked for."""
    from perdure.adapters.former import FORMER_FOLDER
    from perdure.adapters.journal.append_file import SessionLock
    from perdure.adapters.journal.store import every_journal
    from perdure.memory.places import FOLDER

    now = folder.with_name(FOLDER)
    if folder.name != FORMER_FOLDER or not folder.is_dir():
        former = folder.with_name(FORMER_FOLDER)
        if folder.name == FOLDER and folder.is_dir() and former.is_dir():
            yield Finding("0.1", "note", f"{former} isn't read, since there is {folder}: move what you miss by hand")
        return
    if now.exists():
        yield Finding("0.1", "note", f"{folder} isn't read, since there is {now}: move what you miss by hand")
        return
    if not repairs:
        yield Finding("0.1", "note", f"{folder} is in use under its old name; --repair renames it to {now.name}")
        return
    try:
        with ExitStack() as held:
            for journal in every_journal(folder):
                lock = SessionLock.acquire(journal.parent)
                held.callback(lock.release)
            folder.rename(now)
    except (PerdureError, OSError) as e:
        yield Finding("0.1", "problem", f"{folder} keeps its old name: {e}")
        return
    yield Finding("0.1", "ok", f"{folder} is now {now}")


def _home(place: Path, repairs: bool) -> Iterator[Finding]:
    if not place.exists():
        first = next(parent for parent in place.absolute().parents if parent.exists())
        if first.is_dir() and os.access(first, os.W_OK | os.X_OK) and not _is_virtual(first):
            yield Finding("home", "ok", f"{place}: doesn't exist yet; the first session creates it")
        else:
            yield Finding("home", "problem", f"{place}: can't be created in {first}; set PERDURE_HOME elsewhere")
        return
    if not place.is_dir():
        yield Finding("home", "problem", f"{place}: isn't a folder; set PERDURE_HOME to one")
        return
    if repairs and _too_open(place) is not None:
        with contextlib.suppress(OSError):
            place.chmod(0o700)
            yield Finding("home", "note", f"repaired: {place} closed to other users")
    if (trouble := _too_open(place)) is not None:
        yield Finding("home", "problem", trouble)
    else:
        yield Finding("home", "ok", str(place))


def _is_virtual(folder: Path) -> bool:
    """Folders that the kernel makes up take no new ones, whatever their rights say."""
    return folder.parts[:2] in {("/", "proc"), ("/", "sys")}


def _too_open(path: Path) -> str | None:
    """What is wrong with the rights of a file or folder; None when only its owner can read it."""
    if not HAS_MODES:
        return None
    about = path.stat()
    mode = stat.S_IMODE(about.st_mode)
    wanted = 0o700 if path.is_dir() else 0o600
    if about.st_uid != user_id():
        return f"{path}: belongs to another user ({about.st_uid})"
    return f"{path}: others may read it ({mode:04o}); chmod {wanted:o} it" if mode & 0o077 else None


def _stores(place: Path, repairs: bool) -> Iterator[Finding]:
    """Where Perdure writes: what it doesn't know there, and what others may read of the plugin's state."""
    from perdure.adapters.stores import StoreRoot, files_below

    try:
        beside = beside_home(configured())
    except BadSetting:  # which is told above
        return
    found = ", ".join(str(root.path) for root in beside)
    yield Finding("stores", "ok", f"{place}{f', {found}' if found else ''}")
    for root in (StoreRoot("home", place), *beside):
        unknown = [path for path in files_below(root) if root.kind_of(path) is None]
        for path in unknown[:_SHOWN]:
            yield Finding("stores", "note", f"{path}: nothing that this version of Perdure writes")
        if len(unknown) > _SHOWN:
            yield Finding("stores", "note", f"and {len(unknown) - _SHOWN:,} more in {root.path}")
        for folder in root.path.glob("sessions/*") if root.where == "plugin" else ():
            if repairs and any(_made_private(folder)):
                yield Finding("stores", "note", f"repaired: {folder} closed to other users")
            if (trouble := _too_open(folder)) is not None:
                yield Finding("stores", "problem", trouble)


def _storage(place: Path) -> Finding:
    """Whether the disk takes a write and a sync, and how long that takes."""
    probe = place / f".probe-{os.getpid()}"
    started = time.perf_counter()
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC, 0o600)
        try:
            os.write(fd, b"perdure\n")
            os.fsync(fd)
        finally:
            os.close(fd)
            probe.unlink()
    except OSError as e:
        return Finding("storage", "problem", f"{place}: {e.strerror or e}: nothing can be recorded here")
    return Finding("storage", "ok", f"a write is on disk after {(time.perf_counter() - started) * 1000:.1f} ms")


# --- the sessions -----------------------------------------------------------------------------------------------------


def _sessions(journals: Sequence[Path], repairs: bool) -> Iterator[Finding]:
    sound = 0
    for journal in journals:
        if repairs:
            yield from repaired(journal)
        found = list(_session(journal))
        yield from found
        sound += all(finding.state != "problem" for finding in found)
    yield Finding("sessions", "ok", f"{sound} of {len(journals)} are sound" if journals else "none yet")


def _session(journal: Path) -> Iterator[Finding]:
    from perdure.adapters.journal import verify_and_scan
    from perdure.adapters.journal.reading import SET_ASIDE

    name = journal.parent.name
    problems, scan = verify_and_scan(journal)
    if scan is None and journal.name != JOURNAL:  # a file of another kind, in all likelihood
        told = "; ".join(problem.what for problem in problems)
        yield Finding("session", "problem", f"{told}; `perdure inspect` checks logs of other agents")
        return
    fresh = [p for p in problems if not p.what.endswith(SET_ASIDE)]
    for problem in fresh[:_SHOWN]:
        place = f"line {problem.line}: " if problem.line else ""
        yield Finding(f"session {name}", "problem", f"{place}{problem.what}")
    if len(fresh) > _SHOWN:
        yield Finding(f"session {name}", "problem", f"and {len(fresh) - _SHOWN} more")
    known = [p for p in problems if p.what.endswith(SET_ASIDE)]
    gone = [p for p in known if p.what.startswith("sequence jumps")]  # there was nothing to set aside
    if len(known) > len(gone):
        yield Finding(f"session {name}", "note", f"{plural(len(known) - len(gone), 'damaged piece')} set aside earlier")
    for problem in gone[:_SHOWN]:
        yield Finding(f"session {name}", "note", f"line {problem.line}: {problem.what.removesuffix(SET_ASIDE)}")
    if len(gone) > _SHOWN:
        yield Finding(f"session {name}", "note", f"and {len(gone) - _SHOWN} more gaps")
    if scan is not None:
        yield from _check_blobs(journal.parent, scan)
        yield from _observers(journal.parent, scan)
    yield from _checkpoints(journal.parent)
    try:
        if (trouble := _too_open(journal)) is not None:
            yield Finding(f"session {name}", "problem", trouble)
    except OSError as e:
        yield Finding(f"session {name}", "problem", f"{journal}: {e.strerror or e}")
    for beside in sorted(journal.parent.glob(f"{journal.name}.*")):
        what = next((said for part, said in _BESIDE.items() if part in beside.name), "damage set aside")
        yield Finding(f"session {name}", "note", f"{beside.name}: {what}")
    if (held := _held(journal.parent)) is not None:
        yield Finding(f"session {name}", "note", held)


def _check_blobs(directory: Path, scan: JournalScan) -> Iterator[Finding]:
    """Whether what left the view can be had back byte for byte (ENG-9, RCL-2)."""
    from perdure.adapters.journal import FileBlobs, blob_problems

    name = f"session {directory.name}"
    try:
        troubles = blob_problems(FileBlobs(directory / "blobs"), scan)
    except PerdureError as e:
        yield Finding(name, "problem", str(e))
        return
    for trouble in troubles[:_SHOWN]:
        yield Finding(name, "problem", str(trouble))
    if len(troubles) > _SHOWN:
        yield Finding(name, "problem", f"and {len(troubles) - _SHOWN} more blobs")
    if aside := len(list((directory / "blobs").glob("*.damaged-*"))):
        yield Finding(name, "note", f"{plural(aside, 'damaged blob')} set aside in {directory / 'blobs'}")


def _checkpoints(directory: Path) -> Iterator[Finding]:
    """What the checkpoints of files take, and whether a rewind was cut short (CKP-3, CKP-6)."""
    from perdure.adapters.checkpoints.log import checkpoint_usage

    try:
        used = checkpoint_usage(directory)
    except PerdureError as e:
        yield Finding(f"session {directory.name}", "problem", str(e))
        return
    if used is None:
        return
    what = f"checkpoints of {plural(used.snapshots, 'prompt')}, {used.bytes:,} bytes"
    yield Finding(f"session {directory.name}", "note", what)
    if used.is_cut_short:
        what = "a rewind of files was interrupted; the next `perdure rewind` or `resume` finishes it"
        yield Finding(f"session {directory.name}", "problem", what)


def _observers(directory: Path, scan: JournalScan) -> Iterator[Finding]:
    """What watches an agent's tools and failed, as the journal has it (CKP-7)."""
    from perdure.transcript.records import OBSERVER_FAILED, Noted

    failed: Counter[str] = Counter()
    for placed in scan.placed:
        if isinstance(record := placed.record, Noted) and record.kind == OBSERVER_FAILED:
            failed[f"{record.data.get('observer')} failed: {record.data.get('reason')}"] += 1
    for what, count in failed.items():
        about = f"{what} (for {plural(count, 'prompt')}); a rewind to before these names what it misses"
        yield Finding(f"session {directory.name}", "note", about)


def _held(directory: Path) -> str | None:
    """Who writes the session, as far as the lock file tells."""
    import socket

    from perdure.adapters.journal import read_holder

    holder = read_holder(directory)
    if holder is None:
        return None
    who = f"process {holder.pid} on {holder.host}"
    if holder.host == socket.gethostname() and not _is_alive(holder.pid):
        return f"the lock names {who}, which has ended; the next writer takes it over"
    late = " (its lease ran out: it may hang)" if holder.lease_until < time.time() else ""
    return f"is being written by {who}{late}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _leftovers(projects: Path) -> Iterator[Finding]:
    """Sessions whose deletion, or whose making from another or from a log, was cut short."""
    from perdure.adapters.journal.store import UNFINISHED

    for what, pattern in UNFINISHED:
        for doomed in sorted(projects.glob(f"*/{pattern}")):
            yield Finding("leftovers", "note", f"{doomed}: what is left of {what}; it can be removed")


# --- repairs ----------------------------------------------------------------------------------------------------------


def repaired(journal: Path) -> Iterator[Finding]:
    """Set damage aside as opening the session would, and take its files from the eyes of others; say what was done."""

    from perdure.adapters.journal import FileBlobs, blob_problems, originals, verify_and_scan
    from perdure.adapters.journal.reading import SET_ASIDE
    from perdure.adapters.journal.repair import set_aside

    name = f"session {journal.parent.name}"
    try:
        found, scan = verify_and_scan(journal)
        damage = list(found)
        is_lacking = scan is not None and bool(set_aside(journal, scan))
        if is_lacking or any(not problem.what.endswith(SET_ASIDE) for problem in damage):
            yield from in_loop(_reopened, journal.parent, name)
        if damage:
            yield from in_loop(_restored, journal.parent, name)
        if scan is not None and (troubles := blob_problems(FileBlobs(journal.parent / "blobs"), scan)):
            yield from in_loop(_repair_blobs, journal.parent, name, originals(scan, troubles), troubles)
        closed = Counter(_kind(path, journal.parent) for path in _made_private(journal.parent))
        if closed:
            what = " and ".join(plural(count, kind) for kind, count in closed.items())
            yield Finding(name, "note", f"repaired: {what} closed to other users")
    except SessionBusy as e:
        yield Finding(name, "note", f"not repaired: {e}")
    except PerdureError as e:
        yield Finding(name, "problem", f"can't be repaired: {e}")
    except OSError as e:
        yield Finding(name, "problem", f"can't be repaired: {e.filename}: {e.strerror or e}")


async def _reopened(directory: Path, name: str) -> list[Finding]:
    """Open the session for writing, which sets damage aside, and say what that did."""
    from perdure.adapters.journal import SessionStore
    from perdure.adapters.journal.reading import BESIDE

    files = await SessionStore(home()).open(directory, mend=True)
    try:
        repairs = (await files.journal.load(whole=True)).repairs
    finally:
        await files.journal.close()
    told = [repaired for repaired in repairs if repaired.line == BESIDE]  # no piece of the file: in its own words
    pieces = len(repairs) - len(told)
    found = [Finding(name, "note", f"repaired: {plural(pieces, 'damaged piece')} set aside and recorded")]
    return [*(found if pieces else ()), *(Finding(name, "note", f"repaired: {one.what}") for one in told)]


async def _restored(directory: Path, name: str) -> list[Finding]:
    """Lines of an import come back from the log that it kept (ENG-8)."""
    from perdure.adapters.journal import SessionStore
    from perdure.settings import Settings
    from perdure.wiring.restoring import with_lines_of_source

    store = SessionStore(home())
    files, told = await with_lines_of_source(store, await store.open(directory), Settings())
    await files.journal.close()
    return [Finding(name, "note", f"line {one.line}: {one.what}") for one in told]


async def _repair_blobs(
    directory: Path, name: str, known: Mapping[BlobId, bytes], troubles: Sequence[BlobProblem]
) -> list[Finding]:
    """Put damaged blobs aside, and store anew those whose bytes are known elsewhere (ENG-9)."""
    from perdure.adapters.journal import SessionStore

    files = await SessionStore(home()).open(directory)
    told = []
    try:
        for trouble in troubles:
            if not trouble.is_gone:
                files.blobs.set_aside(trouble.blob)
            if trouble.blob in known:
                await files.blobs.put((known[trouble.blob],))
                told.append(Finding(name, "note", f"blob {trouble.blob[:12]}: restored, {trouble.used_by}"))
    finally:
        await files.journal.close()
    return told


def _made_private(folder: Path) -> Iterator[Path]:
    """Take a folder and what is in it from the eyes of others; gives what was open to them."""
    for path in (folder, *folder.rglob("*")):
        about = path.lstat()
        mode = stat.S_IMODE(about.st_mode)
        if HAS_MODES and not stat.S_ISLNK(about.st_mode) and mode & 0o077:
            path.chmod(mode & ~0o077)
            yield path


def _kind(path: Path, session: Path) -> str:
    from perdure.adapters.checkpoints.log import FOLDER as CHECKPOINTS

    if path.is_dir():
        return "folder"
    return "checkpoint file" if (session / CHECKPOINTS) in path.parents else "file"
