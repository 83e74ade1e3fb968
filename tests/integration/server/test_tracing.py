"""Traces: from the request through the turn to its steps, also when another process runs the task."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from keelbolt.observability.tracing import Tracing
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext, TaskEngine, TaskSettings
from tests.integration.server.serving import served, talking
from tests.integration.webhooks.receiver import receiving

CARD = AgentCardConfig(name="Traced", description="Traced", capabilities=CapabilitiesConfig(streaming=True))
CALLERS_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = {"traceparent": f"00-{CALLERS_TRACE}-00f067aa0ba902b7-01"}


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """The ended spans of a tracer for this test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    exporter.provider = provider  # type: ignore[attr-defined]
    yield exporter
    provider.shutdown()


def tracing(spans: InMemorySpanExporter) -> Tracing:
    return Tracing(spans.provider.get_tracer("test"))  # type: ignore[attr-defined]


async def pages() -> int:
    return 3


async def worker(ctx: TaskContext) -> None:
    await ctx.step("fetch", pages)
    await ctx.complete("done")


def agent(spans: InMemorySpanExporter, **more: Any) -> A2AServer:
    server = A2AServer(settings=ServerSettings.of({}), **{"worker": worker, "agent_card": CARD, **more})
    server.tracing = tracing(spans)
    return server


def message(message_id: str = "1") -> dict[str, Any]:
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "go"}]}}


async def ended(spans: InMemorySpanExporter, *names: str) -> dict[str, ReadableSpan]:
    """Return the spans by name, once all of these have ended."""
    async with asyncio.timeout(20):
        while True:
            found = {span.name: span for span in spans.get_finished_spans()}
            if set(names) <= set(found):
                return found
            await asyncio.sleep(0.01)


