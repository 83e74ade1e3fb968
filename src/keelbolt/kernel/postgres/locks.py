"""The advisory locks of a batch: one per name, out of 512 per partition, always in the same order.

A name has a lock whether or not it exists yet, so that two processes can't insert the same one. All processes take
locks in ascending order, so batches never deadlock. The record, the log and the work item of one task have the same
name and share one lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

from keelbolt.kernel.commits import Operation, address
from keelbolt.kernel.work import Enqueue

STRIPES = 0x1FF


@lru_cache(maxsize=4096)
def partition_lock(schema: str, partition: str) -> int:
    """Return a number for a partition; its lowest nine bits are zero."""
    raw = int.from_bytes(blake2b(f"{schema}\0{partition}".encode(), digest_size=8).digest(), signed=True)
    return raw & ~STRIPES


def catalog_lock(schema: str) -> int:
    """Return the catalog's lock: shared by all batches, exclusive for a declaration."""
    return partition_lock(schema, "\0catalog")


def worker_lock(schema: str, worker: str) -> int:
    """Return the lock of a worker's lease: shared by claims of this worker, exclusive for the removal of the lease.

    Without it, a claim could rely on a lease that is being removed. Its item would be held without a lease, and no
    other worker could take it over. It is taken before all other locks and rows.
    """
    return partition_lock(schema, f"\0worker/{worker}")


def worker_locks_of(schema: str, commits: Iterable[tuple[str, Iterable[Operation]]]) -> list[int]:
    """Return the locks of the workers that claim items by these commits, in the order in which they are taken."""
    return sorted(
        {
            worker_lock(schema, operation.worker)
            for _, operations in commits
            for operation in operations
            if type(operation) is Enqueue and operation.worker is not None
        }
    )


def locks_of(schema: str, commits: Iterable[tuple[str, Iterable[Operation]]]) -> list[int]:
    """Return the locks of these commits in the order in which they are taken."""
    numbers = set()
    for partition, operations in commits:
        base = partition_lock(schema, partition)
        for name in {address(operation)[1] for operation in operations}:
            numbers.add(base | crc32(name.encode()) & STRIPES)
    return sorted(numbers)
