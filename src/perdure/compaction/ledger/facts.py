"""Facts in a text: names and values by which an agent goes on, the pieces they stand in, and what they are worth
(CMP-5).
"""

from __future__ import annotations

import re
from collections.abc import Set
from functools import lru_cache
from itertools import chain
from math import sqrt
from string import ascii_letters
from typing import NamedTuple

from perdure.memory.trust.secrets import MARK
from perdure.transcript.tokens import utf16_units

# A URL, or a run of characters that names are made of. ASCII on purpose: names in other scripts stand in the evidence.
_NAME_RUN = r"[A-Za-z0-9_.@~+/\\:$-]{3,160}"
_RUN = re.compile(rf"https?://[^\s\"'<>`)\]}}|\\,]+|\d{{1,3}}(?:,\d{{3}})+(?![\w.])|{_NAME_RUN}")
_PLAIN_RUN = re.compile(_NAME_RUN)  # the same where no URL and no number with commas is: twice as fast
_COMMAS = re.compile(r",\d{3}")
_FILE = re.compile(r"[\w.+@-]*\w\.[A-Za-z][A-Za-z0-9]{0,7}\Z", re.ASCII)
_HASH = re.compile(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}\Z")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_KEBAB = re.compile(r"(?=.{3})[A-Za-z][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)+\Z")
# Where in a file: how compilers, links and `grep -n` write it, with what stood behind it without a blank.
_PLACE = re.compile(r":\d+(?:[:-].*)?\Z|#L\d+(?:-L?\d+)?\Z")
_GREPPED = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}-\d+(?:[-:]|\Z)")
_WITHIN = re.compile(r"[^A-Za-z0-9_.@~+/\\:$%&?=#-]")  # a long line without blanks may be cut behind these
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
_DRIVE_WITHIN = re.compile(r"(?<![A-Za-z])[A-Za-z]:\\|(?<![^\s\"'`(])\.{1,2}\\(?![nrt](?:[^a-z]|\Z))")
_ESCAPE = re.compile(r"(?<!\\)\\++(?:[nrt]|u([0-9a-fA-F]{4})|([\"/]))")
_OTHER_ESCAPE = re.compile(r"(?<!\\)\\++(?![nrt\"/]|u[0-9a-fA-F]{4})")
_ESCAPE_ALONE = re.compile(  # it parts no two words of a path
    r"(?<!\\)\\++(?:[\"/]|u00|[nrt](?![a-z]))|(?:^|[^\w\\])\\++[nrt]"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)?\Z")
_DIGIT, _LETTER = re.compile(r"[0-9]"), re.compile(r"[A-Za-z]")
_PARTS = re.compile(r"[^A-Za-z0-9_-]+")
_KNOWN_ENDS = frozenset(
    "py pyi go rs ts tsx js jsx mjs cjs json jsonl md mdx rst txt toml yaml yml ini cfg conf lock sum mod sql sh bash "
    "ps1 bat c h cc cpp hpp cs java kt kts swift rb php pl lua ex exs erl hs ml scala clj dart vue svelte html css "
    "scss less xml svg png jpg gif csv tsv proto graphql tf ipynb log diff patch env gradle plist tpl".split()
)
_LEAST_DIGITS = 3
_LONGEST_WORD = 80


def facts_in(text: str) -> dict[str, None]:
    """The facts of a text, each once, in the order in which they first stand there."""
    if "{{secret:" in text:
        text = MARK.sub(" ", text)
    if "\\" in text:
        text = "\n".join(map(meant, text.split("\n")))
    runs = _RUN if "://" in text or _COMMAS.search(text) else _PLAIN_RUN
    return dict.fromkeys(chain.from_iterable(map(keys_of, runs.findall(text))))


_NUMBER = re.compile(r"\d{3}")
_COUNTED = re.compile(r"\d+")
_SHAPES = str.maketrans({**dict.fromkeys("0123456789", "0"), **dict.fromkeys(ascii_letters + "_", "a"), "\t": " "})
_SAME = re.compile(r"([0a ])\1+")
_NUMBERS = re.compile(
    r"(?<![\w.,:%+$-])(?:[-+$]?\d[\d.,:%]*+(?:[\s,;|/\]\[()]++|\Z)){6,}"  # from the beginning of a number only
)
_LEAST_ROWS = 4  # lines of one shape are a table, or the steps of a counter
_LEAST_RUN = 8  # names that differ in a number only
_DENSE = 4  # times as far as there are such names: they were counted through


