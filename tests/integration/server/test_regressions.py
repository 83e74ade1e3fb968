"""Known defects of similar agents. Each has a row in the table, and a test that this agent does not have it.

The tests follow in the order of the table; the table names the module of each test that is elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from keelbolt.kernel import new_id
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext, TaskSettings
from tests.integration.server.asgi import Reply, ask, call, rpc
from tests.integration.server.people import SECRET, authenticator
from tests.integration.tasks.conftest import ENGINES, store_url
from tests.integration.tasks.stage import Stage, until
from tests.integration.tasks.stage import message as engine_message
from tests.unit.auth.issuer import handmade

pytest_plugins = ["keelbolt.testing.pytest"]

HERE = "tests.integration.server.test_regressions"
AUTH = "tests.integration.server.test_auth"
LIMITS = "tests.integration.server.test_limits"

TABLE: dict[str, str] = {
    # ------------------------------------------------------------------------- lost work, and work done twice
    "a long task is begun again by a healthy process": f"{HERE}.test_a_long_task_runs_once",
    "a graceful stop loses running tasks": f"{HERE}.test_a_stop_releases_running_tasks",
    "a task of a dead process stays working": f"{HERE}.test_a_task_of_a_dead_process_continues",
    "a fast worker's events are dropped": f"{HERE}.test_a_burst_of_events_arrives_completely",
    "the end of a stream is dropped, and it hangs": f"{HERE}.test_a_burst_of_events_arrives_completely",
    "a reader that stalls loses events": f"{HERE}.test_a_reader_that_stalls_gets_everything",
    "resubscribing loses events in between": f"{HERE}.test_joining_a_stream_misses_nothing",
    "events are gone once the task ended": f"{HERE}.test_missed_events_are_available_after_the_end",
    "push configs are known to only one process": f"{HERE}.test_a_push_config_is_known_to_every_process",
    "the first message can't be repeated": f"{HERE}.test_a_repeated_first_message_is_one_task",
    "asking for input fails on some stores": f"{HERE}.test_asking_for_input_or_authentication_works",
    "a cancel of a waiting task does nothing": f"{HERE}.test_a_waiting_task_is_cancelled_at_once",
    "concurrent sends find the store locked": f"{HERE}.test_many_concurrent_sends_all_arrive",
    "a process that was idle gets no events afterwards": f"{HERE}.test_a_process_that_was_idle_still_works",
    "leaving a stream cancels the task": f"{LIMITS}.test_a_stream_ends_when_its_client_leaves",
    # ------------------------------------------------------------------------------------- wrong on the wire
    "events of 1.0 have wrong names": f"{HERE}.test_events_of_1_0_are_named_as_specified",
    "a REST response of 1.0 is a bare task": f"{HERE}.test_a_rest_response_of_1_0_has_its_wrapper",
    "deleting a push config in 0.3 has no result": f"{HERE}.test_deleting_a_push_config_of_0_3_has_a_result",
    "whole numbers become floats": f"{HERE}.test_numbers_are_returned_as_they_were_sent",
    "the skill in the request metadata is ignored": f"{HERE}.test_the_skill_may_be_in_the_metadata_of_the_request",
    # ------------------------------------------------------------------------------------------- bad input
    "a lone surrogate breaks every list": f"{HERE}.test_a_lone_surrogate_is_refused",
    "params that are no object are a server error": f"{HERE}.test_wrong_params_are_invalid_params",
    "the connection is lost with the error": f"{LIMITS}.test_a_connection_stays_open_after_an_error",
    "errors of the store are shown": f"{HERE}.test_unusual_ids_cause_no_error_and_reveal_nothing",
    "wrong numbers are internal errors": f"{HERE}.test_wrong_values_are_invalid_params",
    "negative history is no history": f"{HERE}.test_wrong_values_are_invalid_params",
    "validation reveals internals and the input": f"{HERE}.test_wrong_values_are_invalid_params",
    "any URL is accepted for a webhook": f"{HERE}.test_webhooks_to_other_networks_are_refused",
    "clients send messages in the role of the agent": f"{HERE}.test_a_client_message_has_the_user_role_and_content",
    "empty messages start tasks": f"{HERE}.test_a_client_message_has_the_user_role_and_content",
    "malformed JSON": f"{HERE}.test_malformed_json_is_a_parse_error",
    "deep nesting is a recursion error": f"{LIMITS}.test_deep_json_and_many_parts_are_413",
    "bodies have no limit": f"{HERE}.test_eleven_megabytes_are_refused",
    "bodies that are not JSON are accepted": f"{LIMITS}.test_a_body_that_is_not_json_is_415",
    "markup in an id comes back as markup": f"{HERE}.test_an_id_is_text_and_nothing_else",
    "a JSON array as text is an internal error": f"{HERE}.test_text_that_looks_like_json_is_text",
    "an unknown method": f"{HERE}.test_an_unknown_method_is_method_not_found",
    # --------------------------------------------------------------------------------------- access
    "a path beside a public one is public": f"{AUTH}.test_a_path_that_begins_like_a_public_one_is_not_public",
    "exemption by prefix": f"{AUTH}.test_exempt_prefixes_are_refused_with_the_reason",
    "a failed login of JSON-RPC is 200": f"{AUTH}.test_unauthenticated_callers_get_401_in_every_binding",
    "a token that never expires is accepted": f"{HERE}.test_a_token_without_end_is_refused",
    # -------------------------------------------------------------------------------------- logs
    "a worker's error is hidden from its operator": f"{HERE}.test_a_workers_error_is_logged_and_not_returned",
    "inputs are logged": f"{HERE}.test_texts_of_users_are_not_logged",
    "tracing is on by default": f"{HERE}.test_tracing_is_off_by_default",
}

CARD = AgentCardConfig(
    name="Agent",
    description="Does as asked.",
    capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
    input_modes=("*/*",),
)


@pytest.mark.parametrize("mistake", TABLE)
def test_every_mistake_has_its_test(mistake: str) -> None:
    module, _, name = TABLE[mistake].rpartition(".")
    assert callable(getattr(import_module(module), name))


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    return store_url(request.param, request, tmp_path)


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(ctx.user_text)


@asynccontextmanager
async def agent(worker: Any = echo, **more: Any) -> AsyncIterator[ASGIApp]:
    async with A2AServer(worker=worker, agent_card=CARD, **more) as server:
        yield server.app


def message(*parts: dict[str, Any], text: str = "Hello", **more: Any) -> dict[str, Any]:
    found = {"messageId": new_id(), "role": "ROLE_USER", "parts": list(parts) or [{"text": text}], **more}
    return {"message": found}


def task_of(reply: Reply) -> dict[str, Any]:
    task: dict[str, Any] = reply.json["result"]["task"]
    return task


def chunks(reply: Reply) -> list[str]:
    """Return the text of artifact chunks in a stream, including those within its first task."""
    found = []
    for event in reply.events:
        result = event["result"]
        for artifact in result.get("task", {}).get("artifacts", ()):
            found += [part["text"] for part in artifact["parts"]]
        if "artifactUpdate" in result:
            found += [part["text"] for part in result["artifactUpdate"]["artifact"]["parts"]]
    return found


# ------------------------------------------------------------------------------------- lost work, and work done twice


async def test_a_long_task_runs_once(tmp_path: Path) -> None:
    """A task that takes many times the lease is started once: the heartbeat renews it."""
    begun = 0

    async def work(ctx: TaskContext) -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(1.5)
        await ctx.complete("Done.")

    settings = TaskSettings(lease_seconds=0.3, heartbeat_seconds=0.1)
    async with agent(work, storage=f"sqlite:///{tmp_path}/agent.db", task_settings=settings) as app:
        task = task_of(await call(app, "SendMessage", message()))
    assert (task["status"]["state"], begun) == ("TASK_STATE_COMPLETED", 1)


async def test_a_stop_releases_running_tasks(tmp_path: Path) -> None:
    """A server that is stopped releases its running task, and the next one finishes it."""
    url = f"sqlite:///{tmp_path}/agent.db"

    async def stuck(ctx: TaskContext) -> None:
        await asyncio.sleep(3600)

    async with agent(stuck, storage=url, task_settings=TaskSettings(drain_seconds=0.1)) as app:
        params = {**message(), "configuration": {"returnImmediately": True}}
        task = task_of(await call(app, "SendMessage", params))
    async with agent(storage=url) as app:
        async with asyncio.timeout(10):
            while True:
                found = (await call(app, "GetTask", {"id": task["id"]})).json["result"]
                if found["status"]["state"] == "TASK_STATE_COMPLETED":
                    break
                await asyncio.sleep(0.05)


async def test_a_task_of_a_dead_process_continues(tmp_path: Path) -> None:
    async def stuck(ctx: TaskContext) -> None:
        await asyncio.sleep(3600)

    async with Stage(f"sqlite:///{tmp_path}/tasks.db") as stage:
        first = await stage.engine(stuck)
        sent = await first.tasks.send(engine_message())
        await stage.crash(first)
        second = await stage.engine(echo)

        async def over() -> bool:
            return (await second.tasks.load(sent.task.task_id)).state.name == "completed"

        await until(over)


async def test_a_burst_of_events_arrives_completely() -> None:
    """3,000 chunks without a pause all arrive in order, and the stream ends."""
    count = 3000

    async def work(ctx: TaskContext) -> None:
        for number in range(count):
            await ctx.emit_text_artifact(f"{number}", artifact_id="a", append=number > 0)
        await ctx.complete()

    async with agent(work) as app:
        reply = await call(app, "SendStreamingMessage", message(), patience_seconds=60)
    assert chunks(reply) == [str(number) for number in range(count)]
    assert "TASK_STATE_COMPLETED" in json.dumps(reply.events[-1])


async def test_a_reader_that_stalls_gets_everything() -> None:
    """The reader gets every event, even if thousands are written while it does not read."""
    count, written = 3000, asyncio.Event()

    async def work(ctx: TaskContext) -> None:
        for number in range(count):
            await ctx.emit_text_artifact(f"{number}", artifact_id="a", append=number > 0)
        written.set()
        await ctx.complete()

    reply, stalled = Reply(), False
    body = [rpc("SendStreamingMessage", message())]
    async with agent(work) as app:

        async def receive() -> Any:
            if not body:
                await asyncio.sleep(3600)
            return {"type": "http.request", "body": body.pop()}

        async def send(part: Any) -> None:
            nonlocal stalled
            reply.body += part.get("body", b"")
            if not stalled and b"artifactUpdate" in reply.body:
                stalled = True
                await written.wait()

        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
        async with asyncio.timeout(60):
            await app(scope, receive, send)
    assert chunks(reply) == [str(number) for number in range(count)]


@pytest.mark.parametrize("immediately", [True, False])
async def test_joining_a_stream_misses_nothing(immediately: bool) -> None:
    """The current task and the events after it are complete at any point where a reader joins."""
    go_on = asyncio.Semaphore(0)

    async def work(ctx: TaskContext) -> None:
        for number in range(40):
            await ctx.emit_text_artifact(f"{number}", artifact_id="a", append=number > 0)
            await go_on.acquire()
        await ctx.complete()

    async with agent(work) as app:
        params = {**message(), "configuration": {"returnImmediately": immediately}}
        sending = asyncio.create_task(call(app, "SendMessage", params))
        task_id = ""
        async with asyncio.timeout(10):
            while not task_id:
                await asyncio.sleep(0.01)
                tasks = (await call(app, "ListTasks", {})).json["result"]["tasks"]
                task_id = tasks[0]["id"] if tasks else ""
        joined = []
        for _ in range(40):
            joined.append(asyncio.create_task(call(app, "SubscribeToTask", {"id": task_id})))
            await asyncio.sleep(0.005)
            go_on.release()
        replies = await asyncio.gather(*joined)
        await sending
    for reply in replies:
        if reply.events and "result" in reply.events[0]:
            assert chunks(reply) == [str(number) for number in range(40)]
    assert "result" in replies[0].events[0]


async def test_missed_events_are_available_after_the_end() -> None:
    """A client that lost its connection continues after its last event, also when the task has ended."""

    async def work(ctx: TaskContext) -> None:
        for number in range(300):
            await ctx.emit_text_artifact(f"{number}", artifact_id="a", append=number > 0)
        await ctx.complete()

    async with agent(work) as app:
        whole = await call(app, "SendStreamingMessage", message())
        ids = [int(line[3:]) for line in whole.body.splitlines() if line.startswith(b"id:")]
        task_id = whole.events[0]["result"]["task"]["id"]
        for place in (0, 1, 150, len(ids) - 2):
            after = [("last-event-id", str(ids[place]))]
            rest = await call(app, "SubscribeToTask", {"id": task_id}, headers=after)
            assert rest.events == whole.events[place + 1 :]


async def test_a_push_config_is_known_to_every_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    hook = {"taskPushNotificationConfig": {"url": "https://hook.example/"}}
    async with agent(storage=url) as one, agent(storage=url) as other:
        task = task_of(await call(one, "SendMessage", {**message(), "configuration": hook}))
        listed = await call(other, "ListTaskPushNotificationConfigs", {"taskId": task["id"]})
        assert [config["url"] for config in listed.json["result"]["configs"]] == ["https://hook.example/"]


async def test_a_repeated_first_message_is_one_task() -> None:
    """Repeats without a context, concurrent or in sequence, create one task and one push config."""
    begun = 0

    async def work(ctx: TaskContext) -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0.05)
        await ctx.complete("Done.")

    hook = {"taskPushNotificationConfig": {"url": "https://hook.example/"}}
    async with agent(work) as app:
        params = {**message(), "configuration": hook}
        key = [("idempotency-key", "k")]
        replies = await asyncio.gather(*(call(app, "SendMessage", params, headers=key) for _ in range(5)))
        replies.append(await call(app, "SendMessage", params, headers=key))
        (task_id,) = {task_of(reply)["id"] for reply in replies}
        assert begun == 1
        listed = await call(app, "ListTaskPushNotificationConfigs", {"taskId": task_id})
        assert len(listed.json["result"]["configs"]) == 1
        other = {"message": {**params["message"], "parts": [{"text": "something else"}]}}
        assert (await call(app, "SendMessage", other, headers=key)).json["error"]["code"] == -32050


@pytest.mark.parametrize("what", ["input", "auth"])
async def test_asking_for_input_or_authentication_works(url: str, what: str) -> None:
    async def work(ctx: TaskContext) -> None:
        if ctx.turn == 1:
            await (ctx.request_input("More?") if what == "input" else ctx.request_auth("Sign in."))
        else:
            await ctx.complete("Done.")

    async with agent(work, storage=url) as app:
        asked = task_of(await call(app, "SendMessage", message()))
        assert asked["status"]["state"] == f"TASK_STATE_{what.upper()}_REQUIRED"
        answer = await call(app, "SendMessage", message(taskId=asked["id"]))
        assert task_of(answer)["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_waiting_task_is_cancelled_at_once() -> None:
    """The cancel returns the canceled task and leaves no asyncio task."""

    async def work(ctx: TaskContext) -> None:
        await ctx.request_input("More?")

    async with agent(work) as app:
        task = task_of(await call(app, "SendMessage", message()))
        before = len(asyncio.all_tasks())
        async with asyncio.timeout(1):
            cancelled = await call(app, "CancelTask", {"id": task["id"]})
        assert cancelled.json["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert len(asyncio.all_tasks()) <= before


async def test_many_concurrent_sends_all_arrive(tmp_path: Path) -> None:
    async with agent(storage=f"sqlite:///{tmp_path}/agent.db") as app:
        replies = await asyncio.gather(*(call(app, "SendMessage", message()) for _ in range(300)))
    assert {task_of(reply)["status"]["state"] for reply in replies} == {"TASK_STATE_COMPLETED"}


@pytest.mark.parametrize("engine", ["redis"])
async def test_a_process_that_was_idle_still_works(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> None:
    """After an idle time longer than the drivers' timeouts, any process accepts messages and they are run."""
    url = store_url(engine, request, tmp_path)
    async with agent(storage=url) as one, agent(None, storage=url) as other:
        await asyncio.sleep(5.5)
        for app in (one, other):
            task = task_of(await call(app, "SendMessage", message()))
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"


