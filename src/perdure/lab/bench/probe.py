"""The probe: from what was said before and after a compaction, what the agent turned out to need (QLT-1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from perdure.transcript.blocks import Block, Text, ToolResult, ToolUse
from perdure.transcript.messages import Message, MessageId, spoken_blocks
from perdure.transcript.tokens import block_size

Kind = Literal["path", "file", "name", "kebab", "flag", "url", "hash", "number"]


class FactName(NamedTuple):
    """A fact as it is compared: its kind, and its normalised spelling."""

    kind: Kind
    key: str


class Sighting(NamedTuple):
    """A fact in a line of text, and where in that line it starts and ends."""

    name: FactName
    start: int
    end: int


_LONGEST_CHARS: Final = 120  # what is longer is data, not a name
_DIGITS: Final = 3  # a number of fewer digits says nothing
_HASH_DIGITS: Final = 7
_KEBAB_CHARS: Final = 6  # a-z and p-3 are no names
_CACHED_LINES: Final = 400_000

_URL: Final = re.compile(r"https?://[^\s\"'`<>()\[\]{}|\\^]+")
_DRIVE: Final = re.compile(r"[A-Za-z]:$")
_ESCAPE: Final = re.compile(r"\\+[nrtbfv]?")
_BACKSLASHES: Final = re.compile(r"[\\/]+")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CHUNK: Final = re.compile(r"[\w./\\@~+-]+(?:,\d{3}(?!\d))*", re.ASCII)
_FLAG: Final = re.compile(r"--[A-Za-z][\w-]+", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)*|\d{4}-\d{2}-\d{2}|\d{1,3}(?:,\d{3})+")
_KEBAB: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+")
_HEX: Final = re.compile(r"[0-9a-f]{7,64}|[0-9A-F]{7,64}")
_HUMPS: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_FILE: Final = re.compile(
    r"[\w.@+-]*\w\.(?:astro|avsc|bash|bat|bazel|bzl|c|cc|cfg|cjs|clj|cmake|cmd|conf|cpp|cs|css|csv|cts|cue|dart|db|diff|"
    r"dockerfile|ejs|elm|env|erl|ex|exs|fish|fs|gif|gitignore|go|gradle|graphql|groovy|h|hbs|hpp|hs|html?|ico|ini|ipynb|"
    r"java|jl|jpe?g|js|json|json5|jsonc|jsonl|jsx|kt|kts|less|lock|log|lua|m|make|md|mdx|mjs|mk|ml|mod|mts|nix|nu|patch|"
    r"pdf|php|pl|png|po|properties|proto|ps1|psm1|py|pyi|pyx|r|rb|rs|rst|sass|scala|scss|sh|snap|sql|sqlite|sum|svelte|"
    r"svg|swift|tar|tex|tf|tmpl|toml|traj|ts|tsx|txt|vue|wasm|webp|xml|xsd|ya?ml|zig|zip|zsh)",
    re.ASCII,
)
_CALLS: Final = frozenset("console.log math.log t.log np.log torch.log logger.log self.db this.db".split())
_ROUND: Final = re.compile(r"[1-9]\d?0+|(?:19|20)\d\d|0+|0?\.\d0*")
_PLACED: Final = re.compile(r"[/~]|\.{1,2}/|[A-Za-z]:/")
_SIGNS: Final = re.compile(r"[._\-@\d]|[a-z][A-Z]")

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,}")
_STOP: Final = frozenset(
    "the and for with that this from are was were not but you your have has had can will would should could into then "
    "than when where which what who how why all any each its our out one two new now also only just let use used using "
    "get got see there here they them their been being does did done because about after before over under more most "
    "some such very same other make made need needs like line lines file files null true false none".split()
)


@lru_cache(maxsize=_CACHED_LINES)
def sightings(line: str) -> tuple[Sighting, ...]:
    """The facts in one line, in order. A path gives itself (its last two parts) and the file it ends with."""
    found: list[Sighting] = []
    if "://" in line:
        for match in _URL.finditer(line):
            url = match[0].rstrip(".,:;!?*_~/")
            found.append(Sighting(FactName("url", url), match.start(), match.end()))
        line = _URL.sub(lambda match: " " * len(match[0]), line)
    for match in _CHUNK.finditer(line):
        chunk = match[0]
        if len(chunk) <= 2 or (chunk.isalpha() and (chunk.islower() or chunk.istitle())) or "REDACTED" in chunk:
            continue
        if "\\" in chunk and not _is_windows_path(line, match.start(), chunk):
            chunk = _ESCAPE.sub(" ", chunk)
        for name in (name for part in chunk.split() for name in _names(part)):
            if len(name.key) <= _LONGEST_CHARS:
                found.append(Sighting(name, match.start(), match.end()))
    return tuple(found)


def names_in(text: str) -> Iterator[FactName]:
    """The facts in a text, as often as they stand there."""
    for line in text.splitlines():
        for sighting in sightings(line):
            yield sighting.name


def words_around(text: str, start: int, end: int, chars: int) -> frozenset[str]:
    """The telling words within so many characters before and after a place, without what stands there itself."""
    own = {word.lower() for word in _WORD.findall(text[start:end])}
    around = text[max(0, start - chars) : start] + " " + text[end : end + chars]
    return frozenset(word.lower() for word in _WORD.findall(around)) - _STOP - own


def _is_windows_path(line: str, start: int, chunk: str) -> bool:
    """Whether backslashes part the folders of a path, rather than escape what follows: D:\\a\\b, src\\main.go."""
    if _DRIVE.search(line, max(0, start - 2), start):
        return True
    parts = _BACKSLASHES.split(chunk)
    return bool(parts[0].strip(".") or chunk.startswith(".")) and _FILE.fullmatch(parts[-1]) is not None


def _names(chunk: str) -> Iterator[FactName]:
    """The names in a run of characters without blanks."""
    if chunk.startswith("--"):
        flag = _FLAG.match(chunk)
        if flag is not None:
            yield FactName("flag", flag[0].rstrip("-_"))
            return
    if "," in chunk and not _NUMBER.fullmatch(chunk):
        for part in chunk.split(","):
            yield from _names(part)
        return
    if "/" in chunk or "\\" in chunk:
        yield from _path_names(_BACKSLASHES.sub("/", chunk))
    else:
        yield from _plain_names(chunk.strip(".@~+-"))


def _path_names(path: str) -> Iterator[FactName]:
    parts = [part for part in path.rstrip(".@~+-").split("/") if part.strip(".~")]
    if not parts or path == "/dev/null":  # which nobody has to remember
        return
    if len(parts) == 1:
        yield from _plain_names(parts[0].strip("@~+-"))
        return
    is_file = _FILE.fullmatch(parts[-1]) is not None
    has_letters = any(c.isalpha() for c in parts[-1]) and any(c.isalpha() for c in parts[-2])
    if has_letters and (is_file or _PLACED.match(path) or len(parts) > 2 or _SIGNS.search("/".join(parts[-2:]))):
        yield FactName("path", "/".join(parts[-2:]))
        if is_file:
            yield FactName("file", parts[-1])
        return
    for part in parts:
        yield from _plain_names(part)


def _plain_names(chunk: str) -> Iterator[FactName]:
    """Names in what has no separator of a path."""
    if _NUMBER.fullmatch(chunk):
        number = chunk.replace(",", "")
        if sum(c.isdigit() for c in number) >= _DIGITS and not _ROUND.fullmatch(number):
            yield FactName("number", number)
    elif "." in chunk:
        if _FILE.fullmatch(chunk) and chunk.lower() not in _CALLS:
            yield FactName("file", chunk)
        else:
            for part in chunk.split("."):
                yield from _plain_names(part.strip("-+@~"))
    elif "-" in chunk:
        yield from _dashed(chunk)
    elif "@" in chunk or "+" in chunk or "~" in chunk:
        for part in re.split(r"[@+~]", chunk):
            yield from _plain_names(part)
    else:
        yield from _word_names(chunk)


def _dashed(chunk: str) -> Iterator[FactName]:
    if _UUID.fullmatch(chunk):
        yield FactName("hash", chunk[:_HASH_DIGITS].lower())
    elif _KEBAB.fullmatch(chunk):
        if len(chunk) >= _KEBAB_CHARS:
            yield FactName("kebab", chunk)
    else:
        for part in chunk.split("-"):
            yield from _plain_names(part)


def _word_names(word: str) -> Iterator[FactName]:
    """A single word: a hash, or a name in snake case, camel case or mixed with digits."""
    has_digit = any(c.isdigit() for c in word)
    if len(word) < 4 or not any(c.isalpha() for c in word):
        return
    if has_digit and _HEX.fullmatch(word):
        yield FactName("hash", word[:_HASH_DIGITS].lower())
    elif "_" in word.strip("_") or has_digit or _HUMPS.search(word):
        yield FactName("name", word)


Who = Literal["user", "agent", "environment"]


@dataclass(frozen=True, slots=True)
class Utterance:
    """One block of a message. `start_tokens` counts from the first one; `line` is its place in the recording."""

    who: Who
    text: str
    start_tokens: int
    tokens: int
    line: int
    use: ToolUse | None = None
    tool: str = ""  # whose result it is
    answers: str = ""  # the call that it is the result of
    is_error: bool = False


def utterances_of(messages: Sequence[Message], lines: Mapping[MessageId, int]) -> list[Utterance]:
    """All that was said, block by block, without sub-agents' own talk and without thinking."""
    said: list[Utterance] = []
    tools: dict[str, str] = {}
    at = 0
    for message in messages:
        if message.agent_id is not None:
            continue
        line = lines.get(message.id, 0)
        words = dict(spoken_blocks(message))
        for index, block in enumerate(message.blocks):
            tokens = block_size(block).base
            value = block.value
            if isinstance(value, ToolUse):
                tools[value.id] = value.name
                said.append(Utterance("agent", input_text(value), at, tokens, line, use=value))
            elif isinstance(value, ToolResult):
                tool = tools.get(value.tool_use_id, "")
                is_error = bool(value.is_error)
                said.append(
                    Utterance(
                        "environment",
                        value.text(),
                        at,
                        tokens,
                        line,
                        tool=tool,
                        answers=value.tool_use_id,
                        is_error=is_error,
                    )
                )
            elif isinstance(value, Text):
                said.append(Utterance(_who(message, index in words), words.get(index, value.text), at, tokens, line))
            at += tokens
    return said


