"""What was last seen of the tree, on disk: so that a resume looks at times, and reads only what changed (CKP-2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from holdfast.adapters.files.rooted import Rooted
from holdfast.adapters.shadow.names import read, written
from holdfast.adapters.shadow.objects import Objects
from holdfast.adapters.shadow.tree import Known, Tree, Unkept
from holdfast.errors import FileRefused

INDEX = "index.msgpack"
_LIMIT_BYTES = 500_000_000


class Saved(msgspec.Struct, array_like=True):
    """The index as it stands on the disk. It can be lost: then everything is read once more."""

    root: str
    known: dict[str, Known]
    unkept: dict[str, Unkept]


def save_index(own: Rooted, tree: Tree) -> None:
    """Survives the process, and not a power cut."""
    saved = Saved(tree.ground.path, tree.known, tree.unkept)
    try:
        data = msgspec.msgpack.encode(saved)
    except UnicodeEncodeError:  # a name that isn't UTF-8 (CKP-7)
        known = {written(name): _with_target(known, written) for name, known in tree.known.items()}
        unkept = {written(name): about for name, about in tree.unkept.items()}
        data = msgspec.msgpack.encode(Saved(written(tree.ground.path), known, unkept))
    own.write(INDEX, data, is_durable=False)


def load_index(own: Rooted, tree: Tree, objects: Objects) -> None:
    """Take up what an earlier process knew; nothing when that can't be read, or is of another folder."""
    try:
        saved = msgspec.msgpack.decode(own.read(INDEX, limit_bytes=_LIMIT_BYTES), type=Saved)
    except (FileRefused, msgspec.MsgspecError):
        return
    if read(saved.root) != tree.ground.path:
        return
    for known in saved.known.values():
        known.is_saved = known.is_saved and objects.has(known.state.blob)
    tree.known = {read(name): _with_target(known, read) for name, known in saved.known.items()}
    tree.unkept = {read(name): about for name, about in saved.unkept.items()}
    tree.is_taken_up = True


def _with_target(known: Known, how: Callable[[str], str]) -> Known:
    """Where a link leads is a name as well."""
    if not known.state.target:
        return known
    return replace(known, state=msgspec.structs.replace(known.state, target=how(known.state.target)))
