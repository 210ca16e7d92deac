"""Permission questions: what would be done, with its diff, and the rule that would allow it from now on (LIB-1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agent.progress import Asked, No, Yes
from holdfast.cli.chat.diffs import edit_diff
from holdfast.cli.chat.reading import Reader
from holdfast.cli.chat.screen import about, plain

if TYPE_CHECKING:
    from holdfast.cli.chat.screen import Screen

_MOST_LINES = 20


async def ask(screen: Screen, reader: Reader, asked: Asked) -> Yes | No:
    """Put one question to the person. Ctrl-C and the end of the input refuse, and end the turn."""
    screen.asked = asked.id
    screen.line(f"? {asked.tool} {about(asked.arguments)}".rstrip(), "bold yellow")
    command = asked.arguments.get("command")
    if isinstance(command, str) and "\n" in command:  # what is allowed has to be seen whole
        for line in plain(command).splitlines():
            screen.line(f"  | {line}")
    plan = asked.arguments.get("plan")
    if isinstance(plan, str):
        screen.line(plan)
    screen.diff(edit_diff(asked.tool, asked.arguments, screen.root, most=_MOST_LINES))
    if asked.why:
        screen.line(f"  {asked.why}", "dim")
    choices = "y: yes, n: no" + (f", a: always {plain(str(asked.rule))}" if asked.rule is not None else "")
    question = f"  {choices}; or say what to do instead: "
    while True:
        try:
            said = (await reader.answer(question)).strip()
        except (KeyboardInterrupt, EOFError):
            return No(stops=True)
        match said.lower():
            case "y" | "yes":
                return Yes()
            case "a" | "always" if asked.rule is not None:
                return Yes(asked.rule)
            case "n" | "no":
                return No()
            case "" | "a" | "always":
                continue
            case _:
                return No(said)
