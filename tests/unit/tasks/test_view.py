"""The view of a task: the same state, whether folded from the start or from a snapshot at any entry."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from keelbolt.kernel import Entry
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import view as view_module
from keelbolt.tasks.notes import ArtifactNote, MessageNote, Note, OtherNote, StatusNote, draft, read_note
from keelbolt.tasks.view import SegmentedList, TaskView, segment_key

TASK, CONTEXT = "task-1", "context-1"
NOW = "2026-01-01T00:00:00.000Z"

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('abü"\\', max_size=3), inner, max_size=3),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=3)


def message(body: dict[str, Any]) -> bytes:
    return to_json({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"data": body}]})


MESSAGES = OBJECTS.map(message)


@st.composite
def artifacts(draw: st.DrawFn) -> ArtifactNote:
    artifact_id = draw(st.sampled_from(["a", "b", 'ü"']))
    about = {
        "artifactId": artifact_id,
        **draw(st.dictionaries(st.sampled_from(["name", "metadata"]), JSON, max_size=1)),
    }
    values = draw(st.lists(st.dictionaries(st.just("data"), JSON, min_size=1), max_size=3))
    return ArtifactNote(
        artifact_id,
        to_json(about)[1:-1],
        to_json(values)[1:-1],
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.none() | OBJECTS.map(to_json)),
    )


def statuses() -> st.SearchStrategy[StatusNote]:
    return st.builds(
        lambda state, words, in_history, metadata: StatusNote.of(state, NOW, words, said=in_history, metadata=metadata),
        st.sampled_from(list(TaskState)),
        st.none() | MESSAGES,
        st.booleans(),
        st.none() | OBJECTS.map(to_json),
    )


OTHERS = st.one_of(
    st.builds(lambda body: OtherNote("metadata", body), OBJECTS),
    st.builds(
        lambda turn, took: OtherNote("attempt", {"turn": turn, "attempt": 1, "worker": "w", **took}),
        st.integers(1, 3),
        st.just({}) | st.builds(lambda seq: {"took": seq}, st.integers(1, 5)),
    ),
    st.builds(
        lambda step, state, result: OtherNote("step", {"step": step, "state": state, "result": result}),
        st.sampled_from(["charge", "charge#2", "~sleep"]),
        st.sampled_from(["started", "done", "failed", "asked", "retry", "refused"]),
        JSON,
    ),
    st.builds(
        lambda kind, inbox, reason: OtherNote("steer", {"kind": kind, "inbox": inbox, "reason": reason}),
        st.sampled_from(["message", "cancel", "inject"]),
        st.integers(1, 5),
        st.text("ab", max_size=2),
    ),
    st.just(OtherNote("touch", {})),
)
NOTES: st.SearchStrategy[Note] = st.one_of(artifacts(), artifacts(), statuses(), MESSAGES.map(MessageNote), OTHERS)


def taken_of(view: TaskView) -> view_module.SnapshotWrites:
    taken = view.snapshot()
    assert taken is not None
    return taken


class Disk:
    """Stores snapshots and segments, and reads them back."""

    def __init__(self) -> None:
        self.segments: dict[str, bytes] = {}
        self.index = b""

    def snapshot(self, view: TaskView) -> None:
        taken = taken_of(view)
        assert not set(taken.segments) & set(self.segments), "a segment is written once"
        for key in taken.obsolete:
            self.segments.pop(key, None)
        self.segments |= taken.segments
        self.index = taken.index

    def values(self, spool: SegmentedList) -> list[Any]:
        found = [self.segments[key] for key in spool.keys(TASK)]
        values: list[Any] = from_json(b"[%b]" % b",".join([*found, *spool.tail]))
        return values


def fold(notes: Iterable[Note], view: TaskView | None = None) -> TaskView:
    view = view or TaskView(TASK, CONTEXT)
    view.apply(notes)
    return view


def comparable(view: TaskView, disk: Disk) -> dict[str, Any]:
    """Return all data of a view, with its segments read."""
    return {
        "head": view.head,
        "state": view.state,
        "status": view.status,
        "metadata": view.metadata,
        "turn": (view.turn, view.run),
        "inbox": (view.inbox, view.pending, view.cancel),
        "history": disk.values(view.history),
        "artifacts": [
            (
                key,
                from_json(b"{%b}" % artifact.about),
                disk.values(artifact.parts),
                artifact.turn,
                artifact.run,
                artifact.sealed,
            )
            for key, artifact in view.artifacts.items()
        ],
        "steps": {key: (step.state, step.run, step.result) for key, step in view.steps.items()},
    }


def entries(notes: Sequence[Note]) -> list[Entry]:
    drafts = map(draft, notes)
    return [Entry(seq, entry.kind, entry.data, 0) for seq, entry in enumerate(drafts, 1)]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use segments of a few bytes, so that small examples create many."""
    monkeypatch.setattr(view_module, "SEGMENT_MIN_BYTES", 20)
    monkeypatch.setattr(view_module, "SEGMENT_MAX_BYTES", 60)


# ---------------------------------------------------------------------------------------------------------- notes


