"""Who may import whom, and what the pure rooms must not touch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "perdure"

# Rooms without a clock, disk, network, environment, chance, logging or async.
PURE_ROOMS = (
    *("text", "transcript", "logs", "memory", "context", "recall", "compaction"),
    *("settings", "errors", "events", "prompts", "hooks"),
)
# The shell awaits, but sees the machine only through ports.
SHELL_ROOMS = ("engine",)

MACHINE_MODULES = frozenset(
    "fcntl glob io logging mmap multiprocessing os pathlib platform pwd random secrets select selectors shutil signal "
    "socket sqlite3 ssl subprocess tempfile time urllib uuid".split()
)
WAITING_MODULES = frozenset("anyio asyncio concurrent queue sched threading".split())
MACHINE_CALLS = frozenset("open input print breakpoint __import__ exec eval".split())
CLOCK_ATTRIBUTES = frozenset({"now", "utcnow", "today"})
CLOCK_CLASSES = frozenset({"datetime", "date"})
THIRD_PARTY_IN_PURE_ROOMS = frozenset({"msgspec", "re2", "yaml"})  # re2, yaml: patterns and front matter (SEC-6)


def of_rooms(trees: Mapping[Path, ast.Module], rooms: tuple[str, ...]) -> Iterator[tuple[Path, ast.Module]]:
    """The modules of some rooms; a room is a folder or a single file."""
    for path, tree in trees.items():
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in rooms:
            yield path, tree


def imported_roots(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module.partition(".")[0]]
    return []


def clock_names(tree: ast.AST) -> frozenset[str]:
    """The names under which this file knows datetime.datetime and datetime.date."""
    names = set(CLOCK_CLASSES)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "datetime":
            names.update(alias.asname for alias in node.names if alias.name in CLOCK_CLASSES and alias.asname)
    return frozenset(names)


def is_clock_read(node: ast.AST, clocks: frozenset[str]) -> bool:
    if not (isinstance(node, ast.Attribute) and node.attr in CLOCK_ATTRIBUTES):
        return False
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return name in clocks


def machine_uses(tree: ast.AST, forbidden_modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    clocks = clock_names(tree)
    for node in ast.walk(tree):
        for root in imported_roots(node):
            if root in forbidden_modules:
                yield getattr(node, "lineno", 0), f"imports {root}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MACHINE_CALLS:
            yield node.lineno, f"calls {node.func.id}()"
        if is_clock_read(node, clocks):
            yield getattr(node, "lineno", 0), "reads the clock"


def async_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await):
            yield node.lineno, "is async"


def strangers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    known = sys.stdlib_module_names | THIRD_PARTY_IN_PURE_ROOMS | {"perdure"}
    for node in ast.walk(tree):
        for root in imported_roots(node):
            if root not in known:
                yield getattr(node, "lineno", 0), f"imports the package {root}"


def test_import_contracts_hold() -> None:
    """The layers in pyproject.toml hold, and every module stands in one of them."""
    command = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    done = subprocess.run(
        [sys.executable, "-c", command, "--no-cache", "--config", "pyproject.toml"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pure_rooms_do_not_touch_the_machine(trees: Mapping[Path, ast.Module]) -> None:
    found = []
    for path, tree in of_rooms(trees, PURE_ROOMS):
        uses = [*machine_uses(tree, MACHINE_MODULES | WAITING_MODULES), *async_uses(tree), *strangers(tree)]
        found += [f"{path.relative_to(ROOT)}:{line} {what}" for line, what in uses]
    assert not found, "\n".join(found)


def test_the_shell_sees_the_machine_only_through_ports(trees: Mapping[Path, ast.Module]) -> None:
    found = []
    for path, tree in of_rooms(trees, SHELL_ROOMS):
        uses = machine_uses(tree, MACHINE_MODULES)
        found += [f"{path.relative_to(ROOT)}:{line} {what}" for line, what in uses]
    assert not found, "\n".join(found)


def test_no_module_reaches_through_the_public_face(trees: Mapping[Path, ast.Module]) -> None:
    """`from perdure import Session` inside the package would go around the layers: import from where it is defined."""
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.level or node.module != "perdure":
                continue
            for alias in node.names:
                is_module = (PACKAGE / f"{alias.name}.py").is_file() or (PACKAGE / alias.name).is_dir()
                if not is_module and alias.name != "__version__":
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} takes {alias.name} from perdure itself")
    assert not found, "\n".join(found)


def assigned_outside(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Assignments to a field of something that is called a session."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(one, ast.Attribute) and ast.unparse(one.value).lstrip("_").endswith("session"):
                    yield one.lineno, ast.unparse(one)


def test_nobody_assigns_the_fields_of_a_session_from_outside(trees: Mapping[Path, ast.Module]) -> None:
    """LIB-5: what works for a session is given when it is opened; all else it changes itself."""
    found = []
    for path, tree in trees.items():
        if path != PACKAGE / "engine" / "session.py":
            found += [f"{path.relative_to(ROOT)}:{line} {what}" for line, what in assigned_outside(tree)]
    assert not found, "\n".join(found)
    planted = ast.parse("session.hooks = ()\nself._session.given_model, x = None, 1\nheld.session.changes += 1")
    assert [what for _, what in assigned_outside(planted)] == [
        "session.hooks",
        "self._session.given_model",
        "held.session.changes",
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os.path", ["imports os"]),
        ("from time import monotonic", ["imports time"]),
        ("from datetime import datetime as dt\ndt.now()", ["reads the clock"]),
        ("import datetime\ndatetime.datetime.utcnow()", ["reads the clock"]),
        ("import datetime\ndatetime.date.today()", ["reads the clock"]),
        ("with open('x'): pass", ["calls open()"]),
        ("from datetime import datetime\ndatetime.fromisoformat('2026-01-01')", []),
        ("facts.now", []),
    ],
)
def test_the_walk_sees_what_it_should(source: str, expected: list[str]) -> None:
    assert [what for _, what in machine_uses(ast.parse(source), MACHINE_MODULES)] == expected
