"""The terminal doors, from outside: a person at a pseudo-terminal, a pipe, a script; real wires and crashes (CLI-1)."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from tests import warm
from tests.agents import calls
from tests.commands import Done, command
from tests.terminals import PERDURE, SECONDS, Served, environment, parts, served, terminal

from perdure.testing import overloaded, say, tool_use

pytestmark = pytest.mark.e2e

# Nobody but the conversation asks the model, so that the script is the conversation's.
ALONE = tuple(
    word for job in ("summarizer", "notes", "selector", "extractor") for word in ("--set", f"{job}_models=offline")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "p").mkdir()
    return tmp_path / "p"


@pytest.fixture
def env(tmp_path: Path, folder: Path) -> dict[str, str]:
    return environment(tmp_path / "home", ANTHROPIC_API_KEY="k")


def wait_for(path: Path) -> None:
    ends = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < ends, f"{path.name} never came"
        time.sleep(0.02)


def lines_of(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- long work -------------------------------------------------------------------------------------------------------


def work(numbers: range) -> list[Any]:
    """Answers that write, read, edit and run, four calls for each file."""
    script: list[Any] = []
    for n in numbers:
        name, filler = f"src/f{n}.py", f"# {n} {'words of no use ' * 60}\n" * 12
        script += [
            say(f"File {n}.", tool_use("Write", {"file_path": name, "content": f"value = {n}\n{filler}"})),
            calls(("Read", {"file_path": name})),
            calls(("Edit", {"file_path": name, "old_string": f"value = {n}\n", "new_string": f"value = {n + 100}\n"})),
            calls(("Bash", {"command": f"head -1 {name} >> log.txt; seq 1 900"})),
        ]
    return script


def is_extended(before: bytes, after: bytes) -> bool:
    """Whether a request begins with all of another one, block by block and byte by byte."""
    one, two = parts(before), parts(after)
    return len(two) > len(one) and two[: len(one)] == one


def compactions(screen: str) -> int:
    return screen.count("- compacted by auto-compaction, ")


@pytest.fixture
def long_server() -> Iterator[Served]:
    slow = "touch ../begun; sleep 30"
    script = [
        *work(range(9)),
        calls(("Bash", {"command": slow})),  # the process is killed while this one runs
        *work(range(9, 16)),
        "All files are there.",
        calls(("Bash", {"command": "touch spoiled; rm -f spoiled"})),
        "That was a mistake.",
        calls(("Bash", {"command": "wc -l < log.txt > count.txt"})),
        "Counted.",
    ]
    with served(script, window=32_000) as server:
        yield server


def test_long_work_through_compactions_a_crash_a_resume_and_a_rewind(
    folder: Path, env: dict[str, str], long_server: Served
) -> None:
    """CLI-1, SES-1, CKP-4, TURN-9: more than sixty calls in a small window; what comes of it is what should."""
    common = (
        "--model",
        long_server.name,
        "--set",
        "window_tokens=32000",
        "--mode",
        "bypass",
        "--set",
        "sandbox=off",
        *ALONE,
    )
    with terminal("chat", *common, cwd=folder, env=env) as one:
        one.ready()
        one.type("Write sixteen files with numbers, please.")
        one.until("sleep 30", 60)
        wait_for(folder.parent / "begun")
        one.kill()
        first = one.screen
    last = long_server.bodies[-1]
    with terminal("resume", "--last", *common, cwd=folder, env=env) as two:
        two.until("continuing session")
        two.ready()
        two.type("Go on, please.")
        two.until("All files are there.", 60)
        two.ready()
        assert is_extended(last, next(b for b in long_server.bodies[long_server.bodies.index(last) + 1 :]))
        two.type("Now spoil it.")
        two.until("That was a mistake.")
        two.ready()
        two.type("/rewind")
        listed = two.until("/rewind NUMBER")
        two.ready()
        number = re.findall(r"(\d+)\s+Now spoil it\.", listed)[-1]
        two.type(f"/rewind {number}")
        two.until("back to before: Now spoil it.")
        two.ready()
        two.until("Now spoil it.")  # its text is there to be edited
        two.type("\x15Count the lines.")
        two.until("Counted.")
        two.ready()
        two.type("", "\x04")
        assert two.end() == 0
        screen = first + two.screen
    tree = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert tree == {"log.txt", "count.txt", *(f"src/f{n}.py" for n in range(16))}
    assert all((folder / f"src/f{n}.py").read_text().startswith(f"value = {n + 100}\n#") for n in range(16))
    assert (folder / "log.txt").read_text() == "".join(f"value = {n + 100}\n" for n in range(16))
    assert (folder / "count.txt").read_text().strip() == "16"
    assert compactions(screen) >= 2 and not long_server.violations()
    final = long_server.bodies[-1]
    assert b"Now spoil it." not in final and b"Count the lines." in final and b"Go on, please." in final
    assert "Traceback" not in screen


# --- at the terminal -------------------------------------------------------------------------------------------------


def test_permissions_are_asked_for_with_the_diff_and_the_rule(folder: Path, env: dict[str, str]) -> None:
    """LIB-1: yes, always (a rule), no with words for the model; edits are shown as what they change."""
    (folder / "a.txt").write_text("one\ntwo\n")
    script = [
        calls(("Read", {"file_path": "a.txt"})),
        calls(("Edit", {"file_path": "a.txt", "old_string": "two", "new_string": "three"})),
        calls(("Bash", {"command": "touch b"})),
        calls(("Bash", {"command": "touch c"})),
        calls(("Bash", {"command": "rm a.txt"})),
        "Fine.",
    ]
    with served(script) as server, terminal("chat", "--model", server.chat_name, *ALONE, cwd=folder, env=env) as one:
        one.ready()
        one.type("Change it.")
        one.ready()
        asked = one.until("a: always Edit; or say what to do instead")
        assert "? Edit a.txt" in asked and "-two" in asked and "+three" in asked
        assert "\x1b[32m  +three" in one.raw.decode()  # green
        one.type("y")
        one.ready()
        one.until("a: always Bash(touch:*); or say")
        one.type("a")
        one.until("* Bash touch c")
        one.until("? Bash rm a.txt")
        one.ready()
        one.until("a: always Bash(rm:*); or say")
        one.type("keep the file")
        one.until("Fine.")
        one.ready()
        assert (folder / "a.txt").read_text() == "one\nthree\n" and (folder / "b").exists() and (folder / "c").exists()
        assert rb"the user said:\nkeep the file" in server.bodies[-1]
        one.type("", "\x04")
        assert one.end() == 0


def test_ctrl_c_interrupts_a_turn_and_leaves_at_the_second_time(folder: Path, env: dict[str, str]) -> None:
    """TURN-11: the session stays valid; the next prompt goes on."""
    script = [calls(("Bash", {"command": "touch begun; sleep 40"})), "Going on."]
    common = ("--mode", "bypass", *ALONE)
    with served(script) as server, terminal("chat", "--model", server.chat_name, *common, cwd=folder, env=env) as one:
        one.ready()
        one.type("Wait for it.")
        one.until("* Bash touch begun")
        wait_for(folder / "begun")
        one.type("", "\x03")
        one.until("interrupted;")
        one.ready()
        one.type("Go on.")
        one.until("Going on.")
        one.until("mode bypass]")  # the turn is over: from here on Ctrl-C isn't the turn's any more
        one.type("", "\x03")
        one.until("Ctrl-C again")
        one.type("", "\x03")
        assert one.end() == 0 and not server.violations()


def test_the_end_of_the_terminal_closes_the_session(folder: Path, env: dict[str, str]) -> None:
    script = [calls(("Bash", {"command": "touch begun; sleep 40"})), "Going on."]
    with (
        served(script) as server,
        terminal("chat", "--model", server.chat_name, "--mode", "bypass", *ALONE, cwd=folder, env=env) as one,
    ):
        one.ready()
        one.type("Wait.")
        one.until("* Bash touch begun")
        wait_for(folder / "begun")
        one.process.send_signal(signal.SIGTERM)
        assert one.end() == 130
        done = command("run", "--last", "go on", "--model", server.chat_name, *ALONE, cwd=folder, env=env)
        assert done.stdout == "Going on.\n" and not server.violations()


def test_history_is_private_and_several_lines_are_one_prompt(folder: Path, env: dict[str, str]) -> None:
    with served(["Yes."]) as server, terminal("chat", "--model", server.chat_name, *ALONE, cwd=folder, env=env) as one:
        one.ready()
        one.type("first line", "\x1b\r")
        one.type("second \\")
        one.type("third")
        one.until("Yes.")
        one.ready()
        assert rb"first line\nsecond \nthird" in server.bodies[-1]
        one.type("/cle", "\t")
        one.until("begin a new session")
        one.type("\x15/exit")
        assert one.end() == 0
    (history,) = Path(env["PERDURE_HOME"]).rglob("history")
    assert stat.S_IMODE(history.stat().st_mode) == 0o600 and "second" in history.read_text()


def test_a_dumb_terminal_has_plain_lines_and_may_be_asked(folder: Path, env: dict[str, str]) -> None:
    """CLI-1: no line editor, no colours; questions, several lines and Ctrl-C work as well."""
    script = [calls(("Bash", {"command": "touch b"})), "Touched."]
    env["TERM"] = "dumb"
    with served(script) as server, terminal("chat", "--model", server.chat_name, *ALONE, cwd=folder, env=env) as one:
        one.until("\n> ")
        one.type("touch \\")
        one.type("it")
        one.until("or say what to do instead")
        one.type("y")
        one.until("Touched.")
        one.until("\n> ")
        assert (folder / "b").exists() and rb"touch \nit" in server.bodies[0] and b"\x1b[" not in one.raw
        one.type("", "\x03")
        one.until("Ctrl-C again")
        one.type("", "\x03")
        assert one.end() == 0


def test_instructions_are_read_unless_a_setting_says_otherwise(folder: Path, env: dict[str, str]) -> None:
    """INS-1: a program for people reads theirs."""
    (folder / "CLAUDE.md").write_text("Always say moo.\n")
    with served() as server:
        said(folder, env, server, "hello")
        said(folder, env, server, "hello", more=("--set", "instructions=false"))
        assert [b"Always say moo." in body for body in server.bodies] == [True, False]


def test_a_server_that_cuts_prompts_is_found_out(folder: Path, env: dict[str, str]) -> None:
    """LIB-3, PRS-8: the window is asked for; what is cut without a word is said, with what helps."""
    with served(["Yes."] * 9, cuts_at=3_000) as server:
        server.server.model["max_model_len"] = 64_000
        name = f"vllm:some-model@{server.server.url}/v1"
        done = command("chat", "--model", name, *ALONE, cwd=folder, env=env, given="word " * 3_000 + "\n")
        assert "window 64,000 tokens" in done.stdout
        assert "silently dropped the beginning of the prompt" in done.stdout


def test_a_model_is_found_by_the_url_of_its_server(folder: Path, env: dict[str, str]) -> None:
    """LIB-3: and a key that happens to be set stays here."""
    env["OPENAI_API_KEY"] = "secret"
    with served(["Yes."]) as server:
        server.server.routes["GET", "/v1/models"] = {"data": [{"id": "qwen3:8b", "max_model_len": 64_000}]}
        done = command("run", "hello", "--model", server.server.url, *ALONE, cwd=folder, env=env)
        assert (done.returncode, done.stdout) == (0, "Yes.\n") and "using vllm:qwen3:8b@" in done.stderr
        assert not any("secret" in value for one in server.server.received for value in one.headers.values())
    done = command("run", "hello", "--model", "http://127.0.0.1:9", cwd=folder, env=env)
    assert done.returncode == 2 and "no server there lists models" in done.stderr


# --- commands --------------------------------------------------------------------------------------------------------


def said(folder: Path, env: dict[str, str], server: Served, *lines: str, more: tuple[str, ...] = ()) -> str:
    """What a chat in a pipe answers to these lines."""
    done = command(
        "chat", "--model", server.name, *ALONE, *more, cwd=folder, env=env, given="".join(f"{x}\n" for x in lines)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_context_command_accounts_for_the_request_that_is_sent(folder: Path, env: dict[str, str]) -> None:
    """TOK-6: what is shown is what the provider counted of the request and its answer; the parts add up to it."""
    with served(["A" * 4_000]) as server:
        screen = said(folder, env, server, "Say much.", "/context")
        shown = int(re.findall(r": ([\d,]+) of 200,000 tokens used\n", screen)[-1].replace(",", ""))
        reported = server.upstream.statistics
        counted = reported.plain_tokens + reported.read_tokens + reported.written_tokens
        assert len(server.bodies) == 1 and shown == counted + reported.output_tokens
        rows = re.findall(r"^  (\S.*?) {2,}([\d,]+) {2,}[\d.]+", screen, re.M)
        told = {name: int(tokens.replace(",", "")) for name, tokens in rows}
        parts_sum = sum(n for name, n in told.items() if not name.startswith(("free", "reserve")))
        assert parts_sum == shown


def test_room_is_made_shown_and_taken_back(folder: Path, env: dict[str, str]) -> None:
    """CLI-1, CMP-11, PRS-3, RST-8: /compact, /undo, /autocompact, /pin, /cost and /clear, one after the other."""
    script = [*work(range(5)), "Done.", "And more."]
    with served(script) as server:
        screen = said(
            folder,
            env,
            server,
            "Write files.",
            "/pin the port is 4711",
            "/pin",
            "/compact the numbers",
            "/undo",
            "/autocompact",
            "/autocompact 100k",
            "/autocompact nonsense",
            "/autocompact 5",
            "/cost",
            "/notes",
            "/memory",
            "/mode plan",
            "/clear",
            "/resume",
            "/rewind",
            "/nope",
            more=("--mode", "bypass"),
        )
        assert "pinned: 1 pin, 4 of" in screen and "the port is 4711" in screen
        assert (
            re.search(r"- compacted (from|with) .*: about [\d,]+ -> about [\d,]+ tokens", screen)
            and "undone: about " in screen
        )
        assert "begins at 167,000 tokens\n" in screen and "tokens, as if the window held 100,000" in screen
        assert "/autocompact 5: has to be 10,000 or more" in screen
        assert "/autocompact nonsense: " in screen and "there is no such command" in screen
        assert re.search(r"main +claude-sonnet-4-5 +21 ", screen) and "in total since" in screen
        assert "memory is on" in screen and "permission mode: plan" in screen and "a new session, " in screen
        assert re.search(r"1 +\w{6} +[-\d: ]+ +\d+ +Write files\.", screen)
    with served(["Yes."]) as server:
        screen = said(folder, env, server, "And now?", more=("--last", "--fork"))
        assert b"Write files." in server.bodies[0]
        listed = command("sessions", "--json", cwd=folder, env=env)
        assert len(listed.stdout.splitlines()) == 2  # the empty one of /clear left nothing


def test_hooks_hear_of_each_start_before_anything_is_said(folder: Path, env: dict[str, str]) -> None:
    """CMP-10: with its source, and behind the end of the session before it."""
    log = folder / "log"
    tell = """python3 -c 'import json,sys; d=json.load(sys.stdin); print(d["hook_event_name"], d.get("source") """
    tell += f"""or d["reason"])' >> {shlex.quote(str(log))}"""
    hooks = {event: [{"hooks": [{"command": tell}]}] for event in ("SessionStart", "SessionEnd")}
    with served(["Yes."]) as server:
        env = {**env, "PERDURE_HOOKS": json.dumps(hooks)}
        said(folder, env, server, "Is it so?", "/clear")
        assert log.read_text().splitlines() == [
            "SessionStart startup", "SessionEnd clear", "SessionStart clear", "SessionEnd prompt_input_exit",
        ]  # fmt: skip
        log.unlink()
        said(folder, env, server, more=("--last",))
        assert log.read_text().splitlines() == ["SessionStart resume", "SessionEnd prompt_input_exit"]


