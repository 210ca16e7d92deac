"""Running the gateway: uvicorn, signals, and the configuration read again on SIGHUP."""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
import math
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perdure.adapters.config import Config
from perdure.adapters.journal.append_file import SessionLock, read_holder
from perdure.adapters.journal.disk import make_private
from perdure.adapters.journal.store import GATEWAY
from perdure.adapters.listening import ListeningServer
from perdure.adapters.machine.system import RELOAD_SIGNAL
from perdure.errors import BadSetting, SessionBusy
from perdure.gateway.admission import HeldPlaces, Refusal
from perdure.gateway.app import GatewayApp
from perdure.gateway.config import GatewayConfig, gateway_config
from perdure.gateway.gateway import Gateway
from perdure.gateway.requests import LARGE_BODY_BYTES
from perdure.gateway.sockets import GIVES_WAY, LARGE_MESSAGES, PLACES, SMALL_MESSAGE_BYTES
from perdure.ports.home import Store
from perdure.wiring.stores import is_shared, store_at

_LOG = logging.getLogger("perdure.gateway")
BACKLOG = 1024
_LOOK_SECONDS = 0.05  # between two looks whether answers are still under way
_TOO_SLOW = 1008  # why a connection is closed whose message takes too long
WEBSOCKETS: type[asyncio.Protocol] | Literal["none"] = "none"
if find_spec("websockets"):
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
    from websockets.frames import Frame

    class _Socket(WebSocketsSansIOProtocol):
        """A WebSocket whose answers under way are still sent when the gateway ends; then the application closes it.

        A large message is read on once there are places for it, and has to be whole after a while.
        """

        _enter: Callable[[], Awaitable[HeldPlaces]] | None = None
        _seconds = 0.0
        _places: HeldPlaces | None = None  # of the message on its way
        _wait: asyncio.Task[None] | None = None  # for them
        _late: asyncio.TimerHandle | None = None

        def handle_connect(self, event: Any) -> None:
            super().handle_connect(event)
            if self.response.status_code == 101:
                self._taken = deque[HeldPlaces | None]()  # of the messages that the application hasn't taken yet
                self.scope["extensions"][LARGE_MESSAGES] = self._large_messages  # type: ignore[assignment]

        def _large_messages(self, enter: Callable[[], Awaitable[HeldPlaces]], seconds: float) -> None:
            self._enter, self._seconds = enter, seconds

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._enter is None or self._wait is not None or self._places is not None or self.close_sent:
                return
            if len(self.conn.reader.buffer) + sum(map(len, self.frames)) > SMALL_MESSAGE_BYTES:
                self.transport.pause_reading()
                self.stop_keepalive()  # no answer to it would be read
                self._wait = self.loop.create_task(self._entered(self._enter))

        async def _entered(self, enter: Callable[[], Awaitable[HeldPlaces]]) -> None:
            try:
                places = await enter()
            except Refusal as e:
                self._refuse(GIVES_WAY, e.text)
                return
            finally:
                self._wait = None
            if self.disconnected or self.close_sent:
                places.keep(0)
                return
            self._places = places
            text = f"a message took more than {self._seconds:g} s"
            self._late = self.loop.call_later(self._seconds, self._refuse, _TOO_SLOW, text)
            self.transport.resume_reading()
            self.start_keepalive()

        def _refuse(self, code: int, text: str) -> None:
            if self.close_sent or self.transport.is_closing():
                return
            self.conn.fail(code, text)
            self.handle_parser_exception()

        def handle_text(self, event: Frame) -> None:
            self.handle_bytes(event)  # whoever reads the JSON finds out whether it is text

        def handle_bytes(self, event: Frame) -> None:
            super().handle_bytes(event)
            event.data = b""  # the parser keeps the last frame until there is another

        def handle_cont(self, event: Frame) -> None:
            super().handle_cont(event)
            event.data = b""

        def send_receive_event_to_app(self) -> None:
            waiting = self.queue.qsize()
            super().send_receive_event_to_app()
            places, self._places = self._places, None
            self._end_of_large()
            if self.queue.qsize() > waiting:
                self._taken.append(places)
            elif places is not None:
                places.keep(0)

        def _end_of_large(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_of_large()
            super().connection_lost(exc)
            if self._places is not None:
                self._places.keep(0)

        async def receive(self) -> Any:
            message: Any = await super().receive()
            if self._wait is not None:
                self.transport.pause_reading()
            if message["type"] == "websocket.receive" and (places := self._taken.popleft()) is not None:
                places.keep(max(1, len(message["bytes"]) // LARGE_BODY_BYTES))
                message[PLACES] = places
            return message

        def on_task_complete(self, task: asyncio.Task[None]) -> None:
            super().on_task_complete(task)
            while self._taken:
                if (places := self._taken.popleft()) is not None:
                    places.keep(0)

        def shutdown(self) -> None:
            if not self.handshake_complete or self.close_sent:
                super().shutdown()

        async def send(self, event: Any) -> None:
            await super().send(event)
            if event["type"] == "websocket.http.response.body" and not event.get("more_body"):
                self.handshake_complete = True  # it was refused, with an answer; uvicorn would log an error otherwise

    WEBSOCKETS = _Socket


async def serve(
    read: Callable[[], Config],
    environ: Mapping[str, str],
    *,
    on_ready: Callable[[str, GatewayConfig], None],
    on_note: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM; answers under way get `drain_seconds` to end.

    `read` gives the configuration, now and on each SIGHUP; where it listens stays as it was at the start. Raises
    `BadSetting` for one that can't be used at the start; later, `on_note` says so and the one before stays in force.
    `on_ready` learns the address, and what holds there.
    """
    config = _checked(read())
    given = gateway_config(config.gateway)
    with ExitStack() as held:
        if not is_shared(given.store):
            held.callback(_lock(given.store or config.home).release)
        if given.store is None:
            gateway = Gateway(config, environ)
        else:
            store = store_at(given.store, lease_seconds=given.lease_seconds)
            gateway = Gateway(config, environ, store=store, secret=await _shared_secret(store))
        await _serve(gateway, read, on_ready, on_note)


async def _serve(
    gateway: Gateway,
    read: Callable[[], Config],
    on_ready: Callable[[str, GatewayConfig], None],
    on_note: Callable[[str], None],
) -> None:
    told = gateway.active.gateway
    server = GatewayServer(GatewayApp(gateway), told.host, told.port, lambda url: on_ready(url, told))

    def reload() -> None:
        try:
            config = read()
            fixed = {name: getattr(told, name) for name in ("host", "port", "store", "lease_seconds")}
            gateway.reload(_checked(replace(config, gateway={**config.gateway, **fixed})))
        except BadSetting as e:
            on_note(f"the configuration stays as it was: {e}")
            return
        default = GatewayConfig()
        moved = [name for name in fixed if config.gateway.get(name, getattr(default, name)) != fixed[name]]
        later = f"; {' and '.join(moved)} will change with the next start" if moved else ""
        on_note(f"the configuration was read again{later}")

    gc.collect()
    gc.freeze()  # what was loaded stays; looking through it again and again would hold up everybody's requests
    if RELOAD_SIGNAL is not None:
        asyncio.get_running_loop().add_signal_handler(RELOAD_SIGNAL, reload)
    await server.serve()


def _lock(place: str | Path) -> SessionLock:
    """Lock a home of files for this gateway; the lock ends with its process. Raises `BadSetting` if another has it."""
    home = Path(place).expanduser()
    folder = home / GATEWAY
    try:
        make_private(folder)
        return SessionLock.acquire(folder)
    except SessionBusy:
        holder = read_holder(folder)
        who = "" if holder is None else f" (process {holder.pid} on {holder.host})"
        raise BadSetting(
            f"{home}: another gateway{who} serves this home, and only one can: stop it, or let both share a PostgreSQL "
            "database with `perdure serve --store postgresql://…`"
        ) from None
    except OSError as e:
        raise BadSetting(f"{folder}: {e.strerror or e}: choose another home with PERDURE_HOME") from e


def _checked(config: Config) -> Config:
    """A configuration whose work somebody can do; raises `BadSetting`."""
    told = gateway_config(config.gateway)
    if told.background == "workers" and not is_shared(told.store):
        raise BadSetting(
            'gateway: background = "workers": a worker needs a database that it shares with the gateway: '
            'set store = "postgresql://…", or leave the work to the gateway'
        )
    return config


async def _shared_secret(store: Store) -> bytes:
    """What tenants are told apart by, the same in all gateways of a store, and nothing else is told apart by it.

    Raises `JournalError` for a store that can't keep anything, before the first request finds that out.
    """
    try:
        await store.probe()
        return hmac.digest(await store.home().secret_key(), b"gateway", "sha256")
    except BaseException:
        await store.close()
        raise


class _Connection(HttpToolsProtocol):
    """A connection of a client. A head that takes too long ends it, and what follows a body is no header.

    Otherwise a trailer would join the headers that tenants, hosts and upstreams are told by (SEC-7).
    """

    _is_head = True
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head = True
        if self._late is None:
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_head = False
        self._head_came()
        super().on_headers_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """The application says so itself, to the client."""

    def _await_head(self) -> None:
        app = self.config.app
        assert isinstance(app, GatewayApp)
        self._late = self.loop.call_later(app.gateway.active.gateway.body_seconds, self.transport.close)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class GatewayServer(ListeningServer):
    """The gateway on a socket. Told to end, it finishes what is under way, and tells whoever still comes to ask again.

    Only then it listens no longer. A second Ctrl-C ends it at once: what was acknowledged is as after a crash.
    """

    def __init__(
        self, app: GatewayApp, host: str, port: int, on_ready: Callable[[str], None] = lambda url: None
    ) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=_Connection,
            ws=WEBSOCKETS,
            ws_per_message_deflate=False,  # what is streamed is small, and the machine is near
            ws_max_size=app.gateway.active.gateway.max_body_bytes,
            lifespan="on",
            log_config=None,
            access_log=False,  # paths and queries are the client's
            server_header=False,
            backlog=BACKLOG,
            proxy_headers=False,
        )
        super().__init__(config, on_ready)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        gateway, loop = self._app.gateway, asyncio.get_running_loop()
        seconds = gateway.active.gateway.drain_seconds
        until = loop.time() + seconds
        self._app.drain()
        if under_way := gateway.admission.in_flight:
            _LOG.warning("ending: %d requests under way have %d s; Ctrl-C ends at once", under_way, seconds)
        while gateway.admission.in_flight and loop.time() < until:
            await asyncio.sleep(_LOOK_SECONDS)
            if self.force_exit:
                break
        self.config.timeout_graceful_shutdown = max(0, math.ceil(until - loop.time()))
        log = logging.getLogger("uvicorn.error")
        log.addFilter(_is_no_cancellation)  # it stays: what is cut off now ends with the loop
        await super().shutdown(sockets)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
