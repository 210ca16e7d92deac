"""A text taken out of bytes, in the forms in which it may stand there (SEC-12)."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

MARK = "(purged)"  # no brackets: those of links stay whole
MOST_CHARS = 8_000  # a longer text takes too long to look for in all forms
LEAST_CHARS = 6  # a shorter text stands everywhere by chance
_MARK = MARK.encode()
_LEAST_ENCODED = 8  # characters of base64 that are sure to come from the text
_LINE_CHARS = 16  # of a key in several lines, each line counts that is so long and has no space
_PACKED_CHARS = 38
_MOST_SHORT = 200  # characters of a text that is looked for in more forms: somebody encoded it again, or cut it off
_LEAST_CUT_OFF = 12  # of a text whose beginning and end count as well, where somebody cut it off
_LEAST_CUT = 8  # bytes of it that must be left there, and half of it: fewer stand before an ellipsis by chance
_BLANK = rb"(?: |\\n|\n)?"
_ELLIPSIS = (
    _BLANK + rb"\[?(?:\xe2\x80\xa6|\\u2026|\.\.\.)\]?" + _BLANK
)  # as previews, excerpts and summaries mark a cut
_MEMORY_BYTES = 1 << 30  # the most that the search may take, not what it takes: with less, long texts are slow
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_HASH = re.compile(rb"[0-9a-f]{40,64}")
_PACKED = re.compile(rb'"(?:c|e[A-Za-z0-9]|H4sI)[^"\\\s]{%d,}"' % _PACKED_CHARS)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_FREE = frozenset({"input", "arguments", "data"})  # whose members no format gives a meaning to
_FIXED = frozenset(
    (
        "format session type role id tool_use_id origin name kind model media_type trigger strategy stop_reason "
        "response_id"
    ).split()
)
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_WORD = re.compile(rb"[a-z_]+")
_ESCAPE = re.compile(r"(?<=\\u)[0-9a-f]{4}|%[0-9A-F]{2}")
_IN_DOUBLE_QUOTES, _UNQUOTED = re.compile(r'["$`\\]'), re.compile(r"[^\w@%+=:,./-]")  # what shells escape
_BETWEEN_HEX = rb"(?: {1,2}|[:,-]|\\+x|,? ?0x|%|;&#x)?"
_AROUND = b"[A-Za-z0-9+/_-]?%b[A-Za-z0-9+/_-]?"  # characters of which only a part comes from the text
_BETWEEN_LINES = rb"(?:\s|\\+[rn])*"
_FOR_HTML = {ord(char): f"\\u{ord(char):04x}" for char in "&<>'"}  # as JSON is written to stand in a page


def forms_of(text: str) -> tuple[bytes, ...]:
    """The bytes in which a text may stand: in a shell, in JSON and in JSON within JSON, in URLs, HTML, UTF-16."""
    spelled = tuple(dict.fromkeys(_spellings(text)))
    wide = {*spelled, *(written for form in spelled for write in _WRITERS for written in write(form))}
    forms = {escaped for form in wide for escaped in _in_json(form)}
    for form in spelled:
        raw = form.encode("utf-8", "surrogatepass")
        in_urls = {_in_url(raw, b""), _in_url(raw, b"/"), _in_url(raw, b"!'()*"), _in_url(raw, b" ").replace(" ", "+")}
        in_urls |= {one.replace("%", "%25") for one in in_urls}  # a URL as a parameter of another one
        forms |= in_urls | {_ESCAPE.sub(lambda found: found.group().lower(), one) for one in in_urls}
        in_html = {html.escape(form), html.escape(form, quote=False)}
        in_html |= {one.replace("&#x27;", "&#39;").replace("&quot;", "&#34;") for one in in_html}
        forms |= in_html | {one.encode("ascii", "xmlcharrefreplace").decode() for one in in_html}
        forms |= {repr(raw)[2:-1], *(_octal(one) for one in (form, form.replace("\\", "\\\\").replace('"', '\\"')))}
        forms |= {raw.hex(), raw.hex().upper()}
    found = {form.encode("utf-8", "surrogatepass") for form in forms}
    found |= {form.encode(kind, "surrogatepass") for form in wide for kind in ("utf-16-le", "utf-16-be")}
    found |= {form.encode("latin-1") for form in spelled if max(form) <= "\xff"}
    return tuple(sorted(found, key=lambda one: (-len(one), one)))


def _in_json(text: str) -> Iterator[str]:
    """As it is, and escaped up to three times."""
    yield text
    for is_ascii in (True, False):
        escaped = text
        for _ in range(3):
            escaped = json.dumps(escaped, ensure_ascii=is_ascii)[1:-1]
            for_html = escaped.translate(_FOR_HTML)
            yield from (escaped, escaped.replace("/", "\\/"), for_html)
            yield from (_ESCAPE.sub(lambda found: found.group().upper(), one) for one in (escaped, for_html))


def _spellings(text: str) -> Iterator[str]:
    """A text composed and decomposed, in small letters and in capital ones. A mere word in those is another word."""
    is_cased = len(text) <= _MOST_SHORT and not text.isalpha()
    for form in (text, text.lower(), text.upper()) if is_cased else (text,):
        yield from (form, unicodedata.normalize("NFC", form), unicodedata.normalize("NFD", form))


def _octal(text: str) -> str:
    """As git shows names."""
    return "".join(chr(byte) if byte < 128 else f"\\{byte:03o}" for byte in text.encode("utf-8", "surrogatepass"))


_WRITERS: tuple[Callable[[str], tuple[str, ...]], ...] = (
    lambda text: (text.replace("\\", "\\\\"), repr(text)[1:-1]),  # source code
    lambda text: (_IN_DOUBLE_QUOTES.sub(r"\\\g<0>", text), _UNQUOTED.sub(r"\\\g<0>", text)),  # a shell
    lambda text: tuple(text.replace("'", quote) for quote in ("'\\''", "'\"'\"'", "\\'", "''")),  # a shell, SQL, YAML
    lambda text: (text.replace("\r\n", "\n"), text.replace("\r\n", "\n").replace("\n", "\r\n")),
)


def _in_url(raw: bytes, safe: bytes) -> str:
    """As a part of a URL; what is `safe` stays."""
    return "".join(chr(byte) if byte in _UNRESERVED or byte in safe else f"%{byte:02X}" for byte in raw)


def encoded_forms(text: str) -> Iterator[bytes]:
    """What base64 and base32 of anything that holds the text must hold: one for each place where it may begin there."""
    raw = text.encode("utf-8", "surrogatepass")
    for shift in range(3):
        core = _core(base64.b64encode, 6, shift, raw)
        yield from {core, core.translate(bytes.maketrans(b"+/", b"-_"))}
    for shift in range(5):
        core = _core(base64.b32encode, 5, shift, raw)
        yield from (core, core.lower())


def _core(encode: Callable[[bytes], bytes], bits: int, shift: int, raw: bytes) -> bytes:
    """The characters, of so many bits, that are sure to come from these bytes where so many others stand before."""
    return encode(b"\0" * shift + raw)[-(-shift * 8 // bits) : (shift + len(raw)) * 8 // bits]


def _encoded_patterns(text: str, escape: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """What else a text may be in: hex with something between its bytes, base64 and base32 in lines or encoded again."""
    inner = {*_spellings(text), *(json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))}
    cores = dict.fromkeys(core for one in sorted(inner) for core in encoded_forms(one))
    wide = text.encode("utf-16-le", "surrogatepass")
    cores |= dict.fromkeys(_core(base64.b64encode, 6, shift, wide) for shift in range(3))
    for core in cores:
        if len(core) >= _LEAST_ENCODED:
            yield _AROUND % _BETWEEN_LINES.join(escape(core[at : at + 1]) for at in range(len(core)))
    for one in inner:
        raw = one.encode("utf-8", "surrogatepass")
        yield b"(?i:%b)" % _BETWEEN_HEX.join(b"%02x" % byte for byte in raw)
        first = (_core(base64.b64encode, 6, shift, raw) for shift in range(3))
        again = (_core(base64.b64encode, 6, shift, core) for core in first for shift in range(3))
        yield from (_AROUND % escape(core) for core in again if len(core) >= _LEAST_ENCODED)


@dataclass(slots=True)
class FixedPlaces:
    """Places of a format in which the text stands and can't be replaced, such as the name of a tool."""

    names: set[str] = field(default_factory=set)


