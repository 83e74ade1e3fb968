"""Faults of the optional methods: `InMemoryStorage` with one seeded fault each."""

from __future__ import annotations

from typing import Any

from keelbolt.errors import InvalidTaskRequest
from keelbolt.protocol.types import Message, Task, TaskState
from keelbolt.tasks.storage import InMemoryStorage, ListTasksQuery, ListTasksResult
from tests.conformance.broken.task_storage.fault import caught_by


class Listing(InMemoryStorage[Any]):
    """Base of faults of lists: changes the query, or the page."""

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        page = await super().list_tasks(self.asked(query.model_copy()))
        self.answered(page, query)
        return page

    def asked(self, query: ListTasksQuery) -> ListTasksQuery:
        return query

    def answered(self, page: ListTasksResult, query: ListTasksQuery) -> None:
        pass


@caught_by("the_newest_status_comes_first")
class OldestFirst(Listing):
    def answered(self, page: ListTasksResult, query: ListTasksQuery) -> None:
        page.tasks.reverse()


@caught_by("lists_have_artifacts_only_on_request")
class ListsArtifactsAlways(Listing):
    def asked(self, query: ListTasksQuery) -> ListTasksQuery:
        query.include_artifacts = True
        return query


@caught_by("listed_tasks_are_as_loaded")
class ListsNoArtifacts(Listing):
    def asked(self, query: ListTasksQuery) -> ListTasksQuery:
        query.include_artifacts = False
        return query


@caught_by("lists_cut_the_history")
class ListsWholeHistories(Listing):
    def asked(self, query: ListTasksQuery) -> ListTasksQuery:
        query.history_length = None
        return query


@caught_by("tasks_are_found_by_context", "filters_are_combined")
class IgnoresTheContext(Listing):
    def asked(self, query: ListTasksQuery) -> ListTasksQuery:
        query.context_id = None
        return query


@caught_by("tasks_are_found_by_status")
class IgnoresTheStatus(Listing):
    def asked(self, query: ListTasksQuery) -> ListTasksQuery:
        query.status = None
        return query


@caught_by("tasks_are_found_by_status")
class FiltersAfterCounting(Listing):
    """The tasks are right, the total counts all tasks."""

    def asked(self, query: ListTasksQuery) -> ListTasksQuery:
        query.status = None
        return query

    def answered(self, page: ListTasksResult, query: ListTasksQuery) -> None:
        page.tasks = [task for task in page.tasks if query.status in (None, task.status.state)]


@caught_by("tasks_are_found_by_time")
class LeavesTheMomentOut(Listing):
    """Excludes the moment itself."""

    def answered(self, page: ListTasksResult, query: ListTasksQuery) -> None:
        since = query.status_timestamp_after
        page.tasks = [task for task in page.tasks if since is None or (task.status.timestamp or "") > since]


@caught_by("timestamps_are_compared_as_moments")
class ComparesMomentsAsText(Listing):
    def asked(self, query: ListTasksQuery) -> ListTasksQuery:
        query.status_timestamp_after = None
        return query

    def answered(self, page: ListTasksResult, query: ListTasksQuery) -> None:
        since = query.status_timestamp_after or ""
        page.tasks = [task for task in page.tasks if (task.status.timestamp or "") >= since]


@caught_by("the_last_page_has_no_token", "an_empty_storage_lists_nothing")
class AlwaysGoesOn(Listing):
    """The last page has a token too: the reader can't see that the list has ended."""

    def answered(self, page: ListTasksResult, query: ListTasksQuery) -> None:
        page.next_page_token = page.next_page_token or "more"


@caught_by("the_total_counts_all_pages")
class CountsThePage(Listing):
    def answered(self, page: ListTasksResult, query: ListTasksQuery) -> None:
        page.total_size = len(page.tasks)


@caught_by("a_page_has_its_size", "pages_show_every_task_once")
class PagesOfTheirOwnSize(Listing):
    def asked(self, query: ListTasksQuery) -> ListTasksQuery:
        query.page_size = 100
        return query