def counted_in(text: str) -> Set[str]:
    """The facts of a text that are numbers of runs, columns, tables and counters: they name nothing.

    A number counts as a value where it stands in a line of its own shape; not where lines of one shape tell a row each,
    nor among numbers only. So do names that are numbered through, such as `item_101` to `item_120`.
    """
    if len(_NUMBER.findall(text)) < _LEAST_ROWS:
        return frozenset()
    rows: dict[str, list[str]] = {}
    for line in text.split("\n"):
        if len(line) <= _LONGEST_ROW and _NUMBER.search(line):
            rows.setdefault(_SAME.sub(r"\1", line.strip().translate(_SHAPES)), []).append(line)
    tables = [line for lines in rows.values() if len(lines) >= _LEAST_ROWS for line in lines]
    numbers = [*tables, *(found[0] for found in _NUMBERS.finditer(text))]
    counted = {key for key in facts_in("\n".join(numbers)) if key[0].isdigit() and not _LETTER.search(key)}
    runs: dict[str, list[tuple[int, str]]] = {}
    for key in facts_in("\n".join(tables)):
        if len(found := _COUNTED.findall(key)) == 1 and key not in counted and len(found[0]) < 12:
            runs.setdefault(_COUNTED.sub("0", key), []).append((int(found[0]), key))
    for same in runs.values():
        least, most = min(same)[0], max(same)[0]
        if len(same) >= _LEAST_RUN and most - least <= _DENSE * len(same):
            counted.update(key for _, key in same)
    return counted


_LONGEST_ROW = 240


def meant(line: str) -> str:
    """A line with the escapes of JSON as what they mean: `\\nPublish` names Publish, and `\\u003cid` an id.

    Only where nothing speaks against it: another backslash, a drive, or words that it only parts, as in a path.
    """
    if "\\" not in line or _DRIVE_WITHIN.search(line) or _OTHER_ESCAPE.search(line) or not _ESCAPE_ALONE.search(line):
        return line
    return _ESCAPE.sub(_character, line)


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1], 16) if escape[1] else 32
    return escape[2] or (" " if 0xD800 <= code < 0xE000 else chr(code))


@lru_cache(maxsize=1 << 16)
def keys_of(run: str) -> tuple[str, ...]:
    """The facts that one run of name characters states. What they are worth is looked up too, while nobody waits."""
    keys = tuple(key for key in _keys_of(run) if key not in _CLIENTS_OWN)
    for key in keys:
        worth_of(key)
    return keys


def _keys_of(run: str) -> tuple[str, ...]:
    if run.startswith("http"):
        return (run.rstrip(".:;/"),)
    if run.isalpha() and (run.islower() or run[1:].islower()):
        return ()
    if run.isidentifier() or run.isdigit():  # most of the rest
        return (run,) if len(run) <= _LONGEST_WORD and _is_name(run) else ()
    if "," in run:
        return (run,)
    if _TIME.match(run):  # of all that stands in a result, when it was written is needed least
        return ()
    run = run.strip(".:-$+@") if not run.startswith("--") else run.rstrip(".:-")
    if "\\" in run and not _is_windows(run):
        return tuple(dict.fromkeys(key for part in run.split("\\") for key in _keys_of(part)))
    if "/" in run or "\\" in run:
        return _path_keys(run)
    return tuple(dict.fromkeys(key for part in run.split(":") for key in _word_keys(part.strip(".$+@~"))))


def _is_windows(run: str) -> bool:
    return bool(_DRIVE.match(run)) or run.startswith(("..\\", ".\\")) or _ending(run) in _KNOWN_ENDS


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower()


def normal_path(path: str) -> str:
    """A path with forward slashes, without doubled ones; Windows paths keep their drive, in capitals."""
    path = path.strip().strip("\"'`").replace("\\", "/")
    while "//" in path:
        path = path.replace("//", "/")
    if len(path) > 1 and path[1] == ":" and path[0].isalpha():
        path = path[0].upper() + path[1:]
    return path.removeprefix("./")


def short_path(path: str) -> str:
    """The last two parts: what a path is known by."""
    return "/".join([part for part in normal_path(path).split("/") if part][-2:])


