-- Unique indexes begin with the key, not with the partition: keys sort by time, so new ones of all partitions are on the
-- same few pages. With the partition first, each owner had pages of its own, and a commit read and wrote them.

CREATE TABLE new_record (
    id         INTEGER PRIMARY KEY,
    partition  TEXT NOT NULL,
    collection TEXT NOT NULL,
    key        TEXT NOT NULL,
    version    INTEGER NOT NULL,
    fields     TEXT NOT NULL,
    expires_at INTEGER,
    head_crc   INTEGER NOT NULL,
    body_crc   INTEGER NOT NULL,
    body       BLOB NOT NULL
);

INSERT INTO new_record SELECT id, partition, collection, key, version, fields, expires_at, head_crc, body_crc, body
FROM record;

CREATE TABLE new_stream (
    id        INTEGER PRIMARY KEY,
    partition TEXT NOT NULL,
    log       TEXT NOT NULL,
    name      TEXT NOT NULL,
    head      INTEGER NOT NULL,
    floor     INTEGER NOT NULL
);

INSERT INTO new_stream SELECT id, partition, log, name, head, floor FROM stream;

DROP TABLE record;

DROP TABLE stream;

-- Views of the old tables are about the new ones then.
PRAGMA legacy_alter_table = ON;

ALTER TABLE new_record RENAME TO record;

ALTER TABLE new_stream RENAME TO stream;

PRAGMA legacy_alter_table = OFF;

CREATE UNIQUE INDEX record_key ON record (key, collection, partition);

CREATE INDEX record_expiry ON record (expires_at) WHERE expires_at IS NOT NULL;

CREATE UNIQUE INDEX stream_name ON stream (name, log, partition);
