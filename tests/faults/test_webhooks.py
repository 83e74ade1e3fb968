"""kill -9 of an agent between the commit of an event and its delivery to a webhook."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import httpx2
import pytest

from keelbolt.kernel import new_id, open_storage
from keelbolt.tasks import TaskEngine
from keelbolt.tasks.families import EVENTS, WEBHOOKS
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.webhooks.overview import webhook_page
from tests.faults.conftest import Figures
from tests.faults.processes import Child, Children
from tests.integration.tasks.stage import until
from tests.integration.webhooks.receiver import OK, Arrival, Receiver, receiving

LEASE = 1.0


class Agents:
    """Two processes on one storage; a killed one is replaced."""

    def __init__(self, children: Children, url: str) -> None:
        self._children = children
        self._url = url
        self.members: list[tuple[Child, str]] = []
        self.kills = 0

    async def start(self) -> str:
        child = self._children.start("webhook_server", self._url, LEASE, quiet=True)
        address = await asyncio.to_thread(child.line)
        self.members.append((child, address))
        return address

    async def kill(self, number: int) -> None:
        child, _ = self.members.pop(number)
        child.send(signal.SIGKILL)
        await asyncio.to_thread(child.wait)
        self.kills += 1


async def send(client: httpx2.AsyncClient, address: str, hook: str, config: str) -> None:
    """Send a task with this webhook. An agent that does not respond may still have accepted it."""
    body = {
        "message": {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": "go"}]},
        "configuration": {"returnImmediately": True, "taskPushNotificationConfig": {"url": hook, "id": config}},
    }
    with contextlib.suppress(httpx2.HTTPError):
        (await client.post(f"{address}/message:send", json=body)).raise_for_status()


async def check(url: str, receivers: dict[str, Receiver]) -> tuple[int, int]:
    """Check that every event of every task arrived at its webhook in order. Return the numbers of tasks and events."""
    tasks = events = 0
    async with open_storage(url) as kernel, TaskEngine(kernel):
        [scope] = [each async for each in kernel.scopes()]

        async def idle() -> bool:
            for state in ("waiting", "held"):
                if (await scope.list_work(WEBHOOKS, state=state)).items:
                    return False
            return True

        await until(idle, seconds=60)
        found, more = await webhook_page(scope, limit=10_000, cursor=None)
        assert more is None
        for webhook in found:
            entries = (await scope.read_log(EVENTS, webhook.task_id, limit=500)).entries
            wanted = [entry.seq for entry in entries if entry.kind in WIRE_KINDS]
            arrived = [
                arrival.seq
                for arrival in receivers[webhook.config_id].arrivals
                if arrival.id.startswith(f"{webhook.task_id}:")
            ]
            assert list(dict.fromkeys(arrived)) == wanted, webhook.task_id
            assert webhook.cursor.status == "active"
            tasks, events = tasks + 1, events + len(wanted)
    return tasks, events


async def settled(url: str) -> None:
    """Wait until every task is over."""
    async with open_storage(url) as kernel, TaskEngine(kernel):

        async def over() -> bool:
            found = [each async for each in kernel.scopes()]
            for scope in found:
                for state in ("waiting", "held"):
                    if (await scope.list_work("tasks", state=state)).items:
                        return False
            return bool(found)

        await until(over, seconds=90)


@pytest.mark.timeout(300)
async def test_an_agent_killed_between_a_commit_and_its_post(
    children: Children, figures: Figures, some_task_url: str
) -> None:
    """The receiver got the POST and did not respond: delivery is unknown, so the same POST is sent again."""
    reached = asyncio.Event()

    async def holding(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        if not reached.is_set():
            receiver.arrivals.append(arrival)
            reached.set()
            await asyncio.sleep(600)
        return OK

    async with receiving(holding) as receiver, httpx2.AsyncClient(timeout=10) as client:
        agents = Agents(children, some_task_url)
        await send(client, await agents.start(), receiver.url, "fine")
        await asyncio.wait_for(reached.wait(), 30)
        await settled(some_task_url)  # all events are committed, and only the first was posted
        await agents.kill(0)
        await agents.start()
        tasks, events = await check(some_task_url, {"fine": receiver})
    assert tasks == 1
    assert len(receiver.arrivals) == events + 1
    first, again = receiver.arrivals[:2]
    assert (first.id, first.body) == (again.id, again.body)
    figures("webhook, agent killed before its POST was answered", events=events, repeats=1)
