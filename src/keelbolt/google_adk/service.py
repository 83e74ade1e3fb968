"""What the three services share: a connection to one tenant's partition."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic_core import to_jsonable_python

from keelbolt.google_adk.families import partition_of
from keelbolt.storage import Collection, Kernel, Query, Record, Scope
from keelbolt.storage.connection import Connection

ATTEMPTS = 50  # of a change that meets another one
PAGE = 200

T = TypeVar("T")


class Service:
    """``storage`` is a URL, which is opened at the first call, or an open storage."""

    def __init__(self, storage: str | Kernel, tenant: str, families: Sequence[Collection]) -> None:
        self._partition = partition_of(tenant)
        self._connection = Connection(storage, families)

    async def _call(self, function: Callable[[Scope], Awaitable[T]]) -> T:
        return await self._connection.call(lambda kernel: function(kernel.scoped(self._partition)))

    async def close(self) -> None:
        """Close the connection that a URL opened. A second close does nothing."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


async def every(scope: Scope, query: Query) -> AsyncIterator[Record]:
    """All records of a query, page by page."""
    cursor: str | None = None
    while True:
        page = await scope.find(query, limit=PAGE, cursor=cursor)
        for record in page.records:
            yield record
        cursor = page.cursor
        if cursor is None:
            return


def as_json(value: Any) -> Any:
    """The value as JSON data; objects that have no such form become their text, as in ADK's own services."""
    return to_jsonable_python(value, fallback=str)
