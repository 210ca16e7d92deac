"""GW-7: nothing gets worse by going through the gateway; what it doesn't manage is what it would have been without."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.gateways import KEY, WINDOW, Running, config_of, fake, in_loop, serving, upstream

from perdure.gateway.encodings import UnreadableEncoding, decoded, encoded
from perdure.settings import Settings
from perdure.testing import FakeUpstream, ModelRules, RawAnswer, UpstreamError, UpstreamReply

pytestmark = pytest.mark.e2e
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def chat(messages: list[dict[str, Any]], **more: Any) -> bytes:
    return msgspec.json.encode({"model": "fake-model", "messages": messages, **more})


def asked(said: str = "hello") -> bytes:
    return chat([{"role": "user", "content": said}])


async def posted(at: Running, path: str, body: bytes, **headers: str) -> tuple[int, Any, bytes]:
    """Status, headers and body of an answer, as they came."""
    given = {"content-type": "application/json", **headers}
    client = aiohttp.ClientSession(auto_decompress=False)
    async with client, client.post(f"{at.url}{path}", data=body, headers=given) as answer:
        return answer.status, answer.headers, await answer.read()


# --- headers ----------------------------------------------------------------------------------------------------------

CUSTOM = {
    "api-key": "azure", "x-goog-api-key": "google", "chatgpt-account-id": "acc", "helicone-auth": "Bearer h",
    "x-claude-code-session-id": "s1", "session_id": "s2", "x-my-own-authorization": "mine", "cookie": "route=1",
    "idempotency-key": "once", "x-odd": "größe",
}  # fmt: skip


@in_loop
async def test_headers_of_a_client_reach_its_server(tmp_path: Path) -> None:
    """GW-7: no list of names: what a provider, a proxy or a company added arrives."""
    async with fake() as server, serving(tmp_path, server) as at:
        assert (await posted(at, CHAT, asked(), authorization=f"Bearer {KEY}", **CUSTOM))[0] == 200
        sent = server.received[-1].headers
        assert sent["authorization"] == f"Bearer {KEY}"
        assert {name: sent.get(name) for name in CUSTOM} == {**CUSTOM, "x-odd": "größe".encode().decode("latin-1")}


@in_loop
@pytest.mark.parametrize(
    ("path", "presented", "placed"),
    [
        (CHAT, {"authorization": f"Bearer {KEY}"}, ("authorization", "Bearer upstream-key")),
        (CHAT, {"api-key": KEY}, ("api-key", "upstream-key")),
        (CHAT, {"x-goog-api-key": KEY}, ("x-goog-api-key", "upstream-key")),
        (MESSAGES, {"x-api-key": KEY}, ("x-api-key", "upstream-key")),
        (MESSAGES, {"authorization": f"Bearer {KEY}"}, ("x-api-key", "upstream-key")),
    ],
)
async def test_with_a_mapped_key_no_credential_of_the_client_goes_up(
    tmp_path: Path, path: str, presented: dict[str, str], placed: tuple[str, str]
) -> None:
    """SEC-7: in no header, by whatever name, and not in the query; the rest of both arrives."""
    table = {"tenants": {"ann": {"key_env": "ANN", "upstream_keys": {"openai": "UP", "anthropic": "UP"}}}}
    environ = {"ANN": KEY, "UP": "upstream-key"}
    more = {
        **CUSTOM,
        "x-comment": f"my key is {KEY}",
        "proxy-authorization": KEY,
        "x-amz-security-token": "t",
    } | presented
    if "api-key" not in presented:
        del more["api-key"]
    if "x-goog-api-key" not in presented:
        del more["x-goog-api-key"]
    body = asked() if path == CHAT else msgspec.json.encode({**msgspec.json.decode(asked()), "max_tokens": 5})
    query = f"?api-version=2024-10-21&key={KEY}&other={KEY}&access_token=x&%6bey=y"
    async with fake() as server, serving(tmp_path, server, environ=environ, **table) as at:
        assert (await posted(at, path + query, body, **more))[0] == 200
        sent = dict(server.received[-1].headers)
        assert sent.pop(placed[0]) == placed[1]
        assert KEY not in str(sent) and not set(sent) & {"cookie", "helicone-auth", "x-my-own-authorization"}
        assert not set(sent) & {"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token"}
        assert sent["idempotency-key"] == "once" and sent["chatgpt-account-id"] == "acc"
        assert server.received[-1].query == "api-version=2024-10-21"


@in_loop
async def test_keys_in_headers_of_others_keep_tenants_apart(tmp_path: Path) -> None:
    """SEC-7, GW-4: a key of Azure's or Google's, or one in the query, is a client like any other."""
    async with fake() as server, serving(tmp_path, server) as at:
        for n in range(3):
            await posted(at, CHAT, asked(), **({"api-key": "a"}, {"x-goog-api-key": "b"}, {"x-api-key": "c"})[n])
        await posted(at, CHAT + "?key=d", asked())
        await posted(at, CHAT + "?key=%64", asked())
        await posted(at, CHAT, asked())
        tenants = at.gateway.tenants_open()
        assert len(tenants) == 5 and "local" in tenants and len(at.held) == 6 - 1


@in_loop
async def test_azures_paths_are_managed(tmp_path: Path) -> None:
    """GW-7: deployments are in the path, and the version in the query."""
    path = "/openai/deployments/gpt-4o/chat/completions"
    async with fake() as server, serving(tmp_path, server) as at:
        server.routes["POST", path] = RawAnswer(b'{"id":"1","choices":[]}')
        _, headers, _ = await posted(at, f"{path}?api-version=2024-10-21", asked(), **{"api-key": "azure"})
        assert headers["x-perdure-mode"] == "untouched" and headers["x-perdure-session"]
        assert server.received[-1].path == path and server.received[-1].query == "api-version=2024-10-21"


@in_loop
async def test_headers_of_the_answer_come_back(tmp_path: Path) -> None:
    """GW-7, SEC-7: what the upstream says of the answer, without what would bind the client to it."""
    kept = "apim-request-id: 7\r\nx-cost: 0.1\r\nx-ratelimit-left: 3\r\nserver: up\r\nset-cookie: a=b"
    bound = "alt-svc: h3\r\nstrict-transport-security: max-age=9\r\naccess-control-allow-origin: *"
    async with fake() as server, serving(tmp_path, server) as at:
        server.routes["POST", "/v1/odd"] = RawAnswer(b"{}", content_type=f"application/json\r\n{kept}\r\n{bound}")
        _, headers, _ = await posted(at, "/v1/odd", b"{}")
        for line in kept.split("\r\n"):
            name, _, value = line.partition(": ")
            assert headers[name] == value
        assert not {line.partition(":")[0] for line in bound.split("\r\n")} & {name.lower() for name in headers}
        _, headers, _ = await posted(at, "/v1/odd", b"{}", origin="http://localhost:3000")
        assert "set-cookie" not in headers, "a browser would keep it for this host"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("{url}/v1/jobs/7?a=b", "/team/v1/jobs/7?a=b"),
        ("/v1/jobs/7", "/team/v1/jobs/7"),
        ("jobs/7", "jobs/7"),
        ("https://files.example/7", "https://files.example/7"),
        ("//files.example/7", "//files.example/7"),
    ],
)
@in_loop
async def test_what_an_upstream_names_of_its_own_is_found_here(tmp_path: Path, said: str, shown: str) -> None:
    """GW-7: a client goes on through the gateway; what is elsewhere stays there."""
    async with fake() as server, serving(tmp_path, server, routes={"team": {"openai": "openai"}}) as at:
        named = f"application/json\r\nlocation: {said.format(url=server.url)}"
        server.routes["POST", "/v1/jobs"] = RawAnswer(b"{}", 201, named)
        _, headers, _ = await posted(at, "/team/v1/jobs", b"{}")
        assert headers["location"] == shown


# --- encodings --------------------------------------------------------------------------------------------------------


def can(encoding: str) -> None:
    try:
        encoded(b"x", encoding)
    except UnreadableEncoding:
        pytest.skip(f"no package that writes {encoding} is installed")


@in_loop
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "br"])
async def test_a_compressed_body_is_read_and_stays_compressed(tmp_path: Path, encoding: str) -> None:
    """GW-7: its own bytes go up while nothing was edited; a view goes up in the same encoding."""
    can(encoding)
    said = [{"role": "user", "content": "hello"}]
    async with fake(upstream()) as server, serving(tmp_path, server) as at:
        answered = RawAnswer(b'{"id":"1","choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}')
        server.routes["POST", CHAT] = answered
        body = encoded(chat(said), encoding)
        _, headers, _ = await posted(at, CHAT, body, **{"content-encoding": encoding})
        assert headers["x-perdure-mode"] == "untouched"
        assert server.received[-1].body == body and server.received[-1].headers["content-encoding"] == encoding
        said += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "next"}]
        (held,) = at.held
        held.is_shaped = True
        digest = {"content-digest": "sha-256=:abc:"}
        _, headers, _ = await posted(
            at, CHAT, encoded(chat(said), encoding), **{"content-encoding": encoding}, **digest
        )
        sent = server.received[-1]
        assert headers["x-perdure-mode"] == "view" and sent.headers["content-encoding"] == encoding
        assert [m["content"] for m in msgspec.json.decode(decoded(sent.body, encoding, 10**6))["messages"]] == [
            "hello", "ok", "next",
        ]  # fmt: skip
        assert "content-digest" not in sent.headers


@in_loop
@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        (b"\x28\xb5odd", "snappy", "encoding_unknown"),
        (encoded(asked(), "gzip")[:-3], "gzip", "encoding_damaged"),
        (encoded(asked() + b" " * 3_000_000, "gzip"), "gzip", "encoded_too_large"),
    ],
)
async def test_a_body_that_cannot_be_read_passes_as_it_is(
    tmp_path: Path, body: bytes, encoding: str, reason: str
) -> None:
    """GW-7, SEC-6: the encoding's header stays with it; the header of the answer, a metric and the log say why."""
    async with fake() as server, serving(tmp_path, server, max_body_bytes=1_000_000) as at:
        server.routes["POST", CHAT] = RawAnswer(b"{}")
        _, headers, _ = await posted(at, CHAT, body, **{"content-encoding": encoding})
        assert server.received[-1].body == body and server.received[-1].headers["content-encoding"] == encoding
        assert (headers["x-perdure-mode"], headers["x-perdure-reason"]) == ("passed", reason)
        assert at.metric("perdure_passed_total", reason=reason) == 1


