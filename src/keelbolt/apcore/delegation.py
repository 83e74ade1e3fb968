"""Other agents, called by a module for its task: each call is a durable step, in the caller's name and trace."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pydantic_core import from_json

from keelbolt.apcore.library import Context, TraceContext
from keelbolt.client import A2AClient
from keelbolt.errors import A2AClientError, InvalidValue
from keelbolt.protocol.extensions import RESUME
from keelbolt.protocol.types import Message, Metadata, Part, Task, encode
from keelbolt.tasks.context import TaskContext
from keelbolt.tasks.steps import Policy

TASK = "_keelbolt.task"  # where a Context has its Delegator
ON_BEHALF = "onBehalfOf"


class Delegator:
    """What a module's Context knows of the task that it runs for."""

    def __init__(self, ctx: TaskContext, context: Context[Any]) -> None:
        self.ctx = ctx
        self.loop = asyncio.get_running_loop()
        self._context = context
        self._calls: Counter[str] = Counter()

    def name(self, url: str) -> tuple[str, str]:
        """The name of the next step that calls this agent, and the id of its message: the same in every attempt."""
        self._calls[url] += 1
        return f"call {url}", f"{self.ctx.idempotency_key(f'call {url}')}/{self._calls[url]}"


class Agent:
    """Another agent, as a module sees it: see `agent`."""

    def __init__(self, context: Context[Any], url: str, options: Mapping[str, Any]) -> None:
        found = context.data.get(TASK)
        if not isinstance(found, Delegator):
            raise InvalidValue("an agent is called by a module that Keelbolt runs, with the context that it was given")
        self._context = context
        self._delegator = found
        self._url = url
        self._options = dict(options)

    async def send(
        self,
        message: str | Message | Mapping[str, Any],
        *,
        skill_id: str | None = None,
        metadata: Metadata | None = None,
        context_id: str | None = None,
        in_doubt: Policy | None = None,
    ) -> Task | Message:
        """Send a text, an object (the input of a skill) or a message, and wait for the answer.

        When the turn is repeated, the answer is there already.

        If the process died while the other agent worked, the message is sent again with the same Idempotency-Key to an
        agent that knows repeats (a Keelbolt agent does). Otherwise the user is asked. ``in_doubt`` changes this.
        """
        ctx = self._delegator.ctx
        name, message_id = self._delegator.name(self._url)
        beside: Metadata = {**(metadata or {}), **({"skillId": skill_id} if skill_id else {}), **self._whose()}
        async with A2AClient(self._url, **{**self._options, "headers": self._headers()}) as client:
            policy = in_doubt or ("retry" if await _knows_repeats(client) else "ask")

            key = sha256(message_id.encode()).hexdigest()

            async def call() -> Any:
                said = [Part(data=dict(message))] if isinstance(message, Mapping) else message
                answer = await client.send_message(
                    said, metadata=beside, context_id=context_id, message_id=message_id, idempotency_key=key
                )
                return {"task" if isinstance(answer, Task) else "message": from_json(encode(answer))}

            found = await ctx.step(name, call, in_doubt=policy)
        if "task" in found:
            return Task.model_validate(found["task"])
        return Message.model_validate(found["message"])

    def send_sync(self, message: str | Message | Mapping[str, Any], **options: Any) -> Task | Message:
        """`send`, for a module whose ``execute`` is no coroutine: it runs in a thread."""
        return asyncio.run_coroutine_threadsafe(self.send(message, **options), self._delegator.loop).result()

    def _headers(self) -> dict[str, str]:
        return {**TraceContext.inject(self._context), **self._options.get("headers", {})}

    def _whose(self) -> Metadata:
        identity = self._context.identity
        if identity is None:
            return {}
        return {ON_BEHALF: {"id": identity.id, "type": identity.type, "roles": list(identity.roles)}}


def agent(context: Context[Any], url: str, **options: Any) -> Agent:
    """Another A2A agent, for a module to call:

        async def execute(self, inputs, context):
            task = await agent(context, "https://hotels.example", auth=token).send({...}, skill_id="hotel.find")

    The options are those of `A2AClient`. The caller's identity goes along as ``metadata.onBehalfOf``, the trace as
    headers; credentials only if they are given here.
    """
    return Agent(context, url, options)


async def _knows_repeats(client: A2AClient) -> bool:
    try:
        card = await client.agent_card
    except A2AClientError:  # if it is needed, the call says so; an answer that is recorded does not need it
        return False
    extensions = (card.get("capabilities") or {}).get("extensions") or ()
    return any(isinstance(one, Mapping) and one.get("uri") == RESUME for one in extensions)
