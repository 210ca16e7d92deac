"""What a person knows a client's conversation by (GW-9)."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from perdure.context.view import project
from perdure.gateway.titles import client_name, titled
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Front, Record, Titled

pytestmark = pytest.mark.unit


def known(*texts: str, system: str = "You help.", before: Titled | None = None, client: str = "") -> Titled | None:
    blocks = [{"type": "text", "text": text} for text in texts]
    records: list[Record] = [Front(model="m", system=system)]
    records += [before] if before else []
    records.append(Message.of("user", blocks, id=MessageId("m1")))
    return asyncio.run(titled(project(records), client))


@pytest.mark.parametrize(
    ("texts", "title"),
    [
        (("  Mend the\nparser ",), "Mend the parser"),
        (("<system-reminder>\nnever mind\n</system-reminder>", "Mend the parser"), "Mend the parser"),
        (("<environment_context>\n<cwd>/w</cwd>\n</environment_context>", "go"), "go"),
        (("# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>be nice</INSTRUCTIONS>", "go"), "go"),
        (("<task>\nMend it\n</task>\n# task_progress\nwrite a list",), "Mend it"),
        (("word " * 100,), ("word " * 100)[:79].rstrip() + "…"),
        (("<system-reminder>only this</system-reminder>",), None),
    ],
)
def test_the_title_is_a_persons_first_words(texts: tuple[str, ...], title: str | None) -> None:
    """GW-9: not a client's reminders, context or instructions."""
    told = known(*texts)
    assert (told and told.title) == title


@pytest.mark.parametrize(
    ("system", "said", "folder"),
    [
        ("<env>\nWorking directory: /home/ann/My Shop\nIs directory a git repo: Yes", "go", "/home/ann/My Shop"),
        (" - Primary working directory: /srv/shop\n", "go", "/srv/shop"),
        ("none", "<environment_context>\n  <cwd>/w/x</cwd>\n</environment_context>", "/w/x"),
        ("none", "# Current Working Directory (/w/y) Files\na.py", "/w/y"),
        ("The working directory: is where you are", "go", None),
    ],
)
def test_the_folder_is_where_the_client_says_it_works(system: str, said: str, folder: str | None) -> None:
    """GW-9."""
    told = known(said, system=system)
    assert (told and told.folder) == folder


@pytest.mark.parametrize(
    "said",
    [
        "\n" * 200_000,
        "- \n" * 60_000,
        "- " * 100_000,
        "working directory: a" + " " * 200_000 + "b",
        "working directory:" + " " * 200_000,
        "current working directory (" * 8_000,
        "<cwd>" * 40_000,
        "<cwd>" + "a" * 200_000,
        "</task>" + "<task>" * 30_000,
        "<user_query>" * 15_000,
        "<system-reminder>" * 12_000,
        "<environment_context>" * 9_000,
    ],
    ids=lambda said: said.strip()[:24] or "blank",
)
def test_no_text_takes_long_to_look_through(said: str) -> None:
    """SPD-8, SEC-6: a title is made on the loop of all tenants; one text of 100 KB once held it for minutes."""
    began = time.process_time()
    known(said, said, system=said)
    assert time.process_time() - began < 0.5


def test_a_client_that_joins_with_a_long_history_is_known_as_well() -> None:
    """GW-9: by its first words, though it had many answers elsewhere; who is known isn't looked at again and again."""
    records: list[Record] = [Front(model="m")]
    for n in range(8):
        records.append(Message.of("user", f"question {n}", id=MessageId(f"u{n}")))
        answer = Message.of("assistant", f"answer {n}", id=MessageId(f"a{n}"))
        records.append(msgspec.structs.replace(answer, origin="model"))
    joined = project(records)
    assert joined.state.responses == 8
    told = asyncio.run(titled(joined, "claude-cli/2.1.197"))
    assert told == Titled(title="question 0", client="Claude Code 2.1.197")
    assert asyncio.run(titled(project([*records, Titled(client="X")]), "claude-cli/2.1.197")) is None


def test_what_is_known_stays() -> None:
    """GW-9, ENG-5: a title that a person gave isn't replaced; clients have the names that people call them."""
    assert known("other words", before=Titled(title="Mine", client="X", folder="/w")) is None
    told = known("words", before=Titled(title="Mine"), client="claude-cli/2.1.197")
    assert told == Titled(client="Claude Code 2.1.197")
    assert client_name("AsyncOpenAI/Python 3.54.0") == "OpenAI's SDK 3.54.0"
    assert client_name("codex_cli_rs/0.169.0") == "Codex 0.169.0" and client_name("curl/8") == "curl/8"
