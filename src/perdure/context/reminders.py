"""Reminders: context that nobody said, quoted words, and text that imitates either (TURN-10, SEC-4, CMP-15)."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise

import msgspec

from perdure import prompts
from perdure.transcript.blocks import Block, Text, encode, text_block
from perdure.transcript.messages import Message, MessageId, content_of

# What has a meaning to the model when Perdure, or the agent whose log it is, writes it.
CONTROL_TAGS = (
    "system-reminder",
    "persisted-output",
    "local-command-stdout",
    "local-command-stderr",
    "local-command-caveat",
    "command-name",
    "command-message",
    "command-args",
    "bash-input",
    "bash-stdout",
    "bash-stderr",
    "task-notification",
    "user-prompt-submit-hook",
)
# What models were taught to call tools with, and to be answered in (SEC-11).
CALL_TAGS = ("function_calls", "function_results", "tool_call", "tool_response")
# What servers that apply a chat template themselves may read as tokens, wherever it stands (SEC-11): ChatML, Llama,
# DeepSeek (whose bars and blanks are wide ones), Phi, GLM and gpt-oss; Gemma; Llama 2 and Mistral, whose have no `<`.
_BARRED = r"[|\uff5c][^|\uff5c<>\n]{1,40}[|\uff5c]>"
_TEMPLATE_TAGS = ("start_of_turn>", "end_of_turn>", "bos>", "eos>", "s>", "<SYS>>", "</SYS>>")
_BRACKETED = r"/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
# What a model passes over between `<` and a name: blanks, slashes, controls, and characters that nobody sees.
_UNSEEN = (
    r"[\s/\x00-\x1f\x7f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]{0,32}"
)
_OLD_UNSEEN = r"[\s/]{0,8}"
# Turns as older models were given them, at the beginning of a paragraph.
_TURNS = r"(?:Human|Assistant):(?=\s|\Z)"


def _tag(*names: str, also: str = "", unseen: str = _UNSEEN) -> str:
    """A pattern of an opening or closing tag, also with blanks in it; it ends where an underscore is added."""
    # Behind `<<` nothing begins that has a name, which is told sooner than by trying all of them at each of many.
    return rf"<(?!<<){unseen}_*(?={'|'.join(map(re.escape, names))}{also})"


_TURN = re.compile(rf"(?:\A|\n[^\S\n]*\n)_*(?={_TURNS})")
_SPEAKERS = ("Human:", "Assistant:")
_BRACKET = rf"\[_*(?-i:(?={_BRACKETED}))"
_OLD_NAMES = tuple(tag.encode() for tag in CONTROL_TAGS)


# These patterns are large, and compiled when they are first needed (LIB-6).
@cache
def _tags(*, tokens: bool) -> re.Pattern[str]:
    """Control tags, and with `tokens` the special tokens of chat templates as well."""
    if tokens:
        tags = _tag(*CONTROL_TAGS, *CALL_TAGS, *_TEMPLATE_TAGS, also=f"|{_BARRED}")
        return re.compile(f"{tags}|{_BRACKET}", re.IGNORECASE)
    return re.compile(_tag(*CONTROL_TAGS, *CALL_TAGS), re.IGNORECASE)


@cache
def _special_tokens() -> re.Pattern[str]:
    names = "|".join(map(re.escape, _TEMPLATE_TAGS))
    return re.compile(rf"<(?!<<)_*(?={names}|{_BARRED})|{_BRACKET}", re.IGNORECASE)


@cache
def _old_tag() -> re.Pattern[str]:
    return re.compile(_tag(*CONTROL_TAGS, unseen=_OLD_UNSEEN), re.IGNORECASE)


@cache
def _bare_tag() -> re.Pattern[str]:
    names = "|".join(map(re.escape, (*CONTROL_TAGS, *CALL_TAGS)))
    return re.compile(rf"<({_UNSEEN})(?={names})", re.IGNORECASE)


def prepend_context(messages: Sequence[Message], context: Mapping[str, str]) -> tuple[Message, ...]:
    """The messages with one user message in front that holds each text under its title.

    An empty map changes nothing. The message is the same for the same texts, so it keeps the prefix where it is.

    >>> [m.role for m in prepend_context((), {"Todos": "1. write the tests"})]
    ['user']
    """
    if not context:
        return tuple(messages)
    sections = "\n\n".join(
        f"# {' '.join(neutralised(title).split())}\n{neutralised(text)}" for title, text in context.items()
    )
    text = prompts.render("context_reminder", sections=sections)
    identity = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    front = Message(
        id=MessageId(f"context-{identity}"), role="user", content=content_of([text_block(text)]), origin="reminder"
    )
    return (front, *messages)


ATTACHED = "attached"  # the note of a message with a file that a person brought along


def attached_file(path: str, text: str) -> Message:
    """A file that a person attached to a prompt, quoted: it may say anything, and none of it is their word (SEC-1)."""
    said = prompts.render("attached_file", path=name(path), text=quoted(text))
    return Message.of("user", [text_block(said)], origin="reminder", note=ATTACHED)


def as_reminder(block: Block) -> Block:
    """What a client said as a system message in mid-conversation, for a place where none can stand."""
    value = block.value
    words = value.text if isinstance(value, Text) else block.raw.decode("utf-8", "replace")
    return text_block(f"<system-reminder>\n{words}\n</system-reminder>")


def neutralised(text: str, *, tokens: bool = False) -> str:
    """Text whose control tags are plain text: `<system-reminder>` reads `<_system-reminder>` (and that one more).

    Every such tag, every imitated turn (`Human:`) and, with `tokens`, every special token of a chat template gains one
    underscore, so `restored` gives back exactly what came; other text stays as it is.
    """
    return "".join(neutralised_parts((text,), tokens=tokens)) if _may_imitate(text, tokens=tokens) else text


def neutralised_parts(texts: Sequence[str], *, tokens: bool = False) -> list[str]:
    """As `neutralised`, of texts that a model reads as one: what is split over two of them is seen too (SEC-11)."""
    whole = "".join(texts)
    places = _imitations(whole, tokens=tokens)
    if not places:
        return list(texts)
    done: list[str] = []
    start = 0
    for end in accumulate(map(len, texts)):  # a place between two texts is at the end of the first
        within = places[bisect_right(places, start) if done else 0 : bisect_right(places, end)]
        edges = [start, *within, end]
        done.append("_".join(whole[a:b] for a, b in pairwise(edges)))
        start = end
    return done


# One search keeps the interpreter's lock, so it is made in windows (SPD-8, ADR 0055).
_WINDOW = 64 * 1024
_BEHIND = 128  # more than an imitation has, but for a run of blanks or underscores
_RUN = re.compile(r"[\s_]*")


def _ends(pattern: re.Pattern[str], text: str) -> Iterator[int]:
    """Where the matches of one of the patterns here end, which is where an underscore belongs."""
    start = 0
    while start < len(text):
        border = start + _WINDOW
        seen = len(text)
        if border + _BEHIND < seen:
            run = _RUN.match(text, border + _BEHIND)
            seen = (run.end() if run else border) + _BEHIND
        else:
            border = seen + 1
        for found in pattern.finditer(text, start, seen):
            if found.start() >= border:
                break
            yield found.end()
            start = found.end()
        start = max(start, border)


def _may_imitate(text: str, *, tokens: bool) -> bool:
    """Whether a text holds a character that every imitation has; most texts, and nearly all names, don't."""
    return "<" in text or ":" in text or (tokens and "[" in text)


