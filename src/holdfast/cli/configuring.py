"""`holdfast config`: every setting that holds here, with where it came from (CLI-3)."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from holdfast.adapters.config import NAMES
from holdfast.adapters.values import nearest
from holdfast.cli.door import clean, cut, out, out_json
from holdfast.cli.tables import table
from holdfast.context.models import ModelFacts, model_facts
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from holdfast.adapters.config import Config


def config_command(name: str | None, config: Config, *, is_changed_only: bool, is_json: bool) -> None:
    """All settings, or one of them."""
    if name is not None:
        name = name.replace("-", "_")
        if name not in NAMES:
            raise BadSetting(f"unknown setting {name!r}{nearest(name, NAMES)}; `holdfast config` lists all")
    names = [n for n in NAMES if name in (None, n)]
    if is_changed_only:
        names = [n for n in names if config.values[n].source != "default"]
    if is_json:
        out_json(_data(config, names, is_whole=name is None))
        return
    if name is not None and names:
        out(f"{_shown(config.values[name].value)}  (from: {clean(config.values[name].source)})")
        return
    table(
        ("setting", "value", "from"),
        [(n, cut(_shown(config.values[n].value), 60), config.values[n].source) for n in names],
    )
    for model in config.models:
        changed = _changed(model)
        told = ", ".join(f"{key} {_shown(value)}" for key, value in changed.items())
        out(f"model {clean(model.prefix)}: {told or 'as in the table'}")
    folder = config.folder
    state = "trusted" if folder.is_trusted else "not trusted"
    out(f"\nthe folder {clean(str(folder.root))} is {state} ({clean(folder.why)})")
    if config.held:
        out(f"not used, as it isn't trusted: {clean(', '.join(config.held))}")
    for warning in config.warnings:
        out(f"not used: {clean(warning.name)}: {clean(warning.reason)}")
    out(f"sessions and the user file are in {clean(str(config.home))}")


def _data(config: Config, names: list[str], *, is_whole: bool) -> dict[str, Any]:
    data: dict[str, Any] = {n: {"value": config.values[n].value, "source": config.values[n].source} for n in names}
    if not is_whole:
        return data
    return {
        "settings": data,
        "models": {model.prefix: asdict(model) for model in config.models},
        "home": str(config.home),
        "folder": {
            "root": str(config.folder.root),
            "is_trusted": config.folder.is_trusted,
            "why": config.folder.why,
            "held": list(config.held),
        },
        "files": [str(path) for path in config.files],
        "warnings": [{"name": warning.name, "reason": warning.reason} for warning in config.warnings],
    }


def _changed(model: ModelFacts) -> dict[str, Any]:
    """What an entry says other than the table of known models."""
    known = model_facts(model.prefix)
    names = [f.name for f in fields(ModelFacts) if f.name != "prefix"]
    return {n: getattr(model, n) for n in names if getattr(model, n) != getattr(known, n)}


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_shown(item)}" for key, item in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
