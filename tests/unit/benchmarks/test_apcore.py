"""`python -m benchmarks apcore` measures a successful call."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.apcore import _alone
from benchmarks.modules import INPUT, SKILL, call, executor
from keelbolt.apcore import ApcoreServer
from tests.integration.server.asgi import ask


async def test_the_executor_alone_is_measured() -> None:
    assert await executor().call_async(SKILL, dict(INPUT)) == INPUT
    assert await _alone(10, views=False) > 0
    assert await _alone(10, views=True) > 0


@pytest.mark.parametrize("text_only", [False, True])
async def test_the_call_is_answered_by_the_module(text_only: bool) -> None:
    async with ApcoreServer(executor(), storage="memory:") as server:
        headers = [("content-type", "application/json"), ("a2a-version", "1.0")]
        reply = await ask(server.app, "POST", "/", headers=headers, body=call("1", text_only=text_only))
    task: dict[str, Any] = reply.json["result"]["task"]
    assert task["artifacts"][0]["parts"][0]["data"] == INPUT
