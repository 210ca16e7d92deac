"""What a tool call may do: allow, ask or deny, by rules, a mode, and files that others run (SEC-9)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from perdure.agent.commands import (
    CommandPaths,
    Likelihood,
    NamedPath,
    PlainCommand,
    beyond_words,
    changes_nothing,
    name_of,
    only_lists,
    only_looks,
    parse_command,
    paths_in_command,
    runs,
    sets_harmless,
    unreadable,
)
from perdure.errors import BadSetting
from perdure.text.globs import expand_braces, matches_glob, may_overlap, problem

# Patterns of paths in lower case, at any depth; and why they are asked about.
PROTECTED: tuple[tuple[str, str], ...] = (
    (
        ".git .git/** .hg .hg/** .svn .svn/** .jj .jj/** .bzr .bzr/** .gitmodules .gitattributes .gitconfig .hgrc "
        ".lfsconfig .config/git/** .config/jj/** head commondir",
        "version control reads it, and runs what it names",
    ),
    (
        ".husky .husky/** .githooks .githooks/** githooks/** .git-hooks/** git-hooks/** hooks/{pre,post}-* "
        "hooks/commit-msg .pre-commit-config.{yaml,yml} .pre-commit-hooks.{yaml,yml} "
        "{.,}lefthook{-local,}.{yml,yaml,toml,json} .overcommit.yml .overcommit/** .huskyrc* .lintstagedrc* "
        ".simple-git-hooks.{json,js,cjs} captainhook.json",
        "git hooks come from it",
    ),
    (
        ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .bash_env .profile .zshrc .zshenv .zprofile "
        ".zlogin .zlogout .zsh_plugins.txt .oh-my-zsh/** .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc "
        ".config/fish/** .config/nushell/** .config/environment.d/** .pam_environment .xprofile .xinitrc "
        ".xsession .xsessionrc .envrc .direnvrc .config/direnv/** .tmux.conf .screenrc .config/powershell/** "
        "microsoft.powershell_profile.ps1 .local/bin/** .config/zsh/**",
        "a shell runs it when it starts",
    ),
    (
        ".config/autostart/** .config/systemd/** .local/share/applications/** library/launchagents/** "
        "library/launchdaemons/** .crontab crontab",
        "the system runs it by itself",
    ),
    (
        ".ssh .ssh/** .gnupg .gnupg/** .netrc .curlrc .wgetrc .aws/** .kube/config .docker/config.json "
        ".config/gcloud/** .azure/** .git-credentials .pgpass .my.cnf",
        "it decides where programs connect, and as whom",
    ),
    (
        ".vscode .vscode/** *.code-workspace .idea .idea/** .vs/** .fleet/** .zed/** .devcontainer "
        ".devcontainer/** .devcontainer.json .gitpod.yml .gitpod.yaml .vimrc .gvimrc .exrc .ideavimrc .nvimrc "
        ".nvim.lua .vim/** .config/nvim/** .emacs .emacs.d/** .dir-locals.el .nanorc .gdbinit .lldbinit "
        ".lldbinit-* .lvimrc",
        "an editor or debugger runs it when it opens the folder",
    ),
    (
        ".npmrc .yarnrc .yarnrc.yml .yarnrc.yaml .yarn/{releases,plugins}/** .pnpmfile.{cjs,js,mjs} "
        "pnpmfile.{cjs,js} .pnp.{cjs,js,loader.mjs} bunfig.toml pip.conf pip.ini .config/pip/** .pip/** .pypirc "
        ".pydistutils.cfg uv.toml .config/uv/** .condarc .cargo/config .cargo/config.toml .cargo/credentials* "
        "rust-toolchain rust-toolchain.toml .gemrc .bundle/config .mvn/** .m2/settings.xml .gradle/** "
        "gradle/wrapper/** .sdkmanrc nuget.config .config/nuget/** .tool-versions {.,}mise.toml {.,}mise.*.toml "
        ".mise/** .config/mise/** .asdfrc .hermit/** .netlify/** go.env .config/go/env composer/auth.json",
        "a package manager or tool switcher takes programs, and where to get them, from it",
    ),
    (
        "sitecustomize.py usercustomize.py *.pth pyvenv.cfg .pdbrc .pdbrc.py .pythonrc .pythonrc.py "
        ".pythonstartup .ipython/** .jupyter/** .rprofile .renviron .irbrc .pryrc .psqlrc .sqliterc .ghci .guile "
        ".octaverc .perldb .iex.exs .erlang",
        "an interpreter runs it whenever it starts",
    ),
    (
        ".venv/** venv/{bin,scripts,lib,lib64}/** env/{bin,scripts}/** node_modules/.bin/** .direnv/** .tox/** .nox/**",
        "it holds programs that others find by name",
    ),
    (
        ".github/workflows/** .github/actions/** .github/*.{yml,yaml} .gitlab-ci.yml .gitlab-ci.yaml .gitlab/** "
        ".circleci/** .travis.yml .drone.yml .drone.star azure-pipelines.{yml,yaml} .azure-pipelines/** "
        "jenkinsfile jenkinsfile.* .jenkins/** .buildkite/** bitbucket-pipelines.yml {.,}appveyor.{yml,yaml} "
        ".woodpecker.{yml,yaml} .woodpecker/** .forgejo/** .gitea/** .cirrus.yml .cirrus.star .teamcity/** "
        ".semaphore/** {.,}renovate.json{,5} .renovaterc* cloudbuild.{yaml,yml} buildspec.{yml,yaml}",
        "a build server runs it with its own rights",
    ),
    (
        "claude.md claude.local.md agents.md agents.override.md agent.md gemini.md qwen.md .cursorrules "
        ".windsurfrules .clinerules .clinerules/** .roorules .goosehints .github/copilot-instructions.md "
        ".github/{instructions,prompts,chatmodes,agents}/** .rules .perdure .perdure/** .holdfast .holdfast/** "
        ".claude .claude/** "
        ".claude.json .codex .codex/** .gemini .gemini/** .cursor .cursor/** .windsurf/** .roo/** .continue/** "
        ".opencode/** opencode.{json,jsonc} .aider.conf.yml .aider* .amazonq/** .kiro/** .junie/** .agents/** "
        ".mcp.json mcp.json .mcp/**",
        "agents take instructions, permissions or programs from it",
    ),
)


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, str], dict[str, str], tuple[tuple[str, str], ...]]:
    """Names of files, names of folders with all that is in them, and the other patterns."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for patterns, why in PROTECTED:
        for pattern in (one for glob in patterns.split() for one in expand_braces(glob)):
            name = pattern.removesuffix("/**")
            if set(name) & set("*?[/"):
                others.append((f"**/{pattern}", why))
            else:
                (folders if name != pattern else files)[name] = why
    return files, folders, tuple(others)


