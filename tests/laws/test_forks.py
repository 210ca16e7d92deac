"""SM-3, SEC-3, REL-4: a fork's requests are valid in every state of a view, and its deeds are within its permit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests import plans
from tests.tiers import examples
from tests.worlds import MODELS, World, done

from perdure.compaction.side_requests import ForkBase, ForkTurn, fork_base, fork_request
from perdure.context.models import ModelSpec
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import to_request
from perdure.engine.fork import ForkTask, ForkToolResult, run_fork
from perdure.memory.notes import completed_notes, form_of, parse, template
from perdure.memory.permits import NotesEditPermit, apply_notes_edit, edits_in, lexical
from perdure.settings import Settings
from perdure.testing import ScriptedModel, check_anthropic, check_openai, say, tool_use
from perdure.transcript.blocks import block_of
from perdure.transcript.messages import ResponseId, ToolUseId

pytestmark = pytest.mark.laws

SMALL = Settings(window_tokens=8_000, collapse=True, collapse_min_tokens=300)
OWN = {"anthropic": ModelInfo(id="fake", protocol="anthropic"), "openai": ModelInfo(id="fake", protocol="openai")}
OTHER = ModelInfo(id="another", protocol="anthropic")
ASKED = "This message is not part of the conversation."


def exchanges(with_thinking: Any = None) -> tuple[ForkTurn, ...]:
    """A call that was denied, and words that were answered."""
    use = {"type": "tool_use", "id": "toolu_fork", "name": "read_file", "input": {}}
    thought = [with_thinking] if with_thinking else []
    called = Reply(
        response=ResponseId("f1"),
        model="fake",
        blocks=tuple(map(block_of, [*thought, {"type": "text", "text": " "}, use])),
        stop_reason="tool_use",
    )
    spoken = Reply(
        response=ResponseId("f2"),
        model="fake",
        blocks=(block_of({"type": "text", "text": "hm"}),),
        stop_reason="end_turn",
    )
    return (
        ForkTurn(called, ((ToolUseId("toolu_fork"), "only Edit is allowed", True),)),
        ForkTurn(spoken, (), "Send them again."),
    )


def checked(world: World, *, answers: bool) -> None:
    """A fork of this moment is valid in both protocols at each of its turns, and is what was sent as far as it goes."""
    view, facts = world.session.view.copy(), world.session.facts()
    for about in (*OWN.values(), OTHER):
        base = fork_base(view, facts, about)
        if base is None:
            continue
        assert base.message == view.items[base.upto - 1].message.id and base.upto <= len(view.items)
        for turns in range(3):
            request, tokens = fork_request(view, facts, base, about, (ASKED, exchanges()[:turns]))
            assert tokens > 0
            if about.protocol == "openai":
                assert not check_openai(request.body)
                plain = to_request(view, facts, protocol="openai", stream=True, groups=list(base.groups), marks={}).body
                assert request.body.startswith(plain.rstrip(b'"}]')), "byte for byte"
            else:
                assert not check_anthropic(request.body, model_rules=world.rules)
                assert request.body.count(b'"cache_control"') <= 4
        if about.protocol == "anthropic" and about is not OTHER:
            shares(world, base, fork_request(view, facts, base, about, (ASKED, ()))[0])
    if answers and (base := fork_base(view, facts, OWN["anthropic"])):
        request, _ = fork_request(view, facts, base, OWN["anthropic"], (ASKED, ()))
        said: list[Any] = [{"type": "thinking", "thinking": "Let me see."}, tool_use("read_file", {}, id="toolu_fork")]
        reply = world.upstream.respond(request.body, reply=say(*said), session="s")
        again, _ = fork_request(view, facts, base, OWN["anthropic"], (ASKED, exchanges(reply.content[0])))
        world.upstream.respond(again.body, reply="ok", session="s")


def shares(world: World, base: ForkBase, request: Any) -> None:
    """Up to the breakpoint, block for block what the conversation sent at some time."""
    if base.end is None:
        return
    number, block = base.end
    ours = [(role, part.raw) for role, part in request.parts()]
    upto = sum(len(list(group.parts())) for group in request.groups[:number]) + block + 1
    assert any(sent.blocks[:upto] == ours[:upto] for sent in reversed(world.played)), "a prefix that nobody sent"


@examples(20)
@example([plans.FIRST, *[plans.Interrupted("I look at it.")] * 4, plans.Compact()])  # nothing was sent behind it
@given(plans.sessions())
def test_every_fork_is_taken(steps: list[plans.Step]) -> None:
    """REL-4, SM-3: also with open calls, answers in pieces, rewinds, collapses, boundaries and restarts."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
        checked(world, answers=False)


@pytest.mark.quick(1)
@pytest.mark.parametrize("model", MODELS)
@examples(15)
@given(plans.sessions())
def test_the_thinking_of_a_fork_holds(model: ModelSpec | None, steps: list[plans.Step]) -> None:
    """TURN-7, SM-3: the upstream takes each of its turns: signatures behind their prefix, open loops with theirs."""
    world = World(SMALL, model=model)
    for step in steps:
        world.play(step)
        checked(world, answers=True)


