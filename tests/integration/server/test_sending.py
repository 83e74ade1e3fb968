"""Sending and reading: which calls wait, which task a message reaches, how much history is returned."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from keelbolt.kernel import Scope
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import listing
from keelbolt.tasks.sends import Send, Sent
from keelbolt.tasks.settings import TaskSettings
from keelbolt.tasks.sweep import erase_task
from tests.integration.server.actor import agent
from tests.integration.server.asgi import Reply, ask, call, rpc
from tests.integration.server.people import authenticator, bearer

JSON = [("content-type", "application/json")]


@pytest.fixture
async def app() -> AsyncIterator[ASGIApp]:
    async with agent() as server:
        yield server.app


def message(text: str, message_id: str = "m", **more: Any) -> dict[str, Any]:
    return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **more}


async def send(
    app: ASGIApp, text: str, message_id: str = "m", *, configuration: Any = None, key: str | None = None, **more: Any
) -> Reply:
    params = {"message": message(text, message_id, **more)}
    return await call(
        app,
        "SendMessage",
        params if configuration is None else {**params, "configuration": configuration},
        headers=[("idempotency-key", key)] if key is not None else [],
    )


def task_of(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = reply.json["result"]["task"]
    return found


def state_of(reply: Reply) -> str:
    return str(task_of(reply)["status"]["state"]).removeprefix("TASK_STATE_")


def code_of(reply: Reply) -> int:
    return int(reply.json["error"]["code"])


# ------------------------------------------------------------------------------------------------------------- waiting


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("echo hello", "COMPLETED"),
        ("fail because", "FAILED"),
        ("reject no", "REJECTED"),
        ("ask", "INPUT_REQUIRED"),
        ("auth", "AUTH_REQUIRED"),
    ],
)
async def test_a_send_waits_for_the_end_of_the_turn(app: ASGIApp, text: str, state: str) -> None:
    assert state_of(await send(app, text)) == state
    assert state_of(await send(app, text, "m2", configuration={"returnImmediately": False})) == state


async def test_a_non_blocking_send_returns_at_once(app: ASGIApp, tmp_path: Path) -> None:
    reply = await send(app, f"until {tmp_path}/go", configuration={"returnImmediately": True}, key="k")
    assert state_of(reply) in ("SUBMITTED", "WORKING")
    (tmp_path / "go").touch()
    repeated = await send(app, f"until {tmp_path}/go", key="k")
    assert (task_of(repeated)["id"], state_of(repeated)) == (task_of(reply)["id"], "COMPLETED")


@pytest.mark.parametrize(("blocking", "waits"), [(True, True), (False, False), (None, True)])
async def test_blocking_in_0_3(app: ASGIApp, tmp_path: Path, blocking: bool | None, waits: bool) -> None:
    """0.3 has `blocking`; without it the call waits, as with the official SDK."""
    configuration = {} if blocking is None else {"configuration": {"blocking": blocking}}
    parts = [{"kind": "text", "text": f"until {tmp_path}/go"}]
    params = {"message": {"messageId": "m", "kind": "message", "role": "user", "parts": parts}, **configuration}
    asking = asyncio.create_task(call(app, "message/send", params))
    await asyncio.sleep(0.1)
    assert asking.done() is not waits
    (tmp_path / "go").touch()
    state = (await asking).json["result"]["status"]["state"]
    assert state == "completed" if waits else state in ("submitted", "working")


@pytest.mark.parametrize("path", ["/", "/message:send"])
async def test_a_disconnected_client_is_not_waited_for(path: str) -> None:
    """The server notices the disconnect before the turn is over; the task continues."""
    async with agent() as server, asyncio.timeout(20):
        params = {"message": message("wait")}
        body = rpc("SendMessage", params) if path == "/" else json.dumps(params).encode()
        chunks = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
        sent_events: list[Any] = []

        async def receive() -> Any:
            return chunks.pop(0)

        async def tell(message: Any) -> None:
            sent_events.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
        await server.app(scope, receive, tell)
        assert sent_events == []
        [task] = (await call(server.app, "ListTasks", {})).json["result"]["tasks"]
        assert task["status"]["state"] == "TASK_STATE_WORKING"


async def test_blocking_has_a_time_limit() -> None:
    """After blocking_seconds the call returns the current task, which continues."""
    async with agent(settings=ServerSettings.of({}, blocking_seconds=0.2)) as server:
        begun = time.monotonic()
        reply = await send(server.app, "wait")
        assert 0.15 < time.monotonic() - begun < 5
        assert state_of(reply) == "WORKING"
        canceled = await call(server.app, "CancelTask", {"id": task_of(reply)["id"]})
        assert canceled.json["result"]["status"]["state"] == "TASK_STATE_CANCELED"


async def test_many_senders_that_wait_for_one_task(app: ASGIApp) -> None:
    """The same message sent concurrently with one key is one task, and every sender gets its end."""
    replies = await asyncio.gather(*[send(app, "count 20 0.01", key="k") for _ in range(20)])
    assert len({task_of(reply)["id"] for reply in replies}) == 1
    assert {state_of(reply) for reply in replies} == {"COMPLETED"}


# --------------------------------------------------------------------------------------------------------- target task


async def test_a_repeat_is_the_same_task_and_another_body_an_error(app: ASGIApp) -> None:
    """An Idempotency-Key works in every binding; without one, a repeat by an anonymous caller is a new task."""
    first = await send(app, "echo hello", key="k")
    assert (await send(app, "echo hello", key="k")).body == first.body
    other = await send(app, "echo goodbye", key="k")
    assert code_of(other) == -32050
    assert other.json["error"]["data"][0]["reason"] == "IDEMPOTENCY_KEY_REUSED"
    headers = [*JSON, ("idempotency-key", "k")]
    body = json.dumps({"message": message("echo goodbye")}).encode()
    rest = await ask(app, "POST", "/message:send", headers=headers, body=body)
    assert (rest.status, rest.json["error"]["status"]) == (409, "ALREADY_EXISTS")
    body = json.dumps({"message": message("echo hello")}).encode()
    rest = await ask(app, "POST", "/message:send", headers=headers, body=body)
    assert rest.json["task"]["id"] == task_of(first)["id"]
    old = {"messageId": "m", "kind": "message", "role": "user", "parts": [{"kind": "text", "text": "echo hello"}]}
    in_v03 = await call(app, "message/send", {"message": old}, headers=headers[1:])
    assert in_v03.json["result"]["id"] == task_of(first)["id"]
    assert task_of(await send(app, "echo hello"))["id"] != task_of(first)["id"]


@pytest.mark.parametrize("key", ["", "x" * 256, "\u00e4"])
async def test_invalid_idempotency_keys(app: ASGIApp, key: str) -> None:
    """The request is a bad request and creates no task."""
    assert code_of(await send(app, "echo hello", key=key)) == -32602
    assert (await call(app, "ListTasks", {})).json["result"]["tasks"] == []
    assert state_of(await send(app, "echo hello", key="x" * 255)) == "COMPLETED"


@pytest.mark.parametrize(
    ("method", "configuration"),
    [("SendMessage", {}), ("SendMessage", {"returnImmediately": True}), ("SendStreamingMessage", {})],
    ids=["waits", "immediate", "stream"],
)
async def test_a_repeat_whose_task_is_erased_meanwhile_is_asked_for_again(
    method: str, configuration: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """*Task not found* would be final, but the message can be sent again: then it creates a new task."""

    async def erased(scope: Scope, send: Send) -> Sent:
        sent = await repeated(scope, send)
        assert await erase_task(engine.store, scope, sent.task.record.task_id)
        return sent

    async with agent() as server:
        engine = server.routes.service.engine
        repeated = engine.tasks._repeated
        monkeypatch.setattr(engine.tasks, "_repeated", erased)
        params = {"message": message("echo hello"), "configuration": configuration}
        headers = [("idempotency-key", "k")]
        first = await call(server.app, "SendMessage", params, headers=headers)
        again = await call(server.app, method, params, headers=headers)
        assert again.json["error"]["message"] == "The agent is temporarily unavailable; try again later."
        assert task_of(await call(server.app, "SendMessage", params, headers=headers))["id"] != task_of(first)["id"]


async def test_an_authenticated_caller_repeats_without_a_key() -> None:
    """The message id with the same body and ids is enough; the same id with another body is a new message."""
    async with agent(auth=authenticator()) as server:
        who = list(bearer("ada"))

        async def sent(text: str) -> Reply:
            return await call(server.app, "SendMessage", {"message": message(text)}, headers=who)

        first = await sent("echo hello")
        assert (await sent("echo hello")).body == first.body
        assert task_of(await sent("echo goodbye"))["id"] != task_of(first)["id"]


async def test_a_task_is_continued_by_its_id_alone(app: ASGIApp) -> None:
    asked = task_of(await send(app, "ask"))
    done = task_of(await send(app, "Ada", "m2", taskId=asked["id"]))
    assert (done["id"], done["contextId"]) == (asked["id"], asked["contextId"])
    assert {entry["contextId"] for entry in done["history"]} == {asked["contextId"]}
    assert done["artifacts"][0]["parts"][0]["text"] == "turn 2: Ada"


async def test_a_context_of_another_task_is_refused(app: ASGIApp) -> None:
    asked = task_of(await send(app, "ask"))
    reply = await send(app, "Ada", "m2", taskId=asked["id"], contextId="another")
    assert code_of(reply) == -32602
    after = (await call(app, "GetTask", {"id": asked["id"]})).json["result"]
    assert after["history"] == asked["history"]


async def test_a_context_id_of_the_client_is_used(app: ASGIApp) -> None:
    tasks = [task_of(await send(app, f"echo {i}", f"m{i}", contextId="ours")) for i in range(2)]
    assert [task["contextId"] for task in tasks] == ["ours", "ours"]
    assert tasks[0]["id"] != tasks[1]["id"]
    listed = (await call(app, "ListTasks", {"contextId": "ours"})).json["result"]
    assert listed["totalSize"] == 2


async def test_a_client_can_not_create_a_task_id(app: ASGIApp) -> None:
    assert code_of(await send(app, "echo", taskId="mine")) == -32001


@pytest.mark.parametrize("text", ["echo", "fail", "reject"])
async def test_an_ended_task_accepts_no_message(app: ASGIApp, text: str) -> None:
    over = task_of(await send(app, text))
    reply = await send(app, "more", "m2", taskId=over["id"])
    assert (code_of(reply), reply.json["error"]["data"][0]["reason"]) == (-32004, "UNSUPPORTED_OPERATION")
    params = {"message": message("more", "m3", taskId=over["id"])}
    assert code_of(await call(app, "SendStreamingMessage", params)) == -32004


async def test_a_message_to_a_running_task_waits_for_its_turn(app: ASGIApp, tmp_path: Path) -> None:
    working = task_of(await send(app, f"until {tmp_path}/go", configuration={"returnImmediately": True}))
    reply = await send(app, "more", "m2", taskId=working["id"], configuration={"returnImmediately": True})
    assert state_of(reply) == "WORKING"


async def test_a_non_blocking_follow_up_returns_the_committed_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run writes to its own copy of the task before the commit; the response does not use it."""
    async with agent() as server:
        asked = task_of(await send(server.app, "ask"))
        tasks = server.routes.service.tasks
        send_it = tasks.send

        async def sent(*args: Any, **more: Any) -> Any:
            found = await send_it(*args, **more)
            found.task.view.metadata["uncommitted"] = True
            return found

        monkeypatch.setattr(tasks, "send", sent)
        reply = await send(server.app, "Ada", "m2", taskId=asked["id"], configuration={"returnImmediately": True})
        assert task_of(reply)["id"] == asked["id"]
        assert b"uncommitted" not in reply.body