@in_loop
async def test_an_answer_that_is_not_read_stays_compressed(tmp_path: Path) -> None:
    """GW-7: only an answer that is read along is asked for in plain."""
    async with fake() as server, serving(tmp_path, server) as at:
        body = encoded(b'{"a":1}', "gzip")
        server.routes["POST", "/v1/odd"] = RawAnswer(body, content_type="application/json\r\ncontent-encoding: gzip")
        _, headers, got = await posted(at, "/v1/odd", b"{}", **{"accept-encoding": "gzip, br"})
        assert server.received[-1].headers["accept-encoding"] == "gzip, br"
        assert got == body and headers["content-encoding"] == "gzip"
        await posted(at, CHAT, asked(), **{"accept-encoding": "gzip, br"})
        assert server.received[-1].headers["accept-encoding"] == "identity"


# --- what isn't managed says so ---------------------------------------------------------------------------------------


@in_loop
async def test_what_is_not_managed_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """GW-7: in the answer's headers, in a metric, and once in the log."""
    routes = {"plain": {"openai": "openai", "is_managed": False}, "default": {"openai": "openai"}}
    async with fake() as server, serving(tmp_path, server, routes=routes) as at:
        server.routes["POST", "/v1/odd"] = RawAnswer(b"{}")
        with caplog.at_level(logging.WARNING, "perdure.gateway"):
            for path, body, reason in (
                ("/v1/odd", b"{}", "path"),
                ("/v1/odd", b"{}", "path"),
                (f"/plain{CHAT}", asked(), "route"),
                (CHAT, chat([{"role": "user", "content": "x"}], n=2), "several_answers"),
            ):
                _, headers, _ = await posted(at, path, body)
                assert (headers["x-perdure-mode"], headers["x-perdure-reason"]) == ("passed", reason)
        assert at.metric("perdure_passed_total", reason="path") == 2
        assert at.metric("perdure_passed_total", reason="route") == 1
        told = [record.getMessage() for record in caplog.records]
        assert sum("unmanaged: path" in line for line in told) == 1 and any("several_answers" in line for line in told)


