"""The slots of a cluster, and a hash tag for each of them."""

from __future__ import annotations

from binascii import crc_hqx
from functools import cache

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
