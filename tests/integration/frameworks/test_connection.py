"""A storage for callers in any thread and loop: shared by URL, opened late, usable after fork()."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from keelbolt.errors import Forked, InvalidRequest, StorageClosed, StorageMissing, UnknownScheme
from keelbolt.kernel import Collection, Insert, Kernel, open_storage
from keelbolt.kernel.connection import KernelConnection

NOTES = [Collection("note")]


async def write(kernel: Kernel, key: str) -> None:
    await kernel.commit("p", Insert("note", key, b"x"))


async def count(kernel: Kernel) -> int:
    found = await kernel.get_many("p", "note", ["a", "b", "c"])
    return sum(record is not None for record in found)


def threads() -> int:
    return sum(thread.name == "keelbolt-storage" for thread in threading.enumerate())


def test_connections_to_one_url_share_a_kernel(tmp_path: Path) -> None:
    """A URL has one thread until the last connection closes; ``memory:`` is shared only on request."""
    before = threads()
    url = f"sqlite:///{tmp_path}/a.db"
    one, other = KernelConnection(url, NOTES), KernelConnection(url, [Collection("other")])
    one.call_sync(lambda kernel: write(kernel, "a"))
    other.call_sync(lambda kernel: kernel.commit("p", Insert("other", "x", b"")))
    assert threads() == before + 1
    one.close()
    one.close()
    assert other.call_sync(count) == 1
    other.close()
    assert threads() == before
    with pytest.raises(StorageClosed):
        other.call_sync(count)

    memory, apart = KernelConnection("memory:", NOTES), KernelConnection("memory:", NOTES)
    shared = KernelConnection(memory, NOTES)
    memory.call_sync(lambda kernel: write(kernel, "a"))
    memory.close()
    assert (shared.call_sync(count), apart.call_sync(count)) == (1, 0)
    shared.close()
    apart.close()
    assert threads() == before


async def test_calls_come_from_any_loop_and_thread(tmp_path: Path) -> None:
    connection = KernelConnection(f"sqlite:///{tmp_path}/a.db", NOTES)
    await connection.call(lambda kernel: write(kernel, "a"))
    await asyncio.to_thread(lambda: asyncio.run(connection.call(lambda kernel: write(kernel, "b"))))
    await asyncio.to_thread(connection.call_sync, lambda kernel: write(kernel, "c"))
    assert await connection.call(count) == 3
    await connection.aclose()


async def test_an_open_kernel_is_used_in_its_loop() -> None:
    async with open_storage("memory:") as kernel:
        connection = KernelConnection(kernel, NOTES)
        await connection.call(lambda kernel: write(kernel, "a"))
        await asyncio.to_thread(connection.call_sync, lambda kernel: write(kernel, "b"))
        with pytest.raises(InvalidRequest, match="async method"):
            connection.call_sync(count)
        connection.close()  # the owner closes the kernel
        assert await count(kernel) == 2


def test_bad_urls_are_refused_by_the_constructor(tmp_path: Path) -> None:
    with pytest.raises(UnknownScheme):
        KernelConnection("mongo://x", NOTES)
    with pytest.raises(InvalidRequest, match="event loop"):
        KernelConnection(open_storage("memory:"), NOTES)
    connection = KernelConnection(f"sqlite:///{tmp_path}/no/such/folder/a.db", NOTES)
    with pytest.raises(StorageMissing):
        connection.call_sync(count)
    (tmp_path / "no/such/folder").mkdir(parents=True)
    assert connection.call_sync(count) == 0  # reopened at the next call
    connection.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # servers call fork() in a process with threads
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_child_process_opens_its_own(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> None:
    """A connection made before fork() works in the child. A SQLite connection must not be open at the fork."""
    used = engine != "sqlite"
    url = request.getfixturevalue("postgres_url") if used else f"sqlite:///{tmp_path}/a.db"
    connection = KernelConnection(url, NOTES)
    if used:
        connection.call_sync(lambda kernel: write(kernel, "a"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            connection.call_sync(lambda kernel: write(kernel, "b"))
            connection.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    connection.call_sync(lambda kernel: write(kernel, "c"))
    assert connection.call_sync(count) == 2 + used
    connection.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sqlite_that_was_open_at_a_fork_is_refused_in_the_child(tmp_path: Path) -> None:
    connection = KernelConnection(f"sqlite:///{tmp_path}/a.db", NOTES)
    connection.call_sync(lambda kernel: write(kernel, "a"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            connection.call_sync(count)
        except Forked:
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    connection.close()
