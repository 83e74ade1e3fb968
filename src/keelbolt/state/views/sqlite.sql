-- The StateStore's tables of the specification, as views. JSON columns are JSON text. Times are UTC.
-- SQLite truncates text at a NUL, so NUL is shown as U+FFFD.
-- Marks of the codec, such as {"$keelbolt": ["datetime", ["2026-01-01T00:00:00+00:00", 0]]}, are decoded for times only.

-- Events that were saved together are one entry; repeats are one event.
CREATE VIEW flow_events AS
SELECT substr(partition, 8) AS tenant,
       coalesce(json_extract(item, '$.trace_id'), '__global__') AS trace_id,
       json_extract(item, '$.ts') AS ts,
       json_extract(item, '$.kind') AS kind,
       json_extract(item, '$.node_name') AS node_name,
       json_extract(item, '$.node_id') AS node_id,
       json_extract(item, '$.payload') AS payload,
       strftime('%Y-%m-%d %H:%M:%f', min(at) / 1e6, 'unixepoch') AS created_at,
       min(seq) AS seq,
       min(id) AS id
FROM (SELECT stream.partition, stream.id AS stream, entry.seq, entry.at, entry.seq * 1000000 + item.key AS id, item.value AS item
      FROM stream JOIN entry ON entry.stream = stream.id,
           json_each(iif(entry.kind = 'many', '', '[') || replace(CAST(entry.data AS TEXT), '\u0000', '\ufffd')
                     || iif(entry.kind = 'many', '', ']')) AS item
      WHERE stream.log = 'state_events' AND stream.partition LIKE '~state/%')
GROUP BY stream, item;

-- An event does not contain its trace; the view takes it from the stream.
CREATE VIEW planner_events AS
SELECT substr(partition, 8) AS tenant,
       coalesce((SELECT json_extract(replace(CAST(body AS TEXT), '\u0000', '\ufffd'), '$') FROM record
                 WHERE record.partition = events.partition AND collection = 'state_traces' AND key = name), name)
           AS trace_id,
       json_extract(item, '$.event_type') AS event_type,
       json_extract(item, '$.ts') AS ts,
       json_extract(item, '$.trajectory_step') AS trajectory_step,
       json_extract(item, '$.thought') AS thought,
       json_extract(item, '$.node_name') AS node_name,
       json_extract(item, '$.latency_ms') AS latency_ms,
       json_extract(item, '$.token_estimate') AS token_estimate,
       json_extract(item, '$.error') AS error,
       json_extract(item, '$.extra') AS extra,
       strftime('%Y-%m-%d %H:%M:%f', min(at) / 1e6, 'unixepoch') AS created_at,
       min(seq) AS seq,
       min(id) AS id
FROM (SELECT stream.partition, stream.name, stream.id AS stream, entry.seq, entry.at, entry.seq * 1000000 + item.key AS id, item.value AS item
      FROM stream JOIN entry ON entry.stream = stream.id,
           json_each(iif(entry.kind = 'many', '', '[') || replace(CAST(entry.data AS TEXT), '\u0000', '\ufffd')
                     || iif(entry.kind = 'many', '', ']')) AS item
      WHERE stream.log = 'state_planner_events' AND stream.partition LIKE '~state/%') AS events
GROUP BY stream, item;

CREATE VIEW state_updates AS
SELECT substr(partition, 8) AS tenant,
       json_extract(item, '$.session_id') AS session_id,
       json_extract(item, '$.task_id') AS task_id,
       json_extract(item, '$.trace_id') AS trace_id,
       json_extract(item, '$.update_id') AS update_id,
       json_extract(item, '$.update_type') AS update_type,
       json_extract(item, '$.content') AS content,
       json_extract(item, '$.step_index') AS step_index,
       json_extract(item, '$.total_steps') AS total_steps,
       coalesce(json_extract(item, '$.created_at."$keelbolt"[1][0]'), json_extract(item, '$.created_at')) AS created_at,
       seq,
       seq AS id
FROM (SELECT stream.partition, entry.seq, replace(CAST(entry.data AS TEXT), '\u0000', '\ufffd') AS item
      FROM stream JOIN entry ON entry.stream = stream.id
      WHERE stream.log = 'state_updates' AND stream.partition LIKE '~state/%');

CREATE VIEW steering_events AS
SELECT substr(partition, 8) AS tenant,
       json_extract(item, '$.session_id') AS session_id,
       json_extract(item, '$.task_id') AS task_id,
       json_extract(item, '$.event_id') AS event_id,
       json_extract(item, '$.event_type') AS event_type,
       json_extract(item, '$.payload') AS payload,
       json_extract(item, '$.trace_id') AS trace_id,
       json_extract(item, '$.source') AS source,
       coalesce(json_extract(item, '$.created_at."$keelbolt"[1][0]'), json_extract(item, '$.created_at')) AS created_at,
       seq,
       seq AS id
FROM (SELECT stream.partition, entry.seq, replace(CAST(entry.data AS TEXT), '\u0000', '\ufffd') AS item
      FROM stream JOIN entry ON entry.stream = stream.id
      WHERE stream.log = 'state_steering' AND stream.partition LIKE '~state/%');

