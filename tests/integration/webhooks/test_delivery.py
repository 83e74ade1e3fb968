"""Webhooks get all events, in order, at least once, with the same id each time; on every engine."""

from __future__ import annotations

import asyncio
import random

import pytest

from keelbolt.errors import TaskNotFoundError
from keelbolt.kernel import Query
from keelbolt.protocol.requests import PushConfig
from keelbolt.tasks.families import PUSH_CONFIGS, PUSH_CURSORS, WEBHOOKS
from keelbolt.tasks.pushes import push_key
from keelbolt.tasks.sweep import erase_task
from tests.integration.tasks.stage import until
from tests.integration.webhooks.receiver import OK, Arrival, Receiver, answer, receiving
from tests.integration.webhooks.scenario import PARTITION, DeliveryScenario, in_order


async def test_a_config_that_comes_with_its_task_gets_everything(
    scenario: DeliveryScenario, receiver: Receiver
) -> None:
    """The webhook gets all events from the first one on, in order, as in a stream."""
    await scenario.deliverer()
    sent = await scenario.send("chunks 3", PushConfig(id="c", url=receiver.url, token="my token"))
    task_id = await scenario.finished(sent)
    await scenario.until_delivered(receiver, task_id)
    await scenario.idle(task_id, "c")

    entries = await scenario.wire(task_id)
    assert receiver.seqs() == [entry.seq for entry in entries]
    kinds = [next(iter(arrival.json)) for arrival in receiver.arrivals]
    assert kinds == ["statusUpdate"] * 2 + ["artifactUpdate"] * 3 + ["statusUpdate"]
    states = [arrival.json["statusUpdate"]["status"]["state"] for arrival in receiver.arrivals[:2]]
    assert states == ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"]
    for arrival in receiver.arrivals:
        assert arrival.id == f"{task_id}:c:{arrival.seq}"
        [event] = arrival.json.values()
        assert event["taskId"] == task_id
        assert arrival.headers["content-type"] == "application/a2a+json"
        assert arrival.headers["x-a2a-notification-token"] == "my token"
    cursor = await scenario.cursor(task_id, "c")
    assert (cursor.seq, cursor.delivered, cursor.status) == (entries[-1].seq, len(entries), "active")


async def test_a_config_created_while_the_task_runs_gets_what_follows(
    scenario: DeliveryScenario, receiver: Receiver
) -> None:
    """The webhook gets later events only, also chunks, although the task's process does not know the config yet."""
    await scenario.deliverer()
    sent = await scenario.send("slowly 4", message_id="slow")
    steps = scenario.steps("slow")
    steps.release()
    task_id = sent.task.task_id

    async def chunks(count: int) -> bool:
        return sum(entry.kind == "artifact" for entry in await scenario.wire(task_id)) == count

    await until(lambda: chunks(1))
    before = (await scenario.wire(task_id))[-1].seq
    await scenario.configs.create(scenario.scope, task_id, PushConfig(id="c", url=receiver.url))
    steps.release()
    await until(lambda: len(receiver.arrivals) == 1)  # while the task still runs
    assert "artifactUpdate" in receiver.arrivals[0].json
    steps.release()
    steps.release()
    await scenario.finished(sent)
    wanted = [entry.seq for entry in await scenario.wire(task_id) if entry.seq > before]
    await until(lambda: receiver.seqs() == wanted)


async def test_a_receiver_that_was_down_gets_everything_later(scenario: DeliveryScenario) -> None:
    async with receiving() as receiver:
        port = receiver.port
    deliverer = await scenario.deliverer()
    task_id = await scenario.finished(await scenario.send("chunks 5", PushConfig(id="c", url=receiver.url)))

    async def failures() -> bool:
        return (await scenario.cursor(task_id, "c")).failures >= 2

    await until(failures)
    cursor = await scenario.cursor(task_id, "c")
    assert cursor.error.startswith("no connection")
    assert cursor.since > 0
    assert (cursor.tried_at >= cursor.since, cursor.code) == (True, 0)
    before = cursor.tried_at
    async with receiving(port=port) as receiver:
        await scenario.until_delivered(receiver, task_id)
        assert receiver.seqs() == [entry.seq for entry in await scenario.wire(task_id)]
        await scenario.idle(task_id, "c")
    cursor = await scenario.cursor(task_id, "c")
    assert (cursor.failures, cursor.error) == (0, "")
    assert (cursor.tried_at > before, cursor.code) == (True, 200)
    await deliverer.stop()


