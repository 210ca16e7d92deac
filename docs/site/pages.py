"""What the site is made from: the documentation as it is, and pages that are written from the code (OPS-1).

`stage` puts both into one folder of Markdown for Sphinx. The pages of docs/ stay as they read on a code host: only
their links are turned, where these leave docs/. Nothing here needs Sphinx, so that tests/house can look at every page.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = DOCS / "site"
CODE = re.compile(r"^ *```.*?^ *```\s*$|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"(?<=\]\()([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?=\))")
ATTRIBUTE = re.compile(r'(?<=\s)(src|srcset|href)="([^"]+)"')
CLAUSE = re.compile(r"\b[A-Z]{2,4}-\d+[a-z]?\b")
LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json", ".service": "ini", ".py": "python"}

# The modules of the reference: their public names are those of `__all__`, or the classes that they define themselves.
FACE = ("perdure", "perdure.sync", "perdure.core", "perdure.testing", "perdure.errors", "perdure.events")
INTEGRATIONS = ("langchain", "openai_agents", "pydantic_ai", "claude_agent_sdk", "litellm", "hermes_agent")
MODULES = (*FACE, *(f"perdure.integrations.{name}" for name in INTEGRATIONS))


@cache
def tracked() -> frozenset[Path]:
    """The files that git tracks, as they stand here: nothing else gets onto the site, such as a draft or a secret."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached"]
    try:
        found = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError) as e:
        raise SystemExit(
            f"{ROOT}: git can't say which files belong to the site ({e}): build it in a checkout"
        ) from None
    paths = (ROOT / name for name in found.split("\0") if name)
    return frozenset(path for path in paths if path.is_file() and not path.is_symlink())


def tracked_below(folder: Path) -> list[Path]:
    return sorted(path for path in tracked() if path.is_relative_to(folder))


class Section(NamedTuple):
    """A part of docs/README.md: what is a tab of the site."""

    title: str
    folder: str
    text: str
    entries: list[tuple[str, str]]  # name, page without its ending


# --- links ---------------------------------------------------------------------------------------------------------


def page_of(path: Path) -> str:
    """Where on the site a file or a folder of the repository stands, as a path of a staged page."""
    if path == ROOT / "README.md":
        return "index.md"
    if path == DOCS / "README.md" or path == DOCS:
        return "contents.md"
    if path.is_relative_to(DOCS):
        path = path.parent if path.name == "README.md" else path
        inner = path.relative_to(DOCS).as_posix()
        return f"{inner}/index.md" if path.is_dir() else inner
    inner = path.relative_to(ROOT).as_posix()
    if path.suffix == ".md" and path.parent == ROOT:
        return inner.lower()
    return f"files/{inner}/index.md" if path.is_dir() else f"files/{inner}.md"


def turned(text: str, path: Path, outside: set[Path]) -> str:
    """A page's text with its links as they are on the site; what lies outside docs/ is added to `outside`."""
    here = Path(page_of(path)).parent

    def turn(target: str) -> str:
        name, mark, heading = target.partition("#")
        if not name or re.match(r"[a-z][a-z0-9+.-]*:", target):
            return target
        there = (path.parent / name).resolve()
        if there not in tracked() and not (there.is_dir() and tracked_below(there)):
            return target  # Sphinx says what is wrong with it
        is_page = there.suffix == ".md" or there.is_dir()
        if not there.is_relative_to(DOCS) and not (is_page and there.parent == ROOT and there.is_file()):
            outside.add(there)
        return Path(os.path.relpath(page_of(there), here)).as_posix() + mark + heading

    def in_prose(prose: str) -> str:
        prose = LINK.sub(lambda match: turn(match[1]), prose)
        return ATTRIBUTE.sub(lambda match: f'{match[1]}="{turn(match[2])}"', prose)

    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [in_prose(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, in_prose(text[end:])])


def from_the_top(link: re.Match[str]) -> str:
    """A link of a page at the top of the site, as any page may have it."""
    return link[1] if re.match(r"#|[a-z][a-z0-9+.-]*:", link[1]) else f"/{link[1]}"


# --- navigation ----------------------------------------------------------------------------------------------------


def title_of(text: str) -> str:
    return next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), "")


def toctree(entries: list[tuple[str, str]]) -> str:
    lines = [f"{name} </{page}>" for name, page in entries]
    return "\n".join(["", "```{toctree}", ":hidden:", "", *lines, "```", ""])