def _who(message: Message, is_spoken: bool) -> Who:
    if message.role == "assistant":
        return "agent"
    return "user" if is_spoken else "environment"


def input_text(use: ToolUse) -> str:
    """The values of a call's input, one below the other; its keys are the tool's words, not the agent's."""
    return "\n".join(_values(use.input))


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


def shown(messages: Sequence[Message]) -> str:
    """Messages as plain text, in order: how a view that is made of messages is read by the probe."""
    return "\n".join(text for text in (shown_message(message) for message in messages) if text)


def shown_message(message: Message) -> str:
    """One message as plain text: its text, the values of its calls, the text of its results."""
    if message.agent_id is not None:
        return ""
    return "\n".join(text for text in (shown_block(block) for block in message.blocks) if text)


def shown_block(block: Block) -> str:
    value = block.value
    if isinstance(value, Text):
        return value.text
    if isinstance(value, ToolUse):
        return f"[{value.name}] {input_text(value)}"
    return value.text() if isinstance(value, ToolResult) else ""


_PATH_KEYS: Final = ("file_path", "path", "notebook_path", "filePath", "filename", "absolute_path", "target_file")
_COMMAND_KEYS: Final = ("command", "cmd", "script")
_OLD_KEYS: Final = ("old_string", "old_str", "oldString", "old_text", "search")
_NEW_KEYS: Final = ("new_string", "new_str", "newString", "new_text", "content", "file_text", "insert_text",
                    "new_source", "replacement", "replacement_text", "code_edit")  # fmt: skip
