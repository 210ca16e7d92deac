"""SEC-8: a folder that is out to do harm is opened, and what happens is observed from outside, by the kernel.

Every setting, hook, skill, kind of agent, memory, MCP server, link, import and piece of git configuration that a folder
may hold; `run`, `chat`, `serve`, `replay` and `report` in it, each under strace in a network namespace of its own.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import command
from tests.hostile import CANARY, PERDURE, PLANTED, ROOT, SECRET, Call, Places, build, calls_in, tracing

from perdure.adapters.config import ALLOWED, SEEN

pytestmark = pytest.mark.e2e


def _why_not() -> str:
    """Why nothing can be observed here; empty when it can."""
    if platform.system() != "Linux":
        return "strace and network namespaces are Linux's"
    if missing := [name for name in ("strace", "unshare", "git") if shutil.which(name) is None]:
        return f"{', '.join(missing)} isn't installed here"
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        return "no network namespace can be made here: that takes root, or the right to"
    if subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True, check=False).returncode:
        return "nothing may be traced here"
    return "" if PERDURE.exists() else f"{PERDURE} isn't there: install the package"


WHY_NOT = _why_not()
observed = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

RUN = ["run", "say hi", "--model", "MODEL"]
RUN_OTHER, CHAT_OTHER = ["run", "say hi", "--model", "OTHER"], ["chat", "--model", "OTHER"]
SERVE, REPLAY = ["serve", "--port", "0", "--json"], ["replay", "log.jsonl"]
REPORT = ["report", "log.jsonl", "-o", "TMP/report.html"]
OPENED = [
    (RUN, "."), (CHAT_OTHER, "."), (SERVE, "."), (REPLAY, "."), (REPORT, "."),
    (RUN_OTHER, "bare"), (RUN_OTHER, "sub"), (CHAT_OTHER, "deep"), ([*RUN_OTHER, "--trust"], "."),
    ([*SERVE, "--trust"], "."),
]  # fmt: skip


@pytest.fixture
def places(tmp_path: Path) -> Places:
    made = Places(tmp_path.resolve())
    build(made)
    return made


def within(path: str, folder: Path) -> bool:
    return path == str(folder) or path.startswith(f"{folder}/")


@pytest.fixture(scope="module")
def observer() -> Iterator[subprocess.Popen[str]]:
    """A process in a network namespace of its own, which opens folders."""
    words = ["unshare", "-n", sys.executable, "-m", "tests.hostile"]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        yield running
        running.stdin.close()


def opened(
    observer: subprocess.Popen[str], places: Places, words: list[str], where: str
) -> tuple[dict[str, Any], list[Call]]:
    assert observer.stdin is not None and observer.stdout is not None
    observer.stdin.write(json.dumps([str(places.base), words, where]) + "\n")
    observer.stdin.flush()
    told = observer.stdout.readline()
    assert told, "the observer ended: what it said is on stderr"
    return json.loads(told), list(calls_in(places.base / "trace"))


@pytest.mark.quick(2)
@observed
@pytest.mark.parametrize(("words", "where"), OPENED, ids=lambda one: one if isinstance(one, str) else one[0])
def test_opening_a_hostile_folder_does_nothing_but_read_its_text(
    observer: subprocess.Popen[str], places: Places, words: list[str], where: str
) -> None:
    """SEC-8: no process, no connection but the user's own, nothing written or read outside, nothing of it sent."""
    told, calls = opened(observer, places, words, where)
    assert told["code"] == 0, told
    is_trusted = "--trust" in words

    ran = [call.given for call in calls if call.name.startswith("exec")]
    assert len(ran) == 1 and str(PERDURE) in ran[0], ran
    assert not places.mark.exists()

    peers = [call.peer for call in calls if call.name == "connect" and call.peer is not None]
    assert set(peers) <= {("127.0.0.1", told["port"])}, peers

    ours = (places.home, places.temporary, Path("/dev/null"), Path("/dev/tty"))
    written = [path for call in calls if call.is_write for path in call.paths]
    assert not [path for path in written if not any(within(path, one) for one in ours)]

    opens = [call for call in calls if call.name.startswith("open")]
    looked = [path for call in opens for path in (call.opened, *call.paths) if path]
    closed = (places.outside, places.person / ".ssh", places.person / ".aws")
    assert not [path for path in looked if any(within(path, one) for one in closed)]

    read = {os.path.relpath(call.opened, places.folder) for call in opens if within(call.opened, places.folder)}
    assert not [name for name in read if not is_text_of_the_project(name, is_trusted=is_trusted)], read

    sent = "".join(told["bodies"]) + "".join(told["heads"])
    assert CANARY not in sent and SECRET not in sent and (is_trusted or PLANTED not in sent)
    if words[0] in ("run", "chat"):
        assert "hello there" in sent or "say hi" in sent, "the user's own model was asked, or nothing was shown"
        assert ("Project text." in sent) != is_trusted, "trusted, it leaves its own files out, as its settings say"
        assert is_trusted or "the user has not said to trust" in sent
    if words[0] == "serve":
        assert "hello" in sent and not any("Project text." in body for body in told["bodies"])
    if not is_trusted:
        lines = [line for line in told["err"].splitlines() if "not trusted" in line]
        assert len(lines) == (0 if where == "sub" else 1), "one line says so, where something isn't used"
    else:
        assert (PLANTED in sent) == (words[0] == "run"), "its skills are known once it is trusted"


