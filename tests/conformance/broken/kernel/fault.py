"""The memory engine as a base of seeded faults."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from keelbolt.conformance.kernel import KernelPlace, KernelSubject
from keelbolt.kernel.blobs import Detach
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.kernel.records import Collection
from tests.conformance.broken.fault import Faults

# An operation without effect; it replaces an operation that a broken engine loses.
NOTHING = Detach("0" * 64, "no holder")


class Broken(MemoryKernel):
    """The memory engine with a hook for faults. Its receipts name the operations of the caller."""

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        changed = tuple(self.change(partition, operation) for operation in operations)
        end = super()._submit(partition, changed)
        return end if end.exception() is not None else done(operations, end.result())

    def change(self, partition: str, operation: Operation) -> Operation:
        """Return the operation that is committed instead."""
        return operation


def subject(kind: type[MemoryKernel]) -> KernelSubject:
    """Return a subject of this engine; engines with `take_over` find the data of the previous kernel."""
    kernels: dict[str, MemoryKernel] = {}

    def make(place: KernelPlace, declare: Sequence[Collection]) -> Kernel:
        kernel = kind(declare=declare)
        if hasattr(kernel, "take_over"):
            if place.name in kernels:
                kernel.take_over(kernels[place.name])
            kernels[place.name] = kernel
        return kernel

    return KernelSubject(kind.__name__, make, persistent=hasattr(kind, "take_over"))


FAULTS = Faults(subject)
caught_by = FAULTS.caught_by


def failed(error: BaseException) -> asyncio.Future[Receipt]:
    future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def done(operations: tuple[Operation, ...], receipt: Receipt) -> asyncio.Future[Receipt]:
    future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    future.set_result(Receipt(operations, receipt.outcomes))
    return future
