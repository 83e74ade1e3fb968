"""A memory for a planner: one object with a conversation for each key.

A planner selects a conversation by calling `hydrate` at the start of a run; later calls in the same task use that
conversation. So concurrent runs of several sessions never see each other's turns.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from keelbolt.state.memory.config import ShortTermMemoryConfig
from keelbolt.state.memory.conversation import MemoryConversation, Summarizer
from keelbolt.state.memory.health import MemoryHealth
from keelbolt.state.memory.keys import MemoryKey
from keelbolt.state.memory.turns import ConversationTurn

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