def protected(path: str) -> str:
    """Why a file is asked about before it is written; empty when it isn't.

    Args:
        path: an absolute path. Upper and lower case are one here, as they are on many disks.

    Returns:
        The reason, for people.
    """
    files, folders, others = _tables()
    *above, name = path.lower().split("/")
    if why := files.get(name) or next((folders[one] for one in above if one in folders), ""):
        return why
    return next((why for pattern, why in others if matches_glob(pattern, path.lower())), "")


def may_be_protected(glob: str) -> str:
    """The same for a pattern of absolute paths, as a shell fills it in: why one of them would be asked about."""
    low = glob.lower()
    found = (why for patterns, why in PROTECTED for pattern in patterns.split() if may_overlap(f"**/{pattern}", low))
    return next(found, "")


Mode = Literal["default", "accept_edits", "plan", "bypass"]
Decision = Literal["allow", "ask", "deny"]
Kind = Literal["look", "edit", "command", "other"]

_RULE = re.compile(r"([A-Za-z_][\w-]*|mcp__[\w-]+)(?:\((.*)\))?", re.DOTALL)
OF_EDITS = frozenset({"Edit", "Write", "MultiEdit"})
_LOOKS = frozenset({"Read", "Grep", "Glob"})
OF_FILES = OF_EDITS | _LOOKS  # rules for these hold for commands that name such files, too
# Programs that only show the files which they are given.
_READERS = frozenset(
    "cat head tail wc grep egrep fgrep rg ls stat file diff cmp du test [ nl od tree find sort sed cut uniq".split()
)
_MOST_WILD = 200
_MOST_NAMED = 3  # parts of a command, in a reason
_GIT_READS = frozenset("add status diff log show blame ls-files grep check-ignore rev-parse rm".split())


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """A tool, and what of it: words of a command, a pattern for paths, or everything (None)."""

    tool: str
    pattern: str | None = None

    @classmethod
    def of(cls, text: str) -> PermissionRule:
        """A rule as people write it; `BadSetting` when it isn't one."""
        found = _RULE.fullmatch(text.strip())
        if found is None or found[2] == "":
            raise BadSetting(
                f"not a permission rule: {text[:80]!r}; write Tool or Tool(pattern), as Bash(git status:*)"
            )
        if found[1] in OF_FILES and (why := problem(found[2] or "")):
            raise BadSetting(f"permission rule {text[:80]!r} can't be held to: {why}; write several rules")
        return cls(found[1], None if found[2] in (None, "*") else found[2])

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"