# ----------------------------------------------------------------------------------------------- wrong on the wire


async def test_events_of_1_0_are_named_as_specified() -> None:
    async def work(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact("x")
        await ctx.complete()

    async with agent(work) as app:
        events = (await call(app, "SendStreamingMessage", message())).events
    assert "task" in events[0]["result"]
    names = {name for event in events[1:] for name in event["result"]}
    assert names == {"statusUpdate", "artifactUpdate"}
    for event in events:
        assert "index" not in json.dumps(event)


async def test_a_rest_response_of_1_0_has_its_wrapper() -> None:
    async with agent() as app:
        headers = [("content-type", "application/json"), ("a2a-version", "1.0")]
        sent = await ask(app, "POST", "/message:send", headers=headers, body=json.dumps(message()).encode())
    assert list(sent.json) == ["task"]


async def test_deleting_a_push_config_of_0_3_has_a_result() -> None:
    async with agent() as app:
        task = task_of(await call(app, "SendMessage", message()))
        params = {"taskId": task["id"], "pushNotificationConfig": {"id": "c", "url": "https://hook.example/"}}
        await call(app, "tasks/pushNotificationConfig/set", params)
        gone = {"id": task["id"], "pushNotificationConfigId": "c"}
        reply = await call(app, "tasks/pushNotificationConfig/delete", gone)
    assert reply.json == {"jsonrpc": "2.0", "id": 1, "result": None}


@pytest.mark.parametrize("number", [3, 9007199254740993, -1, 0, 10**30, 0.1, 3.0, 1e300])
async def test_numbers_are_returned_as_they_were_sent(number: float) -> None:
    """Integers stay integers, large ones to the last digit: to the worker, and back in both versions."""
    seen: list[Any] = []

    async def work(ctx: TaskContext) -> None:
        seen.extend(ctx.data_parts)
        await ctx.complete_json({"n": ctx.data_parts[0]["n"]})

    async with agent(work) as app:
        new = await call(app, "SendMessage", message({"data": {"n": number}}, metadata={"n": number}))
        old = {"messageId": new_id(), "role": "user", "parts": [{"kind": "data", "data": {"n": number}}]}
        old_reply = await call(app, "message/send", {"message": {"kind": "message", **old}})
        listed = await call(app, "ListTasks", {"includeArtifacts": True})
    written = json.dumps(number).encode()
    assert [(type(data["n"]), data["n"]) for data in seen] == [(type(number), number)] * 2
    for reply in (new, old_reply, listed):
        assert b'"n":' + written in reply.body.replace(b" ", b"") or float(number) in _numbers(reply.json)


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in _numbers(item)]
    if isinstance(value, list):
        return [found for item in value for found in _numbers(item)]
    return [value] if isinstance(value, float) else []


