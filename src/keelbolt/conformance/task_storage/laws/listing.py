"""Tasks are listed by context, status and time, in pages."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from itertools import chain

from keelbolt.conformance.expect import broken, equal, expect, raises
from keelbolt.conformance.task_storage.subject import AnyStorage, artifact, bound, law, loaded, made, new, said
from keelbolt.errors import InvalidTaskRequest
from keelbolt.protocol.types import Task, TaskState
from keelbolt.tasks.storage import ArtifactWrite, ListTasksQuery

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


# -------------------------------------------------------------------------------------------------------------- listing


PAUSE_SECONDS = 0.003  # more than the millisecond that a timestamp is precise to


async def several(storage: AnyStorage, count: int, *, context: str = "context") -> list[Task]:
    """Create tasks, each later than the one before."""
    tasks = []
    for number in range(count):
        tasks.append(await new(storage, str(number), context=context))
        await asyncio.sleep(PAUSE_SECONDS)
    return tasks


async def ids(storage: AnyStorage, **query: object) -> list[str]:
    return [task.id for task in (await storage.list_tasks(ListTasksQuery(**query))).tasks]  # type: ignore[arg-type]


@law("list_tasks")
async def an_empty_storage_lists_nothing(storage: AnyStorage) -> None:
    """Without tasks, the page is empty, the total is 0, and there is no next page."""
    page = await storage.list_tasks(ListTasksQuery())
    equal((page.tasks, page.total_size, page.next_page_token), ([], 0, ""), "the page")


@law("list_tasks")
async def the_newest_status_comes_first(storage: AnyStorage) -> None:
    """Tasks are listed by the time of their last status, newest first."""
    tasks = await several(storage, 4)
    equal(await ids(storage), [task.id for task in reversed(tasks)], "the order of new tasks")
    await storage.update_task(tasks[1].id, TaskState.working)
    order = [tasks[1], tasks[3], tasks[2], tasks[0]]
    equal(await ids(storage), [task.id for task in order], "the order after a new status")


@law("list_tasks")
async def appends_do_not_move_a_task(storage: AnyStorage) -> None:
    """Messages, artifacts and metadata do not change the position of a task in the list."""
    tasks = await several(storage, 3)
    await storage.update_task(
        tasks[0].id, messages=[bound(tasks[0], "x")], artifacts=[ArtifactWrite(artifact("a"))], task_metadata={"a": 1}
    )
    equal(await ids(storage), [task.id for task in reversed(tasks)], "the order")


@law("list_tasks")
async def listed_tasks_are_as_loaded(storage: AnyStorage) -> None:
    """A listed task equals the loaded one."""
    task = await new(storage)
    await storage.update_task(
        task.id,
        TaskState.working,
        status_message=bound(task, "Looking"),
        messages=[bound(task, "x")],
        artifacts=[ArtifactWrite(artifact("a", "x"))],
        task_metadata={"a": 1},
    )
    page = await storage.list_tasks(ListTasksQuery(include_artifacts=True))
    equal(page.tasks, [await loaded(storage, task)], "the page")


@law("list_tasks")
async def lists_have_artifacts_only_on_request(storage: AnyStorage) -> None:
    """Listed tasks have artifacts only with include_artifacts."""
    task = await new(storage)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "x"))])
    without = await storage.list_tasks(ListTasksQuery())
    equal(made(without.tasks[0]), {}, "the artifacts without include_artifacts")
    with_them = await storage.list_tasks(ListTasksQuery(include_artifacts=True))
    equal(made(with_them.tasks[0]), {"a": ["x"]}, "the artifacts with include_artifacts")


@law("list_tasks")
async def lists_cut_the_history(storage: AnyStorage) -> None:
    """With history_length, each listed task has only that many last messages."""
    task = await new(storage, "1")
    await storage.update_task(task.id, messages=[bound(task, "2"), bound(task, "3")], task_metadata={"a": 1})
    for length, wanted in ((None, ["1", "2", "3"]), (2, ["2", "3"]), (0, [])):
        page = await storage.list_tasks(ListTasksQuery(history_length=length))
        equal((said(page.tasks[0]), page.tasks[0].metadata), (wanted, {"a": 1}), f"with history_length {length}")


@law("list_tasks")
async def tasks_are_found_by_context(storage: AnyStorage) -> None:
    """With a context, only its tasks are listed and counted."""
    one, _ = await several(storage, 3, context="one"), await several(storage, 2, context="two")
    page = await storage.list_tasks(ListTasksQuery(context_id="one"))
    equal([task.id for task in page.tasks], [task.id for task in reversed(one)], "the tasks of the context")
    equal(page.total_size, 3, "the total")
    equal((await storage.list_tasks(ListTasksQuery(context_id="three"))).total_size, 0, "the total of no context")


@law("list_tasks")
async def tasks_are_found_by_status(storage: AnyStorage) -> None:
    """With a status, only tasks that have it now are listed and counted."""
    tasks = await several(storage, 4)
    await storage.update_task(tasks[0].id, TaskState.working)
    await storage.update_task(tasks[1].id, TaskState.working)
    await storage.update_task(tasks[1].id, TaskState.completed)
    for state, wanted in ((TaskState.submitted, [3, 2]), (TaskState.working, [0]), (TaskState.completed, [1])):
        page = await storage.list_tasks(ListTasksQuery(status=state))
        equal([task.id for task in page.tasks], [tasks[number].id for number in wanted], f"the {state.name} tasks")
        equal(page.total_size, len(wanted), f"the total of the {state.name} tasks")


@law("list_tasks")
async def tasks_are_found_by_time(storage: AnyStorage) -> None:
    """With status_timestamp_after, only tasks whose status is from that moment or later are listed."""
    tasks = await several(storage, 4)
    since = tasks[2].status.timestamp
    if since is None:
        broken("the status has no timestamp")
    page = await storage.list_tasks(ListTasksQuery(status_timestamp_after=since))
    equal([task.id for task in page.tasks], [tasks[3].id, tasks[2].id], "the later tasks")
    equal(page.total_size, 2, "the total")


@law("list_tasks")
async def timestamps_are_compared_as_moments(storage: AnyStorage) -> None:
    """The same moment in another time zone, or with other digits, finds the same tasks."""
    tasks = await several(storage, 3)
    since = tasks[1].status.timestamp
    if since is None:
        broken("the status has no timestamp")
    moment = datetime.fromisoformat(since)
    elsewhere = moment.astimezone(timezone(timedelta(hours=-7)))
    for text in (elsewhere.isoformat(), moment.isoformat(timespec="microseconds")):
        wanted = [tasks[2].id, tasks[1].id]
        equal(await ids(storage, status_timestamp_after=text), wanted, f"the tasks since {text}")
    everything = await ids(storage, status_timestamp_after="2000-01-01T00:00:00+05:00")
    equal(everything, [task.id for task in reversed(tasks)], "the tasks of this century")


@law("list_tasks")
async def filters_are_combined(storage: AnyStorage) -> None:
    """Context, status and time together list the tasks that match all of them."""
    one, two = await several(storage, 4, context="one"), await several(storage, 2, context="two")
    for task in (one[0], one[2], one[3], two[1]):
        await storage.update_task(task.id, TaskState.working)
        await asyncio.sleep(PAUSE_SECONDS)
    since = (await loaded(storage, one[2])).status.timestamp
    page = await storage.list_tasks(
        ListTasksQuery(context_id="one", status=TaskState.working, status_timestamp_after=since)
    )
    equal([task.id for task in page.tasks], [one[3].id, one[2].id], "the tasks")
    equal(page.total_size, 2, "the total")
    page = await storage.list_tasks(ListTasksQuery(context_id="one", status=TaskState.working))
    equal(page.total_size, 3, "the total without the time")


@law("list_tasks")
async def a_list_sees_every_write_before_it(storage: AnyStorage) -> None:
    """A list after a create or an update includes it."""
    task = await new(storage)
    equal(await ids(storage), [task.id], "the list after the create")
    for state in (TaskState.working, TaskState.completed):
        await storage.update_task(task.id, state)
        listed = (await storage.list_tasks(ListTasksQuery())).tasks
        expect(listed and listed[0].status.state is state, f"the list after the update does not show {state.name}")
