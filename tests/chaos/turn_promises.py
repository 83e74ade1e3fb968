"""Promises of turns with gates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from keelbolt.auth.principal import Principal
from keelbolt.turns import Registry, durable_storage
from tests.chaos.final import Store, Violation, began_after, both
from tests.chaos.history import Asked, Histories


def gates_hold_a_turn(histories: Histories, _store: Store) -> Iterator[Violation]:
    """A tool that needs an approval runs after a yes, where that is handled, and never after a no."""
    turns = {asked.answer["task"]: asked.asked["message"] for asked in histories.answered("send") if asked.answer}
    decisions: dict[str, Asked] = {}
    for asked in histories.requests["decision"]:
        decisions[turns[asked.asked["task"]]] = asked
    paid = {note["turn"] for note in histories.notes["paid"]}
    for note in histories.notes["paid"]:
        decision = decisions.get(note["turn"])
        if decision is None or decision.asked["reply"] == "no" or decision.began > note["at"]:
            yield f"the turn {note['turn']} paid without an approval", [note, *(both(decision) if decision else ())]
        elif not began_after(histories, note, decision.asked["task"], decision.asked):
            yield f"the turn {note['turn']} paid in a process that did not get the approval", [note, *both(decision)]
    for turn, asked in decisions.items():
        done = asked.answer is not None and asked.answer["state"] == "TASK_STATE_COMPLETED"
        if done and asked.asked["reply"] == "yes" and turn not in paid:
            yield f"the turn {turn} was approved and completed, and did not pay", both(asked)


def stored_results_are_not_repeated(histories: Histories, _store: Store) -> Iterator[Violation]:
    """The result of a tool is stored before the next step, so the call is not repeated; its id stays the same."""
    calls: dict[str, set[str]] = defaultdict(set)
    stored: dict[str, dict[str, Any]] = {}
    last: dict[tuple[str, str], dict[str, Any]] = {}  # by turn and process
    for note in sorted((*histories.notes["paid"], *histories.notes["result"]), key=lambda note: note["at"]):
        turn = note["turn"]
        if note["what"] == "result":
            stored.setdefault(turn, note)
            continue
        calls[turn].add(note["call"])
        task = note["call"].rsplit(".", 3)[0]  # a call is named <task>.<turn>.<iteration>.<index>
        before = last.get((turn, note["by"]))
        if before is not None and not began_after(histories, note, task, before):
            yield f"the turn {turn} paid twice in one run", [before, note]
        last[turn, note["by"]] = note
        if turn in stored and began_after(histories, note, task, stored[turn]):
            yield f"the turn {turn} had its result, and paid again", [stored[turn], note]
    for turn, ids in calls.items():
        if len(ids) > 1:
            yield f"the turn {turn} paid under {len(ids)} ids", sorted(ids)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A turn that only reads."""

    id: str
    stash: Registry


async def threads_of_turns_are_ordered(histories: Histories, store: Store) -> list[Violation]:
    """A thread has the messages of its turns in the order in which they were sent."""
    found: list[Violation] = []
    threads: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for asked in histories.answered("send"):
        assert asked.answer is not None
        if asked.asked["context"] is not None and asked.answer["task"] is not None:
            threads[asked.asked["owner"], asked.asked["context"]].append(asked)
    async with durable_storage(store.url) as storage:
        fetch: Any = storage.callbacks()["fetch_messages_callback"]
        for (owner, thread), sends in threads.items():
            scope = {"tenant": Principal(owner).partition, "thread": thread, "agent": ""}
            texts = [str(each.content) for each in await fetch(_Reader("reader", Registry({"scope": scope})))]
            gone = {asked.asked["message"] for asked in sends if asked.answer and asked.answer["task"] in store.erased}
            kept = [asked for asked in sends if asked.asked["message"] not in gone]
            firsts = {f"turn {asked.asked['message']}": asked for asked in reversed(kept)}
            wanted = sorted(firsts, key=lambda text: firsts[text].began)
            if Counter(text for text in texts if text in firsts) != Counter(wanted):
                found.append((f"the thread {thread} has {texts}, and {wanted} were sent", []))
                continue
            found += [
                (
                    f"in the thread {thread}, {later!r} is before {earlier!r}",
                    [*both(firsts[earlier]), *both(firsts[later])],
                )
                for earlier, later in pairwise(wanted)
                if _has_run(firsts[earlier]) and texts.index(later) < texts.index(earlier)
            ]
    return found


def _has_run(asked: Asked) -> bool:
    """Return whether the response shows that the turn has started. A stopping server responds before that."""
    return asked.answer is not None and asked.answer["state"] not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
