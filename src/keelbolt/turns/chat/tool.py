"""`@tool`: creates a tool from a function, its type hints and its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic_core import to_json

from keelbolt.errors import InvalidInitialToolValue
from keelbolt.turns.primitives import Media
from keelbolt.turns.reports import ExecutorHelpers
from keelbolt.turns.tools import Approval, Tool, ToolResult

INJECTED = ("ctx", "helpers", "call_id")
_FIELD = "argument_"
_ARGS = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$", re.MULTILINE)
_ARG = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.+)$")


@dataclass(frozen=True, slots=True)
class Calling:
    """The current call: data of the executor that is not in the tool's arguments."""

    call_id: str
    helpers: ExecutorHelpers | None = None

    def progress(self, value: Any) -> None:
        if self.helpers is not None:
            self.helpers.report_tool_call(self.call_id, results=_text(value))


calling: ContextVar[Calling | None] = ContextVar("keelbolt_turns_calling", default=None)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: Approval = False,
    timeout: float | None = None,
    retries: int = 0,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: Approval = False,
    timeout: float | None = None,
    retries: int = 0,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Create a tool from a function.

        @tool(needs_approval="May I pay {amount} EUR to {to}?", timeout=30)
        async def pay(amount: int, to: str, call_id: str) -> dict[str, Any]:
            \"\"\"Pay a supplier.

            Args:
                amount: Whole euros.
                to: Name of the receiver.
            \"\"\"

    The model sees the type hints and the docstring. The executor passes the parameters named ``ctx``, ``helpers`` and
    ``call_id``: the dispatch context, the executor's helpers, and an id that stays the same when a call is repeated
    after a crash; use it as the idempotency key of a payment. A plain function runs in a thread. A generator yields
    progress; its return value, or else its last yielded value, is the result. A result is text, bytes, Media, or a JSON
    value.
    """

    def make(found: Callable[..., Any]) -> Tool:
        if not inspect.isroutine(found):
            raise InvalidInitialToolValue(f"@tool takes a function or a method, not {type(found).__name__}")
        summary, about = _documented(found)
        return Tool(
            name=name or found.__name__,
            description=description or summary or found.__name__.replace("_", " "),
            input_schema=_arguments(found, about),
            handler=_handler(found),
            needs_approval=needs_approval,
            timeout=timeout,
            retries=retries,
        )

    return make if function is None else make(function)


def _documented(function: Callable[..., Any]) -> tuple[str, Mapping[str, str]]:
    """Return the description from the docstring, and the descriptions of the arguments."""
    text = inspect.getdoc(function) or ""
    section = _SECTION.search(text)
    summary = (text[: section.start()] if section else text).strip()
    about: dict[str, str] = {}
    last = ""
    if found := _ARGS.search(text):
        rest = text[found.end() :]
        following = _SECTION.search(rest)
        for line in (rest[: following.start()] if following else rest).splitlines():
            if described := _ARG.match(line):
                last = described[1]
                about[last] = described[2].strip()
            elif line.strip() and last:  # the description continues
                about[last] += f" {line.strip()}"
    return summary, about


def _arguments(function: Callable[..., Any], about: Mapping[str, str]) -> type[BaseModel]:
    """Return a model of the arguments. Its fields are prefixed, since some names are reserved by pydantic."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as unknown:
        raise InvalidInitialToolValue(
            f"{function.__name__}: a type hint can't be resolved ({unknown}); define the type at the top of the module"
        ) from unknown
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in INJECTED:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInitialToolValue(
                f"{function.__name__}: the parameters of a tool must have names, not {parameter}"
            )
        if parameter.name not in hints:
            raise InvalidInitialToolValue(f"{function.__name__}: the parameter {parameter.name} needs a type hint")
        default = ... if parameter.default is parameter.empty else parameter.default
        described: dict[str, Any] = {"description": about[parameter.name]} if parameter.name in about else {}
        fields[f"{_FIELD}{parameter.name}"] = (
            hints[parameter.name],
            Field(default, alias=parameter.name, **described),
        )
    return create_model(f"{function.__name__}_arguments", __config__=ConfigDict(extra="forbid"), **fields)


def _handler(function: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    wanted = [name for name in INJECTED if name in inspect.signature(function).parameters]

    def given(args: BaseModel, ctx: Any) -> dict[str, Any]:
        now = calling.get()
        known = {
            "ctx": ctx,
            "helpers": now.helpers if now is not None else None,
            "call_id": now.call_id if now is not None else "",
        }
        named = {name.removeprefix(_FIELD): getattr(args, name) for name in type(args).model_fields}
        return {**named, **{name: known[name] for name in wanted}}

    if inspect.isasyncgenfunction(function):

        async def stream(args: BaseModel, ctx: Any, _meta: Any) -> ToolResult:
            return result(await _streamed(function(**given(args, ctx))))

        return stream
    if inspect.iscoroutinefunction(function):

        async def call(args: BaseModel, ctx: Any, _meta: Any) -> ToolResult:
            return result(await function(**given(args, ctx)))

        return call

    def plain(args: BaseModel, ctx: Any, _meta: Any) -> ToolResult | Awaitable[ToolResult]:
        found = function(**given(args, ctx))
        if inspect.isawaitable(found):  # a decorator hides that the function is async
            return _awaited(found)
        return result(_exhausted(found) if inspect.isgenerator(found) else found)

    return plain


async def _awaited(value: Awaitable[Any]) -> ToolResult:
    return result(await value)


async def _streamed(values: AsyncIterator[Any]) -> Any:
    last = None
    async for last in values:
        _progress(last)
    return last


def _exhausted(values: Iterator[Any]) -> Any:
    last = None
    while True:
        try:
            last = next(values)
        except StopIteration as ended:
            return last if ended.value is None else ended.value
        _progress(last)


def _progress(value: Any) -> None:
    now = calling.get()
    if now is not None:
        now.progress(value)


def result(value: Any) -> ToolResult:
    """Return the tool result for a value that a function returned."""
    if isinstance(value, bytes | Media) or (
        isinstance(value, list) and value and all(isinstance(item, Media) for item in value)
    ):
        return value
    return _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()
