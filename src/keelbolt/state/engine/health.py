"""The health of a store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from keelbolt.kernel import Health, Kernel
from keelbolt.state.engine.breaker import BreakerState
from keelbolt.state.engine.policy import Counters, PolicyName
from keelbolt.state.store_context import StoreContext


@dataclass(frozen=True, slots=True)
class StateHealth:
    """The health of a store.

    ``waiting``: writes not committed yet; ``in_spool``: writes to be replayed; ``detail``: a message for operators.
    """

    engine: str
    policy: PolicyName
    reads: bool
    writes: bool
    detail: str
    breaker: BreakerState
    waiting: int
    in_spool: int
    counters: Counters


async def health_of(desk: StoreContext) -> StateHealth:
    """Check the health within the timeout of a load; never raises."""

    async def look(kernel: Kernel) -> Health:
        return await kernel.health()

    try:
        async with asyncio.timeout(desk.timeout_seconds):
            found = await desk.host.ask(look)
        engine, reads, writes, detail = found.engine, found.reads, found.writes, found.detail
    except Exception as error:  # noqa: BLE001  (every error is reported as the health)
        engine, reads, writes, detail = "", False, False, str(error) or repr(error)
    writer = desk.host.writer
    return StateHealth(
        engine=engine,
        policy=desk.policy,
        reads=reads,
        writes=writes,
        detail=detail,
        breaker=writer.breaker.state if writer is not None else "closed",
        waiting=writer.waiting if writer is not None else 0,
        in_spool=len(writer.recovery.spool) if writer is not None else 0,
        counters=counters_of(desk),
    )


def counters_of(desk: StoreContext) -> Counters:
    """Return the combined counters of this store's writer and reads."""
    saves = desk.host.writer.counters if desk.host.writer is not None else Counters()
    return replace(saves, loaded=desk.counters.loaded, load_failures=desk.counters.load_failures)
