"""Client operations on tasks: send, get, wait, answer; the same on every engine, from any process."""

from __future__ import annotations

import asyncio
import json

import pytest

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import (
    ContextMismatchError,
    IdempotencyKeyReused,
    InvalidTaskRequest,
    MessageReused,
    StorageBusy,
    TaskNotAcceptingMessagesError,
    TaskNotFoundError,
    TaskTerminalStateError,
)
from keelbolt.kernel import Delete, Query
from keelbolt.protocol.types import Message, Part, Role, TaskState
from keelbolt.tasks import Envelope, TaskContext
from keelbolt.tasks.families import QUEUE, SENDS, TASKS
from keelbolt.tasks.sweep import erase_task
from tests.integration.tasks.stage import Stage, answer, ask, log, look, message, one_end, state_of, states, until

ADA = Principal(owner="ada")


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(f"You said: {ctx.user_text}")


async def talk(ctx: TaskContext) -> None:
    """Asks until the user sends "bye"."""
    await ctx.emit_text_artifact(f"{len(ctx.history)} before", artifact_id=f"turn-{ctx.user_text}")
    if ctx.user_text == "bye":
        await ctx.respond(f"received {', '.join(entry.text for entry in ctx.history)}")
    elif ctx.user_text == "log in":
        await ctx.request_auth("please", schemes=["oauth2"], auth_url="https://example.org")
    else:
        await ctx.request_input(f"{ctx.user_text}?")


async def test_echo(stage: Stage) -> None:
    """A message creates a task, the worker responds, and the log has the events in order with one end."""
    engine = await stage.engine(echo)
    task = await ask(engine, "Hello")
    assert task.status.state is TaskState.completed
    assert [artifact.parts[0].text for artifact in task.artifacts] == ["You said: Hello"]
    assert [entry.text for entry in task.history] == ["Hello"]
    assert await states(engine, task.id) == ["submitted", "working", "completed"]
    assert await one_end(engine, task.id) is TaskState.completed


async def test_without_a_free_slot_the_task_waits(stage: Stage) -> None:
    """A process without a free slot accepts the message; the task runs when a slot is free."""
    gate = asyncio.Event()

    async def slow(ctx: TaskContext) -> None:
        await gate.wait()
        await ctx.complete()

    engine = await stage.engine(slow, concurrency=1)
    sent = [await engine.tasks.send(message(str(number))) for number in range(4)]
    assert [one.run is not None for one in sent] == [True, False, False, False]
    assert await state_of(engine, sent[3].task.record.task_id) is TaskState.submitted
    gate.set()
    for one in sent:
        assert (await answer(engine, one)).status.state is TaskState.completed
        assert await one_end(engine, one.task.record.task_id) is TaskState.completed


async def test_a_process_without_a_worker(stage: Stage) -> None:
    """One process accepts messages and another one works; the first process gets the result."""
    front = await stage.engine()
    sent = await front.tasks.send(message("over there"))
    assert sent.run is None
    assert (await front.tasks.settled(sent, seconds=0.05)).view.state is TaskState.submitted
    await stage.engine(echo)
    assert (await answer(front, sent)).artifacts[0].parts[0].text == "You said: over there"


async def test_a_conversation(stage: Stage) -> None:
    """A paused task is answered turn by turn; each turn has the earlier messages and artifacts."""
    engine = await stage.engine(talk)
    task = await ask(engine, "one")
    assert task.status.state is TaskState.input_required
    assert task.status.message is not None
    assert task.status.message.text == "one?"
    task = await ask(engine, "log in", task_id=task.id)
    assert task.status.state is TaskState.auth_required
    assert task.status.message is not None
    assert task.status.message.parts[1].data == {"schemes": ["oauth2"], "authUrl": "https://example.org"}
    task = await ask(engine, "bye", task_id=task.id, context_id=task.context_id)
    assert task.status.state is TaskState.completed
    assert task.status.message is not None
    assert task.status.message.text == "received one, one?, log in, please"
    assert [entry.text.split(",")[0] for entry in task.history] == [
        "one",
        "one?",
        "log in",
        "please",
        "bye",
        "received one",
    ]
    assert [artifact.artifact_id for artifact in task.artifacts] == ["turn-one", "turn-log in", "turn-bye"]
    turn = ["submitted", "working"]
    assert await states(engine, task.id) == [*turn, "input_required", *turn, "auth_required", *turn, "completed"]
    assert await one_end(engine, task.id) is TaskState.completed


