"""What a shell command certainly runs, and which files it may name. Pure, and unsure on purpose."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

from perdure.text.globs import expand_braces, matches_glob

_OPERATORS = ("&&", "||", ";", "|", "\n")
_NOWHERE = re.compile(r"(?:[012]?>>?[ \t]*/dev/null|2>&1|&>[ \t]*/dev/null|1>&2)(?=[\s;|&]|\Z)")
_PLAIN = re.compile(r"[\w./:=@%+,~^*?\[\]-]+", re.ASCII)
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_KEYWORDS = frozenset(
    "if then else elif fi for while until do done case esac in function select time coproc { } [[ ]] !".split()
)
_DEPTH = 4
_LONGEST = 16  # words of a rule that are compared


@dataclass(frozen=True, slots=True)
class PlainCommand:
    """One plain command: its words as the shell passes them on, and the variables set in front of it.

    `is_expanded`: an unquoted word begins with a wildcard, so a file's name could become an option. `wild` are the
    numbers of words in which the shell fills in names for wildcards.
    """

    words: tuple[str, ...]
    assigned: tuple[str, ...] = ()
    is_expanded: bool = False
    wild: frozenset[int] = frozenset()


def parse_command(command: str) -> tuple[PlainCommand, ...] | None:
    """The plain commands that a command line consists of; None when it isn't certain what it runs."""
    found: list[PlainCommand] = []
    words: list[_ShellWord] = []
    at = 0
    while at < len(command):
        if command[at] in " \t":
            at += 1
            continue
        operator = next((o for o in _OPERATORS if command.startswith(o, at)), None)
        if operator is not None:
            if not _end_command(words, found, operator, command[at + len(operator) : at + len(operator) + 1]):
                return None
            at += len(operator)
            continue
        nowhere = _NOWHERE.match(command, at)
        if nowhere is not None:
            at = nowhere.end()
            continue
        word = _read_word(command, at)
        if word is None:
            return None
        at = word.end
        words.append(word)
    if words and not _add_command(words, found):
        return None
    return tuple(found) or None


def _end_command(words: list[_ShellWord], found: list[PlainCommand], operator: str, following: str) -> bool:
    """An operator ends a command; an empty one is fine only between lines."""
    if operator in ("|", ";") and following in ("&", ";", "|"):
        return False
    if not words:
        return operator == "\n"
    return _add_command(words, found)


def _add_command(words: list[_ShellWord], found: list[PlainCommand]) -> bool:
    texts = [word.text for word in words]
    first = next((n for n, word in enumerate(words) if not _ASSIGNED.match(word.head)), len(words))
    if first < len(words) and (texts[first] in _KEYWORDS or not texts[first] or set(texts[first]) & set("*?[]~")):
        return False
    expanded = any(word.head[:1] in ("*", "?", "[") for word in words[first:])
    wild = frozenset(n - first for n, word in enumerate(words) if n >= first and word.is_wild)
    found.append(PlainCommand(tuple(texts[first:]), tuple(texts[:first]), expanded, wild))
    words.clear()
    return True


@dataclass(frozen=True, slots=True)
class _ShellWord:
    """A word: its text, the part of it before any quote, where it ends, and whether the shell fills something in."""

    text: str
    head: str
    end: int
    is_wild: bool


def _read_word(command: str, at: int) -> _ShellWord | None:
    """The word that begins here."""
    text, start, head = "", at, ""
    is_quoted = is_wild = False
    while at < len(command) and command[at] not in " \t\n;|&":
        sign = command[at]
        if sign == "'" or sign == '"':
            end = command.find(sign, at + 1)
            inner = command[at + 1 : end]
            if end < 0 or (sign == '"' and set(inner) & set("$`\\!")):
                return None
            text, is_quoted, at = text + inner, True, end + 1
            continue
        plain = _PLAIN.match(command, at)
        if plain is None or (at == start and sign == "#"):
            return None
        text, at = text + plain[0], plain.end()
        is_wild = is_wild or bool(set(plain[0]) & set("*?["))
        head = head if is_quoted else text
    return _ShellWord(text, head, at, is_wild) if at > start else None  # a sign that begins no word


# --- what a command may run, also through others ---------------------------------------------------------------------

Likelihood = Literal["no", "perhaps", "yes"]

