"""The accounting by category: honest by law, and right in each category (TOK-6)."""

from __future__ import annotations

import base64
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.accounting import CATEGORIES, Accounting, account
from perdure.context.groups import flatten, without_passing_on
from perdure.context.models import UNKNOWN
from perdure.context.policy import Facts, thresholds
from perdure.context.view import ContextView, advance, project
from perdure.settings import Settings
from perdure.transcript.blocks import block_of, text_block
from perdure.transcript.messages import Message, MessageId, ResponseId, ToolUseId, Usage, content_of
from perdure.transcript.records import BlockChange, Cleared, Collapsed, Compacted, Front, Record, Settled

pytestmark = pytest.mark.unit

FILE = "\n".join(f"{n}\tdef function_number_{n}(argument): return argument + {n}" for n in range(40))


def facts(window: int = 200_000) -> Facts:
    return Facts(settings=Settings(), limits=thresholds(Settings(), UNKNOWN, window, "default"))


class Talk:
    """Messages with ids that count."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def say(self, role: str, *blocks: dict[str, Any], origin: str | None = None, **more: Any) -> Message:
        number = len(self.records)
        message = Message(
            id=MessageId(f"m{number}"),
            role=role,  # type: ignore[arg-type]
            content=content_of([block_of(block) for block in blocks]),
            origin=origin or ("model" if role == "assistant" else "user"),  # type: ignore[arg-type]
            response_id=ResponseId(f"r{number}") if role == "assistant" else None,
            **more,
        )
        self.records.append(message)
        return message

    def call(self, identity: str, name: str, result: Any, /, usage: Usage | None = None, **arguments: Any) -> None:
        use = {"type": "tool_use", "id": identity, "name": name, "input": arguments}
        self.say("assistant", use, usage=usage)
        self.say("user", {"type": "tool_result", "tool_use_id": identity, "content": result}, origin="tool")

    @property
    def view(self) -> ContextView:
        return project(self.records)

    @property
    def accounting(self) -> Accounting:
        return honest(self.view, facts())


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def honest(view: ContextView, how: Facts) -> Accounting:
    """The accounting, once it is checked against the size and the request."""
    found = account(view, how)
    assert sum(c.tokens for c in found.categories) == found.size == how.size(view)
    assert sum(c.parts for c in found.categories) == sum(
        len(list(group.parts())) for group in without_passing_on(flatten(view))
    )
    assert all(c.tokens >= 0 and c.count >= 0 and c.parts >= 0 for c in found.categories)
    assert [c.name for c in found.categories] == [n for n in CATEGORIES if n in {c.name for c in found.categories}]
    for category in found.categories:
        if category.rows:
            assert sum(row.tokens for row in category.rows) <= category.tokens
    if found.size <= how.limits.usable:
        assert found.size + found.free + found.reserve == found.window
    else:
        assert found.free == 0
    return found


def names(found: Accounting) -> dict[str, int]:
    return {category.name: category.count for category in found.categories}


# --- the law


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    talk = Talk()
    if draw(st.booleans()):
        system = tuple(msgspec.Raw(text_block("Be careful. " * n).raw) for n in draw(st.lists(st.integers(0, 50))))
        tools = tuple(msgspec.Raw(b'{"name":"t%d"}' % n) for n in range(draw(st.integers(0, 3))))
        talk.records.append(Front(system=system, tools=tools))
    steps = st.sampled_from(
        ["human", "answer", "thinking", "call", "open", "reminder", "image", "odd", "settle", "clear"]
    )
    for number, step in enumerate(draw(st.lists(steps, max_size=14))):
        words = draw(st.sampled_from(["", " ", "a few words", FILE]))
        usage = draw(
            st.none() | st.builds(Usage, input_tokens=st.integers(0, 300_000), output_tokens=st.integers(0, 99))
        )
        path = draw(st.sampled_from(["a.py", "b.py"]))
        if step == "human":
            talk.say("user", text(words))
        elif step == "answer":
            talk.say("assistant", text(words), usage=usage)
        elif step == "thinking":
            talk.say("assistant", {"type": "thinking", "thinking": words, "signature": "s"}, text("so"), usage=usage)
        elif step == "call":
            talk.call(f"c{number}", draw(st.sampled_from(["Read", "Bash"])), words, usage=usage, file_path=path)
        elif step == "open":
            talk.say("assistant", {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {}}, usage=usage)
        elif step == "reminder":
            talk.say("user", text(words), origin="reminder", note=draw(st.sampled_from([None, "memory", "odd"])))
        elif step == "image":
            talk.say("user", {"type": "image", "source": {"type": "base64", "data": ""}})
        elif step == "odd":
            talk.say("assistant", {"type": "novelty", "x": words}, usage=usage)
        elif step == "settle":
            talk.records.append(Settled(tool_use_ids=tuple(talk.view.open_calls)))
        else:
            view = talk.view
            ids = tuple(i for i in view.results if i not in view.cleared)[:1]
            talk.records.append(Cleared(trigger="size", tool_use_ids=ids, changes=tuple(_gone(view, i) for i in ids)))
    return talk


def _gone(view: ContextView, identity: ToolUseId) -> BlockChange:
    result = view.results[identity]
    shown = {"type": "tool_result", "tool_use_id": identity, "content": "[cleared]"}
    return BlockChange(view.items[result.position].message.id, result.block, msgspec.Raw(block_of(shown).raw))


@given(talks(), st.sampled_from([8_000, 200_000, 1_000_000]))
def test_accounting_equals_the_request(talk: Talk, window: int) -> None:
    """TOK-6: the categories add up to the size that the engine acts on, the parts to the request's."""
    view = talk.view
    once = honest(view, facts(window))
    assert account(view, facts(window)) == once, "it changes nothing"
    assert account(project(talk.records), facts(window)) == once, "and is the same after a resume"


