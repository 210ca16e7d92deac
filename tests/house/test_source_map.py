"""DOC-1, finding M1: the map of the source documents' words to ours and back, and the page of thresholds."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

import pytest
import typer
from tests.house.test_links import broken, links
from typer.core import TyperGroup

from perdure import events
from perdure.adapters.config import ALIASES, CLAUDE_KEYS, SWITCHES
from perdure.cli.app import app
from perdure.cli.chat.commands import COMMANDS
from perdure.compaction.summary import UNITS_PER_TOKEN, _words_units
from perdure.context.models import UNKNOWN
from perdure.context.policy import Facts, Thresholds, thresholds
from perdure.settings import Settings

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "perdure"
MAP = ROOT / "docs" / "how" / "source-map.md"
NUMBERS = ROOT / "docs" / "how" / "thresholds.md"
BACK = "## From our words to theirs"
SETTINGS = frozenset(field.name for field in fields(Settings))
EVENTS = frozenset(one.__name__ for one in events.Event.__args__)  # type: ignore[attr-defined]
ENVIRONMENT = frozenset({*SWITCHES.values(), *CLAUDE_KEYS, *(name for some in ALIASES.values() for name in some)})

# What the source documents call things. Names stand in code spans on the page, the others as plain words.
NAMES = """
calculateAvailableTokens getAutoCompactTarget calculateThresholds isAutoCompactEnabled shouldTriggerAutoCompact
autoCompactDispatcher sessionMemoryCompact fullCompact microCompactToolResults generateConversationSummary
estimateTokensWithSafetyMargin countMessageTokens getCachedToolResultTokens restoreRecentFilesAfterCompact
prependSystemReminderWithContext readFileState clearedMemoryUuids compactedToolIds toolResultTokenCache percentLeft
isAboveWarningThreshold isAboveErrorThreshold isAboveAutoCompactThreshold isAtBlockingLimit
shouldTriggerExtraction sessionMemoryExtractor readOrInitializeMemoryFile createToolRestrictor updateLastSummarizedId
setLastSummarizedId waitForPendingSessionMemoryUpdate lastSummarizedId lastTriggeredMessageId lastProcessedAssistantId
pendingSessionMemoryUpdateStartedAt minimumMessageTokensToInit minimumTokensBetweenUpdate toolCallsBetweenUpdates
getMessagesAfterCompactBoundary applyToolResultBudget maybeHistorySnip microcompact maybeContextCollapseProjection
shouldAutoCompact trySessionMemoryCompaction fullCompaction buildPostCompactMessages runPostCompactCleanup callModel
retryWithRecoveryLadder
TOKENS_PER_IMAGE PRESERVE_BUFFER BUFFER_TOKENS MAX_OUTPUT_TOKENS COMPACTABLE_TOOLS KEEP_RECENT_TOOL_RESULTS
IDLE_THRESHOLD_MS MAX_TOOL_RESULT_BYTES_PER_MESSAGE MAX_PTL_RETRIES MAX_FAILURES MAX_LINES MAX_BYTES SM_COMPACT_CONFIG
SESSION_MEMORY_CONFIG SESSION_MEMORY_WAIT_TIMEOUT_MS SESSION_MEMORY_STALE_UPDATE_MS
DISABLE_COMPACT DISABLE_AUTO_COMPACT CLAUDE_AUTOCOMPACT_PCT_OVERRIDE CLAUDE_CODE_AUTO_COMPACT_WINDOW
autoCompactEnabled tengu_session_memory tengu_sm_compact
tengu_compact tengu_compact_failed tengu_partial_compact_failed tengu_microcompact tengu_session_memory_extraction
tengu_sm_compact_empty_template tengu_sm_compact_summarized_id_not_found tengu_sm_compact_resumed_session
tengu_sm_compact_threshold_exceeded tengu_post_compact_file_restore_success tengu_post_compact_file_restore_error
""".split()
WORDS = """
token accounting | threshold detection | context window | micro-compaction | session memory | session memory compact
full compaction | context restoration | message flattening | persistent memory | context pipeline | checkpoints | PTL
prompt too long | boundary | compact_boundary | context collapse | history snip | memdir | auto memory | team memory
dream | forked agent | dynamic prompt boundary | rewind | --rewind-files | file history | summary.md
margin 4/3 on estimates (1.33) | image = 2000 tokens | unknown block: JSON is counted
only user/assistant messages count | tool_result: string or array, text+image | counts cached per result
categories human/assistant/tool requests/results/attachments/duplicate reads | min(maxOut, 20k)
target = available - 13,000 | PCT override, floor, min with default | PCT override invalid
priority DISABLE over settings | warning at limit - 20k | error at limit - 20k (same as warning)
limit - 3k blocks input | auto threshold only if enabled | not in session_memory mode | autoCompactWindow
env override surfaced by /autocompact | log line tokens/level/effectiveWindow | Context low (...)
suggests /clear or manual trimming | 8 compactable tools | keep the last 3 | min savings 20k | keep threshold 40k
[Old tool result content cleared] | original saved | cleared ids tracked | old memory attachments cleared
flag/listeners for UI | time based: idle > 60 min, keep 5 | cached microcompact | budget before all else
64,000 bytes | same replacement on later turns | full output durable, reference | seenIds/replacements survive restart
always applied | snip | order: slice, budget, snip, microcompact, collapse, check, call, recovery
context collapse projection | collapse state persisted | bounded recovery ladder | /context mirrors
breaker after 3 failures | order SM -> full -> PTL | PTL failure raises an error | query source guard
compaction failure counted | 9 sections | <analysis> | user messages verbatim | tools refused, one turn
prompt cache shared | exact gap drop | oldest 20 % | PTL: 3 retries | [image] / [document] placeholders
K97: 2 retries of a broken summary stream | Failed to generate conversation summary | API error: event with reason
partial compaction, boundary kept | manual compaction with focus | precomputed compaction
reactive compaction; hook can block it | PreCompact trigger, custom_instructions | hook blocks (exit 2)
hook gives new instructions | PostCompact compact_summary | hooks from Claude's settings.json | 5 files, newest first
5k per file, 50k together | skip files visible in kept messages | exclude transcript, plan, CLAUDE.md
files read again from disk | todos, all items | plan path and content | skills 5k each
async agents / background state | deferred tool definitions | SessionStart hooks again | CLAUDE.md again
memory selector reset | nested memory reset | order: boundary, summary, kept messages, restored | pairs protected
metadata re-appended | cache monitor told | system+tools prefix unchanged
`<session>/session-memory/summary.md`, 0600/0700 | 10 sections, template | init at 5,000 | growth 5,000 and 10 calls
natural break | only main thread | debounced, never two at once | fork shares prefix and tools
only Edit on that path | not updated while compacting | wait 15 s | stale 60 s | empty template -> falls through
id not found -> falls through | resumed without notes | over threshold -> falls through | min 10k, 5 texts, max 40k
2,000 per section, 12,000 in all | trim Current State and Errors last | template.md | prompt.md | {{currentNotes}}
notes read as context | two switches (session_memory, sm_compact) | tokens, cache, three settings
MEMORY.md + topic files + team/ | index in the system prompt | 4 types, front matter | not saved: what code says
200 lines, 25,000 bytes | AutoMem normalised | front matter scan, small model, up to 5 | Select memories relevant to:
shown ones not offered again | usage notes out, warnings in | facts extraction request
allowed: Read/Grep/Glob, ls/find/cat/stat, Edit/Write there | denied: source, rm, redirects | two turns, parallel
explicit 'remember' | user / project / local / managed / auto scopes | .claude/rules with paths
managed can't be excluded | CLAUDE.md 40k | IDE selection | prependSystemReminder | empty map -> unchanged
merge same role | synthetic result | orphan refused | system-only messages filtered | metadata stripped
cache metadata stripped for accounting/hashing | snapshots before edits | /rewind | --rewind-files without --resume
with a prompt | not a user message | success line, no model turn | resume / continue / fork | no general undo
telemetry for each step
"""
TERMS = [term.strip() for line in WORDS.strip().splitlines() for term in line.split(" | ")]
SPAN = re.compile(r"`([^`]+)`")
CODE_OF_REASON = re.compile(r"\A([a-z]+(?:_[a-z]+)+): ")


@dataclass(frozen=True, slots=True)
class MapRow:
    """A row of the map: the cells as they are written."""

    theirs: str
    ours: str
    files: tuple[str, ...]
    knobs: tuple[str, ...]
    page: str

    @property
    def first(self) -> str:
        """Return the first of their words, without where it stands: the index names the row by it."""
        return re.sub(r" \([^()]*\)$", "", self.theirs).split("; ")[0]


def cells(line: str) -> list[str]:
    """Split a row of a table into its cells."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def rows_under(text: str, width: int) -> Iterator[list[str]]:
    """Yield the rows of all tables with so many columns, without their heads."""
    for line in text.splitlines():
        if line.startswith("|") and not re.match(r"\|[-: |]+\|$", line):
            found = cells(line)
            if len(found) == width and found[0] not in ("theirs", "file", "setting", "event", "name", "number"):
                yield found


