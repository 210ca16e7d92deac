"""The tables, as migrations in their order: each runs once, in a transaction of its own (SCL-1, SCL-6).

All is in the schema `perdure`. Who migrates owns it. Statements of a home run as the role `perdure_serving`, which owns
nothing and sees, in every table with a tenant, the rows of the tenant that its transaction named, and no others.
A migration that was released is never edited: a change is the next one.
"""

from __future__ import annotations

from typing import Final

import psycopg

from perdure.adapters.postgres.address import place_of
from perdure.errors import JournalError, NewerFormat

SERVING: Final = "perdure_serving"
GOING: Final = "PD001"  # what PostgreSQL says of a tenant that is being deleted
_LOCK: Final = 7_236_001_112  # any number, always the same: who migrates waits for who does it already

_FIRST: Final = """
CREATE TABLE perdure.tenants (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE
);

-- A session with its head: how many lines its journal has and how many bytes, and who may append to it. No index has
-- what an append changes, so that it is changed within its page (HOT). Beginnings of ids are found by the index in any
-- database only by the collation "C".
CREATE TABLE perdure.sessions (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  number bigint GENERATED ALWAYS AS IDENTITY,
  id text COLLATE "C" NOT NULL,
  project text,
  created double precision NOT NULL,
  header bytea NOT NULL,
  seq bigint NOT NULL,
  bytes bigint NOT NULL,
  fence bigint NOT NULL,
  owner text NOT NULL,
  lease_until timestamptz NOT NULL,
  modified timestamptz NOT NULL DEFAULT now(),
  messages bigint NOT NULL DEFAULT 0,
  about bytea NOT NULL DEFAULT '{}',
  indexed bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, number),
  UNIQUE (tenant, id)
) WITH (fillfactor = 70);

-- A line of a journal, as it would stand in the file, at the same offset. `needs`: of a line with a boundary, the
-- first line that opening the session from there reads.
CREATE TABLE perdure.records (
  tenant bigint NOT NULL,
  session bigint NOT NULL,
  seq bigint NOT NULL,
  at bigint NOT NULL,
  needs bigint,
  line bytea NOT NULL,
  PRIMARY KEY (tenant, session, seq),
  FOREIGN KEY (tenant, session) REFERENCES perdure.sessions ON DELETE CASCADE
);
CREATE INDEX records_boundaries ON perdure.records (tenant, session, seq) WHERE needs IS NOT NULL;

-- Session 0: blobs of no session.
CREATE TABLE perdure.blobs (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  session bigint NOT NULL,
  hash bytea NOT NULL,
  stored bytea NOT NULL,
  first_put timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, session, hash)
);
ALTER TABLE perdure.blobs ALTER COLUMN stored SET STORAGE EXTERNAL;

CREATE TABLE perdure.notes (
  tenant bigint NOT NULL,
  session bigint NOT NULL,
  name text NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (tenant, session, name),
  FOREIGN KEY (tenant, session) REFERENCES perdure.sessions ON DELETE CASCADE
);

CREATE SEQUENCE perdure.versions;
-- `put_by` is another for each put: one whose answer was lost on its way is known again.
CREATE TABLE perdure.documents (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  kind text NOT NULL,
  name text NOT NULL,
  data bytea NOT NULL,
  put_by bytea NOT NULL,
  version bigint NOT NULL DEFAULT nextval('perdure.versions'),
  modified timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, kind, name)
);

CREATE TABLE perdure.links (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  link bytea NOT NULL,
  session text NOT NULL,
  messages bigint NOT NULL,
  PRIMARY KEY (tenant, link)
);
CREATE INDEX links_session ON perdure.links (tenant, session);
CREATE TABLE perdure.answers (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  answer bytea NOT NULL,
  link bytea NOT NULL,
  messages bigint NOT NULL,
  PRIMARY KEY (tenant, answer)
);
CREATE INDEX answers_link ON perdure.answers (tenant, link);
CREATE TABLE perdure.names (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  session text NOT NULL,
  name bytea NOT NULL,
  named timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant, session)
);
CREATE INDEX names_name ON perdure.names (tenant, name, named);

CREATE TABLE perdure.keys (
  tenant bigint PRIMARY KEY REFERENCES perdure.tenants,
  key bytea NOT NULL
);
CREATE TABLE perdure.calibrations (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  model text NOT NULL,
  ratio double precision NOT NULL,
  PRIMARY KEY (tenant, model)
);

-- What `probe` writes.
CREATE TABLE perdure.probes (id int PRIMARY KEY, at timestamptz NOT NULL);

-- What was said, for searching: each text once with its stems, and the places where it was said; and how many lines
-- of each session that covers. A stem stands behind its tenant's number, so that an index never mixes tenants.
CREATE TABLE perdure.texts (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  number bigint GENERATED ALWAYS AS IDENTITY,
  digest bytea NOT NULL,
  text bytea NOT NULL,
  stems tsvector NOT NULL,
  PRIMARY KEY (tenant, number),
  UNIQUE (tenant, digest)
);
CREATE INDEX texts_stems ON perdure.texts USING gin (stems);
CREATE TABLE perdure.places (
  tenant bigint NOT NULL,
  session bigint NOT NULL,
  at bigint NOT NULL,
  text bigint NOT NULL,
  recall bytea NOT NULL,
  message bytea NOT NULL,
  piece int NOT NULL,
  role text NOT NULL,
  tool bytea NOT NULL,
  agent bytea,
  said double precision,
  FOREIGN KEY (tenant, session) REFERENCES perdure.sessions ON DELETE CASCADE,
  FOREIGN KEY (tenant, text) REFERENCES perdure.texts
);
CREATE INDEX places_text ON perdure.places (tenant, text);
CREATE INDEX places_session ON perdure.places (tenant, session);
CREATE TABLE perdure.indexed (
  tenant bigint NOT NULL,
  session bigint NOT NULL,
  seq bigint NOT NULL,
  PRIMARY KEY (tenant, session),
  FOREIGN KEY (tenant, session) REFERENCES perdure.sessions ON DELETE CASCADE
);

DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['sessions', 'records', 'blobs', 'notes', 'documents', 'links', 'answers', 'names', 'keys',
                             'calibrations', 'texts', 'places', 'indexed'] LOOP
    EXECUTE format('ALTER TABLE perdure.%I ENABLE ROW LEVEL SECURITY', one);
    EXECUTE format('ALTER TABLE perdure.%I FORCE ROW LEVEL SECURITY', one);
    EXECUTE format('CREATE POLICY own ON perdure.%I USING '
                   '(tenant = nullif(current_setting(''perdure.tenant'', true), '''')::bigint)', one);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON perdure.%I TO perdure_serving', one);
  END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE ON perdure.probes TO perdure_serving;
GRANT SELECT, INSERT, DELETE ON perdure.tenants TO perdure_serving;
GRANT SELECT ON perdure.migrations TO perdure_serving;
GRANT USAGE ON SEQUENCE perdure.versions TO perdure_serving;

-- Who a transaction is for. As one call it costs no round trip of its own.
CREATE FUNCTION perdure.serve(p_tenant bigint) RETURNS void LANGUAGE sql AS $$
  SELECT set_config('role', 'perdure_serving', true), set_config('perdure.tenant', p_tenant::text, true),
         set_config('statement_timeout', '30s', true), set_config('lock_timeout', '10s', true);
$$;

-- The texts that hold any of these, those with the rarest first, then the newest. Row security would keep PostgreSQL
-- from using the index on stems, as it can't know that comparing them tells nobody anything. So this runs as a role
-- that row security lets see all texts; that only those of the transaction's tenant are found is said here.
CREATE POLICY search ON perdure.texts FOR SELECT TO perdure_search USING (true);
CREATE POLICY search ON perdure.places FOR SELECT TO perdure_search USING (true);
GRANT SELECT ON perdure.texts, perdure.places TO perdure_search;
CREATE FUNCTION perdure.matching(p_any tsquery, p_terms tsquery[], p_weights float8[], p_sessions bigint[], p_limit int)
  RETURNS TABLE (number bigint) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT t.number FROM perdure.texts t
  WHERE t.tenant = current_setting('perdure.tenant')::bigint AND t.stems @@ p_any
    AND (p_sessions IS NULL OR EXISTS (SELECT FROM perdure.places p
      WHERE p.tenant = t.tenant AND p.text = t.number AND p.session = ANY (p_sessions)))
  ORDER BY (SELECT sum(weight) FROM unnest(p_terms, p_weights) AS term (query, weight) WHERE t.stems @@ query) DESC,
    t.number DESC LIMIT p_limit
$$;
-- How many texts of the tenant match, counted up to a limit.
CREATE FUNCTION perdure.holding(p_query tsquery, p_limit int)
  RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*) FROM (SELECT FROM perdure.texts t
    WHERE t.tenant = current_setting('perdure.tenant')::bigint AND t.stems @@ p_query LIMIT p_limit) AS found
$$;
GRANT CREATE ON SCHEMA perdure TO perdure_search;
ALTER FUNCTION perdure.matching OWNER TO perdure_search;
ALTER FUNCTION perdure.holding OWNER TO perdure_search;
REVOKE CREATE ON SCHEMA perdure FROM perdure_search;
REVOKE ALL ON FUNCTION perdure.matching, perdure.holding FROM public;
GRANT EXECUTE ON FUNCTION perdure.matching, perdure.holding TO perdure_serving;

-- Which session knows which links: whoever was first keeps one, the last answer of an id counts. In the order of their
-- keys, so that two transactions don't wait for each other. A name, and a session for it: null changes nothing.
CREATE FUNCTION perdure.enter(p_tenant bigint, p_links bytea[], p_sessions text[], p_counts bigint[], p_answers bytea[],
  p_named text[], p_names bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM perdure.serve(p_tenant);
  IF array_length(p_links, 1) > 0 THEN
    INSERT INTO perdure.links (tenant, link, session, messages)
      SELECT p_tenant, link, session, count FROM unnest(p_links, p_sessions, p_counts) AS new (link, session, count)
      ORDER BY link, count ON CONFLICT DO NOTHING;
    INSERT INTO perdure.answers AS a (tenant, answer, link, messages)
      SELECT DISTINCT ON (answer) p_tenant, answer, link, count
      FROM unnest(p_answers, p_links, p_counts) WITH ORDINALITY AS new (answer, link, count, place)
      WHERE answer <> '' ORDER BY answer, place DESC
      ON CONFLICT (tenant, answer) DO UPDATE SET link = excluded.link, messages = excluded.messages
      WHERE (a.link, a.messages) <> (excluded.link, excluded.messages);
  END IF;
  IF array_length(p_named, 1) > 0 THEN
    DELETE FROM perdure.names WHERE tenant = p_tenant AND session = ANY (p_named);
    INSERT INTO perdure.names (tenant, session, name)
      SELECT p_tenant, session, name FROM unnest(p_named, p_names) AS new (session, name) WHERE name <> ''
      ORDER BY session ON CONFLICT (tenant, session) DO UPDATE SET name = excluded.name;
  END IF;
END $$;

-- Append lines behind (p_seq, p_at), if the journal still ends there and the fence stands: 'done', or why not.
-- With p_is_unsure, lines behind that are of an append whose end nobody saw: these are taken off first.
-- p_kept_from: of a line with a boundary, the offset that it reads from; null of any other line. The links, answers
-- and the name that the lines say are entered with them, so that whoever goes on with the session finds it.
CREATE FUNCTION perdure.append(p_tenant bigint, p_session bigint, p_fence bigint, p_seq bigint, p_at bigint,
  p_lines bytea[], p_kept_from bigint[], p_is_unsure boolean, p_owner text, p_lease double precision,
  p_messages bigint, p_is_counted boolean, p_about bytea, p_links bytea[], p_counts bigint[], p_answers bytea[],
  p_name bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_id text;
  v_bytes bigint := 0;
  v_line bytea;
  v_head record;
BEGIN
  PERFORM perdure.serve(p_tenant);
  IF p_is_unsure THEN
    UPDATE perdure.sessions SET seq = p_seq, bytes = p_at
      WHERE tenant = p_tenant AND number = p_session AND fence = p_fence AND seq >= p_seq;
    IF FOUND THEN
      DELETE FROM perdure.records WHERE tenant = p_tenant AND session = p_session AND seq > p_seq;
    END IF;
  END IF;
  FOREACH v_line IN ARRAY p_lines LOOP
    v_bytes := v_bytes + octet_length(v_line);
  END LOOP;
  UPDATE perdure.sessions SET
      seq = p_seq + array_length(p_lines, 1), bytes = p_at + v_bytes, modified = now(), owner = p_owner,
      lease_until = now() + make_interval(secs => p_lease), about = coalesce(p_about, about),
      messages = CASE WHEN p_is_counted THEN 0 ELSE messages END + p_messages
    WHERE tenant = p_tenant AND number = p_session AND fence = p_fence AND seq = p_seq AND bytes = p_at
    RETURNING id INTO v_id;
  IF NOT FOUND THEN
    SELECT s.seq, s.fence, s.owner INTO v_head FROM perdure.sessions s
      WHERE s.tenant = p_tenant AND s.number = p_session;
    RETURN CASE WHEN v_head IS NULL THEN 'deleted' WHEN v_head.fence <> p_fence THEN 'taken by ' || v_head.owner
                ELSE 'changed to ' || v_head.seq || ' lines' END;
  END IF;
  v_bytes := p_at;
  FOR i IN 1 .. array_length(p_lines, 1) LOOP
    INSERT INTO perdure.records (tenant, session, seq, at, needs, line) VALUES (
      p_tenant, p_session, p_seq + i, v_bytes,
      CASE WHEN p_kept_from[i] IS NULL THEN NULL ELSE coalesce(
        (SELECT min(r.seq) FROM perdure.records r
           WHERE r.tenant = p_tenant AND r.session = p_session AND r.at >= p_kept_from[i]), p_seq + i) END,
      p_lines[i]);
    v_bytes := v_bytes + octet_length(p_lines[i]);
  END LOOP;
  IF array_length(p_links, 1) > 0 OR p_name IS NOT NULL THEN
    PERFORM perdure.enter(p_tenant, p_links, array_fill(v_id, ARRAY[coalesce(array_length(p_links, 1), 0)]), p_counts,
      p_answers, CASE WHEN p_name IS NULL THEN '{}'::text[] ELSE ARRAY[v_id] END, ARRAY[p_name]);
  END IF;
  RETURN 'done';
END $$;
"""

