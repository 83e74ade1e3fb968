"""An agent of the OpenAI Agents SDK whose model requests and tool calls are durable steps of a task."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any, Literal

from agents import Agent, FunctionTool, Model, ModelProvider, MultiProvider
from agents.items import TResponseStreamEvent
from openai.types.responses import ResponseCompletedEvent, ResponseFailedEvent, ResponseIncompleteEvent
from pydantic_core import to_jsonable_python

from keelbolt.tasks import TaskContext

InDoubt = Literal["ask", "retry"]

_ENDS: dict[str, Any] = {
    "response.completed": ResponseCompletedEvent,
    "response.failed": ResponseFailedEvent,
    "response.incomplete": ResponseIncompleteEvent,
}


def durable_agent(agent: Agent[Any], task: TaskContext, in_doubt: InDoubt) -> Agent[Any]:
    """Return a copy of the agent and of its handoff agents for one run of a task."""
    copies: dict[int, Agent[Any]] = {}

    def copied(one: Agent[Any]) -> Agent[Any]:
        if id(one) not in copies:
            clone = copies[id(one)] = one.clone()
            if isinstance(one.model, Model):
                clone.model = DurableModel(one.model, task)
            clone.tools = [durable_tool(t, task, in_doubt) if isinstance(t, FunctionTool) else t for t in one.tools]
            clone.handoffs = [copied(other) if isinstance(other, Agent) else other for other in one.handoffs]
        return copies[id(one)]

    return copied(agent)


def durable_tool(tool: FunctionTool, task: TaskContext, in_doubt: InDoubt) -> FunctionTool:
    """Return a copy of the tool; each of its calls is a step."""
    call = tool.on_invoke_tool

    async def invoke(context: Any, arguments: str) -> Any:
        async def once() -> Any:
            return to_jsonable_python(await call(context, arguments), fallback=str)

        return await task.step(f"{tool.name} {context.tool_call_id}", once, in_doubt=in_doubt)

    clone = copy.copy(tool)
    clone.on_invoke_tool = invoke
    return clone


class DurableProvider(ModelProvider):
    """Finds models by name, for agents that have a model name instead of a model."""

    def __init__(self, task: TaskContext, inner: ModelProvider | None = None) -> None:
        self._task = task
        self._inner = inner or MultiProvider()

    def get_model(self, model_name: str | None) -> Model:
        return DurableModel(self._inner.get_model(model_name), self._task)


class DurableModel(Model):
    """A model whose streamed responses are steps. A recorded response is replayed as its last event only."""

    def __init__(self, inner: Model, task: TaskContext) -> None:
        self._inner = inner
        self._task = task

    async def get_response(self, *args: Any, **options: Any) -> Any:
        return await self._inner.get_response(*args, **options)

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[TResponseStreamEvent]:
        events: asyncio.Queue[TResponseStreamEvent | None] = asyncio.Queue()

        async def respond() -> Any:
            end: Any = None
            async for event in self._inner.stream_response(*args, **options):
                if event.type in _ENDS:
                    end = event.model_dump(mode="json", warnings=False)
                else:
                    events.put_nowait(event)
            return end

        step = asyncio.ensure_future(self._task.step("model", respond, in_doubt="retry"))
        step.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            if (end := await step) is not None:
                yield _ENDS[end["type"]].model_validate(end)
        finally:
            if not step.done():
                step.cancel()
