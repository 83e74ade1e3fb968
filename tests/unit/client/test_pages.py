"""Lists with several pages."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.client.events import TaskList
from keelbolt.client.transport import decode_answer
from keelbolt.errors import A2AResponseError
from keelbolt.protocol import v03
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import TaskPage
from keelbolt.protocol.types import Task, TaskState, TaskStatus

TASKS = [Task(id=str(n), context_id="c", status=TaskStatus(state=TaskState.working)) for n in range(7)]


async def page(token: str | None) -> TaskPage:
    start = int(token or 0)
    following = start + 3
    return TaskPage(TASKS[start:following], str(following) if following < len(TASKS) else "", 3, len(TASKS))


async def test_iteration_yields_all_pages_and_await_returns_one() -> None:
    assert [task.id async for task in TaskList(page)] == [task.id for task in TASKS]
    assert [len(each.tasks) async for each in TaskList(page).pages()] == [3, 3, 1]
    first = await TaskList(page)
    assert (len(first.tasks), first.next_page_token) == (3, "3")
    assert (await TaskList(page, "6")).next_page_token == ""


@pytest.mark.parametrize("page", [{"tasks": 5}, {"tasks": {"a": 1}}, {"totalSize": "many"}, {"tasks": [5]}])
def test_an_invalid_page_of_0_3_is_a_response_error(page: dict[str, Any]) -> None:
    with pytest.raises(A2AResponseError):
        decode_answer(v03, Operation.list_tasks, page)