async def test_the_skill_may_be_in_the_metadata_of_the_request() -> None:
    async def work(ctx: TaskContext) -> None:
        await ctx.complete(str(ctx.metadata.get("skillId")))

    async with agent(work) as app:
        old = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]}
        reply = await call(app, "message/send", {"message": old, "metadata": {"skillId": "adder"}})
    assert b"adder" in reply.body


# ------------------------------------------------------------------------------------------------------- bad input


async def test_a_lone_surrogate_is_refused(url: str) -> None:
    """A lone surrogate can break neither the task nor a list that contains it."""
    async with agent(storage=url) as app:
        task = task_of(await call(app, "SendMessage", message()))
        for place in ('"metadata":{"x":"\\ud800"}', '"metadata":{"\\udfff":1}', '"contextId":"\\ud800"'):
            body = rpc("SendMessage", message()).replace(b'"role"', place.encode() + b', "role"')
            reply = await ask(app, "POST", "/", headers=[("content-type", "application/json")], body=body)
            assert reply.json["error"]["code"] == -32700
        listed = await call(app, "ListTasks", {})
        assert [found["id"] for found in listed.json["result"]["tasks"]] == [task["id"]]


@pytest.mark.parametrize("params", [[1], "abc", 7, True, [], 0.5])
@pytest.mark.parametrize("method", ["GetTask", "tasks/get", "SendMessage", "SubscribeToTask"])
async def test_wrong_params_are_invalid_params(method: str, params: Any) -> None:
    async with agent() as app:
        reply = await call(app, method, params)
        assert (reply.status, reply.json["error"]["code"]) == (200, -32602)


