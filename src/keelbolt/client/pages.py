"""A paged list of tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, cast

from keelbolt.errors import A2AResponseError
from keelbolt.protocol.requests import TaskPage
from keelbolt.protocol.types import Task


class TaskList:
    """``async for task in tasks`` iterates over all pages; ``await tasks`` returns only the first page."""

    def __init__(self, page: Callable[[str | None], Awaitable[TaskPage]], token: str | None = None) -> None:
        self._page = page
        self._token = token

    def __await__(self) -> Generator[Any, None, TaskPage]:
        return self._page(self._token).__await__()

    async def __aiter__(self) -> AsyncIterator[Task]:
        async for page in self.pages():
            for task in page.tasks:
                yield cast("Task", task)  # client codecs return models

    async def pages(self) -> AsyncIterator[TaskPage]:
        """Yield the pages. Raise A2AResponseError if the agent repeats a page token."""
        token, seen = self._token, set[str]()
        while True:
            page = await self._page(token)
            yield page
            token = page.next_page_token
            if not token:
                return
            if token in seen:
                raise A2AResponseError("the agent repeated a page token in its list of tasks")
            seen.add(token)
