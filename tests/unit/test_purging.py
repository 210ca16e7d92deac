"""A text taken out of bytes, in the forms that our own files give it (SEC-12)."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import time
import zlib
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.text.purging import MARK, MOST_CHARS, FixedPlaces, TextPurge

pytestmark = pytest.mark.unit

TEXT = 'pa$$-"wörd"/7\\end'
FORMS = {
    "plain": TEXT,
    "json": json.dumps({"a": TEXT}),
    "json within json within json": json.dumps(json.dumps({"a": json.dumps({"b": TEXT})})),
    "json that escapes nothing": json.dumps({"a": TEXT}, ensure_ascii=False),
    "json that escapes everything": '{"a":"' + "".join(f"\\u{ord(char):04x}" for char in TEXT) + '"}',
    "upper-case escapes": "v = " + json.dumps(TEXT).replace("\\u00f6", "\\u00F6"),
    "as a memory begins": TEXT[:1].upper() + TEXT[1:],
    "cut": f"it begins with {TEXT[:9]}…",
    "cut in front": f"...{TEXT[-9:]} is how it ends",
    "packed": json.dumps(
        {"data": base64.b85encode(zlib.compress(json.dumps({"words": [TEXT] * 9}).encode())).decode()}
    ),
}
ELSEWHERE = {
    "url": quote(TEXT, safe=""),
    "html": html.escape(TEXT),
    "hex": TEXT.encode().hex(),
    "capital letters": TEXT.upper(),
    "base64": base64.b64encode(TEXT.encode()).decode(),
    "utf-16": TEXT.encode("utf-16-le"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_text_is_found_in_every_form(name: str) -> None:
    """SEC-12: whole or cut off, in JSON's escapes, packed; JSON is JSON afterwards, and a second time finds nothing."""
    data, purge = FORMS[name].encode(), TextPurge((TEXT,))
    assert purge.is_in(data)
    left = purge.purged(data)
    assert not purge.is_in(left)
    if data[:1] in b'{"':
        json.loads(left)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_foreign_encodings_arent_searched(name: str) -> None:
    """SEC-12 as 09-raised.md has it: what others made of a text stays, and `perdure purge` says so."""
    given = ELSEWHERE[name]
    data = given if isinstance(given, bytes) else given.encode()
    assert TextPurge((TEXT,)).purged(data) == data


def test_messagepack_keeps_all_else() -> None:
    """R3: in strings, in the names of members and in a packed ledger; what doesn't hold it keeps its bytes."""
    packed = base64.b85encode(zlib.compress(json.dumps({"words": [TEXT] * 9}).encode())).decode()
    value = {"facts": {f"a {TEXT}": [1, None, 2.5]}, "checkpoint": packed, "said": [["id", 1.0, TEXT, {}]]}
    purge = TextPurge((TEXT,))
    left = msgspec.msgpack.decode(purge.purged_msgpack(msgspec.msgpack.encode(value)))
    inner = json.loads(zlib.decompress(base64.b85decode(left.pop("checkpoint"))))
    assert inner == {"words": [MARK] * 9}
    assert left == {"facts": {f"a {MARK}": [1, None, 2.5]}, "said": [["id", 1.0, MARK, {}]]}
    other = msgspec.msgpack.encode({"a": ["b"]})
    assert purge.purged_msgpack(other) == other


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_without_the_text_keeps_its_bytes(value: object) -> None:
    """SEC-12: what doesn't hold the text isn't changed, not even in how it is written."""
    data = json.dumps({"type": "text", "content": value}, indent=1).encode()
    purge = TextPurge(("a text that nobody draws by chance",))
    assert purge.purged(data) == data and purge.purged_json(data, FixedPlaces()) == data


PRINTABLE = st.characters(exclude_categories=("C", "Z")) | st.just(" ")


@given(st.text(PRINTABLE, min_size=6).filter(lambda text: len(text.strip()) >= 6), st.text(), st.text())
def test_any_text_leaves_any_json(text: str, before: str, after: str) -> None:
    """SEC-12: and the JSON stays JSON, whatever the text is."""
    data = json.dumps({"content": [{"type": "text", "text": before + text + after}]}).encode()
    fixed = FixedPlaces()
    left = json.loads(TextPurge((text,)).purged_json(data, fixed))
    assert text not in left["content"][0]["text"].replace(MARK, "\n")


