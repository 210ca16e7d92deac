"""SEC-5, MEM-10: what the scanners say about texts that people and agents really wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recordings.conftest import ABSENT, DATA

from perdure.memory.trust.injections import find_injections
from perdure.memory.trust.secrets import find_secrets

FOLDERS = ("claude_code_fixtures", "claude_md", "codex", "memdirs", "mini_swe_agent", "swe_agent")
present = pytest.mark.skipif(not DATA.is_dir(), reason=ABSENT)


def texts(folder: Path, pattern: str = "*") -> list[str]:
    files = sorted(path for path in folder.rglob(pattern) if path.is_file())
    return [path.read_text(errors="replace") for path in files]


@pytest.mark.parametrize("folder", [*(pytest.param(DATA / name, marks=present, id=name) for name in FOLDERS), "made"])
def test_at_most_one_line_in_two_hundred_is_flagged(folder: Path | str, made_data: Path) -> None:
    """SEC-5: false positives at most 0.5 %; the recordings are taken to hold no secrets."""
    read = texts(folder if isinstance(folder, Path) else made_data)
    lines = sum(text.count("\n") + 1 for text in read)
    flagged = sum(len({one.line for one in find_secrets(text)}) for text in read)
    assert lines and flagged <= lines * 0.005


@present
def test_real_memories_would_be_kept() -> None:
    """MEM-10: of the files of real memory directories, at most one in a hundred breaks a rule."""
    read = texts(DATA / "memdirs", "*.md")
    assert len(read) > 50
    assert sum(bool(find_injections(text)) for text in read) <= len(read) / 100