@examples(40)
@given(plans.sessions(), st.booleans())
def test_a_fork_changes_nothing(steps: list[plans.Step], is_long: bool) -> None:
    """SM-3, PRS-5: neither the journal nor the view nor the next request knows of it."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
    view, records = world.session.view, len(world.records)
    before = (len(view.items), view.sent, view.size, view.state)
    model = ScriptedModel([say(tool_use("read_file", {}))] * 3 + ["done"], id="fake", window_tokens=8_000)
    model.upstream = world.upstream

    async def denied(tool: str, arguments: Mapping[str, Any]) -> ForkToolResult:
        raise AssertionError("nothing is allowed")

    task = ForkTask(job="notes", instruction=ASKED, permit=lambda tool, given: "denied", run=denied)
    fork = done(run_fork(world.session, view.copy(), world.session.facts("session_memory"), [model], task))
    assert fork.allowed == 0 and fork.turns <= task.most_turns
    assert (len(view.items), view.sent, view.size, view.state) == before and len(world.records) == records


# --- the permit -----------------------------------------------------------------------------------------------------

PATH = "/home/me/s/session-memory/summary.md"
PERMIT = NotesEditPermit(PATH)
TOOLS = ("Edit", "edit", "EDIT", "MultiEdit", "Write", "Bash", "Read", "str_replace", "Edit_", "NotebookEdit")
PATHS = (
    PATH,
    "//home/me/s/session-memory/./summary.md",
    "/home/me/s/session-memory/../session-memory/summary.md",
    "/home/me/s/session-memory/summary.md/../../../../etc/passwd",
    "/home/me/s/session-memory/summary.MD",
    "/home/me/s/session-memory/summary.md\n",
    "~/s/session-memory/summary.md",
    "/etc/passwd",
    "",
)
VALUES = st.one_of(st.sampled_from(PATHS), st.none(), st.integers(), st.lists(st.sampled_from(PATHS), max_size=2))
ARGUMENTS = st.dictionaries(
    st.sampled_from(("file_path", "path", "file", "filename", "command", "old_string", "new_string", "replace_all")),
    VALUES,
    max_size=5,
)


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(TOOLS), ARGUMENTS), min_size=1, max_size=6))
def test_deeds_are_within_the_permit(calls: list[tuple[str, dict[str, Any]]]) -> None:
    """SEC-3: whatever is called in whatever order, only Edit on the one file is done; a permit doesn't grow."""
    world = World(Settings())
    world.say("hello")
    world.answer(plans.Answer(text="hi"))
    made: list[tuple[str, Mapping[str, Any]]] = []

    async def run(tool: str, arguments: Mapping[str, Any]) -> ForkToolResult:
        made.append((tool, arguments))
        return ForkToolResult("done")

    model = ScriptedModel([say(*(tool_use(name, given) for name, given in calls)), "done"], id="fake")
    model.upstream._enforce = "off"  # signatures of the world's own upstream
    task = ForkTask(job="notes", instruction=ASKED, permit=PERMIT.denial, run=run)
    fork = done(run_fork(world.session, world.session.view.copy(), world.session.facts(), [model], task))
    assert fork.allowed == len(made) and fork.allowed + fork.denied == len(calls) and not fork.reason
    for tool, arguments in made:
        named = [arguments[name] for name in ("file_path", "path", "file", "filename") if name in arguments]
        assert tool == "Edit" and named and all(lexical(one) == PATH for one in named)
    results = msgspec.json.decode(model.requests[-1].body)["messages"][-1]["content"]
    denials = [one["content"] for one in results if one.get("is_error")]
    assert denials == [f"only Edit on {PATH} is allowed"] * fork.denied


@examples(100)
@given(
    st.lists(st.tuples(st.sampled_from([*template().split("\n"), "# Worklog", "_"]), st.text(max_size=9)), max_size=8)
)
def test_no_edit_takes_the_form_away(pairs: list[tuple[str, str]]) -> None:
    """SM-1, SM-3: whatever is edited, every heading and description is still there."""
    form, now = form_of(None), template()
    for old, new in pairs:
        now, _ = apply_notes_edit(now, {"old_string": old, "new_string": new, "replace_all": True}, form)
    assert not completed_notes(parse(now), form)[1]


@examples(100)
@given(st.text(max_size=60), st.text(alphabet="ab \n<>/", max_size=30), st.text(alphabet="ab \n<>/", max_size=30))
def test_edits_as_text_are_read_as_they_were_written(noise: str, old: str, new: str) -> None:
    """SM-3: any text is read without an error, and an edit comes back as it was."""
    edits_in(noise)
    found = edits_in(f"Here:\n<edit>\n<old>\n{old}\n</old>\n<new>\n{new}\n</new>\n</edit>\n")
    assert found == [{"old_string": old, "new_string": new}]
