"""What a tool call may do: allow, ask or deny, by rules and a mode. Pure: two values in, a verdict out (permit).

A rule is a tool's name, or a name with a pattern: `Bash(git status:*)` (a command that begins with these words),
`Bash(npm test)` (exactly this one), `Edit(src/**)`, `Read(~/.ssh/**)`, `Read(//etc/**)`, `Task`. Rules for Edit hold
for every tool that changes files, rules for Read for every one that shows them. Deny beats ask, ask beats allow.
Nothing in a call's input widens what it may: paths are judged where they really lead, commands by every part that they
run, and what isn't plain is asked for.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from holdfast.agent.commands import Plain, looks, only_looks, parsed, runs, sets_harmless
from holdfast.context.globs import fits
from holdfast.errors import BadSetting

Mode = Literal["default", "accept_edits", "plan", "bypass"]
Decision = Literal["allow", "ask", "deny"]
Kind = Literal["look", "edit", "command", "other"]

_RULE = re.compile(r"([A-Za-z_][\w-]*|mcp__[\w-]+)(?:\((.*)\))?", re.DOTALL)
_EDITS = frozenset({"Edit", "Write", "MultiEdit"})
_LOOKS = frozenset({"Read", "Grep", "Glob"})
# What decides what programs and agents do later: changed only when a person says so, whatever the mode.
_PROTECTED = (
    "**/.git/**", "**/.git", "**/.holdfast/**", "**/.claude/**", "**/.mcp.json", "**/.vscode/**", "**/.idea/**",
    "**/.bashrc", "**/.zshrc", "**/.profile", "**/.bash_profile", "**/.gitconfig", "**/.gitmodules", "**/.ssh/**",
    "**/.envrc",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """A tool, and what of it: words of a command, a pattern for paths, or everything (None)."""

    tool: str
    pattern: str | None = None

    @classmethod
    def of(cls, text: str) -> Rule:
        """A rule as people write it; `BadSetting` when it isn't one."""
        found = _RULE.fullmatch(text.strip())
        if found is None or found[2] == "":
            raise BadSetting(
                f"not a permission rule: {text[:80]!r}; write Tool or Tool(pattern), as Bash(git status:*)"
            )
        return cls(found[1], None if found[2] in (None, "*") else found[2])

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of all scopes together."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    @classmethod
    def of(cls, *, allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = ()) -> Rules:
        return cls(*(tuple(Rule.of(text) for text in some) for some in (allow, ask, deny)))

    def allowing(self, *more: Rule) -> Rules:
        """With more that is allowed, as a person said."""
        return Rules((*self.allow, *more), self.ask, self.deny)


@dataclass(frozen=True, slots=True)
class Where:
    """A path of a call: as it was written, where it really leads, and whether that is in the project."""

    given: str
    real: str
    is_inside: bool


@dataclass(frozen=True, slots=True)
class Touch:
    """What a call would do. `paths` are looked at or changed, by `kind`; `command` is a shell's."""

    tool: str
    kind: Kind = "other"
    paths: tuple[Where, ...] = ()
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision, who made it (a rule, or the mode), and why, for people and the model."""

    decision: Decision
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that a verdict depends on beside the call: rules, mode, the project's real folder, the user's home.

    `own` are files that the agent itself was told to write, such as its plan.
    """

    rules: Rules = field(default_factory=Rules)
    mode: Mode = "default"
    root: str = "/"
    home: str = "/"
    own: tuple[str, ...] = ()


def permitted(touch: Touch, policy: Policy) -> Verdict:
    """Whether a call may be made."""
    rules = policy.rules
    for rule in rules.deny:
        if _hits(rule, touch, policy, may=True):
            return Verdict("deny", f"rule {rule}", f"the rule {rule} forbids it")
    for rule in rules.ask:
        if _hits(rule, touch, policy, may=True):
            return Verdict("ask", f"rule {rule}", f"the rule {rule} says to ask")
    if policy.mode == "plan" and (refused := _refused_in_plan(touch, policy)):
        return refused
    unsure = _unsure(touch, policy)
    if unsure is not None:
        return unsure
    if policy.mode == "bypass":
        return Verdict("allow", "mode bypass", "")
    return _by_rule_or_mode(touch, policy)


