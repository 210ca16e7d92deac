"""Where the clients on this machine keep what is their user's: settings, logs, plugins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

CLAUDE: Final = ".claude"
Environ = Mapping[str, str]


def claude_folder(environ: Environ) -> Path:
    """Claude Code's folder."""
    return _folder(environ, "CLAUDE_CONFIG_DIR", CLAUDE)


def claude_folders(environ: Environ) -> list[Path]:
    """Claude Code's folder, and the one that it had in some versions where the variable isn't set."""
    return list(dict.fromkeys((claude_folder(environ), _folder(environ, "CLAUDE_CONFIG_DIR", ".config/claude"))))


def codex_folder(environ: Environ) -> Path:
    """Codex's folder."""
    return _folder(environ, "CODEX_HOME", ".codex")


def opencode_folder(environ: Environ) -> Path:
    """opencode's folder."""
    return _folder(environ, "XDG_CONFIG_HOME", ".config") / "opencode"


def _folder(environ: Environ, variable: str, otherwise: str) -> Path:
    given = environ.get(variable) or Path(environ.get("HOME") or Path.home(), otherwise)
    return Path(given).expanduser().absolute()
