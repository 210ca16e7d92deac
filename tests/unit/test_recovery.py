"""TURN-11, TOK-4: what providers say about a failed call, and what we make of it."""

from __future__ import annotations

import pytest

from perdure.context.failures import ErrorResponse, classify, path_in
from perdure.errors import (
    BadRequest,
    BodyTooLarge,
    KeyRefused,
    MediaRefused,
    ModelDown,
    ModelError,
    ModelGaveUp,
    ModelUnknown,
    OutputTooLong,
    Overloaded,
    PromptTooLong,
    RateLimited,
    ThinkingRefused,
)

pytestmark = pytest.mark.unit

# words, status, tokens, maximum, output
TOO_LONG: list[tuple[str, int | None, int | None, int | None, int]] = [
    ("prompt is too long: 205123 tokens > 200000 maximum", 400, 205_123, 200_000, 0),
    ("Prompt is too long", 400, None, None, 0),
    (
        "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or "
        "`max_tokens` and try again",
        400,
        199_759,
        200_000,
        8_192,
    ),
    (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 411525 tokens "
        "(411032 in the messages, 493 in the functions). Please reduce the length of the messages or functions.",
        400,
        411_525,
        128_000,
        0,
    ),
    (
        "This model's maximum context length is 4096 tokens. However, you requested 5200 tokens (4900 in the messages, "
        "300 in the completion). Please reduce the length of the messages or completion.",
        400,
        4_900,
        4_096,
        300,
    ),
    (
        "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens. Please "
        "reduce the length of the input messages.",
        400,
        9_000,
        8_192,
        0,
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 "
        "tokens and your request has 1000 input tokens (32000 > 32768 - 1000).",
        400,
        1_000,
        32_768,
        0,
    ),
    (
        "You passed 32769 input tokens and requested 0 output tokens. However, the model's context length is "
        "only 32768",
        400,
        32_769,
        32_768,
        0,
    ),
    (
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens "
        "(40832 of text input, 2000 in the output). Please reduce the length of either one, or use the "
        '"middle-out" transform to compress your prompt automatically.',
        400,
        40_832,
        32_768,
        2_000,
    ),
    (
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens.",
        400,
        42_832,
        32_768,
        0,
    ),
    ("request (1407 tokens) exceeds the available context size (256 tokens), try increasing it", 400, 1_407, 256, 0),
    ("the request exceeds the available context size. try increasing the context size", 500, None, None, 0),
    ("Requested tokens (2285) exceed context window of 2048", 500, 2_285, 2_048, 0),
    (
        "This model's maximum context length is 2048 tokens. However, you requested 2981 tokens (2981 in the messages, "
        "None in the completion).",
        400,
        2_981,
        2_048,
        0,
    ),
    (
        "The number of tokens to keep from the initial prompt is greater than the context length",
        200,
        None,
        None,
        0,
    ),
    (
        "Trying to keep the first 5412 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.",
        200,
        5_412,
        4_096,
        0,
    ),
    (
        "Prompt contains 66385 tokens, too large for model with 32768 maximum context length",
        400,
        66_385,
        32_768,
        0,
    ),
    (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        400,
        1_200_000,
        1_048_576,
        0,
    ),
    ("Unable to submit request because it exceeds the maximum number of tokens allowed", 400, None, None, 0),
    ("prompt tokens (210000) exceed model maximum (200000)", 400, 210_000, 200_000, 0),
    ("Input is too long for requested model.", 400, None, None, 0),
    (
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
        422,
        4_000,
        4_096,
        512,
    ),
    (
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        400,
        None,
        None,
        0,
    ),
    ("current length is 9000 while limit is 8000", 400, 9_000, 8_000, 0),
    ("The maximum input length is 30720 tokens", 400, None, 30_720, 0),
    ("prompt is too long: 205,123 tokens > 200,000 maximum", 413, 205_123, 200_000, 0),
]


@pytest.mark.parametrize(
    ("words", "status", "tokens", "maximum", "output"), TOO_LONG, ids=[w[0][:50] for w in TOO_LONG]
)
def test_an_overflow_is_known_with_its_numbers(
    words: str, status: int | None, tokens: int | None, maximum: int | None, output: int
) -> None:
    error = classify(ErrorResponse(status=status, message=words, kind="invalid_request_error"))
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.maximum, error.output_tokens) == (tokens, maximum, output)
    if tokens and maximum:
        assert error.gap_tokens == tokens + output - maximum


def test_numbers_of_llama_cpp_stand_beside_the_words() -> None:
    extra = {"n_prompt_tokens": 1_407, "n_ctx": 256, "type": "exceed_context_size_error"}
    error = classify(
        ErrorResponse(status=500, message="the request exceeds", kind="exceed_context_size_error", extra=extra)
    )
    assert isinstance(error, PromptTooLong) and (error.tokens, error.maximum) == (1_407, 256)


@pytest.mark.parametrize(
    ("words", "maximum"),
    [
        (
            "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku",
            8_192,
        ),
        (
            "max_tokens is too large: 128000. This model supports at most 16384 completion tokens, whereas you "
            "provided 128000.",
            16_384,
        ),
    ],
)
def test_an_answer_may_not_be_that_long(words: str, maximum: int) -> None:
    error = classify(ErrorResponse(status=400, message=words, kind="invalid_request_error"))
    assert isinstance(error, OutputTooLong) and error.maximum == maximum


def test_a_code_alone_is_enough() -> None:
    assert isinstance(classify(ErrorResponse(status=400, message="No.", code="context_length_exceeded")), PromptTooLong)