def sections() -> list[Section]:
    """The sections of docs/README.md, with the pages that each lists; a page belongs to the first that names it."""
    found: list[Section] = []
    taken: set[str] = set()
    for part in re.split(r"^## +", (DOCS / "README.md").read_text(), flags=re.M)[1:]:
        title, _, text = part.partition("\n")
        entries: list[tuple[str, str]] = []
        for name, target in re.findall(r"\[([^\]]+)\]\(([^()\s#]+)\)", text):
            there = (DOCS / target).resolve()
            if there.suffix != ".md" or not (there.is_relative_to(DOCS) or there.parent == ROOT):
                continue
            page = page_of(there).removesuffix(".md")
            if page not in taken:
                taken.add(page)
                entries.append((name[0].upper() + name[1:].replace("`", ""), page))
        folders = Counter(page.split("/")[0] for _, page in entries if "/" in page)
        folder = folders.most_common(1)[0][0] if folders else re.sub(r"\W+", "-", title.lower())
        found.append(Section(title.strip(), folder, text.strip(), entries))
    return found


def section_page(section: Section, more: list[tuple[str, str]]) -> str:
    entries = [entry for entry in [*section.entries, *more] if entry[1] != f"{section.folder}/index"]
    listed = "".join(f"- [{name}](/{page}.md)\n" for name, page in more)
    return f"# {section.title}\n\n{section.text}\n\n{listed}{toctree(entries)}"


def decisions() -> list[tuple[str, str]]:
    """All decision records, the newest first."""
    paths = sorted((DOCS / "adr").glob("[0-9]*.md"), reverse=True)
    titles = [title_of(path.read_text()).removeprefix("ADR ").replace(": ", " ", 1) for path in paths]
    return [(title, page_of(path).removesuffix(".md")) for title, path in zip(titles, paths, strict=True)]


def specification_page() -> str:
    paths = sorted((DOCS / "spec").glob("*.md"))
    titles = {path: title_of(path.read_text()) or path.stem for path in paths}
    lines = [f"- [{title}]({path.name})" for path, title in titles.items()]
    entries = [(title.replace("<", "("), f"spec/{path.stem}") for path, title in titles.items()]
    return "\n".join(["# Specification", "", "What Perdure has to do, clause by clause.", "", *lines, toctree(entries)])


def file_page(path: Path) -> str:
    """A file of the repository that a page links to, to be read on the site."""
    language = LANGUAGES.get(path.suffix, "docker" if path.name in ("Containerfile", "Dockerfile") else "text")
    text = path.read_text()
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 3)
    inner = path.relative_to(ROOT).as_posix()
    return f"---\norphan: true\n---\n\n# {inner}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def folder_page(path: Path) -> str:
    inner = path.relative_to(ROOT).as_posix()
    files = [file for file in tracked_below(path) if not file.name.startswith(".")]
    lines = [f"- [{file.relative_to(path).as_posix()}](/{page_of(file)})" for file in files]
    return "\n".join(["---", "orphan: true", "---", "", f"# {inner}", "", *lines, ""])


# --- the reference of the library ----------------------------------------------------------------------------------


@cache
def module(name: str) -> ModuleType | None:
    """A module of the reference; None for an integration, whose package need not be there and is slow to import."""
    return import_module(name) if name in FACE else None


def source_of(name: str) -> str:
    return (ROOT / "src" / name.replace(".", "/")).with_suffix(".py").read_text()


def names_of(name: str) -> list[str]:
    """A module's public names; those of an integration by its sources."""
    found = module(name)
    if found is not None and hasattr(found, "__all__"):
        return list(found.__all__)
    if found is not None:
        return [key for key, value in vars(found).items() if inspect.isclass(value) and value.__module__ == name]
    return re.findall(r"^(?:class|def|async def) ([A-Za-z]\w*)", source_of(name), re.M)


def public_names() -> list[str]:
    """Every name that the reference has an entry for, in full."""
    return [f"{name}.{key}" for name in MODULES for key in names_of(name)]


def imports_of(found: ModuleType) -> dict[str, str]:
    """What a module's names mean, those that are imported for annotations only included: name -> module."""
    source = inspect.getsource(found)
    imported: dict[str, str] = {}
    for origin, names in re.findall(r"^ *from (perdure[\w.]*) import (\([^)]*\)|[^\n#]+)", source, re.M):
        for one in re.split(r"[\s,()]+", names):
            if one and one != "as":
                imported.setdefault(one, origin)
    return imported


