"""`ctx.relay` runs another agent's task as a durable step of this agent's task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keelbolt.client import A2AClient, Message, Part, Task, text_of
from keelbolt.errors import RelayFailed, StepFailed
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext, TaskSettings
from keelbolt.testing import WorkerHarness
from tests.integration.client.serving import official_agent, serving

CARD = AgentCardConfig(name="Other", description="Answers", capabilities=CapabilitiesConfig(streaming=True))
BINDINGS = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]


class Other:
    """The other agent: executes the first word of a message when the test allows it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.cancelled: list[str] = []
        self.begun: list[str] = []

    async def __call__(self, ctx: TaskContext) -> None:
        word = ctx.history[0].text if ctx.history else ctx.user_text
        if not ctx.history:
            self.begun.append(ctx.task_id)
        match word:
            case "count":
                for number in range(20):
                    await ctx.emit_text_artifact(f"{number} ", append=number > 0, last_chunk=number == 19)
                    if number == 9:
                        await self.wait(ctx)
                await ctx.complete()
            case "report":
                await ctx.send_status("halfway")
                await self.wait(ctx)
                await ctx.respond("all of it")
            case "say":
                await ctx.reply_directly("said")
            case "fail":
                await ctx.fail("It is broken.")
            case "wait":
                await self.wait(ctx)
                await ctx.complete("waited")
            case "login":
                if ctx.history:
                    await ctx.complete(f"logged in with {ctx.user_text}")
                else:
                    await ctx.request_auth("Who are you?")
            case _ if len(ctx.history) < 2:
                await ctx.emit_text_artifact("first ")
                await ctx.request_input("Which one?", data={"options": ["red", "blue"]})
            case _ if len(ctx.history) < 4:
                await ctx.emit_text_artifact("second ", append=True)
                await ctx.request_input("Really?")
            case _:
                words = [entry.text for entry in ctx.history if entry.role == "ROLE_USER"]
                await ctx.emit_text_artifact(f"{words[1]}, {ctx.user_text}", append=True, last_chunk=True)
                await ctx.complete()

    async def wait(self, ctx: TaskContext) -> None:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            if ctx.is_cancelled:
                self.cancelled.append(ctx.task_id)
            raise


@pytest.fixture
async def other() -> Other:
    return Other()


@pytest.fixture(params=BINDINGS, ids="-".join)
async def client(request: pytest.FixtureRequest, other: Other) -> AsyncIterator[A2AClient]:
    binding, version = request.param
    server = A2AServer(worker=other, agent_card=CARD)
    async with serving(server.app) as url, A2AClient(url, bindings=[binding], versions=[version]) as opened:
        yield opened


@pytest.fixture
async def one_client(other: Other) -> AsyncIterator[A2AClient]:
    async with serving(A2AServer(worker=other, agent_card=CARD).app) as url, A2AClient(url) as opened:
        yield opened


class Passing:
    """This agent's worker: relays its message and completes."""

    def __init__(self, client: A2AClient, **options: Any) -> None:
        self.client = client
        self.options = options
        self.answers: list[str] = []
        self.error: BaseException | None = None

    async def __call__(self, ctx: TaskContext) -> None:
        try:
            answer = await ctx.relay(self.client, ctx.message, **self.options)
        except (RelayFailed, StepFailed, TimeoutError) as error:
            self.error = error
            await ctx.fail(str(error))
            return
        self.answers.append(text_of(answer))
        await ctx.complete()


NUMBERS = "".join(f"{number} " for number in range(20))


async def test_the_stream_of_the_other_agent_becomes_ours(client: A2AClient) -> None:
    worker = Passing(client)
    async with WorkerHarness(worker) as agent:
        await agent.send("count")
        assert agent.artifacts == {"answer": NUMBERS}
        assert worker.answers == [NUMBERS]
        chunks = [body for kind, body in agent.events if kind == "artifact"]
        assert len(chunks) > 10  # chunk by chunk, and not at the end