def _path_keys(run: str) -> tuple[str, ...]:
    grepped = _GREPPED.search(run)
    if grepped is not None and _ending(grepped[0].partition("-")[0]) in _KNOWN_ENDS:
        run = run[: grepped.start()] + grepped[0].partition("-")[0]
    run = _PLACE.sub("", run)
    parts = [part for part in normal_path(run).split("/") if part not in ("", ".", "..", "~")]
    parts = [part.rstrip(".") for part in parts]
    if not parts or not any(part[:1].isalpha() or part[:1] in "._@" for part in parts):
        return ()
    name = parts[-1]
    own = _word_keys(name)
    if len(parts) == 1:
        return own
    return tuple(dict.fromkeys((f"{parts[-2]}/{name}", *own)))


def _word_keys(word: str) -> tuple[str, ...]:
    """The facts of a run without separators of paths: a file name, a flag, a kebab word, identifiers, a value."""
    if len(word) < 3 or len(word) > _LONGEST_WORD:
        return ()
    if word.startswith("--"):
        return (word,) if len(word) > 4 else ()
    if "." in word:
        if word[0].isdigit() and not any(c.isalpha() for c in word):
            return (word,) if sum(c.isdigit() for c in word) >= _LEAST_DIGITS else ()
        if _FILE.match(word) and _ending(word) in _KNOWN_ENDS:
            return (word,)
        return tuple(dict.fromkeys(key for part in word.split(".") for key in _word_keys(part)))
    if "-" in word:
        return (word,) if _KEBAB.match(word) else _plain_keys(word)
    return (word,) if _is_name(word) else ()


def _plain_keys(word: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in _PARTS.split(word.replace("-", " ")) if _is_name(part)))


def _is_name(word: str) -> bool:
    """An identifier of a program, a hash or a number; not a plain word."""
    if len(word) < 3:
        return False
    if word.isdigit():
        return len(word) >= _LEAST_DIGITS
    if word.isalpha():
        return len(word) > 3 and bool(_CAMEL.search(word))
    if "_" in word.strip("_"):
        return True
    return bool(_DIGIT.search(word)) and bool(_HASH.match(word) or _LETTER.search(word))


def kind_of(key: str) -> str:
    """What kind of fact a key is: url, path, file, flag, value or name."""
    if key.isdigit():  # as most facts of long outputs are
        return "value"
    if key.startswith("http"):
        return "url"
    if "/" in key:
        return "path"
    if key.startswith("--"):
        return "flag"
    if key[0].isdigit() or _HASH.match(key):
        return "value"
    if "." in key:
        return "file"
    return "name"


PIECE_CHARS = 140
_MOST = 280
_HEAD, _TAIL = 60_000, 20_000  # of a longer text, only its beginning and its end can become evidence
_NUMBERED = re.compile(r" {0,6}\d{1,6}[→\t]")
_SENTENCE = re.compile(r"(?<=[.!?:;,])\s+")
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)


def without_reminders(text: str) -> str:
    """The text without what a harness put into it for the model alone."""
    return _REMINDER.sub("", text) if "<system-reminder>" in text else text


def clipped(text: str, times: int = 1) -> str:
    """A very long text without its middle; `times` as much of it stays."""
    head, tail = _HEAD * times, _TAIL * times
    return text if len(text) <= head + tail else f"{text[:head]}\n{text[-tail:]}"


def unnumbered(text: str) -> str:
    """The text of a file as tools show it, without the line numbers."""
    lines = text.split("\n")
    if sum(bool(_NUMBERED.match(line)) for line in lines[:8]) * 2 < min(len(lines), 8):
        return text
    return "\n".join(_NUMBERED.sub("", line, count=1) for line in lines)


def pieces(text: str) -> list[str]:
    """Whole lines together up to about 140 characters; a longer line is cut between its sentences."""
    found: list[str] = []
    held: list[str] = []
    size = 0
    for line in text.split("\n"):
        length = len(line)
        if not length or line.isspace():
            if size > PIECE_CHARS // 2:
                found.append("\n".join(held))
                held, size = [], 0
            continue
        if size and size + length > PIECE_CHARS:
            found.append("\n".join(held))
            held, size = [], 0
        if length > _MOST:
            found += _cut(line)
            continue
        held.append(line.rstrip())
        size += length + 1
    if held:
        found.append("\n".join(held))
    return found