# Run what they are given, so that whom they run has to be looked for behind them.
_WRAPPERS = frozenset(
    "sudo doas env command builtin exec nohup nice ionice timeout time xargs find watch parallel setsid stdbuf chroot "
    "unshare flock strace ltrace busybox toybox ssh script taskset setpriv prlimit chrt numactl systemd-run runuser su "
    "bwrap firejail nsenter fakeroot dbus-run-session runcon setarch linux32 linux64 trap coproc entr ".split()
)
_SHELLS = frozenset(
    "sh bash zsh dash ksh mksh ash fish csh tcsh rbash yash posh oksh loksh hush sash osh rc es nu xonsh elvish pwsh "
    "powershell eval trap".split()
)
_FOREIGN = frozenset("fish csh tcsh rc es nu xonsh elvish pwsh powershell".split())  # with languages of their own
# Start a shell, which takes its commands from what is piped in, when no command is named behind them.
_OPENERS = frozenset(
    "su runuser sg newgrp login script chroot unshare nsenter setarch linux32 linux64 i386 x86_64 ssh".split()
)
# Builtins of bash that calculate with their words: `a[$(rm x)]`, as the name of a variable, runs rm.
_CALCULATE = frozenset(
    "test [ unset declare typeset local readonly export wait let printf getopts shift exit return ulimit".split()
)
# Words behind these are data: names, texts, patterns. Behind any other program, a word may be a program again.
_TAKE_DATA = frozenset(
    "echo true false pwd cd pushd popd ls cat head tail wc grep egrep fgrep cut uniq tr tee rm mkdir rmdir touch chmod "
    "chown chgrp stat file diff cmp comm basename dirname realpath readlink sleep kill ps df du which type test [ date "
    "whoami id uname hostname sha1sum sha256sum md5sum base64 od hexdump strings column nl fold seq tree jq "
    "export declare typeset readonly local set unset exit return : umask wait".split()
)
_INLINE = {  # the letters of options that take code, of programs that run what they read otherwise
    "python": "c", "pypy": "c", "perl": "eE", "ruby": "e", "node": "ep", "nodejs": "ep", "bun": "ep", "deno": "ep",
    "php": "rBREF", "lua": "e", "luajit": "e", "rscript": "e", "julia": "eE", "groovy": "e", "tclsh": "c",
    "expect": "c", "osascript": "e", "guile": "ce", "irb": "e", "ghci": "e", "iex": "e", "elixir": "e", "scala": "e",
}  # fmt: skip
_INLINE_LONG = ("--eval", "--print", "--exec", "--command", "--execute", "--run", "--import", "--require")
_CODE_MODULES = frozenset(
    "timeit pdb code codeop trace cProfile profile runpy idlelib IPython asyncio ptpython bpython pudb".split()
)
# Options of interpreters in front of a script that change nothing of what runs; some take the next word.
_HARMLESS_OPTIONS = re.compile(
    r"-[bBEIOPqsSuvVwt?h]+|-[WX].+|--(?:version|help|test|watch|no-warnings|trace-[\w-]+|enable-source-maps"
    r"|max-old-space-size=\d+|inspect[\w=:.-]*|experimental-(?:strip-types|transform-types|vm-modules)|vanilla"
    r"|allow-[\w=,.:/-]+|no-\w+|silent|bun|hot)"
)
_WITH_VALUE = frozenset({"-W", "-X"})
_PROGRAMMABLE = frozenset(  # their arguments are programs, or they take what they run from elsewhere
    "awk gawk mawk nawk xargs parallel vi vim nvim view ex ed emacs gdb lldb sqlite3 m4 bc dc socat nc ncat at batch "
    "crontab screen tmux expect less more man psql mysql mariadb ftp lftp sftp telnet gnuplot octave r sbcl clisp "
    "ocaml utop jshell racket erl kotlin kotlinc scheme gst maxima mutt mail mailx nano pico vimdiff gvim gvimdiff "
    "rvim nvi ansible ansible-console nix-shell vagrant logrotate".split()
)
_RENAMES = frozenset("alias unalias shopt enable hash bind complete compopt fc source . mapfile readarray read".split())
_MAKE_INLINE = re.compile(r"-\w*f-|--(?:file|makefile)=(?:-|/dev/)|--ev|-\Z|/dev/")  # rules for make that no file holds
_SEDS = frozenset({"sed", "gsed", "ssed"})
_SIMPLE_SED = re.compile(
    r"[\d,$ ]*(?:[pdq=]|s(?P<d>[/|#,:])(?:(?!(?P=d)).)*(?P=d)(?:(?!(?P=d)).)*(?P=d)[gIip\d]*)", re.S
)
_POWERFUL_VARIABLES = re.compile(  # variables that change what runs, or where names lead
    r"(?:PATH|IFS|ENV|HOME|SHELL|SHELLOPTS|BASHOPTS|PS4|CDPATH|EDITOR|VISUAL|PAGER|BROWSER|[A-Z]*PAGER|PROMPT_COMMAND"
    r"|BASH_\w+|LD_\w+|DYLD_\w+|GIT_\w+|SSH_\w+|PYTHON\w+|PERL\w+|RUBY\w+|NODE_OPTIONS|NODE_PATH|JAVA_TOOL_OPTIONS"
    r"|MAKEFLAGS|MAKEFILES|LESS\w*|TAR_OPTIONS|GREP_OPTIONS|RIPGREP_CONFIG_PATH|npm_config_\w+|NPM_CONFIG_\w+|CARGO_\w+"
    r"|RUSTC\w*|CC|CXX|LUA_\w+|MANPAGER|XDG_\w+|OLDPWD|PWD|DIRSTACK)\+?=.*",
    re.DOTALL,
)
_GIT_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source"})
_GIT_VERBS = frozenset(
    "add am annotate apply archive blame branch bundle cat-file check-ignore checkout cherry cherry-pick clean clone "
    "commit count-objects describe diff fetch format-patch fsck gc grep init log ls-files ls-remote ls-tree merge "
    "merge-base mv notes pull push range-diff reflog remote reset restore rev-list rev-parse revert rm shortlog show "
    "show-ref sparse-checkout stash status switch tag version worktree whatchanged help rebase bisect submodule".split()
)
_GIT_HARMLESS = re.compile(  # in front of a verb
    r"-C|-p|-P|--(?:paginate|no-pager|bare|literal-pathspecs|glob-pathspecs|noglob-pathspecs|icase-pathspecs"
    r"|no-optional-locks|no-replace-objects|no-lazy-fetch|no-advice|version|help|(?:git-dir|work-tree|namespace)(?:=.*)?)",
    re.DOTALL,
)
_GIT_RUNS = frozenset(  # behind it, also abbreviated, as git takes them
    "--exec --upload-pack --receive-pack --ext-diff --textconv --open-files-in-pager --extcmd --template --config "
    "--tool".split()
)
_GIT_SHORT = {"clone": "uc", "grep": "O", "rebase": "x", "difftool": "x"}  # the same by one letter
_CODE = re.compile(r"[\s;|&'\"()\[\]{},$`!<>]")
_MOST_WORDS = 200  # of a command that is looked into; one with more isn't certain


def runs(command: str, wanted: tuple[str, ...], *, is_prefix: bool = True) -> Likelihood:
    """Whether a command line runs a command that begins with these words (or is exactly these).

    Options in front of a verb are passed over, wrappers are looked through, and behind a program that nobody knows
    any word may begin a command. Rather too often than not.
    """
    best: Likelihood = "no"
    for words, is_sure in _commands_run(command, _DEPTH):
        found = _fits_rule(words, wanted[:_LONGEST], is_prefix)
        if found == "yes" and is_sure:
            return "yes"
        if found != "no":
            best = "perhaps"
    return best


def unreadable(command: str) -> str:
    """Why it isn't certain what a command line runs; empty when it is, as far as its own words go."""
    plain = parse_command(command)
    if plain is None:
        return "it isn't certain what the command runs"
    return next((why for one in plain if (why := _why_unsure(one.words, one.assigned, _DEPTH))), "")


def name_of(words: Sequence[str]) -> str:
    """The program that words call, without its folder."""
    return words[0].rsplit("/", 1)[-1].lower() if words else ""


