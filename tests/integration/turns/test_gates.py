"""Stored gates are settled by other processes, by the first caller, and after a restart."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from keelbolt.errors import (
    InvalidInitialTurnGateValue,
    InvalidTurnGateResolution,
    TurnError,
    TurnGateAborted,
    TurnGateRejected,
    TurnGateTimeout,
    TurnStorageDuplicateId,
    TurnStorageNotFound,
)
from keelbolt.turns import DurableStorage, TurnGate, TurnInput, TurnResult, durable_storage
from keelbolt.turns.durable.gates import DurableGates


class Amount(BaseModel):
    amount: int


ANSWER = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


def turn(thread: str = "t1", turn_id: str | None = "turn-1", tenant: str = "acme", **more: Any) -> TurnInput:
    scope = {"scope": {"tenant": tenant, "thread": thread}}
    return TurnInput(system_prompt="Wait.", stash={**scope, **more}, turn_id=turn_id)


class Asking:
    """An agent that waits at one gate and stores its result."""

    def __init__(self, storage: DurableStorage, **gate: Any) -> None:
        self.gate = {"reason": "May I?", **gate}
        self.answers: list[Any] = []
        self.opened: asyncio.Queue[TurnGate] = asyncio.Queue()
        self.runner = storage.runner(executor_callback=self.execute)
        self.runner.observe("turn_gate_open", self.opened.put_nowait)

    async def execute(self, ctx: Any, _helpers: Any) -> None:
        try:
            self.answers.append(await ctx.wait_for(**self.gate))
        except TurnError as error:
            self.answers.append(error)
        ctx.ack()

    async def begin(self, given: TurnInput | None = None) -> tuple[asyncio.Task[Any], str]:
        """Run the agent up to its gate; return the run and the gate's token."""
        running = asyncio.create_task(self.runner.run_result(given or turn()))
        gate = await asyncio.wait_for(self.opened.get(), 20)
        assert gate.token is not None
        return running, gate.token

    async def stop(self, running: asyncio.Task[Any]) -> None:
        """Simulate the end of the process: the gate stays open."""
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


SETTLES: list[tuple[str, Any, str, Any]] = [
    ("resolve", {"amount": 5}, "resolved", {"amount": 5}),
    ("reject", "too much", "rejected", TurnGateRejected),
    ("abort", "enough", "aborted", TurnGateAborted),
]


@pytest.mark.parametrize("restart", [False, True], ids=["waiting", "restarted"])
@pytest.mark.parametrize(("settle", "with_", "result", "outcome"), SETTLES, ids=[row[0] for row in SETTLES])
async def test_settled_from_elsewhere(
    storage: DurableStorage, settle: str, with_: Any, result: str, outcome: Any, restart: bool
) -> None:
    """Any process with the token can settle the gate; a repeated turn gets the answer at once without asking again."""
    agent = Asking(storage, schema=ANSWER)
    running, token = await agent.begin()
    if restart:
        await agent.stop(running)
        agent = Asking(storage, schema=ANSWER)
    elsewhere = DurableGates(storage.kernel)
    (listed,) = await elsewhere.list()
    assert (listed.token, listed.reason, listed.schema, listed.tenant, listed.thread) == (
        token,
        "May I?",
        ANSWER,
        "acme",
        "t1",
    )
    settled = await getattr(elsewhere, settle)(token, with_)
    assert settled.result == result
    again = await elsewhere.resolve(token, {"amount": 6})
    assert (again.result, again.value) == (settled.result, settled.value)
    ended = await agent.runner.run_result(turn()) if restart else await asyncio.wait_for(running, 20)
    assert ended.ok
    (answer,) = agent.answers
    assert answer == outcome if result == "resolved" else type(answer) is outcome
    assert result == "resolved" or str(with_) in str(answer)
    assert await elsewhere.list() == []
    assert [gate.token for gate in await elsewhere.list(state="settled")] == [token]
    assert agent.opened.empty()


async def test_another_process_settles(lasting_url: str) -> None:
    """Two storages share only the URL: the commit of one wakes the other."""
    async with durable_storage(lasting_url) as one, durable_storage(lasting_url) as other:
        agent = Asking(one)
        running, token = await agent.begin()
        await other.gates.resolve(token, "go on")
        assert (await asyncio.wait_for(running, 20)).ok
        assert agent.answers == ["go on"]


async def test_first_settle_wins(storage: DurableStorage) -> None:
    """One of ten concurrent calls settles the gate; all callers and the turn get its result."""
    agent = Asking(storage)
    running, token = await agent.begin()
    resolved_gates = await asyncio.gather(*(storage.gates.resolve(token, number) for number in range(10)))
    await running
    assert {gate.value for gate in resolved_gates} == set(agent.answers)
    assert len(agent.answers) == 1


async def test_answers_are_checked_by_the_settling_process(storage: DurableStorage) -> None:
    agent = Asking(storage, schema=Amount)
    running, token = await agent.begin()
    for wrong in ({"amount": "much"}, {}, None, object()):
        with pytest.raises(InvalidTurnGateResolution):
            await storage.gates.resolve(token, wrong)
    assert not (await storage.gates.get(token)).settled
    await storage.gates.resolve(token, {"amount": 5})
    await running
    assert agent.answers == [Amount(amount=5)]


