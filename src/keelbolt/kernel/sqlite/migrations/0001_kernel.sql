-- The kernel's tables. Times are microseconds of the engine's clock, except entry.at, which is wall time.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY
) WITHOUT ROWID;

CREATE TABLE partition (
    name TEXT PRIMARY KEY
) WITHOUT ROWID;

CREATE TABLE collection (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    declaration TEXT NOT NULL
);

-- body_crc covers the body, head_crc everything else, so that a patch need not read the body.
CREATE TABLE record (
    id         INTEGER PRIMARY KEY,
    partition  TEXT NOT NULL,
    collection TEXT NOT NULL,
    key        TEXT NOT NULL,
    version    INTEGER NOT NULL,
    fields     TEXT NOT NULL,
    expires_at INTEGER,
    head_crc   INTEGER NOT NULL,
    body_crc   INTEGER NOT NULL,
    body       BLOB NOT NULL,
    UNIQUE (partition, collection, key)
);

CREATE INDEX record_expiry ON record (expires_at) WHERE expires_at IS NOT NULL;

-- name is collection.id * 8 + the index's number; entry is the encoded (partition, equal fields, order field, key).
CREATE TABLE record_index (
    name   INTEGER NOT NULL,
    entry  BLOB NOT NULL,
    record INTEGER NOT NULL,
    PRIMARY KEY (name, entry)
) WITHOUT ROWID;

CREATE TABLE counter (
    name  INTEGER NOT NULL,
    grp   BLOB NOT NULL,
    total INTEGER NOT NULL,
    PRIMARY KEY (name, grp)
) WITHOUT ROWID;

CREATE TABLE stream (
    id        INTEGER PRIMARY KEY,
    partition TEXT NOT NULL,
    log       TEXT NOT NULL,
    name      TEXT NOT NULL,
    head      INTEGER NOT NULL,
    floor     INTEGER NOT NULL,
    UNIQUE (partition, log, name)
);

CREATE TABLE entry (
    stream INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    crc    INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (stream, seq)
) WITHOUT ROWID;

CREATE TABLE dedupe (
    stream INTEGER NOT NULL,
    name   TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (stream, name)
) WITHOUT ROWID;

CREATE INDEX dedupe_seq ON dedupe (stream, seq);

-- state is later (ready_at lies ahead), ready, held or dead. For crc, later and ready are the same.
CREATE TABLE work (
    partition    TEXT NOT NULL,
    queue        TEXT NOT NULL,
    key          TEXT NOT NULL,
    state        TEXT NOT NULL,
    lane         TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    ready_at     INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    holder       TEXT,
    again_at     INTEGER,
    reason       TEXT,
    crc          INTEGER NOT NULL,
    PRIMARY KEY (partition, queue, key)
) WITHOUT ROWID;

CREATE INDEX work_ready ON work (queue, lane, priority DESC, ready_at) WHERE state = 'ready';
CREATE INDEX work_later ON work (queue, ready_at) WHERE state = 'later';
CREATE INDEX work_held ON work (holder, queue, fence) WHERE state = 'held';
CREATE INDEX work_dead ON work (partition, queue, key) WHERE state = 'dead';

CREATE TABLE worker (
    id          TEXT PRIMARY KEY,
    lease_until INTEGER NOT NULL
) WITHOUT ROWID;

-- digest is NULL while the blob is being written, expires_at while somebody holds it.
CREATE TABLE blob (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    partition  TEXT NOT NULL,
    digest     TEXT,
    size       INTEGER NOT NULL,
    expires_at INTEGER
);

CREATE UNIQUE INDEX blob_name ON blob (partition, digest) WHERE digest IS NOT NULL;
CREATE INDEX blob_expiry ON blob (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE blob_chunk (
    blob   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    data   BLOB NOT NULL,
    UNIQUE (blob, number)
);

CREATE TABLE holding (
    partition TEXT NOT NULL,
    digest    TEXT NOT NULL,
    holder    TEXT NOT NULL,
    PRIMARY KEY (partition, digest, holder)
) WITHOUT ROWID;

-- For people with a SQL shell.
CREATE VIEW log AS
SELECT partition, log, name AS stream, seq, strftime('%Y-%m-%d %H:%M:%f', at / 1e6, 'unixepoch') AS at, kind, data
FROM entry JOIN stream ON stream.id = entry.stream;
