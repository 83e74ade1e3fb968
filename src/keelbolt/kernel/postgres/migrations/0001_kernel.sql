-- The kernel's tables, in a schema of their own. Times are microseconds of the database's clock.
-- A name is the key itself, or, where that is too long for an index, its beginning and its hash; then key has the whole.

CREATE TABLE {schema}.meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);

INSERT INTO {schema}.meta (name, value) VALUES ('catalog', '0');

CREATE TABLE {schema}.partition (
    name text COLLATE "C" PRIMARY KEY
);

CREATE TABLE {schema}.collection (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    declaration text NOT NULL
);

-- Fences and the ids of streams: each batch takes ten thousand, after it has its locks.
CREATE SEQUENCE {schema}.ids INCREMENT 10000;

-- Room is left on the pages, so that updates stay on theirs (HOT) and touch no index.
CREATE TABLE {schema}.record (
    partition  text COLLATE "C" NOT NULL,
    collection text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    expires_at bigint,
    key        text COLLATE "C",
    fields     text NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (partition, collection, name)
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX record_expiry ON {schema}.record (expires_at) WHERE expires_at IS NOT NULL;

-- index is collection.id * 8 + the index's number; entry is the encoded (partition, equal fields, order field, key).
CREATE TABLE {schema}.record_index (
    index  integer NOT NULL,
    entry  bytea NOT NULL,
    record text COLLATE "C" NOT NULL,
    PRIMARY KEY (index, entry)
);

-- A total is the sum of its shards; each process adds to one of them, so that processes do not wait for each other.
CREATE TABLE {schema}.counter (
    index integer NOT NULL,
    grp   bytea NOT NULL,
    shard integer NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (index, grp, shard)
) WITH (fillfactor = 50);

CREATE TABLE {schema}.stream (
    id        bigint PRIMARY KEY,
    partition text COLLATE "C" NOT NULL,
    log       text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    key       text COLLATE "C",
    head      bigint NOT NULL,
    floor     bigint NOT NULL,
    UNIQUE (partition, log, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE {schema}.entry (
    stream bigint NOT NULL,
    seq    bigint NOT NULL,
    at     bigint NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (stream, seq)
);

CREATE TABLE {schema}.dedupe (
    stream bigint NOT NULL,
    name   text COLLATE "C" NOT NULL,
    seq    bigint NOT NULL,
    PRIMARY KEY (stream, name)
);

CREATE INDEX dedupe_seq ON {schema}.dedupe (stream, seq);

-- state is later (ready_at lies ahead), ready, held or dead.
CREATE TABLE {schema}.work (
    partition    text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    key          text COLLATE "C",
    state        text NOT NULL,
    lane         text COLLATE "C" NOT NULL,
    priority     bigint NOT NULL,
    ready_at     bigint NOT NULL,
    attempt      bigint NOT NULL,
    max_attempts bigint NOT NULL,
    fence        bigint NOT NULL,
    holder       text COLLATE "C",
    again_at     bigint,
    reason       text,
    PRIMARY KEY (partition, queue, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01);

CREATE INDEX work_ready ON {schema}.work (queue, lane, priority DESC, ready_at) WHERE state = 'ready';
CREATE INDEX work_later ON {schema}.work (queue, ready_at) WHERE state = 'later';
CREATE INDEX work_held ON {schema}.work (holder, queue, fence) WHERE state = 'held';
CREATE INDEX work_dead ON {schema}.work (partition, queue, name) WHERE state = 'dead';

CREATE TABLE {schema}.worker (
    id          text COLLATE "C" PRIMARY KEY,
    lease_until bigint NOT NULL
) WITH (fillfactor = 50);

-- digest is NULL while the blob is being written, expires_at while somebody holds it.
CREATE TABLE {schema}.blob (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition  text COLLATE "C" NOT NULL,
    digest     text COLLATE "C",
    size       bigint NOT NULL,
    expires_at bigint
);

CREATE UNIQUE INDEX blob_name ON {schema}.blob (partition, digest) WHERE digest IS NOT NULL;
CREATE INDEX blob_expiry ON {schema}.blob (expires_at) WHERE expires_at IS NOT NULL;

-- Chunks are compressed by whoever makes them, or not at all.
CREATE TABLE {schema}.blob_chunk (
    blob   bigint NOT NULL,
    number integer NOT NULL,
    sha256 bytea NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (blob, number)
);

ALTER TABLE {schema}.blob_chunk ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE {schema}.holding (
    partition text COLLATE "C" NOT NULL,
    digest    text COLLATE "C" NOT NULL,
    holder    text COLLATE "C" NOT NULL,
    PRIMARY KEY (partition, digest, holder)
);

-- The batches that were committed lately: a process whose connection broke in COMMIT looks here.
CREATE TABLE {schema}.batch (
    id uuid PRIMARY KEY,
    at bigint NOT NULL
);

CREATE INDEX batch_at ON {schema}.batch (at);

-- For people with psql. Bytes that are text, as text; others are NULL.
CREATE FUNCTION {schema}.readable(bytes bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN CASE WHEN octet_length(bytes) < 1048576 THEN convert_from(bytes, 'UTF8') END;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

CREATE VIEW {schema}.records AS
SELECT partition, collection, coalesce(key, name) AS key, version, fields,
       to_timestamp(expires_at / 1e6) AS expires_at,
       {schema}.readable(body) AS text, octet_length(body) AS bytes
FROM {schema}.record;

CREATE VIEW {schema}.log AS
SELECT partition, log, coalesce(key, name) AS stream, seq, to_timestamp(at / 1e6) AS at, kind,
       {schema}.readable(data) AS text, octet_length(data) AS bytes
FROM {schema}.entry JOIN {schema}.stream ON stream.id = entry.stream;
