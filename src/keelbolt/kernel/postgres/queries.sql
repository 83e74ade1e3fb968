-- Named statements; {schema} is replaced when a storage is opened. A batch passes arrays to unnest, in one statement.
-- Reads join unnest with LATERAL and OFFSET 0, so that the only possible plan looks up each row by its key. A plain join
-- becomes a hash join over the whole table while the table has no statistics. Writes can't be written that way; the
-- planner settings of the session (connection.py) keep them on their indexes.

-- begin
-- Runs after the locks are held, so that a later batch gets later ids. The first row is missing if this batch is already
-- committed, by a connection that broke before it could report it. Also returns the records, heads and work items that
-- the batch touches, each with its index in the arrays. Claims of other processes change work items without the key
-- locks, so these rows are locked, in order.
WITH batch AS (
    INSERT INTO {schema}.committed (id, at) VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ON CONFLICT DO NOTHING
    RETURNING at, nextval('{schema}.ids') AS ids, (SELECT value FROM {schema}.meta WHERE name = 'catalog') AS catalog,
        (SELECT value FROM {schema}.meta WHERE name = 'mark') AS mark
), items AS (
    SELECT n.place, w.* FROM unnest($8::text[], $9::text[], $10::text[]) WITH ORDINALITY AS n (partition, queue, name, place)
    JOIN {schema}.work AS w ON w.partition = n.partition AND w.queue = n.queue AND w.name = n.name
    ORDER BY w.partition, w.queue, w.name FOR UPDATE OF w)
SELECT 0 AS kind, 0 AS place, at AS a, ids AS b, NULL::bigint AS c, NULL::bigint AS d, NULL::bigint AS e,
    NULL::bigint AS f, catalog AS t, mark AS u, NULL AS v, NULL AS w
FROM batch
UNION ALL
SELECT 1, n.place, r.version, r.expires_at, NULL, NULL, NULL, NULL, r.fields, NULL, NULL, NULL
FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS n (partition, collection, name, place)
CROSS JOIN LATERAL (
    SELECT version, expires_at, fields FROM {schema}.record AS r
    WHERE r.partition = n.partition AND r.collection = n.collection AND r.name = n.name OFFSET 0) AS r
UNION ALL
SELECT 2, n.place, s.id, s.head, s.floor, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM unnest($5::text[], $6::text[], $7::text[]) WITH ORDINALITY AS n (partition, log, name, place)
CROSS JOIN LATERAL (
    SELECT id, head, floor FROM {schema}.stream AS s
    WHERE s.partition = n.partition AND s.log = n.log AND s.name = n.name OFFSET 0) AS s
UNION ALL
SELECT 3, place, priority, ready_at, attempt, max_attempts, fence, again_at, state, lane, holder, reason FROM items

-- prove_locks
-- Takes one lock of each kind, as batches do, and returns the next id.
SELECT nextval('{schema}.ids'), pg_advisory_xact_lock_shared($1), pg_advisory_xact_lock($2)

-- try_locks
-- Returns whether another connection gets these locks: the first exclusively, the second shared.
SELECT pg_try_advisory_xact_lock($1), pg_try_advisory_xact_lock_shared($2), nextval('{schema}.ids')

-- next_ids
SELECT nextval('{schema}.ids')

-- now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- get_mark
-- Runs after the first write of a transaction, because that write waits for a copy that sets the mark.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (SELECT value FROM {schema}.meta WHERE name = 'mark')

-- load_bodies
SELECT partition, collection, name, body
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (partition, collection, name)
JOIN {schema}.record USING (partition, collection, name)

-- load_dedupes
SELECT stream, name, seq FROM unnest($1::bigint[], $2::text[]) AS wanted (stream, name)
JOIN {schema}.dedupe USING (stream, name)

-- load_blobs
-- Locks the blobs, so that no sweep removes one that is being attached.
SELECT partition, digest FROM {schema}.blob
WHERE (partition, digest) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY id FOR UPDATE

-- insert_partitions
INSERT INTO {schema}.partition (name) SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING

-- delete_records
DELETE FROM {schema}.record AS r USING unnest($1::text[], $2::text[], $3::text[]) AS n (partition, collection, name)
WHERE r.partition = n.partition AND r.collection = n.collection AND r.name = n.name

