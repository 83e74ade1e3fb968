-- The index entries of a record are columns of its row, each with an index of its own. A table of entries kept each entry
-- twice (in the row and in the index), and each change of a record deleted and inserted its rows there.
-- After this script the program fills the columns (schema.py). An entry begins with the collection's number, in two bytes.

DROP TABLE {schema}.record_index;

ALTER TABLE {schema}.record ADD COLUMN e0 bytea, ADD COLUMN e1 bytea, ADD COLUMN e2 bytea, ADD COLUMN e3 bytea;

CREATE INDEX record_e0 ON {schema}.record (e0) WHERE e0 IS NOT NULL;
CREATE INDEX record_e1 ON {schema}.record (e1) WHERE e1 IS NOT NULL;
CREATE INDEX record_e2 ON {schema}.record (e2) WHERE e2 IS NOT NULL;
CREATE INDEX record_e3 ON {schema}.record (e3) WHERE e3 IS NOT NULL;

-- Less room for updates: those of work items and of fields touch an index anyway, and what the others leave behind on
-- their page is removed as soon as it is needed.
ALTER TABLE {schema}.work SET (fillfactor = 100);
ALTER TABLE {schema}.record SET (fillfactor = 95);
ALTER TABLE {schema}.stream SET (fillfactor = 80);

-- Processes of the version before take other locks. Without this table they can't commit any more, and have to restart.
ALTER TABLE {schema}.batch RENAME TO committed;
