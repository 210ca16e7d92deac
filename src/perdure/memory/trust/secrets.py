"""Secrets found in texts and in JSON, and replaced by `{{secret:family:id}}` before anything is written (SEC-5)."""

from __future__ import annotations

import functools
import hashlib
import hmac
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from perdure.memory.trust.families import FAMILIES, SecretFamily

ID_CHARS = 8
MARK = re.compile(r"\{\{secret:[a-z0-9-]+:[0-9a-f]+\}\}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_STAND_IN = re.compile(
    r"your|example|placeholder|change.?me|redacted|dummy|sample|xxx+|\*\*\*|\.\.\.|<|\$\{|\$\(|\{\{|%\(|\$[A-Z_]+\b|"
    r"process\.env|os\.environ|getenv|import\.meta|secrets?\.|settings\.|config\.|self\.|this\.|https?://|\.\./",
    re.IGNORECASE,
)
_REPEATED = re.compile(r"(.)\1{9}")  # nobody's key: `ghp_xxxxxxxxxx…`
_LONG = 200  # in a long key such a run is no wonder
_NO_PASSWORD = re.compile(
    r"(?i)(?:sha|md|base|utf|argon|aes|rsa|oauth|pbkdf|h|v|step|line|page|rev)[-_]?[\d.]+[a-z]?\W*"
)
_JOINTS = re.compile(r"[._/-]")
_CODE = re.compile(r"[A-Za-z_][\w.]*[\[(]|[A-Za-z][a-z]*(?:[A-Z][a-z]+)+|[A-Z][A-Z_]+")
_PLAIN = frozenset("password passwd passphrase postgres secret admin root user guest mysql token test pass".split())
_MEMORY_BYTES = 32 << 20  # for each pattern at most; what doesn't fit makes it slow, and never wrong
_LEAST_BITS = 3.0  # a character, of values drawn by chance: of 12 characters nearly all have so much
_LEAST_CHANGES = 0.25  # of neighbouring characters: words change their kind seldom


@dataclass(frozen=True, slots=True)
class SecretFinding:
    """A secret in a text: the family, where it stands (characters), and its line from 1. Never the value."""

    family: str
    start: int
    end: int
    line: int


@dataclass(frozen=True, slots=True)
class RedactedText:
    """A text without its secrets, and what was found in it."""

    text: str
    findings: tuple[SecretFinding, ...] = ()


def find_secrets(text: str) -> tuple[SecretFinding, ...]:
    """All secrets of a text, in order; where two families fit, the one listed first."""
    data = text.encode("utf-8", "surrogatepass")
    spans = sorted(_spans(data))
    if not spans:
        return ()
    found, at, chars, line = [], 0, 0, 1
    for start, end, family in spans:
        before, inside = data[at:start], data[start:end]
        line += before.count(b"\n")
        chars += _length(before)
        found.append(SecretFinding(family, chars, chars + _length(inside), line))
        line += inside.count(b"\n")
        chars, at = found[-1].end, end
    return tuple(found)


def _length(data: bytes) -> int:
    return len(data.decode("utf-8", "surrogatepass"))


def redact(text: str, key: bytes = b"") -> RedactedText:
    """The text with `{{secret:family:id}}` in the place of each secret. Doing it twice changes nothing more."""
    findings = find_secrets(text)
    if not findings:
        return RedactedText(text)
    marks = _marks(text, findings, key)
    parts, at = [], 0
    for finding in findings:
        parts += [text[at : finding.start], marks[text[finding.start : finding.end]]]
        at = finding.end
    return RedactedText("".join((*parts, text[at:])), findings)


def stand_ins(text: str, key: bytes = b"") -> Mapping[str, str]:
    """Each secret of a text with what stands for it, longest first, for other texts that hold the same ones."""
    marks = _marks(text, find_secrets(text), key)
    return dict(sorted(marks.items(), key=lambda pair: -len(pair[0])))


def _marks(text: str, findings: tuple[SecretFinding, ...], key: bytes) -> dict[str, str]:
    marks: dict[str, str] = {}
    for one in findings:
        value = text[one.start : one.end]
        if value not in marks:
            marks[value] = f"{{{{secret:{one.family}:{secret_id(value, key) if key else len(marks) + 1}}}}}"
    return marks


