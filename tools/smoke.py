"""What a person does first with an installed Perdure, from an empty folder, without a key and without a network.

    PYTHON -I smoke.py --example README.py --log session.jsonl --version 0.1.0 [--extras]

Run by the interpreter of the environment that is tried (`make release-check` does), so it uses nothing but the standard
library and the program beside that interpreter. Prints a line of JSON for each step. With --extras the doors have to
open; without, each has to say in one line what it needs. All that it starts has ended when it ends.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

SECONDS = 600
WORDS = "connection pool timeout"  # stands in the log
DOORS = {"serve": "gateway", "mcp": "mcp", "acp": "acp", "worker": "gateway"}  # and the extras that they need
_PROTOCOL = "2025-11-25"
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


class Failed(Exception):
    """A step that did not do what it should."""


class Smoke:
    """The steps; each gives a few words of what was seen, or raises `Failed`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.program = str(Path(sys.executable).with_name("perdure"))
        self.folder = Path.cwd()
        self.person = self.folder / "person"
        self.project = self.folder / "project"
        self.person.mkdir()
        self.project.mkdir()
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.person), "LANG": "C.UTF-8", "COLUMNS": "120"}

    def steps(self) -> list[Callable[[], str]]:
        doors = [self.serve, self.mcp] if self.options.extras else [self.doors_say_what_they_need]
        more = [] if self.options.extras else [self.demo]
        looks = [
            self.version,
            self.help,
            self.doctor,
            self.example,
            self.verdict,
            self.import_,
            self.search,
            self.offline,
        ]
        return [self.no_network, *looks, *doors, *more]

    def perdure(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run(self.program, *words, code=code)

    def run(self, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != code or "Traceback" in done.stderr:
            words = " ".join([Path(command[0]).name, *command[1:]])
            raise Failed(f"`{words}` ended with {done.returncode}: {done.stderr[-1500:] or done.stdout[-1500:]}")
        return done

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.program, *words],
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # --- steps -------------------------------------------------------------------------------------------------------

    def no_network(self) -> str:
        if not self.options.cut_off:
            return "not cut off here"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:  # loopback is down in a new namespace
            fcntl.ioctl(one, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
        try:
            socket.create_connection(("192.0.2.1", 443), timeout=2).close()
        except OSError:
            return "cut off"
        raise Failed("an address beyond this machine was reached")

    def version(self) -> str:
        said = self.perdure("--version").stdout.strip()
        if self.options.version not in said.split():
            raise Failed(f"--version says {said!r}, the wheel is {self.options.version}")
        return said

    def help(self) -> str:
        shown = self.perdure("--help").stdout
        return _holds(shown, "verdict", "import", "search", "serve", "mcp")

    def doctor(self) -> str:
        return _holds(self.perdure("doctor").stdout, "all is well")

    def example(self) -> str:
        program = self.folder / "example.py"
        shutil.copyfile(self.options.example, program)
        return _holds(self.run(sys.executable, str(program)).stdout, "tokens")

    def verdict(self) -> str:
        self._put_log()
        said = json.loads(self.perdure("verdict", "--seconds", "20", "--json").stdout)
        if not said:
            raise Failed("verdict says nothing")
        return "read the log of Claude Code"

    def import_(self) -> str:
        self._put_log()
        return self.perdure("import", "--yes").stdout.strip().splitlines()[-1]

    def search(self) -> str:
        return _holds(self.perdure("search", "--all", WORDS).stdout, "pool")

    def offline(self) -> str:
        return _holds(self.perdure("run", "--model", "offline", "Say hello").stdout, "")

    def demo(self) -> str:
        shown = self.run(sys.executable, "-m", "perdure.lab.demo", "--home", str(self.folder / "demo")).stdout
        return _holds(shown, "Everything shown above held.")

    def doors_say_what_they_need(self) -> str:
        said = []
        for door, extra in DOORS.items():
            done = self.perdure(door, code=2)
            lines = done.stderr.strip().splitlines()
            if len(lines) != 1 or f"[{extra}]" not in lines[0]:
                raise Failed(f"`perdure {door}` should name the extra {extra} in one line: {done.stderr[-500:]}")
            said.append(door)
        return ", ".join(said)

    def serve(self) -> str:
        gateway = self.start("serve", "--port", "0", "--json")
        try:
            url = json.loads(_line(gateway))["url"]
            with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
                status = answer.status
            gateway.send_signal(signal.SIGTERM)
            code = gateway.wait(30)
        finally:
            _end(gateway)
        if (status, code) != (200, 0):
            raise Failed(f"/healthz answered {status}, and SIGTERM ended the gateway with {code}")
        return "/healthz, SIGTERM"

    def mcp(self) -> str:
        server = self.start("mcp")
        client = {"name": "smoke", "version": "1"}
        asked = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
        try:
            _send(server, {"id": 1, "method": "initialize", "params": asked})
            about = json.loads(_line(server))["result"]["serverInfo"]
            _send(server, {"method": "notifications/initialized"})
            _send(server, {"id": 2, "method": "tools/list"})
            tools = json.loads(_line(server))["result"]["tools"]
            assert server.stdin is not None
            server.stdin.close()
            server.stdin = None
            code = server.wait(30)
        finally:
            _end(server)
        if code or not tools:
            raise Failed(f"the server ended with {code} and has {len(tools)} tools")
        return f"{about['name']}, {len(tools)} tools"

    def _put_log(self) -> None:
        there = self.person / ".claude" / "projects" / str(self.project).replace("/", "-")
        there.mkdir(parents=True, exist_ok=True)
        text = Path(self.options.log).read_text(encoding="utf-8")
        (there / "5b1f0c9e-0000-4000-8000-000000000001.jsonl").write_text(
            text.replace("PROJECT", str(self.project)), encoding="utf-8"
        )


def _holds(text: str, *parts: str) -> str:
    if missing := [part for part in parts if part not in text]:
        raise Failed(f"{', '.join(missing)} isn't in what was printed: {text[-500:]}")
    return text.strip().splitlines()[-1] if text.strip() else ""


def _send(server: subprocess.Popen[str], message: dict[str, object]) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.kill()
        raise Failed(f"it ended without a word: {process.communicate()[1][-1500:]}")
    return line


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description="Try an installed Perdure, offline.")
    parser.add_argument("--example", required=True, help="a program that has to run")
    parser.add_argument("--log", required=True, help=f"a log of Claude Code with the words {WORDS!r}")
    parser.add_argument("--version", required=True, help="what it has to say of itself")
    parser.add_argument("--extras", action="store_true", help="everything is installed")
    parser.add_argument("--cut-off", action="store_true", help="it runs in a network namespace of its own")
    smoke = Smoke(parser.parse_args())
    failed = False
    for step in smoke.steps():
        begun = time.monotonic()
        try:
            is_ok, said = True, step()
        except (Failed, OSError, ValueError, LookupError, subprocess.TimeoutExpired) as e:
            is_ok, said = False, f"{type(e).__name__}: {e}"
        failed = failed or not is_ok
        seconds = round(time.monotonic() - begun, 2)
        line = {"step": step.__name__.strip("_"), "ok": is_ok, "said": said, "seconds": seconds}
        print(json.dumps(line), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
