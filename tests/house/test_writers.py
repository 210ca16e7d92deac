"""Modules that write files, each with what it writes of `perdure.adapters.stores` (finding R3).

A module that begins to write fails here. Name its files in that table first, with how a purge finds a text in them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from perdure.adapters.stores import STORES

pytestmark = pytest.mark.house

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "perdure"
ASIDE = ("testing/", "lab/", "cli/bench")  # doubles and experiments, which have folders of their own
CALLS = frozenset("write_new write_text write_bytes mkdtemp mkstemp TemporaryDirectory NamedTemporaryFile".split())
ANY = "as it is told: what others call it with, or where a person says"
PROJECT = "in the project, as an agent or a person was asked to"

WRITERS = {
    "adapters/care/purge.py": ANY,
    "adapters/checkpoints/rooted_tree.py": PROJECT,
    "adapters/former.py": "{memory}**",
    "adapters/journal/append_file.py": "{session}journal.mark",
    "adapters/journal/blobs.py": "{session}blobs/*",
    "adapters/journal/contents.py": "{session}journal.jsonl",
    "adapters/journal/disk.py": ANY,
    "adapters/journal/documents.py": "conversations/*.json",
    "adapters/journal/home.py": "gateway/.probe-*",
    "adapters/journal/journal.py": "{session}journal.jsonl",
    "adapters/journal/links.py": "links.sqlite",
    "adapters/journal/projects.py": "projects/*/project",
    "adapters/journal/repair.py": "{session}journal.jsonl.*",
    "adapters/journal/search.py": "index.db",
    "adapters/journal/store.py": "calibration.*",
    "adapters/lines.py": ANY,
    "adapters/machine/rooted.py": ANY,
    "adapters/machine/shell.py": "{session}commands/*",
    "adapters/machine/system.py": ANY,
    "adapters/machine/trust.py": "trusted.json",
    "adapters/machine/workspace.py": PROJECT,
    "adapters/memory/directory.py": "memory-index/*",
    "adapters/memory/instructions.py": "approved.json",
    "adapters/sinks.py": ANY,
    "adapters/spending.py": "spending/*.jsonl",
    "adapters/transcripts.py": "transcripts/**",
    "adapters/work.py": "work.db",
    "cli/app.py": ANY,  # the null device
    "cli/chat/editor.py": "projects/*/history",
    "cli/compact.py": "**",
    "cli/config.py": "config.toml",
    "cli/doctor.py": ".probe-*",
    "cli/memory.py": "**",
    "cli/notes.py": "**",
    "cli/output.py": ANY,
    "cli/plugin.py": "**",
    "gateway/config.py": "gateway/secret",
    "plugin/build.py": "setup/plugin/**",
    "plugin/hook.py": "sessions/*/ending",
    "plugin/setup.py": "setup/*.json",
    "plugin/state.py": "sessions/*/state",
    "wiring/agents.py": "**",
    "wiring/restoring.py": "{session}journal.jsonl.*",
}


def writers() -> set[str]:
    """The modules with a call that makes or opens a file for writing."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(ASIDE) and any(map(is_write, ast.walk(ast.parse(path.read_text("utf-8"))))):
            found.add(name)
    return found


def is_write(node: ast.AST) -> bool:
    """Whether this makes a file or opens one for writing."""
    if isinstance(node, ast.Attribute) and node.attr == "O_CREAT":
        return True
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called == "connect" and isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "sqlite3":
        return True
    texts = [one.value for one in (*node.args, *(key.value for key in node.keywords)) if isinstance(one, ast.Constant)]
    is_for_writing = any(isinstance(one, str) and re.fullmatch(r"[wax]b?\+?|r\+b?", one) for one in texts)
    return called in CALLS or (called in ("open", "fdopen") and is_for_writing)


def test_every_module_that_writes_is_known() -> None:
    """R3: who adds a store adds it to the list that purge, gc, export, delete and doctor walk."""
    assert writers() == set(WRITERS)


def test_what_they_write_is_on_the_list() -> None:
    """R3: each names a line of the table, but for those that write what others tell them."""
    assert set(WRITERS.values()) - {ANY, PROJECT} <= {kind.path for kind in STORES}
