"""A turn runner as the worker of an agent server: a message starts a turn, a gate asks a question, a cancel aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from keelbolt.errors import (
    DispatchNacked,
    InvalidTurnGateResolution,
    InvalidValue,
    StorageBusy,
    StorageUnavailable,
    TurnError,
    TurnGateRejected,
    TurnStorageNotFound,
    TurnTakenOver,
)
from keelbolt.tasks import Dependency, TaskContext, TaskManager, Worker
from keelbolt.turns.abort import AbortController
from keelbolt.turns.context import TurnContext, TurnInput
from keelbolt.turns.durable.adapter import DurableStorage
from keelbolt.turns.durable.families import TurnAddress
from keelbolt.turns.durable.gate_records import StoredGate
from keelbolt.turns.durable.gates import DurableGates
from keelbolt.turns.events import Listener, TurnGateClosed
from keelbolt.turns.gates import Settlement, TurnGate, read_gate_answer, reply_hint
from keelbolt.turns.middleware import Next
from keelbolt.turns.primitives import Tokenizable
from keelbolt.turns.registry import Registry
from keelbolt.turns.relay import SHOWN, ReportRelay, incoming
from keelbolt.turns.runner import TurnResult, TurnRunner
from keelbolt.turns.task_turns import WAKE, TaskTurn, Waker

CANCEL_SECONDS = 0.1  # interval at which a cancel of the task is checked
HEED_SECONDS = 1.0  # time to end after an abort, before the turn is cancelled
PARKED_SECONDS = 600.0  # time that a turn stays in memory while its task asks
ENDED_SECONDS = 30.0  # the same after its gate was settled; if the answer is handled here, that takes milliseconds
MAX_PARKED = 1000  # turns in memory whose tasks ask; the one that waits longest is dropped first
FAILED = "The agent failed while it worked on this task."

Prompt = str | Tokenizable | Callable[[TaskContext], str | Tokenizable]
Stash = Callable[[TaskContext], Mapping[str, Any]]


def turn_worker(
    runner: TurnRunner,
    storage: DurableStorage,
    *,
    system_prompt: Prompt,
    agent: str = "",
    stash: Stash | None = None,
    show: Collection[str] = SHOWN,
) -> TurnWorker:
    """Return a worker that runs a turn for each message, on a runner created by ``storage.runner(…)``.

        server = A2AServer(worker=turn_worker(runner, storage, system_prompt="Be kind."), agent_card=card)

    The thread is the context of the task, the tenant is its owner (the partition of the principal), and ``agent``
    separates memories if several agents share a storage. ``stash`` returns additional values for the stash of a turn;
    ``show`` lists the reports that clients see besides the answer: any of message, thought, tool_call. A storage that
    is not open is opened and closed with the server.
    """
    if runner.gate_store is not storage.gates or runner.progress_store is not storage.progress:
        raise InvalidValue("this runner does not store its turns in this storage; create it with storage.runner(…)")
    if unknown := [name for name in show if name not in SHOWN]:
        raise InvalidValue(f"show: unknown name {unknown[0]!r}; the names are {', '.join(SHOWN)}")
    return TurnWorker(runner, storage, system_prompt=system_prompt, agent=agent, stash=stash, show=show)


@dataclass(frozen=True, slots=True)
class _Named:
    """A turn with the attributes that storage needs, before it runs."""

    id: str
    stash: Registry


@dataclass(slots=True)
class _Under:
    """A running turn of a task. While the task asks, it stays in memory and waits at its gates."""

    task: TaskContext
    turn_id: str
    place: TurnAddress
    relay: ReportRelay
    controller: AbortController = field(default_factory=AbortController)
    open: dict[str, TurnGate] = field(default_factory=dict)  # gates that wait for an answer, in order
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # a gate was opened or closed
    turning: asyncio.Task[TurnResult] | None = None
    expiry: asyncio.TimerHandle | None = None
    run: int = 0  # of the turn; a later run in another process takes the turn over
    here: asyncio.Event = field(default_factory=asyncio.Event)  # set while the task runs in this process
    settled: bool = False  # a gate was settled while the task asked

    def opened(self, gate: TurnGate) -> None:
        def note() -> None:  # listeners of the runner may settle it immediately
            if not gate.settled:
                self.open[gate.id] = gate
                self.changed.set()

        asyncio.get_running_loop().call_soon(note)

    def closed(self, closed: TurnGateClosed) -> None:
        self.open.pop(closed.gate_id, None)
        self.changed.set()


@dataclass(frozen=True, slots=True)
class _TaskGates:
    """The gates of a turn of a task. A turn passes a settled gate when its task runs in this process.

    While the task asks, any process may get the answer, and that process continues the turn. A turn that waits in the
    memory of another process must not continue too: it would call the approved tool a second time.
    """

    gates: DurableGates
    under: _Under
    hurry: Callable[[_Under], None]

    async def open(self, ctx: TurnContext, gate: TurnGate) -> Settlement | None:
        settlement = await self.gates.open(ctx, gate)
        return settlement if settlement is None else await self._held(settlement)

    async def settle(self, ctx: TurnContext, gate: TurnGate, settlement: Settlement) -> Settlement:
        asking = not self.under.here.is_set()
        return await self._held(await self.gates.settle(ctx, gate, settlement, asking=asking))

    async def wait(self, ctx: TurnContext, gate: TurnGate) -> Settlement:
        return await self._held(await self.gates.wait(ctx, gate))

    async def _held(self, settlement: Settlement) -> Settlement:
        if not (self.under.here.is_set() or self.under.controller.signal.aborted):  # an aborted turn only ends
            self.under.settled = True
            self.hurry(self.under)
            await self.under.here.wait()
        return settlement


class TurnWorker(Worker, Dependency):
    """Created by `turn_worker`."""

    def __init__(
        self,
        runner: TurnRunner,
        storage: DurableStorage,
        *,
        system_prompt: Prompt,
        agent: str,
        stash: Stash | None,
        show: Collection[str],
    ) -> None:
        self._runner = runner
        self._storage = storage
        self._prompt = system_prompt
        self._agent = agent
        self._more = stash
        self._show = frozenset(show)
        self._opened = False
        self._tasks: TaskManager | None = None
        self._waker: Waker | None = None
        self._parked: dict[str, _Under] = {}  # turns whose tasks ask, by turn id

    def attach(self, tasks: TaskManager) -> None:
        self._tasks = tasks

    async def startup(self) -> None:
        if not self._storage.is_open:
            await self._storage.open()
            self._opened = True
        if self._tasks is not None:
            self._waker = Waker(self._storage.kernel, self._storage.gates, self._tasks)
            self._waker.start()

    async def shutdown(self) -> None:
        if self._waker is not None:
            await self._waker.stop()
            self._waker = None
        for under in list(self._parked.values()):
            await self._let_go(under)
        if self._opened:
            self._opened = False
            await self._storage.close()

    # ---------------------------------------------------------------------------------------------- selecting the turn

    async def handle(self, task: TaskContext) -> None:
        """Find the turn that this message starts or answers, and run it."""
        stash = self._stash(task)
        fresh = f"{task.task_id}.{task.turn}"
        place = self._storage.place(_Named(fresh, Registry(stash)))
        entry = await TaskTurn.load(place, task.task_id)
        woken = await self._woken(task)
        if woken is not None:
            entry = TaskTurn(woken.turn_id, task.turn, woken.token)
            await entry.store(place, task.task_id)
        elif entry is not None and entry.waiting and entry.through < task.turn:
            if not await self._answered(task, entry, stash):
                return
            entry = TaskTurn(entry.turn_id, task.turn, entry.token)
            await entry.store(place, task.task_id)
        turn_id = entry.turn_id if entry is not None and entry.through >= task.turn else fresh
        under = await self._unparked(task, _Named(turn_id, Registry(stash)))
        await self._run(under or _Under(task, turn_id, place, ReportRelay(task, turn_id, self._show)), stash)

    async def _woken(self, task: TaskContext) -> StoredGate | None:
        """Return the gate of this task that was settled elsewhere, if the message names one."""
        for data in task.data_parts:
            if isinstance(data, Mapping) and WAKE in data:
                try:
                    gate = await self._storage.gates.get(data[WAKE])
                except TurnStorageNotFound:
                    return None
                return gate if gate.settled and gate.task_id == task.task_id else None
        return None

    async def _answered(self, task: TaskContext, entry: TaskTurn, stash: Mapping[str, Any]) -> bool:
        """Settle the gate with this message and return True; if it is not an answer, ask again and return False.

        A message that was sent before the question is not an answer. It is stored as a message of the turn.
        """
        assert entry.token is not None
        gates = self._storage.gates
        try:
            gate = await gates.get(entry.token)
        except TurnStorageNotFound:  # erased; the turn will ask again
            return True
        if task.sent_while_working and not gate.settled:
            named = _Named(entry.turn_id, Registry(stash))
            message = await incoming(task, self._storage, named)
            await self._storage.callbacks()["store_message_callback"](named, message)  # type: ignore[arg-type]
            await self._ask(task, entry, gate)
            return False
        try:
            await gates.answer(entry.token, read_gate_answer(task.user_text, task.data_parts, gate.schema))
        except InvalidTurnGateResolution as wrong:
            await self._ask(task, entry, gate, f"{wrong.__cause__ or wrong}")
            return False
        return True

    async def _ask(self, task: TaskContext, entry: TaskTurn, gate: StoredGate, problem: str = "") -> None:
        """Ask the question (again); the turn keeps waiting."""
        if entry.through < task.turn:
            again = TaskTurn(entry.turn_id, task.turn, entry.token, waiting=True)
            place = self._storage.place(_Named(entry.turn_id, Registry(self._stash(task))))
            await again.store(place, task.task_id)
        text = f"{gate.reason} ({problem})" if problem else gate.reason
        hint = reply_hint(gate.schema)
        await task.request_input(f"{text}\n{hint}" if hint else text, data=_question(gate))

    def _stash(self, task: TaskContext) -> dict[str, Any]:
        who = task.principal
        about = {
            "taskId": task.task_id,
            "contextId": task.context_id,
            "messageId": task.message_id,
            "owner": who.owner,
            "tenant": who.tenant,
            "askedTenant": who.asked_tenant,
        }
        more = {} if self._more is None else self._more(task)
        scope = {"tenant": who.partition, "thread": task.context_id, "agent": self._agent}
        return {**more, "scope": scope, "task": about}

    # --------------------------------------------------------------------------------------------- while the task asks

    def _park(self, under: _Under) -> None:
        """Keep the turn in memory while the task asks: it waits at its gates, and its other work continues."""
        assert under.turning is not None
        self._parked[under.turn_id] = under
        seconds = ENDED_SECONDS if under.settled else PARKED_SECONDS
        under.expiry = asyncio.get_running_loop().call_later(seconds, self._expire, under)
        under.turning.add_done_callback(lambda _: self._hurry(under))
        if len(self._parked) > MAX_PARKED:
            self._expire(next(iter(self._parked.values())))

    def _hurry(self, under: _Under) -> None:
        """Free the memory of a parked turn soon after its end, or after an answer that another process may handle."""
        if self._parked.get(under.turn_id) is under:
            assert under.expiry is not None
            under.expiry.cancel()
            under.expiry = asyncio.get_running_loop().call_later(ENDED_SECONDS, self._expire, under)

    async def _unparked(self, task: TaskContext, named: _Named) -> _Under | None:
        """Return the turn from memory, unless another process has begun it again since."""
        under = self._parked.get(named.id)
        if under is None:
            return None
        latest = await self._storage.progress.latest_run(named)
        if self._parked.get(named.id) is not under:  # it expired meanwhile
            return None
        if latest != under.run:
            await self._let_go(under)
            return None
        del self._parked[named.id]
        assert under.expiry is not None
        under.expiry.cancel()
        under.task, under.settled = task, False
        under.relay.resume(task)
        return under

    def _expire(self, under: _Under) -> None:
        """Free the memory of a turn that waits too long; a later answer repeats its iteration."""
        if self._parked.get(under.turn_id) is under:
            del self._parked[under.turn_id]
            if under.expiry is not None:
                under.expiry.cancel()
            if under.turning is not None:
                under.turning.cancel()
                under.turning = None  # its frames refer to this turn

    async def _let_go(self, under: _Under) -> None:
        turning = under.turning
        self._expire(under)
        if turning is not None:
            await asyncio.wait({turning})

    # ------------------------------------------------------------------------------------------------ running the turn

    async def _run(self, under: _Under, stash: Mapping[str, Any]) -> None:
        """Run the turn to its end, or to a gate that is not settled at once."""
        under.here.set()
        if under.turning is None:
            under.turning = asyncio.create_task(self._turn(under, stash))
        turning, parked = under.turning, False
        pumping = asyncio.create_task(under.relay.pump())
        heeding = asyncio.create_task(_heed(under.task, under.controller, turning))
        try:
            async with under.task.shielded():  # a cancel aborts the turn, which then ends by itself
                await self._until_gate_or_end(under, pumping)
            gate = None if turning.done() else next(iter(under.open.values()))
            under.relay.close(ended=gate is None)
            await pumping
            if gate is not None:
                await self._wait(under, gate)
                self._park(under)
                parked = True
            elif turning.cancelled():
                await self._torn(under.task)
            else:
                await self._end(under, turning.result())
        finally:
            if not parked:
                under.turning = None  # its result refers to this turn
            for each in (pumping, heeding, *(() if parked else (turning,))):
                await _ended(each)

    async def _until_gate_or_end(self, under: _Under, pumping: asyncio.Task[None]) -> None:
        """Wait until the turn has ended or waits at a gate that is still open."""
        assert under.turning is not None
        while not under.turning.done():
            under.changed.clear()
            if any(not gate.settled for gate in under.open.values()) and await self._still_open(under):
                under.here.clear()
                return
            changed = asyncio.create_task(under.changed.wait())
            try:
                await asyncio.wait({under.turning, pumping, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            if pumping.done():
                pumping.result()  # it ends early only by failing

    async def _still_open(self, under: _Under) -> bool:
        """Return whether storage has an open gate of this turn; an answered gate closes soon."""
        for gate in list(under.open.values()):
            assert gate.token is not None
            try:
                stored = await self._storage.gates.get(gate.token)
            except TurnStorageNotFound:
                continue
            if not stored.settled and gate.id in under.open:
                under.open = {gate.id: gate, **under.open}  # the first one is asked
                return True
        return False

    async def _turn(self, under: _Under, stash: Mapping[str, Any]) -> TurnResult:
        task = under.task
        fresh = under.turn_id == f"{task.task_id}.{task.turn}"

        async def begin(ctx: TurnContext, further: Callable[[], Next]) -> None:
            under.run = self._storage.progress.run_of(ctx)
            if ctx.iterations_done or not fresh:
                stored = await self._storage.messages_of(ctx)
                under.relay.catch_up(stored)
                ctx.incoming = tuple(message for message in stored if message.role == "user")
            await further()

        prompt = self._prompt(task) if callable(self._prompt) else self._prompt
        turn = TurnInput(
            system_prompt=prompt,
            stash=stash,
            abort_controller=under.controller,
            turn_id=under.turn_id,
            incoming=[await incoming(task, self._storage, _Named(under.turn_id, Registry(stash)))] if fresh else [],
        )
        hooks: dict[str, Listener] = {
            **under.relay.hooks(),
            "turn_gate_open": under.opened,
            "turn_gate_closed": under.closed,
        }
        held = _TaskGates(self._storage.gates, under, self._hurry)
        return await self._runner.run_result(turn, before=[begin], hooks=hooks, gate_store=held)

    async def _wait(self, under: _Under, gate: TurnGate) -> None:
        """Ask the user. The answer continues the turn: here, or in another process after its last stored iteration."""
        task, token = under.task, gate.token
        assert token is not None
        entry = TaskTurn(under.turn_id, task.turn, token, waiting=True)
        await entry.store(under.place, task.task_id)
        await self._ask(task, entry, await self._storage.gates.get(token))

    async def _torn(self, task: TaskContext) -> None:
        """Handle a cancelled turn: its task was cancelled and it did not end in time, or its process stops."""
        if not task.is_cancelled:
            raise asyncio.CancelledError

    async def _end(self, under: _Under, result: TurnResult) -> None:
        task = under.task
        if result.ok:
            await task.complete()
        elif result.status == "aborted":
            if not task.is_cancelled:  # otherwise the task engine ends it
                reason = result.context.abort_signal.reason
                await task.give_up(None if reason is None else str(reason))
        else:
            await self._fail(task, result.errors[-1])

    async def _fail(self, task: TaskContext, error: BaseException) -> None:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, StorageUnavailable):  # the task is released; the turn continues when storage is back
                raise cause
            if isinstance(cause, TurnTakenOver):  # a process that lost this task began the turn again, too late
                raise StorageBusy("another process has begun this turn meanwhile; it is continued") from cause
            if isinstance(cause, TurnGateRejected):  # the user declined: the work stops intentionally
                await task.give_up(str(cause))
                return
            cause = cause.__cause__
        words = str(error) if isinstance(error, DispatchNacked) else FAILED  # a nack's message comes from the executor
        data = {"code": error.code} if isinstance(error, TurnError) else None
        await task.fail(words, data=data, error=error)


def _question(gate: StoredGate) -> dict[str, Any]:
    """Return the data that a program needs to answer: see the table in `keelbolt.turns.gates`."""
    asked = {"id": gate.id, "payload": gate.payload, "schema": gate.schema, "deadline": gate.to_json()["deadline"]}
    return {"gate": {name: value for name, value in asked.items() if value is not None}}


async def _heed(task: TaskContext, controller: AbortController, turning: asyncio.Task[Any]) -> None:
    """Abort the turn when the task is cancelled; cancel it if it does not end soon."""
    while not task.is_cancelled:  # noqa: ASYNC110 - polls the flag
        await asyncio.sleep(CANCEL_SECONDS)
    controller.abort("the task was cancelled")
    await asyncio.wait({turning}, timeout=HEED_SECONDS)
    turning.cancel()


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
