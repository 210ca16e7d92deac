"""`perdure store copy` that is killed at the n-th time that it asks the disk or the database for anything.

    python copier.py N FROM TO [OPTIONS]

It prints how often it asked when it comes to its end; N = 0 never kills.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import psycopg

from perdure.adapters.journal.disk import Disk
from perdure.cli import main

_CALLS = ("open", "write", "write_at", "sync_data", "sync_directory", "rename", "link", "unlink")


class Killer:
    """Ends the process without a word, before one call."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **more)

        return call


if __name__ == "__main__":
    killer = Killer(int(sys.argv[1]))
    for name in _CALLS:
        setattr(Disk, name, killer.around(getattr(Disk, name)))
    for kind in (psycopg.AsyncConnection, psycopg.AsyncCursor):
        setattr(kind, "execute", killer.around(kind.execute))  # noqa: B010 - mypy knows it as no variable
    sys.argv[1:] = ["store", "copy", *sys.argv[2:]]
    try:
        main()
    finally:
        print(f"calls {killer.count}", flush=True)
