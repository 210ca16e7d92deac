"""A picture of the page of `perdure report`, taken in Chromium, and marked with what the page was made by."""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.browser.test_report import CHROMIUM, seen

import perdure.lab.report

SOURCES: Final = ("page.css", "page.js", "page.py")
WIDE, HIGH = 1000, 668
_MARK: Final = b"perdure page\0"


def look() -> str:
    """A hash of what decides how the page looks."""
    folder = Path(perdure.lab.report.__file__).parent
    return sha256(b"\0".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()[:16]


def taken(log: Path) -> bytes:
    """The picture of a log's page. Raises `SystemExit` where there is no Chromium."""
    if not CHROMIUM:
        sys.exit("the report's picture needs Chromium (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder) / "report.html", Path(folder) / "report.png"
        command = [sys.executable, "-m", "perdure", "report", log.name, "-o", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=log.parent)
        seen(page, f"--screenshot={picture}", f"--window-size={WIDE},{HIGH}")
        return _marked(picture.read_bytes(), look())


def look_in(picture: bytes) -> str:
    """The hash with which a picture was marked; empty where it wasn't."""
    for kind, data in _chunks(picture):
        if kind == b"tEXt" and data.startswith(_MARK):
            return data.removeprefix(_MARK).decode("latin-1")
    return ""


def _marked(picture: bytes, words: str) -> bytes:
    """A PNG with a text in front of its end."""
    data = b"tEXt" + _MARK + words.encode("latin-1")
    chunk = struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    return picture[:-12] + chunk + picture[-12:]


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(picture):
        (size,) = struct.unpack_from(">I", picture, at)
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]
        at += size + 12
