"""Promises of the framework adapters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from keelbolt.google_adk import KeelboltSessionService
from keelbolt.langgraph import KeelboltSaver
from keelbolt.openai_agents import KeelboltSession
from tests.chaos.final import Store, Violation, both
from tests.chaos.framework_user import APP, ITEMS, USER
from tests.chaos.history import Asked, Histories


def by(histories: Histories, what: str, place: str) -> dict[str, list[Asked]]:
    """Return all requests of a kind, by thread or session."""
    found: dict[str, list[Asked]] = defaultdict(list)
    for asked in histories.requests[what]:
        found[asked.asked[place]].append(asked)
    return found


def answered(asked: Sequence[Asked]) -> list[Asked]:
    """Return the requests that got a response without a refusal."""
    return [each for each in asked if each.answer is not None and each.answer.get("done", True)]


async def graph_threads_are_one_chain(histories: Histories, store: Store) -> list[Violation]:
    """Acknowledged checkpoints and writes of a LangGraph thread exist, in one chain: no run forks it silently."""
    found: list[Violation] = []
    runs, writes = by(histories, "graph", "thread"), by(histories, "writes", "thread")
    with KeelboltSaver(store.url) as saver:
        for thread, checkpoints in by(histories, "checkpoint", "thread").items():
            tuples = [each async for each in saver.alist({"configurable": {"thread_id": thread}})]
            stored = {each.checkpoint["id"]: each for each in tuples}
            found += [
                (f"a checkpoint of {thread} was acknowledged and is not there", both(asked))
                for asked in answered(checkpoints)
                if asked.asked["id"] not in stored
            ]
            for asked in answered(writes[thread]):
                checkpoint = stored.get(asked.asked["checkpoint"])
                if checkpoint is None:  # LangGraph writes concurrently with its put, which was refused
                    continue
                if asked.asked["task"] not in {task for task, *_ in checkpoint.pending_writes or ()}:
                    found.append((f"writes of {thread} were acknowledged and are not there", both(asked)))
            parents = [_parent(each) for each in tuples]
            found += [
                (f"{count} checkpoints of {thread} have the parent {parent}", [])
                for parent, count in Counter(parents).items()
                if count > 1
            ]
            missing = [parent for parent in parents if parent is not None and parent not in stored]
            found += [(f"the parent {parent} of a checkpoint of {thread} is not there", []) for parent in missing]
            head = await saver.aget_tuple({"configurable": {"thread_id": thread}})
            log = Counter(head.checkpoint["channel_values"].get("log", ()) if head is not None else ())
            for asked in answered(runs[thread]):
                name = asked.asked["name"]
                if name is not None and log[name] != 1:
                    found.append((f"the run {name} of {thread} is {log[name]} times in its last state", both(asked)))
    return found


def _parent(stored: Any) -> str | None:
    return str(stored.parent_config["configurable"]["checkpoint_id"]) if stored.parent_config else None


async def session_items_are_kept_in_order(histories: Histories, store: Store) -> list[Violation]:
    """Items of an OpenAI Agents session exist once, together and in order, until one caller pops them."""
    found: list[Violation] = []
    pops, reads = by(histories, "pop", "session"), by(histories, "items", "session")
    for name, adds in by(histories, "add", "session").items():
        async with KeelboltSession(name, store.url) as session:
            items: list[Any] = list(await session.get_items())
        last = [str(item["content"]) for item in items]
        sentences = item_violations(adds, pops[name], last, answered(reads[name]))
        found += [(f"{name}: {sentence}", []) for sentence in sentences]
    return found


def item_violations(adds: list[Asked], pops: list[Asked], last: list[str], shown: list[Asked]) -> Iterator[str]:
    """Yield what is wrong with the items of a session: ``last`` at the end, and in the reads ``shown``."""
    popped: dict[str, list[Asked]] = defaultdict(list)
    reads = [(float("inf"), last)]  # when each response arrived, and the items in it
    reads += [(asked.ended, (asked.answer or {})["items"]) for asked in shown]
    seen = list(reads)
    for asked in answered(pops):
        item = (asked.answer or {})["item"]
        if item:
            popped[item].append(asked)
            seen.append((asked.ended, [item]))
    for item, takers in popped.items():
        if len(takers) > 1:
            yield f"{item} was popped {len(takers)} times"
        if item in last:
            yield f"{item} was popped and is there"
    added = {f"{asked.asked['name']}.{at}" for asked in answered(adds) for at in range(ITEMS)}
    lost = added - popped.keys() - set(last)
    for ended, items in seen:
        for item in _rest(items):
            if item in last or (item in popped and popped[item][0].began > ended):
                yield f"{item} was not there with the other items of its call at first"
            elif item not in popped:
                lost.add(item)
    doubtful = sum(asked.answer is None for asked in pops)  # each killed process may have popped one
    if len(lost) > doubtful:
        yield f"{len(lost)} items were added and are not there, with {doubtful} pops in doubt: {min(lost)}"
    began = {asked.asked["name"]: asked for asked in adds}
    for _, items in reads:
        if len(set(items)) != len(items):
            yield f"an item is there twice: {items}"
        names = list(dict.fromkeys(item.rpartition(".")[0] for item in items))
        together = [item for name in names for item in sorted(each for each in items if each.startswith(f"{name}."))]
        if items != together:
            yield f"items that were added together are apart: {items}"
        for earlier, later in pairwise(names):
            if began[later].ended < began[earlier].began:
                yield f"{later} was added before {earlier} and is behind it"


def _rest(items: Sequence[str]) -> Iterator[str]:
    """Yield the items that are missing behind these: each was added by the same call as one of them."""
    newest: dict[str, int] = {}
    for name, _, number in (item.rpartition(".") for item in items):
        newest[name] = max(newest.get(name, 0), int(number))
    for name, last in newest.items():
        yield from (f"{name}.{missing}" for missing in range(last + 1, ITEMS))


async def adk_events_and_state_are_one(histories: Histories, store: Store) -> list[Violation]:
    """An acknowledged ADK event exists once, and the state of its session is the sum of its events."""
    found: list[Violation] = []
    async with KeelboltSessionService(store.url) as service:
        for name, appends in by(histories, "append", "session").items():
            session = await service.get_session(app_name=APP, user_id=USER, session_id=name)
            events = [event.invocation_id for event in session.events] if session is not None else []
            state = set(session.state) if session is not None else set()
            if len(set(events)) != len(events):
                found.append((f"{name} has an event twice", list(events)))
            if state != set(events):
                found.append((f"the state of {name} is not that of its events", sorted(state ^ set(events))))
            found += [
                (f"event {asked.asked['name']} of {name} was acknowledged and is not there", both(asked))
                for asked in answered(appends)
                if asked.asked["name"] not in events
            ]
    return found
