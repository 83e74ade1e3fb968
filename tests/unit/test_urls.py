"""Storage URLs: every accepted form, and a helpful refusal of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import InvalidValue, KeelboltError, UnknownScheme
from keelbolt.storage.contract import Durability
from keelbolt.storage.memory import MemoryKernel
from keelbolt.storage.sqlite import SQLiteKernel
from keelbolt.storage.urls import migrate, open_storage, pending_migrations


@pytest.mark.parametrize(
    ("url", "durability"),
    [
        ("memory", "durable"),
        ("memory:", "durable"),
        ("memory://", "durable"),
        ("MEMORY:", "durable"),
        ("memory:?durability=relaxed", "relaxed"),
        ("memory://?durability=relaxed", "relaxed"),
    ],
)
def test_memory(url: str, durability: Durability) -> None:
    kernel = open_storage(url)
    assert isinstance(kernel, MemoryKernel)
    assert kernel.durability == durability
    assert pending_migrations(url) == migrate(url) == []


@pytest.mark.parametrize(
    ("url", "path", "durability"),
    [
        ("sqlite:///rel.db", "rel.db", "durable"),
        ("sqlite:///dir/rel.db", "dir/rel.db", "durable"),
        ("sqlite:////abs/file.db", "/abs/file.db", "durable"),
        ("sqlite+aiosqlite:///rel.db", "rel.db", "durable"),
        ("sqlite+aiosqlite:////abs/file.db", "/abs/file.db", "durable"),
        ("SQLite:///Rel.DB", "Rel.DB", "durable"),
        ("sqlite:///with%20space%23.db", "with space#.db", "durable"),
        ("sqlite:///rel.db?durability=relaxed", "rel.db", "relaxed"),
        ("sqlite:///rel.db?durability=durable", "rel.db", "durable"),
        ("sqlite+aiosqlite:////abs/file.db?durability=relaxed", "/abs/file.db", "relaxed"),
    ],
)
def test_sqlite(url: str, path: str, durability: Durability) -> None:
    kernel = open_storage(url)
    assert isinstance(kernel, SQLiteKernel)
    assert kernel._path == path
    assert kernel.durability == durability


def test_the_argument_wins_over_the_url() -> None:
    kernel = open_storage("sqlite:///rel.db?durability=relaxed", durability="durable")
    assert isinstance(kernel, SQLiteKernel)
    assert kernel.durability == "durable"


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("mysql://user:secret@host/db", UnknownScheme, "'mysql' names no engine; use"),
        ("file.db", UnknownScheme, "a URL without a scheme names no engine; use memory:"),
        ("", UnknownScheme, "a URL without a scheme"),
        ("/abs/file.db", UnknownScheme, "a URL without a scheme"),
        ("http://[", UnknownScheme, "not a URL"),
        ("sqlite:", UnknownScheme, "sqlite:////absolute/path.db"),
        ("sqlite://", UnknownScheme, "sqlite:////absolute/path.db"),
        ("sqlite:///", UnknownScheme, "sqlite:////absolute/path.db"),
        ("sqlite:rel.db", UnknownScheme, "sqlite:///relative/path.db"),
        ("sqlite://host/file.db", UnknownScheme, "sqlite:///relative/path.db"),
        ("sqlite://rel.db", UnknownScheme, "sqlite:///relative/path.db"),
        ("sqlite:///:memory:", UnknownScheme, "use memory: instead"),
        ("sqlite:///a%00b.db", UnknownScheme, "NUL"),
        ("sqlite:///a#b.db", UnknownScheme, "%23"),
        ("memory:name", UnknownScheme, "no path"),
        ("memory://host", UnknownScheme, "no host"),
        ("sqlite:///rel.db?mode=ro", InvalidValue, "unknown option in the storage URL: mode; known: durability"),
        ("sqlite:///rel.db?cache", InvalidValue, "unknown option in the storage URL: cache"),
        ("memory:?size=1", InvalidValue, "unknown option in the storage URL: size"),
        ("sqlite:///rel.db?durability=fast", InvalidValue, "'durable' or 'relaxed', not 'fast'"),
        ("sqlite:///rel.db?durability=", InvalidValue, "'durable' or 'relaxed', not ''"),
        (None, UnknownScheme, "a string, not NoneType; use"),
        (7, UnknownScheme, "a string, not int"),
        (b"memory:", UnknownScheme, "a string, not bytes"),
        (Path("file.db"), UnknownScheme, "a string, not PosixPath"),
    ],
)
def test_refused(url: Any, kind: type[KeelboltError], words: str) -> None:
    with pytest.raises(kind) as refusal:
        open_storage(url)
    assert words in str(refusal.value)
    assert "secret" not in str(refusal.value)
    if kind is UnknownScheme:
        for answer in (pending_migrations, migrate):
            with pytest.raises(UnknownScheme):
                answer(url)


@pytest.mark.parametrize("bad", ["fast", "", 7, ["durable"]])
def test_an_unknown_durability_is_refused(bad: Any) -> None:
    for url in ("memory:", "sqlite:///rel.db"):
        with pytest.raises(InvalidValue, match="'durable' or 'relaxed'"):
            open_storage(url, durability=bad)


def test_a_family_outside_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidValue, match="a list of Collections and Logs"):
        open_storage("memory:", declare=7)  # type: ignore[arg-type]


def test_nothing_is_touched_before_it_is_opened(tmp_path: Path) -> None:
    open_storage(f"sqlite:///{tmp_path}/file.db")
    assert list(tmp_path.iterdir()) == []
