"""Runs in the environment of the official SDK 0.3: its client performs every operation once, and the models and the
protobuf messages of 0.3 read all responses again, strictly. Prints the failures by name, as JSON.

    python old_sdk.py http://127.0.0.1:9999 JSONRPC
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import Any

import httpx

T: Any = import_module("a2a.types")
CLIENT: Any = import_module("a2a.client")
ERRORS: Any = import_module("a2a.client.errors")
PB: Any = import_module("a2a.grpc.a2a_pb2")
JSON: Any = import_module("google.protobuf.json_format")

SILENCE = os.environ.get("SILENCE_SECONDS", "7")  # longer than the 5 s that the SDK waits for a byte

RESPONSES = {
    "message/send": "SendMessageResponse",
    "message/stream": "SendStreamingMessageResponse",
    "tasks/resubscribe": "SendStreamingMessageResponse",
    "tasks/get": "GetTaskResponse",
    "tasks/cancel": "CancelTaskResponse",
    "tasks/pushNotificationConfig/set": "SetTaskPushNotificationConfigResponse",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfigResponse",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigResponse",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfigResponse",
    "agent/getAuthenticatedExtendedCard": "GetAuthenticatedExtendedCardResponse",
}
MESSAGES = (
    ("message:send", "SendMessageResponse"),
    ("message:stream", "StreamResponse"),
    (":subscribe", "StreamResponse"),
    ("pushNotificationConfigs", "TaskPushNotificationConfig"),
    ("/tasks/", "Task"),
)


class Recorder(httpx.AsyncHTTPTransport):
    """A transport that records."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: list[tuple[httpx.Request, httpx.Response, bytearray]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        copy = bytearray()
        self.exchanges.append((request, response, copy))
        response.stream = _Copied(response.stream, copy)
        return response

    def check(self) -> None:
        for request, response, body in self.exchanges:
            if "event-stream" in response.headers.get("content-type", ""):
                bodies = [line[6:] for line in bytes(body).splitlines() if line.startswith(b"data: ")]
            else:
                bodies = [bytes(body)] if body else []  # a client whose stream is refused does not read the reason
            for text in bodies:
                check(request, response, json.loads(text))


class _Copied(httpx.AsyncByteStream):
    def __init__(self, stream: Any, copy: bytearray) -> None:
        self._stream = stream
        self._copy = copy

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._copy += chunk
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def check(request: httpx.Request, response: httpx.Response, value: Any) -> None:
    """Read a response strictly: no member is missing or extra."""
    path = request.url.path
    if path.startswith("/.well-known") or path == "/v1/card":
        T.AgentCard.model_validate(value)  # it also has the members of 1.0, which this model ignores
    elif path == "/":
        method = json.loads(request.content)["method"]
        model = getattr(T, RESPONSES[method]).model_validate(value)
        if method != "agent/getAuthenticatedExtendedCard":
            same(model.model_dump(mode="json", by_alias=True, exclude_unset=True), value)
    elif response.status_code < 400:
        name = next(name for part, name in MESSAGES if part in path)
        JSON.ParseDict(value, getattr(PB, name)(), ignore_unknown_fields=False)


def same(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r} is not {wanted!r}")


