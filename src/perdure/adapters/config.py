"""Settings from where people put them, each with where it came from (CLI-3, PRS-3, PRS-4, SEC-8)."""

from __future__ import annotations

import json
import math
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from perdure.adapters import former
from perdure.adapters.machine.clients import claude_folder
from perdure.adapters.machine.repositories import text_below
from perdure.adapters.machine.system import is_null_device, read_file
from perdure.adapters.machine.trust import (
    CLAUDE_FILES,
    CONFIG,
    MOST_BYTES,
    FolderTrust,
    claude_files,
    digest,
    folder_trust,
    project_file,
    trusted_content,
)
from perdure.context.models import ModelSpec, model_spec
from perdure.errors import BadSetting, nearest
from perdure.events import SettingIgnored
from perdure.hooks import hook_commands
from perdure.settings import LEAST_WINDOW_TOKENS, HookCommand, Settings

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_FACTORS = {"k": 1_000, "m": 1_000_000}
_WANTED: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}

# PRS-3: a value that can't be used is ignored with a warning, wherever it stands.
MAY_BE_IGNORED = frozenset({"auto_compact_window", "auto_compact_percent"})
# What is no size: at least 1 where 0 would mean "never" or divide by nothing.
_AT_LEAST_ONE = frozenset(
    "window_tokens max_output_tokens breaker_failures thrash_refills thrash_turns preview_chars "
    "result_limit_chars message_limit_bytes max_media_bytes margin_numerator margin_denominator "
    "agent_turns agent_parallel read_lines read_line_chars find_limit command_shown_bytes".split()
)


class UnusableValue(Exception):
    """A value can't be used; the text says why."""


@cache
def _hints(owner: type) -> dict[str, Any]:
    return get_type_hints(owner)


def parse_setting(name: str, given: object, before: Any) -> Any:
    """A setting's value from what was written; a table is laid over the one that was there `before`."""
    value = _converted(_hints(Settings)[name], given)
    if isinstance(value, dict):
        return {**before, **value}
    _check_range(name, value)
    return value


def number_type(owner: type, name: str, given: object) -> Any:
    """The value of a field of another dataclass of plain numbers, switches and texts, none of them negative."""
    value = _converted(_hints(owner)[name], given)
    if isinstance(value, int | float) and value < 0:
        raise UnusableValue("has to be 0 or more")
    if name == "window_tokens" and not value:
        raise UnusableValue("has to be 1 or more")
    return value


def _converted(kind: Any, given: object) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):  # with None
        if given is None or (isinstance(given, str) and given.strip().lower() in ("none", "null", "")):
            return None
        return _converted(next(part for part in get_args(kind) if part is not type(None)), given)
    if origin is Literal:
        if given not in get_args(kind):
            raise UnusableValue(f"has to be one of {', '.join(map(str, get_args(kind)))}")
        return given
    if origin is tuple:
        return _hooks(given) if get_args(kind)[0] is HookCommand else _names(given)
    if origin is dict:
        return _table(given)
    if kind is bool:
        return _switch(given)
    if kind in (int, float):
        return _number(kind, given)
    if not isinstance(given, str):
        raise UnusableValue(f"has to be {_WANTED[str]}")
    return given


def _switch(given: object) -> bool:
    if isinstance(given, bool):
        return given
    word = given.strip().lower() if isinstance(given, str) else ""
    if word not in _TRUE | _FALSE:
        raise UnusableValue(f"has to be {_WANTED[bool]}")
    return word in _TRUE


