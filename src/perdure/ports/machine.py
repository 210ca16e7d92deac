"""The machine that an agent's tools work on: files, searches, commands, and checkpoints of files (CKP-1 to CKP-7)."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from perdure.memory.checkpoints import MissedChange
    from perdure.transcript.messages import MessageId


PermissionSource = Literal["looks", "allowed", "approved"]


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """What a path leads to: its real path, all links followed, and what stands there.

    `is_inside`: the real path is in the project's folder. `size_bytes` is 0 for what is no file.
    """

    path: str
    kind: Literal["file", "folder", "other", "nothing"]
    is_inside: bool
    size_bytes: int = 0


class Workspace(Protocol):
    """The files that an agent's tools work on. Failures are `OSError`, with the path.

    `look` resolves a path (relative ones from `cwd`, which defaults to the project's `root`). `read` and `write` take
    real paths, as `look` gives them, and follow no link any more; `write` replaces a file in one step, keeps its mode,
    and makes missing folders.
    """

    root: str

    async def resolve(self, path: str, *, cwd: str | None = None) -> ResolvedPath: ...

    async def read(self, path: str, *, limit_bytes: int) -> bytes: ...

    async def write(self, path: str, data: bytes) -> None: ...

    async def leads(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Where absolute paths really lead, wildcards filled in; those that lead nowhere are left out."""
        ...

    async def below(self, folders: Sequence[str], *, limit: int) -> tuple[tuple[str, ...], bool]:
        """The files below folders, as real paths, those nearest to them first; and whether these are all."""
        ...

    async def git_doubt(self, folders: Sequence[str]) -> str:
        """Why git may run a program of a repository's choice in one of these folders; empty when it can't."""
        ...


@dataclass(frozen=True, slots=True)
class FileMatches:
    """Files that a search found, newest first, as real paths; `is_cut` when there are more, `note` what to know."""

    paths: tuple[str, ...]
    is_cut: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSearch:
    """A search for a pattern in the files under a path."""

    pattern: str
    path: str
    glob: str | None = None
    ignores_case: bool = False
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """A line that was found (`is_match`), or one around it; `number` from 1."""

    path: str
    number: int
    text: str
    is_match: bool = True


@dataclass(frozen=True, slots=True)
class TextMatches:
    """What a search for a pattern found, files in the order of their names."""

    lines: tuple[MatchedLine, ...]
    is_cut: bool = False
    note: str = ""


class Finder(Protocol):
    """Finds files by name and by content, under a real path. Ignored files of a git repository are left out.

    Patterns come from a model: none may take long on any text (SEC-6). One that isn't understood is looked for as it is
    written, and `note` says so.
    """

    async def files(self, pattern: str, path: str, *, limit: int) -> FileMatches: ...

    async def lines(self, wanted: TextSearch, *, limit: int) -> TextMatches: ...


@dataclass(frozen=True, slots=True)
class CommandExit:
    """A command ended: its exit code (None: nobody knows, or it was stopped), and the folder it ended in."""

    code: int | None
    cwd: str | None = None


class RunningCommand(Protocol):
    """A command that was started. Its output goes to the file `output`, also when this process dies.

    `wait` returns when it ended; cancelling that leaves it running. `stop` ends it with everything it started, and
    returns once it is gone.
    """

    output: str

    async def wait(self) -> CommandExit: ...

    async def stop(self) -> None: ...

    def size_bytes(self) -> int: ...


class Shell(Protocol):
    """Runs commands of the agent.

    `start` begins one in a folder, under a name that is unique in the session; cancelled, it ends only once the command
    is known, so none is lost. `let` says who let it run: nobody had to, since it only looks; rules or a mode; or a
    person who was asked. What nobody was asked about runs in surroundings in which a repository's own configuration
    can't make it run more (SEC-9), and in the sandbox, if there is one (SEC-10): `notice` says then what it can't do
    there, and is empty without one; `hidden` are more files that it may not read. A command ends with this process,
    unless it `outlives` it. `find` gives one that an earlier process started, None when nothing is known of it.
    `read` gives a part of an output as it was written; a negative offset counts from the end.
    """

    @property
    def notice(self) -> str: ...

    async def start(
        self,
        name: str,
        command: str,
        *,
        cwd: str,
        let: PermissionSource = "approved",
        hidden: Sequence[str] = (),
        outlives: bool = False,
    ) -> RunningCommand: ...

    async def find(self, name: str) -> RunningCommand | None: ...

    async def read(self, output: str, *, offset: int, limit_bytes: int) -> bytes: ...

    async def discard(self, output: str) -> None: ...


CHECKPOINTS = "checkpoints"  # the name under which failures of them are noted


@dataclass(frozen=True, slots=True)
class FileCall:
    """A call of a tool that may change files. `looks`: at the whole tree, since nobody says what it changes."""

    tool: str
    prompt: MessageId
    looks: bool
    is_background: bool = False


@dataclass(frozen=True, slots=True)
class FileStep:
    """What a rewind does with a path; lines are of texts. `conflict`: why only force does it; `left`: why nothing."""

    path: str
    action: Literal["write", "create", "delete", "link", "folder", "keep"]
    added: int = 0
    removed: int = 0
    is_binary: bool = False
    conflict: str = ""
    left: str = ""


@dataclass(frozen=True, slots=True)
class FileRewind:
    """What a rewind of files does, or did (`is_done`). `to` is the prompt before which the files stand then.

    `number` is its place in the log. `note` is what to know beside it. `missed` is what was done meanwhile to things
    that aren't kept: it stays as it is (CKP-7).
    """

    steps: tuple[FileStep, ...]
    is_done: bool = False
    number: int = 0
    to: str = ""
    note: str = ""
    missed: tuple[MissedChange, ...] = ()

    @property
    def conflicts(self) -> tuple[FileStep, ...]:
        """Steps that wait for force."""
        return tuple(step for step in self.steps if step.conflict)

    @property
    def changes(self) -> tuple[FileStep, ...]:
        """Steps that change a file."""
        return tuple(step for step in self.steps if step.action != "keep")


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A path that isn't as it was when the session began, with its bytes then and now (None: there was no such file).

    `note` says what the bytes don't: that they aren't kept or too large, that it is a folder or a link, that somebody
    else changed it, too.
    """

    path: str
    before: bytes | None
    after: bytes | None
    note: str = ""


class Checkpoints(Protocol):
    """Sees every call that may change files, in the order begin, save, end; calls of sub-agents may overlap.

    `begin` compares the tree, so that what somebody else did in between isn't taken for the agent's; `save` keeps what
    one of our tools is about to change (real paths), durably; `end` writes down what the call changed.
    """

    async def begin(self, call: FileCall) -> None: ...

    async def save(self, paths: tuple[str, ...], call: FileCall) -> None: ...

    async def end(self, call: FileCall) -> None: ...


class FileRewinder(Protocol):
    """Goes back. All of a rewind is done, or none of it, also when the process is killed (CKP-3).

    `rewind` puts the files back to before the first of these prompts (a message and all after it); `undo` takes back
    the last rewind. Not `is_forced`, a conflict raises `RewindRefused` with the names, and nothing is done. `is_dry`
    only says what would be. `differences` are the paths that the agent changed since the session began.
    """

    async def differences(self) -> tuple[FileDifference, ...]: ...

    async def rewind(
        self, prompts: AbstractSet[str], *, is_forced: bool = False, is_dry: bool = False
    ) -> FileRewind: ...

    async def undo(self, *, is_forced: bool = False, is_dry: bool = False) -> FileRewind: ...
