"""Settings from files, environment and flags, each with where it came from (PRS-3, PRS-4, PRS-8, CLI-3, CLI-5)."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from perdure.adapters.config import ALLOWED, NAMES, SEEN, Config, UnusableValue, home_of, load, parse_setting
from perdure.adapters.machine.trust import project_file
from perdure.context.models import UNKNOWN, model_spec
from perdure.context.policy import thresholds
from perdure.errors import BadSetting
from perdure.settings import Settings

pytestmark = pytest.mark.unit


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A project below a git root, and a home beside it."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(place: Path, *flags: str, trusts: bool = True, **environ: str) -> Config:
    cwd = place / "project" / "deep" / "er"
    return load({"PERDURE_HOME": str(place / "home"), **environ}, cwd=cwd, flags=flags, trusts=trusts)


def test_defaults_hold_where_nobody_says_anything(place: Path) -> None:
    config = read(place)
    assert config.settings == Settings()
    assert {value.source for value in config.values.values()} == {"default"}
    assert NAMES == tuple(f.name for f in fields(Settings)) == tuple(config.values)
    assert not config.warnings


def other(name: str) -> object:
    """A value of a setting that isn't its default."""
    default = getattr(Settings(), name)
    words = {
        "thinking": "provider",
        "estimator": "base",
        "cache_ttl": "1h",
        "durability": "process",
        "neutralise": "off",
        "memory_mode": "ask",
        "compact_timing": "boundary",
        "policy": "thrifty",
        "permission_mode": "bypass",
        "sandbox": "off",
        "memory_directory": "/elsewhere",
        "recall_tool": False,
        "auto_compact_window": 90_000,
        "hooks": {"Stop": [{"hooks": [{"command": "true"}]}]},
    }
    if name in words:
        return words[name]
    if isinstance(default, bool):
        return not default
    return {int: 9, float: 7.5, tuple: ["a"], dict: {"Bash": 7}}.get(type(default), 9)


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def test_of_all_settings_a_project_sets_those_on_the_list_and_no_other(place: Path) -> None:
    """SEC-8: its file holds every setting there is; what isn't on the list is told, each in a line, and not used."""
    theirs = write(
        place / "project" / ".perdure" / "config.toml",
        "".join(f"{name} = {toml(other(name))}\n" for name in NAMES)
        + '[models."claude"]\nwindow_tokens = 5\n[gateway.upstreams.own]\nurl = "https://evil.example"\n',
    )
    config = read(place)
    changed = {name for name in NAMES if getattr(config.settings, name) != getattr(Settings(), name)}
    assert changed == set(ALLOWED)
    assert {one.name for one in config.warnings} == {*NAMES, "models", "gateway"} - set(ALLOWED)
    for one in (one for one in config.warnings if one.name not in SEEN):
        assert str(theirs) in one.reason and f"put it into {place / 'home' / 'config.toml'}" in one.reason
    assert not config.models and not config.gateway
    write(place / "home" / "config.toml", "".join(f"{name} = {toml(other(name))}\n" for name in NAMES))
    ours = read(place)
    same = [name for name in NAMES if getattr(ours.settings, name) == getattr(Settings(), name)]
    assert not same, "the user may set all"


NEVER = (
    "model address key url path director event permission_allow permission_mode durability redact checkpoint memory "
)
NEVER += "sandbox exclude hook neutralise instructions_local trust limit_bytes disk per_hour"


