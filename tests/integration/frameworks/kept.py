"""Fills a storage through the real packages, with a canary in all data that each package stores."""

from __future__ import annotations

from typing import Any

from a2a.auth.user import User
from a2a.server.cluster import TaskVersion
from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from google.adk.events import Event, EventActions
from google.genai import types

from keelbolt.a2a_sdk import sdk_stores
from keelbolt.google_adk import KeelboltArtifactService, KeelboltMemoryService, KeelboltSessionService
from keelbolt.kernel import Kernel
from keelbolt.langgraph import KeelboltSaver, KeelboltStore
from keelbolt.openai_agents import KeelboltSession
from tests.integration.frameworks.graphs import build

LARGE = 2_000_000  # a value of this size is a blob


async def fill_langgraph(kernel: Kernel, thread: str, *, user: str, canary: str) -> Any:
    """Store a thread with subgraphs, an interrupt and a blob, and an item of the user. Return its state values."""
    async with KeelboltSaver(kernel) as saver:
        graph = build(saver)
        config: Any = {"configurable": {"thread_id": thread}}
        await graph.ainvoke({"log": [canary, canary * (LARGE // len(canary))]}, config)
        values = (await graph.aget_state(config)).values
    async with KeelboltStore(kernel) as store:
        await store.aput(("memories", user), f"key {canary}", {"text": canary})
    return values


async def fill_openai(kernel: Kernel, session: str, *, canary: str) -> None:
    one = KeelboltSession(session, kernel)
    await one.add_items([{"role": "user", "content": f"{canary} {number}"} for number in range(30)])


async def fill_adk(kernel: Kernel, session: str, *, user: str, canary: str) -> None:
    """Store a session with state and events, a large artifact with two versions, and memories."""
    who: Any = {"app_name": "shop", "user_id": user}
    sessions = KeelboltSessionService(kernel)
    made = await sessions.create_session(**who, session_id=session, state={"user:name": canary, "x": canary})
    for number in range(10):
        content = types.Content(role="user", parts=[types.Part(text=f"{canary} {number}")])
        actions = EventActions(state_delta={"count": number})
        await sessions.append_event(made, Event(id=f"e{number}", author="user", content=content, actions=actions))
    artifacts = KeelboltArtifactService(kernel)
    for version in range(2):
        part = types.Part.from_bytes(data=f"{canary} {version}".encode() * 10_000, mime_type="text/plain")
        await artifacts.save_artifact(**who, session_id=session, filename="a.txt", artifact=part)
    await KeelboltMemoryService(kernel).add_session_to_memory(made)


async def fill_a2a(url: str, task: str, *, owner: str, canary: str) -> None:
    """Store a task of the owner with a push config."""
    context = ServerCallContext(user=_Named(owner))
    async with sdk_stores(url) as stores:
        message = pb.Message(message_id="m", role=pb.Role.ROLE_USER, parts=[pb.Part(text=canary)])
        status = pb.TaskStatus(state=pb.TaskState.TASK_STATE_COMPLETED)
        new = pb.Task(id=task, context_id=f"context of {task}", status=status, history=[message])
        await stores.tasks.save(new, prev_version=TaskVersion.MISSING, context=context)
        config = pb.TaskPushNotificationConfig(task_id=task, id="c", url="https://example.org/", token=canary)
        await stores.push_configs.set_info(task, config, context)


class _Named(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name
