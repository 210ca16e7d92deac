"""What a signal ends, in processes of their own: answers under way, sessions, work (SCL-3, GW-9)."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anthropic
import pytest
from tests.e2e.test_gateway_workers import talked
from tests.e2e.test_serve import ask, started, status
from tests.gateways import fake, in_loop, serving, upstream

from perdure.adapters.postgres.store import PostgresStore

pytestmark = [pytest.mark.e2e, pytest.mark.only_on("files", "these name their stores themselves")]

LONG_ANSWER = "word " * 40


def configured(home: Path, url: str, drain_seconds: int = 40) -> Path:
    home.mkdir(exist_ok=True)
    text = f'[gateway]\ndrain_seconds = {drain_seconds}\n[gateway.upstreams.anthropic]\nurl = "{url}"\n'
    (home / "config.toml").write_text(text)
    return home


@contextmanager
def slow_gateway(
    tmp_path: Path, *more: str, drain_seconds: int = 40, delay: str = "0.1"
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A gateway whose upstream takes some seconds for each stream."""
    with started("perdure.testing.serve", "--answer", LONG_ANSWER, "--delay", delay) as (url, _):
        home = configured(tmp_path / "home", url, drain_seconds)
        with started("perdure", "serve", "--port", "0", "--json", *more, home=home) as (gate, process):
            yield gate, process


def get(url: str, path: str, body: Any = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        sent = None if body is None else json.dumps(body)
        headers = {"x-api-key": "test-key", "anthropic-version": "2023-06-01", "content-type": "application/json"}
        connection.request("GET" if body is None else "POST", path, sent, headers)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def turn(text: str) -> dict[str, Any]:
    return {"model": "any", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}


def streamed(url: str, said: list[str], begun: threading.Event) -> None:
    """Read one stream to its end; what was said, or what went wrong."""
    try:
        with (
            anthropic.Anthropic(api_key="test-key", base_url=url, max_retries=0) as client,
            client.messages.stream(**turn("hello")) as stream,
        ):
            for text in stream.text_stream:
                begun.set()
                said.append(text)
            said.append(str(stream.get_final_message().stop_reason))
    except Exception as e:  # what the SDK makes of it is its own
        said.append(type(e).__name__)
    begun.set()


def test_a_stream_under_way_is_finished_and_nobody_else_let_in(tmp_path: Path) -> None:
    """SCL-3, GW-9: SIGTERM in the middle of an answer: readiness is red at once, and others are told to come back."""
    said: list[str] = []
    begun = threading.Event()
    with slow_gateway(tmp_path, delay="1") as (gate, process):
        assert get(gate, "/readyz")[0] == 200
        client = threading.Thread(target=streamed, args=(gate, said, begun))
        client.start()
        assert begun.wait(60)
        process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: get(gate, "/readyz")[0] == 503)
        assert json.loads(get(gate, "/readyz")[2]) == {"status": "draining"}
        assert get(gate, "/healthz")[0] == 200, "whoever asks whether it lives doesn't kill it meanwhile"
        refused, headers, body = get(gate, "/v1/messages", turn("another"))
        assert (refused, headers["retry-after"]) == (503, "1") and json.loads(body)["type"] == "error"
        assert b'reason="draining"} 1.0' in get(gate, "/metrics")[2]
        client.join()
        assert process.wait(60) == 0
        assert "".join(said[:-1]).split() == LONG_ANSWER.split() and said[-1] == "end_turn"
        assert process.stderr is not None
        noted = process.stderr.read()
    assert "1 requests under way" in noted and "Traceback" not in noted, noted


