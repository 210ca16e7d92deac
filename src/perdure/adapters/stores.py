"""Everything that Perdure writes on a machine, in one table, which purge, gc, export, delete, copy and doctor walk.

A file that isn't named here may not be written: `tests/e2e/test_stores.py` watches the file system, and
`tests/house/test_writers.py` the code. What is written where a person said is in `ELSEWHERE`, and isn't searched.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from perdure.adapters.machine.clients import claude_folders, codex_folder
from perdure.adapters.machine.system import HAS_MODES, user_id

Where = Literal["home", "memory", "plugin", "draft", "log"]
"""Below what a file stands: a home, a folder of memories elsewhere, the plugin's data, a temporary folder of ours, or
nothing: a log that the settings name."""

Holds = Literal["journal", "blob", "copies", "memory", "text", "state", "receipt", "queue", "derived", "nothing", "own"]
"""How a text stands in it. `derived` is made again from other files, `nothing` holds nothing that was said, `own` is a
person's."""

DRAFTS: Final = "perdure-draft-"  # how temporary folders of ours begin
_SETUP: Final = "setup"
_DATA: Final = "plugins/data"
_PLUGIN: Final = "perdure-*"
# How a file is called until it has its name: with an ending of its own, or hidden.
_DRAFT: Final = re.compile(
    r"(?:^\.(?P<hidden>.+)\.(?:[0-9a-f]{8}|\d+)|(?P<name>.+?)(?:\.(?:new|draft)-(?:\d+-)?[0-9a-f]+|\.new|\.\d+\.tmp))$"
)
_BESIDE_DATABASE: Final = re.compile(r"(?<=\.db|ite)-(?:journal|wal|shm)$")


@dataclass(frozen=True, slots=True)
class StoreKind:
    """Files of one kind: where they stand, how they are called there, what they are and how a text stands in them.

    In `path`, `*` is a name and `**` a path. `is_copied`: `perdure store copy` copies it, or makes it anew.
    """

    where: Where
    path: str
    holds: Holds
    what: str
    is_copied: bool = False


