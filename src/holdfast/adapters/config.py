"""Settings from where people put them, each with where it came from (CLI-3, PRS-3, PRS-4).

Later ones win: defaults, the user's file (`$HOLDFAST_HOME/config.toml`), the file of a trusted project
(`.holdfast/config.toml`, here or further up to the git root), the environment (`HOLDFAST_<FIELD>` and the aliases
below), flags (`name=value`).

What stands in the user's file or a flag was meant, so a name or a value that can't be used is an error with one line.
The environment is shared with other programs, so there it is a warning; so is a value outside its range wherever PRS-3
says so. A project's file was written by others: it sets what `project_settings.ALLOWED` names (SEC-8), and whatever
else is in it, or wrong with it, is a warning, since a folder can't keep its user from working. `DISABLE_COMPACT` and
`DISABLE_AUTO_COMPACT` can only switch off, and nothing overrules them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from holdfast.adapters.folders import text_below
from holdfast.adapters.project_settings import ALLOWED, SEEN
from holdfast.adapters.trust import CONFIG, MOST_BYTES, Standing, digest, holdings, project_file, standing
from holdfast.adapters.values import MAY_BE_IGNORED, Unusable, nearest, number_type, parsed
from holdfast.context.models import ModelFacts, model_facts
from holdfast.errors import BadSetting
from holdfast.events import SettingIgnored
from holdfast.memory.directory import FOLDER
from holdfast.settings import Settings

PREFIX = "HOLDFAST_"
PROJECT = "project file"

# PRS-3: other names of two settings, strongest first; Claude Code's own are understood.
ALIASES: dict[str, tuple[str, ...]] = {
    "auto_compact_window": ("HOLDFAST_AUTO_COMPACT_WINDOW", "CLAUDE_CODE_AUTO_COMPACT_WINDOW"),
    "auto_compact_percent": (
        "HOLDFAST_AUTO_COMPACT_PERCENT",
        "HOLDFAST_AUTOCOMPACT_PCT",
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
MERGED = frozenset({"instructions_excludes", "permission_allow", "permission_ask", "permission_deny"})
_MOST_TOLD = 200  # of one project's file; there are fewer settings than that
_SHOWN_CHARS = 200  # of a name or a value that can't be used
_TABLES = frozenset({"models", "gateway"})  # of the user's file
_NOT_SETTINGS = frozenset({"HOLDFAST_HOME"})
_TRUE = frozenset({"1", "true", "yes", "on"})

NAMES: tuple[str, ...] = tuple(f.name for f in fields(Settings))
_MODEL_NAMES: tuple[str, ...] = tuple(f.name for f in fields(ModelFacts) if f.name != "prefix")


@dataclass(frozen=True, slots=True)
class Sourced:
    """A value and who said it: `default`, a file, a variable of the environment, or a flag."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Unseen:
    """What a trusted project's file runs and nobody has seen like this: it isn't used before somebody has."""

    file: str  # relative to the root
    digest: str
    what: Mapping[str, tuple[str, ...]]  # by setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What holds here. `models` are the user's own entries, to go before the table of known models.

    `held` is what the folder holds and isn't used, as it isn't trusted.
    """

    settings: Settings
    values: Mapping[str, Sourced]
    home: Path
    folder: Standing
    held: tuple[str, ...] = ()
    unseen: Unseen | None = None
    models: tuple[ModelFacts, ...] = ()
    model_sources: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    warnings: tuple[SettingIgnored, ...] = ()
    theirs: tuple[SettingIgnored, ...] = ()  # those of them that a project's file is the cause of
    gateway: Mapping[str, Any] = field(default_factory=dict)  # the table [gateway], for `holdfast serve`


def home_of(environ: Mapping[str, str]) -> Path:
    """Where Holdfast keeps its own: `$HOLDFAST_HOME`, or `.holdfast` in the user's home directory."""
    given = environ.get("HOLDFAST_HOME")
    if given:
        return Path(given).expanduser().absolute()
    return (Path(environ["HOME"]) if environ.get("HOME") else Path.home()) / FOLDER


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
    folder = standing(home, cwd, listed=layers.values["trusted_folders"].value, given=trusts)
    held = holdings(cwd, own=user)
    settings = project_file(cwd) if folder.is_trusted else None
    if settings is not None and not (user.is_file() and settings.samefile(user)):
        layers = _layers(user, (settings, folder), environ, flags)
    return Config(
        settings=replace(Settings(), **{n: v.value for n, v in layers.values.items() if v.source != "default"}),
        values=layers.values,
        home=home,
        folder=folder,
        held=() if folder.is_trusted else held,
        unseen=layers.unseen,
        models=tuple(layers.models.values()),
        model_sources=layers.model_sources,
        files=tuple(layers.files),
        warnings=tuple(layers.warnings),
        theirs=tuple(layers.theirs),
        gateway=layers.gateway,
    )


