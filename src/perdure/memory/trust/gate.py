"""Before the memory: whether a change is made, waits for a person, or isn't made at all (MEM-8, MEM-10, SEC-5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure.memory.changes import TRUST, Change, MemoryBatch, Mode, SaveMemory, Stamp
from perdure.memory.places import name_for_people, refusal
from perdure.memory.trust.injections import find_injections
from perdure.memory.trust.labels import TrustLevel
from perdure.memory.trust.secrets import find_secrets


@dataclass(frozen=True, slots=True)
class GateDecision:
    """`why` is one line for whoever asked; `rule` is its word in events: a rule, never a value."""

    act: Literal["write", "inbox", "refuse"]
    rule: str = ""
    why: str = ""


def decide_change(change: Change, stamp: Stamp, mode: Mode) -> GateDecision:
    """What becomes of a change.

    Secrets and planted instructions that it would add are refused in every mode, whoever adds them. The modes are about
    agents: a person at a door of ours writes in each of them.
    """
    parts = change.changes if isinstance(change, MemoryBatch) else ()
    for part in parts:
        one = decide_change(part, stamp, "auto")
        if one.act == "refuse":
            return one
    for name in (change.name, getattr(change, "to", change.name)):
        why = refusal(name)
        if why is not None:
            return GateDecision("refuse", "name", f"{name_for_people(name)}: not a name that may be used: {why}")
    found = new_violation(change)
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


_SAID = {"tool": "the result of a tool", "web": "the web"}


def new_violation(change: Change) -> tuple[str, int] | None:
    """The first rule that a change newly breaks, and the line. What stood there before is no reason to refuse."""
    if not isinstance(change, SaveMemory):
        return None
    base = change.base or ""
    for secret in find_secrets(change.text):
        if change.text[secret.start : secret.end] not in base:
            return f"secret:{secret.family}", secret.line
    found = find_injections(change.text)
    known = {one.rule for one in find_injections(base)} if found else set()
    return next(((one.rule, one.line) for one in found if one.rule not in known), None)
