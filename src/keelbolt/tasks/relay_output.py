"""Writes the output of a relay into this task: artifacts and reports of the other agent, and the position reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keelbolt.client.events import Event
from keelbolt.protocol.types import Artifact, Message, Part, Task
from keelbolt.tasks.lifecycle import ProgressReport
from keelbolt.tasks.notes import Note, OtherNote
from keelbolt.tasks.parts import agent_message, bounded, encoded_part
from keelbolt.tasks.steps import DETAIL

if TYPE_CHECKING:
    from keelbolt.tasks.context import TaskContext


class RelayOutput:
    """Passes on the events of one relay. With ``stream`` False it only records the position."""

    def __init__(self, ctx: TaskContext, key: str, *, stream: bool) -> None:
        self._ctx = ctx
        self._run = ctx._run
        self._key = key
        self._stream = stream
        self._cursor: OtherNote | None = None
        at = ctx._run.journal.task.view.steps.get(f"{DETAIL}at {key}")
        self.at: dict[str, Any] = {} if at is None else dict(at.result or {})
        """The position: the last event, the last message, and the number of delivered answers."""
        prefix = f"{DETAIL}artifact {key} "
        steps = ctx._run.journal.task.view.steps.items()
        self.names = {name[len(prefix) :]: str(step.result) for name, step in steps if name.startswith(prefix)}
        """Artifact ids of the other agent, and the ids in this task."""

    def marked(self, event: Event | None = None, **more: Any) -> OtherNote:
        """Return the note that records the position, for the commit that passes an event on."""
        if event is not None and event.id is not None:
            self.at["event"] = event.id
        self.at.update(more)
        return OtherNote("step", {"step": f"{DETAIL}at {self._key}", "state": "started", "result": dict(self.at)})

    async def report(self, event: Event, message: Message | None) -> None:
        """Pass on a report of the other agent; a report that a snapshot repeats is passed on once."""
        if message is None or not self._stream or message.message_id == self.at.get("said"):
            return
        self._ctx._check()
        marked = self.marked(event, said=message.message_id)
        await self._run.journal.move(ProgressReport(self.words(message)), before=[marked])

    def words(self, message: Message) -> bytes:
        """Return a message of the other agent as a message of this agent."""
        parts = bounded(b",".join([encoded_part(part) for part in message.parts]), "the message of the other agent")
        return agent_message(self._ctx.task_id, self._ctx.context_id, parts)

    async def pass_on(self, event: Event | None, artifact: Artifact, *, append: bool, last: bool) -> None:
        if not self._stream or not artifact.parts:  # an empty chunk may close an artifact
            return
        self._ctx._check()
        notes: list[Note] = []
        local = self.names.get(artifact.artifact_id)
        if local is None:
            local = self.names[artifact.artifact_id] = self._free_name(artifact.artifact_id)
            key = f"{DETAIL}artifact {self._key} {artifact.artifact_id}"
            notes.append(OtherNote("step", {"step": key, "state": "done", "result": local}))
        self._ctx._touched.add(local)  # keep the chunks that an earlier run passed on
        fields = artifact.model_dump(by_alias=True, exclude_unset=True, exclude={"artifact_id", "parts"})
        about = {name: value for name, value in fields.items() if value is not None}
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
        """Return the artifact's id in this task: its own, unless the task already has an artifact with that id."""
        taken = {*self._run.journal.task.view.artifacts, *self._ctx._touched, *self.names.values()}
        name, number = artifact_id, 1
        while name in taken:
            number += 1
            name = f"{artifact_id}-{number}"
        return name

    async def compare(self, event: Event, task: Task) -> None:
        """Compare with a whole task of the other agent, and pass on missing or different artifacts."""
        if not task.artifacts or not self._stream:
            return
        here = await self.passed_on()
        self.at["event"] = None  # until everything is passed on, the next run compares again
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
        """Return the passed-on artifacts as they are in this task, by the ids of the other agent."""
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


# -------------------------------------------------------------------------------------------------------- relayed parts


CHUNK_BYTES = 4 * 1024 * 1024


def missing(have: Sequence[Part], now: Sequence[Part]) -> list[Part] | None:
    """Return the parts to append so that ``have`` becomes ``now``; None: appending is not enough.

    The division of text into parts does not matter, because agents join it differently.
    """
    mine, theirs = _joined(have), _joined(now)
    if len(mine) > len(theirs):
        return None
    if mine == theirs[: len(mine)]:
        return theirs[len(mine) :]
    before, last, at = mine[:-1], mine[-1], len(mine) - 1
    if before != theirs[:at] or not (_plain(last) and _plain(theirs[at])):
        return None
    begun, whole = last.text or "", theirs[at].text or ""
    if not whole.startswith(begun):
        return None
    return [Part(text=whole[len(begun) :]), *theirs[at + 1 :]]


def chunks(parts: Sequence[bytes]) -> list[list[bytes]]:
    """Return the encoded parts in groups that fit into one entry of the log each; at least one group."""
    groups: list[list[bytes]] = [[]]
    size = 0
    for part in parts:
        if groups[-1] and size + len(part) > CHUNK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += len(part)
    return groups


def _joined(parts: Sequence[Part]) -> list[Part]:
    found: list[Part] = []
    for part in parts:
        if found and _plain(part) and _plain(found[-1]):
            found[-1] = Part(text=(found[-1].text or "") + (part.text or ""))
        else:
            found.append(part)
    return found


def _plain(part: Part) -> bool:
    return part.text is not None and part.metadata is None and part.filename is None and part.media_type is None
