"""Another process under another hash seed, for what must be the same bytes in every process (REL-5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def under_another_seed(script: str, *arguments: str) -> str:
    """What a script prints where sets and dicts of names have another order than in this process."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environ, capture_output=True, text=True, encoding="utf-8", check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
