"""Is what a record says so? Every line of the kinds that can be checked, against the log itself (CMP-15).

    python bench/truth.py DATA [--lines]

Makes the record at every compaction that a log holds and at cuts between, and reads the same lines of the log with code
of its own, which shares no reader, pattern or table with the ledger: raw JSON, the words of users, calls and what came
back. Prints for each kind how many lines were checked and how many are untrue, then each untrue line. `--lines` prints
a sample of the decisions, which no code can check. Exits with 1 when a line is untrue.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.cli.compact import said_before
from perdure.compaction.ledger import compact_messages
from perdure.logs.detect import read_recordings
from perdure.logs.recording import LoggedCompaction

BUDGET = 20_000
CUTS = 6  # in each log, evenly over its lines
CUT = " […] "
KINDS = (
    "words",
    "background",
    "ended",
    "changed",
    "deleted",
    "read",
    "commands",
    "outcomes",
    "errors",
    "todos",
    "tests",
    "decisions",
    "refused",
    "paths",
    "said",
    "checks",
    "versions",
    "next",
)
WRITERS = {"Edit", "Write", "MultiEdit", "NotebookEdit", "apply_patch", "str_replace_editor", "write_file", "edit"}
PROGRAM = re.compile(
    r"\A(?:<(?:command-|local-command|bash-|task-notification|teammate-message|system-reminder|user-prompt|ide_)|"
    r"\[Request interrupted|Caveat: The messages below|This session is being continued|Base directory for this skill)"
)

ANNOUNCES = re.compile(
    r"(?:(?:now|next|first|then|ok(?:ay)?|good|great|perfect),? )*"
    r"(?:i['’]ll|i will(?! not)|let me|let['’]s|i['’]m going to)\b",
    re.IGNORECASE,
)


@dataclass
class Call:
    """A call of the log, with what came back; `line` is where the call stands, `back` where its result does."""

    name: str
    given: dict[str, Any]
    line: int
    back: int = 0
    result: str = ""
    is_error: bool = False

    @property
    def command(self) -> str:
        """The command line, if it is one; a wrapped one unwrapped."""
        value = self.given.get("command", self.given.get("cmd", ""))
        if isinstance(value, list):
            value = value[2] if len(value) == 3 and value[1] in ("-lc", "-c") else " ".join(map(str, value))
        return value if isinstance(value, str) else ""

    @property
    def was_refused(self) -> bool:
        return self.is_error and self.result.lstrip().startswith(
            ("The user doesn't want", "<tool_use_error>", "[Request interrupted", "Permission to use")
        )

    @property
    def code(self) -> int | None:
        """The exit code that the agent told: in front, or on a line by itself in Codex's head."""
        for shape in (r"\A\s*<returncode>(-?\d+)", r"\AExit code:? (\d+)", r"^Process exited with code (-?\d+)$"):
            found = re.search(shape, self.result[:400], re.MULTILINE)
            if found:
                return int(found[1])
        if self.result.startswith("{") and (found := re.search(r'"exit_code": ?(-?\d+)', self.result[-200:])):
            return int(found[1])
        return None

    @property
    def has_worked(self) -> bool:
        return bool(self.back) and not self.is_error and self.code in (None, 0)


@dataclass
class Log:
    """The lines of a log before a cut, as raw JSON tells them."""

    words: list[str] = field(default_factory=list)
    notices: list[tuple[int, str]] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    talk: list[tuple[int, str, str]] = field(default_factory=list)  # line, who, text

    def every(self) -> list[Call]:
        return list(self.calls.values())


def flat(text: str) -> str:
    """Blanks folded, and no underscore before the name of a tag (a record puts one there)."""
    return " ".join(re.sub(r"<([\s/]*)_+(?=[a-z])", r"<\1", text).split())


def lean(text: str) -> str:
    """Blanks folded, without marks of emphasis."""
    return flat(text.replace("**", ""))


def every_text(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from every_text(inner)


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(text_of, value)))
    if isinstance(value, dict):
        return text_of(value.get("text", value.get("content", value.get("output", ""))))
    return ""


