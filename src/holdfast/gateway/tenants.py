"""Whose request it is: a configured tenant by its key, else everybody who brings the same credential (GW-4, SEC-7).

A credential is compared and hashed here, and goes nowhere else: no key is logged or stored. The tenant of one that
isn't configured is a keyed hash, so that a folder's name tells nothing of the key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.files.disk import DISK, make_private, write_new
from holdfast.errors import BadSetting, JournalError
from holdfast.gateway.config import GatewayConfig, Upstream

ANYONE = "local"  # who brings no credential at all
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who asks, and the keys that go to each upstream instead of theirs."""

    id: str
    keys: Mapping[str, str]

    def key(self, name: str) -> str | None:
        return self.keys.get(name)


class Tenants:
    """Everybody who may ask. Made anew when the configuration is."""

    def __init__(self, config: GatewayConfig, environ: Mapping[str, str], secret: bytes) -> None:
        self._secret = secret
        self._shared = {name: key for name, up in config.upstreams.items() if (key := _mapped(name, up, environ))}
        self._known: list[tuple[bytes, Tenant]] = []
        for name, tenant in config.tenants.items():
            own = environ.get(tenant.key_env)
            if not own:
                raise BadSetting(f"gateway.tenants.{name}: the variable {tenant.key_env} holds no key")
            mapped = {up: _named(variable, environ, name) for up, variable in tenant.upstream_keys.items()}
            self._known.append((self._hash(own), Tenant(name, {**self._shared, **mapped})))

    @property
    def is_closed(self) -> bool:
        """Whether only configured tenants may ask."""
        return bool(self._known)

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> Tenant | None:
        """The tenant of a request; None for a stranger where tenants are configured."""
        credential = credential_of(headers)
        if self.is_closed:
            seen = self._hash(credential)
            found = [tenant for known, tenant in self._known if hmac.compare_digest(known, seen)]
            return found[0] if found else None
        name = f"key-{self._hash(credential).hex()[:20]}" if credential else ANYONE
        return Tenant(name, self._shared)

    def _hash(self, credential: str) -> bytes:
        return hmac.new(self._secret, credential.encode("utf-8", "surrogateescape"), hashlib.sha256).digest()


def credential_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The key that a client presents, in either protocol's header; empty for none."""
    given = {name.lower(): value for name, value in headers}  # servers may keep their case
    key = given.get(b"x-api-key", b"").strip()
    if not key:
        kind, _, token = given.get(b"authorization", b"").strip().partition(b" ")
        key = token.strip() if kind.lower() == b"bearer" else b""
    return key.decode("latin-1")


def _mapped(name: str, upstream: Upstream, environ: Mapping[str, str]) -> str | None:
    return None if upstream.key_env is None else _named(upstream.key_env, environ, name)


def _named(variable: str, environ: Mapping[str, str], name: str) -> str:
    key = environ.get(variable)
    if not key:
        raise BadSetting(f"gateway: {name} needs a key: set {variable}")
    return key


def secret_at(folder: Path) -> bytes:
    """The secret that hashes credentials, made on first use and private to the user. Raises `JournalError`."""
    path = folder / "secret"
    try:
        make_private(folder)
        if not path.exists():
            draft = path.with_name(f"secret.new-{secrets.token_hex(8)}")
            write_new(DISK, draft, secrets.token_bytes(_SECRET_BYTES))
            try:
                os.link(draft, path)  # whoever is first decides
            except FileExistsError:
                pass
            finally:
                draft.unlink(missing_ok=True)
            DISK.sync_directory(folder)
        return path.read_bytes()
    except OSError as e:
        raise JournalError(f"{path}: {e.strerror or e}: the gateway's secret can't be kept") from e