# --- a refused view ---------------------------------------------------------------------------------------------------


class RefusesViews(FakeUpstream):
    """Takes what its clients write, and nothing that was shortened."""

    def respond(self, body: bytes, **more: Any) -> UpstreamReply:
        if b"recall with id" in body or b"<persisted-output>" in body:
            raise UpstreamError(400, "invalid_request_error", "messages.1: I don't like this")
        return super().respond(body, **more)


def tool_loop(steps: int, chars: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "content": "read them all"}]
    for n in range(steps):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "Read", "arguments": f'{{"file_path":"{n}"}}'}}
        said += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} " * (chars // 2)},
        ]
    return said


@in_loop
async def test_a_refused_view_is_asked_again_with_the_clients_own_bytes(tmp_path: Path) -> None:
    """GW-7: once, when they fit; what the session learns from it is kept, so the next request is asked once only."""
    server = RefusesViews(rules=ModelRules(window_tokens=WINDOW))
    async with fake(server) as fakes, serving(tmp_path, fakes) as at:
        said = tool_loop(1, 60_000)
        body = chat(said)
        status, headers, _ = await posted(at, CHAT, body)
        assert status == 200 and (headers["x-perdure-mode"], headers["x-perdure-reason"]) == (
            "untouched",
            "view_refused",
        )
        assert [request.body == body for request in fakes.received] == [False, True]
        said += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
        status, headers, _ = await posted(at, CHAT, chat(said))
        assert status == 200 and headers["x-perdure-mode"] == "untouched" and len(fakes.received) == 3
        assert len(at.held) == 1 and at.metric("perdure_recovered_total", reason="view_refused") == 1


