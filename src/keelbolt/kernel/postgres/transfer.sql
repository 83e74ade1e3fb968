-- Named statements of copies and backups. A page is limited in rows and bytes; "before": bytes before a row.

-- pages_collection
SELECT name, declaration FROM {schema}.collection WHERE name COLLATE "C" > $1 ORDER BY name COLLATE "C" LIMIT $2

-- pages_partition
SELECT name FROM {schema}.partition WHERE name > $1 ORDER BY name LIMIT $2

-- pages_record
SELECT partition, collection, name, key, version, fields, expires_at, body FROM (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY partition, collection, name) - octet_length(body) AS before
    FROM (SELECT * FROM {schema}.record WHERE (partition, collection, name) > ($1, $2, $3)
          ORDER BY partition, collection, name LIMIT $4) AS page) AS sized
WHERE before < $5 ORDER BY partition, collection, name

-- pages_stream
SELECT id, partition, log, coalesce(key, name), head, floor FROM {schema}.stream WHERE id > $1 ORDER BY id LIMIT $2

-- pages_entry
SELECT e.stream, e.seq, s.partition, s.log, coalesce(s.key, s.name), e.at, e.kind, e.data, coalesce(d.key, d.name) FROM (
    SELECT *, sum(octet_length(data)) OVER (ORDER BY stream, seq) - octet_length(data) AS before
    FROM (SELECT * FROM {schema}.entry WHERE (stream, seq) > ($1, $2) ORDER BY stream, seq LIMIT $3) AS page) AS e
JOIN {schema}.stream AS s ON s.id = e.stream
LEFT JOIN {schema}.dedupe AS d ON d.stream = e.stream AND d.seq = e.seq
WHERE e.before < $4 ORDER BY e.stream, e.seq

-- pages_work
SELECT partition, queue, name, key, state, lane, priority, ready_at, attempt, max_attempts, fence, again_at, reason
FROM {schema}.work WHERE (partition, queue, name) > ($1, $2, $3) ORDER BY partition, queue, name LIMIT $4

-- pages_blob
SELECT id, partition, digest, size, expires_at FROM {schema}.blob WHERE id > $1 AND digest IS NOT NULL
ORDER BY id LIMIT $2

-- pages_chunk
SELECT c.blob, c.number, b.partition, b.digest, c.sha256, c.data FROM (
    SELECT *, sum(octet_length(data)) OVER (ORDER BY blob, number) - octet_length(data) AS before
    FROM (SELECT c.* FROM {schema}.blob_chunk AS c JOIN {schema}.blob AS b ON b.id = c.blob AND b.digest IS NOT NULL
          WHERE (c.blob, c.number) > ($1, $2) ORDER BY c.blob, c.number LIMIT $3) AS page) AS c
JOIN {schema}.blob AS b ON b.id = c.blob
WHERE c.before < $4 ORDER BY c.blob, c.number

-- pages_holding
SELECT partition, digest, holder, key FROM {schema}.holding WHERE (partition, digest, holder) > ($1, $2, $3)
ORDER BY partition, digest, holder LIMIT $4

-- totals
SELECT (SELECT count(*) FROM {schema}.collection), (SELECT count(*) FROM {schema}.partition),
       (SELECT count(*) FROM {schema}.record), (SELECT count(*) FROM {schema}.stream),
       (SELECT coalesce(sum(head - floor), 0)::bigint FROM {schema}.stream), (SELECT count(*) FROM {schema}.work),
       (SELECT count(*) FROM {schema}.blob WHERE digest IS NOT NULL), (SELECT count(*) FROM {schema}.blob_chunk),
       (SELECT count(*) FROM {schema}.holding)

-- last_fence
-- The last batch may have used all ids that it reserved.
SELECT last_value + 10000 FROM {schema}.ids

-- raise_ids
SELECT setval('{schema}.ids', greatest($1, (SELECT last_value FROM {schema}.ids)))

-- holds_data
SELECT EXISTS (SELECT 1 FROM {schema}.partition) OR EXISTS (SELECT 1 FROM {schema}.record)
    OR EXISTS (SELECT 1 FROM {schema}.stream) OR EXISTS (SELECT 1 FROM {schema}.work) OR EXISTS (SELECT 1 FROM {schema}.blob)

-- get_meta
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (SELECT value FROM {schema}.meta WHERE name = $1)

-- delete_meta
DELETE FROM {schema}.meta WHERE name = ANY($1::text[])

-- wipe
TRUNCATE {schema}.record, {schema}.counter, {schema}.stream, {schema}.entry, {schema}.dedupe,
    {schema}.work, {schema}.worker, {schema}.blob, {schema}.blob_chunk, {schema}.holding, {schema}.partition,
    {schema}.collection

-- wipe_meta
DELETE FROM {schema}.meta WHERE name = 'copy' OR name LIKE 'lane/%'

-- new_catalog
UPDATE {schema}.meta SET value = (value::bigint + 1)::text WHERE name = 'catalog'

-- settle_marks
-- Waits for claims and blobs that are being written. The catalog's lock waits for commits.
LOCK TABLE {schema}.blob, {schema}.worker IN SHARE MODE

-- new_ids
SELECT nextval('{schema}.ids')

-- stream_ids
SELECT partition, log, name, id FROM {schema}.stream
WHERE (partition, log, name) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))

-- put_blobs
INSERT INTO {schema}.blob (partition, digest, size, expires_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])

-- put_chunks
INSERT INTO {schema}.blob_chunk (blob, number, sha256, data)
SELECT b.id, n.number, n.sha256, n.data
FROM unnest($1::text[], $2::text[], $3::integer[], $4::bytea[], $5::bytea[]) AS n (partition, digest, number, sha256, data)
JOIN {schema}.blob AS b ON b.partition = n.partition AND b.digest = n.digest

-- put_holdings
INSERT INTO {schema}.holding (partition, digest, holder, key)
SELECT n.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS n (partition, digest, holder, key)
JOIN {schema}.blob AS b ON b.partition = n.partition AND b.digest = n.digest
