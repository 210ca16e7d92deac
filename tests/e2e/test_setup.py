"""`perdure setup`: clients set up for the gateway or with the plugin, tried, and taken back (PLG-1)."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import bench.clients
import pytest
from bench.clients import CLIENTS, Worker, folder_of, gateway, is_installed
from tests.commands import command

from perdure.plugin.build import SELECTOR, build_plugin
from perdure.testing import FakeServer

CLAUDE_CODE = next(client for client in CLIENTS if client.name == "claude-code")
CODEX = next(client for client in CLIENTS if client.name == "codex, defaults")
pytestmark = pytest.mark.e2e


class Well(BaseHTTPRequestHandler):
    """A gateway that is well."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()
        self.wfile.write(self.server.health)  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Well)
    server.health = getattr(request, "param", b'{"service": "perdure", "status": "ok"}')  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def environ(home: Path, program: Path | None = None) -> dict[str, str]:
    """The environment of a person with this home directory."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "CLAUDE"))}
    path = f"{program.parent}:{outer['PATH']}" if program else outer["PATH"]
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "NO_COLOR": "1"}
    codex = {"CODEX_HOME": str(home / ".codex"), "PERDURE_HOME": str(home / ".perdure"), "XDG_CONFIG_HOME": ""}
    return {**outer, **quiet, **codex, "HOME": str(home), "PATH": path}


def setup(home: Path, *arguments: str, program: Path | None = None) -> tuple[int, str, str]:
    done = command("setup", *arguments, cwd=home, env=environ(home, program))
    return done.returncode, done.stdout, done.stderr


FILES = {
    "claude-code": (".claude/settings.json", '{\n    "model": "opus"\n}'),
    "codex": (".codex/config.toml", '# mine\nmodel = "gpt-5.4" # the best\n\n[tui]\nnotifications = false'),
    "opencode": (".config/opencode/opencode.json", '{"theme": "system", "provider": {"openai": {"options": {}}}}\n'),
}


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("is_there", [True, False], ids=["with a configuration", "without one"])
def test_for_the_gateway_and_back(tmp_path: Path, url: str, client: str, is_there: bool) -> None:
    """PLG-1: a second run changes nothing, and the file gets its bytes back, or is gone again."""
    name, before = FILES[client]
    file = tmp_path / name
    if is_there:
        file.parent.mkdir(parents=True)
        file.write_text(before)
        file.chmod(0o640)
    code, said, wrong = setup(tmp_path, client, "--gateway", "--url", url)
    assert (code, wrong) == (0, "") and "is set up for the gateway, and it works" in said
    held = file.read_bytes()
    assert url in held.decode() and (not is_there or file.stat().st_mode & 0o777 == 0o640)
    code, said, wrong = setup(tmp_path, client, "--gateway", "--url", f"{url}/")
    assert (code, wrong) == (0, "") and "nothing was changed" in said and file.read_bytes() == held
    code, said, wrong = setup(tmp_path, client, "--gateway", "--url", url.replace("127.0.0.1", "localhost"))
    assert code == 2 and "--remove" in wrong and len(wrong.splitlines()) == 1 and file.read_bytes() == held
    code, said, wrong = setup(tmp_path, client, "--remove")
    assert (code, wrong) == (0, "") and "no longer set up" in said
    assert (file.read_text() == before) if is_there else not file.exists()
    code, said, wrong = setup(tmp_path, client, "--remove")
    assert code == 2 and "nothing was set up" in wrong


@pytest.mark.parametrize(
    "url", [b"", b"ok", b'{"status": "ok"}', b'{"service": 7}', b'{"service": "other"}', b"\xff[" * 9], indirect=True
)
def test_what_answers_has_to_be_our_gateway(tmp_path: Path, url: str) -> None:
    """PLG-1, CLI-5: any server may say 200; a client is only sent to one that says it is ours."""
    code, said, wrong = setup(tmp_path, "claude-code", "--gateway", "--url", url)
    assert code == 1 and not said and "isn't Perdure's gateway" in wrong and len(wrong.splitlines()) == 1
    assert not (tmp_path / ".claude").exists() and not (tmp_path / ".perdure").exists()


def test_edits_in_between_stay(tmp_path: Path, url: str) -> None:
    """PLG-1: what a person changed since the set-up is kept; only ours goes."""
    for client in ("claude-code", "codex"):
        name, before = FILES[client]
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text(before)
        assert setup(tmp_path, client, "--gateway", "--url", url)[0] == 0
    settings, config = (tmp_path / FILES[one][0] for one in ("claude-code", "codex"))
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"theme": "dark"}))
    config.write_text(config.read_text().replace("# mine", "# mine, edited"))
    for client in ("claude-code", "codex"):
        code, _, wrong = setup(tmp_path, client, "--remove")
        assert code == 0 and "edited since" in wrong
    assert json.loads(settings.read_text()) == {"model": "opus", "theme": "dark"}
    assert config.read_text() == FILES["codex"][1].replace("# mine", "# mine, edited") + "\n"


def test_a_link_stays_a_link(tmp_path: Path, url: str) -> None:
    """PLG-1: a configuration that lives among somebody's dotfiles is changed there."""
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / ".claude").mkdir()
    (tmp_path / "dotfiles/settings.json").write_text("{}\n")
    (tmp_path / ".claude/settings.json").symlink_to("../dotfiles/settings.json")
    assert setup(tmp_path, "claude-code", "--gateway", "--url", url)[0] == 0
    assert (
        url in (tmp_path / "dotfiles/settings.json").read_text() and (tmp_path / ".claude/settings.json").is_symlink()
    )
    assert setup(tmp_path, "claude-code", "--remove")[0] == 0
    assert (tmp_path / "dotfiles/settings.json").read_text() == "{}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("vim",), "only for claude-code, codex, opencode"),
        (("codex", "--plugin", "--gateway"), "say one of the three"),
        (("opencode", "--plugin"), "can't be set up with a plugin"),
        (("claude-code", "--gateway", "--url", "http://127.0.0.1:9"), "start one with `perdure serve`"),
        (("codex", "--plugin", "--program", "/nowhere/codex"), "No such file"),
        (("codex", "--url", "http://127.0.0.1:9"), "--url goes with --gateway"),
        (("opencode", "--url", "http://127.0.0.1:9"), "no gateway answers (Connection refused)"),
        (("codex", "--remove"), "nothing was set up"),
    ],
)
def test_what_cant_be_done_is_said_in_a_line(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    """PLG-1, CLI-5: and nothing was changed."""
    code, said, wrong = setup(tmp_path, *arguments)
    assert code in (1, 2) and not said and told in wrong and len(wrong.splitlines()) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("name", "program"), [("cline", "cline"), ("goose", "goose"), ("qwen-code", "qwen")])
