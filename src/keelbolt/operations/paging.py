"""Pages of a list: of one partition, or with ``all`` of every partition that the caller may see."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from pydantic_core import from_json, to_json

from keelbolt.errors import BadCursor
from keelbolt.kernel import Kernel, Scope
from keelbolt.operations.call import OpsCall, sees

Item = TypeVar("Item")

READS = 200  # limit for one page of all partitions; then the page may be short, and its token continues it

Read = Callable[[Scope, int, str | None], Awaitable[tuple[Sequence[Item], str | None]]]
"""Reads items of a scope, given a limit and the previous cursor. Returns the items and the next cursor."""


async def page_of(kernel: Kernel, call: OpsCall, read: Read[Item]) -> tuple[list[Item], str]:
    """Return the items of the requested page, and the token of the next page. Raises BadCursor."""
    size, token = call.number("pageSize", 50, low=1, high=100), call.query.get("pageToken") or None
    if call.everywhere:
        return await _everywhere(kernel, call, read, size, token)
    items, cursor = await read(kernel.scoped(call.principal.partition), size, token)
    return list(items), cursor or ""


async def _everywhere(
    kernel: Kernel, call: OpsCall, read: Read[Item], size: int, token: str | None
) -> tuple[list[Item], str]:
    """Read the scopes in order. A token names the partition where the page ended, and the cursor within it."""
    after, cursor = _place(token, call) if token else ("", None)
    found, reads = list[Item](), 0
    async for scope in _from(kernel, after, inside=cursor is not None):
        if not sees(call.caller, scope.partition, call.reach):
            continue
        while True:
            items, cursor = await read(scope, size - len(found), cursor)
            found += items
            reads += 1
            full = len(found) >= size or reads >= READS
            if full or not cursor:
                break
        if cursor:
            return found, _token(scope, cursor)
        if full:
            return found, _token(scope, "") if await kernel.partitions(after=scope.partition, limit=1) else ""
    return found, ""


async def _from(kernel: Kernel, place: str, *, inside: bool) -> AsyncIterator[Scope]:
    if inside:
        yield kernel.scoped(place)
    async for scope in kernel.scopes(after=place):
        yield scope


def _token(scope: Scope, cursor: str) -> str:
    return urlsafe_b64encode(to_json([scope.partition, cursor])).decode()


def _place(token: str, call: OpsCall) -> tuple[str, str | None]:
    """Decode a token. Raises BadCursor, also for a partition that the caller may not see."""
    try:
        partition, cursor = from_json(urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError):
        raise BadCursor from None
    if not (isinstance(partition, str) and isinstance(cursor, str)) or not sees(call.caller, partition, call.reach):
        raise BadCursor
    return partition, cursor or None
