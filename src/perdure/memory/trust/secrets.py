"""Secrets found in texts and in JSON, and replaced by `{{secret:family:id}}` before anything is written (SEC-5)."""

from __future__ import annotations

import functools
import hashlib
import hmac
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from perdure.memory.trust.families import FAMILIES
from perdure.memory.trust.family import SecretFamily

ID_CHARS = 8
MARK = re.compile(r"\{\{secret:[a-z0-9-]+:[0-9a-f]+\}\}")
_MARK_BYTES = re.compile(MARK.pattern.encode())
_MARKED = frozenset(family.name for family in FAMILIES if family.is_marked)
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
    spans = sorted(_every_span(data))
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


def secrets_of(text: str) -> frozenset[str]:
    """Return the secrets themselves, for a comparison with what is made of the text."""
    return frozenset(text[one.start : one.end] for one in find_secrets(text))


_LEAST_REPEATED = 4  # letters and digits: a shorter value stands in other words by chance
_LEAST_PART, _LEAST_NUMBERED = 8, 6  # of a secret of several lines, fields or codes; with a digit in it
_CUT_PART = 16  # of a long one, whose beginning or end is left in a name
_BETWEEN = re.compile(r"[\s=;&,:{}]+|\b0x")


def is_repeated_in(secret: str, text: str) -> bool:
    """Whether a secret stands in a text, also in other cases or with other signs between its letters, as in a name."""
    parts = [_bare(secret), *filter(_is_part, map(_bare, _BETWEEN.split(secret)))]
    where = _bare(text)
    cut = [end for part in parts if len(part) > _CUT_PART for end in (part[:_CUT_PART], part[-_CUT_PART:])]
    return any(len(part) >= _LEAST_REPEATED and part in where for part in (*parts, *cut))


def _is_part(bare: str) -> bool:
    return len(bare) >= _LEAST_PART or (len(bare) >= _LEAST_NUMBERED and any(map(str.isdigit, bare)))


def _bare(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


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
    pattern: Callable[[int], Any]  # of a family, compiled when the first text holds one of its words
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
        functools.cache(lambda number: re2.compile(FAMILIES[number].pattern.encode(), options)),
        marks,
        re2.compile(_SEAM, options),
    )


_PART_BYTES, _BEFORE_BYTES, _BEHIND_BYTES = 64 << 10, 1 << 10, 8 << 10


def _every_span(data: bytes) -> list[tuple[int, int, str]]:
    """Where secrets stand in a text of any length, read in parts: each is tried with the families it has words of."""
    if len(data) <= _PART_BYTES + _BEHIND_BYTES:
        return _spans(data)
    found: list[tuple[int, int, str]] = []
    reached = 0
    for at in range(0, len(data), _PART_BYTES):
        first = max(0, at - _BEFORE_BYTES)
        for start, end, name in sorted(_spans(data[first : at + _PART_BYTES + _BEHIND_BYTES])):
            start, end = first + start, first + end
            if at <= start < at + _PART_BYTES and start >= reached:
                found.append((start, end, name))
                reached = end
    return found


def _spans(data: bytes) -> list[tuple[int, int, str]]:
    """Where secrets stand, in bytes; earlier families first come, first served."""
    engine = _engine()
    taken: dict[int, tuple[int, str]] = {}  # by its start: the end, and the family
    is_taken = bytearray(len(data))

    def take(start: int, end: int, name: str) -> None:
        is_taken[start:end] = b"\1" * (end - start)
        taken[start] = end, name

    for mark in _MARK_BYTES.finditer(data) if b"{{secret:" in data else ():
        is_taken[mark.start() : mark.end()] = b"\1" * (mark.end() - mark.start())
    for number in sorted({*engine.always, *_worth_a_try(engine, data)}):
        family = FAMILIES[number]
        for start, end in _matches(engine.pattern(number), data):
            before, named = taken.get(start, (start, ""))
            reached = before if named not in _MARKED and before < end else start  # seen in part by an earlier family
            if is_taken.find(1, reached, end) < 0 and _fits(family, data, start, end):
                take(start, end, family.name)
    for start, end, name in (*_split(engine, data), *_decoded(engine, data)):
        before, named = taken.get(start, (start, ""))  # perhaps the beginning of a longer value
        if is_taken.find(1, before, end) < 0:
            reached = _goes_on(data, before, end) if named in _MARKED else end
            if reached > before:
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
        for start, end in _matches(engine.pattern(number), plain):
            ends = ends or _places(data, _PIECE, _unescaped)
            first, last = _place(ends, start, is_end=False), _place(ends, end, is_end=True)
            found = _BREAK.search(data, first, last)
            whole = _goes_on(data, found.start(), last) if found else last
            if whole < last and not engine.pattern(number).search(engine.seam.sub(b"", data[first:whole])):
                whole = last  # what would be cut off is needed to make it a value at all
            yield first, whole, family.name


