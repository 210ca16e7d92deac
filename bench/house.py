"""The house in figures: how large the package is, how it is cut, and what each kind of work passes through.

    python -m bench.house [--names] [--json] [--compare BEFORE.json] [--picture | --decisions]

Static figures are read from the sources of the one package under src/. Code lines are lines without blank ones,
comments and docstrings. A helper is used once when it is a private function of a module that is named in one place.

What work passes through is seen by a profile hook, in all threads: the source files of the package whose functions are
entered, and how many functions. Everything is done once before it is measured, so nothing is imported meanwhile.
The doubles of `testing`, and what they call, are left out.

    turn        the second turn of a session on disk: a prompt and an answer, no tools, memory switched off
    compaction  such a session with reads, changes and commands, memory on, is compacted by the ledger
    resume      the same one is opened again
    gateway     the second request of a conversation through `serve`
    run         the command `run` with one prompt, in a new project without memories

`--names` lists what was counted, `--json` prints everything for `--compare`, which shows two houses side by side.
`--picture` draws the rooms and their imports (docs/how/house.svg), and `--decisions` writes the index of the decision
records (docs/adr/README.md); nothing is measured then.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import http.client
import inspect
import io
import json
import logging
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import anyio

SRC = Path(__file__).resolve().parent.parent / "src"
QUIET_SECONDS = 0.3  # without a call of ours: what a request left to do afterwards is done
FILES = 12  # of the project that the sessions work on
# What the rebuilt house has to reach: files in each kind of work, and class names that occur more than once.
GOALS = {"repeated class names": 0, "turn": 20, "compaction": 40, "gateway": 35, "run": 60}
Names = dict[str, list[str]]


def package() -> Path:
    """The one package under src/."""
    found = [path.parent for path in SRC.glob("*/__init__.py")]
    if len(found) != 1:
        raise SystemExit(f"{SRC}: expected one package, found {len(found)}")
    return found[0]


# --- what can be read -----------------------------------------------------------------------------------------------


@dataclass
class Module:
    """A source file, taken apart."""

    name: str  # below the package, with dots; empty for the package itself
    path: str
    is_package: bool
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # everything in the tree
    code: set[int]  # numbers of its code lines

    @classmethod
    def read(cls, path: Path, root: Path) -> Module:
        source = path.read_bytes()
        relative = path.relative_to(root)
        parts = relative.with_suffix("").parts
        is_package = parts[-1] == "__init__"
        tree = ast.parse(source)
        nodes = tuple(ast.walk(tree))
        name = ".".join(parts[:-1] if is_package else parts)
        return cls(name, relative.as_posix(), is_package, tree, nodes, _code_lines(source, nodes))

    @property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    def imports(self, package: str) -> Iterator[tuple[str, ...]]:
        """What each import statement may import of the package, with dots."""
        for node in self.nodes:
            if names := tuple(_imported(node, self, package)):
                yield names

    def lines_of(self, *nodes: ast.stmt) -> int:
        """The code lines of some statements, with their decorators."""
        spans = ((min([d.lineno for d in getattr(n, "decorator_list", [])] + [n.lineno]), n.end_lineno) for n in nodes)
        return len({line for first, last in spans for line in range(first, (last or first) + 1)} & self.code)


def _code_lines(source: bytes, nodes: Iterable[ast.AST]) -> set[int]:
    """The lines on which something stands that isn't a comment or a docstring."""
    lines = enumerate(source.decode().split("\n"), 1)
    found = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    docstrings: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)):
            if (end := node.end_lineno or node.lineno) > node.lineno:  # its empty lines are of the text
                found.update(range(node.lineno, end + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found - docstrings


@dataclass
class House:
    """The modules of a package, and what can be counted in them."""

    root: Path
    modules: list[Module] = field(default_factory=list)

    @classmethod
    def read(cls, root: Path) -> House:
        return cls(root, [Module.read(path, root) for path in sorted(root.rglob("*.py"))])

    def figures(self) -> tuple[dict[str, float], dict[str, Names]]:
        """The figures, and the names behind those that count names."""
        lines = sum(len(module.code) for module in self.modules)
        imports = sum(
            module.lines_of(*(n for n in module.nodes if isinstance(n, ast.Import | ast.ImportFrom)))
            for module in self.modules
        )
        functions = [(module, node) for module in self.modules for node in module.functions]
        classes = self._classes()
        names = {
            "repeated class names": _repeated(classes),
            "repeated module names": _repeated(self._module_names()),
            "modules with one importer": self._imported_once(),
            "helpers used once": self._used_once(),
        }
        figures: dict[str, float] = {
            "source files": len(self.modules),
            "code lines": lines,
            "imports, % of code lines": round(100 * imports / lines, 1),
            "classes": sum(map(len, classes.values())),
            "functions": len(functions),
            "median function, code lines": statistics.median_high(module.lines_of(node) for module, node in functions),
            "private functions of modules": sum(len(self._helpers(module)) for module in self.modules),
        }
        figures |= {what: len(found) for what, found in names.items() if what != "helpers used once"}
        figures["helpers used once"] = sum(map(len, names["helpers used once"].values()))
        return figures, names

    def _classes(self) -> Names:
        """Where each class name is defined."""
        found: Names = defaultdict(list)
        for module in self.modules:
            for node in module.nodes:
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(f"{module.path}:{node.lineno}")
        return found

    def _module_names(self) -> Names:
        found: Names = defaultdict(list)
        for module in self.modules:
            if not Path(module.path).stem.startswith("__"):
                found[Path(module.path).stem].append(module.path)
        return found

    def _imported_once(self) -> Names:
        """Modules that one other module imports, and which."""
        names = {module.name: module for module in self.modules}
        importers: dict[str, set[str]] = defaultdict(set)
        for module in self.modules:
            for statement in module.imports(self.root.name):
                for name in statement:
                    # `from a.b import c` is of the module a.b.c if there is one, else of a.b
                    known = name if name in names else name.rpartition(".")[0]
                    if known in names and names[known] is not module:
                        importers[names[known].path].add(module.path)
        once = {path: sorted(some) for path, some in importers.items() if len(some) == 1}
        return {path: some for path, some in sorted(once.items()) if not Path(path).stem.startswith("__")}

    def _helpers(self, module: Module) -> list[str]:
        """The private functions of a module."""
        found = (node for node in module.tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        return [node.name for node in found if node.name.startswith("_") and not node.name.startswith("__")]

    def _used_once(self) -> Names:
        """The private functions of each module that are referred to in one place."""
        elsewhere = Counter(
            alias.name for module in self.modules for node in module.nodes
            if isinstance(node, ast.ImportFrom) for alias in node.names
        )  # fmt: skip
        found: Names = {}
        for module in self.modules:
            used = Counter(n.id for n in module.nodes if isinstance(n, ast.Name))
            once = [name for name in self._helpers(module) if used[name] + elsewhere[name] == 1]
            if once:
                found[module.path] = once
        return found


def _imported(node: ast.AST, module: Module, package: str) -> Iterator[str]:
    """The names below the package that a statement may import, with dots."""
    if isinstance(node, ast.Import):
        yield from (a.name.partition(".")[2] for a in node.names if a.name.partition(".")[0] == package)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            above = module.name.split(".") if module.name else []
            above = above[: len(above) - node.level + module.is_package]
            start = ".".join((*above, *((node.module or "").split(".") if node.module else ())))
        elif (node.module or "").partition(".")[0] == package:
            start = (node.module or "").partition(".")[2]
        else:
            return
        yield from (f"{start}.{alias.name}" if start else alias.name for alias in node.names)


def _repeated(places: Names) -> Names:
    return {name: some for name, some in sorted(places.items(), key=lambda p: (-len(p[1]), p[0])) if len(some) > 1}


# --- what can be watched --------------------------------------------------------------------------------------------


class Watch:
    """A profile hook for all threads that start from now on: which functions of the package are entered."""

    def __init__(self, root: Path) -> None:
        self._root, self._doubles = f"{root}{os.sep}", f"{root / 'testing'}{os.sep}"
        self._seen: set[CodeType] = set()
        self._grew = 0.0  # when one was entered that had not been before
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)

    def _hook(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event != "call" or code in self._seen or not code.co_filename.startswith(self._root):
            return
        if _is_function(code) and not self._is_for_double(frame):
            self._seen.add(code)
            self._grew = time.monotonic()

    def _is_for_double(self, frame: FrameType | None) -> bool:
        """Whether a double runs, or has called."""
        while frame is not None:
            if frame.f_code.co_filename.startswith(self._doubles):
                return True
            frame = frame.f_back
        return False

    def start(self) -> None:
        """Forget what was entered before."""
        self._seen = set()

    def seen(self) -> Names:
        """The functions that were entered since, by file."""
        found: Names = defaultdict(list)
        for code in self._seen:
            found[code.co_filename.removeprefix(self._root).replace(os.sep, "/")].append(code.co_qualname)
        return {path: sorted(names) for path, names in sorted(found.items())}

    def settle(self) -> None:
        """Wait until nothing new is entered any more: what a request leaves to be done afterwards is done then."""
        while time.monotonic() - self._grew < QUIET_SECONDS:
            time.sleep(QUIET_SECONDS / 10)

    def close(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def _is_function(code: CodeType) -> bool:
    """Not the body of a module or a class, nor a comprehension, which newer versions of Python don't call."""
    return bool(code.co_flags & inspect.CO_NEWLOCALS) and (
        code.co_name == "<lambda>" or not code.co_name.startswith("<")
    )


def turn(watch: Watch, folder: Path) -> Names:
    """The second turn of a session."""
    from perdure import Settings
    from perdure.engine.turn import run_turn
    from perdure.testing import ScriptedModel
    from perdure.wiring import SessionOptions, create_session

    async def body(folder: Path) -> Names:
        parts = SessionOptions(settings=Settings(memory=False))
        session = await create_session(folder / "home", project=made_project(folder), parts=parts)
        model = ScriptedModel(["Four.", "Six."])
        await run_turn(session, "What is two and two?", model)
        watch.start()
        await run_turn(session, "And three and three?", model)
        found = watch.seen()
        await session.close()
        return found

    return twice(body, folder)


def compaction(watch: Watch, folder: Path) -> Names:
    """A compaction by the ledger, without a model."""
    from perdure.engine.compact import compact
    from perdure.wiring import create_session

    async def body(folder: Path) -> Names:
        project = made_project(folder)
        session = await create_session(folder / "home", project=project)
        await session.append(*talk(project))
        watch.start()
        await compact(session, trigger="manual")
        found = watch.seen()
        if session.view.boundary is None:
            raise SystemExit("compaction: the session was not compacted")
        await session.close()
        return found

    return twice(body, folder)


def resume(watch: Watch, folder: Path) -> Names:
    """A session of some turns is opened again."""
    from perdure.wiring import create_session, open_session

    async def body(folder: Path) -> Names:
        home, project = folder / "home", made_project(folder)
        session = await create_session(home, project=project)
        await session.append(*talk(project))
        name = session.id
        await session.close()
        watch.start()
        session = await open_session(home, name)
        found = watch.seen()
        await session.close()
        return found

    return twice(body, folder)


def gateway(watch: Watch, folder: Path) -> Names:
    """The second request of a conversation through the command `serve`."""
    with model_server() as upstream, surroundings(folder), output() as told:
        upstreams = "".join(f'[gateway.upstreams.{name}]\nurl = "{upstream}"\n' for name in ("anthropic", "openai"))
        folder.joinpath("config.toml").write_text(upstreams)
        found: list[Names] = []
        client = threading.Thread(target=_converses, args=(watch, told, found))
        client.start()
        command("serve", "--port", "0", "--json")
        client.join()
    if not found:
        raise SystemExit("gateway: the conversation failed")
    return found[0]


def _converses(watch: Watch, told: io.StringIO, found: list[Names]) -> None:
    """Two conversations; of the second the second request is watched. Ends the server afterwards."""
    try:
        while "url" not in told.getvalue():
            time.sleep(0.01)
        wire = http.client.HTTPConnection(json.loads(told.getvalue().splitlines()[0])["url"].rpartition("/")[2])
        for subject in ("sums", "products"):
            messages: list[dict[str, object]] = [{"role": "user", "content": f"Do you know {subject}?"}]
            _asked(wire, messages)
            messages += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "Then tell me one."}]
            watch.settle()
            watch.start()
            _asked(wire, messages)
            watch.settle()
            seen = watch.seen()
        found.append(seen)
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def _asked(wire: http.client.HTTPConnection, messages: list[dict[str, object]]) -> None:
    body = {"model": "fake-model", "max_tokens": 500, "stream": True, "system": "You help.", "messages": messages}
    headers = {"x-api-key": "key", "anthropic-version": "2023-06-01", "content-type": "application/json"}
    wire.request("POST", "/v1/messages", json.dumps(body), headers)
    answer = wire.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise SystemExit(f"gateway: {answer.status}: {text[:200]!r}")


def run(watch: Watch, folder: Path) -> Names:
    """The command `run` with a prompt that is answered at once, in a project without memories."""
    project = made_project(folder)
    with model_server() as upstream, surroundings(folder), contextlib.chdir(project), output():
        arguments = ("run", "--trust", "--model", f"anthropic:fake-model@{upstream}#HOUSE_KEY", "Say hello.")
        command(*arguments)
        watch.settle()
        watch.start()
        command(*arguments)
        return watch.seen()


SCENARIOS: dict[str, Callable[[Watch, Path], Names]] = {
    "turn": turn, "compaction": compaction, "resume": resume, "gateway": gateway, "run": run
}  # fmt: skip


def twice(body: Callable[[Path], Awaitable[Names]], folder: Path) -> Names:
    """What is entered the second time, when everything is imported."""
    for number in range(2):
        place = folder / str(number)
        place.mkdir()
        found = anyio.run(body, place)
    return found


def command(*arguments: str) -> None:
    """A command of the package, in this process."""
    from perdure.cli import main

    if code := main(arguments):
        told = sys.stderr.getvalue() if isinstance(sys.stderr, io.StringIO) else ""
        raise SystemExit(f"{arguments[0]}: ended with {code}: {told.strip()}")


def talk(project: Path) -> list[Any]:
    """A conversation of an agent that reads, changes and runs the files of a project."""
    from perdure import Message

    said = []
    for number in range(FILES):
        path = str(project / f"part_{number}.py")
        given = {
            "Read": {"file_path": path},
            "Edit": {"file_path": path, "old_string": "value = 1", "new_string": f"value = {number}"},
            "Bash": {"command": f"pytest -q {path}"},
        }
        said.append(Message.of("user", f"Please set the value in {path} to {number}, and don't touch other files."))
        for name, arguments in given.items():
            call = f"toolu_{number}_{name}"
            use = {"type": "tool_use", "id": call, "name": name, "input": arguments}
            text = {"type": "text", "text": f"I'll use {name} on {path} because its value has to become {number}."}
            said.append(Message.of("assistant", [text, use]))
            shown = "\n".join(f"{line:6}\tvalue_{number}_{line} = {line}" for line in range(150))
            said.append(Message.of("user", [{"type": "tool_result", "tool_use_id": call, "content": shown}]))
        said.append(Message.of("assistant", f"The value in {path} is {number} now; all tests pass."))
    return said


def made_project(folder: Path) -> Path:
    """A project with files and instructions, and no memories."""
    project = folder / "project"
    project.mkdir()
    project.joinpath("AGENTS.md").write_text("Use tabs.\n")
    for number in range(FILES):
        project.joinpath(f"part_{number}.py").write_text(f"value = {number}\n" * 50)
    return project


@contextlib.contextmanager
def model_server() -> Iterator[str]:
    """A fake model server in a thread of its own, at this URL."""
    from perdure.testing import FakeServer

    url: list[str] = []
    is_up, loop_and_end = threading.Event(), []

    async def serve() -> None:
        end = anyio.Event()
        async with FakeServer() as server:
            loop_and_end.append((anyio.lowlevel.current_token(), end))
            url.append(server.url)
            is_up.set()
            await end.wait()

    thread = threading.Thread(target=anyio.run, args=(serve,))
    thread.start()
    is_up.wait(10)
    try:
        yield url[0]
    finally:
        token, end = loop_and_end[0]
        anyio.from_thread.run_sync(end.set, token=token)
        thread.join()


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """No settings and no keys but ours, and a home of their own."""
    before, prefix = dict(os.environ), package().name.upper()
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    os.environ.clear()
    os.environ.update({**keep, f"{prefix}_HOME": str(folder), "HOME": str(folder), "HOUSE_KEY": "key"})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def output() -> Iterator[io.StringIO]:
    """What commands print, instead of their printing it."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        yield told


def measured(names: Iterable[str]) -> dict[str, Names]:
    """Files and functions entered in each kind of work."""
    logging.disable()
    watch, found = Watch(package()), {}
    try:
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                found[name] = SCENARIOS[name](watch, Path(folder).resolve())
    finally:
        watch.close()
    return found


# --- what is shown --------------------------------------------------------------------------------------------------


def report(root: Path) -> dict[str, Any]:
    """Everything, as data."""
    figures, names = House.read(root).figures()
    entered = measured(SCENARIOS)
    work = {work: {"files": len(seen), "functions": sum(map(len, seen.values()))} for work, seen in entered.items()}
    memory = [path for path in entered["run"] if "memor" in path]
    return {
        "package": root.name,
        "figures": figures,
        "work": work,
        "memory files in run": len(memory),
        "names": names,
        "entered": entered,
    }


def rows(told: dict[str, Any]) -> dict[str, float]:
    """All figures in the order of the table."""
    found = dict(told["figures"])
    for work, counts in told["work"].items():
        found[work] = counts["files"]
        found[f"{work}, functions"] = counts["functions"]
    found["run, files of memories"] = told["memory files in run"]
    return found


def table(told: dict[str, Any], before: dict[str, Any] | None) -> str:
    """The figures below each other; beside them those of before, if there are some, and the goals."""
    now, then = rows(told), rows(before) if before else {}
    lines = [("", "before" if before else "", "now", "goal")]
    for name in dict.fromkeys((*now, *then)):
        label = f"{name}, files" if name in told["work"] else name
        lines.append((label, *(_number(some.get(name)) for some in (then, now, GOALS))))
    return "\n".join(f"{label:<30}{was:>9}{current:>9}{goal:>7}".rstrip() for label, was, current, goal in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def listing(told: dict[str, Any]) -> str:
    """The names behind the figures."""
    lines: list[str] = []
    for what, found in told["names"].items():
        lines += ["", f"{what}:", *(f"  {name}: {', '.join(places)}" for name, places in found.items())]
    for work, found in told["entered"].items():
        lines += ["", f"{work}: {len(found)} files", *(f"  {len(names):4} {path}" for path, names in found.items())]
    return "\n".join(lines)


def write_pages(*, picture: bool, decisions: bool) -> None:
    """Write what the documentation shows of the house."""
    from bench import _decisions, _rooms

    if picture:
        plan = _rooms.planned(House.read(package()), SRC.parent / "pyproject.toml")
        _rooms.PICTURE.write_text(_rooms.drawn(plan), encoding="utf-8")
        print(f"{_rooms.PICTURE.relative_to(SRC.parent)}: {len(plan.rooms)} rooms, {len(plan.imports)} arrows")
    if decisions:
        try:
            found = _decisions.records()
        except _decisions.BadRecord as e:
            raise SystemExit(str(e)) from None
        _decisions.INDEX.write_text(_decisions.index_of(found), encoding="utf-8")
        print(f"{_decisions.INDEX.relative_to(SRC.parent)}: {len(found)} decisions")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--names", action="store_true", help="list what was counted")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, for --compare")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="show the figures of this JSON beside today's")
    parser.add_argument("--picture", action="store_true", help="draw the rooms anew: docs/how/house.svg")
    parser.add_argument(
        "--decisions", action="store_true", help="write the index of decisions anew: docs/adr/README.md"
    )
    told = parser.parse_args()
    if told.picture or told.decisions:
        write_pages(picture=told.picture, decisions=told.decisions)
        return
    before = json.loads(told.compare.read_bytes()) if told.compare else None
    found = report(package())
    if told.json:
        print(json.dumps(found, indent=1))
        return
    print(table(found, before))
    if told.names:
        print(listing(found))


if __name__ == "__main__":
    main()
