"""The table `[gateway]` of the configuration, and whose request is whose (GW-4, SEC-7)."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from perdure.adapters.config import NAMES, UnusableValue, parse_setting
from perdure.adapters.journal.disk import DISK, make_private, write_new
from perdure.errors import BadSetting, JournalError, nearest
from perdure.gateway.answers import MOST_BYTES
from perdure.settings import Settings


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table in which every name is known."""


class UpstreamConfig(_Table, frozen=True):
    """A model server. With `key_env` its key is that of the environment; without it the client's goes through."""

    url: str
    key_env: str | None = None
    connect_seconds: float = 10.0
    silence_seconds: float = 600.0  # without a byte; longer than any model thinks in silence

    def check(self, name: str) -> None:
        parts = urlsplit(self.url)
        is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
        if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
            raise BadSetting(
                f"gateway.upstreams.{name}: url = {self.url!r}: write it as https://host or https://host/path"
            )
        if parts.scheme == "http" and self.key_env and not _is_near(parts.hostname):
            raise BadSetting(f"gateway.upstreams.{name}: a key would go over plain http to {parts.hostname}: use https")
        for seconds in ("connect_seconds", "silence_seconds"):
            if not getattr(self, seconds) > 0:
                raise BadSetting(
                    f"gateway.upstreams.{name}: {seconds} = {getattr(self, seconds):g}: has to be more than 0"
                )


WIRES = ("anthropic", "openai", "bedrock", "vertex")  # what a route says the upstreams of


class RouteConfig(_Table, frozen=True):
    """Which upstream speaks each protocol, Messages also as others host it, and settings of this route's sessions."""

    anthropic: str | None = None
    openai: str | None = None
    bedrock: str | None = None
    vertex: str | None = None
    settings: dict[str, Any] = {}
    is_managed: bool = True  # false: everything passes through untouched
    project: str | None = None  # the folder whose instruction files and memories all sessions get, if settings say so


class TenantLimits(_Table, frozen=True):
    """What one tenant may use; None: as much as there is (GW-9)."""

    requests_per_minute: int | None = None
    concurrent: int | None = None  # requests that are answered at a time
    tokens_per_day: int | None = None  # of prompts and answers; days are those of UTC
    usd_per_day: float | None = None  # by the list, of models whose price is known

    def check(self, place: str) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadSetting(f"{place}: {name} = {value}: has to be more than 0; leave it out for no limit")

    @property
    def are_daily(self) -> bool:
        """Whether there is a quota of a day, which all gateways of a store count together."""
        return self.tokens_per_day is not None or self.usd_per_day is not None

    def over(self, general: TenantLimits) -> TenantLimits:
        """These limits, with the general ones where there is none of its own."""
        own = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(general, **own)


class TenantConfig(_Table, frozen=True):
    """A client with a key of its own, which the variable `key_env` holds; `upstream_keys` name what is sent instead."""

    key_env: str
    upstream_keys: dict[str, str] = {}
    limits: TenantLimits = TenantLimits()  # each in the place of the general one
    keep_days: int | None = None  # of its sessions; None: for good


_RANGES: dict[str, tuple[float, float | None]] = {
    "port": (0, 65_535),
    "usage_cap_percent": (1, 100),
    "max_body_bytes": (1, None),
    "body_seconds": (0.1, None),
    "max_depth": (1, None),
    "max_messages": (1, None),
    "max_blocks": (1, None),
    "max_event_bytes": (1, None),
    "max_waiting": (1, None),
    "queue_seconds": (0, 600),  # clients give up by then
    "open_sessions": (0, None),
    "open_tokens": (0, None),
    "keep_days": (1, None),
    "lease_seconds": (1, 3_600),
    "drain_seconds": (0, None),
}
_TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}")  # the name of a folder
_ROUTE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")  # a part of a path, which no client writes otherwise
_TAKEN = ("v1", "model", "perdure")  # what paths without a route's name begin with
_Read = TypeVar("_Read", bound=_Table)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_OFFICIAL = {
    "anthropic": UpstreamConfig(url="https://api.anthropic.com"),
    "openai": UpstreamConfig(url="https://api.openai.com"),
}