_DECODES = re.compile(rb"\\\r?\n[ \t]*|%([2-7][0-9a-fA-F])|&(quot|amp|lt|gt|apos|#39|#x27|#34);")
_ESCAPES = (
    re.compile(rb"%[2-7][0-9a-fA-F]"),
    re.compile(rb"&(?:quot|amp|[lg]t|apos|#[3x])"),
    re.compile(rb"\\\n|\\\r\n"),
)
_ENTITIES = {
    b"quot": b'"',
    b"#34": b'"',
    b"amp": b"&",
    b"lt": b"<",
    b"gt": b">",
    b"apos": b"'",
    b"#39": b"'",
    b"#x27": b"'",
}


def _decoded(engine: _SecretEngine, data: bytes) -> Iterator[tuple[int, int, str]]:
    """Secrets of all families in what a text says without its escapes: of addresses, of markup, of continued lines."""
    for first, last in _around_escapes(data):
        part = data[first:last]
        plain = _DECODES.sub(_meant, part)
        ends: list[tuple[int, int]] = []
        for number in sorted({*engine.always, *_worth_a_try(engine, plain)}):
            family = FAMILIES[number]
            for start, end in _matches(engine.pattern(number), plain):
                if _fits(family, plain, start, end):
                    ends = ends or _places(part, _DECODES, _meant)
                    at, to = _place(ends, start, is_end=False), _place(ends, end, is_end=True)
                    yield first + at, first + to, family.name


_AROUND_BYTES = 320  # of a text around an escape: what belongs to one secret


def _around_escapes(data: bytes) -> list[tuple[int, int]]:
    """The parts of a text that escapes stand in, none twice."""
    places: list[int] = []
    for escape in _ESCAPES:
        at = 0
        while found := escape.search(data, at):
            places.append(found.start())
            at = found.end() + _AROUND_BYTES
    parts: list[tuple[int, int]] = []
    for at in sorted(places):
        start, end = max(0, at - _AROUND_BYTES), at + 2 * _AROUND_BYTES
        if parts and start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((start, end))
    return parts


