"""Rewinds of files: random work, and an oracle that knows nothing of checkpoints (CKP-2, CKP-3, REL-11)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from tests.rewinds import Story
from tests.tiers import NIGHTLY

from perdure.errors import RewindRefused

pytestmark = pytest.mark.laws
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a sync costs nothing
SEQUENCES = int(os.environ.get("PERDURE_TEST_REWINDS", "150" if NIGHTLY else "40"))


def rewound(seed: int, *, has_foreign: bool) -> str:
    """One sequence: rewind to a prompt, compare, undo, compare. What came of it, for the counts."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        story = Story.of(Path(place).resolve(), seed, has_foreign=has_foreign)
        prompt = f"m{story.random.randrange(4)}"
        ends, start, foreign = story.now(), story.starts[prompt], story.foreign(prompt)
        prompts = {f"m{n}" for n in range(int(prompt[1:]), 4)}
        came_of_it = "rewound"
        try:
            story.shadow.rewind(prompts, is_forced=False, is_dry=False)
        except RewindRefused as e:
            assert foreign, f"nobody but the agent changed anything, and it was refused: {e}"
            assert story.now() == ends
            came_of_it = "refused"
            if story.random.random() < 0.5:
                return came_of_it
            try:
                forced = {step.path for step in story.shadow.rewind(prompts, is_forced=True, is_dry=False).conflicts}
            except RewindRefused:  # a folder is to become a file again, and somebody's files are in it
                assert story.now() == ends
                return "barred"
            came_of_it = "forced"
        else:
            forced = set()
        there = story.now()
        for path in {*ends, *start, *there} - foreign:
            if not any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in foreign):
                assert there.get(path) == start.get(path), path
        for path in foreign - forced:
            is_needed = path not in ends and there.get(path, ("",))[0] == "folder"  # by a file that came back in it
            if story.last(path) == "user" and not is_needed:
                assert there.get(path) == ends.get(path), path
        if came_of_it == "rewound" and not foreign:
            assert there == start
        if there != ends:
            story.shadow.undo(is_forced=False, is_dry=False)
        assert story.now() == ends
        assert not list(story.project.rglob(".perdure-*"))
        return came_of_it


def test_a_rewind_gives_the_tree_of_that_moment_and_an_undo_the_tree_of_now() -> None:
    """CKP-2, CKP-3: shell changes, edits, renames, deletes, links, modes, binary and large files."""
    for seed in range(SEQUENCES // 2):
        try:
            assert rewound(seed, has_foreign=False) == "rewound"
        except (Exception, AssertionError) as e:
            raise AssertionError(f"seed {seed}") from e


def test_what_the_user_changed_stays_and_is_named() -> None:
    """CKP-3: foreign edits aren't overwritten unless forced; undone, all is as before either way."""
    came = []
    for seed in range(10_000, 10_000 + SEQUENCES // 2):
        try:
            came.append(rewound(seed, has_foreign=True))
        except (Exception, AssertionError) as e:
            raise AssertionError(f"seed {seed}") from e
    assert {"rewound", "refused", "forced"} <= set(came)
