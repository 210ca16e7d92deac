"""Made-up session logs, one in each of the formats that are read, in which every pass and every odd thing turns up.

For those who don't have the real recordings; and unlike those, they are the same everywhere. No chance, no clock: what
varies follows from a number. What is made here must never change, or the golden files say nothing: make another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

Block = dict[str, Any]

THOUGHTS = "What it exports decides what the callers may rely on, so I note every name with its line. " * 14
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
ODD = 'Zeile \u2028 und \u00e9t\u00e9, \u4e2d\u6587, \U0001f9ed, \x1b[31mred\x1b[0m, \t tab, \\ and "quotes" </tag>'


class Log:
    """A Claude Code log in the making."""

    def __init__(self, session: str = "11111111-1111-4111-8111-111111111111") -> None:
        self.session = session
        self.lines: list[bytes] = []
        self.minutes = 0
        self.tokens = 9_000
        self.chars = 0

    def line(self, kind: str, message: dict[str, Any] | None = None, **fields: Any) -> str:
        uuid = f"00000000-0000-4000-8000-{len(self.lines):012d}"
        entry: dict[str, Any] = {
            "parentUuid": f"00000000-0000-4000-8000-{len(self.lines) - 1:012d}" if self.lines else None,
            "isSidechain": False,
            "type": kind,
            "uuid": uuid,
            "sessionId": self.session,
            "cwd": "/home/dev/app",
            "version": "2.1.40",
            "timestamp": f"2026-03-01T{8 + self.minutes // 60:02d}:{self.minutes % 60:02d}:00.000Z",
            **({"message": message} if message else {}),
            **fields,
        }
        self.lines.append(json.dumps(entry).encode())
        return uuid

    def says(self, text: str) -> None:
        self.chars += len(text)
        self.line("user", {"role": "user", "content": text})

    def answers(self, number: int, *blocks: Block) -> None:
        """One API response; its usage is what was said so far, at a fifth more than characters over four."""
        self.minutes += 1
        self.tokens += self.chars * 3 // 10
        self.chars = sum(len(json.dumps(block)) for block in blocks)
        usage = {"input_tokens": 4, "cache_read_input_tokens": self.tokens, "output_tokens": self.chars * 3 // 10}
        for block in blocks:
            message = {"role": "assistant", "id": f"msg_{number}", "model": "claude-opus-4-5-20251101"}
            self.line("assistant", {**message, "type": "message", "content": [block], "usage": usage})

    def returns(self, identity: str, text: str, *, is_error: bool = False) -> None:
        self.chars += len(text)
        block = {"type": "tool_result", "tool_use_id": identity, "content": text}
        self.line("user", {"role": "user", "content": [block | ({"is_error": True} if is_error else {})]})

    def compacts(self, summary: str) -> None:
        """A compaction by Claude Code itself."""
        boundary = {"trigger": "auto", "preTokens": self.tokens + self.chars // 4}
        self.line("system", subtype="compact_boundary", content="Conversation compacted", compactMetadata=boundary)
        self.line("user", {"role": "user", "content": summary}, isCompactSummary=True)


def reading() -> bytes:
    """Prompts, reads (one of them twice), a huge command output, a logged compaction, an hour of silence."""
    log = Log()
    for number in range(70):
        if number % 5 == 0:
            log.says(f"Step {number // 5}: look at module {number} and tell me what it exports.")
        if number == 60:
            log.minutes += 90
        name, argument = [("Read", "file_path"), ("Bash", "command"), ("Grep", "pattern")][number % 3]
        identity = f"toolu_{number:03d}"
        use = {"type": "tool_use", "id": identity, "name": name, "input": {argument: f"src/module_{number % 17}.py"}}
        log.answers(number, {"type": "text", "text": f"I look at module {number}. " + THOUGHTS}, use)
        lines = 900 if number == 7 else 60 + 7 * number % 90
        log.returns(identity, "\n".join(f"{k:>5}\tdef function_{number}_{k}(v): return v + {k}" for k in range(lines)))
        if number == 20:
            log.compacts("A summary.")
    log.answers(99, {"type": "text", "text": "All modules are read."})
    return b"\n".join(log.lines) + b"\n"


def use(identity: str, name: str, **arguments: Any) -> Block:
    """A call of a tool, in Anthropic's words."""
    return {"type": "tool_use", "id": identity, "name": name, "input": arguments}


def code(number: int, lines: int) -> str:
    """A file with line numbers, as a reading tool shows it."""
    return "\n".join(
        f"{k:>5}\tdef part_{number}_{k}(value): return value * {k} + {number}" for k in range(1, lines + 1)
    )


