"""Front matter: the few fields that a Markdown file carries between `---` lines at its top (INS-2, MEM-3).

Read strictly as YAML that has only texts, lists and mappings; anchors, aliases and tags are refused, and size, depth
and count are bounded (SEC-6). What isn't such YAML is read leniently, line by line, since people write `paths: **/*.ts`
and `description: Use when: it rains`, and mean the text. Every value is a text: nothing becomes a date or a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

MAX_CHARS: Final = 65_536  # SEC-6: front matter longer than this is none
MAX_VALUES: Final = 1_000  # SEC-6
MAX_DEPTH: Final = 4  # SEC-6: `metadata:` is two deep

Value: TypeAlias = "str | list[Value] | dict[str, Value]"

_OPEN = re.compile(r"---[ \t]*\r?\n")
_CLOSE = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
# A line that strict YAML reads as we do by hand: most front matter has no others, and a scan of many files is fast.
_PLAIN = re.compile(r"([A-Za-z_][\w-]*):[ ]+([^\W_](?:(?!: )(?! #)[^\t])*)", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][\w .-]*")


class _YamlRefused(ValueError):
    """The text is YAML that isn't read: it says what was found."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The fields, the text below them, and what was wrong (none of it fatal). `start` is where `body` begins."""

    fields: dict[str, Value] = field(default_factory=dict)
    body: str = ""
    start: int = 0
    problems: tuple[str, ...] = ()
    is_present: bool = False

    def text(self, name: str) -> str | None:
        """A field that is one text; None when it is missing, empty or something else."""
        value = self.fields.get(name)
        return value if isinstance(value, str) and value else None

    def several(self, name: str) -> tuple[str, ...]:
        """A field that is a list of texts, or one of them."""
        value = self.fields.get(name)
        found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        return tuple(one for one in found if isinstance(one, str) and one)

    def inner(self, name: str) -> dict[str, Value]:
        """A field that holds fields itself, such as `metadata:`; else empty."""
        value = self.fields.get(name)
        return value if isinstance(value, dict) else {}


def front_matter(text: str) -> FrontMatter:
    """Split a file into its front matter and body. Never raises; a file without front matter is all body."""
    begin = 1 if text.startswith("\ufeff") else 0
    opened = _OPEN.match(text, begin)
    if opened is None:
        return FrontMatter(body=text[begin:], start=begin)
    closed = _CLOSE.search(text, opened.end(), opened.end() + MAX_CHARS)
    if closed is None:
        why = "front matter without an end" if len(text) <= MAX_CHARS else f"no end of it in {MAX_CHARS:,} characters"
        return FrontMatter(body=text[begin:], start=begin, problems=(f"{why}: read as text",))
    fields, problems = read_fields(text[opened.end() : closed.start()])
    return FrontMatter(fields, text[closed.end() :], closed.end(), problems, is_present=True)


def read_fields(text: str) -> tuple[dict[str, Value], tuple[str, ...]]:
    """The fields of front matter without its fences, and what was wrong with it."""
    by_hand = _plain_fields(text)
    if by_hand is not None:
        return by_hand, ()
    try:
        return _strict(text), ()
    except _YamlRefused as e:
        return _lenient(text), (f"{e}; read line by line",)


def _plain_fields(text: str) -> dict[str, Value] | None:
    fields: dict[str, Value] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        found = _PLAIN.fullmatch(line)
        if found is None or not line.isprintable() or found[2].rstrip().endswith(":"):
            return None
        fields[found[1]] = found[2].rstrip()
    return fields


# --- strict: YAML by its events, so that nothing is resolved or constructed


def _strict(text: str) -> dict[str, Value]:
    import yaml  # not for those who have no such files (SPD-5)

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        events = _checked(yaml.parse(text, Loader=loader))
        value = _node(events, next(events), 0)
        if next(events, None) is not None:
            raise _YamlRefused("more than one document")
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise _YamlRefused(f"{where}{getattr(e, 'problem', None) or 'not YAML'}") from None
    except RecursionError:  # the parser in C goes down before we can count
        raise _YamlRefused("too deep") from None
    if not isinstance(value, dict):
        if value == "":
            return {}
        raise _YamlRefused("not fields")
    return value


def _checked(events: Iterable[Any]) -> Iterator[Any]:
    """The events that carry something; refuses what SEC-6 refuses as soon as it comes."""
    import yaml

    count = 0
    for event in events:
        if isinstance(event, yaml.StreamStartEvent | yaml.StreamEndEvent | yaml.DocumentStartEvent):
            continue
        if isinstance(event, yaml.DocumentEndEvent):
            continue
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _YamlRefused(f"line {line}: anchors and aliases aren't read")
        if getattr(event, "tag", None):
            raise _YamlRefused(f"line {line}: tags aren't read")
        count += 1
        if count > MAX_VALUES:
            raise _YamlRefused(f"more than {MAX_VALUES:,} values")
        yield event
    if not count:
        yield yaml.ScalarEvent(anchor=None, tag=None, implicit=(True, False), value="")


def _node(events: Iterator[Any], event: Any, depth: int) -> Value:
    import yaml

    if isinstance(event, yaml.ScalarEvent):
        return str(event.value)
    if depth == MAX_DEPTH:
        raise _YamlRefused(f"deeper than {MAX_DEPTH}")
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Value] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_node(events, event, depth + 1))
        return items
    fields: dict[str, Value] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        name = _node(events, event, depth + 1)
        if not isinstance(name, str):
            raise _YamlRefused("a name that isn't a text")
        fields[name] = _node(events, next(events), depth + 1)
    return fields


# --- lenient: a line, a field


def _lenient(text: str) -> dict[str, Value]:
    """`name: text`; `- item` lines and indented fields belong to the name above them that has no text."""
    fields: dict[str, Value] = {}
    above: str | None = None
    inner: str | None = None  # the name without a text below `above`
    for line in text.splitlines()[:MAX_VALUES]:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        under = fields[above] if above is not None else ""
        if above is not None and line.lstrip().startswith("- "):
            item = _unquoted(line.lstrip()[2:])
            if inner is not None and isinstance(under, dict):
                items = under[inner]
                under[inner] = [*(items if isinstance(items, list) else []), item]
            else:
                fields[above] = [*(under if isinstance(under, list) else []), item]
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not _NAME.fullmatch(name):
            continue
        if not line[0].isspace():
            fields[name] = _listed(value)
            above, inner = None if value else name, None
        elif above is not None:
            fields[above] = {**(under if isinstance(under, dict) else {}), name: _listed(value)}
            inner = None if value else name
    return fields


def _listed(value: str) -> Value:
    """`[a, b]` on one line is a list, as far as that can be told; braces of globs keep their commas."""
    if not (value.startswith("[") and value.endswith("]")):
        return _unquoted(value)
    parts = re.findall(r"\"[^\"]*\"|'[^']*'|(?:[^,{\"']|\{[^{}]*\})+", value[1:-1])
    return [text for part in parts if (text := _unquoted(part))]


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value.split(" #", 1)[0].rstrip()
