"""`perdure bench beside`: our record beside the summary that a log has, and what each has (CMP-16, QLT-1)."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from tests.commands import Done, command, command_at_terminal
from tests.terminals import environment
from tests.unit.bench.talk import log_of
from tests.unit.bench.test_fidelity import talk

from perdure.lab.bench.beside import BesideAxis, compare

pytestmark = pytest.mark.unit

AT = 80  # the message behind which the talk is compacted
SUMMARY = "The user wants helper_25_fn and its family tidied; parse_row is done. Next: look at helper_39_fn again."


def compacted(tmp_path: Path, summary: str = SUMMARY) -> Path:
    said = talk()
    return log_of([*said[:AT], ("boundary", summary), *said[AT:]], tmp_path / "session.jsonl")


def beside(*words: str | Path, folder: Path, columns: int = 160) -> Done:
    env = environment(folder / "home", COLUMNS=str(columns))
    return command("bench", "beside", *words, cwd=folder, env=env)


def columns(text: str) -> int:
    """Of a terminal, as the C library counts."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.category(c) in ("Mn", "Me", "Cf") for c in text)


def axes(path: Path, budget: str = "summary") -> dict[str, BesideAxis]:
    (place,) = compare([path], budget=budget).places
    return {one.axis: one for one in place.axes}


# --- what each has


def test_the_record_is_as_large_as_the_summary(tmp_path: Path) -> None:
    """CMP-16: unless another budget is asked for."""
    long = SUMMARY + " It was a long way to go." * 60
    log = compacted(tmp_path, long)
    (place,) = compare([log]).places
    assert place.line == AT + 1 and place.session == "session"
    assert place.summary.text == long and 0.8 * place.summary.tokens < place.record.tokens <= place.summary.tokens
    (larger,) = compare([log], budget="3k").places
    assert place.record.tokens < larger.record.tokens <= 3_000 and larger.summary == place.summary


@pytest.mark.parametrize("budget", ["summary+2k", "default"])
def test_the_raw_tail_of_a_budget_stands_on_both_sides(tmp_path: Path, budget: str) -> None:
    (place,) = compare([compacted(tmp_path)], budget=budget).places
    assert place.summary.text.startswith(SUMMARY)
    last = "turn number 38 follow here"
    assert last in place.summary.text and last in place.record.text


def test_what_only_one_of_them_has_is_named(tmp_path: Path) -> None:
    """CMP-16: what was needed later first; other names by who said them."""
    found = axes(compacted(tmp_path), "2k")
    facts = found["facts"]
    assert facts.record_only[:3] == ("helper_20_fn", "helper_21_fn", "helper_22_fn"), "in the order of the need"
    assert "helper_25_fn" not in (*facts.record_only, *facts.summary_only, *facts.neither), "both have it"
    assert (facts.of, facts.record, facts.summary) == (19, 19, 1)
    assert found["user"] == BesideAxis("user", 1, 1, 0, ("please tidy the parse_row family of functions",))
    assert found["words"].of > found["words"].record - 1 > 0 and not found["words"].record_only
    assert found["names"].record_only[0].startswith("helper_"), "what the agent said comes before what tools showed"
    assert not found["names"].neither and "far" in found and not found["far"].record_only


def test_a_summary_may_have_what_the_record_lacks(tmp_path: Path) -> None:
    names = " ".join(f"helper_{number}_fn" for number in range(20, 40))
    facts = axes(compacted(tmp_path, f"Tidied: {names}."))["facts"]
    assert facts.of == facts.summary == facts.record + len(facts.summary_only) > facts.record and not facts.record_only


def test_secrets_are_marked_on_both_sides(tmp_path: Path) -> None:
    """SEC-5: the texts are made to be shown."""
    key = "sk-ant-api03-" + "Ab1" * 31 + "xyAA"
    said = talk()
    said[0] = ("user", f"please tidy the parse_row family; the key is {key}")
    log = log_of([*said[:AT], ("boundary", f"The key is {key}."), *said[AT:]], tmp_path / "session.jsonl")
    done = beside(log, "--budget", "2k", folder=tmp_path)
    assert key not in done.stdout and done.stdout.count("{{secret:") >= 2
    assert key not in beside(log, "--json", folder=tmp_path).stdout


# --- how it is shown


