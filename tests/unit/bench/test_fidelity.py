"""Running the bench: places, baselines, intervals, gates, chains, the same bytes in any process (QLT-1 to QLT-3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.seeds import under_another_seed
from tests.unit.bench.talk import calls, log_of, says, shows, user

from perdure.cli import main
from perdure.errors import BadSetting
from perdure.lab.bench.baselines import BASELINES, clear_results, head_and_tail, keep_last, ranked
from perdure.lab.bench.fidelity import FidelityOptions, budget_of, ledger, run
from perdure.lab.bench.live_view import CompactionTarget, live_view, parts_of
from perdure.lab.bench.places import is_one_project
from perdure.lab.bench.report import (
    CompactionChain,
    FidelityReport,
    RowSums,
    as_markdown,
    as_plain,
    as_table,
    drawn_sessions,
    failures,
    gates_of,
    measure_axis,
)
from perdure.lab.bench.scores import KeptCount
from perdure.logs.detect import read_recordings
from perdure.transcript.messages import Message
from perdure.transcript.tokens import base_tokens

pytestmark = [pytest.mark.unit, pytest.mark.nightly]  # a benchmark of ours: nobody is harmed before the night


def talk(turns: int = 60) -> list[tuple[str, Any]]:
    """A session of about 40,000 tokens in which each turn names something said twenty turns before."""
    said: list[tuple[str, Any]] = [("user", "please tidy the parse_row family of functions")]
    for number in range(turns):
        old = f"helper_{number - 20}_fn" if number >= 20 else "parse_row"
        call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": f"grep -n {old} src"}}
        said.append(("assistant", [{"type": "text", "text": f"Now {old} in turn {number}."}, call]))
        body = f"def helper_{number}_fn(rows, budget):\n" + f"plain words of turn number {number} follow here\n" * 60
        said.append(("user", [{"type": "tool_result", "tool_use_id": f"c{number}", "content": body}]))
    return said


def edited_talk() -> list[tuple[str, Any]]:
    """A session that reads a file, does much else, and then edits it by heart."""
    lines = [f"    total_{n} = weigh_item(row[{n}], scale_{n})" for n in range(40)]
    read = {"type": "tool_use", "id": "read", "name": "Read", "input": {"file_path": "/repo/app/weights.py"}}
    shown = "\n".join(f"{n:>6}\t{line}" for n, line in enumerate(lines, 1))
    said: list[tuple[str, Any]] = [("user", "weigh the rows"), ("assistant", [read])]
    said.append(("user", [{"type": "tool_result", "tool_use_id": "read", "content": shown}]))
    said += talk(110)[1:]
    old = {"file_path": "/repo/app/weights.py", "old_string": lines[17], "new_string": "    pass"}
    place = len(said) * 9 // 10
    said[place:place] = [
        ("assistant", [{"type": "tool_use", "id": "edit", "name": "Edit", "input": old}]),
        ("user", [{"type": "tool_result", "tool_use_id": "edit", "content": "done"}]),
    ]
    return said


def everything(messages: Sequence[Message], budget: int, tail: int) -> str:
    return keep_last(messages, 10**9)


def nothing(messages: Sequence[Message], budget: int, tail: int) -> str:
    return ""


def options(**changes: Any) -> FidelityOptions:
    fixed: dict[str, Any] = {
        "least_tokens": 5_000,
        "draws": 50,
        "cpu_seconds": lambda: 0.0,
        "budgets": ("2k", "5k"),
    }
    return FidelityOptions(**{**fixed, **changes})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return log_of(talk(), tmp_path / "one.jsonl")


# --- baselines

CONVERSATION = [
    user("first words"),
    *(
        message
        for n in range(30)
        for message in (calls("Bash", command=f"run step_{n}"), shows(f"output_{n} " + "plain " * 200))
    ),
    user("what about output_7 in the plain"),
    says("last words"),
]


@pytest.mark.parametrize("name", sorted(BASELINES))
@pytest.mark.parametrize(("budget", "tail"), [(500, 0), (3_000, 0), (1_000, 1_000), (100_000, 0)])
def test_baselines_fill_their_budget_and_no_more(name: str, budget: int, tail: int) -> None:
    """QLT-1: all baselines at equal tokens."""
    assert 0 < base_tokens(BASELINES[name](CONVERSATION, budget, tail)) <= budget + tail + 1


def test_what_each_baseline_keeps() -> None:
    last = keep_last(CONVERSATION, 1_000, 0)
    assert "last words" in last and "first words" not in last and "output_29" in last
    both = head_and_tail(CONVERSATION, 1_000, 0)
    assert "last words" in both and "first words" in both and "output_15" not in both
    cleared = clear_results(CONVERSATION, 3_000, 0)
    assert "first words" in cleared and "step_3" in cleared and "output_3 " not in cleared and "output_29" in cleared
    goal = ranked(CONVERSATION, 500, 0)
    assert "output_7 " in goal and "output_8 " not in goal
    assert "output_29" in ranked(CONVERSATION, 500, 400)


# --- places


def test_cuts_and_boundaries(tmp_path: Path) -> None:
    said = talk()
    log = log_of([*said[:81], ("boundary", "what helper_25_fn is"), *said[81:]], tmp_path / "two.jsonl")
    report = run([log], options(budgets=("summary", "2k"), strategies={"none": nothing}))
    rows = {(row.where, row.budget, row.strategy): row for row in report.rows}
    assert set(rows) == {
        ("boundary", "summary", "real"),
        ("boundary", "summary", "none"),
        ("boundary", "2k", "none"),
        ("cut", "2k", "none"),
    }
    real = rows["boundary", "summary", "real"].axes["facts"]
    assert 0 < real.kept < real.of, "the summary names one of the helpers that come up again"
    assert rows["boundary", "summary", "none"].axes["facts"].kept == 0


def test_sessions_of_two_projects_and_unreadable_files_are_left_out(tmp_path: Path) -> None:
    two = log_of(talk(), tmp_path / "two.jsonl", cwds=("/repo/app", "/repo/other"))
    bad = tmp_path / "bad.jsonl"
    bad.write_text("not a log\n")
    report = run([two, bad, tmp_path / "missing.jsonl"], options())
    assert [Path(file).name for file, _ in report.skipped] == ["two.jsonl", "bad.jsonl", "missing.jsonl"]
    assert "more than one project" in report.skipped[0][1]
    assert not any("bad.jsonl" in why for _, why in report.skipped), "the file is named beside the reason, once"
    assert not report.rows


def test_folders_of_one_project_are_one_project() -> None:
    assert is_one_project(rb'{"cwd":"D:\\app\\src"} {"cwd":"D:\\app"} {"cwd":"D:\\app\\docs"}')
    assert not is_one_project(b'{"cwd":"/repo/app"} {"cwd":"/repo/app2"}')
    assert is_one_project(b"{}")


def test_a_view_that_breaks_its_budget_is_counted(log: Path) -> None:
    report = run([log], options(strategies={"all": everything, "keep-last": keep_last}))
    assert {row.strategy: row.over for row in report.rows if row.budget == "2k"} == {"all": 2, "keep-last": 0}
    assert "over budget" in as_table(report)


def test_lost_facts_say_where_they_were_seen_and_needed(log: Path) -> None:
    report = run([log], options(strategies={"ledger": nothing}, budgets=("5k",)))
    lost = next(one for one in report.lost if one.key == "helper_13_fn")
    assert lost.seen_line < lost.cut_line <= lost.needed_line
    assert lost.file == str(log)
    assert f"{log}:{lost.seen_line} last seen" in as_table(report, lost=1_000)


# --- chains


def test_a_chain_goes_through_checkpoints(log: Path) -> None:
    """QLT-3, CMP-13, CMP-14: boundaries in a row keep what one keeps; compacting the compacted view loses."""
    chains = run([log], options(strategies={"ledger": ledger}, chain_budgets=("3k",), lengths=(2, 3))).chains
    assert [(one.length, one.strategy, one.places) for one in chains] == [(2, "ledger", 1), (3, "ledger", 1)]
    three = chains[1]
    assert three.loss <= 1 and three.once["facts"] > 90
    assert three.naive["user"] < three.chained["user"] == 100
    assert "3 compactions in a row, budget 3k, ledger, 1 sessions" in as_table(FidelityReport(chains=chains))


def test_compactions_in_a_row_are_real(log: Path) -> None:
    """CMP-14: each commits a boundary, and the next begins behind it."""
    (recording,) = read_recordings(log.read_bytes(), log.name)
    messages = recording.messages
    once = live_view(messages, CompactionTarget(memory_tokens=3_000), "ledger")
    thrice = live_view(messages, CompactionTarget(memory_tokens=3_000), "ledger", times=3)
    assert once is not None and thrice is not None
    assert once.text.count("Record of earlier work") == thrice.text.count("Record of earlier work")
    assert "helper_1_fn" not in once.text or "helper_1_fn" in thrice.text
    assert sum(map(len, parts_of(messages, 3))) == len(messages)
    assert live_view(messages[:3], CompactionTarget(), "ledger") is None, "there is nothing to gain"
    assert live_view(messages, CompactionTarget(memory_tokens=3_000), "session_memory", times=500) is None


# --- the shape of the product


def test_the_default_shape_is_what_a_session_shows(tmp_path: Path) -> None:
    """QLT-1, QLT-2: memory, raw tail and files as `compact` leaves them, from notes and without; others as large."""
    log = log_of(edited_talk(), tmp_path / "one.jsonl")
    report = run([log], options(budgets=("default",), strategies={"ledger": ledger, "keep-last": keep_last}))
    rows = {row.strategy: row for row in report.rows if row.where == "cut"}
    assert set(rows) == {"ledger", "session_memory", "keep-last"}
    assert abs(rows["keep-last"].tokens - rows["ledger"].tokens) <= 2
    assert rows["ledger"].axes["anchor"].percent > rows["keep-last"].axes["anchor"].percent, "the file comes back"
    gates = "line@default=0,session_memory/facts@default=95,session_memory/chain@default=1"
    assert failures(report, gates_of(gates)) == [
        "line@default=0: nothing to measure",
        "session_memory/chain@default=1: nothing to measure",
    ]


# --- intervals


def test_bootstrap_intervals_are_by_session() -> None:
    pool = RowSums()
    for number in range(20):
        pool.add(f"s{number}", {"facts": KeptCount(number % 2 * 10, 10)})
    draws = drawn_sessions(sorted(pool.sessions), 400, seed=1)
    found = measure_axis(pool.sessions, "facts", draws)
    assert found is not None
    assert (found.percent, found.kept, found.of) == (50, 100, 200)
    assert 20 < found.low < 40 < 60 < found.high < 80
    assert draws == drawn_sessions(sorted(pool.sessions, reverse=True), 400, seed=1)
    assert draws != drawn_sessions(sorted(pool.sessions), 400, seed=2)
    assert measure_axis(pool.sessions, "line", draws) is None


# --- gates


def report_of(log: Path, **strategies: Any) -> FidelityReport:
    return run([log], options(strategies=strategies))


def test_gates(log: Path) -> None:
    """QLT-2."""
    report = report_of(log, **{"ledger": everything, "keep-last": keep_last})
    holding = "facts@2k=92, cut:far@5k=90, facts@2k=keep-last+8, user@5k=keep-last-0, cpu@2k=500"
    assert failures(report, gates_of(holding)) == []
    assert failures(report, gates_of("")) == []
    poor = report_of(log, **{"ledger": nothing, "keep-last": keep_last})
    said = failures(poor, gates_of("facts@2k=92,facts@2k=keep-last+8,failing@2k=1,facts@7k=1,boundary:facts@2k=1"))
    assert said[0] == "facts@2k=92: 0.0 is below 92.0"
    assert said[1].startswith("facts@2k=keep-last+8: 0.0 is below")
    assert [one.split(": ", 1)[1] for one in said[2:]] == ["nothing to measure"] * 3
    chain = CompactionChain("5k", "ledger", 3, 1, {"facts": 90.0}, {"facts": 80.0}, {})
    longer = CompactionChain("5k", "ledger", 5, 1, {"facts": 90.0}, {"facts": 89.0}, {})
    chained = FidelityReport(chains=(chain, longer))
    assert failures(chained, gates_of("chain@5k=1,chain5@5k=5")) == ["chain@5k=1: 10.0 is above 1.0"]


@pytest.mark.parametrize("text", ["facts=92", "beauty@10k=3", "facts@10k", "facts@10k=high"])
def test_gates_that_are_none(text: str) -> None:
    with pytest.raises(BadSetting, match="AXIS@BUDGET"):
        gates_of(text)


def test_budgets() -> None:
    assert [(b.tokens, b.tail_tokens) for b in map(budget_of, ("10k", "12k+10k", "summary+10k", "500"))] == [
        (10_000, 0),
        (12_000, 10_000),
        (None, 10_000),
        (500, 0),
    ]
    assert budget_of("default").is_default
    with pytest.raises(BadSetting, match="budget 'much'"):
        budget_of("much")


# --- the door


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["bench", "fidelity", *arguments])
    got = capsys.readouterr()
    return code, got.out, got.err


@pytest.mark.nightly
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_of(talk(120), tmp_path / "one.jsonl")
    basic = (str(tmp_path), "--budget", "10k", "--strategy", "keep-last", "--strategy", "ledger")
    code, out, _ = command(capsys, *basic)
    assert code == 0 and out.startswith("cuts, budget 10k:") and "keep-last" in out and "ranked" not in out
    code, out, _ = command(capsys, *basic, "--markdown")
    assert code == 0 and "| keep-last |" in out
    code, out, _ = command(capsys, *basic, "--json", "--gate", "facts@10k=0")
    assert code == 0 and json.loads(out)["gates"] == {"asked": ["facts@10k=0"], "failed": []}
    code, _, err = command(capsys, *basic, "--gate", "cpu@10k=0,line@10k=99")
    assert code == 1 and err.count("gate failed: ") == 2 and "line@10k=99" in err


def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("nothing")
    for arguments, code in [
        ((str(tmp_path / "none.jsonl"),), 3),
        ((str(bad),), 1),
        ((str(bad), "--gate", "facts"), 2),
        ((str(bad), "--budget", "much"), 2),
        ((str(bad), "--strategy", "luck"), 2),
        ((str(bad), "--at", "home"), 2),
    ]:
        got, _, err = command(capsys, *arguments)
        assert (got, err.count("\n")) == (code, 1), arguments
    empty = tmp_path / "empty"
    empty.mkdir()
    assert command(capsys, str(empty))[0] == 3


@pytest.mark.nightly
def test_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    """QLT-1: deterministic in any process."""
    log = str(log_of(talk(), tmp_path / "one.jsonl"))
    script = "import sys; from tests.unit.bench.test_fidelity import told; print(told(sys.argv[1]), end='')"
    here = told(log)
    assert under_another_seed(script, log) == here
    assert "keep-last" in here


def told(log: str) -> str:
    """A report on a log with all that can be asked for, but for the time it took."""
    found = run(
        [Path(log)],
        FidelityOptions(
            least_tokens=5_000,
            budgets=("2k", "3k+1k", "default"),
            chain_budgets=("3k",),
            lengths=(2,),
            cpu_seconds=lambda: 0.0,
        ),
    )
    return f"{json.dumps(as_plain(found))}\n{as_markdown(found, lost=50)}"


def test_a_report_is_plain_and_shown_in_every_form(log: Path) -> None:
    report = run([log], options())
    assert json.loads(json.dumps(as_plain(report)))["files"] == 1
    assert "### cuts, budget 2k" in as_markdown(report, lost=3)
    assert as_table(FidelityReport()).startswith("nothing to measure")
