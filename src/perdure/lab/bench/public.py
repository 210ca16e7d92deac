"""Public benchmarks from folders that somebody fetched: LoCoMo and BEAM, without a model that judges (QLT-6).

Nothing is fetched. What is measured is whether the messages that the authors name as evidence are found; the ground
truth is theirs, and so are the categories.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from perdure.adapters.logs import read_log
from perdure.errors import BadSetting, ForeignFormat, SessionNotFound
from perdure.lab.bench.precision import PrecisionFolder
from perdure.lab.bench.retrieval import (
    Corpus,
    CorpusItem,
    CorpusQuestion,
    RankedAnswer,
    RetrievalRow,
    answers_of,
    named_rankers,
    row_of,
)
from perdure.text.words import MONTHS

_Form = TypeVar("_Form")
SetKind = Literal["locomo", "beam", "precision"]
KINDS: Final[tuple[SetKind, ...]] = ("locomo", "beam", "precision")

LOCOMO_CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
LOCOMO_TUNED: Final = frozenset({"conv-26", "conv-30", "conv-41", "conv-42", "conv-43"})  # the first five of its ten
BEAM_SIZES: Final = {"100K": "128K", "500K": "500K", "1M": "1M"}  # by folder; the paper calls the first 128K
BEAM_TUNED: Final = "100K"
PUBLISHED: Final[Mapping[str, str]] = {  # of what docs/measured/benchmarks.md has figures of: `PublicSet.digest`
    "LoCoMo": "873aca715fe8b8cceb7d846bedf8e3542a04565ae41b2e6e4aaecc8db39e60a7",
    "BEAM 128K": "52a27f56933d47e416be8361082cf54187c141d86fca653cd5b4c189f817b213",
    "BEAM 500K": "ce0f0d37d2f807639d226b6046f1b4c91b7d9b39b683845bd41a79f91f2c02ed",
    "BEAM 1M": "1a38bc5738ba0b17ef5d9d206a8aafa8f3c5f0482121cb15a391b710e5933f4f",  # nine of its 35 chats
}

_MOST_DEPTH = 6
_MOST_ENTRIES = 100_000
_TOLD_EACH = 2_000  # of these, so that a large tree isn't walked without a word
_SKIPPED = frozenset({"node_modules", ".git", "10M"})
_BEAM_QUESTIONS = ("probing_questions", "probing_questions.json")
_BEAM_CHATS = ("chat_trunecated.json", "chat.json")  # so spelled; its authors take the first that is there
_DIALOGUE_ID = re.compile(r"D:?(\d{1,9}):0*(\d{1,9})\b", re.ASCII)  # longer ones are none, and too long to be numbers
_SESSION = re.compile(r"session_(\d{1,9})", re.ASCII)
_BEAM_INDEX = re.compile(r"\s*->->\s*[\d,\s]*$")
_BEAM_DATE = re.compile(r"([A-Za-z]{3})[a-z]*-(\d{1,2})-(\d{4})")


class _LocomoTurn(msgspec.Struct, frozen=True):
    dia_id: str
    text: str = ""
    speaker: str = ""
    blip_caption: str = ""


class _LocomoQuestion(msgspec.Struct, frozen=True):
    question: str
    category: int
    evidence: tuple[str, ...] = ()


class _LocomoDialogue(msgspec.Struct, frozen=True):
    sample_id: str
    conversation: dict[str, Any]
    qa: tuple[_LocomoQuestion, ...]


class _BeamMessage(msgspec.Struct, frozen=True):
    id: int
    role: str
    content: str
    time_anchor: str | None = None


class _BeamBatch(msgspec.Struct, frozen=True):
    turns: tuple[tuple[_BeamMessage, ...], ...]
    time_anchor: str | None = None


class _BeamQuestion(msgspec.Struct, frozen=True):
    question: str
    source_chat_ids: Any = None


@dataclass(frozen=True, slots=True)
class FoundFolder:
    """What stands in a folder: files of LoCoMo, chats of BEAM with their questions by size, PrecisionMemBench."""

    path: Path
    locomo: tuple[Path, ...] = ()
    beam: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    precision: tuple[PrecisionFolder, ...] = ()

    @property
    def kinds(self) -> tuple[SetKind, ...]:
        """Which sets it has something of."""
        return tuple(kind for kind in KINDS if getattr(self, kind))

    def only(self, kinds: Collection[str]) -> FoundFolder:
        """The same without other sets."""
        return FoundFolder(
            self.path,
            self.locomo if "locomo" in kinds else (),
            self.beam if "beam" in kinds else {},
            self.precision if "precision" in kinds else (),
        )


@dataclass(frozen=True, slots=True)
class PublicSet:
    """A set as it is measured. `updates`: of a question about a value that changed, the messages with the new and the
    old one. `left_out` counts by reason. `tuned`: groups that our ranker was tuned on; the rest only checks it."""

    name: str
    kind: SetKind
    corpus: Corpus
    categories: Mapping[str, str]
    files: Mapping[str, str]
    left_out: Mapping[str, int]
    tuned: frozenset[str]
    updates: Mapping[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """One hash of all files: of their hashes and names, sorted by name."""
        lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.files.items()))
        return hashlib.sha256(lines.encode()).hexdigest()

    @property
    def is_as_published(self) -> bool:
        """Whether these are the files that docs/measured/benchmarks.md has figures of."""
        return PUBLISHED.get(self.name) == self.digest

    def part_of(self, question: CorpusQuestion) -> str:
        """Whether the conversation of a question was tuned on."""
        return "tuned on" if question.group in self.tuned else "only checked"


@dataclass(frozen=True, slots=True)
class PublicRow:
    """One ranker over a set: means over all, by part and by category, and how often the newest value stood above."""

    ranker: str
    all: RetrievalRow
    parts: Mapping[str, RetrievalRow]
    categories: Mapping[str, RetrievalRow]
    newest_first: float | None


# --- reading ---------------------------------------------------------------------------------------------------------


def found_folders(
    folders: Sequence[Path], only: Sequence[str] = (), *, on_look: Callable[[str], object] = str
) -> list[FoundFolder]:
    """What stands in some folders, of the kinds that are wanted.

    Raises:
        BadSetting: There is no such kind of set.
        SessionNotFound: There is nothing of the sets there.
    """
    unknown = [name for name in only if name not in KINDS]
    if unknown:
        raise BadSetting(f"--only {unknown[0]}: there are {', '.join(KINDS)}")
    found = []
    for folder in folders:
        if not folder.is_dir():
            raise SessionNotFound(f"{folder}: no such folder")
        here = look_through(folder, on_look)
        if not here.kinds:
            raise SessionNotFound(
                f"{folder}: nothing of LoCoMo, BEAM or PrecisionMemBench: see docs/measured/benchmarks.md"
            )
        found.append(here.only(only or KINDS))
    if not any(here.kinds for here in found):
        raise SessionNotFound(f"nothing of {', '.join(only)} in {', '.join(map(str, folders))}")
    return found


def public_sets(found: Sequence[FoundFolder]) -> Iterator[PublicSet]:
    """The sets of LoCoMo and BEAM in them, read one by one. `ForeignFormat` for a file that isn't of its set's form."""
    for here in found:
        yield from (_locomo(path) for path in here.locomo)
        for size in sorted(here.beam, key=lambda size: (_place(size), size)):
            yield _beam(size, here.beam[size], here.path)


def _place(size: str) -> int:
    return list(BEAM_SIZES).index(size) if size in BEAM_SIZES else len(BEAM_SIZES)


def look_through(folder: Path, on_look: Callable[[str], object] = str) -> FoundFolder:
    """What is in a folder and those below it; links are not followed. `on_look` hears how far it is."""
    locomo: list[Path] = []
    beam: dict[str, list[Path]] = {}
    precision: list[PrecisionFolder] = []
    seen = told = 0
    for name, folders, files in os.walk(folder):
        here = Path(name)
        folders[:] = sorted(one for one in folders if one not in _SKIPPED)
        if len(here.parts) - len(folder.parts) >= _MOST_DEPTH:
            folders.clear()
        if PrecisionFolder.is_one(here):
            precision.append(PrecisionFolder(here))
            folders.clear()
            continue
        seen += len(folders) + len(files)
        if seen - told >= _TOLD_EACH:
            told = seen
            on_look(f"{folder}: {seen:,} files and folders looked at")
        if seen > _MOST_ENTRIES:
            raise ForeignFormat(f"{folder}: more than {_MOST_ENTRIES:,} files: name the folder of the set")
        locomo += [here / one for one in sorted(files) if one.startswith("locomo") and one.endswith(".json")]
        if here.name == _BEAM_QUESTIONS[0] and _BEAM_QUESTIONS[1] in files:
            chat = here.resolve().parent
            beam.setdefault(chat.parent.name, []).append(here.parent)
    return FoundFolder(
        folder,
        tuple(locomo),
        {size: tuple(sorted(chats, key=lambda chat: (len(chat.name), chat.name))) for size, chats in beam.items()},
        tuple(precision),
    )


def _decoded(path: Path, form: type[_Form]) -> tuple[_Form, str]:
    """What a file holds, and its hash. `ForeignFormat` with one line of what is wrong where."""
    data = read_log(path)[0]
    try:
        return msgspec.json.decode(data, type=form, strict=False), hashlib.sha256(data).hexdigest()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise ForeignFormat(f"{path}: {e}: see docs/measured/benchmarks.md for what it has to be") from None


def _locomo(path: Path) -> PublicSet:
    dialogues, digest = _decoded(path, tuple[_LocomoDialogue, ...])
    items: list[CorpusItem] = []
    questions: list[CorpusQuestion] = []
    categories: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for dialogue in dialogues:
        group = dialogue.sample_id
        mine = list(_locomo_turns(dialogue, path))
        known = {item.id for item in mine}
        items += mine
        for number, one in enumerate(dialogue.qa, 1):
            named = [f"{group} D{int(a)}:{b}" for text in one.evidence for a, b in _DIALOGUE_ID.findall(text)]
            evidence = tuple(dict.fromkeys(name for name in named if name in known))
            if not evidence:
                left_out["evidence that isn't there" if one.evidence else "no evidence named"] += 1
                continue
            question = CorpusQuestion(text=one.question, evidence=evidence, id=f"{group} q{number}", group=group)
            questions.append(question)
            categories[question.id] = LOCOMO_CATEGORIES.get(one.category, str(one.category))
    return PublicSet(
        "LoCoMo",
        "locomo",
        _checked(items, questions, path),
        categories,
        {path.name: digest},
        left_out,
        LOCOMO_TUNED,
    )


def _locomo_turns(dialogue: _LocomoDialogue, path: Path) -> Iterator[CorpusItem]:
    group = dialogue.sample_id
    names = [(int(found[1]), name) for name in dialogue.conversation if (found := _SESSION.fullmatch(name))]
    for number, name in sorted(names):
        try:
            turns = msgspec.convert(dialogue.conversation[name], tuple[_LocomoTurn, ...], strict=False)
        except msgspec.ValidationError as e:
            raise ForeignFormat(f"{path}: {group}, {name}: {e}") from None
        time = dialogue.conversation.get(f"{name}_date_time")
        for turn in turns:
            shared = f"\n[shares {turn.blip_caption}]" if turn.blip_caption else ""
            yield CorpusItem(
                id=f"{group} {turn.dia_id}",
                text=turn.text + shared,
                session=f"{group} {number}",
                speaker=turn.speaker,
                time=time if isinstance(time, str) else "",
                group=group,
            )


def _beam(size: str, chats: Sequence[Path], folder: Path) -> PublicSet:
    items: list[CorpusItem] = []
    questions: list[CorpusQuestion] = []
    categories: dict[str, str] = {}
    files: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    updates: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for chat in chats:
        asked_in = chat.joinpath(*_BEAM_QUESTIONS)
        asked, digest = _decoded(asked_in, dict[str, tuple[_BeamQuestion, ...]])
        said_in = next((chat / name for name in _BEAM_CHATS if (chat / name).is_file()), None)
        if said_in is None:
            left_out["its chat isn't there"] += sum(len(some) for some in asked.values())
            continue
        group = f"{size}/{chat.name}"
        batches, said_digest = _decoded(said_in, tuple[_BeamBatch, ...])
        files |= {f"{group}/{'/'.join(_BEAM_QUESTIONS)}": digest, f"{group}/{said_in.name}": said_digest}
        mine = list(_beam_messages(batches, group))
        known = {item.id for item in mine}
        items += mine
        for category, some in asked.items():
            for number, one in enumerate(some, 1):
                evidence = tuple(
                    dict.fromkeys(name for name in _named_ids(one.source_chat_ids, group) if name in known)
                )
                if not evidence:
                    left_out["no evidence named" if not one.source_chat_ids else "evidence that isn't there"] += 1
                    continue
                identity = f"{group} {category} {number}"
                questions.append(CorpusQuestion(text=one.question, evidence=evidence, id=identity, group=group))
                categories[identity] = category.replace("_", " ")
                if isinstance(one.source_chat_ids, dict) and category == "knowledge_update":
                    new, old = (
                        frozenset(_named_ids(one.source_chat_ids.get(name), group))
                        for name in ("updated_info", "original_info")
                    )
                    if new - old:
                        updates[identity] = (new - old, old - new)
    return PublicSet(
        f"BEAM {BEAM_SIZES.get(size, size)}",
        "beam",
        _checked(items, questions, folder),
        categories,
        files,
        left_out,
        frozenset({question.group for question in questions} if size == BEAM_TUNED else ()),
        updates,
    )


def _beam_messages(batches: Iterable[_BeamBatch], group: str) -> Iterator[CorpusItem]:
    for number, batch in enumerate(batches):
        messages = [message for turn in batch.turns for message in turn]
        time = batch.time_anchor or next((one.time_anchor for one in messages if one.time_anchor), "")
        for message in messages:
            yield CorpusItem(
                id=f"{group} {message.id}",
                text=_BEAM_INDEX.sub("", message.content),
                session=f"{group} {number}",
                speaker=message.role,
                time=_iso(time),
                group=group,
            )


def _iso(time: str) -> str:
    """`March-15-2024` as an ISO date."""
    found = _BEAM_DATE.search(time)
    begins = found[1].lower() if found else ""
    month = next((n for n, name in enumerate(MONTHS, 1) if begins and name.startswith(begins)), None)
    return time if found is None or month is None else f"{found[3]}-{month:02}-{int(found[2]):02}"


def _named_ids(value: Any, group: str) -> Iterator[str]:
    """The messages that evidence names, however deep they are listed."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _named_ids(one, group)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield f"{group} {value}"


