"""Decisions on a commit: pure, all or nothing, each check against the state before the commit."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from keelbolt.errors import CommitRefused, Reason
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation, Outcome, Receipt, address
from keelbolt.kernel.hints import LogTopic, QueueTopic
from keelbolt.kernel.judge import MICROSECONDS, judge
from keelbolt.kernel.ledger import Ledger, RecordState, StreamState, WorkRow
from keelbolt.kernel.logs import Append, Draft, Drop, Head, Trim
from keelbolt.kernel.records import (
    Absent,
    Delete,
    Expire,
    FieldIn,
    FieldNotIn,
    Insert,
    Patch,
    Present,
    Put,
    Record,
    Replace,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Remove, Retry

P = "p"
NOW = 1_000 * MICROSECONDS
WALL = 77

KEYS = st.sampled_from("ab")
VERSIONS = st.integers(1, 3)
FENCES = st.integers(1, 12)
STATES = st.sampled_from(["open", "done", None])
SECONDS = st.sampled_from([0.0, 1.0, 60.0])
FIELDS = st.fixed_dictionaries({"state": STATES})
DRAFTS = st.builds(Draft, st.just("note"), st.binary(max_size=2), st.sampled_from([None, "x", "y"]))

WRITES: dict[str, st.SearchStrategy[Operation]] = {
    "record": st.one_of(
        st.builds(Insert, st.just("note"), KEYS, st.just(b"1"), FIELDS, st.none() | SECONDS),
        st.builds(Put, st.just("note"), KEYS, st.just(b"2"), FIELDS, st.none() | SECONDS),
        st.builds(Replace, st.just("note"), KEYS, VERSIONS, st.just(b"3"), FIELDS),
        st.builds(Patch, st.just("note"), KEYS, FIELDS, st.none() | VERSIONS),
        st.builds(Delete, st.just("note"), KEYS, st.none() | VERSIONS),
        st.builds(Take, st.just("note"), KEYS),
    ),
    "log": st.one_of(
        st.builds(Append, st.just("events"), KEYS, st.lists(DRAFTS, min_size=1, max_size=3).map(tuple)),
        st.builds(Trim, st.just("events"), KEYS, st.integers(0, 5)),
        st.builds(Drop, st.just("events"), KEYS),
    ),
    "work": st.one_of(
        st.builds(
            Enqueue, st.just("jobs"), KEYS, SECONDS, max_attempts=st.integers(1, 2), worker=st.sampled_from([None, "w"])
        ),
        st.builds(Complete, st.just("jobs"), KEYS, FENCES),
        st.builds(Release, st.just("jobs"), KEYS, FENCES, SECONDS),
        st.builds(Retry, st.just("jobs"), KEYS, FENCES, st.just("no"), SECONDS),
        st.builds(Bury, st.just("jobs"), KEYS, FENCES, st.just("never")),
        st.builds(Remove, st.just("jobs"), KEYS),
    ),
    "blob": st.one_of(
        st.builds(Attach, st.sampled_from(["known", "unknown"]), KEYS),
        st.builds(Detach, st.sampled_from(["known", "unknown"]), KEYS),
    ),
}
CHECKS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Version, st.just("note"), KEYS, VERSIONS),
    st.builds(Absent, st.just("note"), KEYS),
    st.builds(Present, st.just("note"), KEYS),
    st.builds(FieldIn, st.just("note"), KEYS, st.just("state"), st.tuples(STATES)),
    st.builds(FieldNotIn, st.just("note"), KEYS, st.just("state"), st.tuples(STATES)),
    st.builds(Head, st.just("events"), KEYS, st.integers(0, 3)),
    st.builds(Fence, st.just("jobs"), KEYS, FENCES),
)


@st.composite
def commits(draw: st.DrawFn) -> tuple[Operation, ...]:
    """Generate checks and writes in any order, without writing a key twice."""
    operations: list[Operation] = draw(st.lists(CHECKS, max_size=2))
    for kind in draw(st.sets(st.sampled_from(sorted(WRITES)), min_size=1)):
        unique = st.lists(WRITES[kind], min_size=1, max_size=2, unique_by=address)
        operations += draw(unique)
    return tuple(draw(st.permutations(operations)))


def fresh() -> Ledger:
    ledger = Ledger()
    ledger.blobs[P, "known"] = True
    return ledger


def decide(ledger: Ledger, *operations: Operation, now: int = NOW) -> tuple[Outcome, ...]:
    return judge(ledger, P, operations, now=now, at=WALL)


def tried(ledger: Ledger, *operations: Operation, now: int = NOW) -> tuple[Outcome, ...] | CommitRefused:
    try:
        return decide(ledger, *operations, now=now)
    except CommitRefused as refusal:
        return refusal


def refused(ledger: Ledger, *operations: Operation, now: int = NOW) -> CommitRefused:
    """Return the refusal, after checking that nothing changed."""
    before = deepcopy(ledger)
    with pytest.raises(CommitRefused) as refusal:
        decide(ledger, *operations, now=now)
    assert ledger == before
    return refusal.value


# --------------------------------------------------------------------------------------------------------- any commit


@settings(max_examples=150)
@given(st.lists(commits(), max_size=10))
def test_a_commit_changes_all_or_nothing_and_keeps_the_ledger_sound(history: list[tuple[Operation, ...]]) -> None:
    ledger = fresh()
    fences = [0]
    for number, operations in enumerate(history):
        before = deepcopy(ledger)
        now = NOW + number * MICROSECONDS
        outcomes = tried(ledger, *operations, now=now)
        if isinstance(outcomes, CommitRefused):
            assert ledger == before
            assert outcomes.check in operations
            assert "nothing of this commit was written" in str(outcomes)
            continue
        assert len(outcomes) == len(operations)
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(operation, Enqueue) and operation.worker:
                assert isinstance(outcome, int)
                fences.append(outcome)
        assert fences == sorted(set(fences))
        for stream in filter(None, ledger.streams.values()):
            assert 0 <= stream.floor <= stream.head
        for row in filter(None, ledger.work.values()):
            assert (row.state == "held") == (row.holder is not None)
            assert row.fence <= ledger.last_fence
        check_entries(ledger)


def check_entries(ledger: Ledger) -> None:
    """Check that each stream's entries are dense and ordered, and each dedupe key above the floor occurs once."""
    floors = {stream.id: stream.floor for stream in ledger.streams.values() if stream}
    seqs: dict[int, int] = {}
    for entry in ledger.entries:
        assert entry.seq == seqs.get(entry.stream, 0) + 1
        seqs[entry.stream] = entry.seq
    for stream in filter(None, ledger.streams.values()):
        assert stream.head == seqs.get(stream.id, 0)
    keys = [
        (entry.stream, entry.dedupe)
        for entry in ledger.entries
        if entry.dedupe and entry.seq > floors.get(entry.stream, 0)
    ]
    living = [key for key in keys if key[0] in floors]
    assert len(living) == len(set(living))