ODD_IDS: list[Any] = [
    "a\0b",
    7,
    {"x": 1},
    None,
    [],
    "x" * 1024,
    "é" * 1000,
    "'; DROP TABLE tasks; --",
    "\U0001f600",
    "",
]


@pytest.mark.parametrize("odd", ODD_IDS)
async def test_unusual_ids_cause_no_error_and_reveal_nothing(url: str, odd: Any) -> None:
    """This holds for ids of tasks, contexts, messages and push configs, and for page tokens."""
    async with agent(storage=url) as app:
        task_id = task_of(await call(app, "SendMessage", message()))["id"]
        for method, params in (
            ("GetTask", {"id": odd}),
            ("CancelTask", {"id": odd}),
            ("SubscribeToTask", {"id": odd}),
            ("SendMessage", message(taskId=odd)),
            ("SendMessage", message(contextId=odd)),
            ("SendMessage", message(messageId=odd)),
            ("SendMessage", message(referenceTaskIds=[odd])),
            ("ListTasks", {"contextId": odd}),
            ("ListTasks", {"pageToken": odd}),
            ("ListTasks", {"pageToken": "-1"}),
            ("GetTaskPushNotificationConfig", {"taskId": task_id, "id": odd}),
            ("GetTaskPushNotificationConfig", {"taskId": odd, "id": "c"}),
            ("CreateTaskPushNotificationConfig", {"taskId": task_id, "id": odd, "url": "https://hook.example/"}),
            ("ListTaskPushNotificationConfigs", {"taskId": odd}),
            ("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": odd}),
        ):
            reply = await call(app, method, params)
            answer = reply.events[0] if reply.body.startswith((b"data", b"id")) else reply.json
            assert "result" in answer or answer["error"]["code"] in (-32001, -32602), (method, answer)
            for word in (b"SELECT", b"INSERT", b"sqlite", b"pydantic", b"Traceback", b"keelbolt."):
                assert word not in reply.body


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("GetTask", {"id": "t", "historyLength": "many"}),
    ("GetTask", {"id": "t", "historyLength": -1}),
    ("GetTask", {"id": "t", "historyLength": 1.5}),
    ("GetTask", {"id": "t", "historyLength": True}),
    ("GetTask", {}),
    ("ListTasks", {"pageSize": 0}),
    ("ListTasks", {"pageSize": 101}),
    ("ListTasks", {"pageSize": "secret-input"}),
    ("ListTasks", {"status": "secret-input"}),
    ("ListTasks", {"statusTimestampAfter": "secret-input"}),
    ("CreateTaskPushNotificationConfig", {"taskId": "t"}),
    ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": 7}),
    ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "secret-input"}),
    ("SendMessage", {}),
    ("SendMessage", {"message": "secret-input"}),
    ("SendMessage", {"message": {"role": "ROLE_USER", "parts": [{"text": "secret-input"}]}}),
    ("SendMessage", {"message": {"messageId": "m", "role": "secret-input", "parts": [{"text": "x"}]}}),
    ("SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": {"secret-input": 1}}]}}),
    ("SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"raw": "secret-input!é"}]}}),
    ("SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x", "url": "y"}]}}),
    ("tasks/get", {"id": "t", "historyLength": -1}),
    ("tasks/get", {}),
    (
        "message/send",
        {"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "nothing"}]}},
    ),
    ("tasks/pushNotificationConfig/set", {"taskId": "t"}),
]