_EDITS: Final = re.compile(r"edit|write|patch|replace|create_file|^create$|^insert$|notebook", re.IGNORECASE)
_READS: Final = re.compile(r"(?:^|_)(?:read|view|open|cat)(?:_|$)|^Read$|^NotebookRead$|ReadFile", re.IGNORECASE)
_PART_KEYS: Final = ("offset", "limit", "start_line", "end_line", "line_start", "line_end", "view_range", "pages")
_SHELLS: Final = re.compile(r"bash|shell|exec|terminal|run_|powershell|command|test", re.IGNORECASE)
_PATCHED: Final = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+?)\s*$", re.MULTILINE)
_CD: Final = re.compile(r"^cd\s+(?:\"[^\"]*\"|'[^']*'|\S+)\s*(?:&&|;)\s*")
_COMMAND_CHARS: Final = 200  # a longer command is known by its beginning
_LEAST_COMMAND_CHARS: Final = 6

_FAILED: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^\s*--- FAIL: (\S+)",  # go
        r"^FAILED (\S+::\S.*?)(?: - .*)?$",  # pytest, the short summary
        r"^(\S+::\S+)\s+FAILED\b",  # pytest -v
        r"^test (\S+) \.\.\. FAILED$",  # cargo
        r"^(?:FAIL|ERROR): (\w+) \(",  # unittest
        r"^\(fail\) (.+?)(?: \[[\d.]+ ?m?s\])?$",  # bun
        r"^\s*● (.+ › .+?)$",  # jest
        r"^\s*[✕✗] (.{4,}?)(?: \(?\d+(?:\.\d+)? ?m?s\)?)?$",  # jest, mocha
        r"^not ok \d+ -? ?(.+?)(?: # .*)?$",  # TAP
    )
)


