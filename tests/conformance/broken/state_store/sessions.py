"""Faults of tasks, updates, steering, trajectories, planner events and artifacts."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from keelbolt.state.events.steering import validate_steering_event
from tests.conformance.broken.state_store.fault import caught_by
from tests.conformance.broken.state_store.kept import Artifacts, Kept

# ------------------------------------------------------------------------------------------------------------- tasks


@caught_by("tasks_are_loaded")
class ForgetsTheContextsHash(Kept):
    async def save_task(self, state: Any) -> None:
        state = copy.deepcopy(state)
        state.context_snapshot.context_hash = None
        await super().save_task(state)


@caught_by("a_task_saved_again_is_one_task")
class KeepsTheFirstTask(Kept):
    async def save_task(self, state: Any) -> None:
        self.data.tasks[state.session_id].setdefault(state.task_id, copy.deepcopy(state))


@caught_by("tasks_are_listed_in_the_order_of_first_saves")
class ListsTasksByName(Kept):
    async def list_tasks(self, session_id: str) -> Any:
        return sorted(await super().list_tasks(session_id), key=lambda task: task.task_id)


@caught_by("sessions_are_separate")
class KnowsTasksByTheirIds(Kept):
    async def save_task(self, state: Any) -> None:
        for tasks in self.data.tasks.values():
            tasks.pop(state.task_id, None)
        await super().save_task(state)


@caught_by("a_saved_task_is_a_copy")
class KeepsTheCallersTask(Kept):
    async def save_task(self, state: Any) -> None:
        self.data.tasks[state.session_id][state.task_id] = state


# ----------------------------------------------------------------------------------------------------------- updates


@caught_by("updates_are_loaded")
class ListsUpdatesBackward(Kept):
    async def list_updates(self, session_id: str, **wanted: Any) -> Any:
        return list(reversed(await super().list_updates(session_id, **wanted)))


@caught_by("a_cursor_is_exclusive", "steering_has_cursors")
class IncludesTheCursor(Kept):
    def page(self, found: dict[str, Any], **wanted: Any) -> list[Any]:
        rest = super().page(found, **wanted)
        cursor = wanted.get("since_id")
        return [found[cursor], *rest] if cursor in found else rest


@caught_by("an_unknown_cursor_is_ignored")
class AnswersNothingForUnknownCursors(Kept):
    def page(self, found: dict[str, Any], **wanted: Any) -> list[Any]:
        cursor = wanted.get("since_id")
        return super().page(found, **wanted) if cursor is None or cursor in found else []


@caught_by("cursors_return_every_update", "steering_pages_return_every_event")
class ListsTheLastAfterACursor(Kept):
    def page(self, found: dict[str, Any], *, limit: int = 500, **wanted: Any) -> list[Any]:
        return super().page(found, **wanted)[-limit:]


@caught_by("without_a_cursor_the_last_are_listed")
class ListsTheFirst(Kept):
    def page(self, found: dict[str, Any], *, limit: int = 500, **wanted: Any) -> list[Any]:
        return super().page(found, **wanted)[:limit]


@caught_by("the_filter_is_applied_before_the_limit")
class FiltersAfterTheLimit(Kept):
    def page(self, found: dict[str, Any], *, task_id: str | None = None, **wanted: Any) -> list[Any]:
        return [each for each in super().page(found, **wanted) if task_id in (None, each.task_id)]


@caught_by("an_update_saved_again_is_stored_once")
class KnowsUpdatesEverywhere(Kept):
    async def save_update(self, update: Any) -> None:
        if not any(update.update_id in known for known in self.data.updates.values()):
            await super().save_update(update)


@caught_by("concurrent_updates_keep_their_order")
class ScramblesWhatRunsAtOnce(Kept):
    async def save_update(self, update: Any) -> None:
        for _ in range(update.content["step"] % 3):
            await asyncio.sleep(0)
        await super().save_update(update)


# ---------------------------------------------------------------------------------------------------------- steering


@caught_by("steering_is_loaded")
class ForgetsTheSource(Kept):
    async def list_steering(self, session_id: str, **wanted: Any) -> Any:
        found = await super().list_steering(session_id, **wanted)
        return [event.model_copy(update={"source": ""}) for event in found]


@caught_by("steering_is_cut_to_size")
class KeepsWhatItIsGiven(Kept):
    async def save_steering(self, event: Any) -> None:
        self.data.steering[event.session_id][event.event_id] = event


@caught_by("a_steering_event_saved_again_is_stored_once")
class KeepsSteeringTwice(Kept):
    async def save_steering(self, event: Any) -> None:
        known = self.data.steering[event.session_id]
        known[f"{event.event_id}-{len(known)}"] = event


# -------------------------------------------------------------------------------------- trajectories, planner events


@caught_by("trajectories_are_loaded")
class ForgetsTheContext(Kept):
    async def save_trajectory(self, trace_id: str, session_id: str, trajectory: Any) -> None:
        trajectory = copy.deepcopy(trajectory)
        trajectory.llm_context = None
        await super().save_trajectory(trace_id, session_id, trajectory)


@caught_by("a_trajectory_of_another_session_is_none")
class ShowsTrajectoriesToAll(Kept):
    async def get_trajectory(self, trace_id: str, session_id: str) -> Any:
        return next((found for (trace, _), found in self.data.trajectories.items() if trace == trace_id), None)


@caught_by("traces_are_listed_newest_first")
class ListsTracesOldestFirst(Kept):
    async def list_traces(self, session_id: str, limit: int = 50) -> list[str]:
        return list(reversed(await super().list_traces(session_id, limit)))


@caught_by("a_trajectory_saved_again_is_the_newest")
class LeavesATraceWhereItWas(Kept):
    async def save_trajectory(self, trace_id: str, session_id: str, trajectory: Any) -> None:
        self.data.trajectories[trace_id, session_id] = trajectory


@caught_by("one_trace_in_two_sessions_is_two_trajectories")
class KnowsTrajectoriesByTrace(Kept):
    async def save_trajectory(self, trace_id: str, session_id: str, trajectory: Any) -> None:
        self.data.trajectories = {key: kept for key, kept in self.data.trajectories.items() if key[0] != trace_id}
        await super().save_trajectory(trace_id, session_id, trajectory)


@caught_by("planner_events_are_loaded")
class DropsTheExtra(Kept):
    async def list_planner_events(self, trace_id: str) -> list[Any]:
        found = await super().list_planner_events(trace_id)
        return [type(event)(event.event_type, event.ts, event.trajectory_step) for event in found]


@caught_by("planner_events_are_in_the_order_of_saving")
class OrdersPlannerEventsByTime(Kept):
    async def list_planner_events(self, trace_id: str) -> list[Any]:
        return sorted(await super().list_planner_events(trace_id), key=lambda event: event.ts)


@caught_by("a_planner_event_saved_again_is_stored_once")
class KeepsPlannerEventsTwice(Kept):
    async def save_planner_event(self, trace_id: str, event: Any) -> None:
        self.data.planner_events[trace_id].append(event)


@caught_by("sessions_survive")
class ForgetsUpdatesAtItsEnd(Kept):
    async def cleanup(self) -> None:
        self.data.updates.clear()


# --------------------------------------------------------------------------------------------------------- artifacts


class With(Kept):
    """Base of faults of artifacts."""

    kind: type[Any] = Artifacts

    @property
    def artifact_store(self) -> Any:
        return self.kind(self.data)


@caught_by("the_artifact_store_is_found")
class HasNoList(With):
    class kind(Artifacts):  # noqa: N801
        list = None  # type: ignore[assignment]


@caught_by("artifacts_are_loaded")
class ForgetsTheFilename(With):
    class kind(Artifacts):  # noqa: N801
        async def put_bytes(self, data: bytes, **named: Any) -> Any:
            return await super().put_bytes(data, **{**named, "filename": None})


@caught_by("concurrent_puts_are_all_stored")
class CopiesAllToAddOne(With):
    class kind(Artifacts):  # noqa: N801
        async def put_bytes(self, data: bytes, **named: Any) -> Any:
            before = dict(self.kept)
            await asyncio.sleep(0)  # other callers add theirs meanwhile
            ref = await super().put_bytes(data, **named)
            added = {**before, ref.id: self.kept[ref.id]}
            self.kept.clear()
            self.kept.update(added)
            return ref


@caught_by("an_unknown_artifact_is_none")
class RaisesForUnknownArtifacts(With):
    class kind(Artifacts):  # noqa: N801
        async def get(self, artifact_id: str) -> bytes | None:
            if artifact_id not in self.kept:
                raise LookupError(artifact_id)
            return self.kept[artifact_id][1]


@caught_by("a_deleted_artifact_is_gone")
class OnlySaysItDeleted(With):
    class kind(Artifacts):  # noqa: N801
        async def delete(self, artifact_id: str) -> bool:
            return artifact_id in self.kept


@caught_by("artifacts_are_listed_by_scope")
class ListsEverything(With):
    class kind(Artifacts):  # noqa: N801
        async def list(self, *, scope: Any = None) -> Any:
            return await super().list()


@caught_by("equal_bytes_of_two_sessions_are_two_artifacts")
class NamesArtifactsByTheirBytes(With):
    class kind(Artifacts):  # noqa: N801
        def name(self, digest: str, namespace: str | None, scope: Any) -> str:
            return f"{namespace or 'art'}_{digest[:12]}"


@caught_by("invalid_steering_is_stored")
class RefusesInvalidSteering(Kept):
    async def save_steering(self, event: Any) -> None:
        validate_steering_event(event)
        await super().save_steering(event)
