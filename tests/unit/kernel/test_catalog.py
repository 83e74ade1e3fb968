"""The numbers of indexes and counters equal those in the database, for declarations of any process."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from keelbolt.errors import SchemaMismatch
from keelbolt.kernel.declarations import SLOTS, Catalog, CheckedCollection
from keelbolt.kernel.records import MAX_INDEXES, Collection, Index
from keelbolt.kernel.sqlite.connection import connect
from keelbolt.kernel.sqlite.rows import SqliteRows
from keelbolt.kernel.sqlite.schema import declare, load_catalog, migrate

FIELDS: dict[str, type[str | int | float | bool]] = {"state": str, "rank": int}
BY_KEY, BY_RANK = Index("by_key"), Index("by_rank", ("state",), "rank")


def shape(*indexes: Index, counters: tuple[tuple[str, ...], ...] = (), name: str = "note") -> CheckedCollection:
    return CheckedCollection(Collection(name, FIELDS, indexes, counters))


def test_an_index_is_found_by_its_definition() -> None:
    """The name of an index and its position in a declaration may differ between processes."""
    stored = shape(BY_KEY, BY_RANK, counters=((), ("state",)))
    catalog = Catalog(1, {"note": (stored, 3 * SLOTS)})
    assert catalog.index(stored, 1) == 3 * SLOTS + 1
    assert catalog.index(shape(Index("renamed", ("state",), "rank")), 0) == 3 * SLOTS + 1
    assert catalog.counter(stored, 1) == 3 * SLOTS + 1
    assert catalog.counter(shape(counters=(("state",),)), 0) == 3 * SLOTS + 1


def test_an_index_or_counter_missing_in_the_catalog_is_refused() -> None:
    catalog = Catalog(1, {"note": (shape(BY_KEY), 8)})
    with pytest.raises(SchemaMismatch, match="without the index 'by_rank'; restart this one with the same program"):
        catalog.index(shape(BY_RANK), 0)
    with pytest.raises(SchemaMismatch, match=r"without the counter .* restart this one with the same program"):
        catalog.counter(shape(counters=((),)), 0)


def test_there_are_slots_for_all_indexes() -> None:
    assert MAX_INDEXES <= SLOTS


def test_a_declaration_is_stored_once_and_seen_by_all(tmp_path: Path) -> None:
    path = str(tmp_path / "file.db")
    migrate(path)
    with closing(connect(path)) as one, closing(connect(path)) as other:
        first = declare(one, load_catalog(one, Catalog()), shape(BY_KEY))
        assert declare(one, first, shape(BY_KEY)) is first
        seen = load_catalog(other, Catalog())
        assert seen.version == first.version
        assert seen.shapes["note"][0].indexes == (BY_KEY,)
        assert load_catalog(other, seen) is seen
        second = declare(other, seen, shape(BY_KEY, BY_RANK))
        third = declare(other, second, shape(name="more"))
        assert first.version < second.version < third.version
        assert {base for _, base in third.shapes.values()} == {first.shapes["note"][1], third.shapes["more"][1]}
        assert load_catalog(one, first).shapes["note"][0].indexes == (BY_KEY, BY_RANK)


def test_a_declaration_that_was_rolled_back_is_forgotten(tmp_path: Path) -> None:
    """Another process may assign its version to another declaration."""
    path = str(tmp_path / "file.db")
    migrate(path)
    with closing(connect(path)) as one, closing(connect(path)) as other:
        book = SqliteRows(one)
        one.execute("BEGIN IMMEDIATE")
        book.begin()
        book.catalog = declare(one, book.catalog, shape(BY_RANK))
        one.execute("ROLLBACK")
        book.forget()
        theirs = declare(other, load_catalog(other, Catalog()), shape(BY_KEY))
        one.execute("BEGIN IMMEDIATE")
        book.begin()
        assert book.catalog.version == theirs.version
        assert book.catalog.shapes["note"][0].indexes == (BY_KEY,)
        one.execute("COMMIT")