class Scenarios:
    """Each method performs one operation like a user of the SDK."""

    def __init__(self, url: str, transport: str, token: str) -> None:
        self.url = url
        self.transport = transport
        self.recorder = Recorder()
        self.http = httpx.AsyncClient(transport=self.recorder, timeout=20, headers={"authorization": f"Bearer {token}"})
        self.count = 0

    async def client(self, *, streaming: bool = True, polling: bool = False) -> Any:
        resolver = CLIENT.A2ACardResolver(self.http, self.url)
        card = await resolver.get_agent_card()
        config = CLIENT.ClientConfig(
            streaming=streaming,
            polling=polling,
            httpx_client=self.http,
            supported_transports=[self.transport],
            use_client_preference=True,
        )
        return CLIENT.ClientFactory(config).create(card)

    def message(self, text: str, **more: Any) -> Any:
        self.count += 1
        parts = [T.Part(root=T.TextPart(text=text))]
        return T.Message(message_id=f"{self.transport}-{self.count}", role=T.Role.user, parts=parts, **more)

    async def send(self, text: str, *, polling: bool = False, **more: Any) -> Any:
        client = await self.client(streaming=False, polling=polling)
        [event] = [event async for event in client.send_message(self.message(text, **more))]
        return event[0] if isinstance(event, tuple) else event

    async def send_and_get(self) -> None:
        sent = await self.send("echo hällo")
        same(sent.status.state, T.TaskState.completed)
        same(sent.artifacts[0].parts[0].root.text, "hällo")
        got = await (await self.client()).get_task(T.TaskQueryParams(id=sent.id, history_length=1))
        same(got.artifacts, sent.artifacts)
        same(len(got.history), 1)

    async def direct_message(self) -> None:
        message = await self.send("direct hello")
        same(message.parts[0].root.text, "hello")

    async def stream(self) -> None:
        client = await self.client()
        events = [event async for event in client.send_message(self.message("count 20"))]
        task, last = events[-1]
        same(task.status.state, T.TaskState.completed)
        same(last.final, True)
        same("".join(part.root.text for part in task.artifacts[0].parts), "".join(f"{i} " for i in range(20)))
        same([update.final for _, update in events if isinstance(update, T.TaskStatusUpdateEvent)][:-1].count(True), 0)

    async def quiet_stream(self) -> None:
        """A client with the SDK's timeouts follows a task that is silent for longer."""
        headers = self.http.headers
        await self.http.aclose()
        self.http = httpx.AsyncClient(transport=self.recorder, headers=headers)
        events = [event async for event in (await self.client()).send_message(self.message(f"quiet {SILENCE}"))]
        same(events[-1][0].status.state, T.TaskState.completed)

    async def stream_until_input(self) -> None:
        """The stream ends, with `final`, when the agent asks for input."""
        client = await self.client()
        events = [event async for event in client.send_message(self.message("ask"))]
        task, last = events[-1]
        same((task.status.state, last.final), (T.TaskState.input_required, True))
        done = await self.send("Ada", task_id=task.id)
        same((done.id, done.context_id), (task.id, task.context_id))
        same(done.artifacts[0].parts[0].root.text, "turn 2: Ada")

    async def files_and_data(self) -> None:
        if self.transport != "JSONRPC":  # over REST this client reads the bytes of a file as text
            return
        task = await self.send("file")
        parts = [part.root for artifact in task.artifacts for part in artifact.parts]
        same((parts[0].file.bytes, parts[0].file.name), ("AP8=", "x.bin"))
        same(parts[1].data, {"a": [1, None, "ä"]})

    async def cancel(self) -> None:
        task = await self.send("wait", polling=True)
        client = await self.client()
        same((await client.cancel_task(T.TaskIdParams(id=task.id))).status.state, T.TaskState.canceled)
        await self.refused(-32002, 400, client.cancel_task(T.TaskIdParams(id=task.id)))

    async def cancel_a_stubborn_worker(self) -> None:
        """A client with the SDK's timeouts gets the canceled task, whatever the worker does."""
        task = await self.send("stubborn", polling=True)
        headers = self.http.headers
        await self.http.aclose()
        self.http = httpx.AsyncClient(transport=self.recorder, headers=headers)
        canceled = await (await self.client()).cancel_task(T.TaskIdParams(id=task.id))
        same(canceled.status.state, T.TaskState.canceled)

    async def resubscribe(self) -> None:
        """A second reader sees the rest of a running task."""
        task = await self.send("count 50 0.02", polling=True)
        client = await self.client()
        events = [event async for event in client.resubscribe(T.TaskIdParams(id=task.id))]
        same(events[-1][0].status.state, T.TaskState.completed)
        same(len(events[-1][0].artifacts[0].parts[-1].root.text) > 0, True)

    async def push_configs(self) -> None:
        task = await self.send("ask")
        client = await self.client()
        config = T.PushNotificationConfig(id="one", url="https://example.com/hook", token="shown")
        given = T.TaskPushNotificationConfig(task_id=task.id, push_notification_config=config)
        made = await client.set_task_callback(given)
        same((made.task_id, made.push_notification_config.url), (task.id, config.url))
        one = T.GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="one")
        same((await client.get_task_callback(one)).push_notification_config.id, "one")
        other = T.GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="two")
        await self.refused(-32001, 404, client.get_task_callback(other))
        if self.transport == "JSONRPC":  # the client has no method for these
            params = {"id": task.id}
            same(len(await self.call("tasks/pushNotificationConfig/list", params)), 1)
            params["pushNotificationConfigId"] = "one"
            same(await self.call("tasks/pushNotificationConfig/delete", params), None)
            same(len(await self.call("tasks/pushNotificationConfig/list", {"id": task.id})), 0)

    async def extended_card(self) -> None:
        same((await (await self.client()).get_card()).description, "Does as asked, for you")

    async def errors(self) -> None:
        client = await self.client()
        await self.refused(-32001, 404, client.get_task(T.TaskQueryParams(id="nowhere")))
        await self.refused(-32001, 404, self.all(client.resubscribe(T.TaskIdParams(id="nowhere"))))
        await self.refused(-32001, 404, self.all(client.send_message(self.message("x", task_id="nowhere"))))
        done = await self.send("echo over")
        await self.refused(-32004, 400, self.send("more", task_id=done.id))

    # ----------------------------------------------------------------------------------------------------- helpers

    @staticmethod
    async def all(events: Any) -> list[Any]:
        return [event async for event in events]

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await self.http.post(self.url + "/", json=body)).json()["result"]

    async def refused(self, code: int, status: int, asking: Awaitable[Any]) -> None:
        try:
            await asking
        except ERRORS.A2AClientJSONRPCError as error:
            same(error.error.code, code)
        except ERRORS.A2AClientHTTPError as error:
            # For a refused stream, this client reports an unexpected content type, with status 400.
            same(self.transport == "JSONRPC", False)
            same(error.status_code in (status, 400), True)
        else:
            raise AssertionError("it was not refused")


SCENARIOS: tuple[Callable[[Scenarios], Awaitable[None]], ...] = (
    Scenarios.send_and_get,
    Scenarios.direct_message,
    Scenarios.stream,
    Scenarios.quiet_stream,
    Scenarios.stream_until_input,
    Scenarios.files_and_data,
    Scenarios.cancel,
    Scenarios.cancel_a_stubborn_worker,
    Scenarios.resubscribe,
    Scenarios.push_configs,
    Scenarios.extended_card,
    Scenarios.errors,
)


async def main(url: str, transport: str, token: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for scenario in SCENARIOS:
        run = Scenarios(url, transport, token)
        run.count = len(found) * 100
        try:
            await scenario(run)
            run.recorder.check()
            found[scenario.__name__] = None
        except Exception:
            found[scenario.__name__] = traceback.format_exc()
        await run.http.aclose()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:4]))))
