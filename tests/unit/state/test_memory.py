"""Short-term memory: strategies, budgets, health and recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from penguiflow.planner import memory as theirs

from keelbolt.errors import InvalidMemoryState, MemoryBudgetExceeded
from keelbolt.state.memory import (
    ConversationTurn,
    MemoryBudget,
    MemoryConversation,
    MemoryHealth,
    MemoryIsolation,
    MemoryKey,
    ShortTermMemory,
    ShortTermMemoryConfig,
    TrajectoryDigest,
    resolve_key,
    summarizer_of,
)
from keelbolt.state.memory.types import OverflowPolicy


def turn(number: int, *, chars: int = 0) -> ConversationTurn:
    return ConversationTurn(f"user {number}", f"answer {number}" + "x" * chars, ts=float(number))


class Summariser:
    """Joins its inputs. The first ``failures`` calls raise; the others wait at ``gate`` if there is one."""

    def __init__(self, failures: int = 0) -> None:
        self.calls: list[Mapping[str, Any]] = []
        self.failures = failures
        self.gate: asyncio.Event | None = None

    async def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.calls.append(request)
        if len(self.calls) <= self.failures:
            raise ConnectionError
        if self.gate is not None:
            await self.gate.wait()
        return {"summary": " ".join([request["previous_summary"], *(t["user"] for t in request["turns"])]).strip()}


class Clock:
    """A clock that advances only in sleep()."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Shelf:
    """A minimal store of memory states."""

    def __init__(self) -> None:
        self.states: dict[str, dict[str, Any]] = {}
        self.full = False

    async def save_memory_state(self, key: str, state: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        if self.full:
            raise OSError
        self.states[key] = state

    async def load_memory_state(self, key: str) -> dict[str, Any] | None:
        await asyncio.sleep(0)
        return self.states.get(key)


def rolling(summariser: Summariser, clock: Clock | None = None, **settings: Any) -> MemoryConversation:
    budget = settings.pop("budget", MemoryBudget(full_zone_turns=2))
    config = ShortTermMemoryConfig(strategy="rolling_summary", budget=budget, **settings)
    clock = clock or Clock()
    return MemoryConversation(config, summariser, clock=clock, sleep=clock.sleep)


async def context(memory: Any) -> dict[str, Any]:
    shown = await memory.get_llm_context()
    return dict(shown["conversation_memory"])


# ------------------------------------------------------------------------------------------------------- strategies


async def test_strategy_none_stores_nothing() -> None:
    memory = ShortTermMemory()
    await memory.add_turn(turn(1))
    assert await memory.get_llm_context() == {}
    assert memory.to_dict()["turns"] == []


async def test_rolling_summary() -> None:
    summariser = Summariser()
    memory = rolling(summariser)
    for number in range(5):
        await memory.add_turn(turn(number))
    assert [t["user"] for t in (await context(memory))["pending_turns"]] == ["user 0", "user 1", "user 2"]
    await memory.flush()
    assert await context(memory) == {
        "recent_turns": [{"user": f"user {n}", "assistant": f"answer {n}"} for n in (3, 4)],
        "summary": "user 0 user 1 user 2",
    }


async def test_a_turn_added_while_summarizing_is_not_lost() -> None:
    summariser = Summariser()
    summariser.gate = asyncio.Event()
    memory = rolling(summariser)
    for number in range(3):
        await memory.add_turn(turn(number))
    await asyncio.sleep(0)
    assert len(summariser.calls) == 1
    await memory.add_turn(turn(3))
    summariser.gate.set()
    await memory.flush()
    assert memory.summary == "user 0 user 1"


async def test_a_rolling_summary_needs_a_summariser() -> None:
    with pytest.raises(ValueError, match="summarizer"):
        ShortTermMemory(ShortTermMemoryConfig(strategy="rolling_summary"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"strategy": "other"},
        {"retry_attempts": -1},
        {"recovery_backlog_limit": -1},
        {"retry_backoff_base_s": -1.0},
        {"degraded_retry_interval_s": -1.0},
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ShortTermMemoryConfig(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"full_zone_turns": -1}, {"summary_max_tokens": 11, "total_max_tokens": 10}, {"overflow_policy": "shrug"}],
)
def test_wrong_budgets_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MemoryBudget(**wrong)