def _layers(
    user: Path, project: tuple[Path, Standing] | None, environ: Mapping[str, str], flags: tuple[str, ...]
) -> _Layers:
    layers = _Layers()
    if user.is_file():
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
        self.values = {name: Sourced(getattr(defaults, name), "default") for name in NAMES}
        self.models: dict[str, ModelFacts] = {}
        self.model_sources: dict[str, str] = {}
        self.files: list[Path] = []
        self.warnings: list[SettingIgnored] = []
        self.gateway: Mapping[str, Any] = {}
        self.unseen: Unseen | None = None
        self.theirs: list[SettingIgnored] = []

    def take_file(self, path: Path, source: str) -> None:
        """The user's own file."""
        content = _toml(path)
        self.files.append(path)
        models, self.gateway = content.pop("models", {}), content.pop("gateway", {})
        if not isinstance(self.gateway, dict):
            raise BadSetting(f"{path}: gateway has to be a table, as in [gateway]")
        for name, value in content.items():
            if name not in NAMES:
                raise BadSetting(f"{path}: unknown setting {name!r}{nearest(name, NAMES)}; `holdfast config` lists all")
            self._put(name, value, source, where=f"{path}: ")
        if not isinstance(models, dict):
            raise BadSetting(f'{path}: models has to be tables, as in [models."my-model"]')
        for name, entry in models.items():
            self._model(path, name, entry)
            self.model_sources[name] = source

    def take_project(self, path: Path, folder: Standing, *, own: Path) -> None:
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
                self._warn(name, f"{path}: not a setting{nearest(name[:_SHOWN_CHARS], NAMES)}")
        self._take_seen(path, {name: value for name, value in content.items() if name in SEEN}, folder)

    def _take_seen(self, path: Path, given: Mapping[str, Any], folder: Standing) -> None:
        """What runs something: only as it was when the user saw it, and behind the user's own."""
        wanted: dict[str, tuple[str, ...]] = {}
        for name, value in given.items():
            try:
                wanted[name] = parsed(name, value, ())
            except Unusable as e:
                self._warn(name, f"{path}: {repr(value)[:_SHOWN_CHARS]} is ignored: {e}")
        wanted = {name: commands for name, commands in wanted.items() if commands}
        if not wanted:
            return
        file, mark = str(path.relative_to(folder.root)), digest(wanted)
        if not folder.may_run(file, mark):
            why = "nobody has seen it yet"
            if folder.runs_not.get(file) == mark:
                why = "you said no to it"
            elif file in folder.runs:
                why = "it changed since you said yes"
            for name in wanted:
                told = f"{path}: it {SEEN[name]}, and {why}, so it isn't used; `holdfast trust` shows it, and allows it"
                self._warn(name, told)
            self.unseen = Unseen(file, mark, wanted)
            return
        for name, commands in wanted.items():
            before = self.values[name]
            self._put(name, (*before.value, *commands), f"{before.source}, {PROJECT} {path}", where=None)

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
                changes[key] = number_type(ModelFacts, key, value)
            except Unusable as e:
                raise BadSetting(f"{place}: {key} = {value!r}: {e}") from None
        base = self.models.get(name) or model_facts(name)
        self.models[name] = replace(base, prefix=name.rsplit("/", 1)[-1], **changes)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        for name in NAMES:
            for variable in ALIASES.get(name, (PREFIX + name.upper(),)):
                given = environ.get(variable)
                if given is None or not given.strip():
                    continue
                if self._put(name, given, f"environment {variable}", where=None):
                    break
        known = {PREFIX + name.upper() for name in NAMES} | _NOT_SETTINGS
        known |= {variable for several in ALIASES.values() for variable in several}
        for variable in sorted(environ):
            hint = nearest(variable, tuple(known), cutoff=0.85) if variable.startswith(PREFIX) else ""
            if hint and variable not in known:
                self.warnings.append(SettingIgnored(variable, f"not a setting{hint}"))

    def take_flag(self, flag: str) -> None:
        name, equals, value = flag.partition("=")
        name, part = _dotted(name.strip().replace("-", "_"))
        if not equals:
            raise BadSetting(f"--set {flag}: write it as name=value")
        if name not in NAMES:
            raise BadSetting(
                f"--set {flag}: unknown setting {name!r}{nearest(name, NAMES)}; `holdfast config` lists all"
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
            self.values[name] = Sourced(False, f"environment {variable}")

    def _put(self, name: str, given: object, source: str, *, where: str | None) -> bool:
        """Lay a value over what was there; False when it was ignored. `where` starts the error; None: only warn."""
        try:
            value = parsed(name, given, self.values[name].value)
        except Unusable as e:
            if where is None or name in MAY_BE_IGNORED:
                shown = (given if isinstance(given, str) else repr(given))[:_SHOWN_CHARS]
                self.warnings.append(SettingIgnored(name, f"{shown} from {source} is ignored: {e}"))
                return False
            raise BadSetting(f"{where}{name} = {given!r}: {e}") from None
        before = self.values[name]
        if name in MERGED and before.value:
            value, source = tuple(dict.fromkeys((*before.value, *value))), f"{before.source}, {source}"
        self.values[name] = Sourced(value, source)
        return True


def _dotted(name: str) -> tuple[str, str | None]:
    """`result_limits_chars.Bash` names one entry of a table."""
    head, dot, part = name.partition(".")
    return (head, part) if dot and part else (name, None)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path, path.read_text(encoding="utf-8"))
    except OSError as e:
        raise BadSetting(f"{path}: {e.strerror or e}: the settings can't be read") from e
    except UnicodeDecodeError as e:
        raise BadSetting(f"{path}: not UTF-8 at byte {e.start}: save it as UTF-8") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise BadSetting(f"{path}: not valid TOML: {e}") from None
