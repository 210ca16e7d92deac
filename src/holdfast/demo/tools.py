"""The demonstration's tools, run for real: Read, Grep and Bash over source trees on this machine."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

_READ_CHARS = 48_000
_GREP_HITS = 250

DEFINITIONS: tuple[dict[str, Any], ...] = (
    {
        "name": "Read",
        "description": "Read a text file, or the lines from offset on.",
        "input_schema": {
            "type": "object",
            "properties": {
                "file_path": {"type": "string"},
                "offset": {"type": "integer"},
                "limit": {"type": "integer"},
            },
            "required": ["file_path"],
        },
    },
    {
        "name": "Grep",
        "description": "Search the Python files of a directory for a regular expression.",
        "input_schema": {
            "type": "object",
            "properties": {"pattern": {"type": "string"}, "path": {"type": "string"}},
            "required": ["pattern", "path"],
        },
    },
    {
        "name": "Outline",
        "description": "The classes and functions of a Python file, with their signatures and first lines of docs.",
        "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]},
    },
    {
        "name": "Bash",
        "description": "Run a command and return what it prints.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
)


def run(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """The output of a call, and whether it failed."""
    try:
        if name == "Read":
            return _read(Path(arguments["file_path"]), int(arguments.get("offset", 0)), arguments.get("limit")), False
        if name == "Grep":
            return _grep(arguments["pattern"], Path(arguments["path"])), False
        if name == "Outline":
            return _outline(Path(arguments["file_path"])), False
        return _bash(arguments["command"])
    except OSError as e:
        return f"{name} failed: {e.strerror}: {e.filename}", True


def _read(path: Path, offset: int, limit: int | None) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    chosen = lines[offset : None if limit is None else offset + limit]
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(chosen, offset + 1))[:_READ_CHARS]


def _grep(pattern: str, root: Path) -> str:
    wanted, hits = re.compile(pattern), []
    for path in sorted(root.glob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if wanted.search(line):
                hits.append(f"{path}:{number}:{line.strip()[:160]}")
                if len(hits) == _GREP_HITS:
                    return "\n".join(hits)
    return "\n".join(hits) or "no match"


def _outline(path: Path) -> str:
    """Definitions in their order, each with the first line of its documentation."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            head = f"class {node.name}" if isinstance(node, ast.ClassDef) else f"{node.name}({ast.unparse(node.args)})"
            found.append((node.lineno, f"{head}  {(ast.get_docstring(node) or '').partition(chr(10))[0]}".rstrip()))
    return "\n".join(f"{number}: {line}" for number, line in sorted(found))


def _bash(command: str) -> tuple[str, bool]:
    words = shlex.split(command)
    if words[0] == "python":
        words[0] = sys.executable
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    output = done.stdout + done.stderr
    return (output or "(no output)") + (f"\nExit code {done.returncode}" if done.returncode else ""), bool(
        done.returncode
    )