def test_the_list_is_short_and_names_nothing_that_guards_or_leads_elsewhere() -> None:
    """SEC-8: whoever adds a setting to the list sees here what must never stand on it."""
    assert {*ALLOWED, *SEEN} <= set(NAMES) and len(ALLOWED) <= 25 and all(ALLOWED.values())
    assert not [name for name in ALLOWED for word in NEVER.split() if word in name]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('main_models = ["openai:x@http://127.0.0.1:9/v1#AWS_SECRET_ACCESS_KEY"]', "main_models"),
        ('summarizer_models = ["openai:x@http://127.0.0.1:9/v1#AWS_SECRET_ACCESS_KEY"]', "summarizer_models"),
        ('events = ["jsonl:/tmp/any"]', "events"),
        ('instructions_excludes = ["**"]', "instructions_excludes"),
        ("no_such = 1", "not a setting"),
        ("preview_chars = -1", "preview_chars"),
        ("preview_chars = ", "not valid TOML"),
        ('"a\\u001b[31m\\nb" = 1', "not a setting"),
    ],
)
def test_a_project_that_says_more_does_not_keep_its_user_from_working(place: Path, text: str, said: str) -> None:
    """SEC-8: one line names file and key; the value isn't used, and the session goes on."""
    theirs = write(place / "project" / ".perdure" / "config.toml", text + "\n")
    config = read(place)
    assert config.settings == Settings()
    (one,) = config.warnings
    assert said in f"{one.name} {one.reason}" and str(theirs) in one.reason


def test_however_much_is_wrong_with_a_projects_file_what_is_told_stays_readable(place: Path) -> None:
    """SEC-8, SEC-6: neither many settings nor long ones hold anybody up."""
    many = "".join(f"unknown_{n} = 1\n" for n in range(5_000)) + "x" * 50_000 + " = 1\n"
    write(place / "project" / ".perdure" / "config.toml", many + f'preview_chars = "{"9" * 50_000}x"\n')
    told = read(place).warnings
    assert len(told) == 201 and "4,802 more" in told[-1].reason
    assert all(len(one.name) + len(one.reason) < 1_000 for one in told)


def test_later_sources_win_and_are_named(place: Path) -> None:
    user = write(
        place / "home" / "config.toml", "snip = false\npreview_chars = 100\nkeep_min_texts = 1\ncollapse = true"
    )
    project = write(
        place / "project" / ".perdure" / "config.toml", "preview_chars = 200\nkeep_min_texts = 2\nkeep_max_tokens = 9"
    )
    config = read(place, "keep_min_texts=4", PERDURE_KEEP_MIN_TEXTS="3", PERDURE_PREVIEW_CHARS="300")
    told = {name: (value.value, value.source) for name, value in config.values.items() if value.source != "default"}
    assert told == {
        "snip": (False, f"user file {user}"),
        "collapse": (True, f"user file {user}"),
        "keep_max_tokens": (9, f"project file {project}"),
        "preview_chars": (300, "environment PERDURE_PREVIEW_CHARS"),
        "keep_min_texts": (4, "flag --set keep_min_texts"),
    }
    assert config.files == (user, project)
    assert (config.settings.snip, config.settings.preview_chars, config.settings.keep_min_texts) == (False, 300, 4)


def test_every_field_can_come_from_the_environment(place: Path) -> None:
    for name in NAMES:
        default = getattr(Settings(), name)
        text = {bool: "false", int: "7", float: "0.5", tuple: "a,b", dict: "Bash=5"}.get(type(default), "7")
        text = {
            "thinking": "provider",
            "estimator": "base",
            "cache_ttl": "1h",
            "durability": "process",
            "neutralise": "results",
            "memory_mode": "ask",
            "compact_timing": "boundary",
            "policy": "thrifty",
            "permission_mode": "plan",
            "sandbox": "on",
            "recall_tool": "false",
            "auto_compact_window": "70k",
            "hooks": '{"Stop": [{"hooks": [{"command": "true"}]}]}',
        }.get(name, text)
        config = read(place, **{f"PERDURE_{name.upper()}": text})
        assert config.values[name].source == f"environment PERDURE_{name.upper()}", (name, config.warnings)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("window_tokens=200k", 200_000),
        ("window_tokens=1M", 1_000_000),
        ("window_tokens=200_000", 200_000),
        ("window_tokens=200,000", 200_000),
        ("window-tokens=1.5k", 1_500),
        ("window_tokens=none", None),
        ("snip=off", False),
        ("snip=YES", True),
        ("auto_compact_percent=72.5", 72.5),
        ("cache_ttl=1h", "1h"),
        ("offload_exempt_tools=recall, Read", ("recall", "Read")),
    ],
)
def test_values_in_flags(place: Path, flag: str, value: object) -> None:
    name = flag.partition("=")[0].replace("-", "_")
    assert read(place, flag).values[name].value == value


