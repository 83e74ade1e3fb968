-- Whole keys beside shortened names, so that a copy has them; and what commits touch while a copy follows the store.

ALTER TABLE {schema}.dedupe ADD COLUMN key text COLLATE "C";

ALTER TABLE {schema}.holding ADD COLUMN key text COLLATE "C";

CREATE TABLE {schema}.touched (
    number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind      text NOT NULL,
    partition text COLLATE "C" NOT NULL,
    family    text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    reset     boolean NOT NULL
);
