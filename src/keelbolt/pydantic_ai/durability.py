"""Model requests and tool calls of a pydantic-ai agent as durable steps of a task."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Literal

from pydantic_ai import AgentStreamEvent, PartDeltaEvent, PartStartEvent, RunContext, TextPart, TextPartDelta
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    EventStreamHandlerId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
)

from keelbolt.tasks import TaskContext

InDoubt = Literal["ask", "retry"]

current_task: ContextVar[TaskContext | None] = ContextVar("keelbolt_pydantic_ai_task", default=None)
inside_step: ContextVar[bool] = ContextVar("keelbolt_pydantic_ai_step", default=False)


class KeelboltDurability(BaseDurabilityCapability[Any]):
    """Makes an agent durable: its model requests and tool calls are steps of the task that `pydantic_ai_worker` runs.

        agent = Agent("openai:gpt-5", name="shop", capabilities=[KeelboltDurability()])

    A killed run continues with the results of its steps. An interrupted model request is repeated. An interrupted tool
    call may have taken effect, so the user is asked; with ``tool_in_doubt="retry"`` it is repeated. Outside of the
    worker, the agent runs unchanged.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Keelbolt",
        durable_unit_noun="step",
        durable_container_noun="task",
        codec=JSON_CODEC,
        sequential_tools_in_durable_context=True,
        journal_discovery=False,
    )

    def __init__(self, *, tool_in_doubt: InDoubt = "ask", name: str | None = None) -> None:
        super().__init__(event_stream_handler=stream_text, name=name)
        self._tool_in_doubt: InDoubt = tool_in_doubt

    @property
    def in_durable_context(self) -> bool:
        return current_task.get() is not None and not inside_step.get()

    def get_durable_operation_backend(self) -> DurableOperationBackend[InDoubt]:
        config = RoleBasedOperationConfig[InDoubt](
            model="retry", event="retry", capability="ask", tool=self._tool_in_doubt
        )
        return _Steps(agent_name=self.name, default_model_id=self.default_model_id, config=config)


class _Steps(JournalCallableOperationBackend[InDoubt]):
    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],  # noqa: ARG002  (steps are identified by name and number)
        config: InDoubt,
    ) -> object:
        task = current_task.get()
        if task is None or isinstance(operation_id, EventStreamHandlerId):
            return await body()
        in_doubt = config if isinstance(operation_id, ToolsetCallToolId) else "retry"

        async def step() -> object:
            token = inside_step.set(True)
            try:
                return await body()
            finally:
                inside_step.reset(token)

        return await task.step(name, step, in_doubt=in_doubt)


async def stream_text(_ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
    """Emit the text of a model's response as an artifact. A repeated request replaces it."""
    task = current_task.get()
    begun = False
    async for event in events:
        text = ""
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            text = event.part.content
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            text = event.delta.content_delta
        if text and task is not None:
            await task.emit_text_artifact(text, append=begun)
            begun = True
