"""Writes `perdure/sync.py` from the face: the same names, arguments and words, each call handed over to the loop."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from perdure.engine.tools import MemoryTool, RecallTool
from perdure.face.agent import Agent
from perdure.face.homes import SharedStore
from perdure.face.session import Session

HEAD = '''"""The face of the library for programs without an event loop: the same names, and nothing to await.

    from perdure.sync import Session

    with Session.create(".") as session:
        print(session.run("What does src/app.py do?", "anthropic:claude-sonnet-5-5").text)

Sessions and agents may be used from any thread that runs no event loop; calls for one object wait for each other.
A tool or a callback may read the session whose call it belongs to, but not wait for that call. A process that is
forked opens sessions of its own. Ctrl-C cancels the call, which keeps what was said until then. A model that is given
by its name is closed with them.

This file is written from `perdure.face` by tests/house/test_sync_face.py: change that, and run
`pytest tests/house/test_sync_face.py --rewrite-golden`.
"""

from __future__ import annotations

'''
CLASSES: tuple[tuple[str, type[Any]], ...] = (
    ("Session", Session),
    ("Agent", Agent),
    ("SharedStore", SharedStore),
)
TOOLS: tuple[tuple[str, str, type[Any]], ...] = (
    ("SyncRecallTool", "recall_tool", RecallTool),
    ("SyncMemoryTool", "memory_tool", MemoryTool),
)
SAME = "CompactionResult ContextView Message PerdureError Permissions PreparedRequest Reply Settings Tool Usage connect"


def blocking(text: str) -> str:
    """Words and examples without the waiting."""
    text = re.sub(r"(The \w+), to be awaited or entered with `async with`\.", r"\1; `with` closes it.", text)
    text = re.sub(r"(?<!\w)\(await ([\w.]+\([^()]*(?:\([^()]*\))?[^()]*\))\)", r"\1", text)
    text = text.replace("`async with` ", "`with` ").replace("async with ", "with ").replace("await ", "")
    return text.replace("from any task", "from any thread").replace(
        "One task at a time may use a session.", "Let one thread at a time hold a conversation."
    )


def annotation(text: str) -> str:
    text = re.sub(r"Opening\[(\w+)\]", r"Sync\1", text)
    return re.sub(r"\bLiveSession\b", "SyncSession", text)


def method(owner: str, name: str, value: Any) -> str:
    """One method of the face, handing itself over."""
    function = getattr(value, "__func__", value)
    signature = inspect.signature(function)
    parameters = [annotation(str(p)) for p in signature.parameters.values()]
    told, kinds, before = [], [], None
    for text, parameter in zip(parameters, signature.parameters.values(), strict=True):
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            told.append("*")
        told.append(text.replace("'", "") if parameter.default in (parameter.empty, None) else _unquoted(text))
        kinds.append(parameter)
        before = parameter.kind
    given = []
    for parameter in kinds[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            given.append(f"*{parameter.name}")
        elif parameter.kind is parameter.KEYWORD_ONLY:
            given.append(f"{parameter.name}={parameter.name}")
        else:
            given.append(parameter.name)
    what, arguments = f'"{owner}.{name}"', ", ".join(given)
    result = annotation(str(signature.return_annotation).strip("'"))
    doc = textwrap.indent(f'"""{blocking(inspect.cleandoc(function.__doc__ or ""))}\n"""', "    ")
    if isinstance(value, classmethod):
        body = f"    return cls(*opened({what}, lambda: _as_coroutine({owner}Face.{name}({arguments}))))"
    elif name == "close":
        body = f"    self._leave({what})"
    elif name == "interrupt":
        body = f"    self._at_once(self._inner.{name})"
    else:
        way = "_wait" if inspect.iscoroutinefunction(function) else "_now"
        body = f"    return self.{way}({', '.join([what, f'self._inner.{name}', *given])})"
    decorator = "@classmethod\n" if isinstance(value, classmethod) else ""
    if result == "None":
        body = body.replace("    return ", "    ")
    return f"{decorator}def {name}({', '.join(told)}) -> {result}:\n{doc}\n{body}\n"


def _unquoted(text: str) -> str:
    """The annotation of a parameter without quotes; its default as it is."""
    name, _, rest = text.partition(": ")
    kind, equals, default = rest.rpartition(" = ")
    return f"{name}: {kind.strip(chr(39))}{equals}{default}"


def face_class(name: str, kind: type[Any]) -> str:
    told = blocking(inspect.cleandoc(kind.__doc__ or ""))
    body = []
    for attribute, value in vars(kind).items():
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function) and function.__module__.startswith("perdure") and attribute[0] != "_":
            body.append(method(name, attribute, value))
    if name == "Session":
        body.append(
            '@property\ndef id(self) -> str:\n    """The id of the session, by which `open` finds it again."""\n'
            "    return self._inner.id\n"
        )
        body.append(
            '@property\ndef view(self) -> ContextView:\n    """What the model sees; read it freely."""\n'
            "    return self._inner.view\n"
        )
    elif name == "SharedStore":
        body.append(
            '@property\ndef name(self) -> str:\n    """Where it is, without a user and a password."""\n'
            "    return self._inner.name\n"
        )
    else:
        body.append(
            '@property\ndef session(self) -> SyncSession:\n    """Its conversation; it is closed with the agent."""\n'
            "    return SyncSession(self._inner.session, self._portal, within=self)\n"
        )
    body.append(f"def __enter__(self) -> Sync{name}:\n    return self\n")
    body.append("def __exit__(self, *error: object) -> None:\n    self.close()\n")
    quotes = '"""'
    head = f"class Sync{name}(Blocking[{name}Face]):\n" + textwrap.indent(f"{quotes}{told}\n{quotes}\n", "    ")
    return head + "\n" + textwrap.indent("\n".join(body), "    ")


