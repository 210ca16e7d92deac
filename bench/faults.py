"""The share of planted faults that the quick tier finds, and that the night finds (HSE-5).

    python -m bench.faults [--count 30] [--seed 1] [--nightly] [--only 3 7]

Works on a clone of the last commit in `build/faults`, with an environment of its own from PyPI. Faults are drawn by
chance, each in another room and file: a comparison that is turned or moved by one, a condition that is negated, `and`
for `or`, a number that is one too large. One run with a probe in each of their functions says which tests enter them;
then each fault is planted alone and those tests are run until one fails. `--nightly` tries the tests of the night, at
their full number, on what the quick tier missed. Some faults change nothing that anyone could see: they survive both.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "faults"
TREE = FOLDER / "tree"
HITS = FOLDER / "hits"
PYTHON = TREE / ".venv" / "bin" / "python"
SPARED = ("testing", "lab")  # doubles and benchmarks: a fault there is none of the package
PROBE = """
import os
_seen = set()
def hit(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].partition("[")[0].partition("@")[0]
    if test and (number, test) not in _seen:
        _seen.add((number, test))
        with open(os.path.join({folder!r}, str(os.getpid())), "a") as file:
            file.write(f"{{number}} {{test}}\\n")
"""
_TURNED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """A piece of a source file and what takes its place, in the function whose body begins at a line."""

    path: str
    line: int
    start: int  # in characters of the file
    old: str
    new: str
    function: str
    body_line: int
    body_column: int

    def plant(self, text: str) -> str:
        """Return the file's text with the fault in it."""
        assert text[self.start :].startswith(self.old)
        return text[: self.start] + self.new + text[self.start + len(self.old) :]


def _room(path: Path) -> str:
    return "/".join(path.relative_to("src/perdure").parts[:-1][:2])


def _offset(lines: list[str], line: int, column: int) -> int:
    """Return the place of a node in the characters of its file; columns of the parser count bytes."""
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def _replacements(node: ast.AST, text: str) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expressions of a node that can be made wrong, with what makes them so."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = ast.get_source_segment(text, node.left), ast.get_source_segment(text, node.comparators[0])
        if type(node.ops[0]) in _TURNED:
            yield node, f"({left} {_TURNED[type(node.ops[0])]} {right})"
    elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, "(" + word.join(f"({ast.get_source_segment(text, value)})" for value in node.values) + ")"
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, f"(not ({ast.get_source_segment(text, node.test)}))"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield node, str(node.value + 1)


def _faults_in(path: Path, text: str) -> Iterator[Fault]:
    lines = text.splitlines(keepends=True)
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        if not body or body[0].lineno == function.lineno:
            continue
        for statement in body:
            in_texts = {
                id(part) for one in ast.walk(statement) if isinstance(one, ast.JoinedStr) for part in ast.walk(one)
            }
            for node in ast.walk(statement):
                if id(node) in in_texts:  # without places of their own before Python 3.12
                    continue
                for wrong, new in _replacements(node, text):
                    old = ast.get_source_segment(text, wrong)
                    if old is not None and "\n" not in old:
                        start = _offset(lines, wrong.lineno, wrong.col_offset)
                        yield Fault(
                            path.as_posix(), wrong.lineno, start, old, new,
                            function.name, body[0].lineno, body[0].col_offset,
                        )  # fmt: skip


def draw(count: int, seed: int) -> list[Fault]:
    """Return faults of as many rooms as there are, each in another file."""
    chance, rooms = random.Random(seed), defaultdict[str, list[Path]](list)
    for path in sorted((TREE / "src" / "perdure").rglob("*.py")):
        relative = path.relative_to(TREE)
        if relative.parts[2] not in SPARED and any(_faults_in(relative, path.read_text(encoding="utf-8"))):
            rooms[_room(relative)].append(relative)
    names, drawn = sorted(rooms), list[Fault]()
    chance.shuffle(names)
    while len(drawn) < count and any(rooms.values()):
        for name in names:
            if rooms[name] and len(drawn) < count:
                path = rooms[name].pop(chance.randrange(len(rooms[name])))
                drawn.append(chance.choice(list(_faults_in(path, (TREE / path).read_text(encoding="utf-8")))))
    return drawn