@settings(max_examples=150)
@given(st.lists(commits(), max_size=6), commits())
def test_every_check_sees_the_state_before_the_commit(
    history: list[tuple[Operation, ...]], last: tuple[Operation, ...]
) -> None:
    """A commit passes exactly when each of its operations would pass alone: none reads the writes of another."""
    ledger = fresh()
    for operations in history:
        tried(ledger, *operations)
    alone = [answer for one in last if isinstance(answer := tried(deepcopy(ledger), one), CommitRefused)]
    if alone:
        refusal = refused(ledger, *last)
        assert (refusal.reason, refusal.check, refusal.found) == (alone[0].reason, alone[0].check, alone[0].found)
    else:
        assert len(decide(ledger, *last)) == len(last)


@settings(max_examples=100)
@given(st.lists(commits(), max_size=6))
def test_another_partition_is_never_touched(history: list[tuple[Operation, ...]]) -> None:
    ledger = fresh()
    other = RecordState(1, {"state": "open"}, None, b"")
    ledger.records["q", "note", "a"] = other
    ledger.streams["q", "events", "a"] = StreamState(900, 3, 1)
    ledger.work["q", "jobs", "a"] = WorkRow("waiting", "", 0, NOW, 0, 5)
    before = {
        name: deepcopy({key: value for key, value in getattr(ledger, name).items() if key[0] == "q"})
        for name in ("records", "streams", "work")
    }
    for operations in history:
        tried(ledger, *operations)
    for name, expected in before.items():
        assert {key: value for key, value in getattr(ledger, name).items() if key[0] == "q"} == expected
    assert not [
        key for key in (*ledger.changed_records, *ledger.changed_work, *ledger.changed_streams) if key[0] == "q"
    ]


