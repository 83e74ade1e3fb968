"""A runner whose callbacks and events are recorded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from keelbolt.turns import (
    Memory,
    Message,
    Retrievable,
    Thought,
    ToolCall,
    TurnInput,
    TurnResult,
    TurnRunner,
    noop_storage,
)
from keelbolt.turns.callbacks import CALLBACKS
from keelbolt.turns.events import FUNCTIONAL, OBSERVED

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TIMES: dict[str, Any] = {"created_at": NOW, "updated_at": NOW}


def message(key: str = "m", content: str = "hi") -> Message:
    return Message(id=key, role="user", content=content, **TIMES)


def memory(key: str = "m") -> Memory:
    return Memory(id=key, content="fact", confidence=1, importance=0, **TIMES)


def thought(key: str = "t") -> Thought:
    return Thought(id=key, content="hm", **TIMES)


def tool_call(key: str = "c", **args: Any) -> ToolCall:
    return ToolCall(id=key, tool="add", args=args, is_complete=False, **TIMES)


def retrievable(key: str = "r") -> Retrievable:
    return Retrievable(id=key, content="text", trust_tier="first-party", **TIMES)


VALUES: dict[str, Any] = {
    "message": message(),
    "memory": memory(),
    "thought": thought(),
    "tool_call": tool_call(),
    "retrievable": retrievable(),
    "standing_instruction": "be kind",
}


class Stage:
    """``calls`` are the storage callbacks that ran, ``events`` the emitted events, ``log`` both in one order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.events: list[tuple[str, Any]] = []
        self.log: list[str] = []
        self.contexts: list[Any] = []

    def runner(self, executor: Callable[..., Any] | None = None, **config: Any) -> TurnRunner:
        storage: dict[str, Any] = {**noop_storage()}
        for name, callback in CALLBACKS.items():
            if callback.arity == 2:
                storage[name] = self.recorder(name)
        given = {**storage, **config}
        runner = TurnRunner(executor_callback=executor or acknowledge, **given)
        for name in FUNCTIONAL:
            runner.on(name, self.listener(name))
        for name in OBSERVED:
            runner.observe(name, self.listener(name))
        return runner

    def recorder(self, name: str, *, fail: Callable[[Any], bool] = lambda _value: False) -> Callable[[Any, Any], Any]:
        short = name.removesuffix("_callback")

        async def record(ctx: Any, value: Any) -> str:
            if fail(value):
                raise OSError(f"{short} failed")
            self.contexts.append(ctx)
            self.calls.append((short, value))
            self.log.append(short)
            return short

        return record

    def listener(self, name: str) -> Callable[[Any], None]:
        def listen(payload: Any) -> None:
            self.events.append((name, payload))
            self.log.append(name)

        return listen

    async def run(self, executor: Callable[..., Any] | None = None, **config: Any) -> TurnResult:
        return await self.runner(executor, **config).run_result(turn())

    def names(self, *wanted: str) -> list[str]:
        return [name for name, _payload in self.events if not wanted or name in wanted]

    def payloads(self, name: str) -> list[Any]:
        return [payload for event, payload in self.events if event == name]

    def called(self) -> list[tuple[str, str]]:
        """Return the callbacks with the ids that they got."""
        return [(name, getattr(value, "id", str(value))) for name, value in self.calls]


def acknowledge(ctx: Any, _helpers: Any) -> None:
    ctx.ack()


def turn(**fields: Any) -> TurnInput:
    return TurnInput(**{"system_prompt": "Be kind.", **fields})