async def test_a_conversation_between_processes(stage: Stage) -> None:
    """Each turn may run in another process, also after the previous process has ended."""
    first = await stage.engine(talk)
    task = await ask(first, "one")
    await stage.crash(first)
    second = await stage.engine(talk)
    task = await ask(second, "two", task_id=task.id)
    third = await stage.engine()  # accepts the message, has no worker
    task = await ask(third, "bye", task_id=task.id)
    assert task.status.message is not None
    assert task.status.message.text == "received one, one?, two, two?"


async def test_a_long_history(stage: Stage) -> None:
    """After many turns with long messages the history is complete and in order, and its last part can be requested."""
    engine = await stage.engine(talk)
    words = "x" * 3000
    task = await ask(engine, f"0{words}")
    for number in range(1, 24):
        task = await ask(engine, f"{number}{words}", task_id=task.id)
    assert [entry.text.removesuffix("?") for entry in task.history] == [
        f"{number}{words}" for number in range(24) for _ in (0, 1)
    ]
    for length in (0, 1, 5, 40, 48, 100):
        some = await look(engine, task.id, history_length=length)
        assert some.history == (task.history[-length:] if length else [])
    assert (await look(engine, task.id, include_artifacts=False)).artifacts == []


# ------------------------------------------------------------------------------------------------------------ repeats


async def test_fifty_identical_sends(stage: Stage) -> None:
    """Fifty equal concurrent messages from two processes create one task and one run, and get fifty equal responses."""
    runs = []

    async def once(ctx: TaskContext) -> None:
        runs.append(ctx.task_id)
        await asyncio.sleep(0.02)
        await ctx.complete("answer")

    engines = [await stage.engine(once), await stage.engine(once)]
    same, keyed = message("the same"), Envelope(key="k")

    async def send(number: int) -> str:
        engine = engines[number % 2]
        sent = await engine.tasks.send(same, keyed)
        return (await answer(engine, sent)).model_dump_json()

    answers = await asyncio.gather(*map(send, range(50)))
    assert len(set(answers)) == 1
    assert len(runs) == 1
    late = await engines[1].tasks.send(same, keyed)
    assert late.repeated
    assert (await answer(engines[1], late)).model_dump_json() == answers[0]
    assert await one_end(engines[0], runs[0]) is TaskState.completed


async def test_a_repeated_answer(stage: Stage) -> None:
    """The answer to a paused task, sent ten times concurrently, creates one turn, and is still recognised later."""
    engine = await stage.engine(talk)
    task = await ask(engine, "one")
    same, keyed = message("bye", task_id=task.id), Envelope(key="k")

    async def send() -> str:
        return (await answer(engine, await engine.tasks.send(same, keyed))).model_dump_json()

    answers = await asyncio.gather(*(send() for _ in range(10)))
    assert len(set(answers)) == 1
    assert (await states(engine, task.id)).count("working") == 2
    assert (await engine.tasks.send(same, keyed)).repeated  # although the task has ended


async def test_the_same_id_with_another_body(stage: Stage) -> None:
    """With repeated_send="same", reusing a message id for another message is an error and changes nothing."""
    engine = await stage.engine(talk, repeated_send="same")
    task = await ask(engine, "one", message_id="m")
    before = len(await log(engine, task.id))
    for other in (message("two", message_id="m"), message("two", message_id="m", task_id=task.id)):
        with pytest.raises(MessageReused):
            await engine.tasks.send(other)
    assert len(await log(engine, task.id)) == before


async def test_an_anonymous_message_id_is_not_a_key(stage: Stage) -> None:
    """Two anonymous clients that both count from 1 don't collide: each message is a task."""
    engine = await stage.engine(echo)
    same = message("the same", message_id="1")
    sent = [await engine.tasks.send(same) for _ in range(2)]
    assert sent[0].task.record.task_id != sent[1].task.record.task_id
    assert not any(one.repeated for one in sent)


