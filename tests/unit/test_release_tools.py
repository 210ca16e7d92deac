"""OPS-1: the checks of a release see what they are for."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools import release_check
from tools.builds import differing, sdist_problems, texts_of_this_machine, wheel_problems
from tools.interpreters import Interpreter, declared, find
from tools.release_check import Check, CheckFailed, check_interpreters, check_release, ended

pytestmark = pytest.mark.unit

TRACKED = ["README.md", "src/perdure/__init__.py", "src/perdure/py.typed", "src/perdure/prompts/compact.md"]
INFO = ["METADATA", "WHEEL", "entry_points.txt", "RECORD", "licenses/LICENSE"]
KEY = "sk-ant-api03-" + "kT9vWq2LxZ7mRb4NcY8HdJ1sFgP5aQ3eUoI6" * 3  # made up


def wheel(folder: Path, more: dict[str, str] | None = None, without: str = "") -> Path:
    held = {name.removeprefix("src/"): "" for name in TRACKED[1:]} | {
        f"perdure-1.0.dist-info/{name}": "" for name in INFO
    }
    path = folder / "perdure-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as files:
        for name, text in {**held, **(more or {})}.items():
            if name != without:
                files.writestr(name, text)
    return path


def sdist(folder: Path, *names: str, text: str = "") -> Path:
    path = folder / "perdure-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as files:
        for name in names:
            one = tarfile.TarInfo(f"perdure-1.0/{name}")
            one.size = len(text)
            files.addfile(one, io.BytesIO(text.encode()))
    return path


def test_a_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    """OPS-1: a file too many, one too few, and each text that has no place in it, are named."""
    forbidden = {b"/home/ann/src": "a folder of this machine"}
    assert wheel_problems(wheel(tmp_path), TRACKED, forbidden) == []
    lacking = wheel(tmp_path, without="perdure/py.typed")
    for tracked in (TRACKED, [name for name in TRACKED if "py.typed" not in name]):
        assert wheel_problems(lacking, tracked, {}) == [f"{lacking.name} lacks perdure/py.typed"]
    (many,) = wheel_problems(wheel(tmp_path, {"tests/test_a.py": ""}), TRACKED, {})
    assert "tests/test_a.py" in many
    (path,) = wheel_problems(wheel(tmp_path, {"perdure/__init__.py": "x = '/home/ann/src/a'"}), TRACKED, forbidden)
    assert path.endswith("perdure/__init__.py holds a folder of this machine")
    (secret,) = wheel_problems(wheel(tmp_path, {"perdure/__init__.py": f"key = '{KEY}'"}), TRACKED, {})
    assert "perdure/__init__.py holds what looks like a secret" in secret


def test_an_sdist_is_the_repository(tmp_path: Path) -> None:
    """OPS-1: likewise."""
    forbidden = {b"/home/ann/src": "a folder of this machine"}
    assert sdist_problems(sdist(tmp_path, *TRACKED, "PKG-INFO"), TRACKED, forbidden) == []
    (few,) = sdist_problems(sdist(tmp_path, *TRACKED[1:], "PKG-INFO"), TRACKED, {})
    (many,) = sdist_problems(sdist(tmp_path, *TRACKED, "PKG-INFO", "notes.txt"), TRACKED, {})
    assert few.endswith("lacks README.md") and "notes.txt" in many
    found = sdist_problems(sdist(tmp_path, *TRACKED, "PKG-INFO", text="see /home/ann/src"), TRACKED, forbidden)
    assert len(found) == len(TRACKED) + 1


def test_texts_of_this_machine_are_its_folders_and_keys(tmp_path: Path) -> None:
    """OPS-1, SEC-1: not folders that others have too, short values, or variables that name a file."""
    environ = {"A_TOKEN": "abcdefghijkl", "B_KEY": "short", "C_SECRET": str(tmp_path), "D": "abcdefghijklm"}
    found = texts_of_this_machine([tmp_path, Path("/srv"), Path("/")], environ)
    assert found == {os.fsencode(tmp_path): "a folder of this machine", b"abcdefghijkl": "the value of A_TOKEN"}


def test_builds_are_compared_byte_for_byte(tmp_path: Path) -> None:
    """OPS-1: what differs, and what only another build has."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "a.whl").write_bytes(b"1")
    assert differing(first, second) == []
    (second / "a.whl").write_bytes(b"2")
    (second / "b.whl").write_bytes(b"1")
    assert differing(first, second) == ["a.whl of second", "b.whl of second"]


