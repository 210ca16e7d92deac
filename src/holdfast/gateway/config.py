"""The table `[gateway]` of the user's configuration: who may ask, and who is asked (GW-4, SEC-7).

Upstreams stand only here; nothing of a request names one. Keys are named by the variable that holds them, never
written down.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast.adapters.config import NAMES, Config
from holdfast.adapters.values import Unusable, nearest, parsed
from holdfast.errors import BadSetting
from holdfast.gateway.events import MOST_BYTES
from holdfast.settings import Settings

WireName = Literal["anthropic", "openai"]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table in which every name is known."""


class Upstream(_Table, frozen=True):
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


class Route(_Table, frozen=True):
    """Which upstream speaks each protocol, and settings that hold for the sessions of this route."""

    anthropic: str | None = None
    openai: str | None = None
    settings: dict[str, Any] = {}
    is_managed: bool = True  # false: everything passes through untouched
    project: str | None = None  # the folder whose instruction files and memories its sessions get, if settings say so


class Tenant(_Table, frozen=True):
    """A client with a key of its own, which the variable `key_env` holds; `upstream_keys` name what is sent instead."""

    key_env: str
    upstream_keys: dict[str, str] = {}


_OFFICIAL = {
    "anthropic": Upstream(url="https://api.anthropic.com"),
    "openai": Upstream(url="https://api.openai.com"),
}


class GatewayConfig(_Table, frozen=True):
    """Everything the gateway can be told. Each limit says what it bounds."""

    host: str = "127.0.0.1"
    port: int = 8787
    allowed_hosts: tuple[str, ...] = ()  # names beside the loopback ones that a Host header may say
    upstreams: dict[str, Upstream] = msgspec.field(default_factory=lambda: dict(_OFFICIAL))
    routes: dict[str, Route] = {}
    tenants: dict[str, Tenant] = {}
    usage: Literal["capped", "upstream"] = "capped"
    usage_cap_percent: int = 50  # of the window: below where clients begin to compact by themselves
    max_body_bytes: int = 32 * 1024 * 1024  # as much as the Messages API takes
    body_seconds: float = 60.0  # for a request's head to arrive, and for its body
    max_depth: int = 100  # of JSON in a message; deeper ones are passed through unmanaged
    max_messages: int = 100_000  # likewise
    max_blocks: int = 10_000  # of one message, likewise
    max_event_bytes: int = MOST_BYTES  # of an answer: of an event, or of one that is no stream; larger pass unread
    max_waiting: int = 512  # requests at a time, and bodies that arrive; the last quarter is for tenants that have few
    open_sessions: int = 64  # kept in memory while nobody uses them …
    open_tokens: int = 8_000_000  # … and at most so large together
    keep_days: int | None = None  # of sessions of clients that aren't configured as tenants; None: for good
    drain_seconds: int = 30  # at shutdown, for answers under way
    status: Literal["own", "all"] | None = None  # None: all, unless tenants are configured

    @property
    def default_route(self) -> Route:
        """What holds for paths without the name of a route: the upstreams of these names."""
        given = self.routes.get("default")
        if given is not None:
            return given
        anthropic, openai = (name if name in self.upstreams else None for name in ("anthropic", "openai"))
        return Route(anthropic=anthropic, openai=openai)

    def route(self, name: str) -> Route | None:
        return self.default_route if name == "default" else self.routes.get(name)


def gateway_config(table: Mapping[str, Any]) -> GatewayConfig:
    """The table, checked. Raises `BadSetting`, which names the entry."""
    try:
        config = msgspec.convert(dict(table), GatewayConfig)
    except msgspec.ValidationError as e:
        raise BadSetting(f"gateway: {_place(str(e))}") from None
    for name, upstream in config.upstreams.items():
        upstream.check(name)
    for name, route in config.routes.items():
        for protocol in ("anthropic", "openai"):
            target = getattr(route, protocol)
            if target is not None and target not in config.upstreams:
                raise BadSetting(
                    f"gateway.routes.{name}: {protocol} = {target!r} is no upstream; there are "
                    f"{', '.join(config.upstreams) or 'none'}"
                )
        _check_project(name, route, settings_of(route, Settings(), name))
    for name, tenant in config.tenants.items():
        _check_tenant(config, name, tenant)
    if config.keep_days is not None and config.keep_days < 1:
        raise BadSetting(f"gateway: keep_days = {config.keep_days}: has to be at least 1; leave it out to keep all")
    if not 1 <= config.usage_cap_percent <= 100:
        raise BadSetting(f"gateway: usage_cap_percent = {config.usage_cap_percent}: has to be from 1 to 100")
    return config


def _check_tenant(config: GatewayConfig, name: str, tenant: Tenant) -> None:
    if not (name.replace("-", "").replace("_", "").isalnum() and name.isascii() and len(name) <= 64):
        raise BadSetting(f"gateway.tenants: {name!r}: letters, digits, - and _, up to 64")
    if unknown := [key for key in tenant.upstream_keys if key not in config.upstreams]:
        raise BadSetting(f"gateway.tenants.{name}: upstream_keys: {unknown[0]!r} is no upstream")


def _check_project(name: str, route: Route, settings: Settings) -> None:
    """Whose instruction files and memories: named here, since a request can't say it (SEC-7)."""
    place = f"gateway.routes.{name}"
    if route.project is None:
        for wanted in ("instructions", "memory"):
            if getattr(settings, wanted):
                raise BadSetting(f"{place}: settings: {wanted} = true needs a folder: set project")
    elif not (folder := Path(route.project).expanduser()).is_absolute() or not folder.is_dir():
        raise BadSetting(f"{place}: project = {route.project!r}: has to be the whole path of a folder that is there")


def settings_of(route: Route, base: Settings, name: str = "default") -> Settings:
    """The settings of a route: the user's, with its own over them. Raises `BadSetting`.

    Instruction files and memories are a client's own affair unless its route wants ours, and what a client puts into
    its user's messages stays as it is.
    """
    changes: dict[str, Any] = {"instructions": False, "memory": False, "neutralise": "results", "recall_tool": False}
    for key, given in route.settings.items():
        place = f"gateway.routes.{name}.settings: {key} = {given!r}"
        if key not in NAMES:
            raise BadSetting(f"{place}: unknown setting{nearest(key, NAMES)}; `holdfast config` lists all")
        try:
            changes[key] = parsed(key, given, getattr(base, key))
        except Unusable as e:
            raise BadSetting(f"{place}: {e}") from None
    return replace(base, **changes)


def from_config(config: Config) -> GatewayConfig:
    """The gateway's part of a loaded configuration."""
    return gateway_config(config.gateway)


def _is_near(host: str) -> bool:
    """Whether a host is this machine, or one of a network that isn't the internet."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_private


def _place(message: str) -> str:
    """msgspec's complaint, with the place first: `$.routes[...]` reads `routes`."""
    text, _, at = message.partition(" - at `$.")
    return f"{at.rstrip('`')}: {text}" if at else text
