"""Homes on files: what stands where, so that those of earlier versions open (SCL-1, GW-4)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.gateways import in_loop

from perdure.adapters.journal import FileHome, FileStore
from perdure.errors import JournalError, SessionBusy, SessionNotFound

pytestmark = pytest.mark.contract


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@in_loop
async def test_documents_stand_where_they_always_did(tmp_path: Path) -> None:
    """SCL-1, GW-6, GW-9: a file each, the usage in the home itself, and the ids of what was deleted as lines."""
    home = FileHome(tmp_path)
    assert await home.documents("conversations").put("conv_1", b"{}", instead_of=None)
    assert await home.documents("usage").put("usage", b"{}", instead_of=None)
    for name in ("r1", "r2"):
        assert await home.documents("deleted-responses").put(name, b"", instead_of=None)
    assert files_in(tmp_path) == {
        "conversations/conv_1.json": b"{}",
        "usage.json": b"{}",
        "deleted-responses": b"r1\nr2\n",
    }
    (tmp_path / "calibration.json").write_text("{}")
    os.utime(tmp_path / "calibration.json", (0, 0))
    os.utime(tmp_path / "usage.json", (0, 0))
    assert await home.documents("usage").forget(1.0) == 1
    assert (tmp_path / "calibration.json").exists(), "it is no document"
    with pytest.raises(JournalError, match="not the name of a document"):
        await home.documents("conversations").get("../usage")
    with pytest.raises(JournalError, match="each in a line"):
        await home.documents("deleted-responses").put("r3\nr4", b"", instead_of=None)


@in_loop
async def test_names_are_taken_out_and_forgotten_together(tmp_path: Path) -> None:
    """SCL-1, GW-6: documents that are lines of one file are as old as the last of them."""
    names = FileHome(tmp_path).documents("deleted-responses")
    for name in ("r1", "r2"):
        await names.put(name, b"", instead_of=None)
    assert await names.put("r1", b"", instead_of=None) is None, "it is there already"
    await names.delete("r1")
    await names.delete("r7")
    assert await names.get("r1") is None and await names.get("r2") is not None
    other = FileHome(tmp_path).documents("deleted-responses")
    for name in (
        "r3",
        "r4",
    ):  # what another process wrote is seen at once, though the file is read only when it changed
        assert await names.among({"r1", "r2", name}) == {"r2"}
        await other.put(name, b"", instead_of=None)
        assert await names.among({"r1", "r2", name}) == {"r2", name}
        await other.delete(name)
    assert await names.forget(1.0) == 0
    os.utime(tmp_path / "deleted-responses", (0, 0))
    assert await names.forget(1.0) == 1 and await names.get("r2") is None


@in_loop
async def test_a_store_knows_its_tenants_and_deletes_one_wholly(tmp_path: Path) -> None:
    """SCL-1, SCL-6, GW-4: a home each; one that is in use stays."""
    store = FileStore(tmp_path)
    assert await store.tenants() == ()
    sessions = [
        await store.home(tenant).create("s1", project=store.home(tenant).name, created=1.0) for tenant in ("ann", "ben")
    ]
    assert await store.tenants() == ("ann", "ben")
    assert not await store.home().has("s1"), "it is a tenant's, not the person's own"
    with pytest.raises(SessionBusy):
        await store.delete_tenant("ann")
    for session in sessions:
        await session.journal.close()
    await store.delete_tenant("ann")
    await store.delete_tenant("nobody")
    assert await store.tenants() == ("ben",)
    with pytest.raises(SessionNotFound):
        await store.home("ann").load("s1")
    assert (await store.home("ben").load("s1")).header.session == "s1"


@in_loop
async def test_a_probe_leaves_nothing_and_says_where_it_fails(tmp_path: Path) -> None:
    """SCL-1, GW-3: it takes time, and no room."""
    assert await FileStore(tmp_path).probe() > 0
    assert not files_in(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="nothing can be kept there"):
        await FileStore(tmp_path / "file").probe()
