"""Faults of a full storage: the memory engine with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from keelbolt.conformance.kernel import KernelPlace, KernelSubject
from keelbolt.errors import StorageFull
from keelbolt.kernel.commits import Operation, Receipt, relieves
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.logs import Append
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.kernel.records import Collection, Put

LIMIT_BYTES = 2_000_000


class Small(MemoryKernel):
    """The memory engine with a limit, without a fault."""

    used = 0
    full = False

    def passes(self, operations: tuple[Operation, ...]) -> bool:
        return relieves(operations)

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        self.used += sum(_bytes(operation) for operation in operations)
        self.full = self.full or self.used > LIMIT_BYTES
        if self.full and not self.passes(operations):
            return self.refuse(partition, operations)
        return super()._submit(partition, operations)

    def refuse(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        future.set_exception(StorageFull())
        return future


def _bytes(operation: Operation) -> int:
    if isinstance(operation, Append):
        return sum(len(draft.data) for draft in operation.entries)
    return len(operation.body) if isinstance(operation, Put) else 0


class WritesByHalves(Small):
    def refuse(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        MemoryKernel._submit(self, partition, operations[:1])
        return super().refuse(partition, operations)


class RefusesEverything(Small):
    def passes(self, operations: tuple[Operation, ...]) -> bool:
        return False


class AddsWhatComesWithADelete(Small):
    def passes(self, operations: tuple[Operation, ...]) -> bool:
        return any(relieves((operation,)) for operation in operations)


class RefusesTheWholeBatch(Small):
    """A refusal reaches all commits that are called together."""

    refusing = False

    def passes(self, operations: tuple[Operation, ...]) -> bool:
        return not self.refusing and relieves(operations)

    def refuse(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        self.refusing = True
        asyncio.get_running_loop().call_soon(self._go_on)
        return super().refuse(partition, operations)

    def _go_on(self) -> None:
        self.refusing = False


def small(kind: type[Small]) -> KernelSubject:
    def make(_place: KernelPlace, declare: Sequence[Collection]) -> Kernel:
        return kind(declare=declare)

    return KernelSubject(kind.__name__, make, small=make)


FAULTS = (
    (small(WritesByHalves), "a_full_storage_refuses_commits_that_only_add"),
    (small(RefusesEverything), "a_full_storage_accepts_commits_that_free_space"),
    (small(AddsWhatComesWithADelete), "a_full_storage_refuses_commits_that_free_and_add"),
    (small(RefusesTheWholeBatch), "freeing_commits_pass_beside_refused_ones"),
)