async def test_statuses_and_a_response_without_artifacts_are_passed_on(client: A2AClient) -> None:
    async with WorkerHarness(Passing(client)) as agent:
        await agent.send("report")
        parts = [body["status"].get("message", {}).get("parts") for kind, body in agent.events if kind == "status"]
        assert [{"text": "halfway"}] in parts
        assert agent.artifacts == {"answer": "all of it"}


async def test_a_message_is_a_response(client: A2AClient) -> None:
    async with WorkerHarness(Passing(client)) as agent:
        await agent.send("say")
        assert agent.artifacts == {"answer": "said"}


async def test_its_questions_go_to_our_user_and_the_answers_to_the_same_task(client: A2AClient, other: Other) -> None:
    worker = Passing(client)
    async with WorkerHarness(worker) as agent:
        task = await agent.send("choose")
        assert agent.state == "input_required"
        assert agent.text == "Which one?"
        assert task.status.message is not None
        assert task.status.message.parts[1].data == {"options": ["red", "blue"]}
        await agent.answer("red")
        assert (agent.state, agent.text) == ("input_required", "Really?")
        await agent.answer("yes")
        assert agent.state == "completed"
        assert agent.artifacts == {"answer": "first second red, yes"}
        assert worker.answers == ["first second red, yes"]
    assert len(other.begun) == 1


async def test_a_login_request_is_passed_on_like_a_question(client: A2AClient) -> None:
    async with WorkerHarness(Passing(client)) as agent:
        await agent.send("login")
        assert (agent.state, agent.text) == ("auth_required", "Who are you?")
        await agent.answer("token")
        assert agent.artifacts == {"final-answer": "logged in with token"}


async def test_steps_before_the_question_are_not_repeated_and_the_message_stays(one_client: A2AClient) -> None:
    called: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        await ctx.step("prepare", called.append, ctx.user_text)
        await ctx.relay(one_client, "choose")
        await ctx.complete(ctx.user_text)

    async with WorkerHarness(worker) as agent:
        await agent.send("go")
        await agent.answer("red")
        await agent.answer("yes")
        assert agent.artifacts["final-answer"] == "go"
    assert called == ["go"]


@pytest.mark.parametrize("crashes", [1, 2])
async def test_a_repeated_attempt_continues_with_the_same_task(client: A2AClient, other: Other, crashes: int) -> None:
    other.go.clear()
    worker = Passing(client)
    async with WorkerHarness(worker) as agent:
        await agent.send("count", wait=False)
        await agent.until(lambda: agent.artifacts.get("answer", "").endswith("9 "))
        for _ in range(crashes):
            await agent.crash(wait=False)
        other.go.set()
        await agent.advance(0)
        assert agent.state == "completed"
        assert agent.artifacts == {"answer": NUMBERS}
        assert worker.answers[-1] == NUMBERS
        texts = [
            part["text"] for kind, body in agent.events if kind == "artifact" for part in body["artifact"]["parts"]
        ]
        assert "".join(texts) == NUMBERS  # nothing was written twice
    assert len(other.begun) == 1


async def test_a_message_sent_by_a_lost_attempt_creates_no_second_task(one_client: A2AClient, other: Other) -> None:
    """The process is killed after the message arrived, before the id of its task was recorded."""
    other.go.clear()
    worker = Passing(one_client)
    async with WorkerHarness(worker) as agent:
        original = one_client.stream_message

        async def silent(*args: Any, **options: Any) -> AsyncIterator[Any]:
            async for _ in original(*args, **options):
                await asyncio.sleep(3600)
                yield

        one_client.stream_message = silent  # type: ignore[assignment, method-assign]
        await agent.send("wait", wait=False)
        await agent.until(lambda: other.begun)
        one_client.stream_message = original  # type: ignore[method-assign]
        await agent.crash(wait=False)
        other.go.set()
        await agent.advance(0)
        assert agent.artifacts == {"final-answer": "waited"}
    assert len(other.begun) == 1


