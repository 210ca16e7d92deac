"""OBS-2: dashboards and alarms under deploy/ ask for what the gateway exports, and each alarm has a line what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Histogram
from tests.promql import BadExpression, Gives, PromExpression, SeriesOf

from perdure.gateway.metrics import Metrics

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
RULES = ROOT / "deploy" / "prometheus" / "perdure.rules.yaml"
OPERATE = ROOT / "docs" / "use" / "operate.md"
VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$job": ".*", "$instance": ".*"}

# Exported, and on no dashboard: with the reason why.
LEFT_OUT: dict[str, str] = {}


@cache
def exported() -> dict[str, SeriesOf]:
    """The series that `/metrics` has, and `up`, which Prometheus makes itself."""
    found = {"up": SeriesOf("gauge")}
    for metric in vars(Metrics()).values():
        labels = frozenset(getattr(metric, "_labelnames", ()))
        if isinstance(metric, Histogram):
            name = next(iter(metric.collect())).name
            bounds = {s.labels["le"] for s in next(iter(metric.collect())).samples if "le" in s.labels}
            found[f"{name}_bucket"] = SeriesOf("bucket", labels | {"le"}, frozenset(bounds))
            found |= {f"{name}_{part}": SeriesOf("counter", labels) for part in ("count", "sum")}
        elif hasattr(metric, "collect") and hasattr(metric, "_labelnames"):
            is_counter = isinstance(metric, Counter)
            name = next(iter(metric.collect())).name
            found[f"{name}_total" if is_counter else name] = SeriesOf("counter" if is_counter else "gauge", labels)
    return found


@cache
def literals() -> set[str]:
    """The strings in the sources of what is counted."""
    folders = ("gateway", "engine", "compaction", "wiring")
    sources = [path.read_text() for name in folders for path in (ROOT / "src/perdure" / name).rglob("*.py")]
    return {found for text in sources for found in re.findall(r'"([\w.]+)"', text)} | {f"{n}xx" for n in range(1, 6)}


def checked(expression: str) -> tuple[Gives, set[str]]:
    """What an expression gives, and the metrics in it; each value that it asks a label for is one that is given."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    read = PromExpression(expression, exported())
    gives = read.read()
    unknown = {value for _, value in read.values if value not in literals()}
    assert unknown == set(), f"nothing gives a label this value: {expression}"
    return gives, read.names


def panels(path: Path) -> Iterator[dict[str, Any]]:
    for panel in json.loads(path.read_text())["panels"]:
        if panel["type"] != "row":
            yield panel


def alarms() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_what_is_exported(path: Path) -> None:
    """OBS-2: its expressions are right and keep to the gateways that were chosen; its legends name labels they have."""
    board = json.loads(path.read_text())
    assert board["uid"] == path.stem and board["title"] and board["description"]
    variables = {one["name"] for one in board["templating"]["list"]}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(path):
        assert panel["description"].endswith(".") and panel["datasource"]["uid"] == "${datasource}", panel["title"]
        for target in panel["targets"]:
            gives, _ = checked(target["expr"])
            assert gives.type == "vector" and gives.kind == "gauge", f"a bare counter: {target['expr']}"
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) == gives.labels, target["expr"]
            used = set(re.findall(r"\$(?!__)(\w+)", target["expr"]))
            assert used == {"job", "instance"} <= variables, target["expr"]
            assert len(re.findall(r"perdure_", target["expr"])) == target["expr"].count('{job=~"$job",instance=~"$inst')
        where = panel["gridPos"]
        assert where["x"] + where["w"] <= 24


def test_panels_stand_beside_each_other() -> None:
    """OBS-2: no panel covers another one."""
    for path in DASHBOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(path.read_text())["panels"]:
            at = panel["gridPos"]
            mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not taken & mine, panel["title"]
            taken |= mine


def test_every_metric_is_on_a_dashboard() -> None:
    """OBS-2: or left out for a reason; so a new one is shown to somebody."""
    shown = {name for path in DASHBOARDS for p in panels(path) for t in p["targets"] for name in checked(t["expr"])[1]}
    histograms = {name.removesuffix("_bucket") for name in exported() if name.endswith("_bucket")}
    names = {name for name in exported() if name != "up" and name.rpartition("_")[0] not in histograms}
    names |= {f"{name}_bucket" for name in histograms}
    missing = names - shown - LEFT_OUT.keys()
    assert missing == set(), f"put these on a dashboard in deploy/grafana, or into LEFT_OUT with a reason: {missing}"
    assert not LEFT_OUT.keys() & shown and LEFT_OUT.keys() <= names


def test_alarms_ask_for_what_is_exported() -> None:
    """OBS-2: each compares something, says what is wrong by labels that it has, and how urgent it is."""
    names = [rule["alert"] for rule in alarms()]
    assert len(set(names)) == len(names) > 10
    for rule in alarms():
        gives, used = checked(rule["expr"])
        assert gives.type == "vector" and used and re.search(r"[<>]|==", rule["expr"]), rule["alert"]
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= gives.labels, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_what_the_alarms_are_for_is_covered() -> None:
    """OBS-2: spent budgets, answers that aren't recorded, stopped compaction, quotas."""
    watched = {name for rule in alarms() for name in checked(rule["expr"])[1]}
    assert watched >= {
        "perdure_answers_total",
        "perdure_overhead_seconds_bucket",
        "perdure_unrecorded_total",
        "perdure_store_ready",
        "perdure_stopped_sessions",
        "perdure_refused_total",
        "perdure_background_total",
        "perdure_work_dead",
        "perdure_work_waiting_seconds",
    }


def test_each_alarm_has_a_line_what_to_do() -> None:
    """OBS-2: in the page for operators, and no line stays of an alarm that has gone."""
    text = OPERATE.read_text()
    lines = dict(re.findall(r"^\| `(Perdure\w+)` \| (.+) \|$", text, re.M))
    assert lines.keys() == {rule["alert"] for rule in alarms()}
    assert all(len(line) > 60 for line in lines.values())


@pytest.mark.parametrize(
    "expression",
    [
        "perdure_nothing_total",
        "rate(perdure_in_flight[5m])",
        "rate(perdure_answers_total)",
        "rate(perdure_answers_total[5m]",
        'sum(rate(perdure_answers_total{state="5xx"}[5m]))',
        "sum by (route) (rate(perdure_answers_total[5m]))",
        "sum by (status) (rate(perdure_answers_total[5m])) / sum(rate(perdure_requests_total[5m]))",
        "perdure_answers_total / 2",
        "histogram_quantile(0.5, sum(rate(perdure_overhead_seconds_bucket[5m])))",
        'rate(perdure_overhead_seconds_bucket{le="0.06"}[5m])',
        "deriv(perdure_in_flight[5m])",
        "perdure_in_flight and 1",
        "perdure_in_flight perdure_in_flight",
        "sum(1)",
        "perdure_in_flight @",
        "",
    ],
)
def test_the_reader_refuses_what_can_give_nothing(expression: str) -> None:
    """OBS-2: else the tests above would prove nothing."""
    with pytest.raises(BadExpression):
        checked(expression)