# Background work: how far it is wanted, and how far it is done. Who works for all tenants does it as tenant 0. What is
# due is in the index alone; a row is short and changes often, so its page has room for its next versions.
_WORK: Final = """
CREATE TABLE perdure.work (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  session text NOT NULL,
  kind text NOT NULL,
  want bigint NOT NULL,
  done bigint NOT NULL DEFAULT 0,
  fence bigint NOT NULL DEFAULT 0,
  owner text,
  lease_until timestamptz,
  run_after timestamptz NOT NULL DEFAULT now(),
  attempts int NOT NULL DEFAULT 0,
  problem text,
  PRIMARY KEY (tenant, session, kind)
) WITH (fillfactor = 70);
CREATE INDEX work_due ON perdure.work (run_after) WHERE want > done;
ALTER TABLE perdure.work ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.work FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON perdure.work USING
  (nullif(current_setting('perdure.tenant', true), '')::bigint IN (tenant, 0));
GRANT SELECT, INSERT, UPDATE, DELETE ON perdure.work TO perdure_serving;
"""

# Blobs may be in a bucket, which the database names. And a tenant that is being deleted has no name any more: nobody
# finds it, and whoever knows its number is refused.
_BLOBS: Final = """
-- Where blobs are: without an address, in the table `blobs`. A bucket has a folder of each database that uses it.
CREATE TABLE perdure.blob_store (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  address text,
  folder text
);
INSERT INTO perdure.blob_store DEFAULT VALUES;
GRANT SELECT ON perdure.blob_store TO perdure_serving;

-- What is to be deleted from the bucket, and when: the blobs of a session; without one, all of a tenant's. A session
-- that a fork is making stands here until it is there, so that what was copied for it is found when that fails.
CREATE TABLE perdure.blob_deletions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant bigint NOT NULL,
  session bigint,
  due timestamptz NOT NULL,
  is_begun boolean NOT NULL DEFAULT false,
  is_done_once boolean NOT NULL DEFAULT false
);
CREATE INDEX blob_deletions_due ON perdure.blob_deletions (due);
ALTER TABLE perdure.blob_deletions ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.blob_deletions FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON perdure.blob_deletions USING
  (nullif(current_setting('perdure.tenant', true), '')::bigint IN (tenant, 0));
GRANT SELECT, INSERT, UPDATE, DELETE ON perdure.blob_deletions TO perdure_serving;
GRANT USAGE ON SEQUENCE perdure.sessions_number_seq TO perdure_serving;

ALTER TABLE perdure.tenants ALTER COLUMN name DROP NOT NULL, ADD COLUMN going text;  -- `going`: the name that it had
CREATE INDEX tenants_going ON perdure.tenants (going) WHERE going IS NOT NULL;
GRANT UPDATE (name, going) ON perdure.tenants TO perdure_serving;

CREATE OR REPLACE FUNCTION perdure.serve(p_tenant bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('role', 'perdure_serving', true), set_config('perdure.tenant', p_tenant::text, true),
          set_config('statement_timeout', '30s', true), set_config('lock_timeout', '10s', true);
  IF EXISTS (SELECT FROM perdure.tenants WHERE id = p_tenant AND name IS NULL) THEN
    RAISE EXCEPTION 'the tenant is being deleted' USING ERRCODE = 'PD001';
  END IF;
END $$;
"""

