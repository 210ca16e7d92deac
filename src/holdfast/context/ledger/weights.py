"""How much a fact is worth: who said it, how recently, how crowded it stood, and what it is (CMP-5).

Fitted by hand to a logistic model over real sessions; the ranking is flat around these values, so they are round.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import sqrt

from holdfast.context.ledger.facts import kind_of

# Of the assistant's words, tool input, the user's words, tool output, thinking. What a person or the agent named counts
# four times what merely scrolled by.
VOICES = (4, 4, 4, 1, 1)
HALF_LIFE_TOKENS = 20_000
_FLOOR = 0.4  # what is old keeps this share: it was named for a reason
_KINDS = {"name": 1.0, "path": 1.4, "file": 1.5, "flag": 1.2, "value": 0.45, "url": 0.7}
_DIGITS, _SHORT_NUMBER, _SHORT_NAME, _COMMON = 0.45, 0.15, 0.5, 0.25
# Every project has these, so they tell nothing of this one.
_EVERYWHERE = frozenset(
    "README.md CLAUDE.md AGENTS.md package.json settings.json pyproject.toml go.mod Makefile __init__.py main.py "
    "main.go index.js index.ts utf-8 UTF-8 GitHub TypeScript JavaScript node_modules file_path filePath old_string "
    "new_string tool_use tool_result tool_use_error in_progress dev/null and/or yes/no true/false before/after "
    "read/write input/output --version --help --stat --git --cached --oneline --short --quiet --no-verify "
    "console.log toString isinstance startsWith endsWith toLowerCase writeFile readFile setTimeout Co-Authored-By "
    "100644 100755 2024 2025 2026 60000 120000 duration_ms agentId camelCase snake_case stdout/stderr client/server "
    "success/failure input_text task-notification system-reminder task-id tool-use-id output-file "
    "local-command-stdout command-name command-message command-args output_mode files_with_matches head_limit "
    "replace_all subagent_type application/json".split()
)
_ENGLISH = re.compile(
    r"(?:non|pre|re|in|one|two|self|user|human|read|top|as|well|long|short|built|up|to|multi|end|real|high|low|back|follow|"
    r"trade|copy|step|cross|so|opt|sub|co|double|single|first|case|out|on|off|full|old|new|error|hard|stand|best)-[a-z-]+\Z"
    r"|[a-z]+-(?:only|in|out|up|off|based|level|line|specific|related|by|to|safe|aware|free|friendly|facing|wide)\Z"
)


@lru_cache(maxsize=1 << 16)
def worth_of(key: str) -> float:
    """What a fact is worth by itself, by its kind and form."""
    kind = kind_of(key)
    worth = _KINDS[kind]
    if key in _EVERYWHERE or (kind == "name" and "-" in key and _ENGLISH.match(key)):
        return worth * _COMMON
    if kind == "value":
        return worth * (_SHORT_NUMBER if len(key) <= 3 else 1.0)
    if kind == "name":
        worth *= _SHORT_NAME if len(key) < 5 else 1.0
        worth *= _DIGITS if any(c.isdigit() for c in key) else 1.0
    return worth


def recency(age_tokens: int) -> float:
    """What is left of a weight after so many tokens."""
    left: float = 0.5 ** (age_tokens / HALF_LIFE_TOKENS)
    return _FLOOR + (1 - _FLOOR) * left


def weight(key: str, said: int, crowd: int) -> float:
    """The weight of a fact that just stood there: `said` is the sum of its voices, `crowd` who stood beside it."""
    return worth_of(key) * sqrt(said / (3 + crowd))
