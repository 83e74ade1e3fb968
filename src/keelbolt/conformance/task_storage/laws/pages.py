"""Long lists come in pages."""

from __future__ import annotations

import asyncio
from itertools import chain

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.task_storage.laws.listing import several
from keelbolt.conformance.task_storage.samples import new
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.errors import InvalidTaskRequest
from keelbolt.protocol.types import TaskState
from keelbolt.tasks.storage import ListTasksQuery

MAX_PAGES = 50


async def turned(storage: AnyStorage, query: ListTasksQuery) -> list[list[str]]:
    """The ids of all pages."""
    pages: list[list[str]] = []
    while len(pages) < MAX_PAGES:
        page = await storage.list_tasks(query)
        pages.append([task.id for task in page.tasks])
        if not page.next_page_token:
            break
        query = query.model_copy(update={"page_token": page.next_page_token})
    expect(len(pages) < MAX_PAGES, "the pages do not end")
    return pages


@law("list_tasks")
async def a_page_has_its_size(storage: AnyStorage) -> None:
    """A page has at most page_size tasks and returns that size."""
    await several(storage, 5)
    page = await storage.list_tasks(ListTasksQuery(page_size=2))
    equal((len(page.tasks), page.page_size), (2, 2), "the size of the page")
    expect(page.next_page_token, "more tasks match, but the page has no token")


@law("list_tasks")
async def pages_show_every_task_once(storage: AnyStorage) -> None:
    """All pages together show every task exactly once, in order."""
    tasks = await several(storage, 7)
    pages = await turned(storage, ListTasksQuery(page_size=3))
    equal(list(chain(*pages)), [task.id for task in reversed(tasks)], "the tasks of all pages")
    equal([len(page) for page in pages], [3, 3, 1], "the sizes of the pages")


@law("list_tasks")
async def the_last_page_has_no_token(storage: AnyStorage) -> None:
    """When the tasks fill their pages exactly, no empty page follows."""
    await several(storage, 4)
    pages = await turned(storage, ListTasksQuery(page_size=2))
    equal([len(page) for page in pages], [2, 2], "the sizes of the pages")


@law("list_tasks")
async def pages_keep_the_filter(storage: AnyStorage) -> None:
    """All pages of a filtered list show the tasks that match, once each."""
    tasks = await several(storage, 6, context="one")
    await several(storage, 3, context="two")
    for task in tasks[:5]:
        await storage.update_task(task.id, TaskState.working)
        await asyncio.sleep(0.003)
    query = ListTasksQuery(context_id="one", status=TaskState.working, page_size=2)
    equal(
        list(chain(*await turned(storage, query))), [task.id for task in reversed(tasks[:5])], "the tasks of all pages"
    )


@law("list_tasks")
async def tasks_of_one_moment_are_paged_once(storage: AnyStorage) -> None:
    """Tasks with the same timestamp are neither lost nor repeated between pages."""
    tasks = await asyncio.gather(*(new(storage, str(number)) for number in range(30)))
    pages = await turned(storage, ListTasksQuery(page_size=4))
    equal(sorted(chain(*pages)), sorted(task.id for task in tasks), "the tasks of all pages")


@law("list_tasks")
async def the_total_counts_all_pages(storage: AnyStorage) -> None:
    """Every page has the total of all matching tasks."""
    await several(storage, 5)
    first = await storage.list_tasks(ListTasksQuery(page_size=2))
    second = await storage.list_tasks(ListTasksQuery(page_size=2, page_token=first.next_page_token))
    equal((first.total_size, second.total_size), (5, 5), "the totals")


@law("list_tasks")
async def a_task_that_stays_is_not_lost_between_pages(storage: AnyStorage) -> None:
    """Tasks that are created or changed between two pages neither hide nor repeat others."""
    tasks = await several(storage, 6)
    first = await storage.list_tasks(ListTasksQuery(page_size=2))
    await several(storage, 3)
    await storage.update_task(tasks[5].id, TaskState.working)
    query = ListTasksQuery(page_size=2, page_token=first.next_page_token)
    rest = list(chain(*await turned(storage, query)))
    equal(rest, [task.id for task in reversed(tasks[:4])], "the tasks of the pages after the first")


@law("list_tasks")
async def an_invalid_token_is_refused(storage: AnyStorage) -> None:
    """An invalid page token raises InvalidTaskRequest; it does not return the first page."""
    await several(storage, 3)
    for token in ("garbage", "2", "-3", "9" * 23, "AAAA", "' OR 1=1", "ä", "\x00"):
        with raises(InvalidTaskRequest):
            await storage.list_tasks(ListTasksQuery(page_token=token))


@law("list_tasks")
async def a_token_of_another_query_is_refused(storage: AnyStorage) -> None:
    """A page token is refused with other filters than its own."""
    await several(storage, 3)
    token = (await storage.list_tasks(ListTasksQuery(page_size=1))).next_page_token
    for other in (
        ListTasksQuery(page_token=token, context_id="context"),
        ListTasksQuery(page_token=token, status=TaskState.submitted),
        ListTasksQuery(page_token=token, status_timestamp_after="2000-01-01T00:00:00Z"),
    ):
        with raises(InvalidTaskRequest):
            await storage.list_tasks(other)


@law("list_tasks")
async def an_invalid_timestamp_is_refused(storage: AnyStorage) -> None:
    """A status_timestamp_after that can't be parsed raises InvalidTaskRequest."""
    await new(storage)
    for moment in ("yesterday", "", "2026-13-01T00:00:00Z", "12"):
        with raises(InvalidTaskRequest):
            await storage.list_tasks(ListTasksQuery(status_timestamp_after=moment))
