"""What the file of a trusted project may set (SEC-8): the one list, each with the reason why it is harmless.

Whoever wrote the project wrote the file, so everything that isn't named here is the user's alone: models, addresses,
the names of keys, paths, where events go, what is permitted, what is kept, marked, remembered or left out. A new
setting is closed to projects until somebody writes down here why it may be open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ONLY_WHEN = "moves only when room is made; the model's own window stays the limit"
_ONLY_HOW_MUCH = "how much stays in view; the rest is kept, and can be had with recall"
_ONLY_SHOWN = "how much of a file or a search is shown at a time"
_ONLY_BACK = "how much of what was read comes back behind a compaction"

ALLOWED: Final[Mapping[str, str]] = {
    "auto_compact_window": _ONLY_WHEN,
    "auto_compact_percent": _ONLY_WHEN,
    "keep_min_tokens": _ONLY_HOW_MUCH,
    "keep_max_tokens": _ONLY_HOW_MUCH,
    "keep_min_texts": _ONLY_HOW_MUCH,
    "result_limit_chars": _ONLY_HOW_MUCH,
    "result_limits_chars": _ONLY_HOW_MUCH,
    "preview_chars": _ONLY_HOW_MUCH,
    "microcompact_tools": "names tools whose results may be cleared; they are kept, and can be had with recall",
    "ledger_tools": "says under which heading a record lists the calls of other tools",
    "restore_files": _ONLY_BACK,
    "restore_file_tokens": _ONLY_BACK,
    "restore_files_tokens": _ONLY_BACK,
    "instructions_agents_md": "AGENTS.md is text of the project like its CLAUDE.md, and is said to be that",
    "read_lines": _ONLY_SHOWN,
    "read_line_chars": _ONLY_SHOWN,
    "find_limit": _ONLY_SHOWN,
    "command_seconds": "how long a command may take; command_most_seconds, the user's, stays the limit",
    "permission_ask": "adds to the user's list, and asking more often permits nothing",
    "permission_deny": "adds to the user's list, and forbidding more permits nothing",
}

# What runs something: taken from a trusted project as it was when its user saw it, behind the user's own, and asked
# about again when it changed.
SEEN: Final[Mapping[str, str]] = {
    "pre_compact_hooks": "runs commands before a compaction",
    "post_compact_hooks": "runs commands after a compaction",
}
