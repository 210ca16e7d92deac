"""Which repository a folder belongs to, found by reading alone, and whether git may be asked there (SEC-8,
SEC-9, MEM-1).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from perdure.adapters.former import folder_in
from perdure.adapters.journal.projects import ProjectFolders
from perdure.adapters.machine.system import AT_ONCE, CLOSE_ON_EXEC, open_itself
from perdure.memory.instructions import is_below
from perdure.memory.places import MEMORY, MemoryRoots

GIT: Final = ".git"
_LINK = "gitdir:"
_WORKTREES = "worktrees"
_SMALL_BYTES = 4_096  # of git's own little files
_BRANCH = re.compile(r"ref: refs/heads/([^\x00-\x20\x7f]{1,200})")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def git_root(cwd: Path) -> Path | None:
    """The nearest folder upwards that has a `.git`; None outside of a repository."""
    return next((folder for folder in (cwd, *cwd.parents) if (folder / GIT).exists()), None)


def trust_root(cwd: Path) -> Path:
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


def main_work_tree(folder: Path) -> Path | None:
    """The main folder of the repository that a folder is a work tree of; None for what only says that it is one.

    Both sides have to agree: the folder's `.git` names its entry below the repository's `worktrees`, and that entry,
    which only who may write to the repository can make, names this `.git`. Nothing else is opened there.
    """
    own = git_file_target(folder)
    if own is None or own.parent.name != _WORKTREES:
        return None
    back = _small_text(own / "gitdir")
    if back is None or os.path.realpath(own / back.strip()) != os.path.join(os.path.realpath(folder), GIT):
        return None
    common = own.parent.parent
    if common.name == GIT:
        return common.parent
    return None if (common / GIT).exists() else common  # else files that are checked out there would speak for it


def git_file_target(folder: Path) -> Path | None:
    """Where a `.git` that is a file points to, by its real path; None for one that is none, or a link."""
    text = _small_text(folder / GIT)
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
        own = git_file_target(root)
        if own is None or main_work_tree(root) is None:
            return ""
        place = own
    elif place.is_symlink():
        return ""
    head = (_small_text(place / "HEAD") or "").strip()
    if found := _BRANCH.fullmatch(head):
        return found[1]
    return f"detached at {head[:12]}" if _COMMIT.fullmatch(head) else ""


def text_below(path: Path, root: Path, *, most_bytes: int) -> str:
    """A file of a folder that others wrote. Raises `OSError` for one that leads out of it, is none, or is too large."""
    real = os.path.realpath(path, strict=True)
    if not is_below(real, os.path.realpath(root)):
        raise OSError(errno.ELOOP, "leads out of the folder", str(path))
    return _text_of(real, most_bytes)


def _text_of(path: str, most_bytes: int, *, follows_links: bool = False) -> str:
    """A small text file. Raises `OSError` for one that is none, or is larger, and `UnicodeDecodeError`."""
    fd = (os.open if follows_links else open_itself)(path, os.O_RDONLY | AT_ONCE | CLOSE_ON_EXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        with open(fd, "rb", closefd=False) as file:
            data = file.read(most_bytes + 1)
    finally:
        os.close(fd)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes", path)
    return data.decode("utf-8")


def _small_text(path: Path) -> str | None:
    """One of git's little files; None for anything that can't be one."""
    try:
        return _text_of(str(path), _SMALL_BYTES)
    except (OSError, ValueError):
        return None


_MOST_BYTES = 200_000  # of a configuration
_MOST_INDEX_BYTES = 200_000_000
_SECTION = re.compile(r'\[([A-Za-z0-9-]+)(?: "([^"\\\n]*)")?\]')
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)(?:\s*=\s*([^\"\\;#]*))?")
_SUBMODULE = b"\x00\x00\xe0\x00"  # the mode of a submodule in an index
# What can't make git run anything, at least not what `git_safe_environment` doesn't take the effect from (the last
# line).
_HARMLESS = frozenset(
    "core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.ignorecase "
    "core.precomposeunicode core.symlinks core.autocrlf core.eol core.safecrlf core.quotepath core.abbrev "
    "core.compression core.protectntfs core.protecthfs core.sharedrepository core.preloadindex core.untrackedcache "
    "core.whitespace core.longpaths core.checkstat core.trustctime core.bigfilethreshold core.packedgitlimit "
    "core.commentchar core.excludesfile core.multipackindex core.commitgraph core.splitindex core.sparsecheckout "
    "core.sparsecheckoutcone extensions.objectformat extensions.refstorage extensions.worktreeconfig "
    "extensions.compatobjectformat index.version index.threads index.sparse feature.manyfiles remote.*.url "
    "remote.*.pushurl remote.*.fetch remote.*.push remote.*.tagopt remote.*.prune remote.*.mirror "
    "remote.*.skipdefaultupdate remote.*.gh-resolved remote.pushdefault branch.*.remote branch.*.merge "
    "branch.*.rebase branch.*.pushremote branch.*.description branch.*.vscode-merge-base "
    "branch.*.github-pr-owner-number branch.*.gh-merge-base branch.autosetuprebase branch.autosetupmerge "
    "branch.sort commit.gpgsign tag.gpgsign user.name user.email user.signingkey author.name author.email "
    "committer.name committer.email init.defaultbranch push.default push.autosetupremote push.followtags "
    "pull.rebase pull.ff fetch.prune fetch.prunetags fetch.parallel merge.ff merge.conflictstyle merge.renames "
    "rebase.autostash rebase.autosquash rebase.updaterefs rerere.enabled rerere.autoupdate gc.auto gc.autodetach "
    "gc.pruneexpire gc.reflogexpire maintenance.auto maintenance.strategy pack.window pack.threads pack.depth "
    "status.showuntrackedfiles status.short status.branch log.date log.decorate log.follow log.abbrevcommit "
    "format.pretty diff.renames diff.algorithm diff.mnemonicprefix diff.colormoved diff.noprefix color.ui "
    "color.status color.diff color.branch column.ui tag.sort commit.verbose commit.status advice.detachedhead "
    "advice.statushints lfs.repositoryformatversion receive.denycurrentbranch http.postbuffer gui.wmstate "
    "gui.geometry github.user core.fsmonitor core.hookspath core.pager core.editor log.showsignature".split()
)
# With the highest rank that configuration has; for commands that nobody was asked about.
_ALWAYS = {"safe.bareRepository": "explicit", "core.fsmonitor": "false"}
_LOOKING = {
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.editor": "true",
    "log.showSignature": "false",
    "diff.ignoreSubmodules": "all",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
}


def git_safe_environment(environ: Mapping[str, str], *, only_looks: bool) -> dict[str, str]:
    """The environment for commands that nobody was asked about: what a repository names there, git doesn't run.

    Args:
        environ: the environment so far.
        only_looks: the command is one of those that change nothing: then no other variable of git's is kept.

    Returns:
        A changed copy.
    """
    changed = dict(environ)
    overruled = dict(_ALWAYS)
    if only_looks:
        changed = {name: value for name, value in changed.items() if not name.startswith(("GIT_", "BASH_FUNC_"))}
        changed |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat"}
        overruled |= _LOOKING
    for name in ("BASH_ENV", "ENV", "BASHOPTS", "SHELLOPTS", "CDPATH"):
        changed.pop(name, None)
    given = changed.get("GIT_CONFIG_COUNT", "")
    count = int(given) if given.isdigit() else 0
    for number, (key, value) in enumerate(overruled.items(), count):
        changed[f"GIT_CONFIG_KEY_{number}"], changed[f"GIT_CONFIG_VALUE_{number}"] = key, value
    changed["GIT_CONFIG_COUNT"] = str(count + len(overruled))
    return changed


def path_outside_project(path: str, root: str) -> str:
    """A search path for programs, without what is in a folder of the project or relative to where one is."""
    kept = [one for one in path.split(":") if one.startswith("/")]
    if root.rstrip("/"):
        kept = [one for one in kept if not f"{os.path.realpath(one)}/".startswith(f"{root.rstrip('/')}/")]
    return ":".join(kept)


def repository_risk(folders: Sequence[str]) -> str:
    """Why git may run a program of a repository's choice in one of these folders; empty when it can't.

    Everything from a folder up to the root is looked at: which of several repositories git would take is git's to know.
    """
    seen: set[str] = set()
    for folder in folders:
        place = os.path.realpath(folder)
        while place not in seen:
            seen.add(place)
            if why := _folder_risk(place):
                return why
            place = os.path.dirname(place)
    return ""


def _folder_risk(place: str) -> str:
    """Why git may run a program of a repository's choice because of what stands in this one folder."""
    names = {
        name
        for name in ("HEAD", "objects", "refs", "config", "commondir", "index")
        if os.path.lexists(f"{place}/{name}")
    }
    if "HEAD" in names and len(names) > 1:
        return f"{place} itself looks like a repository without files"
    entry = f"{place}/.git"
    if not os.path.lexists(entry):
        return ""
    try:
        return next((why for folder in _git_folders(entry) if (why := _git_folder_risk(folder))), "")
    except (OSError, ValueError) as e:
        return f"{entry} can't be read ({e})"