def test_a_change_holds_the_state_before_the_first_change() -> None:
    """A key that many commits of a batch write is saved once, compared with the stored state."""
    ledger = fresh()
    stored = RecordState(4, {"state": "open"}, None, None, id=9)
    ledger.records[P, "note", "a"] = stored
    for body in (b"1", b"2", b"3"):
        decide(ledger, Put("note", "a", body))
    assert ledger.changed_records == {(P, "note", "a"): stored}
    assert ledger.records[P, "note", "a"] == RecordState(7, {}, None, b"3", id=9)
    ledger.settle()
    assert not ledger.changed_records


# ------------------------------------------------------------------------------------------------------------ records


def test_versions_grow_by_one_and_start_anew_after_a_delete() -> None:
    ledger = fresh()
    assert decide(ledger, Insert("note", "a", b"1", {"state": "open"})) == (1,)
    assert decide(ledger, Replace("note", "a", 1, b"2", {"state": "open"})) == (2,)
    assert decide(ledger, Patch("note", "a", {"state": None, "rank": 4}, 2)) == (3,)
    assert ledger.records[P, "note", "a"] == RecordState(3, {"rank": 4}, None, b"2")
    assert decide(ledger, Put("note", "a", b"3")) == (4,)
    assert decide(ledger, Take("note", "a")) == (Record("note", "a", 4, b"3"),)
    assert decide(ledger, Delete("note", "a")) == (0,)
    assert decide(ledger, Put("note", "a", b"4")) == (1,)


@pytest.mark.parametrize(
    ("operation", "reason", "found"),
    [
        (Version("note", "a", 1), "version", 2),
        (Version("note", "none", 1), "version", 0),
        (Absent("note", "a"), "absent", 2),
        (Insert("note", "a", b""), "absent", 2),
        (Replace("note", "a", 1, b""), "version", 2),
        (Replace("note", "none", 1, b""), "version", 0),
        (Patch("note", "a", {}, 3), "version", 2),
        (Patch("note", "none", {}), "present", 0),
        (Patch("note", "none", {}, 1), "version", 0),
        (Delete("note", "a", 1), "version", 2),
        (Delete("note", "none", 1), "version", 0),
        (Take("note", "none"), "present", 0),
        (FieldIn("note", "a", "state", ("done", None)), "field", "open"),
        (FieldIn("note", "a", "owner", ("me",)), "field", None),
        (FieldIn("note", "none", "state", (None,)), "present", 0),
        (FieldNotIn("note", "a", "state", ("open",)), "field", "open"),
        (FieldNotIn("note", "a", "owner", (None,)), "field", None),
        (FieldNotIn("note", "none", "state", ()), "present", 0),
        (Present("note", "none"), "present", 0),
        (Head("events", "a", 1), "head", 2),
        (Head("events", "none", 1), "head", 0),
        (Attach("unknown", "me"), "blob", None),
    ],
)
def test_a_failed_check_says_what_is_stored(operation: Operation, reason: Reason, found: object) -> None:
    ledger = fresh()
    decide(
        ledger, Insert("note", "a", b"", {"state": "open"}), Append("events", "a", (Draft("x", b""), Draft("x", b"")))
    )
    decide(ledger, Put("note", "a", b"", {"state": "open"}))
    refusal = refused(ledger, operation)
    assert (refusal.reason, refusal.check, refusal.found) == (reason, operation, found)


