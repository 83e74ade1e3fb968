"""The laws of the kernel: how one is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from keelbolt.conformance import suite
from keelbolt.conformance.subject import Capability, DataPlace
from keelbolt.conformance.suite import Suite
from keelbolt.kernel.contract import Kernel

Law = suite.Law[DataPlace]
KernelLaw = Callable[[Kernel], Awaitable[None]]
PlaceLaw = Callable[[DataPlace], Awaitable[None]]

STORAGE: Suite[DataPlace] = Suite("Storage laws")


def law(function: KernelLaw) -> KernelLaw:
    """A law about one open kernel on empty data, with the declarations of `families`."""

    async def run(place: DataPlace) -> None:
        async with place.open() as kernel:
            await function(kernel)

    STORAGE.register(function, "base", run)
    return function


def place_law(*, needs: Capability = "base") -> Callable[[PlaceLaw], PlaceLaw]:
    """A law that opens kernels itself."""

    def register(function: PlaceLaw) -> PlaceLaw:
        STORAGE.register(function, needs, function)
        return function

    return register
