"""SEC-10: the sandbox of commands that nobody was asked about, on this machine: as root and as another user."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents import LONG_SLEEP, bench, is_running

from perdure.adapters.machine import confine, sandbox
from perdure.adapters.machine.sandbox import Kind, Sandbox, SandboxSupport, choose_sandbox, find_sandbox
from perdure.adapters.machine.shell import LocalShell
from perdure.agent.permissions import PermissionRules
from perdure.agent.progress import Allow, Deny
from perdure.errors import BadSetting

SRC = Path(sandbox.__file__).parents[4]
NOBODY = 65534
THEIRS = "/usr/bin/python3"
LINUX = sys.platform.startswith("linux")

pytestmark = [pytest.mark.e2e, pytest.mark.anyio]


def box(kind: Kind) -> SandboxSupport:
    """A sandbox of this kind, if it works here."""
    if kind == "bubblewrap":
        if find_sandbox().kind != kind:
            pytest.skip(f"no bubblewrap: {find_sandbox().why}")
        return find_sandbox()
    if not confine.abi():
        pytest.skip("this kernel has no Landlock")
    return SandboxSupport("landlock", "asked for")


KINDS = pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])


class Ground:
    """A project with secrets around it, in a place that isn't a temporary folder: those can be written."""

    def __init__(self, base: Path) -> None:
        self.base, self.project, self.user = base, base / "project", base / "user"
        self.files = {
            self.user / ".ssh" / "id": "KEY", self.user / "notes.txt": "fine", self.user / ".netrc": "KEY",
            self.user / ".aws" / "credentials": "KEY", self.base / "own" / "config.toml": "KEY",
            self.project / "a.txt": "one", self.project / "secrets" / "key": "KEY",
            self.project / ".husky" / "x": "hook",
        }  # fmt: skip
        for file, text in self.files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True)

    def run(
        self,
        kind: SandboxSupport,
        command: str,
        *,
        only_looks: bool = False,
        network: bool = False,
        uid: int | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the sandbox, as this user or another one."""
        program, script, root = sys.executable, confine.__file__, str(self.project)
        box = Sandbox(kind, root=root, user=str(self.user), own=[str(self.base / "own")], network=network)
        with pytest.MonkeyPatch.context() as patch:
            if uid is not None:  # the line is made as that user would make it, and run by a Python that is theirs
                program, script = THEIRS, str(shutil.copy(script, self.base))
                patch.setattr(os, "geteuid", lambda: uid)
            words = ["/bin/bash", "-c", command]
            line = box.confined(words, cwd=root, only_looks=only_looks, hidden=[f"{root}/secrets"], life=None)
        line = [program if word == sys.executable else script if word == confine.__file__ else word for word in line]
        environment = {**box.environment(os.environ | {"MY_API_TOKEN": "KEY"}), "HOME": str(self.user)}
        return subprocess.run(
            line, cwd=root, capture_output=True, text=True, timeout=60, check=False,
            user=uid, group=uid, extra_groups=[] if uid is not None else None, env=environment,
        )  # fmt: skip


@pytest.fixture
def ground() -> Iterator[Ground]:
    place = Path(os.environ.get("PERDURE_TEST_GROUND", "/var/lib" if os.geteuid() == 0 else str(Path.home())))
    base = place / f"sandbox-test-{os.getpid()}-{time.monotonic_ns()}"
    base.mkdir(mode=0o755)
    try:
        yield Ground(base)
    finally:
        subprocess.run(["rm", "-rf", "--", str(base)], check=False)


USERS = pytest.mark.parametrize("uid", [None, NOBODY], ids=["this-user", "another-user"])


def as_user(ground: Ground, uid: int | None) -> None:
    """Give everything to another user, who can really read and write it without a sandbox."""
    if uid is None:
        return
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    subprocess.run(["chown", "-R", f"{uid}:{uid}", str(ground.base)], check=True)
    if not Path(THEIRS).exists():
        pytest.skip(f"another user has no Python here: {THEIRS}")


@KINDS
@USERS
def test_what_a_command_may(kind: Kind, uid: int | None, ground: Ground) -> None:
    """SEC-10: the project is writable, so are temporary folders; the rest can be read."""
    here = box(kind)
    as_user(ground, uid)
    mark = f"/tmp/{ground.base.name}"
    done = ground.run(
        here,
        "cat a.txt && echo two > a.txt && mkdir d && mv a.txt d/ && ln d/a.txt e && rm e "
        f"&& cat {ground.user}/notes.txt && touch {mark} && rm {mark} "
        "&& git add d && echo > /dev/null && cat /etc/passwd | wc -l && exit 7",
        uid=uid,
    )
    assert done.returncode == 7, done
    assert (ground.project / "d" / "a.txt").read_text() == "two\n"


@pytest.mark.quick(2)
@KINDS
@USERS
def test_what_a_command_may_not(kind: Kind, uid: int | None, ground: Ground) -> None:
    """SEC-10: nothing outside is written, no secret is read, no network is reached."""
    here = box(kind)
    as_user(ground, uid)
    (ground.base / "net.py").write_text(
        "import socket\n"
        "for family, there in ((socket.AF_INET, '192.0.2.1'), (socket.AF_INET6, '2001:db8::1')):\n"
        "    try:\n"
        "        socket.socket(family, socket.SOCK_DGRAM).connect((there, 9))\n"  # sends nothing, but finds a way
        "        print('CONNECTED')\n"
        "    except OSError:\n"
        "        pass\n"
    )
    commands = [
        f"echo x > {ground.user}/new",
        f"echo x >> {ground.user}/notes.txt",
        f"rm {ground.user}/notes.txt",
        f"mv {ground.user}/notes.txt x",
        f"ln {ground.user}/notes.txt x && echo y > x",
        f"mkdir {ground.base}/new",
        f"ln -s {ground.user} l && echo x > l/new",
        f"truncate -s 0 {ground.user}/notes.txt",
        f"chmod 777 {ground.user}/new",
        f"cat {ground.user}/.ssh/id",
        f"cat {ground.user}/.netrc",
        f"cat {ground.user}/.aws/credentials",
        f"cat {ground.base}/own/config.toml",
        f"ln -s {ground.user}/.ssh s && cat s/id",
        f"ln {ground.user}/.ssh/id s2 && cat s2",
        "env | grep MY_API",
        f"cat /proc/self/root{ground.user}/.ssh/id",
        "cat /etc/shadow | grep :",
        f"cat /proc/{os.getpid()}/environ",
        f"kill -0 {os.getpid()}",
        f"{THEIRS} {ground.base}/net.py | grep CONN",
        "mount -t tmpfs x /mnt",
        "echo x > /proc/sys/kernel/hostname",
        f"unshare -Ur umount {ground.user}/.ssh && cat {ground.user}/.ssh/id",
        f"cp -r {ground.user} all && cat all/.ssh/id",
        "mknod d b 8 0 && cat d",
        "echo x > /dev/sda",
    ]
    before = {file: file.read_text() for file in ground.files if "project" not in file.parts}
    for command in commands:
        done = ground.run(here, f"cd {ground.project}; {command}", uid=uid)
        assert done.returncode != 0 or not done.stdout.strip(), (command, done)
        assert "KEY" not in done.stdout, (command, done)
    assert {file: file.read_text() for file in before} == before
    names = {path.relative_to(ground.base).parts[0] for path in ground.base.rglob("*")}
    assert names - {"confine.py"} == {"project", "user", "own", "net.py"} and not (ground.user / "new").exists()


@KINDS
@USERS
def test_who_only_looks_writes_nothing(kind: Kind, uid: int | None, ground: Ground) -> None:
    here = box(kind)
    as_user(ground, uid)
    for command in ("touch n", "echo x > a.txt", "rm a.txt", "git add a.txt", f"touch /tmp/{ground.base.name}"):
        done = ground.run(here, command, only_looks=True, network=True, uid=uid)
        assert done.returncode != 0, (command, done)
    assert ground.run(here, "git status && cat a.txt", only_looks=True, uid=uid).stdout.endswith("one")
    assert not Path(f"/tmp/{ground.base.name}").exists()


@USERS
def test_bubblewrap_guards_files_of_the_project_one_by_one(uid: int | None, ground: Ground) -> None:
    """SEC-10, SEC-9: what git and others run can't be written, nor replaced; nor what rules deny be read."""
    here = box("bubblewrap")
    as_user(ground, uid)
    for command in (
        "echo x >> .git/config", "echo x > .git/hooks/post-commit", "rm .git/config", "mv .git g", "mv .git/hooks h",
        "echo x > .husky/x", "rm -r .husky", "mv .husky h", "ln -sf x .git/config", "cp a.txt .git/config",
        "cat secrets/key", "mv secrets s && cat s/key", "git config a.b c",
    ):  # fmt: skip
        done = ground.run(here, command, uid=uid)
        assert done.returncode != 0 and "KEY" not in done.stdout, (command, done)
    assert (ground.project / ".husky" / "x").read_text() == "hook" and "x" not in os.listdir(
        ground.project / ".git" / "hooks"
    )
    done = ground.run(
        here, "git add a.txt && git -c user.name=a -c user.email=b commit -qm x && git log --oneline", uid=uid
    )
    assert done.returncode == 0 and "x" in done.stdout, done


@KINDS
def test_the_network_is_a_setting(kind: Kind, ground: Ground) -> None:
    """SEC-10: with it a local server is reached."""
    here = box(kind)
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); s.accept()"
    )
    process = subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        client = f"{THEIRS} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'"
        assert ground.run(here, client).returncode != 0
        assert ground.run(here, client, network=True).returncode == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.quick(3)