def _cut(line: str) -> list[str]:
    """A long line, between sentences where it has any, else where it must."""
    found, held = [], ""
    for part in _SENTENCE.split(line):
        start = 0
        while len(part) - start > _MOST:
            at = part.rfind(" ", start + PIECE_CHARS // 2, start + PIECE_CHARS)
            at = at if at > 0 else _between_names(part, start)
            if len(held) >= PIECE_CHARS // 4:
                found += [held, part[start:at]]
            else:
                found.append(f"{held} {part[start:at]}".strip())
            held, start = "", at
        part = part[start:]
        if held and len(held) + len(part) > PIECE_CHARS:
            found.append(held)
            held = part
        else:
            held = f"{held} {part}" if held else part
    if held.strip():
        found.append(held)
    return found


def _between_names(text: str, start: int) -> int:
    """Where to cut a text without blanks: between two names, if there is such a place, so that none is cut in two."""
    least, most = start + PIECE_CHARS // 2, start + PIECE_CHARS
    found = [match.end() for match in _WITHIN.finditer(text, least, most)] or [
        match.start() for match in _WITHIN.finditer(text, most, start + _MOST)
    ][:1]
    return found[-1] if found else most


# Of the assistant's words, tool input, the user's words, tool output, thinking, reports of sub-agents. What a person or
# an agent named counts four times what merely scrolled by.
VOICES = (4, 4, 4, 1, 1, 4)
HALF_LIFE_TOKENS = 20_000


class FactWeights(NamedTuple):
    """How facts are weighed: what is old keeps `floor` of its weight, as it was named for a reason."""

    floor: float = 0.4


WEIGHTS = FactWeights()
_KINDS = {"name": 1.0, "path": 1.4, "file": 1.5, "flag": 1.2, "value": 0.45, "url": 0.7}
_DIGITS, _SHORT_NUMBER, _SHORT_NAME, _COMMON = 0.45, 0.15, 0.5, 0.25
# Every project has these, so they tell nothing of this one.
_EVERYWHERE = frozenset(
    "README.md CLAUDE.md AGENTS.md package.json settings.json pyproject.toml go.mod Makefile __init__.py main.py "
    "main.go index.js index.ts utf-8 UTF-8 GitHub TypeScript JavaScript node_modules file_path filePath old_string "
    "new_string tool_use tool_result in_progress dev/null and/or yes/no true/false before/after "
    "read/write input/output --version --help --stat --git --cached --oneline --short --quiet --no-verify "
    "console.log toString isinstance startsWith endsWith toLowerCase writeFile readFile setTimeout Co-Authored-By "
    "100644 100755 2024 2025 2026 60000 120000 duration_ms agentId camelCase snake_case stdout/stderr client/server "
    "success/failure input_text output_mode files_with_matches head_limit "
    "replace_all subagent_type application/json".split()
)
# What clients wrap their own messages in: nobody named anything by it.
_CLIENTS_OWN = frozenset(
    "command-name command-message command-args command-contents local-command-stdout local-command-stderr "
    "local-command-caveat system-reminder task-notification task-id tool-use-id output-file bash-input bash-stdout "
    "bash-stderr user-prompt-submit-hook session-start-hook user-memory-input teammate-message persisted-output "
    "new-diagnostics tool_use_error ide_selection ide_opened_file ide_diagnostics environment_context "
    "user_instructions turn_aborted".split()
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
        worth *= _DIGITS if _DIGIT.search(key) else 1.0
    return worth


def recency(age_tokens: int, floor: float = WEIGHTS.floor) -> float:
    """What is left of a weight after so many tokens."""
    left: float = 0.5 ** (age_tokens / HALF_LIFE_TOKENS)
    return floor + (1 - floor) * left


def weight(key: str, said: int, crowd: int) -> float:
    """The weight of a fact that just stood there: `said` is the sum of its voices, `crowd` who stood beside it."""
    return worth_of(key) * sqrt(said / (3 + crowd))


def clip(text: str, units: int) -> str:
    """A text that fits: its beginning and its end, with the gap marked."""
    if utf16_units(text) <= units:
        return text
    mark = " […] "
    room = units - len(mark)
    if room < 16:
        return _head(text, max(0, units))
    tail = room // 4
    return f"{_head(text, room - tail).rstrip()}{mark}{_end(text, tail).lstrip()}"


def _head(text: str, units: int) -> str:
    part = text[:units]
    while utf16_units(part) > units:
        part = part[: len(part) - max(1, (utf16_units(part) - units) // 2)]
    return part


def _end(text: str, units: int) -> str:
    part = text[-units:] if units else ""
    while utf16_units(part) > units:
        part = part[max(1, (utf16_units(part) - units) // 2) :]
    return part
