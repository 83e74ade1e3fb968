"""A worker that runs an agent of the OpenAI Agents SDK for each message, with durable steps."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any, Literal

from agents import Agent, FunctionTool, Model, ModelProvider, MultiProvider, RunConfig, Runner
from agents.items import TResponseStreamEvent
from openai.types.responses import ResponseCompletedEvent, ResponseFailedEvent, ResponseIncompleteEvent
from pydantic_core import to_jsonable_python

from keelbolt.tasks import TaskContext, Worker

ARTIFACT = "answer"
HISTORY = "openai_agents"  # in the context of the conversation
YES = ("yes", "y", "ok", "approve", "approved", "true")


def openai_agent_worker(
    agent: Agent[Any],
    *,
    conversation: bool = True,
    tool_in_doubt: InDoubt = "ask",
    run_config: RunConfig | None = None,
    max_turns: int = 10,
) -> OpenAIAgentWorker:
    """Return a worker that runs the agent for each message, with the TaskContext as its context.

        server = A2AServer(worker=openai_agent_worker(agent), agent_card=card, storage="sqlite:///agent.db")

    The text of the model is streamed. Model responses and calls of function tools are durable steps: a killed run
    continues after the last one. An interrupted tool call may have taken effect, so the user is asked; with
    ``tool_in_doubt="retry"`` it is repeated. A tool that needs approval asks the user. The items of earlier tasks of
    the same context are the history, unless ``conversation`` is False.
    """
    return OpenAIAgentWorker(
        agent,
        conversation=conversation,
        in_doubt=tool_in_doubt,
        run_config=run_config or RunConfig(),
        max_turns=max_turns,
    )


class OpenAIAgentWorker(Worker):
    """Made by `openai_agent_worker`."""

    def __init__(
        self, agent: Agent[Any], *, conversation: bool, in_doubt: InDoubt, run_config: RunConfig, max_turns: int
    ) -> None:
        self._agent = agent
        self._conversation = conversation
        self._in_doubt: InDoubt = in_doubt
        self._run_config = run_config
        self._max_turns = max_turns

    async def handle(self, ctx: TaskContext) -> None:
        agent = durable_agent(self._agent, ctx, self._in_doubt)
        provider = DurableProvider(ctx, self._run_config.model_provider)
        config = dataclasses.replace(self._run_config, model_provider=provider)
        history = await ctx.step("history", self._history, ctx, idempotent=True)
        given: Any = [*history, {"role": "user", "content": ctx.user_text}]
        while True:
            result = Runner.run_streamed(agent, given, context=ctx, run_config=config, max_turns=self._max_turns)
            streamed = await _stream(ctx, result)
            if not result.interruptions:
                break
            given = result.to_state()
            for item in result.interruptions:
                approved, text = await _approval(ctx, item)
                if approved:
                    given.approve(item)
                else:
                    given.reject(item, rejection_message=f"The user said: {text}")
        if self._conversation:
            await self._remember(ctx, history, to_jsonable_python(result.to_input_list(), fallback=str))
        answer = result.final_output
        if not isinstance(answer, str):
            await ctx.complete_json(to_jsonable_python(answer, fallback=str))
        elif answer == streamed:
            await ctx.complete()
        else:  # a recorded response is not streamed again
            await ctx.complete(answer, artifact_id=ARTIFACT)

    async def _history(self, ctx: TaskContext) -> Any:
        return (await ctx.load_context() or {}).get(HISTORY, []) if self._conversation else []

    async def _remember(self, ctx: TaskContext, history: list[Any], items: list[Any]) -> None:
        """Add the items of this task to the history. Another task of the context may have added its items meanwhile."""

        def change(value: Any) -> Any:
            known = (value or {}).get(HISTORY, [])
            if items[: len(history)] != history or known[: len(history)] != history:
                return {**(value or {}), HISTORY: items}  # a handoff filtered the history, or the user replaced it
            added, later = items[len(history) :], known[len(history) :]
            if any(later[start : start + len(added)] == added for start in range(len(later))):
                return value  # an earlier attempt of this task added them
            return {**(value or {}), HISTORY: [*known, *added]}

        await ctx.step("remember", ctx.update_context, change, idempotent=True)


async def _stream(ctx: TaskContext, result: Any) -> str:
    """Emit the model's text as it arrives; return the text of the last response."""
    text = ""
    try:
        async for event in result.stream_events():
            if event.type != "raw_response_event":
                continue
            if event.data.type == "response.output_text.delta":
                await ctx.emit_text_artifact(event.data.delta, artifact_id=ARTIFACT, append=bool(text))
                text += event.data.delta
            elif event.data.type == "response.created":
                text = ""  # the next text replaces the artifact
    except BaseException:
        result.cancel()
        raise
    return text


async def _approval(ctx: TaskContext, item: Any) -> tuple[bool, str]:
    """Ask the user to approve a tool call. Return whether it is approved, and the user's text."""
    raw = item.raw_item
    call = raw.get("call_id") if isinstance(raw, dict) else getattr(raw, "call_id", None)
    text = raw.get("arguments") if isinstance(raw, dict) else getattr(raw, "arguments", None)
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = {}
    words = ", ".join(f"{name}: {json.dumps(value)}" for name, value in arguments.items())
    asked = {"tool": item.tool_name, "arguments": arguments, "call": call}
    answer = await ctx.ask(f"May I call {item.tool_name} ({words})?", data=asked)
    said = answer.text.strip()
    return said.lower() in YES or any(part.data is True for part in answer.parts), said


# -------------------------------------------------------------------------------------------------------- durable steps


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