@dataclass(frozen=True, slots=True)
class PermissionRules:
    """The rules of all scopes together."""

    allow: tuple[PermissionRule, ...] = ()
    ask: tuple[PermissionRule, ...] = ()
    deny: tuple[PermissionRule, ...] = ()

    @classmethod
    def of(cls, *, allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = ()) -> PermissionRules:
        return cls(*(tuple(PermissionRule.of(text) for text in some) for some in (allow, ask, deny)))

    def allowing(self, *more: PermissionRule) -> PermissionRules:
        """With more that is allowed, as a person said."""
        return PermissionRules((*self.allow, *more), self.ask, self.deny)


@dataclass(frozen=True, slots=True)
class CallPath:
    """A path of a call: as it was written, where it really leads, and whether that is in the project."""

    given: str
    real: str
    is_inside: bool


@dataclass(frozen=True, slots=True)
class ToolEffects:
    """What a call would do. `paths` are looked at or changed, by `kind`; `command` is a shell's.

    Of a command: `cwd` is the folder that it runs in ("": the project's); `leads` are the real paths of what it names,
    with the forbidden ones below folders that it goes through, if those were looked for (`is_walked`); `may_lead` are
    forbidden ones below folders that it may go through. `git` says why git may run a program of a repository's choice
    there, empty when it can't. `is_unboxed`: it would leave the sandbox.
    """

    tool: str
    kind: Kind = "other"
    paths: tuple[CallPath, ...] = ()
    command: str | None = None
    cwd: str = ""
    leads: tuple[str, ...] = ()
    is_walked: bool = False
    may_lead: tuple[str, ...] = ()
    git: str = ""
    is_unboxed: bool = False


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    """The decision, who made it (a rule, or the mode), and why, for people and the model."""

    decision: Decision
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class PermissionPolicy:
    """Everything that a verdict depends on beside the call: rules, mode, the project's real folder, the user's home.

    `own` are files that the agent itself was told to write, such as its plan.
    """

    rules: PermissionRules = field(default_factory=PermissionRules)
    mode: Mode = "default"
    root: str = "/"
    home: str = "/"
    own: tuple[str, ...] = ()


def decide(effects: ToolEffects, policy: PermissionPolicy) -> PermissionDecision:
    """Whether a call may be made."""
    rules = policy.rules
    for rule in rules.deny:
        if _hits(rule, effects, policy) == "yes":
            return PermissionDecision("deny", f"rule {rule}", f"the rule {rule} forbids it")
    for rule in rules.ask:
        if _hits(rule, effects, policy) != "no":
            return PermissionDecision("ask", f"rule {rule}", f"the rule {rule} says to ask")
    if policy.mode == "plan" and (refused := _refused_in_plan(effects, policy)):
        return refused
    unsure = _unsure(effects, policy)
    if unsure is not None:
        return unsure
    if effects.is_unboxed:
        return PermissionDecision("ask", "sandbox", "it would run outside of the sandbox")
    if policy.mode == "bypass":
        return PermissionDecision("allow", "mode bypass", "")
    return _protects(effects, policy) or _by_rule_or_mode(effects, policy)


def _unsure(effects: ToolEffects, policy: PermissionPolicy) -> PermissionDecision | None:
    """What no mode lets through: a command that a rule may forbid, or that can't be read where rules forbid some."""
    limiting = [
        rule
        for rule in (*policy.rules.deny, *policy.rules.ask)
        if rule.pattern is not None and (rule.tool == "Bash" or rule.tool in OF_FILES)
    ]
    if effects.command is None or not limiting:
        return None
    for rule in limiting:
        if _hits(rule, effects, policy) == "perhaps":
            return PermissionDecision("ask", f"rule {rule}", f"it may be what the rule {rule} speaks of")
    if why := unreadable(effects.command):
        return PermissionDecision("ask", "unclear command", f"{why}, and some are forbidden")
    of_files = [rule for rule in limiting if rule.tool in OF_FILES]
    if of_files and not only_looks(effects.command):
        named = _named(effects, policy)
        if named.doubt:
            return PermissionDecision("ask", "unclear command", f"{named.doubt}, and some files are forbidden")
        if not effects.is_walked and (found := next((r for r in of_files if _is_below(r, named, policy)), None)):
            return PermissionDecision(
                "ask", f"rule {found}", f"it goes through folders that may hold what {found} speaks of"
            )
        if effects.may_lead:
            return PermissionDecision("ask", "rules for files", f"it may go on to {effects.may_lead[0]}")
        if found := next((r for r in of_files if r.tool in _LOOKS and _may_be_kept(r, named, policy)), None):
            return PermissionDecision(
                "ask", f"rule {found}", f"it may print what {found} speaks of out of a repository's history"
            )
    return None


