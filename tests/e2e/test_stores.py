"""Everything that Perdure writes is on one list, and a purge finds it there (SEC-12, finding R3)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from tests.agents import bench, calls
from tests.commands import command
from tests.e2e.test_purge import spread
from tests.gateways import fake, serving, upstream
from tests.plugins import ClaudeCodeLog, HookRunner
from tests.search_bytes import _layers as layers_of
from tests.search_bytes import files_with
from tests.terminals import environment
from tests.tiers import NIGHTLY

from perdure.adapters import stores
from perdure.adapters.journal import SessionStore
from perdure.adapters.spending import write_of_command
from perdure.adapters.stores import StoreRoot, roots_beside
from perdure.adapters.transcripts import TranscriptFolder

pytestmark = pytest.mark.e2e

SECRET = 'pg-"Größe"\\4711-Kq7'
NEEDLE = "4711-Kq7"


@pytest.fixture
def hooks(tmp_path: Path) -> HookRunner:
    """A client's session in which the secret was said, as its hooks know it."""
    log = ClaudeCodeLog(tmp_path / ".claude" / "projects" / "-srv-app" / "log.jsonl")
    log.user(f"The password of the store is {SECRET}, use it for the tests.")
    log.run("make deploy", f"connecting with {SECRET}\nFAILED tests/test_a.py::test_one - {SECRET}\n1 failed")
    log.edit("/srv/app/a.py")
    log.compact()
    log.user(f"and once more, {SECRET}")
    log.assistant(f"I use {SECRET} from now on.")
    runner = HookRunner(tmp_path, log.path)
    while not runner.state.exists() or runner.head["offset"] < log.path.stat().st_size:
        runner.run("Stop")
    return runner


