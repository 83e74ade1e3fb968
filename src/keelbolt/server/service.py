"""The operations of A2A, independent of the binding: requests in, stored bytes out. All bindings use them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from pydantic_core import from_json, to_json

from keelbolt.auth import Principal
from keelbolt.errors import (
    ContentTypeNotSupportedError,
    InvalidTaskRequest,
    KeelboltError,
    ProtocolError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from keelbolt.kernel import Entry, Scope
from keelbolt.protocol import extensions
from keelbolt.protocol.card import AgentCardConfig
from keelbolt.protocol.requests import (
    DEFAULT_PAGE_SIZE,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPage,
    accepts,
)
from keelbolt.protocol.types import PAUSED, Message, Part, TaskState
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server import generation
from keelbolt.server.admission import Admission, Admitted
from keelbolt.server.caller import Caller
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.events import KnownVersion, TaskSnapshot
from keelbolt.tasks.families import INBOX
from keelbolt.tasks.listing import ListTasksQuery
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.tasks.record import EXTENSIONS, REQUEST_METADATA, STREAMED
from keelbolt.tasks.sends import Envelope, Sent, being_erased
from keelbolt.tasks.stored_tasks import StoredTask
from keelbolt.webhooks.configs import PushConfigs
from keelbolt.webhooks.sealing import Sealer
from keelbolt.webhooks.signing import issue

logger = logging.getLogger("keelbolt.server")

RESUME_EXTENSION = extensions.RESUME
"""Extension: a stream can be resumed after any event; see docs/reference/streams.md."""

MAX_METADATA_BYTES = 256 * 1024  # of a request; rewritten at every status change of the task


class SendResult(Struct, frozen=True, gc=False):
    """A task or a message as 1.0 JSON."""

    json: bytes
    message: bool = False


class StreamItem(Struct, frozen=True, gc=False):
    """An item of a stream: a task (1.0 JSON), a stored status or artifact, or the opening mark."""

    kind: str  # task, status, artifact, opened
    json: bytes
    seq: int | None = None
    task_id: str = ""
    context_id: str = ""

    def with_json(self, json: bytes) -> StreamItem:
        """Return the item with another body."""
        return replace(self, json=json)


OPENED = StreamItem("opened", b"")
"""Opens the stream; the first event may take long."""


class AgentService:
    """Runs the operations of one agent on its engine, as its card allows."""

    def __init__(
        self,
        engine: TaskEngine,
        card: AgentCardConfig,
        settings: ServerSettings,
        admission: Admission | None = None,
        sealer: Sealer | None = None,
    ) -> None:
        self.engine = engine
        self._admission = admission
        self.tasks = engine.tasks
        self.card = card
        self.settings = settings
        self.push = PushConfigs(loopback=settings.webhook_loopback, hosts=settings.webhook_hosts, sealer=sealer)
        engine.store.tell_transitions = card.capabilities.state_transition_history
        self._taken = frozenset(kind for kind, mode in _MEDIA_TYPES.items() if accepts(card.input_modes, mode))
        self._abandoned: set[asyncio.Task[None]] = set()

    # -------------------------------------------------------------------------------------------------------- send

    async def send(self, request: SendMessageRequest, caller: Caller) -> SendResult:
        """SendMessage: wait until the turn ends, unless the client wants an immediate response."""
        sent = await self._send(request, caller)
        try:
            return await self._response(request, sent, caller)
        except TaskNotFoundError:
            if sent.repeated:
                raise being_erased() from None
            raise

    async def _response(self, request: SendMessageRequest, sent: Sent, caller: Caller) -> SendResult:
        configuration = request.configuration
        task = sent.task
        if configuration is not None and configuration.return_immediately:
            if not sent.opening:  # a run in this process may have advanced another copy of the task
                task = await self.engine.store.load(task.scope, task.record.task_id)
        else:
            task = await self.tasks.settled(sent, seconds=self.settings.blocking_seconds or None)
            if task.record.direct and task.view.state.terminal:
                return SendResult(to_json(from_json(task.view.status)["message"]), message=True)
        length = configuration.history_length if configuration is not None else None
        numbered = generation.in_use(caller)
        return SendResult(await self.engine.store.task_json(task, history_length=length, generation=numbered))

    async def send_as(self, message: Message, principal: Principal) -> bytes:
        """Send a message as this principal, for an operator. Return its task without history."""
        sent = await self._send(SendMessageRequest(message=message), Caller(principal))
        return await self.engine.store.task_json(sent.task, history_length=0)

    async def _send(self, request: SendMessageRequest, caller: Caller, *, streamed: bool = False) -> Sent:
        configuration = request.configuration
        task_id = request.message.task_id
        metadata: Mapping[str, Any] = {}
        if self._admission is None:
            self._check_modes(request.message.parts)
        else:
            admitted = await self._admit(self._admission, request, caller)
            task_id, metadata = admitted.task_id or task_id, admitted.metadata
        config = configuration.task_push_notification_config if configuration is not None else None
        push = None
        if config is not None:
            self._check_push()
            push = self.push.new(config, caller.version)
        envelope = Envelope(
            caller.principal,
            configuration.accepted_output_modes if configuration is not None else (),
            _beside(request, caller, streamed=streamed),
            metadata,
            push=push,
            key=caller.key,
            request=caller.request,
            generation=generation.expected(request, caller),
        )
        message = request.message
        if config is None or task_id is None:
            sent = await self.tasks.send(message, envelope, task_id=task_id)
            if push is not None and not sent.repeated:
                issue(push.secret)
            return sent
        # A config sent with a further message gets all events of that turn; a repeated message creates it once.
        head = (await self.tasks.load(task_id, caller.principal)).version
        sent = await self.tasks.send(message, envelope, task_id=task_id)
        if not config.id:
            config = config.model_copy(update={"id": f"message-{sha256(message.message_id.encode()).hexdigest()[:24]}"})
        await self.push.create(sent.task.scope, task_id, config, caller.version, after=head)
        return sent

    async def _admit(self, admission: Admission, request: SendMessageRequest, caller: Caller) -> Admitted:
        """Admit the message. A repeat of a known message is admitted even if ``admission`` now refuses it."""
        try:
            return await admission.admit(request, caller, self.tasks)
        except ProtocolError:
            if not await self.tasks.knows(request.message, caller.principal, key=caller.key):
                raise
            return Admitted()

    def _check_modes(self, parts: Sequence[Part]) -> None:
        modes = self.card.input_modes
        for part in parts:
            if part.media_type is None and part.kind in self._taken:
                continue
            media_type = part.media_type or _MEDIA_TYPES.get(part.kind)
            if media_type is None:
                continue
            if not accepts(modes, media_type):
                raise ContentTypeNotSupportedError(
                    f"this agent does not accept {media_type[:100]}; it accepts {', '.join(modes)}"
                )

    # ----------------------------------------------------------------------------------------------------- streams

    async def stream(
        self, request: SendMessageRequest, caller: Caller, ends_at: Collection[TaskState] = PAUSED
    ) -> AsyncGenerator[StreamItem, None]:
        """SendStreamingMessage: yield the task at once, then every event until it is terminal or waits for its user."""
        self._check_streaming()
        sent = await self._send(request, caller, streamed=True)
        task, opening = sent.task, sent.submitted()
        if opening is not None:
            json, seq = opening
        else:
            configuration = request.configuration
            length = configuration.history_length if configuration is not None else None
            # The task as of the commit of the message; for a repeated message, the current task.
            try:
                task = sent.opened or await self.engine.store.load(task.scope, task.record.task_id)
                json, seq = await self.engine.store.task_json(task, history_length=length), task.version
            except TaskNotFoundError:
                if sent.repeated:
                    raise being_erased() from None
                raise
        try:
            yield StreamItem("task", json, seq)
            if opening is not None or not await self._rests(task, ends_at):
                known = KnownVersion(seq) if opening is not None else _known(task)
                async with contextlib.aclosing(self._events(task, seq, ends_at, known)) as events:
                    async for item in events:
                        yield item
        except (GeneratorExit, asyncio.CancelledError):  # the client disconnected
            if self.settings.cancel_on_disconnect and not self.engine.events.closing:
                self._abandon(task.record.task_id, caller)
            raise

    async def _rests(self, task: StoredTask, ends_at: Collection[TaskState]) -> bool:
        """Return whether the task is terminal, or waits for its user without a pending message."""
        view = task.view
        if view.state.terminal or view.state not in ends_at:
            return view.state.terminal
        inbox = await task.scope.read_log(INBOX, task.record.task_id, limit=1)
        return not view.pending and inbox.head <= view.inbox

    def _abandon(self, task_id: str, caller: Caller) -> None:
        task = asyncio.create_task(self._cancel_quietly(task_id, caller))
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    async def _cancel_quietly(self, task_id: str, caller: Caller) -> None:
        try:
            await self.tasks.cancel(task_id, caller.principal, reason="its client disconnected")
        except (TaskNotCancelableError, TaskNotFoundError):
            pass  # it has ended, or was erased
        except KeelboltError as error:
            logger.warning("task %s could not be canceled after its client disconnected: %s", task_id, error)

    async def subscribe(
        self, request: SubscribeToTaskRequest, caller: Caller, ends_at: Collection[TaskState] = PAUSED
    ) -> AsyncGenerator[StreamItem, None]:
        """SubscribeToTask: yield the current task, then every event; or all events after the caller's last one."""
        self._check_streaming()
        task = await self.tasks.load(request.id, caller.principal)
        if caller.after is not None and caller.after <= task.version:
            yield OPENED
            async with contextlib.aclosing(self._events(task, caller.after, ends_at, _known(task))) as events:
                async for item in events:
                    yield item
            return
        if task.view.state.terminal and caller.version is not ProtocolVersion.v0_3:
            raise UnsupportedOperationError("the task has ended; get it instead of subscribing")
        yield StreamItem("task", await self.engine.store.task_json(task), task.version)
        if task.view.state.terminal:  # 0.3 sends the task, then closes the stream
            return
        async with contextlib.aclosing(self._events(task, task.version, ends_at, _known(task))) as events:
            async for item in events:
                yield item

    async def _events(
        self, task: StoredTask, after: int, ends_at: Collection[TaskState], known: KnownVersion
    ) -> AsyncGenerator[StreamItem, None]:
        endings = tuple([_BEGINNING % state.encode() for state in ends_at])
        ids = task.record.task_id, task.record.context_id
        follow = self.engine.events.follow(task.scope, ids[0], after=after, known=known)
        async with contextlib.aclosing(follow) as events:
            async for event in events:
                if isinstance(event, TaskSnapshot):  # the requested entries were trimmed: send the current task
                    if event.gap:
                        event.task.view.metadata |= {RESUME_EXTENSION: {"gap": True}}
                    yield StreamItem("task", await self.engine.store.task_json(event.task), event.seq)
                elif event.kind in WIRE_KINDS:
                    yield StreamItem(_kind(event), event.data, event.seq, *ids)
                    if event.data.startswith(endings):
                        return

    def _check_streaming(self) -> None:
        if not self.card.capabilities.streaming:
            raise UnsupportedOperationError("this agent does not support streaming; see the capabilities in its card")

    # ------------------------------------------------------------------------------------------------------- tasks

    async def get(self, request: GetTaskRequest, caller: Caller) -> bytes:
        task = await self.tasks.load(request.id, caller.principal)
        if (known := generation.known(request, caller)) is not None:
            task = await generation.newer(self.engine, task, known, self.settings.long_poll_seconds)
        length, numbered = request.history_length, generation.in_use(caller)
        return await self.engine.store.task_json(task, history_length=length, generation=numbered)

    async def list(self, request: ListTasksRequest, caller: Caller) -> TaskPage:
        after = request.status_timestamp_after
        length = request.history_length
        query = ListTasksQuery(
            context_id=request.context_id,
            status=request.status,
            page_size=request.page_size or DEFAULT_PAGE_SIZE,
            page_token=request.page_token,
            history_length=0 if length is None else length,
            status_timestamp_after=None if after is None else after.isoformat(),
            include_artifacts=request.include_artifacts,
        )
        return await self.tasks.list(query, caller.principal)

    async def cancel(self, request: CancelTaskRequest, caller: Caller) -> bytes:
        metadata, words = _bounded(request.metadata), self.settings.cancel_words
        task = await self.tasks.cancel(request.id, caller.principal, metadata=metadata, words=words)
        return await self.engine.store.task_json(task, generation=generation.in_use(caller))

    # -------------------------------------------------------------------------------------------------------- push

    def _check_push(self) -> None:
        if not self.card.capabilities.push_notifications:
            raise PushNotificationNotSupportedError

    async def push_task(self, task_id: str, caller: Caller) -> Scope:
        """Return the scope of a task whose webhooks the caller may access. Raise TaskNotFoundError."""
        self._check_push()
        scope = self.engine.tasks.scope(caller.principal)
        store = self.engine.store  # `find` of a mirrored store also finds tasks of earlier processes
        if await store.record(scope, task_id) is None and await store.find(scope, task_id) is None:
            raise TaskNotFoundError(task_id)
        return scope


def _beside(request: SendMessageRequest, caller: Caller, *, streamed: bool) -> dict[str, Any]:
    """Return the request data besides the message that the worker gets; stored with the turn."""
    values = dict(caller.stored)
    if metadata := _bounded(request.metadata):
        values[REQUEST_METADATA] = metadata
    if caller.extensions:
        values[EXTENSIONS] = list(caller.extensions)
    if streamed:
        values[STREAMED] = True
    return values


def _bounded(metadata: dict[str, Any] | None) -> dict[str, Any]:
    if metadata and len(to_json(metadata)) > MAX_METADATA_BYTES:
        raise InvalidTaskRequest(f"the metadata of a request must have at most {MAX_METADATA_BYTES} bytes")
    return metadata or {}


def _known(task: StoredTask) -> KnownVersion:
    """Return the known version of a loaded task; no run changes this copy."""
    return KnownVersion(task.version, ended=task.view.state.terminal)


_BEGINNING = b'{"status":{"state":"%b"'  # start of a stored status
_MEDIA_TYPES = {"text": "text/plain", "data": "application/json"}


def _kind(entry: Entry) -> str:
    return "artifact" if entry.kind == "artifact" else "status"
