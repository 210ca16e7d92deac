"""CLI-6: every help screen is grouped, fits a terminal and ends in examples, each of which can be parsed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.commands import command

from perdure.cli.app import PANELS, app
from perdure.cli.arguments import GlobalOptions
from perdure.settings import DESCRIPTIONS, Settings

pytestmark = pytest.mark.house

ROOT: Any = typer.main.get_command(app)
LINE_CHARS = 62  # of the first line of a help text: what a list of commands has room for on 80 columns


def commands(one: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with the words that name it."""
    yield words, one
    if hasattr(one, "list_commands"):
        for name in one.list_commands(None):
            yield from commands(one.get_command(None, name), (*words, name))


EVERY = dict(commands(ROOT))


def parsed(line: str) -> None:
    """Parse a command line as it would be when it is run; raises a usage error for one that can't be meant."""
    line = re.split(r"\s[<|>]\s", line)[0]  # what the shell does is the shell's
    program, *words = shlex.split(line)
    assert program == "perdure", line
    context = ROOT.make_context("perdure", [], obj=GlobalOptions(), resilient_parsing=True)
    command = ROOT
    while words and hasattr(command, "list_commands") and words[0] in command.list_commands(None):
        name = words.pop(0)
        command = command.get_command(None, name)
        if not hasattr(command, "list_commands") or not words or words[0].startswith("-"):
            command.make_context(name, words, parent=context)
            return
    assert not words, f"{line}: no command {words[0]!r}"


def examples_of(command: Any) -> list[str]:
    head, _, lines = (command.epilog or "").partition("Example")
    assert head.strip() in ("", "\b"), command.name
    return [line.strip() for line in lines.splitlines()[1:]]


def check_screen(words: tuple[str, ...]) -> None:
    """Refuse a help screen without examples of its own, with Python's types, a long first line or a silent option."""
    command = EVERY[words]
    lines = examples_of(command)
    assert lines, "no examples"
    for line in lines:
        assert line.startswith(" ".join(("perdure", *words))), line
        parsed(line)
    shown = command.get_help(command.make_context(words[-1] if words else "perdure", [], resilient_parsing=True))
    assert shown.startswith("Usage: ") and not re.search(r"\[\[|\{\[|\.\.\.\}|<(str|path|int|list)", shown), shown
    first = (command.help or "").partition("\n")[0]
    assert first.endswith(".") and len(first) <= LINE_CHARS, f"{len(first)}: {first}"
    silent = [one.name for one in command.params if not (getattr(one, "help", None) or one.name == "help")]
    assert not silent, silent


def test_every_help_screen_is_plain_and_its_examples_parse() -> None:
    """CLI-6: of every command and group."""
    faults = {}
    for words in EVERY:
        try:
            check_screen(words)
        except (AssertionError, typer.BadParameter.__base__) as e:  # type: ignore[misc]
            faults[" ".join(words)] = str(e)
    assert not faults


def test_an_example_that_does_not_parse_is_found() -> None:
    for line in ("perdure compact", "perdure sessions shwo @last", "perdure replay x --windw 3"):
        with pytest.raises((AssertionError, typer.BadParameter.__base__)):  # type: ignore[arg-type]
            parsed(line)


def test_the_help_screen_is_grouped() -> None:
    """CLI-6: every command stands in one panel."""
    shown = command("--help", cwd=Path.cwd(), env={"COLUMNS": "80"}).stdout
    for panel, names in PANELS.items():
        section = shown.split(f"\n{panel}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(names), "a line each, on 80 columns"


def test_every_setting_has_one_description() -> None:
    """CLI-6: in one place, for `config`, `init` and the documentation."""
    described = [name for group in DESCRIPTIONS.values() for name in group]
    assert sorted(described) == sorted(field.name for field in fields(Settings))
    bare = [
        name
        for group in DESCRIPTIONS.values()
        for name, what in group.items()
        if re.search(r"_(tokens|bytes|seconds|chars|percent|lines|hours)$", name)
        and not re.search(r"token|byte|second|character|percent|line|hour", what)
    ]
    assert not bare, "what is counted is said with its unit"


def test_every_command_prints_json() -> None:
    """CLI-5: but for those that are a conversation, with a person or an editor; a group passes it on."""
    lacking = [
        " ".join(words)
        for words, command in EVERY.items()
        if not hasattr(command, "list_commands") and not any("--json" in one.opts for one in command.params)
    ]
    assert lacking == ["chat", "resume", "acp"]
