"""What a home keeps beside its sessions: its key for secrets, and what was learned about counting (SEC-5, TOK-4)."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from perdure.adapters.journal.disk import DISK, Disk, discard, make_private, write_new
from perdure.adapters.machine.rooted import RootedFolder
from perdure.errors import FileMissing, FileRefused, NameTaken

NAME = "secret-ids.key"
KEY_BYTES = 32


def secret_key(home: Path) -> bytes:
    """The key under a home, made on the first use, 0600; empty where it can't be had: then ids are mere numbers.

    It opens nothing: who has it can only try values against ids.
    """
    try:
        with RootedFolder.open(home, create=True) as root:
            for _ in range(2):
                try:
                    key = root.read(NAME, limit_bytes=KEY_BYTES)
                    return key if len(key) == KEY_BYTES else b""
                except FileMissing:
                    try:
                        root.write(NAME, secrets.token_bytes(KEY_BYTES), is_new=True)
                    except NameTaken:
                        pass  # somebody else made it
    except FileRefused:
        pass
    return b""


_NAME = "calibration.json"
_MOST_MODELS = 200


class FileCalibrations:
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