async def test_a_cancel_is_passed_on(client: A2AClient, other: Other) -> None:
    other.go.clear()
    async with WorkerHarness(Passing(client)) as agent:
        await agent.send("wait", wait=False)
        await agent.until(lambda: other.begun)
        await agent.until(lambda: any(body.get("result", {}).get("task") for _, body in agent.events if "step" in body))
        await agent.cancel()
        assert agent.state == "canceled"
    assert other.cancelled == other.begun


async def test_a_cancel_while_the_user_is_asked_is_passed_on(client: A2AClient, other: Other) -> None:
    async with WorkerHarness(Passing(client)) as agent:
        await agent.send("choose")
        assert agent.state == "input_required"
        await agent.cancel()
        assert agent.state == "canceled"
        assert (await client.get_task(other.begun[0])).status.state.name == "canceled"


async def test_a_cancel_that_the_lost_attempt_did_not_see_is_passed_on(one_client: A2AClient, other: Other) -> None:
    other.go.clear()
    async with WorkerHarness(Passing(one_client)) as agent:
        await agent.send("wait", wait=False)
        await agent.until(lambda: other.begun)
        await agent.until(lambda: any(body.get("result", {}).get("task") for _, body in agent.events if "step" in body))
        process = agent._process
        assert process is not None
        process.cut = True  # the process writes nothing more, and does not see the cancel
        cancelling = asyncio.create_task(agent.cancel())
        await asyncio.sleep(0.1)
        await agent.crash(wait=False)
        await cancelling
        assert agent.state == "canceled"
    assert other.cancelled == other.begun


async def test_a_failure_of_the_other_agent_raises(client: A2AClient) -> None:
    worker = Passing(client)
    async with WorkerHarness(worker) as agent:
        await agent.send("fail")
        assert agent.state == "failed"
    assert isinstance(worker.error, RelayFailed)
    assert worker.error.reason == "It is broken."


async def test_the_time_limit_cancels_the_other_agents_task(one_client: A2AClient, other: Other) -> None:
    other.go.clear()
    worker = Passing(one_client, seconds=0.3)
    async with WorkerHarness(worker) as agent:
        await agent.send("wait")
        assert agent.state == "failed"
        assert "did not complete its task within 0.3 s" in agent.text
    assert isinstance(worker.error, TimeoutError)
    assert other.cancelled == other.begun


async def test_a_response_is_recorded(one_client: A2AClient, other: Other) -> None:
    """After a lost attempt, the message is not sent to the other agent again; new text follows the recorded text."""
    answers: list[Task | Message] = []
    go = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        answers.append(await ctx.relay(one_client, "count"))
        await ctx.emit_text_artifact("checked", append=True)
        await ctx.step("hold", go.wait, idempotent=True)
        await ctx.complete()

    async with WorkerHarness(worker) as agent:
        await agent.send("go", wait=False)
        await agent.until(lambda: agent.artifacts.get("answer", "").endswith("checked"))
        await agent.crash(wait=False)
        go.set()
        await agent.advance(0)
        assert agent.artifacts == {"answer": f"{NUMBERS}checked"}
    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert len(other.begun) == 1


async def test_two_relays_of_one_turn_have_separate_artifacts(one_client: A2AClient) -> None:
    async def worker(ctx: TaskContext) -> None:
        first = await ctx.relay(one_client, "count", name="first")
        second = await ctx.relay(one_client, "count", name="second")
        assert text_of(first) == text_of(second) == NUMBERS
        await ctx.complete()

    async with WorkerHarness(worker) as agent:
        await agent.send("go")
        assert agent.artifacts == {"answer": NUMBERS, "answer-2": NUMBERS}


async def test_without_stream_only_the_response_is_returned(client: A2AClient) -> None:
    worker = Passing(client, stream=False)
    async with WorkerHarness(worker) as agent:
        await agent.send("count")
        assert agent.artifacts == {}
        assert worker.answers == [NUMBERS]
        await agent.send("choose")
        await agent.answer("red")
        await agent.answer("yes")
        assert worker.answers[-1] == "first second red, yes"


