"""The view of a task: applies the notes of its log to one state.

A long list (the parts of a streamed artifact, the messages of a long conversation) is a *spool*: most of it is in
segments that are written once and never rewritten, the rest is the tail in memory. A snapshot names the segments and
holds the short tails, so that loading a task reads the snapshot, its segments, and the few entries after it.

    log       1 ……………………………………………………… n-k … n
    segments  [64 kB][64 kB][64 kB] …
    snapshot                           n-k
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from msgspec import Struct, field
from pydantic_core import from_json, to_json

from keelbolt.protocol.types import TaskState
from keelbolt.tasks.notes import ArtifactNote, MessageNote, Note, OtherNote, StatusNote

SNAPSHOT_ENTRIES = 256
SNAPSHOT_BYTES = 64 * 1024  # ... with at least 32 entries; a task of two large messages needs no snapshot
SEALED_PARTS = 8
SNAPSHOT_MAX_BYTES = 4 * 1024 * 1024
SEGMENT_MIN_BYTES = 16 * 1024  # a smaller tail stays in the snapshot itself
SEGMENT_MAX_BYTES = 1024 * 1024
STEP_INLINE_BYTES = 512  # a larger result of a step gets its own segment
PACK_SPOOLS = 200  # maximum in one snapshot: the size of a commit is limited
PACK_BYTES = 8 * 1024 * 1024
INDEX_MAX_BYTES = 8 * 1024 * 1024  # a task with a larger index gets no new snapshots
STEERED_MAX = 1000
TRANSITIONS_MAX = 100


class SegmentedList(Struct):
    """A list of JSON values. ``name`` is never reused in its task, so that segments can't be confused."""

    name: str
    segments: list[int] = []  # number of values in each
    tail: list[bytes] = []
    tail_bytes: int = 0
    mark: tuple[int, int] = (0, 0)  # where the last turn that wrote started: number of segments, length of the tail

    def begin_turn(self) -> None:
        """Mark the current end. Values before it stay, even if a repeated run writes the rest again."""
        self.mark = (len(self.segments), len(self.tail))

    def add(self, value: bytes) -> None:
        self.tail.append(value)
        self.tail_bytes += len(value) + 1

    def keys(self, task_id: str) -> list[str]:
        return [segment_key(task_id, self.name, number) for number in range(len(self.segments))]

    def index(self) -> dict[str, Any]:
        tail = [value.decode() for value in self.tail]
        return {"name": self.name, "segments": self.segments, "tail": tail, "mark": self.mark}

    @classmethod
    def from_index(cls, index: dict[str, Any]) -> SegmentedList:
        spool = cls(index["name"], index["segments"], mark=(index["mark"][0], index["mark"][1]))
        for value in index["tail"]:
            spool.add(value.encode())
        return spool


class ArtifactView(Struct):
    """An artifact: its members besides the parts, and the spool of its parts."""

    about: bytes
    parts: SegmentedList
    turn: int
    run: int
    sealed: bool = False

    def json(self, segments: Sequence[bytes] = ()) -> bytes:
        return b'{%b,"parts":[%b]}' % (self.about, b",".join([*segments, *self.parts.tail]))


class StepView(Struct):
    """The last known state of a durable step: started, done, failed, asked, answered, retry or refused."""

    state: str
    run: int
    result: Any = None
    stored: bool = False  # the result is in its own segment, and None in a snapshot
    after_cancel: bool = False  # recorded after the cancel, by a worker that cleaned up


class SnapshotWrites(Struct, frozen=True):
    """The writes of a snapshot: its index, segments (key → body), and the keys of obsolete segments."""

    index: bytes
    segments: dict[str, bytes]
    obsolete: tuple[str, ...]