def editing() -> bytes:
    """Claude Code: thinking, answers in several lines, parallel calls, edits, todos, failing tests, errors, a picture,
    reminders, an interruption, and prompts that the person went back behind."""
    log = Log()
    before = ""
    log.says("Make the parser accept trailing commas. Never touch the generated files, and always run the tests.")
    for number in range(60):
        path = f"/home/dev/app/src/part_{number % 9}.py"
        thought = {"type": "thinking", "thinking": f"Step {number}. " + THOUGHTS, "signature": "c2lnbmVk" * 8}
        first, second = f"toolu_e{number}a", f"toolu_e{number}b"
        if number == 36:
            before = json.loads(log.lines[-1])["uuid"]
        if number % 6 == 0:
            log.says(f"Next is part {number % 9}: {ODD} Please don't change its name.")
            log.answers(number, thought, use(first, "Read", file_path=path), use(second, "Grep", pattern="comma"))
            log.returns(first, code(number % 9, 40 + number))
            log.returns(second, f"<system-reminder>grep found {number} files</system-reminder>\n{path}:1: comma")
        elif number % 6 == 1:
            edit = {"file_path": path, "old_string": f"part_{number % 9}_1", "new_string": f"part_{number % 9}_one"}
            log.answers(number, thought, {"type": "text", "text": "I change it. " + ODD}, use(first, "Edit", **edit))
            log.returns(first, f"The file {path} has been updated.")
        elif number % 6 == 2:
            log.answers(number, use(first, "Bash", command="python -m pytest -q", description="run the tests"))
            failed = f"FAILED tests/test_part.py::test_{number} - AssertionError: {number} != {number + 1}\n" * 3
            log.returns(first, failed + f"{3 if number % 4 else 0} failed, {number} passed in 1.{number}s")
        elif number % 6 == 3:
            todos = [{"content": f"part {k}", "status": "completed" if k < number % 9 else "pending"} for k in range(9)]
            log.answers(number, thought, use(first, "TodoWrite", todos=todos))
            log.returns(first, "Todos have been modified successfully.")
        elif number % 6 == 4:
            log.answers(
                number, use(first, "Write", file_path=f"/home/dev/app/new_{number}.py", content=code(number, 30))
            )
            is_refused = number % 12 == 4
            block = {"type": "tool_result", "tool_use_id": first, "content": "refused: the file is generated"}
            content = [block | {"is_error": True}] if is_refused else [block | {"content": "File created."}]
            log.line("user", {"role": "user", "content": content})
        else:
            log.answers(number, use(first, "Read", file_path=f"/home/dev/app/shot_{number}.png"))
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
            result = {"type": "tool_result", "tool_use_id": first, "content": [image, {"type": "text", "text": ODD}]}
            log.line("user", {"role": "user", "content": [result]})
        if number == 25:
            log.answers(200, use("toolu_cut", "Bash", command="sleep 600"))
            log.says("[Request interrupted by user for tool use]")
            log.says("That takes too long; go on without it.")
        if number == 40:
            log.line("user", {"role": "user", "content": "No: do it another way."}, parentUuid=before)
    log.answers(201, {"type": "text", "text": "All parts accept trailing commas now."})
    return b"\n".join(log.lines) + b"\n"


def rollout() -> bytes:
    """Codex: shell calls and patches, reasoning that can't be read, usage with each answer, a compaction, an undone
    turn."""
    entries: list[Block] = []
    total = 0

    def line(kind: str, **payload: Any) -> None:
        minutes = len(entries) // 6
        at = f"2026-02-03T{9 + minutes // 60:02d}:{minutes % 60:02d}:{len(entries) % 6 * 10:02d}.000Z"
        entries.append({"timestamp": at, "type": kind, "payload": payload})

    def spoke(role: str, text: str) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        line("response_item", type="message", role=role, content=[{"type": kind, "text": text}])

    line("session_meta", id="rollout-made", cwd="/home/dev/app", base_instructions={"text": "You are a coder. " * 90})
    line("turn_context", model="gpt-5.1-codex", cwd="/home/dev/app")
    spoke("user", "<environment_context>\n<cwd>/home/dev/app</cwd>\n</environment_context>")
    for number in range(64):
        if number % 8 == 0:
            spoke("user", f"Round {number // 8}: speed up the loader. You must keep its interface. {ODD}")
        line("response_item", type="reasoning", summary=[], encrypted_content="AAAA")
        spoke("assistant", f"I try idea {number}. {THOUGHTS[:400]}")
        call = f"call_{number}"
        if number % 3 == 1:
            patch = (
                f"*** Begin Patch\n*** Update File: src/loader.py\n@@\n-x = {number}\n+x = {number + 1}\n*** End Patch"
            )
            line("response_item", type="custom_tool_call", name="apply_patch", input=patch, call_id=call)
            line("response_item", type="custom_tool_call_output", call_id=call, output="Exit code: 0\nSuccess.")
        else:
            arguments = json.dumps({"cmd": f"sed -n '1,{20 + number}p' src/loader.py", "n": number})
            line("response_item", type="function_call", name="exec_command", arguments=arguments, call_id=call)
            output = f"Process exited with code {number % 5 // 4}\nOutput:\n{code(number, 25 + 5 * number % 70)}"
            line("response_item", type="function_call_output", call_id=call, output=output)
        prompt = 8_000 + 900 * number
        total += prompt + 120
        usage = {"input_tokens": prompt, "cached_input_tokens": prompt - 800, "output_tokens": 120}
        last = usage | {"total_tokens": prompt + 120}
        info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last, "model_context_window": 258_400}
        line("event_msg", type="token_count", info=info)
        if number == 20:
            line("event_msg", type="thread_rolled_back", num_turns=1)
        if number == 44:
            kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "speed up"}]}
            line("compacted", message="", replacement_history=[kept])
    spoke("assistant", "The loader is twice as fast.")
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def talks() -> bytes:
    """Two sessions of OpenAI chat messages: tools with arguments that are no JSON, calls side by side, a picture."""
    sessions = []
    for session in range(2):
        messages: list[Block] = [{"role": "system", "content": "You sell tickets. Ask before you pay. " * 30}]
        for number in range(40):
            messages.append({"role": "user", "content": f"Request {number}: change booking {number * 7}. {ODD}"})
            if number % 10 == 3:
                url = {"url": f"data:image/png;base64,{PICTURE}"}
                parts = [{"type": "text", "text": "My ticket:"}, {"type": "image_url", "image_url": url}]
                messages.append({"role": "user", "content": parts})
            calls = []
            for side in range(1 + number % 2):
                given = "{no json" if number == 11 else json.dumps({"booking": number * 7, "side": side, "note": ODD})
                function = {"name": "find_booking", "arguments": given}
                calls.append({"id": f"call_{session}_{number}_{side}", "type": "function", "function": function})
            messages.append({"role": "assistant", "content": f"I look it up. {THOUGHTS[:300]}", "tool_calls": calls})
            for call in calls:
                found = json.dumps([{"seat": k, "price": k * number, "free": k % 3 == 0} for k in range(12 + number)])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
            messages.append({"role": "assistant", "content": f"Booking {number * 7} costs {number} more. Shall I?"})
        parameters = {"type": "object", "properties": {"booking": {"type": "integer"}}}
        function = {"name": "find_booking", "description": "Finds a booking.", "parameters": parameters}
        tools = [{"type": "function", "function": function}]
        sessions.append({"task_id": session, "traj": messages, "tools": tools, "model": "gpt-4o"})
    return json.dumps(sessions).encode()