async def test_an_authenticated_caller_repeats_by_content(stage: Stage) -> None:
    """Messages with equal id, context, task and body create one task. The same id with other content is no repeat."""
    engine = await stage.engine(talk)
    first = await ask(engine, "one", who=ADA, message_id="m")
    again = await engine.tasks.send(message("one", message_id="m"), Envelope(ADA))
    assert (again.repeated, again.task.record.task_id) == (True, first.id)
    others = [message("two", message_id="m"), message("one", message_id="m", context_id=first.context_id)]
    sent = [await engine.tasks.send(other, Envelope(ADA)) for other in others]
    assert len({first.id, *(one.task.record.task_id for one in sent)}) == 3
    follow_up = await engine.tasks.send(message("one", message_id="m", task_id=first.id), Envelope(ADA))
    assert (follow_up.repeated, follow_up.task.record.task_id) == (False, first.id)


@pytest.mark.parametrize("who", [ANONYMOUS, Principal(owner="ada")], ids=["anonymous", "known"])
async def test_an_idempotency_key_with_another_message(stage: Stage, who: Principal) -> None:
    """This raises an error and changes nothing, for new and continued tasks. Keys of different owners don't collide."""
    engine = await stage.engine(talk)
    sent = await engine.tasks.send(message("one"), Envelope(who, key="k"))
    task = await answer(engine, sent)
    before = len(await log(engine, task.id, who.partition))
    for other in (message("two"), message("two", task_id=task.id)):
        with pytest.raises(IdempotencyKeyReused):
            await engine.tasks.send(other, Envelope(who, key="k"))
    assert len(await log(engine, task.id, who.partition)) == before
    bob = await engine.tasks.send(message("three"), Envelope(Principal(owner="bob"), key="k"))
    assert bob.task.record.task_id != task.id


async def test_an_erased_task_frees_its_keys(stage: Stage) -> None:
    """Once the task is erased, its keys and messages create new tasks."""
    engine = await stage.engine(talk)
    first, follow = message("one"), message("bye")
    task = await answer(engine, await engine.tasks.send(first, Envelope(ADA, key="k")))
    follow = follow.model_copy(update={"task_id": task.id})
    await answer(engine, await engine.tasks.send(follow, Envelope(ADA, key="l")))
    assert await erase_task(engine.store, engine.tasks.scope(ADA), task.id)
    query = Query(SENDS, {"task": task.id})
    assert (await engine.kernel.find(ADA.partition, query)).records == ()
    again = await engine.tasks.send(first, Envelope(ADA, key="k"))
    assert (again.repeated, again.task.record.task_id == task.id) == (False, False)


async def test_a_task_that_is_being_erased(stage: Stage) -> None:
    """An erasure removes the task before the keys of its messages. A message that comes between is not refused."""
    engine = await stage.engine(talk)
    first, keyed = message("one"), Envelope(ADA, key="k")
    task = await answer(engine, await engine.tasks.send(first, keyed))
    await engine.tasks.scope(ADA).commit(Delete(TASKS, task.id))
    with pytest.raises(StorageBusy, match="send the message again"):
        await engine.tasks.send(first, keyed)


async def test_the_same_id_of_another_owner(stage: Stage) -> None:
    """Message ids of different owners are independent."""
    engine = await stage.engine(echo)
    tasks = [await ask(engine, who, who=Principal(owner=who), message_id="m") for who in ("alice", "bob")]
    assert tasks[0].id != tasks[1].id


async def test_each_of_many_answers_is_taken_once(stage: Stage) -> None:
    """Each of many concurrent answers to a paused task is taken once, none is lost, and the log stays in order."""
    received = []

    async def worker(ctx: TaskContext) -> None:
        received.append(ctx.user_text)
        await asyncio.sleep(0.01)
        await ctx.request_input("more?")

    engine = await stage.engine(worker)
    task = await ask(engine, "start")
    sends = [engine.tasks.send(message(f"answer-{number}", task_id=task.id)) for number in range(5)]
    sent = await asyncio.gather(*sends)
    await asyncio.gather(*(engine.tasks.settled(one, seconds=10.0) for one in sent))
    await until(lambda: len(received) == 6)
    assert sorted(received[1:]) == [f"answer-{number}" for number in range(5)]
    await log(engine, task.id)