def test_an_error_is_a_line_and_the_prompt_can_be_tried_again(folder: Path, env: dict[str, str]) -> None:
    """TURN-11: what was said stays in the session."""
    with served([overloaded(), "Now it works."]) as server:
        screen = said(folder, env, server, "Say it once.", "/retry", more=("--set", "retry_attempts=0"))
        assert "Overloaded" in screen and "Now it works." in screen
        assert server.bodies[1].count(b"Say it once.") == 1


@pytest.mark.nightly
def test_nobody_who_reads_and_nobody_who_types(folder: Path, env: dict[str, str]) -> None:
    """CLI-5: a closed pipe ends it quietly, a missing input is one line."""
    chat = " ".join(map(shlex.quote, [*PERDURE, "chat", "--model", "offline"]))

    def shell(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, shell=True, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60
        )

    done = shell(f"(sleep 1; echo hello; echo hello) | {chat} | head -1")
    assert "Traceback" not in done.stderr and "internal" not in done.stderr
    done = shell(f"{chat} <&-")
    assert done.returncode == 2 and "no standard input" in done.stderr and len(done.stderr.splitlines()) == 1
    done = shell(f"{chat} </dev/null")
    assert done.returncode == 0 and "perdure:" not in done.stderr, done.stderr


def test_a_low_context_says_what_to_do(folder: Path, env: dict[str, str]) -> None:
    """PRS-7, CLI-6: who compacts by hand is told to; who needn't reads how far it is, and no percentage."""
    with served(["Yes.", "Yes."]) as server:
        more = ("--set", "window_tokens=10000")
        screen = said(folder, env, server, "words " * 2_000, more=(*more, "--set", "compact_timing=manual"))
        assert "of 10,000 tokens used; no call is made before there is room]" in screen
        assert re.search(r"Context (?:low|almost full) \(\d+% left\): run /compact to compact and continue", screen)
        screen = said(folder, env, server, "words", more=more)
        assert re.search(r"of 10,000 tokens used, [\d,]+ left until auto-compaction", screen)
        screen = said(folder, env, server, "words", more=(*more, "--set", "auto_compact_percent=10"))
        assert "tokens used; auto-compaction is due before the next call]" in screen and "% left" not in screen


