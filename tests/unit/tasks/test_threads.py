"""Each blocking call has its own thread."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from keelbolt.tasks.threads import in_thread

who: ContextVar[str] = ContextVar("who", default="unset")


async def test_a_call_has_its_thread_its_context_and_its_result() -> None:
    who.set("me")
    assert await in_thread(lambda *given: (who.get(), given), 1, 2) == ("me", (1, 2))
    assert await in_thread(threading.current_thread) is not threading.current_thread()
    assert (await in_thread(threading.current_thread)).daemon


async def test_more_calls_than_a_pool_has_threads_run_concurrently() -> None:
    together = threading.Barrier(48)
    async with asyncio.timeout(20):
        await asyncio.gather(*[in_thread(together.wait) for _ in range(48)])


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(2), KeyboardInterrupt()])
async def test_exceptions_propagate(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await in_thread(fail)


async def test_an_iterator_that_ends_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(next, iter(()))


async def test_an_abandoned_call_blocks_nothing() -> None:
    go, done = threading.Event(), threading.Event()

    def call(raises: bool) -> None:
        go.wait(10)
        done.set()
        if raises:
            raise ValueError

    for raises in (False, True):
        waiting = asyncio.ensure_future(in_thread(call, raises))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go.set()
        assert await in_thread(done.wait, 10)


def test_a_closed_loop_gets_no_result() -> None:
    go, began, threads = threading.Event(), threading.Event(), []

    def call() -> Any:
        threads.append(threading.current_thread())
        began.set()
        go.wait(10)

    async def main() -> None:
        waiting = asyncio.ensure_future(in_thread(call))
        await in_thread(began.wait, 10)
        waiting.cancel()

    asyncio.run(main())
    go.set()
    threads[0].join(10)
    assert not threads[0].is_alive()
