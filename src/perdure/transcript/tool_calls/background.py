"""Work in the background, as the log tells of it: what was started, what was heard of it since, and that it ended.

The one reader of it: what comes back behind a boundary (RST-5) and what the record says (CMP-15) are folds of what
`background_updates` gives. Nobody told of an end isn't the same as running; whoever shows it says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from perdure.transcript.messages import spoken_text
from perdure.transcript.tool_calls.actions import NAME_CHARS, AnsweredCall, Happened, MessageText

RUNNING: Final = "running"
_GOING_ON: Final = frozenset({RUNNING, "pending", "started"})
_IDS: Final = ("bash_id", "shell_id", "task_id", "agent_id", "agentId", "session_id", "id", "terminal_id")
_RUNNING = re.compile(
    r"(?:running in (?:the )?background with ID: |process running with session ID )(\S+)", re.IGNORECASE
)
_AGENT = re.compile(r"^agentId: (\S+)", re.MULTILINE)
_WHERE = re.compile(r"(?:output_file: |Output is being written to: |<output-file>)(\S+?)(?:</output-file>|\.?\s|\Z)")
_STATUS = re.compile(r"<status>(\w+)</status>")
_NOTICES = re.compile(r"<task-notification>(.*?)(?:</task-notification>|\Z)", re.DOTALL)
_NOTICE = re.compile(r"<task-id>([^<\n]{1,200})</task-id>")
_RESULT = re.compile(r"<result>(.*?)(?:</result>|\Z)", re.DOTALL)
_SUMMARY = re.compile(r"<summary>([^<\n]{1,300})")
_EXITED = re.compile(r"^Process exited with code (-?\d+)$", re.MULTILINE)
_UNKNOWN = re.compile(r"\b(?:not found|No (?:task|shell|agent|process|job)\b.{0,40}\bfound|is not running)\b")


class BackgroundUpdate(NamedTuple):
    """Something was heard of one piece of background work.

    `what` it is, where that was said; `where` its result goes. `is_fetched`: it ended, and its result was seen, which
    is `result`, with what the tool says around it. `is_new`: this tells of it even to somebody who has never heard of
    it.
    """

    id: str
    state: str
    what: str = ""
    where: str | None = None
    is_fetched: bool = False
    is_new: bool = False
    result: str = ""

    @property
    def has_ended(self) -> bool:
        return has_ended(self.state)

    def named(self, before: str) -> str:
        """What the work is, where it was known as `before`: a start says it best, then what was known."""
        return ("" if self.has_ended else self.what) or before or self.what or "task"


def has_ended(state: str) -> bool:
    """Whether a state is one that nothing comes after."""
    return state not in _GOING_ON


def background_updates(happened: Happened) -> Iterator[BackgroundUpdate]:
    """What a call with its result, or some words, tell of background work."""
    if isinstance(happened, MessageText):
        yield from _noticed(happened)
    elif happened.action.kind == "stop":
        yield from _stopped(happened)
    elif happened.action.kind == "input":
        yield from _output_read(happened)
    elif not happened.has_failed:
        yield from _started(happened)


def _running(text: str) -> re.Match[str] | None:
    return _RUNNING.search(text) if "unning " in text else None


def _started(used: AnsweredCall) -> Iterator[BackgroundUpdate]:
    found = None
    if used.action.kind == "run":
        found = _running(used.text[:4_000])
        what = f"command: {' '.join(used.action.command.split())[:200]}"
    elif used.action.kind == "agent" and (used.arguments.get("run_in_background") or "launched" in used.text[:200]):
        found = _AGENT.search(used.text) or _running(used.text[:4_000])
        what = f"agent: {(used.word('description', 'name', 'task') or used.word('prompt') or '')[:200]}"
    if found is None or len(found[1]) > 200:
        return
    where = _WHERE.search(used.text)
    yield BackgroundUpdate(found[1].rstrip(".,)"), RUNNING, what, where[1][:NAME_CHARS] if where else None, is_new=True)


def _identity(used: AnsweredCall) -> str | None:
    value = next((v for key in _IDS if (v := used.arguments.get(key)) is not None), None)
    return str(value) if isinstance(value, str | int) else None


def _stopped(used: AnsweredCall) -> Iterator[BackgroundUpdate]:
    """A stop, also of what had ended by itself: either way it doesn't run any more."""
    identity = _identity(used)
    if identity and (not used.has_failed or _UNKNOWN.search(used.text[:400])):
        yield BackgroundUpdate(identity, "ended" if used.has_failed else "stopped", is_fetched=True)


def _output_read(used: AnsweredCall) -> Iterator[BackgroundUpdate]:
    """A look at a job: its result was seen when it had ended."""
    identity = _identity(used)
    if not identity:
        return
    exited = _EXITED.search(used.text[:2_000])
    if used.has_failed and exited is None:  # what ended with a code of its own is marked as an error by some readers
        if _UNKNOWN.search(used.text[:400]):
            yield BackgroundUpdate(identity, "ended", is_fetched=True)
        return
    status = _STATUS.search(used.text)
    word = status[1] if status else RUNNING
    if exited:
        word = "completed" if exited[1] == "0" else f"failed (exit {exited[1]})"
    elif status is None and used.plain_name == "writestdin" and not _running(used.text[:2_000]):
        word = "completed"
    ended = has_ended(word)
    yield BackgroundUpdate(identity, word[:30], is_fetched=ended, result=used.text if ended else "")


def _noticed(words: MessageText) -> Iterator[BackgroundUpdate]:
    """The agent's own notices of an end; the result may stand in them. What a person quotes is none."""
    text = words.text
    if "<task-notification>" not in text or words.origin == "model":
        return
    if words.origin == "user" and "<task-notification>" in spoken_text(text):
        return
    for notice in _NOTICES.findall(text):
        found, status, where = _NOTICE.search(notice), _STATUS.search(notice), _WHERE.search(notice)
        if found is None:
            continue
        summary, result = _SUMMARY.search(notice), _RESULT.search(notice)
        yield BackgroundUpdate(
            found[1].strip(),
            status[1] if status else "ended",
            summary[1][:200] if summary else "",
            where[1][:NAME_CHARS] if where else None,
            is_fetched=result is not None,
            is_new=True,
            result=result[1].strip() if result else "",
        )
