"""Tools that change only the agent's own plan or memory: TodoWrite, Skill, Task, plan mode, recall, memory (LIB-1)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perdure.agent.permissions import CallPath, ToolEffects
from perdure.agent.progress import Deny, PermissionQuestion
from perdure.agent.skills import front_matter
from perdure.agent.tool_context import ToolContext
from perdure.agent.tools.tool import Tool, ToolInput, ToolInvocation, ToolOutcome, ToolRefused
from perdure.engine.tools import compact_tool, memory_tool, recall_tool
from perdure.transcript.messages import Message
from perdure.transcript.tool_calls.refusals import denied

SKILL_BYTES = 200_000


class TodoItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of the list."""

    content: Annotated[str, Meta(description="What is to be done.", min_length=1)]
    status: Literal["pending", "in_progress", "completed"]
    activeForm: Annotated[str, Meta(description="The same as it is being done, for people.")] = ""


class TodoInput(ToolInput, frozen=True):
    todos: Annotated[list[TodoItem], Meta(description="The whole list, as it is now.")]


async def todo_write(context: ToolContext, use: ToolInvocation, given: TodoInput) -> ToolOutcome:
    """Keep the list; it comes back behind a compaction (RST-3)."""
    done = sum(item.status == "completed" for item in given.todos)
    active = sum(item.status == "in_progress" for item in given.todos)
    note = " Keep one item in progress at a time." if active > 1 else ""
    return ToolOutcome(f"The list is kept: {done} of {len(given.todos)} done.{note} Go on with the work.")


class SkillInput(ToolInput, frozen=True):
    skill: Annotated[str, Meta(description="Its name, as listed.", min_length=1)]
    args: Annotated[str, Meta(description="What it should be done with, if anything.")] = ""


async def skill(context: ToolContext, use: ToolInvocation, given: SkillInput) -> ToolOutcome:
    """Load a skill's instructions, as its file says now."""
    found = context.skills.get(given.skill.removeprefix("/"))
    if found is None:
        raise ToolRefused(f"there is no skill {given.skill!r}: {', '.join(context.skills) or 'none is installed'}")
    text = found.body
    spot = await context.machine.workspace.resolve(found.path)
    if spot.kind == "file" and spot.path == found.path:
        data = await context.machine.workspace.read(spot.path, limit_bytes=SKILL_BYTES)
        text = front_matter(data.decode("utf-8", "replace"))[1]
    folder = found.path.rsplit("/", 1)[0]
    told = f"Base directory for this skill: {folder}\n\n{text}"
    if given.args:
        told += f"\n\nARGUMENTS: {given.args}"
    return ToolOutcome(f"Launching skill: {found.name}", behind=(Message.of("user", told, origin="reminder"),))


class TaskInput(ToolInput, frozen=True):
    description: Annotated[str, Meta(description="The task in three to five words.")]
    prompt: Annotated[str, Meta(description="Everything the agent has to know; it sees nothing else.", min_length=1)]
    subagent_type: Annotated[str, Meta(description="A kind of agent, as listed.")] = "general-purpose"
    run_in_background: Annotated[bool, Meta(description="Go on while it works; you are told when it ends.")] = False
    resume: Annotated[str, Meta(description="The id of an agent that worked before: it goes on.")] | None = None


async def task(context: ToolContext, use: ToolInvocation, given: TaskInput) -> ToolOutcome:
    """Hand a task to a sub-agent."""
    if context.subagents is None:
        raise ToolRefused("a sub-agent starts no others: do it yourself")
    text = await context.subagents.run(
        given.subagent_type, given.prompt, given.description, behind=given.run_in_background, resume=given.resume
    )
    return ToolOutcome(text)


class EnterPlanInput(ToolInput, frozen=True):
    pass


class ExitPlanInput(ToolInput, frozen=True):
    plan: Annotated[str, Meta(description="The plan, in Markdown.", min_length=1)]