async def test_double_text_reject() -> None:
    async with agent(task_settings=TaskSettings.of({}, double_text="reject", drain_seconds=0.2)) as server:
        working = task_of(await send(server.app, "wait", configuration={"returnImmediately": True}))
        assert code_of(await send(server.app, "more", "m2", taskId=working["id"])) == -32004


# ----------------------------------------------------------------------------------------------------------- responses


async def test_a_message_instead_of_a_task(app: ASGIApp) -> None:
    """The agent may respond with only a message, in every binding."""
    reply = await send(app, "direct hello")
    assert set(reply.json["result"]) == {"message"}
    assert reply.json["result"]["message"]["parts"] == [{"text": "hello"}]
    body = b'{"message":{"messageId":"m2","role":"ROLE_USER","parts":[{"text":"direct hello"}]}}'
    reply = await ask(app, "POST", "/message:send", headers=JSON, body=body)
    assert reply.json["message"]["role"] == "ROLE_AGENT"
    parts = [{"kind": "text", "text": "direct hello"}]
    old = {"message": {"messageId": "m3", "kind": "message", "role": "user", "parts": parts}}
    reply = await call(app, "message/send", old)
    assert (reply.json["result"]["kind"], reply.json["result"]["parts"][0]["text"]) == ("message", "hello")


