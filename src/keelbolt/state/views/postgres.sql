-- The StateStore's tables of the specification, as views. Times are timestamptz.
-- Marks of the codec, such as {"$keelbolt": ["datetime", ["2026-01-01T00:00:00+00:00", 0]]}, are decoded for times only.

-- JSONB can hold neither NUL nor a lone surrogate; both are shown as U+FFFD.
CREATE FUNCTION {schema}.state_json(bytes bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    BEGIN
        RETURN regexp_replace(
            regexp_replace(
                replace(convert_from(bytes, 'UTF8'), '\u0000', '\ufffd'),
                '\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])', '\\ufffd', 'g'),
            '(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}', '\\ufffd', 'g')::jsonb;
    EXCEPTION WHEN OTHERS THEN
        RETURN NULL;
    END;
END $$;

-- Returns the id for a stored name; NULL if only a digest of the id is stored. It depends only on the stream, so that a
-- condition on one trace reads only the entries of that trace.
CREATE FUNCTION {schema}.state_id(name text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    bytes bytea := '';
    rest text := name;
    place integer;
BEGIN
    IF name LIKE '~%' THEN RETURN NULL; END IF;
    IF name = '%' THEN RETURN ''; END IF;
    LOOP
        place := strpos(rest, '%');
        EXIT WHEN place = 0;
        bytes := bytes || convert_to(left(rest, place - 1), 'UTF8')
            || CASE substr(rest, place + 1, 2) WHEN '00' THEN '\xefbfbd'::bytea
                    ELSE decode(substr(rest, place + 1, 2), 'hex') END;
        rest := substr(rest, place + 3);
    END LOOP;
    RETURN convert_from(bytes || convert_to(rest, 'UTF8'), 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN name;
END $$;

CREATE FUNCTION {schema}.state_time(value jsonb) RETURNS timestamptz LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN coalesce(value -> '$keelbolt' -> 1 ->> 0, value #>> '{}')::timestamptz;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- Events that were saved together are one entry; repeats are one event. Comparing as text distinguishes 1 from 1.0.
-- id is the order of arrival within a trace.
CREATE VIEW {schema}.flow_events AS
SELECT substr(partition, 8) AS tenant,
       trace_id,
       CASE WHEN jsonb_typeof(item -> 'ts') = 'number' THEN (item ->> 'ts')::double precision END AS ts,
       item ->> 'kind' AS kind,
       item ->> 'node_name' AS node_name,
       item ->> 'node_id' AS node_id,
       item -> 'payload' AS payload,
       to_timestamp(at / 1e6) AS created_at,
       seq,
       id
FROM (SELECT partition, trace_id, text::jsonb AS item, min(at) AS at, min(seq) AS seq, min(id) AS id
      FROM (SELECT stream.partition, stream.id AS stream,
             coalesce({schema}.state_id(coalesce(stream.key, stream.name)), {schema}.state_json(noted.body) #>> '{}',
                      stream.name) AS trace_id,
             entry.at, entry.seq, entry.seq * 1000000 + place AS id, item::text AS text
      FROM {schema}.stream JOIN {schema}.entry ON entry.stream = stream.id
      LEFT JOIN {schema}.record AS noted
           ON noted.partition = stream.partition AND noted.collection = 'state_traces' AND noted.name = stream.name
      CROSS JOIN LATERAL (SELECT {schema}.state_json(entry.data) AS whole) AS read
      CROSS JOIN LATERAL jsonb_array_elements(
          CASE WHEN entry.kind = 'many' THEN whole ELSE jsonb_build_array(whole) END) WITH ORDINALITY AS one (item, place)
      WHERE stream.log = 'state_events' AND stream.partition LIKE '~state/%') AS items
      GROUP BY partition, stream, trace_id, text) AS events;

CREATE VIEW {schema}.planner_events AS
SELECT substr(partition, 8) AS tenant,
       trace_id,
       item ->> 'event_type' AS event_type,
       CASE WHEN jsonb_typeof(item -> 'ts') = 'number' THEN (item ->> 'ts')::double precision END AS ts,
       CASE WHEN jsonb_typeof(item -> 'trajectory_step') = 'number' THEN (item ->> 'trajectory_step')::numeric END
           AS trajectory_step,
       item ->> 'thought' AS thought,
       item ->> 'node_name' AS node_name,
       CASE WHEN jsonb_typeof(item -> 'latency_ms') = 'number' THEN (item ->> 'latency_ms')::double precision END
           AS latency_ms,
       CASE WHEN jsonb_typeof(item -> 'token_estimate') = 'number' THEN (item ->> 'token_estimate')::numeric END
           AS token_estimate,
       item ->> 'error' AS error,
       item -> 'extra' AS extra,
       to_timestamp(at / 1e6) AS created_at,
       seq,
       id
FROM (SELECT partition, trace_id, text::jsonb AS item, min(at) AS at, min(seq) AS seq, min(id) AS id
      FROM (SELECT stream.partition, stream.id AS stream,
             coalesce({schema}.state_id(coalesce(stream.key, stream.name)), {schema}.state_json(noted.body) #>> '{}',
                      stream.name) AS trace_id,
             entry.at, entry.seq, entry.seq * 1000000 + place AS id, item::text AS text
      FROM {schema}.stream JOIN {schema}.entry ON entry.stream = stream.id
      LEFT JOIN {schema}.record AS noted
           ON noted.partition = stream.partition AND noted.collection = 'state_traces' AND noted.name = stream.name
      CROSS JOIN LATERAL (SELECT {schema}.state_json(entry.data) AS whole) AS read
      CROSS JOIN LATERAL jsonb_array_elements(
          CASE WHEN entry.kind = 'many' THEN whole ELSE jsonb_build_array(whole) END) WITH ORDINALITY AS one (item, place)
      WHERE stream.log = 'state_planner_events' AND stream.partition LIKE '~state/%') AS items
      GROUP BY partition, stream, trace_id, text) AS events;

CREATE VIEW {schema}.state_updates AS
SELECT substr(partition, 8) AS tenant,
       item ->> 'session_id' AS session_id,
       item ->> 'task_id' AS task_id,
       item ->> 'trace_id' AS trace_id,
       item ->> 'update_id' AS update_id,
       item ->> 'update_type' AS update_type,
       item -> 'content' AS content,
       CASE WHEN jsonb_typeof(item -> 'step_index') = 'number' THEN (item ->> 'step_index')::numeric END AS step_index,
       CASE WHEN jsonb_typeof(item -> 'total_steps') = 'number' THEN (item ->> 'total_steps')::numeric END
           AS total_steps,
       {schema}.state_time(item -> 'created_at') AS created_at,
       seq,
       seq AS id
FROM (SELECT stream.partition, entry.seq, {schema}.state_json(entry.data) AS item
      FROM {schema}.stream JOIN {schema}.entry ON entry.stream = stream.id
      WHERE stream.log = 'state_updates' AND stream.partition LIKE '~state/%') AS updates;

CREATE VIEW {schema}.steering_events AS
SELECT substr(partition, 8) AS tenant,
       item ->> 'session_id' AS session_id,
       item ->> 'task_id' AS task_id,
       item ->> 'event_id' AS event_id,
       item ->> 'event_type' AS event_type,
       item -> 'payload' AS payload,
       item ->> 'trace_id' AS trace_id,
       item ->> 'source' AS source,
       {schema}.state_time(item -> 'created_at') AS created_at,
       seq,
       seq AS id
FROM (SELECT stream.partition, entry.seq, {schema}.state_json(entry.data) AS item
      FROM {schema}.stream JOIN {schema}.entry ON entry.stream = stream.id
      WHERE stream.log = 'state_steering' AND stream.partition LIKE '~state/%') AS steering;

CREATE VIEW {schema}.task_states AS
SELECT substr(partition, 8) AS tenant,
       item ->> 'task_id' AS task_id,
       item ->> 'session_id' AS session_id,
       item ->> 'status' AS status,
       item ->> 'task_type' AS task_type,
       CASE WHEN jsonb_typeof(item -> 'priority') = 'number' THEN (item ->> 'priority')::numeric END AS priority,
       context_snapshot,
       item ->> 'trace_id' AS trace_id,
       item -> 'result' AS result,
       item ->> 'error' AS error,
       item ->> 'description' AS description,
       item -> 'progress' AS progress,
       {schema}.state_time(item -> 'created_at') AS created_at,
       {schema}.state_time(item -> 'updated_at') AS updated_at
FROM (SELECT task.partition, {schema}.state_json(task.body) AS item,
             {schema}.state_json(context.body) AS context_snapshot
      FROM {schema}.record AS task
      LEFT JOIN {schema}.record AS context
           ON context.partition = task.partition AND context.collection = 'state_snapshots'
              AND context.name = task.name
      WHERE task.collection = 'state_tasks' AND task.partition LIKE '~state/%') AS tasks;

CREATE VIEW {schema}.trajectories AS
SELECT substr(partition, 8) AS tenant,
       item ->> 'trace_id' AS trace_id,
       item ->> 'session_id' AS session_id,
       item -> 'trajectory' AS trajectory,
       to_timestamp((fields::jsonb ->> 'saved')::bigint / 1e6) AS created_at
FROM (SELECT partition, fields, {schema}.state_json(body) AS item FROM {schema}.record
      WHERE collection = 'state_trajectories' AND partition LIKE '~state/%') AS kept;

CREATE VIEW {schema}.remote_bindings AS
SELECT substr(partition, 8) AS tenant,
       item ->> 'trace_id' AS trace_id,
       item ->> 'context_id' AS context_id,
       item ->> 'task_id' AS task_id,
       item ->> 'agent_url' AS agent_url,
       item ->> 'router_session_id' AS router_session_id,
       item ->> 'remote_skill' AS remote_skill,
       item -> 'is_terminal' = 'true'::jsonb AS is_terminal,
       item -> 'metadata' AS metadata,
       to_timestamp((fields::jsonb ->> 'saved')::bigint / 1e6) AS created_at
FROM (SELECT partition, fields, {schema}.state_json(body) AS item FROM {schema}.record
      WHERE collection = 'state_bindings' AND partition LIKE '~state/%') AS kept;

-- Expired pauses are hidden, even before a sweep removes them.
CREATE VIEW {schema}.planner_pauses AS
SELECT substr(partition, 8) AS tenant,
       item ->> 'token' AS token,
       item -> 'payload' AS payload,
       to_timestamp((fields::jsonb ->> 'saved')::bigint / 1e6) AS created_at,
       to_timestamp(expires_at / 1e6) AS expires_at
FROM (SELECT partition, expires_at, fields, {schema}.state_json(body) AS item FROM {schema}.record
      WHERE collection = 'state_pauses' AND partition LIKE '~state/%') AS kept
WHERE to_timestamp(expires_at / 1e6) > clock_timestamp();

CREATE VIEW {schema}.memory_states AS
SELECT substr(partition, 8) AS tenant,
       item ->> 'key' AS key,
       item -> 'state' AS state,
       to_timestamp((fields::jsonb ->> 'saved')::bigint / 1e6) AS updated_at
FROM (SELECT partition, fields, {schema}.state_json(body) AS item FROM {schema}.record
      WHERE collection = 'state_memory' AND partition LIKE '~state/%') AS kept;

CREATE VIEW {schema}.artifacts AS
SELECT substr(kept.partition, 8) AS tenant,
       item ->> 'id' AS artifact_id,
       item -> 'scope' ->> 'session_id' AS session_id,
       item -> 'scope' ->> 'trace_id' AS trace_id,
       item ->> 'mime_type' AS mime_type,
       (item ->> 'size_bytes')::bigint AS size_bytes,
       item ->> 'filename' AS filename,
       item ->> 'sha256' AS sha256,
       item ->> 'namespace' AS namespace,
       item -> 'scope' AS scope,
       coalesce((SELECT string_agg(chunk.data, ''::bytea ORDER BY chunk.number)
                 FROM {schema}.blob JOIN {schema}.blob_chunk AS chunk ON chunk.blob = blob.id
                 WHERE blob.partition = kept.partition AND blob.digest = item ->> 'sha256'), ''::bytea) AS data,
       to_timestamp((item ->> 'created')::bigint / 1e6) AS created_at,
       CASE WHEN (fields::jsonb ->> 'expires')::bigint < 4611686018427387904
            THEN to_timestamp((fields::jsonb ->> 'expires')::bigint / 1e6)
       END AS expires_at
FROM (SELECT partition, fields, {schema}.state_json(body) AS item FROM {schema}.record
      WHERE collection = 'state_artifacts' AND partition LIKE '~state/%') AS kept;
