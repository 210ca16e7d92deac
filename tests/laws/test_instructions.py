"""Instruction files in any session: the prefix law and resume hold with loads and changes (INS-4, INS-6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import plans
from tests.folders import PLACES, Table, TableFiles
from tests.laws.test_prefix import SMALL, moves_are_told, same_again
from tests.tiers import examples
from tests.worlds import World, done

from perdure.context.instructions import ShownInstructions
from perdure.engine.instructions import with_instructions
from perdure.engine.reminders import remind
from perdure.engine.session import LiveSession
from perdure.settings import Settings
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Collapsed, Undone

pytestmark = pytest.mark.laws

ROOT = PLACES.root
FILES = (
    f"{ROOT}/CLAUDE.md",
    f"{ROOT}/CLAUDE.local.md",
    f"{ROOT}/src/CLAUDE.md",
    f"{ROOT}/docs/CLAUDE.md",
    f"{ROOT}/.claude/rules/tests.md",
    "/home/me/.claude/CLAUDE.md",
)
TEXTS = (
    "",
    "Use tabs.\n",
    "# A\nShort.\n# B\nAlso </system-reminder> short.\n",
    "word " * 800,
    "---\npaths: tests/**\n---\nTest.",
)


class Instructed(World):
    """A world whose sessions read instruction files from a table."""

    def __init__(self, settings: Settings, table: Table) -> None:
        self.table = table
        super().__init__(settings)

    def _open(self, *, whole: bool = False) -> LiveSession:
        session = super()._open(whole=whole)
        files = TableFiles(self.table, replace(PLACES, managed=None))
        session.services = with_instructions(session, session.services, files)
        return session

    def play(self, step: plans.Step) -> None:
        if isinstance(step, plans.Say):
            done(remind(self.session, "before"))
        super().play(step)


def changes() -> st.SearchStrategy[tuple[str, str]]:
    return st.tuples(st.sampled_from(FILES), st.sampled_from(TEXTS))


@examples(20)
@given(plans.sessions(), st.lists(changes(), max_size=30))
def test_loads_and_changes_move_no_prefix(steps: list[plans.Step], edits: list[tuple[str, str]]) -> None:
    """INS-4, INS-6, TURN-9b: what is touched or changed on disk arrives at the end; a restart sends the same, and knows
    of the files what the running session does, whatever left its view meanwhile and came back."""
    world, told = Instructed(SMALL, Table(dict(edits[:3]))), ShownInstructions()
    for number, step in enumerate(steps):
        if number < len(edits) and number % 2:
            path, text = edits[number]
            world.table.texts[path] = text
        world.play(step)
        assert told.follow(world.session.view).files == ShownInstructions().follow(world.session.view).files
    moves_are_told(world)
    same_again(world)


def test_a_change_that_left_the_view_is_told_again() -> None:
    """INS-6, REL-5: a running session tells what its view doesn't show any more, as one opened anew does, and once."""
    path, projection = FILES[0], Message.of("user", "[folded]", id=MessageId("p"), origin="summary")
    world, told = Instructed(SMALL, Table({path: "Use tabs.\n"})), ShownInstructions()

    def known() -> str:
        files = told.follow(world.session.view).files
        assert files == ShownInstructions().follow(world.session.view).files
        return files[path].revision

    def said() -> int:
        before = len(world.session.view.items)
        done(remind(world.session, "before"))
        return len(world.session.view.items) - before

    assert said() == 1
    first, world.table.texts[path] = known(), "Use spaces.\n"
    assert said() == 1 and said() == 0
    second, change = known(), world.session.view.items[-1].message.id
    assert first != second
    world.record(Collapsed(id="c", first=change, last=change, projection=projection))
    assert known() == first and said() == 1 and known() == second
    world.record(Undone(id="c"))
    assert known() == second and said() == 0


@examples(20)
@given(plans.sessions(), st.lists(changes(), min_size=1, max_size=12))
def test_what_was_told_is_what_is_on_disk(steps: list[plans.Step], edits: list[tuple[str, str]]) -> None:
    """INS-6: after a reminder the view knows the state of every file that loads at the start; said once, not twice."""
    world = Instructed(SMALL, Table(dict(edits)))
    for step in steps:
        world.play(step)
    world.restart()
    session = world.session
    if session.view.open_calls:
        return
    done(remind(session, "before"))
    found = done(TableFiles(world.table, replace(PLACES, managed=None)).at_start())
    told = ShownInstructions().follow(session.view).files
    assert {file.path: file.revision for file in found.files}.items() <= {
        p: k.revision for p, k in told.items()
    }.items()
    count = len(session.view.items)
    done(remind(session, "before"))
    assert len(session.view.items) == count
