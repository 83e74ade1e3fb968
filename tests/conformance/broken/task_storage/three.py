"""Faults of the three methods."""

from __future__ import annotations

import asyncio
from typing import Any

from keelbolt.errors import KeelboltError, TaskNotFoundError, TaskTerminalStateError
from keelbolt.protocol.types import Message, Task, TaskState, TaskStatus
from keelbolt.tasks.storage import ArtifactWrite
from tests.conformance.broken.task_storage.fault import caught_by
from tests.conformance.three_methods import ThreeMethods


class Create(ThreeMethods):
    """Base of faults of new tasks."""

    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        task = await super().create_task(context_id, message, idempotency_key=idempotency_key)
        self.made(self.tasks[task.id], message)
        return self.tasks[task.id].model_copy(deep=True)

    def made(self, task: Task, message: Message) -> None:
        """Changes a new task."""


@caught_by("a_new_task_is_submitted")
class BeginsAsWorking(Create):
    def made(self, task: Task, message: Message) -> None:
        if task.status.state is TaskState.submitted:
            task.status.state = TaskState.working


@caught_by("a_new_task_has_a_timestamp")
class ForgetsWhen(Create):
    def made(self, task: Task, message: Message) -> None:
        task.status.timestamp = None


@caught_by("the_first_message_is_the_history")
class ForgetsTheMessage(Create):
    def made(self, task: Task, message: Message) -> None:
        task.history = []


@caught_by("the_stored_message_has_the_ids_of_its_task", "every_kind_of_part_is_stored")
class LeavesTheMessageUnbound(Create):
    def made(self, task: Task, message: Message) -> None:
        task.history[0].task_id = None


@caught_by("the_given_message_is_not_changed")
class BindsTheCallersMessage(Create):
    def made(self, task: Task, message: Message) -> None:
        message.task_id, message.context_id = task.id, task.context_id


@caught_by("a_message_changed_later_changes_no_task")
class KeepsTheCallersMessage(Create):
    def made(self, task: Task, message: Message) -> None:
        task.history[0].parts = message.parts


class Keys(ThreeMethods):
    """Base of faults of idempotency keys."""

    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        if idempotency_key is not None:
            context, idempotency_key = self.key(context_id, idempotency_key)
            known = self.keys.get((context, idempotency_key))
            if known is not None:
                return self.repeated(self.tasks[known], message).model_copy(deep=True)
            task = await super().create_task(context_id, message)
            self.keys[context, idempotency_key] = task.id
            return task
        return await super().create_task(context_id, message)

    def key(self, context_id: str, key: str) -> tuple[str, str]:
        return context_id, key

    def repeated(self, task: Task, message: Message) -> Task:
        return task


@caught_by("concurrent_creates_with_one_key_create_one_task")
class LooksAndThenMakes(Keys):
    """SELECT, then INSERT."""


@caught_by("keys_belong_to_their_context")
class KeysAreGlobal(Keys):
    def key(self, context_id: str, key: str) -> tuple[str, str]:
        return "", key


@caught_by("keys_and_contexts_are_not_joined")
class JoinsKeyAndContext(Keys):
    def key(self, context_id: str, key: str) -> tuple[str, str]:
        return "", f"{context_id}:{key}"


@caught_by("different_keys_create_different_tasks")
class FoldsTheCaseOfKeys(Keys):
    def key(self, context_id: str, key: str) -> tuple[str, str]:
        return context_id, key.lower()


@caught_by("names_of_contexts_are_any_text")
class TrimsContexts(Keys):
    def key(self, context_id: str, key: str) -> tuple[str, str]:
        return context_id.strip(), key


@caught_by("a_repeated_key_changes_nothing")
class RepeatingAppends(Keys):
    def repeated(self, task: Task, message: Message) -> Task:
        task.history.append(message)
        return task


@caught_by("a_repeated_key_returns_the_first_task")
class IgnoresKeys(ThreeMethods):
    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        return await super().create_task(context_id, message)


@caught_by("every_task_has_its_own_id")
class TakesTheMessageForAKey(ThreeMethods):
    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        return await super().create_task(context_id, message, idempotency_key=idempotency_key or message.message_id)


# ----------------------------------------------------------------------------------------------------------------- load


