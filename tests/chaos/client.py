"""A client of a campaign: sends, streams, answers, cancels and reads tasks, and records every response.

It uses plain HTTP, so that no retry of a client library hides a response.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2

from tests.chaos.agent import OWNERS, key_of
from tests.chaos.history import History, pace

TRIES = 20
PAUSE_SECONDS = 0.1
REMEMBERED = 50
TURNS_OF_THREAD = 4
KEYED = 0.5  # share of messages that are sent with an Idempotency-Key; without it, the messageId tells a repeat
DROPPED = 0.15  # share of stream events after which the client drops the connection, and resumes
OVER = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")


class Unanswered(Exception):
    """No server responded."""


class ChaosClient:
    """One owner's client. ``hook`` is the address of the webhook receiver."""

    def __init__(self, history: History, ports: list[int], owner: str, seed: int, hook: str) -> None:
        self._history = history
        self._ports = ports
        self._dice = random.Random(seed)
        self._owner = owner
        self._hook = hook
        self._http = httpx2.AsyncClient(timeout=8.0, headers={"X-API-Key": key_of(owner), "A2A-Version": "1.0"})
        self._other = next(each for each in OWNERS if each != owner)
        self._sent: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self._number = 0
        self._turns = 0
        self._name = f"{owner}-{history.id}"

    async def run(self) -> None:
        """Run until the process ends."""
        kinds = {
            self.send: 6,
            self.send_and_leave: 4,
            self.repeat: 3,
            self.stream: 8,
            self.ask_and_answer: 3,
            self.cancel: 2,
            self.turn: 4,
            self.read: 4,
            self.spy: 1,
        }
        while True:
            what = self._dice.choices(list(kinds), list(kinds.values()))[0]
            try:
                await what()
            except (Unanswered, httpx2.HTTPError):
                await asyncio.sleep(PAUSE_SECONDS)
            await asyncio.sleep(pace() * self._dice.uniform(0, 0.05))

    # ----------------------------------------------------------------------------------------------------- requests

    async def _call(
        self, method: str, params: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the first response of any server; the request is repeated until then."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        for _ in range(TRIES):
            port = self._dice.choice(self._ports)
            try:
                response = await self._http.post(f"http://127.0.0.1:{port}/", json=body, headers=headers)
                answer: dict[str, Any] = response.json()
            except (httpx2.HTTPError, ValueError):
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            code = answer.get("error", {}).get("code")
            if response.status_code in (429, 503) or code in (-32603, -32050):  # the server asks for a retry
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            return answer
        raise Unanswered

    def _key(self, name: str) -> dict[str, str]:
        return {"Idempotency-Key": name} if self._dice.random() < KEYED else {}

    def _message(self, text: str) -> tuple[str, dict[str, Any]]:
        self._number += 1
        name = f"{self._name}-{self._number}"
        return name, {"messageId": name, "role": "ROLE_USER", "parts": [{"text": f"{text} {name}"}]}

    async def _send(
        self, text: str, *, at_once: bool = False, hook: bool = False, context: str | None = None
    ) -> dict[str, Any]:
        name, message = self._message(text)
        if context is not None:
            message["contextId"] = context
        configuration: dict[str, Any] = {"returnImmediately": at_once}
        if hook:
            configuration["taskPushNotificationConfig"] = {"url": f"{self._hook}/{name}", "id": "hook"}
        params = {"message": message, "configuration": configuration}
        sent = {"name": name, "params": params}
        return await self._send_again(sent)

    async def _send_again(self, sent: dict[str, Any]) -> dict[str, Any]:
        about = {"message": sent["name"], "owner": self._owner, "context": sent["params"]["message"].get("contextId")}
        asked = self._history.ask("send", **about)
        answer = await self._call("SendMessage", sent["params"], self._key(sent["name"]))
        task: dict[str, Any] = answer.get("result", {}).get("task", {})
        state = task.get("status", {}).get("state")
        self._history.answer(asked, "send", task=task.get("id"), state=state, error=answer.get("error"))
        if task:
            if "taskPushNotificationConfig" in sent["params"]["configuration"]:
                self._history.note("hooked", message=sent["name"], task=task["id"])
            sent["task"] = task["id"]
            self._sent.append(sent)
        return task

    async def send(self) -> None:
        """Send a task and record its end."""
        await self._send(self._dice.choice(("echo", "work")))

    async def send_and_leave(self) -> None:
        """Send a task with a webhook for its end."""
        await self._send("work", at_once=True, hook=True)

    async def repeat(self) -> None:
        """Send an earlier message again."""
        if self._sent:
            await self._send_again(self._dice.choice(self._sent))

    async def ask_and_answer(self) -> None:
        """Send a task that asks, and answer it."""
        await self._answer(await self._send("ask"), "answer")

    async def turn(self) -> None:
        """Send a turn that asks before it pays, in a thread of several turns, and decide."""
        context = f"thread-{self._name}-{self._turns // TURNS_OF_THREAD}"
        self._turns += 1
        await self._answer(await self._send("turn", context=context), self._dice.choice(("yes", "yes", "yes", "no")))

    async def _answer(self, task: dict[str, Any], reply: str) -> None:
        if task.get("status", {}).get("state") != "TASK_STATE_INPUT_REQUIRED":
            return
        name, message = self._message(reply)
        if reply in ("yes", "no"):
            message["parts"][0]["text"] = reply
        message["taskId"] = task["id"]
        what = "decision" if reply in ("yes", "no") else "answer"
        asked = self._history.ask(what, message=name, task=task["id"], reply=reply)
        answer = await self._call("SendMessage", {"message": message}, self._key(name))
        done = answer.get("result", {}).get("task", {})
        state = done.get("status", {}).get("state")
        self._history.answer(asked, what, task=done.get("id"), state=state, error=answer.get("error"))

    async def cancel(self) -> None:
        """Send a task that waits, and cancel it."""
        task = await self._send("wait", at_once=True)
        if not task:
            return
        await asyncio.sleep(self._dice.uniform(0, 0.3))
        asked = self._history.ask("cancel", task=task["id"])
        answer = await self._call("CancelTask", {"id": task["id"]})
        state = answer.get("result", {}).get("status", {}).get("state")
        self._history.answer(asked, "cancel", task=task["id"], state=state, error=answer.get("error"))

    async def read(self) -> None:
        """Read a task that was sent before."""
        if not self._sent:
            return
        task_id = self._dice.choice(self._sent)["task"]
        asked = self._history.ask("get", task=task_id)
        answer = await self._call("GetTask", {"id": task_id})
        task = answer.get("result", {})
        state = task.get("status", {}).get("state")
        self._history.answer(asked, "get", task=task.get("id"), state=state, error=answer.get("error"))

    async def spy(self) -> None:
        """Read a task as another owner; it must look like a missing one."""
        if not self._sent:
            return
        task_id = self._dice.choice(self._sent)["task"]
        asked = self._history.ask("spy", task=task_id)
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task_id}}
        port = self._dice.choice(self._ports)
        headers = {"X-API-Key": key_of(self._other)}
        answer = (await self._http.post(f"http://127.0.0.1:{port}/", json=body, headers=headers)).json()
        self._history.answer(asked, "spy", code=answer.get("error", {}).get("code"), found="result" in answer)

    # ------------------------------------------------------------------------------------------------------ streams

    async def stream(self) -> None:
        """Read a stream from its first to its last event; resume it on any server when it breaks."""
        name, message = self._message("work")
        asked = self._history.ask("stream", message=name, owner=self._owner)
        params: dict[str, Any] = {"message": message}
        method, after, task_id, state = "SendStreamingMessage", None, None, ""
        events: list[tuple[int, str]] = []
        snapshots: list[int | None] = []  # the first frame shows the task; another one would hide events
        for _ in range(TRIES * 3):
            headers = {"Last-Event-ID": str(after)} if method == "SubscribeToTask" else self._key(name)
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            url = f"http://127.0.0.1:{self._dice.choice(self._ports)}/"
            try:
                async with self._http.stream("POST", url, json=body, headers=headers, timeout=4.0) as response:
                    async for seq, data in frames(response):
                        result = json.loads(data).get("result", {})
                        task_id = task_id or result.get("task", {}).get("id")
                        if "task" in result:
                            snapshots.append(seq)
                        elif seq is not None:
                            events.append((seq, digest(result)))
                        after = seq if seq is not None else after
                        state = result.get("statusUpdate", {}).get("status", {}).get("state", state)
                        if state in OVER or self._dice.random() < DROPPED:
                            break
            except (httpx2.HTTPError, ValueError):
                await asyncio.sleep(PAUSE_SECONDS)
            if state in OVER:
                about = {"task": task_id, "state": state, "events": events, "snapshots": snapshots}
                self._history.answer(asked, "stream", **about)
                return
            if task_id is not None and after is not None:
                method, params = "SubscribeToTask", {"id": task_id}


def digest(result: dict[str, Any]) -> str:
    """Return the content of an event without the ids that the server adds."""
    (body,) = (dict(value) for value in result.values())
    for name in ("taskId", "contextId"):
        body.pop(name, None)
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


async def frames(response: httpx2.Response) -> Any:
    """Yield the frames of an SSE response: id and data."""
    seq: int | None = None
    async for line in response.aiter_lines():
        if line.startswith("id:"):
            seq = int(line[3:].strip())
        elif line.startswith("data:"):
            yield seq, line[5:].strip()
            seq = None


def run(folder: str, ports: str, owner: str, seed: str, hook: str) -> None:
    """Run until the process ends."""
    history = History(Path(folder), "client")
    client = ChaosClient(history, [int(port) for port in ports.split(",")], owner, int(seed), hook)
    asyncio.run(client.run())
