"""The sandbox of commands that nobody was asked about: bubblewrap where it works, else Landlock (SEC-10).

What a command may in it: write in the project and in temporary folders, read the rest less secrets, reach the network
if a setting says so. A command that only looks may write nothing, and never reaches the network.

| | bubblewrap | Landlock |
|---|---|---|
| needs | the program, and user namespaces (or root) | Linux 5.13 |
| the project's files that deny rules name, `.git/hooks` and the like | hidden; can't be written | as outside |
| processes of others | out of sight | can't be signalled or traced (Linux 6.12) |
| sockets of others on the disk | hidden | there are none, but for pairs |
| without network | an interface of its own, with a loopback | no loopback either |
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from perdure.adapters.machine import confine
from perdure.adapters.machine.repositories import main_work_tree
from perdure.adapters.machine.system import user_id
from perdure.errors import BadSetting
from perdure.memory.instructions import is_below

Kind = Literal["bubblewrap", "landlock", "none"]
WORDS: dict[Kind, str] = {"bubblewrap": "bubblewrap", "landlock": "Landlock", "none": "none"}
_PROBE_SECONDS = 5.0
# Below the user's home: keys, logins, histories, other programs' secrets.
_SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".config/gcloud", ".config/gh", ".config/hub", ".config/glab-cli",
    ".config/op", ".config/rclone", ".config/sops", ".config/age", ".config/git/credentials", ".docker/config.json",
    ".netrc", ".git-credentials", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".vault-token",
    ".gem/credentials", ".cargo/credentials", ".cargo/credentials.toml", ".terraform.d", ".terraformrc",
    ".m2/settings.xml", ".gradle/gradle.properties", ".password-store", ".local/share/keyrings",
    ".local/share/password-store", ".pki", ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium",
    ".config/BraveSoftware", ".config/microsoft-edge", ".claude", ".claude.json", ".codex", ".gemini",
    ".config/github-copilot", ".config/anthropic", ".config/openai", ".perdure", ".holdfast",
    ".bash_history", ".zsh_history",
    ".python_history", ".psql_history", ".mysql_history", ".node_repl_history", ".lesshst", ".viminfo", ".Xauthority",
    ".ICEauthority", ".huggingface/token", ".cache/huggingface/token", ".kaggle", ".boto", ".s3cfg", ".oci", ".fly",
    ".netlify", ".config/netlify", ".config/heroku", ".config/doctl", ".wrangler", ".config/.wrangler", ".snowflake",
    ".dbt", "Library/Keychains", "Library/Application Support",
)  # fmt: skip
_SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssl/private", "/etc/krb5.keytab", "/var/lib/docker", "/var/run/docker.sock", "/run/docker.sock",
    "/run/containerd", "/run/podman", "/run/secrets", "/var/run/secrets", "/run/user", "/run/dbus",
    "/run/systemd/private",
)  # fmt: skip
_SECRET_VARIABLES = re.compile(
    r"(?i).*(?:API_?KEY|ACCESS_?KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|PRIVATE_?KEY)\w*|\w+_(?:AUTH|PAT)"
    r"|SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|DBUS_SESSION_BUS_ADDRESS|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|DOCKER_HOST"
    r"|XDG_RUNTIME_DIR|AWS_\w+|AZURE_\w+|DATABASE_URL|KUBECONFIG"
)
_NOT_SECRET = frozenset({"TOKENIZERS_PARALLELISM", "GIT_TERMINAL_PROMPT"})
# What root configures the machine with, and has it run programs: `core_pattern` for one.
_OF_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi")
_SOCKETS = "/proc/net/unix"
# In the project: what git runs or obeys, as far as it is there; and what `protected` names at the top of it.
_OF_GIT = ("config", "config.worktree", "hooks", "info/attributes", "modules")
_KEPT = (
    ".husky", ".githooks", ".pre-commit-config.yaml", "lefthook.yml", ".envrc", ".npmrc", ".yarnrc.yml",
    ".pnpmfile.cjs", ".vscode", ".idea", ".devcontainer", ".gitattributes", ".gitmodules", ".github/workflows",
    ".gitlab-ci.yml", ".circleci", ".perdure", ".holdfast", ".claude", ".codex", ".cursor", ".mcp.json", "CLAUDE.md",
    "CLAUDE.local.md", "AGENTS.md", ".cargo/config.toml", "pip.conf", "sitecustomize.py", "usercustomize.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """Which sandbox this machine has, and what there is to say of it."""

    kind: Kind
    why: str
    program: str = ""


@lru_cache(maxsize=1)
def find_sandbox() -> SandboxSupport:
    """The best sandbox that works here; it is tried out once."""
    if not sys.platform.startswith("linux"):
        return SandboxSupport("none", "there is a sandbox on Linux only")
    program = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin")
    trouble = "bubblewrap is not installed"
    if program is not None:
        box = Sandbox(SandboxSupport("bubblewrap", "", program), root="/nonexistent", user="/nonexistent", own=())
        trouble = _why_command_fails(box.bubblewrap(["/bin/true"], cwd="/", only_looks=True, hidden=()))
        if not trouble:
            return SandboxSupport("bubblewrap", f"by {program}", program)
        trouble = f"bubblewrap doesn't work here ({trouble})"
    version = confine.abi()
    if version and sys.executable:
        return SandboxSupport(
            "landlock", f"version {version}; {trouble}: with it, files of the project are guarded one by one"
        )
    return SandboxSupport("none", f"{trouble}, and the kernel has no Landlock")


def _why_command_fails(command: list[str]) -> str:
    """Why a command doesn't work; empty when it does."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_SECONDS, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it ended with an error"])[-1]