def test_what_to_type_for_others_is_how_they_are_tested(tmp_path: Path, name: str, program: str) -> None:
    """PLG-1, GW-2: the line has the variables and options with which `bench.clients` runs them through the gateway."""
    code, said, wrong = setup(tmp_path, name, "--url", "http://127.0.0.1:9999")
    assert code == 2 and not said and "9999" in wrong and len(wrong.splitlines()) == 1
    typed = shlex.split(wrong.partition("`")[2].partition("`")[0])
    client = [one for one in CLIENTS if one.name in (name, f"{name}, pinned")][-1]
    values = {"KEY": bench.clients.KEY, "MODEL": "bench", "http://127.0.0.1:9999": "{url}"}
    filled = [re.sub("KEY$|MODEL$|http://127.0.0.1:9999", lambda found: values[found[0]], word) for word in typed]
    known = {*(f"{key}={value}" for key, value in client.environ.items()), *client.argv, *sum(client.before, ())}
    assert f"{{bin}}/{program}" in known and {word for word in filled if word not in (program, "session")} <= known


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_a_malformed_configuration_is_refused(tmp_path: Path, url: str, client: str) -> None:
    """PLG-1, CLI-5: a line that says which line of which file, and no change."""
    file = tmp_path / FILES[client][0]
    file.parent.mkdir(parents=True)
    for broken in (b'{"a": 1,\n = x', b"\xff\xfe{}"):
        file.write_bytes(broken)
        code, said, wrong = setup(tmp_path, client, "--gateway", "--url", url)
        assert code == 2 and not said and str(file) in wrong and "nothing was changed" in wrong
        assert file.read_bytes() == broken and not (tmp_path / ".perdure").exists()


