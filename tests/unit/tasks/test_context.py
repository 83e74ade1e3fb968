"""The properties and methods of a worker's TaskContext."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_core import from_json

from keelbolt.auth.principal import Principal
from keelbolt.errors import InvalidAgentResponseError, TurnEnded
from keelbolt.protocol.types import Artifact, Message, Part, Role, Task, TaskState
from keelbolt.tasks import Envelope, FileInfo, TaskContext
from tests.integration.tasks.stage import Stage, answer, ask, bodies, log, look, message, one_end, state_of, until

Handler = Callable[[TaskContext], Awaitable[None]]


def lambda_worker(work: Handler) -> Handler:
    """A worker is an `async def`; a lambda that calls one is not."""

    async def worker(ctx: TaskContext) -> None:
        await work(ctx)

    return worker


async def done_by(stage: Stage, work: Handler, sent: Message | None = None, **envelope: Any) -> Task:
    """Return the task after its first turn with this worker."""
    engine = await stage.engine(lambda_worker(work))
    taken = await engine.tasks.send(sent or message(), Envelope(**envelope))
    return await answer(engine, taken)


async def seen_by(stage: Stage, look_at: Callable[[TaskContext], Any], sent: Message, **envelope: Any) -> Any:
    """Return the value that this function reads in a worker."""
    seen = []

    async def worker(ctx: TaskContext) -> None:
        seen.append(look_at(ctx))
        await ctx.complete()

    assert (await done_by(stage, worker, sent, **envelope)).status.state is TaskState.completed
    return seen[0]


async def refusal(given: Awaitable[Any]) -> Any:
    """Return the exception that this raises, or None; tests check it outside the worker."""
    try:
        await given
    except Exception as error:
        return error


def words(task: Task) -> str | None:
    """Return the text of the status."""
    return task.status.message.text if task.status.message is not None else None


# ---------------------------------------------------------------------------------------------------------- the message


async def test_the_message(stage: Stage) -> None:
    """The context has the ids, text and parts of the message."""
    sent = message(parts=[Part(text="one"), Part(data={"a": 1}), Part(text="two")], message_id="m", context_id="c")
    seen = await seen_by(stage, lambda ctx: (ctx.message_id, ctx.context_id, ctx.user_text, len(ctx.parts)), sent)
    assert seen == ("m", "c", "one\ntwo", 3)
    task_id, of_message = await seen_by(stage, lambda ctx: (ctx.task_id, ctx.message.message_id), message())
    assert task_id
    assert of_message


async def test_files(stage: Stage) -> None:
    """Files have bytes or a URL; text and data parts are not files."""
    parts = [
        Part(text="x"),
        Part(raw=b"\x00\xff", filename="a.bin", media_type="application/octet-stream"),
        Part(url="https://example.org/b.png", media_type="image/png"),
        Part(data=None),
    ]
    assert await seen_by(stage, lambda ctx: ctx.files, message(parts=parts)) == [
        FileInfo(b"\x00\xff", None, "a.bin", "application/octet-stream"),
        FileInfo(None, "https://example.org/b.png", None, "image/png"),
    ]


async def test_data_parts(stage: Stage) -> None:
    """Any JSON value is data, including null, falsy and nested values."""
    values = [{"a": [1]}, [], 0, None, "text", 1.5, 10**25]
    parts = [Part(text="x"), *(Part(data=value) for value in values)]
    assert await seen_by(stage, lambda ctx: ctx.data_parts, message(parts=parts)) == values


async def test_metadata_references_and_extensions(stage: Stage) -> None:
    def look_at(ctx: TaskContext) -> Any:
        return ctx.metadata, ctx.reference_task_ids, ctx.message_extensions

    full = message(metadata={"a": {"b": None}}, reference_task_ids=["t1", "t2"], extensions=["urn:x"])
    assert await seen_by(stage, look_at, full) == ({"a": {"b": None}}, ["t1", "t2"], ["urn:x"])
    assert await seen_by(stage, look_at, message()) == ({}, [], [])


@pytest.mark.parametrize(
    ("modes", "mime", "accepted"),
    [
        ([], "anything/at-all", True),
        (["text/plain"], "text/plain", True),
        (["text/plain"], "text/html", False),
        (["text/*"], "text/html", True),
        (["text/*"], "image/png", False),
        (["*/*"], "image/png", True),
        (["*"], "image/png", True),
        (["Text/Plain"], "text/PLAIN", True),
        (["image/svg+xml"], "image/svg+xml", True),
        (["text/plain", "application/json"], "application/json", True),
    ],
)
async def test_accepts(stage: Stage, modes: list[str], mime: str, accepted: bool) -> None:
    """A client accepts the output modes that it names, with wildcards; a client that names none accepts all."""
    assert await seen_by(stage, lambda ctx: ctx.accepts(mime), message(), accepts=modes) is accepted


async def test_the_principal_and_the_request_context(stage: Stage) -> None:
    """The worker gets the caller and the values that middlewares added to the request."""
    alice = Principal("alice", "acme", frozenset({"admin"}), {"email": "a@example.org"}, "user")
    seen = await seen_by(
        stage, lambda ctx: (ctx.principal, ctx.request_context), message(), principal=alice, request={"trace": "t"}
    )
    assert seen == (alice, {"trace": "t"})
    principal, request = await seen_by(stage, lambda ctx: (ctx.principal, ctx.request_context), message())
    assert principal.anonymous
    assert request == {}


async def test_dependencies(stage: Stage) -> None:
    seen = []

    async def worker(ctx: TaskContext) -> None:
        seen.append((ctx.deps["model"], ctx.deps[dict]["a"]))
        await ctx.complete()

    engine = await stage.engine(worker, dependencies={"model": "m", dict: {"a": 1}})
    await ask(engine)
    assert seen == [("m", 1)]


async def test_history_and_previous_artifacts(stage: Stage) -> None:
    """A turn sees earlier messages and artifacts, but not its own message and artifacts."""
    seen: list[tuple[list[str], list[Artifact]]] = []

    async def worker(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact(ctx.user_text, artifact_id=ctx.user_text)
        seen.append(([f"{entry.role.name}: {entry.text}" for entry in ctx.history], ctx.previous_artifacts))
        await ctx.request_input("more?")

    engine = await stage.engine(worker)
    task = await ask(engine, "one")
    await ask(engine, "two", task_id=task.id)
    assert seen[0] == ([], [])
    assert seen[1][0] == ["user: one", "agent: more?"]
    assert [(made.artifact_id, made.parts[0].text) for made in seen[1][1]] == [("one", "one")]


# ------------------------------------------------------------------------------------------------------- ends of a turn


async def test_complete(stage: Stage) -> None:
    """The text becomes the artifact; without a text there is no artifact and no message."""
    task = await done_by(stage, lambda ctx: ctx.complete("answer"))
    assert task.status.state is TaskState.completed
    assert [(made.artifact_id, made.parts[0].text) for made in task.artifacts] == [("final-answer", "answer")]
    assert words(task) is None
    assert len(task.history) == 1
    assert (await done_by(stage, lambda ctx: ctx.complete("", artifact_id="mine"))).artifacts[0].artifact_id == "mine"
    assert (await done_by(stage, lambda ctx: ctx.complete())).artifacts == []


@pytest.mark.parametrize("value", [{"a": [1, None, "ü"]}, [], "text", 0, None, True, 1e-9, 10**25])
async def test_complete_json(stage: Stage, value: Any) -> None:
    """The result can be any JSON value."""
    task = await done_by(stage, lambda ctx: ctx.complete_json(value, artifact_id="json"))
    assert task.status.state is TaskState.completed
    assert task.artifacts[0].artifact_id == "json"
    assert task.artifacts[0].parts[0].kind == "data"
    assert task.artifacts[0].parts[0].data == value


async def test_respond(stage: Stage) -> None:
    """The text is the status message and part of the history; there is no artifact."""
    task = await done_by(stage, lambda ctx: ctx.respond("hi"))
    assert task.status.state is TaskState.completed
    assert words(task) == "hi"
    assert task.history[-1] == task.status.message
    assert task.history[-1].role is Role.agent
    assert (task.history[-1].task_id, task.history[-1].context_id) == (task.id, task.context_id)
    assert task.artifacts == []
    assert words(await done_by(stage, lambda ctx: ctx.respond())) in (None, "")


async def test_reply_directly(stage: Stage) -> None:
    """The task is stored as with respond, and is marked so that its response is a message."""
    engine = await stage.engine(lambda_worker(lambda ctx: ctx.reply_directly("hi")))
    sent = await engine.tasks.send(message())
    task = await answer(engine, sent)
    assert words(task) == "hi"
    assert (await engine.tasks.load(task.id)).record.direct
    plain = await stage.engine(lambda_worker(lambda ctx: ctx.respond("hi")))
    other = await ask(plain)
    assert not (await plain.tasks.load(other.id)).record.direct


@pytest.mark.parametrize(
    ("end", "state", "expected"),
    [
        (lambda ctx: ctx.fail("why"), TaskState.failed, "why"),
        (lambda ctx: ctx.reject("no"), TaskState.rejected, "no"),
        (lambda ctx: ctx.reject(), TaskState.rejected, None),
        (lambda ctx: ctx.request_input("which?"), TaskState.input_required, "which?"),
        (lambda ctx: ctx.request_auth("who?"), TaskState.auth_required, "who?"),
        (lambda ctx: ctx.request_auth(), TaskState.auth_required, None),
    ],
)
async def test_other_ends(stage: Stage, end: Handler, state: TaskState, expected: str | None) -> None:
    """Each end sets its state, and its text is in the status and the history."""
    task = await done_by(stage, lambda_worker(end))
    assert task.status.state is state
    assert (words(task) or None) == expected
    assert task.artifacts == []
    if expected is not None:
        assert task.history[-1].text == expected


async def test_request_input_with_data(stage: Stage) -> None:
    task = await done_by(stage, lambda ctx: ctx.request_input("which?", data={"choices": [1, 2]}))
    assert task.status.message is not None
    assert [part.kind for part in task.status.message.parts] == ["text", "data"]
    assert task.status.message.parts[1].data == {"choices": [1, 2]}


async def test_request_auth_describes_the_requirement(stage: Stage) -> None:
    """The requirement is sent as data: schemes, a hint, a URL."""
    task = await done_by(
        stage,
        lambda_worker(
            lambda ctx: ctx.request_auth(
                "log in", schemes=("oauth2",), credentials_hint="work account", auth_url="https://example.org"
            )
        ),
    )
    assert task.status.message is not None
    assert task.status.message.parts[1].data == {
        "schemes": ["oauth2"],
        "credentialsHint": "work account",
        "authUrl": "https://example.org",
    }


ENDS: list[Callable[[TaskContext], Awaitable[Any]]] = [
    lambda ctx: ctx.complete("again"),
    lambda ctx: ctx.complete_json({}),
    lambda ctx: ctx.respond("again"),
    lambda ctx: ctx.reply_directly("again"),
    lambda ctx: ctx.fail("again"),
    lambda ctx: ctx.reject(),
    lambda ctx: ctx.request_input("again?"),
    lambda ctx: ctx.request_auth(),
    lambda ctx: ctx.send_status("again"),
    lambda ctx: ctx.emit_artifact(text="again"),
    lambda ctx: ctx.emit_text_artifact("again"),
    lambda ctx: ctx.emit_data_artifact({}),
    lambda ctx: ctx.step("again", lambda: None),
    lambda ctx: ctx.sleep(0),
]


@pytest.mark.parametrize("first", [0, 4, 6])
async def test_a_turn_ends_once(stage: Stage, first: int) -> None:
    """After an end, every end, status, artifact and step raises TurnEnded, and nothing is written."""
    refused: list[type] = []

    async def worker(ctx: TaskContext) -> None:
        assert not ctx.turn_ended
        await ENDS[first](ctx)
        assert ctx.turn_ended
        refused.extend([type(await refusal(end(ctx))) for end in ENDS])

    engine = await stage.engine(worker)
    task = await ask(engine)
    assert refused == [TurnEnded] * len(ENDS)
    entries = await log(engine, task.id)
    assert b"again?" not in b"".join(entry.data for entry in entries) or first == 6
    assert entries[-1].kind in ("status", "said")


async def test_concurrent_ends(stage: Stage) -> None:
    """One of several concurrent ends succeeds, and the others are refused."""
    outcomes: list[Any] = []

    async def worker(ctx: TaskContext) -> None:
        outcomes.extend(
            await asyncio.gather(ctx.complete("a"), ctx.respond("b"), ctx.fail("c"), return_exceptions=True)
        )

    engine = await stage.engine(worker)
    task = await ask(engine)
    assert [outcome is None for outcome in outcomes].count(True) == 1, outcomes
    assert all(outcome is None or isinstance(outcome, TurnEnded) for outcome in outcomes), outcomes
    assert (await one_end(engine, task.id)).terminal


# ------------------------------------------------------------------------------------------------------------- failures


async def test_an_unhandled_exception(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """The task fails with a generic message; the error entry for operators has the exception, without secrets."""

    async def worker(ctx: TaskContext) -> None:
        raise ValueError("password=hunter2")

    with caplog.at_level(logging.ERROR, "keelbolt.tasks"):
        engine = await stage.engine(worker)
        task = await ask(engine)
    assert task.status.state is TaskState.failed
    assert words(task) == "The agent failed while it worked on this task."
    entries = await log(engine, task.id)
    for secret in (b"hunter2", b"ValueError", b"test_context"):
        assert secret not in b"".join(entry.data for entry in entries if entry.kind != "error")
    [error] = [from_json(entry.data) for entry in entries if entry.kind == "error"]
    assert (error["type"], error["message"]) == ("ValueError", "password=•••")
    assert "test_context" in error["traceback"]
    assert "hunter2" not in error["traceback"]
    assert "password=hunter2" in caplog.text  # Keelbolt's formatters mask it; pytest's formatter does not
    assert task.id in caplog.text


async def test_an_exception_after_the_end(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """An exception after the end is logged and changes nothing."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.complete("done")
        raise ValueError("too late")

    with caplog.at_level(logging.ERROR, "keelbolt.tasks"):
        engine = await stage.engine(worker)
        task = await ask(engine)
        await until(lambda: "too late" in caplog.text)
    assert await one_end(engine, task.id) is TaskState.completed