def _protects(effects: ToolEffects, policy: PermissionPolicy) -> PermissionDecision | None:
    """Files that others run or obey are changed only when a person says so (SEC-9)."""
    if effects.kind == "edit" and not _is_granted(effects, policy):
        for where in effects.paths:
            why = protected(where.real) or protected(_absolute(where.given, policy, effects.cwd))
            if why and where.real not in policy.own:
                return PermissionDecision("ask", "protected file", f"{where.real}: {why}")
    if effects.command is not None and not only_looks(effects.command) and not _only_reads(effects.command):
        named = _named(effects, policy)
        if sum(path.is_wild for path in named.paths) > _MOST_WILD:
            return PermissionDecision("ask", "unclear command", "it names too many files by wildcards to be certain of")
        for path in named.paths:
            why = may_be_protected(path.lexical) if path.is_wild else protected(path.lexical)
            if why:
                return PermissionDecision("ask", "protected file", f"{path.lexical[:200]}: {why}")
        if found := next((path for path in effects.leads if protected(path)), None):
            return PermissionDecision("ask", "protected file", f"{found}: {protected(found)}")
    return None


def _only_reads(command: str) -> bool:
    """Whether each part of a command shows files at most, so that it may name protected ones."""
    plain = parse_command(command)
    return plain is not None and all(changes_nothing(one) or _reads(one) for one in plain)


def _reads(one: PlainCommand) -> bool:
    if one.words[:1] == ("git",):
        return len(one.words) > 1 and one.words[1] in _GIT_READS and not beyond_words(one, 1)
    return name_of(one.words) in _READERS and not beyond_words(one, 1)


def _is_granted(effects: ToolEffects, policy: PermissionPolicy) -> bool:
    """Whether a rule that names these files, and not only many more, allows them all."""
    return any(_is_meant(rule.pattern) and _allows(rule, effects, policy) for rule in policy.rules.allow)


def _is_meant(pattern: str | None) -> bool:
    """Whether a pattern speaks of protected files, whatever its wildcards stand for."""
    plain = [re.sub(r"\*+|\?", "x", one) for one in expand_braces(pattern or "")]
    return bool(pattern) and all(protected(f"/{one}") for one in plain)


def _refused_in_plan(effects: ToolEffects, policy: PermissionPolicy) -> PermissionDecision | None:
    why = "plan mode is on: look, think, and show the plan with ExitPlanMode; nothing is changed before it is approved"
    if effects.kind == "edit" and not all(where.real in policy.own for where in effects.paths):
        return PermissionDecision("deny", "mode plan", why)
    if effects.command is not None and not only_looks(effects.command):
        return PermissionDecision("deny", "mode plan", why)
    return None


def _by_rule_or_mode(effects: ToolEffects, policy: PermissionPolicy) -> PermissionDecision:
    if effects.command is not None:
        return _command(effects, effects.command, policy)
    for rule in policy.rules.allow:
        if _allows(rule, effects, policy):
            return PermissionDecision("allow", f"rule {rule}", "")
    if all(where.real in policy.own for where in effects.paths) and effects.paths:
        return PermissionDecision("allow", "the agent's own file", "")
    outside = next((where for where in effects.paths if not where.is_inside), None)
    if outside is not None:
        leads = "" if outside.given == outside.real else f" (leads to {outside.real})"
        return PermissionDecision("ask", "outside the project", f"{outside.given}{leads} is outside the project")
    if effects.kind == "edit" and policy.mode != "accept_edits":
        return PermissionDecision("ask", f"mode {policy.mode}", "it changes files")
    return PermissionDecision("allow", f"mode {policy.mode}", "")


