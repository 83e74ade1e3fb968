"""What a relay writes into our task: the artifacts and reports of the other agent, and how far they were passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keelbolt.client.events import Event
from keelbolt.protocol.types import Artifact, Message, Task
from keelbolt.tasks.json import bounded
from keelbolt.tasks.lifecycle import Report
from keelbolt.tasks.notes import Note, OtherNote
from keelbolt.tasks.parts import agent_message, encoded_part
from keelbolt.tasks.relayed_parts import chunks, missing
from keelbolt.tasks.steps import DETAIL

if TYPE_CHECKING:
    from keelbolt.tasks.context import TaskContext


class RelayOutput:
    """Passes on the events of one relay. ``stream`` False: nothing is passed on, but it is noted how far it went."""

    def __init__(self, ctx: TaskContext, key: str, *, stream: bool) -> None:
        self._ctx = ctx
        self._run = ctx._run
        self._key = key
        self._stream = stream
        self._cursor: OtherNote | None = None
        at = ctx._run.journal.task.view.steps.get(f"{DETAIL}at {key}")
        self.at: dict[str, Any] = {} if at is None else dict(at.result or {})
        """How far it was passed on: the last event, the last message, how many answers arrived."""
        prefix = f"{DETAIL}artifact {key} "
        steps = ctx._run.journal.task.view.steps.items()
        self.names = {name[len(prefix) :]: str(step.result) for name, step in steps if name.startswith(prefix)}
        """The artifacts of the other agent, and what they are called here."""

    def marked(self, event: Event | None = None, **more: Any) -> OtherNote:
        """The note that goes along with what is passed on."""
        if event is not None and event.id is not None:
            self.at["event"] = event.id
        self.at.update(more)
        return OtherNote("step", {"step": f"{DETAIL}at {self._key}", "state": "started", "result": dict(self.at)})

    async def report(self, event: Event, message: Message | None) -> None:
        """Pass on what the other agent reports; a report that a snapshot shows again is passed on once."""
        if message is None or not self._stream or message.message_id == self.at.get("said"):
            return
        self._ctx._check()
        marked = self.marked(event, said=message.message_id)
        await self._run.journal.move(Report(self.words(message)), before=[marked])

    def words(self, message: Message) -> bytes:
        """A message of the other agent as one of our own."""
        parts = bounded(b",".join([encoded_part(part) for part in message.parts]), "the message of the other agent")
        return agent_message(self._ctx.task_id, self._ctx.context_id, parts)

    async def pass_on(self, event: Event | None, artifact: Artifact, *, append: bool, last: bool) -> None:
        if not self._stream or not artifact.parts:  # an artifact may be closed by an empty chunk
            return
        self._ctx._check()
        notes: list[Note] = []
        local = self.names.get(artifact.artifact_id)
        if local is None:
            local = self.names[artifact.artifact_id] = self._free_name(artifact.artifact_id)
            key = f"{DETAIL}artifact {self._key} {artifact.artifact_id}"
            notes.append(OtherNote("step", {"step": key, "state": "done", "result": local}))
        self._ctx._touched.add(local)  # what an earlier run passed on stays
        told = artifact.model_dump(by_alias=True, exclude_unset=True, exclude={"artifact_id", "parts"})
        about = {name: value for name, value in told.items() if value is not None}
        encoded = [encoded_part(part) for part in artifact.parts]
        size = 0
        groups = chunks(encoded)
        for number, parts in enumerate(groups):
            json = b",".join(parts)
            size += len(json)
            ends = last and number == len(groups) - 1
            notes.append(self._ctx._artifact(local, json, about, append=append or number > 0, last=ends))
        marked = self.marked(event)
        await self._run.journal.notes([*notes, marked], size, instead_of=self._cursor)
        self._cursor = marked

    def _free_name(self, artifact_id: str) -> str:
        """The id of the artifact here: its own, unless the task has one of that name already."""
        taken = {*self._run.journal.task.view.artifacts, *self._ctx._touched, *self.names.values()}
        name, number = artifact_id, 1
        while name in taken:
            number += 1
            name = f"{artifact_id}-{number}"
        return name

    async def compare(self, event: Event, task: Task) -> None:
        """A whole task of the other agent: pass on what is missing or different here."""
        if not task.artifacts or not self._stream:
            return
        here = await self.passed_on()
        self.at["event"] = None  # until all of it is passed on, a run that follows compares again
        for artifact in task.artifacts:
            have = here.get(artifact.artifact_id)
            rest = None if have is None else missing(have.parts, artifact.parts)
            if rest is None:
                await self.pass_on(None, artifact, append=False, last=task.status.state.terminal)
            elif rest:
                added = Artifact(artifact_id=artifact.artifact_id, parts=rest)
                await self.pass_on(None, added, append=True, last=task.status.state.terminal)
        await self._run.journal.notes([self.marked(event)], 100)

    async def passed_on(self) -> dict[str, Artifact]:
        """The artifacts of the other agent by its own ids, as they stand in our task."""
        journal = self._run.journal
        await journal.settle()
        found = zip(journal.task.view.artifacts, await self._run.store.artifacts_json(journal.task), strict=True)
        local = {name: json for name, json in found if name in self.names.values()}
        here: dict[str, Artifact] = {}
        for artifact_id, name in self.names.items():
            if name in local:
                artifact = Artifact.model_validate_json(local[name])
                here[artifact_id] = artifact.model_copy(update={"artifact_id": artifact_id})
        return here