-- set_entries
UPDATE {schema}.record AS r SET e0 = n.e0, e1 = n.e1, e2 = n.e2, e3 = n.e3
FROM unnest($2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[])
    AS n (partition, name, e0, e1, e2, e3)
WHERE r.partition = n.partition AND r.collection = $1 AND r.name = n.name

-- add_to_counters
INSERT INTO {schema}.counter AS c (index, grp, shard, total)
SELECT n.index, n.grp, $4, n.total FROM unnest($1::integer[], $2::bytea[], $3::bigint[]) AS n (index, grp, total)
ON CONFLICT (index, grp, shard) DO UPDATE SET total = c.total + excluded.total

-- insert_records
INSERT INTO {schema}.record (partition, collection, name, key, version, fields, expires_at, body, e0, e1, e2, e3)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[],
                     $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12::bytea[])

-- change_records
-- NULL fields leave the fields and index entries unchanged; a NULL body leaves the body unchanged.
UPDATE {schema}.record AS r SET version = n.version, expires_at = n.expires_at, body = coalesce(n.body, r.body),
    fields = coalesce(n.fields, r.fields),
    e0 = CASE WHEN n.fields IS NULL THEN r.e0 ELSE n.e0 END, e1 = CASE WHEN n.fields IS NULL THEN r.e1 ELSE n.e1 END,
    e2 = CASE WHEN n.fields IS NULL THEN r.e2 ELSE n.e2 END, e3 = CASE WHEN n.fields IS NULL THEN r.e3 ELSE n.e3 END
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bytea[],
            $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[])
    AS n (partition, collection, name, version, fields, expires_at, body, e0, e1, e2, e3)
WHERE r.partition = n.partition AND r.collection = n.collection AND r.name = n.name

-- insert_streams
INSERT INTO {schema}.stream (id, partition, log, name, key, head, floor)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])

-- move_heads
UPDATE {schema}.stream AS s SET head = n.head, floor = n.floor
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS n (id, head, floor) WHERE s.id = n.id

-- insert_entries
INSERT INTO {schema}.entry (stream, seq, at, kind, data)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[])

-- put_work
INSERT INTO {schema}.work AS w
    (partition, queue, name, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
                     $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::text[])
ON CONFLICT (partition, queue, name) DO UPDATE SET
    state = excluded.state, lane = excluded.lane, priority = excluded.priority, ready_at = excluded.ready_at,
    attempt = excluded.attempt, max_attempts = excluded.max_attempts, fence = excluded.fence,
    holder = excluded.holder, again_at = excluded.again_at, reason = excluded.reason

-- delete_work
DELETE FROM {schema}.work AS w USING unnest($1::text[], $2::text[], $3::text[]) AS n (partition, queue, name)
WHERE w.partition = n.partition AND w.queue = n.queue AND w.name = n.name

-- begin_leases
-- A worker that claims by Enqueue is alive, even without a heartbeat. An unexpired lease is not changed.
INSERT INTO {schema}.worker AS w (id, lease_until) SELECT id, $2 FROM unnest($1::text[]) AS n (id)
WHERE NOT EXISTS (SELECT 1 FROM {schema}.worker AS h WHERE h.id = n.id AND h.lease_until > $3) ORDER BY id
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until WHERE w.lease_until <= $3

-- insert_dedupes
INSERT INTO {schema}.dedupe (stream, name, key, seq)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[])
ON CONFLICT (stream, name) DO UPDATE SET seq = excluded.seq

-- trim_entries
DELETE FROM {schema}.entry AS e USING unnest($1::bigint[], $2::bigint[]) AS n (stream, through)
WHERE e.stream = n.stream AND e.seq <= n.through

-- trim_dedupes
DELETE FROM {schema}.dedupe AS d USING unnest($1::bigint[], $2::bigint[]) AS n (stream, through)
WHERE d.stream = n.stream AND d.seq <= n.through

-- delete_streams
DELETE FROM {schema}.stream WHERE id = ANY($1::bigint[])

-- insert_holdings
INSERT INTO {schema}.holding (partition, digest, holder, key)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
ON CONFLICT DO NOTHING