def _unsure(touch: Touch, policy: Policy) -> Verdict | None:
    """What no mode lets through: a command that can't be read, where rules forbid some; files that are protected."""
    forbids_some = any(rule.pattern is not None for rule in policy.rules.deny)
    if forbids_some and touch.command is not None and parsed(touch.command) is None:
        return Verdict("ask", "unclear command", "it isn't certain what the command runs, and some are forbidden")
    if touch.kind == "edit" and policy.mode != "bypass":
        for where in touch.paths:
            is_protected = any(fits(pattern, where.real) for pattern in _PROTECTED) and where.real not in policy.own
            if is_protected and not _is_granted(touch, policy):
                return Verdict("ask", "protected file", f"{where.real} decides what programs do later")
    return None


def _is_granted(touch: Touch, policy: Policy) -> bool:
    """Whether a rule with a pattern, so one that was meant for these files, allows them all."""
    return any(rule.pattern is not None and _hits(rule, touch, policy, may=False) for rule in policy.rules.allow)


def _refused_in_plan(touch: Touch, policy: Policy) -> Verdict | None:
    why = "plan mode is on: look, think, and show the plan with ExitPlanMode; nothing is changed before it is approved"
    if touch.kind == "edit" and not all(where.real in policy.own for where in touch.paths):
        return Verdict("deny", "mode plan", why)
    if touch.command is not None and not only_looks(touch.command):
        return Verdict("deny", "mode plan", why)
    return None


def _by_rule_or_mode(touch: Touch, policy: Policy) -> Verdict:
    if touch.command is not None:
        return _command(touch.command, policy)
    for rule in policy.rules.allow:
        if _hits(rule, touch, policy, may=False):
            return Verdict("allow", f"rule {rule}", "")
    if all(where.real in policy.own for where in touch.paths) and touch.paths:
        return Verdict("allow", "the agent's own file", "")
    outside = next((where for where in touch.paths if not where.is_inside), None)
    if outside is not None:
        leads = "" if outside.given == outside.real else f" (leads to {outside.real})"
        return Verdict("ask", "outside the project", f"{outside.given}{leads} is outside the project")
    if touch.kind == "edit" and policy.mode != "accept_edits":
        return Verdict("ask", f"mode {policy.mode}", "it changes files")
    return Verdict("allow", f"mode {policy.mode}", "")


def _command(command: str, policy: Policy) -> Verdict:
    """A command is allowed when each of its parts is, or when commands are allowed as such."""
    whole = next((rule for rule in policy.rules.allow if rule == Rule("Bash")), None)
    if whole is not None:
        return Verdict("allow", f"rule {whole}", "")
    plain = parsed(command)
    if plain is None:
        return Verdict("ask", f"mode {policy.mode}", "it isn't certain what the command runs")
    if only_looks(command):
        return Verdict("allow", "only looks", "")
    wanting = next((one for one in plain if not _is_allowed(one, policy.rules.allow)), None)
    if wanting is None:
        return Verdict("allow", "rules for its parts", "")
    return Verdict(
        "ask", f"mode {policy.mode}", f"no rule allows {' '.join((*wanting.assigned, *wanting.words))[:200]}"
    )


def _is_allowed(one: Plain, allow: tuple[Rule, ...]) -> bool:
    if looks(one):
        return True
    if one.is_expanded or not sets_harmless(one):
        return False
    return any(rule.tool == "Bash" and rule.pattern is not None and _names(rule.pattern, one) for rule in allow)