def takes_only_data(words: tuple[str, ...]) -> bool:
    """Whether the words behind a program are data to it, none of them a program to run."""
    name = name_of(words)
    if name == "git":
        return _git_takes_data(words)
    if name == "sort" or name == "rg":
        return not _options(words, frozenset({"--compress-program", "--pre", "--hostname-bin"}))
    return name in _TAKE_DATA or (name == "printf" and not any(word.startswith("-v") for word in words[1:2]))


def _git_takes_data(words: tuple[str, ...]) -> bool:
    """Whether git runs nothing that its words name: no configuration by hand, no program, no address of a helper."""
    plain = _without_options(words)
    before, rest = words[1 : len(words) - len(plain) + 1], plain[2:]
    if len(plain) < 2 or plain[1] not in _GIT_VERBS:
        return False
    is_value = False
    for word in before:
        if not is_value and not _GIT_HARMLESS.fullmatch(word):
            return False
        is_value = not is_value and word in _GIT_VALUES
    letters = frozenset(f"-{letter}" for letter in _GIT_SHORT.get(plain[1], ""))
    if _options(("", *rest), _GIT_RUNS | letters) or any(re.match(r"[\w+-]+::", word) for word in rest):
        return False
    return not (plain[1] in ("submodule", "bisect") and {"foreach", "run"} & set(rest))


def _commands_run(command: str, depth: int) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The commands that may be run by a line, also by those that run others; and whether they certainly are meant."""
    plain = parse_command(command)
    if plain is None:
        loose = re.sub(r"[\\'\"]", "", command)
        for part in re.split(r"[;&|\n(){}`<>]|\$\(", loose):
            words = tuple(part.split())
            yield from ((words[n : n + _LONGEST], True) for n in range(len(words)))
        return
    for one in plain:
        yield from _commands_within(one.words, depth)
        for value in one.assigned:
            yield from _words_within(value)


def _commands_within(words: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], bool]]:
    yield words, True
    if takes_only_data(words):
        return
    name = name_of(words)
    is_known = name in _WRAPPERS or name in _SHELLS
    for n in range(1, min(len(words), _MOST_WORDS)):
        yield words[n:], is_known
    for word in words[1:_MOST_WORDS]:
        if is_known and depth:
            yield from _commands_run(word, depth - 1)
        elif _CODE.search(word) or "=" in word:
            yield from _words_within(word)


def _words_within(text: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Words of something that isn't the shell's language, wherever a command may begin in it."""
    unquoted = re.sub(r"[\\'\"]", "", text)  # a shell that gets it takes quotes from within words
    for one in dict.fromkeys((text, *(each for each in (unquoted, *expand_braces(unquoted)[:_MOST_WORDS])))):
        words = tuple(re.findall(r"[\w./+@%~*?-]+", one))
        yield from ((words[n : n + _LONGEST], False) for n in range(min(len(words), _MOST_WORDS)))


def _fits_rule(words: tuple[str, ...], wanted: tuple[str, ...], is_prefix: bool) -> Likelihood:
    """Whether words are a command that a rule's words name."""
    if not words or not wanted:
        return "no"
    if words[0] != wanted[0] and not _may_be(name_of(words), name_of(wanted)):
        first, _, verb = name_of(words).partition("-")  # `git-push` is `git push`
        return _fits_rule(("git", verb, *words[1:]), wanted, is_prefix) if first == "git" and verb else "no"
    given = _without_options(words)
    if not is_prefix:
        return "yes" if words[1:] == wanted[1:] or given[1:] == wanted[1:] else "no"
    best: Likelihood = "yes"
    at, is_value = 1, False
    for word in wanted[1:]:
        if word.startswith("-"):
            found = _has_option(given[1:], word)
            best = "perhaps" if found == "perhaps" else best
            if found == "no":
                return "no"
            continue
        while at < len(given) and not _may_be(given[at], word):
            if given[at].startswith("-"):
                is_value = "=" not in given[at]
            elif is_value:  # it may belong to the option before it
                best, is_value = "perhaps", False
            elif name_of(words) == "git" and at == 1 and given[1] not in _GIT_VERBS:
                return "perhaps"  # an alias, which may stand for anything
            else:
                return "no"
            at += 1
        if at >= len(given):
            return "no"
        at, is_value = at + 1, False
    return best


def _may_be(word: str, wanted: str) -> bool:
    return word == wanted or (bool(set(word) & set("*?[")) and matches_glob(word, wanted))


def _has_option(words: Sequence[str], wanted: str) -> Likelihood:
    """Whether an option is among words: as it is, in another order, joined with others, or perhaps by another name."""
    long = [word.split("=", 1)[0] for word in words if word.startswith("--") and word != "--"]
    letters = {char for word in words if re.match(r"-[^-]", word) for char in word[1:]}
    if wanted in words or wanted in long:
        return "yes"
    if wanted.startswith("--"):
        return "perhaps" if letters or any(wanted.startswith(word) for word in long) else "no"
    if set(wanted[1:]) <= letters:
        return "yes"
    return "perhaps" if long else "no"


def _without_options(words: tuple[str, ...]) -> tuple[str, ...]:
    """A command of git without what stands before its verb; any other as it is."""
    if name_of(words) != "git":
        return words
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GIT_VALUES else 1
    return (words[0], *words[at:])


def _options(words: Sequence[str], wanted: frozenset[str]) -> bool:
    """Whether one of these options is among words: with its value behind it, abbreviated, or joined to others."""
    for word in words[1:]:
        name = word.split("=", 1)[0]
        if name in wanted:
            return True
        if word.startswith("--") and len(name) > 3 and any(one.startswith(name) for one in wanted):
            return True
        if re.match(r"-[^-]", word) and any(len(one) == 2 and one[1] in word[1:] for one in wanted):
            return True
    return False