@pytest.mark.parametrize(("method", "params"), WRONG)
async def test_wrong_values_are_invalid_params(method: str, params: dict[str, Any]) -> None:
    """The error names the field if there is one, in terms of the wire, and does not contain the input."""
    async with agent() as app:
        reply = await call(app, method, params)
    assert reply.json["error"]["code"] == -32602
    text = reply.body.decode()
    for word in ("pydantic", "secret-input", "type=", "Traceback", "errors.", "dict", "base64."):
        assert word not in text


FORBIDDEN = [
    "file:///etc/passwd",
    "gopher://hook.example/",
    "not a url",
    "",
    "https://",
    "http://127.0.0.1/",
    "https://127.0.0.1/",
    "https://[::1]/",
    "https://0.0.0.0/",
    "https://[::ffff:127.0.0.1]/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://169.254.169.254/latest/meta-data",
    "https://[fd00:ec2::254]/",
    "https://100.64.0.1/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://localhost/",
    "https://10.0.0.1/",
    "https://user:secret@hook.example/",
]


@pytest.mark.parametrize("hook", FORBIDDEN)
async def test_webhooks_to_other_networks_are_refused(hook: str) -> None:
    """Every way to create such a webhook refuses it and stores nothing of it."""
    async with agent() as app:
        task_id = task_of(await call(app, "SendMessage", message()))["id"]
        sent = {**message(), "configuration": {"taskPushNotificationConfig": {"url": hook}}}
        old = {"taskId": task_id, "pushNotificationConfig": {"url": hook}}
        for method, params in (
            ("CreateTaskPushNotificationConfig", {"taskId": task_id, "url": hook}),
            ("tasks/pushNotificationConfig/set", old),
            ("SendMessage", sent),
        ):
            assert (await call(app, method, params)).json["error"]["code"] == -32602
        listed = await call(app, "ListTaskPushNotificationConfigs", {"taskId": task_id})
        assert listed.json["result"]["configs"] == []
        assert (await call(app, "ListTasks", {})).json["result"]["totalSize"] == 1