def test_a_table_is_laid_over_the_default(place: Path) -> None:
    write(place / "home" / "config.toml", "[result_limits_chars]\nmytool = 5\nBash = 6")
    limits = read(place, "result_limits_chars.Bash=7").settings.result_limits_chars
    assert (limits["mytool"], limits["Bash"], limits["Grep"]) == (5, 7, 20_000)
    assert Settings().result_limits_chars["Bash"] == 30_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("snipp = true", ["unknown setting 'snipp'", "did you mean snip?"]),
        ("snip = 3", ["snip = 3", "true or false"]),
        ("window_tokens = -5", ["window_tokens = -5", "1 or more"]),
        ("window_tokens = true", ["window_tokens = True", "whole number"]),
        ("window_tokens = 1.5", ["whole number"]),
        ("cache_ttl = '2h'", ["5m, 1h"]),
        ("offload_exempt_tools = [1]", ["list of names"]),
        ("result_limits_chars = 4", ["table"]),
        ("snip = ", ["not valid TOML"]),
        ("models = 3", ["models has to be tables"]),
        ('[models."m"]\nwindow = 5', ["unknown entry 'window'", "did you mean window_tokens?"]),
        ('[models."m"]\nwindow_tokens = "x"', ['models."m"', "whole number"]),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_line(place: Path, text: str, words: list[str]) -> None:
    path = write(place / "home" / "config.toml", text)
    with pytest.raises(BadSetting) as caught:
        read(place)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    assert all(word in message for word in words), message


def test_a_file_that_is_not_utf8_is_named(place: Path) -> None:
    (place / "home" / "config.toml").write_bytes(b"snip = '\xff'")
    with pytest.raises(BadSetting, match="not UTF-8 at byte 8"):
        read(place)


@pytest.mark.parametrize("flag", ["snipp=true", "snip", "snip=3x", "window_tokens=0", "thinking=maybe", "=", ""])
def test_a_flag_that_cannot_be_used_is_an_error(place: Path, flag: str) -> None:
    with pytest.raises(BadSetting, match="--set"):
        read(place, flag)


def test_prs_3_aliases_strongest_first(place: Path) -> None:
    """PRS-3: our own variables go before Claude Code's."""
    both = read(
        place,
        PERDURE_AUTO_COMPACT_WINDOW="150000",
        CLAUDE_CODE_AUTO_COMPACT_WINDOW="120000",
        PERDURE_AUTOCOMPACT_PCT="80",
        CLAUDE_AUTOCOMPACT_PCT_OVERRIDE="50",
    )
    assert (both.settings.auto_compact_window, both.settings.auto_compact_percent) == (150_000, 80.0)
    theirs = read(place, CLAUDE_CODE_AUTO_COMPACT_WINDOW="120000", CLAUDE_AUTOCOMPACT_PCT_OVERRIDE="50")
    assert (theirs.settings.auto_compact_window, theirs.settings.auto_compact_percent) == (120_000, 50.0)
    assert theirs.values["auto_compact_percent"].source == "environment CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"


@pytest.mark.parametrize("value", ["0", "-1", "100.5", "nan", "inf", "many"])
def test_prs_3_percent_outside_its_range_is_ignored_with_a_warning(place: Path, value: str) -> None:
    """PRS-3: any other value is ignored with a warning, from wherever it comes."""
    from_environment = read(place, PERDURE_AUTOCOMPACT_PCT=value, CLAUDE_AUTOCOMPACT_PCT_OVERRIDE="60")
    assert from_environment.settings.auto_compact_percent == 60.0
    assert [w.name for w in from_environment.warnings] == ["auto_compact_percent"]
    assert "PERDURE_AUTOCOMPACT_PCT" in from_environment.warnings[0].reason
    from_flag = read(place, f"auto_compact_percent={value}")
    assert from_flag.settings.auto_compact_percent is None and len(from_flag.warnings) == 1