def _why_unsure(words: tuple[str, ...], assigned: tuple[str, ...], depth: int, *, is_sure: bool = True) -> str:
    """Why a plain command may run something that its words don't say."""
    if any(_POWERFUL_VARIABLES.fullmatch(word) for word in assigned):
        return f"{assigned[0].split('=', 1)[0]} may change what the command runs"
    if any(set(word) & set("$`") for word in assigned):
        return f"the value of {assigned[0].split('=', 1)[0]} holds what a shell fills in"
    if not words:
        return ""
    if len(words) > _MOST_WORDS or not depth:
        return "there is too much in the command to be certain what it runs"
    name = name_of(words)
    if name in _RENAMES:
        return f"{name} can change what names mean, or runs what stands elsewhere"
    if name in ("export", "declare", "typeset", "readonly", "local", "env", "sudo", "doas") and (
        why := _why_unsure((), tuple(word for word in words[1:] if "=" in word), depth)
    ):
        return why
    if name == "env" and _options(words, frozenset({"-S", "--split-string"})):
        return "env -S takes a command apart in its own way"
    if (why := _why_code(name, words, depth, is_sure)) or takes_only_data(words):
        return why
    if name not in _SEDS and (why := _why_filled_in(name, words)):
        return why
    for n in range(1, len(words)):
        if why := _why_unsure_behind(words[n:], depth, name):
            return why
    return ""


def _why_filled_in(name: str, words: tuple[str, ...]) -> str:
    """Why a word may be code, for whoever gets it, that doesn't say what it runs: `-x 'r\\m x'`, `-c '$a x'`."""
    first = 1
    if name == "find":  # what stands in front of its commands are patterns
        first = next((n for n, word in enumerate(words) if re.match(r"-(?:exec|ok)", word)), len(words))
    found = next((word for word in words[first:] if set(word) & set("$`\\")), None)
    return "" if found is None else f"{found[:80]!r} may be code that {name} runs"


def _why_unsure_behind(words: tuple[str, ...], depth: int, caller: str) -> str:
    """The same for a command that another one may run, if it is one of those that run what they are given."""
    name = name_of(words)
    is_special = (
        _is_shell(name)
        or name in _PROGRAMMABLE
        or (name in _RENAMES | _CALCULATE and caller in ("builtin", "command"))
        or name in _SEDS
        or name.endswith("awk")
        or _interpreter(name)
        or name in ("env", "git")
    )
    return _why_unsure(words, (), depth - 1, is_sure=caller in _WRAPPERS) if is_special else ""


def _is_shell(name: str) -> bool:
    """Whether a program is a shell, also one of another version or make: `bash5`, `bash-static`, `sh.distrib`."""
    return name in _SHELLS or re.split(r"[-.\d]", name, maxsplit=1)[0] in _SHELLS


def _interpreter(name: str) -> str:
    """The letters of its options that take code, when a program is an interpreter."""
    return _INLINE.get(name) or _INLINE.get(name.rstrip("0123456789."), "")


def _why_code(name: str, words: tuple[str, ...], depth: int, is_sure: bool) -> str:
    why = f"{name} runs code that can't be read for certain"
    rest = words[1:]
    operands = [word for word in rest if not word.startswith("-")]
    if name in ("eval", "trap"):
        text = " ".join(rest) if name == "eval" else (operands[0] if operands else "")
        return why if text and parse_command(text) is None else _why_unsure_nested(text, depth)
    opens = name in ("sudo", "doas") and _options(words, frozenset({"-s", "-i", "--shell", "--login"}))
    if name in _OPENERS or opens:
        return f"{name} may start a shell, whose commands come from elsewhere"
    if name in _CALCULATE and any(set(word) & set("$`") for word in rest):
        return why
    if name in ("declare", "typeset", "local") and any(re.match(r"[-+]\w*n", word) for word in rest):
        return f"{name} -n lets one variable stand for another"
    if name == "git" and any(re.match(r"--(?:config-env|exec-path)", word) for word in rest):
        return "git is told here where its configuration or its programs are"
    if name == "gh" and "alias" in operands[:1]:
        return why
    if name in ("make", "gmake") and any(_MAKE_INLINE.match(word) for word in rest):
        return why
    if _is_shell(name):
        operands = _behind_options(rest)
        if name in _FOREIGN and any(re.match(r"-\w*c", word, re.I) for word in rest):
            return why
        if any(re.match(r"-\w*[cs]", word) for word in rest):
            reads_on = not any(re.match(r"-\w*c", word) for word in rest)
            return (
                why
                if reads_on
                else next((found for word in operands if (found := _why_unsure_nested(word, depth))), "")
            )
        is_elsewhere = any(re.match(r"/+(?:dev|proc)/", word) for word in operands)
        return why if is_elsewhere or (is_sure and not operands and rest[:1] != ("--version",)) else ""
    if name in _PROGRAMMABLE or name.endswith("awk"):
        return why if is_sure or len(words) > 1 else ""
    if name in _SEDS:
        script = operands[0] if operands else ""
        is_simple = _SIMPLE_SED.fullmatch(script) and all(
            re.fullmatch(r"-[nErsi]+|--", w) for w in rest if w[:1] == "-"
        )
        return "" if is_simple else why
    if name == "printf" and rest[:1] and rest[0].startswith("-v"):
        return why
    if letters := _interpreter(name):
        return why if _runs_code(letters, rest, is_sure) else ""
    return ""


def _behind_options(rest: tuple[str, ...]) -> list[str]:
    """What stands behind a shell's options, some of which take the next word."""
    found: list[str] = []
    is_value = False
    for n, word in enumerate(rest):
        if is_value or word in ("-O", "+O", "-o", "+o", "--rcfile", "--init-file"):
            is_value = not is_value
        elif word[:1] not in ("-", "+"):
            found += rest[n:]
            break
    return found


def _runs_code(letters: str, rest: tuple[str, ...], is_sure: bool) -> bool:
    """Whether an interpreter runs anything but a script that is named: code in its words, or from what is piped in."""
    words = list(rest)
    while words:
        word = words.pop(0)
        if word in _WITH_VALUE:
            del words[:1]
        elif word.startswith(_INLINE_LONG) or word == "-":
            return True
        elif found := re.fullmatch(r"-([bBEIOPqsSuv]*)m(.*)", word, re.DOTALL):
            module = found[2] or (words[0] if words else "")
            return "m" in letters or not module or module.split(".")[0] in _CODE_MODULES
        elif not word.startswith("-"):
            is_strange = re.match(r"/+(?:dev|proc)/|data:|\w+://", word) is not None
            return is_strange or word in ("eval", "repl", "inspect") or _is_strange_run(word, words)
        elif set(word[1:]) <= set("Vvh") or word in ("--version", "--help", "--test"):
            return False
        elif not _HARMLESS_OPTIONS.fullmatch(word) or (
            word[1] != "-" and word[1] not in "WX" and set(word[1:]) & set(letters)
        ):
            return True
    return is_sure