def wait_for(condition: Any, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.nightly
@pytest.mark.parametrize(("drain", "signals"), [(1, [signal.SIGTERM]), (60, [signal.SIGINT, signal.SIGINT])])
def test_what_takes_too_long_is_cut_off_without_a_traceback(
    tmp_path: Path, drain: int, signals: list[signal.Signals]
) -> None:
    """SCL-3, CLI-5: after `drain_seconds`, or at once with a second Ctrl-C; the exit code is 0."""
    said: list[str] = []
    begun = threading.Event()
    with slow_gateway(tmp_path, drain_seconds=drain, delay="2") as (gate, process):
        client = threading.Thread(target=streamed, args=(gate, said, begun))
        client.start()
        assert begun.wait(60)
        began = time.monotonic()
        for number in signals:
            process.send_signal(number)
            time.sleep(0.5)
        assert process.wait(60) == 0 and time.monotonic() - began < 45
        client.join()
        assert process.stderr is not None
        noted = process.stderr.read()
    assert said[-1] != "end_turn"
    assert "Traceback" not in noted and "CancelledError" not in noted and "Unclosed" not in noted, noted


@pytest.mark.nightly
def test_workers_of_files_are_refused(tmp_path: Path) -> None:
    """SCL-2, CLI-5: nobody could do their work; when it is set later, what held before holds."""
    home = configured(tmp_path / "home", "http://127.0.0.1:9")
    told = (home / "config.toml").read_text()
    (home / "config.toml").write_text(told.replace("[gateway]\n", '[gateway]\nbackground = "workers"\n'))
    env = {**os.environ, "PERDURE_HOME": str(home)}
    for words in (("serve", "--port", "0"), ("serve", "--port", "0", "--store", str(tmp_path))):
        done = subprocess.run([sys.executable, "-m", "perdure", *words], env=env, capture_output=True, check=False)
        assert done.returncode == 2 and b'background = "workers"' in done.stderr and done.stderr.count(b"\n") == 1
    worker = [sys.executable, "-m", "perdure", "worker", "--store", str(tmp_path)]
    done = subprocess.run(worker, env=env, capture_output=True, check=False)
    assert done.returncode == 2 and b"needs the database" in done.stderr
    changed = (home / "config.toml").read_text()
    (home / "config.toml").write_text(told)
    with started("perdure", "serve", "--port", "0", "--json", home=home) as (_, process):
        (home / "config.toml").write_text(changed)
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None and "stays as it was: gateway: background" in process.stderr.readline()


# --- over one database ------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_gateways_are_rolled_one_after_another_under_load(tmp_path: Path, postgres: str) -> None:
    """SCL-3: each of three is ended and started again; clients that retry, as SDKs do, lose nothing and no session."""
    with ExitStack() as stack:
        provider, _ = stack.enter_context(started("perdure.testing.serve", "--answer", "yes", "--delay", "0.02"))
        homes = [configured(tmp_path / f"home{n}", provider) for n in range(3)]
        serve = ("perdure", "serve", "--json", "--store", postgres, "--port")
        running: list[tuple[str, subprocess.Popen[str]]] = [
            stack.enter_context(started(*serve, "0", home=home)) for home in homes
        ]
        urls = [url for url, _ in running]
        over = threading.Event()

        def converse(number: int) -> tuple[int, list[str]]:
            """One conversation; each attempt goes to the next gateway, as a load balancer sends it."""
            messages: list[Any] = [{"role": "user", "content": f"conversation {number}"}]
            turns, failures, at = 0, list[str](), number
            while not over.is_set() and turns < 120:
                for _ in range(8):
                    at += 1
                    try:
                        code, _, body = get(urls[at % 3], "/v1/messages", {**turn(""), "messages": messages})
                    except (OSError, http.client.HTTPException):
                        time.sleep(0.1)
                        continue
                    if code == 200:
                        break
                    assert code in (500, 502, 503), (code, body)
                    time.sleep(0.2)
                else:
                    failures.append(f"turn {turns}")
                    break
                messages += [
                    {"role": "assistant", "content": json.loads(body)["content"]},
                    {"role": "user", "content": f"and on {turns}"},
                ]
                turns += 1
            return turns, failures

        with ThreadPoolExecutor(4) as clients:
            working = [clients.submit(converse, n) for n in range(4)]
            try:
                for n, (url, process) in enumerate(running):
                    time.sleep(1.0)
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(60) == 0
                    again = stack.enter_context(started(*serve, url.rpartition(":")[2], home=homes[n]))
                    assert again[0] == url
                    running[n] = again
                time.sleep(1.0)
            finally:
                over.set()
        done = [one.result() for one in working]
        assert all(failures == [] and turns > 5 for turns, failures in done), done
        store_status = [one for url, home in zip(urls, homes, strict=True) for one in status(url, home)]
        assert len({one["session"] for one in store_status}) == 4, "a conversation has one session, wherever it went"
        known = max(one["messages"] for one in store_status)
        assert known >= 2 * min(turns for turns, _ in done)


@pytest.mark.nightly
def test_a_session_goes_on_elsewhere_while_its_gateway_drains(tmp_path: Path, postgres: str) -> None:
    """SCL-3: what nobody uses is free at once, though its gateway still finishes somebody else's answer."""
    said: list[str] = []
    begun = threading.Event()
    messages: list[Any] = [{"role": "user", "content": "a conversation of its own"}]
    with (
        slow_gateway(tmp_path, "--store", postgres, delay="1.5") as (gate, process),
        started("perdure.testing.serve", "--answer", "yes") as (provider, _),
        started(
            *("perdure", "serve", "--port", "0", "--json", "--store", postgres),
            home=configured(tmp_path / "other", provider),
        ) as (other, _),
    ):
        assert ask(gate, messages).split() == LONG_ANSWER.split()
        (before,) = status(gate, tmp_path / "home")
        client = threading.Thread(target=streamed, args=(gate, said, begun))
        client.start()
        assert begun.wait(60)
        process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: get(gate, "/readyz")[0] == 503)
        assert ask(other, messages) == "yes"
        assert process.poll() is None, "it is still at the other answer"
        (after,) = status(other, tmp_path / "other")
        assert after["session"] == before["session"] and after["messages"] == before["messages"] + 2
        client.join()
        assert said[-1] == "end_turn" and process.wait(60) == 0


@pytest.mark.nightly
@in_loop
async def test_a_worker_that_is_ended_gives_back_what_it_was_at(tmp_path: Path, postgres: str) -> None:
    """SCL-2: at the end of `drain_seconds`, and another one takes it at once, as if nobody had tried."""
    store = PostgresStore(postgres)
    async with (
        fake(upstream(*[f"done {n}" for n in range(4)])) as server,
        fake(upstream("late"), delay_seconds=60.0) as slow,
        serving(tmp_path, server, store=store, background="workers") as at,
    ):
        await talked(at, [], 4)
        (held,) = at.held
        home = configured(tmp_path / "worker", server.url, drain_seconds=1)
        tenant = next(name for name, some in at.gateway.tenants_open().items() if some)
        await store.work.want(tenant, held.id, "precompute:default", held.journal.seq)
        words = [sys.executable, "-m", "perdure", "worker", "--store", postgres, "--json"]
        words += ["--set", "window_tokens=100000", "--set", f"summarizer_models=anthropic:fake-model@{slow.url}#KEY"]
        environ = {**os.environ, "PERDURE_HOME": str(home), "KEY": "k"}
        process = await asyncio.create_subprocess_exec(
            *words, env=environ, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        while not slow.received:  # noqa: ASYNC110 - the double has no event for it
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, noted = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, noted) == (0, b"")
        told = json.loads(out)  # the notes, which were due as well, may be done
        assert (told["released"], told["failed"], told["lost"]) == (1, 0, 0)
        claims = await store.work.claim("another", limit=9, seconds=60.0)
        assert [one.attempts for one in claims if one.kind == "precompute:default"] == [1]