def blocks() -> bytes:
    """Anthropic messages: documents, searches of the provider, hidden thinking, calls that nobody answered."""
    messages: list[Block] = []
    for number in range(50):
        document = {
            "type": "document",
            "title": f"Report {number}",
            "source": {"type": "text", "media_type": "text/plain"},
        }
        document["source"]["data"] = code(number, 20)
        asked: list[Block] = [{"type": "text", "text": f"Question {number}: what does it say? {ODD}"}]
        messages.append({"role": "user", "content": [document, *asked] if number % 4 == 0 else asked})
        answer: list[Block] = [{"type": "redacted_thinking", "data": "c2VjcmV0" * 6}] if number % 3 == 0 else []
        if number % 5 == 2:
            search = f"srvtoolu_{number}"
            answer.append({"type": "server_tool_use", "id": search, "name": "web_search", "input": {"query": ODD}})
            page = {
                "type": "web_search_result",
                "url": "https://example.org/a",
                "title": "A",
                "encrypted_content": "eA==",
            }
            answer.append({"type": "web_search_tool_result", "tool_use_id": search, "content": [page]})
        answer.append({"type": "text", "text": f"It says {number}. {THOUGHTS[:700]}"})
        identity = f"toolu_b{number}"
        answer.append(use(identity, "Read", file_path=f"/data/report_{number % 7}.txt", limit=number))
        messages.append({"role": "assistant", "content": answer})
        if number % 9 != 8:
            result: Block = {"type": "tool_result", "tool_use_id": identity, "content": code(number % 7, 30 + number)}
            messages.append({"role": "user", "content": [result]})
            messages.append({"role": "assistant", "content": [{"type": "text", "text": f"That was report {number}."}]})
    return json.dumps({"messages": messages, "model": "claude-sonnet-4-5", "system": "Answer from reports."}).encode()


def commands() -> bytes:
    """mini-swe-agent: commands in fenced blocks, their output as plain user messages."""
    messages: list[Block] = [
        {"role": "system", "content": "You can run commands. " * 60},
        {"role": "user", "content": f"Please solve this issue: the date parser drops the time zone. {ODD}"},
    ]
    for number in range(50):
        command = f"cat src/date_{number % 6}.py && grep -n zone -r src | head -{number}"
        text = f"THOUGHT: {THOUGHTS[:500]}\n\n```bash\n{command}\n```"
        messages.append({"role": "assistant", "content": text})
        output = f"<returncode>{number % 7 // 6}</returncode>\n<output>\n{code(number % 6, 30 + number)}\n</output>"
        messages.append({"role": "user", "content": output})
    info = {"exit_status": "Submitted", "config": {"model": {"model_name": "claude-sonnet-4-5"}}}
    run = {"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1", "instance_id": "made-1"}
    return json.dumps(run).encode()


LOGS: Final[dict[str, Callable[[], bytes]]] = {
    "reading.jsonl": reading,
    "editing.jsonl": editing,
    "rollout.jsonl": rollout,
    "talks.json": talks,
    "blocks.json": blocks,
    "commands.traj.json": commands,
}
