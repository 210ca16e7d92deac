"""The pieces of a chat: diffs, completion, what is shown, what is found, the demonstration (CLI-1, LIB-3)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from perdure.adapters.providers.connect import local_models
from perdure.adapters.providers.offline import DemonstrationModel
from perdure.agent.permissions import PermissionRule
from perdure.agent.progress import Allow, Deny, MemoryUpdated, PermissionQuestion
from perdure.agent.tools import STANDARD
from perdure.cli.chat.agents import telling
from perdure.cli.chat.commands import COMMANDS, is_command
from perdure.cli.chat.commands import autocompact_lines as told
from perdure.cli.chat.completing import Completions
from perdure.cli.chat.screen import Screen, edit_diff
from perdure.cli.chat.talk import ask
from perdure.cli.config import template
from perdure.cli.output import clean, plain, table
from perdure.context.models import UNKNOWN
from perdure.context.policy import thresholds
from perdure.context.replies import ReplyStarted, TextDelta
from perdure.engine.turn import run_turn
from perdure.events import MemoriesExtracted, MemoryProposed, PromptCutByServer
from perdure.logs.export import to_markdown
from perdure.settings import Settings
from perdure.testing import FakeServer, RawAnswer
from perdure.transcript.messages import Message, ResponseId
from perdure.transcript.records import Front
from perdure.wiring import memory_session

pytestmark = pytest.mark.unit


# --- diffs -----------------------------------------------------------------------------------------------------------


def test_a_diff_shows_the_lines_around_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(10)))
    given = {"file_path": "a.txt", "old_string": "5", "new_string": "five"}
    assert edit_diff("Edit", given, str(tmp_path)) == ["@@ -4,5 +4,5 @@", " 3", " 4", "-5", "+five", " 6", " 7"]
    several = {"file_path": "a.txt", "edits": [{"old_string": "0\n1", "new_string": "1"}]}
    assert edit_diff("MultiEdit", several, str(tmp_path))[1:3] == ["-0", " 1"]


def test_a_new_file_is_all_new_and_a_long_one_is_cut(tmp_path: Path) -> None:
    lines = edit_diff("Write", {"file_path": "n", "content": "x\n" * 100}, str(tmp_path), most=10)
    assert len(lines) == 11 and lines[1] == "+x" and lines[-1] == "@@ 91 more lines @@"


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Read", {"file_path": "a"}),
        ("Edit", {"file_path": 3}),
        ("Edit", {}),
        ("MultiEdit", {"file_path": "a", "edits": ["x"]}),
        ("Write", {"file_path": "\0", "content": None}),
    ],
)
def test_what_is_no_edit_has_no_diff(tmp_path: Path, tool: str, given: dict[str, Any]) -> None:
    assert edit_diff(tool, given, str(tmp_path)) == []


def test_an_edit_that_does_not_fit_shows_its_own_texts(tmp_path: Path) -> None:
    given = {"file_path": "gone", "old_string": "a", "new_string": "b"}
    assert edit_diff("Edit", given, str(tmp_path))[1:] == ["-a", "+b"]


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_nothing_that_a_terminal_obeys_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-4: neither a model's words nor a tool's can move the cursor or set titles."""
    screen = Screen("/")
    screen.stream("a\x1b]0;owned\x07b\n")
    screen.line("c\x1b[2Jd\u202e")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown and shown.count("\n") == 2


def test_a_prompt_that_was_cut_by_the_server_is_told_with_what_helps() -> None:
    """LIB-3: Ollama reads the end of a prompt only, and says nothing."""
    line, style = telling(PromptCutByServer("qwen3", 9_000, 4_096, 4_096)) or ("", "")
    assert "9,000" in line and "4,096" in line and "num_ctx" in line and style == "yellow"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "begins at 167,000 tokens"),
        ({"auto_compact": False}, "auto-compaction is off: calls stop at 177,000 tokens"),
        ({"compact": False, "auto_compact": False}, "switched off altogether"),
        ({"auto_compact_window": 100_000}, "tokens, as if the window held 100,000"),
    ],
)
def test_what_auto_compaction_does_is_said(changes: dict[str, Any], words: str) -> None:
    """PRS-3, PRS-4."""
    settings = Settings(**changes)
    assert words in " ".join(told(thresholds(settings, UNKNOWN, 200_000, "default"), settings))


