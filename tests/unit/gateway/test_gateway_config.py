"""The table [gateway]: everything checked before anything is served (SEC-7, GW-4, CLI-5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.config import load
from perdure.errors import BadSetting
from perdure.gateway.config import Tenants, credential_of, gateway_config, settings_of
from perdure.gateway.upstream import headers_up, is_plain_path, target_of
from perdure.settings import Settings

pytestmark = pytest.mark.unit


def test_without_a_word_it_listens_here_and_asks_the_official_servers() -> None:
    config = gateway_config({})
    assert config.host == "127.0.0.1"
    assert config.default_route.anthropic == "anthropic" and config.default_route.openai == "openai"
    assert config.upstreams["anthropic"].url == "https://api.anthropic.com"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"hots": "x"}, "gateway: unknown entry 'hots': did you mean host?"),
        ({"port": 99_999}, "gateway: port = 99999: has to be from 0 to 65535"),
        ({"body_seconds": 0}, "body_seconds = 0: has to be at least 0.1"),
        ({"max_body_bytes": -1}, "max_body_bytes = -1: has to be at least 1"),
        ({"max_waiting": 0}, "max_waiting = 0"),
        ({"drain_seconds": -5}, "drain_seconds = -5"),
        ({"queue_seconds": float("nan")}, "queue_seconds = nan"),
        ({"allowed_hosts": ["https://models.local"]}, "without scheme or port"),
        ({"allowed_hosts": ["models.local:8787"]}, "without scheme or port"),
        ({"allowed_hosts": ["*"]}, "without scheme or port"),
        ({"routes": {"v1": {"openai": "openai"}}}, "gateway.routes.v1: other paths begin with /v1"),
        ({"routes": {"a/b": {"openai": "openai"}}}, "gateway.routes: 'a/b': letters"),
        ({"routes": {"a": {"opnai": "openai"}}}, "gateway.routes.a: unknown entry 'opnai': did you mean openai?"),
        ({"upstreams": {"a": {"url": 1}}}, "gateway.upstreams.a: url: Expected `str`"),
        ({"upstreams": {"a": {"url": "https://x", "silence_seconds": 0}}}, "gateway.upstreams.a: silence_seconds = 0"),
        (
            {"tenants": {"a": {"key_env": "K", "limits": {"request_per_minute": 1}}}},
            "did you mean requests_per_minute?",
        ),
        ({"tenants": "alice"}, "gateway: tenants: Expected"),
        ({"port": "high"}, "port"),
        ({"usage": "lower"}, "usage"),
        ({"usage_cap_percent": 0}, "usage_cap_percent"),
        ({"upstreams": {"a": {"url": "ftp://x"}}}, "https://host"),
        ({"upstreams": {"a": {"url": "https://user:key@x"}}}, "https://host"),
        ({"upstreams": {"a": {"url": "http://far.example", "key_env": "K"}}}, "plain http"),
        ({"routes": {"work": {"anthropic": "nowhere"}}}, "is no upstream"),
        ({"routes": {"work": {"settings": {"windw_tokens": 5}}}}, "window_tokens"),
        ({"routes": {"work": {"settings": {"memory": True, "memory_directory": "/srv/notes"}}}}, "set project"),
        ({"routes": {"work": {"project": "somewhere/near"}}}, "whole path"),
        ({"routes": {"work": {"project": "/nowhere/at/all"}}}, "whole path"),
        ({"tenants": {"a/b": {"key_env": "K"}}}, "letters"),
        ({"tenants": {"ann": {"key_env": "K", "upstream_keys": {"x": "Y"}}}}, "is no upstream"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(table: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSetting) as caught:
        gateway_config(table)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_project_may_not_say_where_keys_are_sent(tmp_path: Path) -> None:
    """SEC-7: a cloned repository's configuration names no upstream."""
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home, project / ".perdure"):
        folder.mkdir(parents=True)
    (home / "config.toml").write_text('[gateway]\nport = 9000\n[gateway.upstreams.own]\nurl = "https://own.example"\n')
    evil = '[gateway.upstreams.own]\nurl = "https://evil.example"\n'
    (project / ".perdure" / "config.toml").write_text(evil)
    config = load({"PERDURE_HOME": str(home)}, cwd=project, trusts=True)
    assert gateway_config(config.gateway).upstreams["own"].url == "https://own.example"
    assert any(warning.name == "gateway" for warning in config.warnings)


def test_a_route_has_settings_of_its_own() -> None:
    config = gateway_config({"routes": {"small": {"anthropic": "anthropic", "settings": {"window_tokens": "16k"}}}})
    route = config.route("small")
    assert route is not None and settings_of(route, Settings(notes=False), "small").window_tokens == 16_000
    assert not settings_of(route, Settings(notes=False), "small").notes


def test_tenants_are_told_by_their_keys() -> None:
    """GW-4: without tenants each credential is one, whose name doesn't tell the key."""
    anyone = Tenants(gateway_config({}), {}, b"secret")
    one = anyone.of([(b"x-api-key", b"key-1")])
    assert one is not None and one.id.startswith("key-") and "key-1" not in one.id
    assert anyone.of([(b"authorization", b"Bearer key-1")]) == one
    assert anyone.of([(b"x-api-key", b"key-2")]) != one
    assert anyone.of([]) is not None
    table = {"tenants": {"ann": {"key_env": "ANN"}}}
    with pytest.raises(BadSetting, match="ANN"):
        Tenants(gateway_config(table), {}, b"s")
    closed = Tenants(gateway_config(table), {"ANN": "ann-key"}, b"s")
    ann = closed.of([(b"authorization", b"bearer ann-key")])
    assert ann is not None and ann.id == "ann"
    assert closed.of([(b"x-api-key", b"ann-ke")]) is None and closed.of([]) is None


def test_a_mapped_key_goes_in_the_place_of_the_clients() -> None:
    given = [(b"X-Api-Key", b"mine"), (b"authorization", b"Bearer mine"), (b"host", b"evil"), (b"anthropic-beta", b"a")]
    assert credential_of(given) == "mine" or credential_of(given) == ""
    own = headers_up(given, None, "x-api-key")
    assert own["x-api-key"] == "mine" and "host" not in own
    mapped = headers_up(given, "theirs", "authorization")
    assert mapped["authorization"] == "Bearer theirs" and "x-api-key" not in mapped and mapped["anthropic-beta"] == "a"


@pytest.mark.parametrize("path", [b"//evil/x", b"/a/../b", b"/%2e%2e/x", b"/a\\b", b"x", b"/a b", b"/a\x00", b"/\xff"])
def test_paths_that_others_may_read_otherwise_are_refused(path: bytes) -> None:
    assert not is_plain_path(path)


def test_the_host_is_the_configurations_whatever_the_path_says() -> None:
    upstream = gateway_config({"upstreams": {"a": {"url": "https://own.example:8443/base/"}}}).upstreams["a"]
    at = target_of(upstream, b"/v1/models/claude@20250929:rawPredict", b"")  # as Vertex calls its models
    assert (at.host, at.raw_path) == ("own.example", "/base/v1/models/claude@20250929:rawPredict")
    url = target_of(upstream, b"/v1/x%2Fy", b"q=http://evil/")
    assert (url.host, url.port) == ("own.example", 8443)
    assert str(url) == "https://own.example:8443/base/v1/x%2Fy?q=http://evil/"
