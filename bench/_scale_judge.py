"""What a database holds after a storm, read with code of its own: no reader of a journal is shared with the package.

`AUDIT` has the database itself write down who opened a session, who wrote to it, and what was claimed and done. That is
held against what clients have, what they were told, and what reached their models.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final

import msgspec
from bench._talks import Atom, Attempt, RecordedModel, Sent, Talk

from perdure.testing.postgres import PostgresServer
from perdure.testing.s3 import StoredObject

Json = dict[str, Any]

AUDIT: Final = """
ALTER TABLE public.effects ADD tx xid8 DEFAULT pg_current_xact_id();
CREATE FUNCTION public.moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO public.effects (session, start, until, fence)
    VALUES (new.kind || ' of ' || new.session, old.done, new.done, old.fence);
  RETURN new;
END $$;
CREATE TRIGGER moved AFTER UPDATE ON perdure.work FOR EACH ROW WHEN (new.done > old.done)
  EXECUTE FUNCTION public.moved();

CREATE TABLE public.stolen (piece text, fence bigint);
CREATE FUNCTION public.stole() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO public.stolen VALUES (new.kind || ' of ' || new.session, new.fence);
  RETURN new;
END $$;
CREATE TRIGGER stole AFTER UPDATE ON perdure.work FOR EACH ROW
  WHEN (new.owner <> old.owner AND old.lease_until > clock_timestamp()) EXECUTE FUNCTION public.stole();

CREATE TABLE public.note_writes (session bigint, name text, tx xid8 DEFAULT pg_current_xact_id());
CREATE FUNCTION public.note_written() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO public.note_writes (session, name) VALUES (new.session, new.name);
  RETURN new;
END $$;
CREATE TRIGGER note_written AFTER INSERT OR UPDATE ON perdure.notes FOR EACH ROW
  EXECUTE FUNCTION public.note_written();

-- In the order of the changes, as each holds the session's row.
CREATE TABLE public.heads (n bigserial, tenant bigint, session bigint, owner text, fence bigint, fence_before bigint,
  was_held boolean, seq bigint, seq_before bigint);
CREATE FUNCTION public.head_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO public.heads (tenant, session, owner, fence, fence_before, was_held, seq, seq_before) VALUES (new.tenant,
    new.number, new.owner, new.fence, old.fence,
    old.owner <> '' AND old.owner <> new.owner AND old.lease_until > clock_timestamp(), new.seq, old.seq);
  RETURN new;
END $$;
CREATE TRIGGER head_made AFTER INSERT ON perdure.sessions FOR EACH ROW EXECUTE FUNCTION public.head_moved();
CREATE TRIGGER head_moved AFTER UPDATE ON perdure.sessions FOR EACH ROW
  WHEN (new.fence <> old.fence OR new.seq <> old.seq OR (new.owner <> old.owner AND new.owner <> ''))
  EXECUTE FUNCTION public.head_moved();

-- What was refused, in sequences: they stay when a transaction is rolled back.
CREATE SEQUENCE public.refused_appends MINVALUE 0;
CREATE SEQUENCE public.refused_work MINVALUE 0;
CREATE SEQUENCE public.refused_renewals MINVALUE 0;
CREATE FUNCTION public.finished() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NOT EXISTS (SELECT FROM changed) AND current_query() LIKE '%SET done = %' THEN
    PERFORM nextval('public.refused_work');
  ELSIF NOT EXISTS (SELECT FROM changed) AND current_query() LIKE '%SET lease_until = %' THEN
    PERFORM nextval('public.refused_renewals');
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER finished AFTER UPDATE ON perdure.work REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
  EXECUTE FUNCTION public.finished();
GRANT ALL ON ALL TABLES IN SCHEMA public TO perdure_serving;
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO perdure_serving;
"""
# As if a session's fence were no fence: it stays as it is, whoever opens the session.
BROKEN_FENCE: Final = """
CREATE FUNCTION public.unfenced() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  new.fence := old.fence;
  RETURN new;
END $$;
CREATE TRIGGER unfenced BEFORE UPDATE ON perdure.sessions FOR EACH ROW EXECUTE FUNCTION public.unfenced();
"""
_WATCHED_APPEND: Final = """
ALTER FUNCTION perdure.append RENAME TO append_unwatched;
CREATE FUNCTION perdure.append({parameters}) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_status text := perdure.append_unwatched({names});
BEGIN
  IF v_status <> 'done' THEN
    PERFORM nextval('public.refused_appends');
  END IF;
  RETURN v_status;
