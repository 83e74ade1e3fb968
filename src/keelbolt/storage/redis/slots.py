"""The slots of a cluster, and a hash tag for each of them."""

from __future__ import annotations

from binascii import crc_hqx
from functools import cache

SLOTS = 16384


@cache
def tags() -> tuple[bytes, ...]:
    """One per slot. A partition's tag can't be one of these: there a % is always followed by two digits."""
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