# --- the categories


def test_each_kind_of_block_has_its_category() -> None:
    talk = Talk()
    talk.records.append(
        Front(
            system=(msgspec.Raw(text_block("You are careful. " * 50).raw),),
            tools=(msgspec.Raw(b'{"name":"Read"}'), msgspec.Raw(b'{"name":"Bash"}')),
        )
    )
    for note in ("instructions", "memory_index", "memory", None):
        talk.say("user", text("a reminder " * 20), origin="reminder", note=note)
    talk.say("user", text("please look " * 20))
    talk.say("assistant", {"type": "thinking", "thinking": "hmm " * 50, "signature": "s"}, text("I will " * 20))
    talk.call("c1", "Read", FILE, file_path="a.py")
    talk.say("assistant", text("done"))
    found = talk.accounting
    assert names(found) == {
        "system prompt": 1,
        "tools": 2,
        "instructions": 1,
        "memory index": 1,
        "recalled memories": 1,
        "human messages": 1,
        "assistant text": 2,
        "thinking": 1,
        "tool requests": 1,
        "tool results": 1,
        "attachments": 1,
    }
    assert not found.is_measured


def test_tools_are_told_apart() -> None:
    talk = Talk()
    talk.say("user", text("go"))
    talk.call("c1", "Bash", "output " * 400, command="ls")
    talk.call("c2", "Bash", "more " * 100, command="ls -l")
    talk.call("c3", "Grep", "hit", pattern="x")
    results = next(c for c in talk.accounting.categories if c.name == "tool results")
    assert [(row.name, row.count) for row in results.rows] == [("Bash", 2), ("Grep", 1)]
    assert sum(row.tokens for row in results.rows) == results.tokens


def test_a_file_read_again_unchanged_is_a_duplicate() -> None:
    talk = Talk()
    talk.say("user", text("go"))
    talk.call("c1", "Read", FILE, file_path="a.py")
    talk.call("c2", "Read", FILE, file_path="a.py")
    talk.call("c3", "Read", "\n".join(FILE.splitlines()[10:20]), file_path="a.py", offset=10, limit=10)
    talk.call("c4", "Read", FILE, file_path="copy.py")  # another file
    talk.call("c5", "Read", FILE.replace("return", "yield"), file_path="a.py")  # changed since
    talk.call("c6", "Edit", "The file a.py has been updated. " * 5, file_path="a.py")
    talk.call("c7", "Edit", "The file a.py has been updated. " * 5, file_path="a.py")
    found = talk.accounting
    repeated = next(c for c in found.categories if c.name == "duplicate file reads")
    assert [(row.name, row.count) for row in repeated.rows] == [("a.py", 2)]
    assert names(found)["tool results"] == 5


def test_what_was_cleared_is_neither_a_duplicate_nor_its_origin() -> None:
    talk = Talk()
    talk.say("user", text("go"))
    talk.call("c1", "Read", FILE, file_path="a.py")
    talk.records.append(
        Cleared(trigger="size", tool_use_ids=(ToolUseId("c1"),), changes=(_gone(talk.view, ToolUseId("c1")),))
    )
    talk.call("c2", "Read", FILE, file_path="a.py")
    assert "duplicate file reads" not in names(talk.accounting)


def test_images_inside_results_count_as_images() -> None:
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 560, 560)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _base64(header)}}
    talk = Talk()
    talk.say("user", text("go"))
    talk.call("c1", "Read", [text("a picture"), image], file_path="a.png")
    found = talk.accounting
    assert names(found)["images"] == 1 and names(found)["tool results"] == 1
    assert found.tokens("images") > 20 * found.tokens("tool results")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def test_what_the_provider_reports_beyond_the_known_front_is_named() -> None:
    """TOK-3: the first report holds a system prompt and tools that the messages don't show."""
    talk = Talk()
    talk.say("user", text("hello " * 40))
    talk.say("assistant", text("hi"), usage=Usage(input_tokens=20_000, output_tokens=5))
    found = talk.accounting
    assert found.is_measured and found.size == 20_005
    assert 19_900 < found.tokens("system prompt and tools (measured)") < 20_000
    talk.records.insert(0, Front(system=(msgspec.Raw(text_block("Be careful. " * 500).raw),)))
    known = talk.accounting
    assert known.tokens("system prompt") > 1_000
    both = known.tokens("system prompt") + known.tokens("system prompt and tools (measured)")
    assert 19_900 < both < 20_000


def test_summaries_and_projections_are_summary() -> None:
    talk = Talk()
    first = talk.say("user", text("old words " * 100))
    last = talk.say("assistant", text("old answer " * 100))
    view = talk.view
    projection = Message(
        id=MessageId("p"), role="user", content=content_of([text_block("in short")]), origin="restored"
    )
    advance(view, Collapsed(id="c", first=first.id, last=last.id, projection=projection))
    assert names(honest(view, facts()))["summary"] == 1
    summary = Message(id=MessageId("s"), role="user", content=content_of([text_block("so far")]), origin="summary")
    advance(view, Compacted(id="b", trigger="manual", strategy="ledger", summary=(summary,)))
    assert names(honest(view, facts())) == {"summary": 1}


def test_an_empty_view_costs_nothing_and_a_full_one_leaves_nothing() -> None:
    empty = honest(ContextView(), facts())
    assert (empty.size, empty.free, empty.reserve) == (0, 180_000, 20_000)
    talk = Talk()
    talk.say("user", text("word " * 50_000))
    full = honest(talk.view, facts(window=16_000))
    assert full.free == 0 and full.size > full.window
