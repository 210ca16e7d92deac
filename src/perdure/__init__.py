"""Perdure: a context and memory engine for long-running LLM agents.

The journal is the truth; what the model sees is a pure fold of it. Three levels, the same code (LIB-1):

- pure: `project(records)`, `CHEAP_PASSES`, `legal_cuts`, `pressure`, `to_request`, in any loop of your own;
- a `Session` over files or memory: `append`, `prepare`, `compact`;
- adapters and doors above them: the `perdure` command, the replay of recorded sessions.

    import anyio
    from perdure import Message, memory_session, prepare

    async def main() -> None:
        session = await memory_session()
        await session.append(Message.of("user", "What does src/app.py do?"))
        turn = await prepare(session)
        print(turn.tokens, len(turn.request.body))

    anyio.run(main)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# name -> where it is defined; loaded when it is first used, so that the import stays light (LIB-2, SPD-5)
_FACE = {
    "Agent": "agent.loop",
    "CHEAP_PASSES": "compaction.passes",
    "Block": "transcript.blocks",
    "Facts": "context.policy",
    "Front": "transcript.records",
    "PerdureError": "errors",
    "Message": "transcript.messages",
    "Pressure": "context.policy",
    "Session": "engine.session",
    "Settings": "settings",
    "Usage": "transcript.messages",
    "ContextView": "context.view",
    "account": "context.accounting",
    "compact": "engine.compact",
    "create_session": "wiring",
    "legal_cuts": "context.cuts",
    "memory_session": "wiring",
    "open_session": "wiring",
    "prepare": "engine.turn",
    "prepend_context": "context.reminders",
    "pressure": "context.policy",
    "project": "context.view",
    "recall_tool": "engine.tools",
    "run_turn": "engine.turn",
    "to_request": "context.request",
}

__version__ = "0.1.0"
__all__ = sorted(_FACE)  # noqa: PLE0605 - the table above is the one list of public names


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    value = getattr(import_module(f"perdure.{_FACE[name]}"), "LiveSession" if name == "Session" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_FACE])
