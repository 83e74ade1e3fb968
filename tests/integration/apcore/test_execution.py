"""Modules run as tasks: selected, called, streamed, cancelled, timed out."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from apcore import ACL, Executor, ModuleAnnotations
from apcore.acl import ACLRule
from apcore.config import Config
from apcore.middleware import Middleware

from keelbolt.auth import Principal
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
from tests.integration.apcore.modules import (
    Anything,
    Count,
    Echo,
    Giving,
    Sleeper,
    Total,
    Whoami,
    agent_of,
    executor_of,
    registry_of,
)
from tests.integration.server.asgi import ask, call


async def test_the_skill_is_named_by_the_message_or_by_the_request() -> None:
    async with agent_of(executor_of(registry_of(echo=Echo(), total=Total()))) as server:
        task = await task_of(server.app, {"numbers": [1, 2]}, skill="total")
        assert output(task) == {"total": 3, "count": 2}
        assert task["metadata"]["skillId"] == "total"
        params = {"message": message("hello"), "metadata": {"skillId": "echo"}}
        reply = (await call(server.app, "SendMessage", params)).json
        assert output(reply["result"]["task"]) == {"text": "hello"}
        error = await error_of(server.app, "hello")
        assert (error["code"], error["message"]) == (-32602, "Missing required parameter: metadata.skillId")
        error = await error_of(server.app, "hello", metadata={"skillId": 5})
        assert error["code"] == -32602


async def test_the_shapes_of_apcore_agents_are_understood() -> None:
    """Accepted are parts by type, context and skill next to the message, and no messageId; errors have a type."""
    async with agent_of(executor_of(registry_of(echo=Echo(), total=Total()))) as server:
        params: dict[str, Any] = {
            "message": {"role": "user", "parts": [{"type": "data", "data": {"numbers": [2**70, 1]}}]},
            "metadata": {"skillId": "total"},
        }
        task = (await call(server.app, "message/send", params)).json["result"]
        assert task["status"]["state"] == "completed"
        assert task["artifacts"][0]["parts"][0]["data"]["total"] == 2**70 + 1
        params["metadata"]["skillId"] = "nothing.like.it"
        error = (await call(server.app, "message/send", params)).json["error"]
        assert error == {
            "code": -32601,
            "message": "Skill not found: nothing.like.it",
            "data": {"type": "ModuleNotFoundError"},
        }
        del params["metadata"]
        error = (await call(server.app, "message/send", params)).json["error"]
        assert (error["code"], error["message"]) == (-32602, "Missing required parameter: metadata.skillId")


async def test_the_only_skill_and_the_default_skill_need_no_name() -> None:
    async with agent_of(executor_of(registry_of(echo=Echo()))) as server:
        assert output(await task_of(server.app, "hello")) == {"text": "hello"}
    both = executor_of(registry_of(echo=Echo(), total=Total()))
    async with agent_of(both, default_skill="echo") as server:
        assert output(await task_of(server.app, "hello")) == {"text": "hello"}


async def test_wrong_input_is_refused_before_a_task_exists() -> None:
    async with agent_of(executor_of(registry_of(echo=Echo(), total=Total()))) as server:
        error = await error_of(server.app, {"numbers": [1, "x"]}, skill="total")
        assert error["code"] == -32602
        assert error["message"] == "Invalid params"
        [_, request] = error["data"]
        assert [wrong["field"] for wrong in request["fieldViolations"]] == ["/numbers/1"]
        params = {"message": message({"factor": 2}, skill="total") | {"role": "user"}}
        old = (await call(server.app, "message/send", params | {"message": _old({"factor": 2}, "total")})).json["error"]
        assert old["data"]["type"] == "SchemaValidationError"
        assert [wrong["path"] for wrong in old["data"]["errors"]] == ["/numbers"]
        for parts in (([1, 2],), (5,), ("[1, 2]",), ("no JSON",)):
            assert (await error_of(server.app, *parts, skill="total"))["code"] == -32602
        page = (await call(server.app, "ListTasks", {})).json["result"]
        assert page["tasks"] == []


def _old(data: Any, skill: str) -> dict[str, Any]:
    parts = [{"kind": "data", "data": data}]
    return {"kind": "message", "messageId": "old", "role": "user", "parts": parts, "metadata": {"skillId": skill}}


DENYING = ACL(
    [
        ACLRule(["*"], ["total"], "allow", conditions={"roles": ["adder"]}),
        ACLRule(["*"], ["total"], "deny"),
        ACLRule(["*"], ["*"], "allow"),
    ]
)


class Names:
    """Identifies callers by a header."""

    def authenticate(self, headers: dict[str, str]) -> Principal | None:
        name = headers.get("x-name")
        return None if name is None else Principal(name, roles=frozenset({"adder"} if name == "adam" else ()))

    def security_schemes(self) -> list[dict[str, Any]]:
        return [{"type": "apiKey", "in": "header", "name": "X-Name"}]


ADAM, EVE = [("x-name", "adam")], [("x-name", "eve")]


async def test_a_denied_skill_looks_like_an_unknown_one(caplog: pytest.LogCaptureFixture) -> None:
    executor = executor_of(registry_of(echo=Echo(), total=Total(), whoami=Whoami()), acl=DENYING)
    async with agent_of(executor, auth=Names()) as server:
        task = (await send(server.app, {"numbers": [1]}, skill="total", headers=ADAM)).json["result"]["task"]
        assert output(task)["total"] == 1
        for parts in (({"numbers": [1]},), ({"numbers": "wrong"},), ([1],)):
            denied = await send(server.app, *parts, skill="total", headers=EVE)
            unknown = await send(server.app, *parts, skill="totel", headers=EVE)
            assert denied.masked("total") == unknown.masked("totel")
            assert denied.json["error"]["code"] == -32601
        assert "denied by the ACL" in caplog.text
        who = (await send(server.app, {}, skill="whoami", headers=ADAM)).json["result"]["task"]
        assert (output(who)["id"], output(who)["type"], output(who)["roles"]) == ("adam", "user", ["adder"])


async def test_the_default_skill_is_not_revealed_to_callers_without_access() -> None:
    executor = executor_of(registry_of(total=Total()), acl=DENYING)
    async with agent_of(executor, auth=Names()) as server:
        assert output((await send(server.app, {"numbers": [2]}, headers=ADAM)).json["result"]["task"])["total"] == 2
        reply = await send(server.app, {"numbers": [2]}, headers=EVE)
        assert reply.json["error"]["message"] == "Missing required parameter: metadata.skillId"
        assert b"total" not in reply.body


async def test_the_context_has_the_caller_and_the_deadline() -> None:
    async with agent_of(executor_of(registry_of(whoami=Whoami())), execution_timeout=100) as server:
        task = await task_of(server.app, {})
        found = output(task)
        assert found["id"] is None
        assert 90 < found["left"] <= 100
        assert found["a2a"]["taskId"] == task["id"]
        assert found["a2a"]["contextId"] == task["contextId"]
        assert found["a2a"]["history"] == []


async def test_a_streaming_module_becomes_chunks() -> None:
    async with agent_of(executor_of(registry_of(count=Count()))) as server:
        reply = await call(server.app, "SendStreamingMessage", {"message": message({"to": 4})})
        results = [event["result"] for event in reply.events]
        chunks = [event["artifactUpdate"] for event in results if "artifactUpdate" in event]
        assert [chunk["artifact"]["parts"][0]["data"] for chunk in chunks] == [{"number": n} for n in range(1, 5)]
        assert [chunk.get("append", False) for chunk in chunks] == [False, True, True, True]
        assert results[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        task = await streamed(server.app, {"to": 3})
        assert [part["data"]["number"] for part in task["artifacts"][0]["parts"]] == [1, 2, 3]


async def test_a_client_that_does_not_stream_gets_what_execute_returns() -> None:
    """message/send uses call_async, as apcore's own adapter does; further messages likewise."""
    async with agent_of(executor_of(registry_of(count=Count()))) as server:
        assert output(await task_of(server.app, {"to": 3})) == {"last": 3}