# Memories: directories with their files, as they would stand in a folder, with the log of changes. Whoever changes a
# directory locks its row, and gives it a new version. `kept_by`, `kept_until`: who puts it in order just now.
_MEMORIES: Final = """
CREATE TABLE perdure.memory_folders (
  tenant bigint NOT NULL REFERENCES perdure.tenants,
  number bigint GENERATED ALWAYS AS IDENTITY,
  place text COLLATE "C" NOT NULL,
  version bigint NOT NULL DEFAULT nextval('perdure.versions'),
  kept_by text,
  kept_until timestamptz,
  PRIMARY KEY (tenant, number),
  UNIQUE (tenant, place)
);
CREATE TABLE perdure.memory_files (
  tenant bigint NOT NULL,
  folder bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  data bytea NOT NULL,
  version bigint NOT NULL DEFAULT nextval('perdure.versions'),
  modified timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant, folder, name),
  FOREIGN KEY (tenant, folder) REFERENCES perdure.memory_folders ON DELETE CASCADE
);
ALTER TABLE perdure.memory_files ALTER COLUMN data SET STORAGE EXTERNAL;  -- the end of a log is read without the rest
DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['memory_folders', 'memory_files'] LOOP
    EXECUTE format('ALTER TABLE perdure.%I ENABLE ROW LEVEL SECURITY', one);
    EXECUTE format('ALTER TABLE perdure.%I FORCE ROW LEVEL SECURITY', one);
    EXECUTE format('CREATE POLICY own ON perdure.%I USING '
                   '(tenant = nullif(current_setting(''perdure.tenant'', true), '''')::bigint)', one);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON perdure.%I TO perdure_serving', one);
  END LOOP;
END $$;
"""

