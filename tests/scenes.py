"""Scenes of a chat in a terminal that draws, each kept as text: `make scenes` plays them all, to be read by a person.

What may never stand on a screen is checked in every scene: a sign that stands for a broken one, a word that is parted,
an error inside. A few of them are played in the suite (tests/e2e/test_chat_scenes.py).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.agents import calls
from tests.drawn import DrawnTerminal, drawn
from tests.terminals import Served, environment, served

from perdure.testing.server import CutStream

ALONE = tuple(
    word for job in ("summarizer", "notes", "selector", "extractor") for word in ("--set", f"{job}_models=offline")
)
WIDTHS = (60, 140)
NEVER = (
    "\N{REPLACEMENT CHARACTER}", "Traceback", "internal error", "^[", "asking again", "0% left", "nothing yet",
    "is compacted]", "pressure:", "synthetic", "perdure: no ", "(from: ",
)  # fmt: skip
COMPACTS = "left until auto-compaction"

LATIN = """# Résumé

The function `total` sums prices and **rounds** them to cents; it is called by *every* report in this project.

| file | lines | what it does |
|:--|--:|:--|
| prices.py | 120 | sums prices and rounds them to cents |
| reports/quarterly.py | 7 | prints what `total` gives |

1. Open `prices.py`.
2. Change `round(x, 2)`:

```python
def total(prices: list[float]) -> float:
    return round(sum(prices), 2)  # half to even
```

> « Voilà : 12\N{NARROW NO-BREAK SPACE}% de mieux » — that's what they said.

