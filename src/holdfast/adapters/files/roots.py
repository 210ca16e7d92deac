"""The root of a project: that of its git repository, the same for all its worktrees (MEM-1)."""

from __future__ import annotations

from pathlib import Path

from holdfast.adapters.files.store import slug_of
from holdfast.adapters.folders import git_root, main_of
from holdfast.memory.directory import Grounds


def project_root(cwd: Path) -> Path:
    """The main folder of the repository that holds `cwd`, the same from every work tree; `cwd` outside of one.

    A folder that only says it is a work tree doesn't take on another project's memory.
    """
    real = Path(cwd).resolve()
    root = git_root(real)
    return real if root is None else main_of(root) or root


def grounds_of(home: Path, cwd: Path, *, directory: str | None = None) -> Grounds:
    """What the places of memories follow from, for work in a folder."""
    root = project_root(cwd)
    return Grounds(
        home=home.absolute().as_posix(),
        slug=slug_of(root),
        root=root.as_posix(),
        user_home=Path.home().as_posix(),
        directory=directory,
    )