# What is known of a session beside all that was said in it, for ranking sessions (MEM-15). Made from the journal, with
# the index, and made again where there is none yet.
_CARDS: Final = """
ALTER TABLE perdure.indexed ADD COLUMN card bytea;
"""

MIGRATIONS: Final = (
    _FIRST,
    _WORK,
    _BLOBS,
    _MEMORIES,
    _CARDS,
)  # the newest last; how many a database has had is its version


async def migrate(url: str) -> int:
    """Bring a database to this schema, as its owner; how many migrations that took. May be called at any time.

    Whoever serves needs to be a member of `perdure_serving`, which is made where it is missing.

    Raises:
        JournalError: The database can't be reached, or refuses.
        NewerFormat: It was migrated by a newer Perdure.
    """
    done, place = 0, place_of(url)
    try:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None) as db:
            while await _step(db, place):
                done += 1
    except psycopg.errors.InsufficientPrivilege as e:
        needs = "its user has to own the database, and to have CREATEROLE"
        raise JournalError(f"{place} can't be migrated: {one_line_of(e)}; {needs}") from e
    except psycopg.Error as e:
        raise JournalError(f"{place} can't be migrated: {one_line_of(e)}") from e
    return done


async def _step(db: psycopg.AsyncConnection, place: str) -> bool:
    """The next migration, if there is one."""
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        await db.execute(_BASE)
        found = await (await db.execute("SELECT coalesce(max(version), 0) FROM perdure.migrations")).fetchone()
        version = found[0] if found else 0
        check_version(place, version, is_newest=False)
        if version == len(MIGRATIONS):
            return False
        await db.execute(MIGRATIONS[version].encode())
        await db.execute("INSERT INTO perdure.migrations (version) VALUES (%s)", (version + 1,))
    return True