def raw_log(data: bytes, before: int) -> Log:
    """The log up to a line (from 1), not included."""
    log = Log()
    entries: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(data.split(b"\n")[: before - 1], 1):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        entries += [(number, entry)] if isinstance(entry, dict) else []
    said = [entry for _, entry in entries if "message" in entry]
    is_aside = bool(said) and all(entry.get("isSidechain") for entry in said)  # a sub-agent's own log
    for number, entry in entries:
        if "payload" in entry:
            codex(log, entry, number)
        elif is_aside or not entry.get("isSidechain"):
            claude(log, entry, number)
    return log


def claude(log: Log, entry: dict[str, Any], number: int) -> None:
    attachment = entry.get("attachment")
    if isinstance(attachment, dict) and attachment.get("type") == "queued_command":
        text = text_of(attachment.get("prompt"))
        log.notices.append((number, text))
        log.words += [] if PROGRAM.match(text) else [text]
    body = entry.get("message")
    content = body.get("content") if isinstance(body, dict) else None
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "tool_use" and isinstance(block.get("input"), dict):
            log.calls.setdefault(block["id"], Call(block["name"], block["input"], number))
        elif kind == "tool_result" and (call := log.calls.get(block.get("tool_use_id", ""))):
            call.back, call.result = number, text_of(block.get("content"))
            call.is_error = bool(block.get("is_error"))
        elif kind == "text" and entry.get("type") == "user":
            text = block.get("text") or ""
            sender = entry.get("origin")
            sender = sender.get("kind") if isinstance(sender, dict) else sender
            log.notices.append((number, text))
            if not entry.get("isMeta") and not entry.get("isCompactSummary") and sender in (None, "human"):
                log.words += typed(text)
                log.talk += [(number, "user", one) for one in typed(text)]
        elif kind == "text":
            log.others.append(block.get("text") or "")
            log.talk.append((number, "assistant", log.others[-1]))


def typed(text: str) -> list[str]:
    """What a person typed: the arguments of a command of theirs, or all but what stands in tags of the program."""
    if "<command-name>" in text:
        found = re.search(r"<command-args>(.+?)</command-args>", text, re.DOTALL)
        name = re.search(r"<command-name>/?(\S+?)</command-name>", text)
        if found and name and re.fullmatch(r"https?://\S+", found[1].strip()):  # typed as `/review LINK`
            return [f"/{name[1]} {found[1].strip()}"]
        return [found[1]] if found else []
    rest = re.sub(r"<(system-reminder|ide_\w+)>.*?</\1>", "", text, flags=re.DOTALL).strip()
    return [] if not rest or PROGRAM.match(rest) else [rest]


def codex(log: Log, entry: dict[str, Any], number: int) -> None:
    item = entry["payload"] if isinstance(entry["payload"], dict) else {}
    kind = item.get("type")
    if kind == "message" and item.get("role") == "user":
        text = text_of(item.get("content"))
        if not text.startswith(("<", "# AGENTS.md")):
            log.words.append(text)
            log.talk.append((number, "user", text))
    elif kind == "message" and item.get("role") == "assistant":
        log.others.append(text_of(item.get("content")))
        log.talk.append((number, "assistant", log.others[-1]))
    elif kind in ("function_call", "custom_tool_call"):
        given = item.get("arguments", item.get("input", ""))
        try:
            value = json.loads(given)
        except (ValueError, TypeError):
            value = {"input": given}
        log.calls[item.get("call_id", "")] = Call(
            item.get("name", ""), value if isinstance(value, dict) else {}, number
        )
    elif kind in ("function_call_output", "custom_tool_call_output") and (call := log.calls.get(item.get("call_id"))):
        output = item.get("output")
        call.back, call.result = number, output if isinstance(output, str) else text_of(output)
        call.is_error = call.code not in (None, 0) or call.result.startswith("apply_patch verification failed")


# --- the record


def sections(record: str) -> Iterator[tuple[str, str]]:
    """(heading, item) of every item of a record; lines behind a tab belong to the item before them."""
    heading, held = "", ""
    for line in [*record.split("\n"), "## "]:
        if line.startswith("\t"):
            held += f"\n{line[1:]}"
            continue
        if held:
            yield heading, held
            held = ""
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("- "):
            held = line[2:]


