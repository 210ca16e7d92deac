"""TOK-1 and TOK-2: what text, images and documents are estimated to cost."""

from __future__ import annotations

import base64
import random
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.transcript.tokens import (
    IMAGE_TOKENS_DEFAULT,
    PDF_BYTES_PER_PAGE,
    PDF_PAGE_TOKENS,
    PDF_PAGES_MAX,
    base_tokens,
    base_tokens_of_units,
    document_tokens,
    image_size,
    image_size_base64,
    image_tokens,
    live_tokens,
    live_tokens_bytes,
    pdf_pages,
    utf16_units,
)

pytestmark = pytest.mark.unit

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
CHUNK_BYTES = 65_536


# --- TOK-1: the base rule --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("units", "tokens"),
    [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 1),
        (4, 1),
        (5, 1),
        (6, 2),
        (10, 3),
        (29_244, 7_311),
        (75_518, 18_880),
        (105_949, 26_487),
    ],
)
def test_tok1_base_rule_rounds_half_up(units: int, tokens: int) -> None:
    assert base_tokens_of_units(units) == tokens
    assert base_tokens("x" * units) == tokens


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("", 0),
        ("abc", 3),
        ("é", 1),
        ("漢字", 2),
        ("\N{GRINNING FACE}", 2),  # astral: a surrogate pair
        ("a\N{GRINNING FACE}b\U0010ffff", 6),
        ("\ud83d", 1),  # half of one
        ("\ude00\ud83d", 2),
    ],
)
def test_tok1_lengths_are_utf16_units(text: str, units: int) -> None:
    assert utf16_units(text) == units
    assert base_tokens(text) == (units + 2) // 4


@given(any_text, any_text)
def test_tok1_base_tokens_grow_with_the_text(text: str, more: str) -> None:
    assert 0 <= base_tokens(text) <= base_tokens(text + more)
    assert base_tokens(text) == int(utf16_units(text) / 4 + 0.5)


# --- TOK-1: the class-aware estimator --------------------------------------------------------------------------------


def test_tok1_nothing_costs_nothing() -> None:
    assert base_tokens("") == live_tokens("") == live_tokens_bytes(b"") == 0


@given(any_text, any_text)
@example("a", "B")
@example("7", "7X")
@example("\ud83d", "\ude00")
def test_tok1_live_tokens_grow_with_the_text(text: str, more: str) -> None:
    assert (1 if text else 0) <= live_tokens(text) <= live_tokens(text + more)


@given(st.text(st.sampled_from("abcXYZ019 \n\t.,/+=-é漢я\N{GRINNING FACE}")), st.integers(0, 60))
def test_tok1_a_prefix_is_never_dearer(text: str, cut: int) -> None:
    assert live_tokens(text[:cut]) <= live_tokens(text)


@given(any_text)
def test_tok1_live_tokens_of_bytes_and_text_agree(text: str) -> None:
    assert live_tokens(text) == live_tokens_bytes(text.encode("utf-8", "surrogatepass"))


@given(st.binary())
def test_tok1_live_tokens_take_any_bytes(data: bytes) -> None:
    assert live_tokens_bytes(data) >= (1 if data else 0)


def test_tok1_live_tokens_across_chunks() -> None:
    """Text is looked at in chunks; only what crosses a seam may be seen differently, which is a token or two."""
    sentence = "The cache of line 42 was not found, so `load_index()` reads it again.\n"
    long = sentence * 10_000
    assert len(long) > 10 * CHUNK_BYTES
    seams = len(long) // CHUNK_BYTES
    each = live_tokens(sentence * 100) / 100
    assert abs(live_tokens(long) - 10_000 * each) <= 2 * seams + 10_000 / 100
    around = [live_tokens(long[:size]) for size in range(CHUNK_BYTES - 3, CHUNK_BYTES + 4)]
    assert around == sorted(around)


def _random_bytes(size: int) -> bytes:
    return random.Random(1).randbytes(size)


