"""The servers of one storage: connects to them, prepares them, and sends each call to the server of its keys."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from redis.exceptions import ResponseError

from keelbolt.errors import StorageUnavailable
from keelbolt.kernel.contract import Durability
from keelbolt.kernel.hints import LogTopic, Topic
from keelbolt.kernel.redis.connection import RedisAddress, Reply, Wire
from keelbolt.kernel.redis.hints import RedisPublisher
from keelbolt.kernel.redis.layout import SLOTS, Layout
from keelbolt.kernel.redis.pipeline import DurabilityRequest
from keelbolt.kernel.redis.replies import Disconnected, failure_of, text_of
from keelbolt.kernel.redis.router import ClusterRouter, Node, Router, SingleRouter
from keelbolt.kernel.redis.server import check, function, load_library, look_at
from keelbolt.observability.metrics import Meter

logger = logging.getLogger("keelbolt.kernel")

REPAIR_SECONDS = 1.0
REPAIR_PARTITIONS = 8
PARTITIONS = 1000
ASK_AGAIN_MS = 20
SCAN_COUNT = b"1000"


class RedisServers:
    """Calls by partition.

    On a single server, a call also updates the registry. In a cluster, the registry may be on another server: it is
    updated by a second call, before the caller gets its result.
    """

    def __init__(
        self,
        address: RedisAddress,
        layout: Layout,
        *,
        durability: Durability,
        replicas: int,
        timeout_seconds: float,
        meter: Meter,
    ) -> None:
        self.layout = layout
        self._address = address
        self._durability: Durability = durability
        self._replicas = replicas
        self._timeout = timeout_seconds
        self._meter = meter
        self._runs: dict[str, str] = {}  # address: run id
        self._known: set[str] = set()
        self._repaired_at = 0.0
        self._repair_after = b""
        self._background: set[asyncio.Future[Any]] = set()
        self.weakness = ""

    # -------------------------------------------------------------------------------------------------- connecting

    async def open(self) -> None:
        self.announcer = RedisPublisher(self.layout.channel, self._publish)
        try:
            wire = await self._connect(self._address, first=True)
            await wire.close()
            make = partial(
                Node,
                patience_seconds=self._timeout,
                assurance=self._assurance(),
                announcer=self.announcer,
                meter=self._meter,
            )
            self._router: Router
            if self.server.cluster:
                cluster = ClusterRouter(self._address, self._connect, make)
                await cluster.learn()
                self._router = cluster
            else:
                self._router = SingleRouter(make(self._address, self._connect))
        except Disconnected as error:
            raise StorageUnavailable(f"{error}; check the URL, and that the server runs") from error
        self._inline = self.layout.registry if self._router.single else b""

    async def connect(self) -> Wire:
        """Open a separate connection to one of the servers."""
        return await self._connect(self._address)

    async def _connect(self, address: RedisAddress, *, first: bool = False) -> Wire:
        wire = Wire(address, seconds=self._timeout)
        await wire.open()
        try:
            await self._prepare(wire, first=first)
        except BaseException as error:
            await wire.close()
            if isinstance(error, ResponseError):
                raise failure_of(text_of(error)) from error
            raise
        return wire

    async def _prepare(self, wire: Wire, *, first: bool) -> None:
        server = await look_at(wire)
        if first:
            self.server = server
            self.weakness = check(server, self._durability)
        elif server.role != "master":
            raise Disconnected(f"the server at {wire.address} is a replica now")
        await load_library(wire)
        place = str(wire.address)
        if self._runs.get(place, server.run_id) != server.run_id:
            # A new server process may have lost data that the old one had.
            logger.warning("the server at %s was restarted or replaced", place)
            self._known.clear()
        self._runs[place] = server.run_id

    def _assurance(self) -> DurabilityRequest | None:
        """Return the durability request to send after each batch of writes."""
        replicas = self._replicas
        # A replica confirms on request, and otherwise each second; a new request is faster than waiting.
        patience = b"%d" % (ASK_AGAIN_MS if replicas else int(self._timeout * 500))
        if self._durability == "durable" and self.server.can_wait:
            return DurabilityRequest.counting(b"WAITAOF", b"1", b"%d" % replicas, patience, enough=(1, replicas))
        if replicas:
            return DurabilityRequest.counting(b"WAIT", b"%d" % replicas, patience, enough=(replicas,))
        if self._durability == "durable":  # without WAITAOF: check that it still syncs always
            return DurabilityRequest((b"CONFIG", b"GET", b"appendonly", b"appendfsync"), _syncs_always, again=False)
        return None

    @property
    def place(self) -> str:
        """The server's address without the login."""
        return f"redis://{self._address}/{self._address.database}"

    @property
    def name(self) -> str:
        return self.server.name if self._router.single else f"{self.server.name}, {len(self._router.nodes())} nodes"

    async def drained(self) -> None:
        """Wait until all earlier calls have their results."""
        await self._router.drained()
        while self._background:
            await asyncio.wait(self._background)
            await self._router.drained()

    async def close(self) -> None:
        self.announcer.close()
        await self._router.close()

    # ----------------------------------------------------------------------------------------------------- writing

    def is_known(self, partition: str) -> bool:
        """Return whether the registry already contains this partition."""
        return partition in self._known

    def remember(self, partition: str) -> None:
        if len(self._known) > 100_000:
            self._known.clear()
        self._known.add(partition)

    def forget_partitions(self) -> None:
        """Clear the cache of registered partitions, after the registry was emptied."""
        self._known.clear()

    def write(self, name: str, partition: str, *words: bytes) -> asyncio.Future[Any]:
        """Call a writing function and return its raw reply."""
        return self.write_and(name, partition, words, _same)

    def write_and(
        self,
        name: str,
        partition: str,
        words: Sequence[bytes],
        read: Callable[[Any], Any],
        topics: Sequence[Topic] = (),
    ) -> asyncio.Future[Any]:
        """Call a writing function and decode its reply with ``read``. Notifies other processes of the topics."""
        base = self.layout.base(partition)
        writer = self._router.node(base).writer
        full = (self._inline, partition.encode(), self._journal_word(base), *words)
        if self._router.single:
            return writer.write(function(name), base, full, lambda reply: read(reply[0]), topics)
        inner = writer.write(function(name), base, full, lambda reply: (read(reply[0]), reply[1]), topics)
        return self._in_background(self._announced(inner, partition))

    async def _announced(self, inner: asyncio.Future[Any], partition: str) -> Any:
        result, notes = await inner
        if notes:
            await self._tell_registry(partition, notes)
            for queue in {note[1].decode() for note in notes if note[0] in (b"empty", b"unholds")}:
                self._in_background(self._survey(partition, queue))
        return result

    async def _tell_registry(self, partition: str, notes: Sequence[Sequence[bytes]]) -> None:
        words: list[bytes] = [b"%d" % len(notes)]
        for note in notes:
            words += (b"%d" % len(note), *note)
        await self._registry("announce", partition.encode(), words)

    async def _survey(self, partition: str, queue: str) -> None:
        """Check again a queue that was reported empty, and report items that were added meanwhile to the registry."""
        base = self.layout.base(partition)
        head = (b"", partition.encode(), self._journal_word(base), queue.encode())
        reply = await self._router.node(base).writer.write(function("survey"), base, head, _same)
        if reply[1]:
            await self._tell_registry(partition, reply[1])

    async def repair(self, queue: str) -> bool:
        """Survey a few partitions when a claim finds no work: in a cluster the registry may be out of date."""
        now = time.monotonic()
        if self._router.single or now - self._repaired_at < REPAIR_SECONDS:
            return False
        self._repaired_at = now
        names = await self.partitions(self._repair_after, REPAIR_PARTITIONS)
        self._repair_after = names[-1] if len(names) == REPAIR_PARTITIONS else b""
        for name in names:
            await self._survey(name.decode(), queue)
        return bool(names)

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def write_registry(self, name: str, *words: bytes) -> asyncio.Future[Any]:
        return self._registry(name, b"", words)

    def _registry(self, name: str, partition: bytes, words: Sequence[bytes]) -> asyncio.Future[Any]:
        base = self.layout.registry
        full = (b"", partition, self._journal_word(base), *words)
        return self._router.node(base).writer.write(function(name), base, full, lambda reply: reply[0])

    # ---------------------------------------------------------------------------------------------------- journals

    @property
    def single(self) -> bool:
        return self._router.single

    def journal(self, base: bytes) -> bytes:
        """Key prefix of the mark and the last fence that a write to this base uses."""
        return self.layout.registry if self._router.single else self.layout.journal(self._router.slot(base))

    def _journal_word(self, base: bytes) -> bytes:
        return b"" if self._router.single else self.journal(base)

    def journals(self) -> Sequence[bytes]:
        """Return the key prefixes of all journals, the registry's last."""
        own = self.journal(self.layout.registry)
        if self._router.single:
            return (own,)
        return (*(place for slot in range(SLOTS) if (place := self.layout.journal(slot)) != own), own)

    def note(self, name: str, journal: bytes, *words: bytes) -> asyncio.Future[Any]:
        """Call a journal function that is safe to repeat. Returns when the write is durable."""
        call = [b"FCALL", function(name), b"1", journal, *words]
        return self._router.node(journal).writer.call(call, _same, kept=True)

    def look(self, command: bytes, key: bytes, *words: bytes) -> asyncio.Future[Any]:
        """Run a plain read command on one key, on its server."""
        return self._router.node(key).reader.call([command, key, *words], _same)

    def keep(self, command: bytes, key: bytes, *words: bytes) -> asyncio.Future[Any]:
        """Run a plain write command that is safe to repeat on one key, on its server."""
        return self._router.node(key).writer.call([command, key, *words], _same, kept=True)

    # ----------------------------------------------------------------------------------------------------- reading

    def read(self, name: str, partition: str, *words: bytes) -> asyncio.Future[Any]:
        """Call a reading function."""
        base = self.layout.base(partition)
        return self._router.node(base).reader.call([b"FCALL", function(name), b"1", base, *words], _same)

    def command(
        self, partition: str, command: bytes, name: bytes, *words: bytes, writes: bool = False
    ) -> asyncio.Future[Any]:
        """Run a plain command on a key of a partition. A write must be repeatable; a later write makes it durable."""
        base = self.layout.base(partition)
        node = self._router.node(base)
        return (node.writer if writes else node.reader).call([command, base + name, *words], _same)

    def read_registry(self, command: bytes, key: bytes, *words: bytes) -> asyncio.Future[Any]:
        base = self.layout.registry
        return self._router.node(base).reader.call([command, base + key, *words], _same)

    async def partitions(self, after: bytes, limit: int) -> list[bytes]:
        low = b"(" + after if after else b"-"
        words = (low, b"+", b"BYLEX", b"LIMIT", b"0", b"%d" % limit)
        found: list[bytes] = await self.read_registry(b"ZRANGE", b"partitions", *words)
        return found

    async def every_partition(self) -> AsyncIterator[str]:
        after = b""
        while names := await self.partitions(after, PARTITIONS):
            for name in names:
                yield name.decode()
            after = names[-1]

    async def keys(self, pattern: bytes) -> AsyncIterator[bytes]:
        """Return every key that exists throughout the scan, on every server; some may come twice.

        A SCAN cursor is valid for one server process only. After a restart or a failover the scan starts again.
        """
        for node in self._router.nodes():
            server, scanned = b"", None
            while server != scanned:
                server = await node.reader.call([b"INFO", b"server"], _run_id)
                cursor = None
                while cursor != b"0":
                    words = [b"SCAN", cursor or b"0", b"MATCH", pattern, b"COUNT", SCAN_COUNT]
                    cursor, keys = await node.reader.call(words, _same)
                    for key in keys:
                        yield key
                scanned = await node.reader.call([b"INFO", b"server"], _run_id)

    async def memory_bytes(self) -> int:
        infos = [await node.reader.call([b"INFO", b"memory"], _same) for node in self._router.nodes()]
        return sum(int(found[1]) for info in infos if (found := re.search(rb"used_memory:(\d+)", info)))

    async def time(self, partition: str) -> int:
        """Microseconds since 1970, by the clock of the server that has this partition."""
        return await self.time_at(self.layout.base(partition))

    async def time_at(self, base: bytes) -> int:
        node = self._router.node(base)
        seconds, micros = await node.reader.call([b"TIME"], _same)
        return int(seconds) * 1_000_000 + int(micros)

    # ----------------------------------------------------------------------------------------------- notifications

    def _publish(self, words: list[bytes]) -> None:
        said = self._router.node(self.layout.registry).reader.call(words, _same)
        said.add_done_callback(_ignored)

    async def heads(self, partition: str, logs: Sequence[LogTopic]) -> list[int]:
        """Return the head of each of these streams of the partition; 0 for a missing stream."""
        found: list[int] = await self.read("heads", partition, *(f"{log.log}/{log.stream}".encode() for log in logs))
        return found

    async def changes(self) -> tuple[bytes, ...]:
        """Return a value that changes when anything was written on any server."""
        return tuple([await node.reader.call([b"INFO", b"persistence"], _dirty) for node in self._router.nodes()])


def _syncs_always(reply: Reply) -> bool:
    return isinstance(reply, list) and {b"yes", b"always"} <= set(reply)


def _same(reply: Reply) -> Any:
    return reply


def _run_id(info: bytes) -> bytes:
    """Return the id of the server process."""
    found = re.search(rb"run_id:(\w+)", info)
    return found[1] if found is not None else b""


def _dirty(info: bytes) -> bytes:
    """Return a value that changes with each write. A save resets the change count, so its number and time are added."""
    return b" ".join(re.findall(rb"rdb_(?:changes_since_last_save|saves|last_save_time):(\d+)", info)) or info


def _ignored(future: asyncio.Future[Any]) -> None:
    """Ignore a lost notification: the poll covers it."""
    if not future.cancelled() and future.exception() is not None:
        logger.debug("a notification was lost")
