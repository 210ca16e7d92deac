"""Configuration files of clients with our values in them, and without (PLG-1)."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from perdure.errors import BadSetting
from perdure.plugin.configs import codex_with_gateway, codex_without_gateway, json_with, json_without

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
    assert codex_without_gateway(after).rstrip("\n") == before.rstrip("\n")
    edited = after.replace("# mine", "# mine and yours") + '\n[mcp_servers.x]\ncommand = "x"\n'
    left = tomllib.loads(codex_without_gateway(edited))
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
