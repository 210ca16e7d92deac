"""Configuration files of clients with our values in them, and without (PLG-1)."""

from __future__ import annotations

import errno
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.adapters.logs import places_of_clients
from perdure.adapters.machine.clients import claude_folder
from perdure.errors import BadSetting, PerdureError
from perdure.plugin import setup as client_setup
from perdure.plugin.configs import (
    END,
    codex_with_gateway,
    codex_without_gateway,
    codex_without_plugin,
    json_dropped,
    json_with,
    json_without,
)
from perdure.plugin.setup import CLIENTS, ClientSetup

URL = "http://127.0.0.1:8787"
FILE = Path("config")
OURS = {("env", "ANTHROPIC_BASE_URL"): URL}

CODEX = {
    "empty": "",
    "comments": '# mine\nmodel = "gpt-5.4"  # the best\n\n[tui]\n# quiet\nnotifications = false\n',
    "another provider": 'model_provider = "ollama" # local\nmodel = "x"\n\n[model_providers.ollama]\nname = "Ollama"\n',
    "no end of line": 'model = "x"',
    "dotted": 'model_providers.other.name = "Other"\n',
    "a table at once": '[features]\nhooks = true\n[[skills.config]]\nname = "x"\n',
    "text that looks like it": 'notes = """\n# nothing\n"""\n[profiles.a]\nmodel_provider = "other"\n',
}


@pytest.mark.parametrize("name", CODEX)
def test_codex_gets_a_provider_and_loses_it(name: str) -> None:
    """PLG-1: comments and formatting stay; with our blocks out, the file is what it was."""
    before = CODEX[name]
    after = codex_with_gateway(before, URL, FILE)
    told = tomllib.loads(after)
    assert told["model_provider"] == "perdure" and told["model_providers"]["perdure"]["base_url"] == f"{URL}/v1"
    assert codex_without_gateway(after, URL, FILE).rstrip("\n") == before.rstrip("\n")
    edited = after.replace("# mine", "# mine and yours") + '\n[mcp_servers.x]\ncommand = "x"\n'
    left = tomllib.loads(codex_without_gateway(edited, URL, FILE))
    assert left == {**tomllib.loads(before), "mcp_servers": {"x": {"command": "x"}}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("model = ", "not TOML"),
        ('[model_providers.perdure]\nname = "mine"\n', "of its own"),
        ('x = """\nmodel_provider = "a"\n"""\n', "can't be changed safely"),
        ('model_providers = { a = { name = "A" } }\n', "can't be changed safely|not TOML"),
    ],
)
def test_codex_is_left_alone_where_it_isnt_safe(text: str, why: str) -> None:
    """PLG-1: a line that says what, and no change."""
    with pytest.raises(BadSetting, match=why):
        codex_with_gateway(text, URL, FILE)