def _prepare() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not TREE.exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(TREE)], check=True)
    subprocess.run(["git", "fetch", "-q", "origin"], cwd=TREE, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    subprocess.run(["git", "checkout", "-q", "-f", head.stdout.strip()], cwd=TREE, check=True)
    subprocess.run(["make", "-s", ".venv/.installed"], cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    shared = FOLDER / "shared"  # recordings stand beside a checkout
    if not shared.exists() and (ROOT.parent / "shared").exists():
        shared.symlink_to(ROOT.parent / "shared")


def _pytest(*arguments: str, is_night: bool) -> int:
    environment = os.environ | {"PERDURE_NIGHTLY": "1" if is_night else "0", "CI": "true"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [str(PYTHON), "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", *arguments]
    with (FOLDER / "pytest.log").open("a", encoding="utf-8") as log:
        return subprocess.run(command, cwd=TREE, env=environment, stdout=log, stderr=log, check=False).returncode


def find_tests(faults: list[Fault], *, is_night: bool) -> dict[int, set[str]]:
    """Return the tests that enter the function of each fault, by its place in the list."""
    HITS.mkdir(exist_ok=True)
    for old in HITS.iterdir():
        old.unlink()
    [packages] = (TREE / ".venv" / "lib").glob("python*/site-packages")
    (packages / "fault_probe.py").write_text(PROBE.format(folder=str(HITS)), encoding="utf-8")
    for number, fault in sorted(enumerate(faults), key=lambda one: -one[1].body_line):
        path = TREE / fault.path
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        probe = f"__import__('fault_probe').hit({number})\n"
        lines.insert(fault.body_line - 1, " " * fault.body_column + probe)
        path.write_text("".join(lines), encoding="utf-8")
    try:
        _pytest(is_night=is_night)
    finally:
        subprocess.run(["git", "checkout", "-q", "-f", "--", "src"], cwd=TREE, check=True)
    tests = defaultdict[int, set[str]](set)
    for path in HITS.iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            number, _, test = line.partition(" ")
            tests[int(number)].add(test)
    return tests


def is_found(fault: Fault, tests: set[str], *, is_night: bool) -> bool:
    """Plant a fault, run the tests that enter its function until one fails, and take it out again."""
    if not tests:
        return False
    path, chosen = TREE / fault.path, FOLDER / "chosen.txt"
    chosen.write_text("\n".join(sorted(tests)), encoding="utf-8")
    path.write_text(fault.plant(path.read_text(encoding="utf-8")), encoding="utf-8")
    try:
        return _pytest("-x", f"@{chosen}", is_night=is_night) in (1, 2)  # 2: not even collected
    finally:
        subprocess.run(["git", "checkout", "-q", "-f", "--", "src"], cwd=TREE, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Count which planted faults the suite finds.")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nightly", action="store_true", help="try the tests of the night on what the quick ones miss")
    parser.add_argument("--only", nargs="*", type=int, default=[], help="only these, by number")
    asked = parser.parse_args()
    _prepare()
    faults = draw(asked.count, asked.seed)
    chosen = [number for number in range(len(faults)) if not asked.only or number in asked.only]
    missed, came = chosen, dict[str, int]()
    tests = find_tests(faults, is_night=asked.nightly)
    (FOLDER / "tests.json").write_text(json.dumps({n: sorted(found) for n, found in tests.items()}), encoding="utf-8")
    for name, is_night in (("quick", False), ("nightly", True))[: 1 + asked.nightly]:
        left = []
        for number in missed:
            fault, since = faults[number], time.monotonic()
            found = is_found(fault, tests[number], is_night=is_night)
            left += [] if found else [number]
            print(
                f"{number:3} {name:8} {'found' if found else 'MISSED':7} {len(tests[number]):5} tests "
                f"{time.monotonic() - since:5.0f} s  {fault.path}:{fault.line} {fault.function}: "
                f"{fault.old} -> {fault.new}",
                flush=True,
            )
        came[name], missed = len(missed) - len(left), left
    print(", ".join(f"{name} finds {count}" for name, count in came.items()) + f" of {len(chosen)}, in that order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