def _meant(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return bytes((int(found[1], 16),))
    return _ENTITIES[found[2]] if found[2] else b""


def _crude(data: bytes) -> bytes:
    """A text without any byte that splits something: fast, and good for a first look only."""
    plain = _without_hex(_without_hex(data, b"\\u00"), b"%")
    return plain.replace(b"\\n", b"").replace(b"\\r", b"").translate(None, _SEAM_BYTES)


def _without_hex(data: bytes, mark: bytes) -> bytes:
    head, *rest = data.split(mark)
    if not rest:
        return data
    return b"".join((head, *(known + one[2:] if (known := _HEX.get(one[:2])) else mark + one for one in rest)))


_HEX = {form % number: bytes((number,)) for number in range(0x20, 0x80) for form in (b"%02x", b"%02X")}


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes((int(found[1] or found[2], 16),)) if found[1] or found[2] else found[3]


def _places(data: bytes, pieces: re.Pattern[bytes], meant: Callable[[re.Match[bytes]], bytes]) -> list[tuple[int, int]]:
    """For each stretch of the plain text where it ends there, and in the data."""
    ends: list[tuple[int, int]] = []
    plain = at = 0
    for found in pieces.finditer(data):
        plain += found.start() - at
        ends.append((plain, found.start()))
        plain += len(meant(found)) if found.lastindex else 0
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
        group = 1
        while start < 0:  # of alternatives with a group each, the one that matched
            group += 1
            start, end = found.span(group)
        yield start, end
        at = max(end, at + 1)


# --- what a value looks like ----------------------------------------------------------------------------------------


def _fits(family: SecretFamily, data: bytes, start: int, end: int) -> bool:
    value = data[start:end].decode("utf-8", "replace")
    if family.check == "none":
        return len(value) > _LONG or not _REPEATED.search(value)
    if _STAND_IN.search(value) or value.lower().strip("_-!.1234567890") in _PLAIN:
        return False
    if (named := _NAMED.get(family.check)) is not None:
        return not (_LABEL.fullmatch(value) or _DOTTED.fullmatch(value)) and named(value, data, start, end)
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


# Where a place tells that a value stands there, these tell it from a label, a type, a path, code or a word of prose.
_LABEL = re.compile(
    r"(?i)(?=.{0,16}$|.*[_.\s-])[^0-9]*(?:pass(?!\w*[!#$%^&*])|pwd|secret|token|credential|api.?key|kennwort|senha)[^0-9]*[0-9]?"
    r"|(?:[a-z_]*_)?(?:string|str|text|none|null|nil|true|false|yes|required|optional|hidden|enabled|disabled|undefined|bytes|int|any|"
    r"object|number|bool|boolean|field|input|varchar|char|value|auto|empty|unknown|invalid|missing|incorrect|changed|updated|"
    r"default|same-origin|include|omit|basic|bearer|plain|prompt|ask|vault|keyring|generate[d]?|random|encrypted|hash(?:ed)?|fail(?:ed)?|pass(?:ed)?|ok|peek|stdin|env|file|"
    r"option|unset|masked|sensitive|private|public|name|type|username|email|login|identifier|number)s?"
    r"|/.*|\./.*|~.*|@.*|[A-Z]:\\.*|-+.*|=+|\.+|\*+|\W+|[\w.]*[({\[].*"
)
_DOTTED = re.compile(r"[A-Za-z_]+\d?(?:\??\.[A-Za-z_]+\d?)+|[A-Z]+(?:_[A-Z0-9]+)+|[a-z]+(?:_[a-z]+)+[0-9]?")
_PROSE = frozenset(
    "option options flag flags argument arguments parameter parameters is are was and or for from with when file files "
    "value values prompt prompts stdin string text required optional the that which instead into will should must can "
    "cannot not only also then than this because since while where there have here does used uses using given sent "
    "stored need needs authentication auth login reset change changed policy field manager hashing rotation protected "
    "based requires".split()
)
_SIGN = re.compile(r"[0-9!@#$%^&*+~-]")
_CODE_AROUND = re.compile(
    r"[(){}]|;$|,$|\b(?:import|return|def|let|const|var|func|fn|class|self|if|else|elif)\b", re.MULTILINE
)
_PASSWORD_NAME = re.compile(
    r"(?i)(?:pass|pwd|pw|mdp|passw(?:or)?d|passphrase|passcode|passwort|kennwort|passe|contrase[nñ]a|senha|wachtwoord|has[lł]o|heslo|"
    r"salasana|lozinka|losenord|adgangskode)(?:[_.-]?(?:\d{1,2}|dev|prod|test|local|staging|live|base64|b64))?\W*$"
)
_STRONG_NAME = re.compile(
    r"(?i)(?:secret|token|credentials?|psk|salt|pin|session|(?:api|secret|access|private|encryption|signing|master|app|auth|deploy|"
    r"license|account|service|shared|admin|webhook|jwt|hmac|ssh|aes|subscription|consumer|client|bot|wpa2?)[_.-]?key(?:[_.-]?base)?)[_.-]?(?:\d{1,2}|[a-z]{2,7})?\W*$"
)
_NO_TOKEN = re.compile(
    r"(?i)(?:next|prev|page|max|min|pad|eos|bos|unk|sep|cls|mask|stop|sync|continuation|csrf|primary|foreign|sort|partition|"
    r"cache|group|row|object|s3|map|dict|lookup|public|hot|short|arrow|json|index|order|unique|composite|shard|routing|event|message|query|storage|react|translation|i18n|config|host|answer|question|option|field|column|data|state|file|path|image|test|metric|label)[_.-]?(?:tokens?|keys?|salt)\W*$"
)
_ASSIGNS = re.compile(r"([\w.:/$%\[\]-]*)[\"']?([ \t]*)(=|:|[ \t]is)([ \t]*)[\"']?$", re.ASCII)
_LINE_HEAD = re.compile(r"[ \t+>|]*(?:[-#;*] *|\d+(?:→|\t|[:|-]) *)?[ \t]*(?:export |set |SET |env |ENV |ARG )?[\"']?")
_OWN_NAME = re.compile(
    r"(?i)(?:client|api|app|auth|access|signing|shared|webhook|consumer|bot|service)[_-]?(?:secret|token|key)\W*$"
)
_OPTION_BEFORE = re.compile(r"(?:^|[\s\"'])(?:-\S+|\w+=\S+) $")
_LINE_REST = re.compile(r"[\"']?[ \t]*(?:[#;].*)?\\?\r?")


def _is_literal(value: str, data: bytes, start: int, end: int) -> bool:
    return not value.isdigit() or len(value) >= 6


def _is_named(value: str, data: bytes, start: int, end: int) -> bool:
    """Whether what stands in quotes or an element of this name is a secret: of a password any word may be one."""
    name = data[max(0, start - 200) : start].decode("utf-8", "replace").rpartition("\n")[2]
    names = [one[0] for one in _NAMES.finditer(name)]
    if any(_PASSWORD_NAME.search(one) for one in names[-2:]):
        return _is_literal(value, data, start, end)
    return (
        bool(names)
        and not _NO_TOKEN.search(names[-1])
        and _is_secretish(value, has_strong_name=bool(_STRONG_NAME.search(names[-1])))
    )


_NAMES = re.compile(
    r"(?i)[\w.-]*(?:pass|pwd|pw|mdp|kennwort|passwort|contrase.a|senha|wachtwoord|has.o|heslo|salasana|lozinka|losenord|adgangskode|secret|token|key|psk|salt|credential|pin|session)[\w.-]*"
)


def _is_option(value: str, data: bytes, start: int, end: int) -> bool:
    if value.lower().strip(".,:;!?") in _PROSE:
        return False
    name = data[max(0, start - 60) : start].decode("utf-8", "replace").rpartition("-")[2].strip("\"', \t")
    if name.lower() not in ("token", "secret", "key", "psk"):
        return _is_literal(value, data, start, end)
    whole = data[max(0, start - 60) : start].decode("utf-8", "replace").split()[-1]
    return not _NO_TOKEN.search(whole) and _is_secretish(value, has_strong_name=name.lower() != "key")


def _is_assigned(value: str, data: bytes, start: int, end: int) -> bool:
    """Whether what stands behind a name without quotes is a value rather than code, by the name and the line.

    Any word may be the value of `DB_PASS=`, of a field of a connection or an address, and of a setting where no code
    stands around it. Elsewhere it takes a digit or a sign.
    """
    line = data.rfind(b"\n", 0, start) + 1
    before = data[max(line, start - 240) : start].decode("utf-8", "replace")
    found = _ASSIGNS.search(before)
    if found is None or value.lower() in _PROSE:
        return False
    name, is_tight = found[1], found[3] == "=" and not found[2] and not found[4]
    head = before[: found.start(1)]
    last = re.split(r"[./:-]", name)[-1]
    is_variable = (
        last.isupper() and (found[3] == "=" or bool(found[4])) and (is_tight or last not in ("PASS", "TOKEN", "KEY"))
    )
    is_field = is_tight and head.rstrip(" ")[-1:] in (";", "&", "?")
    is_header = found[3] == ":" and bool(found[4]) and "-" in name and name[:1].isupper()
    stop = data.find(b"\n", end)
    rest = data[end : stop if 0 <= stop < end + 200 else end + 200].decode("utf-8", "replace")
    if before[-1:] in ("'", '"') and rest[:1] != before[-1]:
        return False  # a quotation of several words
    is_line = _LINE_HEAD.fullmatch(head) is not None and _LINE_REST.fullmatch(rest) is not None
    has_code = _has_code(data, start, end)
    is_sure = is_variable or is_field or is_header
    is_password = _PASSWORD_NAME.search(name) is not None
    if not is_password and (_NO_TOKEN.search(name) or not _STRONG_NAME.search(name)):
        return name.endswith(".key") and is_random(value)
    if is_sure:
        return _is_literal(value, data, start, end) if is_password else _is_secretish(value, has_strong_name=True)
    if has_code and not (is_line or (is_tight and head[-1:] in (" ", "\t", "'", '"', "=", ",", "/", ""))):
        return False
    if not is_password:
        if len(value) >= 8 and _is_mixed(value, data, start, end):
            return True
        is_own = len(value) >= 8 and value.isalpha() and _OWN_NAME.search(name) is not None
        return (is_own or _is_secretish(value, has_strong_name=True)) and not has_code
    if not _is_literal(value, data, start, end):
        return False
    if found[3].endswith("is"):
        return _is_mixed(value, data, start, end)
    if _SIGN.search(value):
        is_identifier = value.isidentifier() and value.rstrip("0123456789").isalpha() and len(value) < 8
        return not (is_identifier and has_code)
    if has_code or rest[:1] in (",", ")"):
        return False
    is_compound = not name.isalpha() or not (name.islower() or name[1:].islower())
    is_told = is_compound or len(value) >= 6 or not head.endswith((" ", ","))
    return is_line or is_told or _OPTION_BEFORE.search(head) is not None


def _has_code(data: bytes, start: int, end: int) -> bool:
    return _CODE_AROUND.search(data[max(0, start - 200) : end + 160].decode("utf-8", "replace")) is not None


def _is_mixed(value: str, data: bytes, start: int, end: int) -> bool:
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return (
        has_both
        and len(value) >= 6
        and not (_NO_PASSWORD.fullmatch(value) or _UUID.fullmatch(value) or _PATHLIKE.search(value))
    )


_PATHLIKE = re.compile(r"^\w[\w.-]*/[\w./-]+$|^arn:|\.\w{2,4}$|^\w+:\w+:")


def _is_secretish(value: str, *, has_strong_name: bool) -> bool:
    """Whether it may be a key or a token: with digits, of several words with hyphens, or a long run of letters."""
    if len(value) < 8 or value.isdigit() or _CODE.fullmatch(value) or _UUID.fullmatch(value) or _PATHLIKE.search(value):
        return False
    if not has_strong_name:
        return is_random(value)
    joints = len(_JOINTS.findall(value))
    return (
        any(c.isdigit() for c in value) or (joints >= 1 and len(value) >= 12) or (value.isalpha() and len(value) >= 12)
    )


def _is_cookie(value: str, data: bytes, start: int, end: int) -> bool:
    values = (part.partition("=")[2] for part in value.split(";"))
    return any(len(one) >= 8 and any(c.isdigit() for c in one) for one in values)


_STANDARD = re.compile(r"[A-Za-z]+[-_/.]?v?\d+(?:[./-]\d+)*\W*|\d+[-/.]\w+")
_SAYS = re.compile(
    r"(?:\b(?:is|was|are|ist|war|lautet|est|sera|es|era|to|er|on|jest|brzmi|je|ez|olarak|dir|adalah|yra)|é|è|e'|är|là|és|[:=：→>–—])\s*[\"'`“«„「『(]*$"
)


def _is_said(value: str, data: bytes, start: int, end: int) -> bool:
    """Whether a sentence gives a password: behind a verb or a colon with a digit and a letter, else a chosen one."""
    before = data[max(0, start - 80) : start].decode("utf-8", "replace")
    if _SAYS.search(before):
        return _is_mixed(value, data, start, end)
    return is_chosen(value) and _STANDARD.fullmatch(value) is None and not _PATHLIKE.search(value) and len(value) <= 64


def _is_key_lines(value: str, data: bytes, start: int, end: int) -> bool:
    """Whether lines of base64 may be the middle of a private key: no certificate's, no public key's, no picture's."""
    begin = data.rfind(b"-----BEGIN", max(0, start - 20_000), start)
    if begin >= 0 and b"PRIVATE" not in data[begin : begin + 60] and b"-----END" not in data[begin:start]:
        return False
    kinds = {_kind(c) for c in value[:64]}
    return len(value) <= 16_384 and {"0", "a", "A"} <= kinds and changes(value[:64]) >= _LEAST_CHANGES


_NAMED: Mapping[str, Callable[[str, bytes, int, int], bool]] = {
    "literal": _is_literal,
    "named": _is_named,
    "assigned": _is_assigned,
    "option": _is_option,
    "mixed": _is_mixed,
    "said": _is_said,
    "cookie": _is_cookie,
    "lines": _is_key_lines,
}


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


_MOST_KNOWN = 500
_KEY_CHARS = 16  # a shorter key of an object is a word


@dataclass(slots=True)
class Redactor:
    """Takes secrets out of the texts of one conversation, in their order.

    A value that was found once, and that can't be an ordinary word, is known wherever it comes again: a result repeats
    what stood behind `DB_PASS=` without saying that it is one.
    """

    key: bytes = b""
    families: list[str] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)  # of what was found, what stands for it

    def text(self, text: str, name: str = "") -> str:
        """Return the text without secrets; `name`: of the JSON value that it is."""
        findings = find_secrets(text)
        if not findings and 0 < len(text) <= _NAMED_CHARS and '"' not in text and _NAMES.fullmatch(name):
            before = f'{name}="'
            for one in find_secrets(f'{before}{text}"'):
                if one.start == len(before) and one.end == len(before) + len(text):
                    findings = (SecretFinding(one.family, 0, len(text), 1),)
        parts, at = [], 0
        for one in findings:
            parts += [text[at : one.start], self._mark(text[one.start : one.end], one.family)]
            self.families.append(one.family)
            at = one.end
        done = "".join((*parts, text[at:])) if findings else text
        for value, mark in self.marks.items():
            if value in done and _is_no_word(value):
                done = done.replace(value, mark)
                self.families.append(mark.split(":")[1])
        return done

    def json(self, raw: bytes) -> bytes:
        """Return JSON without the secrets in its texts; the very bytes when there is none, or when it is no JSON."""
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            return raw
        lines = list(_lines_of(value, ""))
        joined = "\n".join(lines)
        if not find_secrets(joined) and not any(known in joined for known in self.marks):
            return raw  # one look at all texts of it, as most hold none
        before = len(self.families)
        changed = self._value(value, "")
        return msgspec.json.encode(changed) if len(self.families) > before else raw

    def _value(self, value: Any, name: str) -> Any:
        if isinstance(value, str):
            return value if name in _BOUND or name in _IDS else self.text(value, name)
        if isinstance(value, list):
            return [self._value(one, name) for one in value]
        if isinstance(value, dict):
            return {k if len(k) < _KEY_CHARS else self.text(k): self._value(one, k) for k, one in value.items()}
        return value

    def _mark(self, value: str, family: str) -> str:
        known = self.marks.get(value)
        if known is None:
            number = secret_id(value, self.key) if self.key else len(self.marks) + 1
            known = f"{{{{secret:{family}:{number}}}}}"
            if len(self.marks) < _MOST_KNOWN:
                self.marks[value] = known
        return known