-- delete_holdings
DELETE FROM {schema}.holding AS h USING unnest($1::text[], $2::text[], $3::text[]) AS n (partition, digest, holder)
WHERE h.partition = n.partition AND h.digest = n.digest AND h.holder = n.holder

-- settle_blobs
-- A held blob has no expiry. When its last holder releases it, the grace period begins.
UPDATE {schema}.blob AS b SET expires_at = CASE
    WHEN EXISTS (SELECT 1 FROM {schema}.holding AS h WHERE h.partition = b.partition AND h.digest = b.digest) THEN NULL
    ELSE greatest(coalesce(b.expires_at, 0), $3) END
FROM unnest($1::text[], $2::text[]) AS n (partition, digest)
WHERE b.partition = n.partition AND b.digest = n.digest

-- get_records
SELECT n.place, r.version, r.fields, r.body
FROM unnest($3::text[]) WITH ORDINALITY AS n (name, place) CROSS JOIN LATERAL (
    SELECT version, fields, body FROM {schema}.record
    WHERE partition = $1 AND collection = $2 AND name = n.name
      AND (expires_at IS NULL OR expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    OFFSET 0) AS r

-- scan_up
-- Returns the rows with the catalog of the same snapshot; without rows, the catalog alone. {entry} is the column of the
-- index; its entries begin with the collection and the partition.
SELECT catalog.value, found.* FROM (SELECT value FROM {schema}.meta WHERE name = 'catalog') AS catalog LEFT JOIN LATERAL (
    SELECT {entry} AS entry, coalesce(key, name) AS key, version, body, fields FROM {schema}.record
    WHERE {entry} >= $1 AND {entry} < $2
      AND (expires_at IS NULL OR expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ORDER BY {entry} LIMIT $3) AS found ON true ORDER BY found.entry

-- scan_down
-- Like scan_up, in descending order.
SELECT catalog.value, found.* FROM (SELECT value FROM {schema}.meta WHERE name = 'catalog') AS catalog LEFT JOIN LATERAL (
    SELECT {entry} AS entry, coalesce(key, name) AS key, version, body, fields FROM {schema}.record
    WHERE {entry} >= $1 AND {entry} < $2
      AND (expires_at IS NULL OR expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ORDER BY {entry} DESC LIMIT $3) AS found ON true ORDER BY found.entry DESC

-- count_range
SELECT (SELECT value FROM {schema}.meta WHERE name = 'catalog'), count(*) FROM (
    SELECT 1 FROM {schema}.record WHERE {entry} >= $1 AND {entry} < $2
      AND (expires_at IS NULL OR expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    LIMIT $3) AS counted

-- get_counter
SELECT (SELECT value FROM {schema}.meta WHERE name = 'catalog'), coalesce(sum(total), 0)::bigint
FROM {schema}.counter WHERE index = $1 AND grp = $2

-- read_up
-- Returns pages of many logs. The head and the entries of a log are of the same snapshot, even without entries.
SELECT n.place, s.head, s.floor, e.seq, e.kind, e.data, e.at
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) WITH ORDINALITY
    AS n (partition, log, name, after, before, most, bytes, place)
CROSS JOIN LATERAL (
    SELECT id, head, floor FROM {schema}.stream AS s
    WHERE s.partition = n.partition AND s.log = n.log AND s.name = n.name OFFSET 0) AS s
LEFT JOIN LATERAL (
    SELECT seq, kind, data, at FROM (
        SELECT seq, kind, data, at, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS before_it
        FROM {schema}.entry WHERE stream = s.id AND seq > greatest(n.after, s.floor) AND seq < n.before
        ORDER BY seq LIMIT n.most) AS page
    WHERE before_it < n.bytes OR before_it = 0) AS e ON true
ORDER BY n.place, e.seq

-- read_down
-- Like read_up, in descending order.
SELECT n.place, s.head, s.floor, e.seq, e.kind, e.data, e.at
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) WITH ORDINALITY
    AS n (partition, log, name, after, before, most, bytes, place)
CROSS JOIN LATERAL (
    SELECT id, head, floor FROM {schema}.stream AS s
    WHERE s.partition = n.partition AND s.log = n.log AND s.name = n.name OFFSET 0) AS s
LEFT JOIN LATERAL (
    SELECT seq, kind, data, at FROM (
        SELECT seq, kind, data, at, sum(octet_length(data)) OVER (ORDER BY seq DESC) - octet_length(data) AS before_it
        FROM {schema}.entry WHERE stream = s.id AND seq > greatest(n.after, s.floor) AND seq < n.before
        ORDER BY seq DESC LIMIT n.most) AS page
    WHERE before_it < n.bytes OR before_it = 0) AS e ON true
ORDER BY n.place, e.seq DESC

-- get_stream
SELECT head, floor FROM {schema}.stream WHERE partition = $1 AND log = $2 AND name = $3

-- get_seq
SELECT d.seq FROM {schema}.stream AS s
CROSS JOIN LATERAL (SELECT seq FROM {schema}.dedupe WHERE stream = s.id AND name = $4 OFFSET 0) AS d
WHERE s.partition = $1 AND s.log = $2 AND s.name = $3

-- snapshot
-- Two equal snapshots see the same data: no transaction committed between them.
SELECT pg_current_snapshot()::text

-- changed_heads
-- Forces one index lookup per watched log: a join could read the whole table, depending on the statistics.
SELECT n.place, coalesce(s.head, 0)
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS n (partition, log, name, known, place)
LEFT JOIN LATERAL (
    SELECT head FROM {schema}.stream AS s WHERE s.partition = n.partition AND s.log = n.log AND s.name = n.name LIMIT 1
) AS s ON true
WHERE coalesce(s.head, 0) <> n.known

-- share_lock
SELECT pg_advisory_xact_lock_shared($1)

-- take_lock
SELECT pg_advisory_xact_lock($1)

-- renew_lease
INSERT INTO {schema}.worker (id, lease_until)
VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $2)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until
RETURNING lease_until - $2, (SELECT value FROM {schema}.meta WHERE name = 'mark')

-- renew_claim
-- Leaves a lease unchanged that is nearly as long as requested, so that claims that find nothing write nothing.
WITH now AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at), renewed AS (
    INSERT INTO {schema}.worker (id, lease_until)
    SELECT $1, now.at + $2 FROM now WHERE NOT EXISTS (
        SELECT FROM {schema}.worker AS w WHERE w.id = $1 AND abs(w.lease_until - now.at - $2) <= $3)
    ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until RETURNING 1)