# ---------------------------------------------------------------------------------------------------------- budgets


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300), max_size=8),
    zone=st.integers(0, 4),
    total=st.integers(0, 200),
    strategy=st.sampled_from(["truncation", "rolling_summary"]),
)
async def test_the_context_equals_penguiflow_s(sizes: list[int], zone: int, total: int, strategy: Any) -> None:
    """The policy is "truncate_oldest"; summaries are made between turns, so that both are in the same state."""
    budget: dict[str, Any] = {
        "full_zone_turns": zone,
        "total_max_tokens": total,
        "summary_max_tokens": total // 4,
    }

    async def one(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"summary": (request["previous_summary"] + "".join(t["user"] for t in request["turns"]))}

    mine = ShortTermMemory(ShortTermMemoryConfig(strategy=strategy, budget=MemoryBudget(**budget)), summarizer=one)
    other = theirs.DefaultShortTermMemory(
        config=theirs.ShortTermMemoryConfig(strategy=strategy, budget=theirs.MemoryBudget(**budget)), summarizer=one
    )
    for number, size in enumerate(sizes):
        for memory in (mine, other):
            await memory.add_turn(turn(number, chars=size))
            await memory.flush()
        assert await mine.get_llm_context() == await other.get_llm_context()
        assert mine.estimate_tokens() == other.estimate_tokens()
    assert mine.to_dict() == other.to_dict()


@pytest.mark.parametrize("policy", get_args(OverflowPolicy))
async def test_overflow(policy: OverflowPolicy) -> None:
    """Every policy keeps the budget and drops the data that it names."""
    summariser = Summariser()
    budget = MemoryBudget(full_zone_turns=2, summary_max_tokens=40, total_max_tokens=60, overflow_policy=policy)
    memory = rolling(summariser, budget=budget)
    for number in range(4):
        await memory.add_turn(turn(number))
        await memory.flush()
    if policy == "error":
        before = memory.to_dict()
        with pytest.raises(MemoryBudgetExceeded):
            await memory.add_turn(turn(4, chars=400))
        assert memory.to_dict() == before
    else:
        await memory.add_turn(turn(4, chars=110))
        await memory.flush()
        kept = await context(memory)
        assert memory.estimate_tokens() <= 60
        whole = len(kept["recent_turns"]) == 2
        assert whole == (policy == "truncate_summary")


async def test_a_summary_is_cut_from_its_beginning() -> None:
    async def long(_request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"summary": "old " * 100 + "new"}

    memory = rolling(long, budget=MemoryBudget(full_zone_turns=0, summary_max_tokens=10))  # type: ignore[arg-type]
    await memory.add_turn(turn(1))
    await memory.flush()
    assert memory.summary.endswith("new")
    assert len(memory.summary) // 4 + 1 <= 10


async def test_a_summary_over_its_budget_is_a_failure_when_nothing_may_be_cut() -> None:
    async def long(_request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"summary": "x" * 100}

    budget = MemoryBudget(full_zone_turns=0, summary_max_tokens=10, overflow_policy="error")
    memory = rolling(long, budget=budget, retry_attempts=0)  # type: ignore[arg-type]
    await memory.add_turn(turn(1))
    await memory.flush()
    assert (memory.summary, memory.health) == ("", MemoryHealth.DEGRADED)
    assert len(memory.to_dict()["backlog"]) == 1
    await memory.close()


# ----------------------------------------------------------------------------------------------------------- health


async def test_retries_need_no_new_turn() -> None:
    """The second attempt starts after the backoff without another turn, and the memory is healthy again."""
    clock, seen = Clock(), []

    async def changed(old: MemoryHealth, new: MemoryHealth) -> None:
        seen.append((old.value, new.value))

    memory = rolling(Summariser(failures=1), clock, on_health_changed=changed)
    for number in range(3):
        await memory.add_turn(turn(number))
    await memory.flush()
    await asyncio.sleep(0)
    assert seen == [("healthy", "retry"), ("retry", "healthy")]
    assert (memory.summary, clock.slept[0]) == ("user 0", 2.0)


