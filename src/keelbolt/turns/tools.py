"""Tools that a model can call, and the tools of a turn, by name and in order."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from keelbolt.errors import (
    InvalidInitialToolValue,
    InvalidToolArgs,
    ToolAlreadyRegistered,
    ToolDownstreamError,
    TurnError,
)
from keelbolt.tasks.threads import in_thread
from keelbolt.turns.abort import ends_task, is_abort
from keelbolt.turns.events import ToolExecutionEnd, ToolExecutionStart, milliseconds, now
from keelbolt.turns.primitives import Media, SpooledArtifact, tool_call_checksum
from keelbolt.turns.primitives.values import Wrong, flag, optional_text, refusing, text, thawed
from keelbolt.turns.registry import Registry
from keelbolt.turns.schemas import Schema, checker, json_schema

if TYPE_CHECKING:
    from keelbolt.turns.context import TurnContext
    from keelbolt.turns.dispatch_context import DispatchContext


ToolResult: TypeAlias = "str | bytes | Media | list[Media]"
Handler: TypeAlias = "Callable[[Any, Any, Registry], Awaitable[ToolResult] | ToolResult]"
Approval: TypeAlias = "bool | str | Callable[[Mapping[str, Any]], bool | str]"
Collision = Literal["throw", "replace", "keep"]
COLLISIONS = ("throw", "replace", "keep")


@refusing(InvalidInitialToolValue)
class Tool:
    """A function with a name, a description and a schema of its arguments.

    The handler is called with the validated arguments (an instance if the schema is a pydantic model), the context and
    ``meta``. It returns a str, bytes, Media or a list of Media. An async handler runs on the event loop, a plain one
    in its own thread, so that blocking code does not stop the process's heartbeats. An ``ephemeral`` tool is removed
    after the dispatch in which it was acknowledged; ``trusted`` is a note for code that shows results to a model. An
    attempt may take ``timeout`` seconds. An attempt that raises is retried, ``retries`` times; a plain handler that
    timed out is not, since its thread can't be stopped. ``needs_approval`` makes the chat executor ask first: True, a
    question with the arguments in braces, or a function of the arguments that returns one of these.
    """

    __slots__ = (
        "_check",
        "_handler",
        "artifact_constructor",
        "description",
        "ephemeral",
        "input_schema",
        "meta",
        "name",
        "needs_approval",
        "on_collision",
        "retries",
        "timeout",
        "trusted",
    )

    def __init__(
        self,
        *,
        name: str,
        description: str,
        input_schema: Schema,
        handler: Handler,
        artifact_constructor: Callable[..., SpooledArtifact] | None = None,
        meta: Mapping[str, Any] | None = None,
        ephemeral: bool = False,
        trusted: bool = False,
        on_collision: Collision | None = None,
        needs_approval: Approval = False,
        timeout: float | None = None,
        retries: int = 0,
    ) -> None:
        self.name = text("name", name)
        self.description = text("description", description)
        self.input_schema = _schema(input_schema)
        self._check = checker(self.input_schema)
        self._handler = _handler(handler)
        if artifact_constructor is not None and not callable(artifact_constructor):
            raise Wrong("artifact_constructor must be SpooledArtifact or a subclass")
        self.artifact_constructor = artifact_constructor
        if meta is not None and not isinstance(meta, dict):
            raise Wrong(f"meta must be a dict, not {type(meta).__name__}")
        self.meta = Registry(meta)
        self.ephemeral = flag("ephemeral", ephemeral)
        self.trusted = flag("trusted", trusted)
        if optional_text("on_collision", on_collision) not in {None, *COLLISIONS}:
            raise Wrong(f"on_collision must be throw, replace or keep, not {on_collision!r}")
        self.on_collision = on_collision
        if not isinstance(needs_approval, bool | str) and not callable(needs_approval):
            raise Wrong(
                "needs_approval must be a bool, a question such as 'Pay {amount}?', or a function of the arguments"
            )
        self.needs_approval = needs_approval
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0):
            raise Wrong(f"timeout must be a number of seconds above 0, or None, not {timeout!r}")
        self.timeout = timeout
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise Wrong(f"retries must be an integer of at least 0, not {retries!r}")
        self.retries = retries

    def json_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the arguments for the model."""
        return json_schema(self.input_schema)

    def check(self, args: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the checksum of a call, and the arguments as the handler gets them. Raise InvalidToolArgs."""
        try:
            call_id = tool_call_checksum(self.name, args)  # of the original arguments, before conversion
            return call_id, self._check(thawed(args))  # a handler may change them; the recorded call stays unchanged
        except (TypeError, ValueError) as wrong:
            raise InvalidToolArgs(f"{self.name}: {wrong}; the tool was not called") from wrong

    def executor(self, ctx: TurnContext | DispatchContext) -> Callable[[Mapping[str, Any]], Awaitable[ToolResult]]:
        """Return the function that calls the tool in this context and emits its events."""

        async def execute(args: Mapping[str, Any]) -> ToolResult:
            return await self._execute(ctx, args)

        return execute

    async def _execute(self, ctx: TurnContext | DispatchContext, args: Mapping[str, Any]) -> ToolResult:
        call_id, checked = self.check(args)
        started = now()
        about: dict[str, Any] = {
            "tool_name": self.name,
            "turn_id": ctx.turn_id,
            "dispatch_id": getattr(ctx, "dispatch_id", None),
            "call_id": call_id,
            "started_at": started,
        }
        ctx.emit_tool_execution_start(ToolExecutionStart(**about, args=args))
        failed = True
        try:
            result = await self._attempts(checked, ctx)
            failed = False
        except BaseException as error:
            if ends_task(error) or isinstance(error, ToolDownstreamError) or is_abort(error, ctx.abort_signal):
                raise
            words = str(error) or type(error).__name__
            raise ToolDownstreamError(f"the tool {self.name} raised: {words}") from error
        finally:
            ended = now()
            span = milliseconds(started, ended)
            ctx.emit_tool_execution_end(ToolExecutionEnd(**about, ended_at=ended, duration_ms=span, is_error=failed))
        return result

    async def _attempts(self, checked: Any, ctx: TurnContext | DispatchContext) -> ToolResult:
        for left in range(self.retries, -1, -1):
            limit = asyncio.timeout(self.timeout)
            try:
                async with limit:
                    result: ToolResult = await called(self._handler, checked, ctx, self.meta)
            except Exception as error:
                if limit.expired() and isinstance(error, TimeoutError):
                    if left and not ctx.aborted and runs_on_loop(self._handler):
                        continue  # a thread can't be stopped: a second attempt would run beside the first
                    raise ToolDownstreamError(f"the tool {self.name} timed out after {self.timeout:g} s") from error
                if left and not is_abort(error, ctx.abort_signal) and not isinstance(error, TurnError):
                    continue
                raise
            _fitting(self.name, result)
            return result
        raise AssertionError

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


def runs_on_loop(function: Callable[..., Any]) -> bool:
    """Return whether `called` runs the function on the event loop, because it is async."""
    return any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004


async def called(function: Callable[..., Any], *given: Any) -> Any:
    """Call an async function on the event loop, and a plain one in its own thread."""
    if runs_on_loop(function):
        return await function(*given)
    answer = await in_thread(function, *given)
    return await answer if inspect.isawaitable(answer) else answer


def _schema(value: Any) -> Schema:
    try:
        checker(value)
    except ValueError as wrong:
        raise Wrong(f"input_schema: {wrong}") from None
    shown = json_schema(value)
    if shown is not None and shown.get("type") != "object":
        raise Wrong('input_schema must describe an object; a JSON Schema needs "type": "object"')
    schema: Schema = value
    return schema


def _handler(value: Any) -> Handler:
    if not callable(value):
        raise Wrong(f"handler must be a function (args, ctx, meta), not {type(value).__name__}")
    if wrong := arity_problem(value, 3):
        raise Wrong(f"handler {wrong}; it must take 3: (args, ctx, meta)")
    handler: Handler = value
    return handler


def _fitting(name: str, result: object) -> None:
    if isinstance(result, str | bytes | Media):
        return
    if isinstance(result, list | tuple) and result and all(isinstance(item, Media) for item in result):
        return
    raise ToolDownstreamError(
        f"the tool {name} returned {type(result).__name__}; a tool returns a str, bytes, Media or a list of Media"
    )


# ---------------------------------------------------------------------------------------------------------------- arity


def arity_problem(function: object, count: int) -> str | None:
    """Return the reason why the function can't be called with exactly ``count`` positional arguments, or None.

    Only required parameters count, not those with a default or ``self`` of a bound method. Wrapped functions behind
    decorators are not inspected.
    """
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "can't be inspected; wrap it in a function that names its parameters"
    needed = 0
    for parameter in signature.parameters.values():
        bare = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            return f"hides its parameters behind *{parameter.name}; name them"
        if parameter.kind is parameter.KEYWORD_ONLY and bare:
            return f"requires the keyword argument {parameter.name}, which the runner does not pass; give it a default"
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD} and bare:
            needed += 1
    if needed == count:
        return None
    default = "; a parameter with a default does not count" if needed < count else ""
    return f"takes {needed} parameter{'' if needed == 1 else 's'}{default}"


# -------------------------------------------------------------------------------------------------------- tool registry


class Acknowledged(Protocol):
    def on_ack(self, handler: Callable[[], None], /) -> Callable[[], None]: ...


class ToolRegistry:
    """Tools by name. A hidden one can be called but is not shown to the model."""

    __slots__ = ("_hidden", "_tools")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._hidden: set[str] = set()
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool, *, overwrite: bool = False) -> None:
        """Add the tool; with ``overwrite`` it replaces one of the same name."""
        if not isinstance(tool, Tool):
            raise InvalidInitialToolValue(f"register takes a Tool, not {type(tool).__name__}")
        if tool.name in self._tools and not overwrite:
            raise ToolAlreadyRegistered(
                f"a tool named {tool.name!r} is already registered; pass overwrite=True or use another name"
            )
        self._tools[tool.name] = tool

    def unregister(self, name: str) -> bool:
        """Remove the tool; return whether it was registered."""
        self._hidden.discard(name)
        return self._tools.pop(name, None) is not None

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def has(self, name: str) -> bool:
        return name in self._tools

    def all(self) -> list[Tool]:
        return list(self._tools.values())

    def visible(self) -> list[Tool]:
        """Return the tools that the model is shown."""
        return [tool for tool in self if tool.name not in self._hidden]

    def hidden(self) -> list[Tool]:
        return [tool for tool in self if tool.name in self._hidden]

    def hide(self, *names: str) -> None:
        """Hide these tools; this also applies to names registered later."""
        self._hidden.update(names)

    def unhide(self, *names: str) -> None:
        self._hidden.difference_update(names)

    def set_hidden(self, names: Iterable[str]) -> None:
        """Hide exactly these tools."""
        self._hidden = set(names)

    def clear_hidden(self) -> None:
        self._hidden.clear()

    def prune_ephemeral(self) -> list[Tool]:
        """Remove and return the ephemeral tools."""
        pruned = [tool for tool in self if tool.ephemeral]
        for tool in pruned:
            self.unregister(tool.name)
        return pruned

    def bind_context(self, ctx: Acknowledged) -> Callable[[], None]:
        """Remove the ephemeral tools when this dispatch is acknowledged. Return a function that undoes the binding."""

        def prune() -> None:
            self.prune_ephemeral()

        return ctx.on_ack(prune)

    def copy(self) -> ToolRegistry:
        copied = ToolRegistry(self)
        copied._hidden = set(self._hidden)
        return copied

    @staticmethod
    def merge(registries: Iterable[ToolRegistry], *, on_collision: Collision = "throw") -> ToolRegistry:
        """Return one registry of all. For equal names the later tool's own policy decides, or else ``on_collision``."""
        if on_collision not in COLLISIONS:
            raise InvalidInitialToolValue(f"on_collision must be throw, replace or keep, not {on_collision!r}")
        merged = ToolRegistry()
        for registry in registries:
            hidden = registry.hidden()
            for tool in registry:
                taken = tool.name in merged._tools
                policy = tool.on_collision or on_collision
                if taken and policy == "keep":
                    continue
                merged.register(tool, overwrite=policy == "replace")
                if taken:
                    merged._hidden.discard(tool.name)
                if tool in hidden:
                    merged._hidden.add(tool.name)
        return merged

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"ToolRegistry({list(self._tools)!r})"
