-- Named statements. {keys} becomes one row of ? placeholders per key. Placeholders have no numbers, because Python 3.14
-- treats ?1 as a name.

-- load_records
WITH wanted (partition, collection, key) AS (VALUES {keys})
SELECT partition, collection, key, record.id, version, fields, expires_at, head_crc
FROM wanted CROSS JOIN record USING (partition, collection, key)

-- load_body
SELECT body, body_crc FROM record WHERE id = ?

-- load_streams
WITH wanted (partition, log, name) AS (VALUES {keys})
SELECT partition, log, name, stream.id, head, floor
FROM wanted CROSS JOIN stream USING (partition, log, name)

-- load_dedupes
WITH wanted (stream, name) AS (VALUES {keys})
SELECT stream, name, seq FROM wanted CROSS JOIN dedupe USING (stream, name)

-- load_work
WITH wanted (partition, queue, key) AS (VALUES {keys})
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM wanted CROSS JOIN work USING (partition, queue, key)

-- load_blobs
WITH wanted (partition, digest) AS (VALUES {keys})
SELECT partition, digest FROM wanted CROSS JOIN blob USING (partition, digest) WHERE digest IS NOT NULL

-- last_ids
-- The writer assigns ids while it holds the lock.
SELECT (SELECT ifnull(max(id), 0) FROM record), (SELECT ifnull(max(id), 0) FROM stream),
       (SELECT ifnull(max(value), 0) FROM meta WHERE name = 'last_fence')

-- catalog_version
SELECT value FROM meta WHERE name = 'catalog'

-- insert_partition
INSERT OR IGNORE INTO partition (name) VALUES (?)

-- insert_record
INSERT INTO record (id, partition, collection, key, version, fields, expires_at, head_crc, body_crc, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- update_record
UPDATE record SET version = ?, fields = ?, expires_at = ?, head_crc = ?, body_crc = ?, body = ? WHERE id = ?

-- patch_record
UPDATE record SET version = ?, fields = ?, head_crc = ? WHERE id = ?

-- delete_record
DELETE FROM record WHERE id = ?

-- insert_index
INSERT INTO record_index (name, entry, record) VALUES (?, ?, ?)

-- delete_index
DELETE FROM record_index WHERE name = ? AND entry = ?

-- add_to_counter
INSERT INTO counter (name, grp, total) VALUES (?, ?, ?)
ON CONFLICT (name, grp) DO UPDATE SET total = total + excluded.total

-- insert_stream
INSERT INTO stream (id, partition, log, name, head, floor) VALUES (?, ?, ?, ?, ?, ?)

-- update_stream
UPDATE stream SET head = ?, floor = ? WHERE id = ?

-- delete_stream
DELETE FROM stream WHERE id = ?

-- insert_entry
INSERT INTO entry (stream, seq, at, crc, kind, data) VALUES (?, ?, ?, ?, ?, ?)

-- insert_dedupe
INSERT OR REPLACE INTO dedupe (stream, name, seq) VALUES (?, ?, ?)

-- trim_entries
DELETE FROM entry WHERE stream = ? AND seq <= ?

-- trim_dedupes
DELETE FROM dedupe WHERE stream = ? AND seq <= ?

-- put_work
INSERT OR REPLACE INTO work
    (partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
     crc)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- delete_work
DELETE FROM work WHERE partition = ? AND queue = ? AND key = ?

-- get_mark
SELECT value FROM meta WHERE name = 'mark'

-- set_meta
INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)

-- insert_holding
INSERT OR IGNORE INTO holding (partition, digest, holder) VALUES (?, ?, ?)

-- delete_holding
DELETE FROM holding WHERE partition = ? AND digest = ? AND holder = ?

-- prolong_blob
-- A held blob has no expiry; max() leaves its NULL unchanged.
UPDATE blob SET expires_at = max(expires_at, ?) WHERE partition = ? AND digest = ?

-- settle_blob
-- A held blob has no expiry. When its last holder releases it, the grace period begins.
UPDATE blob SET expires_at = CASE
    WHEN EXISTS (SELECT 1 FROM holding WHERE holding.partition = blob.partition AND holding.digest = blob.digest) THEN NULL
    ELSE max(ifnull(expires_at, 0), ?) END
WHERE partition = ? AND digest = ?

-- get_record
SELECT version, fields, head_crc, body_crc, body, expires_at FROM record
WHERE partition = ? AND collection = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)

-- scan_up
SELECT entry, key, version, fields, head_crc, body_crc, body, expires_at, partition
FROM record_index JOIN record ON record.id = record_index.record
WHERE name = ? AND entry >= ? AND entry < ? AND (expires_at IS NULL OR expires_at > ?)
ORDER BY entry LIMIT ?