@pytest.mark.parametrize("more", [0, 1])
async def test_a_degraded_memory_recovers(more: int) -> None:
    """Recovery needs no further turn; a turn added meanwhile waits in the backlog."""
    clock, seen = Clock(), []

    async def changed(_old: MemoryHealth, new: MemoryHealth) -> None:
        seen.append(new.value)

    memory = rolling(Summariser(failures=5), clock, on_health_changed=changed, recovery_backlog_limit=3)
    for number in range(7):
        await memory.add_turn(turn(number))
    await memory.flush()
    assert memory.health is MemoryHealth.DEGRADED
    assert clock.slept[:3] == [2.0, 4.0, 8.0]
    assert set(await context(memory)) == {"recent_turns"}
    assert [t["user_message"] for t in memory.to_dict()["backlog"]] == ["user 2", "user 3", "user 4"]
    for number in range(more):
        await memory.add_turn(turn(7 + number))
    for _ in range(50):
        await asyncio.sleep(0)
    assert seen == ["retry", "degraded", "recovering", "degraded", "recovering", "healthy"]
    assert clock.slept[3:5] == [30.0, 30.0]
    expected = "user 3 user 4 user 5" if more else "user 2 user 3 user 4"
    assert (memory.summary, memory.to_dict()["backlog"]) == (expected, [])


async def test_a_memory_with_an_empty_backlog_recovers() -> None:
    """Recovery does not start for an empty backlog; the next turns start it."""
    seen = []

    async def changed(_old: MemoryHealth, new: MemoryHealth) -> None:
        seen.append(new.value)

    memory = rolling(Summariser(failures=1), retry_attempts=0, recovery_backlog_limit=0, on_health_changed=changed)
    for number in range(3):
        await memory.add_turn(turn(number))
    for _ in range(10):
        await asyncio.sleep(0)
    await memory.add_turn(turn(3))
    await memory.flush()
    assert (seen, memory.summary) == (["degraded", "healthy"], "user 1")


async def test_turns_added_during_recovery_are_summarized() -> None:
    """Calls of the model are sequential during recovery."""
    summariser = Summariser(failures=1)
    summariser.gate = asyncio.Event()
    memory = rolling(summariser, retry_attempts=0)
    for number in range(3):
        await memory.add_turn(turn(number))
    await memory.flush()
    for _ in range(5):
        await asyncio.sleep(0)
    assert memory.health is MemoryHealth.RECOVERING
    await memory.add_turn(turn(3))
    await memory.flush()  # flush has nothing to wait for until the memory is healthy
    assert (len(summariser.calls), memory.health.value) == (2, "recovering")
    summariser.gate.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (memory.summary, memory.to_dict()["pending"]) == ("user 0 user 1", [])
    assert len(summariser.calls) == 3


def test_a_recovery_is_restarted_after_its_loop_ended() -> None:
    summariser = Summariser(failures=1)
    summariser.gate = asyncio.Event()
    memory = rolling(summariser, retry_attempts=0)

    async def begin() -> None:
        for number in range(3):
            await memory.add_turn(turn(number))
        for _ in range(10):
            await asyncio.sleep(0)

    async def end() -> None:
        summariser.gate = None
        await memory.add_turn(turn(3))
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(begin())
    assert memory.health is MemoryHealth.RECOVERING
    asyncio.run(end())
    assert (memory.health, memory.summary) == (MemoryHealth.HEALTHY, "user 0 user 1")


@pytest.mark.parametrize("answer", [{}, {"summary": 1}, None, "text"])
async def test_an_invalid_summary_is_a_failure(answer: Any) -> None:
    async def wrong(_request: Mapping[str, Any]) -> Any:
        return answer

    memory = rolling(wrong, retry_attempts=0)  # type: ignore[arg-type]
    for number in range(3):
        await memory.add_turn(turn(number))
    await memory.flush()
    assert memory.health is MemoryHealth.DEGRADED
    await memory.close()


