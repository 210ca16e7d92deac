"""The key of a home, by which the same secret has the same id everywhere in it (SEC-5)."""

from __future__ import annotations

import secrets
from pathlib import Path

from holdfast.adapters.files.rooted import Rooted
from holdfast.errors import FileMissing, FileRefused, NameTaken

NAME = "secret-ids.key"
KEY_BYTES = 32


def secret_key(home: Path) -> bytes:
    """The key under a home, made on the first use, 0600; empty where it can't be had: then ids are mere numbers.

    It opens nothing: who has it can only try values against ids.
    """
    try:
        with Rooted.open(home, create=True) as root:
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
