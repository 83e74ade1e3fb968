"""A client of A2A agents."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import urljoin

from keelbolt.client.calls import AgentCalls, origins_of
from keelbolt.client.card_fetcher import AgentCardFetcher, Keys
from keelbolt.client.credentials import AuthLike, Credentials
from keelbolt.client.endpoints import GRPC, HTTP_JSON, JSONRPC, AgentEndpoint, check_url
from keelbolt.client.events import Event, TaskList
from keelbolt.client.messages import Said, message_of, new_id, send_request
from keelbolt.client.streams import REFUSED, Backoff, Reconnect, TaskStream
from keelbolt.client.transport import Options, StreamFrame, StreamHints
from keelbolt.errors import A2AConnectionError, BusyError, KeelboltError
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import (
    CancelTaskRequest,
    CreatePushConfigRequest,
    DeletePushConfigRequest,
    GetExtendedCardRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    PushConfig,
    PushConfigPage,
    Request,
    SendConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPage,
)
from keelbolt.protocol.types import Message, Metadata, Part, Task, TaskState
from keelbolt.protocol.versions import ProtocolVersion

if TYPE_CHECKING:
    from keelbolt.client.asgi import App

logger = logging.getLogger("keelbolt.client")

R = TypeVar("R", bound=Request)

POLL_SECONDS = (0.1, 2.0)  # first and longest delay between polls of an unfinished task
LAST_SECONDS = 1.0  # time for a poll that starts just before the timeout
APP_URL = "http://localhost"


class A2AClient:
    """Calls one agent.

        async with A2AClient("https://agent.example", auth=token) as client:
            task = await client.send_message("Hello")
            async for event in client.stream_message("Count to ten"):
                print(event.text)

    ``auth`` is a token, a (sync or async) function that returns one, or an httpx2 auth; it is sent only to the origin
    of ``url`` and to ``trusted_origins``. ``timeout`` seconds limit each call. A stream has no time limit, but breaks
    after ``idle_seconds`` of silence. After a broken connection, the client reconnects for up to ``reconnect_seconds``
    and calls ``on_reconnect`` before each attempt. ``card_keys`` (a JSON Web Key Set, or its URL) must have signed the
    card. ``bindings`` and ``versions`` limit which of the card's interfaces are used.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        app: App | None = None,
        auth: AuthLike | None = None,
        timeout: float = 30.0,
        card_ttl: float = 300.0,
        headers: Mapping[str, str] | None = None,
        card: Mapping[str, Any] | None = None,
        card_keys: Keys | None = None,
        bindings: Sequence[str] = (JSONRPC, HTTP_JSON, GRPC),
        versions: Sequence[str] = (ProtocolVersion.v1_0, ProtocolVersion.v0_3),
        extensions: Sequence[str] = (),
        trusted_origins: Sequence[str] = (),
        idle_seconds: float = 60.0,
        reconnect_seconds: float = 120.0,
        retry_seconds: float = 10.0,
        on_reconnect: Callable[[Reconnect], None] | None = None,
        max_answer_bytes: int = 32 * 1024 * 1024,
        max_card_bytes: int = 1024 * 1024,
        tenant: str | None = None,
        verify: Any = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if url is None and app is None:
            raise ValueError("pass the url of an agent, or an app")
        self._url = check_url(APP_URL if url is None else url)
        self._app = app
        self._credentials = Credentials(auth, headers)
        self._origins = origins_of(self._url, trusted_origins)
        self._timeout = timeout
        self._card_ttl = card_ttl
        self._card = card
        self._card_keys = card_keys
        if not bindings or any(name not in (JSONRPC, HTTP_JSON, GRPC) for name in bindings):
            raise ValueError(f"bindings must be one or more of {JSONRPC}, {HTTP_JSON} and {GRPC}")
        # An app has no gRPC port, and an httpx2 auth works over HTTP only.
        http_alone = app is not None or self._credentials.httpx is not None
        self._bindings = [name for name in bindings if name != GRPC or not http_alone]
        self._versions = [ProtocolVersion(version) for version in versions]
        self._extensions = extensions
        self._idle = idle_seconds
        self._reconnect_seconds = reconnect_seconds
        self._retry_seconds = retry_seconds
        self._on_reconnect = on_reconnect
        self._max_answer_bytes = max_answer_bytes
        self._max_card_bytes = max_card_bytes
        self._tenant = tenant
        self._verify = verify
        self._clock = clock
        self._calls: AgentCalls | None = None
        self._closed = False

    # -------------------------------------------------------------------------------------------------- life cycle

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. A closed client can't be used again."""
        calls, self._calls, self._closed = self._calls, None, True
        if calls is not None:
            await calls.close()

    def _opened(self) -> AgentCalls:
        if self._calls is None:
            if self._closed:
                raise KeelboltError("this client is closed")
            from keelbolt.client.http import Http  # noqa: PLC0415 - imports httpx2, with the first request

            http = Http(
                credentials=self._credentials,
                origins=self._origins,
                timeout=self._timeout,
                idle_seconds=self._idle,
                answer_bytes=self._max_answer_bytes,
                app=self._app,
                verify=self._verify,
            )
            if self._card is not None:
                fetcher = AgentCardFetcher.of(self._card, self._url)
            else:
                fetcher = AgentCardFetcher(
                    http,
                    self._url,
                    ttl=self._card_ttl,
                    keys=self._card_keys,
                    max_bytes=self._max_card_bytes,
                    clock=self._clock,
                )
            self._calls = AgentCalls(
                http,
                fetcher,
                secret=bool(self._credentials),
                secure=self._url.startswith("https:"),
                in_process=self._app is not None,
                idle_seconds=self._idle,
                origins=self._origins,
                bindings=self._bindings,
                versions=self._versions,
                extensions=self._extensions,
                retry_seconds=self._retry_seconds,
                clock=self._clock,
            )
        return self._calls

    # -------------------------------------------------------------------------------------------------------- card

    @property
    def url(self) -> str:
        """The address of the agent as given."""
        return self._url

    async def reachable(self) -> None:
        """Wait until the agent's card can be loaded, for at most ``reconnect_seconds``."""
        backoff = Backoff(self._reconnect_seconds, self._clock)
        while True:
            try:
                await self._opened().transports()
            except (A2AConnectionError, BusyError) as error:
                pause = backoff.next(float(getattr(error, "retry_after", 0)))
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                return

    async def streams(self) -> bool:
        """Return whether the agent streams, as its card declares."""
        calls = self._opened()
        await calls.transports()
        return calls.streams

    async def deduplicates(self) -> bool:
        """Return whether a message sent again with the same Idempotency-Key creates no second task."""
        calls = self._opened()
        await calls.transports()
        return calls.resumes

    @property
    async def agent_card(self) -> dict[str, Any]:
        """``await client.agent_card``: the card as JSON, cached for ``card_ttl`` seconds."""
        return await self._opened().fetcher.fetch()

    async def discover(self, *, refresh: bool = False) -> dict[str, Any]:
        """Return the card; with ``refresh``, revalidate it by its ETag."""
        return await self._opened().fetcher.fetch(refresh=refresh)

    async def get_extended_card(self) -> dict[str, Any]:
        """Return the card for authenticated callers."""
        calls = self._opened()
        card: dict[str, Any] = await calls.call(Operation.get_extended_card, self._made(GetExtendedCardRequest))
        await calls.fetcher.verify(card)
        return card

    # -------------------------------------------------------------------------------------------------------- send

    async def send_message(
        self,
        message: Said,
        *,
        metadata: Metadata | None = None,
        skill: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        message_id: str | None = None,
        idempotency_key: str | None = None,
        return_immediately: bool = False,
        history_length: int | None = None,
        accepted_output_modes: Sequence[str] = (),
        push_config: PushConfig | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the timeout of the request
    ) -> Task | Message:
        """Send a message and return the response, or, with ``return_immediately``, the created task.

        If the agent returns an unfinished task, the client polls it until it is terminal or waits for its user, for at
        most ``timeout`` seconds in all, and returns its last state. ``skill`` names the skill to use.

        All attempts of this call carry the same ``Idempotency-Key`` (by default a random one). If the agent detects
        repeats (a Keelbolt agent does), the message is sent again after a broken connection; otherwise only if nothing
        of it was sent.
        """
        ends = self._clock() + (timeout or self._timeout)
        request = send_request(
            message_of(message, message_id=message_id, context_id=context_id, task_id=task_id),
            metadata=metadata,
            skill=skill,
            return_immediately=return_immediately,
            history_length=history_length,
            accepted_output_modes=accepted_output_modes,
            push_config=push_config,
        )
        key = idempotency_key or new_id()
        answer = await self._opened().call(Operation.send_message, self._for(request), seconds=timeout, key=key)
        if return_immediately or not isinstance(answer, Task):
            return cast("Task | Message", answer)
        return await self._finished(answer, ends, history_length)

    async def _finished(self, task: Task, ends: float, history_length: int | None) -> Task:
        """Return the task once it is terminal or waits for its user, or its state at ``ends``."""
        pause = POLL_SECONDS[0]
        while not (task.status.state.terminal or task.status.state.paused) and (left := ends - self._clock()) > 0:
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, POLL_SECONDS[1])
            try:
                async with asyncio.timeout(max(LAST_SECONDS, ends - self._clock())):
                    task = await self.get_task(task.id, history_length=history_length)
            except REFUSED as error:
                logger.warning("task %s can't be loaded (%s); it is returned as it was", task.id, error)
                return task
            except (A2AConnectionError, BusyError, TimeoutError) as error:  # an exception would lose the task's id
                logger.warning("task %s can't be loaded now: %s", task.id, str(error) or "the agent does not respond")
        return task

    async def stream_message(
        self,
        message: Said,
        *,
        metadata: Metadata | None = None,
        skill: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        message_id: str | None = None,
        idempotency_key: str | None = None,
        history_length: int | None = None,
        accepted_output_modes: Sequence[str] = (),
        push_config: PushConfig | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Send a message and follow its task until it is terminal or waits for its user.

        After a broken connection the stream continues by itself; the only visible effect may be an `Event.snapshot`. An
        agent that does not stream yields one event, its response.
        """
        request = send_request(
            message_of(message, message_id=message_id, context_id=context_id, task_id=task_id),
            metadata=metadata,
            skill=skill,
            return_immediately=False,
            history_length=history_length,
            accepted_output_modes=accepted_output_modes,
            push_config=push_config,
        )
        key = idempotency_key or new_id()
        calls = self._opened()
        await calls.transports()
        if not calls.streams:
            ends = self._clock() + self._timeout
            answer = await calls.call(Operation.send_message, self._for(request), key=key)
            if isinstance(answer, Task):
                answer = await self._finished(answer, ends, history_length)
            yield Event(answer, last=True)
            return
        stream = self._stream(calls, self._for(request), key=key)
        async with aclosing(stream.events()) as events:
            async for event in events:
                yield event

    async def subscribe(self, task_id: str, *, after: str | int | None = None) -> AsyncGenerator[Event, None]:
        """Follow an existing task; with ``after``, from that event on, if the agent numbers its events."""
        calls = self._opened()
        await calls.transports()
        stream = self._stream(calls, None, task_id=task_id, after=None if after is None else str(after))
        async with aclosing(stream.events()) as events:
            async for event in events:
                yield event

    def _stream(
        self,
        calls: AgentCalls,
        send: Callable[[AgentEndpoint], Request] | None,
        *,
        task_id: str | None = None,
        after: str | None = None,
        key: str | None = None,
    ) -> TaskStream:
        async def sent(hints: StreamHints) -> AbstractAsyncContextManager[AsyncGenerator[StreamFrame, None]]:
            assert send is not None
            options = Options(extensions=calls.asked_extensions, hints=hints, key=key)
            return calls.open(Operation.send_streaming_message, send, options)

        async def subscribed(
            task: str, last: str | None, hints: StreamHints
        ) -> AbstractAsyncContextManager[AsyncGenerator[StreamFrame, None]] | None:
            if last is None and await calls.only_polls():
                return None
            options = Options(extensions=calls.asked_extensions, after=last, hints=hints)
            return calls.open(Operation.subscribe_to_task, self._made(SubscribeToTaskRequest, id=task), options)

        return TaskStream(
            send=None if send is None else sent,
            subscribe=subscribed,
            get=self.get_task,
            resumes=calls.resumes,
            again=calls.resumes,
            backoff=Backoff(self._reconnect_seconds, self._clock),
            tell=self._on_reconnect,
            task_id=task_id,
            after=after,
        )

    # ------------------------------------------------------------------------------------------------------- tasks

    async def get_task(self, task_id: str, *, history_length: int | None = None) -> Task:
        """Return the current task. Raise TaskNotFoundError."""
        make = self._made(GetTaskRequest, id=task_id, history_length=history_length)
        return cast("Task", await self._opened().call(Operation.get_task, make))

    async def cancel_task(self, task_id: str, *, metadata: Metadata | None = None) -> Task:
        """Cancel a task. Raise TaskNotFoundError, or TaskNotCancelableError if it is terminal."""
        make = self._made(CancelTaskRequest, id=task_id, metadata=metadata)
        return cast("Task", await self._opened().call(Operation.cancel_task, make))

    def list_tasks(
        self,
        context_id: str | None = None,
        limit: int | None = None,
        *,
        status: TaskState | str | None = None,
        history_length: int | None = None,
        status_timestamp_after: datetime | None = None,
        include_artifacts: bool | None = None,
        page_token: str | None = None,
    ) -> TaskList:
        """List tasks, latest first: ``async for task in client.list_tasks()``. ``limit`` is the page size.

        ``await client.list_tasks(page_token=…)`` returns one page: its ``tasks`` and the ``next_page_token``.
        """
        state = TaskState(status) if isinstance(status, str) else status

        async def page(token: str | None) -> TaskPage:
            make = self._made(
                ListTasksRequest,
                context_id=context_id,
                status=state,
                page_size=limit,
                page_token=token,
                history_length=history_length,
                status_timestamp_after=status_timestamp_after and status_timestamp_after.isoformat(),
                include_artifacts=include_artifacts,
            )
            return cast("TaskPage", await self._opened().call(Operation.list_tasks, make))

        return TaskList(page, page_token)

    # ------------------------------------------------------------------------------------------------ push configs

    async def create_push_config(self, task_id: str, config: PushConfig | Mapping[str, Any] | str) -> PushConfig:
        """Create a webhook for a task. Raise PushNotificationNotSupportedError if the agent has none."""
        if isinstance(config, str):
            config = PushConfig(url=config)
        elif not isinstance(config, PushConfig):
            config = PushConfig.model_validate(config)
        make = self._made(CreatePushConfigRequest, task_id=task_id, config=config)
        return cast("PushConfig", await self._opened().call(Operation.create_push_config, make))

    async def get_push_config(self, task_id: str, config_id: str) -> PushConfig:
        make = self._made(GetPushConfigRequest, task_id=task_id, id=config_id)
        return cast("PushConfig", await self._opened().call(Operation.get_push_config, make))

    async def list_push_configs(self, task_id: str) -> list[PushConfig]:
        """Return all push configs of a task."""
        found: list[PushConfig] = []
        token: str | None = None
        while True:
            make = self._made(ListPushConfigsRequest, task_id=task_id, page_token=token)
            page: PushConfigPage = await self._opened().call(Operation.list_push_configs, make)
            found.extend(page.configs)
            if not page.next_page_token or page.next_page_token == token:
                return found
            token = page.next_page_token

    async def delete_push_config(self, task_id: str, config_id: str) -> None:
        """Delete a push config; no error if it does not exist."""
        make = self._made(DeletePushConfigRequest, task_id=task_id, id=config_id)
        await self._opened().call(Operation.delete_push_config, make)

    # ------------------------------------------------------------------------------------------------------- files

    async def download(self, file: Part | str) -> bytes:
        """Return the bytes of a file part or its URL, from the agent's origin or a trusted one.

        Raise ValueError for any other URL, and A2AServerError if the file does not exist.
        """
        if isinstance(file, Part) and file.raw is not None:
            return file.raw
        url = file.url if isinstance(file, Part) else file
        if not url:
            raise ValueError("this part is not a file")
        return await self._opened().download(urljoin(f"{self._url}/", url))

    # ---------------------------------------------------------------------------------------------------- requests

    def _made(self, kind: type[R], **given: Any) -> Callable[[AgentEndpoint], R]:
        """Return a function that builds a request with the given fields for an endpoint."""
        fields = {name: value for name, value in given.items() if value is not None}

        def make(endpoint: AgentEndpoint) -> R:
            tenant = self._tenant or endpoint.tenant
            return kind(**fields) if tenant is None else kind(tenant=tenant, **fields)

        return make

    def _for(self, request: SendMessageRequest) -> Callable[[AgentEndpoint], SendMessageRequest]:
        def make(endpoint: AgentEndpoint) -> SendMessageRequest:
            tenant = self._tenant or endpoint.tenant
            changes: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
            if endpoint.version is ProtocolVersion.v0_3 and request.configuration is None:
                changes["configuration"] = SendConfiguration()  # 0.3 agents differ in their defaults
            return request.model_copy(update=changes) if changes else request

        return make
