"""Drawings as SVG that stretches with the page: shapes only, since text would stretch with them."""

from __future__ import annotations

from collections.abc import Sequence

WIDE, HIGH = 1000, 300


def areas(series: Sequence[tuple[str, Sequence[int]]], xs: Sequence[float], top: int) -> str:
    """Areas on top of each other, the first at the bottom: (css class, value at each x). `top` is the height."""
    base = [0.0] * len(xs)
    drawn: list[str] = []
    for name, values in series:
        upper = [low + value for low, value in zip(base, values, strict=True)]
        if any(values):
            there = [f"{x:.1f},{_y(value, top):.1f}" for x, value in zip(xs, upper, strict=True)]
            back = [f"{x:.1f},{_y(value, top):.1f}" for x, value in zip(reversed(xs), reversed(base), strict=True)]
            drawn.append(f'<polygon class="{name}" points="{" ".join(there + back)}"/>')
        base = upper
    return "".join(drawn)


def line(values: Sequence[float], xs: Sequence[float], top: float, name: str) -> str:
    """One line over the width."""
    points = " ".join(f"{x:.1f},{_y(value, top):.1f}" for x, value in zip(xs, values, strict=True))
    return f'<polyline class="{name}" points="{points}"/>'


def level(value: float, top: float, name: str) -> str:
    """A horizontal line at a value."""
    y = _y(value, top)
    return f'<line class="{name}" x1="0" x2="{WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>'


def post(x: float, name: str) -> str:
    """A vertical line at a place."""
    return f'<line class="{name}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HIGH}"/>'


def svg(shapes: str, label: str, *, high: int = HIGH) -> str:
    """The drawing; `label` is what a screen reader says."""
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" aria-label="{label}" '
        f'style="height:{high}px">{shapes}</svg>'
    )


def places(count: int) -> list[float]:
    """Where so many turns stand; a single one fills the width."""
    if count == 1:
        return [0.0, float(WIDE)]
    return [n * WIDE / (count - 1) for n in range(count)]


def _y(value: float, top: float) -> float:
    return HIGH - min(1.0, value / top) * HIGH if top else float(HIGH)


def scale(most: float) -> tuple[float, float]:
    """The height of a chart and the step of its marks: round numbers, four to eight marks."""
    step = 1.0
    while most / step > 8:
        step *= 2.5 if str(step)[0] == "2" else 2
    return max(step, -(-most // step) * step), step
