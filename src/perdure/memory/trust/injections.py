"""Planted instructions in texts that want to become memory: the rule that a text breaks, never its words (MEM-10).

A memory is read as context by later sessions, so a text that speaks to the model instead of telling something, that
imitates its reminders, roles or calls, or that hides what it says, isn't kept. This narrows what can be planted; it is
no proof of harmlessness. What keeps the rest in its place is where it came from (`gate`), and that it is shown as data.
"""

from __future__ import annotations

import functools
import unicodedata
from dataclasses import dataclass
from typing import Any

# What bidi controls, zero-width characters and tags hide from a reader; joiners stay, since scripts and emoji need them.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ZERO_WIDTH = frozenset("\u200b\u2060\u2061\u2062\u2063\u2064\ufeff\u00ad\u180e\u034f")
_JOINERS = frozenset("\u200c\u200d")
_MOST_JOINERS = 3  # in a row; more spell something out
_TAGS = range(0xE0000, 0xE0080)
_FLAG = "\U0001f3f4"  # the one character that tags belong behind
_VARIATIONS = range(0xE0100, 0xE01F0)

_OBJECT = (
    r"(?:your|all|any|the|these|those|every|prior|previous|earlier|above|preceding|existing|my|other|safety|security)"
)
_WHAT = r"(?:instructions?|prompts?|rules?|directions?|guidelines?|polic(?:y|ies)|restrictions?|constraints?|guardrails?|context|messages?)"
_SECRETS = (
    r"(?:api[ _-]?keys?|secrets?|passwords?|credentials?|tokens?|private keys?|\.env|ssh keys?|environment variables?|"
    r"conversation|chat history|system prompt|user(?:'s)? data|source code)"
)
RULES: dict[str, str] = {
    # takes back what others said
    "override": rf"\b(?:ignore|disregard|forget|override|bypass|drop|overrule)\s+(?:{_OBJECT}\s+){{1,4}}{_WHAT}\b",
    "new-orders": r"\b(?:new|updated|real|actual|true) (?:system )?(?:instructions?|prompt|orders)\s*(?::|are\b|follow\b)",
    "new-role": r"\b(?:you are now|from now on,? you (?:are|will act)|act as (?:if you (?:were|are)|an? (?:unrestricted|unfiltered|jailbroken))|"
    r"(?:enter|enable|activate) (?:developer|god|dan|jailbreak|unrestricted|debug) mode)\b",
    # imitates those who may give orders
    "role-tag": r"(?:<\|?/?\s*(?:im_start|im_end|system|endoftext|start_header_id|eot_id)\s*\|?>|<\|\s*(?:assistant|user|human|developer)\s*\|>|"
    r"\[/?(?:INST|SYS|SYSTEM)\]|<</?SYS>>|(?:^|\n)\s*(?:#{1,4} *)?(?:system|assistant|human) ?(?:prompt|message)?:\s)",
    "reminder-tag": r"<\s*/?\s*(?:system[-_ ]?(?:reminder|warning|message|notice|instruction)s?|antml|policy|admin)\b[^>]{0,80}>",
    "call-tag": r"<\s*/?\s*(?:function_calls?|invoke|tool_use|tool_call|tool_result|function_results?|antml:[a-z_]+|parameter)\b[^>]{0,80}>|"
    r"\"type\"\s*:\s*\"(?:tool_use|tool_result|function_call)\"",
    # hides from the user
    "conceal": r"\b(?:do not|don't|never|without) (?:tell(?:ing)?|inform(?:ing)?|notify(?:ing)?|mention(?:ing)?(?: (?:this|it|that))?(?: to)?|"
    r"reveal(?:ing)?(?: (?:this|it|that))?(?: to)?|alert(?:ing)?|show(?:ing)?(?: (?:this|it|that))?(?: to)?) (?:the |your )?(?:user|human|operator)s?(?:\s+(?:about|that|of|this|anything)\b|\s*(?:[.,;:!)]|\n|$))",
    # takes things out
    "exfiltrate": rf"\b(?:send|post|upload|forward|exfiltrate|leak|transmit|e-?mail|copy)\b[^.\n]{{0,80}}{_SECRETS}[^.\n]{{0,80}}"
    r"(?:https?://|\bto (?:an? |this |the )?(?:url|server|endpoint|webhook|attacker|e-?mail address|[\w.-]+@[\w-]+\.))",
    "exfiltrate-shell": r"\b(?:curl|wget|nc|Invoke-WebRequest)\b[^\n]{0,160}(?:\$\(|`|@|<)[^\n]{0,40}(?:cat |printenv|\benv\b|\.env|id_rsa|\.ssh/|\.aws/|credentials|history)",
    "exfiltrate-image": r"!\[[^\]]{0,80}\]\(\s*https?://[^)\s]{1,200}[?&/=](?:\{\{?|\$\{?|%7B|<)[^)]{0,80}\)",
    # makes itself an order for all time
    "always-do": r"\b(?:always|whenever|every time|before (?:every|each|any))\b[^.\n]{0,100}\b(?:run|execute|curl|wget|fetch and run|pipe)\b[^.\n]{0,60}"
    r"(?:https?://|\|\s*(?:ba|z)?sh\b|base64 (?:-d|--decode)|eval\b)",
    "no-approval": r"\b(?:skip|disable|turn off|bypass) (?:all |any |the |every )?(?:permission|approval|safety|security|confirmation) (?:checks?|prompts?|requests?|filters?)\b",
}


