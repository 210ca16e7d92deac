"""QLT-6: PrecisionMemBench by its own runner: recognised, copied, run with nothing but the path.

What it asks is answered by what a session of the library shows.
"""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.bench_service import benched_memories
from perdure.errors import BadSetting, ForeignFormat
from perdure.lab.bench.precision import PrecisionFolder
from perdure.lab.bench.public import look_through

pytestmark = pytest.mark.unit


def summary(passed: int, of: int, **more: Any) -> dict[str, Any]:
    return {
        "provider": "any",
        "retrieval": {
            "totalPassed": passed,
            "totalCases": of,
            "meanPrecision": 0.5,
            "meanRecall": None,
            "p50LatencyMs": 2.5,
            "activeRetrievalPasses": 1,
        },
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the benchmark's form, with a report of somebody else's in it."""
    folder = tmp_path / "bench"
    beliefs = [{"_id": "b-old", "superseded_by": "b-new"}, {"_id": "b-new", "superseded_by": None}]
    for name, text in {
        "fixtures/beliefs.seed.json": json.dumps(beliefs),
        "fixtures/retrieval.cases.json": "[]",
        "src/retrieval.external.eval.test.ts": "",
        "package.json": "{}",
        "tsconfig.json": "{}",
        "providers.config.json": '{"mem0": {}}',
        "test-results/baseline/retrieval-report-mem0.json": json.dumps(summary(9, 77)),
        "test-results/baseline/session-retrieval-report-mem0.json": json.dumps(summary(0, 12)),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def runner(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `node` on the path, and a runner that it is given."""
    (folder / "node_modules" / ".bin").mkdir(parents=True)
    (folder / "node_modules" / ".bin" / "ava").touch()
    node = folder.parent / "bin" / "node"
    node.parent.mkdir()
    node.write_text(f"#!/bin/sh\n{script}\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", f"{node.parent}{os.pathsep}{os.defpath}")


def test_its_folder_is_recognised_with_the_reports_in_it(folder: Path) -> None:
    (found,) = look_through(folder.parent).precision
    assert found.path == folder and len(found.files) == 6  # what decides; no reports, no packages
    (row,) = found.baselines()
    assert (row.system, row.passed, row.cases, row.turns_passed, row.turns) == ("mem0", 9, 77, 0, 12)
    assert (row.precision, row.recall) == (0.5, None)
    before = found.digest
    (folder / "fixtures" / "retrieval.cases.json").write_text("[1]")
    assert found.digest != before


def test_it_runs_in_a_copy_with_nothing_but_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """QLT-6, SEC-9: our entry is in the copy alone, and no key of the environment gets there."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    cases = [{"caseId": "one", "passed": False, "failures": ["missing"]}, {"caseId": "two", "passed": True}]
    written = json.dumps(summary(60, 77, cases=cases))
    turns = json.dumps(summary(11, 12, cases=[{"caseId": "s", "turnIndex": 3, "passed": False, "failures": []}]))
    script = f"""
        test -z "$ANTHROPIC_API_KEY" && grep -q http://127.0.0.1:1 providers.config.json || exit 1
        echo "$2" >> {folder.parent}/runs
        mkdir -p test-results
        case "$2" in
          *session*) echo '{turns}' > test-results/session-retrieval-report-perdure.json;;
          *) echo '{written}' > test-results/retrieval-report-perdure.json; exit 1;;
        esac"""
    runner(folder, script, monkeypatch)
    row = PrecisionFolder(folder).run("http://127.0.0.1:1", "ours")
    assert (row.system, row.passed, row.turns_passed, row.failed) == ("ours", 60, 11, ("one: missing", "s turn 3: "))
    runs = (folder.parent / "runs").read_text().split()
    assert runs == [f"src/{one}.external.eval.test.ts" for one in ("retrieval", "session-retrieval")]
    assert json.loads((folder / "providers.config.json").read_text()) == {"mem0": {}}
    assert not (folder / "test-results" / "retrieval-report-perdure.json").exists()


def test_what_is_missing_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = PrecisionFolder(folder)
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(BadSetting, match=r"needs Node\.js"):
        here.run("http://127.0.0.1:1", "ours")
    runner(folder, "echo it broke; exit 3", monkeypatch)
    with pytest.raises(BadSetting, match=r"made no report .*it broke"):
        here.run("http://127.0.0.1:1", "ours")
    (folder / "node_modules" / ".bin" / "ava").unlink()
    with pytest.raises(BadSetting, match="npm ci"):
        here.run("http://127.0.0.1:1", "ours")
    (folder / "fixtures" / "beliefs.seed.json").write_text("{")
    with pytest.raises(ForeignFormat, match=r"beliefs\.seed\.json: "):
        here.beliefs()
    (folder / "test-results" / "baseline" / "retrieval-report-mem0.json").write_text("{}")
    with pytest.raises(ForeignFormat, match=r"retrieval-report-mem0\.json: "):
        here.baselines()


def asked(url: str, path: str, body: Any = None, method: str = "POST") -> Any:
    data = json.dumps(body or {}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}{path}", data, method=method), timeout=30) as answer:
        return json.loads(answer.read())


def belief(name: str, text: str, aliases: list[str], scope: str = "code") -> dict[str, Any]:
    said = " ".join((name, *aliases, text))
    return {"text": said, "user_id": "u", "aliases": aliases, "metadata": {"beliefId": f"b-{name}", "scope": scope}}


def test_the_service_answers_with_what_a_session_shows() -> None:
    """MEM-4, MEM-14: by user and scope; a changed one by its new names; none after a reset."""

    def found(query: str, *, user: str = "u", scope: str = "code") -> list[str]:
        sent = {"query": query, "user_id": user, "scope": scope, "limit": 5}
        return [one["id"] for one in asked(url, "/search", sent)["results"]]

    with benched_memories({}) as url:
        asked(url, "/reset", method="DELETE")
        asked(url, "/add", belief("cluster", "Services run on EKS.", ["k8s"]))
        asked(url, "/add", belief("redis_character", "A pianist.", ["Redis"], "novel"))
        assert found("what is our k8s story?") == ["b-cluster"]
        assert found("what is our k8s story?", user="other") == found("what is our k8s story?", scope="novel") == []
        assert found("is it the gizmo?") == []
        more = {**belief("cluster", "Services run on EKS.", ["k8s", "gizmo"]), "beliefId": "b-cluster"}
        asked(url, "/update", {key: value for key, value in more.items() if key != "aliases"}, "PUT")
        assert found("is it the gizmo?") == ["b-cluster"]
        asked(url, "/reset", method="DELETE")
        assert found("what is our k8s story?") == []


def test_told_all_the_service_leaves_out_what_holds_no_more_or_is_always_shown() -> None:
    """MEM-14: by the fields of our own memories; the order in which they come doesn't matter."""
    known = {
        "b-lint_old": {"content": "Lints with TSLint.", "why_it_matters": "", "superseded_by": "b-lint_new"},
        "b-lint_new": {"content": "Lints with Biome.", "why_it_matters": "One tool."},
        "b-voice": {"content": "Writes in the present tense.", "why_it_matters": "", "pinned": True},
        "b-host": {"content": "Hosting on bare metal or not?", "why_it_matters": "", "resolved_at": "2026-01-01"},
    }
    with benched_memories(known) as url:
        for name in ("lint_old", "lint_new", "voice", "host"):
            asked(url, "/add", belief(name, "", [name.replace("_", " ")]))
        sent = {"user_id": "u", "scope": "code"}
        ids = [one["id"] for one in asked(url, "/search", {**sent, "query": "is TSLint set up?"})["results"]]
        assert ids == ["b-lint_new"]
        for query in ("which voice?", "hosting on bare metal?"):
            assert asked(url, "/search", {**sent, "query": query})["results"] == []