END $$;
"""
_AGAIN: Final = re.compile(r"__again\d+\Z")  # behind an id that stood in an answer which was taken back
_CRC: Final = re.compile(rb',"crc":"([0-9a-f]{8})"}\n\Z')
# What changes messages that a model has seen already; what else edits, does it before they are sent.
_MOVES: Final = {"compacted", "cleared", "snipped", "collapsed", "thinking_dropped", "media_replaced", "undone"}


def watch(server: PostgresServer, url: str, *, claims: str, breaks_fence: bool = False) -> None:
    """Have the database write down what happens in it. `claims` is what the bench of the queue has it write."""
    server.execute(claims + AUDIT, url=url)
    [(parameters, names)] = server.execute(
        "SELECT pg_get_function_arguments(oid), array_to_string(proargnames, ', ') FROM pg_proc "
        "WHERE oid = 'perdure.append'::regproc",
        url=url,
    )
    server.execute(_WATCHED_APPEND.format(parameters=parameters, names=names), url=url)
    if breaks_fence:
        server.execute(BROKEN_FENCE, url=url)


@dataclass(slots=True)
class Verdict:
    """What was counted, and what is not as it must be, each with a line that says where."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def expect(self, *names: str) -> None:
        """These are printed even where nothing is wrong."""
        for name in names:
            self.wrong[name]


@dataclass(slots=True)
class Journal:
    """A session as its rows tell it."""

    session: str
    number: int
    tenant: int
    said: list[tuple[str, list[Atom]]] = field(default_factory=list)  # messages of the conversation, by id
    place: int = 0  # how many messages of its client's history it knows
    moves: list[int] = field(default_factory=list)  # the place at each change of what a model has seen already
    blobs: list[str] = field(default_factory=list)

    @property
    def atoms(self) -> list[Atom]:
        return [atom for _, atoms in self.said for atom in atoms]


LOST, TWICE, ZOMBIES = "answers or words lost", "answers or words twice", "appends of a paused owner"
DAMAGED, BACK, HELD = "lines damaged or missing", "fences that went back", "sessions with two owners at a time"
BLOBS, PREFIX, NOTES = "blobs missing or damaged", "prefixes that moved unannounced", "notes without their work"
RULES = "broken rules of the model server"
STOLEN = "pieces of work with two workers at a time"


def judge(server: PostgresServer, url: str, model: RecordedModel, bucket: Mapping[str, StoredObject]) -> Verdict:
    """Everything but the work queue, which `chaos.judge` looks at."""
    found = Verdict()
    found.expect(LOST, TWICE, ZOMBIES, HELD, BACK, STOLEN, DAMAGED, BLOBS, NOTES, PREFIX, RULES)
    journals = {journal.session: journal for journal in _journals(server, url, found)}
    for talk in model.talks.values():
        _hold_against(talk, journals, found)
        if talk.sessions:
            _look_at_prefixes(talk, model.sent.get(talk.name, []), [journals[one] for one in talk.sessions], found)
    for asked, rule in model.refusals:
        name, _, number = asked.split() if asked else ("", "", "0")
        attempts = model.talks[name].attempts if name else []
        attempt = attempts[int(number)] if attempts else None
        # What a model thought in an answer to what passed through holds there alone.
        is_after = any(one.mode.startswith("passed") for one in attempts[: int(number)])
        if attempt is not None and (not attempt.is_answered or attempt.mode.startswith("passed")):
            found.counts[f"refused of what passed through, and asked again: {rule}"] += 1
        elif rule == "thinking_binding" and is_after:
            found.counts["refused of what came behind that, and asked again without its thinking"] += 1
        else:
            found.wrong[RULES].append(f"{name or 'a worker'}: {attempt}: {rule}")
    _look_at_owners(server, url, found)
    _look_at_blobs(server, url, journals.values(), bucket, found)
    found.wrong[STOLEN] += [str(row) for row in server.execute("SELECT * FROM public.stolen", url=url)]
    without = "SELECT session FROM public.note_writes WHERE tx NOT IN (SELECT tx FROM public.effects)"
    found.wrong[NOTES] += [f"session {row[0]}" for row in server.execute(without, url=url)]
    for name, what in (
        ("refused_appends", "appends refused, as somebody else had the session"),
        ("refused_work", "late work refused"),
        ("refused_renewals", "late renewals refused"),
    ):
        value = f"SELECT CASE WHEN is_called THEN last_value + 1 ELSE 0 END FROM public.{name}"
        [(found.counts[what],)] = server.execute(value, url=url)
    [(found.counts["notes written"],)] = server.execute("SELECT count(*) FROM public.note_writes", url=url)
    return found


# --- journals ---------------------------------------------------------------------------------------------------------