@KINDS
@USERS
@pytest.mark.parametrize("network", [False, True])
def test_nobody_outside_is_told_what_to_do(kind: Kind, uid: int | None, network: bool, ground: Ground) -> None:
    """SEC-10: who listens on a local socket, as tmux and systemd do, may run what it is told to, outside of it."""
    here = box(kind)
    as_user(ground, uid)
    temporary = Path(f"/tmp/{ground.base.name}.socket")
    places = [ground.base / "socket", ground.user / "socket", temporary]
    listening = [socket.socket(socket.AF_UNIX) for _ in places]
    client = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('CONNECTED')"
    try:
        for one, place in zip(listening, places, strict=True):
            one.bind(str(place))
            one.listen()
            place.chmod(0o777)
            done = ground.run(here, f'{THEIRS} -c "{client}" {place}', network=network, uid=uid)
            assert done.returncode != 0 and "CONNECTED" not in done.stdout, (place, done)
        pair = ground.run(here, f"{THEIRS} -c 'import socket; socket.socketpair()'", network=network, uid=uid)
        assert pair.returncode == 0, pair
    finally:
        for one in listening:
            one.close()
        temporary.unlink(missing_ok=True)


@KINDS
@USERS
def test_the_machine_is_not_configured(kind: Kind, uid: int | None, ground: Ground) -> None:
    """SEC-10: what root writes in /proc/sys makes the kernel run programs outside."""
    here = box(kind)
    as_user(ground, uid)
    pattern = Path("/proc/sys/kernel/core_pattern")
    again = f"was=$(cat {pattern}); "
    for command in (
        f'echo "$was" > {pattern}',
        f"unshare -Urmpf bash -c 'mount -t proc proc /proc && echo '\"$was\"' > {pattern}'",
        "chmod u+s a.txt && chmod 4755 /bin/true",
        f"chmod 4777 {ground.user}/notes.txt",
    ):
        done = ground.run(here, again + command, uid=uid)
        assert done.returncode != 0, (command, done)
    assert not (ground.user / "notes.txt").stat().st_mode & 0o6000


