"""The slash commands of a chat: their names, what they do, and how (CLI-1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from anyio import to_thread

from perdure.adapters.config import UnusableValue, parse_setting
from perdure.adapters.journal import SessionStore, short_ids
from perdure.agent.permissions import Mode, PermissionRule
from perdure.cli.arguments import located
from perdure.cli.chat.screen import difference_lines, model_name
from perdure.cli.output import Cell, about, check_target, cut, deliver, moment, plural, table, tokens, usd
from perdure.cli.room import room_line, window_line
from perdure.cli.words import compaction_failure
from perdure.compaction.from_notes import CURSOR
from perdure.context.policy import least_window
from perdure.engine.ask import record_model
from perdure.engine.compact import CompactionSuccess, compact, uncompact
from perdure.engine.notes import SessionNotes, read_notes_file
from perdure.engine.rewind import RewindResult, What, prompts
from perdure.engine.session import pin, unpin
from perdure.engine.turn import fixed_parts
from perdure.errors import BadSetting, nearest
from perdure.memory.places import name_for_people

if TYPE_CHECKING:
    from perdure.cli.chat.talk import Chat
    from perdure.context.policy import Thresholds
    from perdure.engine.session import LiveSession
    from perdure.settings import Settings


ChatCommand = Callable[["Chat", str], Awaitable[None]]
_SHOWN = 15  # of sessions and prompts, in a list to choose from
_DIFF_LINES = 60  # of one file
RULE_KINDS = ("allow", "ask", "deny")


async def help_command(chat: Chat, argument: str) -> None:
    """All commands."""
    table(("command", "what it does"), [(f"/{name}", what) for name, (_, what) in COMMANDS.items()])
    chat.screen.line("!COMMAND runs a command of yours, and @FILE in a prompt attaches a file. The model reads both.")
    chat.screen.line("Alt-Enter, or a backslash and Enter, begins another line. Ctrl-C interrupts, and Ctrl-D leaves.")


async def exit_command(chat: Chat, argument: str) -> None:
    """Leave."""
    chat.is_leaving = True


async def clear_command(chat: Chat, argument: str) -> None:
    """A new session; the one so far stays as it is."""
    before = chat.name
    await chat.change(None)
    chat.screen.line(f"a new session, {chat.name}; the one before is {before} (/sessions {before} goes back to it)")


async def sessions_command(chat: Chat, argument: str) -> None:
    """List the sessions of this project, or go on with one, by its number or by any name that a session has."""
    store = SessionStore(chat.factory.home)
    found = [info for info in store.list(chat.factory.project) if info.id != chat.agent.session.id][:_SHOWN]
    if not argument:
        if not found:
            chat.screen.line("this project has no other session to go on with")
            return
        short = short_ids(directory.name for directory in store.newest())
        rows = [
            (number, short[one.id], moment(one.modified), one.messages, cut(one.title or one.last_prompt or "", 60))
            for number, one in enumerate(found, 1)
        ]
        table(("#", "session", "last written", "messages", "title or last prompt"), rows)
        chat.screen.line("/sessions NUMBER, or a part of the id, goes on with one")
        return
    is_number = argument.isdecimal() and 1 <= int(argument) <= len(found)
    directory = found[int(argument) - 1].directory if is_number else located(argument, chat.factory.home)
    if directory.name == chat.agent.session.id:
        raise BadSetting(f"/sessions {argument}: you are in that session already")
    await chat.change(directory)
    chat.screen.line(f"continuing session {chat.name}", "bold")
    chat.show_last_exchange()
    chat.show_room()


async def model_command(chat: Chat, argument: str) -> None:
    """Show which model is asked, or take another one for this chat."""
    session = chat.agent.session
    if argument:
        chat.agent.model = await chat.factory.take_model(argument)
        models = chat.factory.models
        session.configure(session.settings, summarizer=models.of("summarizer"), helpers=models)
        await chat.agent.open()
        await record_model(session, chat.agent.model.about)
        chat.screen.line(f"switched to {chat.model_line()}")
    else:
        chat.screen.line(chat.model_line())
        chat.screen.line("/model NAME takes another one, as in /model ollama:qwen3; Tab lists the names", "dim")


async def status_command(chat: Chat, argument: str) -> None:
    """Where this chat is, with what it works, and what it may do."""
    from perdure.cli.spend import session_total

    agent, session = chat.agent, chat.agent.session

    def spent() -> str:
        return session_total(chat.factory.config, chat.directory)

    rules, settings = agent.context.rules, session.settings
    rows: list[tuple[str, str]] = [
        ("session", " ".join(filter(None, (session.id, cut(session.view.state.title.title or "", 60))))),
        ("folder", agent.context.machine.workspace.root),
        ("model", model_name(agent.model.about)),
        ("window", room_line(session.view, session.facts())),
        ("mode", agent.mode),
        ("rules", f"{len(rules.allow)} allow, {len(rules.ask)} ask, {len(rules.deny)} deny (/permissions)"),
        ("memory", memory_state(settings)),
        ("checkpoints", "on" if settings.checkpoints else "off"),
        ("spent", f"in this session {await to_thread.run_sync(spent)} (/cost: since this chat began)"),
    ]
    if running := agent.background.running:
        rows.append(("running", ", ".join(cut(one.what, 40) for one in running)))
    chat.screen.fields(rows)


async def rewind_command(chat: Chat, argument: str) -> None:
    """Back to before an earlier prompt, with the files; its text is there to be edited (CKP-3, CKP-4)."""
    if argument == "undo":
        for line in rewound_lines(await chat.agent.undo_rewind(), is_undone=True):
            chat.screen.line(line)
        return
    found = await prompts(chat.agent.session)
    if not found:
        chat.screen.line("there is no prompt yet to go back to")
        return
    number, *words = argument.split() or [""]
    if not number:
        rows = [(number, cut(one.text, 80)) for number, one in enumerate(found, 1)]
        table(("#", "prompt"), rows[-_SHOWN:])
        chat.screen.line("/rewind NUMBER [code|conversation|both] goes back to before it, and /rewind undo undoes that")
        return
    if not number.isdecimal() or not 1 <= int(number) <= len(found):
        raise BadSetting(f"/rewind {number}: give a number from 1 to {len(found)}; /rewind lists them")
    to = found[int(number) - 1]
    if unknown := [word for word in words if word not in _WHAT and word != "force"]:
        raise BadSetting(f"/rewind {unknown[0]}: give code, conversation or both, and force to write over others' work")
    what: What = next((_WHAT[word] for word in words if word in _WHAT), "both")
    done = await chat.agent.rewind(to.message.id, what=what, is_forced="force" in words)
    if done.is_conversation:
        chat.draft = done.prompt
    chat.screen.line(f"back to before: {cut(to.text, 80)}")
    for line in rewound_lines(done):
        chat.screen.line(line)


async def retry_command(chat: Chat, argument: str) -> None:
    """Ask the model again with what is there, for instance after an error."""
    chat.screen.line("asking the model again, without a new prompt", "dim")
    await chat.work(None)


async def mode_command(chat: Chat, argument: str) -> None:
    """Show the permission mode, or set it for this chat."""
    modes: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}
    if argument:
        mode = modes.get(argument.replace("-", "_"))
        if mode is None:
            raise BadSetting(f"/mode {argument}: give one of {', '.join(modes)}{nearest(argument, tuple(modes))}")
        chat.agent.mode = mode
    chat.screen.line(f"permission mode: {chat.agent.mode}")


async def permissions_command(chat: Chat, argument: str) -> None:
    """List the permission rules, add one, or remove one; for this chat (SEC-9)."""
    context = chat.agent.context
    listed = [(kind, rule) for kind in RULE_KINDS for rule in getattr(context.rules, kind)]
    word, _, rest = argument.partition(" ")
    rest = rest.strip()
    if not argument:
        if listed:
            table(("#", "decision", "rule"), [(n, kind, str(rule)) for n, (kind, rule) in enumerate(listed, 1)])
        else:
            chat.screen.line("there are no rules: the mode decides")
        chat.screen.line(f"permission mode: {chat.agent.mode}", "dim")
        usage = "/permissions remove NUMBER drops a rule, and /permissions allow|ask|deny RULE adds one, for this chat"
        chat.screen.line(usage, "dim")
        return
    if word == "remove":
        if not rest.isdecimal() or not 1 <= int(rest) <= len(listed):
            raise BadSetting(f"/permissions remove {rest}: give a number from the list that /permissions shows")
        kind, rule = listed[int(rest) - 1]
        chat.change_rules(kind, lambda rules: tuple(one for one in rules if one != rule))
        chat.screen.line(f"removed for this chat: {kind} {rule}")
    elif word in RULE_KINDS and rest:
        rule = PermissionRule.of(rest)
        chat.change_rules(word, lambda rules: (*(one for one in rules if one != rule), rule))
        chat.screen.line(f"added for this chat: {word} {rule}")
    else:
        raise BadSetting(f"/permissions {argument}: give remove NUMBER, or allow, ask or deny and a rule")


async def diff_command(chat: Chat, argument: str) -> None:
    """What the agent changed in files since the session began; with a name, of this file or folder only (CKP-1)."""
    found = await chat.agent.changed_files()
    if argument:
        root = chat.agent.context.machine.workspace.root
        path = (await chat.agent.context.resolve(argument)).path
        name = path.removeprefix(root.rstrip("/") + "/")
        found = tuple(one for one in found if path == root or one.path == name or one.path.startswith(f"{name}/"))
    if not found:
        chat.screen.line(f"{argument}: " * bool(argument) + "nothing is different from when the session began")
        return
    for one in found:
        lines = difference_lines(one)
        added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        about = f" ({one.note})" if one.note else ""
        state = "new, " if one.before is None else "deleted, " if one.after is None else ""
        chat.screen.line(f"{name_for_people(one.path)}: {state}+{added:,} -{removed:,}{about}", "bold")
        most = len(lines) if argument else _DIFF_LINES
        chat.screen.diff(lines[:most])
        if len(lines) > most:
            chat.screen.line(f"  … {len(lines) - most:,} more lines: /diff {name_for_people(one.path)}", "dim")


async def export_command(chat: Chat, argument: str) -> None:
    """Write the session into a file: Markdown for .md, else a Claude Code log (ENG-6)."""
    from perdure.cli.export import exported

    session = chat.agent.session
    target = Path((await chat.agent.context.resolve(argument or f"{session.id}.md")).path)
    form = "markdown" if target.suffix.lower() in (".md", ".markdown") else "claude-code"
    directory = str(SessionStore(chat.factory.home).locate(session.id))

    def write() -> str:
        check_target(directory, target, force=False, advice="name another file")
        data, how = exported(directory, chat.factory.config, form)
        deliver(target, data, force=False)
        return f"{target}: {len(data):,} bytes, {how}"

    chat.screen.line(await to_thread.run_sync(write))


# --- the window, how room is made in it, and what it costs ------------------------------------------------------------


async def context_command(chat: Chat, argument: str) -> None:
    """The same grid and table as `perdure context`, of the view as it is."""
    from perdure.cli.context import show_window

    await chat.agent.open()
    session = chat.agent.session
    show_window(f"session {chat.name}", session.view, session.facts())


async def compact_command(chat: Chat, focus: str) -> None:
    """Compact now. The event that tells of it says what was done."""
    session = chat.agent.session
    outcome = await compact(session, trigger="manual", focus=focus)
    if not isinstance(outcome, CompactionSuccess):
        chat.screen.line(f"not compacted: {compaction_failure(outcome.reason)}; nothing was changed", "yellow")


async def autocompact_command(chat: Chat, argument: str) -> None:
    """Show what auto-compaction does here, or set the window for which it makes room, for this process (PRS-3)."""
    session = chat.agent.session
    if argument:
        await chat.agent.open()
        session.configure(_with_window(session, argument))
        chat.factory.config = replace(chat.factory.config, settings=session.settings)
    for line in autocompact_lines(session.limits, session.settings):
        chat.screen.line(line)


def _with_window(session: LiveSession, argument: str) -> Settings:
    settings = session.settings
    if argument in ("on", "off"):
        return replace(settings, auto_compact=argument == "on")
    try:
        window = None if argument == "default" else parse_setting("auto_compact_window", argument, None)
    except UnusableValue as e:
        raise BadSetting(f"/autocompact {argument}: {e}; give a window such as 100k, on, off or default") from None
    fixed = fixed_parts(session)
    stays = fixed["system prompt and tools"] + fixed["pins"]
    least = least_window(settings, session.facts().model, stays)
    if window is not None and window < least <= session.limits.window:
        told = f"the system prompt, the tools and pins take {stays:,} tokens, so it has to be {least:,} or more"
        raise BadSetting(f"/autocompact {argument}: {told}")
    return replace(settings, auto_compact_window=window)


def autocompact_lines(limits: Thresholds, settings: Settings) -> list[str]:
    """What auto-compaction does with these settings, in words."""
    lines = [f"window: {window_line(limits)}; {limits.reserve:,} of them are reserved for the answer"]
    if not settings.compact:
        return [*lines, "compaction is switched off altogether (the setting compact, or DISABLE_COMPACT)"]
    if not limits.auto:
        return [*lines, f"auto-compaction is off: calls stop at {limits.block:,} tokens, unless /compact makes room"]
    counted = min(limits.window, settings.auto_compact_window or limits.window)
    as_if = f", as if the window held {counted:,}" if counted < limits.window else ""
    lines.append(f"auto-compaction begins at {limits.trigger:,} tokens{as_if}")
    lines.append("older messages are then replaced by a record; the newest, your words and your pins stay as they are")
    lines.append("/autocompact 100k makes it begin as if the window held 100,000")
    lines.append("/autocompact off switches it off, and on switches it on again")
    lines.append("both hold for this chat; the settings auto_compact_window and auto_compact do the same for good")
    return lines


async def undo_command(chat: Chat, argument: str) -> None:
    """Take the last compaction back (CMP-11)."""
    done = await uncompact(chat.agent.session)
    chat.screen.line(f"undone: {about(done.tokens_before)} -> {about(done.tokens_after)} tokens", "cyan")
    chat.screen.line("auto-compaction now waits until the window is nearly full")


async def cost_command(chat: Chat, argument: str) -> None:
    """What the models were asked for and what that cost, since this chat began."""
    rows: list[tuple[Cell, ...]] = [
        (
            job,
            model,
            one.calls,
            tokens(one.read),
            tokens(one.cached),
            tokens(one.written),
            "unknown" if one.usd is None else one.usd,
        )
        for (job, model), one in chat.spent.rows.items()
    ]
    if not rows:
        chat.screen.line("no model was asked yet")
        return
    amounts = ("read", "of it cached", "written", "usd")
    table(("job", "model", "calls", *amounts), rows, numbers=amounts)
    chat.screen.line(f"{usd(chat.spent.usd)} in total since this chat began" if chat.spent.is_priced else _UNPRICED)


_UNPRICED = "no prices are known for this model; add them to the config under [models]"

# --- what outlives the window -----------------------------------------------------------------------------------------


async def memory_command(chat: Chat, argument: str) -> None:
    """The memories of this project; with words, those that matter to them."""
    from perdure.cli.memory import list_memories, search_memories

    if argument == "review":
        await review_memories(chat)
        return
    settings = chat.agent.session.settings
    chat.screen.line(f"memory is {memory_state(settings)}")

    def show() -> None:

        if argument:
            search_memories(argument, chat.factory.config, directory=None, is_user=False, limit=5, is_json=False)
        else:
            list_memories(chat.factory.config, directory=None, is_user=False, is_json=False)

    await to_thread.run_sync(show)


_WRITERS = {
    "off": "agents have no tool for it",
    "read-only": "agents only read it",
    "ask": "what agents write waits for your review",
    "auto": "agents write to it by themselves",
}


def memory_state(settings: Settings) -> str:
    """Whether there are memories, and who writes them."""
    if not settings.memory:
        return "off (the setting memory)"
    return f"on; {_WRITERS[settings.memory_mode]} (memory_mode {settings.memory_mode})"


async def waiting_memories(chat: Chat) -> int:
    """How many changes of the project's memories wait for a person."""
    from perdure.cli.memory import memory_folder

    if not chat.agent.session.settings.memory:
        return 0
    folder = await to_thread.run_sync(lambda: memory_folder(None, False, chat.factory.config))
    if not await to_thread.run_sync(folder.path.is_dir):
        return 0
    return len(await to_thread.run_sync(folder.run, lambda memory: memory.store.pending()))


