"""The trust of what a view shows (SEC-1): block by block, of a range, and by category of trust for reports."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.context.view import View
from holdfast.memory.trust.labels import Trust, least, trust
from holdfast.transcript.blocks import Block
from holdfast.transcript.messages import Message


def summary_trust(view: View) -> Trust:
    """Of the summary that the view stands on; a boundary that doesn't say has the least there is."""
    said = view.boundary.trust if view.boundary is not None else None
    return Trust[said.upper()] if said and said.upper() in Trust.__members__ else Trust.OUTSIDE


def trust_in(view: View, message: Message, block: Block) -> Trust:
    """Of a block in this view."""
    return trust(message, block, summary=summary_trust(view))


def least_trust(view: View, end: int) -> Trust:
    """Of what is made from the items before `end`: the least of them, also of those that left the view (SEC-1)."""
    return least(label for label, _, _ in _labels(view, end))


def trust_tokens(view: View) -> dict[str, int]:
    """Base tokens shown, by whose word they are; the most trusted first. Tokens of the front aren't in it."""
    sums = dict.fromkeys(sorted(Trust, reverse=True), 0)
    for label, position, index in _labels(view, len(view.items)):
        item = view.items[position]
        if not item.is_hidden and item.shown[index] is not None:
            sums[label] += item.sizes[index].base
    return {label.name.lower(): tokens for label, tokens in sums.items()}


def _labels(view: View, end: int) -> Iterator[tuple[Trust, int, int]]:
    summary = summary_trust(view)
    for position, item in enumerate(view.items[:end]):
        for index, block in enumerate(item.message.blocks):
            yield trust(item.message, block, summary=summary), position, index
