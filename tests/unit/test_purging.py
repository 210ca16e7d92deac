"""A text taken out of bytes, in every form in which it may stand there (SEC-12)."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
import time
import unicodedata
import zlib
from urllib.parse import quote, quote_plus

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
    "source code": f"key = {TEXT!r}",
    "url": quote(TEXT, safe=""),
    "form": quote_plus(TEXT + " x"),
    "html": html.escape(TEXT),
    "hex": TEXT.encode().hex(),
    "lower-case url": quote(TEXT, safe="").lower(),
    "upper-case escapes": "v = " + json.dumps(TEXT).replace("\\u00f6", "\\u00F6"),
    "hex with colons": TEXT.encode().hex(":").upper(),
    "hex in groups": "00000000: " + TEXT.encode().hex(" ", 2),
    "hex in source code": "".join(f"\\x{byte:02X}" for byte in TEXT.encode()),
    "bytes in source code": repr(TEXT.encode()),
    "a shell's quotes": shlex.quote("it's " + TEXT),
    "a shell's double quotes": '"' + re.sub(r'(["$`\\])', r"\\\1", TEXT) + '"',
    "a shell's escapes": re.sub(r"([^\w@%+=:,./-])", r"\\\1", TEXT),
    "a name as git shows it": '"pa$$-\\"w\\303\\266rd\\"/7\\\\end"',
    "capital letters": TEXT.upper(),
    "decomposed": unicodedata.normalize("NFD", TEXT),
    "small and decomposed": unicodedata.normalize("NFD", TEXT.lower()),
    "url in a url": quote("https://a/?k=" + quote(TEXT, safe=""), safe=""),
    "html with numbers": html.escape(TEXT).encode("ascii", "xmlcharrefreplace"),
    "latin-1": TEXT.encode("latin-1"),
    **{f"base32 {n}": base64.b32encode(b"x" * n + TEXT.encode() + b"yz") for n in range(5)},
    "base32 in small letters": base64.b32encode(TEXT.encode()).lower().rstrip(b"="),
    "base64 in lines": base64.encodebytes(b"x" * 50 + TEXT.encode() + b"y" * 50),
    "base64 in lines of json": json.dumps({"a": base64.encodebytes(b"x" * 50 + TEXT.encode()).decode()}),
    "base64 in base64": base64.b64encode(b'{"auth": "' + base64.b64encode(b"user:" + TEXT.encode()) + b'"}'),
    "base64 of utf-16": base64.b64encode(TEXT.encode("utf-16-le")),
    "base64 of json": base64.b64encode(json.dumps({"a": TEXT}).encode()),
    "utf-16": TEXT.encode("utf-16-le"),
    "cut": f"it begins with {TEXT[:9]}…",
    "cut in front": f"...{TEXT[-9:]} is how it ends",
    "packed": json.dumps(
        {"data": base64.b85encode(zlib.compress(json.dumps({"words": [TEXT] * 9}).encode())).decode()}
    ),
    **{f"base64 {n}": base64.b64encode(b"x" * n + TEXT.encode() + b"yz") for n in range(3)},
    "base64 in json": json.dumps({"data": base64.b64encode(b"text: " + TEXT.encode()).decode()}),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_text_is_found_in_every_form(name: str) -> None:
    """SEC-12: whole or cut off, escaped, encoded, packed; JSON is JSON afterwards, and a second time finds nothing."""
    given = FORMS[name]
    data = given if isinstance(given, bytes) else given.encode()
    purge = TextPurge((TEXT, "it's " + TEXT)) if "quotes" in name else TextPurge((TEXT,))
    assert purge.is_in(data)
    left = purge.purged(data)
    assert not purge.is_in(left)
    if data[:1] in b'{"':
        json.loads(left)


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


@pytest.mark.parametrize(
    "found",
    ["it's%20a%20(key)%26more%C3%B6", "it%27s%20a%20%28key%29%26more%c3%b6",
     "it&#39;s a (key)&amp;moreö", "x = it\\u0027s a (key)\\u0026more\\u00F6", "it\\u0027s a (key)\\u0026moreö"],
)  # fmt: skip
def test_escapes_of_other_writers_are_found(found: str) -> None:
    """SEC-12: encodeURIComponent, percent signs in lower case, &#39;, and JSON that escapes what HTML means."""
    assert MARK.encode() == TextPurge(("it's a (key)&moreö",)).purged(found.removeprefix("x = ").encode())


def test_a_word_in_other_letters_is_another_word() -> None:
    """SEC-12: a text of letters alone is taken as it is written, so that `Content` isn't a word of the format."""
    assert not TextPurge(("Content",)).is_in(b'{"content":1}')
    assert TextPurge(("content-1",)).is_in(b"CONTENT-1")


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