@given(NOTES)
def test_a_note_is_read_as_it_was_written(note: Note) -> None:
    """An entry of the log is read back as the note that was written."""
    (entry,) = entries([note])
    read = read_note(entry)
    assert read.kind == note.kind
    assert read.data == note.data
    assert read == note


def test_a_status_without_a_message_adds_nothing() -> None:
    """A status that belongs to the history and has no message adds nothing to it."""
    note = StatusNote.of(TaskState.completed, NOW, said=True)
    assert note.kind == "status"
    assert fold([note]).history.tail == []


# ----------------------------------------------------------------------------------------------------------- folds


@given(st.lists(NOTES, max_size=30))
def test_a_view_of_the_log_is_the_view_of_the_writer(notes: list[Note]) -> None:
    assert comparable(fold(map(read_note, entries(notes))), Disk()) == comparable(fold(notes), Disk())


@pytest.mark.usefixtures("tiny")
@settings(max_examples=150)
@given(st.lists(NOTES, max_size=40), st.data())
def test_any_cut(notes: list[Note], data: st.DataObject) -> None:
    """Snapshots at any entries, each loaded again, then the rest: the same view as from all notes."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(notes)), max_size=3)))
    disk, view, done = Disk(), TaskView(TASK, CONTEXT), 0
    for cut in cuts:
        fold(notes[done:cut], view)
        done = cut
        disk.snapshot(view)
        if data.draw(st.booleans()):  # the writer continues, or another process loads its state
            view = TaskView.from_index(TASK, CONTEXT, disk.index)
    fold(notes[done:], view)
    assert comparable(view, disk) == comparable(fold(notes), Disk())


@pytest.mark.usefixtures("tiny")
@settings(max_examples=100)
@given(st.lists(NOTES, max_size=40), st.integers(1, 10))
def test_no_segment_is_left_behind(notes: list[Note], every: int) -> None:
    """After a snapshot, the stored segments are exactly those that the view names."""
    disk, view = Disk(), TaskView(TASK, CONTEXT)
    for start in range(0, len(notes), every):
        fold(notes[start : start + every], view)
        disk.snapshot(view)
        assert set(disk.segments) == set(view.segment_keys())


@pytest.mark.usefixtures("tiny")
def test_a_replaced_artifact_leaves_no_segments_even_when_it_was_loaded() -> None:
    """An artifact with segments is replaced before and after a load: the next snapshot removes its segments."""
    big = ArtifactNote("a", b'"artifactId":"a"', to_json({"text": "x" * 50}))
    disk, view = Disk(), fold([big])
    disk.snapshot(view)
    assert len(disk.segments) == 1
    view = fold([big], TaskView.from_index(TASK, CONTEXT, disk.index))
    disk.snapshot(view)
    assert list(disk.segments) == [segment_key(TASK, "2", 0)]
    assert disk.values(view.artifacts["a"].parts) == [{"text": "x" * 50}]


def test_append_and_replace() -> None:
    """A chunk is added to its artifact or, without append, replaces it; its metadata is merged."""
    first = ArtifactNote("a", b'"artifactId":"a","name":"n"', b'{"text":"1"}')
    more = ArtifactNote(
        "a", b'"artifactId":"a","description":"d"', b'{"text":"2"},{"text":"3"}', append=True, last=True
    )
    view = fold([first, more])
    assert from_json(view.artifacts["a"].json()) == {
        "artifactId": "a",
        "name": "n",
        "description": "d",
        "parts": [{"text": "1"}, {"text": "2"}, {"text": "3"}],
    }
    assert view.artifacts["a"].sealed
    fold([ArtifactNote("a", b'"artifactId":"a"', b'{"text":"new"}')], view)
    assert from_json(view.artifacts["a"].json()) == {"artifactId": "a", "parts": [{"text": "new"}]}
    assert not view.artifacts["a"].sealed


def test_an_append_to_nothing_creates_the_artifact() -> None:
    view = fold([ArtifactNote("a", b'"artifactId":"a"', b'{"text":"1"}', append=True)])
    assert from_json(view.artifacts["a"].json())["parts"] == [{"text": "1"}]


def test_a_chunk_without_parts() -> None:
    """A last chunk may only mark the end."""
    view = fold([ArtifactNote("a", b'"artifactId":"a"', b'{"text":"1"}')])
    fold([ArtifactNote("a", b'"artifactId":"a"', b"", append=True, last=True)], view)
    assert from_json(view.artifacts["a"].json())["parts"] == [{"text": "1"}]
    assert view.artifacts["a"].sealed


def test_pending_messages_wait_for_their_turn() -> None:
    """A message from the inbox waits until a turn takes it, in inbox order."""
    view = fold(OtherNote("steer", {"kind": "message", "inbox": seq}) for seq in (1, 2))
    assert list(view.pending) == [1, 2]
    assert view.inbox == 2
    fold([OtherNote("attempt", {"turn": 2, "took": 1})], view)
    assert list(view.pending) == [2]
    fold([OtherNote("attempt", {"turn": 2, "took": 1})], view)  # taken by a turn: it is no longer pending
    assert list(view.pending) == [2]


def test_attempts_and_turns() -> None:
    """Attempts are counted per turn; steps belong to the turn and are kept across attempts."""
    step = OtherNote("step", {"step": "charge", "state": "done", "result": 7})
    view = fold([OtherNote("attempt", {"turn": 1}), step, OtherNote("attempt", {"turn": 1})])
    assert (view.turn, view.run) == (1, 2)
    assert view.steps["charge"].result == 7
    assert view.steps["charge"].run == 1
    fold([OtherNote("attempt", {"turn": 2})], view)
    assert (view.turn, view.run, view.steps) == (2, 1, {})


def test_a_step_has_its_last_recorded_state() -> None:
    view = fold(OtherNote("step", {"step": "s", "state": state}) for state in ("started", "asked", "refused"))
    assert view.steps["s"].state == "refused"


def test_metadata_is_merged() -> None:
    view = fold([OtherNote("metadata", {"a": 1, "b": 1}), OtherNote("metadata", {"b": 2})])
    assert view.metadata == {"a": 1, "b": 2}


# ------------------------------------------------------------------------------------------------------- snapshots


def chunk(size: int, artifact_id: str = "a") -> ArtifactNote:
    return ArtifactNote(
        artifact_id, b'"artifactId":"%b"' % artifact_id.encode(), b'{"text":"%b"}' % (b"x" * size), True
    )


def test_a_short_task_needs_no_snapshot() -> None:
    """Two large messages, or many tiny notes below the count, don't require a snapshot."""
    assert not fold([MessageNote(b'"%b"' % (b"x" * 500_000))] * 2).snapshot_due()
    assert not fold([OtherNote("touch", {})] * (view_module.SNAPSHOT_ENTRIES - 1)).snapshot_due()


