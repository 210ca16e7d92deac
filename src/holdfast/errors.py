"""Errors that Holdfast raises, as one tree.

    HoldfastError                    everything below; catch this at a door
    +-- MalformedBlock               a known block type with a wrong or missing field (ENG-1)
    +-- JournalError                 the journal can't be read or written
    |   +-- NewerFormat              written by a newer Holdfast; refused by name (ENG-3)
    |   +-- DamagedLine              a line whose checksum or syntax is wrong (ENG-3)
    |   +-- SessionBusy              another writer holds the session (ENG-4)
    |   +-- SessionNotFound          no session, or more than one, has this id or path
    |   +-- JournalLost              what was acknowledged is no longer on disk (REL-9)
    +-- ForeignFormat                a file that no reader understands (ENG-6)
    +-- ContextBlocked               over the block threshold with nothing left to reduce (TURN-13)
    +-- CompactionRefused            compaction is switched off, or already runs (PRS-4, PRS-5)
    +-- BadSetting                   a setting or flag with an unusable value (CLI-5)

Every message is one line: what, where, what to do (CLI-5).
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of every error raised on purpose by Holdfast."""


class MalformedBlock(HoldfastError):
    """A block of a known type that doesn't have that type's shape. `field` names the place inside the block."""

    def __init__(self, kind: str, detail: str) -> None:
        self.kind = kind
        self.detail = detail
        super().__init__(f"malformed {kind} block: {detail}")


class JournalError(HoldfastError):
    """The journal can't be read or written as asked."""


class NewerFormat(JournalError):
    """The journal's format version is newer than this program reads."""


class DamagedLine(JournalError):
    """One line is damaged; `reason` says how."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class SessionBusy(JournalError):
    """Another process writes this session."""


class SessionNotFound(JournalError):
    """No session, or more than one, is meant by an id or a path."""


class JournalLost(JournalError):
    """Acknowledged records are no longer on disk (unlinked, truncated or replaced under us)."""


class ForeignFormat(HoldfastError):
    """No reader understands the file."""


class ContextBlocked(HoldfastError):
    """The view is above the block threshold and nothing is left to reduce; the message names sizes and commands."""


class CompactionRefused(HoldfastError):
    """Compaction was asked for but is off, running, or out of attempts."""


class BadSetting(HoldfastError):
    """A setting has a value that can't be used; the message names the setting and its source."""
