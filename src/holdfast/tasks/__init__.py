"""The task engine: a worker's tasks, recorded, resumed after a crash, and followed from any process.

async def echo(ctx: TaskContext) -> None:
    await ctx.complete(f"You said: {ctx.user_text}")

async with open_storage("sqlite:///holdfast.db") as kernel, TaskEngine(kernel, echo) as engine:
    sent = await engine.tasks.send(Message(message_id="1", role="user", parts=[Part(text="Hello")]))
    task = await engine.tasks.settled(sent)
"""

from __future__ import annotations

from holdfast.protocol.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from holdfast.tasks.context import FileInfo, TaskContext
from holdfast.tasks.dependencies import Dependencies, Dependency
from holdfast.tasks.engine import TaskEngine
from holdfast.tasks.envelope import Envelope, Sent
from holdfast.tasks.events import Snapshot
from holdfast.tasks.hooks import LifecycleHooks
from holdfast.tasks.inbox import Steering
from holdfast.tasks.manager import TaskManager
from holdfast.tasks.retention import RetentionPolicy, days, hours, minutes
from holdfast.tasks.settings import TaskSettings
from holdfast.tasks.steps import Done
from holdfast.tasks.worker import Worker

__all__ = [
    "Artifact",
    "Dependencies",
    "Dependency",
    "Done",
    "Envelope",
    "FileInfo",
    "LifecycleHooks",
    "Message",
    "Part",
    "RetentionPolicy",
    "Role",
    "Sent",
    "Snapshot",
    "Steering",
    "Task",
    "TaskContext",
    "TaskEngine",
    "TaskManager",
    "TaskSettings",
    "TaskState",
    "TaskStatus",
    "Worker",
    "days",
    "hours",
    "minutes",
]
