"""The stores of campaigns, and the faults of each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from keelbolt.testing.crash import POINTS
from keelbolt.testing.launch import user_for_servers
from keelbolt.testing.postgres import OwnPostgres, own_postgres
from keelbolt.testing.proxy import Proxy
from keelbolt.testing.valkey import OwnValkey, own_valkey
from tests.faults.small_disk import CannotMount, SmallDisk, mounted

DISK_MEGABYTES = 2000  # in memory; only written blocks use it
SHARED_MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4_000_000_000
TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL
"""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL"
FREE_BYTES = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"
SIZE = "SELECT sum(pg_database_size(datname))::bigint FROM pg_database"
TABLES = """
SELECT CASE nspname WHEN 'pg_catalog' THEN 'catalogs' ELSE relname END AS part,
       sum(pg_total_relation_size(pg_class.oid))::bigint AS size
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE relkind = 'r' GROUP BY 1
"""

Fault = Callable[[random.Random], Awaitable[None]]


class Engine(ABC):
    """A store. Processes use ``url``, the checker uses ``direct``."""

    url: str
    direct: str
    disk: SmallDisk | None = None  # the disk of the data, if it can be filled

    def faults(self) -> dict[str, tuple[int, Fault]]:
        """The faults of the store itself, with their weights."""
        return {} if self.disk is None else {"full disk": (2, self._fill)}

    def crash(self, _dice: random.Random) -> str:
        """Return the fault of a new process of this store: a crash point, or an error of fsync; empty: none."""
        return ""

    @abstractmethod
    def measure(self) -> dict[str, float]:
        """Return its size in bytes, in total and by part, and its number of connections."""

    async def _fill(self, dice: random.Random) -> None:
        assert self.disk is not None
        with self.disk.full():
            await asyncio.sleep(dice.uniform(0.2, 1.5))


class SQLiteEngine(Engine):
    """A file. Its processes die at named points of their commits, or get an error from fsync."""

    def __init__(self, folder: Path, disk: SmallDisk | None) -> None:
        self._path = (disk.place if disk is not None else folder) / "chaos.db"
        self.disk = disk
        self.url = self.direct = f"sqlite:///{self._path}"

    def crash(self, dice: random.Random) -> str:
        if dice.random() < 0.2:
            return f"fsync:{dice.randrange(5, 200)}"
        return f"{dice.choice(POINTS)}:{dice.randrange(5, 400)}"

    def measure(self) -> dict[str, float]:
        sizes = {part: float(Path(f"{self._path}{part}").stat().st_size) for part in ("", "-wal")}
        parts = {f"store_bytes: {part.strip('-') or 'database'}": size for part, size in sizes.items()}
        return {"store_bytes": sum(sizes.values()), "connections": 0.0, **parts, **self._tables()}

    def _tables(self) -> dict[str, float]:
        """Return the bytes of each table and index, and of free pages."""
        with contextlib.closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as connection:
            (free,) = connection.execute(FREE_BYTES).fetchone()
            tables = connection.execute("SELECT name, pgsize FROM dbstat('main', 1)").fetchall()
        return {f"store_bytes: {name}": float(size) for name, size in (("free", free), *tables)}


class NetworkEngine(Engine):
    """A server behind a proxy that fails on demand."""

    def __init__(self, url: str, proxy: Proxy) -> None:
        self.direct = url
        self.url = proxy.url(url)
        self._proxy = proxy

    def faults(self) -> dict[str, tuple[int, Fault]]:
        return {
            **super().faults(),
            "cut": (3, self._cut),
            "refuse": (2, self._refuse),
            "delay": (2, self._delay),
            "silence": (1, self._mute),
        }

    async def _cut(self, _dice: random.Random) -> None:
        self._proxy.cut()

    async def _refuse(self, dice: random.Random) -> None:
        self._proxy.refuse()
        await asyncio.sleep(dice.uniform(0.1, 1.0))
        self._proxy.allow()

    async def _delay(self, dice: random.Random) -> None:
        self._proxy.delay(dice.uniform(0.02, 0.3))
        await asyncio.sleep(0.5)
        self._proxy.allow()

    async def _mute(self, dice: random.Random) -> None:
        """Make connections half-open: they look open but transfer nothing."""
        self._proxy.swallow()
        await asyncio.sleep(dice.uniform(0.2, 1.5))
        self._proxy.cut()
        self._proxy.allow()


class PostgresEngine(NetworkEngine):
    """PostgreSQL. Its tables are on a disk that can be filled, its write-ahead log is not."""

    def __init__(self, server: OwnPostgres, url: str, proxy: Proxy, disk: SmallDisk | None) -> None:
        super().__init__(url, proxy)
        self._server = server
        self.disk = disk

    def faults(self) -> dict[str, tuple[int, Fault]]:
        return {
            **super().faults(),
            "restart fast": (2, self._restart),
            "restart immediate": (2, self._crash),
            "terminate backends": (3, self._terminate),
            "pause server": (1, self._pause),
        }

    async def _restart(self, _dice: random.Random) -> None:
        await asyncio.to_thread(self._server.restart, "fast")

    async def _crash(self, _dice: random.Random) -> None:
        await asyncio.to_thread(self._server.restart, "immediate")

    async def _terminate(self, _dice: random.Random) -> None:
        await asyncio.to_thread(self._server.execute, TERMINATE)

    async def _pause(self, dice: random.Random) -> None:
        self._server.pause()
        await asyncio.sleep(dice.uniform(0.2, 2.0))
        self._server.resume()

    def measure(self) -> dict[str, float]:
        rows = self._server.execute(f"SELECT ({SIZE}) AS size, ({CONNECTIONS}) AS connections")
        tables = self._server.execute(TABLES, url=self.direct)
        parts = {f"store_bytes: {row['part']}": float(row["size"]) for row in tables}
        return {"store_bytes": float(rows[0]["size"]), "connections": float(rows[0]["connections"]), **parts}


