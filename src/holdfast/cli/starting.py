"""`holdfast init`: a config file to begin with, in which every line says what it does (CLI-3)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.adapters.files.disk import DISK, make_private, write_new
from holdfast.adapters.project_settings import ALLOWED
from holdfast.adapters.trust import CONFIG
from holdfast.cli.door import home, out, out_json
from holdfast.errors import BadSetting
from holdfast.memory.directory import FOLDER
from holdfast.settings import Settings

_HEAD = {
    False: "# Holdfast: your settings for all projects. A line without # in front holds; `holdfast config` shows all.",
    True: "# Holdfast: settings for this project, over each person's own. Models, permissions, paths and the like are\n"
    "# each person's, and not taken from here. A line without # in front holds; `holdfast config` shows all.",
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


def init_command(*, is_project: bool, force: bool, is_json: bool) -> None:
    """Write the file, readable by its owner only unless it belongs to a project. Refuses to write over one."""
    path = Path.cwd() / FOLDER / CONFIG if is_project else home() / CONFIG
    if path.exists() and not force:
        raise BadSetting(f"{path}: is there already; edit it, or write over it with --force")
    if is_project:
        path.parent.mkdir(exist_ok=True)
    else:
        make_private(path.parent)
    beside = path.with_name(f".{CONFIG}.{os.getpid()}")
    try:
        write_new(DISK, beside, template(is_project=is_project).encode())
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from e  # a write that fails doesn't say where
    beside.chmod(0o644 if is_project else 0o600)
    beside.replace(path)
    if is_json:
        out_json({"path": str(path)})
    else:
        out(f"wrote {path}; every line in it is a comment until you change it")


def template(*, is_project: bool) -> str:
    """The file's text: all settings commented out, with their defaults."""
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
