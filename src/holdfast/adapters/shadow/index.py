"""What was last seen of the tree, on disk: so that a resume looks at times, and reads only what changed (CKP-2)."""

from __future__ import annotations

import msgspec

from holdfast.adapters.files.rooted import Rooted
from holdfast.adapters.shadow.objects import Objects
from holdfast.adapters.shadow.tree import Known, Tree
from holdfast.errors import FileRefused

INDEX = "index.msgpack"
_LIMIT_BYTES = 500_000_000


class Saved(msgspec.Struct, array_like=True):
    """The index as it stands on the disk. It can be lost: then everything is read once more."""

    root: str
    known: dict[str, Known]
    skipped: list[str]


def save_index(own: Rooted, tree: Tree) -> None:
    """Survives the process, and not a power cut."""
    saved = Saved(tree.ground.path, tree.known, sorted(tree.skipped))
    own.write(INDEX, msgspec.msgpack.encode(saved), is_durable=False)


def load_index(own: Rooted, tree: Tree, objects: Objects) -> None:
    """Take up what an earlier process knew; nothing when that can't be read, or is of another folder."""
    try:
        saved = msgspec.msgpack.decode(own.read(INDEX, limit_bytes=_LIMIT_BYTES), type=Saved)
    except (FileRefused, msgspec.MsgspecError):
        return
    if saved.root != tree.ground.path:
        return
    for known in saved.known.values():
        known.is_saved = known.is_saved and objects.has(known.state.blob)
    tree.known, tree.skipped, tree.is_taken_up = saved.known, set(saved.skipped), True
