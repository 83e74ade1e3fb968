"""All of it, opened and closed together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from holdfast.a2a_sdk import push, scope
from holdfast.a2a_sdk.events import HoldfastEventStream
from holdfast.a2a_sdk.push import HoldfastPushConfigStore
from holdfast.a2a_sdk.scope import Directory, Whose
from holdfast.a2a_sdk.tasks import HoldfastPlainTaskStore, HoldfastTaskStore
from holdfast.storage import open_storage
from holdfast.tasks.events import Events
from holdfast.tasks.families import FAMILIES
from holdfast.tasks.store import TaskStore


@dataclass(frozen=True, slots=True)
class SdkStores:
    """``tasks`` is versioned; ``plain_tasks`` is for handlers that know no versions."""

    tasks: HoldfastTaskStore
    plain_tasks: HoldfastPlainTaskStore
    events: HoldfastEventStream
    push_configs: HoldfastPushConfigStore


@asynccontextmanager
async def sdk_stores(url: str, *, whose: Whose = scope.whose) -> AsyncIterator[SdkStores]:
    """The stores on this storage. ``whose`` names the partition of a call's tasks (default: tenant and user)."""
    async with open_storage(url, declare=[*FAMILIES, scope.FAMILY, push.FAMILY]) as kernel:
        store = TaskStore(kernel)
        events = Events(store)
        directory = Directory(kernel)
        tasks = HoldfastTaskStore(store, directory, whose)
        try:
            yield SdkStores(
                tasks,
                HoldfastPlainTaskStore(tasks),
                HoldfastEventStream(events, directory),
                HoldfastPushConfigStore(kernel, directory, whose),
            )
        finally:
            events.close()