async def review_memories(chat: Chat) -> None:
    """Show each change that waits, and ask whether it is made (MEM-9)."""
    from perdure.cli.memory import decide_proposal, memory_folder, show_change

    folder = await to_thread.run_sync(lambda: memory_folder(None, False, chat.factory.config))
    pending = await to_thread.run_sync(folder.run, lambda memory: memory.store.pending())
    if not pending:
        chat.screen.line("no memory waits for your review")
    for number, one in enumerate(pending, 1):
        session = one.stamp.session
        place = "this session" if session == chat.agent.session.id else session or "outside of a session"
        about = f"{one.change.name}, {moment(one.stamp.at)}, from {place}"
        chat.screen.line(f"{number} of {len(pending)}: {about}", "bold")
        chat.screen.line(f"  it waits: {one.why}", "dim")
        await to_thread.run_sync(show_change, one, folder)
        if not chat.reader.can_ask:
            continue
        chat.screen.line("  a: approve, r: reject, s: skip, q: leave the rest", "dim")
        said = ""
        while said not in ("a", "r", "s", "q"):
            try:
                said = (await chat.reader.answer("? ")).strip().lower()[:1]
            except (EOFError, KeyboardInterrupt):
                said = "q"
        if said == "q":
            return
        if said != "s":
            decision = "approve" if said == "a" else "reject"
            done = await to_thread.run_sync(decide_proposal, one, decision, folder)
            chat.screen.line(f"  {done['said']}")