def _names(pattern: str, one: Plain) -> bool:
    """Whether a rule's pattern names a plain command: its first words with `:*` behind them, or all of them."""
    wanted, is_prefix = words_of(pattern)
    return bool(wanted) and (one.words[: len(wanted)] == wanted if is_prefix else one.words == wanted)


def words_of(pattern: str) -> tuple[tuple[str, ...], bool]:
    """The words of a rule for commands, and whether more may follow."""
    for ending in (":*", " *"):
        if pattern.endswith(ending):
            return tuple(pattern.removesuffix(ending).split()), True
    return tuple(pattern.split()), False


def _hits(rule: Rule, touch: Touch, policy: Policy, *, may: bool) -> bool:
    """Whether a rule speaks of a call. `may`: it is enough that a part of it could be meant, as for deny and ask."""
    if not _is_tool(rule.tool, touch):
        return may and touch.command is not None and rule.tool in ("Read", "Edit") and _names_file(rule, touch, policy)
    if rule.pattern is None:
        return may or all(where.is_inside for where in touch.paths)  # to go outside takes a pattern that says where
    if touch.command is not None:
        wanted, is_prefix = words_of(rule.pattern)
        if not may or not wanted:
            return False
        return (
            runs(touch.command, wanted) if is_prefix else touch.command.strip() == rule.pattern or _exact(touch, wanted)
        )
    if not touch.paths:
        return False
    found = (_path_fits(rule.pattern, where, policy, may=may) for where in touch.paths)
    return any(found) if may else all(found)


def _exact(touch: Touch, wanted: tuple[str, ...]) -> bool:
    plain = parsed(touch.command or "")
    return runs(touch.command or "", wanted) if plain is None else any(one.words == wanted for one in plain)


def _is_tool(tool: str, touch: Touch) -> bool:
    if tool == touch.tool:
        return True
    return (tool == "Edit" and touch.kind == "edit" and touch.tool in _EDITS) or (
        tool == "Read" and touch.tool in _LOOKS
    )


def _names_file(rule: Rule, touch: Touch, policy: Policy) -> bool:
    """Whether a command names a file that a rule for files is about. A command has more ways to reach a file."""
    if rule.pattern is None or touch.command is None:
        return False
    loose = re.sub(r"[\\'\"]", "", touch.command)
    for word in re.split(r"[\s;&|<>(){}$`=]+", loose):
        path = _absolute(word, policy)
        if word and _path_fits(rule.pattern, Where(word, path, is_inside=True), policy, may=True):
            return True
    return False


def _absolute(word: str, policy: Policy) -> str:
    if word.startswith("~"):
        word = policy.home + word[1:]
    return posixpath.normpath(posixpath.join(policy.root, word))


def _path_fits(pattern: str, where: Where, policy: Policy, *, may: bool) -> bool:
    """Whether a path fits. What is allowed has to lead there; what is denied may only be called so, or lie in it."""
    if not may:
        return _fits_at(pattern, where.real, policy)
    paths = (where.real, _absolute(where.given, policy))
    return any(
        _fits_at(pattern.rstrip("/"), above, policy, anywhere=True) for path in paths for above in _upwards(path)
    )


def _upwards(path: str) -> list[str]:
    """The path and the folders that it lies in."""
    names = path.split("/")
    return ["/".join(names[:n]) for n in range(len(names), 1, -1)]


def _fits_at(pattern: str, path: str, policy: Policy, *, anywhere: bool = False) -> bool:
    """`//x` is absolute, `~/x` in the user's home, `x` in the project: at any depth when it has no slash."""
    root = policy.root.rstrip("/")
    if pattern.startswith("//"):
        return fits(pattern[1:], path)
    if pattern.startswith("~/"):
        return fits(policy.home.rstrip("/") + pattern[1:], path)
    if "/" not in pattern:
        return (anywhere or path.startswith(root + "/")) and fits(pattern, path)
    return fits(f"{root}/{pattern.removeprefix('./').removeprefix('/')}", path)
