"""The connection to the storage: opened at first use, and reopened after it breaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from keelbolt.errors import CannotOpen, KeelboltError, StorageBroken, StorageClosed
from keelbolt.kernel import Kernel
from keelbolt.state.families import FAMILIES

CLOSED = "this state store is closed; create a new one"


class StoreConnection:
    """``opening`` creates a kernel that this link opens; ``given`` is an open kernel whose owner closes it."""

    def __init__(self, opening: Callable[[], Kernel] | None = None, *, given: Kernel | None = None) -> None:
        self._opening = opening
        self._given = given is not None
        self._lock = asyncio.Lock()
        self._closed = False
        self._ready = False
        self.kernel: Kernel | None = given
        """The kernel while it is open, otherwise None."""

    @property
    def open(self) -> Kernel | None:
        """The kernel if it can be used without waiting, otherwise None."""
        return self.kernel if self._ready else None

    async def opened(self) -> Kernel:
        """Return the kernel; open it if necessary."""
        if self._ready and self.kernel is not None:
            return self.kernel
        async with self._lock:
            if self._closed:
                raise StorageClosed(CLOSED)
            if not self._ready:
                if self.kernel is None:
                    assert self._opening is not None
                    kernel = self._opening()
                    await kernel.open()
                    self.kernel = kernel
                await self.kernel.declare(*FAMILIES)
                self._ready = True
            assert self.kernel is not None
            return self.kernel

    async def broke(self, error: BaseException) -> None:
        """Release the kernel if this error means that it is unusable, so that the next use reopens it."""
        if self._given or not isinstance(error, StorageBroken | CannotOpen):
            return
        async with self._lock:
            kernel, self.kernel, self._ready = self.kernel, None, False
            if kernel is not None:
                with contextlib.suppress(KeelboltError):
                    await kernel.close()

    async def close(self) -> None:
        """Close the kernel, unless the caller owns it."""
        async with self._lock:
            self._closed = True
            kernel, self.kernel, self._ready = self.kernel, None, False
            if kernel is not None and not self._given:
                await kernel.close()
