"""What stands in front of every request of the agent: its system prompt and its tools (TURN-9).

The stable part of the system prompt comes first; behind the boundary (`dynamic_from`) comes what differs from place to
place and from day to day. Both are made when an agent starts, so the prefix holds from then on.
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
from holdfast.transcript.blocks import encode, text_block
from holdfast.transcript.records import Front

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


def _offered(tools: Iterable[Tool[Any]], desk: Desk) -> Iterable[Tool[Any]]:
    """Without skills nobody needs the tool that loads them, without memories none that writes them."""
    missing = {"Skill"} if not desk.skills else set()
    if desk.session.memories is None or desk.session.settings.memory_mode == "off":
        missing.add(TOOL)
    return (tool for tool in tools if tool.name not in missing)


def _definition(tool: Tool[Any], listed: Mapping[str, str]) -> bytes:
    if not listed:
        return tool.definition_json
    definition = tool.definition
    text = f"{definition['description']}\n\n{_LISTED[tool.name]}\n{listing(listed)}"
    return encode({**definition, "description": text})