@pytest.mark.parametrize(
    "operation",
    [
        Version("note", "a", 1),
        FieldIn("note", "a", "state", ("open", "done")),
        FieldIn("note", "a", "owner", (None,)),
        FieldNotIn("note", "a", "state", ("done",)),
        FieldNotIn("note", "a", "state", ()),
        Absent("note", "none"),
        Present("note", "a"),
        Head("events", "none", 0),
        Delete("note", "none"),
        Remove("jobs", "none"),
        Trim("events", "none", 3),
        Drop("events", "none"),
        Detach("unknown", "me"),
    ],
)
def test_checks_that_hold_pass_and_change_nothing(operation: Operation) -> None:
    ledger = fresh()
    decide(ledger, Insert("note", "a", b"", {"state": "open"}))
    ledger.settle()
    before = deepcopy(ledger)
    assert decide(ledger, operation) in ((None,), (0,))
    ledger.holdings.clear()
    assert ledger == before


def test_an_expired_record_is_gone_for_every_check() -> None:
    ledger = fresh()
    decide(ledger, Insert("note", "a", b"1", {"state": "open"}, 10.0))
    until = NOW + 10 * MICROSECONDS
    assert refused(ledger, Insert("note", "a", b""), now=until - 1).found == 1
    for operation in (
        Version("note", "a", 1),
        Take("note", "a"),
        Patch("note", "a", {}),
        FieldIn("note", "a", "state", ("open",)),
        FieldNotIn("note", "a", "state", ("done",)),
    ):
        assert refused(ledger, operation, now=until).found == 0
    # The row still exists and is overwritten: its id stays, its version restarts.
    ledger.records[P, "note", "a"] = replace(ledger.records[P, "note", "a"] or RecordState(1, {}, 0, b""), id=5)
    assert decide(ledger, Absent("note", "a"), Insert("note", "a", b"2"), now=until) == (None, 1)
    assert ledger.records[P, "note", "a"] == RecordState(1, {}, None, b"2", id=5)


def test_only_records_past_their_expiry_expire() -> None:
    ledger = fresh()
    decide(ledger, Put("note", "a", b"", expires_in=10.0), Put("note", "b", b""))
    until = NOW + 10 * MICROSECONDS
    for key in ("a", "b", "none"):
        assert decide(ledger, Expire("note", key), now=until - 1) == (0,)
    assert decide(ledger, Expire("note", "a"), Expire("note", "b"), now=until) == (1, 0)
    assert ledger.records[P, "note", "a"] is None
    assert ledger.records[P, "note", "b"] is not None


# --------------------------------------------------------------------------------------------------------------- logs


def test_a_repeated_dedupe_key_answers_the_first_seq_until_it_is_trimmed() -> None:
    ledger = fresh()

    def append(*keys: str | None) -> Outcome:
        return decide(ledger, Append("events", "a", tuple(Draft("x", b"", key) for key in keys)))[0]

    assert append("one", None, "one", "two") == (1, 2, 1, 3)
    assert append("two", "three") == (3, 4)
    decide(ledger, Trim("events", "a", 3))
    assert append("three", "one", "two", "one") == (4, 5, 6, 5)
    assert [entry.seq for entry in ledger.entries] == [1, 2, 3, 4, 5, 6]


def test_a_trim_ends_at_the_head_and_never_goes_back() -> None:
    ledger = fresh()
    decide(ledger, Append("events", "a", (Draft("x", b""),) * 3))
    for through, floor in ((2, 2), (1, 2), (99, 3)):
        decide(ledger, Trim("events", "a", through))
        assert ledger.streams[P, "events", "a"] == StreamState(1, 3, floor)
    assert ledger.trims == [(1, 2), (1, 3)]
    decide(ledger, Head("events", "a", 3), Append("events", "a", (Draft("x", b""),)))
    assert ledger.streams[P, "events", "a"] == StreamState(1, 4, 3)


