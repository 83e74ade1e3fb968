"""The task engine: records a worker's tasks, resumes them after a crash, and lets any process follow them.

async def echo(ctx: TaskContext) -> None:
    await ctx.complete(f"You said: {ctx.user_text}")

async with open_storage("sqlite:///keelbolt.db") as kernel, TaskEngine(kernel, echo) as engine:
    sent = await engine.tasks.send(Message(message_id="1", role="user", parts=[Part(text="Hello")]))
    task = await engine.tasks.settled(sent)
"""

from __future__ import annotations

from keelbolt.data.retention import days, hours, minutes
from keelbolt.protocol.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from keelbolt.tasks.context import TaskContext
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.events import TaskSnapshot
from keelbolt.tasks.inbox import SteeringRequest
from keelbolt.tasks.manager import TaskManager
from keelbolt.tasks.sends import Envelope, Sent
from keelbolt.tasks.settings import RetentionPolicy, TaskSettings
from keelbolt.tasks.steps import Done
from keelbolt.tasks.turn_input import FileInfo
from keelbolt.tasks.worker import Dependencies, Dependency, LifecycleHooks, Worker

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
    "SteeringRequest",
    "Task",
    "TaskContext",
    "TaskEngine",
    "TaskManager",
    "TaskSettings",
    "TaskSnapshot",
    "TaskState",
    "TaskStatus",
    "Worker",
    "days",
    "hours",
    "minutes",
]
