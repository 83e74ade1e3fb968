"""The client against servers of other projects, each in its own process and environment (peers.sh).

The tests cover every feature over every binding, and a stream that is cut after each of its events.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from keelbolt.client import A2AClient, Event, Message, Reconnect, Task, TaskNotFoundError, TaskState, text_of
from keelbolt.errors import KeelboltError, TaskNotCancelableError
from keelbolt.testing.proxy import Proxy

pytestmark = [pytest.mark.peers, pytest.mark.asyncio(loop_scope="module")]

HERE = Path(__file__)
VENVS = Path(sys.prefix) / "peers"
AGENTS = HERE.with_name("peers")

JSONRPC_1, REST_1, GRPC_1 = ("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("GRPC", "1.0")
JSONRPC_03, REST_03, GRPC_03 = ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"), ("GRPC", "0.3")
Spoken = tuple[str, str]

PEERS: dict[str, tuple[Spoken, ...]] = {
    "sdk_1": (JSONRPC_1, REST_1, GRPC_1, JSONRPC_03, REST_03),
    "sdk_03": (JSONRPC_03, REST_03, GRPC_03),
    "a2akit": (JSONRPC_03, REST_03),
    "fasta2a": (JSONRPC_1,),
    "apcore_a2a": (JSONRPC_1,),
}

NO_LIST = {"list": "MethodNotFoundError"}
LIMITS: dict[tuple[str, Spoken], dict[str, str]] = {
    ("sdk_1", JSONRPC_03): NO_LIST,
    ("sdk_1", REST_03): {"list": "VersionNotSupportedError", "delete push": "VersionNotSupportedError"},
    ("sdk_03", JSONRPC_03): NO_LIST,
    # It returns 500 for unimplemented operations, and has no path for the deletion.
    ("sdk_03", REST_03): {"list": "A2AServerError", "list push": "A2AServerError", "delete push": "A2AResponseError"},
    ("sdk_03", GRPC_03): dict.fromkeys(("list", "list push", "delete push"), "MethodNotFoundError"),
    # Unknown methods raise an error; it never returns a message without a task, and never continues a task.
    ("fasta2a", JSONRPC_1): {
        "message": "AssertionError",
        "list": "UnsupportedOperationError",
        "cancel twice": "AssertionError",
        **dict.fromkeys(("create push", "get push", "list push", "delete push"), "A2AResponseError"),
        "extended card": "A2AResponseError",
    },
    # Modules have an input and an output: no conversation, and only one card.
    ("apcore_a2a", JSONRPC_1): {
        **dict.fromkeys(("message", "question", "rejected", "files"), "AssertionError"),
        "extended card": "UnsupportedOperationError",
    },
}
"""Features that a peer does not support, and the error that the client raises."""


@dataclass(frozen=True)
class Peer:
    name: str
    port: int
    grpc_port: int

    async def card(self, port: int | None = None, grpc_port: int | None = None) -> dict[str, Any]:
        """Return the card with other ports."""
        async with A2AClient(f"http://127.0.0.1:{self.port}") as client:
            text = json.dumps(await client.discover())
        text = text.replace(f"127.0.0.1:{self.port}", f"127.0.0.1:{port or self.port}")
        found: dict[str, Any] = json.loads(text.replace(f":{self.grpc_port}", f":{grpc_port or self.grpc_port}"))
        return found

    def message(self, text: str) -> dict[str, Any]:
        """Return a message, or the input of a module, with the requested skill."""
        if self.name != "apcore_a2a":
            return {"message": text}
        word, *numbers = text.split()
        if word != "stream":
            return {"message": {"parts": [{"data": {"text": text}}]}, "skill": "echo"}
        count, pause = (*numbers, "0")[:2]
        return {"message": {"parts": [{"data": {"count": int(count), "pause": float(pause)}}]}, "skill": "count"}

    def chunks(self, count: int) -> list[Any]:
        if self.name != "apcore_a2a":
            return [f"{number} " for number in range(count)]
        return [{f"n{number}": number} for number in range(count)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def running(name: str) -> AsyncIterator[Peer]:
    python = VENVS / name / "bin/python"
    if not python.exists():
        pytest.skip(f"{python} is not there: sh tests/tools.sh makes it where the package index can be reached")
    for _ in range(5):
        peer = Peer(name, free_port(), free_port())
        url = f"http://127.0.0.1:{peer.port}"
        child = await asyncio.create_subprocess_exec(
            str(python),
            str(AGENTS / f"{name}_agent.py"),
            url,
            str(peer.port),
            str(peer.grpc_port),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            if await answers(peer, child):
                yield peer
                return
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
    raise AssertionError(f"{name} did not start")


async def answers(peer: Peer, child: asyncio.subprocess.Process) -> bool:
    """Return whether the peer serves its card; False if it ended, for example because its port was taken."""
    async with asyncio.timeout(120):
        while child.returncode is None:
            try:
                card = await peer.card()
            except KeelboltError:
                await asyncio.sleep(0.1)
            else:
                await asyncio.sleep(0.1)  # a program that could not bind has exited by now
                return child.returncode is None and bool(card["name"] == peer.name)
    return False


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PEERS)
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    async with running(request.param) as peer:
        yield peer


def values(event: Event) -> list[Any]:
    """Return the contents of an event's parts."""
    made = event.task.artifacts if event.task is not None else [event.artifact] if event.artifact is not None else []
    return [part.text if part.text is not None else part.data for artifact in made for part in artifact.parts]