@caught_by("an_unknown_task_is_none")
class RaisesForUnknownTasks(ThreeMethods):
    async def load_task(
        self, task_id: str, history_length: int | None = None, *, include_artifacts: bool = True
    ) -> Task | None:
        if task_id not in self.tasks:
            raise TaskNotFoundError(task_id)
        return await super().load_task(task_id, history_length, include_artifacts=include_artifacts)


class Load(ThreeMethods):
    """Base of faults of loads."""

    async def load_task(
        self, task_id: str, history_length: int | None = None, *, include_artifacts: bool = True
    ) -> Task | None:
        task = await super().load_task(task_id)
        return self.cut(task, history_length, include_artifacts) if task is not None else None

    def cut(self, task: Task, length: int | None, artifacts: bool) -> Task:
        if length is not None:
            task.history = task.history[-length:] if length else []
        if not artifacts:
            task.artifacts = []
        return task


@caught_by("history_length_loads_the_last_messages")
class KeepsTheFirstMessages(Load):
    def cut(self, task: Task, length: int | None, artifacts: bool) -> Task:
        task.history = task.history[:length]
        return task


@caught_by("history_length_zero_is_no_history")
class TakesZeroForAll(Load):
    def cut(self, task: Task, length: int | None, artifacts: bool) -> Task:
        task.history = task.history[-length:] if length else task.history
        return task


@caught_by("without_a_length_the_history_is_complete")
class CutsUnasked(Load):
    def cut(self, task: Task, length: int | None, artifacts: bool) -> Task:
        return super().cut(task, 3 if length is None else length, artifacts)


@caught_by("history_length_may_exceed_the_history")
class HasNoMoreThanItHas(Load):
    def cut(self, task: Task, length: int | None, artifacts: bool) -> Task:
        return super().cut(task, length if length is None or length <= len(task.history) else 0, artifacts)


@caught_by("a_created_task_can_be_loaded_at_once")
class LoadsOnlyWhatWasWrittenTo(Load):
    def cut(self, task: Task, length: int | None, artifacts: bool) -> Task:
        if self.versions[task.id] == 1:
            task.status = TaskStatus(state=TaskState.submitted)
        return task


@caught_by("artifacts_can_be_left_out")
class AlwaysBringsArtifacts(Load):
    def cut(self, task: Task, length: int | None, artifacts: bool) -> Task:
        return super().cut(task, length, True)


@caught_by("a_short_load_removes_nothing")
class CutsWhatIsStored(Load):
    def cut(self, task: Task, length: int | None, artifacts: bool) -> Task:
        return super().cut(self.tasks[task.id], length, artifacts).model_copy(deep=True)


@caught_by("a_loaded_task_is_a_copy")
class AnswersItsOwnObject(Load):
    def cut(self, task: Task, length: int | None, artifacts: bool) -> Task:
        return self.tasks[task.id]


@caught_by("a_load_after_an_update_sees_it")
class ReadsFromAReplica(ThreeMethods):
    """Loads return the state before the last write."""

    def __init__(self) -> None:
        super().__init__()
        self.replica: dict[str, Task] = {}

    async def update_task(self, task_id: str, *given: Any, **more: Any) -> int:
        if task_id in self.tasks:
            self.replica[task_id] = self.tasks[task_id].model_copy(deep=True)
        return await super().update_task(task_id, *given, **more)

    async def load_task(
        self, task_id: str, history_length: int | None = None, *, include_artifacts: bool = True
    ) -> Task | None:
        return self.replica.get(task_id) or await super().load_task(task_id)


# --------------------------------------------------------------------------------------------------------------- update