CREATE VIEW task_states AS
SELECT substr(partition, 8) AS tenant,
       json_extract(item, '$.task_id') AS task_id,
       json_extract(item, '$.session_id') AS session_id,
       json_extract(item, '$.status') AS status,
       json_extract(item, '$.task_type') AS task_type,
       json_extract(item, '$.priority') AS priority,
       context_snapshot,
       json_extract(item, '$.trace_id') AS trace_id,
       json_extract(item, '$.result') AS result,
       json_extract(item, '$.error') AS error,
       json_extract(item, '$.description') AS description,
       json_extract(item, '$.progress') AS progress,
       json_extract(item, '$.created_at."$keelbolt"[1][0]') AS created_at,
       json_extract(item, '$.updated_at."$keelbolt"[1][0]') AS updated_at
FROM (SELECT task.partition, replace(CAST(task.body AS TEXT), '\u0000', '\ufffd') AS item,
             replace(CAST(context.body AS TEXT), '\u0000', '\ufffd') AS context_snapshot
      FROM record AS task
      LEFT JOIN record AS context
           ON context.partition = task.partition AND context.collection = 'state_snapshots' AND context.key = task.key
      WHERE task.collection = 'state_tasks' AND task.partition LIKE '~state/%');

CREATE VIEW trajectories AS
SELECT substr(partition, 8) AS tenant,
       json_extract(item, '$.trace_id') AS trace_id,
       json_extract(item, '$.session_id') AS session_id,
       json_extract(item, '$.trajectory') AS trajectory,
       strftime('%Y-%m-%d %H:%M:%f', json_extract(fields, '$.saved') / 1e6, 'unixepoch') AS created_at
FROM (SELECT partition, fields, replace(CAST(body AS TEXT), '\u0000', '\ufffd') AS item FROM record
      WHERE collection = 'state_trajectories' AND partition LIKE '~state/%');

CREATE VIEW remote_bindings AS
SELECT substr(partition, 8) AS tenant,
       json_extract(item, '$.trace_id') AS trace_id,
       json_extract(item, '$.context_id') AS context_id,
       json_extract(item, '$.task_id') AS task_id,
       json_extract(item, '$.agent_url') AS agent_url,
       json_extract(item, '$.router_session_id') AS router_session_id,
       json_extract(item, '$.remote_skill') AS remote_skill,
       json_extract(item, '$.is_terminal') AS is_terminal,
       json_extract(item, '$.metadata') AS metadata,
       strftime('%Y-%m-%d %H:%M:%f', json_extract(fields, '$.saved') / 1e6, 'unixepoch') AS created_at
FROM (SELECT partition, fields, replace(CAST(body AS TEXT), '\u0000', '\ufffd') AS item FROM record
      WHERE collection = 'state_bindings' AND partition LIKE '~state/%');

-- Expired pauses are hidden, even before a sweep removes them.
CREATE VIEW planner_pauses AS
SELECT substr(partition, 8) AS tenant,
       json_extract(item, '$.token') AS token,
       json_extract(item, '$.payload') AS payload,
       strftime('%Y-%m-%d %H:%M:%f', json_extract(fields, '$.saved') / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%d %H:%M:%f', expires_at / 1e6, 'unixepoch') AS expires_at
FROM (SELECT partition, expires_at, fields, replace(CAST(body AS TEXT), '\u0000', '\ufffd') AS item FROM record
      WHERE collection = 'state_pauses' AND partition LIKE '~state/%')
WHERE expires_at / 1e6 > (julianday('now') - 2440587.5) * 86400;

CREATE VIEW memory_states AS
SELECT substr(partition, 8) AS tenant,
       json_extract(item, '$.key') AS key,
       json_extract(item, '$.state') AS state,
       strftime('%Y-%m-%d %H:%M:%f', json_extract(fields, '$.saved') / 1e6, 'unixepoch') AS updated_at
FROM (SELECT partition, fields, replace(CAST(body AS TEXT), '\u0000', '\ufffd') AS item FROM record
      WHERE collection = 'state_memory' AND partition LIKE '~state/%');

-- data is set for artifacts of one chunk (up to 256 KB); keelbolt state export has the larger ones.
CREATE VIEW artifacts AS
SELECT substr(kept.partition, 8) AS tenant,
       json_extract(item, '$.id') AS artifact_id,
       json_extract(item, '$.scope.session_id') AS session_id,
       json_extract(item, '$.scope.trace_id') AS trace_id,
       json_extract(item, '$.mime_type') AS mime_type,
       json_extract(item, '$.size_bytes') AS size_bytes,
       json_extract(item, '$.filename') AS filename,
       json_extract(item, '$.sha256') AS sha256,
       json_extract(item, '$.namespace') AS namespace,
       json_extract(item, '$.scope') AS scope,
       CASE WHEN blob.size = 0 THEN x'' WHEN blob.size <= 262144 THEN
           (SELECT data FROM blob_chunk WHERE blob_chunk.blob = blob.id AND number = 0)
       END AS data,
       strftime('%Y-%m-%d %H:%M:%f', json_extract(item, '$.created') / 1e6, 'unixepoch') AS created_at,
       CASE WHEN json_extract(fields, '$.expires') < 4611686018427387904
            THEN strftime('%Y-%m-%d %H:%M:%f', json_extract(fields, '$.expires') / 1e6, 'unixepoch')
       END AS expires_at
FROM (SELECT partition, fields, replace(CAST(body AS TEXT), '\u0000', '\ufffd') AS item FROM record
      WHERE collection = 'state_artifacts' AND partition LIKE '~state/%') AS kept
LEFT JOIN blob ON blob.partition = kept.partition AND blob.digest = json_extract(item, '$.sha256');