def told_types() -> list[str]:
    """The types that the face takes and gives back and that aren't names of it: what else one has to know of."""
    face = import_module("perdure")
    wanted: dict[str, None] = {}
    for name in names_of("perdure"):
        owner = getattr(face, name)
        owner = owner if inspect.isclass(owner) or inspect.isfunction(owner) else type(owner)
        home = import_module(owner.__module__)
        known = imports_of(home) | {key: home.__name__ for key, value in vars(home).items() if inspect.isclass(value)}
        members = [owner] if inspect.isfunction(owner) else list(vars(owner).values())
        for member in members:
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if not inspect.isfunction(function) or function.__name__.startswith("_"):
                continue
            for annotation in function.__annotations__.values():
                for word in re.findall(r"[A-Z]\w+", str(annotation)):
                    if word in known and not hasattr(face, word) and known[word].startswith("perdure."):
                        wanted[f"{known[word]}.{word}"] = None
    found = []
    faces = [one for one in (getattr(face, name) for name in names_of("perdure")) if inspect.isclass(one)]
    for full in sorted(wanted, key=lambda one: one.rpartition(".")[2]):
        origin, _, name = full.rpartition(".")
        value = getattr(import_module(origin), name, None)
        is_told = inspect.isclass(value) and any(value in one.__mro__ for one in faces)  # by what is made of it
        if inspect.isclass(value) and not is_told and value.__module__.startswith("perdure."):
            found.append(f"{value.__module__}.{value.__name__}")
    return list(dict.fromkeys(found))


@cache
def told_beside(origin: str) -> dict[str, str]:
    """The words that stand below assignments in a module: name -> words."""
    body = ast.parse(inspect.getsource(import_module(origin))).body
    found: dict[str, str] = {}
    for one, after in pairwise(body):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            found |= {target.id: after.value.value for target in targets if isinstance(target, ast.Name)}
    return found


def words_of(origin: str, name: str) -> str:
    """What a public name's docstring says; nothing where a parent or a decorator wrote it."""
    found = module(origin)
    if found is None:
        nodes = {
            one.name: one
            for one in ast.parse(source_of(origin)).body
            if isinstance(one, ast.ClassDef | ast.FunctionDef)
        }
        return ast.get_docstring(nodes[name]) or ""
    value = getattr(found, name)
    if inspect.isclass(value):
        words = vars(value).get("__doc__") or ""
        return "" if words.startswith(f"{value.__name__}(") else inspect.cleandoc(words)
    if inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    if type(value).__module__.startswith("perdure"):
        return inspect.getdoc(type(value)) or ""  # an instance that is there once, such as `recall_tool`
    return told_beside(imports_of(found).get(name, origin)).get(name, "")


def directive(full: str) -> list[str]:
    """How Sphinx is told of a public name, by what it is."""
    origin, _, name = full.rpartition(".")
    found = module(origin)
    value = getattr(found, name, None)
    if origin in FACE[1:] and name in names_of("perdure") and value is getattr(module("perdure"), name):
        same = f"   The same as :py:obj:`perdure.{name} <perdure.{name}>`."
        kind = "class" if inspect.isclass(value) else "function"
        return [f".. py:{kind}:: {name}", f"   :module: {origin}", "", same, ""]
    if inspect.isclass(value) or (found is None and name[0].isupper()):
        return [f".. autoclass:: {full}", "   :members:", ""]
    if inspect.isroutine(value) or found is None:
        return [f".. autofunction:: {full}", ""]
    data = [f".. py:data:: {name}", f"   :module: {origin}", ""]
    if type(value).__module__.startswith("perdure"):
        kind = f"{type(value).__module__}.{type(value).__name__}"
        return [*data, f"   .. autoclass:: {kind}", "      :members:", ""]
    return [*data, f"   {' '.join(words_of(origin, name).split())}", ""]


def in_rst(lines: list[str]) -> str:
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def module_page(name: str) -> str:
    lines = [f".. automodule:: {name}", "   :no-members:", ""]
    body = [line for key in names_of(name) for line in directive(f"{name}.{key}")]
    return "\n".join([f"# {name}", "", in_rst(lines), in_rst(body)])


