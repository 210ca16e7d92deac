"""PRS-1 to PRS-4, PRS-7: where pressure rises, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.models import UNKNOWN
from perdure.context.policy import (
    HELPER_SOURCES,
    Facts,
    Pressure,
    Thresholds,
    compaction_need,
    least_window,
    low_line,
    percent_left,
    pressure_at,
    thresholds,
)
from perdure.context.view import ContextView, project
from perdure.settings import LEAST_WINDOW_TOKENS, Settings
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.records import CompactionFailed

pytestmark = pytest.mark.laws

MODEL = replace(UNKNOWN, max_output_tokens=64_000)


def limits(window: int = 200_000, **settings: object) -> Thresholds:
    return thresholds(Settings(**settings), MODEL, window, "model")  # type: ignore[arg-type]


def test_the_published_thresholds_of_200k() -> None:
    """PRS-1: usable 180,000, trigger 167,000, warning 147,000, error 157,000, block 177,000."""
    known = limits()
    assert (known.reserve, known.usable, known.trigger, known.block) == (20_000, 180_000, 167_000, 177_000)
    assert (known.warning, known.error, known.full) == (147_000, 157_000, 167_000)


def test_with_auto_compaction_off() -> None:
    """PRS-1, PRS-7: L is usable for warnings (160,000), and block for what is left."""
    off = limits(auto_compact=False)
    assert (off.warning, off.error, off.full, off.auto) == (160_000, 170_000, 177_000, False)


def test_the_older_era_is_reproduced_by_a_setting() -> None:
    """PRS-1: a reserve of 32,000 triggers at 155,000, as logs before 2.1.25 show."""
    assert limits(reserve_cap_tokens=32_000).trigger == 155_000


@pytest.mark.parametrize(
    ("window", "usable", "trigger", "block", "warning"),
    [
        (1_000_000, 980_000, 967_000, 977_000, 947_000),
        (400_000, 380_000, 367_000, 377_000, 347_000),
        (64_000, 48_000, 43_200, 47_040, 36_720),
        (16_000, 12_000, 10_800, 11_760, 9_180),
        (8_000, 6_000, 5_400, 5_880, 4_590),
    ],
)
def test_windows_large_and_small(window: int, usable: int, trigger: int, block: int, warning: int) -> None:
    """PRS-2: small windows cap each offset as a share; large ones use the same offsets."""
    known = limits(window)
    assert (known.usable, known.trigger, known.block, known.warning) == (usable, trigger, block, warning)


@pytest.mark.parametrize(
    ("settings", "trigger"),
    [
        ({"auto_compact_percent": 50}, 90_000),
        ({"auto_compact_percent": 100}, 167_000),  # never above the trigger
        ({"auto_compact_percent": 0}, 167_000),
        ({"auto_compact_percent": 101}, 167_000),
        ({"auto_compact_percent": -5}, 167_000),
        ({"auto_compact_percent": 33}, 59_400),
        ({"auto_compact_window": 100_000}, 100_000 - 20_000 - 8_000),
        ({"auto_compact_window": 500_000}, 167_000),  # lowers, never raises
        ({"max_output_tokens": 8_000}, 179_000),
    ],
)
def test_settings_move_the_trigger(settings: dict[str, object], trigger: int) -> None:
    """PRS-3: min(floor(usable * pct / 100), trigger); other values are ignored."""
    assert limits(**settings).trigger == trigger
    if "max_output_tokens" not in settings:
        assert limits(**settings).block == 177_000, "the window for blocking stays the real one"


def test_levels_in_order() -> None:
    """PRS-1, PRS-4: with auto-compaction off there is no compact level."""
    on, off = limits(), limits(auto_compact=False)
    sizes = (0, 146_999, 147_000, 156_999, 157_000, 166_999, 167_000, 176_999, 177_000)
    assert [pressure_at(size, on).value for size in sizes] == [
        "ok", "ok", "warning", "warning", "error", "error", "compact", "compact", "blocked",
    ]  # fmt: skip
    assert (pressure_at(160_000, off), pressure_at(170_000, off)) == (Pressure.WARNING, Pressure.ERROR)
    assert pressure_at(160_000, limits(error_offset_tokens=5_000)) is Pressure.WARNING


@pytest.mark.parametrize("off", [{"compact": False}, {"auto_compact": False}])
def test_switched_off_it_never_starts(off: dict[str, object]) -> None:
    """PRS-4: either switch stops automatic compaction; pressure still shows."""
    settings = Settings(**off)  # type: ignore[arg-type]
    facts = Facts(settings=settings, limits=thresholds(settings, MODEL, 8_000, "model"))
    assert compaction_need(full_view(), facts) is None
    assert pressure_at(facts.size(full_view()), facts.limits) is Pressure.BLOCKED


def full_view() -> ContextView:
    message = Message(id=MessageId("m"), role="user", content=content_of([text_block("x" * 40_000)]), origin="user")
    return project([message])


def test_who_asks_and_what_failed_decide() -> None:
    """PRS-5: helpers never compact themselves; three failures open the breaker."""
    settings = Settings()
    facts = Facts(settings=settings, limits=thresholds(settings, MODEL, 8_000, "model"))
    view = full_view()
    assert compaction_need(view, facts) is not None
    for source in HELPER_SOURCES:
        assert compaction_need(view, replace(facts, source=source)) is None
    failure = CompactionFailed(trigger="auto", reason="too_little")
    assert compaction_need(project([failure] * 2, onto=view), facts) is not None
    assert compaction_need(project([failure] * 3, onto=view), facts) is None


def test_what_is_left_is_said() -> None:
    """PRS-1, PRS-7: percent of L, and a line at warning, another one where it is urgent."""
    known = limits()
    assert percent_left(0, known) == 100.0
    assert percent_left(200_000, known) == 0.0
    assert low_line(146_999, known) is None
    assert low_line(150_300, known) == "Context low (10% left): run /compact to compact and continue"
    assert low_line(160_000, known) == "Context almost full (4% left): run /compact to compact and continue"
    assert "/clear" in (low_line(160_000, limits(compact=False)) or "")
    assert "/compact" in (low_line(160_000, limits(auto_compact=False)) or ""), "it is still there, by hand"
    assert "run `perdure compact x` to" in (low_line(160_000, known, compact="`perdure compact x`") or "")
    assert low_line(160_000, limits(compact=False), trim="wait") == "Context low (9% left): compaction is off; wait"


@given(st.integers(0, 300_000))
def test_the_least_window_has_room_for_what_stays(fixed: int) -> None:
    """PRS-2, PRS-3: auto-compaction that counts with it leaves as much for what is said; with less it wouldn't."""
    least = least_window(Settings(), MODEL, fixed)

    def trigger(window: int) -> int:
        return thresholds(Settings(auto_compact_window=window), MODEL, 3_000_000, "model").trigger

    assert least >= LEAST_WINDOW_TOKENS and trigger(least) >= 2 * fixed
    assert least == LEAST_WINDOW_TOKENS or trigger(least - 1_000) < 2 * fixed


@given(st.integers(2_000, 3_000_000), st.integers(1, 200_000))
def test_thresholds_are_ordered_in_any_window(window: int, output: int) -> None:
    """PRS-1, PRS-2: 0 < warning < error <= trigger < block < usable < window; budgets never grow past their size."""
    known = thresholds(Settings(), replace(UNKNOWN, max_output_tokens=output), window, "model")
    assert 0 < known.warning < known.error <= known.trigger < known.block <= known.usable < window
    assert 0 < known.scale <= 1
    assert known.scaled(10_000) <= 10_000