async def test_ids_of_our_own_task_are_not_sent(one_client: A2AClient) -> None:
    async with WorkerHarness(Passing(one_client)) as agent:
        await agent.send([Part(text="count")], context_id="ours")
        assert agent.artifacts == {"answer": NUMBERS}


async def test_the_other_agent_may_use_the_official_sdk() -> None:
    async with official_agent() as url, A2AClient(url) as client:
        worker = Passing(client)
        async with WorkerHarness(worker) as agent:
            await agent.send("stream 20 0.01")
            assert agent.artifacts["numbers"] == NUMBERS
            await agent.send("ask")
            assert (agent.state, agent.text) == ("input_required", "Which one?")
            await agent.answer("red")
            assert agent.state == "completed"
            assert worker.answers[-1] == "You said: red"
            await agent.send("stream 40 0.05", wait=False)
            await agent.until(lambda: "9 " in agent.artifacts.get("numbers", ""))
            await agent.crash()
            assert agent.artifacts["numbers"] == "".join(f"{number} " for number in range(40))


async def test_a_message_in_doubt_is_asked_about_where_repeats_are_not_recognised() -> None:
    """The process is killed while it sends the message to an agent that creates a second task for a repeat."""
    async with official_agent() as url, A2AClient(url) as client:
        worker = Passing(client)
        original = client.stream_message

        async def silent(*args: Any, **options: Any) -> AsyncIterator[Any]:
            await asyncio.sleep(3600)
            yield

        client.stream_message = silent  # type: ignore[assignment, method-assign]
        async with WorkerHarness(worker) as agent:
            await agent.send("stream 3", wait=False)
            await agent.until(lambda: any("~relay" in body.get("step", "") for _, body in agent.events))
            client.stream_message = original  # type: ignore[method-assign]
            await agent.crash()
            assert agent.state == "input_required"
            await agent.answer("retry")
            assert agent.state == "completed"
            assert agent.artifacts["numbers"] == "0 1 2 "


class Gated:
    """The other agent: emits a chunk for each permit, and statuses in between."""

    def __init__(self) -> None:
        self.permits = asyncio.Semaphore(0)
        self.tasks: set[str] = set()

    async def __call__(self, ctx: TaskContext) -> None:
        self.tasks.add(ctx.task_id)
        for number in range(12):
            await self.permits.acquire()
            if number % 3 == 2:
                await ctx.send_status(f"at {number}")
            await ctx.emit_text_artifact(f"{number} ", append=number > 0, last_chunk=number == 11)
        await ctx.complete()


def shows(agent: WorkerHarness, text: str) -> bool:
    return text in agent.artifacts.get("answer", "")


@pytest.mark.parametrize(("binding", "version"), BINDINGS)
async def test_a_process_that_is_lost_at_every_event_loses_and_repeats_nothing(binding: str, version: str) -> None:
    gated = Gated()
    server = A2AServer(worker=gated, agent_card=CARD)
    async with (
        serving(server.app) as url,
        A2AClient(url, bindings=[binding], versions=[version]) as client,
        WorkerHarness(Passing(client), max_attempts=50, seconds=30) as agent,
    ):
        await agent.send("go", wait=False)
        for number in range(12):
            gated.permits.release()
            await agent.until(partial(shows, agent, f"{number} "))
            if number < 11:
                await agent.crash(wait=False)
        await agent.advance(0)
        assert agent.state == "completed"
        chunks = [body["artifact"]["parts"] for kind, body in agent.events if kind == "artifact"]
        assert "".join(part["text"] for parts in chunks for part in parts) == "".join(f"{n} " for n in range(12))
        reports = [body["status"].get("message") for kind, body in agent.events if kind == "status"]
        texts = [message["parts"][0]["text"] for message in reports if message]
        assert texts == ["at 2", "at 5", "at 8", "at 11"]
    assert len(gated.tasks) == 1


