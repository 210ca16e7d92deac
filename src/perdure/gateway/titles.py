"""What a person knows a conversation of a client by: its first real words, the client, and where it works (GW-9)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.context.view import ContextView
from perdure.engine.session import run_aside
from perdure.memory.trust.messages import without_secrets
from perdure.memory.trust.secrets import Redactor
from perdure.transcript.blocks import Block
from perdure.transcript.messages import Message
from perdure.transcript.records import Titled
from perdure.transcript.texts import first_words, texts_of
from perdure.transcript.tool_calls.refusals import ClientName

_NAMED_BY = 3  # answers; what isn't known of a conversation by then stays unknown, unless nothing is known of it
_FIRST = 6  # messages in which a person's first words are looked for
# Everything that repeats is bounded: a text that begins like one of these again and again is still read in no time.
_FOLDER = re.compile(
    r"^[^\w\n]{0,40}(?:primary |current )?working directory(?: is)?: {0,8}(?P<line>[^\n]{1,1000})"
    r"|<cwd>(?P<element>[^<\n]{1,1000})</cwd>"
    r"|current working directory \((?P<aside>[^()\n]{1,1000})\)",
    re.IGNORECASE | re.MULTILINE,
)
_PATH = re.compile(r"(?:/|~|[A-Za-z]:\\).{0,1000}")
_CLIENTS = {
    "claude-cli": "Claude Code",
    "codex_cli_rs": "Codex",
    "codex_exec": "Codex",
    "codex-tui": "Codex",
    "qwencode": "Qwen Code",
    "qwen-code": "Qwen Code",
    "cline": "Cline",
    "opencode": "opencode",
    "goose": "goose",
    "litellm": "LiteLLM",
    "anthropic/python": "Anthropic's SDK",
    "asyncanthropic/python": "Anthropic's SDK",
    "anthropic/js": "Anthropic's SDK",
    "openai/python": "OpenAI's SDK",
    "asyncopenai/python": "OpenAI's SDK",
    "openai/js": "OpenAI's SDK",
}

_KNOWN: Final[dict[str, ClientName]] = {"Claude Code": "claude-code", "Codex": "codex"}


async def titled(view: ContextView, client: str) -> Titled | None:
    """What a conversation is known by, as far as it wasn't before its next answer; None when there is nothing more.

    A client that comes with a long history is named as well, whatever answers it had elsewhere.
    """
    known, said = view.state.title, [item.message for item in view.items[:_FIRST]]
    if view.state.responses >= _NAMED_BY and (known.title or known.client):
        return None
    system = view.front.system if view.front else ()

    def found() -> tuple[str | None, str | None]:
        shown = (without_secrets(message, Redactor()) for message in said)  # before a title is cut (SEC-5)
        title = first_words(shown) if known.title is None else None
        return title, folder_of(system, said) if known.folder is None else None

    title, folder = await run_aside(sum(len(block.raw) for message in said for block in message.blocks), found)
    name = client_name(client) or None if known.client is None else None
    return Titled(title=title, folder=folder, client=name) if title or folder or name else None


def client_name(agent: str) -> str:
    """A client as people call it, with its version: `Claude Code 2.1.197` for `claude-cli/2.1.197`."""
    for name, shown in _CLIENTS.items():
        if agent.lower() == name or agent.lower().startswith((f"{name}/", f"{name} ")):
            return f"{shown} {agent[len(name) + 1 :]}".strip()
    return agent


def known_client(agent: str) -> tuple[ClientName, str] | None:
    """A client whose tools are known by their names, by what it calls itself, and its version; None for others."""
    name, _, version = agent.partition("/")
    known = _KNOWN.get(_CLIENTS.get(name.lower(), ""))
    return None if known is None else (known, version.partition(" ")[0])


def folder_of(system: Iterable[msgspec.Raw], messages: Iterable[Message]) -> str | None:
    """Where the client says that it works, in its system prompt or its first messages."""
    blocks = (Block(bytes(raw)) for raw in system)
    of_user = (block for message in messages if message.role == "user" for block in message.blocks)
    for text in texts_of((*blocks, *of_user)):
        for found in _FOLDER.finditer(text):
            path = str(next(filter(None, found.groups()))).strip().strip("`\"'")
            if _PATH.fullmatch(path) and path.isprintable():
                return path
    return None
