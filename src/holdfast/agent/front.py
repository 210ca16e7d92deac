"""What stands in front of every request of the agent: its system prompt and its tools (TURN-9).

The stable part of the system prompt comes first; behind the boundary (`dynamic_from`) comes what differs from place to
place and from day to day. Both are made when a session begins, so the prefix holds from then on: one that is taken up
again keeps them, and what is otherwise now is said at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast import prompts
from holdfast.agent.desk import Desk
from holdfast.agent.skills import Scope, listing
from holdfast.agent.tools.tool import Tool
from holdfast.context.derived import TOOL
from holdfast.context.reminders import prepend_context
from holdfast.context.view import View
from holdfast.transcript.blocks import Block, encode, text_block
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Front

_NEWS = "surroundings"
_LISTED = {"Task": "Kinds of agents:", "Skill": "Skills that are installed:"}


def front_of(model: str, tools: Iterable[Tool[Any]], desk: Desk, scopes: Mapping[str, Scope], more: str = "") -> Front:
    """The front of an agent as it is now."""
    stable = "\n\n".join(part for part in (prompts.source("agent_system"), more) if part)
    lines = {"Working directory": desk.machine.workspace.root, "Plan file": desk.machine.plan_file}
    facts = "\n".join(f"{name}: {' '.join(value.split())}" for name, value in {**lines, **desk.machine.facts}.items())
    system = (text_block(stable), text_block(prompts.render("agent_environment", facts=facts)))
    lists = {
        "Task": {name: scope.description for name, scope in scopes.items()},
        "Skill": {name: skill.description for name, skill in desk.skills.items()},
    }
    return Front(
        model=model,
        system=tuple(msgspec.Raw(block.raw) for block in system),
        tools=tuple(msgspec.Raw(_definition(tool, lists.get(tool.name, {}))) for tool in _offered(tools, desk)),
        dynamic_from=1,
    )


def is_alike(before: Front, now: Front) -> bool:
    """Whether two fronts differ in nothing but the facts of the surroundings."""
    size = now.dynamic_from
    return (
        (before.tools, before.dynamic_from) == (now.tools, size)
        and before.system[:size] == now.system[:size]
        and len(before.system) == len(now.system)
    )


def news(view: View, now: Front) -> Message | None:
    """The facts that are others than the conversation was told, for the model; None when it knows them all."""
    if view.front is None or not is_alike(view.front, now):
        return None
    known = _facts(view.front)
    for item in view.items:
        if item.message.note == _NEWS:
            known |= _lines("".join(getattr(block.value, "text", "") for block in item.message.blocks))
    changed = "\n".join(f"{name}: {value}" for name, value in _facts(now).items() if known.get(name) != value)
    if not changed:
        return None
    (message,) = prepend_context((), {"What is otherwise now than when this conversation began": changed})
    return Message.of("user", list(message.blocks), origin="reminder", note=_NEWS)


def _facts(front: Front) -> dict[str, str]:
    blocks = (Block(bytes(raw)) for raw in front.system[front.dynamic_from :])
    return _lines("\n".join(str(getattr(block.value, "text", "")) for block in blocks))


def _lines(text: str) -> dict[str, str]:
    return {name: value for name, colon, value in (line.partition(": ") for line in text.splitlines()) if colon}


def _offered(tools: Iterable[Tool[Any]], desk: Desk) -> Iterable[Tool[Any]]:
    """Without skills nobody needs the tool that loads them, without memories none that writes them."""
    missing = {"Skill"} if not desk.skills else set()
    if desk.session.services.memories is None or desk.session.settings.memory_mode == "off":
        missing.add(TOOL)
    return (tool for tool in tools if tool.name not in missing)


def _definition(tool: Tool[Any], listed: Mapping[str, str]) -> bytes:
    if not listed:
        return tool.definition_json
    definition = tool.definition
    text = f"{definition['description']}\n\n{_LISTED[tool.name]}\n{listing(listed)}"
    return encode({**definition, "description": text})
