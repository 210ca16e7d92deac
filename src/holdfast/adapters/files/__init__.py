"""Sessions in files, which are the truth at home: journal, blobs, lock, and where they stand."""

from holdfast.adapters.files.blobs import FileBlobs
from holdfast.adapters.files.checking import BlobTrouble, blob_troubles, originals
from holdfast.adapters.files.disk import DISK, Disk
from holdfast.adapters.files.forking import fork
from holdfast.adapters.files.journal import Durability, FileJournal
from holdfast.adapters.files.listing import SessionInfo
from holdfast.adapters.files.lock import Holder, SessionLock, read_holder
from holdfast.adapters.files.reading import examined, verify
from holdfast.adapters.files.store import SessionFiles, SessionStore, slug_of

__all__ = [
    "DISK",
    "BlobTrouble",
    "Disk",
    "Durability",
    "FileBlobs",
    "FileJournal",
    "Holder",
    "SessionFiles",
    "SessionInfo",
    "SessionLock",
    "SessionStore",
    "blob_troubles",
    "examined",
    "fork",
    "originals",
    "read_holder",
    "slug_of",
    "verify",
]
