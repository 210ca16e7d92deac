"""`perdure purge` and `gc`: what is taken out of everything that is kept, and what nobody needs any more (SEC-12)."""

from __future__ import annotations

import getpass
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.arguments import Json, Sets, beside_home, complete_sessions, configured, examples, family, located
from perdure.cli.kept import KeptIn, StoreUrl
from perdure.cli.output import EXIT_FAILED, EXIT_OK, clean, note, out, out_json, plural, size
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.adapters.care.purge import PurgeReport
    from perdure.adapters.config import Config

app = family()
_KINDS = {
    "journal": "journal",
    "blob": "stored result",
    "checkpoints": "checkpoint store",
    "memory": "memory file",
    "state": "state of the plugin",
    "file": "other file",
}


@app.command(
    epilog=examples(
        "perdure purge",
        "perdure purge --dry-run < secret.txt",
        "perdure purge @last toolu_01",
    )
)
def purge(
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="The session of a message.", autocompletion=complete_sessions),
    ] = None,
    identity: Annotated[
        str | None, typer.Argument(metavar="ID", help="The id of a message, call or result, as `search` shows it.")
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say where it is.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before it is done.")] = False,
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """Take a text or a message out of everything that is kept.

    Without SESSION and ID, the text is asked for, or read from stdin. It can't be undone.
    """
    from perdure.adapters.care.purge import Purge, find_message

    KeptIn(store).only_files(
        "a purge reaches this machine's files only: in a database, `perdure sessions delete` takes out whole sessions, "
        "and `perdure store delete-tenant` all of a tenant"
    )
    config = configured()
    if (session is None) != (identity is None):
        raise BadSetting("give a session and the id of a message, or neither to purge a text")
    message = find_message(located(session), identity) if session is not None and identity is not None else None
    texts = () if message is not None else (_text_to_purge(),)
    memories, links = _memories_elsewhere(config)
    beside = beside_home(config)
    job = Purge(config.home, getpass.getuser(), time.time(), texts, message, memories, beside)
    found = job.look()
    if not (dry_run or yes or _is_agreed(found)):
        note("nothing was changed")
        raise typer.Exit(EXIT_FAILED)
    report = found if dry_run else Purge(job.home, job.by, job.at, texts, message, memories, beside).carry_out()
    report.unread += [f"{one}: a link in a project, which a purge doesn't follow" for one in links]
    if json:
        out_json(
            {
                "places": [{"path": str(place.path), "kind": place.what} for place in report.places],
                "left": report.left,
                "unread": report.unread,
                "purged": not dry_run,
            }
        )
    else:
        _tell(report, is_done=not dry_run)
    raise typer.Exit(EXIT_FAILED if report.left or report.unread else EXIT_OK)


def _text_to_purge() -> str:
    """The text, typed without being shown or from a pipe; never from the command line, which shells remember."""
    from perdure.text.purging import LEAST_CHARS, MOST_CHARS

    if sys.stdin is not None and sys.stdin.isatty():
        text = getpass.getpass("Text to purge (it isn't shown): ")
    else:
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape") if sys.stdin is not None else ""
    text = text.strip("\r\n")
    if len(text.strip()) < LEAST_CHARS:
        raise BadSetting(f"the text has fewer than {LEAST_CHARS} characters, and would be found everywhere by chance")
    if len(text) > MOST_CHARS:
        raise BadSetting(
            f"the text has {len(text):,} characters, at most {MOST_CHARS:,} are looked for: purge parts of it"
        )
    return text


def _is_agreed(found: PurgeReport) -> bool:
    if not found.places:
        return True  # what was indexed of it goes all the same
    if sys.stdin is None or not sys.stdin.isatty():
        raise BadSetting(f"it stands in {plural(len(found.places), 'place')}: --yes purges it, --dry-run names them")
    _tell(found, is_done=False)
    return typer.confirm("Purge it for good?")


def _tell(report: PurgeReport, *, is_done: bool) -> None:
    from perdure.adapters.stores import ELSEWHERE

    counts = Counter(_KINDS[place.what] for place in report.places)
    told = ", ".join(plural(count, kind) for kind, count in counts.items())
    if not is_done:
        for place in report.places:
            out(f"{_KINDS[place.what]:<24} {clean(str(place.path))}")
    if told or not report.left:
        out(f"{'purged from' if is_done else 'found in'} {told}" if told else "it is nowhere in what Perdure keeps")
    for line in report.left:
        note(line)
    for line in report.unread:
        note(f"not searched: {line}")
    if is_done:
        for one in ELSEWHERE:
            note(f"not searched: {one}")


def _memories_elsewhere(config: Config) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Folders of memories outside the home: the one that the settings name, and those in the projects.

    And links that stand in the way of one in a project: whoever wrote the project chose where they lead.
    """
    from perdure.adapters.journal import SessionStore
    from perdure.adapters.journal.disk import first_link
    from perdure.adapters.journal.projects import PROJECTS
    from perdure.adapters.machine.repositories import memory_roots
    from perdure.memory.places import AGENTS, AGENTS_LOCAL, project_directory

    found: dict[Path, None] = {}
    links: dict[Path, None] = {}
    home = config.home.resolve()
    for name in {str(Path.cwd()), *(info.project for info in SessionStore(config.home).list())}:
        roots = memory_roots(config.home, Path(name), directory=config.settings.memory_directory)
        # Where the user's own settings say, link or not; without them in the home, where no link is followed.
        kept = [Path(project_directory(roots)).resolve()] if config.settings.memory_directory else []
        for folder in (AGENTS, AGENTS_LOCAL):
            there = Path(roots.root) / roots.folder / folder
            if (link := first_link(there, Path(roots.root))) is not None:
                links[link] = None
            else:
                kept.append(Path(roots.root).resolve() / roots.folder / folder)
        mine = (home, (home / PROJECTS).resolve())
        found |= {one: None for one in kept if one.is_dir() and not any(map(one.is_relative_to, mine))}
    return tuple(found), tuple(links)


@app.command(epilog=examples("perdure gc --dry-run", "perdure gc", "perdure gc --set retention_days=90 --dry-run"))
def gc(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Remove what nobody needs any more.

    Leftovers of killed processes, stored results that no record names, and what the index has of deleted sessions. With
    the settings retention_days and max_home_bytes also old sessions, but for those with the tag keep.
    """
    from perdure.adapters.care.collect import HomeCollection

    config = configured(sets or ())
    days, most = config.settings.retention_days, config.settings.max_home_bytes
    wanted = HomeCollection(config.home, time.time(), days, most, beside=beside_home(config))
    done = wanted.collect(dry_run=dry_run)
    if json:
        gone = [{"path": str(one.path), "bytes": one.bytes, "why": one.why} for one in done.gone]
        out_json({"gone": gone, "bytes": done.bytes, "left": done.left, "kept": done.kept, "removed": not dry_run})
    else:
        for one in done.gone:
            out(f"{size(one.bytes):>8}  {clean(str(one.path))}: {one.why}")
        verb = "would be freed" if dry_run else "freed"
        out(f"{size(done.bytes)} {verb}" if done.gone else "there is nothing that nobody needs")
        for line in (*done.kept, *done.left):
            note(line)
    raise typer.Exit(EXIT_FAILED if done.left else EXIT_OK)