async def notes_command(chat: Chat, argument: str) -> None:
    """The notes that are kept of this session (SM-10)."""
    keeper = next((one for one in chat.agent.session.services.keepers if one.name == CURSOR), None)
    if not isinstance(keeper, SessionNotes) or not chat.agent.session.settings.notes:
        chat.screen.line("no notes are kept of this session (the setting notes)")
        return
    found = await read_notes_file(keeper.file)
    if found.state != "written":
        chat.screen.line("no notes yet: they are written while the session runs")
        return
    chat.screen.line((found.data or b"").decode("utf-8", "replace").rstrip("\n"))


async def pin_command(chat: Chat, argument: str) -> None:
    """Pin a text, take a pin back (`remove NUMBER`, or its id), or list the pins (RST-8)."""
    from perdure.cli.compact import pins_of, taken

    session = chat.agent.session
    first, _, rest = argument.partition(" ")
    pins, wanted = session.view.state.pins, rest.strip()
    if not argument:
        if pins:
            table(("#", "pinned"), [(number, cut(one.text, 80)) for number, one in enumerate(pins, 1)])
        removes = ", and /pin remove NUMBER takes a pin back" * bool(pins)
        chat.screen.line(f"{taken(pins_of(session))}; /pin TEXT pins a text{removes}")
        return
    if first == "remove" and wanted:
        is_number = wanted.isdecimal() and 1 <= int(wanted) <= len(pins)
        gone = pins[int(wanted) - 1] if is_number else None
        await unpin(session, gone.id if gone is not None else wanted)
        chat.screen.line(f"pin removed: {taken(pins_of(session))}")
        return
    await pin(session, argument)
    chat.screen.line(f"pinned: {taken(pins_of(session))}")