def secret_id(value: str, key: bytes) -> str:
    """The id of a secret, which only the key's holder can compute."""
    return hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:ID_CHARS]


# --- the scan -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SecretEngine:
    words: Any  # the set of all words: which of them are in a text
    of_word: tuple[tuple[int, ...], ...]  # the families of each word
    always: tuple[int, ...]
    patterns: tuple[Any, ...]
    marks: Any  # the words of families with a mark of their own
    seam: Any


@functools.cache
def _engine() -> _SecretEngine:
    import re2  # when the first text is scanned, not when the package is imported (SPD-5)

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    words = re2.Set.SearchSet(options)
    families: dict[str, list[int]] = {}
    for number, family in enumerate(FAMILIES):
        for word in family.words:
            families.setdefault(word, []).append(number)
    for word in families:
        words.Add(word)
    words.Compile()
    marks = re2.Set.SearchSet(options)
    for word in {word for family in FAMILIES if family.is_marked for word in family.words}:
        marks.Add(word)
    marks.Compile()
    return _SecretEngine(
        words,
        tuple(tuple(numbers) for numbers in families.values()),
        tuple(number for number, family in enumerate(FAMILIES) if not family.words),
        tuple(re2.compile(family.pattern.encode(), options) for family in FAMILIES),
        marks,
        re2.compile(_SEAM, options),
    )


def _spans(data: bytes) -> list[tuple[int, int, str]]:
    """Where secrets stand, in bytes; earlier families first come, first served."""
    engine = _engine()
    taken: dict[int, tuple[int, str]] = {}  # by its start: the end, and the family
    is_taken = bytearray(len(data))

    def take(start: int, end: int, name: str) -> None:
        is_taken[start:end] = b"\1" * (end - start)
        taken[start] = end, name

    for number in sorted({*engine.always, *_worth_a_try(engine, data)}):
        family = FAMILIES[number]
        for start, end in _matches(engine.patterns[number], data):
            if is_taken.find(1, start, end) < 0 and _fits(family, data, start, end):
                take(start, end, family.name)
    for start, end, name in _split(engine, data):
        known = taken[start][0] if start in taken else start  # perhaps the beginning of a longer value
        if is_taken.find(1, known, end) < 0:
            reached = _goes_on(data, known, end) if known > start else end
            if reached > known:
                take(start, reached, name)
    return [(start, end, name) for start, (end, name) in taken.items()]


def _goes_on(data: bytes, at: int, end: int) -> int:
    """Up to where what stands behind breaks goes on with a value, rather than with other words."""
    reached = at
    for found in (*_BREAK.finditer(data, at, end), None):
        piece = data[at : found.start() if found else end]
        if piece and not (len(piece) >= 4 and (not piece.islower() or len(piece) > 24 or _DIGIT.search(piece))):
            break
        reached, at = at + len(piece), found.end() if found else end
    return reached


def _worth_a_try(engine: _SecretEngine, data: bytes) -> set[int]:
    """The families of which a word is there."""
    return {number for word in engine.words.Match(data) or () for number in engine.of_word[word]}


# --- what something splits ------------------------------------------------------------------------------------------

# What may stand within a value without being part of it: colours, characters without a width, and a line break with
# what ends and begins a line there (also as an escape, and of a text in several quotes).
_SEAM = (
    rb"(?:\x1b(?:\[[0-9;:?]{0,32}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))|\xe2(?:\x80[\x8b-\x8f]|\x81\xa0)|\xef\xbb\xbf|"
    rb"\xc2\xad|(?:[\"'][ \t]{0,8}(?:[+\\&]|\.{1,2})?[ \t]{0,8}|[ \t]{0,2}\\)?"
    rb"(?:\r?\n|(?:\\{1,2}r)?\\{1,2}n)[ \t>|+#/*]{0,40}[\"']?)+"
)
_SEAM_BYTES = b"\r\n\t \">|+'\\\xe2\x80\x8b\x8c\x8d\x8e\x8f\x81\xa0\xef\xbb\xbf\xc2\xad"
_BREAK, _DIGIT = re.compile(_SEAM), re.compile(rb"[0-9]")
_ESCAPE = re.compile(rb"\\u00([2-7][0-9a-fA-F])|%([2-7][0-9a-fA-F])|\\(/)")
_PIECE = re.compile(_SEAM + rb"|" + _ESCAPE.pattern)


