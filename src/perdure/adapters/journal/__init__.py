"""Sessions in files, which are the truth at home: journal, blobs, lock, and where they stand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.adapters.journal.append_file import LockHolder as LockHolder
    from perdure.adapters.journal.append_file import SessionLock as SessionLock
    from perdure.adapters.journal.append_file import read_holder as read_holder
    from perdure.adapters.journal.blobs import BlobProblem as BlobProblem
    from perdure.adapters.journal.blobs import FileBlobs as FileBlobs
    from perdure.adapters.journal.blobs import blob_problems as blob_problems
    from perdure.adapters.journal.blobs import originals as originals
    from perdure.adapters.journal.disk import DISK as DISK
    from perdure.adapters.journal.disk import Disk as Disk
    from perdure.adapters.journal.home import FileHome as FileHome
    from perdure.adapters.journal.home import FileStore as FileStore
    from perdure.adapters.journal.journal import FileJournal as FileJournal
    from perdure.adapters.journal.reading import verify as verify
    from perdure.adapters.journal.reading import verify_and_scan as verify_and_scan
    from perdure.adapters.journal.store import ListedSession as ListedSession
    from perdure.adapters.journal.store import SessionFiles as SessionFiles
    from perdure.adapters.journal.store import SessionStore as SessionStore
    from perdure.adapters.journal.store import fork as fork
    from perdure.adapters.journal.store import short_ids as short_ids

JOURNAL = "journal.jsonl"  # what a session's folder is known by
# name -> where it is defined; a journal in memory needs none of it (LIB-6)
_NAMES = {
    "BlobProblem": "blobs",
    "DISK": "disk",
    "Disk": "disk",
    "FileBlobs": "blobs",
    "FileHome": "home",
    "FileJournal": "journal",
    "FileStore": "home",
    "LockHolder": "append_file",
    "SessionFiles": "store",
    "ListedSession": "store",
    "SessionLock": "append_file",
    "SessionStore": "store",
    "blob_problems": "blobs",
    "fork": "store",
    "originals": "blobs",
    "read_holder": "append_file",
    "short_ids": "store",
    "verify": "reading",
    "verify_and_scan": "reading",
}
__all__ = sorted(("JOURNAL", *_NAMES))  # noqa: PLE0605 - the table above is the one list of names


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'perdure.adapters.journal' has no attribute {name!r}")
    value = getattr(import_module(f"perdure.adapters.journal.{_NAMES[name]}"), name)
    globals()[name] = value
    return value