def test_without_a_key_it_says_what_it_is_and_shows_the_tools(folder: Path, env: dict[str, str]) -> None:
    """LIB-3: no key, no server: a demonstration, which calls real tools."""
    (folder / "a.txt").write_text("some words\n")
    del env["ANTHROPIC_API_KEY"]
    given = "hello\nread a.txt\n/context\n"
    done = command("chat", "--model", "offline", cwd=folder, env=env, given=given)
    assert done.returncode == 0 and "a demonstration, without a language model" in done.stdout
    assert "No language model is set up" in done.stdout and "* Read a.txt" in done.stdout
    assert "tool results" in done.stdout


# --- without a person ------------------------------------------------------------------------------------------------


def test_run_prints_the_answer_and_refuses_what_is_not_allowed(folder: Path, env: dict[str, str]) -> None:
    script = [calls(("Bash", {"command": "touch a"}), ("Bash", {"command": "git status"})), "I was not allowed to."]
    with served(script) as server:
        done = command("run", "touch it", "--model", server.name, *ALONE, cwd=folder, env=env)
        assert (done.returncode, done.stdout) == (0, "I was not allowed to.\n")
        assert "Bash was refused" in done.stderr and not (folder / "a").exists()
        server.upstream.script.extend([calls(("Bash", {"command": "touch a"})), "Done."])
        allowed = ("--set", "permission_allow=Bash(touch:*)")
        done = command(
            "run", "--last", "-", "--model", server.name, *ALONE, *allowed, cwd=folder, env=env, given="again\n"
        )
        assert (done.returncode, done.stdout) == (0, "Done.\n") and (folder / "a").exists()
        assert b"touch it" in server.bodies[-1] and b"again" in server.bodies[-1]