def _command(effects: ToolEffects, command: str, policy: PermissionPolicy) -> PermissionDecision:
    """A command is allowed when each of its parts is, or when commands are allowed as such."""
    whole = next((rule for rule in policy.rules.allow if rule == PermissionRule("Bash")), None)
    if whole is not None:
        return PermissionDecision("allow", f"rule {whole}", "")
    plain = parse_command(command)
    if plain is None:
        return PermissionDecision("ask", f"mode {policy.mode}", "it isn't certain what the command runs")
    if effects.git and any(name_of(one.words) == "git" for one in plain):
        return PermissionDecision("ask", "git", f"git may run more than its own here: {effects.git}")
    if only_looks(command):
        return PermissionDecision("allow", "only looks", "")
    wanting = [" ".join((*one.assigned, *one.words)) for one in plain if not _is_allowed(one, policy.rules.allow)]
    if not wanting:
        return PermissionDecision("allow", "rules for its parts", "")
    named = " or ".join(one[:200] for one in wanting[:_MOST_NAMED])
    more = f", nor {len(wanting) - _MOST_NAMED} other parts" if len(wanting) > _MOST_NAMED else ""
    return PermissionDecision("ask", f"mode {policy.mode}", f"no rule allows {named}{more}")


def _is_allowed(one: PlainCommand, allow: tuple[PermissionRule, ...]) -> bool:
    if changes_nothing(one):
        return True
    if one.is_expanded or not sets_harmless(one):
        return False
    return any(rule.tool == "Bash" and rule.pattern is not None and _names(rule.pattern, one) for rule in allow)


def _names(pattern: str, one: PlainCommand) -> bool:
    """Whether a rule's pattern names a plain command: its first words with `:*` behind them, or all of them."""
    wanted, is_prefix = words_of(pattern)
    if not is_prefix:
        return bool(wanted) and one.words == wanted
    return bool(wanted) and one.words[: len(wanted)] == wanted and not beyond_words(one, len(wanted))


def words_of(pattern: str) -> tuple[tuple[str, ...], bool]:
    """The words of a rule for commands, and whether more may follow."""
    for ending in (":*", " *"):
        if pattern.endswith(ending):
            return tuple(pattern.removesuffix(ending).split()), True
    return tuple(pattern.split()), False


def _allows(rule: PermissionRule, effects: ToolEffects, policy: PermissionPolicy) -> bool:
    """Whether a rule that allows means all of a call, which is no command."""
    if not _is_tool(rule.tool, effects):
        return False
    if rule.pattern is None:
        return all(where.is_inside for where in effects.paths)  # to go outside takes a pattern that says where
    patterns = _patterns(rule.pattern, policy, anywhere=False)
    return bool(effects.paths) and all(
        any(matches_glob(one, where.real) for one in patterns) for where in effects.paths
    )


def _hits(rule: PermissionRule, effects: ToolEffects, policy: PermissionPolicy) -> Likelihood:
    """Whether a rule that denies or asks speaks of a call, also of a part of it only."""
    if effects.command is not None and rule.tool in OF_FILES:
        return _names_file(rule, effects, policy)
    if not _is_tool(rule.tool, effects):
        return "no"
    if rule.pattern is None:
        return "yes"
    if effects.command is not None:
        wanted, is_prefix = words_of(rule.pattern)
        if effects.command.strip() == rule.pattern:
            return "yes"
        found = runs(effects.command, wanted, is_prefix=is_prefix) if wanted else "no"
        return found if found != "no" else _is_linked(wanted, effects)
    paths = (path for where in effects.paths for path in (where.real, _absolute(where.given, policy, effects.cwd)))
    return "yes" if any(_speaks_of(rule.pattern, NamedPath(path), policy) for path in paths) else "no"


def _is_linked(wanted: tuple[str, ...], effects: ToolEffects) -> Likelihood:
    """A program may be called by another name, through a link or a copy: where a word leads to it, it may be meant."""
    is_named = wanted and any(path.rsplit("/", 1)[-1] == wanted[0] for path in effects.leads)
    return "perhaps" if is_named and not only_lists(effects.command or "") else "no"


def _is_tool(tool: str, effects: ToolEffects) -> bool:
    if tool == effects.tool:
        return True
    return (tool == "Edit" and effects.kind == "edit" and effects.tool in OF_EDITS) or (
        tool == "Read" and effects.tool in _LOOKS
    )