def _split(engine: _SecretEngine, data: bytes) -> Iterator[tuple[int, int, str]]:
    """Secrets with a mark of their own that something splits, or that stand there in escapes (SEC-11)."""
    is_coloured = b"\x1b" in data
    if not (is_coloured or engine.marks.Match(_crude(data))):
        return  # most texts: nothing is there that such a value begins with, whatever splits it
    plain = engine.seam.sub(b"", data)
    if b"\\u00" in plain or b"%" in plain or b"\\/" in plain:
        plain = _ESCAPE.sub(_unescaped, plain)
    if len(plain) == len(data):
        return
    ends: list[tuple[int, int]] = []
    for number in sorted(_worth_a_try(engine, plain)):
        family = FAMILIES[number]
        if not family.is_marked:
            continue
        for start, end in _matches(engine.patterns[number], plain):
            ends = ends or _places(data)
            first, last = _place(ends, start, is_end=False), _place(ends, end, is_end=True)
            found = _BREAK.search(data, first, last)
            whole = _goes_on(data, found.start(), last) if found else last
            if whole < last and not engine.patterns[number].search(engine.seam.sub(b"", data[first:whole])):
                whole = last  # what would be cut off is needed to make it a value at all
            yield first, whole, family.name


def _crude(data: bytes) -> bytes:
    """A text without any byte that splits something: fast, and good for a first look only."""
    has_escapes = b"\\u00" in data or b"%" in data
    plain = _ESCAPE.sub(_unescaped, data) if has_escapes else data
    return plain.replace(b"\\n", b"").replace(b"\\r", b"").translate(None, _SEAM_BYTES)


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes((int(found[1] or found[2], 16),)) if found[1] or found[2] else found[3]


def _places(data: bytes) -> list[tuple[int, int]]:
    """For each stretch of the plain text where it ends there, and in the data."""
    ends: list[tuple[int, int]] = []
    plain = at = 0
    for found in _PIECE.finditer(data):
        plain += found.start() - at
        ends.append((plain, found.start()))
        if found.lastindex:
            plain += 1
            ends.append((plain, found.end()))
        else:
            ends.append((plain, found.end()))
        at = found.end()
    ends.append((plain + len(data) - at, len(data)))
    return ends


def _place(ends: list[tuple[int, int]], at: int, *, is_end: bool) -> int:
    """Where a place of the plain text stands in the data: behind what is before it, or before what follows."""
    side = bisect_left if is_end else bisect_right
    number = side(ends, at, key=lambda one: one[0])
    plain, place = ends[number] if number < len(ends) else ends[-1]
    return place - (plain - at)


def _matches(pattern: Any, data: bytes) -> Iterator[tuple[int, int]]:
    """The first group of every match; the search goes on behind the group, not behind what had to follow it."""
    at = 0
    while (found := pattern.search(data, at)) is not None:
        start, end = found.span(1)
        yield start, end
        at = max(end, at + 1)


# --- what a value looks like ----------------------------------------------------------------------------------------


def _fits(family: SecretFamily, data: bytes, start: int, end: int) -> bool:
    value = data[start:end].decode("utf-8", "replace")
    if family.check == "none":
        return len(value) > _LONG or not _REPEATED.search(value)
    if _STAND_IN.search(value) or value.lower().strip("_-!.1234567890") in _PLAIN:
        return False
    if family.check == "random":
        return is_random(value)
    if family.check == "given":
        return not _REPEATED.search(value)
    if family.check == "spoken":
        has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
        return has_both and _NO_PASSWORD.fullmatch(value) is None
    if family.name == "url-password":
        user = data[:start].rpartition(b"//")[2].rstrip(b":").decode("utf-8", "replace")
        return value != user
    return is_chosen(value)


def is_random(value: str) -> bool:
    """Whether a value was drawn by chance: no name, path, number or word of some code."""
    if value.startswith(("/", "./", "~")):
        return False
    value = value.strip(".=-_*")
    digits = sum(c.isdigit() for c in value)
    if len(value) < 12 or digits < 2 or digits == len(value) or _UUID.fullmatch(value) or _CODE.fullmatch(value):
        return False
    return bits(value) >= _LEAST_BITS and changes(_JOINTS.sub("", value)) >= _LEAST_CHANGES