STORES: Final = (
    StoreKind("home", "config.toml", "own", "settings"),
    StoreKind("home", "trusted.json", "text", "folders that are trusted"),
    StoreKind("home", "approved.json", "text", "instruction files that were approved"),
    StoreKind("home", "secret-ids.key", "nothing", "key of the ids of secrets", is_copied=True),
    StoreKind("home", "calibration.*", "nothing", "how models count", is_copied=True),
    StoreKind("home", "index.db", "derived", "index for search", is_copied=True),
    StoreKind("home", "links.sqlite", "nothing", "hashes of histories", is_copied=True),
    StoreKind("home", "work.db", "queue", "background work", is_copied=True),
    StoreKind("home", "memory-index/*", "derived", "index of memories", is_copied=True),
    StoreKind("home", "blobs/*", "blob", "stored result", is_copied=True),
    StoreKind("home", "conversations/*.json", "text", "conversation of the gateway", is_copied=True),
    StoreKind("home", "deleted-responses", "text", "ids of deleted responses", is_copied=True),
    StoreKind("home", "usage.json", "nothing", "quotas of the gateway", is_copied=True),
    StoreKind("home", "spending/*.jsonl", "text", "spending"),
    StoreKind("home", "session-memory/config/*.md", "text", "template of the notes", is_copied=True),
    StoreKind("home", "gateway/secret", "nothing", "key of the gateway", is_copied=True),
    StoreKind("home", "gateway/lock", "nothing", "lock of the gateway", is_copied=True),
    StoreKind("home", "gateway/page.key", "nothing", "key of the page of the gateway", is_copied=True),
    StoreKind("home", "transcripts/**", "text", "transcript of the Agent SDK"),
    StoreKind("home", f"{_SETUP}/*.json", "receipt", "receipt of a set-up"),
    StoreKind("home", f"{_SETUP}/plugin/**", "nothing", "plugin"),
    StoreKind("home", "try-*/**", "text", "trial of a hook"),
    StoreKind("home", ".probe-*", "nothing", "trial of the disk"),
    StoreKind("home", "gateway/.probe-*", "nothing", "trial of the disk"),
    StoreKind("home", "{memory}**", "memory", "memory", is_copied=True),
    StoreKind("home", "projects/*/project", "text", "path of a project", is_copied=True),
    StoreKind("home", "projects/*/history", "text", "typed history", is_copied=True),
    StoreKind("home", "{session}journal.jsonl", "journal", "journal", is_copied=True),
    StoreKind("home", "{session}journal.jsonl.*", "text", "damage set aside", is_copied=True),
    StoreKind("home", "{session}journal.mark", "derived", "mark of a journal", is_copied=True),
    StoreKind("home", "{session}lock", "nothing", "lock", is_copied=True),
    StoreKind("home", "{session}blobs/*", "blob", "stored result", is_copied=True),
    StoreKind("home", "{session}session-memory/**", "text", "notes", is_copied=True),
    StoreKind("home", "{session}plan.md", "text", "plan", is_copied=True),
    StoreKind("home", "{session}hooks.sh", "text", "variables that hooks set", is_copied=True),
    StoreKind("home", "{session}commands/*", "text", "output of a command", is_copied=True),
    StoreKind("home", "{session}checkpoints/objects*/**", "copies", "copies of files", is_copied=True),
    StoreKind("home", "{session}checkpoints/index.msgpack", "derived", "index of copies", is_copied=True),
    StoreKind("home", "{session}checkpoints/*", "text", "checkpoints of files", is_copied=True),
    StoreKind("memory", "**", "memory", "memory"),
    StoreKind("plugin", "sessions/*/state", "state", "state of the plugin"),
    StoreKind("plugin", "sessions/*/ending", "text", "session whose memories are to be saved"),
    StoreKind("plugin", "sessions/*/.lock", "nothing", "lock"),
    StoreKind("plugin", "errors.log", "nothing", "errors of hooks, without what was said"),
    StoreKind("plugin", "errors.log.old", "nothing", "errors of hooks, without what was said"),
    StoreKind("draft", "checkpoints/objects*/**", "copies", "copies of files"),
    StoreKind("draft", "checkpoints/index.msgpack", "derived", "index of copies"),
    StoreKind("draft", "**", "text", "draft in a temporary folder"),
    StoreKind("log", "", "text", "log of events or requests"),
)
UNUSED: Final[tuple[tuple[Where, str, int, str], ...]] = (
    ("home", "memory-index/*.msgpack", 30, "an index of memories that nobody asked for any more"),
    ("home", "plugin/sessions/*", 30, "the state of a client's session that didn't go on"),
    ("plugin", "sessions/*", 30, "the state of a client's session that didn't go on"),
    ("draft", "", 30, "a temporary folder that was left behind"),
)
"""What `perdure gc` removes when it wasn't written for so many days: where, which files or folders, what they are."""
ELSEWHERE: Final = (
    "what you exported: reports, records and exports, wherever you had them written",
    "your own files, projects and git histories, with what an agent wrote there",
    "your clients' own logs and configurations, from which the plugin may read a text again",
    "encodings that others made of it (base64, hex, URLs), pictures, and what a model said of it in other words",
)
_PARTS: Final = {
    "{memory}": r"(?:projects/[^/]+/)?(?:\.perdure/)?(?:memory|agent-memory|agent-memory-local)/",
    "{session}": r"projects/[^/]+/[^/]+/(?:agents/[^/]+/)?",
    "**": r".+",
    "*": r"[^/]*",
}
_TENANT: Final = re.compile(r"gateway/tenants/[^/]+/")


