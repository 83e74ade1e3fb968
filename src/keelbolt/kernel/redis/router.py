"""Finds the server of a key: the only one, or in a cluster the one that has the key's slot."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

from redis.crc import key_slot

from keelbolt.errors import KeelboltError, StorageUnavailable
from keelbolt.kernel.redis.connection import RedisAddress, Wire
from keelbolt.kernel.redis.hints import RedisPublisher
from keelbolt.kernel.redis.layout import SLOTS
from keelbolt.kernel.redis.pipeline import DurabilityRequest, PendingCall, RedisPipeline, give_up
from keelbolt.kernel.redis.replies import Disconnected
from keelbolt.observability.metrics import Meter

logger = logging.getLogger("keelbolt.kernel")

READERS = 2

Connect = Callable[[RedisAddress], Awaitable[Wire]]


class Node:
    """One server: a pipeline for writes and several for reads."""

    def __init__(
        self,
        address: RedisAddress,
        connect: Connect,
        *,
        patience_seconds: float,
        assurance: DurabilityRequest | None,
        announcer: RedisPublisher,
        meter: Meter,
        moved: Callable[[PendingCall], None] | None = None,
    ) -> None:
        self.address = address

        async def made() -> Wire:
            return await connect(address)

        self.writer = RedisPipeline(
            made, patience_seconds=patience_seconds, assurance=assurance, moved=moved, announcer=announcer, meter=meter
        )
        self._readers = [
            RedisPipeline(made, patience_seconds=patience_seconds, moved=moved, meter=meter) for _ in range(READERS)
        ]
        self._turn = 0

    @property
    def reader(self) -> RedisPipeline:
        self._turn = (self._turn + 1) % len(self._readers)
        return self._readers[self._turn]

    def pipelines(self) -> Sequence[RedisPipeline]:
        return (self.writer, *self._readers)


class Router(ABC):
    """``single``: everything is on one server, so that one call can also update the registry."""

    single: bool

    @abstractmethod
    def node(self, base: bytes) -> Node: ...

    @abstractmethod
    def nodes(self) -> Sequence[Node]: ...

    @abstractmethod
    def slot(self, base: bytes) -> int: ...

    async def drained(self) -> None:
        for node in self.nodes():
            await node.writer.drained()

    async def close(self) -> None:
        for node in self.nodes():
            for pipeline in node.pipelines():
                await pipeline.close()


class SingleRouter(Router):
    single = True

    def __init__(self, node: Node) -> None:
        self._node = node

    def node(self, base: bytes) -> Node:  # noqa: ARG002
        return self._node

    def nodes(self) -> Sequence[Node]:
        return (self._node,)

    def slot(self, base: bytes) -> int:  # noqa: ARG002
        return 0


class ClusterRouter(Router):
    """Loads the slot map from the cluster, and again when a server reports that a slot has moved."""

    single = False

    def __init__(self, seed: RedisAddress, connect: Connect, make: Callable[..., Node]) -> None:
        self._seed = seed
        self._connect = connect
        self._make = make
        self._nodes: dict[tuple[str, int], Node] = {}
        self._slots: list[tuple[str, int] | None] = [None] * SLOTS
        self._known: dict[bytes, int] = {}
        self._learning: asyncio.Task[None] | None = None
        self._waiting: list[PendingCall] = []

    async def learn(self) -> None:
        """Load the slot map from the first server that responds."""
        error: KeelboltError | None = None
        for address in (*(node.address for node in self._nodes.values()), self._seed):
            wire: Wire | None = None
            try:
                wire = await self._connect(address)
                self._adopt(await wire.one("CLUSTER", "SLOTS"), address)
            except (Disconnected, StorageUnavailable) as failed:
                error = failed
            else:
                return
            finally:
                if wire is not None:
                    await wire.close()
        raise error or Disconnected()

    def _adopt(self, ranges: Sequence[Sequence[object]], asked: RedisAddress) -> None:
        for first, last, primary, *_ in _ranges(ranges):
            place = (primary[0] or asked.host, primary[1])
            if place not in self._nodes:
                self._nodes[place] = self._make(self._seed.at(*place), self._connect, moved=self.moved)
            self._slots[first : last + 1] = [place] * (last - first + 1)

    def node(self, base: bytes) -> Node:
        place = self._slots[self.slot(base)]
        if place is None:
            raise StorageUnavailable("the cluster has no server for some of its slots; see CLUSTER INFO")
        return self._nodes[place]

    def slot(self, base: bytes) -> int:
        slot = self._known.get(base)
        if slot is None:
            if len(self._known) > 100_000:
                self._known.clear()
            slot = self._known[base] = key_slot(base)
        return slot

    def nodes(self) -> Sequence[Node]:
        return tuple(self._nodes.values())

    def moved(self, call: PendingCall) -> None:
        self._waiting.append(call)
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(self._relearn(), name="keelbolt-redis-slots")

    async def _relearn(self) -> None:
        await asyncio.sleep(0.05)  # a slot migration usually ends soon
        with suppress(Disconnected, KeelboltError):
            await self.learn()
        calls, self._waiting = self._waiting, []
        for call in calls:
            try:
                self._send(call)
            except StorageUnavailable as error:
                give_up([call], error)

    def _send(self, call: PendingCall) -> None:
        if call.until <= time.monotonic():
            raise StorageUnavailable("the slots of the cluster are still moving; nothing was written. Try again")
        node = self.node(call.key)
        (node.writer if call.kept else node.reader).take(call)


def _ranges(answer: Sequence[object]) -> Iterator[tuple[int, int, tuple[str, int]]]:
    for row in answer:
        assert isinstance(row, list)
        first, last, primary = row[0], row[1], row[2]
        yield first, last, (primary[0].decode(), primary[1])
