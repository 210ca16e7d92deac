"""Errors that Perdure raises, as one tree.

    PerdureError                    everything below; catch this at a door
    +-- MalformedBlock               a known block type with a wrong or missing field (ENG-1)
    |   +-- OverLimit                a message too large, too deep, or of too many blocks (SEC-6)
    +-- RecordRefused                what is given can't become a valid request, or couldn't be read back (ENG-7)
    +-- JournalError                 the journal can't be read or written
    |   +-- NewerFormat              written by a newer Perdure; refused by name (ENG-3)
    |   +-- DamagedLine              a line whose checksum or syntax is wrong (ENG-3)
    |   +-- SessionBusy              another writer holds the session (ENG-4)
    |   +-- SessionNotFound          no session, or more than one, has this id or path
    |   +-- JournalLost              what was acknowledged is no longer on disk (REL-9)
    |   +-- SessionClosed            the session was closed: open it again
    |   +-- ClaimLost                another worker has taken the work meanwhile (SCL-2)
    +-- ForeignFormat                a file that no reader understands (ENG-6)
    +-- ContextBlocked               over the block threshold with nothing left to reduce (TURN-13)
    +-- CompactionRefused            compaction is switched off, or already runs (PRS-4, PRS-5)
    +-- RewindRefused                files aren't rewound; nothing was changed (CKP-3)
    +-- PinRefused                   a pin that is empty, or beyond the budget of pins (RST-8)
    +-- SessionInUse                 another task of this program is using the session just now
    +-- NotAwaited                   an `await` is missing
    +-- WrongLoop                    a blocking call where it would block an event loop, or mixed faces (LIB-5)
    +-- BadSetting                   a setting or flag with an unusable value (CLI-5)
    +-- FileRefused                  a file of memory, notes or checkpoints may not or can't be used (SEC-2)
    |   +-- NameRefused              its name leaves the folder, or has more than one reading
    |   +-- NotPlain                 it is no regular file with one name: a link, a pipe, a folder
    |   +-- FileMissing              it isn't there
    |   +-- NameTaken                another one is there already
    |   +-- FileTooLarge             it has more bytes than may be read
    |   +-- FolderBusy               another process holds the folder's lock
    |   +-- MemoryChanged            a memory says something else than what was read (MEM-9)
    |   +-- MemoryRefused            a change of the memory that isn't made, and why (MEM-8, MEM-10)
    +-- ModelError                   a model could not be asked, or didn't answer (TURN-11)
        +-- Overloaded               try again later; the server may say when
        |   +-- RateLimited          we asked too much; likewise
        +-- ModelDown                the server failed or can't be reached
        +-- StreamCut                the answer broke off
        +-- AnswerEndless            the answer had no end
        +-- PromptTooLong            the request doesn't fit the window; numbers where the provider states them
        |   +-- PromptTruncated      the server said nothing and left out the beginning
        +-- OutputTooLong            the answer asked for may not be that long; `maximum` is what may
        +-- BodyTooLarge             the request has too many bytes
        +-- MediaRefused             an image or document isn't taken; `path` names it
        +-- ThinkingRefused          a thinking block isn't taken back; `path` names it
        +-- BadRequest               anything else that the server won't answer
        +-- KeyRefused               no key, a wrong one, or no credit
        +-- ModelUnknown             the server has no such model
        +-- ModelGaveUp              the ladder's end: what was tried, and the last error

Every message is one line: what, where, what to do (CLI-5).
"""

from __future__ import annotations

from collections.abc import Iterable


class PerdureError(Exception):
    """Base of every error that is raised on purpose. Each message is one line: what, where, what to do.

    Example:
        try:
            await session.append({"role": "user"})
        except PerdureError as e:
            assert "no content" in str(e)
    """


class MalformedBlock(PerdureError):
    """A block of a known type that doesn't have that type's shape. `field` names the place inside the block."""

    def __init__(self, kind: str, detail: str) -> None:
        self.kind = kind
        self.detail = detail
        super().__init__(f"malformed {kind} block: {detail}")


class OverLimit(MalformedBlock):
    """A message that is larger, nested deeper, or of more blocks than may come in (SEC-6)."""

    def __init__(self, detail: str) -> None:
        super().__init__("content", detail)
        self.args = (detail,)


class RecordRefused(PerdureError):
    """What was given can't become a valid request, or couldn't be read back; nothing was written."""


class JournalError(PerdureError):
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


class SessionClosed(JournalError):
    """The session was closed; open it again to go on."""


class ClaimLost(JournalError):
    """Another worker has taken the work meanwhile, or it was done: nothing of this one is committed."""


class ForeignFormat(PerdureError):
    """No reader understands the file."""


class ContextBlocked(PerdureError):
    """The view is above the block threshold and nothing is left to reduce; the message names sizes and commands."""


class CompactionRefused(PerdureError):
    """Compaction was asked for but is off, running, or out of attempts."""


class SessionInUse(PerdureError):
    """Another task of this program is using the session; one at a time may."""


class NotAwaited(PerdureError, AttributeError):
    """Something is used that was not awaited; the message says what to write."""


class WrongLoop(PerdureError):
    """A blocking call in a thread that runs an event loop, which it would stop; or a session of the other face."""


class BadSetting(PerdureError):
    """A setting has a value that can't be used; the message names the setting and its source."""


class FileRefused(PerdureError):
    """A file below a root may not, or can't, be used; the message names it relative to the root (SEC-2)."""


class NameRefused(FileRefused):
    """A name that leaves the root, or that some system, decoder or eye takes for another."""