class Offsets(InMemoryStorage[Any]):
    """Page tokens are offsets into a list that moves."""

    lenient = False

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        whole = query.model_copy(update={"page_size": 100, "page_token": None})
        page = await super().list_tasks(whole)
        start = self.start(query.page_token)
        page.page_size = query.page_size
        end = start + query.page_size
        page.next_page_token = str(end) if end < len(page.tasks) else ""
        page.tasks = page.tasks[start:end]
        return page

    def start(self, token: str | None) -> int:
        return int(token) if token and token.isdecimal() else 0


@caught_by("a_task_that_stays_is_not_lost_between_pages", "an_invalid_token_is_refused")
class TurnsPagesByOffset(Offsets):
    """An invalid token returns the first page."""


@caught_by("a_token_of_another_query_is_refused")
class TokensGoWithEveryQuery(Offsets):
    def start(self, token: str | None) -> int:
        if token and not token.isdecimal():
            raise InvalidTaskRequest
        return int(token or 0)


@caught_by("pages_keep_the_filter")
class FiltersTheFirstPage(Offsets):
    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        if query.page_token:
            query = query.model_copy(update={"context_id": None, "status": None})
        return await super().list_tasks(query)


@caught_by("tasks_of_one_moment_are_paged_once")
class SkipsWhatIsEqual(Listing):
    """The next page begins after the last moment, not after the last task."""

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        page = await super().list_tasks(query.model_copy(update={"page_size": 100, "page_token": None}))
        last = query.page_token or "9"
        tasks = [task for task in page.tasks if (task.status.timestamp or "")[:19] < last]
        page.tasks = tasks[: query.page_size]
        page.next_page_token = (page.tasks[-1].status.timestamp or "")[:19] if len(tasks) > query.page_size else ""
        return page


@caught_by("an_invalid_timestamp_is_refused")
class UnderstandsEveryMoment(Listing):
    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        try:
            return await super().list_tasks(query)
        except InvalidTaskRequest:
            return ListTasksResult()


@caught_by("appends_do_not_move_a_task")
class AppendsMoveTasks(InMemoryStorage[Any]):
    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        task = await self.load_task(task_id)
        if task is not None and state is None and not task.status.state.terminal:
            state = task.status.state
        return await super().update_task(task_id, state, **more)


@caught_by("a_list_sees_every_write_before_it")
class ListsLag(Listing):
    last: ListTasksResult | None = None

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        page = await super().list_tasks(query)
        answer, self.last = self.last or page, page
        return answer


# ----------------------------------------------------------------------------------------------------- delete, versions


@caught_by("a_deleted_task_is_gone")
class DeletesNothing(InMemoryStorage[Any]):
    async def delete_task(self, task_id: str) -> bool:
        return await self.load_task(task_id) is not None


@caught_by("deleting_an_unknown_task_returns_false", "a_task_is_deleted_once")
class DeletesAnything(InMemoryStorage[Any]):
    async def delete_task(self, task_id: str) -> bool:
        await super().delete_task(task_id)
        return True


@caught_by("deleting_a_task_leaves_the_others")
class DeletesTheContextToo(InMemoryStorage[Any]):
    async def delete_task(self, task_id: str) -> bool:
        task = await self.load_task(task_id)
        return bool(await self.delete_context(task.context_id)) if task is not None else False


@caught_by("a_deleted_context_has_no_tasks")
class DeletesOneTaskOfTheContext(InMemoryStorage[Any]):
    async def delete_context(self, context_id: str) -> int:
        page = await self.list_tasks(ListTasksQuery(context_id=context_id))
        return sum([await self.delete_task(task.id) for task in page.tasks[:1]])