async def enter_plan(context: ToolContext, use: ToolInvocation, given: EnterPlanInput) -> ToolOutcome:
    """From now on nothing is changed until a plan is approved."""
    if context.mode != "plan":
        context.mode_before, context.mode = context.mode, "plan"
    where = context.machine.plan_file
    return ToolOutcome(
        "Plan mode is on: look around and think; nothing may be changed. Write the plan down as you go if it is long "
        f"(plan file at {where} ), and show it with ExitPlanMode."
    )


async def exit_plan(context: ToolContext, use: ToolInvocation, given: ExitPlanInput) -> ToolOutcome:
    """Keep the plan in its file, and ask whether to go ahead."""
    if context.mode != "plan":
        raise ToolRefused("plan mode is not on: go on with the work")
    where = context.machine.plan_file
    await context.machine.workspace.write(where, given.plan.encode("utf-8", "replace"))
    saved = f"The plan has been saved to: {where} "
    if context.ask is None:
        raise ToolRefused(f"Nobody is there to approve the plan. {saved}. End here and say what you plan.")
    answer = await context.ask(
        PermissionQuestion(use.id, use.name, use.arguments, "the plan is ready: go ahead with it?")
    )
    if isinstance(answer, Deny):
        no = denied(f"The plan was not approved. {saved}. Plan mode stays on.", answer.message)
        return ToolOutcome(no, is_error=True, refused_by="user")
    context.mode = context.mode_before
    return ToolOutcome(f"The user approved the plan. {saved}. Plan mode is off: go ahead.", is_users=True)


async def _touches_plan(context: ToolContext, given: ExitPlanInput) -> ToolEffects:
    where = context.machine.plan_file
    return ToolEffects("ExitPlanMode", "other", (CallPath(where, where, is_inside=True),))


class RecallInput(ToolInput, frozen=True):
    id: str | None = None
    query: str | None = None
    session: str | None = None
    lines: str | int | None = None
    pattern: str | None = None
    chars: str | None = None
    limit: int | None = None


async def recall(context: ToolContext, use: ToolInvocation, given: RecallInput) -> ToolOutcome:
    """What left the view, from the session's journal."""
    text = await recall_tool.run(context.session, use.arguments)
    return ToolOutcome(text, is_error=text.startswith("recall failed"))


class CompactInput(ToolInput, frozen=True):
    focus: str | None = None


async def compact(context: ToolContext, use: ToolInvocation, given: CompactInput) -> ToolOutcome:
    """Note the wish; the next turn without open work fulfils it (CMP-6)."""
    return ToolOutcome(await compact_tool.run(context.session, use.arguments))


class MemoryInput(ToolInput, frozen=True):
    command: str
    path: str | None = None
    view_range: list[int] | None = None
    file_text: str | None = None
    old_str: str | None = None
    new_str: str | None = None
    insert_line: int | None = None
    insert_text: str | None = None
    old_path: str | None = None
    new_path: str | None = None


async def memory(context: ToolContext, use: ToolInvocation, given: MemoryInput) -> ToolOutcome:
    """Look into the memory, or change it; in plan mode nothing is changed."""
    if context.mode == "plan" and given.command != "view":
        raise ToolRefused("plan mode is on: the memory may be viewed, and nothing in it is changed")
    answer = await memory_tool.run(context.session, use.arguments)
    return ToolOutcome(answer.text, is_error=answer.is_error)


TODO_WRITE = Tool("TodoWrite", TodoInput, todo_write)
SKILL = Tool("Skill", SkillInput, skill)
TASK = Tool("Task", TaskInput, task, is_parallel=True)
ENTER_PLAN = Tool("EnterPlanMode", EnterPlanInput, enter_plan)
EXIT_PLAN = Tool("ExitPlanMode", ExitPlanInput, exit_plan, _touches_plan)
RECALL = Tool(recall_tool.name, RecallInput, recall, is_parallel=True, engine=recall_tool)
COMPACT = Tool(compact_tool.name, CompactInput, compact, engine=compact_tool)
MEMORY = Tool(memory_tool.name, MemoryInput, memory, engine=memory_tool)