# Tokens that cl100k, o200k, tekken, the first Claude tokenizer and DeepSeek's give for the text: the lowest and the
# highest of the five, opened by 10 % at either end. The estimate has to lie among them.
@pytest.mark.parametrize(
    ("text", "lowest", "highest"),
    [
        pytest.param("The quick brown fox jumps over the lazy dog. " * 20, 180, 222, id="prose"),
        pytest.param(base64.b64encode(_random_bytes(3_000)).decode(), 2_450, 3_360, id="base64"),
        pytest.param(base64.encodebytes(_random_bytes(3_000)).decode(), 2_504, 3_425, id="base64-wrapped"),
        pytest.param(_random_bytes(1_000).hex(), 1_023, 1_969, id="hex"),
        pytest.param("这个函数在读取配置文件时没有检查空值，所以服务启动以后会直接崩溃。" * 10, 171, 352, id="chinese"),
    ],
)
def test_tok1_live_tokens_lie_among_real_tokenizers(text: str, lowest: int, highest: int) -> None:
    assert lowest <= live_tokens(text) <= highest


def test_tok1_chars_by_four_misses_base64_and_live_does_not() -> None:
    text = base64.b64encode(_random_bytes(6_000)).decode()
    assert live_tokens(text) > 2 * base_tokens(text)


# --- TOK-2: images ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (None, None, IMAGE_TOKENS_DEFAULT),
        (100, None, IMAGE_TOKENS_DEFAULT),
        (0, 100, IMAGE_TOKENS_DEFAULT),
        (-1, 100, IMAGE_TOKENS_DEFAULT),
        (1, 1, 1),
        (28, 28, 1),
        (29, 28, 2),
        (1000, 1000, 36 * 36),
        (1568, 28, 56),
        (3136, 56, 56),  # scaled to 1568 by 28
        (1_000_000, 1, 56),  # scaled to 1568 by 1, never to nothing
        (1568, 1568, 1_568),  # 56 * 56, capped
        (8000, 8000, 1_568),
    ],
)
def test_tok2_image_tokens(width: int | None, height: int | None, tokens: int) -> None:
    assert image_tokens(width, height) == tokens


def test_tok2_image_caps_are_the_models() -> None:
    assert image_tokens(2576, 2576, cap_tokens=4_784, cap_edge=2_576) == 4_784
    assert image_tokens(2576, 28, cap_tokens=4_784, cap_edge=2_576) == 92
    assert image_tokens(3000, 3000, cap_tokens=100) == 100


@given(st.integers(1, 100_000), st.integers(1, 100_000), st.integers(1, 5_000), st.integers(28, 4_000))
def test_tok2_image_tokens_stay_within_the_cap(width: int, height: int, cap: int, edge: int) -> None:
    tokens = image_tokens(width, height, cap_tokens=cap, cap_edge=edge)
    assert 1 <= tokens <= cap
    assert tokens == image_tokens(height, width, cap_tokens=cap, cap_edge=edge)


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(5)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(3)


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def jpeg(width: int, height: int, *, before: bytes = b"", sof: int = 0xC0) -> bytes:
    app0 = segment(0xE0, b"JFIF\0" + bytes(9))
    return b"\xff\xd8" + app0 + before + segment(sof, struct.pack(">BHHB", 8, height, width, 3) + bytes(9))


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(body) + 12) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


def vp8x(width: int, height: int) -> bytes:
    return webp(b"VP8X", bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))


def vp8(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width | 0x4000, height))


