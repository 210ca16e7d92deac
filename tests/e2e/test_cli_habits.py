"""CLI-6, CLI-5: short names and numbers of sessions, lists narrowed, failures in words, what a shell completes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
import typer
from tests.e2e.conftest import Ran

from perdure.adapters.journal import short_ids
from perdure.agent.permissions import PermissionDecision, PermissionRule
from perdure.agent.progress import PermissionRefused
from perdure.cli.arguments import (
    GlobalOptions,
    complete_assignments,
    complete_models,
    complete_sessions,
    complete_settings,
    located,
    moment_since,
)
from perdure.cli.words import MODEL_FAILURES, compaction_failure, model_failure, permission_advice
from perdure.errors import BadSetting, KeyRefused, ModelDown, ModelError, ModelGaveUp, SessionNotFound
from perdure.transcript.messages import Message
from perdure.transcript.records import Titled
from perdure.wiring import create_session, open_session

pytestmark = pytest.mark.e2e

IDS = ("session-01m81f2c61vhw2qm7jsw", "session-01m81f2a371k6dtreqxv", "session-01m81f27x9f4pnb7jjh6")
LOG = "0cd9edf7-459c-4900-af40-cf2c64dea525"


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three sessions of this folder and an imported one of another, the first of them written last."""
    for name in list(os.environ):
        if name.startswith(("PERDURE_", "CLAUDE_", "ANTHROPIC_", "OPENAI_")):
            monkeypatch.delenv(name)
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    monkeypatch.setenv("PERDURE_HOME", str(home))
    monkeypatch.chdir(here)

    async def make() -> None:
        for number, name in enumerate((*IDS, LOG)):
            project = tmp_path if name == LOG else here
            session = await create_session(home, project=project, session=name)
            await session.record(Titled(title=f"Title {number}"))
            await session.append(Message.of("user", "fix the parser" if number == 1 else "write a page"))
            await session.close()
            journal = next(home.rglob(f"{name}/journal.jsonl"))
            at = time.time() - number * 86_400
            os.utime(journal, (at, at))

    anyio.run(make)
    return here


def test_a_session_is_named_by_any_part_that_no_other_has(run: Run) -> None:
    """CLI-6: by its end, its beginning with or without `session-`, or what is between."""
    for text in ("qm7jsw", "7jsw", "01m81f2c", "session-01m81f2c", "61vhw2"):
        assert located(text).name == IDS[0]
    assert located(LOG[:6]).name == LOG and run("sessions", "show", "jjh6").out.split()[1] == IDS[2]
    ran = run("sessions", "show", "01m81")
    assert ran.code == 3 and all(name in ran.err for name in IDS) and ran.err.count("\n") == 1


def test_a_beginning_goes_before_what_only_holds_the_text() -> None:
    found = short_ids(["abc-1", "zz-abc-2"])
    assert found == {"abc-1": "abc-1", "zz-abc-2": "zz-abc"}, "what another one holds is no name"


def test_short_ids_are_unique_and_name_their_session() -> None:
    """CLI-6: also where ends and beginnings are the same."""
    names = [*IDS, LOG, "session-aaaaaa111111", "session-bbbbbb111111", "plain", "plain-2"]
    short = short_ids(names)
    assert len(set(short.values())) == len(names)
    for name, part in short.items():
        assert part == name or [other for other in names if part in other] == [name]
    assert short[IDS[0]] == "qm7jsw" and short[LOG] == LOG[:6]