CLAUDE = """#!/bin/sh
# Claude Code's plugin commands, as far as they matter here: `list` tells of what `install` left.
case "$2 $3" in
  "list --json") cat "$HOME/installed" 2>/dev/null || echo "[]" ;;
  "install perdure@perdure") [ -e "$HOME/broken" ] && { echo "no such plugin" >&2; exit 3; }
    echo '[{"id": "perdure@perdure"}]' > "$HOME/installed"
    [ -e "$HOME/hangs" ] && { touch "$HOME/began"; exec sleep 600; }
    exit 0 ;;
  "uninstall perdure@perdure") [ -e "$HOME/refuses" ] && { echo "not now" >&2; exit 1; }
    rm -f "$HOME/installed" ;;
esac
"""


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(CLAUDE)
    program.chmod(0o755)
    return program


def doctor(home: Path) -> list[dict[str, str]]:
    """What the doctor says of clients."""
    done = command("doctor", "--json", cwd=home, env=environ(home))
    return [one for one in map(json.loads, done.stdout.splitlines()) if one["check"] in FILES]


def test_a_plugin_that_cant_be_installed_leaves_nothing(tmp_path: Path, claude: Path) -> None:
    """PLG-1, CLI-5: the client's own words, and the settings as they were."""
    (tmp_path / "broken").touch()
    settings = tmp_path / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text("{ }")
    code, said, wrong = setup(tmp_path, "claude-code", "--program", str(claude))
    assert code == 1 and not said and "no such plugin; nothing was set up" in wrong and len(wrong.splitlines()) == 1
    assert settings.read_text() == "{ }" and not (tmp_path / "installed").exists() and not doctor(tmp_path)


def test_the_doctor_looks_at_what_was_set_up(tmp_path: Path, url: str, claude: Path) -> None:
    """PLG-1, CLI-3: whether the gateway answers, the plugin is of this Python, and its hooks had no trouble."""
    assert not doctor(tmp_path)
    assert setup(tmp_path, "codex", "--gateway", "--url", url)[0] == 0
    assert setup(tmp_path, "claude-code", "--program", str(claude))[0] == 0
    assert [one["state"] for one in doctor(tmp_path)] == ["ok", "ok"]
    errors = tmp_path / ".claude/plugins/data/perdure-perdure/errors.log"
    errors.parent.mkdir(parents=True)
    errors.write_text("2026-11-22T20:00:00Z OSError at hook.py:1\n")
    assert [one["what"] for one in doctor(tmp_path) if one["state"] == "note" and "failed once" in one["what"]]
    errors.unlink()
    hooks = tmp_path / ".perdure/setup/plugin/perdure/hooks/hooks.json"
    hooks.write_text(hooks.read_text().replace("python", "python-of-yesterday"))
    assert [one["what"] for one in doctor(tmp_path) if one["state"] == "note" and "builds it anew" in one["what"]]
    assert setup(tmp_path, "claude-code", "--program", str(claude))[0] == 0
    receipt = tmp_path / ".perdure/setup/codex.json"
    receipt.write_text(receipt.read_text().replace(url, "http://127.0.0.1:9"))
    claude_code, codex = doctor(tmp_path)
    assert claude_code["state"] == "ok" and codex["state"] == "note" and "perdure serve" in codex["what"]