def _journals(server: PostgresServer, url: str, found: Verdict) -> Iterator[Journal]:
    heads = server.execute("SELECT tenant, number, id, header, seq, bytes FROM perdure.sessions", url=url)
    for tenant, number, session, header, seq, size in heads:
        rows = server.execute(
            "SELECT seq, at, line FROM perdure.records WHERE tenant = %s AND session = %s ORDER BY seq",
            (tenant, number),
            url=url,
        )
        journal, end, count = Journal(session, number, tenant), len(header), 0
        for number_, at, line in rows:
            end, count = _read_line(journal, (number_, at, bytes(line)), (end, count), found)
        if (count, end) != (seq, size):
            found.wrong[DAMAGED].append(f"{session}: {count} lines of {seq}, {end} bytes of {size}")
        found.counts["sessions"] += 1
        found.counts["lines"] += count
        yield journal


def _read_line(
    journal: Journal, row: tuple[int, int, bytes], before: tuple[int, int], found: Verdict
) -> tuple[int, int]:
    seq, at, line = row
    end, count = before
    sealed = _CRC.search(line)
    if sealed is None or f"{zlib.crc32(line[: sealed.start()]):08x}" != sealed[1].decode():
        found.wrong[DAMAGED].append(f"{journal.session}: line {seq}: its checksum is wrong")
        return at + len(line), seq
    fields = msgspec.json.decode(line)
    if (seq, at, fields["seq"]) != (count + 1, end, seq):
        found.wrong[DAMAGED].append(f"{journal.session}: line {seq} at {at} behind line {count} up to {end}")
    for record in fields["records"]:
        _read_record(journal, record, found)
    return at + len(line), seq


def _read_record(journal: Journal, record: Json, found: Verdict) -> None:
    kind = record["type"]
    if kind == "message":
        is_said = record.get("origin") not in ("reminder", "restored", "summary") and record.get("note") != "recalled"
        journal.said.append((record["id"], list(_atoms(record)) if is_said else []))
    elif kind == "rewound":
        places = [place for place, (identity, _) in enumerate(journal.said) if identity == record["to"]]
        journal.said = journal.said[: places[-1] + 1] if places else journal.said
        found.counts["answers taken back, as they were asked for again"] += 1
    elif kind == "cursor" and record["name"] == "client":
        journal.place = int(record["digest"].partition(":")[0])
    elif kind in _MOVES:
        journal.moves.append(journal.place)
        found.counts[f"records of the kind {kind!r}"] += 1
    elif kind == "offloaded":
        found.counts[f"records of the kind {kind!r}"] += 1
    journal.blobs += [stored["blob"] for stored in record.get("stored", ())]


def _atoms(message: Json) -> Iterator[Atom]:
    for block in message["content"]:
        match block["type"]:
            case "text":
                yield ("assistant" if message["role"] == "assistant" else "user", "", block["text"])
            case "tool_use":
                yield ("call", _AGAIN.sub("", block["id"]), block["name"])
            case "tool_result":
                content = block.get("content") or ""
                text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                yield ("result", _AGAIN.sub("", block["tool_use_id"]), text)


def _hold_against(talk: Talk, journals: dict[str, Journal], found: Verdict) -> None:
    """All that a client has stands once, in its order, in the session that answered it last."""
    if not talk.done:
        return
    found.counts["answers"] += talk.done
    journal = journals.get(talk.sessions[-1]) if talk.sessions else None
    if journal is None:
        found.wrong[LOST].append(f"{talk.name}: no session of it is there")
        return
    said, kept = talk.atoms[: talk.settled], journal.atoms
    if kept == said or (talk.settled <= len(kept) < len(talk.atoms) + 1 and kept == talk.atoms[: len(kept)]):
        return  # what was said and never answered may stand there
    has, wanted = Counter(kept), Counter(said)
    missing, more = wanted - has, has - wanted
    place = next((n for n, (a, b) in enumerate(zip(kept, said, strict=False)) if a != b), -1)
    where = f"{talk.name} ({talk.wire}) in {journal.session}, word {place} of {len(said)}"
    if missing or not more:
        found.wrong[LOST].append(f"{where}: {[(k, i, t[:60]) for k, i, t in missing][:2]}")
    if more:
        found.wrong[TWICE].append(f"{where}: {[(k, i, t[:60]) for k, i, t in more][:2]}")


# --- what reached the models ------------------------------------------------------------------------------------------