@dataclass(frozen=True, slots=True)
class InjectionFinding:
    """What a text does that a memory mustn't: the rule, and the line (from 1) where it begins."""

    rule: str
    line: int


def find_injections(text: str) -> tuple[InjectionFinding, ...]:
    """Every rule that a text breaks, with the first line of each."""
    found = _hidden(text)
    plain = readable(text)
    data = plain.encode("utf-8", "replace")
    words, patterns, names = _engine()
    for number in sorted(words.Match(data) or ()):
        match = patterns[number].search(data)
        if match is not None:
            found.setdefault(names[number], data.count(b"\n", 0, match.span()[0]) + 1)
    return tuple(
        InjectionFinding(rule, line) for rule, line in sorted(found.items(), key=lambda pair: (pair[1], pair[0]))
    )


def readable(text: str) -> str:
    """The text as eyes and models may read it: compatibility forms folded, unseen characters gone, line by line."""
    if text.isascii():
        return text
    folded = unicodedata.normalize("NFKC", text)
    return "".join(c for c in folded if c in "\n\t" or unicodedata.category(c) not in ("Cf", "Cc", "Mn"))


def _hidden(text: str) -> dict[str, int]:
    """Characters that nobody sees, by rule; the line of the first of each."""
    found: dict[str, int] = {}
    if text.isascii():
        if "\x1b" in text or "\0" in text:
            found["control-characters"] = text.count("\n", 0, min(text.find(c) for c in "\x1b\0" if c in text)) + 1
        return found
    line, joiners, before, is_flag = 1, 0, "", False
    for c in text:
        if c == "\n":
            line += 1
        rule = _rule_of(c, is_first=not before, is_flag=is_flag)
        joiners = joiners + 1 if c in _JOINERS else 0
        if joiners > _MOST_JOINERS:
            rule = "zero-width-characters"
        if rule:
            found.setdefault(rule, line)
        is_flag = c == _FLAG or (is_flag and ord(c) in _TAGS)
        before = c
    return found


def _rule_of(c: str, *, is_first: bool, is_flag: bool) -> str:
    code = ord(c)
    if code < 0x80:
        return "control-characters" if c in "\x1b\0" else ""
    if c in _BIDI:
        return "bidi-characters"
    if c in _ZERO_WIDTH:
        return "" if c == "\ufeff" and is_first else "zero-width-characters"
    if (code in _TAGS and not is_flag) or code in _VARIATIONS:
        return "tag-characters"
    return "control-characters" if 0x80 <= code < 0xA0 and c != "\x85" else ""


@functools.cache
def _engine() -> tuple[Any, tuple[Any, ...], tuple[str, ...]]:
    import re2  # when the first text is scanned, not when the package is imported (SPD-5)

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = 32 << 20
    every = re2.Set.SearchSet(options)
    for pattern in RULES.values():
        every.Add(pattern)
    every.Compile()
    return every, tuple(re2.compile(pattern.encode(), options) for pattern in RULES.values()), tuple(RULES)