SETTINGS = {
    "empty": "",
    "an object": "{}\n",
    "two spaces": '{\n  "model": "opus",\n  "env": {\n    "A": "1"\n  }\n}\n',
    "a tab, no end of line": '{\n\t"permissions": {\n\t\t"allow": []\n\t}\n}',
    "another address": '{\n  "env": {\n    "ANTHROPIC_BASE_URL": "https://proxy.example"\n  }\n}\n',
    "other scripts": '{\n  "language": "日本語"\n}\n',
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_get_values_and_lose_them(name: str) -> None:
    """PLG-1: what was there before comes back; edits in between stay."""
    before = SETTINGS[name]
    after = json_with(before, OURS, FILE)
    assert json.loads(after)["env"]["ANTHROPIC_BASE_URL"] == URL
    left = json_without(after, OURS, before, FILE)
    assert left == (before or "{}\n")
    edited = json.loads(after) | {"theme": "dark"}
    edited["env"]["B"] = "2"
    told = json.loads(json_without(json.dumps(edited), OURS, before, FILE))
    earlier = json.loads(before or "{}")
    assert told == {**earlier, "theme": "dark", "env": {**earlier.get("env", {}), "B": "2"}}


def test_a_value_that_somebody_changed_since_is_theirs() -> None:
    """PLG-1: an address of another one is not taken out."""
    after = json_with("{}", OURS, FILE).replace(URL, "https://mine.example")
    assert json.loads(json_without(after, OURS, "{}", FILE)) == {"env": {"ANTHROPIC_BASE_URL": "https://mine.example"}}


@pytest.mark.parametrize("text", ["{", "[]", '"x"', '{"env": []}', "// note\n{}", "[" * 100_000])
def test_what_is_no_settings_file_is_refused(text: str) -> None:
    """PLG-1, CLI-5: one line, and no change."""
    with pytest.raises(BadSetting, match=r"config: .*nothing was changed") as told:
        json_with(text, OURS, FILE)
    assert "\n" not in str(told.value)


def test_codex_loses_it_whatever_an_editor_did_to_the_ends_of_lines() -> None:
    """PLG-1: what was there before is all that is left."""
    after = codex_with_gateway(CODEX["another provider"], URL, FILE)
    for edited in (after.replace("\n", "\r\n"), after.rstrip("\n")):
        left = codex_without_gateway(edited, URL, FILE)
        assert tomllib.loads(left) == tomllib.loads(CODEX["another provider"]) and "perdure" not in left


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace(f"{END}\n", "", 1),
        lambda text: text[: text.rindex(END)],
        lambda text: "".join(line for line in text.splitlines(keepends=True) if not line.startswith("# perdure")),
        lambda text: f"{text}]",
    ],
    ids=["the first end is gone", "the last end is gone", "no comment is left", "no TOML"],
)
def test_what_isnt_known_for_ours_isnt_taken_out_of_codex(edit: Callable[[str], str]) -> None:
    """PLG-1: a line says what to do; somebody's own tables are never taken with it."""
    edited = edit(codex_with_gateway(CODEX["comments"], URL, FILE))
    with pytest.raises(BadSetting, match=r"config: .*nothing was changed"):
        codex_without_gateway(edited, URL, FILE)


def test_a_file_without_ours_stays_as_it_is() -> None:
    """PLG-1: somebody took it out by hand."""
    for text in CODEX.values():
        assert codex_without_gateway(text, URL, FILE) == text


def test_half_a_character_stays_what_it_was() -> None:
    """PLG-1: JSON may hold halves of surrogate pairs, as escapes."""
    after = json_with('{"note": "\\ud800"}', OURS, FILE)
    assert "\\ud800" in after.encode().decode() and json.loads(after)["note"] == "\ud800"


@pytest.mark.parametrize("providers", ["7", '"perdure"', "[]"])
def test_providers_that_are_no_table_are_refused(providers: str) -> None:
    """PLG-1, CLI-5: one line."""
    with pytest.raises(BadSetting, match=r"config: .*nothing was changed"):
        codex_with_gateway(f"model_providers = {providers}\n", URL, FILE)


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "http://127.0.0.1:1/\n", "file:///etc", "gateway"])
def test_what_is_no_address_of_a_gateway_is_refused(tmp_path: Path, url: str) -> None:
    """PLG-1, CLI-5: one line, and nothing is written."""
    (tmp_path / "healthz").write_text("")
    url = url.replace("/etc", str(tmp_path))
    setup = ClientSetup(CLIENTS["claude-code"], tmp_path / "ours", {"HOME": str(tmp_path)})
    with pytest.raises(PerdureError) as told:
        setup.set_up("gateway", url)
    assert "\n" not in str(told.value) and not (tmp_path / "ours").exists() and not (tmp_path / ".claude").exists()


def test_a_set_up_that_couldnt_be_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PLG-1: there is nothing to take back then, and no piece of a file."""
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"a":1}')
    setup = ClientSetup(CLIENTS["claude-code"], tmp_path / "ours", {"HOME": str(tmp_path)})
    replace = os.replace

    def full(old: str, new: Path) -> None:
        if Path(new) == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(old, new)

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(client_setup, "_call_gateway", lambda url: None)
    with pytest.raises(OSError, match="No space"):
        setup.set_up("gateway", URL)
    assert setup.receipt() is None and os.listdir(file.parent) == ["settings.json"] and file.read_text() == '{"a":1}'


def test_an_edit_while_the_gateway_is_asked_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PLG-1: the file is read behind the call, which may take seconds."""
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text("{}")
    setup = ClientSetup(CLIENTS["claude-code"], tmp_path / "ours", {"HOME": str(tmp_path)})
    monkeypatch.setattr(client_setup, "_call_gateway", lambda url: file.write_text('{"theme": "dark"}'))
    setup.set_up("gateway", URL)
    assert json.loads(file.read_text())["theme"] == "dark"
    setup.take_back()
    assert file.read_text() == '{"theme": "dark"}'


