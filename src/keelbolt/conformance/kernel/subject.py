"""The engine that the kernel's suite checks, the collections that laws declare, and expectations."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Protocol, Self

from keelbolt.conformance.expect import equal, raises
from keelbolt.conformance.suite import ConformancePlace, ConformanceSubject, Suite
from keelbolt.errors import CommitRefused, InvalidValue, Reason
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import Durability, Kernel
from keelbolt.kernel.hints import Watch
from keelbolt.kernel.records import Collection, Index

PLAIN = Collection("plain")

THINGS = Collection(
    "things",
    fields={"state": str, "owner": str, "rank": int},
    indexes=(
        Index("by_key"),
        Index("by_state", ("state",)),
        Index("by_rank", (), "rank"),
        Index("by_state_owner_rank", ("state", "owner"), "rank"),
    ),
)

TYPED = Collection(
    "typed",
    fields={"text": str, "whole": int, "real": float, "flag": bool},
    indexes=(
        Index("by_text", (), "text"),
        Index("by_whole", (), "whole"),
        Index("by_real", (), "real"),
        Index("by_flag", ("flag",), "text"),
    ),
)

COUNTED = Collection(
    "counted",
    fields={"state": str, "owner": str, "rank": int},
    indexes=(Index("by_state_rank", ("state",), "rank"), Index("by_owner", ("owner",))),
    counters=((), ("state",), ("state", "owner")),
)

PASSING = Collection(
    "passing", fields={"rank": int}, indexes=(Index("by_key"), Index("by_rank", (), "rank")), expiring=True
)

FAMILIES: tuple[Collection, ...] = (PLAIN, THINGS, TYPED, COUNTED, PASSING)


class MakeKernel(Protocol):
    """Returns an unopened kernel on the data of this place; a new place is empty."""

    def __call__(self, place: KernelPlace, declare: Sequence[Collection], /) -> Kernel: ...


@dataclass(frozen=True, slots=True)
class KernelPlace(ConformancePlace["KernelSubject"]):
    """One set of data of an engine."""

    def kernel(self, declare: Sequence[Collection] = FAMILIES, *, small: bool = False) -> Kernel:
        """An unopened kernel on the data of this place."""
        make = self.subject.make if not small else self.subject.small
        assert make is not None
        return make(self, tuple(declare))

    @asynccontextmanager
    async def open(self, declare: Sequence[Collection] = FAMILIES, *, small: bool = False) -> AsyncIterator[Kernel]:
        """An open kernel on the data of this place."""
        async with self.kernel(declare, small=small) as kernel:
            # A factory without the parameter `declare` gets the collections here; declaring twice changes nothing.
            await kernel.declare(*declare)
            yield kernel


@dataclass(frozen=True, slots=True)
class KernelSubject(ConformanceSubject[KernelPlace]):
    """An engine to check.

    ``persistent``: a second kernel at the same place finds the data of the first. ``shared``: kernels of several
    processes work at one place at the same time; then a new process must be able to import ``make`` (a function of a
    module, or an object that can be pickled). ``prompt``: the engine is shared, and the leases of a process end when
    that process dies. ``small`` makes kernels as ``make`` does, on a place that is full after 1 to 64 MB.
    """

    make: MakeKernel
    _: KW_ONLY
    shared: bool = False
    prompt: bool = False
    small: MakeKernel | None = None

    place_class: ClassVar[type[KernelPlace]] = KernelPlace
    declared: ClassVar[tuple[str, ...]] = ("persistent", "shared", "prompt", "small")

    @classmethod
    def from_factory(cls, factory: Callable[..., Self | Kernel], name: str) -> Self:
        """The subject that the factory returns, or a subject whose unopened kernels it returns."""
        made = _call(factory, FAMILIES)
        if isinstance(made, cls):
            return made
        if not isinstance(made, Kernel):
            raise InvalidValue(
                f"{name} returned {type(made).__name__}; it must return a KernelSubject or an unopened Kernel"
            )
        return cls(name, ByFactory(factory))


# ------------------------------------------------------------------------------------------------ ways to make kernels


@dataclass(frozen=True, slots=True)
class ByUrl:
    """Makes kernels with `open_storage`; ``{directory}`` and ``{name}`` in the URL are those of the place."""

    template: str
    durability: Durability = "durable"

    def __call__(self, place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
        from keelbolt.kernel.urls import open_storage  # noqa: PLC0415  (an engine is loaded when it is opened)

        url = self.template.format(directory=place.directory, name=place.name)
        return open_storage(url, durability=self.durability, declare=declare)


@dataclass(frozen=True, slots=True)
class ByFactory:
    """Makes kernels with a function that takes no argument, or only ``declare``, and returns an empty kernel."""

    factory: Callable[..., object]

    def __call__(self, _place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
        kernel = _call(self.factory, declare)
        assert isinstance(kernel, Kernel)
        return kernel


def _call(factory: Callable[..., object], declare: Sequence[Collection]) -> object:
    return factory(declare=declare) if "declare" in inspect.signature(factory).parameters else factory()


SUITE: Suite[KernelPlace, Kernel] = Suite("Laws of the kernel", KernelSubject, "keelbolt.conformance.kernel.laws")
law, place_law = SUITE.law, SUITE.place_law


# --------------------------------------------------------------------------------------------------------------- expect


ANY = object()


async def refuses(
    kernel: Kernel, partition: str, *operations: Operation, reason: Reason, found: object = ANY, check: int = -1
) -> CommitRefused:
    """The commit is refused for this reason; the refusal has the operation at ``check`` and the stored value."""
    with raises(CommitRefused) as caught:
        await kernel.commit(partition, *operations)
    refusal = caught()
    equal(refusal.reason, reason, "the reason of the refusal")
    equal(refusal.check, operations[check], "the check that the refusal names")
    if found is not ANY:
        equal(refusal.found, found, "the stored value in the refusal")
    return refusal


async def woken(watch: Watch, seen: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Whether the watch wakes in time and ``seen`` returns True. A watch may also wake without a cause."""
    deadline = time.monotonic() + seconds
    while await watch.wait(max(0.0, deadline - time.monotonic())):
        if await seen():
            return True
    return False