def holds(text: str, where: list[str]) -> bool:
    """Whether a text, or each part of it around a cut, stands in one of these."""
    parts = [flat(part) for part in text.split(CUT) if part.strip()]
    return any(all(part in whole for part in parts) for whole in where)


@dataclass
class Verdict:
    checked: Counter[str] = field(default_factory=Counter)
    untrue: list[tuple[str, str, str]] = field(default_factory=list)

    def say(self, kind: str, line: str, why: str) -> None:
        """One line was looked at; `why` it is untrue, or nothing."""
        self.checked[kind] += 1
        if why:
            self.untrue.append((kind, line, why))


class Checker:
    """Looks at the lines of one record with one log."""

    def __init__(self, log: Log, verdict: Verdict) -> None:
        self.log, self.verdict = log, verdict
        self.words = [flat(text) for text in log.words]
        self.commands: dict[str, list[Call]] = defaultdict(list)
        home = ""  # where commands run that name no other folder
        for call in log.every():
            if call.command:
                line, folder = flat(call.command[:2_000]), call.given.get("workdir") or call.given.get("cwd") or ""
                home = home or folder
                self.commands[line if folder in ("", home) else f"cd {folder} && {line}"].append(call)
        self.results = [flat(call.result) for call in log.every()]
        self.given = [flat("\n".join(every_text(call.given))).replace("\\", "/") for call in log.every()]
        self.said = [lean(text) for text in log.others]

    def look(self, record: str) -> None:
        for heading, item in sections(record):
            if folder := re.search(r"; `cd …` stands for `(cd [^`]+)`\)\Z", heading):
                item = re.sub(r"\Acd …", lambda _, whole=folder[1]: whole, item)  # type: ignore[misc]
            for start, kind, check in (
                ("What the user said", "words", self.word),
                ("Files changed", "changed", self.changed),
                ("Files read", "read", self.read),
                ("Commands that were run", "commands", self.command),
                ("Open work", "todos", self.todo),
                ("The task", "words", self.asked),
                ("What the user insists on", "words", self.insisted),
                ("The last exchange", "words", self.asked),
                ("Decided", "decisions", self.decision),
                ("Turned down", "refused", self.refused),
                ("What failed", "errors", self.error),
                ("Other errors", "errors", self.error),
                ("Tests that fail", "tests", self.test),
            ):
                if heading.startswith(start):
                    why = check(item)
                    if why is not None:
                        self.verdict.say(kind, item, why)
            if heading.startswith("Names and values"):
                for entry in re.split("[,;] ", item):
                    if "/" in entry and "://" not in entry:
                        self.verdict.say("paths", entry, self.path(entry))
            if heading.startswith("Where the work stands") and item.startswith("in the background"):
                self.verdict.say("background", item, self.background(item))
            elif heading.startswith("Where the work stands") and re.match(r"(?:the assistant|before that)\b", item):
                self.verdict.say("said", item, self.spoken(item))
            elif heading.startswith("Where the work stands") and item.startswith("not checked since: "):
                self.verdict.say("checks", item, self.unchecked(item))
            elif heading.startswith("Where the work stands") and item.startswith(
                ("committed: ", "branch, when ", "pull")
            ):
                self.verdict.say("versions", item, self.versions(item))
            elif heading.startswith("What is next"):
                self.verdict.say("next", item, self.next(item))
            elif heading.startswith("Where the work stands") and item.startswith(("tests: ", "done ")):
                what = re.sub(r"\A(?:tests|done last|done before): ", "", item)
                is_run = item.startswith("tests: ") or what.startswith("ran ")
                kind, check = ("commands", self.command) if is_run else ("changed", self.touched)
                self.verdict.say(kind, item, check(what.removeprefix("ran ")))
            elif heading.startswith("Done") and (found := re.match(r"(\S+) in the background: (.*)", item, re.DOTALL)):
                self.verdict.say("ended", item, self.ended(found[1], found[2]))
            elif heading.startswith("Done") and item.startswith("[x] "):
                self.verdict.say("todos", item, self.todo(item))

    def touched(self, item: str) -> str:
        """A file that was changed, named at the beginning of a sentence."""
        path, _, fate = item.rpartition(" changed") if item.endswith(" changed") else item.partition(" ")
        kinds = [kind for _, kind in self.deeds(path)]
        return "" if fate or {"written", "perhaps"} & set(kinds) else "nothing wrote it"

    def asked(self, item: str) -> str | None:
        """An item of the hand-over with somebody's words."""
        if item.startswith(("in answer to the assistant", "before it, the assistant")):
            self.verdict.say("said", item, self.spoken(item))
            return None
        lead, _, words = item.partition(": ")
        if not re.match(r"(?:asked(?: first| later)?|the user)\b.*· \S+\Z", lead):
            return "not to be read"
        words = re.sub(r"\A\(to “.*?”\) ", "", words, flags=re.DOTALL).removesuffix(" … (more below)")
        return "" if holds(lean(words), [lean(text) for text in self.log.words]) else "no user wrote it"

    def unchecked(self, item: str) -> str:
        """The files named were written after the last run of the check that is named, and that worked."""
        paths, _, command = item.removeprefix("not checked since: ").partition("; passed before: ")
        passed = [call.back for call in self.runs(command) if call.has_worked]
        if not passed:
            return "no such run passed"
        for path in re.sub(r" and \d+ more\Z", "", paths).split(", "):
            name = path.rpartition("/")[2]
            later = [call for call in self.log.every() if call.back > max(passed)]
            if not any(name in json.dumps(call.given, ensure_ascii=False) and call.has_worked for call in later):
                return f"nothing wrote {name} after it"
        return ""

    def versions(self, item: str) -> str:
        """Commits, branches and pull requests stand in what git printed, and pushes came after what they pushed."""
        results = [(call.back, call) for call in self.log.every() if "git" in call.command or "gh " in call.command]
        if not item.startswith("committed: "):
            named = re.findall(r"(?:told: |opened: |, )([^\s;,]+)", item.removeprefix("branch, "))
            return "" if all(any(one in call.result for _, call in results) for one in named) else "git didn't say so"
        pushes = [
            at
            for at, call in results
            if re.search(r"(?:\A|[&;|\n])\s*git(?: -C \S+)? push\b", call.command) and call.has_worked
        ]
        for told in re.findall(
            r"(?:: |; )([0-9a-f]{7,40}) (.*?)( \(pushed\)| \(nothing pushed since\))?(?=; |\Z)", item
        ):
            subject = flat(told[1].split(CUT)[0])
            made = [at for at, call in results if told[0] in call.result and subject in flat(call.result)]
            if not made:
                return f"git didn't make {told[0]}"
            later = [at for at in pushes if at >= min(made)]
            if ("nothing" in told[2] and later) or (told[2] == " (pushed)" and not later):
                return f"{told[0]} was pushed" if later else f"{told[0]} was not pushed"
        return ""

    def next(self, item: str) -> str:
        """What was announced is open only if the assistant did nothing after it."""
        talk = [one for one in self.log.talk if one[2].strip()]
        last = talk[-1] if talk else (0, "", "")
        if item.startswith("the user's last message: nothing"):
            return "" if last[1] != "assistant" else "something was said since"
        called = max((call.line for call in self.log.every()), default=0)
        is_begun = item.startswith("announced and begun")
        if (called > last[0]) != is_begun and called != last[0]:
            return "nothing was done after it" if is_begun else "something was done after it"
        words = lean(item.partition(": ")[2]).split(CUT)[0].split("; ")[0]
        return "" if last[1] == "assistant" and words in lean(last[2]) else "it isn't the last answer"

    def insisted(self, item: str) -> str:
        text = lean(re.sub(r"\A\d\d:\d\d ", "", item))
        return "" if any(text in lean(words) for words in self.log.words) else "no user wrote it"

    def spoken(self, item: str) -> str:
        words = item.partition(": ")[2]
        parts = [lean(part) for part in re.split(r" ?\[…\] ?", words) if part.strip()]
        is_so = any(all(part in text for part in parts) for text in self.said)
        return "" if is_so else "the assistant didn't say it"

    def decision(self, item: str) -> str:
        """Rules of what is no decision or finding, and whether it stands as one though it was turned down."""
        text = re.sub(r"\A\d\d:\d\d ", "", item)
        if doubted := re.search(r" \(the user then: “(.*)”\)\Z", text, re.DOTALL):
            if not holds(doubted[1], self.words):
                return "the user didn't say that to it"
            text = text[: doubted.start()]
        if text.startswith("the user approved the plan “"):
            return "" if any("approved your plan" in result for result in self.results) else "nobody approved it"
        if chosen := re.match(r"the user, asked “(.*)”: (.*)\Z", text, re.DOTALL):
            return "" if any(flat(chosen[2])[:200] in result for result in self.results) else "no user chose it"
        if ANNOUNCES.match(text):
            return "it announces"
        if text.rstrip(')"”’*`').endswith(("?", ":", ",", "because", "…")) or text.startswith("|") or " | " in text:
            return "a question, a row or a scrap"
        if re.match(r"[a-z]+ ", text) or text.count("**") % 2:
            return "a scrap of a list"
        at = [number for number, who, said in self.log.talk if who == "assistant" and lean(text) in lean(said)]
        if not at:
            return "the assistant didn't say it"
        answer = next(((who, said) for number, who, said in self.log.talk if number > at[-1]), ("", ""))
        turned = r"(?:no\b(?! problem| worries| need)|nope|don['’]?t\b|do not\b|stop\b|revert (?:that|this|it))"
        return "the user turned it down" if answer[0] == "user" and re.match(turned, answer[1], re.I) else ""

    def refused(self, item: str) -> str:
        _, _, words = re.sub(r"\A\d\d:\d\d ", "", item).partition(", with: ")
        told = [flat(call.result) for call in self.log.every() if call.is_error] + self.words
        if words and not holds(words, told):
            return "nobody said this to it"
        no = re.compile(r"(?:\w+[,.!]? )?(?:no\b|nope|don|do not|stop|please|never|not |revert|undo|nein|不|别)", re.I)
        is_so = any(call.was_refused for call in self.log.every()) or any(no.match(text) for text in self.words)
        return "" if is_so else "nobody turned anything down"

    def path(self, entry: str) -> str:
        """Words with a slash between them are a path only if a call was given them as a part of one."""
        if not re.fullmatch(r"[a-z]+/[a-z]+|[A-Z]{1,2}/[A-Z]{1,2}", entry):
            return ""
        folder, _, last = entry.partition("/")
        for text in self.given:
            if f"/{entry}" in text or f"{entry}/" in text:
                return ""
            if re.match(r"cd \S+", text) and re.search(rf"/{re.escape(folder)}\b", text) and f"{last}/" in text:
                return ""  # `cd /w/src && wc config/a.go`
        return "no path"

    def word(self, item: str) -> str | None:
        if re.match(r"\(\d+ more", item):
            return None
        words = re.sub(r"\A(?:\d\d:\d\d )?\S+?(?:, to “.*?”)?: ?", "", item, count=1, flags=re.DOTALL)
        if PROGRAM.match(words.strip()) or re.match(r"/(?:clear|compact|model|exit)\b", words):
            return "a program wrote it"
        return "" if holds(words, self.words) else "no user wrote it"

    def ends(self, identity: str) -> list[int]:
        """The lines in which the log tells that a job came to its end."""
        found = [
            number
            for number, text in self.log.notices
            if f"<task-id>{identity}</task-id>" in text and re.search(r"<status>(?!running|pending)\w+</status>", text)
        ]
        for call in self.log.every():
            named = identity in (str(value) for value in call.given.values())
            if not named or not call.back:
                continue
            stopped = re.search(r"kill|stop|close", call.name, re.IGNORECASE) and re.search(
                r"[Ss]uccessfully (?:stopped|killed)|\"success\": ?true|not running|not found", call.result
            )
            told = re.search(
                r"<status>(?:completed|failed|killed|stopped)</status>|^Process exited with code", call.result, re.M
            )
            missing = re.search(r"No (?:task|shell) found", call.result)
            found += [call.back] if stopped or told or missing else []
        return found

    def background(self, item: str) -> str:
        identity = re.search(r"\(id ([^\s,)]+)", item)
        if identity is None:
            return "no id"
        started = [
            call.back
            for call in self.log.every()
            if re.search(rf"(?:ID|agentId|session ID):? {re.escape(identity[1])}\b", call.result)
        ]
        if not started:
            return "nothing of this id was started"
        return "it ended" if any(line > max(started) for line in self.ends(identity[1])) else ""

    def ended(self, state: str, what: str) -> str:
        told = [text for _, text in self.log.notices] + [call.result for call in self.log.every()]
        if state not in ("stopped", "ended") and not any(f"<status>{state}</status>" in text for text in told):
            return "no job ended so" if not any("exited with code" in text for text in told) else ""
        names = [flat(json.dumps(call.given, ensure_ascii=False)) for call in self.log.every()] + [
            flat(t) for t in told
        ]
        part = flat(what.split(": ", 1)[-1])[:60].replace('"', '\\"')
        return "" if any(part in text or part.replace('\\"', '"') in text for text in names) else "nothing like it ran"

    def deeds(self, path: str) -> list[tuple[int, str]]:
        """What the log plainly tells of a file, in order: written, gone, or perhaps (a shell named it)."""
        name = path.rpartition("/")[2]
        found: list[tuple[int, str]] = []
        for call in self.log.every():
            given = json.dumps(call.given, ensure_ascii=False)
            if call.was_refused or not call.back or name not in given:
                continue
            command = call.command
            if command:
                bare = re.sub(r"<<-?\s*['\"]?(\w+)['\"]?.*?\n\s*\1\b", "", command, flags=re.DOTALL)
                away = re.search(
                    rf"(?:^|[;&|\n]\s*)(?:git\s+)?(?:rm|mv)\s[^;&|\n]*?(?<![\w.-]){re.escape(name)}(?![\w.-])",
                    bare,
                    re.MULTILINE,
                )
                target = away and "mv" in away[0].split() and away[0].rstrip("'\"").endswith(name)
                found.append((call.back, "gone" if away and not target and call.has_worked else "perhaps"))
            elif call.name in WRITERS or re.search(r"edit|write|patch|create|replace", call.name, re.IGNORECASE):
                patched = re.search(
                    rf"^\*\*\* Delete File: .*{re.escape(name)}", given.replace("\\n", "\n"), re.MULTILINE
                )
                failed = call.is_error or not call.back
                found += [] if failed else [(call.back, "gone" if patched else "written")]
            elif re.search(r"read|view|open|cat", call.name, re.IGNORECASE) and not call.is_error:
                found.append((call.back, "there"))
        return sorted(found)

    def changed(self, item: str) -> str | None:
        path, fate = re.match(r"(.*?)(?: \((.*)\))?\Z", item, re.DOTALL).groups()  # type: ignore[union-attr]
        deeds = self.deeds(path.rstrip("/"))
        kinds = [kind for _, kind in deeds]
        fate = fate or ""
        is_gone = bool(re.match(r"(?:deleted|moved)", fate))
        if is_gone:
            self.verdict.say("deleted", item, self.deleted(path, kinds))
            return None
        if not {"written", "perhaps"} & set(kinds) and not fate.startswith("`"):
            return "nothing wrote it" if not kinds or set(kinds) == {"there"} else "it was taken away"
        if kinds[-1] == "gone" and not fate.startswith("`"):
            return "it was taken away"
        return ""

    def deleted(self, path: str, kinds: list[str]) -> str:
        folders = "|".join(re.escape(part) for part in path.split("/")[:-1] if part)
        shape = rf"\b(?:rm|mv)\b[^;&|\n]*?(?:[\s/'\"])(?:{folders})/?(?=[\s'\"]|\Z)"
        by_folder = bool(folders) and any(c.has_worked and re.search(shape, c.command) for c in self.log.every())
        if "gone" not in kinds and not by_folder:
            return "nothing took it away"
        after = kinds[len(kinds) - kinds[::-1].index("gone") :] if "gone" in kinds else []
        return "it was written again" if "written" in after else ""

    def read(self, item: str) -> str:
        path = re.sub(r" \([\d, -]+\)\Z", "", item)
        kinds = [kind for _, kind in self.deeds(path)]
        if not {"there", "perhaps", "written"} & set(kinds):
            return "nothing read it"
        return "it was taken away" if kinds[-1] == "gone" else ""

    def runs(self, command: str) -> list[Call]:
        parts = [flat(part) for part in command.split(CUT)]
        if len(parts) == 1:
            return self.commands.get(parts[0], [])
        return [
            call
            for line, calls in self.commands.items()
            if (line.startswith(parts[0]) and line.endswith(parts[-1])) or all(part in line for part in parts)
            for call in calls
        ]

    def command(self, item: str) -> str:
        command, arrow, how = item.rpartition(" → ")
        while arrow and not re.match(r"(?:ok|ran|failed|no result|ended with(?:out)?)\b", how):
            command, arrow, rest = command.rpartition(" → ")
            how = f"{rest} → {how}"
        runs = self.runs(command if arrow else item)
        if not runs:
            return "it was not run"
        if all(call.was_refused for call in runs):
            return "it was refused"
        if arrow:
            self.verdict.say("outcomes", item, self.outcome([one for one in runs if not one.was_refused], how))
        return ""

    def outcome(self, runs: list[Call], how: str) -> str:
        masked = "ended without an error, with failures in its output"
        answered = "ended with 1, which says no"
        states = rf"(ok|ran|no result|{masked}|{answered}|failed \(([^)]*)\))"
        found = re.match(rf"{states}(?: \((\d+)×\))?(?:: (.*))?\Z", how, re.DOTALL)
        if found is None:
            return "not to be read"
        ends = [call for call in runs if call.back]
        state, code, line = found[1], found[2], found[4]
        if state == "no result":
            return "" if len(ends) < len(runs) or not runs[-1].result.strip() else "it came back"
        # Of a cut line several commands may fit: one of them has to have ended so.
        candidates = ends[-1:] if len({flat(call.command) for call in ends}) == 1 else ends
        for call in candidates:
            is_so = {
                "ok": call.has_worked and not re.match(r"FAIL\b", line or ""),
                masked: call.has_worked and bool(re.search(r"FAIL|\d (?:fail|error)", line or "")),
                answered: call.code == 1 and says_no(call),
                "ran": True,
            }.get(state, not call.has_worked and code in ("error", str(call.code)))
            shown = flat(line or "").strip("= ")
            if is_so and (not shown or shown in flat(call.result) or shown.startswith("started in the background")):
                return ""
        return "its last run ended otherwise"

    def error(self, item: str) -> str:
        text = re.sub(r" · \S+\Z", "", item)
        over = ", resolved: the command passed later" in text
        cured = re.search(r", after changes to ([^:]*)\Z", text)
        text = re.sub(r"(?: \(\d+×\))?(?:, resolved: the command passed later(?:, after changes to .*)?)?\Z", "", text)
        parts = [flat(part) for part in text.split(CUT)]
        seen = [call for call in self.log.every() if all(part in flat(call.result) for part in parts)]
        if not seen:
            return "nothing printed it"
        if over:
            last = seen[-1]
            if cured and not all(
                any(one in json.dumps(call.given) for call in self.log.every() if call.back > last.back)
                for one in cured[1].split(", ")
            ):
                return "nothing changed those files since"
            later = [
                c
                for command, calls in self.commands.items()
                if flat(last.command[:2_000]) in (command, *command.split(" && "))
                for c in calls
                if c.back > last.back and c.has_worked
            ]
            return "" if later else "the command didn't pass later"
        return ""

    def todo(self, item: str) -> str:
        box, text = item[1], re.sub(r", (?:since )?\d\d:\d\d\Z", "", item[4:])
        state = ""
        named: dict[str, str] = {}
        for call in self.log.every():
            for found, status in todo_states(call):
                if holds(text, [flat(found)]):
                    state = status
            if call.name == "TaskCreate" and (made := re.search(r"#(\w+) created", call.result)):
                named[made[1]] = str(call.given.get("subject") or call.given.get("description") or "")
            status, subject = call.given.get("status"), named.get(str(call.given.get("taskId")), "")
            if call.name == "TaskUpdate" and status and not call.is_error and holds(text, [flat(subject)]):
                state = str(status)
        if not state:
            return "nobody planned it"
        is_done = state in ("completed", "done", "cancelled", "deleted")
        return "" if is_done == (box == "x") else f"its state is {state}"

    def test(self, item: str) -> str:
        name = flat(re.sub(r" \(.*\Z", "", item, flags=re.DOTALL)) or flat(item)
        return "" if any(name in text for text in self.results) else "no run named it"