async def test_a_check_function_runs_in_the_process_of_the_turn(storage: DurableStorage) -> None:
    """The turn refuses a value that another process can't check, and the gate is open again."""
    refused = asyncio.Event()

    def even(value: Any) -> Any:
        if value % 2:
            refused.set()
            raise ValueError("it is odd")
        return value

    agent = Asking(storage, schema=even)
    running, token = await agent.begin()
    await storage.gates.resolve(token, 3)
    await asyncio.wait_for(refused.wait(), 20)
    while (await storage.gates.resolve(token, 4)).value != 4:  # noqa: ASYNC110 - the refused one is not taken back yet
        await asyncio.sleep(0.01)
    await running
    assert agent.answers == [4]


async def test_the_timeout_counts_from_the_first_opening(storage: DurableStorage) -> None:
    """An answer after the deadline is ignored, even if no process ran at the deadline."""
    agent = Asking(storage, timeout_ms=3_600_000, created_at=datetime.now(UTC) - timedelta(hours=2))
    waited = await asyncio.wait_for(agent.runner.run_result(turn(turn_id="a")), 20)
    assert (waited.ok, type(agent.answers[0])) == (True, TurnGateTimeout)

    gate = TurnGate(turn_id="b", id="g", reason="?", timeout_ms=60_000, created_at=datetime.now(UTC) - timedelta(1))
    assert await storage.gates.open(waited.context, gate) is None
    assert gate.token is not None
    late = await storage.gates.resolve(gate.token, 1)
    assert (late.result, late.value) == ("timeout", None)


async def test_a_clock_that_was_set_back_extends_no_time_limit(storage: DurableStorage) -> None:
    agent = Asking(storage, timeout_ms=50, created_at=datetime.now(UTC) + timedelta(hours=2))
    assert (await asyncio.wait_for(agent.runner.run_result(turn()), 20)).ok
    assert type(agent.answers[0]) is TurnGateTimeout


async def test_a_gate_is_reused_only_for_the_same_question(storage: DurableStorage) -> None:
    """An approval is never used for another question: gates are identified by id, or else by their question."""
    agent = Asking(storage, id="g", payload={"to": "Ann"})
    running, token = await agent.begin()
    await agent.stop(running)
    await storage.gates.resolve(token, True)
    other = Asking(storage, id="g", payload={"to": "Bob"})
    assert (await other.runner.run_result(turn())).ok
    assert type(other.answers[0]) is TurnStorageDuplicateId

    agent = Asking(storage, payload={"to": "Ann"})
    running, token = await agent.begin(turn(turn_id="turn-2"))
    await agent.stop(running)
    await storage.gates.resolve(token, True)
    other = Asking(storage, payload={"to": "Bob"})
    running, another = await other.begin(turn(turn_id="turn-2"))
    assert another != token
    await other.stop(running)


@pytest.mark.parametrize("token", ["", "x", "a.b", "fn4.secret", "é.b", None, 5, "A" * 1000])
async def test_invalid_tokens_are_refused(storage: DurableStorage, token: Any) -> None:
    with pytest.raises(TurnStorageNotFound, match="no gate has this token"):
        await storage.gates.resolve(token, 1)


async def test_a_gate_that_can_not_be_stored_is_refused(storage: DurableStorage) -> None:
    agent = Asking(storage, payload=object())
    assert (await agent.runner.run_result(turn())).ok
    assert type(agent.answers[0]) is InvalidInitialTurnGateValue


async def test_gates_are_erased_with_their_thread(storage: DurableStorage) -> None:
    """Erasing a thread erases its gates; other threads keep theirs."""
    agents = [Asking(storage), Asking(storage)]
    runs = [await agent.begin(turn(f"t{n}", f"turn-{n}")) for n, agent in enumerate(agents)]
    await storage.erase("acme", thread="t0")
    with pytest.raises(TurnStorageNotFound):
        await storage.gates.get(runs[0][1])
    assert [gate.token for gate in await storage.gates.list(tenant="acme")] == [runs[1][1]]
    await storage.erase("acme")
    assert await storage.gates.list() == []
    for running, _ in runs:
        running.cancel()
    for outcome in await asyncio.gather(*(running for running, _ in runs), return_exceptions=True):
        # A turn may see that its gate was erased, and end, before it is cancelled.
        assert isinstance(outcome, asyncio.CancelledError | TurnResult)
    assert [record async for record in storage.export("acme")] == []


async def test_gates_are_removed_a_day_after_the_turn_ended(url: str) -> None:
    """Until then a repeated turn is recognized as ended; a turn that has not ended is never removed."""
    days = 0

    def clock() -> float:
        return 1_800_000_000.0 + days * 86_400

    async with durable_storage(url, clock=clock) as storage:
        agent = Asking(storage)
        running, token = await agent.begin()
        await storage.gates.resolve(token, True)
        assert (await running).ok
        waiting, open_token = await agent.begin(turn(turn_id="turn-2"))
        await agent.stop(waiting)
        await storage.purge()
        assert (await storage.gates.get(token)).settled
        assert (await agent.runner.run_result(turn())).iterations == 0
        days = 3
        await storage.purge(older_than=86_400)
        with pytest.raises(TurnStorageNotFound):
            await storage.gates.get(token)
        assert [gate.token for gate in await storage.gates.list()] == [open_token]