SELECT now.at, (SELECT value FROM {schema}.meta WHERE name = 'mark'), EXISTS (SELECT FROM renewed) FROM now

-- claim_expired
-- Expired leases first, so that a backlog never starves an orphan.
WITH taken AS (
    SELECT w.partition, w.queue, w.name FROM {schema}.work AS w JOIN {schema}.worker AS h ON h.id = w.holder
    WHERE w.state = 'held' AND w.queue = $1 AND h.lease_until <= $4
    ORDER BY w.fence LIMIT $3 FOR UPDATE OF w SKIP LOCKED)
UPDATE {schema}.work AS w SET holder = $2, attempt = w.attempt + 1, fence = nextval('{schema}.ids')
FROM taken WHERE w.partition = taken.partition AND w.queue = taken.queue AND w.name = taken.name
RETURNING w.partition, w.queue, coalesce(w.key, w.name), w.fence, w.attempt, w.max_attempts, w.lane, w.priority

-- promote_later
-- Makes delayed items ready whose time has come.
UPDATE {schema}.work SET state = 'ready' WHERE (partition, queue, name) IN (
    SELECT partition, queue, name FROM {schema}.work WHERE queue = $1 AND state = 'later' AND ready_at <= $2
    ORDER BY ready_at LIMIT $3 FOR UPDATE SKIP LOCKED)

-- last_lane
SELECT value FROM {schema}.meta WHERE name = $1

-- set_meta
INSERT INTO {schema}.meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- next_lane
-- Returns the next fairness key (lane) in turn; after the last one, the first.
SELECT coalesce(
    (SELECT lane FROM {schema}.work WHERE state = 'ready' AND queue = $1 AND lane > $2 ORDER BY lane LIMIT 1),
    (SELECT lane FROM {schema}.work WHERE state = 'ready' AND queue = $1 ORDER BY lane LIMIT 1))

