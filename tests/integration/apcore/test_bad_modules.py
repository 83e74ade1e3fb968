"""Misbehaving modules fail their own task and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from apcore import ACL, ACLRule, Context, ModuleAnnotations
from apcore import errors as apcore_errors
from apcore.errors import ACLDeniedError, ModuleDisabledError

from keelbolt.apcore import ApcoreServer
from keelbolt.tasks.settings import TaskSettings
from tests.integration.apcore.calling import (
    error_of,
    message,
    output,
    send,
    state,
    status_data,
    status_text,
    streamed,
    task_of,
)
from tests.integration.apcore.modules import Anything, Deploy, Echo, Giving, executor_of, registry_of
from tests.integration.apcore.serving import server_of, serving, until
from tests.integration.server.asgi import call

INTERNAL = {"code": -32603, "message": "Internal error", "data": {"type": "ModuleExecuteError"}}


class Blocking(Giving):
    """Returns or raises the outcome in a thread."""

    def execute(self, inputs: dict[str, Any], context: Context[Any]) -> Any:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome(inputs)


class Chunks:
    """Streams these chunks; raises those that are exceptions."""

    input_schema = Anything
    output_schema = Anything
    description = "Streams"
    annotations = ModuleAnnotations(streaming=True)

    def __init__(self, *chunks: Any) -> None:
        self.chunks = chunks

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        return {}

    async def stream(self, inputs: dict[str, Any], context: Context[Any]) -> AsyncIterator[dict[str, Any]]:
        for chunk in self.chunks:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk


class OwnEnd(BaseException):
    """A BaseException that is not an Exception."""


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), OwnEnd("/srv/x/secret.py")], ids=repr
)
@pytest.mark.parametrize("kind", [Giving, Blocking, Chunks])
async def test_a_module_that_exits_fails_its_task(kind: Any, error: BaseException) -> None:
    async with serving(registry_of(bad=kind(error), echo=Echo())) as app:
        task = await streamed(app, {}, skill="bad")
        assert state(task) == "failed"
        assert "/srv" not in str(task["status"])
        assert output(await task_of(app, "still there", skill="echo")) == {"text": "still there"}


async def test_a_failing_stream_keeps_its_chunks() -> None:
    async with serving(registry_of(half=Chunks({"n": 1}, {"n": 2}, RuntimeError("at /srv/app/x.py")))) as app:
        task = await streamed(app, {}, skill="half")
        data = {"type": "ModuleExecuteError", "code": "MODULE_EXECUTE_ERROR"}
        assert (state(task), status_data(task)) == ("failed", {**INTERNAL, "data": data})
        [artifact] = task["artifacts"]
        assert [part["data"] for part in artifact["parts"]] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("chunk", ["text", None, 3, [1], b"x"], ids=repr)
async def test_a_chunk_that_is_not_an_object_is_an_internal_error(chunk: Any) -> None:
    async with serving(registry_of(odd=Chunks({"n": 1}, chunk, {"n": 2}))) as app:
        task = await streamed(app, {}, skill="odd")
        assert (state(task), status_data(task)) == ("failed", INTERNAL)


async def test_huge_chunks_are_stored_as_files() -> None:
    async with serving(registry_of(huge=Chunks({"a": "x" * 1_500_000}, {"b": "y" * 1_500_000}))) as app:
        task = await streamed(app, {}, skill="huge")
        assert state(task) == "completed"
        parts = task["artifacts"][0]["parts"]
        links, previews = parts[::2], parts[1::2]
        assert [part["mediaType"] for part in links] == ["application/json"] * 2
        assert len({part["url"] for part in links}) == 2
        assert ['{"a":"xxx' in previews[0]["text"], '{"b":"yyy' in previews[1]["text"]] == [True, True]


async def test_a_circular_output_fails() -> None:
    output: dict[str, Any] = {}
    output["me"] = output
    async with serving(registry_of(loop=Giving(output))) as app:
        assert state(await task_of(app, {}, skill="loop")) == "failed"


async def test_schemas_may_be_plain_json_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    plain: Any = Giving(dict)
    plain.input_schema = plain.output_schema = schema
    async with serving(registry_of(plain=plain)) as app:
        assert output(await task_of(app, {"n": 3})) == {"n": 3}
        for wrong, pointer in (({"n": "three"}, "/n"), ({}, "/n")):
            reply = (await send(app, wrong, skill="plain")).json
            assert reply["error"]["code"] == -32602
            assert f"'field': '{pointer}'" in str(reply["error"])


# ------------------------------------------------------------------------------------------------------------ threads


async def test_blocking_modules_do_not_wait_for_each_other() -> None:
    """Forty modules wait until all forty run: a small thread pool would deadlock."""
    together = threading.Barrier(40)
    async with serving(registry_of(slow=Blocking(lambda _: {"n": together.wait(20)}))) as app:
        tasks = await asyncio.gather(*[task_of(app, {}) for _ in range(40)])
        assert {state(task) for task in tasks} == {"completed"}


class IgnoresCancel(Giving):
    """Ignores cancels until it is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.stopped = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> Any:
        self.began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self.cancelled = context.cancel_token.is_cancelled
            self.stopped.set()


