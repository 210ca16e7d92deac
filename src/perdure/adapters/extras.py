"""How an optional part is installed: named after the distribution this program came in, whatever that is called."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = __name__.partition(".")[0]


def release() -> str:
    """The version that is installed; empty when a program runs from its sources."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""


def install(extra: str) -> str:
    """The command that installs an extra, by what installed this program.

    A program that runs from its sources is installed from them. It never names a distribution that isn't the one
    installed: on an index, another project may have the name.
    """
    from importlib.metadata import packages_distributions

    found = packages_distributions().get(PACKAGE)
    if not found:
        return f"pip install '.[{extra}]' in the folder of its sources"
    what, environment = f"'{found[0]}[{extra}]'", Path(sys.prefix)
    if (environment / "pipx_metadata.json").is_file():
        return f"pipx install --force {what}"
    if (environment / "uv-receipt.toml").is_file():
        return f"uv tool install {what}"
    if environment.parent.name == "archive-v0":  # uv's cache, where it puts what uvx runs
        return f"uvx --from {what} {PACKAGE}"
    return f"pip install {what}"
