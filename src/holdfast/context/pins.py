"""Pins: texts that survive every compaction word for word, within a budget (RST-8, REL-14)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.transcript.blocks import Text
from holdfast.transcript.records import Pinned
from holdfast.transcript.tokens import base_tokens


@dataclass(frozen=True, slots=True)
class PinBudget:
    """How many tokens the pins take, and how many they may."""

    used: int
    limit: int


def pin_budget(view: View, facts: Facts) -> PinBudget:
    """The budget of pins in this window (PRS-2), and what of it is taken."""
    used = sum(base_tokens(pin.text) for pin in view.state.pins)
    return PinBudget(used, facts.limits.scaled(facts.settings.pins_tokens))


def pin_refusal(view: View, text: str, facts: Facts) -> str | None:
    """Why a text can't be pinned; None when it can."""
    if not text.strip():
        return "there is nothing to pin: the text is empty"
    if not text.isascii() and text != text.encode("utf-8", "replace").decode("utf-8"):
        return "the text isn't valid Unicode, so it can't be kept byte for byte"
    if any(pin.text == text for pin in view.state.pins):
        return "this text is pinned already"
    budget, needed = pin_budget(view, facts), base_tokens(text)
    if budget.used + needed <= budget.limit:
        return None
    return (
        f"the pin takes {needed:,} tokens, and {budget.used:,} of the {budget.limit:,} for pins are taken: "
        "shorten it, remove another, or raise pins_tokens"
    )


def summary_texts(view: View) -> list[str]:
    """The texts of all summaries in the view."""
    blocks = [block for item in view.items if item.message.origin == "summary" for block in item.visible]
    return [block.value.text for block in blocks if isinstance(block.value, Text)]


def missing_pins(view: View) -> tuple[Pinned, ...]:
    """Pins that no summary holds word for word, behind a boundary; those set since it are in none yet."""
    if view.boundary is None:
        return ()
    texts = summary_texts(view)
    return tuple(pin for pin in view.state.pins if not any(pin.text in text for text in texts))