class Update(ThreeMethods):
    """Base of faults of updates: changes the arguments, or the task after the update."""

    async def update_task(
        self,
        task_id: str,
        state: TaskState | None = None,
        *,
        status_message: Message | None = None,
        artifacts: list[ArtifactWrite] | None = None,
        messages: list[Message] | None = None,
        task_metadata: dict[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> int:
        given: dict[str, Any] = {
            "state": state,
            "status_message": status_message,
            "artifacts": artifacts,
            "messages": messages,
            "task_metadata": task_metadata,
            "expected_version": expected_version,
        }
        before = self.tasks[task_id].model_copy(deep=True) if task_id in self.tasks else None
        self.change(before, given)
        version = await super().update_task(task_id, **given)
        self.after(self.tasks[task_id], before, given)
        return self.answer(version)

    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        """Changes the arguments."""

    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        """Changes the task after the update."""

    def answer(self, version: int) -> int:
        return version


@caught_by("no_state_keeps_the_state")
class NoStateIsWorking(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        if given["state"] is None and task is not None and not task.status.state.terminal:
            given["state"] = TaskState.working


@caught_by("a_status_message_is_in_the_status")
class ForgetsTheStatusMessage(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        given["status_message"] = None


@caught_by("a_status_message_without_a_state_is_ignored")
class TakesTheStatusMessageAnyway(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        if given["status_message"] is not None:
            task.status.message = given["status_message"]


@caught_by("a_status_message_is_not_in_the_history")
class SaysTheStatusTwice(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        if given["status_message"] is not None:
            task.history.append(given["status_message"])


@caught_by("messages_are_added_in_their_order")
class TurnsMessagesAround(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        given["messages"] = list(reversed(given["messages"] or []))


@caught_by("messages_are_stored_unchanged")
class FillsIdsIn(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        for message in task.history:
            message.metadata = None


@caught_by("metadata_are_merged", "metadata_are_merged_with_any_update")
class ReplacesMetadata(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        if given["task_metadata"]:
            task.metadata = given["task_metadata"]


@caught_by("an_update_writes_everything_at_once")
class ForgetsTheRestAtTheEnd(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        if before is not None and task.status.state.terminal:
            task.artifacts = before.artifacts


@caught_by("updates_change_no_other_task")
class WritesToTheWholeContext(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        for other in self.tasks.values():
            other.status = task.status


@caught_by("an_artifact_is_added")
class KeepsOneArtifact(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        task.artifacts = task.artifacts[-1:]


@caught_by("a_write_without_append_replaces")
class AlwaysAppends(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        given["artifacts"] = [ArtifactWrite(write.artifact, append=True) for write in given["artifacts"] or ()]


@caught_by("a_write_with_append_adds_parts", "many_appends_keep_their_order")
class NeverAppends(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        given["artifacts"] = [ArtifactWrite(write.artifact) for write in given["artifacts"] or ()]


@caught_by("append_and_replace_mix_in_one_update", "writes_of_one_artifact_apply_in_order")
class OneFlagForAll(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        writes = given["artifacts"] or []
        given["artifacts"] = [ArtifactWrite(write.artifact, append=writes[0].append) for write in writes]


@caught_by("an_append_with_a_new_id_creates_the_artifact")
class AppendsOnlyToWhatIsThere(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        known = {artifact.artifact_id for artifact in task.artifacts} if task is not None else set()
        writes = given["artifacts"] or []
        given["artifacts"] = [write for write in writes if not write.append or write.artifact.artifact_id in known]


@caught_by("an_artifact_is_stored_unchanged")
class ForgetsNames(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        for artifact in task.artifacts:
            artifact.name = None


@caught_by("an_artifact_changed_later_changes_no_task")
class KeepsTheCallersArtifact(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        for write in given["artifacts"] or ():
            if not write.append:
                task.artifacts = [write.artifact]


@caught_by("any_text_is_stored")
class CutsTextsAtNul(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        for artifact in task.artifacts:
            for part in artifact.parts:
                part.text = (part.text or "").partition("\0")[0]


@caught_by("any_json_is_stored")
class MakesNumbersFloat(Update):
    def after(self, task: Task, before: Task | None, given: dict[str, Any]) -> None:
        task.metadata = {
            name: str(value) if type(value) is int else value for name, value in (task.metadata or {}).items()
        }


# ------------------------------------------------------------------------------------------------------ versions, ends


@caught_by("every_write_returns_a_new_version", "an_empty_update_is_a_write")
class VersionsStandStill(Update):
    def answer(self, version: int) -> int:
        return 1


@caught_by("the_returned_version_can_be_expected")
class AnswersTheVersionBefore(Update):
    def answer(self, version: int) -> int:
        return version - 1


@caught_by("a_stale_version_is_refused", "one_of_many_writers_of_a_version_wins")
class IgnoresVersions(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        given["expected_version"] = None


@caught_by("a_stale_version_is_refused")
class ChecksVersionsOfStatesOnly(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        if given["state"] is None:
            given["expected_version"] = None


@caught_by("a_future_version_is_refused")
class TakesAnyLargerVersion(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        expected = given["expected_version"]
        if task is not None and expected is not None and expected > self.versions[task.id]:
            given["expected_version"] = None


@caught_by("without_an_expected_version_nothing_is_refused")
class ExpectsAlways(Update):
    def change(self, task: Task | None, given: dict[str, Any]) -> None:
        if given["expected_version"] is None:
            given["expected_version"] = 1


@caught_by("a_write_refused_for_its_version_stores_nothing", "a_refused_write_to_an_ended_task_stores_nothing")
class WritesMessagesFirst(ThreeMethods):
    async def update_task(
        self, task_id: str, state: TaskState | None = None, *, messages: list[Message] | None = None, **more: Any
    ) -> int:
        if task_id in self.tasks:
            self.tasks[task_id].history += messages or []
        return await super().update_task(task_id, state, **more)


@caught_by("an_ended_task_stays_ended")
class EndsAgain(ThreeMethods):
    """The last writer wins."""

    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        if state is not None and task_id in self.tasks:
            self.tasks[task_id].status = TaskStatus(state=TaskState.working)
        return await super().update_task(task_id, state, **more)


@caught_by("the_first_end_wins")
class LooksForTheEndTooEarly(ThreeMethods):
    """The state is checked in one transaction and written in another."""

    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        if state is not None and task_id in self.tasks:
            if self.tasks[task_id].status.state.terminal:
                raise TaskTerminalStateError(task_id)
            await asyncio.sleep(0.001)
            self.tasks[task_id].status = TaskStatus(state=state)
            self.tasks[task_id].history += more.get("messages") or []
            self.versions[task_id] += 1
            return self.versions[task_id]
        return await super().update_task(task_id, state, **more)


@caught_by("an_ended_task_does_not_end_again")
class EndsTwiceInTheSameState(ThreeMethods):
    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        if task_id in self.tasks and state is self.tasks[task_id].status.state:
            state = None
        return await super().update_task(task_id, state, **more)


@caught_by("an_ended_task_is_refused_with_the_right_version_too")
class TheRightVersionMayDoAnything(ThreeMethods):
    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        if more.get("expected_version") == self.versions.get(task_id):
            self.tasks[task_id].status = TaskStatus(state=TaskState.working)
        return await super().update_task(task_id, state, **more)


@caught_by("paused_tasks_can_continue")
class PausedIsEnded(ThreeMethods):
    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        if state is not None and task_id in self.tasks and self.tasks[task_id].status.state.paused:
            raise TaskTerminalStateError(task_id)
        return await super().update_task(task_id, state, **more)


@caught_by("an_ended_task_accepts_appends")
class EndedIsReadOnly(ThreeMethods):
    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        if task_id in self.tasks and self.tasks[task_id].status.state.terminal:
            raise TaskTerminalStateError(task_id)
        return await super().update_task(task_id, state, **more)


@caught_by("concurrent_updates_are_all_stored")
class ReadsModifiesWrites(ThreeMethods):
    """Each update writes the whole task as it read it."""

    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        if task_id not in self.tasks:
            raise TaskNotFoundError(task_id)
        mine = ThreeMethods()
        mine.tasks[task_id] = self.tasks[task_id].model_copy(deep=True)
        mine.versions[task_id] = self.versions[task_id]
        await asyncio.sleep(0.001)
        version = await mine.update_task(task_id, state, **more)
        self.tasks[task_id], self.versions[task_id] = mine.tasks[task_id], version
        return version


@caught_by("an_unknown_task_is_not_updated")
class UpdatesOfNothingPass(ThreeMethods):
    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        return await super().update_task(task_id, state, **more) if task_id in self.tasks else 1


@caught_by("a_state_is_stored")
class KnowsNoRejection(ThreeMethods):
    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        state = TaskState.failed if state is TaskState.rejected else state
        return await super().update_task(task_id, state, **more)


@caught_by("large_texts_are_stored")
class RefusesLargeTexts(ThreeMethods):
    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        if len(message.text) > 100_000:
            raise KeelboltError("the message is too large")
        return await super().create_task(context_id, message, idempotency_key=idempotency_key)
