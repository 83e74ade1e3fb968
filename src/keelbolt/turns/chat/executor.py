"""`chat_executor`: asks a model, calls tools, asks again, until the model answers without a call.

Each step is stored before the next one begins: a generation of the model is one iteration, and the result of each call
is stored separately. After a crash, at most the step in doubt is repeated: one generation, or one call with the same
id.

The model gets the conversation of the thread: messages and calls in order, each call with its result.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

from keelbolt.errors import (
    InvalidInitialToolCallValue,
    InvalidToolArgs,
    ToolDownstreamError,
    TurnGateAborted,
    TurnGateRejected,
    TurnGateTimeout,
)
from keelbolt.names import suggestion
from keelbolt.turns.callbacks import Window
from keelbolt.turns.chat.protocol import (
    CallRequest,
    ChatMessage,
    Model,
    ModelRequest,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
    Usage,
)
from keelbolt.turns.chat.tool import Calling, calling
from keelbolt.turns.dispatch_context import DispatchContext
from keelbolt.turns.middleware import Next, hydrate
from keelbolt.turns.primitives import Media, Message, SpooledArtifact, Thought, ToolCall
from keelbolt.turns.reports import ExecutorHelpers
from keelbolt.turns.tools import Tool, ToolResult

HISTORY = Window(last=100)
MAX_RESULT_CHARACTERS = 100_000  # of one result in a request to the model
_LOADED = "keelbolt_chat_loaded"  # key in the stash of the dispatch

Execute = Callable[[DispatchContext, ExecutorHelpers], Coroutine[Any, Any, None]]


def chat_executor(
    model: Model, tools: Sequence[Tool] = (), *, history: Window = HISTORY, max_parallel: int = 8
) -> Execute:
    """Return an executor for a turn runner that uses this model with these tools.

        runner = storage.runner(executor_callback=chat_executor(OpenAIModel("gpt-5-mini"), tools=[search, pay]))

    The model sees the last messages and calls of the thread (``history``), also without `hydrate`. Calls of one
    generation run concurrently, at most ``max_parallel``; those that need an approval ask one after another.
    """
    return _Chat(model, tuple(tools), history, max_parallel)


@dataclass(frozen=True, slots=True)
class _Chat:
    model: Model
    tools: tuple[Tool, ...]
    history: Window
    max_parallel: int

    async def __call__(self, ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
        await self._load(ctx)
        pending = [call for call in ctx.own_tool_calls if not call.is_complete]
        if pending:
            await self._act(ctx, helpers, pending)
        else:
            await self._decide(ctx, helpers)

    async def _load(self, ctx: DispatchContext) -> None:
        """Register the tools and fetch the thread, once per dispatch; entries fetched by middleware are kept."""
        if ctx.stash.get(_LOADED):
            return
        ctx.stash.set(_LOADED, True)
        for tool in self.tools:
            if not ctx.tools.has(tool.name):
                ctx.tools.register(tool)
        messages, calls = list(ctx.turn_messages), list(ctx.turn_tool_calls)
        ctx.turn_messages.clear()
        ctx.turn_tool_calls.clear()
        await hydrate(messages=self.history, tool_calls=self.history)(ctx, lambda: Next(_nothing))
        for message in messages:
            if ctx.turn_messages.get(message.id) is None:
                ctx.turn_messages.add(message)
        found = {(call.turn_id, call.id) for call in ctx.turn_tool_calls}
        for call in calls:
            if (call.turn_id, call.id) not in found:
                ctx.turn_tool_calls.add(call)

    # ------------------------------------------------------------------------------------------------------- decide

    async def _decide(self, ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
        """Ask the model and store its output. Without a call, the text is the answer."""
        name, now = f"{ctx.turn_id}.{ctx.iteration}", datetime.now(UTC)
        text, thought, wanted = "", "", list[CallRequest]()
        async with aclosing(self.model.stream(await self._request(ctx))) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                match delta:
                    case TextDelta():
                        text += delta.text
                        helpers.report_message(name, delta.text)
                    case ThoughtDelta():
                        thought += delta.text
                        helpers.report_thought(name, delta.text)
                    case CallRequest():
                        wanted.append(delta)
                    case Usage():
                        helpers.report_generation_stats(**delta.stats)
        if thought:
            helpers.report_thought(name, "", is_complete=True)
            await ctx.store_thought(Thought(id=name, content=thought, created_at=now))
        if text:
            helpers.report_message(name, "", is_complete=True)
            await ctx.store_message(Message(id=name, role="assistant", content=text, created_at=now))
        for number, request in enumerate(wanted):
            call = _call(request, f"{name}.{number}", now)
            results = str(call.results) if call.is_complete else None
            helpers.report_tool_call(
                call.id,
                tool=call.tool,
                args=call.args,
                results=results,
                is_error=call.is_error,
                is_complete=call.is_complete,
            )
            await ctx.store_tool_call(call)
        if not wanted:
            if not text:
                ctx.nack("The model returned an empty response.")
            else:
                ctx.ack()

    async def _request(self, ctx: DispatchContext) -> ModelRequest:
        system = "\n\n".join([str(ctx.system_prompt), *ctx.standing_instructions.texts()])
        texts = {id(call): await _text(call.results) for call in ctx.turn_tool_calls if call.is_complete}
        asked = [message.id for message in ctx.incoming]
        messages = conversation(ctx.turn_messages, ctx.turn_tool_calls, texts, turn=ctx.turn_id, asked=asked)
        tools = [
            ToolSpec(tool.name, tool.description, tool.json_schema() or {"type": "object"})
            for tool in ctx.tools.visible()
        ]
        return ModelRequest(system, messages, tools)

    # ---------------------------------------------------------------------------------------------------------- act

    async def _act(self, ctx: DispatchContext, helpers: ExecutorHelpers, pending: Sequence[ToolCall]) -> None:
        """Execute the pending calls. Each result is stored as soon as it is available."""
        asking: list[tuple[ToolCall, str]] = []
        others: list[ToolCall] = []
        for call in pending:
            try:
                question = _question(ctx, call)
            except InvalidToolArgs as error:
                await _done(ctx, helpers, call, str(error), failed=True)
            else:
                if question is None:
                    others.append(call)
                else:
                    asking.append((call, question))

        await self._make_together(ctx, helpers, others)
        for call, question in asking:
            if not ctx.aborted:
                await self._ask(ctx, helpers, call, question)

    async def _make_together(self, ctx: DispatchContext, helpers: ExecutorHelpers, calls: Sequence[ToolCall]) -> None:
        slots = asyncio.Semaphore(self.max_parallel)

        async def make(call: ToolCall) -> None:
            async with slots:
                await self._make(ctx, helpers, call)

        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(make(call))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None  # the others were cancelled because of it

    async def _ask(self, ctx: DispatchContext, helpers: ExecutorHelpers, call: ToolCall, question: str) -> None:
        about = {"tool": call.tool, "args": call.args, "callId": call.id}
        try:
            allowed = await ctx.wait_for(
                id=f"approve.{call.id}", reason=question, payload=about, schema={"type": "boolean"}
            )
            why = "" if allowed else "no reason given"
        except (TurnGateRejected, TurnGateTimeout) as refusal:
            why = str(refusal)
        except TurnGateAborted as broken:
            if ctx.aborted:
                raise
            why = str(broken)
        if why:
            await _done(ctx, helpers, call, f"Not done: the user did not approve this call ({why}).", failed=True)
        else:
            await self._make(ctx, helpers, call)

    async def _make(self, ctx: DispatchContext, helpers: ExecutorHelpers, call: ToolCall) -> None:
        tool = ctx.tools.get(call.tool)
        if tool is None:
            known = [each.name for each in ctx.tools.visible()]
            await _done(
                ctx, helpers, call, f"There is no tool {call.tool!r}{suggestion(call.tool, known)}", failed=True
            )
            return
        token = calling.set(Calling(call.id, helpers))
        try:
            answer: ToolResult = await tool.executor(ctx)(call.args)
        except (InvalidToolArgs, ToolDownstreamError) as error:
            await _done(ctx, helpers, call, str(error), failed=True)
        else:
            await _done(ctx, helpers, call, answer)
        finally:
            calling.reset(token)


async def _nothing() -> None:
    return None


def _call(request: CallRequest, name: str, now: datetime) -> ToolCall:
    """Return the requested call; if its arguments are not a JSON object, a completed call with an error."""
    about: dict[str, Any] = {"id": name, "tool": request.name or "unnamed", "created_at": now}
    try:
        return ToolCall(**about, args=request.arguments or "{}")
    except InvalidInitialToolCallValue as wrong:
        problem = str(wrong)
    except RecursionError:
        problem = "the arguments are nested too deep"
    return ToolCall(**about, args={}, is_complete=True, is_error=True, results=f"Not called: {problem}")


def _question(ctx: DispatchContext, call: ToolCall) -> str | None:
    """Return the approval question for this call, or None if it needs no approval.

    Raise InvalidToolArgs: a call that can't be made is not asked about, and the function gets checked arguments only.
    """
    tool = ctx.tools.get(call.tool)
    if tool is None or not tool.needs_approval:
        return None
    tool.check(call.args)
    wanted: Any = tool.needs_approval
    if callable(wanted):
        wanted = wanted(call.args)
    if not wanted:
        return None
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.args.items())
    if isinstance(wanted, str):
        try:
            return wanted.format_map(call.args)
        except (LookupError, ValueError, TypeError, AttributeError):
            return f"{wanted} {call.tool}({shown})"
    return f"May I call {call.tool}({shown})?"


async def _done(
    ctx: DispatchContext, helpers: ExecutorHelpers, call: ToolCall, answer: ToolResult, *, failed: bool = False
) -> None:
    """Report the result and store it immediately."""
    results: Any = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    helpers.report_tool_call(
        call.id, tool=call.tool, args=call.args, results=results, is_error=failed, is_complete=True
    )
    await ctx.mutate_tool_call(call.completed(results, at=datetime.now(UTC), is_error=failed))
    await ctx.checkpoint()


async def _text(results: object) -> str:
    """Return the beginning of the results as text; media are named, not included."""
    if isinstance(results, tuple):
        return "\n".join([await _text(each) for each in results])[:MAX_RESULT_CHARACTERS]
    if isinstance(results, Media):
        return f"[{results.kind}: {results.filename}, {results.mime_type}]"
    text = await results.as_string() if isinstance(results, SpooledArtifact) else str(results)
    return text[:MAX_RESULT_CHARACTERS]


# --------------------------------------------------------------------------------------------------------- conversation


UNFINISHED = "This call was not finished: its turn ended first."
Texts = Mapping[int, str]


def conversation(
    messages: Iterable[Message], calls: Iterable[ToolCall], texts: Texts, *, turn: str, asked: Collection[str]
) -> list[ChatMessage]:
    """Return the entries ordered by time; the calls of one generation follow its text in one entry.

    Entries of this turn come last, even if other turns run on the thread at the same time: the model answers the
    messages of this turn (``asked``: their ids). Unfinished calls of other turns are omitted. ``texts`` has the
    results of complete calls as text, by ``id()`` of the call.
    """
    entries: list[tuple[tuple[bool, datetime, int], Message | list[ToolCall]]]
    entries = [((each.id in asked or each.id.startswith(f"{turn}."), each.created_at, 0), each) for each in messages]
    groups: dict[tuple[bool, str | None, str], list[ToolCall]] = {}
    for call in calls:
        own = call.id.startswith(f"{turn}.")
        if own or call.is_complete:  # ids of other executors are unique in their turn only
            groups.setdefault((own, None if own else call.turn_id, _generation(call.id)), []).append(call)
    entries += [((own, group[0].created_at, 1), group) for (own, _, _), group in groups.items()]
    numbers = count()
    found: list[ChatMessage] = []
    for _, entry in sorted(entries, key=lambda pair: pair[0]):
        if isinstance(entry, Message):
            found.append(ChatMessage(entry.role, _said(entry)))
            continue
        ids = [f"call_{next(numbers)}" for _ in entry]
        requests = tuple(
            CallRequest(call.tool, json.dumps(call.args, ensure_ascii=False), name)
            for call, name in zip(entry, ids, strict=True)
        )
        if found and found[-1].role == "assistant" and not found[-1].calls:
            found[-1] = ChatMessage("assistant", found[-1].text, requests)
        else:
            found.append(ChatMessage("assistant", "", requests))
        for call, name in zip(entry, ids, strict=True):
            failed = call.is_error or not call.is_complete
            found.append(
                ChatMessage("tool", texts[id(call)] if call.is_complete else UNFINISHED, call_id=name, is_error=failed)
            )
    return found


def _generation(call_id: str) -> str:
    """Return the generation of a call id, ``turn.iteration``; call ids are ``turn.iteration.number``."""
    return call_id.rpartition(".")[0] or call_id


def _said(message: Message) -> str:
    text = "" if message.content is None else str(message.content)
    files = [
        f"[attached: {', '.join(filter(None, (media.filename, media.mime_type, media.source)))}]"
        for media in message.attachments
    ]
    return "\n".join([*([text] if text else []), *files]) or "(empty)"
