"""Every constant that decides something, with its reason and clause; users change them by settings, flags or env.

Values are in tokens unless the name says otherwise. Where a value scales with small windows, the field is the value for
large ones and `context.policy.thresholds` applies the caps (PRS-2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# PRS-3: the least that auto-compaction counts with. In less, the reserve for the answer and an agent's tools leave no
# room for a conversation; how much these take in a session is known to `context.policy.least_window`.
LEAST_WINDOW_TOKENS = 10_000
COMPACTABLE_TOOLS = (
    # TURN-4: results that can be had again by running the tool again, under their names in common agents.
    ("Read", "read_file", "view_file", "FileRead", "view", "open_file", "str_replace_based_edit_tool"),
    ("Bash", "bash", "shell", "exec_command", "run_command", "execute_bash", "local_shell", "run_shell_command"),
    ("Grep", "grep", "search_files", "grep_search", "codebase_search"),
    ("Glob", "glob", "list_files", "find_files", "ls", "LS", "list_dir"),
    ("WebSearch", "web_search"),
    ("WebFetch", "web_fetch", "fetch"),
    ("Edit", "edit", "MultiEdit", "str_replace_editor", "replace", "edit_file", "apply_patch"),
    ("Write", "write", "write_file", "create_file", "write_to_file"),
)


READ_TOOLS = frozenset(COMPACTABLE_TOOLS[0])
COMMAND_TOOLS = frozenset(COMPACTABLE_TOOLS[1])


_RESULT_LIMITS_CHARS = {**dict.fromkeys(COMPACTABLE_TOOLS[1], 30_000), **dict.fromkeys(COMPACTABLE_TOOLS[2], 20_000)}


@dataclass(frozen=True, slots=True)
class HookCommand:
    """A shell command that runs at an event (CMP-10, docs/use/hooks.md).

    Attributes:
        event: its name, such as `PreToolUse`.
        command: for the shell.
        matcher: which of them: names of tools, for one; empty for all.
        seconds: how long it may take; None: as the setting `hook_timeout_seconds` says.
        condition: a permission rule that a call has to be, such as `Bash(git push:*)`; empty for any.
        is_async: nobody waits for it, so it can't refuse or change anything.
    """

    event: str
    command: str
    matcher: str = ""
    seconds: float | None = None
    condition: str = ""
    is_async: bool = False

    def __str__(self) -> str:
        parts = (self.matcher, f"if {self.condition}" if self.condition else "", "async" if self.is_async else "")
        which = ", ".join(filter(None, parts))
        return f"{self.event}({which}): {self.command}" if which else f"{self.event}: {self.command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings with their defaults; what each does is told by `perdure config`. Immutable.

    Example:
        small = Settings(window_tokens=32_000, auto_compact=False)
        assert small.compact
    """

    # Pressure (PRS-1 to PRS-8)
    window_tokens: int | None = None  # PRS-8: the user's word on the window; None: provider, then table
    max_output_tokens: int | None = None  # PRS-1: None: the model's own
    reserve_cap_tokens: int = 20_000  # PRS-1; 32,000 reproduces logs before 2.1.25
    trigger_offset_tokens: int = 13_000  # PRS-1
    block_offset_tokens: int = 3_000  # PRS-1
    warning_offset_tokens: int = 20_000  # PRS-1
    error_offset_tokens: int = 10_000  # PRS-1: two levels, so what is urgent looks different from what is near
    auto_compact: bool = True  # PRS-4
    compact: bool = True  # PRS-4: false refuses manual compaction too
    auto_compact_window: int | None = None  # PRS-3
    auto_compact_percent: float | None = None  # PRS-3
    breaker_failures: int = 3  # PRS-5
    min_reduction_percent: int = 10  # PRS-6, CMP-9
    thrash_refills: int = 3  # PRS-6: this many refills …
    thrash_turns: int = 3  # PRS-6: … each within this many turns stop auto-compaction

    # Tool results (TURN-2)
    offload: bool = True
    result_limit_chars: int = 50_000
    result_limits_chars: dict[str, int] = field(default_factory=_RESULT_LIMITS_CHARS.copy)
    message_limit_bytes: int = 64_000
    preview_chars: int = 2_000
    offload_exempt_tools: tuple[str, ...] = ("recall",)  # a read of a blob is never offloaded again

    # Snip (TURN-3)
    snip: bool = True
    snip_min_saved_tokens: int = 20_000  # alone, below this a rewritten prefix costs more than it frees

    # Microcompaction (TURN-4)
    microcompact: bool = True
    microcompact_tools: tuple[str, ...] = tuple(name for family in COMPACTABLE_TOOLS for name in family)
    microcompact_large_tokens: int = 1_000  # TURN-17: of other tools, where a call can be repeated
    microcompact_keep_tokens: int = 40_000
    microcompact_min_saved_tokens: int = 20_000
    microcompact_reach_tokens: int = 20_000  # acts from trigger - this
    microcompact_keep_last: int = 3
    microcompact_spare_errors: bool = True
    idle_clear: bool = True
    idle_keep_last: int = 5
    idle_compact: bool = True  # TURN-16: in a dead cache a compaction moves nothing that isn't written anew anyway
    provider_clearing: bool = False  # (c): send a context-editing request instead of rewriting
    provider_compaction: bool = False  # the provider summarises before we do, where it offers that
    policy: Literal["balanced", "thrifty"] = "balanced"  # TURN-16: thrifty compacts below the trigger where it pays
    thrifty_least_tokens: int = 40_000  # TURN-16: what a compaction below the trigger has to spare at least

    # Collapse (TURN-6)
    collapse: bool = False
    collapse_min_tokens: int = 8_000

    # Thinking (TURN-7)
    thinking: Literal["drop", "provider"] = "drop"

    # Requests (TURN-9)
    max_images: int | None = None  # None: the model's own limit
    max_media_bytes: int = 20_000_000
    cache_ttl: Literal["auto", "5m", "1h"] = "auto"  # TURN-16: auto: 5m until a pause outlived it, from then on 1h

    # Compaction (CMP-2, CMP-5, CMP-6, CMP-7, CMP-10)
    compact_timing: Literal["eager", "boundary", "manual"] = "eager"  # CMP-7: boundary waits for a tool loop to end
    precompute: bool = True  # CMP-6: from warning on, a model that is there anyway writes its summary ahead of time
    request_floor_percent: int = 60  # CMP-6: of the trigger; a model that asks for a compaction below is put off once
    keep_min_tokens: int = 10_000
    keep_max_tokens: int = 40_000
    keep_min_texts: int = 5
    summary_budget_tokens: int = 12_000  # CMP-5, QLT-2
    user_words_tokens: int = 20_000  # CMP-3
    ledger_tools: tuple[str, ...] = ()  # CMP-5: what other tools do, as PATTERN=ACTION: read, edit, write, run, todo, …
    user_tools: tuple[str, ...] = ()  # SEC-1: names of tools whose results are what the user answered

    # Session notes (SM-2, SM-4, SM-9, CMP-2)
    notes: bool = True
    notes_first_tokens: int = 5_000  # SM-2: not before so much was said
    notes_growth_tokens: int = 5_000  # SM-2
    notes_calls: int = 10  # SM-2: tool calls since the last update, unless the agent pauses
    notes_section_tokens: int = 2_000  # SM-4
    notes_file_tokens: int = 12_000  # SM-4
    notes_runs_per_hour: int = 60  # SM-9
    notes_tokens_per_hour: int = 2_000_000  # SM-9: of a model, read and written; behind it code goes on, for nothing
    notes_turns: int = 4  # SM-3: calls of one fork; one for its edits, the others for those that didn't fit at once
    notes_rests: int = 7  # SM-9: updates left to code after a model failed, at most: 1, 3, 7
    notes_wait_seconds: float = 15.0  # CMP-2: a compaction waits so long for a running update …
    notes_stale_seconds: float = 60.0  # CMP-2: … unless that has run for longer than this already

    # Persistent memory (MEM-1, MEM-2, MEM-4, MEM-5)
    memory: bool = True  # MEM-1: the switch
    memory_directory: str | None = None  # MEM-1: of the project; None: in the store, by git root
    memory_index_lines: int = 200  # MEM-2
    memory_index_bytes: int = 25_000  # MEM-2
    memory_results: int = 5  # MEM-4: chosen for a turn
    memory_floor: float = 0.25  # MEM-4: of what a memory could score; below it is noise
    retrieval_semantic: bool = True  # MEM-15: with the extra `semantic`; without it nothing changes
    memory_candidates: int = 200  # MEM-4: the best ones that a model may choose from
    memory_select_seconds: float = 1.5  # MEM-4: for a model to choose; then the ranking stands
    memory_tool_turns: int = 3  # MEM-4: tools used in so many last turns need no usage notes
    memory_body_tokens: int = 4_096  # MEM-5: of each chosen memory
    memory_extract: bool = True  # MEM-6: after a turn, what should outlive the session
    memory_extract_growth_tokens: int = 5_000  # MEM-6: new ones before a model looks, unless a remark asks for it
    memory_extract_turns: int = 5  # MEM-6: calls of one fork: reads together, then writes together
    memory_extract_runs_per_hour: int = 30  # MEM-6: of a model
    memory_extract_tokens_per_hour: int = 1_000_000  # MEM-6: read and written; behind it rules go on, for nothing
    memory_consolidate: bool = True  # MEM-11: when it is due; `perdure memory consolidate` works in any case
    memory_consolidate_hours: float = 24.0  # MEM-11: not more often …
    memory_consolidate_sessions: int = 5  # MEM-11: … and not before so many sessions

    # What comes back behind a boundary (RST-1 to RST-9); all of it shrinks with the window (PRS-2)
    restore: bool = True
    restore_files: int = 5  # RST-1
    restore_file_tokens: int = 5_000  # RST-1
    restore_files_tokens: int = 50_000  # RST-1
    restore_plan_tokens: int = 10_000  # RST-2: a plan is read whole by those who go on with it
    restore_todos_tokens: int = 5_000  # RST-3: a list longer than this is no list any more
    restore_skill_tokens: int = 5_000  # RST-4
    restore_skills_tokens: int = 25_000  # RST-4
    restore_background_tokens: int = 2_000  # RST-5: a line for each job
    restore_tools_tokens: int = 8_000  # RST-6
    restore_start_tokens: int = 10_000  # RST-7
    restore_memory_tokens: int = 6_000  # RST-9: the 25 KB of an index
    restore_file_max_bytes: int = 1_000_000  # a larger file isn't one that was read whole
    recall_tool: bool | None = None  # RCL-3: None: where it is among the tools of the request; else the host's word
    pins_tokens: int = 4_000  # RST-8: pins are paid in every request

    # Instruction files (INS-1 to INS-6, docs/use/instructions.md)
    instructions: bool = False  # off: a library reads nobody's files unasked; a program for people switches it on
    instructions_local: bool = True  # INS-1: CLAUDE.local.md
    instructions_agents_md: bool = False  # INS-1: AGENTS.md beside CLAUDE.md
    instructions_excludes: tuple[str, ...] = ()  # INS-5: globs on absolute paths; the lists of all scopes together
    instructions_tokens: int = 40_000  # INS-5: together; shrinks with the window
    instructions_diff_tokens: int = 2_000  # INS-6: a change that takes more is only told, to be read again

    # What comes in (SEC-4, SEC-6)
    neutralise: Literal["all", "results", "off"] = "all"  # control tags that others write; results: not the user's
    max_message_bytes: int = 64_000_000  # twice what the largest API takes
    max_message_blocks: int = 10_000
    max_json_depth: int = 100
    # Memory and secrets (MEM-8, SEC-5)
    memory_mode: Literal["off", "read-only", "ask", "auto"] = "auto"  # MEM-8: of what agents write
    redact_at_ingest: bool = False  # SEC-5: also the journal gets `{{secret:…}}`, from the first use on

    # Tokens (TOK-1, TOK-3, TOK-4)
    estimator: Literal["live", "base"] = "live"  # of what came after the last report; base: characters over four
    margin_numerator: int = 4  # TOK-3: only when nothing was ever reported
    margin_denominator: int = 3

    # Models: names for each job, the first is asked first, the others are fall-backs (docs/use/models.md)
    main_models: tuple[str, ...] = ()
    summarizer_models: tuple[str, ...] = ()
    notes_models: tuple[str, ...] = ()
    selector_models: tuple[str, ...] = ()
    extractor_models: tuple[str, ...] = ()

    # Caps on spending (OBS-2): of all calls of a session with its sub-agents and background work, and of a day
    session_cap_usd: float | None = None
    day_cap_usd: float | None = None

    # What is kept at home (SEC-12); sessions with the tag `keep` stay
    retention_days: float | None = None
    max_home_bytes: int | None = None

    # The ladder of a call (TURN-11)
    retry_attempts: int = 8
    retry_budget_seconds: float = 300.0  # all waiting of one turn together
    cut_retries: int = 2

    # Events (OBS-1): log, jsonl:PATH, otel; nothing leaves the machine unless the host's OpenTelemetry does that
    events: tuple[str, ...] = ()
    # The agent (LIB-1)
    agent_turns: int = 200  # calls of the model for one prompt
    agent_parallel: int = 8  # tools that only read, at a time
    agent_background: int = 16  # commands and sub-agents in the background, at a time
    read_lines: int = 2_000
    read_line_chars: int = 2_000  # what a longer line shows
    read_max_bytes: int = 10_000_000  # of a text file; a larger one is read in parts by a command
    image_max_bytes: int = 5_000_000
    find_limit: int = 250  # paths of Glob, lines of Grep
    command_seconds: float = 120.0
    command_most_seconds: float = 600.0
    command_output_bytes: int = 64_000_000  # a command that writes more is stopped
    command_shown_bytes: int = 1_000_000  # of its output in a result; the rest stays in its file
    permission_mode: Literal["default", "accept_edits", "plan", "bypass"] = "default"
    permission_allow: tuple[str, ...] = ()
    permission_ask: tuple[str, ...] = ()
    permission_deny: tuple[str, ...] = ()
    sandbox: Literal["auto", "on", "off"] = "auto"  # SEC-10: of commands that nobody is asked about
    sandbox_network: bool = False  # SEC-10: whether they reach the network in it

    # Hooks, and settings of Claude Code (CMP-10, SEC-8; docs/use/hooks.md)
    hooks: tuple[HookCommand, ...] = ()  # those of all scopes together
    hook_timeout_seconds: float = 60.0
    claude_code_settings: bool = False  # only by the person's own word

    # Trust in folders (SEC-8): beside those that a person was asked about; FOLDER/** is all that lies in one
    trusted_folders: tuple[str, ...] = ()

    # Checkpoints of files (CKP-1, CKP-2, CKP-6)
    checkpoints: bool = True  # CKP-1
    checkpoint_commands: bool = True  # CKP-2: compare the tree around commands
    checkpoint_file_bytes: int = 10_000_000  # CKP-2: a larger file is named, and not kept
    checkpoint_files: int = 50_000  # CKP-2: a larger tree isn't compared
    checkpoint_excludes: tuple[str, ...] = (  # CKP-2: beside what git ignores; a project's own rules are stronger
        "node_modules/", ".venv/", "venv/", "__pycache__/", ".tox/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/",
    )  # fmt: skip
    checkpoint_snapshots: int = 100  # CKP-6: prompts of a session that can be gone back to
    checkpoint_disk_bytes: int = 1_000_000_000  # CKP-6: of a session's store

    # Journal
    durability: Literal["commit", "process"] = "commit"  # REL-1


