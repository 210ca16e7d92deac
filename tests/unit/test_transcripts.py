"""Transcripts of another program, kept as they come (LIB-4)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.transcripts import TranscriptFolder
from perdure.errors import NameRefused

pytestmark = pytest.mark.unit
KEY = ("project", "one")


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": f"u{number}", "n": number, **more}


def file_of(tmp_path: Path) -> Path:
    return tmp_path / "project" / "one.jsonl"


def test_an_entry_that_comes_twice_is_kept_once(tmp_path: Path) -> None:
    """LIB-4: a batch that is tried again, here or in another process, doubles nothing; what has no id stays."""
    first, second = TranscriptFolder(tmp_path), TranscriptFolder(tmp_path)
    first.append(KEY, [entry(1), {"type": "mode"}])
    second.append(KEY, [entry(1), entry(2)])
    first.append(KEY, [entry(2), entry(2), {"type": "mode"}, entry(3)])
    kept = [entry(1), {"type": "mode"}, entry(2), {"type": "mode"}, entry(3)]
    assert first.load(KEY) == second.load(KEY) == kept


def test_what_a_crash_cut_off_costs_itself_alone(tmp_path: Path) -> None:
    """LIB-4, REL-1: the cut line is left out, comes again with the batch, and spoils nothing behind it."""
    folder = TranscriptFolder(tmp_path)
    folder.append(KEY, [entry(1), entry(2, text="long " * 100)])
    whole = file_of(tmp_path).read_bytes()
    file_of(tmp_path).write_bytes(whole[:-50])
    again = TranscriptFolder(tmp_path)
    assert again.load(KEY) == [entry(1)]
    again.append(KEY, [entry(1), entry(2), entry(3)])
    assert again.load(KEY) == [entry(1), entry(2), entry(3)]


def test_texts_that_are_no_unicode_come_back_as_they_were(tmp_path: Path) -> None:
    """LIB-4: entries are the other program's; whatever JSON can say comes back equal."""
    odd = entry(1, text="half a pair \ud83d, a \u2028 line, \x00", large=2**70, nothing=None, nested=[{"a": [1.5]}])
    folder = TranscriptFolder(tmp_path)
    folder.append(KEY, [odd])
    assert folder.load(KEY) == [odd]


@pytest.mark.parametrize("part", ["", ".", "..", "../x", "a/b", "a\0b", ".hidden", "x.jsonl", "x" * 300, "a\\b"])
def test_no_name_leaves_the_folder_or_clashes_in_it(tmp_path: Path, part: str) -> None:
    """LIB-4, SEC-2: keys come from another program."""
    folder = TranscriptFolder(tmp_path / "in")
    for parts in [(part, "one"), ("project", part), ("project", "one", part)]:
        with pytest.raises(NameRefused):
            folder.append(parts, [entry(1)])
    assert not any(tmp_path.rglob("*.jsonl"))


def test_a_link_in_the_place_of_a_transcript_is_refused(tmp_path: Path) -> None:
    """LIB-4, SEC-2: nothing outside of the folder is written to."""
    folder = TranscriptFolder(tmp_path / "in")
    folder.append(("project", "two"), [entry(1)])
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / "in" / "project" / "one.jsonl").symlink_to(victim)
    with pytest.raises(OSError):
        folder.append(KEY, [entry(1)])
    assert victim.read_text() == "untouched"


def test_a_summary_that_missed_something_is_made_anew(tmp_path: Path) -> None:
    """LIB-4: also when a process died between the entries and the summary, or wrote without one."""
    calls: list[tuple[Any, int]] = []

    def fold(before: dict[str, Any] | None, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        calls.append((before, len(entries)))
        return {"count": (before or {"count": 0})["count"] + len(entries)}

    folder = TranscriptFolder(tmp_path)
    folder.append(KEY, [entry(1)], fold)
    folder.append(KEY, [entry(2)], fold)
    assert calls == [(None, 1), ({"count": 1}, 1)]
    folder.append(KEY, [entry(3)])
    (_, summed, _), (_, written) = folder.summaries("project")[0], folder.sessions("project")[0]
    assert summed <= written
    folder.append(KEY, [entry(4)], fold)
    assert calls[-1] == (None, 4)
    (told,) = folder.summaries("project")
    assert told[0] == "one" and told[2] == {"count": 4} and told[1] == folder.sessions("project")[0][1]


def test_a_transcript_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    """LIB-4, SEC-12: as a purge does it; ids are those of the new file, and so is the summary."""
    folder = TranscriptFolder(tmp_path)
    folder.append(KEY, [entry(1, text="a secret"), entry(2)], lambda before, entries: {"texts": str(entries)})
    path = file_of(tmp_path)
    path.with_suffix(".new").write_bytes(
        path.read_bytes().replace(b"a secret", b"(purged)" * 9).replace(b'"u2"', b'"u3"')
    )
    path.with_suffix(".new").replace(path)
    folder.append(KEY, [entry(2), entry(3)], lambda before, entries: {"texts": f"{before} {entries}"})
    assert [one["uuid"] for one in folder.load(KEY) or []] == ["u1", "u3", "u2"]
    assert "a secret" not in str(folder.summaries("project"))


def test_what_belongs_to_a_session_goes_with_it(tmp_path: Path) -> None:
    """LIB-4: a session that is deleted leaves nothing, and another one is untouched."""
    folder = TranscriptFolder(tmp_path)
    for parts in [KEY, (*KEY, "subagents", "agent-1"), (*KEY, "subagents", "agent-2"), ("project", "two")]:
        folder.append(parts, [entry(1)], lambda before, entries: {})
    assert folder.belongings(*KEY) == ["subagents/agent-1", "subagents/agent-2"]
    folder.delete((*KEY, "subagents", "agent-1"))
    assert folder.belongings(*KEY) == ["subagents/agent-2"] and folder.load(KEY) == [entry(1)]
    folder.delete(KEY)
    assert folder.load(KEY) is None and folder.belongings(*KEY) == []
    assert (
        [name for name, _ in folder.sessions("project")] == ["two"] == [one[0] for one in folder.summaries("project")]
    )
    folder.append(KEY, [entry(1)])
    assert folder.load(KEY) == [entry(1)], "an id that was deleted isn't known any more"


def test_several_write_at_once(tmp_path: Path) -> None:
    """LIB-4: nothing is lost or doubled, each writer's entries stay in their order, and no line is mixed."""
    folders = [TranscriptFolder(tmp_path), TranscriptFolder(tmp_path)]

    def write(writer: int) -> None:
        for number in range(0, 60, 3):
            batch = [{"type": "x", "uuid": f"{writer}-{n}", "w": writer, "n": n} for n in range(number, number + 3)]
            folders[writer % 2].append(KEY, batch)
            folders[(writer + 1) % 2].append(KEY, batch)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = folders[0].load(KEY) or []
    assert len(found) == 240
    for writer in range(4):
        assert [one["n"] for one in found if one["w"] == writer] == list(range(60))
