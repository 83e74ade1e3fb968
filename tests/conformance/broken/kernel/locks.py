"""SQLite engines whose locks report the wrong state of a process."""

from __future__ import annotations

import os
from collections.abc import Sequence

from keelbolt.conformance.kernel import KernelPlace, KernelSubject
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.records import Collection
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.kernel.sqlite.worker_locks import WorkerLocks


class NoLocks(WorkerLocks):
    """Holds no lock: the death of a process is not detected."""

    def hold(self, worker: str) -> None:
        pass


class FreeLocks(WorkerLocks):
    """Leaves its lock files free: every process looks dead."""

    def hold(self, worker: str) -> None:
        self._folder.mkdir(exist_ok=True)
        if worker not in self._held:
            path = self._folder / new_id()
            path.write_text(worker)
            self._held[worker] = os.open(path, os.O_RDONLY), path


def _kernel(place: KernelPlace, declare: Sequence[Collection], locks: type[WorkerLocks]) -> Kernel:
    path = f"{place.directory}/laws.db"
    kernel = SQLiteKernel(path, declare=declare)
    kernel._locks = locks(f"{path}-workers")
    return kernel


def make_without(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    return _kernel(place, declare, NoLocks)


def make_free(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    return _kernel(place, declare, FreeLocks)


FAULTS = (
    (
        KernelSubject("DeathIsNotNoticed", make_without, persistent=True, shared=True, prompt=True),
        "the_work_of_a_killed_process_is_taken_over_at_once",
    ),
    (
        KernelSubject("TheLivingLookDead", make_free, persistent=True, shared=True, prompt=True),
        "the_work_of_a_live_process_is_not_taken_over",
    ),
)
