"""A request leaves nothing to the garbage collector: what it used is freed when it ends.

Objects in reference cycles stay until a full collection, for up to an hour at a low rate: memory grows until then.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import httpx2
import pytest

from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext, Worker
from keelbolt.testing.model import ScriptedModel, call
from keelbolt.turns import CallRequest, ModelRequest, TurnWorker, chat_executor, durable_storage, tool, turn_worker
from keelbolt.turns import worker as turns
from tests.integration.server.serving import talking
from tests.integration.server.test_streams import until
from tests.integration.webhooks.receiver import Receiver, receiving

TIMES = 20
Act = Callable[[], Awaitable[object]]


class Hands(Worker):
    async def handle(self, ctx: TaskContext) -> None:
        match ctx.user_text:
            case "work":
                await ctx.emit_text_artifact("first")
                await ctx.step("step", self._effect)
                await ctx.complete("done")
            case "ask":
                await ctx.request_input("how many?")
            case "wait":
                await asyncio.sleep(30)
            case "fail":
                raise ValueError
            case _:
                await ctx.respond(ctx.user_text)

    async def _effect(self) -> int:
        await asyncio.sleep(0)
        return 1


@tool(needs_approval="May I pay?")
async def pay() -> str:
    """Pay."""
    return "paid"


class Model(ScriptedModel):
    """Calls the tool, then answers."""

    def __init__(self) -> None:
        super().__init__(self._decide)

    def _decide(self, request: ModelRequest) -> str | CallRequest:
        self.requests.clear()
        return "It is paid." if request.messages[-1].role == "tool" else call("pay")


def clerk(url: str) -> TurnWorker:
    """A worker whose turns ask before they pay."""
    storage = durable_storage(url)
    runner = storage.runner(executor_callback=chat_executor(Model(), tools=[pay]))
    return turn_worker(runner, storage, system_prompt="Pay.")


class Acts:
    """Requests of one client."""

    def __init__(self, client: httpx2.AsyncClient, receiver: Receiver) -> None:
        self._client = client
        self._receiver = receiver
        self._numbers = count()

    async def _send(self, text: str, *, key: str = "", task_id: str = "", hook: str = "", wait: bool = True) -> str:
        message = {
            "messageId": key or f"m{next(self._numbers)}",
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            **({"taskId": task_id} if task_id else {}),
        }
        configuration = {
            "returnImmediately": not wait,
            **({"taskPushNotificationConfig": {"url": hook}} if hook else {}),
        }
        headers = {"Idempotency-Key": key} if key else {}
        asked = {"message": message, "configuration": configuration}
        response = await self._client.post("/message:send", json=asked, headers=headers)
        return str(response.raise_for_status().json()["task"]["id"])

    async def echo(self) -> None:
        await self._send("hello")

    async def work(self) -> None:
        await self._send("work")

    async def fail(self) -> None:
        await self._send("fail")

    async def repeat(self) -> None:
        key = f"r{next(self._numbers)}"
        assert await self._send("hello", key=key) == await self._send("hello", key=key)

    async def ask(self) -> None:
        await self._send("answer", task_id=await self._send("ask"))

    async def cancel(self) -> None:
        task_id = await self._send("wait", wait=False)
        (await self._client.post(f"/tasks/{task_id}:cancel", json={})).raise_for_status()

    async def stream(self) -> None:
        await self._stream("work", 1000)

    async def drop(self) -> None:
        await self._stream("wait", 1)

    async def _stream(self, text: str, lines: int) -> None:
        message = {"messageId": f"m{next(self._numbers)}", "role": "ROLE_USER", "parts": [{"text": text}]}
        async with self._client.stream("POST", "/message:stream", json={"message": message}) as response:
            async for _ in response.aiter_lines():
                lines -= 1
                if lines == 0:
                    return

    async def turn(self) -> None:
        await self._send("yes", task_id=await self._send("pay"))

    async def park(self) -> None:
        await self._send("pay")
        await asyncio.sleep(0.1)  # the turn waits for an answer in memory until its time is over

    async def hook(self) -> None:
        expected = len(self._receiver.arrivals) + 2
        await self._send("hello", hook=f"http://127.0.0.1:{self._receiver.port}/")
        await until(lambda: len(self._receiver.arrivals) >= expected)


@pytest.fixture
def saved() -> Iterator[Callable[[], list[object]]]:
    """Keeps what only the garbage collector frees; the function returns it."""

    def collect() -> list[object]:
        gc.collect()
        found = list(gc.garbage)
        gc.garbage.clear()
        return found

    collect()
    gc.freeze()  # earlier objects don't slow down the collections
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield collect
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    gc.enable()


@pytest.mark.parametrize(
    "kind", ["echo", "work", "fail", "repeat", "ask", "cancel", "stream", "drop", "hook", "turn", "park"]
)
async def test_requests_leave_no_cycles(
    url: str, kind: str, saved: Callable[[], list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "park":
        monkeypatch.setattr(turns, "PARKED_SECONDS", 0.05)
    server = A2AServer(
        worker=clerk(url) if kind in ("turn", "park") else Hands(),
        agent_card=AgentCardConfig(
            name="Hands",
            description="Does what its message says",
            version="1",
            capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
        ),
        storage=url,
        settings=ServerSettings.of({}, webhook_loopback=True),
    )
    async with receiving() as receiver, talking(server) as client:
        client.headers["A2A-Version"] = "1.0"
        act: Act = getattr(Acts(client, receiver), kind)
        for _ in range(3):
            await act()
        await asyncio.sleep(0.2)
        saved()
        for _ in range(TIMES):
            await act()
        await asyncio.sleep(0.2)  # the last run, stream and delivery end
        left = Counter(type(each).__qualname__ for each in saved() if type(each).__module__.startswith("keelbolt"))
        often = {name: number for name, number in left.items() if number >= TIMES / 2}
        assert not often
