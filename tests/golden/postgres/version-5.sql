SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA perdure;
ALTER SCHEMA perdure OWNER TO perdure_owner;
CREATE FUNCTION perdure.append(p_tenant bigint, p_session bigint, p_fence bigint, p_seq bigint, p_at bigint, p_lines bytea[], p_kept_from bigint[], p_is_unsure boolean, p_owner text, p_lease double precision, p_messages bigint, p_is_counted boolean, p_about bytea, p_links bytea[], p_counts bigint[], p_answers bytea[], p_name bytea) RETURNS text
    LANGUAGE plpgsql
    AS $$
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
ALTER FUNCTION perdure.append(p_tenant bigint, p_session bigint, p_fence bigint, p_seq bigint, p_at bigint, p_lines bytea[], p_kept_from bigint[], p_is_unsure boolean, p_owner text, p_lease double precision, p_messages bigint, p_is_counted boolean, p_about bytea, p_links bytea[], p_counts bigint[], p_answers bytea[], p_name bytea) OWNER TO perdure_owner;
CREATE FUNCTION perdure.enter(p_tenant bigint, p_links bytea[], p_sessions text[], p_counts bigint[], p_answers bytea[], p_named text[], p_names bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
ALTER FUNCTION perdure.enter(p_tenant bigint, p_links bytea[], p_sessions text[], p_counts bigint[], p_answers bytea[], p_named text[], p_names bytea[]) OWNER TO perdure_owner;
CREATE FUNCTION perdure.holding(p_query tsquery, p_limit integer) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  SELECT count(*) FROM (SELECT FROM perdure.texts t
    WHERE t.tenant = current_setting('perdure.tenant')::bigint AND t.stems @@ p_query LIMIT p_limit) AS found
$$;
ALTER FUNCTION perdure.holding(p_query tsquery, p_limit integer) OWNER TO perdure_search;
CREATE FUNCTION perdure.matching(p_any tsquery, p_terms tsquery[], p_weights double precision[], p_sessions bigint[], p_limit integer) RETURNS TABLE(number bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  SELECT t.number FROM perdure.texts t
  WHERE t.tenant = current_setting('perdure.tenant')::bigint AND t.stems @@ p_any
    AND (p_sessions IS NULL OR EXISTS (SELECT FROM perdure.places p
      WHERE p.tenant = t.tenant AND p.text = t.number AND p.session = ANY (p_sessions)))
  ORDER BY (SELECT sum(weight) FROM unnest(p_terms, p_weights) AS term (query, weight) WHERE t.stems @@ query) DESC,
    t.number DESC LIMIT p_limit
$$;
ALTER FUNCTION perdure.matching(p_any tsquery, p_terms tsquery[], p_weights double precision[], p_sessions bigint[], p_limit integer) OWNER TO perdure_search;
CREATE FUNCTION perdure.serve(p_tenant bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  PERFORM set_config('role', 'perdure_serving', true), set_config('perdure.tenant', p_tenant::text, true),
          set_config('statement_timeout', '30s', true), set_config('lock_timeout', '10s', true);
  IF EXISTS (SELECT FROM perdure.tenants WHERE id = p_tenant AND name IS NULL) THEN
    RAISE EXCEPTION 'the tenant is being deleted' USING ERRCODE = 'PD001';
  END IF;
END $$;
ALTER FUNCTION perdure.serve(p_tenant bigint) OWNER TO perdure_owner;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE perdure.answers (
    tenant bigint NOT NULL,
    answer bytea NOT NULL,
    link bytea NOT NULL,
    messages bigint NOT NULL
);
ALTER TABLE ONLY perdure.answers FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.answers OWNER TO perdure_owner;
CREATE TABLE perdure.blob_deletions (
    id bigint NOT NULL,
    tenant bigint NOT NULL,
    session bigint,
    due timestamp with time zone NOT NULL,
    is_begun boolean DEFAULT false NOT NULL,
    is_done_once boolean DEFAULT false NOT NULL
);
ALTER TABLE ONLY perdure.blob_deletions FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.blob_deletions OWNER TO perdure_owner;
ALTER TABLE perdure.blob_deletions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME perdure.blob_deletions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE perdure.blob_store (
    is_only boolean DEFAULT true NOT NULL,
    address text,
    folder text,
    CONSTRAINT blob_store_is_only_check CHECK (is_only)
);
ALTER TABLE perdure.blob_store OWNER TO perdure_owner;
CREATE TABLE perdure.blobs (
    tenant bigint NOT NULL,
    session bigint NOT NULL,
    hash bytea NOT NULL,
    stored bytea NOT NULL,
    first_put timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE ONLY perdure.blobs ALTER COLUMN stored SET STORAGE EXTERNAL;
ALTER TABLE ONLY perdure.blobs FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.blobs OWNER TO perdure_owner;
CREATE TABLE perdure.calibrations (
    tenant bigint NOT NULL,
    model text NOT NULL,
    ratio double precision NOT NULL
);
ALTER TABLE ONLY perdure.calibrations FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.calibrations OWNER TO perdure_owner;
CREATE SEQUENCE perdure.versions
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE perdure.versions OWNER TO perdure_owner;
CREATE TABLE perdure.documents (
    tenant bigint NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    data bytea NOT NULL,
    put_by bytea NOT NULL,
    version bigint DEFAULT nextval('perdure.versions'::regclass) NOT NULL,
    modified timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE ONLY perdure.documents FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.documents OWNER TO perdure_owner;
CREATE TABLE perdure.indexed (
    tenant bigint NOT NULL,
    session bigint NOT NULL,
    seq bigint NOT NULL,
    card bytea
);
ALTER TABLE ONLY perdure.indexed FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.indexed OWNER TO perdure_owner;
CREATE TABLE perdure.keys (
    tenant bigint NOT NULL,
    key bytea NOT NULL
);
ALTER TABLE ONLY perdure.keys FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.keys OWNER TO perdure_owner;
CREATE TABLE perdure.links (
    tenant bigint NOT NULL,
    link bytea NOT NULL,
    session text NOT NULL,
    messages bigint NOT NULL
);
ALTER TABLE ONLY perdure.links FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.links OWNER TO perdure_owner;
CREATE TABLE perdure.memory_files (
    tenant bigint NOT NULL,
    folder bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    data bytea NOT NULL,
    version bigint DEFAULT nextval('perdure.versions'::regclass) NOT NULL,
    modified timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
ALTER TABLE ONLY perdure.memory_files ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE ONLY perdure.memory_files FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.memory_files OWNER TO perdure_owner;
CREATE TABLE perdure.memory_folders (
    tenant bigint NOT NULL,
    number bigint NOT NULL,
    place text NOT NULL COLLATE pg_catalog."C",
    version bigint DEFAULT nextval('perdure.versions'::regclass) NOT NULL,
    kept_by text,
    kept_until timestamp with time zone
);
ALTER TABLE ONLY perdure.memory_folders FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.memory_folders OWNER TO perdure_owner;
ALTER TABLE perdure.memory_folders ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME perdure.memory_folders_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE perdure.migrations (
    version integer NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE perdure.migrations OWNER TO perdure_owner;
CREATE TABLE perdure.names (
    tenant bigint NOT NULL,
    session text NOT NULL,
    name bytea NOT NULL,
    named timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
ALTER TABLE ONLY perdure.names FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.names OWNER TO perdure_owner;
CREATE TABLE perdure.notes (
    tenant bigint NOT NULL,
    session bigint NOT NULL,
    name text NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE ONLY perdure.notes FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.notes OWNER TO perdure_owner;
CREATE TABLE perdure.places (
    tenant bigint NOT NULL,
    session bigint NOT NULL,
    at bigint NOT NULL,
    text bigint NOT NULL,
    recall bytea NOT NULL,
    message bytea NOT NULL,
    piece integer NOT NULL,
    role text NOT NULL,
    tool bytea NOT NULL,
    agent bytea,
    said double precision
);
ALTER TABLE ONLY perdure.places FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.places OWNER TO perdure_owner;
CREATE TABLE perdure.probes (
    id integer NOT NULL,
    at timestamp with time zone NOT NULL
);
ALTER TABLE perdure.probes OWNER TO perdure_owner;
CREATE TABLE perdure.records (
    tenant bigint NOT NULL,
    session bigint NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    needs bigint,
    line bytea NOT NULL
);
ALTER TABLE ONLY perdure.records FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.records OWNER TO perdure_owner;
CREATE TABLE perdure.sessions (
    tenant bigint NOT NULL,
    number bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    project text,
    created double precision NOT NULL,
    header bytea NOT NULL,
    seq bigint NOT NULL,
    bytes bigint NOT NULL,
    fence bigint NOT NULL,
    owner text NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    modified timestamp with time zone DEFAULT now() NOT NULL,
    messages bigint DEFAULT 0 NOT NULL,
    about bytea DEFAULT '\x7b7d'::bytea NOT NULL,
    indexed bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='70');
ALTER TABLE ONLY perdure.sessions FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.sessions OWNER TO perdure_owner;
ALTER TABLE perdure.sessions ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME perdure.sessions_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE perdure.tenants (
    id bigint NOT NULL,
    name text,
    going text
);
ALTER TABLE perdure.tenants OWNER TO perdure_owner;
ALTER TABLE perdure.tenants ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME perdure.tenants_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE perdure.texts (
    tenant bigint NOT NULL,
    number bigint NOT NULL,
    digest bytea NOT NULL,
    text bytea NOT NULL,
    stems tsvector NOT NULL
);
ALTER TABLE ONLY perdure.texts FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.texts OWNER TO perdure_owner;
ALTER TABLE perdure.texts ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME perdure.texts_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE perdure.work (
    tenant bigint NOT NULL,
    session text NOT NULL,
    kind text NOT NULL,
    want bigint NOT NULL,
    done bigint DEFAULT 0 NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    owner text,
    lease_until timestamp with time zone,
    run_after timestamp with time zone DEFAULT now() NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    problem text
)
WITH (fillfactor='70');
ALTER TABLE ONLY perdure.work FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.work OWNER TO perdure_owner;
INSERT INTO perdure.answers VALUES (1, '\x726573705f31', '\x6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c', 2);
INSERT INTO perdure.blob_store VALUES (true, NULL, NULL);
INSERT INTO perdure.blobs VALUES (1, 1, '\x87b04e58961f9a99d853d4046a0b5b793e7c3e4bbd21f5aca8fb17c20cdb1d8b', '\x3d73746f726564', '2026-11-23 05:54:28.493597+00');
INSERT INTO perdure.blobs VALUES (1, 1, '\xe797e2af6f05c24cdd064793ce60a9d01302d9a3b0e5dff5bb0c046b87f2f668', '\x7a789cedc1010d000000c2a0da8f6f0f07140000000000000000fc1b12317bb1', '2026-11-23 05:54:28.493597+00');
INSERT INTO perdure.documents VALUES (1, 'conversations', 'one', '\x7b7d', '\x724877b172b01f39', 1, '2026-11-23 05:54:28.505942+00');
INSERT INTO perdure.indexed VALUES (1, 1, 4, '\x85a57469746c65a741207469746c65a670696563657302a969735f7469746c6564c3a561736b656482a568656c6c6f02a671756167676101a67469746c656481a47469746c01');
INSERT INTO perdure.keys VALUES (1, '\x87bbb03bd48ed4acf175a157f00c10368abb634427d7f7800f465902b93167a7');
INSERT INTO perdure.links VALUES (1, '\x6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c', 's1', 2);
INSERT INTO perdure.memory_files VALUES (1, 1, '.perdure/audit.jsonl', '\x7b226964223a22393962356533373830343437222c22616374696f6e223a2273617665222c226e616d65223a226465706c6f792e6d64222c227374616d70223a7b226f726967696e223a2275736572222c226174223a312e307d2c226d6f6465223a226175746f222c226166746572223a2237323265363130396131313235376231326638356234613266613164616630366438373030636166383637623737313739303761633764373835313664323435227d0a', 3, '2026-11-23 05:54:28.573635+00');
INSERT INTO perdure.memory_files VALUES (1, 1, 'deploy.md', '\x416e6e61206465706c6f79732e', 4, '2026-11-23 05:54:28.577445+00');
INSERT INTO perdure.memory_folders OVERRIDING SYSTEM VALUE VALUES (1, 1, '/memory', 5, NULL, NULL);
INSERT INTO perdure.migrations VALUES (1, '2026-11-23 05:54:28.307565+00');
INSERT INTO perdure.migrations VALUES (2, '2026-11-23 05:54:28.369636+00');
INSERT INTO perdure.migrations VALUES (3, '2026-11-23 05:54:28.37989+00');
INSERT INTO perdure.migrations VALUES (4, '2026-11-23 05:54:28.392308+00');
INSERT INTO perdure.migrations VALUES (5, '2026-11-23 05:54:28.417802+00');
INSERT INTO perdure.notes VALUES (1, 1, 'summary.md', '\x23206e6f746573');
INSERT INTO perdure.places VALUES (1, 1, 112, 1, '\x61', '\x61', 0, 'user', '\x', NULL, NULL);
INSERT INTO perdure.places VALUES (1, 1, 479, 2, '\x62', '\x62', 0, 'user', '\x', NULL, NULL);
INSERT INTO perdure.records VALUES (1, 1, 1, 112, NULL, '\x7b22736571223a312c227265636f726473223a5b7b2274797065223a226d657373616765222c226964223a2261222c22726f6c65223a2275736572222c22636f6e74656e74223a5b7b2274797065223a2274657874222c2274657874223a2268656c6c6f227d5d2c226f726967696e223a2275736572227d5d2c22637263223a223031393164626430227d0a');
INSERT INTO perdure.records VALUES (1, 1, 2, 252, 2, '\x7b22736571223a322c227265636f726473223a5b7b2274797065223a22636f6d706163746564222c226964223a226231222c2274726967676572223a226175746f222c227374726174656779223a2266756c6c222c2273756d6d617279223a5b7b2274797065223a226d657373616765222c226964223a2262312d73756d6d617279222c22726f6c65223a2275736572222c22636f6e74656e74223a5b7b2274797065223a2274657874222c2274657874223a2268656c6c6f227d5d2c226f726967696e223a2275736572227d5d7d5d2c22637263223a226666343635373331227d0a');
INSERT INTO perdure.records VALUES (1, 1, 3, 479, NULL, '\x7b22736571223a332c227265636f726473223a5b7b2274797065223a226d657373616765222c226964223a2262222c22726f6c65223a2275736572222c22636f6e74656e74223a5b7b2274797065223a2274657874222c2274657874223a226120717561676761227d5d2c226f726967696e223a2275736572227d5d2c22637263223a223439636539306562227d0a');
INSERT INTO perdure.records VALUES (1, 1, 4, 622, NULL, '\x7b22736571223a342c227265636f726473223a5b7b2274797065223a227469746c6564222c227469746c65223a2241207469746c65227d5d2c22637263223a223832326661616164227d0a');
INSERT INTO perdure.sessions OVERRIDING SYSTEM VALUE VALUES (1, 1, 's1', '/srv/project', 1.5, '\x7b22666f726d6174223a22706572647572652d6a6f75726e616c222c2276657273696f6e223a312c2273657373696f6e223a227331222c2263726561746564223a312e352c2270726f6a656374223a222f7372762f70726f6a656374222c22637263223a226664616535323862227d0a', 4, 697, 1, '', '-infinity', '2026-11-23 05:54:28.491702+00', 2, '\x7b226c6173745f70726f6d7074223a226120717561676761222c227469746c65223a2241207469746c65227d', 0);
INSERT INTO perdure.tenants OVERRIDING SYSTEM VALUE VALUES (1, 'acme', NULL);
INSERT INTO perdure.texts OVERRIDING SYSTEM VALUE VALUES (1, 1, '\x2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824', '\x68656c6c6f', '''1:hello''');
INSERT INTO perdure.texts OVERRIDING SYSTEM VALUE VALUES (1, 2, '\xec2711eef08b1868f967c632defadd9bbbd7a17ddd801ef9dd01402d383a61cc', '\x6120717561676761', '''1:a'' ''1:quagga''');
INSERT INTO perdure.work VALUES (1, 's1', 'notes', 3, 0, 0, NULL, NULL, '2026-11-23 05:54:28.551277+00', 0, NULL);
SELECT pg_catalog.setval('perdure.blob_deletions_id_seq', 1, false);
SELECT pg_catalog.setval('perdure.memory_folders_number_seq', 1, true);
SELECT pg_catalog.setval('perdure.sessions_number_seq', 1, true);
SELECT pg_catalog.setval('perdure.tenants_id_seq', 1, true);
SELECT pg_catalog.setval('perdure.texts_number_seq', 2, true);
SELECT pg_catalog.setval('perdure.versions', 5, true);
ALTER TABLE ONLY perdure.answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (tenant, answer);
ALTER TABLE ONLY perdure.blob_deletions
    ADD CONSTRAINT blob_deletions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY perdure.blob_store
    ADD CONSTRAINT blob_store_pkey PRIMARY KEY (is_only);
ALTER TABLE ONLY perdure.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (tenant, session, hash);
ALTER TABLE ONLY perdure.calibrations
    ADD CONSTRAINT calibrations_pkey PRIMARY KEY (tenant, model);
ALTER TABLE ONLY perdure.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (tenant, kind, name);
ALTER TABLE ONLY perdure.indexed
    ADD CONSTRAINT indexed_pkey PRIMARY KEY (tenant, session);
ALTER TABLE ONLY perdure.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (tenant);
ALTER TABLE ONLY perdure.links
    ADD CONSTRAINT links_pkey PRIMARY KEY (tenant, link);
ALTER TABLE ONLY perdure.memory_files
    ADD CONSTRAINT memory_files_pkey PRIMARY KEY (tenant, folder, name);
ALTER TABLE ONLY perdure.memory_folders
    ADD CONSTRAINT memory_folders_pkey PRIMARY KEY (tenant, number);
ALTER TABLE ONLY perdure.memory_folders
    ADD CONSTRAINT memory_folders_tenant_place_key UNIQUE (tenant, place);
ALTER TABLE ONLY perdure.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (version);
ALTER TABLE ONLY perdure.names
    ADD CONSTRAINT names_pkey PRIMARY KEY (tenant, session);
ALTER TABLE ONLY perdure.notes
    ADD CONSTRAINT notes_pkey PRIMARY KEY (tenant, session, name);
ALTER TABLE ONLY perdure.probes
    ADD CONSTRAINT probes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY perdure.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (tenant, session, seq);
ALTER TABLE ONLY perdure.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (tenant, number);
ALTER TABLE ONLY perdure.sessions
    ADD CONSTRAINT sessions_tenant_id_key UNIQUE (tenant, id);
ALTER TABLE ONLY perdure.tenants
    ADD CONSTRAINT tenants_name_key UNIQUE (name);
ALTER TABLE ONLY perdure.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);
ALTER TABLE ONLY perdure.texts
    ADD CONSTRAINT texts_pkey PRIMARY KEY (tenant, number);
ALTER TABLE ONLY perdure.texts
    ADD CONSTRAINT texts_tenant_digest_key UNIQUE (tenant, digest);
ALTER TABLE ONLY perdure.work
    ADD CONSTRAINT work_pkey PRIMARY KEY (tenant, session, kind);
CREATE INDEX answers_link ON perdure.answers USING btree (tenant, link);
CREATE INDEX blob_deletions_due ON perdure.blob_deletions USING btree (due);
CREATE INDEX links_session ON perdure.links USING btree (tenant, session);
CREATE INDEX names_name ON perdure.names USING btree (tenant, name, named);
CREATE INDEX places_session ON perdure.places USING btree (tenant, session);
CREATE INDEX places_text ON perdure.places USING btree (tenant, text);
CREATE INDEX records_boundaries ON perdure.records USING btree (tenant, session, seq) WHERE (needs IS NOT NULL);
CREATE INDEX tenants_going ON perdure.tenants USING btree (going) WHERE (going IS NOT NULL);
CREATE INDEX texts_stems ON perdure.texts USING gin (stems);
CREATE INDEX work_due ON perdure.work USING btree (run_after) WHERE (want > done);
ALTER TABLE ONLY perdure.answers
    ADD CONSTRAINT answers_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.blobs
    ADD CONSTRAINT blobs_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.calibrations
    ADD CONSTRAINT calibrations_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.documents
    ADD CONSTRAINT documents_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.indexed
    ADD CONSTRAINT indexed_tenant_session_fkey FOREIGN KEY (tenant, session) REFERENCES perdure.sessions(tenant, number) ON DELETE CASCADE;
ALTER TABLE ONLY perdure.keys
    ADD CONSTRAINT keys_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.links
    ADD CONSTRAINT links_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.memory_files
    ADD CONSTRAINT memory_files_tenant_folder_fkey FOREIGN KEY (tenant, folder) REFERENCES perdure.memory_folders(tenant, number) ON DELETE CASCADE;
ALTER TABLE ONLY perdure.memory_folders
    ADD CONSTRAINT memory_folders_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.names
    ADD CONSTRAINT names_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.notes
    ADD CONSTRAINT notes_tenant_session_fkey FOREIGN KEY (tenant, session) REFERENCES perdure.sessions(tenant, number) ON DELETE CASCADE;
ALTER TABLE ONLY perdure.places
    ADD CONSTRAINT places_tenant_session_fkey FOREIGN KEY (tenant, session) REFERENCES perdure.sessions(tenant, number) ON DELETE CASCADE;
ALTER TABLE ONLY perdure.places
    ADD CONSTRAINT places_tenant_text_fkey FOREIGN KEY (tenant, text) REFERENCES perdure.texts(tenant, number);
ALTER TABLE ONLY perdure.records
    ADD CONSTRAINT records_tenant_session_fkey FOREIGN KEY (tenant, session) REFERENCES perdure.sessions(tenant, number) ON DELETE CASCADE;
ALTER TABLE ONLY perdure.sessions
    ADD CONSTRAINT sessions_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.texts
    ADD CONSTRAINT texts_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE ONLY perdure.work
    ADD CONSTRAINT work_tenant_fkey FOREIGN KEY (tenant) REFERENCES perdure.tenants(id);
ALTER TABLE perdure.answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.blob_deletions ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.blobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.calibrations ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.documents ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.indexed ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.links ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.memory_files ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.memory_folders ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.names ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.notes ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON perdure.answers USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.blob_deletions USING ((((NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint = tenant) OR ((NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint = 0)));
CREATE POLICY own ON perdure.blobs USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.calibrations USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.documents USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.indexed USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.keys USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.links USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.memory_files USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.memory_folders USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.names USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.notes USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.places USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.records USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.sessions USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.texts USING ((tenant = (NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint));
CREATE POLICY own ON perdure.work USING ((((NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint = tenant) OR ((NULLIF(current_setting('perdure.tenant'::text, true), ''::text))::bigint = 0)));
ALTER TABLE perdure.places ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.records ENABLE ROW LEVEL SECURITY;
CREATE POLICY search ON perdure.places FOR SELECT TO perdure_search USING (true);
CREATE POLICY search ON perdure.texts FOR SELECT TO perdure_search USING (true);
ALTER TABLE perdure.sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.texts ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.work ENABLE ROW LEVEL SECURITY;
GRANT USAGE ON SCHEMA perdure TO perdure_serving;
GRANT USAGE ON SCHEMA perdure TO perdure_search;
REVOKE ALL ON FUNCTION perdure.holding(p_query tsquery, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION perdure.holding(p_query tsquery, p_limit integer) TO perdure_serving;
REVOKE ALL ON FUNCTION perdure.matching(p_any tsquery, p_terms tsquery[], p_weights double precision[], p_sessions bigint[], p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION perdure.matching(p_any tsquery, p_terms tsquery[], p_weights double precision[], p_sessions bigint[], p_limit integer) TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.answers TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.blob_deletions TO perdure_serving;
GRANT SELECT ON TABLE perdure.blob_store TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.blobs TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.calibrations TO perdure_serving;
GRANT USAGE ON SEQUENCE perdure.versions TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.documents TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.indexed TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.keys TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.links TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.memory_files TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.memory_folders TO perdure_serving;
GRANT SELECT ON TABLE perdure.migrations TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.names TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.notes TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.places TO perdure_serving;
GRANT SELECT ON TABLE perdure.places TO perdure_search;
GRANT SELECT,INSERT,UPDATE ON TABLE perdure.probes TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.records TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.sessions TO perdure_serving;
GRANT USAGE ON SEQUENCE perdure.sessions_number_seq TO perdure_serving;
GRANT SELECT,INSERT,DELETE ON TABLE perdure.tenants TO perdure_serving;
GRANT UPDATE(name) ON TABLE perdure.tenants TO perdure_serving;
GRANT UPDATE(going) ON TABLE perdure.tenants TO perdure_serving;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.texts TO perdure_serving;
GRANT SELECT ON TABLE perdure.texts TO perdure_search;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE perdure.work TO perdure_serving;