_BASE: Final = """
DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['perdure_serving', 'perdure_search'] LOOP
    BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = one) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', one);
      END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- another database of the cluster was faster
    END;
    BEGIN
      EXECUTE format('GRANT %I TO %I', one, current_user);  -- who migrates may serve as well, and gives search its own
    EXCEPTION WHEN insufficient_privilege THEN NULL;
    END;
  END LOOP;
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'perdure') THEN
    CREATE SCHEMA perdure;
    GRANT USAGE ON SCHEMA perdure TO perdure_serving, perdure_search;
    CREATE TABLE perdure.migrations (version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
  END IF;
END $$;
"""


def check_version(place: str, version: int, *, is_newest: bool = True) -> None:
    """Raise where the database there isn't of this schema: `NewerFormat` for a newer one, and `JournalError` for an
    older one that has to be brought to it first.
    """
    if version > len(MIGRATIONS):
        raise NewerFormat(
            f"{place}: the database has schema version {version}, newer than this Perdure knows ({len(MIGRATIONS)}): "
            "upgrade Perdure"
        )
    if is_newest and version < len(MIGRATIONS):
        raise JournalError(
            f"{place}: the database has schema version {version} and not {len(MIGRATIONS)}: "
            "run `perdure store migrate` as its owner"
        )


def one_line_of(error: BaseException) -> str:
    """What PostgreSQL, or the way there, says is wrong: its first line; and where a password belongs."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    is_unknown = "password authentication failed" in said or "no password supplied" in said
    return said.rstrip(".") + (": give the right one as $PGPASSWORD or in ~/.pgpass" if is_unknown else "")
