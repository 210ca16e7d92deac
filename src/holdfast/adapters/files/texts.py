"""`ports.Files` on this disk: the text of regular files of a sensible size, and nothing else (RST-1)."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import anyio.to_thread

from holdfast.context.restore.registry import FileNow

GONE = "no longer on disk"
_SNIFF_BYTES = 8_192
_WHY = {
    errno.ENOENT: GONE,
    errno.ENOTDIR: GONE,
    errno.ELOOP: "a symbolic link now",
    errno.EACCES: "may not be read",
    errno.EPERM: "may not be read",
}


class ProjectFiles:
    """Files as the agent names them; relative paths are taken from the project's folder.

    A path that has become a symbolic link isn't followed: what is restored goes to the model unasked, so a link that
    was put in the place of a file must not bring another one in. Devices, pipes and folders are never opened for long.
    """

    def __init__(self, project: str | Path) -> None:
        self._project = Path(project)

    async def read(self, paths: tuple[str, ...], *, limit_bytes: int) -> tuple[FileNow, ...]:
        if not paths:
            return ()
        return await anyio.to_thread.run_sync(self._read_all, paths, limit_bytes)

    def _read_all(self, paths: tuple[str, ...], limit_bytes: int) -> tuple[FileNow, ...]:
        return tuple(self._read(path, limit_bytes) for path in paths)

    def _read(self, path: str, limit_bytes: int) -> FileNow:
        try:
            return self._opened(path, limit_bytes)
        except OSError as e:
            return FileNow(path, None, _WHY.get(e.errno or 0, "can't be read"))
        except ValueError:  # a NUL in the path, a lone surrogate
            return FileNow(path, None, "not a path")

    def _opened(self, path: str, limit_bytes: int) -> FileNow:
        place = self._project / Path(path).expanduser()
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        fd = os.open(place, flags)
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                return FileNow(path, None, "not a regular file")
            if about.st_size > limit_bytes:
                return FileNow(path, None, f"too large ({about.st_size:,} bytes)")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(limit_bytes + 1)
        finally:
            os.close(fd)
        if len(data) > limit_bytes:
            return FileNow(path, None, "too large")
        if b"\0" in data[:_SNIFF_BYTES]:
            return FileNow(path, None, "not a text file")
        try:
            return FileNow(path, data.decode("utf-8").replace("\r\n", "\n"))
        except UnicodeDecodeError:
            return FileNow(path, None, "not a text file")