# ----------------------------------------------------------------------------------------------------------- bad input


async def test_invalid_messages(stage: Stage) -> None:
    """Each invalid message raises its typed error and stores nothing."""
    engine = await stage.engine(talk)
    task = await ask(engine, "one")
    ended = await ask(engine, "bye")
    before = len(await log(engine, task.id))
    wrong = [
        (message(role_error := "x").model_copy(update={"role": Role.agent}), InvalidTaskRequest),
        (message(parts=[]), InvalidTaskRequest),
        (message("to no task", task_id="unknown"), TaskNotFoundError),
        (message("to no task", task_id="n\x00body"), TaskNotFoundError),
        (message("to no task", task_id="n" * 5000), TaskNotFoundError),
        (message("", task_id=""), InvalidTaskRequest),
        (message("foreign", task_id=task.id, context_id="foreign"), ContextMismatchError),
        (message("too late", task_id=ended.id), TaskTerminalStateError),
        (message(parts=[Part(raw=b"x" * 17_000_000)]), InvalidTaskRequest),
        (message(parts=[Part(data={"x": object()})]), InvalidTaskRequest),
        (message(parts=[Part.model_construct({"text"}, text="\ud800")]), InvalidTaskRequest),
        (message("x", metadata={"x": "\ud800"}), InvalidTaskRequest),
        (message("x", metadata={"x": json.loads("[" * 210 + "]" * 210)}), InvalidTaskRequest),
        (message("x", context_id="c" * 100_000), InvalidTaskRequest),
        (message("x", context_id="c\x00"), InvalidTaskRequest),
    ]
    assert role_error
    for bad, error in wrong:
        with pytest.raises(error):
            await engine.tasks.send(bad)
    assert len(await log(engine, task.id)) == before
    assert (await ask(engine, "bye", task_id=task.id)).status.state is TaskState.completed


async def test_unusual_ids_are_accepted(stage: Stage) -> None:
    """Clients choose message ids: long or unusual ids work, and repeats are recognised."""
    engine = await stage.engine(echo)
    for message_id in ("x" * 5000, "\x00\n", "~", "ü/../", " ", "\U0001f600"):
        one = message("x", message_id=message_id)
        first = await engine.tasks.send(one, Envelope(ADA))
        again = await engine.tasks.send(one, Envelope(ADA))
        assert again.repeated
        assert again.task.record.task_id == first.task.record.task_id
        assert (await answer(engine, first)).history[0].message_id == message_id


async def test_the_input_is_not_changed(memory: Stage) -> None:
    """The sent message object is not modified."""
    engine = await memory.engine(echo)
    sent = message("Hello")
    before = sent.model_copy(deep=True)
    await ask(engine, "x")
    await engine.tasks.send(sent)
    assert sent == before
    assert sent.task_id is None


async def test_an_owner_reaches_only_its_own_tasks(stage: Stage) -> None:
    """The response for another owner's task is the same as for one that does not exist."""
    engine = await stage.engine(talk)
    alice, bob = Principal(owner="alice"), Principal(owner="bob")
    task = await ask(engine, "one", who=alice)
    for task_id in (task.id, "00000000-0000-7000-8000-000000000000"):
        errors = []
        with pytest.raises(TaskNotFoundError) as error:
            await engine.tasks.load(task_id, bob)
        errors.append(str(error.value))
        with pytest.raises(TaskNotFoundError):
            await engine.tasks.cancel(task_id, bob)
        with pytest.raises(TaskNotFoundError):
            await engine.tasks.steer(task_id, "inject", bob)
        with pytest.raises(TaskNotFoundError):
            await anext(engine.tasks.follow(task_id, bob))
        with pytest.raises(TaskNotFoundError):
            await engine.tasks.send(message("bye", task_id=task_id), Envelope(bob))
        assert errors == ["Task not found: there is no such task."]
    assert (await engine.tasks.load(task.id, alice)).view.state is TaskState.input_required


# ------------------------------------------------------------------------------------------------------ double texting


