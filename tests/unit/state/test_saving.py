"""What a save answers is a coroutine in all that callers can see, and need not be awaited."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from keelbolt.errors import InvalidState
from keelbolt.state.saving import SAVED, Outcome, Saved, Saving, handed_over, outcome, refused


async def test_what_is_saved_does_not_suspend() -> None:
    assert asyncio.iscoroutine(SAVED)
    assert await SAVED is None  # type: ignore[func-returns-value]
    assert await asyncio.create_task(SAVED) is None  # type: ignore[func-returns-value]
    await asyncio.gather(SAVED, SAVED)


async def test_what_is_being_saved_is_waited_for() -> None:
    """Also as a task, also from a future that another thread sets."""
    for wait in (lambda saving: saving, asyncio.create_task):
        future = outcome()
        threading.Timer(0.01, future.set_result, (None,)).start()
        await wait(Saving(future))
    await Saving(_done())


def _done() -> Outcome:
    future = outcome()
    future.set_result(None)
    return future


async def test_cancelling_who_waits_cancels_nothing_else() -> None:
    future = outcome()
    waiting = asyncio.create_task(Saving(future))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    future.set_result(None)
    never = asyncio.create_task(Saving(outcome()))
    never.cancel()
    with pytest.raises(asyncio.CancelledError):
        await never


async def test_a_refusal_is_raised_where_it_is_awaited() -> None:
    @handed_over
    def save(number: int) -> Saved:
        """Save it."""
        raise InvalidState(f"not {number}")

    saving = save(7)
    with pytest.raises(InvalidState, match="not 7"):
        await saving
    assert save.__doc__ == "Save it."


def test_nobody_has_to_await(recwarn: pytest.WarningsRecorder) -> None:
    refused(InvalidState())
    Saving(outcome()).close()
    gc.collect()
    assert list(recwarn) == []
