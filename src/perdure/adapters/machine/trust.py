"""Which folders are trusted: said once for each, and kept at home, where no folder can write it (SEC-8).

`trusted.json` has an entry for each root by its real path: what was answered, when, and the digests of what the folder
runs, as it was when the person saw it. Before a folder is trusted, nothing in it is used but instruction files as text.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from perdure.adapters.former import folder_in
from perdure.adapters.machine.clients import CLAUDE
from perdure.adapters.machine.repositories import git_file_target, main_work_tree, text_below, trust_root
from perdure.adapters.machine.system import read_file
from perdure.errors import BadSetting
from perdure.memory.instructions import is_below
from perdure.memory.places import AGENTS, AGENTS_LOCAL

KNOWN: Final = "trusted.json"
CONFIG: Final = "config.toml"
CLAUDE_FILES: Final = ("settings.json", "settings.local.json")  # of Claude Code, the stronger last
MOST_BYTES: Final = 1_000_000  # of settings that others wrote
_ALL_BELOW = "/**"
_NEW = "nobody was asked about it yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTrust:
    """How a folder stands with the user. `root` is what was, or would be, asked about."""

    root: Path
    is_trusted: bool = False
    is_answered: bool = False  # yes or no
    why: str = _NEW
    runs: Mapping[str, str] = field(default_factory=dict)  # by file, the digest of what it may run
    runs_not: Mapping[str, str] = field(default_factory=dict)  # likewise of what the person didn't want

    def may_run(self, file: str, digest: str) -> bool:
        """Whether what a file runs is what the person saw when they were asked."""
        return self.is_trusted and self.runs.get(file) == digest


def folder_trust(home: Path, cwd: Path, *, listed: Iterable[str] = (), given: bool = False) -> FolderTrust:
    """How the folder around `cwd` stands.

    Args:
        home: The home of Perdure, which remembers the answers.
        cwd: Where somebody works.
        listed: The setting trusted_folders: folders, and `FOLDER/**` for all that lies in one; no relative ones.
        given: Whether the person said so for this process (`--trust`).
    """
    root = trust_root(cwd)
    known = _read(home)
    if not isinstance(known, dict):
        return FolderTrust(root=root, is_trusted=given, is_answered=given, why="--trust" if given else known)
    entry = known.get(str(root))
    if given:  # with what it runs as it was seen, if it was
        return FolderTrust(root=root, is_trusted=True, is_answered=True, why="--trust", runs=_texts(entry, "runs"))
    if entry is None and (main := _trusted_main(root, known, listed)) is not None:
        runs = _texts(known.get(str(main)), "runs")
        return FolderTrust(root=root, is_trusted=True, is_answered=True, why=f"a work tree of {main}", runs=runs)
    is_trusted, runs, runs_not = _is_trusted(entry), _texts(entry, "runs"), _texts(entry, "runs_not")
    if is_trusted or not _is_listed(root, listed):
        why = _answer_of(entry) if entry is not None else _NEW
        return FolderTrust(
            root=root, is_trusted=is_trusted, is_answered=entry is not None, why=why, runs=runs, runs_not=runs_not
        )
    return FolderTrust(root=root, is_trusted=True, is_answered=True, why="trusted_folders")


def remember(
    home: Path, root: Path, *, is_trusted: bool, runs: Mapping[str, str] | None = None, wanted: bool = True
) -> None:
    """Keep an answer. `runs` are digests by file of what the person saw; `wanted`: and said yes to.

    Raises `BadSetting` when what is kept is damaged, `OSError` when it can't be written.
    """
    known = _read_answers(home)
    before = known.get(str(root))
    kept, kept_not = dict(_texts(before, "runs")), dict(_texts(before, "runs_not"))
    for file, digest in (runs or {}).items():
        for one in (kept, kept_not):
            one.pop(file, None)
        (kept if wanted else kept_not)[file] = digest
    known[str(root)] = {
        "is_trusted": is_trusted,
        "since": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "runs": kept if is_trusted else {},
        "runs_not": kept_not if is_trusted else {},
    }
    _write(home, known)


def forget(home: Path, root: Path) -> bool:
    """Take an answer back; False when there was none. Raises what `remember` raises."""
    known = _read_answers(home)
    if known.pop(str(root), None) is None:
        return False
    _write(home, known)
    return True


def trust_answers(home: Path) -> Mapping[str, tuple[bool, str]]:
    """Every root that was asked about: whether it is trusted, and since when. Raises `BadSetting` for a broken file."""
    return {
        root: (_is_trusted(entry), str(entry.get("since", ""))) for root, entry in sorted(_read_answers(home).items())
    }


def digest(what: object) -> str:
    """What tells two states of something that runs apart."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def project_file(cwd: Path) -> Path | None:
    """The nearest settings of a project, from `cwd` up to its root."""
    real, root = Path(os.path.realpath(cwd)), trust_root(cwd)
    folders = [folder for folder in (real, *real.parents) if is_below(str(folder), str(root))]
    return next((path for f in folders if (path := folder_in(f) / CONFIG).is_file()), None)


