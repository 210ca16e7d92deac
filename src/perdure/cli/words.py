"""What went wrong in a sentence, with what to do: one table from codes to words, for commands, `chat` and `run`."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from perdure.errors import ModelError, ModelGaveUp, PerdureError

if TYPE_CHECKING:
    from perdure.agent.progress import PermissionRefused
    from perdure.ports.session import Model

# What a model error's code means, and what a person can do about it.
MODEL_FAILURES: dict[str, tuple[str, str]] = {
    "failed": ("the model could not be asked", ""),
    "overloaded": ("the provider is overloaded", "try again in a few minutes"),
    "rate_limited": ("the provider's rate limit is used up", "wait a while, or take another model with --model"),
    "down": ("the model server failed or can't be reached", "check its address and the network, or try again later"),
    "stream_cut": ("the answer broke off", "try again"),
    "prompt_too_long": ("the conversation is longer than the model's window", "compact it, or start a new session"),
    "prompt_truncated": (
        "the server read only the end of the prompt",
        "raise its context length (Ollama: OLLAMA_CONTEXT_LENGTH), or set window_tokens to what it takes",
    ),
    "output_too_long": ("the model can't give so long an answer", "lower the setting max_output_tokens"),
    "body_too_large": ("the request has more bytes than the server takes", "leave large images or documents out"),
    "media_refused": ("the provider refused an image or document", "leave it out, or make it smaller"),
    "thinking_refused": ("the provider refused an earlier thinking block", "set thinking=drop, or start a new session"),
    "bad_request": ("the provider refused the request", "if it isn't clear why, please report it"),
    "key_refused": (
        "the provider refused the key",
        "check that the variable with your key holds a valid one, and that the account has credit",
    ),
    "model_unknown": (
        "the server doesn't know this model or address",
        "check the spelling: provider:model, or provider:model@URL",
    ),
    "endless": (
        "the answer went on without an end and was broken off",
        "try again, or take another model with --model",
    ),
    "empty_answer": ("the model gave an empty answer", ""),
    "spending_cap": ("the call wasn't made", ""),
}

# What the code of a compaction that didn't come about means. `{rest}` is what stands behind the code.
COMPACTION_FAILURES: dict[str, str] = {
    "blocked": "a hook refused it ({rest})",
    "changed": "the session kept changing meanwhile; try again",
    "empty": "the record holds no text",
    "error": "an internal error ({rest}); please report it",
    "law": "the result would not be a valid conversation ({rest}); please report it",
    "nothing_to_compact": "nothing in it is old enough yet",
    "off": "session notes are switched off (the setting notes)",
    "pins": "a pinned text would be lost; please report it",
    "words": "something you said would be lost; please report it",
}
_SIZES = re.compile(r"([\d,]+) to ([\d,]+) tokens(.*)")
_OVER = re.compile(r"([\d,]+) tokens, trigger ([\d,]+)")
_WAIT = re.compile(r"waited ([\d.e+]+) s \(.*\)")
_PREFIX = "Failed to generate conversation summary: "


def model_failure(error: ModelError) -> str:
    """An error of a model: what happened, the provider's own words, what was tried, and what to do."""
    last: ModelError = getattr(error, "last", error)
    what, advice = MODEL_FAILURES.get(last.reason, (last.reason.replace("_", " "), ""))
    status = f" (HTTP {last.status})" if last.status else ""
    detail = f": {last.detail.rstrip('.')}" if last.detail else ""
    advice = getattr(error, "advice", "") or advice
    parts = [f"{what}{status}{detail}", _tried(getattr(error, "tried", ())), advice]
    return "; ".join(part for part in parts if part)


def shown_error(error: PerdureError) -> str:
    """Any error of ours, as a person reads it."""
    return model_failure(error) if isinstance(error, ModelError) else str(error)


def model_change(error: ModelGaveUp, model: Model) -> str:
    """Why a model isn't asked any more, and which one is instead."""
    return f"{model_failure(error)}; continuing with {model.about.id}"


def model_reason(reason: str) -> str:
    """The code of a model's error in a few words; what is no code stays as it is."""
    return MODEL_FAILURES[reason][0] if reason in MODEL_FAILURES else reason


def _tried(steps: tuple[str, ...]) -> str:
    waits = [float(found[1]) for step in steps if (found := _WAIT.fullmatch(step))]
    others = list(dict.fromkeys(step for step in steps if not _WAIT.fullmatch(step)))
    told = [f"tried {len(waits) + 1} times over {sum(waits):,.0f} seconds"] if waits else []
    return ", ".join([*told, *others])


def compaction_failure(reason: str) -> str:
    """Why nothing was compacted."""
    code, _, rest = reason.partition(": ")
    if code == "too_little" and (sizes := _SIZES.match(rest)):
        return f"it would free too little: {sizes[1]} tokens would become {sizes[2]}{sizes[3]}"
    if code == "over_trigger" and (sizes := _OVER.match(rest)):
        return f"{sizes[1]} tokens would be left, more than the {sizes[2]} at which compaction begins"
    if code == "model_failed":
        failed, _, more = rest.partition(", ")
        return model_reason(failed) + (f", {more}" if more else "")
    if code in COMPACTION_FAILURES:
        return COMPACTION_FAILURES[code].format(rest=rest)
    return rest.removeprefix(_PREFIX) or reason.replace("_", " ")


def permission_advice(refused: PermissionRefused) -> str:
    """What would allow a call that nobody was there to allow; only what does."""
    decision = refused.decision
    if decision.decision == "deny":
        return "start without --mode plan to have it done" if decision.by == "mode plan" else ""
    ways = [f"--set {shlex.quote(f'permission_allow={refused.rule}')}"] if refused.rule is not None else []
    if decision.by == "mode default" and decision.why == "it changes files":
        ways.append("--mode accept_edits")
    if ways:
        return f"allow it with {' or '.join(ways)}"
    return "no setting allows just this; in `perdure chat` you are asked about it"
