"""Which repository a folder belongs to, and what stands in it, found by reading alone (SEC-8).

Git is never run for it: git does what the configuration of a folder says. A `.git` that is a file points elsewhere, and
whoever made the folder wrote it, so such a pointer counts only where the other side points back.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Final

from holdfast.memory.instructions.places import is_below

GIT: Final = ".git"
_LINK = "gitdir:"
_WORKTREES = "worktrees"
_SMALL_BYTES = 4_096  # of git's own little files
_BRANCH = re.compile(r"ref: refs/heads/([^\x00-\x20\x7f]{1,200})")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def git_root(cwd: Path) -> Path | None:
    """The nearest folder upwards that has a `.git`; None outside of a repository."""
    return next((folder for folder in (cwd, *cwd.parents) if (folder / GIT).exists()), None)


def ground_of(cwd: Path) -> Path:
    """The folder that is trusted or not, by its real path: the root of the repository around `cwd`, else `cwd` itself.

    A repository in the home directory, or above it, says nothing of the folders that happen to lie in it.
    """
    real = Path(os.path.realpath(cwd))
    root = git_root(real)
    return real if root is None or (root != real and is_no_project(str(root))) else root


def is_no_project(root: str) -> str:
    """CKP-2, SEC-8: why a folder isn't one project as a whole; empty when it may be."""
    home = os.path.realpath(Path.home())
    if root == os.path.dirname(root):
        return "the root of the disk is no project"
    if home == root or home.startswith(root.rstrip("/") + "/"):
        return "it is the home directory, or holds it"
    return ""


def main_of(folder: Path) -> Path | None:
    """The main folder of the repository that a folder is a work tree of; None for what only says that it is one.

    Both sides have to agree: the folder's `.git` names its entry below the repository's `worktrees`, and that entry,
    which only who may write to the repository can make, names this `.git`. Nothing else is opened there.
    """
    own = pointed_at(folder)
    if own is None or own.parent.name != _WORKTREES:
        return None
    back = _small(own / "gitdir")
    if back is None or os.path.realpath(own / back.strip()) != os.path.join(os.path.realpath(folder), GIT):
        return None
    common = own.parent.parent
    if common.name == GIT:
        return common.parent
    return None if (common / GIT).exists() else common  # else files that are checked out there would speak for it


def pointed_at(folder: Path) -> Path | None:
    """Where a `.git` that is a file points to, by its real path; None for one that is none, or a link."""
    text = _small(folder / GIT)
    if text is None or not text.startswith(_LINK) or "\0" in text:
        return None
    return Path(os.path.realpath(folder / text[len(_LINK) :].strip()))


def branch_of(cwd: Path) -> str:
    """What git's HEAD names around a folder: a branch, or `detached at` a commit; empty where neither can be read."""
    root = git_root(cwd)
    if root is None:
        return ""
    place = root / GIT
    if not place.is_dir():
        own = pointed_at(root)
        if own is None or main_of(root) is None:
            return ""
        place = own
    elif place.is_symlink():
        return ""
    head = (_small(place / "HEAD") or "").strip()
    if found := _BRANCH.fullmatch(head):
        return found[1]
    return f"detached at {head[:12]}" if _COMMIT.fullmatch(head) else ""


def text_below(path: Path, root: Path, *, most_bytes: int) -> str:
    """A file of a folder that others wrote. Raises `OSError` for one that leads out of it, is none, or is too large."""
    real = os.path.realpath(path, strict=True)
    if not is_below(real, os.path.realpath(root)):
        raise OSError(errno.ELOOP, "leads out of the folder", str(path))
    data = _bytes(real, most_bytes)
    if data is None:
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes", str(path))
    return data.decode("utf-8")


def _small(path: Path) -> str | None:
    """One of git's little files; None for anything that can't be one."""
    try:
        data = _bytes(str(path), _SMALL_BYTES)
        return None if data is None or len(data) > _SMALL_BYTES else data.decode("utf-8")
    except (OSError, ValueError):
        return None


def _bytes(path: str, most: int) -> bytes | None:
    """At most one byte more than so many, of a regular file that is no link; None for another kind."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read(most + 1)
    finally:
        os.close(fd)