# What a session is opened again with: how its context is kept. Not what runs, reads, asks, pays or deletes anything,
# nor whose words count: a journal may come from elsewhere, so all of that is said each time.
REMEMBERED = frozenset(
    "window_tokens max_output_tokens reserve_cap_tokens trigger_offset_tokens block_offset_tokens "
    "warning_offset_tokens error_offset_tokens auto_compact compact auto_compact_window auto_compact_percent "
    "breaker_failures min_reduction_percent thrash_refills thrash_turns offload result_limit_chars "
    "result_limits_chars message_limit_bytes preview_chars offload_exempt_tools snip snip_min_saved_tokens "
    "microcompact microcompact_tools microcompact_large_tokens microcompact_keep_tokens microcompact_min_saved_tokens "
    "microcompact_reach_tokens microcompact_keep_last microcompact_spare_errors idle_clear idle_keep_last "
    "idle_compact provider_clearing provider_compaction policy thrifty_least_tokens collapse collapse_min_tokens "
    "thinking max_images max_media_bytes cache_ttl compact_timing precompute request_floor_percent keep_min_tokens "
    "keep_max_tokens keep_min_texts summary_budget_tokens user_words_tokens ledger_tools notes notes_first_tokens "
    "notes_growth_tokens notes_calls notes_section_tokens notes_file_tokens restore restore_files restore_file_tokens "
    "restore_files_tokens restore_plan_tokens restore_todos_tokens restore_skill_tokens restore_skills_tokens "
    "restore_background_tokens restore_tools_tokens restore_start_tokens restore_memory_tokens recall_tool "
    "pins_tokens estimator margin_numerator margin_denominator".split()
)