# --- back to an earlier prompt ----------------------------------------------------------------------------------------

_WHAT: dict[str, What] = {what: what for what in get_args(What)}


def rewound_lines(done: RewindResult, *, is_undone: bool = False) -> list[str]:
    """What was done, or undone, in lines for people."""
    from perdure.cli.history import left, not_kept

    lines = []
    if done.is_conversation:
        back = "the conversation is back at that point; what came after stays in the journal"
        lines.append("the conversation is what it was before the rewind" if is_undone else back)
    if done.files is not None:
        gone = sum(step.action == "delete" for step in done.files.changes)
        counts = ((len(done.files.changes) - gone, "put back"), (gone, "deleted"))
        told = ", ".join(f"{plural(count, 'file')} {verb}" for count, verb in counts if count)
        missed = not_kept(done.files)
        nothing = "no file that is kept had changed" if missed else "no file had changed"
        lines.append(told or done.files.note or nothing)
        lines += [*left(done.files), *([missed] if missed else [])]
    return lines


# --- all of them ------------------------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[ChatCommand, str]] = {
    "context": (context_command, "what fills the window"),
    "compact": (compact_command, "replace older messages by a record of them; [FOCUS] says what matters"),
    "autocompact": (autocompact_command, "what auto-compaction does; [WINDOW|on|off|default] sets it"),
    "clear": (clear_command, "begin a new session; this one is kept"),
    "memory": (
        memory_command,
        "the memories of this project; [WORDS] searches them, review goes through what waits for you",
    ),
    "notes": (notes_command, "the notes kept of this session"),
    "pin": (
        pin_command,
        "pin [TEXT], so that it survives compactions; remove NUMBER takes one back",
    ),
    "rewind": (rewind_command, "go back to before an earlier prompt; [NUMBER] [code|conversation|both], or undo"),
    "sessions": (sessions_command, "the other sessions of this project; [NUMBER|ID] goes on with one"),
    "resume": (sessions_command, "the same as /sessions"),
    "diff": (diff_command, "what changed in files since the session began; [PATH]"),
    "model": (model_command, "which model is asked; [NAME] takes another"),
    "status": (status_command, "session, folder, model, window, mode, rules, price"),
    "permissions": (
        permissions_command,
        "the permission rules; remove NUMBER drops one, allow|ask|deny RULE adds one",
    ),
    "export": (export_command, "write the session into [FILE]: Markdown for .md, else a Claude Code log"),
    "undo": (undo_command, "take the last compaction back"),
    "retry": (retry_command, "ask the model again with what is there, as after an error"),
    "mode": (mode_command, "the permission mode; [default|accept_edits|plan|bypass] sets it"),
    "cost": (cost_command, "what this chat cost so far"),
    "help": (help_command, "this list"),
    "exit": (exit_command, "leave, as Ctrl-D does"),
}


def is_command(text: str) -> bool:
    """Whether a line is meant as a command; a path that begins with a slash isn't."""
    word = text.split(maxsplit=1)[0]
    return word.startswith("/") and "/" not in word[1:] and "." not in word


async def run_chat_command(chat: Chat, text: str) -> None:
    """Do what a command says. Raises `BadSetting` for one that there isn't."""
    name, _, argument = text[1:].partition(" ")
    name = name.strip()
    if name not in COMMANDS:
        hint = nearest(f"/{name}", [f"/{one}" for one in COMMANDS])
        raise BadSetting(f"/{name}: there is no such command{hint}{'' if hint else ':'} /help lists all")
    await COMMANDS[name][0](chat, argument.strip())
