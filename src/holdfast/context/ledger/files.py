"""The file trail: what was changed and read, with the names last edited; the root is stated once (CMP-5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from holdfast.context.ledger.memory import File
from holdfast.context.ledger.sheet import Line
from holdfast.context.quoting import inline, name

_NAMES = 6
_LONG_PATH = 64


def root_of(files: Mapping[str, File]) -> str:
    """The deepest directory that holds most of the files named in full, two parts above each; empty if there is none.

    Two parts of every path stay in its line, so that it can be told from its namesakes.
    """
    counts: Counter[str] = Counter()
    total = 0
    for path, file in files.items():
        if not _is_absolute(path):
            continue
        weight = file.edits * 2 + file.reads + 1
        total += weight
        parts = path.split("/")
        for depth in range(2, len(parts) - 1):
            counts["/".join(parts[:depth])] += weight
    best = ""
    for directory, count in counts.items():
        if count * 20 >= total * 17 and len(directory) > max(len(best), 2):
            best = directory
    return best


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or path[1:3] == ":/"


def relative(path: str, root: str) -> str:
    """A path below the root; one far from it shows its last parts."""
    if root and path.startswith(f"{root}/"):
        return path[len(root) + 1 :]
    if len(path) > _LONG_PATH:
        return "…/" + "/".join(path.split("/")[-3:])
    return path


def merged(files: Mapping[str, File], root: str) -> dict[str, File]:
    """Files by the path that is shown: one named both from the root and in full is one file."""
    found: dict[str, File] = {}
    for path, file in files.items():
        shown = relative(path, root)
        known = found.pop(shown, None)
        if known is not None:
            file = File(
                edits=known.edits + file.edits,
                reads=known.reads + file.reads,
                last=max(known.last, file.last),
                edited=max(known.edited, file.edited),
                spans=list(dict.fromkeys((*known.spans, *file.spans)))[-4:],
                names=list(dict.fromkeys((*file.names, *known.names))),
                fate=(file if file.edited >= known.edited else known).fate,
            )
        found[shown] = file
    return found


def is_changed(file: File) -> bool:
    """Whether a file was changed in any way: written, or taken away."""
    return bool(file.edits or file.fate)


def bare_name(path: str, file: File) -> str:
    """A changed file where there is room for its name only; one that is gone says so even then."""
    return f"{path} ({inline(file.fate.split(' ')[0])})" if file.fate[:1] not in ("", "`") else path


def edited_lines(files: Mapping[str, File], end: int) -> list[Line]:
    """A line for each changed file, the latest last; the short form is the path alone."""
    changed = sorted(
        ((path, file) for path, file in files.items() if is_changed(file)), key=lambda pair: pair[1].edited
    )
    lines = []
    for shown, file in changed:
        told = [inline(file.fate)] if file.fate else []
        told += [f"changed {file.edits}×" if file.edits > 1 else "changed"] if file.edits else []
        told += (
            [f"read {file.reads}×" + (f" lines {', '.join(file.spans)}" if file.spans else "")] if file.reads else []
        )
        written = [one for one in file.names if one not in shown][:_NAMES]
        told += [f"last wrote {', '.join(written)}"] if written else []
        path, fate = name(shown), f" ({inline(file.fate)})" if file.fate else ""
        lines.append(Line(f"- {path} ({'; '.join(told)})", end - file.edited, short=f"- {path}{fate}"))
    return lines


def read_lines(files: Mapping[str, File], end: int) -> list[Line]:
    """A line for each file that was only read, the latest last."""
    lines = []
    for shown, file in sorted(files.items(), key=lambda pair: pair[1].last):
        if is_changed(file) or not file.reads:
            continue
        spans = f" ({', '.join(file.spans)})" if file.spans else ""
        path = name(shown)
        lines.append(Line(f"- {path}{spans}", (end - file.last) / (1 + file.reads), short=f"- {path}"))
    return lines


def grouped(paths: list[str]) -> str:
    """Paths on one line, by their directory: `a/: x.py, y.py`."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        directory, _, last = name(path).rpartition("/")
        groups.setdefault(directory, []).append(last)
    return "; ".join(
        f"{directory}/: {', '.join(names)}" if directory else ", ".join(names) for directory, names in groups.items()
    )
