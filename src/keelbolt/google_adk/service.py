"""Base of the three services: a connection to one tenant's partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from keelbolt.google_adk.families import partition_of
from keelbolt.kernel import Collection, Kernel, Scope
from keelbolt.kernel.connection import AsyncConnectionOwner, KernelConnection

ATTEMPTS = 50  # of a change that conflicts with another one
PAGE = 200

T = TypeVar("T")


class Service(AsyncConnectionOwner):
    """``storage`` is a URL, which is opened at the first call, or an open storage."""

    def __init__(self, storage: str | Kernel, tenant: str, families: Sequence[Collection]) -> None:
        self._partition = partition_of(tenant)
        self._connection = KernelConnection(storage, families)

    async def _call(self, function: Callable[[Scope], Awaitable[T]]) -> T:
        return await self._connection.call(lambda kernel: function(kernel.scoped(self._partition)))


def as_json(value: Any) -> Any:
    """Convert a value to JSON data; objects without a JSON form become their text, as in ADK's own services."""
    return to_jsonable_python(value, fallback=str)
