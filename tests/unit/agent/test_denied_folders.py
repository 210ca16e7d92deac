"""Finding R6: who writes below a folder writes all of it; where that isn't certain, a person is asked (SEC-9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.agent.test_denied import each_decided

pytestmark = pytest.mark.unit

WRITERS = [
    "gzip -r .", "gzip -rf .", "gzip --recursive .", "bzip2 -r .", "pigz -r .", "black .", "prettier --write .",
    "nice black .", "timeout 60 gzip -r .", "cd src && gzip -r ..", "gzip -r ./sub/..", "git checkout .",
    "git checkout -- .", "git checkout HEAD~1 -- .", "git restore .", "git restore -s HEAD~1 .", "dos2unix -R .",
    "sh -c 'gzip -r .'", "unknown-tool --fix .", "gzip -r PROJECT", "gzip -r link", "chattr -R +i .",
]  # fmt: skip
FINE = [
    "gzip -r src", "black src", "prettier --write src", "git checkout src", "git checkout main", "git restore src/a.py",
    "gzip README.md", "ls -R .", "pytest -q src", "pip install -r requirements.txt", "sort -r README.md", "make -j4",
    "cp README.md .", "npm run build", "cat README.md", "git rm src/a.py", "python src/a.py",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("folders").resolve()
    for name in ("ci/x.yml", "src/a.py", "sub/y", ".env", "README.md", "requirements.txt"):
        file = base / "p" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x\n")
    (base / "p" / "link").symlink_to(".")
    return base


@pytest.mark.parametrize("deny", ["Edit(ci/**)", "Write(ci/x.yml)"])
def test_writers_over_a_folder_write_all_of_it(place: Path, deny: str) -> None:
    """Never silently, in bypass mode with a rule that allows all commands; and not where it isn't in the folder."""
    found = zip(WRITERS, each_decided(place, WRITERS, "bypass", deny=[deny], allow=["Bash"]), strict=True)
    assert not [one for one in found if one[1][0] not in ("deny", "ask")]
    found = zip(FINE, each_decided(place, FINE, "bypass", deny=[deny]), strict=True)
    assert not [one for one in found if one[1][0] != "allow"]


def test_who_goes_through_folders_by_an_option_may_read_them(place: Path) -> None:
    """For a rule that denies reading, a program that nobody knows goes through a folder where its option says so."""
    commands = ["unknown-tool -r .", "unknown-tool --recursive .", "unknown-tool .", "ruff check .", "pytest -ra src"]
    found = [one for one, _ in each_decided(place, commands, "bypass", deny=["Read(.env)"])]
    assert found == ["ask", "ask", "allow", "allow", "allow"]


def test_without_rules_nothing_is_asked_for_it(place: Path) -> None:
    assert {one for one, _ in each_decided(place, [*WRITERS, *FINE], "bypass")} == {"allow"}
