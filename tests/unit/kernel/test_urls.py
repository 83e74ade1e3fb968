"""Every accepted form of a storage URL opens a storage; the errors for other forms are helpful."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import CannotOpen, InvalidValue, KeelboltError, UnknownScheme
from keelbolt.kernel import Collection, Insert
from keelbolt.kernel.contract import Durability
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.kernel.urls import migrate, open_storage, pending_migrations


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
    with pytest.raises(InvalidValue, match="a list of Collections, not"):
        open_storage("memory:", declare=7)  # type: ignore[arg-type]


def test_nothing_is_created_before_it_is_opened(tmp_path: Path) -> None:
    open_storage(f"sqlite:///{tmp_path}/file.db")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------ third-party engines

ENGINE = """
from keelbolt.kernel.memory import MemoryKernel


class OwnKernel(MemoryKernel):
    engine = "own"


def make(url, *, durability, declare):
    kernel = OwnKernel(durability=durability, declare=declare)
    kernel.url = url
    return kernel
"""


def install(folder: Path, name: str, value: str) -> None:
    """Write the metadata of an installed package that registers an engine for the scheme own:."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[keelbolt.engines]\nown = {value}\nsqlite = {value}\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_engine.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("own_engine", None)


async def test_a_package_registers_an_engine(packages: Path) -> None:
    install(packages, "own-engine", "own_engine:make")
    url = "own://host/place?durability=relaxed&other=1"
    async with open_storage(url, declare=[Collection("note")]) as kernel:
        assert (kernel.engine, kernel.durability, kernel.url) == ("own", "relaxed", url)  # type: ignore[attr-defined]
        await kernel.commit("p", Insert("note", "a", b""))
    assert migrate(url) == pending_migrations(url) == []


def test_a_package_replaces_no_engine_of_ours(packages: Path, tmp_path: Path) -> None:
    install(packages, "own-engine", "own_engine:make")
    assert isinstance(open_storage(f"sqlite:///{tmp_path}/a.db"), SQLiteKernel)


@pytest.mark.parametrize("value", ["missing_engine:make", "own_engine:missing"])
def test_an_engine_that_cannot_be_imported_is_an_error(packages: Path, value: str) -> None:
    install(packages, "own-engine", value)
    with pytest.raises(CannotOpen, match=f"'{value}', registered for 'own', can't be imported"):
        open_storage("own://host")


def test_two_engines_for_one_scheme_are_refused(packages: Path) -> None:
    install(packages, "own-engine", "own_engine:make")
    install(packages, "other-engine", "own_engine:OwnKernel")
    with pytest.raises(CannotOpen, match="several packages register an engine for 'own'"):
        open_storage("own://host")