def _names_file(rule: PermissionRule, effects: ToolEffects, policy: PermissionPolicy) -> Likelihood:
    """Whether a command names a file that a rule for files is about. A command has more ways to reach a file."""
    if rule.pattern is None or effects.command is None:
        return "no"
    for named in _named(effects, policy).paths:
        if _speaks_of(rule.pattern, named, policy):
            return "perhaps" if named.is_wild else "yes"
    is_led = any(_speaks_of(rule.pattern, NamedPath(path), policy) for path in effects.leads)
    return "yes" if is_led else "no"


def _named(effects: ToolEffects, policy: PermissionPolicy) -> CommandPaths:
    return paths_in_command(effects.command or "", effects.cwd or policy.root, policy.home)


def _is_below(rule: PermissionRule, named: CommandPaths, policy: PermissionPolicy) -> bool:
    """Whether what a rule speaks of may be in one of the folders that a command goes through."""
    inside = [f"{_quoted(folder.rstrip('/'))}/**".lower() for folder in named.below]
    return any(
        may_overlap(pattern.lower(), below) for pattern in _patterns(rule.pattern or "", policy) for below in inside
    )


def _may_be_kept(rule: PermissionRule, named: CommandPaths, policy: PermissionPolicy) -> bool:
    """Whether the history that a command prints may hold what a rule speaks of.

    A repository may begin in any folder above, but for the user's home and those above that.
    """
    home = f"{policy.home.rstrip('/')}/"
    tops: set[str] = set()
    for place in named.histories:
        while place != "/" and not (home.startswith(f"{place}/") and tops):
            tops.add(place)
            place = posixpath.dirname(place)
    patterns = [pattern.lower() for pattern in _patterns(rule.pattern or "", policy)]
    return any(may_overlap(one, f"{_quoted(top)}/**".lower()) for one in patterns for top in tops)


def has_rule_for(rules: Iterable[PermissionRule], path: str, policy: PermissionPolicy) -> bool:
    """Whether one of these rules for files, which deny or ask, is about a path."""
    some = (rule for rule in rules if rule.tool in OF_FILES and rule.pattern is not None)
    return any(_speaks_of(rule.pattern or "", NamedPath(path), policy) for rule in some)


def folders_of(rule: PermissionRule, policy: PermissionPolicy) -> tuple[str, ...]:
    """The paths that a rule for files names without any wildcard: files, or folders with all that is in them."""
    found = (re.sub(r"/\*\*\Z|/\Z", "", one) for one in _patterns(rule.pattern or "", policy))
    plain = (one for one in found if not re.search(r"(?<!\\)[*?\[]", one))
    return tuple(re.sub(r"\\(.)", r"\1", one) for one in plain if one)


def _speaks_of(pattern: str, named: NamedPath, policy: PermissionPolicy) -> bool:
    """Whether a rule that denies or asks is about a path: it is called so, is in such a folder, or is the folder whose
    content is meant. Upper and lower case are one, as they are on many disks.
    """
    test = may_overlap if named.is_wild else matches_glob
    path = named.lexical.lower()
    for one in _patterns(pattern, policy):
        low = one.lower().rstrip("/")
        folder = low.removesuffix("/**")
        if test(low, path) or test(f"{low}/**", path) or (folder and test(folder, path)):
            return True
    return False


def _absolute(word: str, policy: PermissionPolicy, cwd: str = "") -> str:
    if word == "~" or word.startswith("~/"):
        word = policy.home + word[1:]
    return posixpath.normpath(posixpath.join(cwd or policy.root, word))


def _patterns(pattern: str, policy: PermissionPolicy, *, anywhere: bool = True) -> tuple[str, ...]:
    """The patterns of absolute paths that a rule's pattern stands for: `//x` is absolute, `~/x` in the user's home, `x`
    in the project, at any depth when it has no slash (and with `anywhere` outside of it, too).
    """
    return _absolute_patterns(pattern, _quoted(policy.root.rstrip("/")), _quoted(policy.home.rstrip("/")), anywhere)


@lru_cache(maxsize=1_024)
def _absolute_patterns(pattern: str, root: str, home: str, anywhere: bool) -> tuple[str, ...]:
    found = []
    for one in expand_braces(pattern):
        if one.startswith("//"):
            found.append(one[1:])
        elif one == "~" or one.startswith("~/"):
            found.append(home + one[1:])
        elif "/" not in one.rstrip("/"):
            found.append(f"/**/{one}" if anywhere else f"{root}/**/{one}")
        else:
            found.append(f"{root}/{one.removeprefix('./').removeprefix('/')}")
    return tuple(found)


@lru_cache(maxsize=64)
def _quoted(path: str) -> str:
    """A path as a pattern that fits it only."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)
