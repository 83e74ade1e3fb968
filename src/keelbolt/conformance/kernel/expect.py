"""Expectations about an engine, beside those of `keelbolt.conformance.expect`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from keelbolt.conformance.expect import equal, raises
from keelbolt.errors import CommitRefused, Reason
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.hints import Watch

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