OTHERS: list[tuple[ErrorResponse, type[ModelError]]] = [
    (ErrorResponse(status=529, message="Overloaded", kind="overloaded_error"), Overloaded),
    (ErrorResponse(status=200, message="Overloaded", kind="overloaded_error"), Overloaded),
    (
        ErrorResponse(status=503, message="The model is overloaded. Please try again later.", kind="UNAVAILABLE"),
        Overloaded,
    ),
    (ErrorResponse(status=500, message="The engine is currently overloaded, please try again later"), Overloaded),
    (ErrorResponse(status=529, message="compaction is busy", code="compaction_unavailable"), Overloaded),
    (ErrorResponse(status=429, message="This request would exceed your organization's rate limit."), RateLimited),
    (ErrorResponse(status=200, message="slow down", kind="rate_limit_error"), RateLimited),
    (ErrorResponse(status=429, message="You exceeded your current quota", code="insufficient_quota"), KeyRefused),
    (ErrorResponse(status=400, message="Your credit balance is too low to access the API"), KeyRefused),
    (ErrorResponse(status=401, message="invalid x-api-key", kind="authentication_error"), KeyRefused),
    (ErrorResponse(status=404, message="model: nothing", kind="not_found_error"), ModelUnknown),
    (ErrorResponse(status=500, message="Internal server error", kind="api_error"), ModelDown),
    (ErrorResponse(status=504, message="timed out", kind="timeout_error"), ModelDown),
    (ErrorResponse(status=None, message="connection refused"), ModelDown),
    (ErrorResponse(status=200, message="something went wrong"), ModelDown),
    (ErrorResponse(status=413, message="Request exceeds the maximum size", kind="request_too_large"), BodyTooLarge),
    (ErrorResponse(status=400, message="tools.0.name: too long", kind="invalid_request_error"), BadRequest),
    (ErrorResponse(status=200, message="tools.0.name: too long", kind="invalid_request_error"), BadRequest),
    (
        ErrorResponse(status=400, message="Invalid 'tools[0].name': string too long", code="string_above_max_length"),
        BadRequest,
    ),
    (
        ErrorResponse(
            status=400,
            message="This model does not support assistant message prefill. The conversation must end with a user turn",
        ),
        BadRequest,
    ),
    (
        ErrorResponse(status=400, message="messages.0.content.1.image.source.base64: image exceeds 5 MB maximum"),
        MediaRefused,
    ),
    (
        ErrorResponse(status=400, message="messages.4.content.0.content.2.image.source: Could not process image"),
        MediaRefused,
    ),
    (
        ErrorResponse(status=400, message="messages.0.content.0.pdf.source: The PDF specified is password protected"),
        MediaRefused,
    ),
    (ErrorResponse(status=400, message="At most 1 image(s) may be provided in one request."), MediaRefused),
    (
        ErrorResponse(status=500, message="image input is not supported - you may need to provide the mmproj"),
        MediaRefused,
    ),
    (ErrorResponse(status=400, message="You uploaded an unsupported image.", code="image_parse_error"), MediaRefused),
    (
        ErrorResponse(
            status=400,
            message="messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
            "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior`.",
        ),
        ThinkingRefused,
    ),
    (
        ErrorResponse(
            status=400,
            message="messages.3.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message "
            "cannot be modified.",
        ),
        ThinkingRefused,
    ),
]


@pytest.mark.parametrize(("said", "kind"), OTHERS, ids=[said.message[:50] for said, _ in OTHERS])
def test_other_errors_are_known(said: ErrorResponse, kind: type[ModelError]) -> None:
    assert type(classify(said)) is kind


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ("messages.1.content.0: Invalid `signature`", "messages.1.content.0"),
        ("messages.4.content.0.content.2.image.source: bad", "messages.4.content.0.content.2"),
        ("Invalid type for 'messages[3].content[1].image_url'", "messages.3.content.1"),
        ("messages: too many", None),
        ("messages.7: at least one message", "messages.7"),
    ],
)
def test_paths_are_read_in_either_spelling(message: str, path: str | None) -> None:
    assert path_in(message) == path


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (ErrorResponse(status=429, message="slow down", retry_after_seconds=7.0), 7.0),
        (ErrorResponse(status=429, message="Rate limit reached. Please try again in 20s."), 20.0),
        (ErrorResponse(status=429, message="Please try again in 1m2.5s"), 62.5),
        (ErrorResponse(status=429, message="Please try again in 350ms"), 0.35),
        (ErrorResponse(status=503, message="overloaded, retry after 3 seconds"), 3.0),
        (ErrorResponse(status=429, message="slow down"), None),
    ],
)
def test_the_delay_is_the_servers(said: ErrorResponse, seconds: float | None) -> None:
    error = classify(said)
    assert isinstance(error, Overloaded) and error.retry_after_seconds == seconds


def test_an_error_is_one_short_line() -> None:
    error = classify(ErrorResponse(status=400, message="a\nb" + "x" * 10_000))
    assert "\n" not in str(error) and len(str(error)) < 700


def test_giving_up_says_what_was_tried() -> None:
    error = ModelGaveUp(
        Overloaded("busy", status=529), ("waited 1 s (overloaded)", "waited 2 s (overloaded)"), advice="x"
    )
    assert "tried: waited 1 s (overloaded), waited 2 s (overloaded)" in str(error)
    assert "overloaded: busy" in str(error) and str(error).endswith("; x")