def test_a_purge_reaches_the_plugins_state(hooks: HookRunner) -> None:
    """R3: the state of a client's session held every secret for 30 days after a purge that reported success."""
    assert files_with(hooks.data, "4711-Kq7") == [hooks.state]
    offset, env = hooks.head["offset"], environment(hooks.folder) | {"PERDURE_HOME": str(hooks.folder / "home")}
    dry = command("purge", "--dry-run", cwd=hooks.folder, env=env, given=SECRET)
    assert "state of the plugin" in dry.stdout and str(hooks.state) in dry.stdout, dry.stdout + dry.stderr
    done = command("purge", "--yes", cwd=hooks.folder, env=env, given=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
    assert files_with(hooks.data, "4711-Kq7") == []
    assert hooks.head["offset"] == offset  # it is read on from there, not anew from the client's log
    hooks.run("Stop")
    assert files_with(hooks.data, "4711-Kq7") == [] and hooks.errors == ""


def test_a_state_that_a_hook_is_writing_isnt_purged(hooks: HookRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: one line that says so, and nothing is changed; else the hook would write back what was purged."""
    from perdure.adapters.care import purge
    from perdure.adapters.machine.system import lock_now, open_folder_lock

    monkeypatch.setattr(purge, "_LOCK_SECONDS", 0.0)
    before, env = hooks.state.read_bytes(), environment(hooks.folder)
    fd = open_folder_lock(hooks.state.parent)
    try:
        lock_now(fd)
        done = command("purge", "--yes", cwd=hooks.folder, env=env, given=SECRET)
    finally:
        os.close(fd)
    assert done.returncode != 0 and "a hook of the plugin is writing there" in done.stderr
    assert hooks.state.read_bytes() == before


def test_a_deleted_session_leaves_no_words_in_other_stores(hooks: HookRunner) -> None:
    """R3: a whole session: what the index for search and the plugin's state had of it goes with it."""
    home, env = hooks.folder / ".perdure", environment(hooks.folder)
    renamed = hooks.log.with_name(f"{hooks.session}.jsonl")
    hooks.log.rename(renamed)
    text = renamed.read_text()
    renamed.write_text(text.replace(json.loads(text.splitlines()[0])["sessionId"], hooks.session))
    assert command("import", renamed, cwd=hooks.folder, env=env).returncode == 0
    command("search", "password", cwd=hooks.folder, env=env)
    assert files_with(home, NEEDLE) and hooks.state.exists()
    done = command("sessions", "delete", hooks.session, "--yes", cwd=hooks.folder, env=env)
    assert done.returncode == 0, done.stderr
    assert files_with(home, NEEDLE) == [] and files_with(hooks.data, NEEDLE) == []


def test_a_purged_receipt_puts_nothing_back(tmp_path: Path) -> None:
    """R3: a set-up keeps what a client's file held, in base64 of ours; a removal must not write `(purged)` there."""
    home, file, env = tmp_path / ".perdure", tmp_path / ".claude" / "settings.json", environment(tmp_path)
    file.parent.mkdir()
    file.write_text(json.dumps({"env": {"TOKEN": SECRET}}))

    async def work() -> None:
        async with fake() as server, serving(home, server) as at:
            words = ("setup", "claude-code", "--gateway", "--url", at.url)
            done = await asyncio.to_thread(command, *words, cwd=tmp_path, env=env)
            assert done.returncode == 0, done.stderr

    asyncio.run(work())
    receipt = home / "setup" / "claude-code.json"
    assert files_with(receipt.parent, NEEDLE) == [receipt]
    done = command("purge", "--yes", cwd=tmp_path, env=env, given=SECRET)
    assert done.returncode == 0 and files_with(receipt.parent, NEEDLE) == [], done.stderr
    assert command("setup", "claude-code", "--remove", cwd=tmp_path, env=env).returncode == 0
    assert json.loads(file.read_text()) == {"env": {"TOKEN": SECRET}}


def test_an_error_of_background_work_is_purged(tmp_path: Path) -> None:
    """R3: the queue is a database, so that its bytes can't be replaced like a text's."""
    from perdure.adapters.work import SqliteWorkQueue

    path = tmp_path / ".perdure" / "work.db"

    async def fail() -> None:
        queue = SqliteWorkQueue(path)
        await queue.want("", "s1", "notes", 1)
        (claimed,) = await queue.claim("me", limit=1, seconds=60.0)
        await queue.fail(claimed, f"the model said {SECRET}")
        await queue.close()

    anyio.run(fail)
    assert files_with(path.parent, NEEDLE)
    done = command("purge", "--yes", cwd=tmp_path, env=environment(tmp_path), given=SECRET)
    assert done.returncode == 0 and files_with(path.parent, NEEDLE) == [], done.stderr


def test_the_indexes_of_tenants_go_with_a_purge(tmp_path: Path) -> None:
    """R3: those of the person's own home were forgotten, and those of the gateway's tenants kept what was said."""
    home = tmp_path / ".perdure"
    kept = [home / part / name for part in ("", "gateway/tenants/a") for name in ("index.db", "memory-index/x.msgpack")]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
    done = command("purge", "--yes", cwd=tmp_path, env=environment(tmp_path), given=SECRET)
    assert done.returncode == 0 and not any(path.exists() for path in kept), done.stderr


def test_what_was_left_behind_goes_after_thirty_days(hooks: HookRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: gc walks the list as well: the state of sessions that ended, and temporary folders of killed commands."""
    temporary = hooks.folder / "tmp"
    temporary.mkdir()
    env = environment(hooks.folder, TMPDIR=str(temporary))
    draft = temporary / f"{stores.DRAFTS}x" / "memory.md"
    draft.parent.mkdir()
    draft.write_text(SECRET)
    done = command("gc", cwd=hooks.folder, env=env)
    assert done.returncode == 0 and hooks.state.exists() and draft.exists(), done.stderr
    then = time.time() - 31 * 86_400
    for path in (*hooks.state.parent.iterdir(), hooks.state.parent, draft, draft.parent):
        os.utime(path, (then, then))
    done = command("gc", cwd=hooks.folder, env=env)
    assert done.returncode == 0 and not hooks.state.parent.exists() and not draft.parent.exists(), done.stdout


def test_an_export_stays_apart_from_every_store(hooks: HookRunner) -> None:
    """R3: the client takes the plugin's folder away with the plugin."""
    done = command("export", "--all", "-o", hooks.data / "out", cwd=hooks.folder, env=environment(hooks.folder))
    assert done.returncode == 2 and f"sessions are kept in {hooks.data}" in done.stderr


def test_doctor_names_stores_and_what_it_doesnt_know_there(hooks: HookRunner) -> None:
    """R3: the plugin's folder is a store; a state that others may read is a problem, which --repair mends."""
    env = environment(hooks.folder)
    (hooks.data / "odd.txt").write_text("what is it?")
    hooks.state.parent.chmod(0o755)
    done = command("doctor", cwd=hooks.folder, env=env)
    assert done.returncode == 1 and str(hooks.data) in done.stdout
    assert f"{hooks.data / 'odd.txt'}: nothing that this version of Perdure writes" in done.stdout
    assert f"{hooks.state.parent}: others may read it" in done.stdout
    assert command("doctor", "--repair", cwd=hooks.folder, env=env).returncode == 0
    assert hooks.state.parent.stat().st_mode & 0o077 == 0


# --- nothing is written that isn't on the list ------------------------------------------------------------------------

_WATCHED: list[set[Path]] = []
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _watch(event: str, given: tuple[Any, ...]) -> None:
    if not _WATCHED or not given:
        return
    if event == "open":
        named = given[0] if isinstance(given[2], int) and given[2] & _WRITES else None
    elif event in ("os.rename", "os.link", "os.symlink"):
        named = given[1]
    else:
        named = given[0] if event == "sqlite3.connect" else None
    if isinstance(named, str | bytes | os.PathLike) and os.path.isabs(named):
        _WATCHED[-1].add(Path(os.fsdecode(named)))


@contextmanager
def watched() -> Iterator[set[Path]]:
    """Every file that this process opens for writing, renames or links meanwhile, also those that are gone then."""
    if not hasattr(sys, "_stores_watch"):
        sys.addaudithook(_watch)
        sys._stores_watch = True  # type: ignore[attr-defined]  # a hook stays as long as its process
    _WATCHED.append(set())
    try:
        yield _WATCHED[-1]
    finally:
        _WATCHED.pop()


def at_work(place: Path) -> None:
    """Use everything that writes: an agent, the commands, the plugin, a gateway, an import, a spending cap."""
    home, project, env = place / ".perdure", place / "project", environment(place, TMPDIR=str(place / "tmp"))
    (place / "tmp").mkdir(parents=True)
    spread(place)
    log = ClaudeCodeLog(place / ".claude" / "projects" / "-srv-app" / "log.jsonl")
    log.user("Please remember that the deployments go through staging first.")
    log.assistant("I will.")
    hooks = HookRunner(place, log.path)
    for event in ("SessionStart", "Stop", "SessionEnd"):
        hooks.run(event)
    session = next(SessionStore(home).directories()).name
    for words in (
        ("config", "--init"),
        ("trust", "."),
        ("memory", "edit", "own.md", "--user"),
        ("memory", "consolidate"),
        ("notes", session),
        ("pin", session, "keep to the plan"),
        ("rewind", session, "--list"),
        ("sessions", "tag", session, "keep"),
        ("report", session, "-o", str(place / "report.html")),
        ("export", "--all", "-o", str(place / "out")),
        ("import",),
        ("verdict",),
        ("gc",),
        ("purge", "--yes"),
        ("doctor", "--repair"),
    ):
        command(*words, cwd=project, env={**env, "EDITOR": "true", "VISUAL": "true"}, given="nothing-of-it")

    async def agents() -> None:
        settings = {"events": (f"jsonl:{place / 'events.jsonl'}",)}
        for kept_in in (home, None):
            made = await bench(project, home=kept_in, settings=settings)
            long = calls(("Bash", {"command": "echo one; sleep 0.01", "run_in_background": True}))
            made.model.upstream.script.extend([long, "It runs.", *["fine"] * 6])
            await made.agent.say("start it")
            await made.agent.close()

    async def gateway() -> None:
        script = upstream(*["Hello."] * 9)
        async with (
            fake(script) as server,
            serving(home, server, access_log=str(place / "access.jsonl")) as at,
        ):
            gpt = at.gpt(max_retries=0)
            talk = await gpt.conversations.create(items=[{"type": "message", "role": "user", "content": "I am Ada."}])
            said = await gpt.responses.create(model="gpt-6-sol", conversation=talk.id, input="Say hello.")
            other = await gpt.responses.create(model="gpt-6-sol", input="And me?", store=True)
            await gpt.responses.delete(other.id)
            assert said.output_text == "Hello."
            words = ("setup", "claude-code", "--gateway", "--url", at.url)
            await asyncio.to_thread(command, *words, cwd=project, env=env)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(place / "tmp"))
        anyio.run(agents)
    asyncio.run(gateway())
    write_of_command(home, ())
    TranscriptFolder(home / "transcripts").append(("p", "s"), [{"uuid": "u"}], fold=lambda told, new: {"n": len(new)})


def test_nothing_is_written_that_isnt_on_the_list(tmp_path: Path) -> None:
    """R3: in the home, the plugin's data and temporary folders, files that stay and files that are gone again.

    When this fails, name the file in `perdure.adapters.stores`, and say there how a purge finds a text in it.
    """
    place = tmp_path / "place"
    with pytest.MonkeyPatch.context() as patched, watched() as written:
        for name in [one for one in os.environ if one.startswith(("PERDURE_", "CLAUDE_", "DISABLE_"))]:
            patched.delenv(name)
        at_work(place)
        patched.setattr(tempfile, "tempdir", str(place / "tmp"))
        beside = roots_beside(place / ".perdure", environment(place))
    homes = (place / ".perdure", place / "home")  # of the commands, and of the hooks
    roots = (*(StoreRoot("home", one) for one in homes), *beside)
    folders = [*homes, place / ".claude" / "plugins", place / "tmp"]
    there = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    every = {path for path in written | there if any(map(path.is_relative_to, folders)) and not path.is_dir()}
    every -= {path for path in every if path.parent == place / "tmp" and len(path.name) == 8}  # Python tries the folder
    unknown, known = [], set()
    for path in sorted(every):
        root = next((one for one in roots if path.is_relative_to(one.path)), None)
        if root is None and (name := path.relative_to(place / "tmp").parts[0]).startswith(stores.DRAFTS):
            root = StoreRoot("draft", place / "tmp" / name)  # which is gone
        kind = root.kind_of(path) if root is not None else None
        unknown += [str(path.relative_to(place))] if kind is None else []
        known.add(kind)
    assert not unknown, "\n".join(unknown)
    seen = {kind.what for kind in known if kind is not None}
    assert len(seen) >= 28, sorted(seen)  # else less was at work than it was


# --- secrets of many forms --------------------------------------------------------------------------------------------

FORMS = (
    "{a}",
    "{A}{b}",
    "{a}-{b}_{A}",
    'quo"te-{a}-"{b}"',
    "back\\slash\\{a}\\n{b}",
    "it's {a} & <{b}>",
    "größe-{a}-密码-{b}",
    "https://user:{a}@db.example/{b}?x=1&y=2",
    '{{"password": "{a}", "n": "{b}"}}',
    "AKIA{A}/{b}+=",
    "{a}   {b}\tand {A}",
    "-----BEGIN KEY-----\n{a}{A}{b}\n{b}{a}{A}\n-----END KEY-----",
)


def secrets_of(count: int) -> list[str]:
    """So many secrets that nobody has seen before, of each form in turn."""
    draw = Random(4711)
    letters = "abcdefghijkmnpqrstuvwxyz23456789"

    def word() -> str:
        return "".join(draw.choices(letters, k=10))

    return [FORMS[n % len(FORMS)].format(a=word(), b=word(), A=word().upper()) for n in range(count)]


def spellings(secret: str) -> list[bytes]:
    """How a secret may be written by whoever wrote it down: as it was said, and in JSON's escapes."""
    said = [secret, *(json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))]
    return [one.lower().encode() for one in dict.fromkeys(said)]


def with_secrets(place: Path, secrets: list[str]) -> list[Path]:
    """Plant them in everything that keeps text; gives the folders in which Perdure wrote."""
    env, home = environment(place, TMPDIR=str(place / "tmp")), place / ".perdure"
    draft, events = place / "tmp" / f"{stores.DRAFTS}x" / "memory.md", place / "events.jsonl"
    draft.parent.mkdir(parents=True)
    home.mkdir(mode=0o700)
    draft.write_text("\n".join(secrets))
    events.write_text("".join(json.dumps({"event": "Said", "text": one}) + "\n" for one in secrets))
    (home / "config.toml").write_text(f"events = ['jsonl:{events}']\n")
    log = ClaudeCodeLog(place / ".claude" / "projects" / "-srv-app" / "log.jsonl")
    for number, secret in enumerate(secrets):
        log.user(f"Please remember that service {number} takes {secret} from now on.")
        log.run(f"deploy --key '{secret}'", f"used {secret}\n" + "line\n" * 4_000 + f"FAILED with {secret}")
        log.assistant(f"Service {number} has {secret}.")
    log.compact(f"They were {' and '.join(secrets)}.")
    hooks = HookRunner(place, log.path)
    while not hooks.state.exists() or hooks.head["offset"] < log.path.stat().st_size:
        hooks.run("Stop")
    hooks.run("SessionEnd")
    for words in (("import", log.path), ("search", "service takes"), ("memory", "search", "service")):
        assert command(*words, cwd=place, env=env).returncode == 0
    project = next((home / "projects").iterdir())
    (project / "history").write_text("".join(f"# 2026\n+{line}\n" for one in secrets for line in one.splitlines()))
    about = {"client": "codex", "how": "gateway", "url": "http://localhost", "file": str(place / "x.toml")}
    before = base64.b64encode("\n".join(secrets).encode()).decode()
    (home / "setup").mkdir()
    (home / "setup" / "codex.json").write_text(json.dumps(about | {"before": before, "after": ""}))
    return [home, place / "home", hooks.data, place / "tmp", events]


def holding(folders: list[Path], secrets: list[str]) -> list[tuple[str, str]]:
    """The files that hold one of them, whatever of ours is packed in them, each with the secret."""
    wanted = [(secret, spelled) for secret in secrets for spelled in spellings(secret)]
    files = [path for one in folders for path in (one, *one.rglob("*")) if path.is_file()]
    layers = {path: [layer.lower() for layer in layers_of(path.read_bytes(), 2)] for path in files}
    return sorted(
        {(path.name, one) for path, some in layers.items() for one, said in wanted if any(said in s for s in some)}
    )


def test_a_purge_of_each_secret_leaves_no_byte_of_it(tmp_path: Path) -> None:
    """R3, SEC-12: in the forms that are kept, in any file that Perdure wrote: one purge of each."""
    secrets = secrets_of(60 if NIGHTLY else 12)
    folders = with_secrets(tmp_path, secrets)
    names = {name for name, _ in holding(folders, secrets)}
    assert names >= {"state", "journal.jsonl", "history", "memory.md", "events.jsonl", "codex.json"}, names
    env = environment(tmp_path, TMPDIR=str(tmp_path / "tmp"))
    homes = (tmp_path / ".perdure", tmp_path / "home")  # of the commands, and of the hooks
    for secret in secrets:
        for home in homes:
            done = command("purge", "--yes", cwd=tmp_path, env=env | {"PERDURE_HOME": str(home)}, given=secret)
            assert done.returncode == 0, done.stderr
    assert holding(folders, secrets) == []
    assert command("doctor", cwd=tmp_path, env=env).stdout.count("problem ") == 0