async def two_texts(ctx: TaskContext) -> None:
    """Works on "slow" until it is stopped."""
    if ctx.user_text == "slow":
        await ctx.send_status("begun")
        for _ in range(400):
            if "go on" in ctx.deps["gate"]:
                break
            await asyncio.sleep(0.005)
    await ctx.respond(f"did {ctx.user_text}")


async def test_enqueue(stage: Stage) -> None:
    """A message to a running task waits for the end of the turn, and then gets its own turn, in order."""
    gate: set[str] = set()
    engine = await stage.engine(two_texts, dependencies={"gate": gate})
    other = await stage.engine()
    first = await engine.tasks.send(message("slow"))
    task_id = first.task.record.task_id
    second = await other.tasks.send(message("second", task_id=task_id))
    third = await engine.tasks.send(message("third", task_id=task_id))
    assert await state_of(engine, task_id) is TaskState.working
    gate.add("go on")
    tasks = [await answer(engine, first), await answer(other, second), await answer(engine, third)]
    assert [entry.text for entry in tasks[2].history] == [
        *("slow", "did slow", "second", "did second", "third", "did third"),
    ]
    assert len({task.model_dump_json() for task in tasks}) == 1
    assert await one_end(engine, task_id) is TaskState.completed
    assert (await states(engine, task_id)).count("completed") == 1


async def test_reject(stage: Stage) -> None:
    """A message to a running task is refused; it can be sent again when the task waits."""
    gate: set[str] = set()
    engine = await stage.engine(two_texts, dependencies={"gate": gate}, double_text="reject")
    first = await engine.tasks.send(message("slow"))
    second = message("second", task_id=first.task.record.task_id)
    with pytest.raises(TaskNotAcceptingMessagesError):
        await engine.tasks.send(second)
    gate.add("go on")
    assert [entry.text for entry in (await answer(engine, first)).history] == ["slow", "did slow"]


async def test_interrupt(stage: Stage) -> None:
    """A message to a running task ends the turn and gets its own turn at once."""
    engine = await stage.engine(two_texts, dependencies={"gate": set()}, double_text="interrupt")
    other = await stage.engine(double_text="interrupt")
    first = await engine.tasks.send(message("slow"))
    second = await other.tasks.send(message("second", task_id=first.task.record.task_id))
    task = await answer(other, second, seconds=5.0)
    assert [entry.text for entry in task.history] == ["slow", "second", "did second"]
    assert await one_end(engine, task.id) is TaskState.completed


async def test_interrupts_in_a_row(stage: Stage) -> None:
    """If many messages interrupt each other, each gets its turn, and the task ends with the last response."""
    engine = await stage.engine(two_texts, dependencies={"gate": set()}, double_text="interrupt")
    first = await engine.tasks.send(message("slow"))
    task_id = first.task.record.task_id
    for _ in range(8):
        await engine.tasks.send(message("slow", task_id=task_id))
    last = await engine.tasks.send(message("last", task_id=task_id))
    task = await answer(engine, last, seconds=10.0)
    assert task.status.state is TaskState.completed
    assert [entry.text for entry in task.history if entry.role is Role.user] == ["slow"] * 9 + ["last"]
    assert await one_end(engine, task_id) is TaskState.completed


async def test_a_message_to_a_waiting_task(stage: Stage) -> None:
    """A task that no worker has started accepts messages too; they follow its first one."""
    front = await stage.engine()
    sent = await front.tasks.send(message("one"))
    await front.tasks.send(message("two", task_id=sent.task.record.task_id))
    await stage.engine(two_texts, dependencies={"gate": {"go on"}})
    task = await answer(front, sent)
    await until(lambda: _is_done(front, task.id))
    task = await look(front, task.id)
    assert [entry.text for entry in task.history if entry.role is Role.user] == ["one", "two"]
    assert await one_end(front, task.id) is TaskState.completed


async def _is_done(engine: object, task_id: str) -> bool:
    from keelbolt.tasks import TaskEngine

    assert isinstance(engine, TaskEngine)
    return await engine.kernel.work("~anonymous", QUEUE, task_id) is None


def test_a_message_needs_an_id() -> None:
    with pytest.raises(ValueError, match="at least 1 character"):
        Message(message_id="", role=Role.user, parts=[])
