"""Configuration files of clients with our values in them, and without: as text, so that everything else stays."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from perdure.errors import BadSetting

Keys = tuple[str, ...]
BEGIN: Final = "# perdure: begin (`perdure setup codex --remove` takes this out)"
END: Final = "# perdure: end"
_WAS = "# perdure: was: "
_MARKS = f"(?:{re.escape(BEGIN)}|{re.escape(END)})"
_BLOCK = re.compile(
    rf"^{re.escape(BEGIN)}\r?\n(?:(?!{_MARKS}).*\n)*{re.escape(END)}(?:\r?\n|\Z)(?:\r?\n)?", re.MULTILINE
)
_PROVIDER = re.compile(r"^[ \t]*model_provider[ \t]*=.*$", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


# --- JSON -------------------------------------------------------------------------------------------------------------


def json_object(text: str, where: Path) -> dict[str, Any]:
    """The object in a file; an empty file holds an empty one.

    Raises:
        BadSetting: It holds something else.
    """
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as e:
        at = f"line {e.lineno}: " if isinstance(e, json.JSONDecodeError) else ""
        what = e.msg if isinstance(e, json.JSONDecodeError) else "it can't be read"
        raise BadSetting(f"{where}: {at}not JSON ({what}); mend it first, nothing was changed") from None
    if not isinstance(value, dict):
        raise BadSetting(f"{where}: not a JSON object; mend it first, nothing was changed")
    return value


def json_with(text: str, values: Mapping[Keys, Any], where: Path) -> str:
    """The file with some values set, in the order and with the indentation that it has.

    Raises:
        BadSetting: It is no JSON object, or has something else where an object has to be.
    """
    whole = json_object(text, where)
    for keys, value in values.items():
        at = whole
        for key in keys[:-1]:
            at = at.setdefault(key, {})
            if not isinstance(at, dict):
                raise BadSetting(f"{where}: {'.'.join(keys[:-1])} is no object; mend it first, nothing was changed")
        at[keys[-1]] = value
    return _dumped(whole, text)


def json_without(text: str, values: Mapping[Keys, Any], before: str, where: Path) -> str:
    """The file without our values where they are still ours: with what stood there before, or nothing."""
    whole, earlier = json_object(text, where), json_object(before, where)
    ours = {keys: value for keys, value in values.items() if _at(whole, keys) == value}  # else somebody else's by now
    if not ours:
        return text
    for keys in ours:
        was = _at(earlier, keys)
        for depth in range(len(keys), 0, -1):
            holder = _at(whole, keys[: depth - 1])
            if depth == len(keys) and was is not None:
                holder[keys[-1]] = was
            elif depth == len(keys) or (not holder[keys[depth - 1]] and _at(earlier, keys[:depth]) is None):
                del holder[keys[depth - 1]]
    return _dumped(whole, text)


def json_dropped(text: str, every: Iterable[Keys], where: Path) -> str:
    """The file without some values, whatever they are; what held them stays, also when it is empty then."""
    whole = json_object(text, where)
    found = [(holder, keys[-1]) for keys in every if isinstance(holder := _at(whole, keys[:-1]), dict)]
    if not any(key in holder for holder, key in found):
        return text
    for holder, key in found:
        holder.pop(key, None)
    return _dumped(whole, text)


def _at(whole: Any, keys: Keys) -> Any:
    for key in keys:
        whole = whole.get(key) if isinstance(whole, dict) else None
    return whole


def _dumped(whole: dict[str, Any], like: str) -> str:
    indent = re.search(r"^\{\r?\n([ \t]+)\"", like)
    end = "" if like.strip() and not like.endswith("\n") else "\n"
    text = json.dumps(whole, indent=indent[1] if indent else 2, ensure_ascii=False) + end
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair stays the escape that it was


# --- Codex's TOML -----------------------------------------------------------------------------------------------------


def codex_with_gateway(text: str, url: str, where: Path) -> str:
    """Codex's configuration with the gateway as its provider; a provider that it had stands in a comment meanwhile.

    Raises:
        BadSetting: It is no TOML, has a provider of that name, or is written in a way that can't be changed safely.
    """
    earlier = _toml(text, where)
    if not isinstance(earlier.get("model_providers", {}), dict):
        raise BadSetting(f"{where}: model_providers is no table; mend it first, nothing was changed")
    if "perdure" in _providers(earlier):
        raise BadSetting(f"{where}: it has a provider `perdure` of its own; remove that first, nothing was changed")
    first_table = _TABLE.search(text)
    end = first_table.start() if first_table else len(text)
    top, rest = _PROVIDER.sub(lambda found: _WAS + found[0], text[:end], count=1), text[end:]
    table = _our_provider(url)
    block = ["[model_providers.perdure]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    whole = "".join((_block('model_provider = "perdure"'), "\n", top, rest))
    whole += ("" if whole.endswith("\n") else "\n") + _block(*block)
    providers = {**_providers(earlier), "perdure": table}
    if _toml(whole, where) != {**earlier, "model_provider": "perdure", "model_providers": providers}:
        raise BadSetting(f"{where}: it can't be changed safely; write what docs/use/gateway.md says by hand")
    return whole


def codex_without_gateway(text: str, url: str, where: Path) -> str:
    """Codex's configuration without what `codex_with_gateway` put there.

    Raises:
        BadSetting: It was edited so that ours can't be told from the rest.
    """
    left = re.sub(rf"^{re.escape(_WAS)}", "", _BLOCK.sub("", text), flags=re.MULTILINE)
    before, after = _toml(text, where), _toml(left, where)
    is_left = re.search(rf"^{_MARKS}", left, re.MULTILINE) or _providers(after).get("perdure") == _our_provider(url)
    if is_left or _others(before) != _others(after):
        raise BadSetting(
            f"{where}: ours can't be told from yours any more; take out provider `perdure` by hand, with the comments "
            f"`{BEGIN.partition(' (')[0]}` and `{END}`, then try again; nothing was changed"
        )
    return left


def codex_without_plugin(text: str, plugin: str, marketplace: str, where: Path) -> str:
    """Codex's configuration without the tables that its plugin commands wrote, and what it noted below them.

    Raises:
        BadSetting: It is no TOML, or has them in a way that can't be taken out safely.
    """
    names = rf'(?:marketplaces\.(?:{marketplace}|"{marketplace}")|plugins\."{plugin}")'
    ours = re.compile(rf"[ \t]*\[[ \t]*{names}[ \t]*[.\]]")
    kept, is_ours = [], False
    for line in text.splitlines(keepends=True):
        if _TABLE.match(line):
            is_ours = ours.match(line) is not None
        if not is_ours or line.lstrip().startswith("#"):  # a comment is somebody's own
            kept.append(line)
    left = "".join(kept)
    wanted = _toml(text, where)
    for holder, name in (("marketplaces", marketplace), ("plugins", plugin)):
        if isinstance(wanted.get(holder), dict):
            wanted[holder].pop(name, None)
            if not wanted[holder]:
                del wanted[holder]
    if _toml(left, where) != wanted:
        raise BadSetting(f"{where}: the plugin can't be taken out safely; delete its tables by hand, then try again")
    return left


def _our_provider(url: str) -> dict[str, str]:
    return {"name": "perdure", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "OPENAI_API_KEY"}


def _providers(config: dict[str, Any]) -> dict[str, Any]:
    found = config.get("model_providers")
    return found if isinstance(found, dict) else {}


def _others(config: dict[str, Any]) -> dict[str, Any]:
    """What a set-up has no say in."""
    providers = {name: one for name, one in _providers(config).items() if name != "perdure"}
    return {**config, "model_provider": None, "model_providers": providers}


def _block(*lines: str) -> str:
    return "\n".join((BEGIN, *lines, END, ""))


def _toml(text: str, where: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise BadSetting(f"{where}: not TOML ({e}); mend it first, nothing was changed") from None
