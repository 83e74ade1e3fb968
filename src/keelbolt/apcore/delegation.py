"""Calls from a module to other agents: each is a durable step, with the caller's identity and trace.

A call is a relay (`TaskContext.relay`): it follows the other agent's task until the module's deadline, forwards its
questions to the user of this task, cancels it when this task is canceled, and resumes it after a crash.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Literal

from keelbolt.apcore.library import Context, ExecutionCancelledError, TraceContext
from keelbolt.client import A2AClient
from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import Message, Metadata, Part, Task
from keelbolt.tasks.context import TaskContext

TASK = "_keelbolt.task"  # key of the Delegator in a Context's data
ON_BEHALF = "onBehalfOf"
MARGIN_SECONDS = 0.25  # before the deadline, reserved to cancel the other agent's task


class TaskBinding:
    """The task that a module runs for, and its event loop."""

    def __init__(self, ctx: TaskContext) -> None:
        self.ctx = ctx
        self.loop = asyncio.get_running_loop()


class RemoteAgent:
    """Another agent that a module calls; see `agent`."""

    def __init__(
        self, context: Context[Any], url: str, options: Mapping[str, Any], *, identity: bool, trace: bool
    ) -> None:
        found = context.data.get(TASK)
        if not isinstance(found, TaskBinding):
            raise InvalidValue(
                "an agent can only be called from a module that Keelbolt runs; pass the context of that call"
            )
        self._context = context
        self._ctx, self._loop = found.ctx, found.loop
        self._url = url
        self._options = dict(options)
        self._identity = identity
        self._trace = trace

    async def send(
        self,
        message: str | Message | Mapping[str, Any],
        *,
        skill_id: str | None = None,
        metadata: Metadata | None = None,
        context_id: str | None = None,
        in_doubt: Literal["retry", "ask"] | None = None,
    ) -> Task | Message:
        """Send a text, an object (the input of a skill) or a message, and return the completed task or the message.

        The other agent's questions go to the user of this task, and the answers back to it. The module is called again
        after each answer, or by the next process after a crash; this method then continues with the same task of the
        other agent. ``in_doubt`` applies when it is unknown whether the message arrived: ``retry`` (the default for an
        agent that recognises repeated messages, as Keelbolt agents do) or ``ask``.

        Raise RelayFailed when the other agent fails, rejects or cancels its task, and TimeoutError at the module's
        deadline; the other agent's task is then canceled.
        """
        said = [Part(data=dict(message))] if isinstance(message, Mapping) else message
        async with A2AClient(self._url, **{**self._options, "headers": self._headers()}) as client:
            relay = self._ctx.relay(
                client,
                said,
                name=self._url,
                stream=False,
                seconds=self._seconds(),
                in_doubt=in_doubt,
                context_id=context_id,
                metadata={**(metadata or {}), **self._whose()} or None,
                skill=skill_id,
            )
            return await self._followed(asyncio.ensure_future(relay))

    def send_sync(self, message: str | Message | Mapping[str, Any], **options: Any) -> Task | Message:
        """Call `send` from a module whose ``execute`` is not a coroutine; such a module runs in a thread."""
        return asyncio.run_coroutine_threadsafe(self.send(message, **options), self._loop).result()

    async def _followed(self, relay: asyncio.Task[Task | Message]) -> Task | Message:
        """Return the relay's result. A cancel of this task or the end of the module ends the relay and its remote
        task.

        A module runs in a shielded block, in which a cancel does not raise by itself. A run that only cleans up after
        a cancel is not shielded.
        """
        cancel = None if self._ctx.is_cancelled else asyncio.ensure_future(self._ctx.cancelled())
        try:
            await asyncio.wait((relay, cancel) if cancel is not None else (relay,), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if cancel is not None:
                cancel.cancel()
            if not relay.done():
                relay.cancel()
                await asyncio.wait((relay,))
        if self._ctx.is_cancelled:
            if not relay.cancelled():
                relay.exception()  # marks the exception as retrieved
            raise ExecutionCancelledError
        return relay.result()

    def _seconds(self) -> float | None:
        deadline = self._context.global_deadline
        return None if deadline is None else max(deadline - time.time() - MARGIN_SECONDS, 0.0)

    def _headers(self) -> dict[str, str]:
        trace = TraceContext.inject(self._context) if self._trace else {}
        return {**trace, **self._options.get("headers", {})}

    def _whose(self) -> Metadata:
        identity = self._context.identity
        if identity is None or not self._identity:
            return {}
        return {ON_BEHALF: {"id": identity.id, "type": identity.type, "roles": list(identity.roles)}}


def agent(context: Context[Any], url: str, *, identity: bool = True, trace: bool = True, **options: Any) -> RemoteAgent:
    """Another A2A agent, for a module to call:

        async def execute(self, inputs, context):
            task = await agent(context, "https://hotels.example", auth=token).send({...}, skill_id="hotel.find")

    The other options are those of `A2AClient`. With ``identity`` the caller's id, type and roles go along as
    ``metadata.onBehalfOf``, with ``trace`` the trace goes along as headers; credentials only if they are given here.
    """
    return RemoteAgent(context, url, options, identity=identity, trace=trace)