def test_the_last_session_and_numbers_of_the_list(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-6: @last is of this folder, @N counts as the list does."""
    listed = [json.loads(line) for line in run("sessions", "--json").out.splitlines()]
    assert [one["number"] for one in listed] == [1, 2, 3, 4]
    assert located("@last").name == IDS[0] and [located(f"@{one['number']}").name for one in listed] == [*IDS, LOG]
    shown = run("sessions").out.splitlines()
    assert shown[1].split()[:2] == ["@1", "qm7jsw"] and located(shown[2].split()[1]).name == IDS[1]
    monkeypatch.chdir(place.parent)
    assert located("@last").name == LOG
    with pytest.raises(SessionNotFound, match="4 sessions kept here"):
        located("@5")
    (place / "empty").mkdir()
    monkeypatch.chdir(place / "empty")
    with pytest.raises(SessionNotFound, match="no session in this folder yet"):
        located("@last")


def test_a_list_can_be_narrowed(run: Run) -> None:
    """CLI-6: --limit, --since, --grep, each said when it can't be meant."""
    assert "fix the parser" not in run("sessions", "--limit", "1").out
    assert "3 more" in run("sessions", "--limit", "1").out
    assert len(run("sessions", "list", "--since", "30h", "--json").out.splitlines()) == 2
    assert len(run("sessions", "list", "--since", "1w", "--json").out.splitlines()) == 4
    (found,) = run("sessions", "--grep", "FIX.*parser", "--json").out.splitlines()
    assert json.loads(found)["session"] == IDS[1] and json.loads(found)["number"] == 2
    assert run("sessions", "--grep", "nowhere").out == "no session matches\n"
    for words in (("--since", "soon"), ("--grep", "(")):
        ran = run("sessions", *words)
        assert ran.code == 2 and ran.err.count("\n") == 1 and words[0] in ran.err
    assert abs(moment_since("2d") - (time.time() - 2 * 86_400)) < 5
    with pytest.raises(BadSetting):
        moment_since("")
    assert moment_since("2026-11-20") < moment_since("2026-11-20T18:00")


def test_a_shell_completes_sessions_settings_and_models() -> None:
    """CLI-6."""
    assert complete_sessions("")[:2] == [("@last", "the last session of this folder"), ("qm7jsw", "Title 0")]
    assert complete_sessions(IDS[0][:24]) == [(IDS[0], "Title 0")]
    assert [name for name, _ in complete_settings("pins")] == ["pins_tokens"]
    assert complete_assignments("pins") == ["pins_tokens="]
    assert "offline" in complete_models("off") and all(
        one.startswith("anthropic:") for one in complete_models("anthropic:")
    )
    assert complete_models("anthropic:")


def test_run_without_a_model_asks_for_one(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-6: no made-up answer on stdout, and no session is left behind; `offline` is a choice."""

    async def none() -> tuple[str, ...]:
        return ()

    monkeypatch.setattr("perdure.adapters.providers.connect.local_models", none)
    ran = run("run", "hello")
    assert (ran.code, ran.out) == (2, "") and ran.err.count("\n") == 1 and "--model" in ran.err
    assert len(run("sessions", "--json").out.splitlines()) == 4
    assert run("run", "hello", "--model", "offline").code == 0
    for setting in ("main_models=offline",):
        assert run("run", "hello", "--set", setting).code == 0


def test_a_model_error_is_a_sentence() -> None:
    """CLI-6: what happened, the provider's words, what was tried, what to do; never a code."""
    error = ModelGaveUp(KeyRefused("invalid x-api-key", status=401))
    assert model_failure(error).startswith("the provider refused the key (HTTP 401): invalid x-api-key; check that")
    waits = tuple(f"waited {n} s (down)" for n in (1, 2, 4))
    told = model_failure(ModelGaveUp(ModelDown("Connection error."), (*waits, "compacted")))
    assert "tried 4 times over 7 seconds, compacted" in told and "gave_up" not in told

    def kinds(one: type[ModelError]) -> set[str]:
        return {one.reason}.union(*map(kinds, one.__subclasses__()))

    assert kinds(ModelError) - {"gave_up"} <= set(MODEL_FAILURES), "every error of a model has its words"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("too_little: 6,191 to 6,591 tokens", "it would free too little: 6,191 tokens would become 6,591"),
        (
            "over_trigger: 9,000 tokens, trigger 8,000",
            "9,000 tokens would be left, more than the 8,000 at which compaction begins",
        ),
        ("model_failed: key_refused", "the provider refused the key"),
        ("nothing_to_compact: no message stands before", "nothing in it is old enough yet"),
        ("no_text: Failed to generate conversation summary: the response held no text", "the response held no text"),
        ("something_new", "something new"),
    ],
)
def test_why_nothing_was_compacted_is_a_sentence(reason: str, words: str) -> None:
    assert compaction_failure(reason) == words


