"""The reference contains every callback, option and event of turns."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keelbolt.turns import durable_storage
from keelbolt.turns.callbacks import CALLBACKS
from keelbolt.turns.events import FUNCTIONAL, OBSERVED, WRITTEN
from keelbolt.turns.runner import TurnRunnerConfig
from tests.integration.turns.providers import openai, provider

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/turns.md").read_text()


@pytest.mark.parametrize("name", sorted({*TurnRunnerConfig.__annotations__, *FUNCTIONAL, *(OBSERVED - WRITTEN)}))
def test_every_name_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_every_callback_is_shown_with_its_shape() -> None:
    lines = PAGE.splitlines()
    for callback in CALLBACKS.values():
        assert any(f"`{callback.name}`" in line and f"`{callback.shape}`" in line for line in lines), callback.name


@pytest.mark.parametrize("name", list(inspect.signature(durable_storage).parameters)[1:])
def test_every_option_of_durable_storage_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE.split("## durable_storage")[1]


async def test_the_agent_of_turns_asks_and_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs over A2A, with a local server that speaks the wire format of the model provider; at most 40 lines."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tutorial/faces.md").read_text(), re.DOTALL)
    (program,) = [text for text in blocks if "# shop.py" in text]
    assert len(program.strip().splitlines()) <= 40
    monkeypatch.chdir(tmp_path)
    functions = [("price", {"item": "kettle"}), ("pay", {"item": "kettle", "amount": 30})]
    replies = [
        openai({"tool_calls": [{"index": 0, "id": "x", "function": {"name": name, "arguments": json.dumps(args)}}]})
        for name, args in functions
    ]
    async with provider(*replies, openai({"content": "It is "}, {"content": "paid."})) as model:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
        names: dict[str, Any] = {"__name__": "shop"}
        exec(compile(program, "shop.py", "exec"), names)
        server = names["server"]
        async with (
            server,
            httpx2.AsyncClient(transport=httpx2.ASGITransport(server.app), base_url="http://localhost") as http,
        ):
            asked = await send(http, "buy a kettle")
            assert asked["status"]["message"]["parts"][0]["text"].startswith("May I pay 30 EUR for the kettle?")
            done = await send(http, "yes", task=asked["id"])
    assert "completed" in done["status"]["state"].lower()
    assert "It is paid." in json.dumps(done["artifacts"]).replace('"}, {"text": "', "")
    results = [entry["content"] for entry in model.requests[-1][2]["messages"] if entry["role"] == "tool"]
    assert results[0] == "30"
    assert json.loads(results[1])["paid"] == 30


async def send(http: httpx2.AsyncClient, text: str, *, task: str | None = None) -> dict[str, Any]:
    message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}
    if task is not None:
        message["taskId"] = task
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = (await http.post("/", json=body, headers={"A2A-Version": "1.0"})).json()
    found: dict[str, Any] = answer["result"]["task"]
    return found
