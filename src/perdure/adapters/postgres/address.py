"""What the URL of a database says of it, for people: never its password (CLI-5, SEC-7)."""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from perdure.errors import JournalError

_PORTS: Final = re.compile(r"[0-9,]*")
_ENCODE: Final = "write @ : / ? # % of a user's name or password as %40 %3A %2F %3F %23 %25"


def place_of(url: str) -> str:
    """Where a database is, without a user and a password.

    Raises:
        JournalError: It isn't the URL of one. What is wrong with one that holds a password isn't quoted.
    """
    user = url.partition("://")[2].rpartition("@")[0]
    try:
        parts = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError) as e:
        is_secret = ":" in user or "password" in url
        said = "" if is_secret else f": {str(e).strip().splitlines()[0].rstrip('.')}"
        raise JournalError(f"not the URL of a PostgreSQL database{said or f': {_ENCODE}'}") from None
    host, port, name = (str(parts.get(part) or "") for part in ("host", "port", "dbname"))
    if not _PORTS.fullmatch(port) or "@" in name + host:  # a password with a slash is cut in two
        raise JournalError(f"not the URL of a PostgreSQL database: {_ENCODE}")
    return f"postgresql://{host or 'localhost'}:{port or 5432}/{name}"
