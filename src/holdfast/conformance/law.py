"""A law is one sentence about the kernel and a function that fails on an engine which does not obey it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.conformance.expect import LawBroken
from holdfast.conformance.subject import Capability, Place, Subject
from holdfast.storage.contract import Kernel

LAW_SECONDS = 60.0

KernelLaw = Callable[[Kernel], Awaitable[None]]
PlaceLaw = Callable[[Place], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Law:
    """``group`` is the file it stands in, ``needs`` the capability without which it does not apply."""

    name: str
    group: str
    says: str
    needs: Capability
    run: PlaceLaw

    async def check(self, subject: Subject) -> None:
        """Raise, if the engine does not obey; it is given a new place."""
        try:
            async with asyncio.timeout(LAW_SECONDS), subject.place() as place:
                await self.run(place)
        except TimeoutError as error:
            message = f"no end within {LAW_SECONDS:g} s"
            raise LawBroken(message) from error


LAWS: list[Law] = []


def law(function: KernelLaw) -> KernelLaw:
    """A law about one open kernel on empty data, with the declarations of `families`."""

    async def run(place: Place) -> None:
        async with place.open() as kernel:
            await function(kernel)

    _register(function, "base", run)
    return function


def place_law(*, needs: Capability = "base") -> Callable[[PlaceLaw], PlaceLaw]:
    """A law that opens kernels itself."""

    def register(function: PlaceLaw) -> PlaceLaw:
        _register(function, needs, function)
        return function

    return register


def _register(function: KernelLaw | PlaceLaw, needs: Capability, run: PlaceLaw) -> None:
    says = " ".join((function.__doc__ or "").split())
    name = getattr(function, "__name__", "")
    group = function.__module__.rpartition(".")[2]
    assert says, f"the law {name} has no sentence"
    assert all(known.name != name for known in LAWS), f"two laws are named {name}"
    LAWS.append(Law(name, group, says, needs, run))
