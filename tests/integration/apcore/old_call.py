"""Runs in the environment of the official SDK 0.3: its client sends one message. Prints the task, as JSON.

python old_call.py http://127.0.0.1:9999 '{"data": {"x": 1}, "skill": "shop.order", "task": null, "context": null}'
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from importlib import import_module
from typing import Any

import httpx

T: Any = import_module("a2a.types")
CLIENT: Any = import_module("a2a.client")


async def sent(url: str, given: dict[str, Any]) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=60) as http:
        card = await CLIENT.A2ACardResolver(http, url).get_agent_card()
        client = CLIENT.ClientFactory(CLIENT.ClientConfig(httpx_client=http, streaming=True)).create(card)
        part = T.TextPart(text=given["text"]) if "text" in given else T.DataPart(data=given["data"])
        message = T.Message(
            message_id=str(uuid.uuid4()),
            role=T.Role.user,
            parts=[T.Part(root=part)],
            task_id=given.get("task"),
            context_id=given.get("context"),
            metadata={"skillId": given["skill"]} if given.get("skill") else None,
        )
        task: Any = None
        reports: list[str] = []
        async for event in client.send_message(message):
            task, update = event
            report = update.status.message if getattr(update, "status", None) is not None else None
            reports += [part.root.text for part in (report.parts if report else ()) if part.root.kind == "text"]
        return {
            "id": task.id,
            "context": task.context_id,
            "state": task.status.state.value,
            "reports": reports,
            "output": [part.root.data for artifact in task.artifacts or () for part in artifact.parts],
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(sent(sys.argv[1], json.loads(sys.argv[2])))))
