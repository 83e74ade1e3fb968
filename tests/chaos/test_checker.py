"""The checker itself, on histories made by hand."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from keelbolt.auth.principal import Principal
from keelbolt.data.erasing import declare
from keelbolt.data.families import ERASURES
from keelbolt.kernel import Append, Draft, Enqueue, Entry, Put, open_storage
from keelbolt.tasks.families import EVENTS
from tests.chaos import task_promises, turn_promises
from tests.chaos.client import digest
from tests.chaos.figures import takeovers
from tests.chaos.final import Plain, Store
from tests.chaos.framework_promises import item_violations
from tests.chaos.history import Asked, Histories, History, read_histories
from tests.chaos.linear import Operation, violations
from tests.chaos.nemesis import ROOT


def read(version: int, value: str | None, began: float, ended: float) -> Operation:
    return Operation("read", version, value, began, ended)


def write(version: int, value: str, began: float, ended: float, *, done: bool | None = True) -> Operation:
    """Return a write from this version to the next one."""
    return Operation("write", version, value, began, ended, done)


GOOD = [
    read(0, None, 0, 1),
    write(0, "a", 1, 2),
    write(0, "b", 1, 2, done=False),
    write(1, "c", 3, float("inf"), done=None),
    read(1, "a", 3, 4),
    read(2, "c", 4, 5),
]


def test_a_history_that_an_order_explains_is_accepted() -> None:
    assert violations(GOOD) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (write(0, "z", 1, 2), "written by 2 writers"),
        (read(1, "z", 3, 4), "no writer wrote"),
        (read(0, None, 6, 7), "was seen after version 2"),
        (read(2, "c", 2.0, 2.5), "no writer wrote"),
        (write(0, "late", 6, 7), "was seen after version 2"),
    ],
)
def test_a_history_that_no_order_explains_is_refused(more: Operation, words: str) -> None:
    assert any(words in sentence for sentence in violations([*GOOD, more]))


def test_a_killed_process_leaves_a_request_without_an_answer(tmp_path: Path) -> None:
    history = History(tmp_path, "one")
    asked = history.ask("send", message="m1")
    history.answer(asked, "send", task="t1")
    history.ask("send", message="m2")
    (tmp_path / "torn.jsonl").write_bytes(b'{"at": 1, "kin')
    found = read_histories(tmp_path)
    assert len(found.requests["send"]) == 2
    assert [each.answer["task"] for each in found.answered("send") if each.answer] == ["t1"]


def entry(seq: int, kind: str, body: dict[str, Any]) -> Any:
    return Entry(seq, kind, json.dumps(body).encode(), 0)


def status(seq: int, state: str) -> Any:
    return entry(seq, "status", {"status": {"state": f"TASK_STATE_{state}"}})


def test_every_bug_can_be_planted() -> None:
    """The functions that the bugs replace exist."""
    program = "from tests.chaos.bugs import BUGS, plant\nfor bug in BUGS: plant(bug)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.fixture
def store() -> Store:
    log = [
        entry(1, "message", {"messageId": "m1"}),
        status(2, "SUBMITTED"),
        status(3, "WORKING"),
        status(4, "COMPLETED"),
    ]
    return Store(None, "", logs={"t1": log}, messages={"m1": ["t1"]})  # type: ignore[arg-type]


def sentences(promise: Plain, folder: Path, store: Store) -> list[str]:
    return [sentence for sentence, _ in promise(read_histories(folder), store)]


def answered(folder: Path, what: str, about: dict[str, Any], **answer: Any) -> None:
    history = History(folder, what)
    history.answer(history.ask(what, **about), what, **answer)


def test_a_task_that_was_answered_and_is_not_there(tmp_path: Path, store: Store) -> None:
    answered(tmp_path, "send", {"message": "m1"}, task="t1", state=None, error=None)
    assert sentences(task_promises.acknowledged_is_present, tmp_path, store) == []
    answered(tmp_path, "send", {"message": "m2"}, task="t2", state=None, error=None)
    assert sentences(task_promises.acknowledged_is_present, tmp_path, store)


@pytest.mark.parametrize(("erased", "reason", "kept"), [("t1", "", True), ("t2", "", False), ("t1", "OTHER", False)])
def test_a_send_that_is_refused(tmp_path: Path, store: Store, erased: str, reason: str, *, kept: bool) -> None:
    store.erased = frozenset({erased})
    details = {"reason": reason or "TASK_NOT_FOUND", "metadata": {"taskId": "t1"}}
    answered(tmp_path, "send", {"message": "m1"}, task=None, state=None, error={"message": "x", "data": [details]})
    assert (sentences(task_promises.sends_succeed, tmp_path, store) == []) is kept


def test_a_log_with_a_hole_with_two_ends_or_without_one(tmp_path: Path, store: Store) -> None:
    assert sentences(task_promises.logs_are_dense_with_one_end, tmp_path, store) == []
    for log in (
        [store.logs["t1"][0], *store.logs["t1"][2:]],
        [*store.logs["t1"], status(5, "FAILED")],
        store.logs["t1"][:3],
    ):
        broken = Store(None, "", logs={"t1": log})  # type: ignore[arg-type]
        assert sentences(task_promises.logs_are_dense_with_one_end, tmp_path, broken)


@pytest.mark.parametrize(
    ("seen", "snapshots", "kept"),
    [([3, 4], [2], True), ([4], [2], False), ([3, 3, 4], [2], False), ([4], [2, 3], False), ([3, 4, 5], [2], False)],
)
def test_a_stream_that_shows_something_else(
    tmp_path: Path, store: Store, seen: list[int], snapshots: list[int], *, kept: bool
) -> None:
    by_seq = {each.seq: json.loads(each.data) for each in store.logs["t1"][1:]}
    events = [[seq, digest({"statusUpdate": by_seq.get(seq, {})})] for seq in seen]
    answered(tmp_path, "stream", {"message": "m1"}, task="t1", state=None, events=events, snapshots=snapshots)
    assert (sentences(task_promises.streams_show_what_is_stored, tmp_path, store) == []) is kept


def test_an_end_that_was_answered_otherwise(tmp_path: Path, store: Store) -> None:
    answered(tmp_path, "get", {"task": "t1"}, task="t1", state="TASK_STATE_COMPLETED", error=None)
    assert sentences(task_promises.ends_stay, tmp_path, store) == []
    answered(tmp_path, "cancel", {"task": "t1"}, task="t1", state="TASK_STATE_CANCELED", error=None)
    assert sentences(task_promises.ends_stay, tmp_path, store)


def test_webhooks_that_are_missing_or_out_of_order(tmp_path: Path, store: Store) -> None:
    history = History(tmp_path, "client")
    history.note("hooked", message="m1", task="t1")
    for seq in (2, 3, 2, 4):
        history.note("arrival", task="t1", seq=seq)
    assert sentences(task_promises.webhooks_are_complete_and_in_order, tmp_path, store) == []
    (tmp_path / "more").mkdir()
    other = History(tmp_path / "more", "client")
    other.note("hooked", message="m1", task="t1")
    for seq in (2, 4, 3):
        other.note("arrival", task="t1", seq=seq)
    assert sentences(task_promises.webhooks_are_complete_and_in_order, tmp_path / "more", store)


def test_a_recorded_step_that_is_done_again(tmp_path: Path, store: Store) -> None:
    history = History(tmp_path, "agent")
    history.note("run", task="t1", fence=1, worker="a")
    history.note("effect", task="t1", step=0)
    history.note("recorded", task="t1", step=0)
    history.note("effect", task="t1", step=0)  # of a run that started earlier
    assert sentences(task_promises.recorded_steps_are_not_repeated, tmp_path, store) == []
    history.note("run", task="t1", fence=2, worker="a")
    history.note("effect", task="t1", step=0)
    assert sentences(task_promises.recorded_steps_are_not_repeated, tmp_path, store)


def test_a_fence_with_two_holders_or_one_that_falls(tmp_path: Path, store: Store) -> None:
    history = History(tmp_path, "agent")
    for fence, worker in ((1, "a"), (2, "b")):
        history.note("run", task="t1", fence=fence, worker=worker)
    assert sentences(task_promises.one_holder_per_fence, tmp_path, store) == []
    history.note("run", task="t1", fence=2, worker="c")
    late = {"by": "agent", "kind": "note", "what": "run", "key": "", "task": "t1", "fence": 1, "worker": "a"}
    line = json.dumps({"at": time.monotonic() + task_promises.LATE_SECONDS + 1, **late})
    (tmp_path / "late.jsonl").write_text(line)
    assert len(sentences(task_promises.one_holder_per_fence, tmp_path, store)) >= 2


def test_an_approved_tool_that_runs_elsewhere(tmp_path: Path, store: Store) -> None:
    """The process that gets the approval calls the tool; another one may still have the turn in memory."""
    one, two, client = (History(tmp_path, name) for name in ("one", "two", "client"))
    asked = client.ask("send", message="m1")
    one.note("run", task="t1", fence=1, worker="a")
    client.answer(asked, "send", task="t1", state="TASK_STATE_INPUT_REQUIRED")
    client.ask("decision", task="t1", reply="yes")
    two.note("run", task="t1", fence=2, worker="b")
    two.note("paid", turn="m1", call="t1.1.1.0")
    assert sentences(turn_promises.gates_hold_a_turn, tmp_path, store) == []
    one.note("paid", turn="m1", call="t1.1.1.0")
    assert sentences(turn_promises.gates_hold_a_turn, tmp_path, store)


@pytest.mark.parametrize(
    ("canceled", "state", "erasable"),
    [(True, "CANCELED", True), (True, None, True), (True, "COMPLETED", False), (False, "COMPLETED", False)],
)
def test_the_sweep_may_erase_only_canceled_tasks(
    tmp_path: Path, state: str | None, *, canceled: bool, erasable: bool
) -> None:
    stored = None if state is None else f"TASK_STATE_{state}"
    answered(tmp_path, "get", {"task": "t1"}, task="t1", state=stored, error=None)
    if canceled:
        History(tmp_path, "other").ask("cancel", task="t1")
    assert task_promises.erasable(read_histories(tmp_path)) == ({"t1"} if erasable else set())


async def test_an_erased_task_that_left_its_log(tmp_path: Path) -> None:
    """It may be left while the erasure is unfinished and recorded, but not after its acknowledgement."""
    async with open_storage("memory://") as kernel:
        await declare(kernel)
        scope = kernel.scoped(Principal("ann").partition)
        left = Store(kernel, "", erased=frozenset({"t1"}))

        async def found() -> list[str]:
            violations = await task_promises.nothing_is_left_of_erased_tasks(read_histories(tmp_path), left)
            return [sentence for sentence, _ in violations]

        assert await found() == []
        await scope.commit(Append(EVENTS, "t1", (Draft("status", b"{}"),)))
        assert await found() == ["task t1 was erased and has left: task_events"]
        record = b'{"face": "tasks", "subjects": [["task", "t1"]]}'
        await scope.commit(Put(ERASURES, "e1", record), Enqueue(ERASURES, "e1", ready_in=60.0))
        assert await found() == []
        answered(tmp_path, "erase", {"task": "t1"}, task="t1")
        assert await found() == ["task t1 was erased and has left: task_events"]


def popped(item: str | None, began: float) -> Asked:
    """Return a pop; None: its process was killed."""
    return Asked("pop", {"at": began}, {"at": began + 1, "item": item} if item else None)


@pytest.mark.parametrize(
    ("pops", "last", "words"),
    [
        ([], ["a.0", "a.1", "a.2"], ""),
        ([popped("a.2", 2)], ["a.0", "a.1"], ""),
        ([popped("a.2", 2), popped(None, 3), popped("a.0", 4)], [], ""),
        ([popped("a.0", 2), popped("a.2", 6), popped("a.1", 8)], [], "not there with the other items"),
        ([popped("a.0", 2)], ["a.1", "a.2"], "not there with the other items"),
        ([], ["a.0"], "2 items were added"),
        ([popped(None, 2)], ["a.0"], "2 items were added"),
    ],
)
def test_items_of_one_call_are_added_together(pops: list[Asked], last: list[str], words: str) -> None:
    """A pop takes the newest item, so that an item without those behind it was added without them."""
    adds = [Asked("add", {"at": 0.0, "name": "a"})]  # killed before its response
    found = list(item_violations(adds, pops, last, []))
    assert any(words in sentence for sentence in found) if words else found == []


def noted(at: float, what: str, pid: int, **about: Any) -> dict[str, Any]:
    return {"at": at, "what": what, "by": f"agent-{pid}", "pid": pid, "task": "t1", **about}


@pytest.mark.parametrize(
    ("more", "able", "undisturbed"),
    [
        ([noted(0, "ready", 2)], 4, [4]),
        ([noted(3, "ready", 2)], 2, []),
        ([noted(0, "ready", 2), noted(2, "fault", 2, fault="stop"), noted(4, "continued", 2)], 2, []),
        ([noted(0, "ready", 2), noted(2, "fault", 0, fault="full disk"), noted(3, "over", 0)], 3, []),
        ([noted(0, "ready", 3), noted(2, "died", 3), noted(4, "ready", 2)], 2, []),
    ],
)
def test_takeovers_without_a_live_process_are_distinguished(
    more: list[dict[str, Any]], able: float, undisturbed: list[float]
) -> None:
    """Process 1 is killed at second 1, and process 2 runs its task at second 5."""
    histories = Histories()
    for note in (noted(0, "run", 1), noted(1, "fault", 1, fault="kill"), noted(5, "run", 2), *more):
        histories.notes[note["what"]].append(note)
    assert takeovers(histories) == {"all": [4], "able": [able], "undisturbed": undisturbed}