def claude_files(root: Path, cwd: Path) -> tuple[Path, ...]:
    """Claude Code's settings in a folder, the stronger last: of its root, and of where somebody works."""
    folders = dict.fromkeys((root, Path(os.path.realpath(cwd))))
    found = (folder / CLAUDE / name for folder in folders for name in CLAUDE_FILES)
    return tuple(path for path in found if os.path.lexists(path))


def trusted_content(cwd: Path, *, own: Path, with_claude: bool = False) -> tuple[str, ...]:
    """What a folder holds that is used only once it is trusted, relative to its root.

    `own` are the user's settings; `with_claude`: those of Claude Code are used as well.
    """
    root = trust_root(cwd)
    here = Path(os.path.realpath(cwd))
    found = [here / CLAUDE / name for name in ("skills", "agents") if _is_filled(here / CLAUDE / name)]
    found += [path for name in (AGENTS, AGENTS_LOCAL) if _is_filled(path := folder_in(root) / name)]
    settings = project_file(cwd)
    if settings is not None and not (own.is_file() and settings.samefile(own)):
        found.insert(0, settings)
    found += claude_files(root, cwd) if with_claude else ()
    found += [file for folder in dict.fromkeys((root, here)) for file in excluded_instructions(folder / CLAUDE, folder)]
    return tuple(os.path.relpath(path, root) for path in dict.fromkeys(found))


def excluded_instructions(folder: Path, root: Path | None = None) -> Mapping[Path, tuple[str, ...]]:
    """The settings of Claude Code in its folder that leave instruction files out, with their globs.

    With `root` only files that don't lead out of it are read; without, they are the user's own, links and all.
    """
    found: dict[Path, tuple[str, ...]] = {}
    for name in CLAUDE_FILES:
        path = folder / name
        try:
            given = json.loads(text_below(path, root, most_bytes=MOST_BYTES) if root else read_file(path))
        except (OSError, ValueError, RecursionError):
            continue  # another program's: what can't be read there says nothing here
        globs = given.get("claudeMdExcludes") if isinstance(given, dict) else None
        if isinstance(globs, list) and (texts := tuple(glob for glob in globs if isinstance(glob, str))):
            found[path] = texts
    return found


def _is_filled(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


def _trusted_main(root: Path, known: Mapping[str, Any], listed: Iterable[str]) -> Path | None:
    """The trusted repository that a folder is a work tree of. Nothing outside is opened that isn't trusted already."""
    own = git_file_target(root)
    if own is None:
        return None
    mains = [one for one in own.parents[1:3] if _is_trusted(known.get(str(one))) or _is_listed(one, listed)]
    main = main_work_tree(root) if mains else None
    return main if main in mains else None


def _is_listed(root: Path, listed: Iterable[str]) -> bool:
    for one in listed:
        written = os.path.expanduser(one.removesuffix(_ALL_BELOW) or "/")
        if not os.path.isabs(written):  # what it means would be for the folder to say where somebody works
            continue
        folder = os.path.realpath(written)
        if str(root) == folder or (one.endswith(_ALL_BELOW) and is_below(str(root), folder)):
            return True
    return False


def _is_trusted(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("is_trusted") is True


def _answer_of(entry: Any) -> str:
    when = str(entry.get("since", ""))[:10]
    return f"you said {'yes' if _is_trusted(entry) else 'no'} on {when}"


def _texts(entry: Any, name: str) -> Mapping[str, str]:
    given = entry.get(name) if isinstance(entry, dict) else None
    return {str(file): str(one) for file, one in given.items()} if isinstance(given, dict) else {}


def _read(home: Path) -> dict[str, Any] | str:
    """The entries by root, or why there are none to be had."""
    path = home / KNOWN
    try:
        known = json.loads(read_file(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as e:
        return f"{path} can't be read ({e})"
    if not isinstance(known, dict) or not all(isinstance(entry, dict) for entry in known.values()):
        return f"{path} isn't what Perdure wrote"
    return known


def _read_answers(home: Path) -> dict[str, Any]:
    known = _read(home)
    if not isinstance(known, dict):
        raise BadSetting(f"{known}: mend the file or delete it; then nothing is trusted")
    return known


def _write(home: Path, known: Mapping[str, Any]) -> None:
    from perdure.adapters.journal.disk import DISK, make_private, write_new

    make_private(home)
    beside = home / f"{KNOWN}.{os.getpid()}.tmp"
    beside.unlink(missing_ok=True)
    try:
        write_new(DISK, beside, json.dumps(known, indent=1, sort_keys=True).encode() + b"\n")
        DISK.rename(beside, home / KNOWN)
    except OSError as e:  # names the draft, or nothing at all
        raise OSError(e.errno, f"{e.strerror}: the answer can't be kept", str(home / KNOWN)) from e
