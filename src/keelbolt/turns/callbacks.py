"""The storage contract: 27 required callbacks and an optional one, and the limits of fetches.

`StorageCallbacks` declares their types for editors; a runner checks `CALLBACKS` when it is created. Each may be plain
or async. They always get the turn's context, also for calls within a dispatch. Fetch callbacks only get the context, so
the limits of a fetch are passed in a context variable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeAlias, TypedDict, TypeVar

from keelbolt.errors import InvalidValue
from keelbolt.turns.events import KINDS, OPS
from keelbolt.turns.primitives import Memory, Message, Retrievable, Thought, Tokenizable, ToolCall
from keelbolt.turns.readers import ByteSource, MediaReader, SpoolReader

if TYPE_CHECKING:
    from keelbolt.turns.context import TurnContext
    from keelbolt.turns.tools import Tool


@dataclass(frozen=True, slots=True)
class Window:
    """The ``last`` n values in storage order; None: all of them."""

    last: int | None = None

    def __post_init__(self) -> None:
        if self.last is not None and (isinstance(self.last, bool) or not isinstance(self.last, int) or self.last < 1):
            raise InvalidValue(f"last must be an integer of at least 1, or None for all, not {self.last!r}")

    def of(self, values: Sequence[T]) -> list[T]:
        """Return the values within the window."""
        return list(values) if self.last is None else list(values[-self.last :])


@dataclass(frozen=True, slots=True)
class TopK:
    """The ``k`` memories with the highest importance (or confidence), in storage order."""

    k: int = 50
    by: Literal["importance", "confidence"] = "importance"

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InvalidValue(f"k must be an integer of at least 1, not {self.k!r}")
        if self.by not in ("importance", "confidence"):
            raise InvalidValue(f"by must be 'importance' or 'confidence', not {self.by!r}")

    def of(self, values: Sequence[T]) -> list[T]:
        """Return the best values."""
        best = sorted(range(len(values)), key=lambda at: -getattr(values[at], self.by))[: self.k]
        return [values[at] for at in sorted(best)]


Limit = Window | TopK
EVERYTHING = Window()


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """The default limit of each fetch; without one, everything."""

    messages: Window = EVERYTHING
    memories: Limit = EVERYTHING
    thoughts: Window = EVERYTHING
    tool_calls: Window = EVERYTHING
    retrievables: Window = EVERYTHING
    standing_instructions: Window = EVERYTHING

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_limit(name, getattr(self, name))


def check_limit(name: str, limit: object) -> Limit:
    """Return the limit if it is a Window, or, only for memories, a TopK: other kinds have no importance."""
    if isinstance(limit, Window) or (isinstance(limit, TopK) and name == "memories"):
        return limit
    allowed = "a Window or a TopK" if name == "memories" else "a Window"
    raise InvalidValue(f"the limit of {name} must be {allowed}, not {limit!r}")


_asked: ContextVar[Mapping[str, Limit]] = ContextVar("keelbolt_turns_asked", default={})  # noqa: B039 - never changed


@contextmanager
def asking(name: str, limit: Limit | None) -> Iterator[None]:
    """Limit fetches of this name within the block, for adapters that support limits."""
    if limit is None:
        yield
        return
    token = _asked.set({**_asked.get(), name: limit})
    try:
        yield
    finally:
        _asked.reset(token)


def asked(name: str, policy: Any) -> Limit:
    """Return the current limit, or else the policy's."""
    limit: Limit = _asked.get().get(name) or getattr(policy, name)
    return limit


T = TypeVar("T")

Fetch: TypeAlias = "Callable[[TurnContext], Awaitable[Sequence[T]] | Sequence[T]]"
Persist: TypeAlias = "Callable[[TurnContext, T], Awaitable[Any] | Any]"
Conduit: TypeAlias = "Callable[[TurnContext, str, ByteSource], Awaitable[T] | T]"
ReplaceGroup: TypeAlias = "Callable[[TurnContext, Sequence[str], Sequence[ToolCall]], Awaitable[Any] | Any]"