def tool_class(name: str, instance: str, kind: type[Any]) -> str:
    told = blocking(inspect.cleandoc(kind.__doc__ or ""))
    result = str(inspect.signature(kind.run).return_annotation)
    doc = textwrap.indent(f'"""{blocking(inspect.cleandoc(kind.run.__doc__ or ""))}\n"""', "        ")
    constants = f"    name = {kind.name!r}\n"
    if hasattr(kind, "native"):
        constants += f"    native: ClassVar[Mapping[str, str]] = {kind.native!r}\n"
    load = f"        from perdure.engine.tools import {instance}\n\n"
    quotes = '"""'
    return (
        f"class {name}:\n"
        + textwrap.indent(f"{quotes}{told}\n{quotes}", "    ")
        + f"\n\n{constants}\n    @property\n    def definition(self) -> dict[str, Any]:\n"
        + f"        {quotes}As the Messages API takes it; `set_prefix` takes the tool itself.{quotes}\n"
        + f"{load}        return {instance}.definition\n\n"
        + f"    def run(self, session: SyncSession, arguments: Mapping[str, Any] | str) -> {result}:\n{doc}\n"
        + f'{load}        return asked_of(session, "{instance}.run", {instance}.run, arguments)\n\n\n'
        + f"{instance} = {name}()\n"
    )


def imports_of(text: str) -> list[str]:
    """The imports of the names that annotations use, as the face's modules have them."""
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            used |= set(re.findall(r"\b[A-Z]\w+", node.value)) & {"Any"}
    found: dict[str, str] = {}
    for kind in (Session, Agent, SharedStore, RecallTool):
        module = inspect.getmodule(kind)
        assert module is not None
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    local = alias.asname or alias.name
                    renamed = f" as {alias.asname}" if alias.asname else ""
                    found.setdefault(local, f"from {node.module} import {alias.name}{renamed}")
    own = {
        "Said": "from perdure.face.session import Said",
        "MemoryToolResult": "from perdure.engine.tools import MemoryToolResult",
    }
    skip = {*SAME.split()} | {
        "recall_tool",
        "memory_tool",
        "Session",
        "Agent",
        "SharedStore",
        "Opening",
        "opened",
        "annotations",
    }
    return sorted({line for name, line in {**found, **own}.items() if name in used and name not in skip})


def generated() -> str:
    """The text of `perdure/sync.py`."""
    body = "\n\n".join(face_class(name, kind) for name, kind in CLASSES)
    body += "\n\n" + "\n\n".join(tool_class(*one) for one in TOOLS)
    body += "\n\nSession = SyncSession\nAgent = SyncAgent\nSharedStore = SyncSharedStore\n"
    names = sorted([*SAME.split(), "Agent", "Session", "SharedStore", "memory_tool", "recall_tool"])
    body += "\n__all__ = [" + ", ".join(f'"{name}"' for name in names) + "]\n"
    body += textwrap.dedent(
        '''

        def __getattr__(name: str) -> Any:
            """What both faces have, loaded when it is first used."""
            if name not in __all__:
                raise AttributeError(f"module 'perdure.sync' has no attribute {name!r}")
            return getattr(import_module("perdure"), name)
        '''
    )
    import perdure

    same = [f"from perdure.{perdure._FACE[name]} import {name}" for name in SAME.split()]
    fixed = [
        "from perdure.face.agent import Agent as AgentFace",
        "from perdure.face.homes import SharedStore as SharedStoreFace",
        "from perdure.face.portal import Blocking, as_coroutine, asked_of, opened",
        "from perdure.face.session import Session as SessionFace",
    ]
    body = body.replace("_as_coroutine(", "as_coroutine(")
    typed = [line for line in imports_of(body) if not line.startswith("from typing")]
    head = HEAD + "from importlib import import_module\nfrom typing import TYPE_CHECKING, Any, ClassVar\n\n"
    head += (
        "\n".join(fixed) + "\n\nif TYPE_CHECKING:\n" + textwrap.indent("\n".join([*typed, *same]), "    ") + "\n\n\n"
    )
    return formatted(head + body)


def formatted(text: str) -> str:
    """As ruff writes it."""
    root = Path(__file__).resolve().parents[2]
    name = "src/perdure/sync.py"
    for arguments in (["check", "--fix", "-q", "--select", "I,F401,UP,RUF022"], ["format", "-q"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", name, "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=root,
            check=False,
        )
        assert done.stdout, done.stderr
        text = done.stdout
    return text