@pytest.mark.parametrize(
    ("length", "shown"),
    [(None, ["m", "agent", "m2"]), (0, None), (1, ["m2"]), (2, ["agent", "m2"]), (9, ["m", "agent", "m2"])],
)
async def test_how_much_history_is_returned(app: ASGIApp, length: int | None, shown: list[str] | None) -> None:
    """Unset: all; 0: the member is left out; N: the last N."""
    asked = task_of(await send(app, "ask"))
    configuration = {} if length is None else {"historyLength": length}
    done = task_of(await send(app, "Ada", "m2", taskId=asked["id"], configuration=configuration))
    got = (await call(app, "GetTask", {"id": asked["id"], **configuration})).json["result"]
    for task in (done, got):
        history = task.get("history")
        ids = history and [entry["messageId"] if entry["role"] == "ROLE_USER" else "agent" for entry in history]
        assert ids == shown
    query = "" if length is None else f"historyLength={length}"
    assert (await ask(app, "GET", f"/tasks/{asked['id']}", query=query)).json.get("history") == got.get("history")


async def test_a_page_of_large_tasks_ends_early(app: ASGIApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """With artifacts or history, a page ends when it gets large; the next continues, and each task is listed once."""
    for number in range(7):
        await send(app, "echo " + "x" * 1000, f"m{number}")
    monkeypatch.setattr(listing, "PAGE_BYTES", 3000)
    seen: list[str] = []
    pages, token = 0, ""
    while True:
        params = {"pageSize": 5, "includeArtifacts": True, **({"pageToken": token} if token else {})}
        page = (await call(app, "ListTasks", params)).json["result"]
        assert (page["totalSize"], page["pageSize"]) == (7, 5)
        assert all(task["artifacts"] for task in page["tasks"])
        seen += [task["id"] for task in page["tasks"]]
        pages += 1
        if not (token := page["nextPageToken"]):
            break
    assert (len(seen), len(set(seen)), pages) == (7, 7, 3)
    monkeypatch.undo()
    whole = (await call(app, "ListTasks", {"pageSize": 5, "includeArtifacts": True})).json["result"]
    assert [task["id"] for task in whole["tasks"]] == seen[:5]
    assert whole["nextPageToken"]


async def test_lists_return_the_requested_fields(app: ASGIApp) -> None:
    """Artifacts are included only on request, history by its length, newest tasks first, all four members always."""
    for i in range(3):
        await send(app, f"echo {i}", f"m{i}")
        await asyncio.sleep(0.002)  # times are in milliseconds
    page = (await call(app, "ListTasks", {})).json["result"]
    assert set(page) == {"tasks", "nextPageToken", "pageSize", "totalSize"}
    assert (page["nextPageToken"], page["pageSize"], page["totalSize"]) == ("", 50, 3)
    assert all("artifacts" not in task for task in page["tasks"])
    times = [task["status"]["timestamp"] for task in page["tasks"]]
    assert times == sorted(times, reverse=True)
    page = (await call(app, "ListTasks", {"includeArtifacts": True, "historyLength": 1})).json["result"]
    assert [task["artifacts"][0]["parts"][0]["text"] for task in page["tasks"]] == ["2", "1", "0"]
    assert all(len(task["history"]) == 1 for task in page["tasks"])
    states = "status=TASK_STATE_COMPLETED"
    reply = await ask(app, "GET", "/tasks", query=f"pageSize=2&includeArtifacts=true&{states}")
    assert (len(reply.json["tasks"]), reply.json["pageSize"]) == (2, 2)
    more = await ask(app, "GET", "/tasks", query=f"pageSize=2&{states}&pageToken={reply.json['nextPageToken']}")
    assert len(more.json["tasks"]) == 1
    after = page["tasks"][0]["status"]["timestamp"]
    reply = await ask(app, "GET", "/tasks", query=f"statusTimestampAfter={after}")
    assert [task["status"]["timestamp"] for task in reply.json["tasks"]] == [after]


# ------------------------------------------------------------------------------------------------------- content types


@pytest.mark.parametrize(
    ("part", "taken"),
    [
        ({"text": "echo"}, True),
        ({"text": "echo", "mediaType": "text/plain; charset=utf-8"}, True),
        ({"text": "echo", "mediaType": "Application/JSON"}, True),
        ({"data": {"a": 1}}, True),
        ({"url": "https://example.com/x"}, True),
        ({"text": "<b>", "mediaType": "text/html"}, False),
        ({"raw": "AAAA", "mediaType": "video/mp4"}, False),
        ({"url": "https://example.com/x", "mediaType": "image/png"}, False),
    ],
)
async def test_parts_of_media_types_that_the_agent_accepts(app: ASGIApp, part: dict[str, Any], taken: bool) -> None:
    params = {"message": {**message(""), "parts": [{"text": "echo"}, part]}}
    reply = await call(app, "SendMessage", params)
    if taken:
        assert "result" in reply.json
    else:
        assert (code_of(reply), reply.json["error"]["data"][0]["reason"]) == (-32005, "CONTENT_TYPE_NOT_SUPPORTED")


@pytest.mark.parametrize(
    ("accept", "shown"),
    [
        (None, "application/a2a+json"),
        ("*/*", "application/a2a+json"),
        ("application/a2a+json", "application/a2a+json"),
        ("application/json", "application/json"),
    ],
)
async def test_rest_responds_with_the_media_type_of_1_0(app: ASGIApp, accept: str | None, shown: str) -> None:
    """Responses and errors have it, unless a client requests plain JSON by name."""
    headers = [] if accept is None else [("accept", accept)]
    assert (await ask(app, "GET", "/tasks", headers=headers)).header("content-type") == shown
    assert (await ask(app, "GET", "/tasks/nowhere", headers=headers)).header("content-type") == shown


@pytest.mark.parametrize("kind", ["application/json", "application/a2a+json", "application/json; charset=utf-8"])
async def test_bodies_of_both_media_types_are_accepted(app: ASGIApp, kind: str) -> None:
    body = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"echo"}]}}'
    reply = await ask(app, "POST", "/message:send", headers=[("content-type", kind)], body=body)
    assert reply.status == 200
