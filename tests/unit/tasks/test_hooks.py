"""Lifecycle hooks: called for their states, in order, and without effect on the task."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.protocol.types import TaskState
from keelbolt.tasks import LifecycleHooks
from keelbolt.tasks.worker import Hook


def recorder(calls: list[str], name: str, seconds: float = 0.0) -> Hook:
    async def hook(task_id: str, state: TaskState) -> None:
        await asyncio.sleep(seconds)
        calls.append(f"{name} {task_id} {state.name}")

    return hook


@pytest.mark.parametrize("state", list(TaskState))
async def test_which_hooks_are_called(state: TaskState) -> None:
    """Hooks are called for every change, working, the end of a turn (paused or terminal), and the end of the task."""
    calls: list[str] = []
    hooks = LifecycleHooks(*(recorder(calls, name) for name in ("change", "working", "end", "terminal")))
    await hooks.tell("t", state)
    expected = ["change"]
    if state is TaskState.working:
        expected.append("working")
    if state.terminal or state.paused:
        expected.append("end")
    if state.terminal:
        expected.append("terminal")
    assert calls == [f"{name} t {state.name}" for name in expected]


async def test_hooks_are_optional() -> None:
    await LifecycleHooks().tell("t", TaskState.completed)


async def test_a_hook_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """An exception in a hook is logged, and the other hooks are called."""
    calls: list[str] = []

    async def broken(task_id: str, state: TaskState) -> None:
        raise ValueError("broken hook")

    await LifecycleHooks(on_state_change=broken, on_terminal=recorder(calls, "terminal")).tell("t", TaskState.failed)
    assert calls == ["terminal t failed"]
    assert "broken hook" in caplog.text


async def test_a_slow_hook_is_not_overtaken() -> None:
    """The hooks of one task are called in order; other tasks don't wait."""
    calls: list[str] = []
    hooks = LifecycleHooks(on_working=recorder(calls, "working", 0.02), on_terminal=recorder(calls, "terminal"))
    await asyncio.gather(
        hooks.tell("a", TaskState.working),
        hooks.tell("a", TaskState.completed),
        hooks.tell("b", TaskState.completed),
    )
    assert calls == ["terminal b completed", "working a working", "terminal a completed"]
    assert not hooks._telling


async def test_a_cancelled_hook_blocks_nothing() -> None:
    calls: list[str] = []
    hooks = LifecycleHooks(on_working=recorder(calls, "working", 60.0), on_terminal=recorder(calls, "terminal"))
    stuck = asyncio.create_task(hooks.tell("a", TaskState.working))
    await asyncio.sleep(0)
    after = asyncio.create_task(hooks.tell("a", TaskState.failed))
    await asyncio.sleep(0)
    stuck.cancel()
    await asyncio.wait_for(after, 1.0)
    assert calls == ["terminal a failed"]