@pytest.mark.parametrize(
    "wrong", [{"role": "ROLE_AGENT"}, {"role": "agent"}, {"role": 2}, {"parts": []}, {"parts": None}, {"parts": [{}]}]
)
async def test_a_client_message_has_the_user_role_and_content(wrong: dict[str, Any]) -> None:
    async with agent() as app:
        assert (await call(app, "SendMessage", message(**wrong))).json["error"]["code"] == -32602
        assert (await call(app, "ListTasks", {})).json["result"]["totalSize"] == 0


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", b"nonsense", b'{"a":1,}', b"\xff", b"{'a':1}", b'{"a":NaN}', b"{}{}"]
)
async def test_malformed_json_is_a_parse_error(body: bytes) -> None:
    async with agent() as app:
        reply = await ask(app, "POST", "/", headers=[("content-type", "application/json")], body=body)
    assert (reply.json["id"], reply.json["error"]["code"]) == (None, -32700)
    assert b"decoder" not in reply.body.lower()


async def test_eleven_megabytes_are_refused() -> None:
    async with agent() as app:
        begin = asyncio.get_running_loop().time()
        whole = await call(app, "SendMessage", message(text="x" * 11 * 1024 * 1024))
        pieces = await ask(app, "POST", "/", headers=[("content-type", "application/json")], body=[b" " * 65_536] * 170)
        assert (whole.status, pieces.status) == (413, 413)
        assert asyncio.get_running_loop().time() - begin < 5