async def test_failing_callbacks_do_not_break_the_memory() -> None:
    async def wrong(*_arguments: Any) -> None:
        raise RuntimeError

    memory = rolling(Summariser(), on_turn_added=wrong, on_summary_updated=wrong, on_health_changed=wrong)
    for number in range(3):
        await memory.add_turn(turn(number))
    await memory.flush()
    assert memory.summary == "user 0"


# ---------------------------------------------------------------------------------------------------------- storing


async def test_a_summary_is_stored_when_it_is_made() -> None:
    """The planner persists before the summary exists; the summary must still be stored for the next run."""
    shelf, summariser = Shelf(), Summariser()
    memory = rolling(summariser)
    for number in range(6):
        await memory.hydrate(shelf, "k")
        await memory.add_turn(turn(number))
        await memory.persist(shelf, "k")
    await memory.flush()
    assert shelf.states["k"]["summary"] == "user 0 user 1 user 2 user 3"
    assert shelf.states["k"]["pending"] == []


async def test_the_next_process_finishes_an_interrupted_summary() -> None:
    shelf, summariser = Shelf(), Summariser()
    summariser.gate = asyncio.Event()
    first = rolling(summariser)
    for number in range(3):
        await first.add_turn(turn(number))
    await first.persist(shelf, "k")
    await first.close()
    second = rolling(Summariser())
    await second.hydrate(shelf, "k")
    await second.flush()
    assert shelf.states["k"]["summary"] == "user 0"


async def test_two_processes_keep_each_others_turns_and_one_summary() -> None:
    shelf = Shelf()
    one, two = rolling(Summariser()), rolling(Summariser())
    one_at_gate = Summariser()
    one_at_gate.gate = asyncio.Event()
    one = rolling(one_at_gate)
    for number in range(3):
        await one.add_turn(turn(number))
    await one.persist(shelf, "k")
    await two.hydrate(shelf, "k")
    await two.add_turn(turn(3))
    await two.persist(shelf, "k")
    await one.add_turn(turn(4))
    one_at_gate.gate.set()
    await one.flush()
    await one.persist(shelf, "k")
    await two.hydrate(shelf, "k")
    await two.flush()
    state = shelf.states["k"]
    assert [t["user_message"] for t in state["turns"]] == ["user 3", "user 4"]
    assert state["summary"].split() == ["user", "0", "user", "1", "user", "2"]
    assert state["pending"] == []


STEPS = st.tuples(st.sampled_from("ab"), st.sampled_from(["hydrate", "add", "persist", "flush", "unsaved", "turn"]))
UNSAVED = [("a", "add"), ("a", "add"), ("a", "unsaved"), ("b", "turn"), ("b", "turn"), ("b", "flush"), ("a", "persist")]
SAVED = [("a", "turn"), ("a", "turn"), ("a", "flush"), ("a", "turn"), ("a", "unsaved"), ("b", "turn"), ("b", "flush")]


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS))
@example(UNSAVED)
@example(SAVED)
async def test_two_processes_lose_nothing_and_keep_nothing_twice(steps: list[tuple[str, str]]) -> None:
    """For any sequence of operations, each turn ends up in the summary or next to it, exactly once.

    A started summary is finished at the next flush, also if other data was stored. (Reads and writes at the same
    moment are excluded: then the last writer wins, as the specification allows.)"""
    shelf, added = Shelf(), 0
    summarisers = {name: Summariser() for name in "ab"}
    memories = {name: rolling(summarisers[name], budget=MemoryBudget(full_zone_turns=1)) for name in "ab"}

    async def finish(name: str) -> None:
        gate, summarisers[name].gate = summarisers[name].gate, None
        if gate is not None:
            gate.set()
        await memories[name].flush()

    for name, step in steps:
        memory = memories[name]
        summarisers[name].gate = summarisers[name].gate or asyncio.Event()
        if step in ("hydrate", "turn"):
            await memory.hydrate(shelf, "k")
        if step in ("add", "turn"):
            await memory.add_turn(ConversationTurn(f"u{added}", "a", ts=float(added)))
            added += 1
        if step in ("persist", "turn"):
            await memory.persist(shelf, "k")
        if step in ("flush", "unsaved"):
            shelf.full = step == "unsaved"
            await finish(name)
            shelf.full = False
    for name in "abab":
        await memories[name].persist(shelf, "k")
        await finish(name)
    state = shelf.states["k"]
    beside = [each["user_message"] for zone in ("pending", "turns", "backlog") for each in state[zone]]
    assert sorted([*state["summary"].split(), *beside]) == sorted(f"u{number}" for number in range(added))


