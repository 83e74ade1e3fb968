"""The SQLite engine obeys every law, in both durability classes."""

from __future__ import annotations

from collections.abc import Sequence

from keelbolt.conformance.kernel import ByUrl, KernelPlace, KernelSubject
from keelbolt.conformance.pytest import kernel_laws
from keelbolt.kernel import Collection, Kernel
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.kernel.sqlite.connection import SqliteConnection, connect

URL = "sqlite:///{directory}/laws.db"
PAGES = 1500  # of 4 KiB


def connect_small(path: str) -> SqliteConnection:
    """With this limit SQLite behaves as on a full disk."""
    connection = connect(path)
    connection.execute(f"PRAGMA max_page_count = {PAGES}")
    return connection


def make_small(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    return SQLiteKernel(str(place.directory / "laws.db"), declare=declare, connect=connect_small)


test_durable = kernel_laws(
    KernelSubject("SQLite, durable", ByUrl(URL), persistent=True, shared=True, prompt=True, small=make_small)
)
test_relaxed = kernel_laws(
    KernelSubject("SQLite, relaxed", ByUrl(URL, "relaxed"), persistent=True, shared=True, prompt=True)
)