async def test_another_call_of_a_running_task_is_a_new_turn_with_its_artifact() -> None:
    """The call is checked like any other, and the result of the first call stays."""
    gate = Gate()
    async with agent_of(executor_of(registry_of(gate=gate, count=Count()))) as server:
        params = {"message": message({"n": 1}, skill="gate"), "configuration": {"returnImmediately": True}}
        task = (await call(server.app, "SendMessage", params)).json["result"]["task"]
        await gate.began.wait()
        assert (await error_of(server.app, {"to": "x"}, skill="count", taskId=task["id"]))["code"] == -32602
        waiting = asyncio.create_task(streamed(server.app, {"to": 2}, skill="count", taskId=task["id"]))
        engine = server.routes.service.engine
        async with asyncio.timeout(10):
            while not (await engine.tasks.load(task["id"])).view.pending:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        gate.open.set()
        done = await waiting
        assert state(done) == "completed"
        found = {artifact["artifactId"]: [part["data"] for part in artifact["parts"]] for artifact in done["artifacts"]}
        assert found == {"result": [{"n": 1}], "result-2": [{"number": 1}, {"number": 2}]}


class Gate:
    """Returns when the test opens it."""

    input_schema = Anything
    output_schema = Anything
    description = "Waits to be opened"

    def __init__(self) -> None:
        self.began, self.open = asyncio.Event(), asyncio.Event()

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        self.began.set()
        await self.open.wait()
        return inputs