@pytest.mark.parametrize("written", ["9" * 6_000, "7\n/" + "x" * 100_000, "-1\n/", "\u0661\n/", "", "7\n\0"])
async def test_an_end_that_a_command_forges_is_no_fault(written: str, tmp_path: Path) -> None:
    """A command has the file open in which its end stands, and may write there whatever it likes."""
    (tmp_path / "said").write_text(written)
    shell = LocalShell(tmp_path / "shell", str(tmp_path))
    command = await shell.start("one", f"trap - EXIT; cat {tmp_path}/said >&$2; exit 7", cwd=str(tmp_path))
    ended = await command.wait()
    assert ended.code == 7 and len(ended.cwd or "") < 10_000
    again = await shell.find("one")
    assert again is not None and (await again.wait()).code in (None, 7)


def test_where_none_can_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SEC-10: `auto` goes on, `on` refuses in one line, `doctor` and the beginning of a chat say it."""
    from perdure.cli.doctor import _sandbox
    from perdure.wiring.factory import _unboxed

    monkeypatch.setattr("perdure.adapters.machine.sandbox.shutil.which", lambda *_, **__: None)
    monkeypatch.setattr(confine, "abi", lambda: 0)
    find_sandbox.cache_clear()
    try:
        assert choose_sandbox("auto") is None and choose_sandbox("off") is None
        with pytest.raises(
            BadSetting, match="sandbox = on, but this machine has none: bubblewrap is not installed"
        ) as e:
            choose_sandbox("on")
        assert "\n" not in str(e.value)
        assert len(_unboxed("auto")) == 1 and not _unboxed("off")
        assert _sandbox().state == "note" and "none" in _sandbox().what
        monkeypatch.setattr(confine, "abi", lambda: 3)
        find_sandbox.cache_clear()
        assert find_sandbox().kind == ("landlock" if LINUX else "none")
    finally:
        find_sandbox.cache_clear()


async def test_what_a_person_allowed_runs_outside_of_it(tmp_path: Path, ground: Ground) -> None:
    """SEC-10: on for what is allowed without a question; a person who is asked lets it out."""
    if choose_sandbox("auto") is None:
        pytest.skip("there is no sandbox here")
    outside, other = ground.user / "made", ground.user / "made2"
    b = await bench(ground.project, mode="bypass", settings={"checkpoints": False})
    said, is_error = await b.call("Bash", command=f"touch {outside}")
    assert is_error and not outside.exists() and "ran in a sandbox" in said and "outside_sandbox" in said
    b.answers = [Deny(), Allow()]
    said, is_error = await b.call("Bash", command=f"touch {outside}", outside_sandbox=True)
    assert is_error and not outside.exists()
    said, is_error = await b.call("Bash", command=f"touch {outside}", outside_sandbox=True)
    assert not is_error and outside.exists() and len(b.asked) == 2
    await b.agent.close()
    b = await bench(ground.project, mode="bypass", settings={"checkpoints": False, "sandbox": "off"})
    said, is_error = await b.call("Bash", command=f"touch {other}")
    assert not is_error and other.exists()
    await b.agent.close()


async def test_what_rules_deny_is_hidden_from_programs(ground: Ground) -> None:
    """SEC-9, SEC-10: a script that the agent wrote can't read it either."""
    box("bubblewrap")
    (ground.project / ".env").write_text("KEY")
    (ground.project / "x.sh").write_text("cat .env secrets/key; echo done")
    rules = PermissionRules.of(deny=["Read(.env)", "Read(secrets/**)"])
    b = await bench(ground.project, mode="bypass", rules=rules, settings={"checkpoints": False})
    said, _ = await b.call("Bash", command="sh x.sh")
    assert "KEY" not in said and "done" in said
    await b.agent.close()


