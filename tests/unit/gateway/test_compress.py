"""What becomes of messages that LiteLLM's guardrail sends (GW-10)."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.adapters.journal.blobs import FileBlobs
from perdure.context.models import UNKNOWN
from perdure.gateway.compress import CompressedMessages, CompressedOriginals, compressed, model_in
from perdure.gateway.requests import Unmanageable
from perdure.settings import Settings

pytestmark = pytest.mark.unit
SMALL = Settings(window_tokens=32_000)


def result(number: int, lines: int, **more: Any) -> dict[str, Any]:
    said = f"file {number}: the line says value\n" * lines
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": said, **more}


def asked(messages: list[Any], **more: Any) -> bytes:
    return msgspec.json.encode({"messages": messages, "model": "m", "config": {"mode": "ccr"}, **more})


def done(messages: list[Any], settings: Settings = SMALL) -> tuple[CompressedMessages, dict[str, Any]]:
    made = compressed(asked(messages), settings, UNKNOWN)
    return made, msgspec.json.decode(made.body())


def test_a_long_result_shows_a_part_and_names_its_hash() -> None:
    """GW-10: as many messages as before, everything else byte for byte, and the figures add up."""
    messages = [
        {"role": "user", "content": "word " * 9_000},
        result(1, 900),
        result(2, 3),
        {"role": "user", "content": "?"},
    ]
    made, told = done(messages)
    assert len(told["messages"]) == 4 and [told["messages"][n] for n in (0, 2, 3)] == [messages[n] for n in (0, 2, 3)]
    digest = hashlib.sha256(messages[1]["content"].encode()).hexdigest()[:24]
    assert told["ccr_hashes"] == [digest] and f'call headroom_retrieve with hash "{digest}"' in str(told["messages"][1])
    assert told["messages"][1]["tool_call_id"] == "call_1" and made.originals == (messages[1]["content"].encode(),)
    assert told["tokens_before"] - told["tokens_after"] == told["tokens_saved"] > 4_000
    assert made.untouched().body().count(b"file 1:") == 900


def test_older_results_follow_in_steps_where_all_take_too_much() -> None:
    """GW-10, GW-3: what was shortened stays so to the byte while the conversation grows, and seldom more is."""
    messages, changes, before = list[Any](), 0, list[Any]()
    for number in range(60):
        messages.append(result(number, 60))
        _, told = done(messages)
        shown = told["messages"]
        assert told["tokens_after"] < 12_000
        changes += shown[: len(before)] != before
        assert all(now == was for now, was in zip(shown, before, strict=False) if "headroom_retrieve" in was["content"])
        before = shown
    assert 2 <= changes <= 60 // 8 + 1
    assert done(messages, Settings(window_tokens=1_000_000))[1]["tokens_saved"] == 0


def test_what_was_got_back_stays() -> None:
    """GW-10: else the model would be shown the marker again that it has just asked behind."""
    call = {"id": "call_1", "type": "function", "function": {"name": "mcp__x__headroom_retrieve", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}, result(1, 900)]
    assert done(messages)[1]["tokens_saved"] == 0


@pytest.mark.parametrize(
    "content",
    [[{"type": "text", "text": "a line\n" * 9_000}], [{"type": "text", "text": "a"}, {"type": "image_url"}], None, 7],
)
def test_contents_keep_their_form(content: Any) -> None:
    """GW-10: a list of texts stays a list; what isn't text alone stays as it is."""
    _, told = done([{"role": "tool", "tool_call_id": "x", "content": content}])
    (shown,) = told["messages"]
    if told["tokens_saved"]:
        assert [part["type"] for part in shown["content"]] == ["text"]
    else:
        assert shown["content"] == content


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"messages": 1}', b'{"messages": []}', b'{"messages": [1]}'])
def test_what_is_no_conversation_is_said_so(body: bytes) -> None:
    with pytest.raises(Unmanageable):
        compressed(body, SMALL, UNKNOWN)
    assert model_in(asked([1])) == "m" and model_in(b'{"model": null}') == ""


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": "x"}, 7]},
        {"role": "assistant", "tool_calls": [{"id": ["a"], "function": {"name": "headroom_retrieve"}}]},
        {"role": "tool", "tool_call_id": ["a"], "content": "x"},
    ],
)
def test_what_is_said_strangely_goes_back_as_it_came(message: dict[str, Any]) -> None:
    """GW-10, REL-15: what a message means is its server's to judge."""
    made, told = done([message])
    assert told["messages"] == [message] and not made.originals


def test_originals_come_back_by_the_beginning_of_their_hash(tmp_path: Path) -> None:
    """GW-10, RCL-2: any beginning that names one of them; those that are too old are forgotten."""

    async def run() -> None:
        blobs = FileBlobs(tmp_path / "blobs")
        kept = CompressedOriginals(blobs)
        assert await kept.get("0" * 12) is None
        await kept.put((b"one", "zwölf".encode()))
        digest = hashlib.sha256("zwölf".encode()).hexdigest()
        assert await kept.get(digest[:12]) == await kept.get(digest[:24].upper()) == "zwölf"
        assert await kept.get("") is None, "it names both"
        assert await blobs.forget(time.time() - 60) == 0
        assert await kept.get(digest[:24]) == "zwölf"
        os.utime(tmp_path / "blobs" / digest, (0, 0))
        assert await blobs.forget(time.time() - 60) == 1
        assert await kept.get(digest[:24]) is None

    asyncio.run(run())
