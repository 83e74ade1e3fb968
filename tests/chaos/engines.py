"""The stores that campaigns run on, and the faults that each of them knows."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from keelbolt.testing.crash import POINTS
from keelbolt.testing.postgres import OwnPostgres, own_postgres
from keelbolt.testing.proxy import Proxy
from keelbolt.testing.valkey import OwnValkey, own_valkey

TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL
"""

Fault = Callable[[random.Random], Awaitable[None]]


class Engine(ABC):
    """A store. ``url`` is how the processes reach it, ``direct`` how the checker does."""

    url: str
    direct: str

    @abstractmethod
    def faults(self) -> dict[str, tuple[int, Fault]]:
        """The faults of the store itself, with their weights."""

    def crash(self, _dice: random.Random) -> str:
        """A crash point for a process of this store; empty: it has none."""
        return ""


class SQLiteEngine(Engine):
    """A file. Its processes die at named points of their commits."""

    def __init__(self, folder: Path) -> None:
        self.url = self.direct = f"sqlite:///{folder / 'chaos.db'}"

    def faults(self) -> dict[str, tuple[int, Fault]]:
        return {}

    def crash(self, dice: random.Random) -> str:
        return f"{dice.choice(POINTS)}:{dice.randrange(5, 400)}"


class NetworkEngine(Engine):
    """A server behind a proxy that fails on command."""

    def __init__(self, url: str, proxy: Proxy) -> None:
        self.direct = url
        self.url = proxy.url(url)
        self._proxy = proxy

    def faults(self) -> dict[str, tuple[int, Fault]]:
        return {
            "cut": (3, self._cut),
            "refuse": (2, self._refuse),
            "delay": (2, self._delay),
            "silence": (1, self._mute),
        }

    async def _cut(self, _dice: random.Random) -> None:
        self._proxy.cut()

    async def _refuse(self, dice: random.Random) -> None:
        self._proxy.refuse()
        await asyncio.sleep(dice.uniform(0.1, 1.5))
        self._proxy.allow()

    async def _delay(self, dice: random.Random) -> None:
        self._proxy.delay(dice.uniform(0.02, 0.3))
        await asyncio.sleep(1.0)
        self._proxy.allow()

    async def _mute(self, dice: random.Random) -> None:
        """Connections look open, and nothing comes: half-open ones."""
        self._proxy.swallow()
        await asyncio.sleep(dice.uniform(0.2, 2.0))
        self._proxy.cut()
        self._proxy.allow()


class PostgresEngine(NetworkEngine):
    def __init__(self, server: OwnPostgres, url: str, proxy: Proxy) -> None:
        super().__init__(url, proxy)
        self._server = server

    def faults(self) -> dict[str, tuple[int, Fault]]:
        return {
            **super().faults(),
            "restart fast": (1, self._restart),
            "restart immediate": (1, self._crash),
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


class ValkeyEngine(NetworkEngine):
    def __init__(self, server: OwnValkey, url: str, proxy: Proxy) -> None:
        super().__init__(url, proxy)
        self._server = server

    def faults(self) -> dict[str, tuple[int, Fault]]:
        return {**super().faults(), "kill server": (2, self._kill), "pause server": (1, self._pause)}

    async def _kill(self, _dice: random.Random) -> None:
        await asyncio.to_thread(self._server.kill)
        await asyncio.to_thread(self._server.start)

    async def _pause(self, dice: random.Random) -> None:
        self._server.pause()
        await asyncio.sleep(dice.uniform(0.2, 2.0))
        self._server.resume()


@asynccontextmanager
async def engine_of(name: str, folder: Path) -> AsyncIterator[Engine]:
    """A fresh store of this kind, as long as it is needed."""
    if name == "sqlite":
        yield SQLiteEngine(folder)
    elif name == "postgres":
        with own_postgres() as postgres:
            url = await asyncio.to_thread(postgres.create_database)
            parts = urlsplit(url)
            async with Proxy(parts.hostname or "127.0.0.1", parts.port or 5432) as proxy:
                yield PostgresEngine(postgres, url, proxy)
    elif name == "redis":
        with own_valkey() as valkey:
            url = await asyncio.to_thread(valkey.create_database)
            parts = urlsplit(url)
            async with Proxy(parts.hostname or "127.0.0.1", parts.port or 6379) as proxy:
                yield ValkeyEngine(valkey, url, proxy)
    else:
        raise SystemExit(f"{name!r} is no engine; there are sqlite, postgres and redis")