class GatewayConfig(_Table, frozen=True):
    """Everything the gateway can be told. Each limit says what it bounds."""

    host: str = "127.0.0.1"
    port: int = 8787
    store: str | None = None  # where sessions are kept: postgresql://user@host/database; None: on this machine
    allowed_hosts: tuple[str, ...] = ()  # names beside the loopback ones that a Host header may say
    upstreams: dict[str, UpstreamConfig] = msgspec.field(default_factory=lambda: dict(_OFFICIAL))
    routes: dict[str, RouteConfig] = {}
    tenants: dict[str, TenantConfig] = {}
    limits: TenantLimits = TenantLimits()  # of every tenant that has none of its own
    usage: Literal["capped", "upstream"] = "capped"
    usage_cap_percent: int = 50  # of the window: below where clients begin to compact by themselves
    max_body_bytes: int = 32 * 1024 * 1024  # as much as the Messages API takes
    body_seconds: float = 60.0  # for a request's head to arrive, and for its body
    max_depth: int = 100  # of JSON in a message; deeper ones are passed through unmanaged
    max_messages: int = 100_000  # likewise
    max_blocks: int = 10_000  # of one message, likewise
    max_event_bytes: int = MOST_BYTES  # of an answer: of an event, or of one that is no stream; larger pass unread
    max_waiting: int = 512  # requests at a time, and bodies that arrive; the last quarter is for tenants that have few
    queue_seconds: float = 10.0  # to wait for a place among those that are answered
    open_sessions: int = 64  # kept in memory while nobody uses them …
    open_tokens: int = 8_000_000  # … and at most so large together
    keep_days: int | None = None  # of sessions of clients that aren't configured as tenants; None: for good
    background: Literal["gateway", "workers"] = "gateway"  # who keeps notes and summaries; `perdure worker` is one
    lease_seconds: float = 5.0  # a session in a store stays so long with a process that says nothing, work six times
    drain_seconds: int = 30  # at shutdown, for answers under way
    access_log: str | None = None  # a file that gets a JSON line for each request; "-" is the standard output
    otlp: str | None = None  # the address of an OpenTelemetry collector that gets spans and metrics
    status: Literal["own", "all"] | None = None  # whose sessions a key shows; words are of one's own always; None: own

    @property
    def default_route(self) -> RouteConfig:
        """What holds for paths without the name of a route: the upstreams of these names."""
        given = self.routes.get("default")
        if given is not None:
            return given
        named: dict[str, Any] = {name: name for name in WIRES if name in self.upstreams}
        return RouteConfig(**named)

    def limits_of(self, tenant: str) -> TenantLimits:
        """What a tenant may use."""
        known = self.tenants.get(tenant)
        return self.limits if known is None else known.limits.over(self.limits)

    def route(self, name: str) -> RouteConfig | None:
        return self.default_route if name == "default" else self.routes.get(name)


def gateway_config(table: Mapping[str, Any]) -> GatewayConfig:
    """The table `[gateway]` of a configuration, checked. Raises `BadSetting`, which names the entry."""
    for section, kind in (("upstreams", UpstreamConfig), ("routes", RouteConfig), ("tenants", TenantConfig)):
        entries = table.get(section)
        for name, entry in entries.items() if isinstance(entries, Mapping) else ():
            _converted(entry, kind, f"gateway.{section}.{name}")
    config = _converted(table, GatewayConfig, "gateway")
    for name in _RANGES:
        _check_range("gateway", name, getattr(config, name))
    for host in config.allowed_hosts:
        if not _is_host(host):
            raise BadSetting(
                f"gateway: allowed_hosts: {host!r}: write a name or an address alone, without scheme or port"
            )
    for name, upstream in config.upstreams.items():
        upstream.check(name)
    for name, route in config.routes.items():
        if not _ROUTE.fullmatch(name):
            raise BadSetting(f"gateway.routes: {name!r}: letters, digits, -, _ and dots, up to 64, no dot in front")
        if name in _TAKEN:
            raise BadSetting(f"gateway.routes.{name}: other paths begin with /{name}: give it another name")
        for protocol in WIRES:
            target = getattr(route, protocol)
            if target is not None and target not in config.upstreams:
                raise BadSetting(
                    f"gateway.routes.{name}: {protocol} = {target!r} is no upstream; there are "
                    f"{', '.join(config.upstreams) or 'none'}"
                )
        _check_project(name, route, settings_of(route, Settings(), name))
    for name, tenant in config.tenants.items():
        _check_tenant(config, name, tenant)
    if config.otlp is not None and not config.otlp.startswith(("http://", "https://")):
        raise BadSetting(f"gateway: otlp = {config.otlp!r}: write it as http://host:4318")
    config.limits.check("gateway.limits")
    return config


