-- What commits touch while the store is followed by a copy; reset: a stream was dropped on the way.

CREATE TABLE touched (
    number    INTEGER PRIMARY KEY,
    kind      TEXT NOT NULL,
    partition TEXT NOT NULL,
    family    TEXT NOT NULL,
    name      TEXT NOT NULL,
    reset     INTEGER NOT NULL
);