async def test_a_cancel_reaches_the_module() -> None:
    sleeper = Sleeper()
    patient = TaskSettings.of(cancel_seconds=60)  # long enough that only the token can end it
    async with agent_of(executor_of(registry_of(sleep=sleeper)), task_settings=patient) as server:
        sending = asyncio.create_task(task_of(server.app, {}))
        await sleeper.began.wait()
        [task] = (await call(server.app, "ListTasks", {})).json["result"]["tasks"]
        cancelled = (await call(server.app, "CancelTask", {"id": task["id"]})).json["result"]
        assert state(cancelled) == state(await sending) == "canceled"
        await asyncio.wait_for(sleeper.cancelled.wait(), 5)


async def test_a_module_that_ignores_the_cancel_is_abandoned() -> None:
    sleeper = Sleeper()
    async with agent_of(executor_of(registry_of(sleep=sleeper))) as server:
        sending = asyncio.create_task(task_of(server.app, {"deaf": True}))
        await sleeper.began.wait()
        [task] = (await call(server.app, "ListTasks", {})).json["result"]["tasks"]
        assert state((await call(server.app, "CancelTask", {"id": task["id"]})).json["result"]) == "canceled"
        assert state(await sending) == "canceled"


async def test_execution_timeout(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Count):
        input_schema = Anything

        async def stream(self, inputs: dict[str, Any], context: Any) -> Any:
            yield {"number": 1}
            await asyncio.sleep(30)

    async with agent_of(executor_of(registry_of(sleep=Sleeper(), slow=Slow())), execution_timeout=0.2) as server:
        for skill in ("sleep", "slow"):
            task = await streamed(server.app, {"deaf": skill == "sleep"}, skill=skill)
            assert (state(task), status_text(task)) == ("failed", "Execution timed out")
            assert status_data(task)["data"]["type"] == "ModuleTimeoutError"
    assert "before the execution_timeout" not in caplog.text


async def test_an_earlier_timeout_of_the_executor_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    short = Config(data={"executor": {"default_timeout": 50, "global_timeout": 60_000}})
    async with agent_of(Executor(registry_of(sleep=Sleeper()), config=short)) as server:
        task = await task_of(server.app, {"deaf": True})
        assert status_text(task) == "Execution timed out"
    assert "executor.default_timeout" in caplog.text