def test_after_an_update_it_is_installed_again(tmp_path: Path, claude: Path) -> None:
    """PLG-1: which isn't called no change."""
    assert setup(tmp_path, "claude-code", program=claude)[0] == 0
    (tmp_path / ".perdure/setup/plugin/perdure/README.md").write_text("as an older version had it\n")
    code, said, _ = setup(tmp_path, "claude-code", program=claude)
    assert code == 0 and "is set up with the plugin" in said and "nothing was changed" not in said
    assert "nothing was changed" in setup(tmp_path, "claude-code", program=claude)[1]


def test_the_trial_compiles_what_hooks_load(tmp_path: Path, claude: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PLG-1: else each hook does, where nothing may be written then."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "compiled"))
    assert setup(tmp_path, "claude-code", program=claude)[0] == 0
    assert {"carried", "record", "reader"} <= {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")}


@pytest.mark.parametrize("is_renewed", [True, False], ids=["set up again", "removed"])
def test_a_status_line_of_a_moved_environment_is_ours(tmp_path: Path, claude: Path, is_renewed: bool) -> None:
    """PLG-1: a second set-up renews it, and --remove takes it out."""
    assert setup(tmp_path, "claude-code", program=claude)[0] == 0
    settings = tmp_path / ".claude/settings.json"
    now = settings.read_text()
    settings.write_text(now.replace(sys.executable, "/gone/bin/python"))
    if is_renewed:
        assert setup(tmp_path, "claude-code", program=claude)[2] == "" and settings.read_text() == now
    assert setup(tmp_path, "claude-code", "--remove", program=claude)[0] == 0
    assert not settings.exists() or "statusLine" not in json.loads(settings.read_text())


def test_an_interrupted_set_up_is_taken_back(tmp_path: Path, claude: Path) -> None:
    """PLG-1: without a receipt, nothing else could take it back."""
    (tmp_path / "hangs").touch()
    line = [sys.executable, "-m", "perdure", "setup", "claude-code"]
    with subprocess.Popen(line, cwd=tmp_path, env=environ(tmp_path, claude), stderr=subprocess.PIPE) as process:
        while not (tmp_path / "began").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, wrong = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Traceback" not in wrong
    assert not (tmp_path / "installed").exists() and not list(tmp_path.glob(".perdure/setup/*.json"))


def test_a_removal_that_fails_says_nothing_of_setting_up(tmp_path: Path, claude: Path) -> None:
    """PLG-1, CLI-5: and it can be tried again."""
    assert setup(tmp_path, "claude-code", program=claude)[0] == 0
    (tmp_path / "refuses").touch()
    code, _, wrong = setup(tmp_path, "claude-code", "--remove", program=claude)
    assert code == 1 and wrong == f"perdure: claude plugin uninstall {SELECTOR}: it ended with 1: not now\n"
    (tmp_path / "refuses").unlink()
    assert setup(tmp_path, "claude-code", "--remove", program=claude)[0] == 0
    assert not (tmp_path / ".perdure/setup").exists()


@pytest.mark.skipif(not is_installed(CLAUDE_CODE), reason="not installed: make clients ARGS=claude installs it")
def test_claude_code_with_the_plugin_and_back(tmp_path: Path) -> None:
    """PLG-1: one command installs it, with the status line, and one removes all of it."""
    program = folder_of(CLAUDE_CODE) / "node_modules/.bin/claude"
    settings = tmp_path / ".claude/settings.json"
    settings.parent.mkdir()
    before = '{"model": "opus",\n   "env": {}}'
    settings.write_text(before)
    code, said, wrong = setup(tmp_path, "claude-code", program=program)
    assert (code, wrong) == (0, "") and "is set up with the plugin, and it works" in said
    held = settings.read_bytes()
    told = json.loads(held)
    assert told["model"] == "opus" and told["enabledPlugins"] == {SELECTOR: True}
    line = subprocess.run(told["statusLine"]["command"], shell=True, input=b"{}", capture_output=True, check=True)
    assert line.stdout == b"perdure: nothing recorded yet\n"
    code, said, wrong = setup(tmp_path, "claude-code", "--plugin", program=program)
    assert (code, wrong) == (0, "") and "nothing was changed" in said and settings.read_bytes() == held
    code, said, wrong = setup(tmp_path, "claude-code", "--remove", program=program)
    assert (code, wrong) == (0, "") and settings.read_text() == before
    assert setup(tmp_path, "claude-code", program=program)[0] == 0
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"theme": "dark"}))
    assert setup(tmp_path, "claude-code", "--remove", program=program)[0] == 0
    assert json.loads(settings.read_text()) == {"model": "opus", "env": {}, "theme": "dark"}
    left = [path for path in (tmp_path / ".claude/plugins").rglob("*") if "perdure" in path.name.lower()]
    assert not left and not [path for path in (tmp_path / ".perdure").rglob("*") if path.is_file()]


