"""What came of a call: exit codes, the one line that says it, error lines, and which tests failed or passed (CMP-5)."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Where common agents put the exit code: at the beginning of the result, or in its last line. What stands elsewhere is
# what the command printed: a log, a page of a manual, the end of another command.
_EXIT_HEAD = re.compile(
    r"\s*(?:Chunk ID: .*\n|Wall time: .*\n)*(?:<returncode>\s*|Process exited with code |Exit code:? |"
    r"Command failed with exit code |\{.{0,40}\"exit_code\": ?)(-?\d{1,3})\b",
    re.IGNORECASE,
)
_EXIT_JSON = re.compile(r"\"exit_code\": ?(-?\d{1,3})\b")
_EXIT_LINE = re.compile(
    r"^(?:\[.{0,60}exit code:? (-?\d{1,3})\.?\]?|\[?Process exited with code (-?\d{1,3})\]?|Exit Code: (-?\d{1,3}))$",
    re.IGNORECASE,
)
_LAST_LINES = 4  # behind the code OpenHands tells the folder and the interpreter, Gemini the signal
_SUMMARY_CHARS = 3_000  # runners sum up at the end
_LINES = 400  # of a long result, so many lines at each end are looked at
_ERROR = re.compile(
    r"^\s*(?:E   +\S|\S*(?:Error|Exception|Fault)\b\s*[:(]|(?:error|fatal|panic|FATAL|ERROR|Error|ERR!)\b.{0,40}?[:\[]|"
    r"npm ERR!|error(?:\[\w+\])?:|FAIL\b|\S+\.\w+:\d+(?::\d+)?:\s*(?:error|fatal|undefined|cannot)|"
    r"\S+\.\w+\(\d+,\d+\): error|Traceback|bash: .*: |.*(?:command not found|No such file or directory|"
    r"Permission denied|cannot find|is not defined|undefined:|assertion failed|String to replace not found|"
    r"has not been read|tool_use_error))",
)
_ERROR_HINT = re.compile(
    r"[Ee]rror|Exception|Fault|[Ff]atal|FATAL|panic|ERROR|ERR!|FAIL|Traceback|not found|No such|denied|cannot|"
    r"not defined|undefined|has not been|assertion failed"
)
_DULL = re.compile(r"^\s*(?:Traceback|FAIL$|exit status \d+$|Error: Exit code \d+$|Exit code \d+$)")
_FAILED = (
    re.compile(r"^\s*--- FAIL: (\S+)"),  # go
    re.compile(r"^(?:FAILED|ERROR) (\S+\.py\S*)"),  # pytest, short summary
    re.compile(r"^(\S+\.py::\S+) (?:FAILED|ERROR)"),  # pytest -v
    re.compile(r"^(?:FAIL|ERROR): (test\w+ \([\w.]+\))"),  # unittest
    re.compile(r"^test (\S+) \.\.\. FAILED"),  # cargo
    re.compile(r"^\s*(?:FAIL|❯) +(\S+\.(?:test|spec)\.\w+)"),  # jest, vitest
    re.compile(r"^\s*(?:✕|✗|×|\(fail\)) (.{3,100}?)(?: \[?\(?[\d.]+ ?m?s\]?\)?)?$"),  # jest, vitest, bun
    re.compile(r"^\s*● (.{3,120} › .{3,100})$"),  # jest
    re.compile(r"^rspec (\./\S+)"),  # rspec
    re.compile(r"^not ok \d+ -? ?(.{3,100})$"),  # tap
    re.compile(r"^\[ERROR\] +(\w+(?:\.\w+)+):\d+"),  # maven
    re.compile(r"^\s*Failed (\w+(?:\.\w+)+) \["),  # dotnet
    re.compile(r"^(\w+(?:\.\w+)* > \w.{0,80}) FAILED$"),  # gradle
)
_PASSED = (
    re.compile(r"^\s*--- PASS: (\S+)"),
    re.compile(r"^(\S+\.py::\S+) PASSED"),
    re.compile(r"^test (\S+) \.\.\. ok"),
    re.compile(r"^\s*(?:PASS|✓) +(\S+\.(?:test|spec)\.\w+)"),
    re.compile(r"^\s*(?:✓|✔|\(pass\)) (.{3,100}?)(?: \[?\(?[\d.]+ ?m?s\]?\)?)?$"),
    re.compile(r"^(test\w+ \([\w.]+\)) \.\.\. ok"),
)
_FAILED_HINT = re.compile(
    r"FAIL|ERROR|✕|✗|×|\(fail\)|●|^rspec |^not ok|Failed ",
    re.MULTILINE,
)
_PASSED_HINT = re.compile(r"--- PASS|PASSED|\.\.\. ok|✓|✔|\(pass\)|PASS ")
_SUMMARY = re.compile(
    r"(?:=+ .*(?:passed|failed|error).* =+|\d+ (?:passed|failed|failing|passing|pass|fail)\b|^ok\s+\S+|^PASS$|^FAIL\b|"
    r"^Tests?:|^Ran \d+ tests?|test result:|Found \d+ errors?|All checks passed|Success: no issues|BUILD \w+|"
    r"^OK\b|files? changed|compiled|Successfully)",
    re.IGNORECASE,
)
_GREEN = re.compile(
    r"(?:^|\D)(?<!\d)([1-9]\d*) (?:passed|passing|pass)\b|^ok\s+\S+|^PASS$|^OK\b|test result: ok", re.MULTILINE
)
_RED = re.compile(
    r"(?:^|\D)([1-9]\d*) (?:failed|failing|fail|errors?)\b|^FAIL\b|--- FAIL|^FAILED|test result: FAILED", re.MULTILINE
)
_RUNNER = re.compile(
    r"\b(pytest|go test|cargo (?:test|nextest)|jest|vitest|mocha|(?:npm|yarn|pnpm|bun)(?: run)? test\S*|rspec|phpunit|"
    r"unittest|tox|nox|ctest|mvn \S*test|gradlew? \S*test|dotnet test|swift test|mix test|make (?:test|check)\S*|"
    r"mise run test\S*|runtests\S*|bin/test\S*|rake test)"
)
_STRIP = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a result says. `code` is None when no exit code is told; `is_green` when tests ran and none failed.

    `ok` is None when nothing says how it ended: it runs on, or no code and no mark of an error came, but error lines.
    """

    ok: bool | None
    code: int | None
    line: str
    errors: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    is_green: bool = False
    is_red: bool = False


