"""Calls of modules that must not be called twice: each call is a step of its task, and its failure is recorded too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import from_json

from keelbolt.apcore.catalog import Module
from keelbolt.apcore.errors_map import ErrorMapper
from keelbolt.apcore.library import ApprovalPendingError, ExecutionCancelledError
from keelbolt.errors import InvalidAgentResponseError, KeelboltError, ProtocolError
from keelbolt.protocol.types import Part, encode
from keelbolt.tasks.context import TaskContext

FAILED = "_keelbolt.failed"
_CONTENT = frozenset({"text", "raw", "url", "data"})


class RecordedFailure(Exception):
    """The call failed in a process that died before it reported the failure; ``data`` is the error for the caller."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data.get("message", ""))
        self.data = data


async def call_once(
    ctx: TaskContext,
    module: Module,
    call: Callable[[], Awaitable[list[Part]]],
    parts_of: Callable[[Any], Awaitable[list[Part]]],
    errors: ErrorMapper,
) -> list[Part]:
    """Make the call unless it was already made. If the process dies meanwhile, the user is asked for the outcome."""
    failure: Exception | None = None

    async def recorded() -> Any:
        nonlocal failure
        try:
            return [from_json(encode(part)) for part in await call()]
        except (ApprovalPendingError, ExecutionCancelledError):
            raise  # nothing was done yet, or the task is canceled
        except Exception as error:
            if isinstance(error, KeelboltError) and not isinstance(error, ProtocolError | InvalidAgentResponseError):
                raise  # it concerns the task, not the module
            failure = error
            return {FAILED: errors.to_jsonrpc_error(error, module)}

    found = await ctx.step(f"call {module.id}", recorded)
    if failure is not None:
        raise failure
    if isinstance(found, Mapping) and isinstance(data := found.get(FAILED), dict):
        raise RecordedFailure(data)
    if isinstance(found, list) and all(isinstance(part, dict) and part.keys() & _CONTENT for part in found):
        return [Part.model_validate(part) for part in found]
    return await parts_of(found)  # the output as the user reported it