def _is_strange_run(word: str, rest: list[str]) -> bool:
    """`deno run data:…`, whose code isn't in a file."""
    return word in ("run", "x", "exec", "test") and any(re.match(r"-\Z|data:|\w+://|/+dev/", one) for one in rest)


def _why_unsure_nested(text: str, depth: int) -> str:
    """The same for a text that a shell runs."""
    plain = parse_command(text)
    if plain is None:
        return "it isn't certain what the command runs" if text.strip() else ""
    return next((why for one in plain if (why := _why_unsure(one.words, one.assigned, depth - 1))), "")


# --- what a rule that allows a command doesn't mean ------------------------------------------------------------------

# Options with which a program works elsewhere, writes, or runs more than it is called for. `Bash(npm test:*)` means the
# tests of this project.
_ELSEWHERE = frozenset(
    "--prefix --cwd --dir --directory --chdir --git-dir --work-tree --exec-path --manifest-path --rcfile --init-file "
    "--userconfig --globalconfig --script-shell --node-options --eval --exec --config --config-file --rootdir".split()
)
_REACH: dict[str, frozenset[str]] = {
    name: frozenset(options.split())
    for names, options in {
        "npm pnpm yarn bun npx": "-C -c --call --shell --require --import --init-module",
        "make gmake": "-f --file --makefile -C -I --include-dir -E --old-file -W -o",
        "git": (
            "--upload-pack --receive-pack --ext-diff --textconv --output --open-files-in-pager -O -x "
            "--extcmd --template --strategy --no-index --show-signature --filters --submodule "
            "--recurse-submodules --gpg-sign"
        ),
        "cargo": "-C -Z --target-dir",
        "go": "-C -toolexec -overlay -modfile -vettool -exec",
        "pytest": "-p -c --confcutdir -o --override-ini",
        "uv poetry pip pipx": "--python --with --project --target -C",
        "find": "-execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from -exec",
        "rg": "--pre --hostname-bin",
        "sort": "-o --output --compress-program -T --files0-from",
        "tree": "-o --fromfile",
        "file": "-m --magic-file -C --compile -f --files-from",
        "tar": (
            "--checkpoint-action --to-command -I --use-compress-program --rsh-command -F --info-script "
            "--new-volume-script -C --rmt-command"
        ),
        "date": "-s --set -f --file",
        "sed gsed": "-i --in-place -f --file",
        "man": "-P --pager -H --html -C",
        "less more": "-o -O --log-file",
        "curl": "-o -O -K -T -D -c --output --upload-file",
        "wget": "-O -o -i --use-askpass",
        "rsync": "-e --rsh --rsync-path",
        "ssh scp sftp": "-o -F -S -J",
        "env": "-S -C -u",
        "xxd": "-r",
        "diff": "--to-file --from-file",
        "zip": "-T -TT --unzip-command",
        "docker podman": "-v -H",
        "node": "-e -p -r --require --import",
        "python python3": "-c",
        "perl ruby lua": "-e -E",
        "php": "-r -B -R -E -F",
    }.items()
    for name in names.split()
}
_ONE_FILE = frozenset({"uniq", "xxd"})  # a second name is written to


def beyond_words(one: PlainCommand, size: int) -> str:
    """What of a command goes further than the first `size` words, that a rule names, say: an option; empty if none."""
    name, rest = name_of(one.words), one.words[size:]
    more = _REACH.get(name, frozenset()) | _ELSEWHERE
    for word in rest:
        if word == "--" and name not in ("npm", "pnpm", "yarn"):
            break
        long = word.split("=", 1)[0]
        is_single_dash = name in ("find", "go") and long in more
        if is_single_dash or (name not in ("find", "go") and _options(("", word), more)) or long in more:
            return word
        if name in ("make", "gmake") and "=" in word:
            return word
        if name == "git" and re.match(r"[\w+-]+::|-\w*[uc]" if one.words[1:2] == ("clone",) else r"[\w+-]+::", word):
            return word
        is_script = name in ("sed", "gsed") and word == next((w for w in rest if w[:1] != "-"), None)
        if is_script and not _SIMPLE_SED.fullmatch(word):
            return word
    if name in ("awk", "gawk", "mawk", "nawk") and any(re.search(r"system|[|>]|getline|@", word) for word in rest):
        return "its program"
    if name in _ONE_FILE and sum(not word.startswith("-") for word in rest) > 1:
        return "the second file"
    return ""


# --- commands that only look -----------------------------------------------------------------------------------------

_HARMLESS_VARIABLES = frozenset({"LANG", "LC_ALL", "NO_COLOR", "FORCE_COLOR", "TZ", "CI", "TERM", "COLUMNS"})
_LOOKS: dict[tuple[str, ...], frozenset[str] | None] = {  # the options that are fine; None: any word is
    ("pwd",): frozenset(),
    ("true",): None,
    ("echo",): None,
    ("ls",): None,
    ("whoami",): frozenset(),
    ("date",): frozenset(),
    ("git", "status"): frozenset("-s -b -sb --short --branch --porcelain -uno --untracked-files=no".split()),
    ("git", "log"): frozenset("--oneline --stat -1 -2 -3 -5 -10 -20 --graph --all".split()),
    ("git", "branch"): frozenset("--show-current -a -v -vv --list".split()),
    ("git", "rev-parse"): frozenset("HEAD --abbrev-ref --show-toplevel".split()),
}
_GIT_SHOWS = {("git", verb) for verb in "status log diff show rev-parse ls-files blame describe shortlog".split()}
_NO_WORDS = frozenset({"branch", "rev-parse", "pwd", "whoami", "date"})  # a word that is no option would do something


def only_looks(command: str) -> bool:
    """Whether a command line certainly changes nothing and shows no content of files."""
    plain = parse_command(command)
    return plain is not None and all(changes_nothing(one) for one in plain)


def only_looks_or_shows(command: str) -> bool:
    """Whether a command line only looks, or has git show something."""
    plain = parse_command(command)
    return plain is not None and all(changes_nothing(one) or one.words[:2] in _GIT_SHOWS for one in plain)