async def test_an_id_is_text_and_nothing_else() -> None:
    """Markup in an id is a string like any other, in a response declared as JSON."""
    odd = "not a uuid <script>alert(1)</script>"
    async with agent() as app:
        reply = await call(app, "SendMessage", message(contextId=odd))
        assert task_of(reply)["contextId"] == odd
        assert reply.header("content-type") == "application/json"


@pytest.mark.parametrize("text", ["[1,2,3]", '{"a":', "null", '"x"', "\0", "[" * 10_000])
async def test_text_that_looks_like_json_is_text(text: str) -> None:
    async with agent() as app:
        reply = await call(app, "SendMessage", message(text=text))
        assert task_of(reply)["status"]["state"] == "TASK_STATE_COMPLETED"
        assert task_of(reply)["history"][0]["parts"] == [{"text": text}]


@pytest.mark.parametrize("method", ["nothing", "", "sendmessage", "tasks/GET", "__class__", "SendMessage\0", "rpc.x"])
async def test_an_unknown_method_is_method_not_found(method: str) -> None:
    async with agent() as app:
        assert (await call(app, method, {})).json["error"]["code"] == -32601


# ---------------------------------------------------------------------------------------------------- access


async def test_a_token_without_end_is_refused() -> None:
    forever = handmade({"alg": "HS256"}, {"sub": "alice", "aud": "agent", "tenant": "acme"}, secret=SECRET)
    bounded = {"sub": "alice", "aud": "agent", "tenant": "acme", "exp": 4102444800}
    async with agent(auth=authenticator()) as app:
        for token, status in ((forever, 401), (handmade({"alg": "HS256"}, bounded, secret=SECRET), 200)):
            headers = [("authorization", f"Bearer {token}")]
            assert (await call(app, "ListTasks", {}, headers=headers)).status == status