@dataclass(eq=False)
class TextPurge:
    """Texts to take out, and what content-addressed names become with the content that they name.

    Args:
        texts: each with `LEAST_CHARS` to `MOST_CHARS` characters.
        quotes: lines that others may have quoted, which nobody encodes: looked for as they are and in JSON.
        addresses: hashes in hex that are replaced wherever they stand; may grow.
        names: names of files that were made from the texts, and what they become.
    """

    texts: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()
    addresses: dict[bytes, bytes] = field(default_factory=dict)
    names: dict[bytes, bytes] = field(default_factory=dict)

    @cached_property
    def _pattern(self) -> Any:
        import re2  # only who purges needs it

        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = _MEMORY_BYTES
        options.log_errors = False
        lines = [line for text in self.texts for line in _key_lines(text)]
        short = [text for text in self.texts if len(text) <= _MOST_SHORT]
        plain = dict.fromkeys(form for text in (*self.texts, *lines) for form in forms_of(text))
        plain |= dict.fromkeys(form.encode() for quote in self.quotes for form in _in_json(quote))
        wanted = [re2.escape(form) for form in plain]
        for text in (*self.texts, *lines):
            inside = (core for core in encoded_forms(text) if len(core) >= _LEAST_ENCODED)
            wanted += (
                _encoded_patterns(text, re2.escape) if text in short else (_AROUND % re2.escape(c) for c in inside)
            )
        for text in short:
            if len(text) >= _LEAST_CUT_OFF and not any(char.isspace() for char in text):
                for form in (text.encode("utf-8", "surrogatepass"), *encoded_forms(text)):
                    wanted += _cut_forms(form, re2.escape)
        return re2.compile(b"|".join(dict.fromkeys(wanted)) if wanted else rb"[^\s\S]", options)

    def is_in(self, data: bytes) -> bool:
        """Whether a text stands in these bytes, whatever they are."""
        return bool(self._pattern.search(data)) or self.purged(data) != data

    def purged(self, data: bytes) -> bytes:
        """Bytes of any kind without the texts; the same ones where none is in them."""
        data = self._renamed(data)
        if b"\n{" in data:  # lines of JSON: most of them needn't be taken apart
            data = b"\n".join(self.purged_json(line, None) for line in data.split(b"\n"))
        elif data.lstrip()[:1] in (b"{", b"["):
            data = self.purged_json(data, None)
        return self._addressed(self._pattern.sub(_MARK, data))

    def purged_json(self, data: bytes, fixed: FixedPlaces | None) -> bytes:
        """JSON, or lines of it, of which only strings change that hold a text. All other bytes stay as they are.

        With `fixed`, what a format gives a meaning to isn't replaced but named there.
        """
        data = self._renamed(data)
        may_hold = self._pattern.search(data) or b"\\u" in data or _PACKED.search(data)
        if not may_hold:
            return self._addressed(data)
        parts: list[bytes] = []
        at = 0
        for start, end, key, is_key, is_free in _strings(data):
            token = data[start:end]
            new = self._purged_token(token)
            if new == token:
                continue
            means_something = not is_free and (_WORD.fullmatch(token[1:-1]) if is_key else key in _FIXED)
            if fixed is not None and means_something:
                fixed.names.add(token[1:-1].decode("utf-8", "replace") if is_key else key)
                continue
            parts += [data[at:start], new]
            at = end
        return self._addressed(b"".join((*parts, data[at:])))

    def _purged_token(self, token: bytes) -> bytes:
        try:
            text = json.loads(token)
        except ValueError:
            return token
        inner = text.encode("utf-8", "surrogatepass")
        new = self._purged_value(inner)
        return token if new == inner else json.dumps(new.decode("utf-8", "replace"), ensure_ascii=False).encode()

    def _purged_value(self, value: bytes) -> bytes:
        """What a string holds: packed, encoded, or as it is."""
        if _PACKED.fullmatch(b'"%b"' % value):
            for unpack, pack in _PACKINGS:
                try:
                    inner = unpack(value)
                except (ValueError, zlib.error, OSError, EOFError):
                    continue
                new = self.purged(inner)
                return value if new == inner else pack(new)
        if not self._pattern.search(value):
            return value
        if _BASE64.fullmatch(value) and len(value) % 4 == 0:
            inner = base64.b64decode(value)
            if (new := self.purged(inner)) != inner:
                return base64.b64encode(new)
        return bytes(self._pattern.sub(_MARK, value))

    def _renamed(self, data: bytes) -> bytes:
        for old, new in self.names.items():
            data = data.replace(old, new)
        return data

    def _addressed(self, data: bytes) -> bytes:
        if not self.addresses:
            return data
        return _HASH.sub(lambda found: self.addresses.get(found.group(), found.group()), data)