def _imitations(text: str, *, tokens: bool) -> list[int]:
    """Where an underscore belongs in control tags and turns, and with `tokens` in the special tokens of templates."""
    if not _may_imitate(text, tokens=tokens):
        return []
    places = [*_ends(_tags(tokens=tokens), text)]
    if any(speaker in text for speaker in _SPEAKERS):
        places = sorted((*places, *_ends(_TURN, text)))
    return places


def without_tags(text: str) -> str:
    """Text without a control tag: as `neutralised`, but what is plain already stays as it is."""
    return _bare_tag().sub(r"<\1_", text) if "<" in text else text


def without_tokens(text: str) -> str:
    """Text of ours without special tokens of chat templates; what is plain already stays as it is (SEC-11)."""
    places = [end for end in _ends(_special_tokens(), text) if text[end - 1] != "_"]
    return "_".join(text[a:b] for a, b in pairwise((0, *places, len(text)))) if places else text


def restored(text: str, *, tokens: bool = False) -> str:
    """What `neutralised` was given: everything that gained an underscore loses it."""
    gained = [end for end in _imitations(text, tokens=tokens) if text[end - 1 : end] == "_"]
    return "".join(text[a : b - 1] for a, b in pairwise((0, *gained, len(text) + 1))) if gained else text


def neutralised_result(raw: bytes) -> bytes:
    """The raw JSON of a tool result whose text imitates no control tag; the very same bytes when none does.

    It knows the tags that version 0.1 knew, for results that no edit froze: those of journals from before neutralising
    was recorded, and of views that are flattened without the passes. So their prefix stays (REL-6).
    """
    low = raw.lower()
    if not any(tag in low for tag in _OLD_NAMES) and b"\\u00" not in low:
        return raw
    fields = msgspec.json.decode(raw)
    content = fields.get("content")
    if isinstance(content, str):
        clean: object = _with_old_tags(content)
    elif isinstance(content, list):
        clean = [_neutralised_part(part) for part in content]
    else:
        return raw
    if clean == content:
        return raw
    return encode({**fields, "content": clean})


def _neutralised_part(part: object) -> object:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {**part, "text": _with_old_tags(part["text"])}
    return part


def _with_old_tags(text: str) -> str:
    return _old_tag().sub(lambda found: f"{found[0]}_", text)


INDENT = "\t"
# All that Python, an editor or a model may take for the end of a line; `str.splitlines` has the same list.
_BREAK = re.compile("\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")


def inline(text: str) -> str:
    """A text on one line, its blanks folded.

    >>> inline("## What the user said\\n- delete it")
    '## What the user said - delete it'
    """
    return " ".join(neutralised(text).split())


def name(text: str) -> str:
    """A name as it is, such as a path: blanks stay, and a line break shows as its escape.

    >>> name("a\\nb.py")
    'a\\\\nb.py'
    """
    if not text.isprintable():
        text = _BREAK.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return neutralised(text)


def indented(text: str) -> str:
    """A text that begins on a line of ours; each further line of it stands behind a tab."""
    parts: list[str] = []
    start = 0
    while start < len(text):
        end = start + _WINDOW
        end += text[end - 1 : end + 1] == "\r\n"
        lines = f"{text[start:end]}.".splitlines()  # without the dot, a break at the end would be lost
        parts.append(f"\n{INDENT}".join(lines)[:-1])
        start = end
    return neutralised("".join(parts))


def quoted(text: str) -> str:
    """A text on lines of its own, each behind a tab.

    >>> quoted("# Done\\n")
    '\\t# Done\\n\\t'
    """
    return INDENT + indented(text)


def unquoted(text: str) -> str:
    """What `quoted` was given; of line breaks only that there was one."""
    return restored("\n".join(line.removeprefix(INDENT) for line in text.split("\n")))
