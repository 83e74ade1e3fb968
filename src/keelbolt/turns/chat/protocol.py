"""The interface between the chat executor and a model: messages in, deltas out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call that the model requests: the tool's name, and its arguments as JSON text of an object.

    In a request to the model, ``id`` links the call to its result; a model that streams need not set it.
    """

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One entry of the conversation. ``calls`` belong to an assistant entry; a ``tool`` entry is a call's result."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[CallRequest, ...] = ()
    call_id: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; ``schema`` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The input of one generation."""

    system: str
    messages: Sequence[ChatMessage]
    tools: Sequence[ToolSpec] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """The next piece of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The token usage of the generation, as the provider reports it."""

    stats: Mapping[str, Any] = field(default_factory=dict)


Delta: TypeAlias = TextDelta | ThoughtDelta | CallRequest | Usage


class Model(Protocol):
    """A language model. Adapters for providers are in this package; `keelbolt.testing` has a scripted one."""

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Delta]:
        """Generate once. A call is yielded when its arguments are complete."""
        ...