@in_loop
async def test_what_direct_would_have_been_refused_is_refused(tmp_path: Path) -> None:
    """GW-7: the client gets the answer to its own bytes; when they can't fit, that to the view, and nothing twice."""
    server = RefusesViews(rules=ModelRules(window_tokens=30_000))
    config = partial(config_of, tmp_path, settings=Settings(window_tokens=30_000, durability="process"))
    async with (
        fake(server) as fakes,
        serving(tmp_path, fakes, config=config(fakes.url)) as at,
    ):
        status, _, got = await posted(at, CHAT, chat(tool_loop(1, 200_000)))
        assert status == 400 and b"I don't like this" in got and len(fakes.received) == 1


@in_loop
@pytest.mark.parametrize("status", [401, 403, 404, 429])
async def test_what_the_body_cannot_help_is_not_asked_again(tmp_path: Path, status: int) -> None:
    """GW-7: a key, a limit or a model that isn't there stay what they are."""
    async with fake(upstream(UpstreamError(status, "error", "no"))) as server, serving(tmp_path, server) as at:
        assert (await posted(at, CHAT, chat(tool_loop(1, 60_000))))[0] == status and len(server.received) == 1


# --- what a view keeps ------------------------------------------------------------------------------------------------


def claude_code(turns: int, words: int) -> dict[str, Any]:
    """A request as Claude Code makes it: an hour of cache, and a system message in mid-conversation."""
    hour = {"type": "ephemeral", "ttl": "1h"}
    messages: list[dict[str, Any]] = []
    for n in range(turns):
        messages += [
            {"role": "user", "content": [{"type": "text", "text": f"turn {n} " + "word " * words}]},
            {"role": "system", "content": f"The date is day {n}."},
            {"role": "assistant", "content": [{"type": "text", "text": "ok"}]},
        ]
    messages.append({"role": "user", "content": [{"type": "text", "text": "now", "cache_control": hour}]})
    system = [{"type": "text", "text": "You help.", "cache_control": hour}]
    return {"model": "claude-opus-5", "max_tokens": 50, "system": system, "messages": messages}