# --- questions -------------------------------------------------------------------------------------------------------


class Answers:
    can_ask = True

    def __init__(self, *said: str | type[BaseException]) -> None:
        self.said = list(said)

    async def prompt(self, default: str = "") -> str:
        raise EOFError

    async def answer(self, question: str) -> str:
        one = self.said.pop(0)
        if isinstance(one, str):
            return one
        raise one


RULE = PermissionRule("Bash", "make:*")


@pytest.mark.parametrize(
    ("said", "rule", "answer"),
    [
        (("y",), RULE, Allow()),
        (("", "YES"), RULE, Allow()),
        (("a",), RULE, Allow(RULE)),
        (("a", "n"), None, Deny()),  # there is no rule that could be always
        (("use ninja",), RULE, Deny("use ninja")),
        ((KeyboardInterrupt,), RULE, Deny(stops=True)),
        ((EOFError,), None, Deny(stops=True)),
    ],
)
def test_questions_are_answered(
    said: tuple[Any, ...], rule: PermissionRule | None, answer: Allow | Deny, capsys: pytest.CaptureFixture[str]
) -> None:
    """LIB-1."""
    asked = PermissionQuestion("t1", "Bash", {"command": "make all\nrm -rf /"}, "it runs a command", rule)
    assert anyio.run(ask, Screen("/"), Answers(*said), asked) == answer
    assert "rm -rf /" in capsys.readouterr().out  # what is allowed is seen whole