def _check_tenant(config: GatewayConfig, name: str, tenant: TenantConfig) -> None:
    if not _TENANT.fullmatch(name):
        raise BadSetting(f"gateway.tenants: {name!r}: up to 64 ASCII letters, digits, - and _ make a name")
    if unknown := [key for key in tenant.upstream_keys if key not in config.upstreams]:
        raise BadSetting(f"gateway.tenants.{name}: upstream_keys: {unknown[0]!r} is no upstream")
    tenant.limits.check(f"gateway.tenants.{name}.limits")
    _check_range(f"gateway.tenants.{name}", "keep_days", tenant.keep_days)


def _check_project(name: str, route: RouteConfig, settings: Settings) -> None:
    """Whose instruction files and memories: a folder of this machine is named here, as no request may (SEC-7)."""
    place = f"gateway.routes.{name}"
    if route.project is None:
        if settings.instructions:
            raise BadSetting(f"{place}: settings: instructions = true needs a folder: set project")
        if settings.memory and settings.memory_directory:
            raise BadSetting(f"{place}: settings: memory_directory is of one project: set project, or leave it out")
    elif not (folder := Path(route.project).expanduser()).is_absolute() or not folder.is_dir():
        raise BadSetting(f"{place}: project = {route.project!r}: has to be the whole path of a folder that is there")


def settings_of(route: RouteConfig, base: Settings, name: str = "default") -> Settings:
    """The settings of a route: the user's, with its own over them. Raises `BadSetting`.

    Instruction files and memories are a client's own affair unless its route wants ours, and what a client puts into
    its user's messages stays as it is.
    """
    changes: dict[str, Any] = {"instructions": False, "memory": False, "neutralise": "results"}
    for key, given in route.settings.items():
        place = f"gateway.routes.{name}.settings: {key} = {given!r}"
        if key not in NAMES:
            raise BadSetting(f"{place}: unknown setting{nearest(key, NAMES)}; `perdure config` lists all")
        try:
            changes[key] = parse_setting(key, given, getattr(base, key))
        except UnusableValue as e:
            raise BadSetting(f"{place}: {e}") from None
    return replace(base, **changes)


def _is_near(host: str) -> bool:
    """Whether a host is this machine, or one of a network that isn't the internet."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_private


def _converted(table: Any, kind: type[_Read], place: str) -> _Read:
    """A table as what it has to be; msgspec's complaints are told with the place first, and in our words."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as e:
        text, _, at = str(e).partition(" - at `$.")
        at = at.rstrip("`")
        if (unknown := _UNKNOWN.fullmatch(text)) is not None:
            names = (TenantLimits if at == "limits" else kind).__struct_fields__
            text = f"unknown entry {unknown[1]!r}{nearest(unknown[1], names)}"
        raise BadSetting(f"{place}: {at}: {text}" if at else f"{place}: {text}") from None


def _check_range(place: str, name: str, value: float | None) -> None:
    least, most = _RANGES[name]
    if value is None or (least <= value and (most is None or value <= most)):
        return
    wanted = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
    hint = "; leave it out to keep all" if name == "keep_days" else ""
    raise BadSetting(f"{place}: {name} = {value:g}: has to be {wanted}{hint}")


def _is_host(name: str) -> bool:
    if re.fullmatch(r"[A-Za-z0-9._-]+", name):
        return True
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


ANYONE = "local"  # who brings no credential at all
PAGE_KEY = "page.key"  # the file beside the secret by which this user sees all sessions where there are no tenants
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who asks, and the keys that go to each upstream instead of theirs; `shared` names where others' is the same."""

    id: str
    keys: Mapping[str, str]
    shared: frozenset[str] = frozenset()


OWNER = Tenant("owner of the home", {})  # who has the key of the pages; no tenant can have this id