@dataclass(frozen=True, slots=True)
class StoreRoot:
    """A folder below which Perdure writes, or a single file; `within` is where it stands in a home, behind a link."""

    where: Where
    path: Path
    within: str = ""

    def kind_of(self, path: Path) -> StoreKind | None:
        """Return the kind of a file below this root; None for one that isn't on the list."""
        name = self.within + path.relative_to(self.path).as_posix()
        if self.where != "home":
            return _kind(self.where, "" if name == "." else name)
        name = _TENANT.sub("", name, count=1)
        is_plugins = name.startswith("plugin/")
        return _kind("plugin" if is_plugins else "home", name.removeprefix("plugin/") if is_plugins else name)


def _kind(where: Where, name: str) -> StoreKind | None:
    """Return the kind of a name, or of the file that a draft of this name is going to be."""
    name = _BESIDE_DATABASE.sub("", name)
    found = next((kind for pattern, kind in _patterns(where) if pattern.fullmatch(name)), None)
    folder, slash, last = name.rpartition("/")
    if found is None and (draft := _DRAFT.match(last)) is not None:
        return _kind(where, f"{folder}{slash}{draft['hidden'] or draft['name']}")
    return found


@cache
def _patterns(where: Where) -> tuple[tuple[re.Pattern[str], StoreKind], ...]:
    parts = re.compile("(" + "|".join(map(re.escape, _PARTS)) + ")")
    return tuple(
        (re.compile("".join(_PARTS.get(part) or re.escape(part) for part in parts.split(kind.path))), kind)
        for kind in STORES
        if kind.where == where
    )


def roots_beside(home: Path, environ: Mapping[str, str], logs: Iterable[str] = ()) -> tuple[StoreRoot, ...]:
    """Return where Perdure writes beside a home: for the clients' plugin, into temporary folders, and into logs.

    Args:
        home: The home; its receipts say which clients were set up.
        environ: The environment, which says where the clients keep their own.
        logs: Files that the settings name.
    """
    plugins = [one for client in _client_folders(home, environ) for one in sorted((client / _DATA).glob(_PLUGIN))]
    given = environ.get("CLAUDE_PLUGIN_DATA") or environ.get("PLUGIN_DATA")
    if given and os.path.isabs(given):
        plugins.append(Path(given))
    plugins = [one for one in dict.fromkeys(plugins) if one.is_dir() and not one.is_relative_to(home)]
    drafts = [one for one in sorted(Path(tempfile.gettempdir()).glob(f"{DRAFTS}*")) if _is_own_folder(one)]
    files = [one for one in (Path(log).expanduser().absolute() for log in logs) if one.is_file()]
    return (
        *(StoreRoot("plugin", one) for one in plugins),
        *(StoreRoot("draft", one) for one in drafts),
        *(StoreRoot("log", one) for one in dict.fromkeys(files)),
    )


def logs_of(events: Iterable[str], access_log: object = None) -> list[str]:
    """Return the files that the settings have events and requests written to."""
    named = [one.partition(":")[2] for one in events if one.startswith("jsonl:")]
    return [*named, *([access_log] if isinstance(access_log, str) and access_log != "-" else [])]


def files_below(root: StoreRoot) -> Iterator[Path]:
    """Yield every file below a root, by folder; no link is followed."""
    if root.path.is_file():
        yield root.path
    for at, folders, names in os.walk(root.path):
        folders.sort()
        yield from (Path(at, name) for name in sorted(names))


class _ReceiptFile(msgspec.Struct):
    """The file of a client that a receipt is about."""

    file: str


def _client_folders(home: Path, environ: Mapping[str, str]) -> list[Path]:
    found = [*claude_folders(environ), codex_folder(environ)]
    for receipt in sorted((home / _SETUP).glob("*.json")):
        try:
            found.append(Path(msgspec.json.decode(receipt.read_bytes(), type=_ReceiptFile).file).parent)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue  # `perdure doctor` says so
    return list(dict.fromkeys(found))


def _is_own_folder(path: Path) -> bool:
    """Whether a folder among everybody's temporary ones is this user's, and no link."""
    return path.is_dir() and not path.is_symlink() and (not HAS_MODES or path.lstat().st_uid == user_id())
