"""A dispatch without a turn; the caller provides its input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from keelbolt.errors import InvalidInitialRegistryValue, InvalidLlmExecutionContext
from keelbolt.turns.abort import AbortController
from keelbolt.turns.buses import Listener
from keelbolt.turns.callbacks import CALLBACKS
from keelbolt.turns.codec.kinds import PLURALS, TYPES
from keelbolt.turns.events import EMITS, WRITTEN
from keelbolt.turns.holdings import TurnSets
from keelbolt.turns.primitives import Memory, Message, Retrievable, Thought, Tokenizable, ToolCall
from keelbolt.turns.registry import Registry
from keelbolt.turns.tools import Tool
from keelbolt.turns.validate import callback_problems, tool_problems, unknown_problems

HOOKS = EMITS | WRITTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDispatch:
    """The input of a standalone dispatch.

    ``callbacks`` are any of the storage callbacks; they get this dispatch's own context. Without them writes only
    change the local sets. ``hooks`` are listeners by event: the five emitted kinds and ``stored_message``, … .
    ``wait_for`` opens gates; without it there are none.
    """

    system_prompt: str | Tokenizable
    standing_instructions: Sequence[str | Tokenizable] = ()
    stash: Mapping[str, Any] | None = None
    messages: Sequence[Message] = ()
    memories: Sequence[Memory] = ()
    thoughts: Sequence[Thought] = ()
    tool_calls: Sequence[ToolCall] = ()
    retrievables: Sequence[Retrievable] = ()
    tools: Sequence[Tool] = ()
    callbacks: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    hooks: Mapping[str, Listener] = field(default_factory=dict)
    wait_for: Callable[..., Awaitable[Any]] | None = None
    abort_controller: AbortController | None = None

    def holdings(self) -> TurnSets:
        return TurnSets(
            messages=self.messages,
            memories=self.memories,
            thoughts=self.thoughts,
            tool_calls=self.tool_calls,
            retrievables=self.retrievables,
            instructions=self.standing_instructions,
        )

    def check(self) -> None:
        """Raise InvalidLlmExecutionContext that lists all problems."""
        if problems := [*self._text_problems(), *self._set_problems(), *self._function_problems()]:
            raise InvalidLlmExecutionContext("; ".join(problems))

    def _text_problems(self) -> Iterable[str]:
        if not isinstance(self.system_prompt, str | Tokenizable) or not self.system_prompt:
            yield "system_prompt must be a non-empty str or Tokenizable"
        texts = self.standing_instructions
        if isinstance(texts, str | Tokenizable) or not all(isinstance(one, str | Tokenizable) and one for one in texts):
            yield "standing_instructions must be a list of non-empty texts (str or Tokenizable)"
        try:
            Registry(self.stash)
        except InvalidInitialRegistryValue as wrong:
            yield f"stash: {wrong}"

    def _set_problems(self) -> Iterable[str]:
        for kind, type_ in TYPES.items():
            items = getattr(self, PLURALS[kind])
            if (
                isinstance(items, str)
                or not isinstance(items, Iterable)
                or not all(isinstance(i, type_) for i in items)
            ):
                yield f"{PLURALS[kind]} must be a list of {type_.__name__}"
        yield from tool_problems(self.tools)

    def _function_problems(self) -> Iterable[str]:
        for name, functions in (("callbacks", self.callbacks), ("hooks", self.hooks)):
            if not isinstance(functions, Mapping):
                yield f"{name} must be a dict of functions, not {type(functions).__name__}"
                return
        yield from callback_problems(self.callbacks, required=False)
        yield from unknown_problems(self.callbacks, CALLBACKS)
        yield from (f"hooks: unknown name {name!r}" for name in self.hooks if name not in HOOKS)
        yield from (f"hooks: {name} must be a function" for name, hook in self.hooks.items() if not callable(hook))
        if self.wait_for is not None and not callable(self.wait_for):
            yield "wait_for must be a function that opens a gate and waits for it"
        if self.abort_controller is not None and not isinstance(self.abort_controller, AbortController):
            yield "abort_controller must be an AbortController"