@caught_by("deleting_a_context_leaves_the_others")
class DeletesByPrefix(InMemoryStorage[Any]):
    async def delete_context(self, context_id: str) -> int:
        page = await self.list_tasks(ListTasksQuery())
        return sum([await self.delete_task(t.id) for t in page.tasks if t.context_id.startswith(context_id)])


@caught_by("a_deleted_task_is_not_listed")
class CountsDeletedTasks(InMemoryStorage[Any]):
    deleted = 0

    async def delete_task(self, task_id: str) -> bool:
        gone = await super().delete_task(task_id)
        self.deleted += gone
        return gone

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        page = await super().list_tasks(query)
        page.total_size += self.deleted
        return page


@caught_by("the_key_of_a_deleted_task_is_free", "the_keys_of_a_deleted_context_are_free")
class RemembersKeysForEver(InMemoryStorage[Any]):
    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[tuple[str, str | None], Task] = {}

    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        if (context_id, idempotency_key) in self.keys:
            return self.keys[context_id, idempotency_key]
        task = await super().create_task(context_id, message, idempotency_key=idempotency_key)
        if idempotency_key is not None:
            self.keys[context_id, idempotency_key] = task
        return task


@caught_by("a_refused_write_keeps_the_version")
class CountsAttempts(InMemoryStorage[Any]):
    attempts = 0

    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        self.attempts += 1
        await super().update_task(task_id, state, **more)
        return self.attempts

    async def get_version(self, task_id: str) -> int | None:
        return self.attempts


@caught_by("get_version_returns_the_last_version")
class AnswersTheLengthOfTheHistory(InMemoryStorage[Any]):
    async def get_version(self, task_id: str) -> int | None:
        task = await self.load_task(task_id)
        return len(task.history) if task is not None else None


@caught_by("an_unknown_task_has_no_version")
class UnknownIsZero(InMemoryStorage[Any]):
    async def get_version(self, task_id: str) -> int | None:
        return await super().get_version(task_id) or 0


# ------------------------------------------------------------------------------------------------------------- contexts


@caught_by("an_unknown_context_is_none")
class UnknownContextsAreEmpty(InMemoryStorage[Any]):
    async def load_context(self, context_id: str) -> Any:
        return await super().load_context(context_id) or {}


@caught_by("a_context_is_loaded")
class MergesContexts(InMemoryStorage[Any]):
    async def update_context(self, context_id: str, context: Any, *, version: int | None = None) -> int:
        known = await self.load_context(context_id)
        if isinstance(known, dict):
            context = {**known, **context}
        return await super().update_context(context_id, context, version=version)


@caught_by("contexts_are_separate")
class OneContextForAll(InMemoryStorage[Any]):
    async def update_context(self, context_id: str, context: Any, *, version: int | None = None) -> int:
        return await super().update_context("same", context, version=version)

    async def load_context(self, context_id: str) -> Any:
        return await super().load_context("same")


@caught_by("a_loaded_context_is_a_copy")
class KeepsTheCallersContext(InMemoryStorage[Any]):
    kept: Any = None

    async def update_context(self, context_id: str, context: Any, *, version: int | None = None) -> int:
        self.kept = context
        return 1

    async def load_context(self, context_id: str) -> Any:
        return self.kept


@caught_by("a_stale_context_is_refused", "no_update_of_a_context_is_lost")
class TheLastContextWins(InMemoryStorage[Any]):
    async def update_context(self, context_id: str, context: Any, *, version: int | None = None) -> int:
        return await super().update_context(context_id, context)


@caught_by("a_context_has_a_version")
class ContextsHaveOneVersion(InMemoryStorage[Any]):
    async def update_context(self, context_id: str, context: Any, *, version: int | None = None) -> int:
        await super().update_context(context_id, context)
        return 1


@caught_by("a_context_needs_no_task")
class TasksClearTheirContext(InMemoryStorage[Any]):
    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        task = await self.load_task(task_id)
        if task is not None:
            await self.update_context(task.context_id, {})
        return await super().update_task(task_id, state, **more)
