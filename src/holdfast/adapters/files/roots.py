"""The root of a project: that of its git repository, the same for all its worktrees (MEM-1)."""

from __future__ import annotations

from pathlib import Path

from holdfast.adapters.files.store import slug_of
from holdfast.memory.directory import Grounds

_GIT = ".git"
_LINK = "gitdir:"


def project_root(cwd: Path) -> Path:
    """The main folder of the repository that holds `cwd`, the same from every worktree; `cwd` outside of one."""
    real = Path(cwd).resolve()
    for folder in (real, *real.parents):
        mark = folder / _GIT
        if mark.is_dir():
            return folder
        if mark.is_file():
            return _main_folder(mark) or folder
    return real


def _main_folder(link: Path) -> Path | None:
    """Where the repository of a worktree stands; None for a submodule, or a link that leads nowhere."""
    try:
        text = link.read_text(encoding="utf-8").strip()
        if not text.startswith(_LINK):
            return None
        own = (link.parent / text[len(_LINK) :].strip()).resolve()
        common = (own / (own / "commondir").read_text(encoding="utf-8").strip()).resolve()
        is_ours = (own / "gitdir").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if Path(is_ours).resolve() != link.resolve():  # a link alone must not take on another project's memory
        return None
    return common.parent if common.name == _GIT else common


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