def vp8l(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little"))


HEADERS = [
    pytest.param(png(640, 480), id="png"),
    pytest.param(gif(640, 480), id="gif"),
    pytest.param(jpeg(640, 480), id="jpeg"),
    pytest.param(jpeg(640, 480, sof=0xC2), id="jpeg-progressive"),
    pytest.param(
        jpeg(640, 480, before=segment(0xC4, bytes(30)) + b"\xff" + segment(0xE1, bytes(900))), id="jpeg-dht-fill"
    ),
    pytest.param(jpeg(640, 480, before=segment(0xE1, bytes(60_000)) * 3), id="jpeg-late"),
    pytest.param(vp8x(640, 480), id="webp-vp8x"),
    pytest.param(vp8(640, 480), id="webp-vp8"),
    pytest.param(vp8l(640, 480), id="webp-vp8l"),
]


@pytest.mark.parametrize("data", HEADERS)
def test_tok2_image_size(data: bytes) -> None:
    picture = data + bytes(5_000)
    assert image_size(picture) == (640, 480)
    encoded = base64.b64encode(picture).decode()
    assert image_size_base64(encoded) == (640, 480)
    assert image_size_base64("data:image/png;base64," + encoded) == (640, 480)
    assert image_size_base64(base64.encodebytes(picture).decode()) == (640, 480)


@pytest.mark.parametrize("data", HEADERS)
def test_tok2_a_cut_head_gives_the_size_or_nothing(data: bytes) -> None:
    for size in (*range(min(len(data), 64)), len(data) // 2, len(data) - 1):
        assert image_size(data[:size]) in (None, (640, 480))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"BM not one of the four",
        b"<svg width='3'>",
        png(0, 480),
        b"\xff\xd8\xff\xda" + bytes(40),  # the picture starts, no frame header came
        b"\xff\xd8\x00" + bytes(40),
        webp(b"VP8 ", bytes(20)),
        webp(b"VP8L", bytes(20)),
        webp(b"ALPH", bytes(20)),
    ],
)
def test_tok2_no_size_told(data: bytes) -> None:
    assert image_size(data) is None


@given(
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8", b"\xff\xd8\xff", b"RIFF0000WEBPVP8L"]),
    st.binary(),
)
def test_tok2_image_size_never_raises(magic: bytes, rest: bytes) -> None:
    size = image_size(magic + rest)
    assert size is None or (size[0] > 0 and size[1] > 0)


@given(any_text)
@example("data:")
@example("A")
@example("iVBORw0KGgo=")
def test_tok2_image_size_base64_never_raises(data: str) -> None:
    assert image_size_base64(data) is None or image_size_base64(data)


# --- TOK-2: documents ------------------------------------------------------------------------------------------------


def pdf(pages: int, *, tree: bool = True, leaves: bool = True) -> bytes:
    nodes = b"1 0 obj << /Type /Pages /Kids [] /Count %d >> endobj\n" % pages if tree else b""
    leaf = b"2 0 obj <</Type/Page /Parent 1 0 R>> endobj\n" if leaves else b""
    return b"%PDF-1.4\n" + nodes + leaf * pages + b"%%EOF"


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        (pdf(3), 3),
        (pdf(3, tree=False), 3),
        (pdf(7, leaves=False), 7),
        (b"%PDF-1.5\n1 0 obj\n<</Linearized 1/L 90210/O 12/E 5000/N 12/T 89000>>", 12),
        (b"%PDF-1.4 <</Count 4 /Kids [] /Type /Pages>>", 4),
        (b"%PDF-1.5 everything compressed", None),
        (b"", None),
    ],
)
def test_tok2_pages_of_a_pdf(data: bytes, pages: int | None) -> None:
    assert pdf_pages(data) == pages
    if pages is not None:
        assert document_tokens(pdf_base64=base64.b64encode(data).decode()) == pages * PDF_PAGE_TOKENS


def test_tok2_documents() -> None:
    assert document_tokens(text="some words") == live_tokens("some words")
    assert document_tokens(text="") == 0
    endless = base64.b64encode(b"%PDF-1.4 <</Count 999999 /Kids [] /Type /Pages>>").decode()
    assert document_tokens(pdf_base64=endless) == PDF_PAGES_MAX * PDF_PAGE_TOKENS
    assert document_tokens() == IMAGE_TOKENS_DEFAULT
    hidden = base64.b64encode(b"%PDF-1.5" + bytes(PDF_BYTES_PER_PAGE * 3)).decode()
    assert document_tokens(pdf_base64=hidden) == 4 * PDF_PAGE_TOKENS


@given(any_text)
def test_tok2_document_tokens_never_raise(data: str) -> None:
    assert document_tokens(pdf_base64=data) >= PDF_PAGE_TOKENS