def gathered(events: list[Event]) -> list[Any]:
    """Collect events as in the docs: a snapshot replaces earlier events, every other event is added."""
    found: list[Any] = []
    for event in events:
        if event.snapshot:
            found = values(event)
        elif event.artifact is not None:
            found += values(event)
    return found


def done(answer: Task | Message, state: TaskState = TaskState.completed) -> Task:
    assert isinstance(answer, Task)
    assert answer.status.state is state
    return answer


class Features:
    """The features tested over each binding of each peer; each method is a row of the table."""

    def __init__(self, peer: Peer, client: A2AClient) -> None:
        self.peer = peer
        self.client = client
        self.waiting = ""

    async def send(self, text: str = "Hello", **options: Any) -> Task | Message:
        return await self.client.send_message(**self.peer.message(text), **options)

    async def answer(self) -> None:
        task = done(await self.send())
        text = text_of(task) or values(Event(task))[0]["text"]
        assert text == "You said: Hello"

    async def message(self) -> None:
        answer = await self.send("say hi")
        assert isinstance(answer, Message)
        assert answer.text == "hi"

    async def stream(self) -> None:
        events = [event async for event in self.client.stream_message(**self.peer.message("stream 5"))]
        assert gathered(events) == self.peer.chunks(5)
        assert not any(event.snapshot for event in events)
        assert [event.last for event in events].index(True) == len(events) - 1
        assert events[-1].state is TaskState.completed

    async def question(self) -> None:
        events = [event async for event in self.client.stream_message(**self.peer.message("ask me"))]
        assert events[-1].state is TaskState.input_required
        assert events[-1].last
        last = events[-1]
        assert text_of(await self.client.get_task(str(last.task_id))) == "Which one?"
        answer = await self.client.send_message("blue", task_id=last.task_id, context_id=last.context_id)
        assert text_of(done(answer)) == "You said: blue"

    async def failed(self) -> None:
        assert text_of(done(await self.send("fail"), TaskState.failed))

    async def rejected(self) -> None:
        assert text_of(done(await self.send("reject"), TaskState.rejected)) == "It does not work."

    async def files(self) -> None:
        sent = {"parts": [{"text": "files"}, {"data": {"x": [1]}}]}
        task = done(await self.client.send_message(sent))
        parts = [part for made in task.artifacts for part in made.parts if part.text is None]
        assert [(part.kind, part.filename) for part in parts[:2]] == [("raw", "a.bin"), ("url", "f")]
        assert (parts[0].raw, parts[0].media_type) == (b"\x00\x01", "application/octet-stream")
        assert (parts[1].url, parts[2].data, parts[3].data) == ("https://example.com/f", {"n": 1}, {"x": [1]})

    async def get(self) -> None:
        task = done(await self.send())
        assert (await self.client.get_task(task.id)).status.state is TaskState.completed
        with pytest.raises(TaskNotFoundError):
            await self.client.get_task("unknown")

    async def list(self) -> None:
        task = done(await self.send())
        assert task.id in [each.id async for each in self.client.list_tasks(limit=2)]

    async def subscribe(self) -> None:
        task = await self.send("stream 6 0.05", return_immediately=True)
        assert isinstance(task, Task)
        events = [event async for event in self.client.subscribe(task.id)]
        assert events[0].snapshot
        assert gathered(events) == self.peer.chunks(6)
        assert events[-1].last
        over = [event async for event in self.client.subscribe(task.id)]
        assert [(event.snapshot, event.last) for event in over] == [(True, True)]

    async def create_push(self) -> None:
        task = await self.send("wait", return_immediately=True)
        assert isinstance(task, Task)
        self.waiting = task.id
        config = await self.client.create_push_config(task.id, {"id": "mine", "url": "https://example.com/hook"})
        assert config.id == "mine"

    async def get_push(self) -> None:
        assert (await self.client.get_push_config(self.waiting, "mine")).url == "https://example.com/hook"

    async def list_push(self) -> None:
        assert [each.id for each in await self.client.list_push_configs(self.waiting)] == ["mine"]

    async def delete_push(self) -> None:
        await self.client.delete_push_config(self.waiting, "mine")

    async def cancel(self) -> None:
        await self.client.cancel_task(self.waiting)
        async with asyncio.timeout(20):
            while not (task := await self.client.get_task(self.waiting)).status.state.terminal:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert task.status.state is TaskState.canceled

    async def cancel_twice(self) -> None:
        task = done(await self.send())
        try:
            answer = await self.client.cancel_task(task.id)
        except TaskNotCancelableError as error:
            assert error.task_id == task.id  # noqa: PT017
        else:
            raise AssertionError(f"it is {answer.status.state.name}")

    async def extended_card(self) -> None:
        assert (await self.client.get_extended_card())["name"]

    async def table(self) -> dict[str, str]:
        """Return each feature with "ok" or the name of its error."""
        found = {}
        for name, feature in vars(Features).items():
            if name.startswith("_") or name in ("send", "table"):
                continue
            tried: Callable[[Any], Awaitable[None]] = feature
            try:
                async with asyncio.timeout(60):
                    await tried(self)
            except (KeelboltError, AssertionError) as error:
                found[name.replace("_", " ")] = type(error).__name__
            else:
                found[name.replace("_", " ")] = "ok"
        return found