def test_a_dropped_stream_is_like_one_never_written() -> None:
    ledger = fresh()
    decide(ledger, Append("events", "a", (Draft("x", b"", "one"),)))
    decide(ledger, Drop("events", "a"))
    assert decide(ledger, Head("events", "a", 0), Append("events", "a", (Draft("x", b"", "one"),))) == (None, (1,))
    stream = ledger.streams[P, "events", "a"]
    assert stream is not None
    assert stream.id == 2
    assert ledger.drops == [1]


def test_a_commit_returns_the_topics_to_notify() -> None:
    ledger = fresh()
    decide(ledger, Append("events", "a", (Draft("x", b"", "one"),)), Enqueue("jobs", "a"), Put("note", "a", b""))
    assert ledger.topics == {LogTopic(P, "events", "a"), QueueTopic("jobs")}
    ledger.settle()
    decide(ledger, Append("events", "a", (Draft("x", b"", "one"),)), Enqueue("other", "a", worker="w"))
    assert ledger.topics == set()  # nothing was appended, and held items wake no claimer
    assert ledger.workers == {"w"}


# --------------------------------------------------------------------------------------------------------------- work

EARLY, LATE = NOW - 5 * MICROSECONDS, NOW + 5 * MICROSECONDS
WAITING = WorkRow("waiting", "lane", 3, LATE, 1, 2, fence=7, reason="was bad")
HELD = WorkRow("held", "lane", 3, EARLY, 1, 2, fence=7, holder="w")
NUDGED = replace(HELD, again_at=LATE)
LAST = replace(HELD, attempt=2)
DEAD = WorkRow("dead", "lane", 3, EARLY, 2, 2, fence=7, reason="gave up")
NONE = None


@dataclass(frozen=True)
class Step:
    """The result of an operation on a row: another row, or a refusal."""

    row: WorkRow | None
    operation: Any
    becomes: WorkRow | Reason | None
    outcome: Outcome = None


AGAIN = Enqueue("jobs", "a", 0.0, "new", 9, 4)
TAKEN = Enqueue("jobs", "a", 0.0, "new", 9, 4, "me")
NEW = WorkRow("waiting", "new", 9, NOW, 0, 4)
MINE = replace(NEW, state="held", holder="me", attempt=1, fence=21)

STEPS = [
    # Enqueue: the earlier time, the new fairness key; held: waits again later; dead: starts again.
    Step(NONE, AGAIN, NEW, 0),
    Step(WAITING, AGAIN, replace(NEW, attempt=1, fence=7, reason="was bad"), 0),
    Step(
        replace(WAITING, ready_at=EARLY), AGAIN, replace(NEW, ready_at=EARLY, attempt=1, fence=7, reason="was bad"), 0
    ),
    Step(HELD, AGAIN, WorkRow("held", "new", 9, EARLY, 1, 4, 7, "w", again_at=NOW), 0),
    Step(NUDGED, AGAIN, WorkRow("held", "new", 9, EARLY, 1, 4, 7, "w", again_at=NOW), 0),
    Step(replace(HELD, again_at=EARLY), AGAIN, WorkRow("held", "new", 9, EARLY, 1, 4, 7, "w", again_at=EARLY), 0),
    Step(DEAD, AGAIN, replace(NEW, fence=7), 0),
    # Enqueue with a worker: held at once, unless it is held already.
    Step(NONE, TAKEN, MINE, 21),
    Step(WAITING, TAKEN, replace(MINE, attempt=2, reason="was bad"), 21),
    Step(HELD, TAKEN, "held"),
    Step(DEAD, TAKEN, MINE, 21),
    # Complete: gone, or waiting again.
    Step(HELD, Complete("jobs", "a", 7), NONE),
    Step(NUDGED, Complete("jobs", "a", 7), replace(WAITING, attempt=0, reason=None)),
    # Release: the attempt is not counted; an earlier Enqueue may set the ready time.
    Step(
        HELD, Release("jobs", "a", 7, 60.0), replace(WAITING, ready_at=NOW + 60 * MICROSECONDS, attempt=0, reason=None)
    ),
    Step(NUDGED, Release("jobs", "a", 7, 60.0), replace(WAITING, attempt=0, reason=None)),
    # Retry: the attempt is counted; after the last one it is dead.
    Step(HELD, Retry("jobs", "a", 7, "oops", 5.0), replace(WAITING, reason="oops"), 0),
    Step(LAST, Retry("jobs", "a", 7, "oops", 5.0), replace(DEAD, reason="oops"), 1),
    Step(replace(LAST, attempt=3), Retry("jobs", "a", 7, "oops"), replace(DEAD, attempt=3, reason="oops"), 1),
    # Dead letter.
    Step(HELD, Bury("jobs", "a", 7, "enough"), replace(DEAD, attempt=1, reason="enough")),
    Step(NUDGED, Bury("jobs", "a", 7, "enough"), replace(DEAD, attempt=1, reason="enough")),
    # Remove, in any state.
    *(Step(row, Remove("jobs", "a"), NONE) for row in (NONE, WAITING, HELD, NUDGED, DEAD)),
    # A fence holds only while the item is held under it.
    Step(HELD, Fence("jobs", "a", 7), HELD),
    *(
        Step(row, operation, "fence")
        for operation in (
            Fence("jobs", "a", 7),
            Complete("jobs", "a", 7),
            Release("jobs", "a", 7),
            Retry("jobs", "a", 7, "oops"),
            Bury("jobs", "a", 7, "enough"),
        )
        for row in (NONE, WAITING, DEAD, replace(HELD, fence=6), replace(HELD, fence=8))
    ),
]