async def test_a_failed_event_is_repeated_with_the_same_id_before_the_next(
    scenario: DeliveryScenario, receiver: Receiver
) -> None:
    """A receiver that fails repeatedly in every way gets every event in order, apart from repeats."""
    dice = random.Random(7)

    async def moody(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        match dice.randrange(5):
            case 0:
                return answer(500)
            case 1:
                return answer(404)
            case 2:
                writer.close()
                return b""
            case 3:
                return b"what?"
            case _:
                return OK

    receiver.answering = moody
    await scenario.deliverer()
    task_id = await scenario.finished(await scenario.send("chunks 6", PushConfig(id="c", url=receiver.url)))
    await scenario.idle(task_id, "c")
    entries = await scenario.wire(task_id)
    assert receiver.first_seqs() == [entry.seq for entry in entries]
    assert in_order(receiver.seqs())
    bodies: dict[str, set[bytes]] = {}
    for arrival in receiver.arrivals:
        bodies.setdefault(arrival.id, set()).add(arrival.body)
    assert all(len(same) == 1 for same in bodies.values()), "a repeat has the same body"


async def test_two_processes_deliver_in_order(scenario: DeliveryScenario, receiver: Receiver) -> None:
    """With two processes, and many tasks with two configs each, each config gets every event once, in order."""
    await scenario.deliverer()
    await scenario.deliverer()
    async with receiving() as other:
        sent = []
        for _ in range(8):
            sent.append(await scenario.send("slowly 3", PushConfig(id="a", url=receiver.url)))
            await scenario.configs.create(
                scenario.scope, sent[-1].task.task_id, PushConfig(id="b", url=other.url), after=0
            )
        for each in sent:
            for _ in range(3):
                scenario.steps(each.task.record.turn.message_id).release()
                await asyncio.sleep(0)
        for each in sent:
            task_id = await scenario.finished(each)
            wanted = [entry.seq for entry in await scenario.wire(task_id)]
            for at, config in ((receiver, "a"), (other, "b")):
                await scenario.until_delivered(at, task_id)
                assert scenario.seqs(at, task_id, config) == wanted


async def test_a_takeover_repeats_events_that_are_not_confirmed(scenario: DeliveryScenario, receiver: Receiver) -> None:
    """If a process dies during its POST, the event arrives again with the same id, then the rest."""
    reached = asyncio.Event()

    async def third(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        if len(receiver.arrivals) == 2:
            receiver.arrivals.append(arrival)  # the event arrived, and the response is lost
            reached.set()
            await asyncio.sleep(60)
        return OK

    receiver.answering = third
    first = await scenario.deliverer()
    task_id = await scenario.finished(await scenario.send("chunks 4", PushConfig(id="c", url=receiver.url)))
    await asyncio.wait_for(reached.wait(), 20)
    await scenario.crash(first)
    receiver.answering = Receiver().answering
    await scenario.deliverer()
    await scenario.until_delivered(receiver, task_id)
    wanted = [entry.seq for entry in await scenario.wire(task_id)]
    assert receiver.first_seqs() == wanted
    assert in_order(receiver.seqs())
    assert receiver.seqs().count(wanted[2]) == 2


async def test_a_restart_continues_at_the_cursor(scenario: DeliveryScenario, receiver: Receiver) -> None:
    """Events delivered before a graceful stop are not repeated after the next start."""
    first = await scenario.deliverer()
    sent = await scenario.send("slowly 4", PushConfig(id="c", url=receiver.url), message_id="slow")
    steps = scenario.steps("slow")
    steps.release()
    steps.release()
    await until(lambda: len(receiver.arrivals) == 4)
    await scenario.idle(sent.task.task_id, "c")
    await first.stop()
    scenario.lines[first].cut = True
    steps.release()
    steps.release()
    task_id = await scenario.finished(sent)
    assert len(receiver.arrivals) == 4
    await scenario.deliverer()
    await scenario.until_delivered(receiver, task_id)
    assert receiver.seqs() == [entry.seq for entry in await scenario.wire(task_id)]


async def test_410_ends_delivery_and_a_replay_resumes_it(scenario: DeliveryScenario, receiver: Receiver) -> None:
    """A receiver that returns 410 gets no more events; this is visible and can be undone."""
    receiver.always(410)
    await scenario.deliverer()
    sent = await scenario.send("slowly 1", PushConfig(id="c", url=receiver.url), message_id="slow")
    task_id = sent.task.task_id

    async def failed() -> bool:
        return (await scenario.cursor(task_id, "c")).status == "failed"

    await until(failed)
    scenario.steps("slow").release()
    await scenario.finished(sent)
    await scenario.idle(task_id, "c")
    assert len(receiver.arrivals) == 1
    assert (await scenario.cursor(task_id, "c")).error == "HTTP 410"
    assert await scenario.work(task_id, "c") == "dead"

    receiver.arrivals.clear()
    receiver.answering = Receiver().answering
    await scenario.configs.replay(scenario.scope, task_id, "c")
    await scenario.until_delivered(receiver, task_id)
    wanted = [entry.seq for entry in await scenario.wire(task_id)]
    assert receiver.seqs() == wanted
    await scenario.idle(task_id, "c")

    await scenario.configs.replay(scenario.scope, task_id, "c", after=wanted[0])
    await until(lambda: receiver.seqs() == [*wanted, *wanted[1:]])
    ids = [arrival.id for arrival in receiver.arrivals]
    assert len(set(ids)) == len(wanted)


async def test_a_receiver_that_fails_for_too_long_is_given_up(scenario: DeliveryScenario, receiver: Receiver) -> None:
    receiver.always(503)
    await scenario.deliverer(give_up_seconds=0.2)
    task_id = await scenario.finished(await scenario.send("chunks 1", PushConfig(id="c", url=receiver.url)))
    await scenario.idle(task_id, "c")
    cursor = await scenario.cursor(task_id, "c")
    assert (cursor.status, cursor.error) == ("failed", "HTTP 503")
    assert cursor.failures >= 2
    assert set(receiver.seqs()) == {(await scenario.wire(task_id))[0].seq}, (
        "no event is delivered before its predecessor"
    )


async def test_a_new_config_that_replaces_a_failed_one_gets_the_rest(
    scenario: DeliveryScenario, receiver: Receiver
) -> None:
    receiver.always(410)
    await scenario.deliverer()
    task_id = await scenario.finished(await scenario.send("chunks 1", PushConfig(id="c", url=receiver.url)))
    await scenario.idle(task_id, "c")
    async with receiving() as other:
        await scenario.configs.create(scenario.scope, task_id, PushConfig(id="c", url=other.url))
        await scenario.until_delivered(other, task_id)
        assert other.seqs() == [entry.seq for entry in await scenario.wire(task_id)]


async def test_a_config_that_is_replaced_during_delivery_continues_at_the_new_address(
    scenario: DeliveryScenario, receiver: Receiver
) -> None:
    """One event may be in flight to the old address; none is missing or out of order."""
    async with receiving() as other:
        replaced = asyncio.Event()

        async def second(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
            if len(receiver.arrivals) == 1:
                await scenario.configs.create(scenario.scope, sent.task.task_id, PushConfig(id="c", url=other.url))
                replaced.set()
            return OK

        receiver.answering = second
        sent = await scenario.send("chunks 8", PushConfig(id="c", url=receiver.url))
        task_id = await scenario.finished(sent)
        await scenario.deliverer()
        await asyncio.wait_for(replaced.wait(), 20)
        wanted = [entry.seq for entry in await scenario.wire(task_id)]
        await until(lambda: wanted[-1] in other.seqs())
        assert sorted({*receiver.seqs(), *other.seqs()}) == wanted
        assert in_order(receiver.seqs())
        assert in_order(other.seqs())
        assert len(receiver.seqs()) <= 3


async def test_a_deleted_config_gets_no_more_events(scenario: DeliveryScenario, receiver: Receiver) -> None:
    """Only an event in flight may still arrive."""
    deleted = asyncio.Event()

    async def second(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        if len(receiver.arrivals) == 1:
            await scenario.configs.delete(scenario.scope, sent.task.task_id, "c")
            deleted.set()
        return OK

    receiver.answering = second
    sent = await scenario.send("chunks 20", PushConfig(id="c", url=receiver.url))
    await scenario.finished(sent)
    await scenario.deliverer()
    await asyncio.wait_for(deleted.wait(), 20)
    await scenario.idle(sent.task.task_id, "c")
    async with receiving() as other:  # other events are delivered
        later = await scenario.finished(await scenario.send("chunks 1", PushConfig(id="d", url=other.url)))
        await scenario.until_delivered(other, later)
    assert len(receiver.arrivals) <= 3
    assert await scenario.work(sent.task.task_id, "c") is None
    with pytest.raises(TaskNotFoundError):
        await scenario.configs.get(scenario.scope, sent.task.task_id, "c")
    with pytest.raises(TaskNotFoundError):
        await scenario.configs.replay(scenario.scope, sent.task.task_id, "c")


async def test_an_erased_task_leaves_nothing_of_its_webhooks(scenario: DeliveryScenario, receiver: Receiver) -> None:
    """No configs, cursors or work items remain, also for webhooks that were given up or are being delivered to."""
    async with receiving() as gone:
        gone.always(410)
        erased = asyncio.Event()

        async def second(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
            if len(receiver.arrivals) == 1:
                await erase_task(scenario.engine.store, scenario.engine.kernel.scoped(PARTITION), task_id)
                erased.set()
            return OK

        sent = await scenario.send("chunks 20", PushConfig(id="a", url=gone.url))
        task_id = await scenario.finished(sent)
        deliverer = await scenario.deliverer()
        await scenario.idle(task_id, "a")
        receiver.answering = second
        await scenario.configs.create(scenario.scope, task_id, PushConfig(id="b", url=receiver.url), after=0)
        await asyncio.wait_for(erased.wait(), 20)
        await scenario.idle(task_id, "b")
        await deliverer.stop()
        scenario.lines[deliverer].cut = True
    kernel = scenario.engine.kernel
    assert (await kernel.find(PARTITION, Query(PUSH_CONFIGS, {"task": task_id}))).records == ()
    for config in ("a", "b"):
        assert await kernel.get(PARTITION, PUSH_CURSORS, push_key(task_id, config)) is None
        assert await kernel.work(PARTITION, WEBHOOKS, push_key(task_id, config)) is None
    assert len(receiver.arrivals) <= 3


async def test_an_outage_is_logged_once(quiet_scenario: DeliveryScenario, caplog: pytest.LogCaptureFixture) -> None:
    deliverer = await quiet_scenario.deliverer()
    line = quiet_scenario.lines[deliverer]
    line.cut = True
    await asyncio.sleep(0.3)  # long enough for ten claims
    line.cut = False
    await until(lambda: "storage found" in caplog.text)
    messages = [record.getMessage() for record in caplog.records if record.name == "keelbolt.webhooks"]
    assert [words.partition(":")[0] for words in messages] == ["storage lost", "storage found"]
