"""What was learned about models' counting, kept from one session to the next (TOK-4).

One small JSON file in the home: model id to reported tokens for each estimated one. It is a cache: losing it, or the
race of two sessions that end at once, costs a session some accuracy at its start and nothing else (REL-12).
"""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.adapters.files.disk import DISK, Disk, discard, make_private, write_new

_NAME = "calibration.json"
_MOST_MODELS = 200


class Calibrations:
    """`ports.Calibrations` as a file; it never raises: a home that can't be read or written just teaches nothing."""

    def __init__(self, home: Path, *, disk: Disk = DISK) -> None:
        self._path = home / _NAME
        self._disk = disk

    def ratio(self, model: str) -> float | None:
        value = self._read().get(model)
        return float(value) if isinstance(value, int | float) and 0.1 < value < 10 else None

    def learn(self, model: str, ratio: float) -> None:
        known = self._read()
        known.pop(model, None)
        known[model] = ratio
        data = json.dumps(dict(list(known.items())[-_MOST_MODELS:]), indent=1).encode()
        draft = self._path.with_suffix(".new")
        try:
            make_private(self._path.parent)
            discard(self._disk, draft)
            write_new(self._disk, draft, data)
            self._disk.rename(draft, self._path)
        except OSError:
            return

    def _read(self) -> dict[str, object]:
        try:
            known = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return known if isinstance(known, dict) else {}