async def test_a_lost_attempt_does_not_send_an_answer_twice(one_client: A2AClient, other: Other) -> None:
    """The process is killed after the user's answer reached the other agent, before that was recorded."""
    async with WorkerHarness(Passing(one_client)) as agent:
        await agent.send("choose")
        original = one_client.stream_message

        async def silent(*args: Any, **options: Any) -> AsyncIterator[Any]:
            async for _ in original(*args, **options):
                await asyncio.sleep(3600)
                yield

        one_client.stream_message = silent  # type: ignore[assignment, method-assign]
        await agent.answer("red", wait=False)
        async with asyncio.timeout(20):
            while "Really?" not in str((await one_client.get_task(other.begun[0])).status.message):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        one_client.stream_message = original  # type: ignore[method-assign]
        await agent.crash()
        assert (agent.state, agent.text) == ("input_required", "Really?")
        await agent.answer("yes")
        assert agent.artifacts == {"answer": "first second red, yes"}


async def test_a_relay_in_a_shielded_block_is_ended_by_its_caller(one_client: A2AClient, other: Other) -> None:
    """Adapters do this when their modules get a cancel by a token."""
    other.go.clear()

    async def worker(ctx: TaskContext) -> None:
        async with ctx.shielded(30):
            relaying = asyncio.create_task(ctx.relay(one_client, "wait", stream=False))
            cancelled = asyncio.create_task(ctx.cancelled())
            await asyncio.wait({relaying, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            relaying.cancel()
            await asyncio.wait({relaying})

    async with WorkerHarness(worker) as agent:
        await agent.send("go", wait=False)
        await agent.until(lambda: any((body.get("result") or {}).get("task") for _, body in agent.events))
        await agent.cancel()
        assert agent.state == "canceled"
    assert other.cancelled == other.begun


async def test_an_agent_that_does_not_stream_is_polled(other: Other) -> None:
    card = CARD.model_copy(update={"capabilities": CapabilitiesConfig(streaming=False)})
    async with (
        serving(A2AServer(worker=other, agent_card=card).app) as url,
        A2AClient(url, timeout=1) as client,
        WorkerHarness(Passing(client)) as agent,
    ):
        await agent.send("choose")
        assert (agent.state, agent.text) == ("input_required", "Which one?")
        await agent.answer("red")
        await agent.answer("yes")
        assert agent.artifacts == {"answer": "first second red, yes"}
        other.go.clear()
        await agent.send("wait", wait=False)
        await agent.until(lambda: len(other.begun) == 2)
        await asyncio.sleep(1.5)  # longer than a call of this client may take
        await agent.crash(wait=False)
        other.go.set()
        await agent.advance(0)
        assert agent.artifacts == {"final-answer": "waited"}
    assert len(other.begun) == 2


async def test_a_restarting_agent_is_waited_for(other: Other, tmp_path: Path) -> None:
    """Both processes are down for a while; the process of the relay restarts first."""
    other.go.clear()

    def server() -> A2AServer:
        settings = TaskSettings.of({}, drain_seconds=0.0)
        return A2AServer(
            worker=other, agent_card=CARD, storage=f"sqlite:///{tmp_path}/other.db", task_settings=settings
        )

    clients: list[A2AClient] = []

    async def worker(ctx: TaskContext) -> None:
        clients.append(A2AClient(url))  # a new process has not loaded the card
        await ctx.relay(clients[-1], ctx.message)
        await ctx.complete()

    async with AsyncExitStack() as stack:
        first = server()
        async with serving(first.app) as url:
            agent = await stack.enter_async_context(WorkerHarness(worker, seconds=60))
            await agent.send("count", wait=False)
            await agent.until(lambda: agent.artifacts.get("answer", "").endswith("9 "))
            first.drain()
        await agent.crash(wait=False)
        await asyncio.sleep(1)
        assert agent.state == "working"
        other.go.set()
        second = server()
        async with serving(second.app, int(url.rpartition(":")[2])):
            await agent.advance(0)
            assert agent.state == "completed"
            assert agent.artifacts == {"answer": NUMBERS}
            second.drain()
        for client in clients:
            await client.close()
    assert len(set(other.begun)) == 1
