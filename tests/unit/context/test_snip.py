"""TURN-3: what is worthless, and when it may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.context.making import NOW, UNBOUND, Talk, after, call, facts, image, shown, text

from perdure.context import passes as module
from perdure.context.passes import snip

pytestmark = pytest.mark.unit

COLD = NOW + 3_601
FILE = "\n".join(f"line {n}" for n in range(200))


def reads(*inputs: dict[str, object], tool: str = "Read") -> Talk:
    talk = Talk()
    talk.user()
    for number, given in enumerate(inputs):
        talk.ran(f"t{number}", tool, f"{number}\n{FILE}", input=given)  # type: ignore[arg-type]
    talk.answered()
    return talk


def snipped(talk: Talk, **more: object) -> list[str]:
    edits = snip(talk.view, facts(**{"now": COLD, **more}))  # type: ignore[arg-type]
    return [stored.tool_use_id for edit in edits for stored in edit.stored]


@pytest.mark.parametrize(
    ("inputs", "gone"),
    [
        (({"file_path": "a"}, {"file_path": "a"}), ["t0"]),
        (({"file_path": "a"}, {"file_path": "a"}, {"file_path": "a"}), ["t0", "t1"]),
        (({"file_path": "a"}, {"file_path": "b"}), []),
        (({"file_path": "a"}, {"file_path": "a", "offset": 5}), []),
        (({"file_path": "a", "offset": 5}, {"file_path": "a", "offset": 5}), ["t0"]),
    ],
)
def test_a_read_is_superseded_by_the_same_read(inputs: tuple[dict[str, object], ...], gone: list[str]) -> None:
    """TURN-3: same file read again later, unchanged range."""
    assert snipped(reads(*inputs)) == gone


def test_a_search_in_the_same_folder_supersedes_nothing() -> None:
    """TURN-3: another pattern is another question, and another edit of a file is no read of it."""
    assert snipped(reads({"pattern": "x", "path": "src"}, {"pattern": "y", "path": "src"}, tool="Grep")) == []
    assert snipped(reads({"file_path": "a", "old": "1"}, {"file_path": "a", "old": "2"}, tool="Edit")) == []


def test_the_same_result_again_makes_the_older_one_worthless() -> None:
    """TURN-3: repeated identical results; different images are not identical."""
    talk = Talk()
    for number in range(3):
        talk.ran(f"t{number}", "Bash", FILE, input={"command": f"run {number}"})
    talk.answered()
    assert snipped(talk) == ["t0", "t1"]
    view = after(talk.view, snip(talk.view, facts(now=COLD)))
    assert shown(view, "t0") == "[The same result came again later; recall with id t0]"
    assert shown(view, "t2") == FILE
    assert snip(view, facts(now=COLD)) == ()


def test_results_with_different_images_are_not_the_same() -> None:
    """TURN-3: the words may be the same while the pictures differ."""
    talk = Talk()
    for number, data in enumerate(("aaaa", "bbbb")):
        talk.ran(f"t{number}", "mcp__shot", [text(FILE), image(data)])
    talk.answered()
    assert snipped(talk) == []


def test_progress_chatter_keeps_its_end() -> None:
    """TURN-3: mostly progress lines give way to the last five."""
    talk = Talk()
    talk.ran("t0", "Bash", "\n".join(f"{n}% [======>   ] 3.1MB/s" for n in range(100)) + "\nall done")
    talk.answered()
    view = after(talk.view, snip(talk.view, facts(now=COLD)))
    assert shown(view, "t0").endswith("all done")
    assert len(shown(view, "t0").splitlines()) == 6


def test_an_aborted_turn_keeps_the_persons_words() -> None:
    """TURN-3: the model's unfinished words go; with a call, or behind results, they stay."""
    talk = Talk()
    talk.user("first")
    talk.model(text("I would begin by " * 40))
    talk.user("[Request interrupted by user]")
    talk.answered()
    view = after(talk.view, snip(talk.view, facts(now=COLD)))
    assert [len(item.visible) for item in view.items] == [1, 0, 1, 1]
    talk = Talk()
    talk.user("first")
    talk.model(text("I would begin by " * 40), call("a"))
    talk.user("[Request interrupted by user]")
    talk.answered()
    assert snip(talk.view, facts(now=COLD)) == ()


def test_it_waits_for_a_reason_to_move_the_prefix() -> None:
    """TURN-3: only when the cache is cold, or from trigger - 20,000 on when it frees enough."""
    talk = reads({"file_path": "a"}, {"file_path": "a"})
    assert snipped(talk, now=NOW) == []
    assert snipped(talk, now=COLD, snip=False) == []
    talk.model(text("ok"), usage=150_000)
    cheap = replace(UNBOUND, read_factor=1.25)  # reading costs as much as writing: a move pays at once
    assert snipped(talk, now=NOW, snip_min_saved_tokens=100, model=cheap) == ["t0"]
    assert snipped(talk, now=NOW, snip_min_saved_tokens=100, model=replace(UNBOUND, read_factor=0.0)) == []


def test_what_lies_behind_another_edit_is_free() -> None:
    """TURN-16: what a clearing of this turn rewrites anyway is taken along; what lies before it stays."""
    talk = reads({"file_path": "a"}, {"file_path": "a"})
    for n in range(8):
        talk.ran(f"large{n}", "Bash", f"{n} " * 16_000)
    for n in range(2):
        talk.ran(f"b{n}", "Read", f"{n}\n{FILE}", input={"file_path": "b"})
    talk.model(text("ok"), usage=168_000)
    never: dict[str, object] = {"now": NOW, "model": replace(UNBOUND, read_factor=0.0)}
    assert snipped(talk, **never, microcompact=False) == []
    assert snipped(talk, **never, microcompact_tools=("Bash",)) == ["b0"], "what is cleared stands behind t0"


def test_what_is_new_is_the_models_to_read_first() -> None:
    """TURN-3: a result that no answered request held is never snipped."""
    talk = Talk()
    talk.ran("t0", "Bash", FILE)
    talk.model(call("t1", "Bash"), call("t2", "Bash"))
    talk.result("t1", FILE)
    talk.result("t2", FILE)
    assert snipped(talk) == ["t0"]


def test_clearing_is_worked_out_only_where_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """TURN-3, SPD-1: whether the prefix moves anyway is asked where snipping alone doesn't pay, and only there."""
    talk, asked = reads({"file_path": "a"}, {"file_path": "a"}), list[object]()
    monkeypatch.setattr(module, "microcompact", lambda view, facts: asked.append(view) or ())
    assert not snip(talk.view, facts(now=NOW)) and not asked, "far from the trigger"
    assert snip(talk.view, facts(now=COLD)) and not asked, "the cache is cold"