@pytest.mark.skipif(not is_installed(CLAUDE_CODE), reason="not installed: make clients ARGS=claude installs it")
def test_a_status_line_of_ones_own_stays(tmp_path: Path) -> None:
    """PLG-1: ours is only set where there is none."""
    settings = tmp_path / ".claude/settings.json"
    settings.parent.mkdir()
    own = {"statusLine": {"type": "command", "command": "date"}}
    settings.write_text(json.dumps(own))
    code, _, wrong = setup(tmp_path, "claude-code", program=folder_of(CLAUDE_CODE) / "node_modules/.bin/claude")
    assert code == 0 and "left as it is" in wrong
    assert json.loads(settings.read_text())["statusLine"] == own["statusLine"]


@pytest.mark.skipif(not is_installed(CODEX), reason="not installed: make clients ARGS=codex installs it")
def test_codex_with_the_plugin_and_back(tmp_path: Path) -> None:
    """PLG-1: comments stay, the person is told to approve the hooks, and --remove leaves nothing."""
    program = folder_of(CODEX) / "node_modules/.bin/codex"
    config = tmp_path / ".codex/config.toml"
    config.parent.mkdir()
    before = '# mine\nmodel = "gpt-5.4" # the best\n\n[tui]\nnotifications = false\n'
    config.write_text(before)
    code, said, wrong = setup(tmp_path, "codex", program=program)
    assert code == 0 and "it works" in said and "/hooks" in wrong
    held = config.read_text()
    assert tomllib.loads(held)["plugins"][SELECTOR]["enabled"] and "# the best" in held
    assert setup(tmp_path, "codex", program=program)[0] == 0 and config.read_text() == held
    code, said, wrong = setup(tmp_path, "codex", "--remove", program=program)
    assert (code, wrong) == (0, "") and config.read_text() == before
    left = [path for path in (tmp_path / ".codex/plugins").rglob("*") if path.is_file()]
    assert not left and not [path for path in (tmp_path / ".perdure").rglob("*") if path.is_file()]


