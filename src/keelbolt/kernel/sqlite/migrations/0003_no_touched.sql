-- Copies no longer follow a store that is in use, so commits no longer note what they change.

DROP TABLE touched;
