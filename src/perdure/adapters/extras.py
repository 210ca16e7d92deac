"""How an optional part is installed: from where this program came, by what installed it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.metadata import Distribution

PACKAGE = __name__.partition(".")[0]
_EVERY: Final = "all"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_OF_EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']""")


def release() -> str:
    """The version that is installed; empty when a program runs from its sources."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""


def install(extra: str) -> str:
    """The command that adds an extra, for the program that installed this one.

    The folder, file or address that an installer recorded (PEP 610) is named where there is one; without a record it
    came from an index, and is named as it is called there: another project may have our name on another index. What
    makes an environment anew gets all extras that are there; what adds to one gets this extra alone.
    """
    from importlib.metadata import distribution, packages_distributions

    found = packages_distributions().get(PACKAGE)
    if not found:
        return f"pip install '.[{extra}]' in the folder of its sources"
    held, environment = distribution(found[0]), Path(sys.prefix)
    recorded = _recorded(held)
    if (gone := _local(recorded)) and not gone.exists():
        return f"install it with the extra {extra} from where it is now, as {gone} isn't there any more"
    every = {extra, *_present(held)}
    all_of_them = _source(held, recorded, {_EVERY} if _EVERY in every else every)
    is_editable = bool(recorded.get("dir_info", {}).get("editable"))
    editable = "-e " if is_editable else ""
    if (environment / "pipx_metadata.json").is_file():
        option = "--editable " if is_editable else ""
        return f"pipx install --force {option}{all_of_them}"
    if (environment / "uv-receipt.toml").is_file():
        beside = "".join(f"--with {shlex.quote(one)} " for one in _beside(environment / "uv-receipt.toml", held))
        return f"uv tool install {editable}{beside}{all_of_them}"
    if environment.parent.name == "archive-v0":  # uv's cache, where it puts what uvx runs
        return f"uvx --from {all_of_them} {PACKAGE}"
    by_uv = (held.read_text("INSTALLER") or "").strip() == "uv"  # such an environment may have no pip
    adds = f"uv pip install --python {shlex.quote(str(environment))}" if by_uv else "pip install"
    return f"{adds} {editable}{_source(held, recorded, {extra})}"


def _recorded(held: Distribution) -> dict[str, Any]:
    try:
        told = json.loads(held.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _local(recorded: dict[str, Any]) -> Path | None:
    """The folder or file that it was installed from."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    url = urlsplit(recorded.get("url", ""))
    is_file = url.scheme == "file" and "vcs_info" not in recorded
    return Path(url2pathname(url.path)) if is_file else None


def _source(held: Distribution, recorded: dict[str, Any], extras: set[str]) -> str:
    """What an installer takes, with extras, quoted for a shell."""
    chosen = f"[{','.join(sorted(extras))}]"
    if local := _local(recorded):
        return shlex.quote(f"{local}{chosen}")
    named = f"{held.name}{chosen}"
    if url := recorded.get("url"):
        vcs, folder = recorded.get("vcs_info", {}), recorded.get("subdirectory")
        named += f" @ {vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else f" @ {url}"
        named += f"#subdirectory={folder}" if folder else ""
    return shlex.quote(named)


def _present(held: Distribution) -> set[str]:
    """The extras whose packages are all here, apart from those for other systems and versions of Python."""
    from importlib.metadata import PackageNotFoundError, distribution

    def is_here(name: str) -> bool:
        try:
            return bool(distribution(name))
        except PackageNotFoundError:
            return False

    needed: dict[str, list[tuple[bool, bool]]] = {}
    for one in held.requires or ():
        name, extra = _NAME.match(one), _OF_EXTRA.search(one)
        if name and extra:
            always = one.partition(";")[2].strip() == extra[0]
            needed.setdefault(extra[1], []).append((is_here(name[0]), always))
    return {
        extra
        for extra, packages in needed.items()
        if any(here for here, _ in packages) and all(here for here, always in packages if always)
    }


def _beside(receipt: Path, held: Distribution) -> list[str]:
    """What uv installed along with a tool, as far as it comes from an index."""
    import tomllib

    try:
        told = tomllib.loads(receipt.read_text("utf-8"))["tool"]["requirements"]
        return [f"{one['name']}{one.get('specifier', '')}" for one in told if one["name"] != held.name]
    except (OSError, ValueError, LookupError, TypeError):
        return []