def test_of_ones_own_doing_one_is_asked_yes_or_no(capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-6: there is nobody who would do something else instead, so nothing typed there is taken for an answer."""
    asked = PermissionQuestion("t1", "Bash", {"command": "touch b"}, "a rule asks", is_own=True)
    assert anyio.run(ask, Screen("/"), Answers("use c", "y"), asked) == Allow()
    shown = capsys.readouterr().out
    assert "instead" not in shown and shown.count("answer y or n") == 1


# --- typing ----------------------------------------------------------------------------------------------------------


def completed(text: str, root: Path, *, is_tab: bool = True) -> list[str]:
    found = Completions({"compact": "", "context": "", "clear": ""}, root)
    return [one.text for one in found.get_completions(Document(text), CompleteEvent(completion_requested=is_tab))]


def test_commands_and_paths_are_completed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    (tmp_path / ".hidden").touch()
    assert completed("/co", tmp_path) == ["/compact", "/context"]
    assert completed("look at sr", tmp_path) == ["src/"] and completed("look at sr", tmp_path, is_tab=False) == []
    assert completed("look at src/", tmp_path, is_tab=False) == ["src/a.py"]
    assert completed("look at .h", tmp_path) == [".hidden"] and completed("nowhere/", tmp_path) == []


@pytest.mark.parametrize(("text", "is_one"), [("/help", True), ("/nope", True), ("/usr/bin", False), ("/a.txt", False)])
def test_a_path_is_no_command(text: str, is_one: bool) -> None:
    assert is_command(text) is is_one


def test_every_command_of_the_clause_is_there() -> None:
    """CLI-1."""
    wanted = "context compact autocompact clear memory rewind resume notes pin undo cost help"
    assert set(wanted.split()) <= set(COMMANDS)


# --- models ----------------------------------------------------------------------------------------------------------


def test_models_on_this_machine_are_found_by_their_lists() -> None:
    """LIB-3: whatever else answers at a port is no model server."""

    async def body() -> None:
        listed = {"data": [{"id": "qwen3:8b"}, {"id": "nomic-embed-text"}, {"id": "a@b"}, {"no": 1}]}
        one = FakeServer(routes={("GET", "/v1/models"): listed})
        other = FakeServer(routes={("GET", "/v1/models"): RawAnswer(b"<html>", content_type="text/html")})
        async with one, other:
            ports = (("vllm", f"{other.url}/v1"), ("ollama", f"{one.url}/v1"), ("lmstudio", "http://127.0.0.1:9/v1"))
            assert await local_models(ports) == (f"ollama:qwen3:8b@{one.url}/v1",)
            assert [received.path for received in one.received] == ["/v1/models"]

    anyio.run(body)


def test_the_demonstration_says_what_it_is_and_follows_orders() -> None:
    async def body() -> None:
        session = await memory_session()
        tools = tuple(msgspec.Raw(msgspec.json.encode(tool.definition)) for tool in STANDARD)
        await session.record(Front(model="offline", tools=tools))
        model = DemonstrationModel()
        reply = await run_turn(session, "hello", model)
        assert "No language model" in reply.text and "demonstration" in reply.text and reply.stop_reason == "end_turn"
        reply = await run_turn(session, "run make test", model)
        (block,) = reply.blocks
        assert reply.stop_reason == "tool_use" and json.loads(block.raw)["input"] == {"command": "make test"}

    anyio.run(body)


def test_a_config_of_a_project_offers_no_permissions() -> None:
    """SEC-1."""
    assert "permission_allow" in template(is_project=False) and "permission_mode" not in template(is_project=True)


# --- weight ----------------------------------------------------------------------------------------------------------


def test_other_commands_load_nothing_of_it() -> None:
    """SPD-5: a door costs only those who open it."""
    code = "import sys; from perdure.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    heavy = (
        "prompt_toolkit",
        "anyio",
        "asyncio",
        "perdure.agent",
        "perdure.cli.chat",
        "perdure.engine",
        "rich.console",
    )
    assert "Talk with the agent" in done.stdout and not [name for name in loaded if name.startswith(heavy)]


def test_run_loads_neither_the_line_editor_nor_what_draws_markdown() -> None:
    """SPD-5, CLI-6: a script pays for nothing that only a person sees."""
    code = "import sys, perdure.cli.agent, perdure.cli.chat.agents, perdure.cli.chat.headless; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("prompt_toolkit", "markdown_it", "rich.console", "rich.markdown", "pygments")
    assert not [name for name in done.stdout.split() if name.startswith(heavy)]


# --- what a terminal may be shown -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["12\N{NO-BREAK SPACE}%", "全角\N{IDEOGRAPHIC SPACE}空白", "می\N{ZERO WIDTH NON-JOINER}خواهم",
     "क\N{ZERO WIDTH JOINER}्ष", "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}", "ver\N{SOFT HYPHEN}ify", "\ue0b0 prompt"],
)  # fmt: skip
def test_what_a_script_needs_is_shown_as_it_is(text: str) -> None:
    """CLI-6: a terminal obeys none of it."""
    assert plain(text) == clean(text) == text


@pytest.mark.parametrize(
    "sign", ["\x1b", "\x07", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u061c", "\ud83d", "\ufff9"], ids=ascii
)
def test_what_a_terminal_obeys_is_never_shown(sign: str) -> None:
    """CLI-5: control characters, changes of direction, halves of characters."""
    assert sign not in clean(f"a{sign}b") and sign not in plain(f"a{sign}b") and len(plain(f"a{sign}b")) == 3
    assert plain("a\r\n\tb\rc") == "a\n\tb c" and "\n" not in clean("a\nb\u2028c")


def test_a_table_stands_straight_beside_joined_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-6: joiners take no column, wide characters two."""
    table(("name", "n"), [("a\N{ZERO WIDTH JOINER}b", 1), ("全角", 2)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "a\N{ZERO WIDTH JOINER}b    1" and lines[2] == "全角  2"


def test_tables_stay_within_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-6: chat wraps a line before the last column; on a narrow terminal no value stands where a name would."""
    monkeypatch.setattr("perdure.cli.output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    table(("command", "what it does"), [("/rewind", "back to before an earlier prompt, or undo")])
    drawn = capsys.readouterr().out.splitlines()
    assert max(map(len, drawn)) == 39 and drawn[-1].startswith(" " * 9)
    table(("a", "tokens", "price"), [("x", "9", "unknown"), ("y", "10,000", "1.00")], numbers=("tokens", "price"))
    rows = [line.rstrip() for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows[0].endswith(" unknown") and rows[1].endswith(" 1.00") and len(rows[0]) == len(rows[1])
    row = ("a_name_that_is_much_too_long.md", "more words than one line has", 1_000_000, 2_000_000)
    table(("file", "about it all", "bytes", "more bytes"), [row])
    assert capsys.readouterr().out.splitlines()[:4] == [
        "file",
        "  a_name_that_is_much_too_long.md",
        "about it all  more words than one line",
        "              has",
    ]


# --- what happens -----------------------------------------------------------------------------------------------------


def test_only_an_answer_that_begins_twice_was_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-6: after an interruption the next answer is a new one."""
    screen = Screen("/")
    screen.begin("asking")
    screen.progress(ReplyStarted(ResponseId("r1")))
    screen.progress(TextDelta(0, "Half"))
    screen.begin("asking")  # the person interrupted it, and said something else
    screen.progress(ReplyStarted(ResponseId("r2")))
    assert "asking again" not in capsys.readouterr().out
    screen.progress(ReplyStarted(ResponseId("r3")))
    assert capsys.readouterr().out.count("asking again") == 1


def test_what_was_remembered_and_what_waits_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """MEM-16."""
    screen = Screen("/")
    screen.progress(MemoryUpdated("Remembered as port.md: the port is 4711"))
    screen.emit(MemoryProposed("save", "tool", "outside"))
    screen.emit(MemoryProposed("save", "user", "mode"))  # what the person asked for is told with its text
    screen.progress(MemoryUpdated("Waits for approval: the port is 4711"))
    screen.emit(MemoriesExtracted("rules", 2, 0, 0, 0, 0, None))  # memory_mode auto: nobody was asked
    screen.emit(MemoriesExtracted("rules", 0, 0, 3, 0, 0, None))
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "- Remembered as port.md: the port is 4711",
        "- a memory waits for your review: /memory review",
        "- Waits for approval: the port is 4711; decide with /memory review",
        "- 2 memories were saved from this conversation: /memory lists all",
    ]


def test_arguments_of_commands_and_attached_files_are_completed(tmp_path: Path) -> None:
    """CLI-6."""
    (tmp_path / "a.py").touch()
    found = Completions({"model": ""}, tmp_path, {"model": lambda begun: [n for n in ("x:1", "y:2") if begun in n]})
    for text, wanted in (("/model y", ["y:2"]), ("look at @a", ["@a.py"]), ("@", ["@a.py"])):
        event = CompleteEvent(text_inserted=True)
        assert [one.text for one in found.get_completions(Document(text), event)] == wanted


CALL = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "seq 30"}}


def test_a_session_reads_as_markdown() -> None:
    """ENG-6: what both said, calls and how their results begin; what nobody said is left out."""
    messages = [
        Message.of("user", "Count ```them```."),
        Message.of("user", "nobody said this", origin="reminder"),
        Message.of("assistant", [{"type": "text", "text": "I will."}, CALL], model="m"),
        Message.of("user", [{"type": "tool_result", "tool_use_id": "t", "content": "\n".join(map(str, range(1, 31)))}]),
    ]  # fmt: skip
    text = "".join(to_markdown(messages, title="A talk"))
    assert text.startswith(
        "# A talk\n\n## You\n\nCount ```them```.\n\n## m\n\nI will.\n\n**Bash**\n\n```\ncommand: seq"
    )
    assert "nobody said" not in text and "\n20\n… 10 more lines\n```" in text