def test_what_a_format_gives_a_meaning_to_is_named() -> None:
    """SEC-12: a tool's name or the name of a member isn't replaced; within the input of a call it is."""
    data = b'{"content":[{"type":"tool_use","name":"Secret","input":{"name":"Secret","Secret":1}}]}'
    fixed = FixedPlaces()
    left = TextPurge(("Secret",)).purged_json(data, fixed)
    assert left == b'{"content":[{"type":"tool_use","name":"Secret","input":{"name":"(purged)","(purged)":1}}]}'
    assert fixed.names == {"name"}


def test_a_key_in_several_lines_is_found_by_its_lines() -> None:
    """SEC-12: as a tool shows it, with numbers before the lines."""
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEAAoI\n-----END KEY-----"
    shown = "\n".join(f"{n:6}\t{line}" for n, line in enumerate(key.splitlines(), 1))
    assert "MIIE" not in TextPurge((key,)).purged(shown.encode()).decode()


@pytest.mark.parametrize(
    ("secret", "innocent"),
    [
        ("correct-horse-battery", b"That is correct"),
        ("correct-horse-battery", b'{"text":"That is correct","more":"battery is low"}'),
        ("correct-horse-battery", b"correct-... and so on"),
        ("correct-horse-battery", b"correct-horse\nis another one"),
        ("content-bus-password", b'{"role":"user","content":"nothing of it"}'),
    ],
)
def test_the_beginning_of_a_text_counts_only_at_an_ellipsis(secret: str, innocent: bytes) -> None:
    """SEC-12: words that only begin or end like the text stay, and so do the format's own names."""
    purge, fixed = TextPurge((secret,)), FixedPlaces()
    assert not purge.is_in(innocent) and purge.purged(innocent) == innocent
    assert purge.purged_json(innocent, fixed) == innocent and not fixed.names


@pytest.mark.parametrize(
    "mark", ["…", "...", " […] ", "\n[…]\n", "\n… (cut here)", "… [9 characters truncated]", "\\u2026"]
)
def test_each_mark_of_a_cut_counts(mark: str) -> None:
    """SEC-12: the beginning before it and the end behind it are purged, in JSON as well."""
    purge = TextPurge(("correct-horse-battery",))
    for cut in (f"it is correct-horse{mark}", f"{mark.partition('(')[0].partition(' [9')[0]}horse-battery was it"):
        assert b"horse" not in purge.purged(cut.encode())
        assert b"horse" not in purge.purged(json.dumps({"text": cut}).encode())


@pytest.mark.parametrize("found", ["x = it\\u0027s a (key)\\u0026more\\u00F6", "it\\u0027s a (key)\\u0026moreö"])
def test_json_for_a_page_is_found(found: str) -> None:
    """SEC-12: JSON that escapes what HTML gives a meaning to, in either case."""
    assert MARK.encode() == TextPurge(("it's a (key)&moreö",)).purged(found.removeprefix("x = ").encode())


def test_a_word_in_other_letters_is_another_word() -> None:
    """SEC-12: a text of letters alone is taken as it is written, so that `Content` isn't a word of the format."""
    assert not TextPurge(("Content",)).is_in(b'{"content":1}')
    assert not TextPurge(("content",)).is_in(b"Content") and TextPurge(("content-1",)).is_in(b"Content-1")


@pytest.mark.parametrize("is_quoted", [True, False], ids=["lines of a message", "a long key"])
def test_long_texts_are_looked_for_at_once(is_quoted: bool) -> None:
    """SEC-12: 200 lines of a message, or a key as long as one may be, in a megabyte: not a minute as a whole."""
    lines = [f'{n}: don\'t "quote" größe ' + str(n) * 40 for n in range(200)]
    key = "\n".join(base64.b64encode(hashlib.sha512(b"%d" % n).digest()).decode()[:64] for n in range(MOST_CHARS // 65))
    purge = TextPurge((), tuple(lines)) if is_quoted else TextPurge((key,))
    data = ("x" * 3000 + " it's don't \"quote\" \\u00e9 größe ").encode() * 300
    began = time.process_time()
    assert not purge.is_in(data)
    assert purge.purged(data + (lines[3] if is_quoted else key).encode()).removeprefix(data) == MARK.encode()
    assert time.process_time() - began < 10
