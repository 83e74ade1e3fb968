"""A blocking client for programs without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Self, TypeVar

from keelbolt.client.client import A2AClient
from keelbolt.client.events import Event
from keelbolt.client.messages import Said
from keelbolt.errors import KeelboltError
from keelbolt.protocol.requests import PushConfig, TaskPage
from keelbolt.protocol.types import Message, Part, Task

T = TypeVar("T")
CLOSE_SECONDS = 10.0


class SyncA2AClient:
    """A blocking `A2AClient` with the same arguments. Its own thread runs the event loop. Thread-safe.

    with SyncA2AClient("https://agent.example", auth=token) as client:
        for event in client.stream_message("Count to ten"):
            print(event.text)
    """

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self._client = A2AClient(url, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._running: set[asyncio.Task[Any]] = set()  # used in the loop's thread only

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the calls of other threads, close the connections and end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread, loop = self._thread, self._loop
        if thread is None or loop is None:
            return

        async def end() -> None:
            for call in (running := tuple(self._running)):
                call.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._client.close()
            await loop.shutdown_asyncgens()

        try:
            asyncio.run_coroutine_threadsafe(end(), loop).result(CLOSE_SECONDS)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_SECONDS)
        loop.close()

    # -------------------------------------------------------------------------------------------------- operations

    @property
    def agent_card(self) -> dict[str, Any]:
        return self.discover()

    def discover(self, *, refresh: bool = False) -> dict[str, Any]:
        return self._wait(self._client.discover(refresh=refresh))

    def get_extended_card(self) -> dict[str, Any]:
        return self._wait(self._client.get_extended_card())

    def send_message(self, message: Said, **options: Any) -> Task | Message:
        return self._wait(self._client.send_message(message, **options))

    def stream_message(self, message: Said, **options: Any) -> Iterator[Event]:
        return self._iterate(self._client.stream_message(message, **options))

    def subscribe(self, task_id: str, *, after: str | int | None = None) -> Iterator[Event]:
        return self._iterate(self._client.subscribe(task_id, after=after))

    def get_task(self, task_id: str, *, history_length: int | None = None) -> Task:
        return self._wait(self._client.get_task(task_id, history_length=history_length))

    def cancel_task(self, task_id: str, **options: Any) -> Task:
        return self._wait(self._client.cancel_task(task_id, **options))

    def list_tasks(self, context_id: str | None = None, limit: int | None = None, **options: Any) -> Iterator[Task]:
        """Iterate over all tasks, page by page."""
        return self._iterate(aiter(self._client.list_tasks(context_id, limit, **options)))

    def list_tasks_page(self, context_id: str | None = None, limit: int | None = None, **options: Any) -> TaskPage:
        """Return one page."""

        async def page() -> TaskPage:
            return await self._client.list_tasks(context_id, limit, **options)

        return self._wait(page())

    def create_push_config(self, task_id: str, config: PushConfig | Mapping[str, Any] | str) -> PushConfig:
        return self._wait(self._client.create_push_config(task_id, config))

    def get_push_config(self, task_id: str, config_id: str) -> PushConfig:
        return self._wait(self._client.get_push_config(task_id, config_id))

    def list_push_configs(self, task_id: str) -> list[PushConfig]:
        return self._wait(self._client.list_push_configs(task_id))

    def delete_push_config(self, task_id: str, config_id: str) -> None:
        self._wait(self._client.delete_push_config(task_id, config_id))

    def download(self, file: Part | str) -> bytes:
        return self._wait(self._client.download(file))

    # --------------------------------------------------------------------------------------------------- the thread

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = self._start(work)
        try:
            return future.result()
        except CancelledError:
            raise KeelboltError("this client is closed") from None
        except BaseException:
            future.cancel()  # Ctrl-C cancels the interrupted call
            raise

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        async def run() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                return await work
            finally:
                self._running.discard(task)

        with self._lock:
            if self._closed:
                work.close()
                raise KeelboltError("this client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="keelbolt-client", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> list[T]:
            try:
                return [await anext(items)]
            except StopAsyncIteration:
                return []

        async def close() -> None:
            await items.aclose()  # type: ignore[attr-defined]

        try:
            while item := self._wait(following()):
                yield item[0]
        finally:
            if not self._closed:
                self._wait(close())