def types_page() -> str:
    lines = [line for full in told_types() for line in (f".. autoclass:: {full}", "   :members:", "")]
    head = (
        "# Types\n\nWhat methods of the [library](perdure.md) take and give back, beside its own names. They are made "
        "by Perdure; a program reads their attributes and seldom imports them.\n"
    )
    return f"{head}\n{in_rst(lines)}"


def library_page() -> str:
    """The way into the reference: its modules with their first lines."""
    rows = []
    for name in MODULES:
        found = module(name)
        words = found.__doc__ if found else ast.get_docstring(ast.parse(source_of(name)))
        first = " ".join((words or "").strip().split("\n\n")[0].split()).removesuffix(":")
        rows.append(f"| [{name}]({name}.md) | {first} |")
    rows.insert(1, "| [Types](types.md) | What methods take and give back beside these names. |")
    head = "# The library's reference\n\nFrom its docstrings. [The library](/use/library.md) tells how to use it.\n"
    entries = [(name.replace("perdure.integrations", "integrations"), f"reference/library/{name}") for name in MODULES]
    entries.insert(1, ("Types", "reference/library/types"))
    return "\n".join([head, "| module | what it has |", "|---|---|", *rows, "", toctree(entries)])


# --- settings and commands -----------------------------------------------------------------------------------------


def clause_pages() -> dict[str, str]:
    """On which page of the specification a clause stands."""
    found: dict[str, str] = {}
    for path in sorted((DOCS / "spec").glob("0*.md")):
        for clause in re.findall(r"\*\*([A-Z]{2,4}-\d+)", path.read_text()):
            found.setdefault(clause, path.name)
    return found


def clauses_of_settings() -> dict[str, list[str]]:
    """The clauses beside each setting in the sources, or else those of the group that it stands in."""
    from perdure.settings import Settings

    group: list[str] = []
    found: dict[str, list[str]] = {}
    for line in inspect.getsource(Settings).splitlines():
        if heading := re.match(r" {4}# (.*)", line):
            group = CLAUSE.findall(heading[1])
        elif field := re.match(r" {4}(\w+): .*? = ", line):
            found[field[1]] = CLAUSE.findall(line.partition("  # ")[2]) or group
    return found


def shown_default(value: Any) -> str:
    if value is None or value == ():
        return "unset" if value is None else "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:,}"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value[:3])) + (f" and {len(value) - 3} more" if len(value) > 3 else "")
    if isinstance(value, dict):
        return ", ".join(f"{key}={shown_default(one)}" for key, one in list(value.items())[:2]) + " …"
    return str(value)


def settings_page() -> str:
    """Every setting with its default, what it does, and the clause that asks for it."""
    from perdure.settings import DESCRIPTIONS, Settings

    defaults = {
        one.name: one.default if one.default is not MISSING else one.default_factory()  # type: ignore[misc]
        for one in fields(Settings)
    }
    clauses, pages = clauses_of_settings(), clause_pages()
    parts = [
        "# Settings",
        "",
        "Every setting, with its default. They are given in a config file, by variables such as",
        '`PERDURE_PINS_TOKENS`, with `--set name=value`, or in the library as `settings={"pins_tokens": 2_000}`;',
        "[config](cli.md#config) shows which values hold in a folder, and where each comes from.",
        "",
    ]
    for heading, settings in DESCRIPTIONS.items():
        parts += [f"## {heading}", "", "| setting | what it does, its default, and its clause |", "|---|---|"]
        for name, what in settings.items():
            asked = [
                f"[{clause}](/spec/{pages[clause.rstrip('abcdef')]})"
                for clause in dict.fromkeys(clauses.get(name, []))
                if clause.rstrip("abcdef") in pages
            ]
            default = shown_default(defaults[name]).replace("|", "\\|")
            told = f" ({', '.join(asked)})" if asked else ""
            parts.append(f"| `{name}` | {marked(what)}; by default `{default}`{told} |")
        parts.append("")
    return "\n".join(parts)


def marked(text: str) -> str:
    """Plain words as Markdown, in a table: nothing in them is a mark."""
    return re.sub(r"([\\`*_<>\[\]|{}#])", r"\\\1", text)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), (*words, name))


def paragraphs(text: str) -> list[str]:
    """A help text as Markdown: paragraphs flow, and those behind a line with \\b stay as they are."""
    found = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            found += ["```text", inspect.cleandoc(paragraph.removeprefix("\b").lstrip("\n")), "```", ""]
        else:
            found += [marked(" ".join(paragraph.split())), ""]
    return found