@cache
def forth() -> tuple[MapRow, ...]:
    """Read the rows that lead from their words to ours."""
    text = MAP.read_text().partition(BACK)[0]
    return tuple(
        MapRow(theirs, ours, tuple(SPAN.findall(files)), tuple(SPAN.findall(knobs)), page)
        for theirs, ours, files, knobs, page in rows_under(text, 5)
    )


@cache
def defined_in(file: Path) -> frozenset[str]:
    """Return what a module defines: names, members of classes as `Class.name`, and codes of reasons in its texts."""
    tree = ast.parse(file.read_text())
    found = set(names_of(tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for name in names_of(node.body)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(CODE_OF_REASON.findall(node.value))
    return frozenset(found)


def names_of(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the functions, classes, fields and constants that stand right in a module or a class."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (one.id for one in targets if isinstance(one, ast.Name))
            case _:
                pass


def named_in(row: MapRow, file: str) -> set[str]:
    """Return which names of ours in this row stand in one of its files."""
    names, module = SPAN.findall(row.ours), SOURCES / file
    if not file.endswith(".py"):
        return {name for name in names if file == f"prompts/{name}"}
    found = {name for name in names if name in defined_in(module)}
    if file == "cli/chat/commands.py":
        found |= {name for name in names if name.removeprefix("/") in COMMANDS and name.startswith("/")}
    elif file.startswith("cli/"):
        found |= {name for name in names if name in commands() and name.split()[-1] in defined_in(module)}
    return found


@cache
def commands() -> frozenset[str]:
    """Return every command line: `perdure compact`, `perdure memory undo`."""
    found, waiting = set[str](), [("perdure", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        found.add(name)
        if isinstance(command, TyperGroup):
            context = typer.Context(command)
            waiting += [(f"{name} {one}", command.get_command(context, one)) for one in command.list_commands(context)]
    return frozenset(found)


def test_each_of_their_names_has_a_row() -> None:
    """DOC-1: every function, stage, constant, variable and event of the documents stands in the first column."""
    known = {name for row in forth() for name in SPAN.findall(row.theirs)}
    assert len(NAMES) > 80 and not [name for name in NAMES if name not in known]


def test_each_of_their_words_has_a_row() -> None:
    """DOC-1: so does every layer, file, mechanism and number."""
    told = "\n".join(row.theirs for row in forth())
    assert len(TERMS) > 150 and not [term for term in TERMS if term not in told]


def test_each_of_ours_exists() -> None:
    """DOC-1: each name stands in a file of its row, and each file has one; settings, events and variables are known."""
    wrong = []
    for row in forth():
        there = {file: named_in(row, file) for file in row.files if (SOURCES / file).is_file()}
        known = {"events.py": EVENTS, "settings.py": SETTINGS}
        wrong += [f"{row.first}: no file {file}" for file in row.files if file not in there]
        names = set(SPAN.findall(row.ours)).difference(*there.values())
        wrong += [f"{row.first}: no `{name}` in its files" for name in names]
        idle = [file for file, found in there.items() if not found | known.get(file, frozenset()) & {*row.knobs}]
        wrong += [f"{row.first}: nothing of ours in {file}" for file in idle]
        wrong += [f"{row.first}: `{name}`" for name in row.knobs if name not in SETTINGS | EVENTS | ENVIRONMENT]
        if not row.files or not row.ours:
            wrong.append(f"{row.first}: names no file, or nothing of ours")
    assert not wrong, "\n".join(wrong)


def test_a_wrong_name_is_seen() -> None:
    """The check itself: a local name, a member without its class and a name of another file aren't found."""
    row = MapRow("", "`limit`, `WARNING`, `Pressure.WARNING`, `compact`, `/compact`, `/nothing`", (), (), "")
    assert named_in(row, "context/policy.py") == {"Pressure.WARNING"}
    assert named_in(row, "cli/chat/commands.py") == {"/compact"} and named_in(row, "cli/compact.py") == {"compact"}


def test_each_row_leads_to_a_page() -> None:
    """DOC-1: every row has one link, to a page and a heading that are there."""
    wrong = [row.first for row in forth() if len(links(row.page)) != 1]
    wrong += [f"{row.first}: {target}" for row in forth() for target in links(row.page) if broken(MAP, target)]
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("heading", "is_of_it"),
    [
        ("Files", lambda name: name.endswith((".py", ".md"))),
        ("Settings", SETTINGS.__contains__),
        ("Events", EVENTS.__contains__),
        ("Environment and other programs' settings", ENVIRONMENT.__contains__),
    ],
)
def test_the_index_leads_back(heading: str, is_of_it: Callable[[str], bool]) -> None:
    """DOC-1: the index has each of ours that a row names, with the first words of just these rows."""
    wanted: dict[str, set[str]] = {}
    for row in forth():
        for name in filter(is_of_it, (*row.files, *row.knobs)):
            wanted.setdefault(name, set()).add(row.first)
    text = MAP.read_text().partition(BACK)[2].partition(f"### {heading}\n")[2].partition("\n### ")[0]
    index = {SPAN.findall(ours)[0]: set(theirs.split("; ")) for ours, theirs in rows_under(text, 2)}
    assert index == wanted


def test_the_front_page_says_what_this_implements() -> None:
    """DOC-1: on its first screen the README names the source, and leads to both pages."""
    screen = (ROOT / "README.md").read_text().partition("## Half a minute")[0]
    assert {"docs/how/source-map.md", "docs/how/thresholds.md"} <= set(links(screen)) and "Claude Code" in screen


# --- thresholds ----------------------------------------------------------------------------------------------------

WINDOWS = (32_000, 128_000, 200_000, 1_000_000)
MODEL = replace(UNKNOWN, max_output_tokens=64_000)


def limits(window: int, **settings: bool) -> Thresholds:
    """Compute the thresholds of a window."""
    return thresholds(Settings(**settings), MODEL, window, "setting")  # type: ignore[arg-type]


def table(width: int, heading: str) -> list[list[str]]:
    """Read the rows of the table with so many columns below a heading."""
    text = NUMBERS.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [row for row in rows_under(text, width) if row[0] not in ("window", "what")]


def shown(*numbers: int) -> list[str]:
    """Write numbers as the page does."""
    return [f"{number:,}" for number in numbers]


def test_the_thresholds_are_those_of_the_code() -> None:
    """DOC-1, PRS-1, PRS-2: for usual windows, with auto-compaction on and off."""
    on = [(w, limits(w)) for w in WINDOWS]
    rows = [shown(w, one.reserve, one.usable, one.warning, one.error, one.trigger, one.block) for w, one in on]
    assert table(7, "Usual windows") == rows
    off = [(w, limits(w, auto_compact=False)) for w in WINDOWS]
    assert table(4, "Usual windows") == [shown(w, one.warning, one.error, one.block) for w, one in off]


def test_from_where_on_offsets_are_whole() -> None:
    """DOC-1, PRS-2: the page says from which window on no offset is cut."""
    settings = Settings()
    said = re.search(r"From ([\d,]+) tokens on every offset is whole", NUMBERS.read_text())
    assert said is not None
    window = int(said[1].replace(",", ""))

    def is_whole(one: Thresholds) -> bool:
        taken = (one.usable - one.trigger, one.usable - one.block, one.trigger - one.warning, one.trigger - one.error)
        return taken == (
            settings.trigger_offset_tokens,
            settings.block_offset_tokens,
            settings.warning_offset_tokens,
            settings.error_offset_tokens,
        )

    assert is_whole(limits(window)) and not is_whole(limits(window - 1_000))


def test_the_budgets_are_those_of_the_code() -> None:
    """DOC-1, PRS-2: what clearing and compaction may keep in usual windows."""
    settings = Settings()
    facts = [Facts(settings=settings, limits=limits(w)) for w in WINDOWS]
    wanted = {
        "`microcompact_reach_tokens`": [one.limits.trigger - one.reach_tokens for one in facts],
        "": [one.limits.trigger // 2 for one in facts],
        "`user_words_tokens`": [_words_units(one) // UNITS_PER_TOKEN for one in facts],
    }
    rows = table(6, "Clearing and compaction in numbers")
    assert len(rows) > 10
    for _, name, *numbers in rows:
        plain = name.strip("`")
        by_share = [one.limits.scaled(getattr(settings, plain)) for one in facts] if name not in wanted else []
        assert numbers == shown(*(by_share or wanted[name])), name


def test_the_numbers_in_the_text_are_the_defaults() -> None:
    """DOC-1: settings that the page names exist, and the margin and the shares are as it says."""
    text, settings = NUMBERS.read_text(), Settings()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    named = {name for name in SPAN.findall(prose) if re.fullmatch(r"[a-z]+(_[a-z]+)+", name)}
    assert len(named) > 20 and named <= SETTINGS
    assert f"times {settings.margin_numerator}/{settings.margin_denominator}, rounded up" in text
    assert f"The last {settings.microcompact_keep_last} results" in text
    assert f"all but the last {settings.idle_keep_last} are cleared" in text
    assert f"keeps {settings.keep_min_texts} messages with text" in text
    assert re.search(rf"After {settings.breaker_failures}\s+failures in a row", text)
    assert f"nor after {settings.thrash_refills} that filled up again within {settings.thrash_turns} turns" in text
    offsets = ("reserve_cap", "trigger_offset", "block_offset", "warning_offset", "error_offset")
    formulas = {row[2]: row[1] for row in table(3, "The formula")}
    for name in offsets:
        formula = next(formula for setting, formula in formulas.items() if name in setting)
        assert f"{getattr(settings, f'{name}_tokens'):,}" in formula
