"""Other tools of a worker: text streams, files, threads, replays, and typed steps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from enum import Enum, StrEnum
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.errors import InvalidAgentResponseError, InvalidValue
from keelbolt.protocol.types import Part, TaskState
from keelbolt.tasks import Done, TaskContext
from keelbolt.tasks.files import open_file
from tests.integration.tasks.stage import Stage, answer, ask, bodies, look, message, until


class Word(StrEnum):
    yes = "Yes."


class OldWord(str, Enum):  # noqa: UP042 - another str() than that of a StrEnum
    yes = "Yes."


class Markup(str):
    __slots__ = ()


async def words(*chunks: str) -> AsyncIterator[str]:
    for chunk in chunks:
        yield chunk


# ------------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize("text", [Word.yes, OldWord.yes, Markup("Yes.")])
async def test_every_kind_of_string_is_text(stage: Stage, text: str) -> None:
    async def worker(ctx: TaskContext) -> None:
        await ctx.send_status(text)
        await ctx.emit_text_artifact(text, artifact_id=text)
        await ctx.emit_artifact(text=text, artifact_id="a", name=text, filename=text)
        await ctx.stream_text(words(text), artifact_id="b")
        assert await ctx.step(text, lambda: text) == "Yes."
        assert ctx.idempotency_key(text).endswith("/Yes.")
        await ctx.complete(text, parts=[Part(text=text)])

    engine = await stage.engine(worker)
    task = await ask(engine)
    assert task.status.state is TaskState.completed
    assert [artifact.artifact_id for artifact in task.artifacts] == ["Yes.", "a", "b", "final-answer"]
    assert {part.text for artifact in task.artifacts for part in artifact.parts} == {"Yes."}
    assert [body["step"] for body in await bodies(engine, task.id, "step")] == ["Yes.", "Yes."]


async def test_a_stream_is_one_artifact_and_its_text_is_returned(stage: Stage) -> None:
    returned: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        returned.append(await ctx.stream_text(words("to ", "", "be")))
        returned.append(await ctx.stream_text(words(" or", " not"), append=True))
        returned.append(await ctx.stream_text(words("new"), artifact_id="other"))
        await ctx.complete()

    task = await ask(await stage.engine(worker))
    assert returned == ["to be", " or not", "new"]
    assert ["".join(part.text or "" for part in found.parts) for found in task.artifacts] == ["to be or not", "new"]


async def test_a_cancel_closes_the_stream(stage: Stage) -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "tick "
                await asyncio.sleep(0.01)
        finally:
            closed.set()

    async def worker(ctx: TaskContext) -> None:
        await ctx.stream_text(endless())
        await ctx.complete("never")

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    await until(lambda: _has_artifact(engine, sent.task.task_id))
    canceled = await engine.tasks.cancel(sent.task.task_id)
    assert canceled.view.state is TaskState.canceled
    assert closed.is_set()


async def _has_artifact(engine: Any, task_id: str) -> bool:
    return bool((await look(engine, task_id)).artifacts)


async def test_a_chunk_that_is_not_text_is_a_typed_error(stage: Stage) -> None:
    raised: list[Exception] = []

    async def numbers() -> AsyncIterator[Any]:
        yield 1

    async def worker(ctx: TaskContext) -> None:
        try:
            await ctx.stream_text(numbers())
        except Exception as error:
            raised.append(error)
        await ctx.complete()

    await ask(await stage.engine(worker))
    assert [type(error) for error in raised] == [InvalidAgentResponseError]


# ------------------------------------------------------------------------------------------------------------ files


async def test_a_file_is_stored_and_linked(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(b"%PDF")
    digests: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        digests.append((await ctx.emit_file(path, name="Report")).digest)
        digests.append((await ctx.emit_file(BytesIO(b"a,b"), artifact_id="table", filename="t.csv")).digest)
        await ctx.complete()

    engine = await stage.engine(worker)
    task = await ask(engine)
    first, second = task.artifacts
    assert (first.artifact_id, first.name) == ("file", "Report")
    assert (first.parts[0].filename, first.parts[0].media_type) == ("report.pdf", "application/pdf")
    assert (second.parts[0].filename, second.parts[0].media_type) == ("t.csv", "text/csv")
    for digest, part, content in zip(digests, [first.parts[0], second.parts[0]], [b"%PDF", b"a,b"], strict=True):
        assert part.url is not None
        assert part.url.endswith(digest)
        found = await open_file(engine.kernel.scoped(ANONYMOUS.partition), task.id, digest)
        assert found is not None
        assert await found[1].read() == content


async def test_a_blocking_function_runs_in_a_thread(stage: Stage) -> None:
    def blocking(a: int, *, b: int) -> tuple[int, bool]:
        return a + b, threading.current_thread() is threading.main_thread()

    found: list[Any] = []

    async def worker(ctx: TaskContext) -> None:
        found.append(await ctx.run_sync(blocking, 1, b=2))
        found.append(await ctx.step("in a thread", ctx.run_sync, len, "four"))
        await ctx.complete()

    await ask(await stage.engine(worker))
    assert found == [(3, False), 4]


# ---------------------------------------------------------------------------------------------------------- replays


async def test_progress_does_not_decrease_on_a_rerun(stage: Stage) -> None:
    """The process dies in the third page: the next run reports the third page, not the first again."""
    replaying: list[tuple[int, bool]] = []
    hanging = asyncio.Event()

    async def read(page: int) -> int:
        if page == 3 and not hanging.is_set():
            hanging.set()
            await asyncio.sleep(60)
        return page

    async def worker(ctx: TaskContext) -> None:
        for page in (1, 2, 3):
            replaying.append((page, ctx.replaying))
            await ctx.send_status(f"page {page}")
            await ctx.step("read", read, page, idempotent=True)
        assert not ctx.replaying
        await ctx.complete()

    first = await stage.engine(worker)
    sent = await first.tasks.send(message())
    await hanging.wait()
    await stage.crash(first)
    second = await stage.engine(worker)
    assert (await answer(second, sent)).status.state is TaskState.completed
    reports = [body["status"]["message"]["parts"][0]["text"] for body in await _reports(second, sent.task.task_id)]
    assert reports == ["page 1", "page 2", "page 3", "page 3"]
    assert replaying == [(1, False), (2, False), (3, False), (1, True), (2, True), (3, False)]


async def _reports(engine: Any, task_id: str) -> list[dict[str, Any]]:
    return [body for body in await bodies(engine, task_id, "status") if "message" in body["status"]]


# ------------------------------------------------------------------------------------------------------------ steps


async def test_a_step_takes_keyword_arguments(stage: Stage) -> None:
    async def pay(amount: int, *, currency: str, name: str = "") -> str:
        return f"{amount} {currency} {name}".strip()

    found: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        found.append(await ctx.step("pay", pay, 40, currency="EUR", name="Ada"))
        await ctx.complete()

    await ask(await stage.engine(worker))
    assert found == ["40 EUR Ada"]


async def test_a_probe_gets_the_same_arguments(stage: Stage) -> None:
    hanging = asyncio.Event()
    calls: list[tuple[int, str]] = []

    async def pay(amount: int, *, currency: str) -> str:
        hanging.set()
        await asyncio.sleep(60)
        return ""

    def find(amount: int, *, currency: str) -> Done:
        calls.append((amount, currency))
        return Done("found")

    async def worker(ctx: TaskContext) -> None:
        step: Any = ctx.step
        await ctx.complete(await step("pay", pay, 40, currency="EUR", probe=find))

    first = await stage.engine(worker)
    sent = await first.tasks.send(message())
    await hanging.wait()
    await stage.crash(first)
    task = await answer(await stage.engine(worker), sent)
    assert (task.artifacts[0].parts[0].text, calls) == ("found", [(40, "EUR")])


async def test_a_wrong_call_fails_with_the_reason_and_starts_nothing(stage: Stage) -> None:
    raised: list[str] = []

    async def pay(amount: int) -> int:
        return amount

    async def worker(ctx: TaskContext) -> None:
        step: Any = ctx.step
        for wrong in ((pay,), (pay, 1, 2), (pay(1),)):
            try:
                await step("pay", *wrong)
            except InvalidValue as error:
                raised.append(str(error))
        await ctx.complete()

    engine = await stage.engine(worker)
    task = await ask(engine)
    assert "can't call pay(amount: 'int') -> 'int': missing a required argument: 'amount'" in raised[0]
    assert "too many positional arguments" in raised[1]
    assert "write ctx.step(name, function, argument)" in raised[2]
    assert await bodies(engine, task.id, "step") == []