@pytest.mark.parametrize("value", [-3, 5, 9_999])
def test_prs_3_a_window_outside_its_range_in_a_file_is_ignored(place: Path, value: int) -> None:
    """PRS-3: one that leaves no room would fail every call; the line says the least, and why."""
    write(place / "home" / "config.toml", f"auto_compact_window = {value}")
    config = read(place)
    assert config.settings.auto_compact_window is None
    assert "auto_compact_window" in config.warnings[0].name
    assert "has to be 10,000 or more: less has no room for the system prompt" in config.warnings[0].reason
    assert read(place, "auto_compact_window=10k").settings.auto_compact_window == 10_000


@pytest.mark.parametrize(
    ("percent", "trigger"), [("50", 90_000), ("100", 167_000), ("99", 167_000), ("92.7", 166_860), ("0.001", 1)]
)
def test_prs_3_percent_sets_the_trigger(place: Path, percent: str, trigger: int) -> None:
    """PRS-3: min(floor(usable * pct / 100), trigger)."""
    settings = read(place, PERDURE_AUTOCOMPACT_PCT=percent).settings
    assert thresholds(settings, UNKNOWN, 200_000, "default").trigger == trigger


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
def test_prs_4_disable_compact_switches_off_for_good(place: Path, value: str) -> None:
    """PRS-4: neither a file nor a flag overrules the environment's off switch."""
    config = read(place, "compact=true", DISABLE_COMPACT=value)
    assert not config.settings.compact and config.values["compact"].source == "environment DISABLE_COMPACT"
    assert "overruled by DISABLE_COMPACT" in config.warnings[0].reason
    assert not thresholds(config.settings, UNKNOWN, 200_000, "default").auto
    only_auto = read(place, DISABLE_AUTO_COMPACT=value).settings
    assert only_auto.compact and not only_auto.auto_compact


@pytest.mark.parametrize("value", ["0", "false", "", "no"])
def test_prs_4_other_values_switch_nothing_off(place: Path, value: str) -> None:
    settings = read(place, DISABLE_COMPACT=value, DISABLE_AUTO_COMPACT=value).settings
    assert settings.compact and settings.auto_compact


def test_the_environment_only_warns(place: Path) -> None:
    config = read(place, PERDURE_SNIP="maybe", PERDURE_SNIPP="true", PERDURE_HYPOTHESIS="ci", OTHER="x")
    assert config.settings == Settings()
    assert [warning.name for warning in config.warnings] == ["snip", "PERDURE_SNIPP"]
    assert "did you mean PERDURE_SNIP?" in config.warnings[1].reason


def test_the_project_file_is_looked_for_up_to_the_git_root_only(place: Path) -> None:
    write(place / ".perdure" / "config.toml", "snip = false")
    assert project_file(place / "project" / "deep") is None
    nearest = write(place / "project" / "deep" / ".perdure" / "config.toml", "snip = false")
    assert project_file(place / "project" / "deep" / "er") == nearest
    (place / "loose" / "inner").mkdir(parents=True)
    write(place / "loose" / ".perdure" / "config.toml", "snip = false")
    assert project_file(place / "loose" / "inner") is None, "outside a repository only the folder itself"


def test_one_file_is_not_read_twice(place: Path) -> None:
    write(place / "project" / ".perdure" / "config.toml", "snip = false")
    config = load({"PERDURE_HOME": str(place / "project" / ".perdure")}, cwd=place / "project")
    assert len(config.files) == 1 and config.values["snip"].source.startswith("user file")


def test_models_of_the_user_go_before_the_table(place: Path) -> None:
    """PRS-8: the user's word on a model's window."""
    write(
        place / "home" / "config.toml",
        '[models."my-model"]\nwindow_tokens = 16_384\nmax_output_tokens = 2048\n'
        '[models."org/claude-opus-4-5"]\nwindow_tokens = 500_000',
    )
    models = read(place).models
    assert model_spec("my-model-v2", models).window_tokens == 16_384
    opus = model_spec("claude-opus-4-5-20251101", models)
    assert opus.window_tokens == 500_000 and opus.input_usd == 5, "the rest stays as in the table"
    assert model_spec("claude-opus-4-5-20251101").window_tokens == 200_000


