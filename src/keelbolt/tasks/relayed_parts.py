"""Parts of an artifact that is passed on: finds the missing ones, and divides them into chunks."""

from __future__ import annotations

from collections.abc import Sequence

from keelbolt.protocol.types import Part

CHUNK_BYTES = 4 * 1024 * 1024


def missing(have: Sequence[Part], now: Sequence[Part]) -> list[Part] | None:
    """Return the parts to append so that ``have`` becomes ``now``; None: appending is not enough.

    The division of text into parts does not matter, because agents join it differently.
    """
    mine, theirs = _joined(have), _joined(now)
    if len(mine) > len(theirs):
        return None
    if mine == theirs[: len(mine)]:
        return theirs[len(mine) :]
    before, last, at = mine[:-1], mine[-1], len(mine) - 1
    if before != theirs[:at] or not (_plain(last) and _plain(theirs[at])):
        return None
    begun, whole = last.text or "", theirs[at].text or ""
    if not whole.startswith(begun):
        return None
    return [Part(text=whole[len(begun) :]), *theirs[at + 1 :]]


def chunks(parts: Sequence[bytes]) -> list[list[bytes]]:
    """Return the encoded parts in groups that fit into one entry of the log each; at least one group."""
    groups: list[list[bytes]] = [[]]
    size = 0
    for part in parts:
        if groups[-1] and size + len(part) > CHUNK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += len(part)
    return groups


def _joined(parts: Sequence[Part]) -> list[Part]:
    found: list[Part] = []
    for part in parts:
        if found and _plain(part) and _plain(found[-1]):
            found[-1] = Part(text=(found[-1].text or "") + (part.text or ""))
        else:
            found.append(part)
    return found


def _plain(part: Part) -> bool:
    return part.text is not None and part.metadata is None and part.filename is None and part.media_type is None