def _git_folders(entry: str) -> Iterator[str]:
    """The folders in which a repository keeps its own: of a work tree, its part and the common one."""
    if os.path.isfile(entry):
        text = _plain_text(entry, _SMALL_BYTES)
        if not text.startswith("gitdir: "):
            raise ValueError("no folder of git")
        entry = os.path.join(os.path.dirname(entry), _plain_path(text.removeprefix("gitdir: ")))
    yield entry
    if os.path.lexists(f"{entry}/commondir"):
        yield os.path.join(entry, _plain_path(_plain_text(f"{entry}/commondir", _SMALL_BYTES)))


def _plain_path(text: str) -> str:
    """A path in a file of git's. Where white space stands around it, it is git's secret which path is meant."""
    line = text.rstrip("\r\n")
    if not line or line != line.strip() or "\n" in line:
        raise ValueError("a path that isn't plain")
    return line


def _git_folder_risk(folder: str) -> str:
    for name in ("config", "config.worktree"):
        if os.path.lexists(f"{folder}/{name}") and (
            why := _first_unsafe_entry(_plain_text(f"{folder}/{name}", _MOST_BYTES))
        ):
            return f"{folder}/{name} says {why}"
    if os.path.lexists(f"{folder}/modules"):
        return f"{folder} has submodules, which have configurations of their own"
    for name in ("index", *(n for n in os.listdir(folder) if n.startswith("sharedindex."))):
        if os.path.lexists(f"{folder}/{name}") and _has_submodules(f"{folder}/{name}"):
            return f"{folder}/{name} knows submodules, which have configurations of their own"
    return ""


