"""The interface of a binding: requests in, 1.0 types out. Each binding is one class."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol, TypeVar

from keelbolt.client.endpoints import AgentEndpoint
from keelbolt.errors import A2AResponseError, InvalidParamsError
from keelbolt.protocol import v1
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import Request, StreamEvent, TaskPage
from keelbolt.protocol.types import Json
from keelbolt.protocol.versions import ProtocolVersion

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """An event of a stream, with the agent's id for it, if any."""

    value: StreamEvent
    id: str | None = None


@dataclass(slots=True)
class StreamHints:
    """Facts about a stream besides its events: the requested reconnection delay and the version."""

    retry_seconds: float = 0.0
    version: ProtocolVersion = ProtocolVersion.v1_0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a request, for all bindings."""

    seconds: float | None = None  # timeout; None: the client's default
    extensions: tuple[str, ...] = ()
    after: str | None = None  # Last-Event-ID
    key: str | None = None  # Idempotency-Key
    again: bool = False  # the request may arrive twice
    hints: StreamHints = field(default_factory=StreamHints)


class ClientTransport(Protocol):
    """One endpoint of an agent.

    ``call`` returns a Task, Message, TaskPage, PushConfig, PushConfigPage, the JSON of a card, or None; ``stream``
    opens a stream and yields its frames. Both raise the agent's errors as exceptions of `keelbolt.errors`.
    """

    @property
    def endpoint(self) -> AgentEndpoint: ...
    async def close(self) -> None: ...
    async def call(self, operation: Operation, request: Request, options: Options) -> Any: ...
    def stream(
        self, operation: Operation, request: Request, options: Options
    ) -> AbstractAsyncContextManager[AsyncGenerator[StreamFrame, None]]: ...


def decode_answer(codec: ModuleType | Any, operation: Operation, value: Json) -> Any:
    """Return the result of an operation from its JSON. Raise A2AResponseError."""
    match operation:
        case Operation.send_message | Operation.send_streaming_message | Operation.subscribe_to_task:
            return understood(codec.decode_event, value)
        case Operation.get_task | Operation.cancel_task:
            return understood(codec.decode_task, value)
        case Operation.list_tasks:
            return understood(_page(codec), value)
        case Operation.create_push_config | Operation.get_push_config:
            return understood(codec.decode_push_config, value)
        case Operation.list_push_configs:
            return understood(codec.decode_push_config_list, value)
        case Operation.delete_push_config:
            return None
        case Operation.get_extended_card:
            if not isinstance(value, dict):
                raise A2AResponseError("the extended card is not an object")
            return value


def understood(decode: Callable[[Json], T], value: Json) -> T:
    """Return the decoded value. Raise A2AResponseError, which names the field but not its value."""
    try:
        return decode(value)
    except InvalidParamsError as error:
        raise A2AResponseError(f"the response is not valid A2A: {error}") from None


def _page(codec: Any) -> Callable[[Json], TaskPage]:
    def decode(value: Json) -> TaskPage:
        # 0.3 has no list of tasks; agents that have one anyway return a plain list or pages.
        if codec is v1 or not isinstance(value, dict):
            page: TaskPage = codec.decode_task_list(value)
            return page
        found, total = value.get("tasks") or [], value.get("totalSize") or 0
        if not isinstance(found, list) or not isinstance(total, int):
            raise InvalidParamsError("tasks must be a list, and totalSize a number")
        tasks = [codec.decode_task(task) for task in found]
        token = value.get("nextPageToken") or value.get("nextCursor") or ""
        return TaskPage(tasks, str(token), len(tasks), total or len(tasks))

    return decode


def request_headers(version: ProtocolVersion, options: Options) -> dict[str, str]:
    """Return the headers of a request, without its credentials."""
    headers = {"Content-Type": "application/json"}
    if version is ProtocolVersion.v1_0:
        headers["A2A-Version"] = version.value
    if options.extensions:
        headers["A2A-Extensions" if version is ProtocolVersion.v1_0 else "X-A2A-Extensions"] = ", ".join(
            options.extensions
        )
    if options.after is not None:
        headers["Last-Event-ID"] = options.after
    if options.key is not None:
        headers["Idempotency-Key"] = options.key
    return headers


def task_id_of(request: Request) -> str:
    """Return the task id of a request, or ""."""
    return getattr(request, "task_id", None) or getattr(request, "id", None) or ""


def codec_of(version: ProtocolVersion) -> ModuleType:
    """Return the plain JSON codec of a version; that of 0.3 is imported when needed."""
    if version is ProtocolVersion.v1_0:
        return v1
    from keelbolt.protocol import v03  # noqa: PLC0415

    return v03