-- scan_down
SELECT entry, key, version, fields, head_crc, body_crc, body, expires_at, partition
FROM record_index JOIN record ON record.id = record_index.record
WHERE name = ? AND entry >= ? AND entry < ? AND (expires_at IS NULL OR expires_at > ?)
ORDER BY entry DESC LIMIT ?

-- count_range
SELECT count(*) FROM (SELECT 1 FROM record_index WHERE name = ? AND entry >= ? AND entry < ? LIMIT ?)

-- count_live
-- Checks each record, because some may have expired.
SELECT count(*) FROM (
    SELECT 1 FROM record_index JOIN record ON record.id = record_index.record
    WHERE name = ? AND entry >= ? AND entry < ? AND (expires_at IS NULL OR expires_at > ?) LIMIT ?)

-- get_counter
SELECT total FROM counter WHERE name = ? AND grp = ?

-- get_stream
SELECT id, head, floor FROM stream WHERE partition = ? AND log = ? AND name = ?

-- get_seq
SELECT d.seq FROM stream AS s JOIN dedupe AS d ON d.stream = s.id
WHERE s.partition = ? AND s.log = ? AND s.name = ? AND d.name = ?

-- watch_none
-- Creates the table of this process's watched logs, with their heads at the last poll.
CREATE TEMP TABLE IF NOT EXISTS watched (
    partition TEXT NOT NULL,
    log       TEXT NOT NULL,
    name      TEXT NOT NULL,
    head      INTEGER NOT NULL,
    PRIMARY KEY (partition, log, name)
) WITHOUT ROWID

-- watch_log
-- The head -1 counts as changed at the first poll, because the log may have grown or been dropped before.
INSERT OR REPLACE INTO temp.watched (partition, log, name, head) VALUES (?, ?, ?, -1)

-- forget_watched
DELETE FROM temp.watched

-- changed_heads
SELECT coalesce(s.head, 0), w.partition, w.log, w.name FROM temp.watched AS w
LEFT JOIN stream AS s ON s.partition = w.partition AND s.log = w.log AND s.name = w.name
WHERE coalesce(s.head, 0) <> w.head

-- set_watched
UPDATE temp.watched SET head = ? WHERE partition = ? AND log = ? AND name = ?

-- read_up
SELECT seq, kind, data, at, crc FROM entry WHERE stream = ? AND seq > ? AND seq < ? ORDER BY seq LIMIT ?

-- read_down
SELECT seq, kind, data, at, crc FROM entry WHERE stream = ? AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?

-- renew_lease
INSERT INTO worker (id, lease_until) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until

-- renew_claim
-- Leaves a lease unchanged that is nearly as long as requested, so that claims that find nothing write nothing.
INSERT INTO worker (id, lease_until) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until WHERE abs(lease_until - excluded.lease_until) > ?

-- begin_lease
-- A worker that claims by Enqueue is alive, even without a heartbeat.
INSERT INTO worker (id, lease_until) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until WHERE lease_until <= ?

-- end_lease
-- Used when the worker's process has died.
UPDATE worker SET lease_until = ? WHERE id = ? AND lease_until > ?

-- queues_held_by
SELECT DISTINCT queue FROM work WHERE state = 'held' AND holder = ?

-- expired_workers
SELECT id FROM worker WHERE lease_until <= ?

-- held_by
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE state = 'held' AND holder = ? AND queue = ? ORDER BY fence LIMIT ?

-- held_anywhere_by
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE state = 'held' AND holder = ?

-- promote_later
-- Makes delayed items ready whose time has come.
UPDATE work SET state = 'ready' WHERE (partition, queue, key) IN
    (SELECT partition, queue, key FROM work WHERE queue = ? AND state = 'later' AND ready_at <= ?
     ORDER BY ready_at LIMIT ?)

-- last_lane
SELECT value FROM meta WHERE name = ?

-- next_ready
-- Returns the first item of the next fairness key (lane) in turn; the index is ordered by lane, partition and item.
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE state = 'ready' AND queue = ? AND lane > ? ORDER BY lane, partition, priority DESC, ready_at LIMIT 1

-- first_ready
-- Used after the last lane: starts again with the first.
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE state = 'ready' AND queue = ? ORDER BY lane, partition, priority DESC, ready_at LIMIT 1

-- next_in_lane
-- Returns the first item of the partition that is next in turn in this lane.
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE state = 'ready' AND queue = ? AND lane = ? AND partition > ?
ORDER BY partition, priority DESC, ready_at LIMIT 1

-- delete_worker
DELETE FROM worker WHERE id = ?

-- get_work
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE partition = ? AND queue = ? AND key = ?

-- list_dead
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE partition = ? AND queue = ? AND state = 'dead' AND key > ? ORDER BY key LIMIT ?

