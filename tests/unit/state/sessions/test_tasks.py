"""Parents and children of tasks, the reach of a cancel, and terminal states."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keelbolt.state.sessions.tasks import TaskRegistry, is_over
from keelbolt.state.types.tasks import TaskContextSnapshot, TaskState, TaskStatus, TaskType


def task(name: str, parent: str = "foreground", status: TaskStatus = TaskStatus.RUNNING, **fields: str) -> TaskState:
    snapshot = TaskContextSnapshot(session_id="s", task_id=name, spawned_from_task_id=parent, **fields)  # type: ignore[arg-type]
    return TaskState(name, "s", status, TaskType.BACKGROUND, 0, snapshot)


def test_a_cancel_stops_at_isolated_and_ended_tasks() -> None:
    """The children of such tasks are not cancelled either."""
    registry = TaskRegistry()
    registry.seed(
        [
            task("root"),
            task("a", "root"),
            task("a1", "a"),
            task("lone", "root", propagate_on_cancel="isolate"),
            task("lone1", "lone"),
            task("done", "root", TaskStatus.COMPLETE),
            task("done1", "done"),
            task("other"),
        ]
    )
    assert [found.task_id for found in registry.to_cancel("root")] == ["a", "a1"]


names = st.sampled_from("abcdef")


@given(st.lists(st.tuples(names, names, st.sampled_from(TaskStatus), st.booleans()), unique_by=lambda each: each[0]))
def test_a_cancel_terminates_for_any_parents(tasks: list[tuple[str, str, TaskStatus, bool]]) -> None:
    """Tasks may be parents of each other; each task is reached at most once, ended and isolated ones never."""
    registry = TaskRegistry()
    for name, parent, status, alone in tasks:
        registry.add(task(name, parent, status, propagate_on_cancel="isolate" if alone else "cascade"))
    for root in "abcdef":
        reached = registry.to_cancel(root)
        ids = [found.task_id for found in reached]
        assert root not in ids
        assert len(set(ids)) == len(ids)
        assert all(not is_over(found) and found.context_snapshot.propagate_on_cancel == "cascade" for found in reached)
        assert all(registry.parent(each) in {root, *ids} for each in ids), "only through those that are reached"


def test_terminal_states_are_final() -> None:
    """A cancelled task is not completed later; its error can still be added."""
    registry = TaskRegistry()
    registry.add(task("a"))
    assert registry.change("a", status=TaskStatus.CANCELLED) is not None
    assert registry.change("a", status=TaskStatus.COMPLETE, result=1) is None
    assert registry.change("a", priority=5) is None
    assert registry.change("a", status=TaskStatus.CANCELLED, error="why") is not None
    found = registry.get("a")
    assert found is not None
    assert (found.status, found.result, found.error, found.priority) == (TaskStatus.CANCELLED, None, "why", 0)


def test_removing_and_listing() -> None:
    """Tasks are listed in order of creation; a newer state replaces the old one."""
    registry = TaskRegistry()
    registry.seed([task("a"), task("b", "a"), task("c", "a", TaskStatus.FAILED)])
    registry.seed([task("a", status=TaskStatus.FAILED)])
    assert [found.task_id for found in registry.tasks()] == ["a", "b", "c"]
    assert [found.task_id for found in registry.active()] == ["a", "b"]
    assert [found.task_id for found in registry.tasks(status=TaskStatus.FAILED)] == ["c"]
    registry.remove("b")
    assert (registry.children("a"), registry.parent("b"), len(registry)) == (("c",), None, 2)
