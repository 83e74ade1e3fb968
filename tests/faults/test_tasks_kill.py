"""kill -9 at random in a pool of processes that run tasks, while clients send and follow them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from keelbolt.storage import Entry, open_storage
from keelbolt.tasks import Envelope, Snapshot, TaskEngine
from keelbolt.testing.crash import POINTS
from tests.faults.conftest import Figures
from tests.faults.processes import Children
from tests.faults.task_pool import Pool
from tests.faults.task_verify import read_all, verify_tasks
from tests.faults.task_worker import SETTINGS, message

MEMBERS = 3
CLIENTS = 8


class Client:
    """Sends tasks, each twice at once, and follows each to its end."""

    def __init__(self, engine: TaskEngine, name: str) -> None:
        self.sent: dict[str, str] = {}  # message id → task id
        self.seen: dict[str, list[Entry]] = {}
        self._engine = engine
        self._name = name

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            message_id = f"{self._name}-{len(self.sent)}"
            wanted = message(message_id, f"work {message_id}")
            one, other = await asyncio.gather(
                *(self._engine.tasks.send(wanted, Envelope(key=message_id)) for _ in range(2))
            )
            task_id = one.task.record.task_id
            assert other.task.record.task_id == task_id, "one message made two tasks"
            assert {one.repeated, other.repeated} == {True, False}
            self.sent[message_id] = task_id
            await self.follow(task_id)

    async def follow(self, task_id: str) -> None:
        seen = self.seen.setdefault(task_id, [])
        dice = random.Random(task_id)
        while True:  # a reader that goes away now and then, and comes back with the last seq that it has
            leave_at = len(seen) + dice.randint(3, 30)
            async with contextlib.aclosing(self._engine.tasks.follow(task_id, after=len(seen))) as followed:
                async for event in followed:
                    assert not isinstance(event, Snapshot), "nothing was trimmed"
                    assert event.seq == len(seen) + 1, f"after {len(seen)} came {event.seq}"
                    seen.append(event)
                    if len(seen) == leave_at:
                        break
                else:
                    return


async def strike(pool: Pool, kills: int, crashes: list[str]) -> None:
    while pool.kills < kills or crashes:
        await pool.fill(MEMBERS, sends=4, crashes=crashes)
        await asyncio.sleep(pool.dice.uniform(0.05, 0.5))
        pool.kill_one()
    await pool.fill(MEMBERS)


@pytest.mark.timeout(1800)
async def test_every_task_ends_once_whoever_is_killed(
    tmp_path: Path, children: Children, figures: Figures, full: bool, task_url: str
) -> None:
    """Each task ends once; nothing acknowledged or shown is lost; no process writes after another took over; no
    recorded step is done again.
    """
    kills = 90 if full else 6
    pool = Pool(children, tmp_path, task_url, seed=kills)
    crashes = []
    if task_url.startswith("sqlite"):
        crashes = [f"{point}:{pool.dice.randint(1, 60)}" for point in POINTS for _ in range(4 if full else 0)]
    stop = asyncio.Event()
    async with open_storage(task_url) as kernel, TaskEngine(kernel, settings=SETTINGS) as engine:
        clients = [Client(engine, f"client-{number}") for number in range(CLIENTS)]
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(stop))
            await strike(pool, kills, crashes)
            stop.set()
        tasks = await own_tasks(engine, pool)
        tasks |= {task for client in clients for task in client.sent.values()}
        for client in clients:
            for message_id, task_id in client.sent.items():
                again = await engine.tasks.send(message(message_id, f"work {message_id}"), Envelope(key=message_id))
                assert again.task.record.task_id == task_id
        verdict = await verify_tasks(kernel, tasks, pool.notes())
        for client in clients:
            for task_id, seen in client.seen.items():
                stored = await read_all(kernel, task_id)
                same = [(each.kind, each.data) for each in seen] == [(each.kind, each.data) for each in stored]
                if not same:
                    verdict.wrong.append(f"task {task_id}: a reader saw something else than what is stored")
    figures(f"{kernel.engine}: kill -9 of task workers", kills=pool.kills, **verdict.numbers())
    verdict.assert_clean()
    assert verdict.tasks > pool.kills
    assert verdict.effects > 0


async def own_tasks(engine: TaskEngine, pool: Pool) -> set[str]:
    """The tasks that members sent themselves: sent again they are the same ones, acknowledged or not; all end."""
    known = {note["message"]: note["task"] for note in pool.notes("sent")}
    tasks = set()
    for note in pool.notes("sending"):
        again = await engine.tasks.send(message(note["message"], "work"), Envelope(key=note["message"]))
        task_id = again.task.record.task_id
        assert known.get(note["message"], task_id) == task_id
        await engine.tasks.settled(again)
        tasks.add(task_id)
    return tasks