async def test_hydrate_drops_an_erased_memory() -> None:
    shelf = Shelf()
    memory = rolling(Summariser())
    await memory.add_turn(turn(1))
    await memory.persist(shelf, "k")
    shelf.states.clear()
    await memory.hydrate(shelf, "k")
    assert memory.to_dict()["turns"] == []


async def test_a_failing_store_does_not_break_the_memory() -> None:
    class Away(Shelf):
        async def load_memory_state(self, key: str) -> dict[str, Any] | None:
            raise ConnectionError

    memory = rolling(Summariser())
    with pytest.raises(ConnectionError):
        await memory.persist(Away(), "k")
    for number in range(3):
        await memory.add_turn(turn(number))
    await memory.flush()
    assert (memory.health, memory.summary) == (MemoryHealth.HEALTHY, "user 0")


async def test_stored_memories_are_compatible_with_penguiflow() -> None:
    digest = theirs.TrajectoryDigest(["tool"], "seen", None, ["ref"])
    other = theirs.DefaultShortTermMemory(config=theirs.ShortTermMemoryConfig(strategy="truncation"))
    await other.add_turn(theirs.ConversationTurn("u", "a", digest, {"x": 1}, ["y"], 1.5))
    mine = ShortTermMemory(ShortTermMemoryConfig(strategy="truncation"))
    mine.from_dict(other.to_dict())
    assert mine.to_dict() == other.to_dict()
    await mine.add_turn(theirs.ConversationTurn("u2", "a2", None))
    other.from_dict(mine.to_dict())
    assert mine.to_dict() == other.to_dict()
    assert mine.to_dict()["turns"][0]["trajectory_digest"]["tools_invoked"] == ["tool"]


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"version": 2, "health": "healthy"},
        {"version": 1, "health": "fine"},
        {"version": 1, "health": "healthy", "turns": "abc"},
        {"version": 1, "health": "healthy", "turns": ["abc"]},
        {"version": 1, "health": "healthy", "pending": [{"trajectory_digest": 1}]},
    ],
)
async def test_invalid_memory_states_are_refused_without_changes(state: dict[str, Any]) -> None:
    memory = rolling(Summariser())
    await memory.add_turn(turn(1))
    before = memory.to_dict()
    with pytest.raises(InvalidMemoryState):
        memory.from_dict(state)
    assert memory.to_dict() == before


@pytest.mark.parametrize("health", ["retry", "degraded", "recovering"])
async def test_a_stored_degraded_memory_recovers_in_the_next_process(health: str) -> None:
    shelf = Shelf()
    sick = rolling(Summariser())
    waiting = {"user_message": "user 0", "assistant_response": "a"}
    zone = "pending" if health == "retry" else "backlog"
    shelf.states["k"] = {**sick.to_dict(), "health": health, zone: [waiting]}
    memory = rolling(Summariser())
    await memory.hydrate(shelf, "k")
    for _ in range(50):
        await asyncio.sleep(0)
    assert (memory.health, memory.summary) == (MemoryHealth.HEALTHY, "user 0")
    assert shelf.states["k"]["summary"] == "user 0"


# -------------------------------------------------------------------------------------------------------- isolation