def test_run_streams_what_happens_and_how_it_ended(folder: Path, env: dict[str, str]) -> None:
    """OBS-1: tools, words and the engine's events as lines, the end as the last one."""
    script = [calls(("Write", {"file_path": "a.txt", "content": "x"})), "Written."]
    with served(script) as server:
        common = ("--model", server.name, "--mode", "accept_edits", "--json", *ALONE)
        told = lines_of(command("run", "write it", *common, cwd=folder, env=env))
        kinds = [one["type"] for one in told]
        assert {"tool", "result", "text", "event", "end"} <= set(kinds) and kinds[-1] == "end"
        end = told[-1]
        assert (end["stopped"], end["text"], end["calls"], end["turns"]) == ("done", "Written.", 1, 2)
        assert end["usd"] > 0 and end["jobs"][0]["calls"] == 2
        assert [one["tool"] for one in told if one["type"] == "tool"] == ["Write"]
        assert "".join(one["text"] for one in told if one["type"] == "text") == "Written."
        server.upstream.script.extend([calls(("Bash", {"command": "true"}))] * 4)
        done = command("run", "loop", "--max-turns", "2", "--resume", end["session"], *common, cwd=folder, env=env)
        assert done.returncode == 1 and lines_of(done)[-1]["stopped"] == "turns"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", " "), 2, "the prompt is empty"),
        (("run", "x", "--resume", "nope", "--model", "offline"), 3, "nope"),
        (("run", "x", "--last", "--model", "offline"), 3, "no session in this folder yet"),
        (("run", "x", "--fork"), 2, "--fork: of which session?"),
        (("run", "x", "--mode", "wild"), 2, "permission_mode"),
        (("run", "x", "--model", "wild"), 2, "names no model"),
        (("resume",), 2, "resume: which session?"),
        (("chat", "--last", "--resume", "x"), 2, "can't be combined with --last"),
    ],
)
def test_what_can_not_be_meant_is_one_line(
    folder: Path, env: dict[str, str], arguments: tuple[str, ...], code: int, words: str
) -> None:
    """CLI-5."""
    done = command(*arguments, cwd=folder, env=env)
    assert done.returncode == code and words in done.stderr and len(done.stderr.splitlines()) == 1


