"""Which locks a batch takes: one per name, of 512 in each partition, always in the same order.

A name has its lock whether or not it exists yet, so that two processes can't insert the same one; and since all
processes take locks in the order of their numbers, batches never deadlock. The record, the log and the work item of one
task have the same name, and so one lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

from keelbolt.storage.commits import Operation, address

STRIPES = 0x1FF


@lru_cache(maxsize=4096)
def partition_lock(schema: str, partition: str) -> int:
    """A number for a partition, whose last nine bits are free."""
    raw = int.from_bytes(blake2b(f"{schema}\0{partition}".encode(), digest_size=8).digest(), signed=True)
    return raw & ~STRIPES


def catalog_lock(schema: str) -> int:
    """Held by every batch, shared; alone by whoever declares."""
    return partition_lock(schema, "\0catalog")


def locks_of(schema: str, commits: Iterable[tuple[str, Iterable[Operation]]]) -> list[int]:
    """The locks of these commits, in the order in which they are taken."""
    numbers = set()
    for partition, operations in commits:
        base = partition_lock(schema, partition)
        for name in {address(operation)[1] for operation in operations}:
            numbers.add(base | crc32(name.encode()) & STRIPES)
    return sorted(numbers)