def choose_sandbox(setting: str) -> SandboxSupport | None:
    """The sandbox for a setting (auto, on, off); None when commands run without one. Raises `BadSetting`."""
    if setting == "off":
        return None
    here = find_sandbox()
    if here.kind == "none":
        if setting == "on":
            can = "install bubblewrap, or set" if sys.platform == "linux" else "set"
            raise BadSetting(f"sandbox = on, but this machine has none: {here.why}; {can} sandbox = auto")
        return None
    return here


@dataclass(frozen=True, slots=True, kw_only=True)
class _DiskLayout:
    """What of the disk a sandbox is about, as it is now."""

    writable: tuple[str, ...]
    hidden: tuple[str, ...]
    kept: tuple[str, ...]


class Sandbox:
    """Wraps commands. `root` is the project's folder, `user` the user's home; `own` are folders of ours, which are
    hidden but for what is `shown`.
    """

    def __init__(
        self,
        found: SandboxSupport,
        *,
        root: str,
        user: str,
        own: Sequence[str],
        network: bool = False,
        shown: Sequence[str] = (),
    ) -> None:
        self.found = found
        self._root, self._user, self._own, self._shown = root, user, tuple(own), tuple(shown)
        self._network = network

    @property
    def notice(self) -> str:
        """What a model should know of it when a command fails."""
        network = "the network can be reached" if self._network else "there is no network"
        return f"ran in a sandbox: only the project and temporary folders can be written, secrets are hidden, {network}"

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment without secrets, in which programs keep their caches apart from those that others use."""
        kept = {n: v for n, v in environ.items() if n in _NOT_SECRET or not _SECRET_VARIABLES.fullmatch(n)}
        cache = os.path.join(tempfile.gettempdir(), f"perdure-cache-{user_id()}")
        return {**kept, "XDG_CACHE_HOME": cache, "npm_config_cache": f"{cache}/npm"}

    def confined(
        self, command: list[str], *, cwd: str, only_looks: bool, hidden: Sequence[str], life: int | None
    ) -> list[str]:
        """The command line that runs a command in the sandbox.

        Args:
            command: what to run, its program by its full path.
            cwd: the folder to run it in.
            only_looks: it writes nothing.
            hidden: more files and folders that it may not read.
            life: a pipe that ends it when its other end closes; None: it goes on by itself.

        Returns:
            The words of the command line; it has to be started with that pipe open.
        """
        if self.found.kind == "bubblewrap":
            words = self.bubblewrap(command, cwd=cwd, only_looks=only_looks, hidden=hidden)
            return confined_command(words, life=life, more=["--all"])
        layout = self._layout(only_looks, hidden)
        more = ["--landlock", "--offline" if only_looks or not self._network else "--no-doors"]
        for option, paths in (("--write", layout.writable), ("--hide", layout.hidden)):
            more += [word for path in paths for word in (option, path)]
        return confined_command(command, life=life, more=more)

    def bubblewrap(self, command: list[str], *, cwd: str, only_looks: bool, hidden: Sequence[str]) -> list[str]:
        """The same for bubblewrap alone."""
        layout = self._layout(only_looks, hidden)
        words = [self.found.program, *"--ro-bind / / --dev /dev --proc /proc --die-with-parent --cap-drop ALL".split()]
        words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        if user_id() == 0:  # to work on files of others, as root does; not to mount, trace or configure
            words += [word for right in ("DAC_OVERRIDE", "FOWNER", "CHOWN") for word in ("--cap-add", f"CAP_{right}")]
        if only_looks or not self._network:
            words.append("--unshare-net")
        hidden = [*layout.hidden, *self._doors(layout.hidden)]
        inside = [path for path in hidden if any(is_below(path, folder) for folder in layout.writable)]
        words += self._masked([path for path in hidden if path not in inside])
        for path in layout.writable:
            words += ["--bind", path, path]
        words += self._masked(inside)
        for path in self._shown:
            words += ["--ro-bind-try", path, path]
        if only_looks and os.path.isdir(self._root):
            masked = self._masked([path for path in layout.hidden if is_below(path, self._root)])
            words += ["--ro-bind", self._root, self._root, *masked]
        for path in _above(layout.kept, layout.writable):  # a mount can't be renamed, so no other can take its place
            words += ["--bind", path, path]
        for path in layout.kept:
            words += ["--ro-bind-try", path, path]
        for path in _OF_KERNEL:  # root's by their owner, whatever powers are left to it
            words += ["--ro-bind-try", path, path]
        return [*words, "--chdir", cwd, "--", *command]

    def _doors(self, hidden: Sequence[str]) -> list[str]:
        """The sockets of programs outside, many of which run what they are told to, as tmux and systemd do (SEC-10).

        Those in the project are its own.
        """
        try:
            lines = Path(_SOCKETS).read_bytes().decode(errors="surrogateescape").splitlines()
        except OSError:
            return []
        named = (line.partition(" /")[2] for line in lines)  # in front of it stand numbers only
        paths = {os.path.realpath(f"/{path}") for path in named if path}
        return sorted(
            path
            for path in paths
            if os.path.lexists(path)
            and not os.path.isdir(path)
            and not is_below(path, self._root)
            and not any(is_below(path, folder) for folder in hidden)
        )

    def _masked(self, paths: Sequence[str]) -> list[str]:
        """An empty folder, or a file that nobody may read, in the place of each."""
        words: list[str] = []
        for path in paths:
            words += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
        return words

    def _layout(self, only_looks: bool, more: Sequence[str]) -> _DiskLayout:
        root = self._root
        hidden = [os.path.join(self._user, name) for name in _SECRETS] + [*_SYSTEM_SECRETS, *self._own, *more]
        real = sorted({os.path.realpath(path) for path in hidden if os.path.lexists(path)} - {root})
        outer = [path for path in real if not any(path != other and is_below(path, other) for other in real)]
        layout = _DiskLayout(writable=(), hidden=tuple(outer), kept=())
        if only_looks:
            return layout
        writable = [tempfile.gettempdir(), "/tmp", "/var/tmp", root]
        gits = [f"{root}/.git"]
        if (main := main_work_tree(Path(root))) is not None:  # a work tree: its commits are made in the main folder
            gits.append(f"{main}/.git")
            writable.append(f"{main}/.git")
        kept = [f"{root}/{name}" for name in _KEPT] + [f"{git}/{name}" for git in gits for name in _OF_GIT]
        kept += [git for git in gits if os.path.isfile(git)]
        return replace(
            layout,
            writable=tuple(dict.fromkeys(os.path.realpath(path) for path in writable if os.path.isdir(path))),
            kept=tuple(path for path in kept if os.path.exists(path) and os.path.realpath(path) == path),
        )


def confined_command(command: list[str], *, life: int | None, more: Sequence[str] = ()) -> list[str]:
    """The command line that runs a command under `confine`, which ends it once the other end of `life` is closed."""
    if not sys.executable:
        return command
    alive = [] if life is None else ["--life", str(life)]
    return [sys.executable, "-I", "-S", confine.__file__, *alive, *more, "--", *command]


def _above(paths: Sequence[str], folders: Sequence[str]) -> list[str]:
    """The folders between some folders and paths in them, from above."""
    found: set[str] = set()
    for path in paths:
        place = os.path.dirname(path)
        while place not in folders and any(is_below(place, folder) for folder in folders):
            found.add(place)
            place = os.path.dirname(place)
    return sorted(found)
