"""The command line: `perdure`. Everything it needs is imported when a command runs (SPD-5)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (docs/reference/cli.md)."""
    try:
        from perdure.cli.app import run
    except KeyboardInterrupt:  # while it was still starting: nothing was begun
        sys.stderr.write("perdure: interrupted\n")
        return 130
    return run(sys.argv[1:] if arguments is None else list(arguments))