async def test_every_feature_over_every_binding(peer: Peer) -> None:
    unexpected: dict[tuple[Spoken, str], str] = {}
    for binding, version in PEERS[peer.name]:
        url = f"http://127.0.0.1:{peer.port}"
        async with A2AClient(url, bindings=[binding], versions=[version], timeout=20.0, retry_seconds=1.0) as client:
            table = await Features(peer, client).table()
        limits = LIMITS.get((peer.name, (binding, version)), {})
        unexpected |= {
            ((binding, version), feature): found
            for feature, found in table.items()
            if found != limits.get(feature, "ok")
        }
    assert unexpected == {}


async def test_the_interface_that_supports_an_operation_is_used() -> None:
    """Over REST the official 0.3 can't delete a push config, over JSON-RPC it can; the card offers both."""
    async with running("sdk_03") as peer:
        card = await peer.card()
        card["additionalInterfaces"] = [{"url": card["url"], "transport": "JSONRPC"}]
        card["preferredTransport"] = "HTTP+JSON"
        async with A2AClient(f"http://127.0.0.1:{peer.port}", card=card) as client:
            task = await client.send_message("wait", return_immediately=True)
            assert isinstance(task, Task)
            await client.create_push_config(task.id, {"id": "mine", "url": "https://example.com/hook"})
            await client.delete_push_config(task.id, "mine")
            await client.cancel_task(task.id)


async def test_a_break_after_any_event(peer: Peer) -> None:
    """For any last event before the break, the collected result is complete and without duplicates."""

    async def cut_after(count: int, spoken: Spoken, reconnects: list[Reconnect]) -> list[Event]:
        events: list[Event] = []
        async with Proxy("127.0.0.1", peer.port) as http, Proxy("127.0.0.1", peer.grpc_port) as grpc:
            card = await peer.card(http.port, grpc.port)
            options: dict[str, Any] = {"bindings": [spoken[0]], "versions": [spoken[1]], "card": card}
            url = f"http://127.0.0.1:{http.port}"
            async with A2AClient(url, on_reconnect=reconnects.append, **options) as client, asyncio.timeout(60):
                async for event in client.stream_message(**peer.message(f"stream {CHUNKS} 0.03")):
                    events.append(event)
                    if len(events) == count:
                        http.cut()
                        grpc.cut()
        return events

    for spoken in PEERS[peer.name]:
        positions = range(1, CHUNKS + 2)  # the first event is the task, the last one ends the stream
        reconnects: list[Reconnect] = []
        runs = await asyncio.gather(*(cut_after(count, spoken, reconnects) for count in positions))
        assert len(reconnects) >= CHUNKS // 2, spoken  # a break near the end may be too late
        for count, events in zip(positions, runs, strict=True):
            where = (spoken, count, [(type(event.value).__name__, event.id, event.snapshot) for event in events])
            assert gathered(events) == peer.chunks(CHUNKS), where
            assert events[-1].state is TaskState.completed, where
            assert [event.last for event in events].index(True) == len(events) - 1, where


CHUNKS = 6