async def test_errors_of_modules_are_sanitized_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    secret = Giving(RuntimeError("no such file /srv/app/secrets/key.pem, password=hunter2"))
    async with agent_of(executor_of(registry_of(bad=secret))) as server:
        task = await task_of(server.app, {})
        assert (state(task), status_text(task)) == ("failed", "Internal error")
        data = {"type": "ModuleExecuteError", "code": "MODULE_EXECUTE_ERROR"}
        assert status_data(task) == {"code": -32603, "message": "Internal error", "data": data}
    assert "hunter2" in caplog.text
    record = next(record for record in caplog.records if record.name == "keelbolt.apcore" and record.exc_info)
    assert record.levelno == logging.ERROR


async def test_output_that_does_not_match_its_schema_is_an_internal_error() -> None:
    wrong = Giving({"text": 5})
    wrong.output_schema = Echo.output_schema
    async with agent_of(executor_of(registry_of(wrong=wrong))) as server:
        task = await task_of(server.app, {})
        assert status_data(task) == {
            "code": -32603,
            "message": "Internal error",
            "data": {"type": "SchemaValidationError"},
        }


async def test_an_input_that_only_a_middleware_completes_reaches_it() -> None:
    """If a middleware can change inputs, only apcore validates them, within the task."""

    class Adds(Middleware):  # type: ignore[misc]
        def before(self, module_id: str, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
            return {"numbers": [4], **inputs}

    async with agent_of(executor_of(registry_of(total=Total()), middlewares=[Adds()])) as server:
        assert output(await task_of(server.app, {}))["total"] == 4
        task = await task_of(server.app, {"numbers": "x"})
        assert state(task) == "failed"
        assert status_data(task)["data"]["errors"][0]["path"] == "/numbers"


async def test_modules_are_added_and_removed_while_the_agent_runs() -> None:
    registry = registry_of(echo=Echo())
    async with agent_of(executor_of(registry)) as server:

        async def skills() -> list[str]:
            reply = await _card(server)
            return [skill["id"] for skill in reply["skills"]]

        async def until(wanted: list[str]) -> None:
            async with asyncio.timeout(1):
                while await skills() != wanted:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        assert await skills() == ["echo"]
        await asyncio.to_thread(registry.register, "total", Total())
        await until(["echo", "total"])
        assert output(await task_of(server.app, {"numbers": [7]}, skill="total"))["total"] == 7
        await asyncio.to_thread(registry.unregister, "echo")
        await until(["total"])
        assert (await error_of(server.app, "hello", skill="echo"))["code"] == -32601


async def _card(server: Any) -> Any:
    return (await ask(server.app, "GET", "/.well-known/agent-card.json")).json


async def test_the_public_card_omits_details_of_the_extended_card() -> None:
    class Approved(Echo):
        annotations = ModuleAnnotations(requires_approval=True)

    executor = executor_of(registry_of(echo=Echo(), total=Total(), approved=Approved()), acl=DENYING)
    async with agent_of(executor, auth=Names()) as server:
        assert [skill["id"] for skill in (await _card(server))["skills"]] == ["echo"]
        for headers, wanted in ((ADAM, ["approved", "echo", "total"]), (EVE, ["approved", "echo"])):
            card = (await call(server.app, "GetExtendedAgentCard", {}, headers=headers)).json["result"]
            assert [skill["id"] for skill in card["skills"]] == wanted
            [extension] = [one for one in card["capabilities"]["extensions"] if "apcore" in one["uri"]]
            assert sorted(extension["params"]["skills"]) == wanted
    async with agent_of(executor) as server:  # without authentication, every caller can be asked for approvals
        assert [skill["id"] for skill in (await _card(server))["skills"]] == ["approved", "echo"]
