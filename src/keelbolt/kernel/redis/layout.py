"""The layout of keys. All keys of a partition have its name as hash tag, so that they are in one slot of a cluster.

    keelbolt:{p}:r/tasks/42       a record;           keelbolt:{p}:i/tasks/1/2    an index with its entries
    keelbolt:{p}:l/events/42      a log's entries;    keelbolt:{p}:s/events/42    its head and floor
    keelbolt:{p}:w/runs/42        a work item;        keelbolt:{%}:…              the registry of all partitions

In a cluster keelbolt:{%.n}:… is the journal of a slot; on a single server the registry is the journal.

The Lua files document each kind of key.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from dataclasses import dataclass
from functools import cache, lru_cache

from keelbolt.kernel.keys import encode_text

_ESCAPES = {"%": "%25", "{": "%7B", "}": "%7D"}
_TABLE = str.maketrans(_ESCAPES)
_GLOB = re.compile(r"([*?\[\]\\^-])")
_ESCAPED = r"\\\1"


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of one namespace of a server."""

    namespace: str

    @property
    def registry(self) -> bytes:
        """Key prefix of the registry. No partition has its tag: in a partition's tag, two hex digits follow each %."""
        return f"{self.namespace}:{{%}}:".encode()

    def base(self, partition: str) -> bytes:
        return _base(self.namespace, partition)

    def journal(self, slot: int) -> bytes:
        """Key prefix of the mark and the last fence of this slot of a cluster."""
        return b"%b:{%b}:" % (self.namespace.encode(), tags()[slot])

    @property
    def pattern(self) -> bytes:
        """Pattern of all keys of partitions and of the registry."""
        return f"{self.namespace}:{{*".encode()

    def records(self, collection: str, partition: str | None = None) -> bytes:
        """Pattern of the records of a collection, in one partition or in all."""
        if partition is None:
            return f"{self.namespace}:{{*}}:r/{collection}/*".encode()
        base = self.base(partition).decode()
        return f"{_GLOB.sub(_ESCAPED, base)}r/{collection}/*".encode()

    def parse(self, key: bytes) -> tuple[str, bytes] | None:
        """Return the partition of a key and the rest of the key; None if the key is not one of a partition."""
        start = len(self.namespace) + 2
        tag, end, rest = key[start:].partition(b"}:")
        if not end or tag == b"%" or tag.startswith(b"%."):
            return None
        text = tag.decode("utf-8", "replace")
        for plain, escape in reversed(_ESCAPES.items()):
            text = text.replace(escape, plain)
        return text, rest

    @property
    def channel(self) -> bytes:
        return f"{self.namespace}:hints".encode()


@lru_cache(maxsize=4096)
def _base(namespace: str, partition: str) -> bytes:
    return f"{namespace}:{{{partition.translate(_TABLE)}}}:".encode()


@lru_cache(maxsize=4096)
def partition_entry(partition: str) -> bytes:
    """Return the prefix of all index entries and counter groups of a partition; the prefix is not stored."""
    return encode_text(partition)


# ---------------------------------------------------------------------------------------------------------------- slots


SLOTS = 16384


@cache
def tags() -> tuple[bytes, ...]:
    """Return one tag per slot. No partition has such a tag: in a partition's tag, two hex digits follow each %."""
    found: list[bytes | None] = [None] * SLOTS
    missing = SLOTS
    number = 0
    while missing:
        tag = b"%%.%d" % number
        slot = crc_hqx(tag, 0) % SLOTS
        if found[slot] is None:
            found[slot] = tag
            missing -= 1
        number += 1
    return tuple(tag for tag in found if tag is not None)