@pytest.mark.skipif(not is_installed(CLAUDE_CODE), reason="not installed: make clients ARGS=claude installs it")
def test_claude_code_asks_the_gateway_that_it_was_set_up_for(tmp_path: Path) -> None:
    """PLG-1, GW-1: what the set-up writes is what the client reads."""
    program = folder_of(CLAUDE_CODE) / "node_modules/.bin/claude"
    (tmp_path / "project").mkdir()
    worker = Worker(0, 200_000)
    with FakeServer(worker) as fake, gateway(fake.url, 200_000, tmp_path / "gateway") as served:
        assert setup(tmp_path, "claude-code", "--gateway", "--url", served.url)[0] == 0
        done = subprocess.run(
            [str(program), "-p", "Are you there?", "--output-format", "json"],
            cwd=tmp_path / "project",
            env={**environ(tmp_path), "ANTHROPIC_API_KEY": "sk-not-a-key-0123456789"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    assert "I am done" in json.loads(done.stdout)["result"] and worker.statistics.answered


def mentions(folder: Path) -> set[str]:
    """The files of a client that say something of us."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        path.name for path in files if "perdure" in str(path.relative_to(folder)) or b"perdure" in path.read_bytes()
    }


@pytest.mark.skipif(not is_installed(CLAUDE_CODE), reason="not installed: make clients ARGS=claude installs it")
@pytest.mark.parametrize("is_edited", [False, True], ids=["untouched", "edited"])
def test_claude_code_was_uninstalled_before_the_plugin(tmp_path: Path, is_edited: bool) -> None:
    """PLG-1: what its commands wrote is taken out without it."""
    settings = tmp_path / ".claude/settings.json"
    settings.parent.mkdir()
    before = '{"model": "opus",\n   "env": {}}'
    settings.write_text(before)
    program = folder_of(CLAUDE_CODE) / "node_modules/.bin/claude"
    assert setup(tmp_path, "claude-code", program=program)[0] == 0 and mentions(tmp_path / ".claude/plugins")
    if is_edited:
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"theme": "dark"}))
    code, said, wrong = setup(tmp_path, "claude-code", "--remove")
    assert code == 0 and "no longer set up" in said and "taken out without it" in wrong
    if is_edited:
        assert json.loads(settings.read_text()) == {"model": "opus", "env": {}, "theme": "dark"}
    else:
        assert settings.read_text() == before
    assert not mentions(tmp_path / ".claude/plugins") and not mentions(tmp_path / ".perdure")
    done = subprocess.run(
        [str(program), "plugin", "list", "--json"], env=environ(tmp_path), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []


@pytest.mark.skipif(not is_installed(CODEX), reason="not installed: make clients ARGS=codex installs it")
@pytest.mark.parametrize("is_edited", [False, True], ids=["untouched", "edited"])
def test_codex_was_uninstalled_before_the_plugin(tmp_path: Path, is_edited: bool) -> None:
    """PLG-1: the tables that its commands wrote are taken out without it."""
    config = tmp_path / ".codex/config.toml"
    config.parent.mkdir()
    before = '# mine\nmodel = "gpt-5.4" # the best\n\n[tui]\nnotifications = false\n'
    config.write_text(before)
    assert setup(tmp_path, "codex", program=folder_of(CODEX) / "node_modules/.bin/codex")[0] == 0
    if is_edited:
        config.write_text(config.read_text() + '\n# a server of mine\n[mcp_servers.x]\ncommand = "x"\n')
    code, said, wrong = setup(tmp_path, "codex", "--remove")
    assert code == 0 and "no longer set up" in said and "taken out without it" in wrong
    if is_edited:
        assert tomllib.loads(config.read_text()) == {**tomllib.loads(before), "mcp_servers": {"x": {"command": "x"}}}
        assert "# the best" in config.read_text() and "# a server of mine" in config.read_text()
    else:
        assert config.read_text() == before
    assert not mentions(tmp_path / ".codex/plugins") and not mentions(tmp_path / ".perdure")


@pytest.mark.skipif(not is_installed(CLAUDE_CODE), reason="not installed: make clients ARGS=claude installs it")
def test_a_plugin_that_was_installed_by_hand_is_replaced(tmp_path: Path) -> None:
    """PLG-1: --remove leaves no settings that enable a plugin which is there no more."""
    program = folder_of(CLAUDE_CODE) / "node_modules/.bin/claude"
    settings = tmp_path / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": "opus"}')
    build_plugin(tmp_path / "by-hand")
    install = [str(program), "plugin", "install", "perdure", "--marketplace", str(tmp_path / "by-hand")]
    subprocess.run(install, env=environ(tmp_path), capture_output=True, check=True)
    code, _, wrong = setup(tmp_path, "claude-code", program=program)
    assert code == 0 and "installed by hand was replaced" in wrong
    (installed,) = json.loads((tmp_path / ".claude/plugins/known_marketplaces.json").read_text()).values()
    assert installed["installLocation"] == str(tmp_path / ".perdure/setup/plugin")
    assert "nothing was changed" in setup(tmp_path, "claude-code", program=program)[1]
    assert setup(tmp_path, "claude-code", "--remove", program=program)[0] == 0
    assert "perdure" not in settings.read_text() and json.loads(settings.read_text())["model"] == "opus"
    assert not mentions(tmp_path / ".claude/plugins")
