"""SEC-5, MEM-10: what the scanners say about texts that people and agents really wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.memory.trust.injections import find_injections
from perdure.memory.trust.secrets import find_secrets

DATA = Path(__file__).parents[3] / "shared" / "data"
FOLDERS = ("claude_code_fixtures", "claude_md", "codex", "memdirs", "mini_swe_agent", "swe_agent")
if not DATA.is_dir():
    pytest.skip("../shared/data is not here", allow_module_level=True)


def texts(folder: str, pattern: str = "*") -> list[str]:
    files = sorted(path for path in (DATA / folder).rglob(pattern) if path.is_file())
    return [path.read_text(errors="replace") for path in files]


@pytest.mark.parametrize("folder", FOLDERS)
def test_at_most_one_line_in_two_hundred_is_flagged(folder: str) -> None:
    """SEC-5: false positives at most 0.5 %; the recordings are taken to hold no secrets."""
    read = texts(folder)
    lines = sum(text.count("\n") + 1 for text in read)
    flagged = sum(len({one.line for one in find_secrets(text)}) for text in read)
    assert lines and flagged <= lines * 0.005


def test_real_memories_would_be_kept() -> None:
    """MEM-10: of the files of real memory directories, at most one in a hundred breaks a rule."""
    read = texts("memdirs", "*.md")
    assert len(read) > 50
    assert sum(bool(find_injections(text)) for text in read) <= len(read) / 100
