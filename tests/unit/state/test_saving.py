"""The result of a save is a coroutine for all callers, and need not be awaited."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from keelbolt.errors import InvalidState
from keelbolt.state.engine.writes import SAVED, Saved, Saving, handed_over, refused, settle


async def test_awaiting_a_finished_save_does_not_suspend() -> None:
    assert asyncio.iscoroutine(SAVED)
    assert await SAVED is None  # type: ignore[func-returns-value]
    assert await asyncio.create_task(SAVED) is None  # type: ignore[func-returns-value]
    await asyncio.gather(SAVED, SAVED)


async def test_awaiting_an_unfinished_save_waits() -> None:
    """The save and a task of it wait for a result that another thread sets."""
    for wait in (lambda saving: saving, asyncio.create_task):
        saving = Saving()
        threading.Timer(0.01, settle, ((saving,),)).start()
        await wait(saving)
        await saving  # done: it does not suspend


async def test_saves_that_end_together_wake_their_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake-up per save would cost a system call, and often a thread switch, per save."""
    loop = asyncio.get_running_loop()
    wake_ups = 0
    wake = loop.call_soon_threadsafe

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal wake_ups
        wake_ups += 1
        return wake(*args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    savings = [Saving() for _ in range(10)]
    waiting = asyncio.gather(*map(asyncio.create_task, savings))
    await asyncio.sleep(0)
    thread = threading.Thread(target=settle, args=(savings,))
    thread.start()
    await waiting
    thread.join()
    assert wake_ups == 1


async def test_a_save_can_be_awaited_by_several_callers() -> None:
    saving = Saving()
    waiting = [asyncio.create_task(_awaits(saving)) for _ in range(3)]
    await asyncio.sleep(0)
    settle((saving,), InvalidState("refused"))
    assert all(isinstance(error, InvalidState) for error in await asyncio.gather(*waiting, return_exceptions=True))


async def _awaits(saving: Saving) -> None:
    await saving


def test_a_caller_that_races_with_the_end_of_its_save_wakes_up() -> None:
    """The thread that settles a save always wakes the caller."""
    savings = [Saving() for _ in range(2000)]

    async def caller() -> None:
        for saving in savings:
            await saving

    def end_all() -> None:
        for saving in savings:
            settle((saving,))

    thread = threading.Thread(target=end_all)
    thread.start()
    asyncio.run(asyncio.wait_for(caller(), 30))
    thread.join()


async def test_cancelling_a_waiter_does_not_cancel_the_save() -> None:
    saving = Saving()
    waiting = asyncio.create_task(saving)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    settle((saving,))
    await saving
    never = asyncio.create_task(Saving())
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


def test_a_save_need_not_be_awaited(recwarn: pytest.WarningsRecorder) -> None:
    refused(InvalidState())
    Saving().close()
    gc.collect()
    assert list(recwarn) == []