# ----------------------------------------------------------------------------------------------------- logs


async def test_a_workers_error_is_logged_and_not_returned(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the complete error, also from a task group; the client only gets that the agent failed."""

    async def work(ctx: TaskContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    async def fail() -> None:
        raise ValueError("the password of the database is hunter2")

    async with agent(work) as app:
        reply = await call(app, "SendMessage", message())
    assert task_of(reply)["status"]["state"] == "TASK_STATE_FAILED"
    assert b"hunter2" not in reply.body
    assert b"TaskGroup" not in reply.body
    assert "hunter2" in caplog.text


async def test_texts_of_users_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Messages, responses and bad requests are not logged at any level."""
    caplog.set_level(logging.DEBUG)
    async with agent() as app:
        await call(app, "SendMessage", message(text="my secret"))
        await call(app, "SendStreamingMessage", message(text="my secret", metadata={"x": "my secret"}))
        await call(app, "SendMessage", message({"text": 7, "x": "my secret"}))
        await call(app, "GetTask", {"id": "my secret"})
        await ask(app, "POST", "/", headers=[("x-odd", "my secret")], body=b"my secret")
    assert "my secret" not in caplog.text


async def test_tracing_is_off_by_default(caplog: pytest.LogCaptureFixture) -> None:
    """An abandoned stream logs nothing, in particular nothing about spans."""

    async def work(ctx: TaskContext) -> None:
        await ctx.send_status("on it")
        await ctx.sleep(3600)

    async with A2AServer(worker=work, agent_card=CARD) as server:
        assert server.tracing is None
        caplog.clear()
        await call(server.app, "SendStreamingMessage", message(), enough=lambda body: b"on it" in body)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