def test_home(tmp_path: Path) -> None:
    assert home_of({"PERDURE_HOME": str(tmp_path)}) == tmp_path
    assert home_of({"HOME": str(tmp_path)}) == tmp_path / ".perdure"


def test_rules_of_all_scopes_hold_together_and_a_project_gives_itself_none(place: Path) -> None:
    """LIB-1, SEC-1: whoever wrote the project must not decide what is done without asking."""
    write(
        place / "home" / "config.toml",
        'permission_allow = ["Bash(make:*)"]\npermission_deny = ["Read(.env)"]\npermission_mode = "accept_edits"',
    )
    write(
        place / "project" / ".perdure" / "config.toml",
        'permission_allow = ["Bash"]\npermission_deny = ["Bash(git push:*)"]\npermission_mode = "bypass"',
    )
    config = read(place, "permission_deny=Task")
    settings = config.settings
    assert settings.permission_allow == ("Bash(make:*)",) and settings.permission_mode == "accept_edits"
    assert settings.permission_deny == ("Read(.env)", "Bash(git push:*)", "Task")
    assert "flag --set" in config.values["permission_deny"].source
    assert [warning.name for warning in config.warnings] == ["permission_allow", "permission_mode"]


# --- Claude Code's own files ------------------------------------------------------------------------------------------

THEIR_HOOK = {"hooks": [{"type": "command", "command": "theirs"}]}


def claude(place: Path, **files: object) -> Config:
    """The settings that hold in a trusted project, with these files of Claude Code: user, project, local."""
    folders = {"user": place / "person" / "settings.json"}
    folders |= {
        n: place / "project" / ".claude" / f"settings{m}.json" for n, m in (("project", ""), ("local", ".local"))
    }
    for name, content in files.items():
        write(folders[name], content if isinstance(content, str) else json.dumps(content))
    return load(
        {"PERDURE_HOME": str(place / "home"), "CLAUDE_CONFIG_DIR": str(place / "person")},
        cwd=place / "project",
        flags=("claude_code_settings=true",),
        trusts=True,
    )


def test_claude_codes_settings_are_read_by_the_persons_choice(place: Path) -> None:
    """CMP-10, SEC-8: its keys and hooks, each with its source; without the choice, nothing of it."""
    own = {"autoCompactEnabled": False, "autoCompactWindow": 150_000, "fileCheckpointingEnabled": False}
    config = claude(place, user={**own, "hooks": {"Stop": [THEIR_HOOK]}, "model": "opus"})
    source = f"Claude Code's {place / 'person' / 'settings.json'}"
    for name, value in (("auto_compact", False), ("auto_compact_window", 150_000), ("checkpoints", False)):
        assert config.values[name].value == value and config.values[name].source == source
    assert [str(one) for one in config.settings.hooks] == ["Stop: theirs"] and not config.warnings
    write(place / "home" / "config.toml", "auto_compact_window = 90_000\n")
    assert claude(place).values["auto_compact_window"].value == 90_000, "Perdure's own file is stronger"
    environ = {"PERDURE_HOME": str(place / "home"), "CLAUDE_CONFIG_DIR": str(place / "person")}
    unread = load(environ, cwd=place / "project", trusts=True)
    assert unread.settings.auto_compact and not unread.settings.hooks