def commands_page() -> str:
    """All commands with their arguments and options, from what their help screens are made of."""
    import typer

    from perdure.cli.app import app

    parts = [
        "# Commands and options",
        "",
        "What `--help` says, for all commands on one page. [The command line](cli.md) says what the screens don't.",
        "",
    ]
    for words, command in commands(typer.main.get_command(app)):
        context = command.make_context(" ".join(("perdure", *words)), [], resilient_parsing=True)
        parts += [f"{'##' if len(words) < 2 else '###'} {' '.join(('perdure', *words))}", ""]
        parts += ["```text", command.get_usage(context).removeprefix("Usage: "), "```", ""]
        parts += paragraphs((command.help or "").replace("\f", ""))
        rows: dict[str, list[str]] = {"argument": [], "option": []}
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if record is None:
                continue
            kind = "argument" if parameter.param_type_name == "argument" else "option"
            what = record[0].replace("|", "\\|")
            rows[kind].append(f"| `{what}` | {marked(' '.join(record[1].split()))} |")
        for kind, lines in rows.items():
            if lines:
                parts += [f"| {kind} | |", "|---|---|", *lines, ""]
        _, _, examples = (command.epilog or "").partition("\n")
        if lines := [line.strip() for line in examples.splitlines() if line.strip().startswith("perdure")]:
            parts += ["```console", *(f"$ {line}" for line in lines), "```", ""]
    return "\n".join(parts)


# --- all of it -----------------------------------------------------------------------------------------------------


def written() -> dict[str, str]:
    """The pages that are written from the code and from the tree: path -> text."""
    made: dict[str, Callable[[], str]] = {
        "spec/index.md": specification_page,
        "reference/settings.md": settings_page,
        "reference/commands.md": commands_page,
        "reference/library/index.md": library_page,
        "reference/library/types.md": types_page,
    }
    found = {page: make() for page, make in made.items()}
    return found | {f"reference/library/{name}.md": module_page(name) for name in MODULES}


def stage() -> dict[str, bytes]:
    """Every source of the site: path below the folder that Sphinx reads -> bytes."""
    outside: set[Path] = set()
    found: dict[str, bytes] = {}
    pages = [path for path in tracked_below(ROOT) if path.parent == ROOT or path.is_relative_to(DOCS)]
    for path in (path for path in pages if path.suffix == ".md"):
        found[page_of(path)] = turned(path.read_text(), path, outside).encode()
    for path in tracked_below(DOCS):
        if path.suffix != ".md" and not path.is_relative_to(SITE):
            found[path.relative_to(DOCS).as_posix()] = path.read_bytes()
    found |= {page: text.encode() for page, text in written().items()}

    parts = sections()
    listed = {page for section in parts for _, page in section.entries}
    more = {
        "reference": [
            ("Commands and options", "reference/commands"),
            ("Settings", "reference/settings"),
            ("The library's reference", "reference/library/index"),
            ("The specification, all parts", "spec/index"),
            ("All pages", "contents"),
            *((title_of(path.read_text()), page_of(path).removesuffix(".md")) for path in root_pages(listed)),
        ]
    }
    for section in parts:
        if section.folder == "adr":
            continue
        kept = [entry for entry in section.entries if not entry[1].startswith("spec/")]
        text = LINK.sub(from_the_top, turned(section.text, DOCS / "README.md", outside))
        page = section_page(section._replace(text=text, entries=kept), more.get(section.folder, []))
        found[f"{section.folder}/index.md"] = page.encode()
    found["adr/index.md"] += toctree(decisions()).encode()
    tabs = [(section.title, f"{section.folder}/index") for section in parts]
    found["index.md"] += toctree(tabs).encode()

    for path in sorted(outside):
        for file in tracked_below(path):
            found[page_of(file)] = file_page(file).encode()
        if path.is_dir():
            found[page_of(path)] = folder_page(path).encode()
    return found


def static() -> dict[str, bytes]:
    """The files that go into the site as they are: path below its folder of such files -> bytes."""
    return {path.relative_to(SITE / "static").as_posix(): path.read_bytes() for path in tracked_below(SITE / "static")}


def root_pages(listed: set[str]) -> list[Path]:
    """What stands beside the README and isn't in docs/README.md, such as the changelog."""
    return [
        path
        for path in tracked_below(ROOT)
        if path.parent == ROOT and path.suffix == ".md" and page_of(path).removesuffix(".md") not in {*listed, "index"}
    ]