def test_run_fails_with_one_when_the_model_gives_up_and_130_when_interrupted(folder: Path, env: dict[str, str]) -> None:
    with served(window=200_000) as server:
        name = f"{server.chat_name}/nothing"
        done = command("run", "x", "--model", name, *ALONE, cwd=folder, env=env)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
        common = ("--model", server.chat_name, "--mode", "bypass", "--json", *ALONE)
        for is_json in (True, False):
            words = ["run", "wait", *(common if is_json else [word for word in common if word != "--json"])]
            (folder / "begun").unlink(missing_ok=True)
            server.upstream.script.clear()
            server.upstream.script.append(calls(("Bash", {"command": "touch begun; sleep 40"})))
            with open(os.devnull) as none, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
                process = warm.start(words, cwd=folder, env=env, fds=(none.fileno(), out.fileno(), err.fileno()))
                wait_for(folder / "begun")
                process.send_signal(signal.SIGINT)
                code = process.wait(SECONDS)
                out.seek(0)
                err.seek(0)
                told, complained = out.read(), err.read()
            assert code == 130 and complained.count("interrupted") == 1, complained
            assert not is_json or json.loads(told.splitlines()[-1])["stopped"] == "interrupted"


def test_a_second_model_takes_over_when_the_first_gives_up(folder: Path, env: dict[str, str]) -> None:
    with served(["From the second."]) as server:
        names = f"{server.name}/nothing,{server.name}"
        done = command("run", "x", "--set", f"main_models={names}", *ALONE, cwd=folder, env=env)
        assert (done.returncode, done.stdout) == (0, "From the second.\n") and "continuing with" in done.stderr