def test_a_project_cannot_make_the_choice_nor_more_than_a_projects_file(place: Path) -> None:
    """SEC-8: of its files, the window and hooks that somebody saw; it can't switch off the user's hooks."""
    write(place / "project" / ".perdure" / "config.toml", "claude_code_settings = true\n")
    environ = {"PERDURE_HOME": str(place / "home"), "CLAUDE_CONFIG_DIR": str(place / "person")}
    write(place / "person" / "settings.json", json.dumps({"hooks": {"Stop": [THEIR_HOOK]}}))
    assert not load(environ, cwd=place / "project", trusts=True).settings.hooks
    theirs = {"autoCompactEnabled": False, "fileCheckpointingEnabled": False, "autoCompactWindow": 120_000}
    config = claude(place, project={**theirs, "hooks": {"Stop": [{"hooks": [{"command": "evil"}]}]}},
                    local={"disableAllHooks": True, "hooks": {"Stop": [THEIR_HOOK]}})  # fmt: skip
    assert config.settings.auto_compact and config.settings.checkpoints
    assert config.settings.auto_compact_window == 120_000
    assert [one.command for one in config.settings.hooks] == ["theirs"], "the user's"
    (unseen,) = config.unseen
    assert unseen.file == ".claude/settings.json" and [one.command for one in unseen.commands] == ["evil"]
    told = "\n".join(one.reason for one in config.warnings)
    assert "autoCompactEnabled: a project may not set it" in told and "nobody has seen it yet" in told
    assert not claude(place, user={"disableAllHooks": True, "hooks": {"Stop": [THEIR_HOOK]}}).settings.hooks


def test_in_an_untrusted_folder_claude_codes_files_are_not_read(place: Path) -> None:
    """SEC-8: they are named as what waits for trust."""
    write(place / "project" / ".claude" / "settings.json", json.dumps({"hooks": {"Stop": [THEIR_HOOK]}}))
    environ = {"PERDURE_HOME": str(place / "home"), "CLAUDE_CONFIG_DIR": str(place / "person")}
    config = load(environ, cwd=place / "project", flags=("claude_code_settings=true",))
    assert not config.settings.hooks and config.unapproved == (".claude/settings.json",) and not config.unseen


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "nothing of it is used"),
        ("[" * 100_000, "nothing of it is used"),
        ("7", "isn't a JSON object"),
        ('{"hooks": 7}', "has to be a table of events"),
        ('{"hooks": {"PermissionRequest": []}}', "there is no such event here"),
        ('{"autoCompactWindow": 0}', "has to be 10,000 or more"),
        ('{"autoCompactEnabled": "perhaps"}', "true or false"),
        ('{"autoCompactEnabled": "no"}', 'autoCompactEnabled has to be true or false, and not "no", so it isn\'t used'),
        ('{"fileCheckpointingEnabled": 0}', "fileCheckpointingEnabled has to be true or false, and not 0"),
    ],
)
def test_what_cannot_be_used_of_claude_codes_files_is_told(place: Path, content: str, why: str) -> None:
    """SEC-8: another program's file is never an error here."""
    config = claude(place, user=content)
    assert len(config.warnings) == 1 and why in config.warnings[0].reason
    assert config.settings.auto_compact and config.settings.checkpoints and not config.settings.hooks


def test_an_old_name_says_what_it_is_called_now(place: Path) -> None:
    write(place / "home" / "config.toml", 'pre_compact_hooks = ["x"]\n')
    with pytest.raises(BadSetting, match=r"pre_compact_hooks is \[\[hooks.PreCompact\]\] now"):
        read(place)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ('["**/rules/**"]', ("**/rules/**",)),
        (' ["a, b", "c"] ', ("a, b", "c")),
        ("[]", ()),
        ("a, b", ("a", "b")),
        ("[ab]*.md", ("[ab]*.md",)),
    ],
)
def test_a_list_in_a_flag_or_a_variable_is_a_list(given: str, names: tuple[str, ...]) -> None:
    """Finding L7: a list as it stands in a file is one on a command line and in the environment, too."""
    assert parse_setting("instructions_excludes", given, ()) == names


@pytest.mark.parametrize("given", ["['a']", '["a", 3]', "[a, b]"])
def test_a_list_that_cannot_be_read_is_no_name(given: str) -> None:
    """Finding L7: it is refused, and not taken for one odd name."""
    with pytest.raises(UnusableValue, match="list"):
        parse_setting("instructions_excludes", given, ())