def test_a_refusal_advises_only_what_helps() -> None:
    """CLI-6: no mode that was given already, no rule that would not allow it."""
    edit = PermissionDecision("ask", "mode default", "it changes files")
    command = PermissionDecision("ask", "mode accept_edits", "no rule allows touch b")
    assert "--mode accept_edits" in permission_advice(PermissionRefused("1", "Write", edit, PermissionRule("Edit")))
    told = permission_advice(PermissionRefused("1", "Bash", command, PermissionRule("Bash", "touch:*")))
    assert told == "allow it with --set 'permission_allow=Bash(touch:*)'"
    assert "no setting" in permission_advice(PermissionRefused("1", "Bash", command))
    assert permission_advice(PermissionRefused("1", "Bash", PermissionDecision("deny", "rule x", "forbidden"))) == ""


def test_a_redirect_is_not_offered_a_rule_that_does_not_allow_it(run: Run) -> None:
    ran = run("run", "run echo x > y.txt", "--model", "offline")
    assert "no setting allows just this" in ran.err and "accept_edits" not in ran.err
    ran = run("run", "run touch b", "--model", "offline", "--mode", "accept_edits")
    assert "permission_allow=Bash(touch:*)" in ran.err and "accept_edits" not in ran.err.replace(
        "mode accept_edits", ""
    )


def test_config_says_what_a_setting_does(run: Run) -> None:
    """CLI-6."""
    assert run("config", "pins_tokens").out == "4,000  (from: default)\nwhat all pins together may take, in tokens\n"
    listed = run("config").out
    assert "\nMemory\n" in listed and "how many memories are chosen for a turn" in listed
    assert "what all pins together may take" in run("config", "--changed", "--set", "pins_tokens=5k").out
    assert "pins_tokens" not in run("config", "--changed").out