def parent_id(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def checked(found: dict[str, ReadableSpan], request: str) -> None:
    """Check that the request contains the turn and the turn its step, in the caller's trace."""
    outer, turn, step = found[request], found["keelbolt.turn"], found["keelbolt.step fetch"]
    assert outer.kind is trace.SpanKind.SERVER
    assert f"{outer.context.trace_id:032x}" == CALLERS_TRACE
    assert f"{parent_id(outer):016x}" == "00f067aa0ba902b7"
    assert outer.context.trace_id == turn.context.trace_id == step.context.trace_id
    assert parent_id(turn) == outer.context.span_id
    assert parent_id(step) == turn.context.span_id


@pytest.mark.parametrize(
    ("path", "request_name"), [("/message:send", "a2a.SendMessage"), ("/message:stream", "a2a.SendStreamingMessage")]
)
async def test_a_request_a_turn_and_its_step_are_one_trace(
    spans: InMemorySpanExporter, path: str, request_name: str
) -> None:
    async with talking(agent(spans)) as client:
        answer = await client.post(path, json=message(), headers=TRACEPARENT)
        assert answer.status_code == 200
        found = await ended(spans, request_name, "keelbolt.turn", "keelbolt.step fetch")
    checked(found, request_name)
    attributes = found["keelbolt.turn"].attributes or {}
    assert set(attributes) == {"keelbolt.task", "keelbolt.attempt"}
    assert attributes["keelbolt.attempt"] == 1


async def test_a_request_without_a_trace_begins_one(spans: InMemorySpanExporter) -> None:
    async with talking(agent(spans)) as client:
        for number in ("1", "2"):
            await client.post("/message:send", json=message(number))
    roots = [span for span in spans.get_finished_spans() if span.name == "a2a.SendMessage"]
    assert [span.parent for span in roots] == [None, None]
    assert roots[0].context.trace_id != roots[1].context.trace_id


async def test_another_engine_continues_the_trace(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    """The server accepts the message and has no worker; the trace is stored with the turn."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with served(agent(spans, storage=url, worker=None)) as address:
        async with httpx2.AsyncClient(base_url=address) as client:
            body = {**message(), "configuration": {"returnImmediately": True}}
            answer = await client.post("/message:send", json=body, headers=TRACEPARENT)
            task_id = answer.json()["task"]["id"]
        await ended(spans, "a2a.SendMessage")
    assert len(spans.get_finished_spans()) == 1

    async with TaskEngine.on(url, worker, tracing=tracing(spans)):
        found = await ended(spans, "keelbolt.turn", "keelbolt.step fetch")
    checked(found, "a2a.SendMessage")
    assert (found["keelbolt.turn"].attributes or {})["keelbolt.task"] == task_id


async def test_a_turn_that_is_run_again_belongs_to_the_same_trace(spans: InMemorySpanExporter) -> None:
    """The trace also continues after a sleep outside of the process; the recorded step is not executed again."""

    async def sleeper(ctx: TaskContext) -> None:
        await ctx.step("fetch", pages)
        await ctx.sleep(0.05)
        await ctx.complete("done")

    server = agent(spans, worker=sleeper, task_settings=TaskSettings.of({}, sleep_hold_seconds=0))
    async with talking(server) as client:
        await client.post("/message:send", json=message(), headers=TRACEPARENT)
        async with asyncio.timeout(20):
            while sum(span.name == "keelbolt.turn" for span in spans.get_finished_spans()) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finished = spans.get_finished_spans()
    assert {f"{span.context.trace_id:032x}" for span in finished} == {CALLERS_TRACE}


async def test_failures_are_marked(spans: InMemorySpanExporter) -> None:
    async with talking(agent(spans)) as client:
        assert (await client.get("/tasks/nothing")).status_code == 404
        found = await ended(spans, "a2a.GetTask")
    assert found["a2a.GetTask"].status.status_code is trace.StatusCode.ERROR


async def test_a_worker_can_trace_within_its_turn(spans: InMemorySpanExporter) -> None:
    """The span of the turn is current, so the spans of libraries belong to it."""
    seen: list[bool] = []

    async def looks(ctx: TaskContext) -> None:
        seen.append(trace.get_current_span().get_span_context().is_valid)
        await ctx.complete("done")

    async with talking(agent(spans, worker=looks)) as client:
        await client.post("/message:send", json=message())
    assert seen == [True]


def test_when_off_nothing_is_imported() -> None:
    """Neither the start nor a task imports anything of OpenTelemetry, not even its API."""
    program = """
import asyncio, sys
from keelbolt import A2AServer, AgentCardConfig, Message, Part, Role, TaskContext

async def step():
    return 1

async def worker(ctx: TaskContext):
    await ctx.step("one", step)
    await ctx.complete("done")

async def main():
    async with A2AServer(worker=worker, agent_card=AgentCardConfig(name="Off", description="Off")) as server:
        tasks = server.routes.service.tasks
        sent = await tasks.send(Message(message_id="1", role=Role.user, parts=[Part(text="go")]))
        assert (await tasks.settled(sent)).state.name == "completed"
        assert server.tracing is None

asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


def test_it_is_switched_on_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEELBOLT_TRACING", raising=False)
    assert A2AServer(worker=worker, agent_card=CARD).tracing is None
    monkeypatch.setenv("KEELBOLT_TRACING", "1")
    assert A2AServer(worker=worker, agent_card=CARD).tracing is not None
    assert A2AServer(worker=worker, agent_card=CARD, tracing=False).tracing is None


async def test_a_delivery_to_a_webhook_continues_the_trace(spans: InMemorySpanExporter) -> None:
    """Each delivery has its own span in the trace of the request, and sends the trace to its receiver."""
    can = CapabilitiesConfig(push_notifications=True)
    server = agent(spans, agent_card=CARD.model_copy(update={"capabilities": can}))
    server.settings = ServerSettings.of({}, webhook_loopback=True)
    async with receiving() as receiver, talking(server) as client:
        params = {**message(), "configuration": {"taskPushNotificationConfig": {"url": receiver.url, "id": "mine"}}}
        answer = await client.post("/message:send", json=params, headers=TRACEPARENT)
        assert answer.status_code == 200
        found = await ended(spans, "a2a.SendMessage", "keelbolt.webhook")
        async with asyncio.timeout(20):
            while b"COMPLETED" not in b"".join(arrival.body for arrival in receiver.arrivals):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    request = found["a2a.SendMessage"]
    deliveries = [span for span in spans.get_finished_spans() if span.name == "keelbolt.webhook"]
    assert all(span.kind is trace.SpanKind.CLIENT for span in deliveries)
    assert {parent_id(span) for span in deliveries} == {request.context.span_id}
    sent = {f"00-{CALLERS_TRACE}-{span.context.span_id:016x}-01" for span in deliveries}
    assert {arrival.headers["traceparent"] for arrival in receiver.arrivals} <= sent
