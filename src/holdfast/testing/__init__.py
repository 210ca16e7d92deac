"""Doubles for programs that talk to language models: a fake model server and validators, without a network.

`check_anthropic` and `check_openai` say what is wrong with a request. `FakeUpstream` answers requests as the real
server would, with its window, its prompt cache and its signed thinking. docs/testing.md shows them at work.
"""

from .doubles import CountingIds, FixedClock
from .http import CutStream, ErrorInStream, FakeServer, RawAnswer
from .model_rules import ModelRules, Violation
from .models import ChaosModel, Fault, ReplayingModel, ScriptedModel
from .openai_rules import check_openai
from .replies import (
    Reply,
    Script,
    Scripted,
    UpstreamError,
    Usage,
    overloaded,
    prompt_too_long,
    rate_limited,
    say,
    server_error,
    text,
    thinking,
    tool_use,
)
from .request import count_tokens
from .rules import check_anthropic
from .sse import EventStream, error_event, openai_completion
from .statistics import PrefixMove, Statistics
from .upstream import FakeUpstream

__all__ = [
    "ChaosModel",
    "CountingIds",
    "CutStream",
    "ErrorInStream",
    "EventStream",
    "FakeServer",
    "FakeUpstream",
    "Fault",
    "FixedClock",
    "ModelRules",
    "PrefixMove",
    "RawAnswer",
    "ReplayingModel",
    "Reply",
    "Script",
    "Scripted",
    "ScriptedModel",
    "Statistics",
    "UpstreamError",
    "Usage",
    "Violation",
    "check_anthropic",
    "check_openai",
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