def changes_nothing(one: PlainCommand) -> bool:
    """Whether one plain command certainly changes nothing and shows no content of files."""
    if not sets_harmless(one) or not one.words:
        return False
    for size in (2, 1):
        if one.words[:size] in _LOOKS and len(one.words) >= size:
            allowed, rest = _LOOKS[one.words[:size]], one.words[size:]
            if allowed is None:
                return True
            if one.is_expanded:
                return False
            is_named = one.words[size - 1] in _NO_WORDS
            return all(w in allowed or (not w.startswith("-") and not is_named) for w in rest)
    return False


def sets_harmless(one: PlainCommand) -> bool:
    """Whether the variables set in front of a command can't change what it runs."""
    return all(word.split("=", 1)[0] in _HARMLESS_VARIABLES for word in one.assigned)


# --- content out of a history ----------------------------------------------------------------------------------------

_HISTORIES = frozenset("hg chg jj sl svn bzr brz fossil darcs pijul".split())  # beside git
_NO_CONTENT = frozenset(  # their verbs that print no content
    "status st add addremove commit ci push pull update up branch branches bookmark root init version help".split()
)
# Verbs of git that print no content of files out of a history, or only of the one that they name, …
_GIT_NAMES = frozenset(
    "ls-files ls-tree ls-remote rev-parse rev-list merge-base show-ref describe name-rev count-objects check-ignore "
    "remote version help cherry shortlog fetch push pull clean gc prune repack pack-refs maintenance init mv rm merge "
    "revert cherry-pick apply branch switch blame annotate bisect".split()
)
_GIT_UNLESS = {  # … unless one of these options is among their words, …
    "add": frozenset({"-p", "-i", "-e", "--patch", "--interactive", "--edit"}),
    "am": frozenset({"--show-current-patch"}),
    "checkout": frozenset({"-p", "--patch"}),
    "commit": frozenset({"-p", "-v", "--patch", "--interactive", "--verbose"}),
    "config": frozenset({"-f", "--file", "--blob"}),
    "fsck": frozenset({"--lost-found"}),
    "rebase": frozenset({"--show-current-patch"}),
    "reset": frozenset({"-p", "--patch"}),
    "restore": frozenset({"-p", "--patch"}),
    "tag": frozenset({"--format"}),
}
_GIT_SUBVERBS = {  # … or with these words behind them.
    "stash": frozenset("push save pop apply drop clear list".split()),
    "submodule": frozenset("status init update sync add deinit".split()),
    "worktree": frozenset("list prune remove lock unlock repair move".split()),
}
_GIT_SUMS_UP = re.compile(
    r"--(?:stat|shortstat|numstat|name-only|name-status|summary|dirstat|compact-summary|raw|quiet|no-patch)(?:=.*)?|-s"
)
_GIT_LISTS = re.compile(  # options of `log` and `diff` that print no content
    r"-\d+|-n\d*|-[zigE]|--|--(?:oneline|graph|all|(?:no-)?decorate|abbrev-commit|abbrev|date|since|until|after|before"
    r"|author|committer|(?:invert-)?grep|format|pretty|max-count|skip|reverse|(?:no-)?merges|first-parent|follow|branches"
    r"|tags|remotes|(?:topo|date|author-date)-order|(?:no-)?color|cached|staged|exit-code|diff-filter|left-right"
    r"|cherry-(?:pick|mark)|source|full-history|simplify-by-decoration|ancestry-path|(?:no|find)-renames|merge-base"
    r"|relative)(?:=.*)?"
)
_HEAD = re.compile(r"(?:HEAD|@)(?:[~^]\d*)*")  # a commit, where another name may be that of a file's content
_ADDRESS = re.compile(r"(?:https?|ssh|git)://|[\w.-]+@[\w.-]+:")


def prints_history(words: Sequence[str]) -> bool:
    """Whether a command may print, or put elsewhere, content of files out of a repository's history."""
    name = name_of(words)
    if name.startswith("git-"):
        words, name = ("git", name.removeprefix("git-"), *words[1:]), "git"
    if name in _HISTORIES:
        return next((word for word in words[1:] if word[:1] != "-"), "help") not in _NO_CONTENT
    if name != "git" or len(words) < 2 or words[1] in ("--version", "--help"):
        return False
    plain = _without_options(tuple(words))
    before, rest = words[1 : len(words) - len(plain) + 1], plain[2:]
    if any(re.match(r"-c|--(?:git-dir|work-tree|namespace|config-env|attr-source|exec-path|bare)", w) for w in before):
        return True  # another configuration may make anything of a verb, and another place anything of a file
    return _verb_prints(plain[1] if len(plain) > 1 else "", rest)


def _verb_prints(verb: str, rest: Sequence[str]) -> bool:
    """The same for a verb of git with these words behind it."""
    options, operands = [w for w in rest if w[:1] == "-"], [w for w in rest if w[:1] != "-"]
    lists = all(_GIT_LISTS.fullmatch(word) or _GIT_SUMS_UP.fullmatch(word) for word in options)
    match verb:
        case "status":
            return _options(("", *rest), frozenset({"-v", "--verbose"}))
        case "log" | "reflog":
            return not lists
        case "diff" | "diff-tree" | "diff-index" | "diff-files":
            return not lists or not any(map(_GIT_SUMS_UP.fullmatch, options))
        case "show":
            return not (lists and any(map(_GIT_SUMS_UP.fullmatch, options)) and all(map(_HEAD.fullmatch, operands)))
        case "cat-file":
            return not options or not all(
                re.fullmatch(r"-[tse]|--batch-(?:check|all-objects)", word) for word in options
            )
        case "clone":
            return not any(map(_ADDRESS.match, operands))
        case "config" if len(operands) > 1 and not operands[0].startswith("user."):
            return True  # what verbs do from now on
        case _ if verb in _GIT_SUBVERBS:
            is_known = not operands or operands[0] in _GIT_SUBVERBS[verb]
            return (
                not is_known
                or _options(("", *rest), frozenset({"-p", "--patch"}))
                or (verb == "stash" and "list" in operands and not lists)
            )
        case _ if verb in _GIT_UNLESS:
            return _options(("", *rest), _GIT_UNLESS[verb])
        case _:
            return verb not in _GIT_NAMES


