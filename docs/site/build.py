"""Build the documentation as a site: `make docs`. See docs/how/site.md."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import links
import pages
import versions

import perdure

HERE = Path(__file__).resolve().parent
BUILD = pages.ROOT / "build"
SITE, SOURCES = BUILD / "site", BUILD / "site-sources"


def refresh(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder hold exactly these files; one that is the same already isn't touched."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in files:
            path.unlink()
    for name, data in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def sphinx(builder: str, out: Path, version: str, *more: str) -> int:
    environ = {**os.environ, "PERDURE_SITE_VERSION": version}
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-c", str(HERE), "-d", str(BUILD / "site-doctrees")]
    return subprocess.run([*command, "-E", "-q", *more, str(SOURCES), str(out)], env=environ, check=False).returncode


def lacking(site: Path) -> list[str]:
    """Public names that the built reference has no entry for."""
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    told = {name for domain, names in inventory.data.items() if domain.startswith("py:") for name in names}
    return [name for name in pages.public_names() if name not in told]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation as a site in build/site.")
    release = f"build it as version {perdure.__version__}, a release; else it is `dev`"
    parser.add_argument("--release", action="store_true", help=release)
    parser.add_argument("--external", action="store_true", help="also ask the links to other sites (needs the network)")
    parser.add_argument("--at", default="/", help="where it will stand, for the list of versions; by default /")
    told = parser.parse_args()
    version = perdure.__version__ if told.release else versions.DEV

    refresh(SOURCES, pages.stage())
    refresh(BUILD / "site-static", pages.static())
    out = SITE / version
    shutil.rmtree(out, ignore_errors=True)
    if sphinx("html", out, version, "-n", "-W", "--keep-going"):
        print("The site was not built: see the warnings above; names below build/site-sources are those below docs/.")
        return 1
    for left in [*out.rglob("*.map"), out / "_static" / "webpack-macros.html", out / ".buildinfo"]:
        left.unlink(missing_ok=True)  # what the theme itself was built from
    if names := lacking(out):
        print(f"The reference has no entry for {', '.join(names)}.")
        return 1
    checked = links.check(out)
    for line in checked.wrong:
        print(line)
    if checked.wrong:
        print(f"{len(checked.wrong)} of {checked.links:,} links in {out.relative_to(pages.ROOT)} lead nowhere.")
        return 1
    if told.external and sphinx("linkcheck", BUILD / "site-external", version):
        print("Links to other sites are broken: see build/site-external/output.txt.")
        return 1
    built = versions.publish(SITE, told.at)
    print(
        f"{checked.pages} pages, {checked.links:,} links checked; versions in build/site: {', '.join(built)}. "
        "To look at it: python -m http.server -d build/site"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