def edited_paths(use: ToolUse) -> list[str]:
    """The files that a call changes, as it spells them, with / between the parts."""
    arguments = use.input
    paths = [found for text in _texts(arguments) if "*** " in text for found in _PATCHED.findall(text)]
    if _EDITS.search(use.name) and arguments.get("command") not in ("view", "undo_edit"):
        paths += [arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)][:1]
    return [re.sub(r"[\\/]+", "/", path) for path in paths]


def read_path(use: ToolUse) -> str | None:
    """The file that a call reads, with the part of it where it names one: another part is another thing to see."""
    arguments = use.input
    if not (_READS.search(use.name) or arguments.get("command") == "view"):
        return None
    path = next((arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)), None)
    if path is None:
        return None
    part = ",".join(str(arguments[key]) for key in _PART_KEYS if arguments.get(key) is not None)
    path = re.sub(r"[\\/]+", "/", path)
    return f"{path}#{part}" if part else path


def command_of(use: ToolUse) -> str | None:
    """The shell command of a call: its first line, in single blanks, without a leading change of directory."""
    if not _SHELLS.search(use.name):
        return None
    for key in _COMMAND_KEYS:
        given = use.input.get(key)
        text = " ".join(map(str, given)) if isinstance(given, list) else given
        if isinstance(text, str) and text.strip():
            first = _CD.sub("", " ".join(text.strip().splitlines()[0].split()))
            return first[:_COMMAND_CHARS] if len(first) >= _LEAST_COMMAND_CHARS else None
    return None


def old_texts(use: ToolUse) -> Iterator[str]:
    """What an edit names as the text to replace: it has to know it to the letter."""
    for name, text in _keyed(use.input):
        if name in _OLD_KEYS:
            yield text
        elif "*** Update File: " in text:
            yield "\n".join(line[1:] for line in text.splitlines() if line[:1] in ("-", " "))