def _checked(items: Sequence[CorpusItem], questions: Sequence[CorpusQuestion], path: Path) -> Corpus:
    twice = [name for name, count in Counter(item.id for item in items).items() if count > 1]
    if twice:
        raise ForeignFormat(f"{path}: two messages have the id {twice[0]!r}")
    if not questions:
        raise ForeignFormat(f"{path}: no question has evidence that is there")
    return Corpus("turns", tuple(items), tuple(questions))


# --- measuring -------------------------------------------------------------------------------------------------------


def measured_set(
    one: PublicSet, names: Sequence[str] = (), on_ranker: Callable[[str], object] = str
) -> list[PublicRow]:
    """Every ranker, or those named, over all questions of a set; `search` writes journals first: only if named."""
    rows = []
    for name in named_rankers(one.corpus.kind, names):
        if name == "search" and not names:
            continue
        on_ranker(f"{one.name}: {name}")
        answers, build = answers_of(name, one.corpus)
        rows.append(
            PublicRow(
                name,
                row_of(name, answers, build),
                _by(name, answers, one.part_of),
                _by(name, answers, lambda question: one.categories[question.id]),
                newest_first(answers, one.updates),
            )
        )
    return rows


def _by(name: str, answers: Sequence[RankedAnswer], key: Callable[[CorpusQuestion], str]) -> dict[str, RetrievalRow]:
    groups: dict[str, list[RankedAnswer]] = {}
    for answer in answers:
        groups.setdefault(key(answer.question), []).append(answer)
    return {one: row_of(name, groups[one]) for one in sorted(groups)}


def newest_first(
    answers: Iterable[RankedAnswer], updates: Mapping[str, tuple[frozenset[str], frozenset[str]]]
) -> float | None:
    """Of the answers that hold the new or the old value of something, the share in which the new one stands above."""
    held = right = 0
    for answer in answers:
        new, old = updates.get(answer.question.id, (frozenset(), frozenset()))
        for found in answer.runs:
            first = next((one for one in found if one in new or one in old), None)
            held += first is not None
            right += first in new
    return right / held if held else None