def test_texts_stand_side_by_side_where_there_is_room(tmp_path: Path) -> None:
    """CMP-16: and one below the other elsewhere."""
    log = compacted(tmp_path)
    wide = beside(log, "--budget", "1k", folder=tmp_path).stdout
    assert next(line for line in wide.splitlines() if line.startswith("THE RECORD")).endswith("│ THE SUMMARY")
    narrow = beside(log, "--budget", "1k", "--width", "90", folder=tmp_path).stdout
    assert "│" not in narrow and narrow.index("THE RECORD") < narrow.index("THE SUMMARY")
    assert max(map(columns, narrow.splitlines()[1:])) <= 90
    for text in (wide, narrow):
        assert "ONLY IN THE RECORD" in text and "please tidy the parse_row family of functions" in text
        facts = next(line.split() for line in text.splitlines() if line.strip().startswith("facts "))
        assert facts[0] == "facts" and int(facts[1]) >= int(facts[2]) > int(facts[3]) == 1


def test_further_lines_of_an_item_stand_below_its_text(tmp_path: Path) -> None:
    item = "a long item of a list, which is broken once, and then once more"
    log = compacted(tmp_path, f"What is next:\n- {item}\n  12. {item}")
    lines = beside(log, "--width", "40", folder=tmp_path).stdout.splitlines()
    at = lines.index("What is next:")
    assert [len(line) - len(line.lstrip("- 12.")) for line in lines[at + 1 : at + 5]] == [2, 2, 6, 6]
    assert "".join(lines[at + 1 : at + 3]) == f"- {item}".replace("broken once", "broken  once")


@pytest.mark.parametrize(
    "summary",
    [
        "使用者要求整理 parse_row 系列的函式，並且修正日期的解析。" * 12,
        "ユーザーは parse_row を整理してほしい。" * 12,
        "사용자는 parse_row 정리를 원합니다. " * 12,
        "ผู้ใช้ต้องการจัดระเบียบ parse_row ให้เรียบร้อย " * 12,
        "उपयोगकर्ता चाहता है कि parse_row ठीक हो। " * 12,
        "u\u0308ber A\u030angstrom, na\u00efve cafe\u0301 \N{GRINNING FACE} " * 12,
    ],
    ids=["zh", "ja", "ko", "th", "hi", "marks"],
)
def test_scripts_other_than_latin_align(tmp_path: Path, summary: str) -> None:
    """CMP-16: the line between the columns stands in one place."""
    said = talk()
    said[0] = ("user", summary)
    log = log_of([*said[:AT], ("boundary", summary), *said[AT:]], tmp_path / "session.jsonl")
    lines = beside(log, "--budget", "1k", folder=tmp_path, columns=130).stdout.splitlines()
    places = {columns(line.split("│")[0]) for line in lines if "│" in line}
    assert len(places) == 1, places
    assert any(summary[:3] in line.partition("│")[0] for line in lines)


HOSTILE = "\x1b]0;title\x07 \x1b[2J \x9b31m \u202eright to left \r\n # heading \u2066"


def test_marks_piled_on_one_letter_end(tmp_path: Path) -> None:
    log = compacted(tmp_path, "क" + "ा" * 500 + " and " + "e" + "\u0301" * 500)
    assert "and" in beside(log, "--budget", "1k", "--width", "110", folder=tmp_path).stdout


@pytest.mark.parametrize("columns", [80, 150])
def test_nothing_of_a_log_commands_the_terminal(tmp_path: Path, columns: int) -> None:
    said = talk()
    said[0] = ("user", f"please tidy parse_row {HOSTILE}")
    said[1] = ("assistant", [{"type": "text", "text": f"helper_1_fn {HOSTILE}"}])
    name = "session\x1b[31m.jsonl"
    log = log_of([*said[:AT], ("boundary", f"helper_21_fn {HOSTILE}"), *said[AT:]], tmp_path / name)
    done = command_at_terminal(
        *("bench", "beside", log, "--budget", "1k", "--width", str(columns)),
        cwd=tmp_path,
        env=environment(tmp_path / "home", NO_COLOR="1"),
    )
    assert done.returncode == 0 and "right to left" in done.stdout
    assert not {"\x1b]", "\x1b[2J", "\x1b[31m", "\x07", "\x9b", "\u202e", "\u2066"} & {
        done.stdout[at : at + length] for at in range(len(done.stdout)) for length in (1, 2, 4, 5)
    }


