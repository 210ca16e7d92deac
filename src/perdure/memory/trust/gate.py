"""Before the memory: whether a change is made, waits for a person, or isn't made at all (MEM-8, MEM-10, SEC-5)."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from perdure.memory.changes import TRUST, Change, MemoryBatch, Mode, RenameMemory, SaveMemory, Stamp
from perdure.memory.places import name_for_people, refusal
from perdure.memory.trust.injections import find_injections
from perdure.memory.trust.labels import TrustLevel
from perdure.memory.trust.secrets import MARK, SecretFinding, find_secrets, is_repeated_in


@dataclass(frozen=True, slots=True)
class GateDecision:
    """`why` is one line for whoever asked; `rule` is its word in events: a rule, never a value."""

    act: Literal["write", "inbox", "refuse"]
    rule: str = ""
    why: str = ""


def decide_change(change: Change, stamp: Stamp, mode: Mode, heard: Collection[str] = ()) -> GateDecision:
    """Decide what becomes of a change.

    Secrets and planted instructions that it would add are refused in every mode, whoever adds them. The modes are about
    agents: a person at a door of ours writes in each of them.

    Args:
        change: The change as it would be written.
        stamp: Who makes it, and on whose word.
        mode: The setting `memory_mode`.
        heard: The secrets in what was said, read before anything rewrote it: they may stand in the change otherwise.
    """
    parts = change.changes if isinstance(change, MemoryBatch) else ()
    for part in parts:
        one = decide_change(part, stamp, "auto", heard)
        if one.act == "refuse":
            return one
    for name in (change.name, getattr(change, "to", change.name)):
        why = refusal(name)
        if why is not None:
            return GateDecision("refuse", "name", f"{name_for_people(name)}: not a name that may be used: {why}")
    found = new_violation(change, heard)
    if found is not None:
        rule, line = found  # the name isn't said: it may be made of the same words
        return GateDecision("refuse", rule, f"line {line} of the text breaks the rule {rule}: leave that out")
    if stamp.by == "user":
        return GateDecision("write")
    if mode in ("off", "read-only"):
        return GateDecision("refuse", f"mode-{mode}", f"the memory is {mode} (setting memory_mode)")
    if TRUST[stamp.origin] is TrustLevel.OUTSIDE:
        return GateDecision(
            "inbox", f"origin-{stamp.origin}", f"it derives from {_SAID[stamp.origin]}, so a person decides"
        )
    if mode == "ask":
        return GateDecision("inbox", "mode-ask", "the setting memory_mode is ask, so a person decides")
    return GateDecision("write")


_SAID = {"tool": "the result of a tool", "web": "the web or a pasted text"}


def new_violation(change: Change, heard: Collection[str] = ()) -> tuple[str, int] | None:
    """Return the first rule that a change newly breaks, and the line; what stood there before breaks none.

    Names are read like texts: they are made of the same words.
    """
    if isinstance(change, RenameMemory):
        return _secret_in(change.to.replace("/", "\n"), "", heard)
    if not isinstance(change, SaveMemory):
        return None
    base = change.base or ""
    name = change.name.replace("/", "\n") if change.base is None else ""
    secret = _secret_in(change.text, base, heard) or _secret_in(name, "", heard)
    if secret is not None:
        return secret
    found = find_injections(change.text)
    known = {one.rule for one in find_injections(base)} if found else set()
    return next(((one.rule, one.line) for one in found if one.rule not in known), None)


_CAPITAL = re.compile(r"(?m)(?:^|(?<=[\s:\"'`(\[]))[A-Z]")
_JOINTS = re.compile(r"[_\-.]+")


def _secret_in(text: str, base: str, heard: Collection[str]) -> tuple[str, int] | None:
    """Return the family of a secret in a text that isn't in its base, and the line.

    A sentence that became a memory may begin with a capital, and a name has joints where blanks were: each reading
    is scanned. A mark tells nobody anything, so it isn't kept in place of a secret either.
    """
    for reading in dict.fromkeys((text, _CAPITAL.sub(lambda found: found[0].lower(), text), _JOINTS.sub(" ", text))):
        for one in find_secrets(reading):
            if not _stood_in(base, text, reading, one):
                return f"secret:{one.family}", one.line
    for mark in MARK.finditer(text):
        if mark[0] not in base:
            return f"secret:{mark[0].split(':')[1]}", text.count("\n", 0, mark.start()) + 1
    for value in heard:
        if is_repeated_in(value, text) and not is_repeated_in(value, base):
            return "secret:heard", 1
    return None


def _stood_in(base: str, text: str, reading: str, one: SecretFinding) -> bool:
    value = (text if len(text) == len(reading) else reading)[one.start : one.end]
    return bool(base) and (value in base or is_repeated_in(value, base))
