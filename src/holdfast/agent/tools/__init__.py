"""The tools of the agent. `STANDARD` is what one has unless told otherwise; others are `Tool` values like these."""

from __future__ import annotations

from typing import Any

from holdfast.agent.tools.bash import BASH, BASH_OUTPUT, KILL_SHELL
from holdfast.agent.tools.edit import EDIT, MULTI_EDIT, WRITE
from holdfast.agent.tools.find import GLOB, GREP
from holdfast.agent.tools.memory import MEMORY
from holdfast.agent.tools.read import READ
from holdfast.agent.tools.talk import COMPACT, ENTER_PLAN, EXIT_PLAN, RECALL, SKILL, TASK, TODO_WRITE
from holdfast.agent.tools.tool import Tool

# In the order in which requests name them: what every agent has first, so that prefixes stay alike.
STANDARD: tuple[Tool[Any], ...] = (
    READ,
    WRITE,
    EDIT,
    MULTI_EDIT,
    BASH,
    BASH_OUTPUT,
    KILL_SHELL,
    GREP,
    GLOB,
    TODO_WRITE,
    ENTER_PLAN,
    EXIT_PLAN,
    RECALL,
    MEMORY,
    COMPACT,
    TASK,
    SKILL,
)