def outcome(text: str, *, is_error: bool, is_run: bool) -> Outcome:
    """Read a result. Only runs have tests and exit codes; errors are looked for in runs and in failed calls."""
    if not is_run and not is_error:
        return Outcome(True, None, "")
    text = _STRIP.sub("", text) if "\x1b" in text else text
    code = _exit_code(text) if is_run else None
    ok: bool | None = not is_error and (code is None or code == 0)
    lines = _ends(text)
    failed, passed = _tests(text, lines) if is_run else ((), ())
    end = text[-_SUMMARY_CHARS:]
    is_red = bool(failed) or (is_run and bool(_RED.search(end)))
    is_green = is_run and bool(ok) and not is_red and bool(_GREEN.search(end))
    errors = _errors(lines) if not is_green and _ERROR_HINT.search(text) else ()
    return Outcome(ok, code, _line(lines, errors, ok=bool(ok)), errors, failed, passed, is_green, is_red)


def runner_of(command: str) -> str:
    """The test runner that a command calls, if any: what a later green run of it heals."""
    found = _RUNNER.search(command)
    return found[1].split()[0] if found else ""


def _exit_code(text: str) -> int | None:
    head = _EXIT_HEAD.match(text)
    if head is None and text.startswith("{"):
        head = _EXIT_JSON.search(text, max(0, len(text) - 300))
    if head is not None:
        return int(head[1])
    for line in reversed(text[-600:].rstrip().split("\n")[-_LAST_LINES:]):
        found = _EXIT_LINE.match(line.strip())
        if found is not None:
            return int(found[1] or found[2] or found[3])
    return None


def _ends(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if len(lines) <= 2 * _LINES else [*lines[:_LINES], *lines[-_LINES:]]


def _tests(text: str, lines: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    failed = _named(_FAILED, lines) if _FAILED_HINT.search(text) else ()
    passed = _named(_PASSED, lines) if _PASSED_HINT.search(text) else ()
    return failed, tuple(name for name in passed if name not in failed)


def _named(patterns: tuple[re.Pattern[str], ...], lines: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for line in lines:
        if len(line) > 400:
            continue
        for pattern in patterns:
            match = pattern.match(line)
            if match:
                found[match[1].strip().rstrip(":")] = None
                break
    return tuple(found)[:60]


def _errors(lines: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for line in lines:
        if (
            len(line) > 6
            and len(found) < 6
            and _ERROR_HINT.search(line, 0, 300)
            and _ERROR.match(line[:300])
            and not _DULL.match(line)
        ):
            found[" ".join(line.split())[:220]] = None
    return tuple(found)


def _line(lines: list[str], errors: tuple[str, ...], *, ok: bool) -> str:
    """The line that says best how it went: a summary, else for a failure its first error, else the last line."""
    told = [" ".join(line.split()) for line in lines[-40:] if line.strip() and not line.startswith("</")]
    for line in reversed(told):
        if len(line) < 200 and _SUMMARY.search(line):  # in this order: a long line of digits is dear to search
            return line.strip("= ")[:120]
    if not ok and errors:
        return errors[0][:120]
    return told[-1][:100] if told else ""
