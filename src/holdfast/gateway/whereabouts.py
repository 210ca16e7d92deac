"""What a model is told of texts that left its view, where it has no tool to recall them with (RCL-1, GW-2)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import prompts
from holdfast.context.reminders import prepend_context
from holdfast.engine.reminding import Moment
from holdfast.engine.session import LiveSession
from holdfast.transcript.messages import Message

NAME = "whereabouts"


class Whereabouts:
    """A source of reminders: says once how originals are had, when the first of them has left the view.

    It stands in the journal like every reminder, so its bytes stay; a compaction that takes it away makes it due again.
    """

    name = NAME

    async def remind(self, session: LiveSession, moment: Moment) -> Sequence[Message]:
        view = session.view
        is_shortened = view.frozen or view.cleared or view.snipped or view.collapses or view.boundary
        if moment != "behind" or not is_shortened or any(item.message.note == NAME for item in view.items):
            return ()
        text = prompts.render("gateway_recall", session=session.name)
        (message,) = prepend_context((), {"What was left out": text})
        return (Message.of("user", list(message.blocks), origin="reminder", note=NAME),)