def _lines_of(value: Any, name: str) -> Iterator[str]:
    """Every text in a JSON value; behind its name, too, where that may tell what it is."""
    if isinstance(value, str):
        if name not in _BOUND and name not in _IDS:
            yield value
            if name and len(value) <= _NAMED_CHARS and _NAMES.fullmatch(name):
                yield f'{name}="{value}"'
    elif isinstance(value, list):
        for one in value:
            yield from _lines_of(one, name)
    elif isinstance(value, dict):
        for key, one in value.items():
            if len(key) >= _KEY_CHARS:
                yield key
            yield from _lines_of(one, key)


def _is_no_word(value: str) -> bool:
    """Whether a value is the same secret wherever it stands: long, or with more than letters."""
    return len(value) >= _EVERYWHERE_CHARS or (len(value) >= 8 and not value.isalpha())


def redact_json(raw: bytes, key: bytes = b"") -> RedactedJson:
    """JSON without the secrets in its texts; the very bytes when there is none, or when it is no JSON."""
    redactor = Redactor(key)
    return RedactedJson(redactor.json(raw), tuple(redactor.families))


def redact_log(data: bytes, key: bytes = b"") -> bytes:
    """A log without secrets: one JSON value, or one a line; lines without any keep their bytes."""
    redactor = Redactor(key)
    done = redactor.json(data)
    if redactor.families:
        return done
    return b"\n".join([redactor.json(line) for line in data.split(b"\n")])


@dataclass(frozen=True, slots=True)
class RedactedRecord:
    """A record without secrets, and what was promised to stand in it, as far as it still can."""

    text: str
    promised: tuple[str, ...]
    families: tuple[str, ...] = ()


def redact_record(
    text: str, promised: tuple[str, ...], key: bytes = b"", known: Mapping[str, str] | None = None
) -> RedactedRecord:
    """A record as it may be written. The same long value is replaced wherever it stands, found there or not.

    Words that were promised and hold a secret stand there with its mark: the journal has them word for word.
    `known`: the secrets of the messages that it is made of, which may stand in it where nothing tells that they are.
    """
    redactor = Redactor(key, marks=dict(known or {}))
    after = redactor.text(text)
    if redactor.families:
        after = redactor.text(after)  # what stands before the place that told it
    if not redactor.families:
        return RedactedRecord(text, promised)
    kept = tuple(words for words in promised if words in after or words not in text)
    return RedactedRecord(after, kept, tuple(redactor.families))