@in_loop
async def test_system_messages_and_lifetimes_of_the_cache_stay(tmp_path: Path) -> None:
    """GW-7, G5: they are no reason for a view; and a view has them where and as the client does."""
    async with fake() as server, serving(tmp_path, server) as at:
        body = msgspec.json.encode(claude_code(2, 10))
        status, headers, got = await posted(at, MESSAGES, body)
        assert status == 200, got
        assert headers["x-perdure-mode"] == "untouched" and server.received[-1].body == body
        (held,) = at.held
        held.is_shaped = True
        asked = claude_code(2, 10)
        asked["messages"] += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
        status, headers, _ = await posted(at, MESSAGES, msgspec.json.encode(asked))
        assert status == 200 and headers["x-perdure-mode"] == "view" and len(at.held) == 1
        sent = msgspec.json.decode(server.received[-1].body)
        assert [one["role"] for one in sent["messages"]] == [one["role"] for one in asked["messages"]]
        told = [one["content"][0]["text"] for one in sent["messages"] if one["role"] == "system"]
        assert told == ["The date is day 0.", "The date is day 1."]
        marks = [part["cache_control"] for part in sent["system"] if "cache_control" in part]
        marks += [p["cache_control"] for m in sent["messages"] for p in m["content"] if "cache_control" in p]
        assert len(marks) >= 2 and all(mark == {"type": "ephemeral", "ttl": "1h"} for mark in marks)


@in_loop
async def test_a_front_may_be_kept_longer_than_the_rest(tmp_path: Path) -> None:
    """GW-7: an hour for the system prompt, five minutes for what follows, as the client asked."""
    async with fake() as server, serving(tmp_path, server) as at:
        asked = claude_code(1, 10)
        asked["messages"][-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
        await posted(at, MESSAGES, msgspec.json.encode(asked))
        (held,) = at.held
        held.is_shaped = True
        asked["messages"] += [{"role": "assistant", "content": "ok"}]
        asked["messages"] += [
            {"role": "user", "content": [{"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}}]}
        ]
        await posted(at, MESSAGES, msgspec.json.encode(asked))
        sent = msgspec.json.decode(server.received[-1].body)
        assert sent["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
        marks = [p["cache_control"] for m in sent["messages"] for p in m["content"] if "cache_control" in p]
        assert marks and all(mark == {"type": "ephemeral"} for mark in marks)


@in_loop
async def test_system_messages_stay_behind_a_compaction(tmp_path: Path) -> None:
    """GW-7, G5: requests stay valid when what they follow was compacted away."""
    config = partial(config_of, tmp_path, settings=Settings(window_tokens=12_000, durability="process"))
    upstreams = FakeUpstream(rules=ModelRules(window_tokens=12_000))
    async with fake(upstreams) as server, serving(tmp_path, server, config=config(server.url)) as at:
        for turns in range(1, 30):
            status, _, got = await posted(at, MESSAGES, msgspec.json.encode(claude_code(turns, 400)))
            assert status == 200, got
        assert at.metric("perdure_compactions_total", trigger="auto", strategy="ledger") > 1
        sent = msgspec.json.decode(server.received[-1].body)["messages"]
        assert sent[0]["role"] == "user" and "system" in [one["role"] for one in sent]
        assert not upstreams.statistics.violations


@in_loop
async def test_the_effort_set_in_mid_conversation_outlives_a_compaction(tmp_path: Path) -> None:
    """GW-7: a system message that only sets the effort holds in a view too, until the next one."""
    config = partial(config_of, tmp_path, settings=Settings(window_tokens=12_000, durability="process"))
    upstreams = FakeUpstream(rules=ModelRules(window_tokens=12_000))
    async with fake(upstreams) as server, serving(tmp_path, server, config=config(server.url)) as at:
        for turns, effort in [*((n, "low") for n in range(2, 20)), (20, "max")]:
            asked = {**claude_code(turns, 400), "output_config": {"effort": "high"}}
            asked["messages"].insert(3, {"role": "system", "content": [], "output_config": {"effort": "low"}})
            if effort == "max":
                told = {"role": "system", "content": "Think.", "output_config": {"effort": "max"}}
                asked["messages"].insert(-1, told)
            status, headers, got = await posted(at, MESSAGES, msgspec.json.encode(asked))
            assert status == 200, got
            sent = msgspec.json.decode(server.received[-1].body)
            expected = effort if headers["x-perdure-mode"] == "view" else "high"  # else the client's own bytes say it
            assert sent["output_config"] == {"effort": expected}
        assert headers["x-perdure-mode"] == "view"
        assert at.metric("perdure_compactions_total", trigger="auto", strategy="ledger") >= 1
        assert not upstreams.statistics.violations
