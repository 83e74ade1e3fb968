"""One bad receiver does not delay the others."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from keelbolt.protocol.requests import PushConfig
from keelbolt.webhooks.receivers import EACH, Receivers
from tests.integration.tasks.stage import until
from tests.integration.webhooks.receiver import OK, Arrival, Receiver, receiving
from tests.integration.webhooks.scenario import DeliveryScenario

SLOTS = EACH + 4


async def test_a_receiver_that_never_responds_leaves_the_slots_to_others(
    quiet_scenario: DeliveryScenario, receiver: Receiver
) -> None:
    """The receiver has more waiting tasks than there are slots; another receiver gets all its events."""
    scenario = quiet_scenario

    async def never(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        await asyncio.sleep(600)
        return b""

    async with receiving(never) as bad:
        await scenario.deliverer(concurrency=SLOTS, seconds=600.0)
        for _ in range(SLOTS * 3):
            await scenario.finished(await scenario.send("chunks 0", PushConfig(id="c", url=bad.url)))
        await until(lambda: bad.connections == EACH)
        task_id = await scenario.finished(await scenario.send("chunks 5", PushConfig(id="c", url=receiver.url)))
        await scenario.until_delivered(receiver, task_id)
        assert bad.connections == EACH
        assert bad.arrivals == []


async def test_a_slow_receiver_gets_everything_in_the_end(quiet_scenario: DeliveryScenario, receiver: Receiver) -> None:
    scenario = quiet_scenario

    async def slow(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        await asyncio.sleep(0.01)
        return OK

    receiver.answering = slow
    await scenario.deliverer(concurrency=SLOTS)
    tasks = [
        await scenario.finished(await scenario.send("chunks 2", PushConfig(id="c", url=receiver.url)))
        for _ in range(SLOTS * 2)
    ]
    for task_id in tasks:
        await scenario.until_delivered(receiver, task_id)
        assert scenario.seqs(receiver, task_id) == [entry.seq for entry in await scenario.wire(task_id)]


async def test_one_delivery_probes_a_receiver_that_does_not_respond(
    quiet_scenario: DeliveryScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other deliveries are postponed at once; when the receiver is back, all of them arrive."""
    monkeypatch.setattr("keelbolt.webhooks.receivers.LONGEST_SECONDS", 0.5)
    scenario = quiet_scenario

    async def never(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        await asyncio.sleep(600)
        return b""

    async with receiving(never) as receiver:
        await scenario.deliverer(seconds=0.2)
        first = await scenario.finished(await scenario.send("chunks 0", PushConfig(id="c", url=receiver.url)))

        async def failed() -> bool:
            return (await scenario.cursor(first, "c")).failures >= 1

        await until(failed)
        tasks = [
            await scenario.finished(await scenario.send("chunks 0", PushConfig(id="c", url=receiver.url)))
            for _ in range(10)
        ]

        async def all_failed() -> bool:
            return all([(await scenario.cursor(task_id, "c")).failures for task_id in tasks])

        await until(all_failed)
        receiver.answering = Receiver().answering
        for task_id in [first, *tasks]:
            await scenario.until_delivered(receiver, task_id)


async def test_new_events_do_not_shorten_the_wait_of_a_receiver_that_failed(
    quiet_scenario: DeliveryScenario, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keelbolt.webhooks.receivers.FIRST_SECONDS", 100.0)
    monkeypatch.setattr("keelbolt.webhooks.receivers.LONGEST_SECONDS", 100.0)
    scenario = quiet_scenario
    receiver.always(500)
    await scenario.deliverer()
    sent = await scenario.send("slowly 5", PushConfig(id="c", url=receiver.url), message_id="slow")
    async with receiving() as other:
        await until(lambda: len(receiver.arrivals) == 1)
        for number in range(5):
            scenario.steps("slow").release()
            await until(partial(_chunks, scenario, sent.task.task_id, number + 1))
        await scenario.finished(sent)
        later = await scenario.finished(await scenario.send("chunks 0", PushConfig(id="e", url=other.url)))
        await scenario.until_delivered(other, later)
    assert len(receiver.arrivals) == 1


async def test_a_replay_ends_the_wait_for_the_next_attempt(
    quiet_scenario: DeliveryScenario, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keelbolt.webhooks.receivers.FIRST_SECONDS", 100.0)
    monkeypatch.setattr("keelbolt.webhooks.receivers.LONGEST_SECONDS", 100.0)
    scenario = quiet_scenario
    receiver.always(500)
    deliverer = await scenario.deliverer()
    sent = await scenario.send("slowly 1", PushConfig(id="c", url=receiver.url), message_id="slow")
    await until(lambda: len(receiver.arrivals) == 1)
    scenario.steps("slow").release()
    task_id = await scenario.finished(sent)
    await until(lambda: deliverer._held == 1)  # woken by the new events, but not due
    receiver.answering = Receiver().answering
    await scenario.configs.replay(scenario.scope, task_id, "c")
    await scenario.until_delivered(receiver, task_id)
    await scenario.idle(task_id, "c")
    assert receiver.first_seqs() == [entry.seq for entry in await scenario.wire(task_id)]


async def _chunks(scenario: DeliveryScenario, task_id: str, count: int) -> bool:
    return sum(entry.kind == "artifact" for entry in await scenario.wire(task_id)) >= count


# ------------------------------------------------------------------------------------------------------------ receivers


async def test_an_abandoned_turn_goes_to_the_next_waiter() -> None:
    receivers = Receivers(lambda: None, each=1)
    assert await receivers.enter("u")
    waiting = [asyncio.create_task(receivers.enter("u")) for _ in range(3)]
    await asyncio.sleep(0)
    assert receivers.waiting == 3
    receivers.leave("u", silent=False)
    waiting[0].cancel()  # this delivery was just woken
    assert await waiting[1]
    receivers.leave("u", silent=False)
    assert await waiting[2]
    receivers.leave("u", silent=False)
    assert receivers.waiting == 0
    assert receivers._known == {}


async def test_all_but_one_of_those_that_wait_for_a_silent_receiver_are_postponed() -> None:
    receivers = Receivers(lambda: None, each=1)
    assert await receivers.enter("u")
    waiting = [asyncio.create_task(receivers.enter("u")) for _ in range(3)]
    await asyncio.sleep(0)
    receivers.leave("u", silent=True)
    assert [await task for task in waiting] == [True, False, False]
    assert await receivers.enter("v")
    receivers.leave("u", silent=False)
    assert await receivers.enter("u")


async def test_a_receiver_that_is_forgotten_while_a_delivery_waits() -> None:
    """A delivery that was woken and has not run yet counts among those that began meanwhile."""
    receivers = Receivers(lambda: None, each=1)
    assert await receivers.enter("http://a")
    waiting = asyncio.create_task(receivers.enter("http://a"))
    await asyncio.sleep(0)
    receivers.leave("http://a", silent=False)  # no delivery is in flight: the receiver is removed
    assert await receivers.enter("http://a")
    await asyncio.sleep(0)
    assert not waiting.done()
    receivers.leave("http://a", silent=False)
    assert await waiting
    receivers.leave("http://a", silent=False)
