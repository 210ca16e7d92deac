"""A model that reads the views: what honest, boasting, silent and forearmed ones score (QLT-5)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.unit.bench.talk import log_of
from tests.unit.bench.test_fidelity import options, talk

from perdure.cli import main
from perdure.context.replies import Delta, ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.errors import BadRequest
from perdure.lab.bench.baselines import keep_last
from perdure.lab.bench.fidelity import run
from perdure.lab.bench.judge import (
    BLANK,
    UNKNOWN,
    ClozeQuestion,
    Judge,
    Judged,
    is_unknown,
    judge,
    names_it,
    sample_questions,
    without_lines_naming,
)
from perdure.lab.bench.probe import FactName
from perdure.lab.bench.report import as_markdown, as_table
from perdure.testing import FakeServer, FakeUpstream
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import ResponseId

pytestmark = pytest.mark.unit

LINES = [f"we gave the {word} branch to parse_{word}_rows in the end" for word in ("left", "right", "upper", "lower")]
VIEW = "\n".join((*LINES, "and nothing else was said of rows or branches"))


class Reader:
    """`ports.Model` that answers each prompt by a function of it."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer, self.prompts, self.is_closed = answer, list[str](), False

    @property
    def about(self) -> ModelInfo:
        return ModelInfo(id="reader", protocol="anthropic", window_tokens=200_000)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        body = json.loads(request.body)
        self.prompts.append("".join(block["text"] for message in body["messages"] for block in message["content"]))
        blocks = (text_block(self.answer(self.prompts[-1])),)
        yield Reply(response=ResponseId(f"r{len(self.prompts)}"), model="reader", blocks=blocks, stop_reason="end_turn")

    async def count(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        self.is_closed = True


def honest(prompt: str) -> str:
    """Looks the line up in the record, and says so when it isn't there."""
    record = " ".join(prompt.split("<record>")[1].split("</record>", maxsplit=1)[0].split())
    line = prompt.split("The line: ")[1].split("\n", maxsplit=1)[0]
    found = re.search(re.escape(line).replace(re.escape(BLANK), r"(\S+)"), record)
    return found[1] if found else UNKNOWN


def forearmed(prompt: str) -> str:
    """Knows the names from elsewhere, whatever the record says."""
    word = re.search(r"gave the (\w+) branch", prompt.split("The line: ")[1])
    return f"parse_{word[1]}_rows" if word else UNKNOWN


def questions(view: str = VIEW) -> list[ClozeQuestion]:
    return [
        ClozeQuestion("s", line.replace(f"parse_{word}_rows", BLANK), FactName("name", f"parse_{word}_rows"), view)
        for word, line in zip(("left", "right", "upper", "lower"), LINES, strict=True)
    ]


def telling(turns: int) -> list[tuple[str, Any]]:
    """A session whose names stand in sentences."""
    bare = re.compile(r"def (helper_(\d+)_fn)\(rows, budget\):")
    said = r"in step number \2 the old code calls \1 before it sorts any rows"
    return json.loads(bare.sub(said, json.dumps(talk(turns))))


def judged(answer: Callable[[str], str], asked: list[ClozeQuestion] | None = None) -> Judged:
    return anyio.run(judge, Reader(answer), asked or questions(), ("10k", "ledger"))


def test_an_honest_reader() -> None:
    """QLT-5: every answer is right, and nothing is claimed where the view says nothing."""
    found = judged(honest)
    assert (found.correct, found.false_positive, found.right_without_view) == (100, 0, 0)
    assert (found.held, found.agreeing, found.answers, found.failed) == (100, 100, 4 * 3 * 2, 0)
    half = judged(honest, questions("\n".join(LINES[:2])))
    assert (half.correct, half.unknown, half.wrong, half.held, half.false_positive) == (50, 50, 0, 50, 0)


def test_a_reader_that_always_claims() -> None:
    """QLT-5: it is never right, and the rate beside the score says what it does."""
    for claim in ("Yes.", "Yes, it is in the record.", "parse_any_rows"):
        found = judged(lambda _, claim=claim: claim)
        assert (found.correct, found.wrong, found.false_positive, found.right_without_view) == (0, 100, 100, 0)


def test_a_reader_that_never_knows() -> None:
    """QLT-5."""
    found = judged(lambda _: f"{UNKNOWN}.")
    assert (found.correct, found.unknown, found.false_positive) == (0, 100, 0)


def test_a_reader_that_knew_it_before() -> None:
    """QLT-5: a full score that isn't the view's; only the control shows it."""
    found = judged(forearmed)
    assert (found.correct, found.false_positive, found.right_without_view) == (100, 100, 100)


def test_one_question_a_prompt_three_times() -> None:
    """QLT-5: prompts hold the view and one line; replicates that disagree are counted."""
    answers = iter(["parse_left_rows", UNKNOWN, "parse_left_rows", UNKNOWN, UNKNOWN, UNKNOWN])
    reader = Reader(lambda _: next(answers))
    found = anyio.run(judge, reader, questions()[:1], ("10k", "ledger"))
    assert len(reader.prompts) == 6 and all(prompt.count("The line: ") == 1 for prompt in reader.prompts)
    assert VIEW in reader.prompts[0] and "parse_left_rows" not in reader.prompts[3]
    assert (round(found.correct), found.agreeing, found.replicates) == (67, 0, 3)


def test_calls_that_fail_are_no_answers() -> None:
    class Broken(Reader):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
            raise BadRequest("no such model")
            yield

    found = anyio.run(judge, Broken(honest), questions()[:1], ("10k", "ledger"))
    assert (found.failed, found.answers, found.correct) == (6, 0, 0)


def test_what_counts_as_an_answer() -> None:
    name = FactName("path", "src/rows.py")
    assert names_it("`app/src/rows.py`", name) and names_it("It was src/rows.py.", name)
    assert not names_it("rows.py", name) and not names_it("src/rows.py, src/cols.py or src/cells.py", name)
    assert is_unknown("unknown.") and is_unknown("UNKNOWN: the record says nothing") and not is_unknown("src/rows.py")
    assert "parse_left_rows" not in without_lines_naming(VIEW, FactName("name", "parse_left_rows"))
    assert without_lines_naming(VIEW, FactName("name", "parse_left_rows")).count("\n") == VIEW.count("\n") - 1


def test_questions_are_drawn_from_all_sessions() -> None:
    many = [ClozeQuestion(f"s{n % 3}", str(n), FactName("name", str(n)), "") for n in range(60)]
    some = sample_questions(many, 6, seed=1)
    assert {one.session for one in some} == {"s0", "s1", "s2"} and some == sample_questions(many, 6, seed=1)
    assert some != sample_questions(many, 6, seed=2) and len(sample_questions(many, 100, seed=1)) == 60


def test_the_bench_asks_of_its_views(tmp_path: Path) -> None:
    """QLT-5: the questions are of needed facts, the views those that the probe scored."""
    log = log_of(telling(60), tmp_path / "one.jsonl")
    reader = Reader(honest)
    asked = Judge(lambda: reader, questions=4)
    report = run([log], options(budgets=("5k",), strategies={"ledger": keep_last}, judge=asked))
    (found,) = report.judged
    assert (found.model, found.budget, found.strategy, found.questions) == ("reader", "5k", "ledger", 4)
    assert found.answers == len(reader.prompts) == 24 and reader.is_closed
    assert found.correct <= found.held and found.false_positive == 0
    same = json.loads(re.sub(r"in step number \d+", "in a step", json.dumps(telling(60))))
    none = run([log_of(same, tmp_path / "two.jsonl")], options(budgets=("5k",), judge=asked))
    assert none.judged == (), "a line that fits many names asks for nothing"
    assert "false pos" in as_table(report) and "read by reader" in as_markdown(report)


@pytest.mark.e2e
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """QLT-5: `--judge MODEL`, by the names of docs/use/models.md; without budgets it reads the product's own view."""
    log = str(log_of(telling(80), tmp_path / "one.jsonl"))

    async def served() -> None:
        async with FakeServer(FakeUpstream(script=[UNKNOWN] * 200)) as server:
            name = f"vllm:reader@{server.url}/v1"
            command = ["bench", "fidelity", log, "--json", "--strategy", "ledger", "--judge", name, "--questions", "1"]
            assert await anyio.to_thread.run_sync(main, command) == 0

    anyio.run(served)
    told = json.loads(capsys.readouterr().out)["judged"]
    assert {one["budget"] for one in told} == {"default"}
    assert all((one["unknown"], one["false_positive"], one["failed"]) == (100, 0, 0) for one in told)
    assert main(["bench", "fidelity", log, "--judge", "nobody:x"]) == 2
    assert main(["bench", "fidelity", log, "--judge", "offline"]) == 2
    assert "a judge has to be a model" in capsys.readouterr().err
