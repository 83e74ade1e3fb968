"""A worker that runs a pydantic-ai agent for each message, with durable steps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Literal

from pydantic_ai import (
    Agent,
    AgentStreamEvent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    RunContext,
    TextPart,
    TextPartDelta,
)
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
from pydantic_ai.tools import ToolDenied
from pydantic_core import to_jsonable_python

from keelbolt.tasks import TaskContext, Worker

ANSWER = "answer"  # the artifact of the streamed text
HISTORY = "pydantic_ai"  # in the context of the conversation
YES = ("yes", "y", "ok", "approve", "approved", "true")


def pydantic_ai_worker(agent: Agent[Any, Any], *, conversation: bool = True) -> PydanticAIWorker:
    """Return a worker that runs the agent for each message, with the TaskContext as its deps.

        agent = Agent("openai:gpt-5", name="shop", capabilities=[KeelboltDurability()])
        server = A2AServer(worker=pydantic_ai_worker(agent), agent_card=card)

    The text of the model is streamed. With the capability KeelboltDurability a killed run continues after its last
    model request or tool call. A tool that requires approval asks the user; the agent needs ``DeferredToolRequests``
    among its output types for that. The messages of earlier tasks of the same context are the history, unless
    ``conversation`` is False.
    """
    return PydanticAIWorker(agent, conversation=conversation)


class PydanticAIWorker(Worker):
    """Made by `pydantic_ai_worker`."""

    def __init__(self, agent: Agent[Any, Any], *, conversation: bool) -> None:
        self._agent = agent
        self._conversation = conversation

    async def handle(self, ctx: TaskContext) -> None:
        token = current_task.set(ctx)
        try:
            await self._handle(ctx)
        finally:
            current_task.reset(token)

    async def _handle(self, ctx: TaskContext) -> None:
        before = await ctx.step("history", self._history, ctx, idempotent=True)
        history: list[ModelMessage] = ModelMessagesTypeAdapter.validate_python(before)
        prompt: str | None = ctx.user_text
        answers: DeferredToolResults | None = None
        durable = KeelboltDurability.from_agent(self._agent) is not None  # it then has its own handler
        while True:
            result: Any = await self._agent.run(
                prompt,
                deps=ctx,
                message_history=history,
                deferred_tool_results=answers,
                event_stream_handler=None if durable else stream_text,
            )
            if not isinstance(result.output, DeferredToolRequests):
                break
            answers = await self._approvals(ctx, result.output)
            history, prompt = result.all_messages(), None
        if self._conversation:
            await self._remember(ctx, ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json"))
        if not isinstance(result.output, str):
            await ctx.complete_json(to_jsonable_python(result.output, fallback=str))
        elif result.output == _said(result.all_messages()):
            await ctx.complete()  # the text was streamed
        else:
            await ctx.complete(result.output, artifact_id=ANSWER)  # of an output function or validator

    async def _approvals(self, ctx: TaskContext, requests: DeferredToolRequests) -> DeferredToolResults:
        """Ask the user about each deferred call, and return the decisions."""
        results = DeferredToolResults()
        for call in requests.approvals:
            arguments = call.args_as_dict()
            words = ", ".join(f"{name}: {json.dumps(value)}" for name, value in arguments.items())
            asked = {"tool": call.tool_name, "arguments": arguments, "call": call.tool_call_id}
            answer = await ctx.ask(f"May I call {call.tool_name} ({words})?", data=asked)
            text = answer.text.strip()
            approved = text.lower() in YES or any(part.data is True for part in answer.parts)
            results.approvals[call.tool_call_id] = True if approved else ToolDenied(f"The user said: {text}")
        for call in requests.calls:
            asked = {"tool": call.tool_name, "arguments": call.args_as_dict(), "call": call.tool_call_id}
            answer = await ctx.ask(f"What is the result of {call.tool_name}?", data=asked)
            data = [part.data for part in answer.parts if part.data is not None]
            results.calls[call.tool_call_id] = data[0] if data else answer.text
        return results

    async def _history(self, ctx: TaskContext) -> Any:
        if not self._conversation:
            return []
        return (await ctx.load_context() or {}).get(HISTORY, [])

    async def _remember(self, ctx: TaskContext, messages: Any) -> None:
        def change(value: Any) -> Any:
            return {**(value or {}), HISTORY: messages}

        await ctx.step("remember", ctx.update_context, change, idempotent=True)


def _said(messages: Sequence[ModelMessage]) -> str:
    """Return the text of the last response of the model."""
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    return "".join(part.content for part in last.parts if isinstance(part, TextPart)) if last is not None else ""


# -------------------------------------------------------------------------------------------------------- durable steps


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
            await task.emit_text_artifact(text, artifact_id=ANSWER, append=begun)
            begun = True
