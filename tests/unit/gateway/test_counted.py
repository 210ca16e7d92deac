"""What of a session's events is counted, and what a shorter request saved (OBS-1, OBS-2)."""

from __future__ import annotations

import pytest

from perdure.context.models import ModelSpec
from perdure.events import (
    CacheDropped,
    CompactionAttemptFailed,
    CompactionDone,
    Event,
    KeeperDeferred,
    KeeperDone,
    KeeperFailed,
    PrefixMoved,
    ResultOffloaded,
    ResultsCleared,
)
from perdure.gateway.metrics import Metrics, SessionSpending
from perdure.transcript.messages import Usage

pytestmark = pytest.mark.unit


FAILED = {"trigger": "auto", "strategy": "full"}


@pytest.mark.parametrize(
    ("event", "name", "labels", "by"),
    [
        (CompactionDone("auto", "ledger", 9, 4, 1, 2), "compactions", {"trigger": "auto", "strategy": "ledger"}, 1),
        (
            CompactionAttemptFailed("auto", "full", ""),
            "failed_compactions",
            {"trigger": "auto", "strategy": "full"},
            1,
        ),
        (CacheDropped("m", 9, 0), "cache_drops", {}, 1),
        (KeeperDone("notes", 0.1, 1), "background", {"keeper": "notes", "outcome": "done"}, 1),
        (KeeperFailed("notes", "x", 0.1), "background", {"keeper": "notes", "outcome": "failed"}, 1),
        (KeeperDeferred("notes"), "background", {"keeper": "notes", "outcome": "deferred"}, 1),
        (ResultOffloaded("t", 9, 1), "edits", {"kind": "offloaded"}, 1),
        (ResultsCleared("old", ("a", "b"), 9, 0), "edits", {"kind": "cleared"}, 2),
        (PrefixMoved("compacted", 1, 2, None), "prefix_moves", {"reason": "compacted"}, 1),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str | int | dict) else "",
)
def test_an_event_is_counted(event: Event, name: str, labels: dict[str, str], by: int) -> None:
    """OBS-2: under what it is about, and nowhere else."""
    metrics = Metrics()

    def counts() -> dict[tuple[str, str], float]:
        samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
        return {(one.name, str(one.labels)): one.value for one in samples if not one.name.endswith("_created")}

    before = counts()
    metrics.emit(event)
    changed = {key: value - before.get(key, 0) for key, value in counts().items() if value != before.get(key, 0)}
    assert changed == {(f"perdure_{name}_total", str(labels)): by}


def test_an_answer_says_what_it_cost_and_what_it_would_have() -> None:
    """OBS-2: a shorter request costs less than the whole history read from the cache; no price, no dollars."""
    spending = SessionSpending()
    model = ModelSpec(prefix="m", input_usd=3.0, output_usd=15.0)
    usage = Usage(input_tokens=1_000, output_tokens=100)
    assert spending.answered(usage, 0, model, 0.0, "5m") == pytest.approx((0.0045, 0.0045))
    prices = spending.answered(usage, 100_000, model, 10.0, "5m")
    assert prices is not None and prices[0] == pytest.approx(0.0045) and prices[1] > 0.3
    assert spending.paid_usd == pytest.approx(0.009) and spending.saved_usd == pytest.approx(prices[1] - prices[0])
    assert SessionSpending().answered(usage, 0, ModelSpec(prefix="m"), 0.0, "5m") is None
