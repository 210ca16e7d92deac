"""`holdfast bench retrieval`: how well and how fast memories, turns and sessions are found (QLT-4, SPD-4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.door import EXIT_OK, note, out, out_json
from holdfast.cli.tables import plural, table
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from holdfast.bench.questions import Corpus
    from holdfast.bench.retrieval import Row

_NAMES = {
    "recall_5": "recall@5",
    "recall_10": "recall@10",
    "ndcg_5": "ndcg@5",
    "ndcg_10": "ndcg@10",
    "hit_5": "hit@5",
}


def retrieval_command(
    file: Path | None, *, rankers: Sequence[str], is_timing: bool, sizes: Sequence[int], is_json: bool
) -> int:
    """Measure and print. Without a file, only what questions cost by the number of memories."""
    from holdfast.bench import questions, retrieval, retrieval_timing

    if file is None and not is_timing:
        raise BadSetting("bench retrieval: name a file of questions (docs/retrieval.md), or --timing, or both")
    found: dict[str, object] = {}
    if file is not None:
        corpus = questions.read(file)
        rows = retrieval.run(corpus, rankers)
        found |= {
            "kind": corpus.kind,
            "items": len(corpus.items),
            "questions": len(corpus.questions),
            "rankers": {row.ranker: _row(row) for row in rows},
        }
        if not is_json:
            _show(corpus, rows)
    if is_timing:
        if not is_json:
            note("making up memories; the largest size takes a while")
        timings = retrieval_timing.timed(sizes or retrieval_timing.SIZES)
        found["timing"] = [asdict(one) for one in timings]
        if not is_json:
            head = ("memories", "p50 ms", "p99 ms", "seconds to index")
            table(head, [(t.memories, t.p50_ms, t.p99_ms, t.build_seconds) for t in timings])
    if is_json:
        out_json(found)
    return EXIT_OK


def _row(row: Row) -> dict[str, float]:
    data = {name: value for name, value in asdict(row).items() if name != "ranker"}
    return {_NAMES.get(name, name): round(value, 4) for name, value in data.items()}


def _show(corpus: Corpus, rows: Sequence[Row]) -> None:
    out(
        f"{plural(len(corpus.questions), 'question')} over {plural(len(corpus.items), 'item')} ({corpus.kind}); "
        "percent, and milliseconds a question"
    )
    head = ("ranker", "recall@5", "recall@10", "nDCG@5", "nDCG@10", "hit@5", "MRR", "p50 ms", "p99 ms")
    names = ("recall_5", "recall_10", "ndcg_5", "ndcg_10", "hit_5", "mrr")
    shares = [[round(100 * getattr(row, name), 1) for name in names] for row in rows]
    table(head, [(row.ranker, *some, row.p50_ms, row.p99_ms) for row, some in zip(rows, shares, strict=True)])