@pytest.mark.parametrize(
    ("count", "size"), [(view_module.SNAPSHOT_ENTRIES, 1), (40, 64 * 1024 // 40 + 1), (5, 1024 * 1024)]
)
def test_a_long_task_needs_a_snapshot(count: int, size: int) -> None:
    """A snapshot is due after many entries, or many bytes, or a great many bytes."""
    assert fold([chunk(size)] * count).snapshot_due()


def test_the_cost_of_snapshots_is_linear() -> None:
    """With more artifacts a snapshot grows, and snapshots become rarer: their total cost stays linear."""
    view = TaskView(TASK, CONTEXT)
    written = 0
    noted = 0
    taken = []
    for number in range(20_000):
        note = chunk(100, f"artifact-{number}")
        noted += len(note.data)
        view.apply([note])
        if view.snapshot_due():
            snapshot = taken_of(view)
            written += len(snapshot.index) + sum(map(len, snapshot.segments.values()))
            taken.append(view.head)
    assert written < 6 * noted
    assert 3 <= len(taken) <= 2 * math.log2(20_000)
    gaps = [after - before for before, after in itertools.pairwise(taken)]
    assert gaps == sorted(gaps)


def test_a_stream_is_copied_once() -> None:
    """The chunks of one stream are copied into segments once; the indexes stay small."""
    view, disk = TaskView(TASK, CONTEXT), Disk()
    written = 0
    for _ in range(20_000):
        view.apply([chunk(200)])
        if view.snapshot_due():
            disk.snapshot(view)
            written += len(disk.index)
    payload = sum(map(len, disk.segments.values()))
    assert payload + written < 1.2 * 20_000 * 213
    assert max(map(len, disk.segments.values())) <= view_module.SEGMENT_MAX_BYTES
    assert len(disk.values(view.artifacts["a"].parts)) == 20_000


def test_a_loaded_view_knows_when_the_next_snapshot_is_due() -> None:
    """After loading a snapshot, the count continues from there."""
    view = fold([chunk(200)] * view_module.SNAPSHOT_ENTRIES)
    loaded = TaskView.from_index(TASK, CONTEXT, taken_of(view).index)
    for side in (view, loaded):
        assert not side.snapshot_due()
        fold([chunk(200)] * (view_module.SNAPSHOT_ENTRIES - 1), side)
        assert not side.snapshot_due()
        fold([chunk(200)], side)
        assert side.snapshot_due()


def test_the_transitions_of_a_task_are_kept_with_their_times() -> None:
    """A repeated status is not a transition; only the latest ones are kept."""
    view = TaskView("t", "c")
    states = [TaskState.submitted, TaskState.working, TaskState.working, TaskState.input_required, TaskState.submitted]
    view.apply(StatusNote.of(state, f"2026-01-01T00:00:0{at}.000Z") for at, state in enumerate(states))
    assert view.transitions == [
        ("submitted", "2026-01-01T00:00:00.000Z"),
        ("working", "2026-01-01T00:00:01.000Z"),
        ("input_required", "2026-01-01T00:00:03.000Z"),
        ("submitted", "2026-01-01T00:00:04.000Z"),
    ]
    assert TaskView.from_index("t", "c", taken_of(view).index).transitions == view.transitions
    for _ in range(100):
        view.apply(StatusNote.of(state, "2026-01-01T00:00:09.000Z") for state in states)
    assert len(view.transitions) <= 100