-- list_held
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE partition = ? AND queue = ? AND state = 'held' AND key > ? ORDER BY key LIMIT ?

-- list_waiting
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE partition = ? AND queue = ? AND state IN ('ready', 'later') AND key > ? ORDER BY key LIMIT ?

-- count_records
-- Uses an index only; a condition on another column would read all bodies.
SELECT collection, count(*) FROM record GROUP BY collection

-- count_items
SELECT queue, state, count(*), min(ready_at) FROM work GROUP BY queue, state

-- count_held
SELECT queue, holder, count(*) FROM work WHERE state = 'held' GROUP BY holder, queue

-- begin_blob
INSERT INTO blob (partition, digest, size, expires_at) VALUES (?, NULL, 0, ?) RETURNING id

-- insert_chunk
INSERT INTO blob_chunk (blob, number, sha256, data) SELECT id, ?, ?, ? FROM blob WHERE id = ?

-- find_blob
SELECT id, size FROM blob WHERE partition = ? AND digest = ?

-- name_blob
UPDATE blob SET digest = ?, size = ?, expires_at = ?
WHERE id = ? AND ? = (SELECT count(*) FROM blob_chunk WHERE blob = blob.id) RETURNING id

-- get_chunk
SELECT data, sha256 FROM blob_chunk WHERE blob = ? AND number = ?

-- delete_chunks
DELETE FROM blob_chunk WHERE rowid IN (SELECT rowid FROM blob_chunk WHERE blob = ? LIMIT ?) RETURNING number

-- unname_blob
-- From now on no caller finds it, and sweeps remove it.
UPDATE blob SET digest = NULL, expires_at = 0 WHERE id = ?

-- delete_blob
DELETE FROM blob WHERE id = ?

-- expired_blobs
SELECT id, partition, digest FROM blob WHERE expires_at <= ? ORDER BY expires_at LIMIT ?

-- expired_records
SELECT partition, collection, key FROM record WHERE expires_at <= ? ORDER BY expires_at LIMIT ?

-- first_records
SELECT key, id, version, fields, NULL FROM record WHERE partition = ? AND collection = ? LIMIT ?

-- first_records_with_bodies
SELECT key, id, version, fields, body FROM record WHERE partition = ? AND collection = ? LIMIT ?

-- idle_workers
SELECT id FROM worker WHERE lease_until <= ? AND NOT EXISTS (
    SELECT 1 FROM work WHERE work.holder = worker.id AND work.state = 'held') LIMIT ?

-- list_partitions
SELECT name FROM partition WHERE name > ? ORDER BY name LIMIT ?

-- list_collections
SELECT id, name, declaration FROM collection

-- put_collection
INSERT INTO collection (name, declaration) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET declaration = excluded.declaration RETURNING id

-- clear_indexes
DELETE FROM record_index WHERE name BETWEEN ? AND ?

-- clear_counters
DELETE FROM counter WHERE name BETWEEN ? AND ?

-- all_of_collection
SELECT id, partition, key, fields FROM record WHERE collection = ? AND id > ? ORDER BY id LIMIT ?

-- all_work
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work

-- check_partitions
SELECT 'partition ' || partition, 'it is not in the list of partitions' FROM (
    SELECT partition FROM record UNION SELECT partition FROM stream UNION SELECT partition FROM work
    UNION SELECT partition FROM blob WHERE digest IS NOT NULL) WHERE partition NOT IN (SELECT name FROM partition)

-- check_holders
SELECT 'work ' || queue || '/' || key, 'it is held by a worker that has no lease' FROM work
WHERE state = 'held' AND holder NOT IN (SELECT id FROM worker)

-- check_fences
SELECT 'work ' || queue || '/' || key, 'its fence is greater than the last one given' FROM work
WHERE fence > (SELECT ifnull(max(value), 0) FROM meta WHERE name = 'last_fence')

-- check_blob_sizes
SELECT 'blob ' || digest, 'its chunks are missing, or too many' FROM blob
WHERE digest IS NOT NULL AND size IS NOT (SELECT ifnull(sum(length(data)), 0) FROM blob_chunk WHERE blob = blob.id)

-- check_blob_holders
SELECT 'blob ' || digest, 'its holders are missing, or too many' FROM blob
WHERE digest IS NOT NULL AND (expires_at IS NULL) IS NOT EXISTS (
    SELECT 1 FROM holding WHERE holding.partition = blob.partition AND holding.digest = blob.digest)

-- check_holdings
SELECT 'blob ' || digest, holder || ' holds it, but it is not there' FROM holding
WHERE NOT EXISTS (SELECT 1 FROM blob WHERE blob.partition = holding.partition AND blob.digest = holding.digest)
