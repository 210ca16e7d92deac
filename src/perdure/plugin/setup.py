"""Setting up a client for the gateway or with the plugin, and taking that back byte for byte (PLG-1).

What a file held before is kept in a receipt, with a digest of what it held when we were done. A file that nobody
changed since gets its bytes back; from one that was edited only our values are taken.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from perdure.adapters.journal.disk import make_private
from perdure.adapters.machine.clients import Environ, claude_folder, codex_folder, opencode_folder
from perdure.adapters.machine.system import CLOSE_ON_EXEC
from perdure.errors import BadSetting, PerdureError
from perdure.plugin.build import (
    NAME,
    SELECTOR,
    build_plugin,
    hook_command,
    is_built,
    is_line_command,
    line_command,
)
from perdure.plugin.configs import (
    Keys,
    codex_with_gateway,
    codex_without_gateway,
    codex_without_plugin,
    json_dropped,
    json_object,
    json_with,
    json_without,
)

How = Literal["plugin", "gateway"]
_COMMAND_SECONDS = 120
_CALL_SECONDS = 10


class SetupReceipt(msgspec.Struct, frozen=True):
    """What was done to a client: how it was set up, and a configuration file before and, as a digest, behind it."""

    client: str
    how: How
    url: str
    file: str
    before: bytes | None
    after: str


@dataclass(frozen=True, slots=True)
class ClientKind:
    """A client that can be set up: where its configuration stands, and which values make it use the gateway.

    The commands of a client with plugins: those that add the folder at `{folder}`, and those that remove it.
    """

    name: str
    program: str
    config: Callable[[Environ], Path]
    gateway: Callable[[str], Mapping[Keys, Any]] | None  # None: Codex, whose file is TOML
    adds: tuple[tuple[str, ...], ...] = ()
    removes: tuple[tuple[str, ...], ...] = ()

    @property
    def ways(self) -> tuple[How, ...]:
        """How it can be set up, what is taken without a word first."""
        return ("plugin", "gateway") if self.adds else ("gateway",)


_PLUGIN = ("plugin", "marketplace")
CLIENTS: Final = {
    one.name: one
    for one in (
        ClientKind(
            "claude-code",
            "claude",
            lambda environ: claude_folder(environ) / "settings.json",
            lambda url: {("env", "ANTHROPIC_BASE_URL"): url},
            ((*_PLUGIN, "add", "{folder}"), ("plugin", "install", SELECTOR)),
            (("plugin", "uninstall", SELECTOR), (*_PLUGIN, "remove", NAME)),
        ),
        ClientKind(
            "codex",
            "codex",
            lambda environ: codex_folder(environ) / "config.toml",
            None,
            ((*_PLUGIN, "add", "{folder}"), ("plugin", "add", SELECTOR)),
            (("plugin", "remove", SELECTOR), (*_PLUGIN, "remove", NAME)),
        ),
        ClientKind(
            "opencode",
            "opencode",
            lambda environ: opencode_folder(environ) / "opencode.json",
            lambda url: {("provider", one, "options", "baseURL"): f"{url}/v1" for one in ("anthropic", "openai")},
        ),
    )
}


# Clients whose address stands among keys and models that only a person knows: what they type to use the gateway.
BY_HAND: Final = {
    "cline": "cline auth -p openai -k KEY -m MODEL -b {url}/v1",
    "goose": "OPENAI_HOST={url} GOOSE_PROVIDER=openai goose session",
    "qwen-code": "OPENAI_BASE_URL={url}/v1 OPENAI_MODEL=MODEL qwen --auth-type openai",
}


@dataclass(frozen=True, slots=True)
class SetupResult:
    """What came of it: the way, the file, whether anything was changed, and what a person still has to do."""

    client: str
    how: How
    file: str
    is_changed: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """One client on this machine. `home` is ours; `program` is the client's, for its plugin commands."""

    kind: ClientKind
    home: Path
    environ: Environ
    program: str = ""

    @property
    def file(self) -> Path:
        """The client's configuration; behind a link the file that it leads to."""
        return Path(os.path.realpath(self.kind.config(self.environ)))

    @property
    def folder(self) -> Path:
        """The folder that is installed, one for all clients."""
        return self.home / "setup" / "plugin"

    @property
    def _plugins(self) -> Path:
        """Where the client keeps plugins and what they keep."""
        return self.kind.config(self.environ).parent / "plugins"

    @property
    def _receipt(self) -> Path:
        return self.home / "setup" / f"{self.kind.name}.json"

    def receipt(self) -> SetupReceipt | None:
        """What was done to this client; None when nothing was.

        Raises:
            BadSetting: The receipt can't be read.
        """
        try:
            return msgspec.json.decode(self._receipt.read_bytes(), type=SetupReceipt)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as e:
            raise BadSetting(f"{self._receipt}: damaged ({e}); undo the set-up by hand, and delete it") from None

    def _expected_receipt(self) -> SetupReceipt:
        receipt = self.receipt()
        if receipt is None:
            raise BadSetting(f"{self.kind.name}: nothing was set up by `perdure setup` here")
        return receipt

    # --- setting up ---------------------------------------------------------------------------------------------------

    def set_up(self, how: How, url: str) -> SetupResult:
        """Set the client up and try it with one call; a second time nothing is changed.

        Raises:
            BadSetting: The client can't be set up so, or its configuration can't be read.
            PerdureError: A command of the client failed, or the call did; nothing was changed then.
        """
        receipt = self.receipt()
        if receipt is not None and (receipt.how, receipt.url) != (how, url if how == "gateway" else ""):
            told = f"{receipt.how}{f' at {receipt.url}' if receipt.url else ''}"
            again = f"`perdure setup {self.kind.name} --remove` takes that back"
            raise BadSetting(f"{self.kind.name} is set up already, for the {told}: {again}")
        if how not in self.kind.ways:
            raise BadSetting(f"{self.kind.name} can't be set up with a {how}, only for the {self.kind.ways[0]}")
        if how == "gateway":
            _call_gateway(url)
        before = _read(self.file)
        if how == "gateway":
            after, is_new, notes = self._with_gateway(_text(before, self.file), url), False, tuple[str, ...]()
            if receipt is None:
                self._keep(how, url, before, after)
            try:
                if after != before:
                    _write(self.file, after)
            except OSError:
                if receipt is None:
                    self._receipt.unlink()
                raise
        else:
            is_new, notes, earlier = self._with_plugin(before, is_known=receipt is not None)
            if receipt is None:
                self._keep(how, "", earlier, _read(self.file))
        is_changed = receipt is None or is_new or _read(self.file) != before
        return SetupResult(self.kind.name, how, str(self.file), is_changed, notes)

    def _keep(self, how: How, url: str, before: bytes | None, after: bytes | None) -> None:
        make_private(self._receipt.parent)
        receipt = SetupReceipt(self.kind.name, how, url, str(self.file), before, _digest(after))
        _write(self._receipt, msgspec.json.encode(receipt))

    def _with_gateway(self, text: str, url: str) -> bytes:
        """The configuration with the gateway in it, as it is where that is there already."""
        if self.kind.gateway is None:
            is_there = codex_without_gateway(text, url, self.file) != text
            return (text if is_there else codex_with_gateway(text, url, self.file)).encode()
        after = json_with(text, self.kind.gateway(url), self.file)
        return (after if json_object(after, self.file) != json_object(text, self.file) else text).encode()

    def _with_plugin(self, before: bytes | None, *, is_known: bool) -> tuple[bool, tuple[str, ...], bytes | None]:
        """Build the plugin and install it by the client's own commands.

        Gives whether that was needed, what to tell, and what the configuration held without any plugin of ours. One
        that somebody had installed by hand is replaced, as a client has one of a name.
        """
        is_claude = self.kind.name == "claude-code"
        if is_claude:
            json_object(_text(before, self.file), self.file)  # what is no JSON is refused before anything is done
        is_there = SELECTOR in self._run("plugin", "list", "--json")
        make_private(self.folder)
        is_new, notes = bool(build_plugin(self.folder)) or not is_known, tuple[str, ...]()
        if is_there and is_new:
            self._removed()
            if not is_known:
                before = _read(self.file)
                notes = ("the plugin that was installed by hand was replaced; --remove doesn't bring it back",)
        try:
            if is_new or not is_there:
                for command in self.kind.adds:
                    self._run(*(word.format(folder=self.folder) for word in command))
            _call_hook(self.home)
        except BaseException as e:  # Ctrl-C, too: half a set-up has no receipt, so that nothing could take it back
            self._removed()
            _restore(self.file, before)
            if isinstance(e, PerdureError):
                gone = ", and the plugin that was installed by hand is gone" if notes else ""
                raise PerdureError(f"{e}; nothing was set up{gone}") from None
            raise
        is_new = is_new or not is_there
        if not is_claude:
            asks = "type /hooks in Codex once, and approve the hooks of perdure: it runs none before that"
            return is_new, (*notes, asks), before
        text = _text(_read(self.file), self.file)
        line = json_object(text, self.file).get("statusLine")
        if line is not None and not _is_our_line(line):
            return is_new, (*notes, "your own status line was left as it is"), before
        if line != _STATUS_LINE:
            _write(self.file, json_with(text, {("statusLine",): _STATUS_LINE}, self.file).encode())
        return is_new, notes, before

    # --- taking it back -----------------------------------------------------------------------------------------------

    def take_back(self) -> SetupResult:
        """Undo the set-up: byte for byte where nobody changed the file since, else our values alone.

        Raises:
            BadSetting: Nothing was set up, or the configuration can't be read.
            PerdureError: A command of the client failed.
        """
        receipt = self._expected_receipt()
        file = Path(receipt.file)
        now = _read(file)
        is_untouched = _digest(now) == receipt.after
        earlier = _text(receipt.before, file)
        if not is_untouched and now is not None and receipt.how == "gateway":
            self._without_gateway(file, _text(now, file), earlier, receipt.url)
        edited = "the file was edited since: only what the set-up had put there was taken out"
        notes: tuple[str, ...] = () if is_untouched else (edited,)
        if receipt.how == "plugin":
            if self._found_program():
                self._removed(is_strict=True)
            else:
                self._taken_out(file)
                notes += (
                    f"{self.kind.program} isn't on PATH: what its own commands had written was taken out without it",
                )
            for left in (self._plugins / "cache" / NAME, self._plugins / "data" / f"{NAME}-{NAME}"):
                shutil.rmtree(left, ignore_errors=True)
            if not is_untouched and self.kind.name == "claude-code" and (now := _read(file)) is not None:
                text = _text(now, file)
                ours: dict[Keys, Any] = {("enabledPlugins",): {}, ("extraKnownMarketplaces",): {}}  # left by commands
                line = json_object(text, file).get("statusLine")
                ours |= {("statusLine",): line} if _is_our_line(line) else {}
                _write(file, json_without(text, ours, earlier, file).encode())
        if is_untouched:
            _restore(file, receipt.before)
        self._receipt.unlink()
        if not any(self._receipt.parent.glob("*.json")):
            shutil.rmtree(self._receipt.parent, ignore_errors=True)
        return SetupResult(self.kind.name, receipt.how, receipt.file, True, notes)

    def _without_gateway(self, file: Path, text: str, earlier: str, url: str) -> None:
        if self.kind.gateway is None:
            _write(file, codex_without_gateway(text, url, file).encode())
        else:
            _write(file, json_without(text, self.kind.gateway(url), earlier, file).encode())

    def trouble(self) -> str:
        """What keeps the set-up from working, with what to do; empty when it works, as far as a look can tell.

        Raises:
            BadSetting: Nothing was set up here.
        """
        receipt = self._expected_receipt()
        if receipt.how == "gateway":
            try:
                _call_gateway(receipt.url)
            except PerdureError as e:
                return str(e)
            return ""
        if not is_built(self.folder):
            return f"the plugin was built by another Perdure or Python: `perdure setup {self.kind.name}` builds it anew"
        errors = self._plugins / "data" / f"{NAME}-{NAME}" / "errors.log"
        lines = errors.read_text("utf-8", errors="replace").splitlines() if errors.is_file() else []
        times = "once," if len(lines) == 1 else f"{len(lines)} times, last"
        return f"a hook failed {times} {lines[-1]} (in {errors})" if lines else ""

    # --- the client's commands ----------------------------------------------------------------------------------------

    def _removed(self, *, is_strict: bool = False) -> None:
        for command in self.kind.removes:
            try:
                self._run(*command)
            except PerdureError:
                if is_strict and SELECTOR in self._run("plugin", "list", "--json"):
                    raise

    def _taken_out(self, file: Path) -> None:
        """Take out what the client's commands wrote when they installed the plugin; for a client that is gone."""
        lists: dict[Path, tuple[Keys, ...]] = {
            self._plugins / "installed_plugins.json": (("plugins", SELECTOR),),
            self._plugins / "known_marketplaces.json": ((NAME,),),
            file: (("enabledPlugins", SELECTOR), ("extraKnownMarketplaces", NAME)),
        }
        after: dict[Path, str] = {}
        if self.kind.name == "claude-code":
            there = {path: data for path in lists if (data := _read(path)) is not None}
            after = {path: json_dropped(_text(data, path), lists[path], path) for path, data in there.items()}
        elif (data := _read(file)) is not None:
            after = {file: codex_without_plugin(_text(data, file), SELECTOR, NAME, file)}
        for path, text in after.items():
            _write(path, text.encode())

    def _found_program(self) -> str:
        return self.program or shutil.which(self.kind.program, path=self.environ.get("PATH")) or ""

    def _run(self, *arguments: str) -> str:
        """What a command of the client prints."""
        program = self._found_program()
        if not program:
            raise BadSetting(f"{self.kind.program}: not found on PATH: name it with --program")
        command = [program, *arguments]
        shown = " ".join((self.kind.program, *arguments))
        try:
            done = subprocess.run(
                command,
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMMAND_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            raise PerdureError(f"{shown}: {e}") from None
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise PerdureError(f"{shown}: it ended with {done.returncode}: {said}")
        return done.stdout


_STATUS_LINE: Final = {"type": "command", "command": line_command()}


def _is_our_line(line: object) -> bool:
    return isinstance(line, dict) and is_line_command(str(line.get("command")))


def _call_gateway(url: str) -> None:
    """Ask the gateway whether it is well; without a proxy, since it is ours."""
    if not url.startswith(("http://", "https://")):
        raise BadSetting(f"--url {url!r}: give the address of the gateway, such as http://127.0.0.1:8787")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/healthz", timeout=_CALL_SECONDS) as answer:
            told = answer.read(1_000)
    except (OSError, ValueError, http.client.HTTPException) as e:
        at, reason = url.strip(), getattr(e, "reason", e)
        why = getattr(reason, "strerror", None) or reason
        raise PerdureError(
            f"{at}: no gateway answers ({why}); start one with `perdure serve`, then try again"
        ) from None
    try:
        service = msgspec.json.decode(told, type=_Health).service
    except msgspec.MsgspecError:
        service = ""
    if service != "perdure":
        raise PerdureError(
            f"{url}: what answers there isn't Perdure's gateway; start one with `perdure serve`, on another port if "
            "need be, and name it with --url"
        )


class _Health(msgspec.Struct):
    """What a gateway of ours says when it is asked how it is."""

    service: str


def _call_hook(home: Path) -> None:
    """Have a hook give the record of a small log, as the client's shell will start it."""
    said = "Perdure tries its hook."
    entry = {"type": "user", "uuid": "try", "sessionId": "try", "message": {"role": "user", "content": said}}
    make_private(home)
    with tempfile.TemporaryDirectory(prefix="try-", dir=home) as folder:
        log = Path(folder, "projects", "try", "log.jsonl")
        log.parent.mkdir(parents=True)
        log.write_text(json.dumps(entry) + "\n", "utf-8")
        about = {"hook_event_name": "SessionStart", "source": "compact", "session_id": "try"}
        # This compiles its modules, also for hooks in an environment that forbids to: they take a third of their time.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(
            ["/bin/sh", "-c", hook_command()],
            input=json.dumps({**about, "transcript_path": str(log)}),
            env={**environ, "CLAUDE_PLUGIN_DATA": str(Path(folder, "plugins", "data", "try"))},
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    if said not in done.stdout:
        raise PerdureError(f"the plugin's hook gives no record ({hook_command()})")


# --- files ------------------------------------------------------------------------------------------------------------


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _text(data: bytes | None, file: Path) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError:
        raise BadSetting(f"{file}: not UTF-8; mend it first, nothing was changed") from None


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _write(file: Path, data: bytes) -> None:
    """Replace a file as a whole; it keeps its mode."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC, mode)
    try:
        with open(fd, "wb") as out:
            out.write(data)
        os.replace(temporary, file)
    except OSError:
        temporary.unlink()
        raise


def _restore(file: Path, before: bytes | None) -> None:
    if before is None:
        file.unlink(missing_ok=True)
    elif _read(file) != before:
        _write(file, before)
