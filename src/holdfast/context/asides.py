"""A small request of its own, for a helper model: a system prompt, one message, and nothing of the conversation."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from holdfast.context.models import model_facts
from holdfast.context.policy import Facts
from holdfast.context.replies import About
from holdfast.context.requests import Request, to_request
from holdfast.context.view import project
from holdfast.transcript.blocks import text_block
from holdfast.transcript.messages import Message, MessageId
from holdfast.transcript.records import Front
from holdfast.transcript.tokens import base_tokens


def aside(about: About, facts: Facts, *, system: str, text: str, output_tokens: int) -> tuple[Request, int]:
    """The request, and how many tokens it is taken for."""
    front = Front(model=about.id, system=(msgspec.Raw(text_block(system).raw),))
    said = msgspec.structs.replace(Message.of("user", text, origin="reminder"), id=MessageId("aside"))
    settings = replace(
        facts.settings,
        max_output_tokens=output_tokens,
        provider_clearing=False,
        provider_compaction=False,
        thinking="drop",
    )
    plain = replace(facts, settings=settings, model=model_facts(about.id))
    request = to_request(project((front, said)), plain, protocol=about.protocol, stream=True)
    return request, base_tokens(system) + base_tokens(text)