class TaskView(Struct):
    """The state of one task. ``head`` is the seq of the last applied note, which is the task's version."""

    task_id: str
    context_id: str
    state: TaskState = TaskState.submitted
    status: bytes = b"{}"
    metadata: dict[str, Any] = {}
    head: int = 0
    generation: int = 0  # number of notes that are events of a stream
    turn: int = 0
    run: int = 0  # number of times a worker started this turn
    inbox: int = 0  # the last entry of the inbox that was recorded here
    pending: dict[int, dict[str, Any]] = {}  # messages that wait for a turn, by inbox seq
    cancel: dict[str, Any] | None = None  # the content of the client's cancel
    history: SegmentedList = field(default_factory=partial(SegmentedList, "history"))
    artifacts: dict[str, ArtifactView] = {}
    steps: dict[str, StepView] = {}
    transitions: list[tuple[str, str]] = []  # the last states, and the start time of each
    steered: list[dict[str, Any]] = []  # steering of this turn, for a run that repeats it
    kept: bytes = b"null"  # the worker's `ctx.state`, as JSON
    cleanup: bool = False  # the task was canceled without its worker, which must still be called to clean up
    _obsolete: list[str] = []  # segments of replaced artifacts, until the next snapshot
    _sealed: bool = False  # a long stream has ended since the last snapshot
    _since: int = 0  # notes since the last snapshot
    _since_bytes: int = 0
    _index_bytes: int = 0

    @property
    def over(self) -> bool:
        """Whether the task ended and its worker has no cleanup left."""
        return self.state.terminal and not self.cleanup

    @property
    def emitted(self) -> bool:
        """Whether an artifact was written in this turn."""
        return any(artifact.turn == self.turn for artifact in self.artifacts.values())

    # ------------------------------------------------------------------------------------------------------ notes

    def apply(self, notes: Iterable[Note]) -> None:
        """Apply the next notes of the log."""
        for note in notes:
            self.head += 1
            self._since += 1
            match note:
                case ArtifactNote():
                    self.generation += 1
                    self._artifact(note)
                case StatusNote():
                    self.generation += 1
                    self._status(note)
                case MessageNote():
                    self._since_bytes += len(note.data)
                    self.history.add(note.data)
                case OtherNote():
                    self._since_bytes += len(note.data)
                    self._other(note)

    def _artifact(self, note: ArtifactNote) -> None:
        self._since_bytes += len(note.parts) + len(note.about)
        artifact = self.artifacts.get(note.artifact_id)
        if artifact is None or not note.append:
            if artifact is not None:
                self._obsolete += artifact.parts.keys(self.task_id)
            artifact = ArtifactView(note.about, SegmentedList(str(self.head)), self.turn, self.run)
            self.artifacts[note.artifact_id] = artifact
        else:
            if artifact.turn != self.turn:
                artifact.parts.begin_turn()
            if len(note.about) > len(note.artifact_id) + 16:  # more than the id: a chunk may change other members
                artifact.about = _merged(artifact.about, note.about)
        if note.parts:
            artifact.parts.add(note.parts)
        artifact.turn, artifact.run, artifact.sealed = self.turn, self.run, note.last
        if note.last and len(artifact.parts.tail) >= SEALED_PARTS and artifact.parts.tail_bytes >= SEGMENT_MIN_BYTES:
            self._sealed = True  # a finished stream is packed into segments, for faster reads

    def _status(self, note: StatusNote) -> None:
        self._since_bytes += len(note.status)
        if note.state is not self.state or not self.transitions:
            self.transitions = [*self.transitions[-TRANSITIONS_MAX + 1 :], (note.state._name_, _timestamp(note.status))]
        self.state, self.status = note.state, note.status
        if note.said is not None:
            self.history.add(note.said)

    def _other(self, note: OtherNote) -> None:
        body = note.body
        match note.kind:
            case "metadata":
                self.metadata.update(body)
            case "attempt":
                if body["turn"] != self.turn:
                    self._obsolete += [step_key(self.task_id, self.turn, key) for key in self._stored_steps()]
                    self.turn, self.run, self.steps, self.steered = body["turn"], 0, {}, []
                self.run += 1
                if "took" in body:
                    self.pending = {seq: waits for seq, waits in self.pending.items() if seq > body["took"]}
            case "step":
                self.steps[body["step"]] = StepView(
                    body["state"],
                    self.run,
                    body.get("result"),
                    after_cancel=self.cancel is not None or self.cleanup,
                )
            case "steer":
                self.inbox = max(self.inbox, body["inbox"])
                if body["kind"] == "message":
                    self.pending[body["inbox"]] = body
                elif body["kind"] == "cancel":
                    self.cancel = body
                elif len(self.steered) < STEERED_MAX:
                    self.steered.append(body)
            case "state":
                self.kept = to_json(body["value"])
            case "cleanup":
                self.cleanup = body["due"]
            case "error" | "touch":
                pass

    # -------------------------------------------------------------------------------------------------- snapshots

    def snapshot_due(self) -> bool:
        """Return whether a snapshot is due.

        The notes since the last one must be as large as the snapshot's index, so that the cost per note stays constant
        for any number of artifacts.
        """
        if self._sealed:
            return True
        size = self._since_bytes
        enough = self._since >= SNAPSHOT_ENTRIES or (self._since >= 32 and size >= SNAPSHOT_BYTES)
        return (enough and size >= self._index_bytes) or size >= max(SNAPSHOT_MAX_BYTES, self._index_bytes)

    def snapshot(self) -> SnapshotWrites | None:
        """Move long tails into segments, and return the writes. The view continues from here.

        Return None if the index would be too large. Then the log keeps everything, as before.
        """
        self._sealed = False
        long = sorted(
            (spool for spool in self._spools() if spool.tail_bytes >= SEGMENT_MIN_BYTES),
            key=lambda spool: spool.tail_bytes,
            reverse=True,
        )[:PACK_SPOOLS]
        packed: list[SegmentedList] = []
        size = 0
        for spool in long:
            size += spool.tail_bytes
            if packed and size > PACK_BYTES:
                break
            packed.append(spool)
        if self._index_estimate(packed) > INDEX_MAX_BYTES:
            self._index_bytes, self._since, self._since_bytes = INDEX_MAX_BYTES, 0, 0
            return None
        segments: dict[str, bytes] = {}
        for spool in packed:
            self._pack(spool, segments)
        for key, step in self.steps.items():
            if not step.stored and step.result is not None:
                result = to_json(step.result)
                if len(result) > STEP_INLINE_BYTES:
                    segments[step_key(self.task_id, self.turn, key)], step.stored = result, True
        index = to_json(self._index())
        obsolete = tuple(self._obsolete)
        self._obsolete = []
        self._since = self._since_bytes = 0
        self._index_bytes = len(index)
        return SnapshotWrites(index, segments, obsolete)

    def _index_estimate(self, packed: list[SegmentedList]) -> int:
        tails = sum(spool.tail_bytes for spool in self._spools()) - sum(spool.tail_bytes for spool in packed)
        waiting = len(to_json([*self.pending.values(), *self.steered])) if self.pending or self.steered else 0
        abouts = sum(len(artifact.about) for artifact in self.artifacts.values())
        return (
            tails + waiting + abouts + 200 * (len(self.artifacts) + len(self.steps)) + len(self.status) + len(self.kept)
        )

    def _pack(self, spool: SegmentedList, segments: dict[str, bytes]) -> None:
        """Move a tail into segments; no segment spans the mark."""
        number, place = spool.mark
        cut = place if number == len(spool.segments) else 0
        before = list(_batches(spool.tail[:cut]))
        if cut:
            spool.mark = (number + len(before), 0)
        for values in (*before, *_batches(spool.tail[cut:])):
            segments[segment_key(self.task_id, spool.name, len(spool.segments))] = b",".join(values)
            spool.segments.append(len(values))
        spool.tail, spool.tail_bytes = [], 0

    def _stored_steps(self) -> list[str]:
        return [key for key, step in self.steps.items() if step.stored]

    def _spools(self) -> list[SegmentedList]:
        return [self.history, *(artifact.parts for artifact in self.artifacts.values())]

    def segment_keys(self) -> list[str]:
        """Return the keys of all segments."""
        spooled = [key for spool in self._spools() for key in spool.keys(self.task_id)]
        steps = [step_key(self.task_id, self.turn, key) for key in self._stored_steps()]
        return spooled + steps + self._obsolete

    def _index(self) -> dict[str, Any]:
        return {
            "seq": self.head,
            "generation": self.generation,
            "state": self.state,
            "status": self.status.decode(),
            "metadata": self.metadata,
            "turn": self.turn,
            "run": self.run,
            "inbox": self.inbox,
            "pending": self.pending,
            "cancel": self.cancel,
            "history": self.history.index(),
            "artifacts": [
                {
                    "id": key,
                    "about": artifact.about.decode(),
                    "parts": artifact.parts.index(),
                    "turn": artifact.turn,
                    "run": artifact.run,
                    "sealed": artifact.sealed,
                }
                for key, artifact in self.artifacts.items()
            ],
            "steps": {
                key: [step.state, step.run, None if step.stored else step.result, step.stored, step.after_cancel]
                for key, step in self.steps.items()
            },
            "steered": self.steered,
            "transitions": self.transitions,
            "kept": self.kept.decode(),
            "cleanup": self.cleanup,
        }

    @classmethod
    def from_index(cls, task_id: str, context_id: str, data: bytes) -> TaskView:
        """Return the view as of its snapshot."""
        index = from_json(data)
        view = cls(
            task_id,
            context_id,
            state=TaskState(index["state"]),
            status=index["status"].encode(),
            metadata=index["metadata"],
            head=index["seq"],
            generation=index["generation"],
            turn=index["turn"],
            run=index["run"],
            inbox=index["inbox"],
            pending={int(seq): body for seq, body in index["pending"].items()},
            cancel=index["cancel"],
            history=SegmentedList.from_index(index["history"]),
        )
        for found in index["artifacts"]:
            parts = SegmentedList.from_index(found["parts"])
            artifact = ArtifactView(found["about"].encode(), parts, found["turn"], found["run"], sealed=found["sealed"])
            view.artifacts[found["id"]] = artifact
        view.steps = {key: StepView(*step) for key, step in index["steps"].items()}
        view.steered = index["steered"]
        view.transitions = [(state, moment) for state, moment in index["transitions"]]
        view.kept = index.get("kept", "null").encode()  # missing in snapshots of older versions
        view.cleanup = index.get("cleanup", False)  # missing in snapshots of older versions
        view._index_bytes = len(data)
        return view


def step_key(task_id: str, turn: int, step: str) -> str:
    """Return the key of a step's large result."""
    return segment_key(task_id, f"step{turn}", blake2b(step.encode(), digest_size=12).hexdigest())


def segment_key(task_id: str, spool: str, number: int | str) -> str:
    return f"{task_id}/{spool}/{number}"


def _batches(values: list[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for value in values:
        if batch and size + len(value) > SEGMENT_MAX_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(value)
        size += len(value)
    if batch:
        yield batch


def _timestamp(status: bytes) -> str:
    """Return the timestamp of a status, which is always its second member here."""
    _, found, rest = status.partition(b'","timestamp":"')
    return rest.partition(b'"')[0].decode() if found else ""


def _merged(about: bytes, more: bytes) -> bytes:
    known: dict[str, Any] = from_json(b"{%b}" % about)
    known.update(from_json(b"{%b}" % more))
    return to_json(known)[1:-1]