@pytest.mark.parametrize(
    "step", STEPS, ids=lambda step: f"{step.row and step.row.state}-{type(step.operation).__name__}"
)
def test_every_transition_of_work(step: Step) -> None:
    ledger = fresh()
    ledger.last_fence = 20
    ledger.work[P, "jobs", "a"] = deepcopy(step.row)
    if isinstance(step.becomes, str):
        refusal = refused(ledger, step.operation)
        assert refusal.reason == step.becomes
        assert refusal.found == (step.row.fence if step.row else 0)
    else:
        assert decide(ledger, step.operation) == (step.outcome,)
        assert ledger.work[P, "jobs", "a"] == step.becomes
        waits = step.becomes is not None and step.becomes.state == "waiting"
        assert (QueueTopic("jobs") in ledger.topics) == waits


def test_the_table_has_every_operation_in_every_state() -> None:
    """A missing transition fails this test."""
    seen = {(step.row.state if step.row else None, type(step.operation)) for step in STEPS}
    kinds = (Enqueue, Complete, Release, Retry, Bury, Remove, Fence)
    assert seen == {(state, kind) for state in (None, "waiting", "held", "dead") for kind in kinds}


# ------------------------------------------------------------------------------------------------------------ receipts


def test_a_receipt_finds_outcomes_by_name() -> None:
    ledger = fresh()
    operations: tuple[Operation, ...] = (
        Version("note", "b", 1),
        Put("note", "a", b""),
        Take("note", "b"),
        Append("events", "a", (Draft("x", b""), Draft("x", b""))),
        Enqueue("jobs", "a", worker="w"),
        Enqueue("jobs", "b"),
    )
    decide(ledger, Put("note", "b", b"it"))
    receipt = Receipt(operations, decide(ledger, *operations))
    assert receipt.version("note", "a") == 1
    assert receipt.taken("note", "b") == Record("note", "b", 1, b"it")
    assert receipt.seqs("events", "a") == (1, 2)
    assert receipt.fence("jobs", "a") == 1
    assert receipt.fence("jobs", "b") == 0
    with pytest.raises(KeyError, match="no Append of events/b"):
        receipt.seqs("events", "b")
    with pytest.raises(KeyError, match="no Insert or Restore or Put or Replace or Patch or Delete of note/b"):
        receipt.version("note", "b")
    retry = (Retry("jobs", "a", 1, "no"),)
    assert Receipt(retry, decide(ledger, *retry)).dead("jobs", "a") is False
