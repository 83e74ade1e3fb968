"""Push configs of clients of both versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import ASGIApp

from tests.integration.server.actor import agent
from tests.integration.server.asgi import ask, call
from tests.integration.server.reading import sending

URL = "https://example.com/hook"


@pytest.fixture
async def app() -> AsyncIterator[ASGIApp]:
    async with agent() as server:
        yield server.app


async def task_of(app: ASGIApp, **configuration: Any) -> str:
    params = {**sending("ask"), "configuration": configuration}
    return str((await call(app, "SendMessage", params)).json["result"]["task"]["id"])


async def listed(app: ASGIApp, task_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await ask(app, "GET", f"/tasks/{task_id}/pushNotificationConfigs")).json["configs"]
    return found


async def test_a_config_that_comes_with_a_message(app: ASGIApp) -> None:
    """The config belongs to the task that the message created, and its credentials are not returned."""
    config = {"url": URL, "authentication": {"scheme": "Bearer", "credentials": "secret"}}
    task_id = await task_of(app, taskPushNotificationConfig=config)
    [kept] = await listed(app, task_id)
    assert (kept["taskId"], kept["url"], kept["authentication"]) == (task_id, URL, {"scheme": "Bearer"})


async def test_a_config_with_the_same_id_is_replaced(app: ASGIApp) -> None:
    task_id = await task_of(app)
    for path in ("/one", "/two"):
        params = {"taskId": task_id, "id": "mine", "url": URL + path}
        assert (await call(app, "CreateTaskPushNotificationConfig", params)).json["result"]["id"] == "mine"
    assert [config["url"] for config in await listed(app, task_id)] == [URL + "/two"]


async def test_without_an_id_1_0_creates_another_and_0_3_replaces(app: ASGIApp) -> None:
    task_id = await task_of(app)
    for _ in range(2):
        await call(app, "CreateTaskPushNotificationConfig", {"taskId": task_id, "url": URL})
    for path in ("/one", "/two"):
        params = {"taskId": task_id, "pushNotificationConfig": {"url": URL + path}}
        await call(app, "tasks/pushNotificationConfig/set", params)
    configs = await listed(app, task_id)
    assert sorted(config["url"] for config in configs) == [URL, URL, URL + "/two"]
    assert len({config["id"] for config in configs}) == 3


async def test_pages(app: ASGIApp) -> None:
    task_id = await task_of(app)
    for i in range(5):
        await call(app, "CreateTaskPushNotificationConfig", {"taskId": task_id, "id": f"c{i}", "url": URL})
    found: list[str] = []
    token = ""
    while True:
        params = {"taskId": task_id, "pageSize": 2, "pageToken": token}
        page = (await call(app, "ListTaskPushNotificationConfigs", params)).json["result"]
        found += [config["id"] for config in page["configs"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert sorted(found) == [f"c{i}" for i in range(5)]


async def test_deleting_twice_is_no_error(app: ASGIApp) -> None:
    task_id = await task_of(app)
    path = f"/tasks/{task_id}/pushNotificationConfigs/nothing"
    for _ in range(2):
        reply = await ask(app, "DELETE", path)
        assert (reply.status, reply.json) == (200, {})
    assert (await ask(app, "GET", path)).status == 404


@pytest.mark.parametrize("url", ["", "ftp://example.com", "no url", "//example.com"])
async def test_invalid_addresses(app: ASGIApp, url: str) -> None:
    task_id = await task_of(app)
    reply = await call(app, "CreateTaskPushNotificationConfig", {"taskId": task_id, "url": url})
    assert reply.json["error"]["code"] == -32602
    assert await listed(app, task_id) == []
