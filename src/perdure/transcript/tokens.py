"""Tokens: what a piece of content costs, without asking anyone, and how big a block is by the base rule and the live
estimate.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from perdure.transcript.blocks import Block, Document, Image, Text, Thinking, ToolResult, unmarked

Estimator = Callable[[str], int]
"""Text in, tokens out."""

UNITS_PER_TOKEN: Final = 4  # TOK-1, base rule
IMAGE_TOKENS_DEFAULT: Final = 2_000  # TOK-2: an image of unknown size
IMAGE_PATCH_PIXELS: Final = 28  # TOK-2: one token is a square of 28 by 28 pixels
IMAGE_CAP_TOKENS: Final = 1_568  # TOK-2: a model's cap; newer models take more
IMAGE_CAP_EDGE_PIXELS: Final = 1_568
PDF_PAGE_TOKENS: Final = 2_250  # TOK-2: Anthropic says 1,500 to 3,000 for a page (its text and its picture); the middle
PDF_BYTES_PER_PAGE: Final = 32_768  # TOK-2: when a PDF hides its page tree; rather too many pages than too few
PDF_PAGES_MAX: Final = 600  # TOK-2: no provider takes more; a broken page count must not blow up the view


# --- the base rule -------------------------------------------------------------------------------------------------


def utf16_units(text: str) -> int:
    """Length of `text` in UTF-16 code units, as JavaScript counts (TOK-1). Lone surrogates count one."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def base_tokens_of_units(units: int) -> int:
    """TOK-1: floor(units / 4 + 0.5), half rounds up. `units` are UTF-16 code units."""
    return (units + UNITS_PER_TOKEN // 2) // UNITS_PER_TOKEN


def base_tokens(text: str) -> int:
    """TOK-1, the base rule: floor(UTF-16 units / 4 + 0.5), per block."""
    return base_tokens_of_units(utf16_units(text))


# --- the class-aware estimator -------------------------------------------------------------------------------------
#
# A sum of counts, each with a price in hundredths of a token: so much for each character of a class, so much for each
# run of it. No count falls when text is appended and no price is negative, so a text is never cheaper than its own
# beginning. Dense text (base64, wrapped or not, hex, ids) needs no detector: there the case turns over and digits
# break in all the time, and those turns have prices. The prices are a fit to five published tokenizers, none of them
# a current Claude; docs/how/tokens.md has the errors and how the fit was made.

_LOWER, _UPPER, _DIGIT, _MARK, _SPACE, _NEWLINE, _HIGH = (1 << bit for bit in range(7))  # a bit for each class of byte


def _class_of(code: int) -> int:
    char = chr(code)
    if code >= 0x80:
        return _HIGH
    if char.isalpha():
        return _LOWER if char.islower() else _UPPER
    if char.isdigit():
        return _DIGIT
    return _NEWLINE if char in "\r\n" else _SPACE if char in " \t" else _MARK


_CLASSES: Final = bytes(_class_of(code) for code in range(256))
_CHUNK_BYTES: Final = 65_536  # integers of this size stay in the processor's cache
_EACH: Final = {bit: int.from_bytes(bytes([bit]) * _CHUNK_BYTES, "little") for bit in (1 << n for n in range(6))}

# prices in 1/100 token: of each byte of a class ...
_PER_LOWER, _PER_UPPER, _PER_DIGIT, _PER_MARK, _PER_SPACE, _PER_NEWLINE = 12, 24, 20, 15, 6, 76
# ... of each run of it: a word, a number, some punctuation ...
_WORD, _NUMBER, _MARKS = 38, 142, 77
# ... and of the turns that only dense text makes often: AbC and 7X
_CASE_FLIP, _DIGIT_UPPER = 148, 150

_NOT_LEADING: Final = bytes(range(0xC0))  # ASCII and the continuation bytes of UTF-8
_SCRIPTS: Final = (  # key, first and last leading byte in UTF-8, price of a character in 1/100 token
    (b"l", 0xC0, 0xCD, 160),  # Latin with diacritics, which breaks words in pieces
    (b"g", 0xCE, 0xCF, 44),  # Greek
    (b"c", 0xD0, 0xD3, 38),  # Cyrillic
    (b"m", 0xD4, 0xDF, 40),  # Armenian, Hebrew, Arabic
    (b"i", 0xE0, 0xE1, 52),  # Indic, Thai, other alphabets of three bytes
    (b"s", 0xE2, 0xE2, 50),  # quotes, dashes, arrows, box drawing: alone they cost about 1, in rulers much less
    (b"k", 0xE3, 0xE3, 64),  # kana and CJK punctuation
    (b"h", 0xE4, 0xE9, 87),  # Han
    (b"o", 0xEA, 0xED, 74),  # hangul
    (b"f", 0xEE, 0xEF, 120),  # full-width forms, private use
    (b"e", 0xF0, 0xFF, 200),  # emoji and rare characters
)
_SCRIPT_OF: Final = bytes(
    next((key[0] for key, first, last, _ in _SCRIPTS if first <= code <= last), 0) for code in range(256)
)


def live_tokens(text: str) -> int:
    """TOK-1: class-aware estimate of `text`, for content newer than the last reported usage, and for anything over
    50 KB. No text costs nothing; any text costs at least 1. Appending never lowers it. Lone surrogates are fine.
    """
    return live_tokens_bytes(text.encode("utf-8", "surrogatepass"))


def live_tokens_bytes(data: bytes) -> int:
    """`live_tokens` of text that is at hand as UTF-8 bytes.

    Of the text itself, not of its JSON string literal: a model is sent the line feed, not the two characters of its
    escape. Linear, at a speed that does not depend on what the text is (`python bench/tokens.py` shows it).
    """
    if not data:
        return 0
    cost = sum(_ascii_cost(data[at : at + _CHUNK_BYTES]) for at in range(0, len(data), _CHUNK_BYTES))
    if not data.isascii():
        cost += _scripts_cost(data)
    return max(1, (cost + 50) // 100)


def _ascii_cost(chunk: bytes) -> int:
    """Price of the ASCII characters of at most `_CHUNK_BYTES` bytes, in 1/100 token.

    The chunk becomes one integer with a byte for each character and in it the bit of the character's class. A shift
    by eight lays each character over the one before it, so `&` compares all neighbours at once, and counting is
    `bit_count`: all in C, a few nanoseconds for a byte. A run begins where a character does not go on from the one
    before: as many as its characters less those that do. What crosses from chunk to chunk is not seen.
    """
    here = int.from_bytes(chunk.translate(_CLASSES), "little")
    after = here >> 8
    goes_on = here & after  # this character and the next are of one class
    lower, digits, marks = (here & _EACH[bit] for bit in (_LOWER, _DIGIT, _MARK))
    return (
        (_PER_LOWER + _WORD) * lower.bit_count()
        - _WORD * (lower & goes_on).bit_count()
        + (_PER_DIGIT + _NUMBER) * digits.bit_count()
        - _NUMBER * (digits & goes_on).bit_count()
        + (_PER_MARK + _MARKS) * marks.bit_count()
        - _MARKS * (marks & goes_on).bit_count()
        + _PER_UPPER * (here & _EACH[_UPPER]).bit_count()
        + _PER_SPACE * (here & _EACH[_SPACE]).bit_count()
        + _PER_NEWLINE * (here & _EACH[_NEWLINE]).bit_count()
        + _CASE_FLIP * (here & (after << 1) & (after >> 8) & _EACH[_UPPER]).bit_count()
        + _DIGIT_UPPER * ((here >> 1) & after & _EACH[_UPPER]).bit_count()
    )


def _scripts_cost(data: bytes) -> int:
    """Price of the non-ASCII characters, by script, in 1/100 token."""
    leading = data.translate(_SCRIPT_OF, _NOT_LEADING)
    return sum(price * leading.count(key) for key, _, _, price in _SCRIPTS)


# --- images ---------------------------------------------------------------------------------------------------------


def image_tokens(
    width: int | None,
    height: int | None,
    *,
    cap_tokens: int = IMAGE_CAP_TOKENS,
    cap_edge: int = IMAGE_CAP_EDGE_PIXELS,
) -> int:
    """TOK-2: tokens of an image of `width` by `height` pixels.

    Unknown size: 2,000. Else the image is scaled down until its long edge is `cap_edge` pixels, then costs one token
    for each patch of 28 by 28 begun, and never more than `cap_tokens`.
    """
    if width is None or height is None or width <= 0 or height <= 0:
        return IMAGE_TOKENS_DEFAULT
    edge = max(width, height)
    if edge > cap_edge:
        width, height = max(1, width * cap_edge // edge), max(1, height * cap_edge // edge)
    return min(cap_tokens, -(-width // IMAGE_PATCH_PIXELS) * -(-height // IMAGE_PATCH_PIXELS))


def image_size(data_head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels from the first bytes of a PNG, JPEG, GIF or WebP (TOK-2); None when not told.

    Never raises: cut, foreign or hostile bytes give None. A JPEG may say its size late, behind embedded previews
    and colour profiles; hand in what there is.
    """
    size = _image_size(data_head)
    return size if size is not None and size[0] > 0 and size[1] > 0 else None


def _image_size(head: bytes) -> tuple[int, int] | None:
    if head[:8] == b"\x89PNG\r\n\x1a\n" and head[12:16] == b"IHDR" and len(head) >= 24:
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head[:2] == b"\xff\xd8":
        return _jpeg_size(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 25:
        return _webp_size(head)
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """Walks the marker segments to the first start of frame (SOF0..SOF15 but DHT, JPG and DAC)."""
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without a segment
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
        elif marker in (0xD9, 0xDA):  # the end, or the picture itself: no frame header came
            return None
        else:
            at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X" and len(head) >= 30:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a" and len(head) >= 30:
        return (
            int.from_bytes(head[26:28], "little") & 0x3FFF,
            int.from_bytes(head[28:30], "little") & 0x3FFF,
        )
    if kind == b"VP8L" and head[20] == 0x2F:
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def image_size_base64(data: str) -> tuple[int, int] | None:
    """`image_size` of a base64 picture (a `data:` prefix is allowed), decoding as much of its head as is needed."""
    start = data.find(",") + 1 if data.startswith("data:") else 0
    for chars in (64, 4_096, 65_536, 1_048_576):
        head = _decoded(data[start : start + chars])
        size = image_size(head)
        if size is not None or start + chars >= len(data) or head[:2] != b"\xff\xd8":
            return size
    return None


def _decoded(encoded: str) -> bytes:
    """Base64 to bytes; what is not base64 gives as much as can be read of it, at worst nothing."""
    try:
        raw = encoded.encode("ascii", "ignore").translate(None, b"\r\n\t =")
        return binascii.a2b_base64(raw[: len(raw) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


# --- documents ------------------------------------------------------------------------------------------------------

_PDF_PAGE = rb"/Type\s*/Page(?![A-Za-z])"
_PDF_LINEARIZED = rb"/Linearized\b[^>]{0,200}?/N\s+(\d{1,6})"
_PDF_COUNT = rb"/Type\s*/Pages\b[^>]{0,200}?/Count\s+(\d{1,6})|/Count\s+(\d{1,6})[^>]{0,200}?/Type\s*/Pages\b"


def document_tokens(*, text: str | None = None, pdf_base64: str | None = None) -> int:
    """TOK-2: tokens of a document, from the best that is known of it.

    Its text if it is a text document; else the pages that the PDF says it has, at 2,250 each (Anthropic names 1,500 to
    3,000), or its size at one page for 32 KiB begun; else the default of an image.
    """
    if text is not None:
        return live_tokens(text)
    if pdf_base64 is None:
        return IMAGE_TOKENS_DEFAULT
    raw = _decoded(pdf_base64)
    size_bytes = len(raw) or len(pdf_base64) * 3 // 4
    pages = pdf_pages(raw) or -(-size_bytes // PDF_BYTES_PER_PAGE)
    return min(max(pages, 1), PDF_PAGES_MAX) * PDF_PAGE_TOKENS


def pdf_pages(data: bytes) -> int | None:
    """Pages of a PDF as far as it says so in the clear; None when its page tree is compressed (TOK-2)."""
    linearized = re.search(_PDF_LINEARIZED, data[:1_024])
    if linearized is not None:
        return int(linearized[1])
    counts = [int(found[1] or found[2]) for found in re.finditer(_PDF_COUNT, data)]
    return max(max(counts, default=0), len(re.findall(_PDF_PAGE, data))) or None


# --- a block by every rule ------------------------------------------------------------------------------------------

# TOK-1: a dense result (base64, hex, CJK) of this size makes characters over four wrong by half of the whole view.
DENSE_BYTES = 50_000


class Size(NamedTuple):
    """Tokens of something by three rules.

    `base`: characters over four. `live`: the class-aware estimate. `blind`: what counts when nothing was ever
    reported: the base rule, but the live estimate for results over 50 KB (TOK-1, TOK-3).
    """

    base: int
    live: int
    blind: int

    def plus(self, other: Size) -> Size:
        return Size(self.base + other.base, self.live + other.live, self.blind + other.blind)

    def minus(self, other: Size) -> Size:
        return Size(self.base - other.base, self.live - other.live, self.blind - other.blind)


NOTHING = Size(0, 0, 0)


def text_size(text: str) -> Size:
    """A text by every rule."""
    base = base_tokens(text)
    return Size(base, live_tokens(text), base)


_ENCODED_BYTES: Final = 256  # a text without a space that is longer holds no words
_BYTES_PER_HIDDEN_TOKEN: Final = 5  # four bytes of text, a third longer in base64


def block_size(block: Block) -> Size:
    """A block by every rule. Images count 2,000 by the base rule, live by their dimensions; thinking, its text."""
    value = block.value
    if isinstance(value, Text):
        return text_size(value.text)
    if isinstance(value, ToolResult):
        return _result_size(value)
    if isinstance(value, Thinking):
        return text_size(value.thinking)
    if isinstance(value, Image):
        return Size(IMAGE_TOKENS_DEFAULT, _image_live_tokens(value.source), IMAGE_TOKENS_DEFAULT)
    if isinstance(value, Document):
        tokens = _document_tokens_of(value.source)
        return Size(tokens, tokens, tokens)
    return _kept_item_size(block.raw) if block.type == "response_item" else json_size(unmarked(block.raw))


def _kept_item_size(raw: bytes) -> Size:
    """An item that is kept whole: what is encrypted or encoded in it costs about what it stands for."""
    item = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).get("item", b"{}")
    fields = [bytes(value) for value in msgspec.json.decode(item, type=dict[str, msgspec.Raw]).values()]
    hidden = [value for value in fields if len(value) > _ENCODED_BYTES and b" " not in value and value[:1] == b'"']
    told = json_size(b",".join(value for value in fields if value not in hidden))
    tokens = sum(map(len, hidden)) // _BYTES_PER_HIDDEN_TOKEN
    return told.plus(Size(tokens, tokens, tokens))


def json_size(raw: bytes) -> Size:
    """Compact JSON by every rule, taken as the text it is."""
    if raw.isascii():
        base = base_tokens_of_units(len(raw))
        return Size(base, live_tokens_bytes(raw), base)
    return text_size(raw.decode("utf-8", "replace"))


def _result_size(result: ToolResult) -> Size:
    if isinstance(result.content, str):
        size = text_size(result.content)
        return size._replace(blind=size.live) if len(result.content) > DENSE_BYTES else size
    total = NOTHING
    for part in result.parts():
        total = total.plus(block_size(part))
    return total


def image_edge(block: Block) -> int:
    """The longer edge of an image in pixels; 0 when the block is none, or its size can't be told (TURN-9)."""
    value = block.value
    return max(_pixels(value.source) or (0,)) if isinstance(value, Image) else 0


def image_bytes(block: Block) -> int:
    """Return the bytes of an image's base64 text; 0 when the block is none, or only says where it is (TURN-9)."""
    data = block.value.source.get("data") if isinstance(block.value, Image) else None
    return len(data) if isinstance(data, str) else 0


def _pixels(source: dict[str, Any]) -> tuple[int, int] | None:
    data = source.get("data")
    return image_size_base64(data) if isinstance(data, str) else None


def _image_live_tokens(source: dict[str, Any]) -> int:
    size = _pixels(source)
    return image_tokens(*size) if size else IMAGE_TOKENS_DEFAULT


def _document_tokens_of(source: dict[str, Any]) -> int:
    data = source.get("data")
    if source.get("type") == "text" and isinstance(data, str):
        return document_tokens(text=data)
    if isinstance(data, str):
        return document_tokens(pdf_base64=data)
    content = source.get("content")
    return document_tokens(text=content if isinstance(content, str) else None)
