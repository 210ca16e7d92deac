"""TodoWrite, Skill, Task, the plan, recall, compaction: tools that change only the agent's own plan (LIB-1)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.agent.desk import Desk
from holdfast.agent.permissions import Touch, Where
from holdfast.agent.progress import Asked, No
from holdfast.agent.skills import front_matter
from holdfast.agent.tools.tool import Input, Outcome, Refused, Tool, Use
from holdfast.context.restore.happened import DENIED
from holdfast.engine.compact_tool import compact_tool
from holdfast.engine.recall_tool import recall_tool
from holdfast.transcript.messages import Message

SKILL_BYTES = 200_000


class TodoItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of the list."""

    content: Annotated[str, Meta(description="What is to be done.", min_length=1)]
    status: Literal["pending", "in_progress", "completed"]
    activeForm: Annotated[str, Meta(description="The same as it is being done, for people.")] = ""


class TodoInput(Input, frozen=True):
    todos: Annotated[list[TodoItem], Meta(description="The whole list, as it is now.")]


async def todo_write(desk: Desk, use: Use, given: TodoInput) -> Outcome:
    """Keep the list; it comes back behind a compaction (RST-3)."""
    done = sum(item.status == "completed" for item in given.todos)
    active = sum(item.status == "in_progress" for item in given.todos)
    note = " Keep one item in progress at a time." if active > 1 else ""
    return Outcome(f"The list is kept: {done} of {len(given.todos)} done.{note} Go on with the work.")


class SkillInput(Input, frozen=True):
    skill: Annotated[str, Meta(description="Its name, as listed.", min_length=1)]
    args: Annotated[str, Meta(description="What it should be done with, if anything.")] = ""


async def skill(desk: Desk, use: Use, given: SkillInput) -> Outcome:
    """Load a skill's instructions, as its file says now."""
    found = desk.skills.get(given.skill.removeprefix("/"))
    if found is None:
        raise Refused(f"there is no skill {given.skill!r}: {', '.join(desk.skills) or 'none is installed'}")
    text = found.body
    spot = await desk.machine.workspace.look(found.path)
    if spot.kind == "file" and spot.path == found.path:
        data = await desk.machine.workspace.read(spot.path, limit_bytes=SKILL_BYTES)
        text = front_matter(data.decode("utf-8", "replace"))[1]
    folder = found.path.rsplit("/", 1)[0]
    told = f"Base directory for this skill: {folder}\n\n{text}"
    if given.args:
        told += f"\n\nARGUMENTS: {given.args}"
    return Outcome(f"Launching skill: {found.name}", behind=(Message.of("user", told, origin="reminder"),))


class TaskInput(Input, frozen=True):
    description: Annotated[str, Meta(description="The task in three to five words.")]
    prompt: Annotated[str, Meta(description="Everything the agent has to know; it sees nothing else.", min_length=1)]
    subagent_type: Annotated[str, Meta(description="A kind of agent, as listed.")] = "general-purpose"
    run_in_background: Annotated[bool, Meta(description="Go on while it works; you are told when it ends.")] = False
    resume: Annotated[str, Meta(description="The id of an agent that worked before: it goes on.")] | None = None


async def task(desk: Desk, use: Use, given: TaskInput) -> Outcome:
    """Hand a task to a sub-agent."""
    if desk.subagents is None:
        raise Refused("a sub-agent starts no others: do it yourself")
    text = await desk.subagents.run(
        given.subagent_type, given.prompt, given.description, behind=given.run_in_background, resume=given.resume
    )
    return Outcome(text)


class EnterPlanInput(Input, frozen=True):
    pass


class ExitPlanInput(Input, frozen=True):
    plan: Annotated[str, Meta(description="The plan, in Markdown.", min_length=1)]


async def enter_plan(desk: Desk, use: Use, given: EnterPlanInput) -> Outcome:
    """From now on nothing is changed until a plan is approved."""
    if desk.mode != "plan":
        desk.mode_before, desk.mode = desk.mode, "plan"
    where = desk.machine.plan_file
    return Outcome(
        "Plan mode is on: look around and think; nothing may be changed. Write the plan down as you go if it is long "
        f"(plan file at {where} ), and show it with ExitPlanMode."
    )


async def exit_plan(desk: Desk, use: Use, given: ExitPlanInput) -> Outcome:
    """Keep the plan in its file, and ask whether to go ahead."""
    if desk.mode != "plan":
        raise Refused("plan mode is not on: go on with the work")
    where = desk.machine.plan_file
    await desk.machine.workspace.write(where, given.plan.encode("utf-8", "replace"))
    saved = f"The plan has been saved to: {where} "
    if desk.ask is None:
        raise Refused(f"{DENIED}: nobody is there to approve the plan. {saved}. End here and say what you plan.")
    answer = await desk.ask(Asked(use.id, use.name, use.arguments, "the plan is ready: go ahead with it?"))
    if isinstance(answer, No):
        said = f" They said: {answer.said}" if answer.said else ""
        return Outcome(f"{DENIED}: the plan was not approved.{said} {saved}. Plan mode stays on.", is_error=True)
    desk.mode = desk.mode_before
    return Outcome(f"The user approved the plan. {saved}. Plan mode is off: go ahead.")


class RecallInput(Input, frozen=True):
    id: str | None = None
    query: str | None = None
    session: str | None = None
    lines: str | int | None = None
    pattern: str | None = None
    chars: str | None = None
    limit: int | None = None


async def recall(desk: Desk, use: Use, given: RecallInput) -> Outcome:
    """What left the view, from the session's journal."""
    text = await recall_tool.run(desk.session, use.arguments)
    return Outcome(text, is_error=text.startswith("recall failed"))


class _Recall(Tool[RecallInput]):
    """The engine's own definition counts."""

    @property
    def definition(self) -> dict[str, Any]:
        return recall_tool.definition


class CompactInput(Input, frozen=True):
    focus: str | None = None


async def compact(desk: Desk, use: Use, given: CompactInput) -> Outcome:
    """Note the wish; the next turn without open work fulfils it (CMP-6)."""
    return Outcome(await compact_tool.run(desk.session, use.arguments))


class _Compact(Tool[CompactInput]):
    """The engine's own definition counts."""

    @property
    def definition(self) -> dict[str, Any]:
        return compact_tool.definition


async def _touches_plan(desk: Desk, given: ExitPlanInput) -> Touch:
    where = desk.machine.plan_file
    return Touch("ExitPlanMode", "other", (Where(where, where, is_inside=True),))


TODO_WRITE = Tool("TodoWrite", TodoInput, todo_write)
SKILL = Tool("Skill", SkillInput, skill)
TASK = Tool("Task", TaskInput, task, is_parallel=True)
ENTER_PLAN = Tool("EnterPlanMode", EnterPlanInput, enter_plan)
EXIT_PLAN = Tool("ExitPlanMode", ExitPlanInput, exit_plan, _touches_plan)
RECALL = _Recall("recall", RecallInput, recall, is_parallel=True)
COMPACT = _Compact(compact_tool.name, CompactInput, compact)
