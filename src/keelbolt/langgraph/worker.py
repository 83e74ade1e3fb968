"""A LangGraph graph as the worker of an agent server: interrupts become questions, and tokens are streamed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Literal, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.types import Command, Interrupt
from pydantic_core import to_jsonable_python

from keelbolt.errors import InvalidValue
from keelbolt.tasks import TaskContext, Worker

MESSAGE = "a2a_message_id"  # in the metadata of the checkpoints that a message caused


class GraphContext(TypedDict):
    """The ``runtime.context`` of a node with a `Runtime[GraphContext]`."""

    task: TaskContext


def langgraph_worker(
    graph: Any,
    *,
    given: Callable[[TaskContext], Any] | None = None,
    result: Callable[[Any], Any] | None = None,
    context: Callable[[TaskContext], Any] | None = None,
    thread: Literal["task", "context"] = "task",
) -> LangGraphWorker:
    """Return a worker that runs a compiled graph for each message.

        graph = builder.compile(checkpointer=KeelboltSaver("sqlite:///agent.db"))
        server = A2AServer(worker=langgraph_worker(graph), agent_card=card, storage="sqlite:///agent.db")

    ``given`` returns the graph's input: by default the data of the message if it has any, otherwise ``messages`` with
    the user's text. ``result`` returns the answer from the final state: by default the text of the last message,
    otherwise the state. A text becomes a text artifact, other values JSON. A thread belongs to a task; with
    ``thread="context"`` all tasks of a context share one, as in a chat. An interrupt asks the user, and the answer
    resumes the graph (JSON is decoded). A killed run continues after its last checkpoint. Nodes get the TaskContext as
    ``runtime.context["task"]``; a graph with its own context schema needs ``context``, which returns the context of its
    nodes.
    """
    if not getattr(graph, "checkpointer", None):
        raise InvalidValue("compile the graph with a checkpointer: builder.compile(checkpointer=KeelboltSaver(url))")
    if thread not in ("task", "context"):
        raise InvalidValue(f"thread must be 'task' or 'context', not {thread!r}")
    return LangGraphWorker(graph, given or _given, result or _result, context or _context, shared=thread == "context")


class LangGraphWorker(Worker):
    """Made by `langgraph_worker`."""

    def __init__(
        self,
        graph: Any,
        given: Callable[[TaskContext], Any],
        result: Callable[[Any], Any],
        context: Callable[[TaskContext], Any],
        *,
        shared: bool,
    ) -> None:
        self._graph = graph
        self._given = given
        self._result = result
        self._context = context
        self._shared = shared

    async def handle(self, ctx: TaskContext) -> None:
        thread = ctx.context_id if self._shared else ctx.task_id
        config: Any = {"configurable": {"thread_id": thread}, "metadata": {MESSAGE: ctx.message_id}}
        snapshot = await self._graph.aget_state(config)
        begun = (snapshot.metadata or {}).get(MESSAGE) == ctx.message_id
        given: Any = None if begun else self._given(ctx)
        streamed = ""
        while True:
            if begun and snapshot.interrupts:
                given = Command(resume={each.id: await _ask(ctx, each) for each in snapshot.interrupts})
            if given is not None or snapshot.next:
                streamed = await self._run(ctx, given, config)
                snapshot = await self._graph.aget_state(config)
            begun, given = True, None
            if not snapshot.interrupts:
                break
        answer = self._result(snapshot.values)
        if not isinstance(answer, str):
            await ctx.complete_json(to_jsonable_python(answer, fallback=str))
        elif answer and answer == streamed:
            await ctx.complete()  # the artifact was streamed
        else:
            await ctx.complete(answer)

    async def _run(self, ctx: TaskContext, given: Any, config: Any) -> str:
        """Run the graph to its end or to an interrupt; return the text of the last artifact."""
        texts: dict[str, str] = {}
        last = ""
        context = self._context(ctx)
        stream = self._graph.astream(given, config, context=context, stream_mode="messages", durability="sync")
        async with aclosing(stream):  # stops the nodes if the task can't be written
            async for message, about in stream:
                text = _text(message)
                if not isinstance(message, AIMessage) or not text:
                    continue
                # The id is the same when a killed run repeats the node, so that the new text replaces the artifact.
                last = f"{about['langgraph_node']}-{about['langgraph_step']}"
                await ctx.emit_text_artifact(text, artifact_id=last, append=last in texts)
                texts[last] = texts.get(last, "") + text
        return texts.get(last, "")


async def _ask(ctx: TaskContext, interrupt: Interrupt) -> Any:
    """Ask the user the question of an interrupt, and return the answer."""
    value = to_jsonable_python(interrupt.value, fallback=str)
    question = value if isinstance(value, str) else None
    if isinstance(value, dict) and isinstance(value.get("question"), str):
        question = value["question"]
    # The id distinguishes two interrupts with the same question.
    answer = await ctx.ask(question, data={"interrupt": interrupt.id, "value": value})
    for part in answer.parts:
        if part.data is not None:
            return part.data
    try:
        return json.loads(answer.text)
    except ValueError:
        return answer.text


def _context(ctx: TaskContext) -> GraphContext:
    return {"task": ctx}


def _given(ctx: TaskContext) -> Any:
    if ctx.data_parts and isinstance(ctx.data_parts[0], dict):
        return ctx.data_parts[0]
    return {"messages": [HumanMessage(ctx.user_text)]}


def _result(state: Any) -> Any:
    messages = state.get("messages") if isinstance(state, dict) else None
    if messages and isinstance(messages[-1], BaseMessage):
        return _text(messages[-1])
    return state


def _text(message: Any) -> str:
    content = getattr(message, "content", "")
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