def is_text_of_the_project(name: str, *, is_trusted: bool) -> bool:
    """What may be opened in the folder: instruction files, HEAD, a log that was named; folders only to be listed."""
    parts = name.split("/")
    if name in ("log.jsonl", ".git/HEAD", ".claude/rules/pipe.md") or parts[-1] in (".git", "folder"):
        return True
    if parts[-1].endswith(".md") and (parts[0] == "deep" or parts[:2] == [".claude", "rules"]):
        return True
    if parts[-1] in ("CLAUDE.md", "CLAUDE.local.md") or (is_trusted and parts[-1] == "AGENTS.md"):
        return True
    if name in (".claude/settings.json", ".claude/settings.local.json"):  # only for what they leave out
        return True
    if is_trusted and (name == ".perdure/config.toml" or parts[:2] in ([".claude", "skills"], [".claude", "agents"])):
        return True
    listed = (".", ".claude/rules", ".claude/skills", ".claude/agents", ".perdure/agent-memory")
    return name in (*listed, ".perdure/agent-memory-local")


def settings_in(places: Places, cwd: Path, *words: str) -> dict[str, Any]:
    env = {"PATH": os.environ["PATH"], "HOME": str(places.person), "LANG": "C.UTF-8"}
    done = command("config", "--json", *words, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return {**{name: one["value"] for name, one in found["settings"].items()}, "models": found["models"]}


@pytest.mark.skipif(shutil.which("git") is None or not PERDURE.exists(), reason="git or the program isn't installed")
def test_no_protection_is_lowered(places: Places) -> None:
    """SEC-8: the settings that hold there are those of an empty folder; trusted, all but those on the list."""
    empty = places.base / "empty"
    empty.mkdir()
    theirs, none = settings_in(places, places.folder), settings_in(places, empty)
    assert theirs == none
    listing = f"trusted_folders={places.folder}"
    trusted, none = settings_in(places, places.folder, "--set", listing), settings_in(places, empty, "--set", listing)
    changed = {name for name in trusted if trusted[name] != none[name]}
    assert changed <= set(ALLOWED) and "preview_chars" in changed and not changed & set(SEEN)


@pytest.mark.nightly
@observed
def test_what_is_done_is_seen(tmp_path: Path) -> None:
    """The observer itself: a process, a connection, a read and a write that happen are in the trace."""
    places = Places(tmp_path.resolve())
    places.outside.mkdir()
    (places.outside / "secret.md").write_text(CANARY)
    code = "import socket; s = socket.socket(); [s.connect_ex((one, 9)) for one in ('127.0.0.1', '10.9.8.7')]"
    script = f'cat {places.outside}/secret.md > {places.mark}; {sys.executable} -c "{code}"; mkdir {places.base}/x'
    trace = places.base / "trace"
    subprocess.run(["unshare", "-n", *tracing(trace), "sh", "-c", script], check=True)
    calls = list(calls_in(trace))
    assert len([call for call in calls if call.name == "execve" and call.result == "0"]) >= 3
    assert {("127.0.0.1", 9), ("10.9.8.7", 9)} <= {call.peer for call in calls if call.name == "connect"}
    assert any(call.opened == str(places.outside / "secret.md") for call in calls if not call.is_write)
    written = [path for call in calls if call.is_write for path in call.paths]
    assert str(places.mark) in written and str(places.base / "x") in written
