"""What a seeded fault is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from keelbolt.conformance.storage import DataPlace, KernelSubject
from keelbolt.kernel.blobs import Detach
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.kernel.records import Collection

# Does nothing, in the place of an operation that a broken engine forgets.
NOTHING = Detach("0" * 64, "nobody")


class Broken(MemoryKernel):
    """The memory engine, with a place to put a fault in. Its receipts name the operations that were asked for."""

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        changed = tuple(self.change(partition, operation) for operation in operations)
        end = super()._submit(partition, changed)
        return end if end.exception() is not None else done(operations, end.result())

    def change(self, partition: str, operation: Operation) -> Operation:
        """What becomes of an operation."""
        return operation


K = TypeVar("K", bound=type[MemoryKernel])


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    caught_by: str
    kernel: type[MemoryKernel]

    @property
    def subject(self) -> KernelSubject:
        from tests.conformance.broken.kept import Kept, kept  # they are faults themselves

        if issubclass(self.kernel, Kept):
            return kept(self.kernel)

        def make(_place: DataPlace, declare: Sequence[Collection]) -> Kernel:
            return self.kernel(declare=declare)

        return KernelSubject(self.name, make)


FAULTS: list[Fault] = []


def caught_by(law: str) -> Callable[[K], K]:
    """Seed this fault; its class name says what is broken."""

    def seed(kernel: K) -> K:
        FAULTS.append(Fault(kernel.__name__, law, kernel))
        return kernel

    return seed


def failed(error: BaseException) -> asyncio.Future[Receipt]:
    future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def done(operations: tuple[Operation, ...], receipt: Receipt) -> asyncio.Future[Receipt]:
    future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    future.set_result(Receipt(operations, receipt.outcomes))
    return future