# --- init ------------------------------------------------------------------------------------------------------------


def test_init_writes_a_config_that_reads_as_nothing_changed(folder: Path, env: dict[str, str]) -> None:
    """CLI-3: every line a comment; each of them, without its sign, is a setting that can be read."""
    done = command("init", cwd=folder, env=env)
    path = Path(env["PERDURE_HOME"]) / "config.toml"
    assert done.returncode == 0 and str(path) in done.stdout and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(command("config", "--json", "--changed", cwd=folder, env=env).stdout)["settings"] == {}
    assert command("init", cwd=folder, env=env).returncode == 2
    assert command("init", "--force", cwd=folder, env=env).returncode == 0
    path.write_text(re.sub(r"^#(?=\w+ = )", "", path.read_text(), flags=re.M))
    changed = json.loads(command("config", "--json", "--changed", cwd=folder, env=env).stdout)["settings"]
    assert {"main_models", "auto_compact", "permission_deny", "memory"} <= set(changed)
    assert command("init", "--project", cwd=folder, env=env).returncode == 0
    full = f"trap '' XFSZ; ulimit -f 0; {' '.join(map(shlex.quote, PERDURE))} init --force"
    done = subprocess.run(["bash", "-c", full], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and str(path) in done.stderr, done.stderr
    assert [one.name for one in path.parent.iterdir() if one.is_file()] == ["config.toml"] and path.read_text()
    text = (folder / ".perdure" / "config.toml").read_text()
    assert "#permission_deny" in text and "permission_allow" not in text
