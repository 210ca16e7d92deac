"""A text taken out of bytes, as it was said and in the forms that our own files give it (SEC-12)."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

MARK = "(purged)"  # no brackets: those of links stay whole
MOST_CHARS = 8_000  # a longer text takes too long to look for in all forms
LEAST_CHARS = 6  # a shorter text stands everywhere by chance
_MARK = MARK.encode()
_LINE_CHARS = 16  # of a key in several lines, each line counts that is so long and has no space
_PACKED_CHARS = 38
_MOST_SHORT = 200  # characters of a text that is looked for where a preview cut it off, too
_LEAST_CUT_OFF = 12  # of a text whose beginning and end count as well, where a preview cut it off
_LEAST_CUT = 8  # bytes of it that must be left there, and half of it: fewer stand before an ellipsis by chance
_BLANK = rb"(?: |\\n|\n)?"
_ELLIPSIS = (
    _BLANK + rb"\[?(?:\xe2\x80\xa6|\\u2026|\.\.\.)\]?" + _BLANK
)  # as previews, excerpts and summaries mark a cut
_MEMORY_BYTES = 1 << 30  # the most that the search may take, not what it takes: with less, long texts are slow
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_HASH = re.compile(rb"[0-9a-f]{40,64}")
_PACKED = re.compile(rb'"c[^"\\\s]{%d,}"' % _PACKED_CHARS)  # a ledger: zlib in base85
_FREE = frozenset({"input", "arguments", "data"})  # whose members no format gives a meaning to
_FIXED = frozenset(
    (
        "format session type role id tool_use_id origin name kind model media_type trigger strategy stop_reason "
        "response_id"
    ).split()
)
_WORD = re.compile(rb"[a-z_]+")
_ESCAPE = re.compile(r"(?<=\\u)[0-9a-f]{4}")
_FOR_HTML = {ord(char): f"\\u{ord(char):04x}" for char in "&<>'"}  # as JSON is written to stand in a page


def forms_of(text: str) -> tuple[bytes, ...]:
    """The bytes in which a text may stand: as it was said, as memories and titles spell it, in JSON and JSON in that.

    A mere word with a capital letter is another word.
    """
    capital = text if text.isalpha() else text[:1].upper() + text[1:]
    said = dict.fromkeys((text, capital, " ".join(text.split())))
    found = {form.encode("utf-8", "surrogatepass") for one in said for form in _in_json(one)}
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
        plain = dict.fromkeys(form for text in (*self.texts, *lines) for form in forms_of(text))
        plain |= dict.fromkeys(form.encode() for quote in self.quotes for form in _in_json(quote))
        wanted = [re2.escape(form) for form in plain]
        for text in self.texts:
            if _LEAST_CUT_OFF <= len(text) <= _MOST_SHORT and not any(char.isspace() for char in text):
                wanted += _cut_forms(text.encode("utf-8", "surrogatepass"), re2.escape)
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
        """What a string holds: a packed ledger, or a text."""
        if _PACKED.fullmatch(b'"%b"' % value):
            try:
                inner = zlib.decompress(base64.b85decode(value))
            except (ValueError, zlib.error):
                pass
            else:
                new = self.purged(inner)
                return value if new == inner else base64.b85encode(zlib.compress(new))
        return bytes(self._pattern.sub(_MARK, value))

    def purged_msgpack(self, data: bytes) -> bytes:
        """MessagePack, of which only strings change that hold a text, and those that name members.

        Raises:
            msgspec.DecodeError: It is something else.
        """
        value = msgspec.msgpack.decode(data)
        new = self._purged_tree(value)
        return data if new == value else msgspec.msgpack.encode(new)

    def _purged_tree(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._addressed(self._purged_value(self._renamed(value.encode()))).decode("utf-8", "replace")
        if isinstance(value, bytes):
            return self.purged(value)
        if isinstance(value, list):
            return [self._purged_tree(one) for one in value]
        if isinstance(value, dict):
            return {self._purged_tree(key): self._purged_tree(one) for key, one in value.items()}
        return value

    def _renamed(self, data: bytes) -> bytes:
        for old, new in self.names.items():
            data = data.replace(old, new)
        return data

    def _addressed(self, data: bytes) -> bytes:
        if not self.addresses:
            return data
        return _HASH.sub(lambda found: self.addresses.get(found.group(), found.group()), data)


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
