"""`perdure config` and `init`: the settings that hold here with where they came from, and a file for them (CLI-3)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.arguments import Force, Json, Sets, configured, examples, family, home
from perdure.cli.output import clean, cut, out, out_json, table
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.context.models import ModelSpec


app = family()
_HEAD = {
    False: "# Perdure: your settings for all projects. A line without # in front holds; `perdure config` shows all.",
    True: "# Perdure: settings for this project, over each person's own. Models, permissions, paths and the like are\n"
    "# each person's, and not taken from here. A line without # in front holds; `perdure config` shows all.",
}
# The settings that are changed most: a heading, then names with what they do.
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Models: provider:model[@URL][#KEY]; keys stay in the environment (docs/models.md)": {
        "main_models": 'who answers, then who is asked next: ["anthropic:claude-sonnet-5-5", "ollama:qwen3"]',
        "summarizer_models": 'who writes records when the context is compacted; ["offline"]: code does it',
        "notes_models": "who keeps the session's notes",
        "window_tokens": "the model's window, where neither server nor table know it: 131_072",
    },
    "Compaction (docs/compaction.md)": {
        "auto_compact": "make room by itself before the window is full",
        "auto_compact_window": "count with a smaller window than the model has: 200_000",
    },
    "The agent (docs/agent.md)": {
        "permission_mode": "default, accept_edits, plan or bypass",
        "permission_allow": 'what needs no question: ["Bash(git status:*)", "Edit(src/**)"]',
        "permission_ask": "what is asked for in any mode",
        "permission_deny": 'what is never done: ["Read(.env)", "Bash(git push:*)"]',
        "agent_turns": "calls of the model for one prompt",
    },
    "Memory, notes, instructions": {
        "memory": "remember across sessions",
        "memory_mode": "what agents may write: off, read-only, ask or auto",
        "notes": "keep notes of each session",
        "instructions_agents_md": "read AGENTS.md beside CLAUDE.md",
    },
    "Privacy": {
        "redact_at_ingest": "keep secrets out of the journal, too",
        "events": 'where events go: ["log", "jsonl:PATH", "otel"]',
    },
}


@app.command(
    epilog=examples(
        "perdure config", "perdure config --changed", "perdure config pins_tokens", "perdure config window --json"
    )
)
def config(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this setting.")] = None,
    *,
    sets: Sets = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what differs from the defaults.")] = False,
    json: Json = False,
) -> None:
    """Show every setting and where it came from."""

    from perdure.adapters.config import NAMES, nearest

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
        return
    table(
        ("setting", "value", "from"),
        [(n, cut(_value(config.values[n].value), 60), config.values[n].source) for n in names],
    )
    for model in config.models:
        told = ", ".join(f"{key} {_value(value)}" for key, value in _changed(model).items())
        out(f"model {clean(model.prefix)}: {told or 'as in the table'}")
    folder = config.folder
    state = "trusted" if folder.is_trusted else "not trusted"
    out(f"\nthe folder {clean(str(folder.root))} is {state} ({clean(folder.why)})")
    if config.unapproved:
        out(f"not used, as it isn't trusted: {clean(', '.join(config.unapproved))}")
    for warning in config.warnings:
        out(f"not used: {clean(warning.name)}: {clean(warning.reason)}")
    out(f"sessions and the user file are in {clean(str(config.home))}")


def _data(config: Config, names: list[str], *, is_whole: bool) -> dict[str, Any]:
    data: dict[str, Any] = {n: {"value": config.values[n].value, "source": config.values[n].source} for n in names}
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
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


# --- a file to begin with, in which every line says what it does ------------------------------------------------------


@app.command(epilog=examples("perdure init", "perdure init --project"))
def init(
    *,
    project: Annotated[bool, typer.Option("--project", help="For this folder, in .perdure/config.toml.")] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a config file with the settings that are changed most, each with what it does."""

    from perdure.adapters.journal.disk import DISK, make_private, write_new
    from perdure.adapters.machine.trust import CONFIG
    from perdure.memory.places import FOLDER

    path = Path.cwd() / FOLDER / CONFIG if project else home() / CONFIG
    if path.exists() and not force:
        raise BadSetting(f"{path}: is there already; edit it, or overwrite it with --force")
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
    beside.replace(path)
    if json:
        out_json({"path": str(path)})
    else:
        out(f"wrote {path}; every line in it is a comment until you change it")


def template(*, is_project: bool) -> str:
    """The file's text: all settings commented out, with their defaults."""

    from perdure.adapters.config import ALLOWED
    from perdure.settings import Settings

    defaults, lines = Settings(), [_HEAD[is_project]]
    for heading, names in SECTIONS.items():
        offered = {name: what for name, what in names.items() if name in ALLOWED or not is_project}
        lines += ["", f"# --- {heading}"] if offered else []
        for name, what in offered.items():
            lines += [f"# {what}", f"#{name} = {_toml(getattr(defaults, name))}"]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A default as TOML; what is unset has no value there, so a telling one stands for it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' for one in value) + "]"
    if value is None:
        return "200_000"
    return f'"{value}"' if isinstance(value, str) else str(value)