def test_a_file_that_was_deleted_since_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PLG-1: there is nothing to take out of it."""
    setup = ClientSetup(CLIENTS["claude-code"], tmp_path / "ours", {"HOME": str(tmp_path)})
    monkeypatch.setattr(client_setup, "_call_gateway", lambda url: None)
    setup.set_up("gateway", URL)
    setup.file.unlink()
    setup.take_back()
    assert not setup.file.exists() and setup.receipt() is None


def test_a_file_that_has_nothing_of_ours_keeps_its_bytes() -> None:
    """PLG-1: whatever its indentation is."""
    text = '{"theme":"dark",  "env":{}}'
    assert json_without(text, OURS, "{}", FILE) == text


@pytest.mark.parametrize("environ", [{}, {"CLAUDE_CONFIG_DIR": "~/c", "CODEX_HOME": "~/x", "XDG_CONFIG_HOME": "~/o"}])
def test_a_client_is_set_up_where_its_logs_and_settings_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    """PLG-1, CLI-6: the variables by which a person moves a client's folder hold for set-up and for import alike."""
    monkeypatch.setenv("HOME", str(tmp_path))
    environ = {"HOME": str(tmp_path), **environ}
    claude, codex = claude_folder(environ), CLIENTS["codex"].config(environ).parent
    assert (claude.name, codex.name) == (("c", "x") if "CODEX_HOME" in environ else (".claude", ".codex"))
    (claude / "projects").mkdir(parents=True)
    (codex / "sessions").mkdir(parents=True)
    found = dict(places_of_clients(environ))
    assert found == {"Claude Code": claude / "projects", "Codex": codex / "sessions"}
    assert CLIENTS["claude-code"].config(environ) == claude / "settings.json"
    assert CLIENTS["opencode"].config(environ).is_relative_to(tmp_path)


PLUGIN = """
[marketplaces.perdure]
source = "/x"

[plugins."perdure@perdure"]
enabled = true
# a note of mine

[plugins."perdure@perdure".mcp_servers.perdure]
enabled = false
"""


@pytest.mark.parametrize("name", CODEX)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_codex_loses_its_plugin(name: str, end: str) -> None:
    """PLG-1: the tables of its commands and those below them; other plugins, comments and formatting stay."""
    text = f"{CODEX[name]}\n{PLUGIN}\n[plugins.other]\nx = 1\n".replace("\n", end)
    left = codex_without_plugin(text, "perdure@perdure", "perdure", FILE)
    assert tomllib.loads(left) == {**tomllib.loads(CODEX[name]), "plugins": {"other": {"x": 1}}}
    assert "# a note of mine" in left and left.startswith(CODEX[name].replace("\n", end))
    assert codex_without_plugin(CODEX[name], "perdure@perdure", "perdure", FILE) == CODEX[name]


@pytest.mark.parametrize(
    "text",
    [
        '[plugins]\n"perdure@perdure" = { enabled = true }\n',
        'marketplaces.perdure.source = "/x"\n',
        'note = """\n[marketplaces.perdure]\nx\n"""\n[marketplaces.perdure]\nsource = "/x"\n',
        "[plugins",
    ],
)
def test_a_plugin_that_isnt_known_for_ours_isnt_taken_out(text: str) -> None:
    """PLG-1, CLI-5: a line says what to do."""
    with pytest.raises(BadSetting, match=r"config: .*(by hand|mend it)"):
        codex_without_plugin(text, "perdure@perdure", "perdure", FILE)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"a": {"b": 1, "c": 2}}', {"a": {"c": 2}}),
        ('{"a": {"b": {"x": [1]}}}', {"a": {}}),
        ('{"a": [1]}', {"a": [1]}),
        ("{}", {}),
    ],
)
def test_a_value_is_dropped_whatever_it_is(text: str, left: object) -> None:
    """PLG-1: and nothing else."""
    assert json.loads(json_dropped(text, [("a", "b")], FILE)) == left
