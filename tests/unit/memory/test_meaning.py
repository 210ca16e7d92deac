"""Nearness in meaning beside the words, and the package that tells it (MEM-15)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.adapters import semantic
from perdure.adapters.memory.directory import MemoryDirectory
from perdure.memory.files import topic
from perdure.memory.meaning import compared_text, rank_by_meaning
from perdure.memory.retrieval import (
    SEARCH_FLOOR,
    MemoryCard,
    MemoryQuery,
    counts_of,
    empty_index,
    rank_memories,
)
from perdure.text.scoring import TextIndex


def made(**descriptions: str) -> tuple[TextIndex, dict[str, MemoryCard]]:
    index, cards = empty_index(), {}
    topics = [topic(f"{n}.md", f"---\nname: {n}\ndescription: {d}\n---\nx\n") for n, d in descriptions.items()]
    index.fill((one.file, counts_of(one)) for one in topics)
    for one in topics:
        cards[one.file] = MemoryCard(file=one.file, name=one.name, description=one.description)
    return index, cards


def found(
    index: TextIndex,
    cards: dict[str, MemoryCard],
    query: str,
    near: Mapping[str, float],
    *,
    floor: float = SEARCH_FLOOR,
) -> list[str]:
    return [one.card.file for one in rank_by_meaning(index, cards, MemoryQuery(query=query, floor=floor), near)]


FOUR = made(bun="prefers bun over npm", friday="deploys on fridays", tabs="tabs, not spaces", staging="staging is slow")


def test_what_shares_no_word_is_found_when_somebody_asks() -> None:
    """MEM-15: and only then: unasked, rather nothing than noise."""
    near = {"bun.md": 0.3, "friday.md": 0.01, "tabs.md": 0.0, "staging.md": -0.05}
    assert found(*FOUR, "which package manager", near) == ["bun.md"]
    assert found(*FOUR, "which package manager", near, floor=0.25) == []
    assert found(*FOUR, "which package manager", {}) == []


def test_what_does_not_stand_out_is_not_brought_in() -> None:
    """MEM-15: where all are equally near, and where none is near."""
    assert found(*FOUR, "which package manager", dict.fromkeys(FOUR[1], 0.3)) == []
    assert found(*FOUR, "which package manager", {"bun.md": 0.1} | dict.fromkeys(["friday.md", "tabs.md"], 0.0)) == []


def test_words_stay_first_and_meaning_orders_what_fits_alike() -> None:
    """MEM-15: a small share: it can't push down a memory that fits clearly better."""
    index, cards = made(one="the parser tests", two="the parser docs", three="parser grammar tests in the parser suite")
    words = [one.card.file for one in rank_memories(index, cards, MemoryQuery(query="parser", floor=SEARCH_FLOOR))]
    assert found(index, cards, "parser", {"one.md": 0.1, "two.md": 0.6, "three.md": 0.1})[0] == "two.md"
    assert set(words) == set(found(index, cards, "parser", {"one.md": 0.1, "two.md": 0.6, "three.md": 0.1}))
    best = found(index, cards, "parser grammar suite", {"one.md": 0.3, "two.md": 0.2, "three.md": 0.1})
    assert best[0] == "three.md"


def test_pins_superseded_ones_and_scopes_hold_for_meaning_as_well() -> None:
    """MEM-14, MEM-15: the current one stands where an older one is near."""
    index, cards = FOUR[0], dict(FOUR[1])
    cards["friday.md"] = MemoryCard(file="friday.md", name="friday", supersedes=("bun.md",))
    cards["tabs.md"] = MemoryCard(file="tabs.md", name="tabs", is_pinned=True)
    near = {"bun.md": 0.4, "friday.md": 0.0, "tabs.md": 0.0, "staging.md": 0.0}
    wanted = MemoryQuery(query="which package manager", floor=SEARCH_FLOOR, has_pins=True)
    assert [one.card.file for one in rank_by_meaning(index, cards, wanted, near)] == ["tabs.md", "friday.md"]


def test_without_the_package_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MEM-15: and `doctor` says how to get it."""
    monkeypatch.setattr(semantic, "_loaded", lambda: "not installed: pip install it")
    assert semantic.semantic_index() is None and semantic.semantic_state() == (False, "not installed: pip install it")
    (tmp_path / "bun.md").write_text("---\nname: bun\ndescription: prefers bun over npm\n---\nx\n")
    directory = MemoryDirectory(tmp_path)
    assert directory.ask(MemoryQuery(query="which package manager", floor=SEARCH_FLOOR, by_meaning=True)) == ()
    (one,) = directory.ask(MemoryQuery(query="npm or bun", floor=SEARCH_FLOOR, by_meaning=True))
    assert one.card.file == "bun.md"


def test_files_that_are_not_those_that_are_known_are_said(tmp_path: Path) -> None:
    """MEM-15: whatever stands in them."""
    np = pytest.importorskip("numpy")
    for data in (b"", b"\xff" * 64, (2).to_bytes(8, "little") + b"{}", (30).to_bytes(8, "little") + b"[" * 30):
        (tmp_path / "x").write_bytes(data)
        with pytest.raises((ValueError, KeyError)):
            semantic._rows(tmp_path / "x", np)


needs_package = pytest.mark.skipif(not semantic.semantic_state().is_there, reason=semantic.semantic_state().said)


@needs_package
def test_a_question_finds_what_it_means(tmp_path: Path) -> None:
    """MEM-15: which package manager: the one that somebody prefers; also of files that came and went since."""
    for name, what in (
        ("bun", "prefers bun over npm"), ("friday", "Deploys go out on Fridays"), ("tabs", "likes tabs over spaces"),
        ("staging", "the staging database is read-only"),
    ):  # fmt: skip
        (tmp_path / f"{name}.md").write_text(f"---\nname: {name}\ndescription: {what}\n---\n{what}\n")
    directory = MemoryDirectory(tmp_path)
    wanted = MemoryQuery(query="which package manager", floor=SEARCH_FLOOR, by_meaning=True)
    (one,) = directory.ask(wanted)
    assert (one.card.file, one.why) == ("bun.md", "near in meaning")
    assert directory.ask(MemoryQuery(query="which package manager", floor=SEARCH_FLOOR)) == ()
    (tmp_path / "yarn.md").write_text("---\nname: yarn\ndescription: the yarn lock file is kept\n---\nx\n")
    (tmp_path / "bun.md").unlink()
    assert "bun.md" not in {one.card.file for one in directory.ask(wanted, is_sure=True)}


@needs_package
def test_nothing_is_fetched_and_no_code_of_the_package_is_run(tmp_path: Path) -> None:
    """MEM-15, SEC-12: whatever the environment says of caches and hubs; a folder of its name beside is not taken."""
    (tmp_path / "wordllama").mkdir()
    (tmp_path / "wordllama" / "__init__.py").write_text("raise SystemExit('ran')")
    program = (
        "import socket, sys\n"
        "def no(*a, **k): raise SystemExit('network')\n"
        "socket.socket.connect = no; socket.getaddrinfo = no\n"
        "from perdure.adapters.semantic import semantic_index\n"
        "index = semantic_index(); index.put('a', 'prefers bun over npm')\n"
        "print(index.near('package manager')['a'] > 0.1, 'wordllama' in sys.modules, 'huggingface_hub' in sys.modules)"
    )
    env = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", "WORDLLAMA_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False", "False"], done.stderr
    assert compared_text(MemoryCard(file="x.md", name="n", description="d", keywords=("k",))) == "n d k"
