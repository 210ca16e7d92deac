"""How an optional part is installed: named after the distribution this program came in, whatever that is called."""

from __future__ import annotations

PACKAGE = __name__.partition(".")[0]


def release() -> str:
    """The version that is installed; empty when a program runs from its sources."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""


def install(extra: str) -> str:
    """The command that installs an extra. A program that runs from its sources is installed from them.

    It never names a distribution that isn't the one installed: on an index, another project may have the name.
    """
    from importlib.metadata import packages_distributions

    found = packages_distributions().get(PACKAGE)
    return f"pip install '{found[0]}[{extra}]'" if found else f"pip install '.[{extra}]' in the folder of its sources"
