"""Whether git may run a program that a repository names, and the surroundings in which it can't (SEC-9).

Git runs what its configuration names: monitors, hooks, filters, pagers, programs for diffs and signatures, transports.
Some of that can be overruled for one command, but not all: the names of filters are anybody's choice, and in submodules
git drops what was overruled. So a repository has to be plain: its configuration holds harmless keys only, and it has no
submodules. Reading is strict: a line that isn't plainly one of the harmless is a reason to ask.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

_MOST_BYTES = 200_000  # of a configuration
_MOST_INDEX_BYTES = 200_000_000
_SECTION = re.compile(r'\[([A-Za-z0-9-]+)(?: "([^"\\\n]*)")?\]')
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)(?:\s*=\s*([^\"\\;#]*))?")
_SUBMODULE = b"\x00\x00\xe0\x00"  # the mode of a submodule in an index
# What can't make git run anything, at least not what `overruling` doesn't take the effect from (the last line).
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


def overruling(environ: Mapping[str, str], *, only_looks: bool) -> dict[str, str]:
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


def outside(path: str, root: str) -> str:
    """A search path for programs, without what is in a folder of the project or relative to where one is."""
    kept = [one for one in path.split(":") if one.startswith("/")]
    if root.rstrip("/"):
        kept = [one for one in kept if not f"{os.path.realpath(one)}/".startswith(f"{root.rstrip('/')}/")]
    return ":".join(kept)


def doubt(folders: Sequence[str]) -> str:
    """Why git may run a program of a repository's choice in one of these folders; empty when it can't.

    Everything from a folder up to the root is looked at: which of several repositories git would take is git's to know.
    """
    seen: set[str] = set()
    for folder in folders:
        place = os.path.realpath(folder)
        while place not in seen:
            seen.add(place)
            if why := _in(place):
                return why
            place = os.path.dirname(place)
    return ""


def _in(place: str) -> str:
    """What there is to say of one folder."""
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
        return next((why for folder in _homes(entry) if (why := _home(folder))), "")
    except (OSError, ValueError) as e:
        return f"{entry} can't be read ({e})"


def _homes(entry: str) -> Iterator[str]:
    """Where a repository keeps its own: of a work tree, its part and the common one."""
    if os.path.isfile(entry):
        text = _text(entry, 4_096)
        if not text.startswith("gitdir: "):
            raise ValueError("no folder of git")
        entry = os.path.join(os.path.dirname(entry), _line(text.removeprefix("gitdir: ")))
    yield entry
    if os.path.lexists(f"{entry}/commondir"):
        yield os.path.join(entry, _line(_text(f"{entry}/commondir", 4_096)))


def _line(text: str) -> str:
    """A path in a file of git's. Where white space stands around it, it is git's secret which path is meant."""
    line = text.rstrip("\r\n")
    if not line or line != line.strip() or "\n" in line:
        raise ValueError("a path that isn't plain")
    return line


def _home(folder: str) -> str:
    for name in ("config", "config.worktree"):
        if os.path.lexists(f"{folder}/{name}") and (why := _strange(_text(f"{folder}/{name}", _MOST_BYTES))):
            return f"{folder}/{name} says {why}"
    if os.path.lexists(f"{folder}/modules"):
        return f"{folder} has submodules, which have configurations of their own"
    for name in ("index", *(n for n in os.listdir(folder) if n.startswith("sharedindex."))):
        if os.path.lexists(f"{folder}/{name}") and _has_submodules(f"{folder}/{name}"):
            return f"{folder}/{name} knows submodules, which have configurations of their own"
    return ""


def _strange(text: str) -> str:
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


def _text(path: str, most: int) -> str:
    if not os.path.isfile(path):
        raise ValueError(f"{path} is no file")
    with open(path, encoding="utf-8", errors="strict", newline="") as file:
        text = file.read(most + 1)
    if len(text) > most or "\0" in text:
        raise ValueError(f"{path} is no plain text, or too long")
    return text
