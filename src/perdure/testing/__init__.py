"""Doubles for programs that talk to language models: a fake model server and validators, without a network.

`check_anthropic`, `check_openai` and `check_responses` say what is wrong with a request. `FakeUpstream`
answers requests as the real server would, with its window, its prompt cache and its signed thinking.
docs/use/testing.md shows them at work.
"""

from perdure.testing.block_rules import ModelRules, Violation
from perdure.testing.models import ChaosModel, Fault, ReplayingModel, ScriptedModel
from perdure.testing.openai_rules import check_openai
from perdure.testing.opinions import OPINIONS, OpinionatedServer, ServerOpinion
from perdure.testing.request import count_tokens
from perdure.testing.request_rules import check_anthropic
from perdure.testing.responses_events import ResponseEvents
from perdure.testing.responses_rules import check_responses
from perdure.testing.server import (
    CutStream,
    ErrorInStream,
    EventStream,
    FakeServer,
    RawAnswer,
    error_event,
    openai_completion,
)
from perdure.testing.upstream import (
    FakeUpstream,
    PrefixMove,
    Scripted,
    ScriptedAnswer,
    Statistics,
    UpstreamError,
    UpstreamReply,
    UpstreamUsage,
    overloaded,
    prompt_too_long,
    rate_limited,
    say,
    server_error,
    text,
    thinking,
    tool_use,
)

__all__ = [
    "OPINIONS",
    "ChaosModel",
    "CutStream",
    "ErrorInStream",
    "EventStream",
    "FakeServer",
    "FakeUpstream",
    "Fault",
    "ModelRules",
    "OpinionatedServer",
    "PrefixMove",
    "RawAnswer",
    "ReplayingModel",
    "ResponseEvents",
    "Scripted",
    "ScriptedAnswer",
    "ScriptedModel",
    "ServerOpinion",
    "Statistics",
    "UpstreamError",
    "UpstreamReply",
    "UpstreamUsage",
    "Violation",
    "check_anthropic",
    "check_openai",
    "check_responses",
    "count_tokens",
    "error_event",
    "openai_completion",
    "overloaded",
    "prompt_too_long",
    "rate_limited",
    "say",
    "server_error",
    "text",
    "thinking",
    "tool_use",
]