_PACKINGS: tuple[tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]], ...] = (
    (lambda data: zlib.decompress(base64.b85decode(data)), lambda data: base64.b85encode(zlib.compress(data))),
    (lambda data: zlib.decompress(base64.b64decode(data)), lambda data: base64.b64encode(zlib.compress(data))),
    (lambda data: gzip.decompress(base64.b64decode(data)), lambda data: base64.b64encode(gzip.compress(data, mtime=0))),
)


def _cut_forms(form: bytes, escape: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
    """What stands where somebody cut it off: its beginning right before an ellipsis, or its end right behind one."""
    least = max(_LEAST_CUT, (len(form) + 1) // 2)
    beginning = b"".join(b"(?:" + escape(form[at : at + 1]) for at in range(least, len(form)))
    end = b"".join(escape(form[at : at + 1]) + b")?" for at in range(len(form) - least))
    return (
        escape(form[:least]) + beginning + b")?" * (len(form) - least) + _ELLIPSIS,
        _ELLIPSIS + b"(?:" * (len(form) - least) + end + escape(form[len(form) - least :]),
    )


def _key_lines(text: str) -> Iterable[str]:
    """The lines of a key in several lines, which somebody may have shown with numbers or in quotes."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if len(lines) > 1 and len(line) >= _LINE_CHARS and " " not in line]


def _strings(data: bytes) -> Iterator[tuple[int, int, str, bool, bool]]:
    """Each string of JSON: where it stands, the member that it belongs to, whether it names one, whether it is free."""
    open_keys: list[str | None] = []  # of each object that is open its last key, and of a list that of what holds it
    for found in _TOKEN.finditer(data):
        token = found.group()
        if token in b"{[":
            open_keys.append(open_keys[-1] if open_keys and token == b"[" else None)
        elif token in b"}]":
            if open_keys:
                open_keys.pop()
        else:
            after = data[found.end() : found.end() + 8].lstrip()
            is_free = any(key in _FREE for key in open_keys[:-1])
            is_key = after[:1] == b":"
            if is_key and open_keys:
                open_keys[-1] = token[1:-1].decode("utf-8", "replace")
            yield found.start(), found.end(), (open_keys[-1] if open_keys else None) or "", is_key, is_free