async def test_an_exception_group(stage: Stage) -> None:
    """An exception group fails the task like any other exception."""

    async def worker(ctx: TaskContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(10))
            group.create_task(ctx.step("", lambda: None))

    assert (await done_by(stage, worker)).status.state is TaskState.failed


async def test_a_cancelled_error_of_its_own(stage: Stage) -> None:
    """A worker that awaits a cancelled future fails; it is not treated as a stop and not retried forever."""
    runs = []

    async def worker(ctx: TaskContext) -> None:
        runs.append(1)
        inner = asyncio.ensure_future(asyncio.sleep(10))
        inner.cancel()
        await inner

    assert (await done_by(stage, worker)).status.state is TaskState.failed
    assert len(runs) == 1


@pytest.mark.parametrize("error", [SystemExit(1), BaseException("strange"), StopAsyncIteration()])
async def test_any_exception_of_a_worker(stage: Stage, error: BaseException) -> None:
    """No exception of a worker ends the process or leaves its task unfinished."""

    async def worker(ctx: TaskContext) -> None:
        raise error

    engine = await stage.engine(worker)
    task = await ask(engine)
    assert await one_end(engine, task.id) is TaskState.failed
    assert engine.runner is not None
    assert not engine.runner.runs


async def test_returning_without_an_end(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """A task whose worker returns without an end fails with a status that names the reason."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.send_status("half")

    task = await done_by(stage, worker)
    assert task.status.state is TaskState.failed
    assert "did not end the turn" in (words(task) or "")
    assert "without ending its turn" in caplog.text


class Strange:
    pass


NOT_JSON: list[Any] = [
    {"x": float("nan")},
    [float("inf")],
    -float("inf"),
    {"x": Strange()},
    "\ud800",
    {"\ud800": 1},
    [[["\udfff"]]],
    {"x": lambda: None},
    json.loads("[" * 210 + "]" * 210),  # written as JSON, but too deep for its readers
]


@pytest.mark.parametrize("value", NOT_JSON, ids=range(len(NOT_JSON)))
async def test_values_that_are_not_json(stage: Stage, value: Any) -> None:
    """Data that can't be written as JSON and read again is refused at the call; the task can continue."""
    refused: list[Any] = []

    async def worker(ctx: TaskContext) -> None:
        given = [
            ctx.complete_json(value),
            ctx.emit_data_artifact(value),
            ctx.emit_artifact(data=value),
            ctx.emit_artifact(text="x", metadata={"x": value}),
            ctx.request_input("x", data=value),
            ctx.update_context(value),
            ctx.step("s", lambda: value),
        ]
        refused.extend([await refusal(give) for give in given])
        await ctx.complete("fine")

    task = await done_by(stage, worker)
    assert words(task) is None
    assert task.status.state is TaskState.completed
    assert [type(error) for error in refused] == [InvalidAgentResponseError] * 7
    assert all("JSON" in str(error) for error in refused)


async def test_values_that_are_not_text(stage: Stage) -> None:
    """Text must be a string without lone surrogates."""
    refused = []

    async def worker(ctx: TaskContext) -> None:
        wrong: list[Any] = ["\ud800", b"bytes", 5, Strange()]
        for value in wrong:
            given = [
                ctx.complete(value),
                ctx.respond(value),
                ctx.fail(value),
                ctx.reply_directly(value),
                ctx.send_status(value),
                ctx.emit_text_artifact(value),
                ctx.emit_artifact(text=value),
                ctx.emit_text_artifact("x", artifact_id=value),
            ]
            refused.extend([await refusal(give) for give in given])
        refused.append(await refusal(ctx.complete("x", artifact_id="")))
        await ctx.complete()

    task = await done_by(stage, worker)
    assert task.status.state is TaskState.completed
    assert task.artifacts == []
    assert [type(error) for error in refused] == [InvalidAgentResponseError] * 33


async def test_values_that_are_too_large(stage: Stage) -> None:
    """A value beyond the storage's limit is refused at the call, and the task can continue."""
    huge = "x" * 20_000_000
    refused = []

    async def worker(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact("small")
        given = [
            ctx.complete(huge),
            ctx.respond(huge),
            ctx.emit_text_artifact(huge, append=True),
            ctx.emit_artifact(file_bytes=b"x" * 20_000_000),
            ctx.emit_artifact(parts=[Part(text="x" * 9_000_000)] * 2),
            ctx.send_status(huge),
            ctx.step("s", lambda: huge),
            ctx.update_context(huge),
        ]
        refused.extend([await refusal(give) for give in given])
        await ctx.complete()

    task = await done_by(stage, worker)
    assert task.status.state is TaskState.completed, words(task)
    assert [type(error) for error in refused] == [InvalidAgentResponseError] * 8
    assert [made.parts[0].text for made in task.artifacts] == ["small"]


# ------------------------------------------------------------------------------------------------- status and artifacts


async def test_send_status(stage: Stage) -> None:
    """A client that polls sees the progress; the text is not part of the history."""
    gate = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        await ctx.send_status("half way")
        await gate.wait()
        await ctx.send_status()
        await ctx.complete()

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    await until(lambda: _says(engine, task_id, "half way"))
    gate.set()
    task = await answer(engine, sent)
    assert len(task.history) == 1
    assert len(await bodies(engine, task_id, "status")) == 5


async def _says(engine: Any, task_id: str, text: str) -> bool:
    return words(await look(engine, task_id)) == text


async def test_chunks(stage: Stage) -> None:
    """A text artifact grows by chunks; each chunk is one event with append and lastChunk."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact("a")
        await ctx.emit_text_artifact("b", append=True)
        await ctx.emit_text_artifact("c", append=True, last_chunk=True)
        await ctx.complete()

    engine = await stage.engine(worker)
    task = await ask(engine)
    assert [part.text for part in task.artifacts[0].parts] == ["a", "b", "c"]
    events = await bodies(engine, task.id, "artifact")
    assert [(event.get("append", False), event.get("lastChunk", False)) for event in events] == [
        (False, False),
        (True, False),
        (True, True),
    ]


async def test_a_first_chunk_may_append(stage: Stage) -> None:
    """A worker may set append on every chunk: the first one creates the artifact, also for a client."""

    async def worker(ctx: TaskContext) -> None:
        for text in "abc":
            await ctx.emit_text_artifact(text, append=True)
        await ctx.complete()

    engine = await stage.engine(worker)
    task = await ask(engine)
    assert [part.text for part in task.artifacts[0].parts] == ["a", "b", "c"]
    assert [event.get("append", False) for event in await bodies(engine, task.id, "artifact")] == [False, True, True]


async def test_an_artifact_is_replaced(stage: Stage) -> None:
    """Without append, an artifact replaces the earlier one with the same id; others stay."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact("old", artifact_id="a")
        await ctx.emit_data_artifact({"kept": True}, artifact_id="b")
        await ctx.emit_text_artifact("new", artifact_id="a")
        await ctx.complete()

    task = await done_by(stage, worker)
    assert [(made.artifact_id, len(made.parts)) for made in task.artifacts] == [("a", 1), ("b", 1)]
    assert task.artifacts[0].parts[0].text == "new"


async def test_every_kind_of_artifact(stage: Stage) -> None:
    """Text, data, bytes, a URL or parts, with all metadata."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.emit_artifact(artifact_id="text", text="t", media_type="text/markdown")
        await ctx.emit_artifact(artifact_id="data", data={"a": 1})
        await ctx.emit_artifact(artifact_id="bytes", file_bytes=b"\x00", filename="f", media_type="image/png")
        await ctx.emit_artifact(artifact_id="url", file_url="https://example.org")
        await ctx.emit_artifact(artifact_id="parts", parts=[Part(text="1"), Part(data=None)])
        await ctx.emit_artifact(
            artifact_id="named", text="", name="n", description="d", metadata={"m": 1}, extensions=["urn:x"]
        )
        await ctx.complete()

    made = {artifact.artifact_id: artifact for artifact in (await done_by(stage, worker)).artifacts}
    assert made["text"].parts[0].media_type == "text/markdown"
    assert made["data"].parts[0].data == {"a": 1}
    assert (made["bytes"].parts[0].raw, made["bytes"].parts[0].filename) == (b"\x00", "f")
    assert made["url"].parts[0].url == "https://example.org"
    assert [part.kind for part in made["parts"].parts] == ["text", "data"]
    named = made["named"]
    assert (named.name, named.description, named.metadata, named.extensions) == ("n", "d", {"m": 1}, ["urn:x"])


async def test_an_artifact_takes_exactly_one_content(stage: Stage) -> None:
    refused = []

    async def worker(ctx: TaskContext) -> None:
        wrong: list[dict[str, Any]] = [
            {},
            {"text": "a", "data": 1},
            {"file_bytes": b"", "file_url": "u"},
            {"file_bytes": 5},
            {"parts": ["text"]},
            {"parts": [Part(data=float("nan"))]},
            {"parts": [Part(text="x", metadata={"x": float("nan")})]},
        ]
        refused.extend([await refusal(ctx.emit_artifact(**given)) for given in wrong])
        await ctx.complete()

    assert (await done_by(stage, worker)).status.state is TaskState.completed
    assert [type(error) for error in refused] == [InvalidAgentResponseError] * 7


async def test_a_later_chunk_adds_metadata(stage: Stage) -> None:
    """Any chunk can set the name and the description."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.emit_artifact(text="1", name="n")
        await ctx.emit_artifact(text="2", description="d", append=True)
        await ctx.complete()

    made = (await done_by(stage, worker)).artifacts[0]
    assert (made.name, made.description, len(made.parts)) == ("n", "d", 2)


async def test_chunks_are_written_before_later_events(stage: Stage) -> None:
    """Chunks are written in the background; a later status, step or end follows them in the log."""

    async def worker(ctx: TaskContext) -> None:
        for number in range(50):
            await ctx.emit_text_artifact(str(number), append=True)
        await ctx.send_status("between")
        await ctx.emit_text_artifact("50", append=True)
        await ctx.step("s", lambda: 1)
        await ctx.emit_text_artifact("51", append=True)
        await ctx.complete()

    engine = await stage.engine(worker)
    task = await ask(engine)
    assert [part.text for part in task.artifacts[0].parts] == [str(number) for number in range(52)]
    kinds = [entry.kind for entry in await log(engine, task.id)]
    assert kinds[4:] == ["artifact"] * 50 + ["status", "artifact", "step", "step", "artifact", "status"]


async def test_a_fast_producer_waits(stage: Stage) -> None:
    """A stream of any length is stored completely, and the write buffer stays bounded."""
    most = 0

    async def worker(ctx: TaskContext) -> None:
        nonlocal most
        for _ in range(5000):
            await ctx.emit_text_artifact("x" * 1000, append=True)
            most = max(most, ctx._run.journal._buffered)
        await ctx.complete()

    task = await done_by(stage, worker)
    assert len(task.artifacts[0].parts) == 5000
    assert most <= 1024 * 1024 + 2000


# --------------------------------------------------------------------------------------------------------- is_cancelled


async def test_is_cancelled(stage: Stage) -> None:
    """A worker that is stopped cleans up, and the task is canceled."""
    cleaned: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        assert not ctx.is_cancelled
        try:
            await asyncio.sleep(60)
        finally:
            assert ctx.is_cancelled
            cleaned.append(ctx.task_id)

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    task = await engine.tasks.cancel(sent.task.record.task_id, reason="enough")
    assert task.view.state is TaskState.canceled
    assert cleaned == [task.record.task_id]
    steered = await bodies(engine, task.record.task_id, "steer")
    assert [(body["kind"], body["reason"]) for body in steered] == [("cancel", "enough")]
    assert await one_end(engine, task.record.task_id) is TaskState.canceled


async def test_a_cancelled_worker_may_set_its_own_end(stage: Stage) -> None:
    """A write in a shielded block counts: here the worker fails the task with its own reason."""

    async def worker(ctx: TaskContext) -> None:
        async with ctx.shielded(10):
            await until(lambda: ctx.is_cancelled)
            await ctx.fail("cancelled by the user")

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    await until(lambda: _working(engine, sent.task.record.task_id))
    with pytest.raises(Exception, match="nothing to cancel"):
        await engine.tasks.cancel(sent.task.record.task_id)
    assert words(await look(engine, sent.task)) == "cancelled by the user"


async def _working(engine: Any, task_id: str) -> bool:
    return await state_of(engine, task_id) is TaskState.working


async def test_a_cancelled_worker_can_not_pause(stage: Stage) -> None:
    """A canceled task can't wait for an answer: requesting input ends it."""

    async def worker(ctx: TaskContext) -> None:
        async with ctx.shielded(10):
            await until(lambda: ctx.is_cancelled)
            await ctx.request_input("really?")

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    task = await engine.tasks.cancel(sent.task.record.task_id)
    assert task.view.state is TaskState.canceled
    assert await one_end(engine, task.record.task_id) is TaskState.canceled


# ------------------------------------------------------------------------------------------------------------- attempts


async def test_keys_and_attempts(stage: Stage) -> None:
    """The first attempt is number 1; a step's key is the same in every attempt and differs between turns."""
    keys = []

    async def worker(ctx: TaskContext) -> None:
        assert ctx.attempt == 1
        keys.append(ctx.idempotency_key("charge"))
        await ctx.request_input("again?")

    engine = await stage.engine(worker)
    task = await ask(engine)
    await ask(engine, task_id=task.id)
    assert keys == [f"{task.id}/1/charge", f"{task.id}/2/charge"]


async def test_context_ids_are_generated_or_taken_from_the_client(stage: Stage) -> None:
    """A context id of the client is used; otherwise each task gets a new one."""
    engine = await stage.engine(lambda_worker(lambda ctx: ctx.complete()))
    tasks = [await ask(engine), await ask(engine), await ask(engine, context_id="mine")]
    assert len({task.context_id for task in tasks}) == 3
    assert tasks[2].context_id == "mine"


async def test_stored_bytes_are_json(stage: Stage) -> None:
    """Every entry that a client streams is JSON, also with unusual text."""
    wild = 'ü"\\\n\t\x7f\u2028\U0001f600</script>'

    async def worker(ctx: TaskContext) -> None:
        await ctx.send_status(wild)
        await ctx.emit_text_artifact(wild, artifact_id=wild)
        await ctx.respond(wild)

    engine = await stage.engine(worker)
    task = await ask(engine, wild)
    assert (words(task), task.artifacts[0].artifact_id, task.artifacts[0].parts[0].text) == (wild, wild, wild)
    assert task.history[0].text == wild
    for entry in await log(engine, task.id):
        from_json(entry.data)


async def test_dates_become_text(stage: Stage) -> None:
    """Values with an obvious JSON form are written in it."""
    task = await done_by(stage, lambda ctx: ctx.complete_json(datetime(2026, 1, 1, tzinfo=UTC)))
    assert task.artifacts[0].parts[0].data == "2026-01-01T00:00:00Z"


async def test_a_write_that_takes_the_notes_of_another_leaves_it_nothing_to_commit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty commit costs as much as any other, and is refused after the end of the task."""
    commits = []

    async def worker(ctx: TaskContext) -> None:
        journal = ctx._run.journal
        tried = journal._try

        async def counted(notes: list[Any], operations: Sequence[Any]) -> None:
            commits.append(notes)
            await gone_on.wait()
            await tried(notes, operations)

        gone_on = asyncio.Event()
        monkeypatch.setattr(journal, "_try", counted)
        writes = [asyncio.create_task(journal.write([])) for _ in range(2)]
        await asyncio.sleep(0)  # the first one commits, the second one waits for it
        await ctx.emit_text_artifact("first")
        await asyncio.sleep(0)  # its write waits too
        gone_on.set()
        await asyncio.gather(*writes)
        await journal.settle()
        monkeypatch.undo()
        await ctx.complete()

    assert (await done_by(stage, worker)).status.state is TaskState.completed
    assert [len(notes) for notes in commits] == [0, 1]
