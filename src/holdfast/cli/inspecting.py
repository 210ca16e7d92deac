"""`holdfast inspect`: what a session consists of, what happened to it, and what is odd about it (CLI-2)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.cli.anomalies import Anomaly, anomalies
from holdfast.cli.door import clean, cut, out, out_json
from holdfast.cli.opened import Opened, opened
from holdfast.cli.tables import plural, table
from holdfast.cli.window import category_table, window_data
from holdfast.context.accounting import account

if TYPE_CHECKING:
    from holdfast.adapters.config import Config

_SHOWN = 10


def inspect_command(reference: str, config: Config, *, session: str | None, is_json: bool) -> None:
    """Each session that the reference holds, one after the other."""
    found = opened(reference, config, session=session)
    if not is_json and len(found) > 1:
        out(f"{clean(reference)}: {plural(len(found), 'session')}\n")
    for one in found:
        if is_json:
            out_json(_data(one))
        else:
            _report(one)


def _data(one: Opened) -> dict[str, Any]:
    roles = Counter(message.role for message in one.messages if message.agent_id is None)
    return {
        "file": one.name,
        "session": one.session,
        "format": one.format,
        "title": one.title,
        "model": one.view.front.model if one.view.front else None,
        "messages": dict(roles),
        "responses": one.view.state.responses,
        "sub_agents": len({m.agent_id for m in one.messages if m.agent_id is not None}),
        **window_data(one, account(one.view, one.facts)),
        "boundaries": [
            {
                "id": b.id,
                "after_messages": b.after,
                "trigger": b.trigger,
                "tokens_before": b.tokens_before,
                "tokens_after": b.tokens_after,
            }
            for b in one.boundaries
        ],
        "microcompactions": one.microcompactions,
        "anomalies": [
            {"kind": a.kind, "count": a.count, "what": a.what, "where": list(a.where)} for a in anomalies(one.messages)
        ],
        "problems": [{"line": problem.line, "what": problem.what} for problem in one.problems],
    }


def _report(one: Opened) -> None:
    data = _data(one)
    title = f": {cut(one.title, 80)}" if one.title else ""
    out(f"{clean(one.session)}{title}")
    counts = ", ".join(f"{count:,} {role}" for role, count in data["messages"].items()) or "none"
    model = f", model {clean(data['model'])}" if data["model"] else ""
    out(f"  {clean(one.name)}, format {one.format}{model}")
    agents = f"; {plural(data['sub_agents'], 'sub-agent')} beside them" if data["sub_agents"] else ""
    out(f"  messages: {counts} ({plural(data['responses'], 'response')}){agents}")
    out(f"  at the end: {data['tokens']:,} of {data['window']:,} tokens, {data['percent_left']:.0f}% left\n")
    category_table(account(one.view, one.facts))
    out()
    _boundaries(one)
    _anomalies(anomalies(one.messages), one)
    out()


def _boundaries(one: Opened) -> None:
    if not one.boundaries:
        out("  no compactions")
    else:
        rows = [(b.after, b.trigger, b.tokens_before, b.tokens_after, b.id) for b in one.boundaries]
        table(("after messages", "compaction", "tokens before", "after", "id"), rows, indent="  ")
    if one.microcompactions:
        out(f"  {plural(one.microcompactions, 'time')} old results were cleared")


def _anomalies(found: list[Anomaly], one: Opened) -> None:
    for anomaly in found:
        more = ", …" if anomaly.count > len(anomaly.where) else ""
        out(f"  {anomaly.what}: {anomaly.count:,} ({clean(', '.join(anomaly.where))}{more})")
    for problem in one.problems[:_SHOWN]:
        place = f"line {problem.line}: " if problem.line else ""
        out(f"  {place}{cut(problem.what, 160)}")
    if len(one.problems) > _SHOWN:
        out(f"  … and {len(one.problems) - _SHOWN} more (--json lists all)")
    if not found and not one.problems:
        out("  nothing odd")