-- claim_in_lane
-- Claims the first item of the partition that is next in turn in this lane; the index has the partitions in order.
WITH taken AS (
    SELECT partition, queue, name FROM {schema}.work
    WHERE state = 'ready' AND queue = $1 AND lane = $3 AND partition > $4
    ORDER BY partition, priority DESC, ready_at LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE {schema}.work AS w SET state = 'held', holder = $2, attempt = w.attempt + 1, fence = nextval('{schema}.ids')
FROM taken WHERE w.partition = taken.partition AND w.queue = taken.queue AND w.name = taken.name
RETURNING w.partition, w.queue, coalesce(w.key, w.name), w.fence, w.attempt, w.max_attempts, w.lane, w.priority

-- claim_any
-- Used when another process is claiming in the lane that is next in turn.
WITH taken AS (
    SELECT partition, queue, name FROM {schema}.work WHERE state = 'ready' AND queue = $1
    ORDER BY lane, partition, priority DESC, ready_at LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE {schema}.work AS w SET state = 'held', holder = $2, attempt = w.attempt + 1, fence = nextval('{schema}.ids')
FROM taken WHERE w.partition = taken.partition AND w.queue = taken.queue AND w.name = taken.name
RETURNING w.partition, w.queue, coalesce(w.key, w.name), w.fence, w.attempt, w.max_attempts, w.lane, w.priority

-- still_held
-- Finds items by key and locks them, so that it waits for a claim that is being committed.
SELECT partition, queue, name, fence FROM {schema}.work
WHERE (partition, queue, name) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
  AND state = 'held' AND holder = $4
ORDER BY partition, queue, name FOR UPDATE

-- lock_held_by
SELECT count(*) FROM (
    SELECT 1 FROM {schema}.work WHERE state = 'held' AND holder = $1 ORDER BY partition, queue, name FOR UPDATE) AS held

-- release_held_by
UPDATE {schema}.work SET state = 'ready', holder = NULL, again_at = NULL, attempt = attempt - 1,
    ready_at = least(again_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
WHERE state = 'held' AND holder = $1 RETURNING queue

-- delete_worker
DELETE FROM {schema}.worker WHERE id = $1

-- get_work
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, coalesce(key, name), state, lane, priority, ready_at,
       attempt, max_attempts, fence, holder, again_at, reason
FROM {schema}.work WHERE partition = $1 AND queue = $2 AND name = $3

-- list_work
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, coalesce(key, name), state, lane, priority, ready_at,
       attempt, max_attempts, fence, holder, again_at, reason
FROM {schema}.work WHERE partition = $1 AND queue = $2 AND state = ANY($3::text[]) AND name > $4 COLLATE "C"
ORDER BY name LIMIT $5

-- begin_blob
INSERT INTO {schema}.blob (partition, size, expires_at)
VALUES ($1, 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $2) RETURNING id

-- insert_chunk
-- The lock waits for a sweep that removes the upload.
INSERT INTO {schema}.blob_chunk (blob, number, sha256, data)
SELECT id, $2, $3, $4 FROM {schema}.blob WHERE id = $1 FOR KEY SHARE ON CONFLICT DO NOTHING

-- prolong_blob
-- A held blob has no expiry; its NULL stays. Returns no row if the blob does not exist.
UPDATE {schema}.blob SET expires_at = CASE WHEN expires_at IS NOT NULL
    THEN greatest(expires_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $3) END
WHERE partition = $1 AND digest = $2 RETURNING id

-- name_blob
UPDATE {schema}.blob
SET digest = $2, size = $3, expires_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $4
WHERE id = $1 AND $5 = (SELECT count(*) FROM {schema}.blob_chunk WHERE blob = $1) RETURNING id

-- find_blob
SELECT id, size FROM {schema}.blob WHERE partition = $1 AND digest = $2

-- get_chunk
SELECT data, sha256 FROM {schema}.blob_chunk WHERE blob = $1 AND number = $2

-- delete_blob
WITH chunks AS (DELETE FROM {schema}.blob_chunk WHERE blob = ANY($1::bigint[]))
DELETE FROM {schema}.blob WHERE id = ANY($1::bigint[]) RETURNING partition, digest

-- expired_blobs
SELECT id, size FROM {schema}.blob WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED

-- expired_records
SELECT partition, collection, coalesce(key, name) FROM {schema}.record WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2

-- idle_workers
SELECT id FROM {schema}.worker AS w WHERE lease_until <= $1
AND NOT EXISTS (SELECT 1 FROM {schema}.work WHERE work.holder = w.id AND work.state = 'held') LIMIT $2

-- try_worker_locks
-- Skips workers that are claiming now.
SELECT n.id FROM unnest($1::text[], $2::bigint[]) AS n (id, lock) WHERE pg_try_advisory_xact_lock(n.lock)

-- delete_idle_workers
-- A separate statement, so that it sees claims that were committed before the locks were taken.
DELETE FROM {schema}.worker AS w WHERE id = ANY($2::text[]) AND lease_until <= $1
AND NOT EXISTS (SELECT 1 FROM {schema}.work WHERE work.holder = w.id AND work.state = 'held') RETURNING w.id

-- delete_old_batches
DELETE FROM {schema}.committed WHERE at < $1

-- list_partitions
SELECT name FROM {schema}.partition WHERE name > $1 COLLATE "C" ORDER BY name LIMIT $2

-- list_collections
SELECT id, name, declaration FROM {schema}.collection

-- catalog_version
SELECT value FROM {schema}.meta WHERE name = 'catalog'

-- put_collection
INSERT INTO {schema}.collection (name, declaration) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET declaration = excluded.declaration RETURNING id

-- clear_counters
DELETE FROM {schema}.counter WHERE index BETWEEN $1 AND $2

-- all_of_collection
SELECT partition, name, coalesce(key, name), fields FROM {schema}.record
WHERE collection = $1 AND (partition, name) > ($2 COLLATE "C", $3 COLLATE "C") ORDER BY partition, name LIMIT $4

-- stats_records
SELECT collection, count(*) FROM {schema}.record
WHERE expires_at IS NULL OR expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint GROUP BY collection

-- stats_work
SELECT queue, state, count(*) FROM {schema}.work GROUP BY queue, state

-- count_items
SELECT queue, state, count(*), min(ready_at) FROM {schema}.work WHERE queue = ANY ($1::text[]) GROUP BY queue, state

-- count_held
SELECT holder, count(*) FROM {schema}.work WHERE state = 'held' AND queue = ANY ($1::text[]) GROUP BY holder

-- list_workers
SELECT id, lease_until FROM {schema}.worker

-- stats_rest
SELECT (SELECT count(*) FROM {schema}.partition), (SELECT count(*) FROM {schema}.stream),
       (SELECT coalesce(sum(head - floor), 0) FROM {schema}.stream)::bigint,
       (SELECT count(*) FROM {schema}.blob WHERE digest IS NOT NULL),
       (SELECT coalesce(sum(size), 0) FROM {schema}.blob WHERE digest IS NOT NULL)::bigint,
       (SELECT count(*) FROM {schema}.worker)

-- stats_server
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint, current_setting('server_version') FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'

-- check_streams
SELECT s.id, s.log, s.name, s.head, s.floor, count(e.seq), coalesce(max(e.seq), s.floor)
FROM {schema}.stream AS s LEFT JOIN {schema}.entry AS e ON e.stream = s.id AND e.seq > s.floor
WHERE s.id > $1 AND s.id <= (SELECT coalesce(max(id), 0) FROM (
    SELECT id FROM {schema}.stream WHERE id > $1 ORDER BY id LIMIT 100) AS page)
GROUP BY s.id ORDER BY s.id

-- count_records
SELECT count(*) FROM {schema}.record WHERE collection = $1

-- count_entries
SELECT count(e0), count(e1), count(e2), count(e3) FROM {schema}.record WHERE collection = $1

-- sum_counter
SELECT coalesce(sum(total), 0)::bigint FROM {schema}.counter WHERE index = $1

-- check_orphans
SELECT count(*) FROM {schema}.entry AS e WHERE NOT EXISTS (SELECT 1 FROM {schema}.stream AS s WHERE s.id = e.stream)