class StorageCallbacks(TypedDict):
    """All 27 callbacks, and the optional one."""

    fetch_memories_callback: Fetch[Memory]
    fetch_messages_callback: Fetch[Message]
    fetch_thoughts_callback: Fetch[Thought]
    fetch_tool_calls_callback: Fetch[ToolCall]
    fetch_tools_callback: Fetch[Tool]
    fetch_retrievables_callback: Fetch[Retrievable]
    refresh_standing_instructions_callback: Fetch[str | Tokenizable]
    store_message_callback: Persist[Message]
    mutate_message_callback: Persist[Message]
    delete_message_callback: Persist[str]
    store_memory_callback: Persist[Memory]
    mutate_memory_callback: Persist[Memory]
    delete_memory_callback: Persist[str]
    store_thought_callback: Persist[Thought]
    mutate_thought_callback: Persist[Thought]
    delete_thought_callback: Persist[str]
    store_tool_call_callback: Persist[ToolCall]
    mutate_tool_call_callback: Persist[ToolCall]
    delete_tool_call_callback: Persist[str]
    store_retrievable_callback: Persist[Retrievable]
    mutate_retrievable_callback: Persist[Retrievable]
    delete_retrievable_callback: Persist[str]
    store_standing_instruction_callback: Persist[str | Tokenizable]
    mutate_standing_instruction_callback: Persist[str | Tokenizable]
    delete_standing_instruction_callback: Persist[str | Tokenizable]
    store_media_bytes_callback: Conduit[MediaReader]
    store_retrievable_bytes_callback: Conduit[SpoolReader]
    replace_tool_call_group_callback: NotRequired[ReplaceGroup]


class SomeCallbacks(TypedDict, total=False):
    """Any subset of the callbacks, to override those of a storage. Repeats the types, since none is required here."""

    fetch_memories_callback: Fetch[Memory]
    fetch_messages_callback: Fetch[Message]
    fetch_thoughts_callback: Fetch[Thought]
    fetch_tool_calls_callback: Fetch[ToolCall]
    fetch_tools_callback: Fetch[Tool]
    fetch_retrievables_callback: Fetch[Retrievable]
    refresh_standing_instructions_callback: Fetch[str | Tokenizable]
    store_message_callback: Persist[Message]
    mutate_message_callback: Persist[Message]
    delete_message_callback: Persist[str]
    store_memory_callback: Persist[Memory]
    mutate_memory_callback: Persist[Memory]
    delete_memory_callback: Persist[str]
    store_thought_callback: Persist[Thought]
    mutate_thought_callback: Persist[Thought]
    delete_thought_callback: Persist[str]
    store_tool_call_callback: Persist[ToolCall]
    mutate_tool_call_callback: Persist[ToolCall]
    delete_tool_call_callback: Persist[str]
    store_retrievable_callback: Persist[Retrievable]
    mutate_retrievable_callback: Persist[Retrievable]
    delete_retrievable_callback: Persist[str]
    store_standing_instruction_callback: Persist[str | Tokenizable]
    mutate_standing_instruction_callback: Persist[str | Tokenizable]
    delete_standing_instruction_callback: Persist[str | Tokenizable]
    store_media_bytes_callback: Conduit[MediaReader]
    store_retrievable_bytes_callback: Conduit[SpoolReader]
    replace_tool_call_group_callback: ReplaceGroup


@dataclass(frozen=True, slots=True)
class Callback:
    """One callback: its parameters, and whether it is required."""

    name: str
    parameters: tuple[str, ...]
    required: bool = True

    @property
    def arity(self) -> int:
        return len(self.parameters)

    @property
    def shape(self) -> str:
        return f"({', '.join(self.parameters)})"


FETCHES = (
    "fetch_memories",
    "fetch_messages",
    "fetch_thoughts",
    "fetch_tool_calls",
    "fetch_tools",
    "fetch_retrievables",
    "refresh_standing_instructions",
)
CONDUITS = ("store_media_bytes", "store_retrievable_bytes")


def _persist() -> list[Callback]:
    by_id = {"delete": "id"}
    return [
        Callback(
            f"{op}_{kind}_callback",
            ("ctx", "value" if kind == "standing_instruction" else by_id.get(op, kind)),
        )
        for kind in KINDS
        for op in OPS
    ]


CALLBACKS: Mapping[str, Callback] = {
    callback.name: callback
    for callback in (
        *(Callback(f"{name}_callback", ("ctx",)) for name in FETCHES),
        *_persist(),
        *(Callback(f"{name}_callback", ("ctx", "id", "data")) for name in CONDUITS),
        Callback("replace_tool_call_group_callback", ("ctx", "ids", "replacements"), required=False),
    )
}
REQUIRED: tuple[str, ...] = tuple(name for name, callback in CALLBACKS.items() if callback.required)
