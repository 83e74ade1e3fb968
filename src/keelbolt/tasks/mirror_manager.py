"""The client operations of the engine on a user-defined storage."""

from __future__ import annotations

from contextlib import AsyncExitStack

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import CommitRefused, TaskNotAcceptingMessagesError, UnsupportedOperationError
from keelbolt.kernel import Scope, new_id
from keelbolt.protocol.requests import TaskPage
from keelbolt.protocol.types import Message, TaskState
from keelbolt.tasks.envelope import Envelope, Sent
from keelbolt.tasks.events import TaskFeeds
from keelbolt.tasks.manager import TaskManager
from keelbolt.tasks.mirror import Mirror, asked
from keelbolt.tasks.mirrored import OWNER, ListsOwned
from keelbolt.tasks.queries import ListTasksQuery
from keelbolt.tasks.runner import Runner
from keelbolt.tasks.sends import Send
from keelbolt.tasks.settings import TaskSettings
from keelbolt.tasks.storage.contract import overrides
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks


class MirrorManager(TaskManager):
    """The client operations of the engine where the storage assigns the ids."""

    def __init__(
        self, mirror: Mirror, events: TaskFeeds, *, settings: TaskSettings, runner: Runner | None = None
    ) -> None:
        super().__init__(mirror.store, events, settings=settings, runner=runner)
        self.mirror = mirror

    async def _create(
        self, scope: Scope, message: Message, send: Send, envelope: Envelope, ids: tuple[str, str] | None = None
    ) -> Sent:
        mirror = self.mirror
        name = f"{scope.partition}/{send.keys[0]}" if send.keys else ""
        async with AsyncExitStack() as locks:
            for key in sorted(send.keys):
                await locks.enter_async_context(mirror.kernel.lock(f"{scope.partition}/{key}"))
            if await send.reached(scope) is not None:
                return await self._repeated(scope, send)
            # If this fails half-way, a repeat of the message must find the task that it created.
            context_id = message.context_id or (mirror.contexts.setdefault(name, new_id()) if name else new_id())
            task = await mirror.create(scope, context_id, message, key=send.keys[0] if send.keys else None)
            known = await StoredTasks.find(self.store, scope, task.id)
            if known is not None or task.status.state is not TaskState.submitted:  # sent to an earlier process
                return Sent(await self.store.load(scope, task.id), self._local(scope, task.id), repeated=True)
            mirror.making[task.id] = message.message_id
            try:
                sent = await super()._create(scope, message, send, envelope, ids or (task.id, context_id))
            except CommitRefused:  # another engine started it meanwhile
                return Sent(await self.store.load(scope, task.id), self._local(scope, task.id), repeated=True)
            finally:
                del mirror.making[task.id]
            mirror.contexts.pop(name, None)
            return sent

    async def _double_text(self, task: StoredTask, message: Message, send: Send, envelope: Envelope) -> Sent:
        if await self.mirror.store.is_run_elsewhere(task):
            words = "Another process is working on this task and can't be reached from here; wait until it finishes."
            raise TaskNotAcceptingMessagesError(task.record.task_id, task.view.state, words)
        return await super()._double_text(task, message, send, envelope)

    async def list(self, query: ListTasksQuery, principal: Principal = ANONYMOUS) -> TaskPage:
        storage = self.mirror.storage
        name = type(storage).__name__
        if isinstance(storage, ListsOwned):
            owned = await asked(storage.list_owned(query, principal.partition), self.mirror)
            return TaskPage(owned.tasks, owned.next_page_token, owned.page_size, owned.total_size)
        if not overrides(storage, "list_tasks"):
            raise UnsupportedOperationError(f"tasks can't be listed here: {name} has no list_tasks of its own")
        if principal.partition != ANONYMOUS.partition:
            raise UnsupportedOperationError(f"tasks can't be listed here: {name} does not distinguish owners")
        page = await asked(storage.list_tasks(query), self.mirror)
        # Hide tasks of named owners. The total of the storage still includes them.
        tasks = [task for task in page.tasks if OWNER not in (task.metadata or {})]
        return TaskPage(tasks, page.next_page_token, page.page_size, page.total_size)
