"""The tools of the agent. `STANDARD` is what one has unless told otherwise; others are `Tool` values like these."""

from __future__ import annotations

from typing import Any

from perdure.agent.tools.bash import BASH, BASH_OUTPUT, KILL_SHELL
from perdure.agent.tools.files import EDIT, GLOB, GREP, MULTI_EDIT, READ, WRITE
from perdure.agent.tools.talk import COMPACT, ENTER_PLAN, EXIT_PLAN, MEMORY, RECALL, SKILL, TASK, TODO_WRITE
from perdure.agent.tools.tool import Tool

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