@pytest.mark.quick(1)
@pytest.mark.parametrize("setting", ["auto", "off"])
@pytest.mark.skipif(not LINUX, reason="processes are looked at in /proc")
def test_a_command_ends_with_an_agent_that_is_killed(setting: str, tmp_path: Path) -> None:
    """SEC-10: kill -9 of the agent leaves no command of its foreground behind."""
    program = textwrap.dedent(
        f"""
        import anyio, sys
        from pathlib import Path
        from tests.agents import LONG_SLEEP, bench, is_running
        async def main():
            b = await bench(Path({str(tmp_path)!r}), settings={{"checkpoints": False, "sandbox": {setting!r}}})
            await b.call("Bash", command="{LONG_SLEEP} & echo begun > mark; {LONG_SLEEP}")
        anyio.run(main)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=SRC.parent, env={**os.environ, "PYTHONPATH": str(SRC.parent)}
    )
    try:
        until = time.monotonic() + 30
        while not (tmp_path / "mark").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert is_running(LONG_SLEEP)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    until = time.monotonic() + 10
    while is_running(LONG_SLEEP) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(LONG_SLEEP)


def test_a_project_has_no_say_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-8, SEC-10: the settings are the user's only."""
    from perdure.adapters.config import ALLOWED

    assert not {"sandbox", "sandbox_network"} & set(ALLOWED)


def test_who_only_looks_is_given_nothing_to_write() -> None:
    line = Sandbox(SandboxSupport("landlock", ""), root="/p", user="/u", own=()).confined(
        ["/bin/true"], cwd="/p", only_looks=True, hidden=(), life=3
    )
    assert "--offline" in line and "--write" not in line and line[-2:] == ["--", "/bin/true"]