# --- the files that a command may mean -------------------------------------------------------------------------------

MOST_NAMES = 3_000  # of one command; one with more isn't certain
_MOST_PLACES = 24  # folders that names may be relative to
_MOST_LETTERS = 8  # options of one letter in front of a name in one word
_MOST_VARIANTS = 64
_MOST_INNER = 40  # words of a command that may begin another
_MOST_DEPTH = 4
_SPLITS = re.compile(r"[\s=@:,;'\"()\[\]{}<>|&$`\\!]+")
_JOINS = re.compile(r"[=@:,]")
_WILD = frozenset("*?[")
_THROUGH_PROCESSES = re.compile(r"/+(?:proc/(?:self|thread-self|\d+|[^/]*[*?\[])(?:/|\Z)|dev/fd/)")
_LISTERS = frozenset("ls cd pushd echo pwd du df stat mkdir test [ tree touch".split())
_SEARCHES = frozenset("grep egrep fgrep rgrep rg ripgrep ag ack ugrep diff".split())
_TARS = frozenset("tar bsdtar gtar star".split())
_HERE = frozenset("find fd fdfind npm pnpm yarn cargo hg stow".split())  # at work where they are called
_BY_FOLDER = re.compile(r"-\w*[rR]|--rec")  # options by which programs go through folders
_LISTS = re.compile(r"--(?:files0?-from|arg-file|exclude-from|include-from)|--files-")  # files that name others
_CLASS = re.compile(r"\[[^/]*\[[:.=]")  # `[[:alpha:]]`, which only a shell reads as it is meant
_RECURSES: dict[str, re.Pattern[str] | None] = {  # that read or write what is below a folder; with which options
    **dict.fromkeys(("grep", "egrep", "fgrep"), re.compile(r"-\w*[rRd]|--(?:deref|rec|dir)")),
    **dict.fromkeys(("cp", "scp", "chmod", "chown", "rm"), re.compile(r"-\w*[rRa]|--(?:rec|arc)")),
    **dict.fromkeys(
        "rg ripgrep ag ack ugrep rgrep tar bsdtar gtar star rsync zip 7z 7za mv ln pax cpio rclone restic borg jar "
        "mksquashfs mkisofs genisoimage xorriso stow "
        "unison meld kdiff3 zipfile tarfile icdiff difft difftastic".split(),
        None,
    ),
    **dict.fromkeys(("fd", "fdfind"), re.compile(r"-[xX]|--exec")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "cargo"), re.compile(r"(?:pack|publish|package)\Z")),
    **dict.fromkeys(("svn", "hg"), re.compile(r"(?:add|addremove|import)\Z")),
    "find": re.compile(r"-exec|-execdir|-ok|-okdir|-delete"),
    **dict.fromkeys(("diff", "colordiff"), re.compile(r"-\w*r|--rec")),
    "git": re.compile(r"(?:add|grep|archive|clean)\Z|--no-in|--no-index"),
    **dict.fromkeys(("docker", "podman"), re.compile(r"-v|--volume|--mount|build\Z|cp\Z")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path that a command may mean: absolute, with its links and `..`; `is_wild`: a pattern of the shell's."""

    path: str
    is_wild: bool = False

    @property
    def lexical(self) -> str:
        """Without `..` and doubled slashes, as if there were no links."""
        return "/" + posixpath.normpath(self.path).lstrip("/")


@dataclass(frozen=True, slots=True)
class CommandPaths:
    """What a command names. `doubt`: why there may be more. `below` are folders that it goes through.

    If they are folders, it may go through `perhaps`, and write below `operands`. It may print content out of the
    history of repositories at `histories`.
    """

    paths: tuple[NamedPath, ...] = ()
    below: tuple[str, ...] = ()
    doubt: str = ""
    perhaps: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    histories: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def paths_in_command(command: str, cwd: str, home: str) -> CommandPaths:
    """The files that a command line may name.

    Args:
        command: the line, as bash gets it.
        cwd: the folder that it runs in.
        home: what `~` stands for.

    Returns:
        Paths, folders, and a doubt when something may be named in a way that can't be followed.
    """
    found: dict[NamedPath, None] = {}
    below: dict[str, None] = {}
    perhaps: dict[str, None] = {}
    written: dict[str, None] = {}
    histories: dict[str, None] = {}
    doubt = ""
    for one, places in _with_places(command, cwd, home):
        operands: list[str] = []
        for number, word in enumerate((*one.words, *one.assigned)):
            doubt = doubt or _doubt(word)
            if name_of(one.words) in _TARS and re.match(r"-\w*T", word):
                doubt = doubt or "a file says which files are meant"
            for piece in _name_parts(word):
                is_wild = bool(_WILD & set(piece))
                doubt = doubt or _doubt(piece)
                for place in places:
                    path = _joined(place, piece, home)
                    if not is_wild:
                        found[NamedPath(path)] = None
                    else:
                        is_shells = number in one.wild
                        found.update((NamedPath(each, True), None) for each in _shell_patterns(path, is_shells))
                        if _THROUGH_PROCESSES.match(path):
                            doubt = doubt or f"{piece[:80]} leads through /proc"
                    if is_wild and number in one.wild and _CLASS.search(piece):
                        doubt = doubt or f"{piece[:80]} stands for more names than can be told"
                if number and not word.startswith("-"):
                    operands += (_joined(place, piece, home) for place in places)
        for some in _with_inner(one):
            if _recurses(some):
                below.update(dict.fromkeys((*operands, *(places if _goes_through_here(some) else ()))))
            if prints_history(some.words):
                histories.update(dict.fromkeys(places))
        if _may_write(one.words):
            written.update(dict.fromkeys(operands))
            if any(_BY_FOLDER.match(word) for word in one.words[1:]):
                perhaps.update(dict.fromkeys(operands))
        if len(found) > MOST_NAMES or len(places) > _MOST_PLACES:
            return CommandPaths(tuple(found)[:MOST_NAMES], tuple(below), "it names too much to be certain of")
    for each in found:
        if _THROUGH_PROCESSES.match(each.lexical):
            doubt = doubt or "it names files by way of a process (/proc, /dev/fd)"
    folders = (
        tuple(dict.fromkeys("/" + posixpath.normpath(path).lstrip("/") for path in some))
        for some in (perhaps, written, histories)
    )
    return CommandPaths(
        tuple(found), tuple(dict.fromkeys("/" + posixpath.normpath(p).lstrip("/") for p in below)), doubt, *folders
    )


def _may_write(words: tuple[str, ...]) -> bool:
    """Whether a program may change what is below a folder that it is given: git where it puts files back, and any of
    which it isn't known."""
    name = name_of(words)
    if name == "git":
        return bool({"checkout", "restore", "checkout-index", "rm"} & set(words[1:]))
    return name not in _RECURSES and name not in _LISTERS and not takes_only_data(words)


def _with_inner(one: PlainCommand) -> Iterator[PlainCommand]:
    """A command, and those that it may run for another: `nice tar …`, `busybox cp -r …`."""
    yield one
    if not takes_only_data(one.words):
        yield from (PlainCommand(one.words[n:]) for n in range(1, min(len(one.words), _MOST_INNER)))


def only_lists(command: str) -> bool:
    """Whether each part of a command only lists names or goes to a folder."""
    plain = parse_command(command)
    return plain is not None and all(name_of(one.words) in _LISTERS for one in plain)


def _with_places(command: str, cwd: str, home: str) -> Iterator[tuple[PlainCommand, Sequence[str]]]:
    """The plain commands, each with the folders that its names may be relative to."""
    plain = parse_command(command)
    if plain is None:
        words = tuple(re.split(r"[\s;&|<>(){}$`=]+", re.sub(r"[\\'\"]", "", command)))
        wild = frozenset(n for n, word in enumerate(words) if _WILD & set(word))
        plain = (PlainCommand(words, wild=wild),)
    yield from _follow_folders(plain, [cwd], home, _MOST_DEPTH)


def _follow_folders(
    plain: Sequence[PlainCommand], been: list[str], home: str, depth: int
) -> Iterator[tuple[PlainCommand, Sequence[str]]]:
    """Each command with its places; `been` are the folders that the shell has gone to, and grows."""
    for one in plain:
        places = list(been)
        for before, word in zip(one.words, one.words[1:], strict=False):
            value = word.partition("=")[2] if word.startswith("-") else word if before.startswith("-") else ""
            attached = word[2:] if re.match(r"-[A-Za-z][/~.]", word) else ""
            places += (_joined(been[0], folder, home) for folder in (value, attached) if folder and folder != ".")
        yield one, tuple(dict.fromkeys(places))
        for n, word in enumerate(one.words):
            if name_of((word,)) in ("cd", "pushd") and (n == 0 or not takes_only_data(one.words)):
                to = next((word for word in one.words[n + 1 :] if not word.startswith("-")), "~")
                been += [_joined(place, to, home) for place in been[:_MOST_PLACES]]
        if depth and not takes_only_data(one.words):
            texts = [" ".join(one.words[1:])] if name_of(one.words) == "eval" else one.words[1:]
            for text in texts:
                if re.search(r"\s", text) and (inner := parse_command(text)) is not None:
                    yield from _follow_folders(inner, been, home, depth - 1)


def _recurses(one: PlainCommand) -> bool:
    name = name_of(one.words)
    if one.words[:2] == ("git", "stash"):
        return any(re.match(r"-\w*[ua]|--(?:all|inc)", word) for word in one.words[2:])
    if name not in _RECURSES:
        return False
    options = _RECURSES[name]
    return options is None or any(options.match(word) for word in one.words[1:])


def _goes_through_here(one: PlainCommand) -> bool:
    """Whether a program that goes through folders may take the current one, since none is named."""
    name, rest = name_of(one.words), one.words[1:]
    if name == "git":
        return len(rest) < 2 or rest[0] != "add" or any(re.match(r"-\w*[Au]|--all|--update", word) for word in rest[1:])
    if name in _HERE:
        return True
    if name not in _SEARCHES:
        return False
    pairs = zip(one.words, rest, strict=False)
    named = [w for before, w in pairs if w[:1] != "-" and not re.match(r"-\w*[ABCDEMTdefgjmrt]\Z|--[^=]+\Z", before)]
    return len(named) < 2  # the first is what is looked for


def _name_parts(word: str) -> Iterator[str]:
    """The parts of a word that may be names."""
    pieces = {word, *_JOINS.split(word), *_SPLITS.split(word)}
    if "%" in word:
        pieces |= {unquote(word), *_SPLITS.split(unquote(word))}
    if re.match(r"-[^-]", word):
        pieces |= {word[n:] for n in range(2, min(len(word), 2 + _MOST_LETTERS))}
        pieces |= {part for n in range(2, min(len(word), 4)) for part in _SPLITS.split(word[n:])}
    for piece in tuple(pieces):
        if piece.startswith("//") and "/" in piece[2:]:  # the host of an address
            pieces.add("/" + piece[2:].split("/", 1)[1])
    pieces -= {"", "-", "--"}
    yield from sorted(pieces)


def _doubt(piece: str) -> str:
    if _LISTS.match(piece):
        return "a file says which files are meant"
    if re.match(r"~[^/]", piece):
        return f"{piece[:80]} is another user's home, or a folder of the shell's"
    if re.match(r"file:.*[\[{*?%]", piece, re.DOTALL):
        return "an address of a file that is filled in"
    return ""


def _joined(place: str, piece: str, home: str) -> str:
    if piece == "~" or piece.startswith("~/"):
        piece = home.rstrip("/") + piece[1:]
    return posixpath.join(place, piece)


def _shell_patterns(path: str, is_shells: bool) -> Iterator[str]:
    """Patterns of the paths; for the shell, a wildcard at the beginning of a name doesn't stand for a dot."""
    path = "/" + posixpath.normpath(path).lstrip("/")
    if not is_shells:
        yield path
        return
    variants = [""]
    for name in path.split("/")[1:]:
        begins = [name]
        if name.startswith("*"):
            begins = [name.lstrip("*") or "[!.]*", "[!.]" + name]
        elif name.startswith("?"):
            begins = ["[!.]" + name[1:]]
        if len(variants) > _MOST_VARIANTS:
            begins = [name]
        variants = [f"{before}/{begin}" for before in variants for begin in begins]
    yield from variants if len(variants) <= _MOST_VARIANTS else (path,)