More is in [the manual](https://docs.example.org/prices/rounding.html), and <kbd>F1</kbd> is a key.
"""
EAST = """# 丸めについて

価格の合計は小数点以下\N{IDEOGRAPHIC SPACE}二桁に丸められます。これは長い文なので、端末の端で
折り返される必要があります。半角 words も混ざります。

- 一つ目：`total` を呼ぶ
- 二つ目：テストを実行する

가격의 합계는 소수점 둘째 자리까지 반올림됩니다. 이 문장은 단어 사이에서 줄이 바뀌어야 합니다.
"""
JOINED = (
    "\u0645\u06cc\N{ZERO WIDTH NON-JOINER}\u062e\u0648\u0627\u0647\u0645 \u0642\u06cc\u0645\u062a "
    "\u0631\u0627 \u06af\u0631\u062f \u06a9\u0646\u0645\n\n"
    "\u0915\u0940\u092e\u0924\u0947\u0902 \u0915\u094d\N{ZERO WIDTH JOINER}\u0937 "
    "\u0926\u094b \u0905\u0902\u0915\u094b\u0902 \u0924\u0915\n\n"
    "Family: \N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL} and ver\N{SOFT HYPHEN}ify.\n"
)


@dataclass
class Stage:
    """Where a scene is played. `screens` are what was kept of it."""

    place: Path
    columns: int
    is_colored: bool = True
    screens: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("home", "p"):
            (self.place / name).mkdir(parents=True)
        self.env = environment(self.place / "home", ANTHROPIC_API_KEY="k")
        del self.env["COLUMNS"]
        if not self.is_colored:
            self.env["NO_COLOR"] = "1"

    @property
    def folder(self) -> Path:
        return self.place / "p"

    @contextmanager
    def chat(self, server: Served | None, *more: str, command: str = "chat") -> Iterator[DrawnTerminal]:
        """A chat that can be typed into."""
        name = server.chat_name if server is not None else "offline"
        words = command.split()
        with drawn(*words, "--model", name, *ALONE, *more, cwd=self.folder, env=self.env, columns=self.columns) as one:
            one.ready()
            yield one

    def keep(self, name: str, one: DrawnTerminal, *, is_busy: bool = False) -> str:
        """Keep what is on the screen once it rests (busy, it never does), and everything above it."""
        text = "\n".join(one.seen if is_busy else one.rests())
        self.screens.append((name, text))
        return text

    def leave(self, one: DrawnTerminal) -> None:
        one.type("", "\x04")
        code = one.end()
        assert code == 0, f"ended with {code}: {one.seen}"
        self.keep("left", one)


def _said(stage: Stage, answer: str) -> None:
    with served([answer]) as server, stage.chat(server) as one:
        one.type("What is it about?")
        one.shows(COMPACTS)
        stage.keep("answer", one)
        stage.leave(one)


def latin(stage: Stage) -> None:
    """Markdown in a Latin script: a heading, a table, a list, code, a quotation, a link."""
    _said(stage, LATIN)


def east_asian(stage: Stage) -> None:
    """Wide characters, wrapped at the end of the terminal."""
    _said(stage, EAST)


def joined(stage: Stage) -> None:
    """Joiners of Persian, Hindi and emoji stay; of soft hyphens nothing is seen."""
    _said(stage, JOINED)
    assert "verify" in stage.screens[0][1] and "\N{SOFT HYPHEN}" not in stage.screens[0][1]


def long_lines(stage: Stage) -> None:
    """A long address, long code, a word longer than any terminal."""
    code = "value = compute(" + ", ".join(f"argument_{n}" for n in range(20)) + ")"
    _said(stage, f"See https://example.org/{'a/' * 100}end for more.\n\n```python\n{code}\n```\n\n{'x' * 200} end.\n")


def ctrl_c_idle(stage: Stage) -> None:
    """Ctrl-C with something typed clears the line; without, it asks for a second one."""
    with stage.chat(None) as one:
        one.type("half a thought", "")
        one.shows("> half a thought")
        one.type("", "\x03")
        one.rests()
        one.type("", "\x03")
        one.shows("(press Ctrl-C again, or Ctrl-D, to leave)")
        stage.keep("pressed once", one)
        one.type("", "\x03")
        assert one.end() == 0
        assert "half a thought" not in stage.keep("left", one)


def ctrl_c_stream(stage: Stage) -> None:
    """Ctrl-C while an answer comes; the next one isn't said to be cut off."""
    slow = " ".join(f"word{n}" for n in range(2_000))
    with served([slow, "Here again."]) as server, stage.chat(server) as one:
        server.server.delay_seconds = 0.02
        one.type("Tell me much.")
        one.shows("word99")
        text = stage.keep("while it comes", one, is_busy=True)
        assert "word0 word1" in text or "shown in full once it is complete" in text
        one.type("", "\x03")
        one.shows("this unfinished answer isn't kept")
        one.shows("interrupted; the session is intact")
        server.server.delay_seconds = 0.0
        one.type("Once more.")
        one.shows("Here again.")
        _check_bounds(stage.keep("after", one))
        stage.leave(one)


def _check_bounds(text: str) -> None:
    """What is at least left and at most used makes up no more than there is."""
    shown = " ".join(text.split())
    bounds = re.findall(r"up to about ([\d,]+) of 200,000 tokens used, at least about ([\d,]+) left", shown)
    assert bounds, "the answer that was interrupted left nothing that was counted"
    for used, left in bounds:
        assert int(used.replace(",", "")) + int(left.replace(",", "")) <= 167_000 + 100, f"{left} are promised"


def ctrl_c_tool(stage: Stage) -> None:
    """Ctrl-C while a command runs."""
    script = [calls(("Bash", {"command": "touch begun; sleep 40"})), "Going on."]
    with served(script) as server, stage.chat(server, "--mode", "bypass") as one:
        one.type("Wait for it.")
        one.shows("running Bash")
        stage.keep("at work", one, is_busy=True)
        one.type("", "\x03")
        one.shows("interrupted; the command was ended, the session is intact")
        one.type("Go on.")
        one.shows("Going on.")
        stage.keep("after", one)
        stage.leave(one)


def ctrl_c_question(stage: Stage) -> None:
    """Ctrl-C in a question refuses and ends the turn; what was in the line before is there again."""
    script = [calls(("Bash", {"command": "sleep 1; touch b"})), "Well."]
    with served(script) as server, stage.chat(server) as one:
        one.type("Touch it.")
        one.type("my next thought", "")
        one.shows("no rule allows sleep 1 or touch b")
        one.shows("or say what to do instead")
        stage.keep("asked", one)
        one.type("", "\x03")
        one.shows("stopped: it wasn't done")
        assert "> my next thought" in stage.keep("refused", one) and not (stage.folder / "b").exists()
        one.type("\x15", "")
        stage.leave(one)


def ctrl_c_compaction(stage: Stage) -> None:
    """Ctrl-C while a record is written: nothing was compacted."""
    long = ["word " * 3_000, "word " * 3_000, "Short."]
    more = ("--set", "window_tokens=40000", "--set", "summarizer_models=", "--set", "notes=false")
    with served(long) as server, stage.chat(server, *more) as one:
        for prompt in ("First.", "Second.", "Third."):
            one.type(prompt)
            one.shows("Short." if prompt == "Third." else prompt)
            one.rests()
        server.server.delay_seconds = 0.5
        server.upstream.script.append("<summary>" + "All is well. " * 200 + "</summary>")
        one.type("/compact")
        one.shows("compacting, 1 s")
        stage.keep("at work", one, is_busy=True)
        one.type("", "\x03")
        one.shows("interrupted; nothing was compacted")
        server.server.delay_seconds = 0.0
        one.type("/status")
        one.shows("checkpoints")
        stage.keep("after", one)
        stage.leave(one)


def two_chats(stage: Stage) -> None:
    """Two chats on one session: the second is told who has it, goes on in a copy, and nothing is lost."""
    with served(["Yes.", "In a copy.", "Still here."]) as server, stage.chat(server) as one:
        one.type("Hello.")
        one.shows(COMPACTS)
        words = ("resume", "--last", "--model", server.chat_name, *ALONE)
        with drawn(*words, cwd=stage.folder, env=stage.env, columns=stage.columns) as other:
            assert other.end() == 4
            (name,) = re.findall(r"new session (\w+),", "\n".join(one.seen))
            assert f"  perdure resume {name} --fork" in stage.keep("the second", other).splitlines()
        with drawn(*words, "--fork", cwd=stage.folder, env=stage.env, columns=stage.columns) as other:
            other.ready()
            other.shows(f"(a copy of {name}), model")
            other.type("And you?")
            other.shows("In a copy.")
            stage.keep("a copy", other)
            stage.leave(other)
        one.type("Are you there?")
        one.shows("Still here.")
        stage.keep("the first", one)
        stage.leave(one)


def resized(stage: Stage) -> None:
    """The terminal becomes narrower and wider while something is typed."""
    answer = "This is an answer of a few words that is long enough to be wrapped at most widths."
    with served([answer] * 2) as server, stage.chat(server) as one:
        one.type("What is it?")
        one.shows(COMPACTS)
        one.type("this stands in the line while the terminal changes its size", "")
        one.rests()
        one.resize(40)
        stage.keep("narrower", one)
        one.resize(100)
        one.type(", and goes on")
        one.shows("and goes on")
        one.shows(answer)
        stage.keep("wider", one)
        stage.leave(one)


def narrow(stage: Stage) -> None:
    """A terminal of 30 columns: a table is a list of its rows, and lists of commands stand below each other."""
    stage.columns = 30
    with served([LATIN]) as server, stage.chat(server) as one:
        one.type("What is it?")
        one.shows("is a key.")
        one.type("/permissions")
        one.rests()
        text = stage.keep("narrow", one)
        assert "\n      return\n        ↪ round(" in text, "a lone return would read as returning nothing"
        assert "\nwhat it does: sums prices\n  and rounds them to cents\n" in text
        stage.leave(one)


def pasted(stage: Stage) -> None:
    """A paste of 5,000 lines is one mark in the line, and all of it for the model."""
    lines = "\n".join(f"line {n} of the log" for n in range(1, 5_001))
    with served(["I have read it."]) as server, stage.chat(server) as one:
        one.type("What is wrong here? ", "")
        one.type(f"\x1b[200~{lines}\x1b[201~", "")
        one.shows("[pasted text 1: 5,000 lines]")
        stage.keep("pasted", one)
        one.type("")
        one.shows("I have read it.")
        text = stage.keep("answered", one)
        assert b"line 5000 of the log" in server.bodies[-1] and "line 17 of" not in text
        stage.leave(one)


def resume(stage: Stage) -> None:
    """A session that is taken up again shows its last exchange, and what was remembered."""
    with served(["**Rounded** to cents.", "They pass."]) as server:
        with stage.chat(server) as one:
            one.type("Round the totals. Remember that the port is 4711.")
            one.shows(COMPACTS)
            one.shows("- Remembered as project_the_port_is_4711.md: the port is 4711")
            assert "/memories" not in stage.keep("before", one), "no such folder is on the disk"
            stage.leave(one)
        with stage.chat(server, command="resume --last") as one:
            one.shows("Rounded to cents.")
            one.shows(COMPACTS)
            assert "about" not in stage.keep("again", one), "what was counted is still known"
            one.type("Do the tests pass?")
            one.shows("They pass.")
            stage.leave(one)


def queue(stage: Stage) -> None:
    """What is typed while an answer comes stands apart, and is sent after it; after Ctrl-C it is in the line again."""
    slow = calls(("Bash", {"command": "sleep 2"}))
    with served([slow, "First.", "Second.", slow, "Never."]) as server, stage.chat(server, "--mode", "bypass") as one:
        one.type("Do the first.")
        one.shows("running Bash")
        one.type("Then the second.")
        one.type("and a third, not yet sent", "")
        one.shows("then: Then the second.")
        stage.keep("waiting", one, is_busy=True)
        one.shows("Second.")
        one.rests()
        text = stage.keep("sent", one)
        assert text.index("First.") < text.index("> Then the second.") < text.index("\nSecond.")
        one.type("\x15Do another.")
        one.shows("> Do another.")
        one.shows("running Bash")
        one.type("wait for me")
        one.shows("then: wait for me")
        one.type("", "\x03")
        one.shows("interrupted;")
        assert stage.keep("interrupted", one).rstrip().endswith("> wait for me")
        one.type("\x15", "")
        stage.leave(one)


def commands(stage: Stage) -> None:
    """/diff /status /permissions /model /export, one after the other."""
    (stage.folder / "a.txt").write_text("one\ntwo\nthree\n")
    script = [
        calls(("Read", {"file_path": "a.txt"})),
        calls(
            ("Edit", {"file_path": "a.txt", "old_string": "two", "new_string": "2"}),
            ("Write", {"file_path": "new.py", "content": "x = 1\n"}),
        ),
        "Changed.",
    ]
    rules = ("--mode", "accept_edits", "--set", "permission_deny=Bash(rm:*)")
    with served(script) as server, stage.chat(server, *rules) as one:
        for line, wanted in (
            ("Change it.", COMPACTS),
            ("/diff", "new.py: new, +1 -0"),
            ("/diff a.txt", "> /diff a.txt"),
            ("/status", "3 calls at a price that isn't known"),
            ("/permissions", "Bash(rm:*)"),
            ("/permissions remove 1", "removed for this chat: deny Bash(rm:*)"),
            ("/permissions", "there are no rules"),
            ("/model", "Tab lists the names"),
            ("/model offline", "switched to model none (a demonstration)"),
            ("/export talk.md", "messages written"),
            ("/export talk.md", "already exists; name another file"),
            ("/nope", "no such command: did you mean /notes? /help lists all"),
        ):
            one.type(line)
            one.shows(wanted)
            one.rests()
        stage.keep("all", one)
        assert "Changed." in (stage.folder / "talk.md").read_text()
        stage.leave(one)


def help_and_costs(stage: Stage) -> None:
    """/help /cost /context /notes /pin /memory /mode /autocompact."""
    with served(["Yes."]) as server, stage.chat(server) as one:
        one.type("Hello.")
        one.shows(COMPACTS)
        for line in ("/help", "/cost", "/context", "/notes", "/pin the port is 4711", "/pin", "/pin remove 1",
                     "/memory", "/mode plan", "/autocompact", "/undo", "/rewind", "/retry"):  # fmt: skip
            one.type(line)
            one.rests()
        one.shows("asking the model again")
        shown = " ".join("\n".join(one.rests()).split())
        assert shown.endswith("mode plan] >"), "a turn ends with how full the window is"
        assert "pin removed: 0 pins" in shown and "memory is on; agents write to it by themselves" in shown
        assert "system prompt and tools (measured)" not in shown and "98%) until auto-compaction at 167,000" in shown
        assert "placeholders" not in shown, "nobody said anything that is left out"
        assert "as the table" not in shown and shown.count("the model's own isn't known") == 2
        text = stage.keep("all", one)
        assert not re.search(r"^\S{0,3}─$|^\[NUMBER\]", text, re.MULTILINE), "a table fits the terminal"
        assert re.search(r"tokens beside the 20,000 reserved for the answer, 172,\d{3} of them until", shown)
        stage.leave(one)


def sessions(stage: Stage) -> None:
    """/clear begins a session, /sessions lists the others and goes on with one."""
    with served(["One.", "Two."]) as server, stage.chat(server) as one:
        one.type("First session.")
        one.shows(COMPACTS)
        one.type("/clear")
        (name,) = re.findall(r"new session (\w+),", "\n".join(one.seen))
        one.shows(f"(/sessions {name} goes back to it)")
        one.type("Second session.")
        one.shows("Two.")
        one.type("/sessions")
        one.shows("/sessions NUMBER")
        one.type("/sessions 1")
        one.shows("continuing session")
        one.shows("> First session.")
        shown = " ".join("\n".join(one.rests()).split())
        assert shown.rindex(COMPACTS) > shown.rindex("continuing"), "how full it is, is said again"
        stage.keep("back", one)
        stage.leave(one)


def own_commands(stage: Stage) -> None:
    """!COMMAND shows its output and quotes it to the model; a rule that forbids it holds."""
    (stage.folder / "a.txt").write_text("one\n")
    rules = ("--set", "permission_deny=Bash(rm:*)", "--set", "permission_ask=Bash(touch:*)")
    with served(["I see."]) as server, stage.chat(server, *rules) as one:
        one.type("!cat a.txt; seq 3")
        one.shows("3")
        one.type("!rm a.txt")
        one.shows("forbids it")
        one.type("!touch b")
        one.shows("y: yes, n: no")
        one.type("use another name")
        one.shows("answer y or n")
        one.type("n")
        one.shows("not run, as you said")
        one.type("!sleep 30")
        one.shows("running your command, 1 s")
        one.type("", "\x03")
        one.shows("interrupted; your command was ended")
        one.shows("[up to about ")
        one.type("What did I see?")
        one.shows("I see.")
        text = " ".join(stage.keep("all", one).split())
        assert "instead" not in text, "an instruction would go to nobody"
        assert text.count("[up to about ") == 2, "said again only where it is news"
        assert b"cat a.txt; seq 3" in server.bodies[-1] and (stage.folder / "a.txt").exists()
        stage.leave(one)


def files(stage: Stage) -> None:
    """@FILE attaches a file; one outside of the folder is asked about; what is no file stays a word."""
    (stage.folder / "a.txt").write_text("the answer is 4711\n")
    (stage.place / "out.txt").write_text("outside\n")
    with served(["It is 4711.", "It was said."]) as server, stage.chat(server) as one:
        one.type("What is in @a.txt, and who is @nobody?")
        one.shows("It is 4711.")
        assert b"the answer is 4711" in server.bodies[-1]
        one.type("And @../out.txt?")
        one.shows("y: yes, n: no")
        one.type("n")
        one.shows("as you said; the prompt wasn't sent")
        one.rests()
        text = stage.keep("all", one)
        assert text.rstrip().endswith("> And @../out.txt?"), "it can be mended, and sent"
        assert text.index("@a.txt: 1 line") < text.index("@nobody: no such file") and "instead" not in text
        one.type("\x15", "")
        one.type("@a.", "")
        one.shows("> @a. @a.txt")
        one.type("", "\t")
        one.shows("> @a.txt")
        stage.keep("completed", one)
        one.type("\x15", "")
        stage.leave(one)


def review(stage: Stage) -> None:
    """What waits for a person's review is one line, also when they come back; /memory review decides."""
    more = ("--set", "memory_mode=ask", "--set", "memory_extract=false")
    with served(["Noted.", "Yes."]) as server:
        with stage.chat(server, *more) as one:
            one.type("Remember that the port is 4711.")
            one.shows(COMPACTS)
            assert " ".join(stage.keep("waits", one).split()).count("/memory review") == 1
            stage.leave(one)
        with stage.chat(server, *more, command="resume --last") as one:
            one.shows("- 1 memory waits for your review: decide with")
            one.type("/memory review")
            one.shows("a: approve, r: reject")
            one.type("a")
            one.shows("approved, and written")
            one.type("/memory")
            one.shows("project_the_port_is_4711.md")
            stage.keep("decided", one)
            stage.leave(one)


def saved(stage: Stage) -> None:
    """What was saved from what a person said, without being asked to, is one line."""
    with served(["Fine.", "Good."]) as server, stage.chat(server) as one:
        one.type("We always deploy on Mondays, never on Fridays. I prefer tabs over spaces in Python files.")
        one.shows(COMPACTS)
        one.type("Go on then.")
        one.shows("- 2 memories were saved from this conversation: /memory lists all")
        one.type("/memory")
        one.shows("tabs over spaces")
        text = stage.keep("saved", one)
        assert not re.search(r"^file\n\S", text, re.MULTILINE), "a value stands beside its name, or further in"
        stage.leave(one)


def asked_again(stage: Stage) -> None:
    """An answer that broke off is asked for again, and that is said, once."""
    said = "Half of this is lost at first, and then all of it comes: " + " ".join(f"word{n}" for n in range(20))
    with served([said] * 2) as server:
        server.server.faults = deque([CutStream(4)])
        with stage.chat(server) as one:
            one.type("Say it.")
            one.shows(COMPACTS)
            text = stage.keep("again", one)
            assert text.count("Half of this") == 2 and text.count("word19") == 1, "it broke off in the middle"
            stage.leave(one)


def compacts_by_itself(stage: Stage) -> None:
    """How far it is to a compaction, the compaction, and what it made room for."""
    long = ["word " * 4_000, "word " * 4_000, "word " * 4_000, "Short."]
    with served(long) as server, stage.chat(server, "--set", "window_tokens=24000") as one:
        for number in range(1, 5):
            one.type(f"Say number {number}.")
            one.shows(f"> Say number {number}.")
            one.rests(1.0)
        one.shows("Short.")
        text = " ".join(stage.keep("compacted", one).split())
        assert "due before the next call" in text and "- compacted by auto-compaction" in text
        stage.leave(one)


def hangup(stage: Stage) -> None:
    """The end of the terminal's process group closes the session."""
    with served(["Yes."]) as server, stage.chat(server) as one:
        one.type("Hello.")
        one.shows(COMPACTS)
        one.process.send_signal(signal.SIGTERM)
        assert one.end() == 130
        text = stage.keep("ended", one)
        assert text.index("Everything said so far is saved.") < text.index("perdure resume ")


Scene = Callable[[Stage], None]
SCENES: tuple[Scene, ...] = (
    latin, east_asian, joined, long_lines, ctrl_c_idle, ctrl_c_stream, ctrl_c_tool, ctrl_c_question, ctrl_c_compaction,
    two_chats, resized, narrow, pasted, resume, queue, commands, help_and_costs, sessions, own_commands, files, review,
    saved, asked_again, compacts_by_itself, hangup,
)  # fmt: skip


def faults_of(scene: Scene, stage: Stage) -> list[str]:
    """What stands on the screens of a scene and never may, and lines that are longer than the terminal."""
    never = [one for one in NEVER if not (scene is asked_again and one == "asking again")]
    texts = [(name, " ".join(text.split())) for name, text in stage.screens]  # wherever lines end
    found = [f"{name}: {words!r}" for name, text in texts for words in never if words in text]
    if scene is asked_again and texts[0][1].count("asking again") != 1:
        found.append("asking again isn't said once")
    return found


def sequences(raw: bytes) -> list[str]:
    """What switches colours and types of letters, of what was written to a terminal."""
    return [found.decode() for found in re.findall(rb"\x1b\[([0-9;]*)m", raw)]


def is_color(sequence: str) -> bool:
    """Whether one sets a colour: anything but bold and its like."""
    return any(30 <= int(code) <= 49 or int(code) >= 90 for code in sequence.split(";") if code)


def play(scene: Scene, place: Path, columns: int, *, is_colored: bool) -> Stage:
    """Play a scene. Raises `AssertionError` when something doesn't come, or stands there and never may."""
    stage = Stage(place, columns, is_colored)
    scene(stage)
    faults = faults_of(scene, stage)
    assert not faults, "\n".join([*faults, *(text for _, text in stage.screens)])
    return stage


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/scenes"), help="where the screens are kept")
    parser.add_argument("--only", default="", help="scenes whose name matches this pattern")
    told = parser.parse_args(arguments)
    told.out.mkdir(parents=True, exist_ok=True)
    played = failed = screens = 0
    for scene in (one for one in SCENES if re.search(told.only, one.__name__)):
        for columns in WIDTHS:
            for is_colored in (True, False):
                name = f"{scene.__name__}-{columns}{'' if is_colored else '-no-color'}"
                began = time.monotonic()
                with tempfile.TemporaryDirectory(prefix="scene-") as place:
                    played += 1
                    kept: Any = ()
                    try:
                        kept = play(scene, Path(os.path.realpath(place)), columns, is_colored=is_colored).screens
                        told_of = "ok"
                    except AssertionError as e:
                        failed += 1
                        told_of = f"FAILED: {e}"
                screens += len(kept)
                parts = [f"===== {screen}\n{text}\n" for screen, text in kept]
                (told.out / f"{name}.txt").write_text(f"{scene.__doc__}\n\n" + "\n".join(parts), encoding="utf-8")
                print(f"{name}: {told_of.splitlines()[0]} ({time.monotonic() - began:.1f} s)", flush=True)
                if told_of != "ok":
                    (told.out / f"{name}.failed.txt").write_text(told_of, encoding="utf-8")
    print(f"{played} scenes played, {failed} failed; {screens} screens in {told.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
