"""The trackers and restorers that come with Holdfast."""

from __future__ import annotations

from holdfast.context.restore import background, files, given, instructions, plan, skills, todos, tools
from holdfast.context.restore.registry import Registry

# In the order in which restored things stand behind the summary: what changes least first, what is nearest to the
# work last. Who gives way when room is short is said by `rank`: files first, the todo list last.
STANDARD = Registry(
    trackers=(files.TRACKER, todos.TRACKER, plan.TRACKER, skills.TRACKER, background.TRACKER, tools.TRACKER),
    restorers=(
        instructions.RESTORER,
        given.START,
        given.MEMORY,
        tools.RESTORER,
        skills.RESTORER,
        files.RESTORER,
        plan.RESTORER,
        background.RESTORER,
        todos.RESTORER,
    ),
)