def is_chosen(value: str) -> bool:
    """Whether somebody chose a value as a password: three kinds of characters, or drawn by chance."""
    kinds = {_kind(c) for c in value}
    is_name = _CODE.fullmatch(value) is not None or _UUID.fullmatch(value) is not None
    return is_random(value) or (len(kinds) >= 3 and any(c.isdigit() for c in value) and not is_name)


def bits(value: str) -> float:
    """The entropy of the characters, in bits for each."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def changes(value: str) -> float:
    """How many neighbours are of different kinds; a capital before a small letter begins a word, and is none."""
    kinds = [_kind(c) for c in value]
    pairs = sum(a != b and (a, b) != ("A", "a") for a, b in pairwise(kinds))
    return pairs / max(1, len(value) - 1)


def _kind(c: str) -> str:
    if c.isdigit():
        return "0"
    if c.isupper():
        return "A"
    return "a" if c.isalpha() else "-"


_BOUND = frozenset({"signature", "encrypted_content", "thinking"})  # changed, they no longer hold
_IDS = frozenset({"type", "id", "tool_use_id", "uuid", "parentUuid", "sessionId"})
_NAMED_CHARS = 400
_EVERYWHERE_CHARS = 12  # a value so long is the same secret wherever it stands


@dataclass(frozen=True, slots=True)
class RedactedJson:
    """The JSON, and the families of what was replaced in it."""

    raw: bytes
    families: tuple[str, ...] = ()


def redact_json(raw: bytes, key: bytes = b"") -> RedactedJson:
    """JSON without the secrets in its texts; the very bytes when there is none, or when it is no JSON."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return RedactedJson(raw)
    families: list[str] = []
    changed = _redact_value(value, "", key, families)
    return RedactedJson(msgspec.json.encode(changed), tuple(families)) if families else RedactedJson(raw)


def redact_log(data: bytes, key: bytes = b"") -> bytes:
    """A log without secrets: one JSON value, or one a line; lines without any keep their bytes."""
    done = redact_json(data, key)
    if done.families:
        return done.raw
    return b"\n".join(redact_json(line, key).raw for line in data.split(b"\n"))


def _redact_value(value: Any, name: str, key: bytes, families: list[str]) -> Any:
    if isinstance(value, str):
        return value if name in _BOUND or name in _IDS else _text(value, name, key, families)
    if isinstance(value, list):
        return [_redact_value(one, name, key, families) for one in value]
    if isinstance(value, dict):
        return {k: _redact_value(one, k, key, families) for k, one in value.items()}
    return value


def _text(text: str, name: str, key: bytes, families: list[str]) -> str:
    done = redact(text, key)
    if done.findings:
        families += [one.family for one in done.findings]
        return done.text
    if name and 0 < len(text) <= _NAMED_CHARS and '"' not in text:
        before = f'{name}="'
        for one in find_secrets(f'{before}{text}"'):
            if one.start == len(before) and one.end == len(before) + len(text):
                families.append(one.family)
                return redact(f'{before}{text}"', key).text[len(before) : -1]
    return text


@dataclass(frozen=True, slots=True)
class RedactedRecord:
    """A record without secrets, and what was promised to stand in it, as far as it still can."""

    text: str
    promised: tuple[str, ...]
    families: tuple[str, ...] = ()


def redact_record(text: str, promised: tuple[str, ...], key: bytes = b"") -> RedactedRecord:
    """A record as it may be written. The same long value is replaced wherever it stands, found there or not.

    Words that were promised and hold a secret stand there with its mark: the journal has them word for word.
    """
    done = redact(text, key)
    if not done.findings:
        return RedactedRecord(text, promised)
    after = _replaced(done.text, stand_ins(text, key))
    kept = tuple(words for words in promised if words in after or words not in text)
    return RedactedRecord(after, kept, tuple(one.family for one in done.findings))


def _replaced(text: str, marks: Mapping[str, str]) -> str:
    for value, mark in marks.items():
        if len(value) >= _EVERYWHERE_CHARS:
            text = text.replace(value, mark)
    return text
