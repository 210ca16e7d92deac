"""Scenes of a chat as a person sees them, in a terminal that draws; `make scenes` plays all of them (CLI-6)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyte", reason="the terminal emulator pyte is not installed (the extra `test` has it)")

from tests import scenes

pytestmark = pytest.mark.e2e


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("scene", "columns", "is_colored"),
    [
        (scenes.joined, 60, True),
        (scenes.long_lines, 140, False),
        (scenes.ctrl_c_stream, 60, True),
        (scenes.ctrl_c_question, 140, True),
        (scenes.queue, 60, False),
        (scenes.pasted, 60, True),
        (scenes.resume, 140, True),
        (scenes.commands, 140, True),
        (scenes.own_commands, 60, True),
        (scenes.files, 60, True),
        (scenes.review, 60, True),
        (scenes.ctrl_c_tool, 60, False),
        (scenes.two_chats, 140, True),
        (scenes.sessions, 60, True),
        (scenes.help_and_costs, 60, False),
        (scenes.asked_again, 60, False),
        (scenes.saved, 60, True),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_a_scene_shows_what_it_should_and_nothing_false(
    tmp_path: Path, scene: scenes.Scene, columns: int, is_colored: bool
) -> None:
    """CLI-6, MEM-16: no broken word, no false line; each scene says what it is about."""
    stage = scenes.play(scene, tmp_path / "scene", columns, is_colored=is_colored)
    assert stage.screens and all(text for _, text in stage.screens)


def test_without_colours_the_answer_has_none(tmp_path: Path) -> None:
    """CLI-6: NO_COLOR holds for what is drawn and for the line that is edited."""
    stage = scenes.Stage(tmp_path / "scene", 60, is_colored=False)
    with scenes.served([scenes.LATIN]) as server, stage.chat(server) as one:
        one.type("What is it?")
        one.shows(scenes.COMPACTS)
        stage.leave(one)
        colours = [code for code in scenes.sequences(one.raw) if scenes.is_color(code)]
    assert not colours, colours