def _number(kind: type, given: object) -> int | float:
    value: float | None = None
    if isinstance(given, str):
        value = _from_text(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        value = given
    if value is None or not math.isfinite(value) or (kind is int and value != int(value)):
        raise UnusableValue(f"has to be {_WANTED[kind]}")
    return int(value) if kind is int else float(value)


def _from_text(text: str) -> float | None:
    word = text.strip().lower().replace(",", "").replace("_", "")
    factor = _FACTORS.get(word[-1:], 1)
    word = word[:-1] if factor > 1 else word
    try:
        value = int(word) if word.lstrip("+-").isdigit() else float(word)
    except ValueError:
        return None
    return value * factor


def _names(given: object) -> tuple[str, ...]:
    if isinstance(given, str) and (text := given.strip()).startswith("[") and text.endswith("]"):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise UnusableValue('has to be names with commas between, or a list such as ["a", "b"]') from None
    if isinstance(given, str):
        return tuple(part.strip() for part in given.split(",") if part.strip())
    if isinstance(given, list | tuple) and all(isinstance(part, str) for part in given):
        return tuple(given)
    raise UnusableValue("has to be a list of names")


def _hooks(given: object) -> tuple[HookCommand, ...]:
    """Hooks in the form of Claude Code's settings; in a variable or a flag, as JSON."""
    if isinstance(given, tuple) and all(isinstance(one, HookCommand) for one in given):
        return given
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as e:
            raise UnusableValue(f"has to be JSON, as the value of `hooks` in Claude Code's settings ({e})") from None
    found, odd = hook_commands(given)
    if odd:
        raise UnusableValue("; ".join(odd[:3]))
    return found


def _table(given: object) -> dict[str, int]:
    if isinstance(given, str):
        pairs = [part.partition("=") for part in given.split(",") if part.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise UnusableValue("has to be entries like Bash=30000, with commas between")
        given = {name.strip(): value for name, _, value in pairs}
    if not isinstance(given, dict):
        raise UnusableValue("has to be a table of names and numbers")
    table = {str(name): int(_number(int, value)) for name, value in given.items()}
    if any(value < 0 for value in table.values()):
        raise UnusableValue("has to hold numbers of 0 or more")
    return table


def _check_range(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if name == "auto_compact_percent" and not 0 < value <= 100:
        raise UnusableValue("has to be above 0 and at most 100")
    if name == "min_reduction_percent" and not 0 <= value <= 100:
        raise UnusableValue("has to be from 0 to 100")
    if name == "auto_compact_window" and value < LEAST_WINDOW_TOKENS:
        raise UnusableValue(
            f"has to be {LEAST_WINDOW_TOKENS:,} or more: less has no room for the system prompt, the tools, an answer "
            "and a conversation"
        )
    if name in _AT_LEAST_ONE and value < 1:
        raise UnusableValue("has to be 1 or more")
    if value < 0:
        raise UnusableValue("has to be 0 or more")


_ONLY_WHEN = "moves only when room is made; the model's own window stays the limit"
_ONLY_HOW_MUCH = "how much stays in view; the rest is kept, and can be had with recall"
_ONLY_SHOWN = "how much of a file or a search is shown at a time"
_ONLY_BACK = "how much of what was read comes back behind a compaction"

ALLOWED: Final[Mapping[str, str]] = {
    "auto_compact_window": _ONLY_WHEN,
    "auto_compact_percent": _ONLY_WHEN,
    "keep_min_tokens": _ONLY_HOW_MUCH,
    "keep_max_tokens": _ONLY_HOW_MUCH,
    "keep_min_texts": _ONLY_HOW_MUCH,
    "result_limit_chars": _ONLY_HOW_MUCH,
    "result_limits_chars": _ONLY_HOW_MUCH,
    "preview_chars": _ONLY_HOW_MUCH,
    "microcompact_tools": "names tools whose results may be cleared; they are kept, and can be had with recall",
    "ledger_tools": "says what the calls of other tools do: for records, and for what comes back behind them",
    "restore_files": _ONLY_BACK,
    "restore_file_tokens": _ONLY_BACK,
    "restore_files_tokens": _ONLY_BACK,
    "instructions_agents_md": "AGENTS.md is text of the project like its CLAUDE.md, and is said to be that",
    "read_lines": _ONLY_SHOWN,
    "read_line_chars": _ONLY_SHOWN,
    "find_limit": _ONLY_SHOWN,
    "command_seconds": "how long a command may take; command_most_seconds, the user's, stays the limit",
    "permission_ask": "adds to the user's list, and asking more often permits nothing",
    "permission_deny": "adds to the user's list, and forbidding more permits nothing",
}

# What runs something: taken from a trusted project as it was when its user saw it, behind the user's own, and asked
# about again when it changed.
SEEN: Final = frozenset({"hooks"})
# What 0.1 called otherwise, and there is no other word for.
_REPLACED: Final = {"pre_compact_hooks": "PreCompact", "post_compact_hooks": "PostCompact"}

PROJECT = "project file"

# What is understood of Claude Code's own files beside hooks, if the person wants that.
CLAUDE_KEYS: Final[Mapping[str, str]] = {
    "autoCompactEnabled": "auto_compact",
    "autoCompactWindow": "auto_compact_window",
    "fileCheckpointingEnabled": "checkpoints",
}

# PRS-3: other names of two settings, strongest first; Claude Code's own are understood.
ALIASES: dict[str, tuple[str, ...]] = {
    "auto_compact_window": ("PERDURE_AUTO_COMPACT_WINDOW", "CLAUDE_CODE_AUTO_COMPACT_WINDOW"),
    "auto_compact_percent": (
        "PERDURE_AUTO_COMPACT_PERCENT",
        "PERDURE_AUTOCOMPACT_PCT",
        "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
    ),
}
# PRS-4, MEM-1, CKP-1: true-ish values of these switch a setting off for good.
SWITCHES: dict[str, str] = {
    "compact": "DISABLE_COMPACT",
    "auto_compact": "DISABLE_AUTO_COMPACT",
    "instructions": "CLAUDE_CODE_DISABLE_CLAUDE_MDS",
    "memory": "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
    "checkpoints": "CLAUDE_CODE_DISABLE_FILE_CHECKPOINTING",
}
# Lists that grow from scope to scope (INS-5, LIB-1): one scope can't take back what another forbids.
MERGED = frozenset({"instructions_excludes", "permission_allow", "permission_ask", "permission_deny", "hooks"})
_MOST_TOLD = 200  # of one project's file; there are fewer settings than that
_SHOWN_CHARS = 200  # of a name or a value that can't be used
_TABLES = frozenset({"models", "gateway"})  # of the user's file
HOME = "PERDURE_HOME"
_OF_COMMANDS = ("PERDURE_STORE", "PERDURE_TENANT")  # where they look for sessions instead, and for whose

NAMES: tuple[str, ...] = tuple(f.name for f in fields(Settings))
_MODEL_NAMES: tuple[str, ...] = tuple(f.name for f in fields(ModelSpec) if f.name != "prefix")


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A value and who said it: `default`, a file, a variable of the environment, or a flag."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class UnapprovedFile:
    """What a trusted project's file runs and nobody has seen like this: it isn't used before somebody has."""

    file: str  # relative to the root
    digest: str
    commands: tuple[HookCommand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What holds here. `models` are the user's own entries, to go before the table of known models.

    `held` is what the folder holds and isn't used, as it isn't trusted.
    """

    settings: Settings
    values: Mapping[str, SettingValue]
    home: Path
    folder: FolderTrust
    unapproved: tuple[str, ...] = ()
    unseen: tuple[UnapprovedFile, ...] = ()
    models: tuple[ModelSpec, ...] = ()
    model_sources: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    warnings: tuple[SettingIgnored, ...] = ()
    theirs: tuple[SettingIgnored, ...] = ()  # those of them that a project's file is the cause of
    gateway: Mapping[str, Any] = field(default_factory=dict)  # the table [gateway], for `perdure serve`


def home_of(environ: Mapping[str, str]) -> Path:
    """Where Perdure keeps its own: `$PERDURE_HOME`, or `.perdure` in the user's home directory (0.1: `.holdfast`).

    Raises:
        BadSetting: There is no home directory.
    """
    given = next(filter(None, map(environ.get, former.variables([HOME]))), None)
    if given:
        return Path(given).expanduser().absolute()
    if environ.get("HOME") == "":
        raise BadSetting("HOME is empty: set it, or set PERDURE_HOME to a folder for sessions and settings")
    return former.folder_in(Path(environ["HOME"]) if environ.get("HOME") else Path.home())


def load(environ: Mapping[str, str], *, cwd: Path, flags: Iterable[str] = (), trusts: bool = False) -> Config:
    """The settings that hold in a directory.

    Args:
        environ: The environment.
        cwd: The directory.
        flags: `name=value`, as after `--set`.
        trusts: Whether the person said for this process that the folder is trusted (`--trust`).

    Raises `BadSetting` for the user's file or a flag that can't be used.
    """
    home, flags = home_of(environ), tuple(flags)
    user = home / CONFIG
    layers = _layers(user, None, environ, flags)
    folder = folder_trust(home, cwd, listed=layers.values["trusted_folders"].value, given=trusts)
    is_wanted = layers.values["claude_code_settings"].value
    held = trusted_content(cwd, own=user, with_claude=is_wanted)
    settings = project_file(cwd) if folder.is_trusted else None
    if settings is not None and user.is_file() and settings.samefile(user):
        settings = None
    if settings is not None or is_wanted:
        project = None if settings is None else (settings, folder)
        layers = _layers(user, project, environ, flags, claude=(cwd, folder) if is_wanted else None)
    return Config(
        settings=replace(Settings(), **{n: v.value for n, v in layers.values.items() if v.source != "default"}),
        values=layers.values,
        home=home,
        folder=folder,
        unapproved=() if folder.is_trusted else held,
        unseen=layers.unseen,
        models=tuple(layers.models.values()),
        model_sources=layers.model_sources,
        files=tuple(layers.files),
        warnings=tuple(layers.warnings),
        theirs=tuple(layers.theirs),
        gateway=layers.gateway,
    )


def _layers(
    user: Path,
    project: tuple[Path, FolderTrust] | None,
    environ: Mapping[str, str],
    flags: tuple[str, ...],
    *,
    claude: tuple[Path, FolderTrust] | None = None,
) -> _Layers:
    layers = _Layers()
    if claude is not None:
        layers.take_claude(*claude, environ=environ)
    if user.exists():
        layers.take_file(user, f"user file {user}")
    if project is not None:
        before = len(layers.warnings)
        layers.take_project(*project, own=user)
        layers.shorten(before, settings=project[0])
    layers.take_environment(environ)
    for flag in flags:
        layers.take_flag(flag)
    layers.take_switches(environ)
    return layers


class _Layers:
    """The values so far; each layer is laid over the ones before."""

    def __init__(self) -> None:
        defaults = Settings()
        self.values = {name: SettingValue(getattr(defaults, name), "default") for name in NAMES}
        self.models: dict[str, ModelSpec] = {}
        self.model_sources: dict[str, str] = {}
        self.files: list[Path] = []
        self.warnings: list[SettingIgnored] = []
        self.gateway: Mapping[str, Any] = {}
        self.unseen: tuple[UnapprovedFile, ...] = ()
        self.theirs: list[SettingIgnored] = []

    def take_file(self, path: Path, source: str) -> None:
        """The user's own file."""
        content = _toml(path)
        self.files.append(path)
        models, self.gateway = content.pop("models", {}), content.pop("gateway", {})
        if not isinstance(self.gateway, dict):
            raise BadSetting(f"{path}: gateway has to be a table, as in [gateway]")
        for name, value in content.items():
            if name in _REPLACED:
                raise BadSetting(f"{path}: {name} is [[hooks.{_REPLACED[name]}]] now; docs/use/hooks.md has its form")
            if name not in NAMES:
                raise BadSetting(f"{path}: unknown setting {name!r}{nearest(name, NAMES)}; `perdure config` lists all")
            self._put(name, value, source, where=f"{path}: ")
        if not isinstance(models, dict):
            raise BadSetting(f'{path}: models has to be tables, as in [models."my-model"]')
        for name, entry in models.items():
            self._model(path, name, entry)
            self.model_sources[name] = source

    def take_project(self, path: Path, folder: FolderTrust, *, own: Path) -> None:
        """A project's file: what may stand in it is taken, and of the rest each is told, with what to do (SEC-8)."""
        try:
            content = _parsed(path, text_below(path, folder.root, most_bytes=MOST_BYTES))
        except OSError as e:
            self._warn("project file", f"{path}: {e.strerror or e}; nothing of it is used")
            return
        except (BadSetting, UnicodeDecodeError, RecursionError) as e:
            self._warn("project file", f"{e if isinstance(e, BadSetting) else f'{path}: {e}'}; nothing of it is used")
            return
        self.files.append(path)
        for name, value in content.items():
            if name in ALLOWED:
                self._put(name, value, f"{PROJECT} {path}", where=None)
            elif name in SEEN:
                continue
            elif name in NAMES or name in _TABLES:
                why = f"a project may not set it, so it isn't used; if you want it, put it into {own}"
                self._warn(name, f"{path}: {why}")
            else:
                hint = nearest(name[:_SHOWN_CHARS], NAMES) if len(self.warnings) < _MOST_TOLD else ""  # untold, in vain
                self._warn(name, f"{path}: not a setting{hint}")
        self._take_seen(path, content.get("hooks", {}), folder, f"{PROJECT} {path}")

    def take_claude(self, cwd: Path, folder: FolderTrust, *, environ: Mapping[str, str]) -> None:
        """Claude Code's files, each over the one before: the user's, and of a trusted folder its own (SEC-8)."""
        own = claude_folder(environ) / CLAUDE_FILES[0]
        theirs = claude_files(folder.root, cwd) if folder.is_trusted else ()
        are_off = False
        for path in dict.fromkeys((own, *theirs)):
            is_own = path == own
            content = self._claude_file(path, None if is_own else folder.root)
            if content is None:
                continue
            self.files.append(path)
            source = f"Claude Code's {path}"
            for key, name in CLAUDE_KEYS.items():
                if key not in content:
                    continue
                is_wrong = _hints(Settings)[name] is bool and not isinstance(content[key], bool)
                if is_wrong:  # in JSON, "no" is a text, which would be taken for one of ours
                    told = f"{path}: {key} has to be true or false, and not {json.dumps(content[key])[:_SHOWN_CHARS]}"
                    self._warn(name, f"{told}, so it isn't used")
                elif is_own or name in ALLOWED:
                    self._put(name, content[key], source, where=None)
                else:
                    self._warn(name, f"{path}: {key}: a project may not set it, so it isn't used")
            is_off = content.get("disableAllHooks") is True
            are_off = are_off or (is_own and is_off)  # a project's file can't switch off what guards its user
            if is_off or are_off or "hooks" not in content:
                continue
            if is_own:
                self._put("hooks", self._usable_hooks(path, content["hooks"]), source, where=None)
            else:
                self._take_seen(path, content["hooks"], folder, source)

    def _claude_file(self, path: Path, root: Path | None) -> dict[str, Any] | None:
        """What stands in a file of Claude Code's; None where there is none. `root`: it must not lead out of there."""
        if is_null_device(path):
            return None
        try:
            content = json.loads(read_file(path) if root is None else text_below(path, root, most_bytes=MOST_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as e:
            self._warn("claude_code_settings", f"{path}: {e}; nothing of it is used")
            return None
        if not isinstance(content, dict):
            self._warn("claude_code_settings", f"{path}: it isn't a JSON object; nothing of it is used")
            return None
        return content

    def _usable_hooks(self, path: Path, given: object) -> tuple[HookCommand, ...]:
        """The hooks of a file that somebody else may have written; what can't be used is told."""
        found, odd = hook_commands(given)
        for line in odd:
            self._warn("hooks", f"{path}: {line}")
        return found

    def _take_seen(self, path: Path, given: object, folder: FolderTrust, source: str) -> None:
        """What runs something: only as it was when the user saw it, and behind the user's own."""
        wanted = self._usable_hooks(path, given)
        if not wanted:
            return
        file, mark = str(path.relative_to(folder.root)), digest([asdict(one) for one in wanted])
        if not folder.may_run(file, mark):
            why = "nobody has seen it yet"
            if folder.runs_not.get(file) == mark:
                why = "you said no to it"
            elif file in folder.runs:
                why = "it changed since you said yes"
            told = f"{path}: it runs commands, and {why}, so they aren't used; `perdure trust` shows and allows them"
            self._warn("hooks", told)
            self.unseen = (*self.unseen, UnapprovedFile(file, mark, wanted))
            return
        self._put("hooks", wanted, source, where=None)

    def shorten(self, start: int, *, settings: Path) -> None:
        """Keep what is told of a project's file readable, however much there is; `start` is its first warning."""
        theirs = self.warnings[start:]
        if len(theirs) > _MOST_TOLD:
            left = f"{settings}: {len(theirs) - _MOST_TOLD:,} more of its settings aren't used"
            theirs = [*theirs[:_MOST_TOLD], SettingIgnored("project file", left)]
        self.warnings[start:] = self.theirs = theirs

    def _warn(self, name: str, reason: str) -> None:
        self.warnings.append(SettingIgnored(name[:_SHOWN_CHARS], reason))

    def _model(self, path: Path, name: str, entry: object) -> None:
        place = f'{path}: models."{name}"'
        if not isinstance(entry, dict):
            raise BadSetting(f'{place} has to be a table, as in [models."{name}"]')
        changes: dict[str, Any] = {}
        for key, value in entry.items():
            if key not in _MODEL_NAMES:
                raise BadSetting(f"{place}: unknown entry {key!r}{nearest(key, _MODEL_NAMES)}")
            try:
                changes[key] = number_type(ModelSpec, key, value)
            except UnusableValue as e:
                raise BadSetting(f"{place}: {key} = {value!r}: {e}") from None
        base = self.models.get(name) or model_spec(name)
        self.models[name] = replace(base, prefix=name.rsplit("/", 1)[-1], **changes)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        for name in NAMES:
            for variable in former.variables(ALIASES.get(name, (former.PREFIX + name.upper(),))):
                given = environ.get(variable)
                if given is None or not given.strip():
                    continue
                if self._put(name, given, f"environment {variable}", where=None):
                    break
        ours = [
            HOME,
            *_OF_COMMANDS,
            *(former.PREFIX + name.upper() for name in NAMES),
            *(one for few in ALIASES.values() for one in few),
        ]
        known = set(former.variables(ours))
        for variable in sorted(environ):
            if variable in known or not variable.startswith((former.PREFIX, former.FORMER_PREFIX)):
                continue
            if hint := nearest(variable, tuple(known), cutoff=0.85):
                self.warnings.append(SettingIgnored(variable, f"not a setting{hint}"))

    def take_flag(self, flag: str) -> None:
        name, equals, value = flag.partition("=")
        name = name.strip().replace("-", "_")
        table, _, part = name.partition(".")  # `result_limits_chars.Bash` names one entry of a table
        name = table if part else name
        if not equals:
            raise BadSetting(f"--set {flag}: write it as name=value")
        if name not in NAMES:
            raise BadSetting(
                f"--set {flag}: unknown setting {name!r}{nearest(name, NAMES)}; `perdure config` lists all"
            )
        given: object = {part: value} if part else value
        self._put(name, given, f"flag --set {name}", where="--set ")

    def take_switches(self, environ: Mapping[str, str]) -> None:
        """What is switched off by the environment stays off, whoever says otherwise (PRS-4)."""
        for name, variable in SWITCHES.items():
            if environ.get(variable, "").strip().lower() not in _TRUE:
                continue
            before = self.values[name]
            if before.value and before.source != "default":
                self.warnings.append(SettingIgnored(name, f"true from {before.source} is overruled by {variable}"))
            self.values[name] = SettingValue(False, f"environment {variable}")

    def _put(self, name: str, given: object, source: str, *, where: str | None) -> bool:
        """Lay a value over what was there; False when it was ignored. `where` starts the error; None: only warn."""
        try:
            value = parse_setting(name, given, self.values[name].value)
        except UnusableValue as e:
            if where is None or name in MAY_BE_IGNORED:
                shown = (given if isinstance(given, str) else repr(given))[:_SHOWN_CHARS]
                self.warnings.append(SettingIgnored(name, f"{shown} from {source} is ignored: {e}"))
                return False
            raise BadSetting(f"{where}{name} = {repr(given)[:_SHOWN_CHARS]}: {e}") from None
        before = self.values[name]
        if name in MERGED and before.value:
            value, source = tuple(dict.fromkeys((*before.value, *value))), f"{before.source}, {source}"
        self.values[name] = SettingValue(value, source)
        return True


def _toml(path: Path) -> dict[str, Any]:
    try:
        return {} if is_null_device(path) else _parsed(path, read_file(path).decode())
    except OSError as e:
        raise BadSetting(f"{path}: {e.strerror or e}: the settings can't be read") from e
    except UnicodeDecodeError as e:
        raise BadSetting(f"{path}: not UTF-8 at byte {e.start}: save it as UTF-8") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise BadSetting(f"{path}: not valid TOML: {e}") from None
