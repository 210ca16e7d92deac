"""Sessions in files, which are the truth at home: journal, blobs, lock, and where they stand."""

from perdure.adapters.journal.blobs import FileBlobs
from perdure.adapters.journal.disk import DISK, Disk
from perdure.adapters.journal.journal import Durability, FileJournal
from perdure.adapters.journal.lock import LockHolder, SessionLock, read_holder
from perdure.adapters.journal.reading import verify, verify_and_scan
from perdure.adapters.journal.repair import BlobProblem, blob_problems, originals
from perdure.adapters.journal.store import SessionFiles, SessionInfo, SessionStore, fork, short_ids, slug_of

__all__ = [
    "DISK",
    "BlobProblem",
    "Disk",
    "Durability",
    "FileBlobs",
    "FileJournal",
    "LockHolder",
    "SessionFiles",
    "SessionInfo",
    "SessionLock",
    "SessionStore",
    "blob_problems",
    "fork",
    "originals",
    "read_holder",
    "short_ids",
    "slug_of",
    "verify",
    "verify_and_scan",
]
