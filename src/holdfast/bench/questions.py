"""A corpus with questions, as the retrieval bench reads it (docs/retrieval.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import BadSetting

Kind = Literal["turns", "sessions", "memories"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be found. Only `id` and a text are needed; the rest makes it a turn, a session or a memory."""

    id: str
    text: str = ""
    session: str = ""
    speaker: str = ""
    time: str = ""
    order: float | None = None
    group: str = ""
    name: str = ""
    description: str = ""
    type: str = ""
    keywords: tuple[str, ...] = ()

    @property
    def all_text(self) -> str:
        """All that it says, as a ranker without fields takes it."""
        parts = (self.speaker, self.name, self.description, " ".join(self.keywords), self.text)
        return "\n".join(part for part in parts if part)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question and the ids of the items that answer it. `before`: only items earlier than this one's id or order."""

    text: str = msgspec.field(name="query", default="")
    evidence: tuple[str, ...] = ()
    id: str = ""
    group: str = ""
    before: str | float | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    corpus: tuple[Item, ...]
    queries: tuple[Question, ...]
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Corpus:
    """Items and questions. Items with a group are found by questions of that group, those without by all."""

    kind: Kind
    items: tuple[Item, ...]
    questions: tuple[Question, ...]

    def groups(self) -> Iterator[tuple[Sequence[Item], Sequence[Question]]]:
        """The items of each group in their order, oldest first, and its questions."""
        for name in dict.fromkeys(question.group for question in self.questions):
            items = [item for item in self.items if not item.group or not name or item.group == name]
            if any(item.order is not None for item in items):
                first = {item.session: n for n, item in reversed(list(enumerate(items)))}
                place = first if self.kind == "turns" else {}  # turns may be counted within their session
                items.sort(key=lambda i: (place.get(i.session, 0), i.order if i.order is not None else float("inf")))
            elif items and all(item.time for item in items) and self.kind != "turns":
                items.sort(key=lambda item: item.time)
            yield items, [question for question in self.questions if question.group == name]

    def end(self, items: Sequence[Item], question: Question) -> int:
        """How many of the items a question may find: all, or those before what it names."""
        before = question.before
        if before is None:
            return len(items)
        if isinstance(before, str):
            return next((n for n, item in enumerate(items) if item.id == before), len(items))
        return sum(1 for n, item in enumerate(items) if (item.order if item.order is not None else n) < before)


def read(path: Path) -> Corpus:
    """The corpus in a file. Raises `BadSetting` with one line that says what is wrong where."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise BadSetting(f"{path}: {e.strerror or e}: name a file of questions (docs/retrieval.md)") from None
    try:
        file = msgspec.json.decode(_plain(data), type=_File, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BadSetting(f"{path}: {e}: see docs/retrieval.md for the form") from None
    return checked(file, path)


def _plain(data: bytes) -> bytes:
    """The file with the other names that its fields may have."""
    value = msgspec.json.decode(data)
    if not isinstance(value, dict):
        raise msgspec.DecodeError("not an object with corpus and queries")
    for item in value.get("corpus") or ():
        if isinstance(item, dict):
            for name in ("id", "session", "speaker", "time", "group"):
                if item.get(name) is None:
                    item.pop(name, None)
                elif not isinstance(item[name], str):
                    item[name] = str(item[name])
            if not isinstance(item.get("order"), int | float):
                item.pop("order", None)
    for query in value.get("queries") or ():
        if isinstance(query, dict):
            for ours, theirs in (("query", "text"), ("query", "question"), ("evidence", "evidence_ids")):
                if ours not in query and theirs in query:
                    query[ours] = query[theirs]
            query["evidence"] = [str(one) for one in query.get("evidence") or ()]
            for name in ("id", "group"):
                if name in query:
                    query[name] = str(query[name])
    return msgspec.json.encode(value)


def checked(file: _File, path: Path) -> Corpus:
    """The corpus of a file that says what it has to; questions without any evidence in it are left out."""
    ids = {item.id for item in file.corpus}
    if len(ids) != len(file.corpus):
        twice = next(item.id for n, item in enumerate(file.corpus) if item.id in {i.id for i in file.corpus[:n]})
        raise BadSetting(f"{path}: two items have the id {twice!r}: ids have to be unique in a file")
    known = []
    for number, question in enumerate(file.queries, 1):
        evidence = tuple(dict.fromkeys(one for one in question.evidence if one in ids))
        if question.text.strip() and evidence:
            identity = question.id or str(number)
            known.append(msgspec.structs.replace(question, evidence=evidence, id=identity))
    if not known:
        raise BadSetting(f"{path}: no question has evidence in the corpus: see docs/retrieval.md for the form")
    return Corpus(file.kind or _kind(file.corpus), file.corpus, tuple(known))


def _kind(items: Sequence[Item]) -> Kind:
    if any(item.session for item in items):
        return "turns"
    return "memories" if any(item.name or item.description or item.type for item in items) else "sessions"
