"""Writes example tasks and a session of a state store into the demo's storage.

    python -m examples.demo.history sqlite:///keelbolt.db

It runs in its own process, before the server forks. It does nothing on a storage that already has this data.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from examples.demo.agent import SKILL, Demo
from keelbolt.errors import KeelboltError
from keelbolt.kernel import open_storage
from keelbolt.protocol.types import Message, Part, Role, TaskState
from keelbolt.state import (
    ArtifactScope,
    PlannerEvent,
    StateStore,
    StateUpdate,
    SteeringEvent,
    SteeringEventType,
    StoredEvent,
    TaskContextSnapshot,
    TaskStatus,
    TaskType,
    Trajectory,
    UpdateType,
)
from keelbolt.state import TaskState as SessionTask
from keelbolt.state.types import PlannerAction, TrajectoryStep
from keelbolt.tasks import Envelope, TaskEngine

SESSION, TRACE = "harbour-tour", "harbour-tour-1"

MESSAGES: tuple[tuple[str, Any, str], ...] = (  # skill, message, answer to the agent's question
    ("echo", "Hello", ""),
    ("count", "count to 12", ""),
    ("write", "write about lighthouses", ""),
    ("work", "work through 6 parcels", ""),
    ("book", "book a table", "half past seven"),
    ("deploy", "deploy the site", "approve"),
    ("deploy", "deploy the shop", "reject"),
    ("deploy", "deploy the docs", ""),  # waits for its approval
    ("fail", "break down", ""),
    ("plan", "plan a trip to Lisbon", "approve"),
    ("plan", "plan a trip to Oslo", ""),  # waits at a gate
    ("text.count", {"text": "to be or not to be"}, ""),
    ("text.spell", {"word": "keelbolt"}, ""),
    ("shop.refund", {"order": "A-17", "cents": 1250}, ""),  # waits too
)


async def write_history(url: str) -> None:
    """Write the data, once per storage."""
    async with open_storage(url) as kernel, StateStore(kernel, types="own") as store:
        if await store.list_tasks(SESSION):
            return
        async with TaskEngine(kernel, Demo(url, pace=0)) as engine:
            for number, (skill, said, answer) in enumerate(MESSAGES):
                await say(engine, f"history-{number}", skill, said, answer)
        await keep_session(store)


async def say(engine: TaskEngine, message_id: str, skill: str, said: Any, answer: str) -> None:
    part = Part(text=said) if isinstance(said, str) else Part(data=said)
    message = Message(message_id=message_id, role=Role.user, parts=[part], metadata={SKILL: skill})
    task = await engine.tasks.settled(
        await engine.tasks.send(message, Envelope(metadata={SKILL: skill}, key=message_id))
    )
    if answer and task.view.state is TaskState.input_required:
        message = Message(
            message_id=f"{message_id}-answer",
            role=Role.user,
            parts=[Part(text=answer)],
            task_id=task.record.task_id,
            context_id=task.record.context_id,
        )
        await engine.tasks.settled(await engine.tasks.send(message, Envelope(key=message.message_id)))


async def keep_session(store: StateStore) -> None:
    """Write a session like an agent framework: a task with updates, steering, events, a trajectory, a file."""
    now, task_id = time.time(), "report"
    for number, (kind, node) in enumerate((("node_start", "plan"), ("node_success", "plan"), ("node_success", "tide"))):
        await store.save_event(StoredEvent(TRACE, now + number, kind, node, f"{node}_1", {"harbour": "north"}))
    for number, kind in enumerate(("step_start", "step_complete")):
        await store.save_planner_event(TRACE, PlannerEvent(kind, ts=now + number, trajectory_step=1))
    content: list[tuple[UpdateType, Any]] = [
        (UpdateType.STATUS_CHANGE, {"status": "running"}),
        (UpdateType.PROGRESS, {"label": "reading the tide tables", "current": 1, "total": 2}),
        (UpdateType.RESULT, {"text": "High water at half past six."}),
    ]
    for number, (kind, body) in enumerate(content):
        await store.save_update(
            StateUpdate(
                session_id=SESSION,
                task_id=task_id,
                update_id=f"update-{number}",
                trace_id=TRACE,
                update_type=kind,
                content=body,
            )
        )
    await store.save_steering(
        SteeringEvent(
            session_id=SESSION,
            task_id=task_id,
            event_id="steering-1",
            event_type=SteeringEventType.USER_MESSAGE,
            payload={"text": "Only the northern harbour, please."},
        )
    )
    action = PlannerAction(thought="The tide tables will tell.", next_node="tide", args={"harbour": "north"})
    step = TrajectoryStep(action, observation={"high water": "18:30"})
    await store.save_trajectory(TRACE, SESSION, Trajectory(query="When is high water?", steps=[step]))
    await store.save_memory_state("harbour:ada:tour", {"summary": "Ada sails from the northern harbour.", "turns": []})
    report = "# Tides\n\nHigh water in the northern harbour: 18:30.\n"
    await store.artifact_store.put_text(report, filename="tides.md", scope=ArtifactScope(session_id=SESSION))
    snapshot = TaskContextSnapshot(session_id=SESSION, task_id=task_id, llm_context={"harbour": "north"})
    await store.save_task(  # last: marks the data as complete
        SessionTask(
            task_id=task_id,
            session_id=SESSION,
            status=TaskStatus.COMPLETE,
            task_type=TaskType.FOREGROUND,
            priority=0,
            context_snapshot=snapshot,
            trace_id=TRACE,
        )
    )
    await store.flush()


if __name__ == "__main__":
    try:
        asyncio.run(write_history(sys.argv[1]))
    except KeelboltError as error:
        sys.exit(f"Error: {error}")