def _look_at_prefixes(talk: Talk, sent: Sequence[Sent], journals: Sequence[Journal], found: Verdict) -> None:
    """What is sent next begins with what was sent before, byte for byte, unless the journal says what changed."""
    changes = [place for journal in journals for place in journal.moves]
    chain: list[tuple[Sent, Attempt]] = []
    chains, is_refused = [chain], False
    for one in sorted(sent, key=lambda one: one.attempt):
        attempt = talk.attempts[one.attempt]
        found.counts["requests that reached a model"] += 1
        found.counts["of these, answers that their clients never got whole"] += not attempt.is_answered
        if attempt.mode.endswith("view_refused"):  # what its client is told: from now on the session is as that has it
            found.counts["of these, as a model refused the view of a session"] += 1
            chain, is_refused = [(one, attempt)], True
            chains.append(chain)
            continue
        is_behind_view = one.is_own and bool(chain) and not chain[-1][0].is_own
        if is_refused and attempt.mode == "untouched" and one.is_own:
            chain.append((one, attempt))
        elif attempt.mode.startswith("passed") or not one.is_managed or (is_behind_view and not attempt.mode):
            found.counts["of these, passed through"] += 1
            if attempt.mode and not attempt.mode.startswith("passed"):
                found.wrong[PREFIX].append(f"{talk.name}: round {attempt.round}: {attempt.mode} without our tool")
        elif is_behind_view:
            found.wrong[PREFIX].append(f"{talk.name}: round {attempt.round}: {attempt.mode} behind a view")
        elif attempt.mode or not chain or _is_behind(chain[-1][0], one):
            chain.append((one, attempt))
        else:  # a gateway that was cut off from the store knows an older view, and its client was cut off as well
            found.counts["of these, otherwise, of which nobody could be told"] += 1
    for (before, then), (after, now) in (pair for one in chains for pair in pairwise(one)):
        found.counts["of these, at another gateway than the one before"] += then.gateway != now.gateway
        if _is_behind(before, after):
            found.counts["prefixes that stood"] += 1
        elif any(then.length <= place <= now.length for place in changes):
            found.counts["prefixes that moved as the journal says"] += 1
        else:
            what = "the front" if before.front != after.front else "messages"
            pairs = enumerate(zip(before.messages, after.messages, strict=False))
            shared = next((n for n, (a, b) in pairs if a != b), -1)
            found.wrong[PREFIX].append(
                f"{talk.name} ({talk.wire}) in {talk.sessions}: round {then.round} ({then.mode}) to {now.round} "
                f"({now.mode}): {what} from {shared} of {len(before.messages)}, places {then.length} to {now.length}"
            )


def _is_behind(before: Sent, after: Sent) -> bool:
    """Whether a request begins with all that one before it sent."""
    if before.is_own and not after.is_own:  # the same words, as we write them from now on
        is_same = after.meanings[: len(before.meanings)] == before.meanings
    else:
        is_same = after.messages[: len(before.messages)] == before.messages
    return is_same and before.front == after.front


# --- owners and blobs -------------------------------------------------------------------------------------------------


def _look_at_owners(server: PostgresServer, url: str, found: Verdict) -> None:
    """Who opened a session last is who writes to it. An owner's name is another one for each opening."""
    opened: dict[tuple[int, int], list[str]] = defaultdict(list)
    rows = server.execute(
        "SELECT tenant, session, owner, fence, fence_before, was_held, seq <> coalesce(seq_before, 0) "
        "FROM public.heads ORDER BY n",
        url=url,
    )
    for tenant, session, owner, fence, fence_before, was_held, is_append in rows:
        owners, where = opened[tenant, session], f"session {session} of tenant {tenant}, fence {fence}: {owner}"
        if owner and owner not in owners:
            owners.append(owner)
            found.counts["sessions opened or taken over"] += 1
            if was_held:
                found.wrong[HELD].append(where)
        if is_append and owners and owner and owner != owners[-1]:
            found.wrong[ZOMBIES].append(f"{where}, though {owners[-1]} had opened it")
        if fence_before is not None and fence < fence_before:
            found.wrong[BACK].append(where)
    found.counts["appends"] = sum(1 for row in rows if row[-1])


def _look_at_blobs(
    server: PostgresServer, url: str, journals: Iterable[Journal], bucket: Mapping[str, StoredObject], found: Verdict
) -> None:
    """Each that a record names is an object of its session, with the bytes that its name says; none is elsewhere."""
    objects = {tuple(key.split("/")[-3:]): stored.data for key, stored in bucket.items()}
    for journal in journals:
        for blob in set(journal.blobs):
            found.counts["blobs"] += 1
            data = objects.get((str(journal.tenant), str(journal.number), blob), b"")
            content = zlib.decompress(data[1:]) if data[:1] == b"z" else data[1:]
            if sha256(content).hexdigest() != blob:
                found.wrong[BLOBS].append(f"{journal.session}: {blob}")
    [(count,)] = server.execute("SELECT count(*) FROM perdure.blobs", url=url)
    found.wrong[BLOBS] += [f"{count} stand in the database"] if count else []