def test_an_empty_home_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-5."""
    monkeypatch.delenv("PERDURE_HOME")
    monkeypatch.setenv("HOME", "")
    ran = run("sessions")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "HOME is empty" in ran.err


def test_instructions_say_who_reads_them(run: Run, place: Path) -> None:
    """CLI-6: chat and run read them unless they are told not to."""
    (place / "CLAUDE.md").write_text("Be brief.")
    assert "chat and run read these files" in run("instructions").out
    assert "no session reads these files" in run("instructions", "--set", "instructions=false").out
    assert "read" not in run("instructions", "--set", "instructions=true").out.split("1 file")[1]


def test_what_undoes_a_rewind_names_the_session(run: Run) -> None:
    ran = run("rewind", "qm7jsw", "-1", "--conversation")
    assert ran.code == 0 and "perdure rewind qm7jsw --undo" in ran.out
    assert run("rewind", "qm7jsw", "--undo").code == 0


def test_memories_are_listed_by_what_they_are_about(run: Run) -> None:
    """CLI-6: --grep and --limit where lists are long."""
    for text in ("The staging database is read-only.", "Deploys go out on Tuesdays."):
        assert run("memory", "add", text).code == 0
    assert "staging" in run("memory", "ls", "--grep", "STAGING").out
    assert "Tuesdays" not in run("memory", "ls", "--grep", "STAGING").out
    assert len(json.loads(run("memory", "ls", "--limit", "1", "--json").out)["memories"]) == 1


def test_search_names_sessions_by_their_short_ids(run: Run) -> None:
    """CLI-6: what a list shows can be typed."""
    first = run("search", "parser").out.splitlines()[0].split()
    assert first[:2] == ["1.", short_ids([*IDS, LOG])[IDS[1]]] and run("recall", first[1], first[2]).out
    assert json.loads(run("search", "parser", "--json").out.splitlines()[0])["session"] == IDS[1]


def test_a_search_can_be_narrowed_to_what_is_recent(run: Run, place: Path) -> None:
    """CLI-6: --since, with what would widen the search where nothing is found."""

    async def say() -> None:
        session = await open_session(place.parent / "home", IDS[2])
        await session.append(Message.of("user", "the parser of old", at=time.time() - 86_400 * 3))
        await session.close()

    anyio.run(say)
    assert "of old" in run("search", "parser").out and "of old" in run("search", "parser", "--since", "4d").out
    recent = run("search", "parser", "--since", "2d")
    assert recent.code == 0 and "of old" not in recent.out
    assert "an earlier --since" in run("search", "nowhere", "--since", "2d").out
    ran = run("search", "parser", "--since", "soon")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "--since soon" in ran.err


MODEL_OPTIONS = [
    ("chat", "--model"), ("run", "x", "--model"), ("resume", "--model"), ("compact", "@last", "--model"),
    ("replay", "x", "--summarizer"), ("bench", "live", "x", "--model"), ("context", "@last", "--exact"),
]  # fmt: skip


@pytest.mark.parametrize("words", MODEL_OPTIONS, ids=" ".join)
def test_a_shell_completes_every_option_that_takes_a_model(words: tuple[str, ...]) -> None:
    """CLI-6: through the script that zsh runs; `replay --model` takes the id that a log would name."""
    assert "anthropic:claude-opus-5" in completed(*words, "anthropic:claude-op")
    ids = completed("replay", "x", "--model", "claude-op")
    assert "claude-opus-5" in ids and not any(one.endswith("-") or ":" in one for one in ids)


def completed(*words: str) -> list[str]:
    """What the shell offers for the last word."""
    from typer._completion_classes import ZshComplete

    from perdure.cli.app import app

    command = typer.main.get_command(app)
    shell = ZshComplete(command, {"obj": GlobalOptions()}, "perdure", "_PERDURE_COMPLETE")
    return [one.value for one in shell.get_completions(list(words[:-1]), words[-1])]


def test_a_file_for_events_that_cannot_be_made_is_one_line(run: Run, place: Path) -> None:
    """CLI-5."""
    ran = run("serve", "--events", str(place / "none" / "events.jsonl"))
    assert ran.code == 2 and ran.err.count("\n") == 1


def test_serve_names_the_routes_there_are(run: Run, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-6: none that answers 404, and the upstream of each."""
    from perdure.adapters.config import load
    from perdure.cli.serve import _say_ready
    from perdure.gateway.config import gateway_config

    (place.parent / "home" / "config.toml").write_text(
        '[gateway.upstreams.local]\nurl = "http://127.0.0.1:11434"\n[gateway.routes.work]\nopenai = "local"\n'
    )
    config = gateway_config(load(os.environ, cwd=place).gateway)
    _say_ready("http://127.0.0.1:8787", config, is_json=False)
    shown = capsys.readouterr().out
    assert "OPENAI_BASE_URL=http://127.0.0.1:8787/work/v1" in shown and "11434" in shown
    assert "ANTHROPIC" not in shown and shown.count("BASE_URL") == 1


def test_serve_says_how_codex_does_without_a_websocket(
    run: Run, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-6: the lines for its config.toml are TOML, and lead here."""
    import tomllib

    from perdure.cli.serve import _say_ready
    from perdure.gateway.config import GatewayConfig

    for has, told in (("websockets-sansio", False), ("none", True)):
        monkeypatch.setattr("perdure.gateway.serving.WEBSOCKETS", has)
        _say_ready("http://127.0.0.1:8787", GatewayConfig(), is_json=False)
        shown = capsys.readouterr().out
        assert ("config.toml" in shown) is told
    given = tomllib.loads(shown.partition("config.toml:\n")[2])
    assert given["model_providers"][given["model_provider"]]["base_url"] == "http://127.0.0.1:8787/v1"
