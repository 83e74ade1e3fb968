"""A memory for a planner: one object with a conversation for each key, and a summariser that uses a model client.

A planner selects a conversation by calling `hydrate` at the start of a run; later calls in the same task use that
conversation. So concurrent runs of several sessions never see each other's turns.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from keelbolt.state.memory.conversation import MemoryConversation, Summarizer
from keelbolt.state.memory.types import ConversationTurn, MemoryHealth, MemoryIsolation, ShortTermMemoryConfig

MAX_CONVERSATIONS = 1000

_NUMBERS = itertools.count()
_MEANT: ContextVar[Mapping[int, str]] = ContextVar("keelbolt_memory_meant", default=MappingProxyType({}))


class ShortTermMemory:
    """The argument of ``ReactPlanner(short_term_memory=…)``; without keys it is the memory of one conversation.

    At most ``max_conversations`` are kept in this object; the least recently used stored conversation is evicted first.
    """

    def __init__(
        self,
        config: ShortTermMemoryConfig | None = None,
        *,
        summarizer: Summarizer | None = None,
        max_conversations: int = MAX_CONVERSATIONS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._config = config or ShortTermMemoryConfig()
        if self._config.strategy == "rolling_summary" and summarizer is None:
            message = "rolling_summary requires a summarizer"
            raise ValueError(message)
        self._summarizer = summarizer
        self._clock = clock
        self._sleep = sleep
        self._max_conversations = max_conversations
        self._conversations: OrderedDict[str, MemoryConversation] = OrderedDict()
        self._number = next(_NUMBERS)

    def of(self, key: str | MemoryKey) -> MemoryConversation:
        """Return the conversation with this key."""
        name = key.composite() if isinstance(key, MemoryKey) else key
        conversation = self._conversations.get(name)
        if conversation is None:
            conversation = MemoryConversation(self._config, self._summarizer, clock=self._clock, sleep=self._sleep)
            self._conversations[name] = conversation
            self._forget_some()
        self._conversations.move_to_end(name)
        return conversation

    @property
    def current(self) -> MemoryConversation:
        """The conversation last hydrated or persisted in this task; without one, the default conversation."""
        return self.of(_MEANT.get().get(self._number, ""))

    @property
    def health(self) -> MemoryHealth:
        """Health of summarising."""
        return self.current.health

    async def add_turn(self, turn: ConversationTurn) -> None:
        """Add a turn to the current conversation."""
        await self.current.add_turn(turn)

    async def get_llm_context(self) -> Mapping[str, Any]:
        """Return the memory's part of the model context."""
        return await self.current.get_llm_context()

    def estimate_tokens(self) -> int:
        """Return the estimated tokens of the context."""
        return self.current.estimate_tokens()

    async def persist(self, store: Any, key: str) -> None:
        """Store the conversation with this key by ``store.save_memory_state``."""
        await self._meaning(key).persist(store, key)

    async def hydrate(self, store: Any, key: str) -> None:
        """Select the conversation with this key and load it by ``store.load_memory_state``."""
        await self._meaning(key).hydrate(store, key)

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form of the conversation."""
        return self.current.to_dict()

    def from_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the stored conversation. Raise InvalidMemoryState."""
        self.current.from_dict(state)

    async def flush(self) -> None:
        """Return when all pending turns of every conversation are summarised and stored."""
        await asyncio.gather(*(conversation.flush() for conversation in self._conversations.values()))

    async def close(self) -> None:
        """Stop the background tasks."""
        await asyncio.gather(*(conversation.close() for conversation in self._conversations.values()))

    def _meaning(self, key: str) -> MemoryConversation:
        _MEANT.set(MappingProxyType({**_MEANT.get(), self._number: key}))
        return self.of(key)

    def _forget_some(self) -> None:
        surplus = len(self._conversations) - self._max_conversations
        if surplus <= 0:
            return
        stored = [name for name, conversation in self._conversations.items() if conversation.idle]
        for name in stored[:surplus]:
            del self._conversations[name]


# ----------------------------------------------------------------------------------------------------------------- keys


@dataclass(frozen=True, slots=True)
class MemoryKey:
    """A memory key."""

    tenant_id: str
    user_id: str
    session_id: str

    def composite(self) -> str:
        """``tenant:user:session``, unique for each key.

        A colon in tenant or user is written %3A, a percent sign %25.
        """
        return f"{_escaped(self.tenant_id)}:{_escaped(self.user_id)}:{self.session_id}"


def resolve_key(
    tool_context: Mapping[str, Any] | None, isolation: MemoryIsolation, *, explicit: MemoryKey | None = None
) -> MemoryKey | None:
    """Return the key, or None if there is no session and one is required."""
    if explicit is not None:
        return explicit
    found = tool_context or {}
    session = _text(_at(found, isolation.session_key))
    if session:
        tenant = _text(_at(found, isolation.tenant_key))
        user = _text(_at(found, isolation.user_key))
        return MemoryKey(
            tenant_id="default" if tenant is None else tenant,
            user_id="anonymous" if user is None else user,
            session_id=session,
        )
    return None if isolation.require_explicit_key else MemoryKey("default", "anonymous", uuid.uuid4().hex)


def _at(found: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(value).strip()


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


# ---------------------------------------------------------------------------------------------------------- summarizers


INSTRUCTIONS = (
    "You keep the memory of a conversation. Merge the previous summary and the new turns into one summary that keeps "
    "the user's goals, decisions, facts, names, open questions and artifact references, and leaves out small talk. "
    'Answer with JSON: {"summary": "<session_summary>…</session_summary>"}'
)

RESPONSE_FORMAT: Mapping[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "short_term_memory_summary",
        "schema": {
            "type": "object",
            "properties": {"summary": {"type": "string"}},
            "required": ["summary"],
            "additionalProperties": False,
        },
    },
}


class SummarizerClient(Protocol):
    """A planner's LLM client. It returns text, or a pair of text and cost."""

    async def complete(
        self, *, messages: Sequence[Mapping[str, str]], response_format: Mapping[str, Any] | None = None
    ) -> Any: ...


def summarizer_of(client: SummarizerClient) -> Summarizer:
    """Return a summariser that uses this client."""

    async def summarize(request: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = await client.complete(
            messages=[
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": json.dumps(dict(request), ensure_ascii=False)},
            ],
            response_format=RESPONSE_FORMAT,
        )
        text = answer[0] if isinstance(answer, tuple) else answer
        summary = str(json.loads(text)["summary"]).strip()
        if "<session_summary>" not in summary:
            summary = f"<session_summary>\n{summary}\n</session_summary>"
        return {"summary": summary}

    return summarize
