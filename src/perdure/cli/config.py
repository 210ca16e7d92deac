"""`perdure config` and `init`: the settings that hold here with where they came from, and a file for them (CLI-3)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.adapters.machine.system import replace
from perdure.cli.arguments import Force, Json, Sets, complete_settings, configured, examples, family, home
from perdure.cli.output import clean, cut, out, out_json, table
from perdure.errors import BadSetting, nearest

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.context.models import ModelSpec


app = family()
_HEAD = {
    False: "# Perdure: your settings for all projects. A line without # in front holds; `perdure config` shows all.",
    True: "# Perdure: settings for this project, over each person's own. Models, permissions, paths and the like are\n"
    "# each person's, and not taken from here. A line without # in front holds; `perdure config` shows all.",
}
# The settings that are changed most: a heading, then names, each with an example where its default tells little.
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Models: keys stay in the environment (docs/use/models.md)": {
        "main_models": '["anthropic:claude-sonnet-5-5", "ollama:qwen3"]',
        "summarizer_models": '["offline"]',
        "notes_models": "",
        "window_tokens": "131_072",
    },
    "Compaction (docs/how/compaction.md)": {"auto_compact": "", "auto_compact_window": "200_000"},
    "The agent (docs/use/agent.md)": {
        "permission_mode": "",
        "permission_allow": '["Bash(git status:*)", "Edit(src/**)"]',
        "permission_ask": "",
        "permission_deny": '["Read(.env)", "Bash(git push:*)"]',
        "agent_turns": "",
    },
    "Memory, notes, instructions": {"memory": "", "memory_mode": "", "notes": "", "instructions_agents_md": ""},
    "Privacy": {"redact_at_ingest": "", "events": '["log", "jsonl:PATH"]'},
}


@app.command(
    epilog=examples("perdure config", "perdure config --changed", "perdure config pins_tokens", "perdure config --json")
)
def config(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this setting.", autocompletion=complete_settings)
    ] = None,
    *,
    sets: Sets = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what differs from the defaults.")] = False,
    json: Json = False,
) -> None:
    """Show every setting: its value, its source, what it does.

    Settings are changed in the config file that init writes, by variables such as PERDURE_PINS_TOKENS, or for one
    command by --set.
    """
    from perdure.adapters.config import NAMES
    from perdure.settings import DESCRIPTIONS, description

    config = configured(sets or ())
    if name is not None:
        name = name.replace("-", "_")
        if name not in NAMES:
            raise BadSetting(f"unknown setting {name!r}{nearest(name, NAMES)}; `perdure config` lists all")
    names = [n for n in NAMES if name in (None, n)]
    if changed:
        names = [n for n in names if config.values[n].source != "default"]
    if json:
        out_json(_data(config, names, is_whole=name is None))
        return
    if name is not None and names:
        out(f"{_value(config.values[name].value)}  (from: {clean(config.values[name].source)})")
        out(description(name))
        return
    for heading, group in DESCRIPTIONS.items():
        rows = [
            (one, cut(_value(config.values[one].value), 40), _source(config.values[one].source), what)
            for one, what in group.items()
            if one in names
        ]
        if rows:
            out(heading)
            table(("setting", "value", "from", "what it does"), rows, indent="  ")
            out()
    for model in config.models:
        told = ", ".join(f"{key} {_value(value)}" for key, value in _changed(model).items())
        out(f"model {clean(model.prefix)}: {told or 'as in the table'}")
    folder = config.folder
    state = "trusted" if folder.is_trusted else "not trusted"
    out(f"the folder {clean(str(folder.root))} is {state} ({clean(folder.why)})")
    if config.unapproved:
        out(f"not used, as it isn't trusted: {clean(', '.join(config.unapproved))}")
    for warning in config.warnings:
        out(f"not used: {clean(warning.name)}: {clean(warning.reason)}")
    out(f"sessions and the user file are in {clean(str(config.home))}")


def _data(config: Config, names: list[str], *, is_whole: bool) -> dict[str, Any]:
    from perdure.settings import description

    data: dict[str, Any] = {
        n: {"value": config.values[n].value, "source": config.values[n].source, "description": description(n)}
        for n in names
    }
    if not is_whole:
        return data
    return {
        "settings": data,
        "models": {model.prefix: asdict(model) for model in config.models},
        "home": str(config.home),
        "folder": {
            "root": str(config.folder.root),
            "is_trusted": config.folder.is_trusted,
            "why": config.folder.why,
            "held": list(config.unapproved),
        },
        "files": [str(path) for path in config.files],
        "warnings": [{"name": warning.name, "reason": warning.reason} for warning in config.warnings],
    }


def _source(source: str) -> str:
    """Where a value is from; nothing for a default, which most are."""
    return "" if source == "default" else source


def _changed(model: ModelSpec) -> dict[str, Any]:
    """What an entry says other than the table of known models."""
    from perdure.context.models import ModelSpec, model_spec

    known = model_spec(model.prefix)
    names = [f.name for f in fields(ModelSpec) if f.name != "prefix"]
    return {n: getattr(model, n) for n in names if getattr(model, n) != getattr(known, n)}


def _value(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_value(item)}" for key, item in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


# --- a file to begin with, in which every line says what it does ------------------------------------------------------


@app.command(epilog=examples("perdure init", "perdure init --project"))
def init(
    *,
    project: Annotated[bool, typer.Option("--project", help="For this folder, in .perdure/config.toml.")] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a config file to start from.

    It has the settings that are changed most, each with what it does.
    """
    from perdure.adapters.journal.disk import DISK, make_private, write_new
    from perdure.adapters.machine.trust import CONFIG
    from perdure.memory.places import FOLDER

    path = Path.cwd() / FOLDER / CONFIG if project else home() / CONFIG
    if path.exists() and not force:
        raise BadSetting(f"{path}: already exists; edit it, or overwrite it with --force")
    if project:
        path.parent.mkdir(exist_ok=True)
    else:
        make_private(path.parent)
    beside = path.with_name(f".{CONFIG}.{os.getpid()}")
    try:
        write_new(DISK, beside, template(is_project=project).encode())
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from e  # a write that fails doesn't say where
    beside.chmod(0o644 if project else 0o600)
    replace(beside, path)
    if json:
        out_json({"path": str(path)})
    else:
        out(f"wrote {path}; every line in it is a comment until you change it")


def template(*, is_project: bool) -> str:
    """The file's text: all settings commented out, with their defaults or examples."""
    from perdure.adapters.config import ALLOWED
    from perdure.settings import Settings, description

    defaults, lines = Settings(), [_HEAD[is_project]]
    for heading, names in SECTIONS.items():
        offered = {name: example for name, example in names.items() if name in ALLOWED or not is_project}
        lines += ["", f"# --- {heading}"] if offered else []
        for name, example in offered.items():
            lines += [f"# {description(name)}", f"#{name} = {example or _toml(getattr(defaults, name))}"]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A default as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' for one in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
