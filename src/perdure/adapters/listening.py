"""A server of ours on a socket: where it listens, why it can't, and whose requests may come in (SEC-7)."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
from collections.abc import Callable, Sequence

import uvicorn

from perdure.errors import BadSetting

_LOOPBACK_NAME = "localhost"
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?\Z")


class ListeningServer(uvicorn.Server):
    """Tells when it listens, and where. Raises `BadSetting` where nothing can."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        log = logging.getLogger("uvicorn.error")
        log.addFilter(_is_no_bare_error)
        try:
            await super().startup(sockets)
        except SystemExit as e:  # uvicorn's way to say that nothing can listen there
            why = e.__context__
            if not isinstance(why, OSError):
                raise
            said = os.strerror(why.errno) if why.errno and why.errno > 0 else why.strerror or str(why)
            where = f"{self.config.host}:{self.config.port}"
            raise BadSetting(f"{where}: {said}: give another address or port") from None
        finally:
            log.removeFilter(_is_no_bare_error)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


def _is_no_bare_error(record: logging.LogRecord) -> bool:
    return not isinstance(record.msg, OSError)


def foreign_page(headers: Sequence[tuple[bytes, bytes]], allowed: tuple[str, ...]) -> str:
    """Whether a browser was tricked into asking: `host` or `origin`, the header that says so; else nothing.

    `allowed` are names that this machine is known by, beside those of its loopback. A header that is sent several times
    has to be right each time: who reads it next may take another one of them.
    """
    hosts, origins = (
        [value.decode("latin-1") for one, value in headers if one == name] for name in (b"host", b"origin")
    )
    if not all(names_this_machine(host, allowed) for host in hosts or ("",)):
        return "host"
    if not all(names_this_machine(origin.partition("://")[2], allowed) for origin in origins):
        return "origin"
    return ""


def names_this_machine(host: str, allowed: tuple[str, ...] = ()) -> bool:
    """Whether a host, with or without a port, is this machine's loopback, or one of the names that are allowed."""
    found = _HOST.match(host)
    if found is None:
        return False
    name = (found[1] or found[2]).lower()
    if name == _LOOPBACK_NAME or name in (one.lower() for one in allowed):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
