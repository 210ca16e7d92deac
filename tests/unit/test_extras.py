"""OPS-1, CLI-5: a hint how an extra is installed names what was installed, and takes nothing away."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, PathDistribution
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters import extras

pytestmark = pytest.mark.unit

NEEDS = (
    "msgspec>=0.19",
    "acp-package>=1; extra == 'acp'",
    "mcp-package>=2; extra == 'mcp'",
    "brotli>=1; extra == 'gateway'",
    "zstd>=1; (python_version < '3.14') and extra == 'gateway'",
    "words>=1; (python_version < '3.14') and extra == 'semantic'",
    *(f"{name}; extra == 'all'" for name in ("acp-package>=1", "mcp-package>=2", "brotli>=1")),
)
Installed = Callable[..., Path]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """An environment in which a wheel named `its-own-name` holds the package, beside other packages."""

    def make(
        *others: str, url: dict[str, Any] | None = None, at: str = "venv", mark: str = "", by: str = "pip", **more: str
    ) -> Path:
        prefix = tmp_path / at
        info = prefix / "its_own_name-1.0.dist-info"
        info.mkdir(parents=True)
        needs = "".join(f"Requires-Dist: {one}\n" for one in NEEDS)
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: its-own-name\nVersion: 1.0\n{needs}")
        (info / "INSTALLER").write_text(f"{by}\n")
        if url is not None:
            (info / "direct_url.json").write_text(json.dumps(url))
        if mark:
            (prefix / mark).write_text(more.get("says", ""))

        def distribution(name: str) -> PathDistribution:
            if name in ("its-own-name", *others):
                return PathDistribution(info)
            raise PackageNotFoundError(name)

        monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: {"perdure": ["its-own-name"]})
        monkeypatch.setattr("importlib.metadata.distribution", distribution)
        monkeypatch.setattr("sys.prefix", str(prefix))
        return prefix

    return make


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "my wheels" / "its_own_name-1.0-py3-none-any.whl"
    path.parent.mkdir()
    path.touch()
    return path


def of(path: Path, **more: Any) -> dict[str, Any]:
    return {"url": path.as_uri(), **(more or {"archive_info": {}})}


def test_a_program_run_from_its_sources_is_installed_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-5: another project may have its name."""
    monkeypatch.setattr("importlib.metadata.packages_distributions", dict)
    assert extras.install("mcp") == "pip install '.[mcp]' in the folder of its sources"


def test_what_came_from_an_index_is_called_as_it_is_there(installed: Installed) -> None:
    """OPS-1: nothing was recorded, or nothing that can be read."""
    installed("acp-package")
    assert extras.install("mcp") == "pip install 'its-own-name[mcp]'"
    installed(at="other", url=["?"])  # type: ignore[arg-type]
    assert extras.install("mcp") == "pip install 'its-own-name[mcp]'"


def test_pip_adds_from_where_the_program_came(installed: Installed, wheel: Path) -> None:
    """OPS-1: no index is asked for a program that was installed from a file, a folder or a repository."""
    installed("acp-package", url=of(wheel))
    assert extras.install("mcp") == f"pip install '{wheel}[mcp]'"
    installed(at="checkout", url=of(wheel.parent, dir_info={"editable": True}))
    assert extras.install("mcp") == f"pip install -e '{wheel.parent}[mcp]'"
    at = installed(at="of uv", url=of(wheel), by="uv")
    assert extras.install("mcp") == f"uv pip install --python '{at}' '{wheel}[mcp]'"
    git = {"url": "https://example.org/p.git", "subdirectory": "py", "vcs_info": {"vcs": "git", "commit_id": "1f2e"}}
    installed(at="repository", url=git)
    named = "its-own-name[mcp] @ git+https://example.org/p.git@1f2e#subdirectory=py"
    assert extras.install("mcp") == f"pip install '{named}'"
    wheel.unlink()
    installed(at="gone", url=of(wheel))
    assert extras.install("mcp") == (
        f"install it with the extra mcp from where it is now, as {wheel} isn't there any more"
    )


def test_an_environment_that_is_made_anew_keeps_its_extras(installed: Installed, wheel: Path) -> None:
    """OPS-1: of pipx, uv and uvx; with what uv installed along with the tool."""
    pipx = installed("acp-package", "brotli", at="pipx", url=of(wheel), mark="pipx_metadata.json", by="uv")
    assert extras.install("mcp") == f"pipx install --force '{wheel}[acp,gateway,mcp]'", "zstd is for some Pythons only"
    assert pipx.is_dir()
    receipt = """[tool]
requirements = [
    { name = "its-own-name", extras = ["acp"], path = "/x.whl" },
    { name = "cowsay", specifier = ">=6" },
    { name = "plain" },
]
"""
    installed("acp-package", at="tool", url=of(wheel), mark="uv-receipt.toml", by="uv", says=receipt)
    assert extras.install("mcp") == f"uv tool install --with 'cowsay>=6' --with plain '{wheel}[acp,mcp]'"
    installed("words", at="tool-2", mark="uv-receipt.toml", by="uv", says="no receipt [")
    assert extras.install("mcp") == "uv tool install 'its-own-name[mcp,semantic]'"
    installed("acp-package", at="archive-v0/x", url=of(wheel), by="uv")
    assert extras.install("mcp") == f"uvx --from '{wheel}[acp,mcp]' perdure"
    installed("acp-package", "brotli", "mcp-package", at="archive-v0/y", url=of(wheel), by="uv")
    assert extras.install("semantic") == f"uvx --from '{wheel}[all]' perdure"