ASKS = (
    r"(?:\S*/)?(?:git .*)?"
    r"(?:[ef]?grep|rg|ag|ack|diff|cmp|test|\[|pgrep|which|type|command|show-ref|merge-base|check-ignore)\s"
)


def says_no(call: Call) -> bool:
    """Whether only a program that asks something can have ended a command with 1, and nothing told of a failure."""
    line = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", "x", call.command).replace("\\\n", " ").strip()
    if re.search(r"\bset -\w*e|pipefail", line) or re.search(
        r"FAILED|[1-9]\d* (?:failed|errors?)\b|^\S*(?:[Ee]rror|ERROR)\b.{0,20}:|\): error ", call.result, re.MULTILINE
    ):
        return False
    *before, last = re.split(r"&&\s*", re.split(r"\|\||;|(?<!&)\n", line)[-1])
    asked = [re.split(r"(?<!\|)\|(?!\|)", part)[-1].strip(" ()") + " " for part in (*before, last)]
    return all(re.match(rf"{ASKS}|(?:cd|echo|true|export)\s", one) for one in asked) and bool(re.match(ASKS, asked[-1]))


def todo_states(call: Call) -> list[tuple[str, str]]:
    """(text, status) that a call of a plan tool states."""
    found = []
    for key in ("todos", "plan"):
        for entry in call.given.get(key) or () if isinstance(call.given.get(key), list) else ():
            if isinstance(entry, dict):
                found.append((str(entry.get("content") or entry.get("step") or ""), str(entry.get("status"))))
    if call.name == "TaskCreate":
        found.append((str(call.given.get("subject") or call.given.get("description") or ""), "pending"))
    return found