# What each setting does, for `perdure config`, `init` and the documentation: a heading, then names. One line each, with
# the unit, without the default; the reason for a value stands beside it above.
DESCRIPTIONS: dict[str, dict[str, str]] = {
    "Models": {
        "main_models": "models that answer, as provider:model[@URL][#KEY]; the first is asked first",
        "summarizer_models": "models that write the record of a compaction; without any, code writes it",
        "notes_models": "models that keep the notes of a session; without any, code keeps them",
        "selector_models": "models that choose among memories; without any, the ranking decides",
        "extractor_models": "models that look for what to remember, and tidy the memory; without any, rules do",
        "session_cap_usd": "the most that a session may cost, sub-agents and background work included, in US dollars",
        "day_cap_usd": "the most that all sessions of a day may cost together, in US dollars",
        "retention_days": "sessions that were last written so many days ago are deleted; unset: none are",
        "max_home_bytes": "the oldest sessions are deleted while the home is larger, in bytes; unset: none are",
        "window_tokens": "the model's context window, in tokens; unset: what the provider or the table of models says",
        "max_output_tokens": "the longest answer, in tokens; unset: what the model can write",
        "estimator": "how tokens are estimated: live (learns from providers) or base (characters over four)",
        "margin_numerator": "while nothing was reported, estimates are multiplied by this ...",
        "margin_denominator": "... and divided by this",
        "retry_attempts": "how often a call is tried again when a server is busy or down",
        "retry_budget_seconds": "the longest that one turn waits for servers, in seconds, all retries together",
        "cut_retries": "how often an answer that broke off is asked for again",
        "cache_ttl": "how long providers cache the prompt: 5m, 1h, or auto (1h once a pause was longer than 5m)",
        "thinking": "what happens to old thinking: drop it, or leave that to the provider",
        "max_images": "the most images in a request; unset: what the model takes",
        "max_media_bytes": "the most bytes of images and documents in a request",
    },
    "When to make room": {
        "auto_compact": "compact by itself before the window is full",
        "compact": "allow compaction at all, also by hand",
        "auto_compact_window": "count with a smaller window than the model has, in tokens: 10,000 or more",
        "auto_compact_percent": "compact earlier: when this share of the usable window is full, in percent",
        "compact_timing": "eager compacts at once, boundary waits for open work to end, manual never does it by itself",
        "policy": "balanced, or thrifty: compacts earlier, which saves money in windows of 200,000 tokens and more",
        "thrifty_least_tokens": "what an early compaction has to free at least, in tokens",
        "reserve_cap_tokens": "the most that is kept free for the answer, in tokens",
        "trigger_offset_tokens": "compaction begins this many tokens below the usable window",
        "warning_offset_tokens": "the first warning comes this many tokens below the trigger",
        "error_offset_tokens": "the urgent warning comes this many tokens below the trigger",
        "block_offset_tokens": "no call is made within this many tokens of the end of the usable window",
        "breaker_failures": "stop compacting by itself after this many failures in a row",
        "min_reduction_percent": "what automatic compaction has to free at least, in percent",
        "thrash_refills": "stop when the window fills up again this many times in a row ...",
        "thrash_turns": "... each time within this many turns",
        "request_floor_percent": "the model may ask for a compaction from this share of the trigger on, in percent",
    },
    "How to make room": {
        "summary_budget_tokens": "the longest record of a compaction, in tokens",
        "user_words_tokens": "how much of what you said is kept word for word, in tokens",
        "keep_min_tokens": "the newest messages that stay as they are: at least this many tokens",
        "keep_max_tokens": "the newest messages that stay as they are: at most this many tokens",
        "keep_min_texts": "the newest messages that stay as they are: at least this many with text",
        "precompute": "have a summarizer write its record ahead of time",
        "ledger_tools": "what tools of your own do, as PATTERN=DEED: read, edit, write, run, todo",
        "user_tools": "tools that ask you something, by their exact names: their results count as your words",
        "collapse": "fold long stretches of finished work into a short record each",
        "collapse_min_tokens": "the shortest stretch that is folded, in tokens",
        "snip": "drop what led nowhere, such as interrupted calls",
        "snip_min_saved_tokens": "what dropping it has to free at least, in tokens",
        "microcompact": "clear old tool results",
        "microcompact_tools": "tools whose results are cleared first, as they can be run again",
        "microcompact_large_tokens": "results of other tools of this size may be cleared too, in tokens",
        "microcompact_keep_tokens": "the newest tool results that stay, in tokens",
        "microcompact_min_saved_tokens": "what clearing results has to free at least, in tokens",
        "microcompact_reach_tokens": "results are cleared from this many tokens below the trigger on",
        "microcompact_keep_last": "the newest tool results that stay in any case",
        "microcompact_spare_errors": "keep the results of calls that failed",
        "idle_clear": "clear old results after a pause so long that the provider's cache has expired",
        "idle_keep_last": "the newest results that stay after such a pause",
        "idle_compact": "compact after such a pause where that spares much (thrifty_least_tokens)",
        "provider_clearing": "have the provider clear results, where it offers that",
        "provider_compaction": "have the provider summarise before we do, where it offers that",
        "offload": "keep large tool results in a file, and show the model their beginning",
        "result_limit_chars": "the longest tool result that stays whole, in characters",
        "result_limits_chars": "the same for single tools, by their names, in characters",
        "message_limit_bytes": "the most bytes of tool results in one message",
        "preview_chars": "how much of a large result is shown, in characters",
        "offload_exempt_tools": "tools whose results always stay whole",
    },
    "What comes back after a compaction": {
        "restore": "give the model files, plans and lists again that it was working with",
        "restore_files": "how many files are given again",
        "restore_file_tokens": "the most of one file, in tokens",
        "restore_files_tokens": "the most of all files together, in tokens",
        "restore_file_max_bytes": "a file with more bytes isn't given again",
        "restore_plan_tokens": "the most of a plan, in tokens",
        "restore_todos_tokens": "the most of a to-do list, in tokens",
        "restore_skill_tokens": "the most of one skill, in tokens",
        "restore_skills_tokens": "the most of all skills together, in tokens",
        "restore_background_tokens": "the most about work in the background, in tokens",
        "restore_tools_tokens": "the most about tools that were loaded later, in tokens",
        "restore_start_tokens": "the most of what the session started with, in tokens",
        "restore_memory_tokens": "the most of the memory index, in tokens",
        "recall_tool": "whether the model has the recall tool; none: look at those of the request; the gateway adds it",
        "pins_tokens": "what all pins together may take, in tokens",
    },
    "Notes of a session": {
        "notes": "keep notes of each session",
        "notes_first_tokens": "the first notes are taken after this many tokens",
        "notes_growth_tokens": "they are updated after this many more tokens ...",
        "notes_calls": "... and this many tool calls, or when the agent pauses",
        "notes_section_tokens": "the longest section, in tokens",
        "notes_file_tokens": "the longest notes, in tokens",
        "notes_runs_per_hour": "the most updates by a model in an hour; 0 for any number",
        "notes_tokens_per_hour": "the most tokens a model may use for notes in an hour; 0 for any number",
        "notes_turns": "the most calls of a model for one update",
        "notes_rests": "after a model failed, code takes over for at most this many updates",
        "notes_wait_seconds": "how long a compaction waits for an update that is running, in seconds",
        "notes_stale_seconds": "an update that has run for longer isn't waited for, in seconds",
    },
    "Memory": {
        "memory": "remember things across sessions",
        "memory_mode": "what agents may write: off, read-only, ask (you approve each change) or auto",
        "memory_directory": "where a project's memories are; unset: in the home folder, by repository",
        "memory_index_lines": "how much of the index is shown to the model, in lines",
        "memory_index_bytes": "how much of the index is shown to the model, in bytes",
        "memory_results": "how many memories are chosen for a turn",
        "memory_floor": "how well a memory has to match, from 0 to 1",
        "retrieval_semantic": "nearness in meaning counts in memory search, if the extra `semantic` is installed",
        "memory_candidates": "how many memories a model chooses from",
        "memory_select_seconds": "how long a model may take to choose, in seconds",
        "memory_tool_turns": "notes on using a tool are left out when it was used in the last turns, this many",
        "memory_body_tokens": "the most of each chosen memory, in tokens",
        "memory_extract": "look for what to remember after a turn",
        "memory_extract_growth_tokens": "a model looks after this many new tokens",
        "memory_extract_turns": "the most calls of a model for one look",
        "memory_extract_runs_per_hour": "the most looks by a model in an hour; 0 for any number",
        "memory_extract_tokens_per_hour": "the most tokens a model may use to look in an hour; 0 for any number",
        "memory_consolidate": "tidy the memory now and then",
        "memory_consolidate_hours": "at most once in this many hours ...",
        "memory_consolidate_sessions": "... and after at least this many sessions",
    },
    "Instruction files": {
        "instructions": "read CLAUDE.md, its rules and imports; chat and run do so unless this is set to false",
        "instructions_local": "also read CLAUDE.local.md",
        "instructions_agents_md": "also read AGENTS.md",
        "instructions_excludes": "files that are never read, as patterns of absolute paths",
        "instructions_tokens": "the most of all instruction files together, in tokens",
        "instructions_diff_tokens": "a change larger than this is announced instead of shown, in tokens",
    },
    "Agent": {
        "permission_mode": "what needs no question: default, accept_edits, plan or bypass",
        "permission_allow": "calls that need no question, such as Bash(git status:*) or Edit(src/**)",
        "permission_ask": "calls that are asked about in every mode",
        "permission_deny": "calls that are never made, such as Read(.env)",
        "sandbox": "run unattended commands in a sandbox: auto (where there is one), on or off",
        "sandbox_network": "let commands in the sandbox reach the network",
        "hooks": "shell commands that run at moments of a session, in the form of Claude Code's hooks",
        "hook_timeout_seconds": "the longest that a hook may take unless it says otherwise, in seconds",
        "claude_code_settings": "use hooks and some settings of Claude Code: yours, and those of trusted folders",
        "trusted_folders": "folders you trust; FOLDER/** is everything below one",
        "agent_turns": "the most calls of the model for one prompt",
        "agent_parallel": "the most tools that run at a time, if they only read",
        "agent_background": "the most commands and sub-agents in the background at a time",
        "read_lines": "the most lines that Read shows at once",
        "read_line_chars": "how much of a long line is shown, in characters",
        "read_max_bytes": "the largest text file that Read opens, in bytes",
        "image_max_bytes": "the largest image that Read opens, in bytes",
        "find_limit": "the most paths of Glob or lines of Grep",
        "command_seconds": "how long a command may run, in seconds",
        "command_most_seconds": "how long a command may run at the model's request, in seconds",
        "command_output_bytes": "a command that prints more bytes is stopped",
        "command_shown_bytes": "how much of its output the model gets, in bytes",
    },
    "Checkpoints of files": {
        "checkpoints": "keep files as they were before each prompt, so that rewind can put them back",
        "checkpoint_commands": "also keep what commands change",
        "checkpoint_file_bytes": "a larger file isn't kept, in bytes",
        "checkpoint_files": "a folder with more files isn't compared around commands",
        "checkpoint_excludes": "what isn't kept, besides what git ignores",
        "checkpoint_snapshots": "how many prompts of a session can be gone back to",
        "checkpoint_disk_bytes": "the most disk space for one session, in bytes",
    },
    "Safety and storage": {
        "neutralise": "disarm control tags in text from outside: all, results (of tools only) or off",
        "redact_at_ingest": "keep secrets out of the journal, too",
        "max_message_bytes": "the largest message that is taken, in bytes",
        "max_message_blocks": "the most blocks in a message",
        "max_json_depth": "how deep JSON may be nested",
        "events": "where events go: log, jsonl:PATH, otel",
        "durability": "commit waits until each record is on disk; process leaves that to the system",
    },
}


def description(name: str) -> str:
    """What a setting does, in a line."""
    return next(group[name] for group in DESCRIPTIONS.values() if name in group)
