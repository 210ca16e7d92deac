"""Other services for a session that is open. Hosts give them when they open it; a test may want to change its mind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perdure.engine.session import LiveSession


def serve(session: LiveSession, **given: Any) -> None:
    """Let these services take the place of the session's own."""
    session.services = replace(session.services, **given)
