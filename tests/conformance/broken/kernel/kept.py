"""Faults of persistence: a memory engine that passes its data to the next kernel of the place, and loses a part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.logs import Append
from keelbolt.kernel.memory import MemoryKernel
from tests.conformance.broken.kernel.fault import Broken, caught_by

STATE = ("_content", "_ledger", "_indexes", "_queues", "_entries", "_uploads", "_blobs", "_holders", "_names")


class Kept(Broken):
    """Without a fault: takes over all data of the previous kernel at this place."""

    def take_over(self, other: MemoryKernel) -> None:
        for name in (*STATE, "_expiring"):
            setattr(self, name, getattr(other, name))
        self._content.declared, self._content.now, self._content.save = self.declared, self.clock.steady, self._save


@caught_by("a_reopened_storage_has_everything")
class EverythingIsGoneAfterReopening(Kept):
    def take_over(self, other: MemoryKernel) -> None:
        pass


@caught_by("seqs_and_fences_continue_after_reopening")
class FencesStartAnewAfterReopening(Kept):
    def take_over(self, other: MemoryKernel) -> None:
        super().take_over(other)
        self._ledger.last_fence = 0


@caught_by("unawaited_writes_survive_close")
class CloseLosesWhatIsOnItsWay(Kept):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        if not isinstance(operations[0], Append):
            return super().commit(partition, *operations)
        asyncio.get_running_loop().call_later(60.0, super().commit, partition, *operations)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


@caught_by("data_follow_a_changed_declaration")
class NewIndexesAreEmpty(Kept):
    async def _declare(self, shape: CheckedCollection) -> None:
        pass