def fake(folder: Path, name: str, prints: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{prints}\n")
    (folder / name).chmod(0o755)


def test_interpreters_are_found_where_people_have_them(tmp_path: Path) -> None:
    """OPS-1: on the PATH, of pyenv, of uv; the newest of each version, and none that can't be used."""
    (tmp_path / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.11,<3.14"\n')
    wanted = declared(tmp_path / "pyproject.toml")
    assert wanted == ["3.11", "3.12", "3.13"]
    on_path, pyenv, uv = tmp_path / "bin", tmp_path / "pyenv/versions", tmp_path / ".local/share/uv/python"
    fake(on_path, "python3.11", """echo '["cpython", 3, 11, 2, "final"]'""")
    fake(on_path, "python3.12", "exit 1")  # as pyenv's stand-ins do
    fake(on_path, "python3.13", """echo '["cpython", 3, 13, 1, "candidate"]'""")
    fake(on_path, "python3-config", """echo '["cpython", 3, 12, 9, "final"]'""")
    fake(pyenv / "3.11.7/bin", "python3.11", """echo '["cpython", 3, 11, 7, "final"]'""")
    fake(pyenv / "pypy/bin", "python3.12", """echo '["pypy", 3, 12, 0, "final"]'""")
    fake(uv / "cpython-3.12/bin", "python3.12", """echo '["cpython", 3, 12, 4, "final"]'""")
    fake(uv / "cpython-3.14/bin", "python3.14", """echo '["cpython", 3, 14, 0, "final"]'""")
    environ = {"PATH": str(on_path), "PYENV_ROOT": str(tmp_path / "pyenv"), "HOME": str(tmp_path)}
    assert [one.name for one in find(wanted, environ)] == ["3.11.7", "3.12.4"]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a changelog of 1.0, whose owner signs with a key of SSH, and trusts it."""
    if not shutil.which("ssh-keygen"):
        pytest.skip("no ssh-keygen")
    folder, key = tmp_path / "repository", tmp_path / "key"
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "signers").write_text(f"ann@example.org {key.with_suffix('.pub').read_text()}")
    for name in [one for one in os.environ if one.startswith("GIT_")]:
        monkeypatch.delenv(name)
    settings = {"user.name": "Ann", "user.email": "ann@example.org", "gpg.format": "ssh", "user.signingKey": str(key)}
    settings |= {"gpg.ssh.allowedSignersFile": str(tmp_path / "signers"), "tag.gpgSign": "false"}
    git(folder, "init", "-q")
    for name, value in {**settings, "commit.gpgSign": "false"}.items():
        git(folder, "config", name, value)
    (folder / "CHANGELOG.md").write_text("## [1.0] - 2030-01-01\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "The first one")
    monkeypatch.setattr(release_check, "ROOT", folder)
    return folder


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("how", [(), ("-a", "-m", "1.0")])
def test_a_release_has_a_tag_that_is_signed(repository: Path, how: tuple[str, ...]) -> None:
    """OPS-1: a plain tag and one without a signature don't make a release; nor does a signature of somebody unknown."""
    with pytest.raises(CheckFailed, match=r"doesn't have the tag v1\.0"):
        check_release("1.0")
    git(repository, "tag", *how, "v1.0")
    with pytest.raises(CheckFailed, match=r"v1\.0 has no signature that can be verified here"):
        check_release("1.0")
    git(repository, "tag", "-f", "-s", "-m", "1.0", "v1.0")
    assert check_release("1.0") == "v1.0"
    (repository.parent / "signers").write_text("")
    with pytest.raises(CheckFailed, match=r"v1\.0 has no signature that can be verified here"):
        check_release("1.0")


def test_a_release_is_tried_with_every_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """OPS-1: a version that is missing is a failure; one that is left out by name stands in the last line."""
    found = [Interpreter((3, 11, 7), "a"), Interpreter((3, 13, 0), "b")]
    assert check_interpreters(["3.11", "3.13"], found) == "3.11.7, 3.13.0"
    with pytest.raises(CheckFailed, match=r"no 3\.12 3\.14 here.*--without 3\.12 3\.14"):
        check_interpreters(["3.11", "3.12", "3.13", "3.14"], found)
    (tmp_path / "a.whl").touch()
    monkeypatch.setattr(release_check, "DIST", tmp_path)
    assert ended(Check(tmp_path), ["3.14"]) == 0
    assert capsys.readouterr().out.strip().startswith("all is well, without 3.14; ")
    for words in (("--python", "3.11"), ("--build-only",)):
        monkeypatch.setattr(sys, "argv", ["release_check", "--release", *words])
        with pytest.raises(SystemExit, match="2"):
            release_check.main()
        assert "--without does" in capsys.readouterr().err


def test_a_release_ends_where_an_interpreter_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """OPS-1: before anything is built; without --release it goes on."""
    monkeypatch.setattr(release_check, "find", lambda wanted, environ: [])
    monkeypatch.setattr(release_check, "install_tools", lambda: pytest.fail("it went on"))
    monkeypatch.setattr(sys, "argv", ["release_check", "--release", "--without", "3.11"])
    assert release_check.main() == 1
    (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILED")]
    assert "there is no 3.12 3.13 3.14 here" in said
