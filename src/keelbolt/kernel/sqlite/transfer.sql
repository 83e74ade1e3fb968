-- Named statements of copies and backups: tables in pages, and inserts of copied rows.

-- pages_collection
SELECT name, declaration FROM collection WHERE name > ? ORDER BY name LIMIT ?

-- pages_partition
SELECT name FROM partition WHERE name > ? ORDER BY name LIMIT ?

-- pages_record
SELECT id, partition, collection, key, version, fields, expires_at, head_crc, body_crc, body
FROM record WHERE id > ? ORDER BY id LIMIT ?

-- pages_stream
SELECT id, partition, log, name, head, floor FROM stream WHERE id > ? ORDER BY id LIMIT ?

-- pages_entry
SELECT e.stream, e.seq, s.partition, s.log, s.name, e.at, e.kind, e.data, d.name, e.crc
FROM entry AS e CROSS JOIN stream AS s ON s.id = e.stream
LEFT JOIN dedupe AS d ON d.stream = e.stream AND d.seq = e.seq
WHERE (e.stream, e.seq) > (?, ?) ORDER BY e.stream, e.seq LIMIT ?

-- pages_work
SELECT partition, queue, key, state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason,
    crc
FROM work WHERE (partition, queue, key) > (?, ?, ?) ORDER BY partition, queue, key LIMIT ?

-- pages_blob
SELECT id, partition, digest, size, expires_at FROM blob WHERE id > ? AND digest IS NOT NULL ORDER BY id LIMIT ?

-- pages_chunk
SELECT c.blob, c.number, b.partition, b.digest, c.sha256, c.data
FROM blob_chunk AS c CROSS JOIN blob AS b ON b.id = c.blob
WHERE (c.blob, c.number) > (?, ?) AND b.digest IS NOT NULL ORDER BY c.blob, c.number LIMIT ?

-- pages_holding
SELECT partition, digest, holder FROM holding WHERE (partition, digest, holder) > (?, ?, ?)
ORDER BY partition, digest, holder LIMIT ?

-- totals
SELECT (SELECT count(*) FROM collection), (SELECT count(*) FROM partition), (SELECT count(*) FROM record),
       (SELECT count(*) FROM stream), (SELECT ifnull(sum(head - floor), 0) FROM stream), (SELECT count(*) FROM work),
       (SELECT count(*) FROM blob WHERE digest IS NOT NULL), (SELECT count(*) FROM blob_chunk),
       (SELECT count(*) FROM holding)

-- last_fence
SELECT ifnull(max(value), 0) FROM meta WHERE name = 'last_fence'

-- holds_data
SELECT EXISTS (SELECT 1 FROM partition) OR EXISTS (SELECT 1 FROM record) OR EXISTS (SELECT 1 FROM stream)
    OR EXISTS (SELECT 1 FROM work) OR EXISTS (SELECT 1 FROM blob)

-- get_meta
SELECT value FROM meta WHERE name = ?

-- set_meta
INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)

-- delete_meta
DELETE FROM meta WHERE name = ?

-- wipe_meta
DELETE FROM meta WHERE name IN ('last_fence', 'copy') OR name LIKE 'lane/%'

-- put_blob
INSERT INTO blob (partition, digest, size, expires_at) VALUES (?, ?, ?, ?)

-- put_chunk
INSERT INTO blob_chunk (blob, number, sha256, data)
SELECT id, ?, ?, ? FROM blob WHERE partition = ? AND digest = ?

-- put_holding
INSERT INTO holding (partition, digest, holder)
SELECT partition, digest, ? FROM blob WHERE partition = ? AND digest = ?