class NotPlain(FileRefused):
    """Not a regular file with exactly one name: a link, a pipe, a device, a folder, or on the way to one."""


class FileMissing(FileRefused):
    """There is no such file."""


class NameTaken(FileRefused):
    """There is such a file already."""


class FileTooLarge(FileRefused):
    """The file has more bytes than the limit."""


class FolderBusy(FileRefused):
    """Another process holds the lock of the folder, for longer than we wait."""


class MemoryChanged(FileRefused):
    """A memory says something else by now than what the change started from: read it again."""


class MemoryRefused(FileRefused):
    """A change of the memory isn't made. `rule` is what it breaks: a rule's name, never a value."""

    def __init__(self, why: str, *, rule: str = "") -> None:
        self.rule = rule
        super().__init__(why)


class ModelError(PerdureError):
    """A model could not be asked, or didn't answer. `reason` is its word in events; `detail` is the provider's text."""

    reason = "failed"

    def __init__(self, detail: str = "", *, status: int | None = None) -> None:
        self.detail = " ".join(detail.split())[:500]
        self.status = status
        shown = f"{self.reason} (HTTP {status})" if status else self.reason
        super().__init__(f"the model call failed: {shown}{': ' if self.detail else ''}{self.detail}")


class Overloaded(ModelError):
    """The server has too much to do. `retry_after_seconds`: when to come back, if it said so."""

    reason = "overloaded"

    def __init__(
        self, detail: str = "", *, status: int | None = None, retry_after_seconds: float | None = None
    ) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail, status=status)


class RateLimited(Overloaded):
    """We asked more than the account may."""

    reason = "rate_limited"


class ModelDown(ModelError):
    """The server failed, timed out, or can't be reached."""

    reason = "down"


class StreamCut(ModelError):
    """The answer broke off before its end."""

    reason = "stream_cut"


class AnswerEndless(ModelError):
    """The answer went on far beyond any length that was asked for, so it was broken off."""

    reason = "endless"


class PromptTooLong(ModelError):
    """The request doesn't fit. `tokens` of the prompt and the `maximum` are what the provider stated, if it did.

    `output_tokens` is what was reserved for the answer, when the provider counts it in.
    """

    reason = "prompt_too_long"

    def __init__(
        self,
        detail: str = "",
        *,
        status: int | None = None,
        tokens: int | None = None,
        maximum: int | None = None,
        output_tokens: int = 0,
    ) -> None:
        self.tokens, self.maximum, self.output_tokens = tokens, maximum, output_tokens
        super().__init__(detail, status=status)

    @property
    def gap_tokens(self) -> int | None:
        """How many tokens too many, where both numbers are known."""
        if self.tokens is None or self.maximum is None:
            return None
        return self.tokens + self.output_tokens - self.maximum


class PromptTruncated(PromptTooLong):
    """The server answered, but to the end of the prompt only: it reported far fewer tokens than were sent."""

    reason = "prompt_truncated"


class OutputTooLong(ModelError):
    """The model never answers as long as we asked it to; `maximum` tokens are what it may."""

    reason = "output_too_long"

    def __init__(self, detail: str = "", *, maximum: int, status: int | None = None) -> None:
        self.maximum = maximum
        super().__init__(detail, status=status)


class BodyTooLarge(ModelError):
    """The request has more bytes than the server takes."""

    reason = "body_too_large"


class _PartRefused(ModelError):
    """Something at `path` (as in `messages.3.content.0`) isn't taken; None when the provider didn't say where."""

    def __init__(self, detail: str = "", *, status: int | None = None, path: str | None = None) -> None:
        self.path = path
        super().__init__(detail, status=status)


class MediaRefused(_PartRefused):
    """An image or document is too large, damaged, of a wrong type, one too many, or not understood at all."""

    reason = "media_refused"


class ThinkingRefused(_PartRefused):
    """A thinking block doesn't hold where it stands, or one is missing that the provider wants back."""

    reason = "thinking_refused"


class BadRequest(ModelError):
    """The server won't answer this request, now or later."""

    reason = "bad_request"


class KeyRefused(ModelError):
    """No key, a wrong one, or no credit left."""

    reason = "key_refused"


class ModelUnknown(ModelError):
    """The server has no such model or address."""

    reason = "model_unknown"


class ModelGaveUp(ModelError):
    """Nothing helped. `tried` are the steps in their order; `last` is the error that ended it."""

    reason = "gave_up"

    def __init__(self, last: ModelError, tried: tuple[str, ...] = (), *, advice: str = "") -> None:
        self.last, self.tried, self.advice = last, tried, advice
        steps = f"tried: {', '.join(tried)}" if tried else "nothing else could be tried"
        detail = f"{last.reason}: {last.detail}".rstrip(": ")
        super().__init__(f"{detail}; {steps}{'; ' if advice else ''}{advice}", status=last.status)


class SpendingCapReached(ModelError):
    """A call that isn't made, since it would cost more than the user allows (OBS-2)."""

    reason = "spending_cap"

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.args = (why,)  # no call failed: none was made


class RewindRefused(PerdureError):
    """A rewind that isn't done, and why; the files are as they were. `paths` are those that stand in its way."""

    def __init__(self, why: str, *, paths: tuple[str, ...] = ()) -> None:
        self.paths = paths
        super().__init__(why)


class PinRefused(PerdureError):
    """A pin that can't be kept: empty, or beyond the budget; the message has the sizes."""


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`: did you mean …?`, for the end of a message; nothing when no name is near."""
    import difflib  # few programs make such mistakes (LIB-6)

    found = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f": did you mean {found[0]}?" if found else ""