class Tenants:
    """Everybody who may ask. Made anew when the configuration is."""

    def __init__(self, config: GatewayConfig, environ: Mapping[str, str], secret: bytes) -> None:
        self._secret = secret
        ours = {name: up.key_env for name, up in config.upstreams.items() if up.key_env is not None}
        self._shared = {name: _named(variable, environ, name) for name, variable in ours.items()}
        self._known: list[tuple[bytes, Tenant]] = []
        keys = {name: {**self._shared, **_mapped(name, tenant, environ)} for name, tenant in config.tenants.items()}
        used = Counter(key for some in keys.values() for key in set(some.values()))
        for name, tenant in config.tenants.items():
            own = environ.get(tenant.key_env)
            if not own:
                raise BadSetting(f"gateway.tenants.{name}: the variable {tenant.key_env} holds no key")
            shared = frozenset(up for up, key in keys[name].items() if used[key] > 1)
            self._known.append((self._hash(own), Tenant(name, keys[name], shared)))

    @property
    def is_closed(self) -> bool:
        """Whether only configured tenants may ask."""
        return bool(self._known)

    def of(self, headers: Iterable[tuple[bytes, bytes]], query: bytes = b"") -> Tenant | None:
        """The tenant of a request; None for a stranger where tenants are configured."""
        credential = credential_of(headers, query)
        if self.is_closed:
            seen = self._hash(credential)
            found = [tenant for known, tenant in self._known if hmac.compare_digest(known, seen)]
            return found[0] if found else None
        name = f"key-{self._hash(credential).hex()[:20]}" if credential else ANYONE
        return Tenant(name, self._shared, frozenset(self._shared))

    def _hash(self, credential: str) -> bytes:
        return hmac.new(self._secret, credential.encode("utf-8", "surrogateescape"), hashlib.sha256).digest()


def credential_of(headers: Iterable[tuple[bytes, bytes]], query: bytes = b"") -> str:
    """The key that a client presents, in the header of either protocol, of Azure or of Google, or in the query; empty
    for none."""
    given = {name.lower(): value.strip() for name, value in headers}  # servers may keep their case
    kind, _, token = given.get(b"authorization", b"").partition(b" ")
    bearer = token.strip() if kind.lower() == b"bearer" else b""
    key = given.get(b"x-api-key") or bearer or given.get(b"api-key") or given.get(b"x-goog-api-key") or b""
    if not key and query:
        named = (part.partition(b"=") for part in query.split(b"&"))
        key = next((unquote_to_bytes(value.replace(b"+", b" ")) for name, _, value in named if name == b"key"), b"")
    return key.decode("latin-1")


def _mapped(name: str, tenant: TenantConfig, environ: Mapping[str, str]) -> dict[str, str]:
    return {upstream: _named(variable, environ, name) for upstream, variable in tenant.upstream_keys.items()}


def _named(variable: str, environ: Mapping[str, str], name: str) -> str:
    key = environ.get(variable)
    if not key:
        raise BadSetting(f"gateway: {name} needs a key: set {variable}")
    return key


def secret_at(folder: Path) -> bytes:
    """The secret that hashes credentials, made on first use and private to the user. Raises `JournalError`."""
    return _kept_at(folder, "secret", lambda: secrets.token_bytes(_SECRET_BYTES))


def page_key_at(folder: Path) -> bytes:
    """The key of the pages, made on first use and private to the user. Raises `JournalError`."""
    return _kept_at(folder, PAGE_KEY, f"{secrets.token_urlsafe(_SECRET_BYTES)}\n".encode).strip()


def _kept_at(folder: Path, name: str, make: Callable[[], bytes]) -> bytes:
    path = folder / name
    try:
        make_private(folder)
        if not path.exists():
            draft = path.with_name(f"{name}.new-{secrets.token_hex(8)}")
            write_new(DISK, draft, make())
            try:
                DISK.link(draft, path)  # whoever is first decides
            except FileExistsError:
                pass
            finally:
                draft.unlink(missing_ok=True)
            DISK.sync_directory(folder)
        return path.read_bytes()
    except OSError as e:
        raise JournalError(f"{path}: {e.strerror or e}: the gateway's secret can't be kept") from e