class ValkeyEngine(NetworkEngine):
    """A Valkey with a replica. Each write is on both, so that either can die or take over."""

    def __init__(self, primary: OwnValkey, replica: OwnValkey, url: str, proxy: Proxy) -> None:
        super().__init__(f"{url}?replicas=1", proxy)
        self._primary, self._replica = primary, replica
        self._follow()

    def faults(self) -> dict[str, tuple[int, Fault]]:
        return {
            **super().faults(),
            "kill server": (2, self._kill),
            "failover": (2, self._fail_over),
            "full memory": (2, self._fill_memory),
            "pause server": (1, self._pause),
        }

    def _follow(self) -> None:
        """Make the replica follow the primary, and wait until it has all data."""
        self._replica.execute("REPLICAOF", "127.0.0.1", self._primary.port)
        while b"master_link_status:up" not in bytes(self._replica.execute("INFO", "replication")):
            time.sleep(0.02)

    async def _kill(self, _dice: random.Random) -> None:
        await asyncio.to_thread(self._primary.kill)
        await asyncio.to_thread(self._primary.start)

    async def _fail_over(self, _dice: random.Random) -> None:
        """Kill the primary; its replica takes over, and the old primary returns as the replica."""

        def switch() -> None:
            self._primary.kill()
            self._primary, self._replica = self._replica, self._primary
            self._primary.execute("REPLICAOF", "NO", "ONE")
            self._replica.start()
            self._follow()

        await asyncio.to_thread(switch)
        parts = urlsplit(self._primary.url)
        self._proxy._target = ("127.0.0.1", parts.port or 6379)
        self._proxy.cut()
        self.direct = self.direct.replace(f":{self._replica.port}/", f":{self._primary.port}/")

    async def _fill_memory(self, dice: random.Random) -> None:
        await asyncio.to_thread(self._primary.execute, "CONFIG", "SET", "maxmemory", "1mb")
        try:
            await asyncio.sleep(dice.uniform(0.2, 1.5))
        finally:
            await asyncio.to_thread(self._primary.execute, "CONFIG", "SET", "maxmemory", "0")

    async def _pause(self, dice: random.Random) -> None:
        self._primary.pause()
        await asyncio.sleep(dice.uniform(0.2, 2.0))
        self._primary.resume()

    def measure(self) -> dict[str, float]:
        lines = bytes(self._primary.execute("INFO")).decode().splitlines()
        found = dict(line.split(":", 1) for line in lines if ":" in line)
        parts = {f"store_bytes: {part}": float(found[f"used_memory_{part}"]) for part in ("dataset", "overhead")}
        return {"store_bytes": float(found["used_memory"]), "connections": float(found["connected_clients"]), **parts}


@asynccontextmanager
async def engine_of(name: str, folder: Path) -> AsyncIterator[Engine]:
    """Yield a new store of this kind."""
    async with contextlib.AsyncExitStack() as stack:
        if name == "sqlite":
            yield SQLiteEngine(folder, _disk(stack, folder / "disk"))
        elif name == "postgres":
            with _servers_in_memory():
                postgres = stack.enter_context(own_postgres())
            disk = _disk(stack, postgres.home / "disk")
            url = await asyncio.to_thread(postgres.create_database)
            if disk is not None:
                await asyncio.to_thread(_put_on_disk, postgres, url, disk)
            yield PostgresEngine(postgres, url, await stack.enter_async_context(_proxy(url)), disk)
        elif name == "redis":
            with _servers_in_memory():
                primary, replica = stack.enter_context(own_valkey()), stack.enter_context(own_valkey())
            url = await asyncio.to_thread(primary.create_database)
            yield ValkeyEngine(primary, replica, url, await stack.enter_async_context(_proxy(url)))
        else:
            raise SystemExit(f"{name!r} is no engine; there are sqlite, postgres and redis")


@contextlib.contextmanager
def _servers_in_memory() -> Iterator[None]:
    """Servers that are started keep their files in memory, if there is room: campaigns kill processes, not machines."""
    before = tempfile.tempdir
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > MEMORY_BYTES:
        tempfile.tempdir = str(SHARED_MEMORY)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _disk(stack: contextlib.AsyncExitStack, place: Path) -> SmallDisk | None:
    try:
        return stack.enter_context(mounted(place, DISK_MEGABYTES))
    except CannotMount:  # without the fault of a full disk
        return None


def _proxy(url: str) -> Proxy:
    parts = urlsplit(url)
    assert parts.port is not None
    return Proxy(parts.hostname or "127.0.0.1", parts.port)


def _put_on_disk(postgres: OwnPostgres, url: str, disk: SmallDisk) -> None:
    """Move the tables of a database to this disk."""
    place = disk.place / "tables"
    place.mkdir(mode=0o700)
    user = user_for_servers()
    if user is not None:
        os.chown(place, user.pw_uid, user.pw_gid)
    postgres.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
    postgres.execute(f'ALTER DATABASE "{urlsplit(url).path.lstrip("/")}" SET TABLESPACE small')