def written_texts(use: ToolUse) -> Iterator[str]:
    """What a call writes: new texts of edits, contents of files, all of a command but its first line."""
    for name, text in _keyed(use.input):
        if name in _NEW_KEYS:
            yield text
        elif "*** " in text and _PATCHED.search(text):
            yield "\n".join(line[1:] for line in text.splitlines() if line.startswith("+"))
        elif name in _COMMAND_KEYS and "\n" in text.strip():
            yield text.strip().split("\n", 1)[1]


def _keyed(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text of an input with the key that it stands under."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _keyed(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _keyed(inner, name)


def _texts(value: Any) -> Iterator[str]:
    return (text for _, text in _keyed(value))


def failing_tests(said: Sequence[Utterance]) -> list[str]:
    """The tests that the output of a command reports as failed, also those that passed later."""
    failed: dict[str, None] = {}
    for one in said:
        if one.who == "environment" and _SHELLS.search(one.tool):
            for pattern in _FAILED:
                failed.update(dict.fromkeys(name.strip() for name in pattern.findall(one.text)))
    return list(failed)


_ERROR_LINE: Final = re.compile(
    r"(?!\S+:\d+:(?!(?:\d+:)? *(?:[Ee]rror|fatal|undefined|cannot)))"  # what a search found in a program
    r"(?:\S*(?:Error|Exception|Panic)\b.{0,2}[:(]|E {1,}\S|\[?(?:ERROR|FATAL|fatal|panic|npm ERR!)\b.{0,20}?[:!\]]"
    r"|.*\b(?:[Ee]rror|fatal)(?:\[\w+\])?(?: \w+)?: |.*\b(?:command not found|No such file or directory|undefined:"
    r"|[Pp]ermission denied|[Cc]annot find|is not defined|timed out|[Cc]onnection refused|[Aa]ssertion failed))"
)
_ERROR_CHARS: Final = (12, 300)  # a shorter line says nothing, a longer one is a listing


def error_lines(one: Utterance) -> Iterator[str]:
    """The lines by which a command, or a call that failed, says what went wrong, in single blanks."""
    if one.who == "environment" and (one.is_error or _SHELLS.search(one.tool)):
        for raw in one.text.splitlines():
            line = " ".join(raw.split()) if len(raw) <= 4 * _ERROR_CHARS[1] else ""
            if _ERROR_CHARS[0] <= len(line) <= _ERROR_CHARS[1] and _ERROR_LINE.match(line):
                yield line


def repeated_errors(before: Sequence[Utterance], after: Sequence[Utterance]) -> list[str]:
    """Error lines that didn't come only once: that stood in two results before the cut, or come up again behind it."""
    seen: dict[str, int] = {}
    for one in before:
        for line in set(error_lines(one)):
            seen[line] = seen.get(line, 0) + 1
    again: set[str] = set()
    for one in within_horizon(after) if seen else ():
        again.update(" ".join(raw.split()) for raw in one.text.splitlines())
    return sorted(line for line, count in seen.items() if count > 1 or line in again)


_CREATED: Final = re.compile(r"Task #(\d+) created")


def open_todos(said: Sequence[Utterance]) -> list[str]:
    """The todos that are not done: of the last list that was written whole, or task by task."""
    whole: list[str] = []
    tasks: dict[str, str] = {}
    asked: list[str] = []
    for one in said:
        if one.tool == "TaskCreate" and asked:
            created = _CREATED.search(one.text)
            subject = asked.pop(0)
            if created:
                tasks[created[1]] = subject
        if one.use is None:
            continue
        arguments = one.use.input
        if one.use.name == "TaskCreate":
            asked.append(str(arguments.get("subject", "")))
        elif one.use.name == "TaskUpdate" and arguments.get("status") in ("completed", "deleted", "cancelled"):
            tasks.pop(str(arguments.get("taskId", "")), None)
        elif one.use.name in ("TodoWrite", "update_plan", "todo_write"):
            items = arguments.get("todos", arguments.get("plan"))
            whole = list(_open_items(items)) if isinstance(items, list) else whole
    return [todo for todo in [*whole, *tasks.values()] if todo.strip()]


def _open_items(items: list[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, dict) and item.get("status") not in ("completed", "cancelled", "deleted"):
            yield str(item.get("content", item.get("step", "")))


HORIZON_TOKENS: Final = 40_000  # what is needed later than this is another story
FAR_TOKENS: Final = 10_000
LINE_CHARS: Final = 25
_LINE_LETTERS: Final = 10  # rulers and brackets are nobody's memory
CONTEXT_CHARS: Final = 100  # how far the words stand that a fact stood among
CONTEXT_WORDS: Final = (3, 5)
_PLACES: Final = 12  # of a fact, the last so many places before the cut are remembered

_NUMBERED: Final = re.compile(r"^\s*(?:[^\s:]+:)?\d+(?:→|\t|:|-|\|)")
_DIFF: Final = re.compile(r"^[+-](?![+-])")


@dataclass(frozen=True, slots=True)
class NeededName:
    """A name that the agent needed: where it was last seen, where it was needed, and what it stood among."""

    name: FactName
    seen_line: int
    needed_line: int
    age_tokens: int  # from its last sighting to the cut
    settings: tuple[frozenset[str], ...]

    @property
    def is_far(self) -> bool:
        return self.age_tokens > FAR_TOKENS

    @property
    def has_context(self) -> bool:
        """Whether it stood among words at all, so that it can be asked in context."""
        return bool(self.settings)


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A file that was edited: how it is named, and whether its last part alone says which it is."""

    name: str
    file: str
    is_alone: bool


@dataclass(frozen=True, slots=True)
class Gold:
    """What a view behind the cut should hold, by axis."""

    facts: tuple[NeededName, ...] = ()
    lines: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    edited: tuple[EditedFile, ...] = ()
    users: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    todos: tuple[str, ...] = ()


def gold_of(before: Sequence[Utterance], after: Sequence[Utterance]) -> Gold:
    """The gold of a cut between what was said since the last boundary and what was said then."""
    lines, anchors = _needed_lines(before, after)
    return Gold(
        facts=tuple(_needed_facts(before, after)),
        lines=lines,
        anchors=anchors,
        commands=tuple(_needed_commands(before, after)),
        edited=tuple(_edited(before)),
        users=tuple(one.text for one in before if one.who == "user"),
        failing=tuple(failing_tests(before)),
        errors=tuple(repeated_errors(before, after)),
        todos=tuple(open_todos(before)),
    )


def within_horizon(after: Sequence[Utterance]) -> Iterator[Utterance]:
    """What was said in the first 40,000 tokens behind the cut."""
    tokens = 0
    for one in after:
        if tokens >= HORIZON_TOKENS:
            return
        tokens += one.tokens
        yield one


# --- facts


def _needed_facts(before: Sequence[Utterance], after: Sequence[Utterance]) -> Iterator[NeededName]:
    places: dict[FactName, list[int]] = {}
    for index, one in enumerate(before):
        for name in set(names_in(one.text)):
            places.setdefault(name, []).append(index)
    end = before[-1].start_tokens + before[-1].tokens if before else 0
    shown_again: set[FactName] = set()
    for one in within_horizon(after):
        names = dict.fromkeys(names_in(one.text))
        if one.who == "agent":
            for name in names:
                if name in places and name not in shown_again:
                    stood = places[name][-_PLACES:]
                    last = before[stood[-1]]
                    age = end - last.start_tokens - last.tokens
                    settings = tuple(dict.fromkeys(_settings([before[index].text for index in stood], name)))
                    yield NeededName(name, last.line, one.line, age, settings)
        shown_again.update(names)


def _settings(texts: Sequence[str], name: FactName) -> Iterator[frozenset[str]]:
    """The words around each place of a fact, of those places that have enough of them."""
    for text in texts:
        for start, end in places_of(text, name):
            words = words_around(text, start, end, CONTEXT_CHARS)
            if len(words) >= CONTEXT_WORDS[0]:
                yield words


def places_of(text: str, name: FactName, most: int = 8) -> Iterator[tuple[int, int]]:
    """Where a fact stands in a text; at most so many places."""
    tail = name.key.rsplit("/", 1)[-1] if name.kind == "path" else name.key
    at = found = 0
    while found < most and (at := _next(text, tail, at, name)) >= 0:
        first = text.rfind("\n", 0, at) + 1
        last = text.find("\n", at)
        line = text[first : last if last >= 0 else len(text)]
        for sighting in sightings(line):
            if sighting.name == name and found < most:
                found += 1
                yield first + sighting.start, first + sighting.end
        at = first + len(line)


def _next(text: str, key: str, at: int, name: FactName) -> int:
    """The next place where the spelling of a fact may stand; numbers and hashes have several."""
    if name.kind == "number" and len(key) > 3:
        match = re.compile(",?".join(key) if key.isdigit() else re.escape(key)).search(text, at)
        return match.start() if match else -1
    if name.kind == "hash":
        match = re.compile(re.escape(key), re.IGNORECASE).search(text, at)
        return match.start() if match else -1
    return text.find(key, at)


# --- lines


def _needed_lines(before: Sequence[Utterance], after: Sequence[Utterance]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    known = {line for one in before for line in line_forms(one.text)}
    lines: dict[str, None] = {}
    anchors: dict[str, None] = {}
    shown_again: set[str] = set()
    for one in within_horizon(after):
        if one.who != "agent":
            shown_again.update(line_forms(one.text))
            continue
        old = old_texts(one.use) if one.use else ()
        new = written_texts(one.use) if one.use else (one.text,)
        for texts, into in ((old, anchors), (new, lines)):
            for line in _plain_lines(texts):
                if line in known and line not in shown_again and line not in anchors and line not in lines:
                    into[line] = None
        shown_again.update(_plain_lines([one.text]))
    return tuple(lines), tuple(anchors)


def _plain_lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for raw in text.splitlines():
            line = raw.strip()
            if len(line) >= LINE_CHARS and sum(c.isalnum() for c in line) >= _LINE_LETTERS:
                yield line


def line_forms(text: str) -> Iterator[str]:
    """The telling lines of a text, each as it stands and without the number, path or sign that a tool put before it."""
    for raw in text.splitlines():
        if len(raw) < LINE_CHARS:
            continue
        yield raw.strip()
        bare = _DIFF.sub("", _NUMBERED.sub("", raw, count=1), count=1).strip()
        if len(bare) >= LINE_CHARS:
            yield bare


# --- what was done


def _needed_commands(before: Sequence[Utterance], after: Sequence[Utterance]) -> Iterator[str]:
    """Commands that are run again, to the letter, and that nobody showed again."""
    known = {command for one in before if one.use and (command := command_of(one.use))}
    done: set[str] = set()
    others: list[str] = []
    for one in within_horizon(after):
        command = command_of(one.use) if one.use else None
        if command is None:
            if one.who != "agent":
                others.append(" ".join(one.text.split()))
        elif command in known and command not in done:
            done.add(command)
            if not any(command in text for text in others):
                yield command


def _edited(before: Sequence[Utterance]) -> Iterator[EditedFile]:
    """The files that were edited without an error, each once."""
    paths: dict[str, str] = {}
    for index, one in enumerate(before):
        if one.use is not None and not _failed(before, index):
            for path in edited_paths(one.use):
                parts = [part for part in path.split("/") if part not in ("", ".", "..")]
                if parts:
                    paths.setdefault("/".join(parts[-2:]), parts[-1])
    seen = {name.key for one in before for name in names_in(one.text) if name.kind == "path"} if paths else set()
    for name, file in paths.items():
        others = {path for path in seen if path.rsplit("/", 1)[-1] == file and path != name}
        yield EditedFile(name, file, not others)


def _failed(before: Sequence[Utterance], index: int) -> bool:
    """Whether the call's own result says that it went wrong."""
    use = before[index].use
    for one in before[index + 1 : index + 30]:
        if use is not None and one.answers == use.id:
            return one.is_error
    return False
