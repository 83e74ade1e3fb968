"""Runs in the environment of the official SDK 0.3: its client calls an agent of modules. Prints its results as JSON.

python old_client.py http://127.0.0.1:9999
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


def message(part: Any, **more: Any) -> Any:
    return T.Message(message_id=str(uuid.uuid4()), role=T.Role.user, parts=[T.Part(root=part)], **more)


async def results(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=20) as http:
        card = await CLIENT.A2ACardResolver(http, url).get_agent_card()
        factory = CLIENT.ClientFactory(CLIENT.ClientConfig(httpx_client=http, streaming=True))
        client = factory.create(card)

        async def last(sent: Any) -> Any:
            found = None
            async for event in client.send_message(sent):
                found = event[0] if isinstance(event, tuple) else event
            return found

        numbers = T.DataPart(data={"numbers": [9007199254740993, 1]})
        total = await last(message(numbers, metadata={"skillId": "total"}))
        words = await last(message(T.TextPart(text="hello"), metadata={"skillId": "echo"}))
        counted = await last(message(T.DataPart(data={"to": 3}), metadata={"skillId": "count"}))
        asked = await last(message(T.TextPart(text="the website"), metadata={"skillId": "deploy"}))
        done = await last(message(T.TextPart(text="approved"), task_id=asked.id, context_id=asked.context_id))
        return {
            "skills": [skill.id for skill in card.skills],
            "total": total.artifacts[0].parts[0].root.data,
            "echo": words.artifacts[0].parts[0].root.data,
            "count": [part.root.data["number"] for part in counted.artifacts[0].parts],
            "asked": asked.status.state.value,
            "done": [done.id == asked.id, done.status.state.value],
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(results(sys.argv[1]))))
