"""`perdure serve` and the fake model server, each a process of its own (GW-1, GW-2, GW-4, CLI-3)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import pytest
from tests.commands import command

pytestmark = pytest.mark.e2e


@contextmanager
def started(*arguments: str, home: Path | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    env = {**os.environ, **({"PERDURE_HOME": str(home)} if home else {})}
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        try:
            yield (json.loads(line)["url"] if line.startswith("{") else line), process
        finally:
            process.kill()


def upstream(home: Path, url: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f'[gateway.upstreams.anthropic]\nurl = "{url}"\n')


def ask(url: str, messages: list[Any]) -> str:
    with anthropic.Anthropic(api_key="test-key", base_url=url, max_retries=3) as client:
        said = client.messages.create(model="any", max_tokens=50, messages=messages)
    messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": "go on"}]
    return "".join(block.text for block in said.content if block.type == "text")


def status(url: str, home: Path) -> list[dict[str, Any]]:
    key = (home / "gateway" / "page.key").read_text().strip()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/perdure/status", headers={"x-api-key": key})) as answer:
        return [one for some in json.load(answer)["tenants"].values() for one in some]


@pytest.mark.nightly
def test_a_gateway_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """GW-2, REL-1: kill -9 between two requests; the next process knows the session."""
    messages: list[Any] = [{"role": "user", "content": "hello"}]
    with started("perdure.testing.serve", "--answer", "yes", "--answer", "no") as (url, _):
        upstream(tmp_path, url)
        with started("perdure", "serve", "--port", "0", "--json", home=tmp_path) as (gate, process):
            assert ask(gate, messages) == "yes" and ask(gate, messages) == "no"
            (before,) = status(gate, tmp_path)
            process.send_signal(signal.SIGKILL)
            process.wait()
        with started("perdure", "serve", "--port", "0", "--json", home=tmp_path) as (gate, process):
            assert ask(gate, messages) == "yes"
            (after,) = status(gate, tmp_path)
            assert after["session"] == before["session"] and after["messages"] == 6 == before["messages"] + 2
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP here")
def test_the_configuration_is_read_again_on_sighup(tmp_path: Path) -> None:
    """GW-4: one that can't be used changes nothing, and is said."""
    first, second = ("perdure.testing.serve", "--answer", "one"), ("perdure.testing.serve", "--answer", "two")
    with started(*first) as (one, _), started(*second) as (two, _):
        upstream(tmp_path, one)
        with started("perdure", "serve", "--port", "0", "--json", home=tmp_path) as (gate, process):
            assert process.stderr is not None
            assert ask(gate, [{"role": "user", "content": "a"}]) == "one"
            upstream(tmp_path, "nonsense")
            process.send_signal(signal.SIGHUP)
            assert "stays as it was" in process.stderr.readline()
            assert ask(gate, [{"role": "user", "content": "b"}]) == "one"
            upstream(tmp_path, two)
            process.send_signal(signal.SIGHUP)
            assert "read again" in process.stderr.readline()
            assert ask(gate, [{"role": "user", "content": "c"}]) == "two"


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP here")
def test_where_it_listens_stays_until_the_next_start(tmp_path: Path) -> None:
    """GW-4, SEC-7: all interfaces at the start; a configuration that says less doesn't make it private."""
    (tmp_path / "config.toml").write_text('[gateway]\nhost = "0.0.0.0"\nport = 0\n')
    with started("perdure", "serve", "--json", home=tmp_path) as (gate, process):
        assert process.stderr is not None
        assert gate.startswith("http://127.0.0.1:"), "the wildcard is no name that a client may ask for"
        with urllib.request.urlopen(f"{gate}/healthz") as answer:
            assert answer.status == 200
        assert "gateway.allowed_hosts" in process.stderr.readline()
        (tmp_path / "config.toml").write_text('[gateway]\nport = 4000\nhost = "127.0.0.1"\n')
        process.send_signal(signal.SIGHUP)
        assert "host and port will change with the next start" in process.stderr.readline()
        with urllib.request.urlopen(f"{gate}/healthz") as answer:
            assert answer.status == 200


def test_the_fake_server_fails_when_it_is_told_to() -> None:
    """For anybody's tests: every second answer is a rate limit, every third stream is cut."""
    more = ("--refuse-every", "2", "--window", "5000")
    with (
        started("perdure.testing.serve", *more) as (url, _),
        anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client,
    ):

        def say(text: str) -> Any:
            said = client.messages.create(model="any", max_tokens=50, messages=[{"role": "user", "content": text}])
            return said.content[0].to_dict()["text"]

        assert say("a") == "ok"
        with pytest.raises(anthropic.RateLimitError):
            say("b")
        assert say("c") == "ok"
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            say("word " * 10_000)


def test_a_bad_configuration_is_one_line(tmp_path: Path) -> None:
    """CLI-5."""
    upstream(tmp_path, "gopher://old")
    done = command("serve", cwd=tmp_path, env={**os.environ, "PERDURE_HOME": str(tmp_path)})
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "gateway.upstreams.anthropic" in done.stderr


def test_an_address_that_is_taken_is_one_line(tmp_path: Path) -> None:
    """GW-1, CLI-5: and the exit code is that of a wrong setting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        env = {**os.environ, "PERDURE_HOME": str(tmp_path)}
        done = command("serve", "--port", str(port), cwd=tmp_path, env=env)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1 and f"127.0.0.1:{port}: Address already in use: give" in done.stderr


@pytest.mark.parametrize("given", [("--port", "70000"), ("--refuse-every", "-1"), ("--window", "none")])
def test_the_fake_server_says_what_is_wrong_with_an_option(given: tuple[str, str]) -> None:
    """CLI-5: the option and what is wrong with it, and no traceback."""
    command = [sys.executable, "-m", "perdure.testing.serve", *given]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and given[0] in done.stderr and "Traceback" not in done.stderr


def test_a_second_gateway_on_a_home_of_files_is_refused(tmp_path: Path) -> None:
    """Finding R10: one line says how to share; the lock of a gateway that was killed refuses nobody."""
    serve, env = ("serve", "--port", "0", "--json"), {"PERDURE_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    with started("perdure", *serve, home=tmp_path) as (first, process):
        refused = command(*serve, cwd=tmp_path, env=env)
        assert refused.returncode == 2 and refused.stdout == "" and refused.stderr.count("\n") == 1, refused.stderr
        assert str(process.pid) in refused.stderr and "--store postgresql://" in refused.stderr
        assert status(first, tmp_path) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / "gateway" / "lock").read_bytes(), "it still names the one that was killed"
    with started("perdure", *serve, home=tmp_path) as (again, process):
        assert status(again, tmp_path) == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