def test_json_has_everything(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    found = json.loads(beside(log, "--budget", "1k", "--json", folder=tmp_path).stdout)
    (place,) = found["places"]
    assert place["line"] == AT + 1 and place["file"] == str(log) and place["tokens_before"] > 20_000
    assert place["summary"]["text"] == SUMMARY and "Record of earlier work" in place["record"]["text"]
    facts = place["axes"]["facts"]
    assert set(facts) == {"of", "record", "summary", "record_only", "summary_only", "neither"}
    assert found["totals"]["facts"] == {name: facts[name] for name in ("of", "record", "summary")}


def test_texts_are_written_as_files(tmp_path: Path) -> None:
    """CMP-16: for reading and judging; never over others, and none when one is in the way."""
    log = compacted(tmp_path)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "session.jsonl").write_bytes(log.read_bytes())
    words = (log, tmp_path / "copy", "--budget", "1k", "--out", "new/texts")
    done = beside(*words, folder=tmp_path)
    texts = {path.name: path.read_text() for path in (tmp_path / "new/texts").iterdir()}
    stem = f"session-{AT + 1}"
    assert set(texts) == {f"{name}.{kind}.md" for name in (stem, f"{stem}-2") for kind in ("record", "summary")}
    assert texts[f"{stem}.summary.md"] == f"{SUMMARY}\n" and "Record of earlier work" in texts[f"{stem}.record.md"]
    assert "\nTHE RECORD" not in done.stdout and "ONLY IN THE RECORD" in done.stdout and "wrote 4 files" in done.stderr
    (tmp_path / "new/texts" / f"{stem}.record.md").write_text("mine")
    for path in (tmp_path / "new/texts").glob("*-2.*"):
        path.unlink()
    again = beside(*words, folder=tmp_path)
    assert (
        again.returncode == 2
        and "already exists" in again.stderr
        and len(list((tmp_path / "new/texts").iterdir())) == 2
    )
    forced = beside(*words, "--force", "--json", folder=tmp_path)
    assert forced.returncode == 0 and len(json.loads(forced.stdout)["places"]) == 2
    assert (tmp_path / "new/texts" / f"{stem}.record.md").read_text() != "mine"


def test_a_long_name_and_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    long = log.rename(tmp_path / f"{'長' * 80}.jsonl")
    assert beside(long, "--budget", "1k", "--out", "texts", folder=tmp_path).returncode == 0
    refused = beside(long, "--budget", "1k", "--out", long, folder=tmp_path)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "is no folder" in refused.stderr


# --- which compactions


def test_one_compaction_by_its_line(tmp_path: Path) -> None:
    said = talk()
    first, second = ("boundary", SUMMARY), ("boundary", f"{SUMMARY} And more.")
    log = log_of([*said[:40], first, *said[40:80], second, *said[80:]], tmp_path / "session.jsonl")
    both = beside(log, folder=tmp_path)
    assert both.stdout.count("\nTHE RECORD") == 2 and "in all 2 compactions" in both.stdout
    lines = [line for _, line in compare([log]).lines]
    assert lines == [41, 83]
    one = beside(log, "--at", "83", folder=tmp_path).stdout
    assert one.count("\nTHE RECORD") == 1 and "And more." in one and "in all" not in one
    none = beside(log, "--at", "7", folder=tmp_path)
    assert none.returncode == 3 and none.stderr.count("\n") == 1 and f"{log}:41" in none.stderr


def test_a_log_without_compactions_is_one_clear_line(tmp_path: Path) -> None:
    done = beside(log_of(talk(), tmp_path / "plain.jsonl"), folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no compaction with a summary to compare in 1 file\n", "")


def test_what_cannot_be_compared_is_left_out_and_said(tmp_path: Path) -> None:
    said = talk()
    log = log_of([*said[:AT], ("boundary", SUMMARY), *said[AT:]], tmp_path / "session.jsonl")
    done = beside(log, "--budget", "90k", folder=tmp_path)
    assert done.returncode == 0 and "1 compaction left out: all that was said before it fits" in done.stderr
    wrong = beside(log, "--budget", "much", folder=tmp_path)
    assert wrong.returncode == 2 and "write 10k, 12k+10k, summary" in wrong.stderr
    rows = [line for line in log.read_text().splitlines() if "isCompactSummary" not in line]
    log.write_text("\n".join(rows) + "\n")
    done = beside(log, folder=tmp_path)
    assert "1 compaction left out: the log doesn't show what its summary says" in done.stderr
