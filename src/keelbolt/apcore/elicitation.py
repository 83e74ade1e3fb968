"""Questions and progress from running modules, by the conventions of apcore-mcp.

apcore-mcp puts two callbacks into ``context.data``; its helpers ``elicit()`` and ``report_progress()`` call them. This
module provides the same callbacks: a question makes the task wait as ``input_required``, and progress becomes a status
message. A module that was written for apcore-mcp works unchanged. Modules that don't use apcore-mcp import the helpers
from here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, Literal, NotRequired, TypedDict

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # apcore brings it; it has no types

from keelbolt.apcore.approvals import APPROVING, DENYING
from keelbolt.apcore.schemas import properties_of, types_of
from keelbolt.errors import ParseError, RequestTooLargeError
from keelbolt.protocol import strict_json
from keelbolt.protocol.types import Message
from keelbolt.tasks.context import TaskContext

PROGRESS = "_mcp_progress"
ELICIT = "_mcp_elicit"
QUIET_SECONDS = 0.1  # minimum interval between two reports without text
ACTIONS = ("accept", "decline", "cancel")
MAX_ERROR_CHARACTERS = 300

Action = Literal["accept", "decline", "cancel"]


class ElicitResult(TypedDict):
    """The user's answer; ``content`` matches the requested schema."""

    action: Action
    content: NotRequired[dict[str, Any] | None]


class _Unfit(Exception):
    """The answer does not match the requested schema."""


async def elicit(context: Any, message: str, requested_schema: dict[str, Any] | None = None) -> ElicitResult | None:
    """Ask the user of the task that this context belongs to; return None if there is no task.

    The task waits as ``input_required``. With the answer the module is called again from its start, and this function
    returns the answer; recorded steps are not repeated.
    """
    ask = (getattr(context, "data", None) or {}).get(ELICIT)
    found: ElicitResult | None = await ask(message, requested_schema) if ask is not None else None
    return found


async def report_progress(
    context: Any, progress: float, total: float | None = None, message: str | None = None
) -> None:
    """Report progress as a status message of the task; do nothing without a task."""
    report = (getattr(context, "data", None) or {}).get(PROGRESS)
    if report is not None:
        await report(progress, total, message)


def conversing(ctx: TaskContext) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Return the callbacks for a module's ``context.data``. They can be called from any thread's event loop."""
    loop = asyncio.get_running_loop()
    reported = 0.0

    async def ask(message: str, requested_schema: dict[str, Any] | None = None) -> ElicitResult:
        schema = requested_schema if isinstance(requested_schema, Mapping) else {}
        asked = properties_of(schema)
        data = {"requestedSchema": schema, "answers": ACTIONS[1:]} if asked else {"answers": ACTIONS}
        question = message
        while True:
            answer = await ctx.ask(question, data=data)
            try:
                return read_answer(answer, schema)
            except _Unfit as error:
                question = f"{error}. {message}"

    async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        nonlocal reported
        total = total if total is None or isfinite(total) else None
        if not isfinite(progress):  # 0/0 in a module's arithmetic must not fail its work
            progress = 0.0
        now = time.monotonic()
        if not message and now - reported < QUIET_SECONDS and (total is None or progress < total):
            return
        reported = now
        report = {"progress": progress} | ({"total": total} if total is not None else {})
        await ctx.send_status(message or _words(progress, total), data=report)

    return {ELICIT: _in_loop(loop, ask), PROGRESS: _in_loop(loop, report)}


def _in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Run the function in the given loop: ``def execute`` runs in a thread and may have its own loop there."""

    async def call(*given: Any, **named: Any) -> Any:
        if asyncio.get_running_loop() is loop:
            return await function(*given, **named)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(function(*given, **named), loop))

    return call


def _words(progress: float, total: float | None) -> str:
    return f"{progress:g} of {total:g}" if total else f"{progress:g}"


# -------------------------------------------------------------------------------------------------------- the answer


def read_answer(message: Message, schema: Mapping[str, Any]) -> ElicitResult:
    """Parse an answer: an action, an object, JSON of an object, or text for the only requested property."""
    data = {key: value for part in message.parts if isinstance(part.data, dict) for key, value in part.data.items()}
    text = message.text.strip()
    if not data and text.startswith("{"):
        data = _object(text)
    action = data.get("action") if "action" not in properties_of(schema) else None
    if action in ACTIONS:
        content = data.get("content")
        if action != "accept":
            return {"action": action}
        return {"action": "accept", "content": _fitting(content if isinstance(content, dict) else {}, schema)}
    if data:
        return {"action": "accept", "content": _fitting(data, schema)}
    word = text.strip(".!").lower()
    if word in ("decline", "cancel"):
        return {"action": "decline" if word == "decline" else "cancel"}
    return _from_words(text, word, schema)


def _from_words(text: str, word: str, schema: Mapping[str, Any]) -> ElicitResult:
    properties = properties_of(schema)
    if not properties:
        if word in DENYING:
            return {"action": "decline"}
        return {"action": "accept", "content": {} if word == "accept" else {"text": text}}
    required = [name for name in schema.get("required", ()) if name in properties]
    names = list(properties) if len(properties) == 1 else required
    if len(names) != 1:
        raise _Unfit(f"Answer with a JSON object with the properties {', '.join(properties)}")
    kinds = types_of(properties[names[0]])
    value: Any = text
    if "boolean" in kinds and word in APPROVING | DENYING | {"true", "false"}:
        value = word in APPROVING or word == "true"
    elif kinds & {"integer", "number"} and "string" not in kinds:
        value = _number(text)
    return {"action": "accept", "content": _fitting({names[0]: value}, schema)}


def _object(text: str) -> dict[str, Any]:
    try:
        found = strict_json.read(text.encode("utf-8", "surrogatepass"))
    except (ParseError, RequestTooLargeError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(text: str) -> Any:
    for kind in (int, float):  # an int first: a float has 53 bits
        with suppress(ValueError):
            number = kind(text)
            return number if isfinite(number) else text
    return text


def _fitting(content: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with 3.0 as 3 for integers, since some clients have no integers. Raise _Unfit."""
    properties = properties_of(schema)
    for name, value in content.items():
        if isinstance(value, float) and value.is_integer() and "integer" in types_of(properties.get(name, {})):
            content = {**content, name: int(value)}
    wrong = next(Draft202012Validator(dict(schema)).iter_errors(content), None)
    if wrong is not None:
        place = "/".join(str(step) for step in wrong.absolute_path)
        text = f"{place}: {wrong.message}" if place else wrong.message
        raise _Unfit(text[:MAX_ERROR_CHARACTERS])  # it repeats the answer, which may be long
    return content