@pytest.mark.parametrize("why", ["cancel", "timeout", "nested"])
async def test_a_coroutine_ends_with_its_task(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keelbolt.apcore.views.HEED_SECONDS", 0.05)
    module = IgnoresCancel()
    registry = registry_of(deaf=module)
    executor = executor_of(registry)
    registry.register("outer", Giving())
    outer: Any = registry.get("outer")

    async def execute(inputs: dict[str, Any], context: Any) -> Any:
        return await executor.call_async("deaf", {}, context)

    outer.execute = execute
    timeout = 0.1 if why == "timeout" else 300
    settings = TaskSettings.of(cancel_seconds=0.05)
    server = ApcoreServer(executor, execution_timeout=timeout, task_settings=settings)
    async with server:
        skill = "outer" if why == "nested" else "deaf"
        params = {"message": message({}, skill=skill), "configuration": {"returnImmediately": True}}
        task = (await call(server.app, "SendMessage", params)).json["result"]["task"]
        await asyncio.wait_for(module.began.wait(), 10)
        if why != "timeout":
            await call(server.app, "CancelTask", {"id": task["id"]})
        await asyncio.wait_for(module.stopped.wait(), 10)
        assert module.cancelled


async def test_a_module_that_blocks_forever_is_abandoned() -> None:
    go = threading.Event()
    began = threading.Event()

    def block(_: Any) -> dict[str, Any]:
        began.set()
        go.wait(30)
        return {}

    async with serving(registry_of(slow=Blocking(block), echo=Echo()), shutdown_timeout=0.1) as app:
        params = {"message": message({}, skill="slow"), "configuration": {"returnImmediately": True}}
        task = (await call(app, "SendMessage", params)).json["result"]["task"]
        await until(app, task["id"], "working")
        assert output(await task_of(app, "hi", skill="echo")) == {"text": "hi"}
    thread = next(thread for thread in threading.enumerate() if thread.name.startswith("call of "))
    assert began.is_set()
    assert thread.daemon  # it does not block the exit of the process
    go.set()


# ---------------------------------------------------------------------------------------------------------- executors


async def test_agents_that_share_an_executor_keep_their_own_rules_and_restore_it() -> None:
    executor = executor_of(registry_of(deploy=Deploy(), echo=Echo()))
    Deploy.deployed.clear()
    async with serving(executor) as careful, serving(executor, allow_unapproved=True) as bold:
        assert state(await task_of(bold, "a", skill="deploy")) == "completed"
        assert state(await task_of(careful, "b", skill="deploy")) == "rejected"
        assert output(await task_of(careful, "hi", skill="echo")) == {"text": "hi"}
        assert await executor.call_async("deploy", {"text": "c"}) == {"deployed": "c"}  # a call outside of a task
    async with serving(executor) as careful:
        assert state(await task_of(careful, "d", skill="deploy")) == "rejected"
    assert not executor.governance_state().approval_handler_configured
    assert Deploy.deployed == ["a", "c"]
    Deploy.deployed.clear()


class Calls:
    """Calls another module, with a new context or with its own."""

    input_schema = Anything
    output_schema = Anything
    description = "Calls another"

    def __init__(self, executor: Any) -> None:
        self.executor = executor

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        given = None if inputs["own"] else context
        found: dict[str, Any] = await self.executor.call_async("deploy", {"text": "x"}, given)
        return found


@pytest.mark.parametrize("own", [False, True])
async def test_called_modules_need_approval(own: bool) -> None:
    registry = registry_of(deploy=Deploy())
    executor = executor_of(registry)
    registry.register("calls", Calls(executor))
    Deploy.deployed.clear()
    async with serving(executor) as app:
        assert state(await task_of(app, {"own": own}, skill="calls")) == "rejected"
    assert Deploy.deployed == []


@pytest.mark.parametrize(
    "error",
    [ACLDeniedError(None, "late"), apcore_errors.ModuleNotFoundError("late"), ModuleDisabledError("late")],
    ids=repr,
)
async def test_denied_and_removed_modules_look_the_same_in_a_running_task(error: Exception) -> None:
    async with serving(registry_of(late=Giving(error), echo=Echo())) as app:
        task = await task_of(app, {}, skill="late")
        assert (state(task), status_text(task)) == ("failed", "Skill not found: late")
        assert status_data(task) == {
            "code": -32601,
            "message": "Skill not found: late",
            "data": {"type": "ModuleNotFoundError"},
        }


async def test_acl_rules_added_at_run_time_apply() -> None:
    executor = executor_of(registry_of(echo=Echo(), other=Echo()))
    async with serving(executor) as app:
        assert output(await task_of(app, "hi", skill="echo")) == {"text": "hi"}
        executor.set_acl(ACL([ACLRule(callers=["*"], targets=["other"], effect="allow")], default_effect="deny"))
        denied, unknown = await error_of(app, "hi", skill="echo"), await error_of(app, "hi", skill="nope")
        assert str(denied).replace("echo", "nope") == str(unknown)
        assert server_of(app).catalog.get("echo") is not None


async def test_modules_are_registered_and_removed_during_calls() -> None:
    """Each call gets a result or "not found"; no call fails otherwise or hangs."""
    registry = registry_of(stays=Echo())
    stop = threading.Event()

    def flap() -> None:
        while not stop.is_set():
            registry.register("flaps", Blocking(dict))
            registry.unregister("flaps")

    async with serving(registry) as app:
        thread = threading.Thread(target=flap)
        thread.start()
        try:
            replies = []
            for _ in range(40):
                replies += await asyncio.gather(*[send(app, {}, skill="flaps") for _ in range(3)])
        finally:
            stop.set()
            await asyncio.to_thread(thread.join)
        for reply in [reply.json for reply in replies]:
            if "error" in reply:
                assert (reply["error"]["code"], reply["error"]["message"]) == (-32601, "Skill not found: flaps")
            elif state(reply["result"]["task"]) == "failed":
                assert status_text(reply["result"]["task"]) == "Skill not found: flaps"
            else:
                assert state(reply["result"]["task"]) == "completed"
        assert output(await task_of(app, "hi", skill="stays")) == {"text": "hi"}
        assert list(server_of(app).catalog.modules) == ["stays"]