async def test_concurrent_sessions_are_isolated() -> None:
    """A planner has one memory object; hydrate selects the conversation in the task of the run."""
    memory, shelf = ShortTermMemory(ShortTermMemoryConfig(strategy="truncation")), Shelf()

    async def run(key: str) -> list[str]:
        seen = []
        for number in range(4):
            await memory.hydrate(shelf, key)
            await asyncio.sleep(0)
            seen = [t["user"] for t in (await context(memory))["recent_turns"]]
            await asyncio.sleep(0)
            await memory.add_turn(ConversationTurn(key, str(number)))
            await memory.persist(shelf, key)
        return seen

    found = await asyncio.gather(*(run(key) for key in "abc"))
    assert found == [[key] * 3 for key in "abc"]


async def test_the_number_of_cached_conversations_is_limited() -> None:
    memory = ShortTermMemory(ShortTermMemoryConfig(strategy="truncation"), max_conversations=2)
    shelf = Shelf()
    for key in "abc":
        await memory.hydrate(shelf, key)
        await memory.add_turn(ConversationTurn(key, key))
        await memory.persist(shelf, key)
    assert memory.of("b") is memory.of("b")
    assert memory.of("a").to_dict()["turns"] == []  # evicted from the cache, and stored
    await memory.hydrate(shelf, "a")
    assert [t["user"] for t in (await context(memory))["recent_turns"]] == ["a"]


def test_keys_are_found_in_a_tool_context() -> None:
    isolation = MemoryIsolation(session_key="auth.session")
    assert resolve_key({"auth": {"session": " s "}, "tenant_id": 5}, isolation) == MemoryKey("5", "anonymous", "s")
    assert resolve_key({"session_id": "s"}, isolation) is None
    assert resolve_key(None, isolation, explicit=MemoryKey("t", "u", "s")) == MemoryKey("t", "u", "s")
    free = MemoryIsolation(require_explicit_key=False)
    assert resolve_key({}, free) != resolve_key({}, free)
    with pytest.raises(ValueError, match="user_key"):
        MemoryIsolation(user_key="")


@given(st.lists(st.text(alphabet=":%3Aa", min_size=1, max_size=4), min_size=6, max_size=6))
def test_different_keys_have_different_texts(parts: list[str]) -> None:
    one, two = MemoryKey(*parts[:3]), MemoryKey(*parts[3:])
    assert (one.composite() == two.composite()) == (one == two)


def test_a_plain_key_is_as_the_specification_says() -> None:
    assert MemoryKey("t", "u", "s:1").composite() == "t:u:s:1"


# ------------------------------------------------------------------------------------------------------ summarisers


@pytest.mark.parametrize(
    "answer", ['{"summary": "hello"}', ('{"summary": "<session_summary>x</session_summary>"}', 0.1)]
)
async def test_a_client_of_a_planner_can_summarise(answer: Any) -> None:
    class Client:
        async def complete(self, *, messages: Any, response_format: Any = None) -> Any:
            assert response_format["json_schema"]["schema"]["required"] == ["summary"]
            assert "user 0" in messages[1]["content"]
            return answer

    memory = rolling(summarizer_of(Client()))  # type: ignore[arg-type]
    for number in range(3):
        await memory.add_turn(turn(number))
    await memory.flush()
    assert memory.summary.startswith("<session_summary>")


def test_a_digest_is_shown_when_wanted() -> None:
    exchange = ConversationTurn("u", "a", TrajectoryDigest(["t"], "o"))
    memory = ShortTermMemory(ShortTermMemoryConfig(strategy="truncation", include_trajectory_digest=False))
    asyncio.run(memory.add_turn(exchange))
    assert asyncio.run(memory.get_llm_context()) == {
        "conversation_memory": {"recent_turns": [{"user": "u", "assistant": "a"}]}
    }


async def test_flush_ends_if_another_strategy_loads_pending_turns() -> None:
    """A program that no longer summarises can load and flush the state of one that did."""
    rolling = MemoryConversation(ShortTermMemoryConfig(strategy="rolling_summary"), Summariser())
    state = rolling.to_dict() | {"pending": [{"user_message": "user 1", "assistant_response": "answer 1"}]}
    conversation = MemoryConversation(ShortTermMemoryConfig(strategy="truncation"))
    conversation.from_dict(state)
    await conversation.flush()
    assert conversation.to_dict()["pending"] != []