# --- everything


def places(recording: Any, lines: int) -> list[int]:
    """The lines before which records are made: each compaction of the log, and cuts evenly between."""
    logged = {step.line for step in recording.steps if isinstance(step, LoggedCompaction)}
    return sorted(logged | {lines * part // CUTS + 1 for part in range(1, CUTS + 1)})


def check_file(path: Path, verdict: Verdict, *, most: int = 10**9) -> list[str]:
    """Every place of a log, at most so many; returns the decisions that the records hold."""
    data = path.read_bytes()
    decisions: list[str] = []
    for recording in read_recordings(data, path.name):
        if recording.format not in ("claude-code", "codex"):
            continue
        for at in places(recording, data.count(b"\n") + 1)[-most:]:
            messages, _ = said_before(recording, at)
            if not messages:
                continue
            record = compact_messages(messages, BUDGET).text
            Checker(raw_log(data, at), verdict).look(record)
            decisions += [item for heading, item in sections(record) if heading.startswith("Decided")]
    return decisions


def logs(data: Path) -> list[Path]:
    folders = ("claude_code", "claude_code_fixtures", "claude_code_snapshots", "codex")
    return sorted(path for folder in folders for path in (data / folder).rglob("*.jsonl"))


def main(arguments: list[str]) -> int:
    paths = [Path(one) for one in arguments if not one.startswith("--")]
    if len(paths) != 1 or not (files := logs(paths[0])):
        print("usage: python bench/truth.py DATA [--lines]; DATA holds claude_code and codex logs", file=sys.stderr)
        return 2
    verdict, decisions = Verdict(), dict[str, None]()
    for path in files:
        decisions.update(dict.fromkeys(check_file(path, verdict)))
    print(f"{len(files)} logs\n{'kind':<12}{'lines':>8}{'untrue':>8}")
    wrong = Counter(kind for kind, _, _ in verdict.untrue)
    for kind in KINDS:
        print(f"{kind:<12}{verdict.checked[kind]:>8}{wrong[kind]:>8}")
    for kind, line, why in dict.fromkeys(verdict.untrue):
        print(f"  {kind}: {why}: {line[:200]!r}")
    if "--lines" in arguments:
        for line in list(decisions)[:: max(1, len(decisions) // 100)]:
            print(f"  decision: {line}")
    return 1 if verdict.untrue else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