def _first_unsafe_entry(text: str) -> str:
    """The first thing in a configuration that isn't plainly harmless."""
    section, inner = "", ""
    for line in text.split("\n"):
        line = line.removesuffix("\r").strip(" \t")
        if not line or line[0] in "#;":
            continue
        if found := _SECTION.fullmatch(line):
            section, inner = found[1].lower(), ".*" if found[2] is not None else ""
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            return f"{line[:80]!r}, which isn't plain"
        name, value = f"{section}{inner}.{entry[1].lower()}", (entry[2] or "").strip()
        if name not in _HARMLESS or (name.endswith("url") and ("::" in value or value.startswith("-"))):
            return f"{section}{inner}.{entry[1]} = {value[:60]}"
    return ""


def _has_submodules(path: str) -> bool:
    if os.path.getsize(path) > _MOST_INDEX_BYTES:
        raise ValueError("the index is too large to look through")
    with open(path, "rb") as file:
        return _SUBMODULE in file.read()


def _plain_text(path: str, most_bytes: int) -> str:
    """A file that git follows links to; raises `ValueError` for what is no text."""
    text = _text_of(path, most_bytes, follows_links=True)
    if "\0" in text:
        raise ValueError(f"{path} is no plain text")
    return text


def project_root(cwd: Path) -> Path:
    """The main folder of the repository that holds `cwd`, the same from every work tree; `cwd` outside of one.

    A folder that only says it is a work tree doesn't take on another project's memory.
    """
    real = Path(cwd).resolve()
    root = git_root(real)
    return real if root is None else main_work_tree(root) or root


def memory_roots_in_rows(project: str, *, directory: str | None = None, is_remote: bool = False) -> MemoryRoots:
    """What the places of memories follow from in a home that is no folder: there a project is its path, as a name."""
    root = f"/projects{project if is_remote else project_root(Path(project)).as_posix()}"
    return MemoryRoots(
        home="", kept=f"{root}/{MEMORY}", root=root, user_home=Path.home().as_posix(), directory=directory
    )


def memory_roots(home: Path, cwd: Path, *, directory: str | None = None) -> MemoryRoots:
    """What the places of memories follow from, for work in a folder."""
    root = project_root(cwd)
    return MemoryRoots(
        home=home.absolute().as_posix(),
        kept=ProjectFolders(home.absolute(), root).place(MEMORY).as_posix(),
        root=root.as_posix(),
        user_home=Path.home().as_posix(),
        directory=directory,
        folder=folder_in(root).name,
    )
