"""A turn runner as the worker of an agent server: a message is a turn, a gate a question, an abort a cancel."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from keelbolt.errors import (
    DispatchNacked,
    InvalidTurnGateResolution,
    InvalidValue,
    StorageUnavailable,
    TurnError,
    TurnStorageDuplicateId,
    TurnStorageNotFound,
)
from keelbolt.tasks import Dependency, TaskContext, Worker
from keelbolt.turns.abort import AbortController
from keelbolt.turns.answers import read_gate_answer
from keelbolt.turns.context import TurnContext, TurnInput
from keelbolt.turns.durable.adapter import DurableStorage
from keelbolt.turns.durable.gate_records import StoredGate
from keelbolt.turns.durable.places import Place
from keelbolt.turns.gates import TurnGate
from keelbolt.turns.incoming import incoming
from keelbolt.turns.pipeline import Next
from keelbolt.turns.primitives import Tokenizable
from keelbolt.turns.registry import Registry
from keelbolt.turns.relay import SHOWN, Relay
from keelbolt.turns.runner import TurnResult, TurnRunner
from keelbolt.turns.task_turns import TaskTurn, TaskTurns
from keelbolt.turns.waking import WAKE

CANCEL_SECONDS = 0.1  # how soon a turn hears that its task was cancelled
FAILED = "The agent failed while it worked on this task."

Prompt = str | Tokenizable | Callable[[TaskContext], str | Tokenizable]
Stash = Callable[[TaskContext], Mapping[str, Any]]

logger = logging.getLogger("keelbolt.turns")


def turn_worker(
    runner: TurnRunner,
    storage: DurableStorage,
    *,
    system_prompt: Prompt,
    agent: str = "",
    stash: Stash | None = None,
    show: Collection[str] = SHOWN,
) -> TurnWorker:
    """A worker that runs a turn for each message, on a runner that ``storage.runner(…)`` made.

        server = A2AServer(worker=turn_worker(runner, storage, system_prompt="Be kind."), agent_card=card)

    The thread is the context of the task, the tenant is its owner (the partition of the principal), and ``agent``
    divides memories where several agents share a storage. ``stash`` answers what else the stash of a turn holds;
    ``show`` is what clients see besides the answer: of message, thought, tool_call. A storage that is not open is
    opened with the server, and closed with it.
    """
    if runner.gate_store is not storage.gates or runner.progress_store is not storage.progress:
        raise InvalidValue("this runner does not keep its turns in this storage; make it with storage.runner(…)")
    if unknown := [name for name in show if name not in SHOWN]:
        raise InvalidValue(f"show knows {', '.join(SHOWN)}, but not {unknown[0]!r}")
    return TurnWorker(runner, storage, system_prompt=system_prompt, agent=agent, stash=stash, show=show)


@dataclass(frozen=True, slots=True)
class _Named:
    """A turn as storage sees it, before it runs."""

    id: str
    stash: Registry


@dataclass(slots=True)
class _Under:
    """A turn under way in a task."""

    task: TaskContext
    turn_id: str
    place: Place
    relay: Relay
    controller: AbortController = field(default_factory=AbortController)


class TurnWorker(Worker, Dependency):
    """Made by `turn_worker`."""

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
        self._turns = TaskTurns(storage.kernel)
        self._opened = False

    async def startup(self) -> None:
        if not self._storage.is_open:
            await self._storage.open()
            self._opened = True

    async def shutdown(self) -> None:
        if self._opened:
            self._opened = False
            await self._storage.close()

    # ------------------------------------------------------------------------------------------------ which turn it is

    async def handle(self, task: TaskContext) -> None:
        """Find the turn that this message begins or answers, and run it."""
        stash = self._stash(task)
        fresh = f"{task.task_id}.{task.turn}"
        place = self._storage.place(_Named(fresh, Registry(stash)))
        entry = await self._turns.get(place, task.task_id)
        woken = await self._woken(task)
        if woken is not None:
            entry = TaskTurn(woken.turn_id, task.turn, woken.token)
            await self._turns.put(place, task.task_id, entry)
        elif entry is not None and entry.waiting and entry.through < task.turn:
            if not await self._answered(task, entry):
                return
            entry = TaskTurn(entry.turn_id, task.turn, entry.token)
            await self._turns.put(place, task.task_id, entry)
        turn_id = entry.turn_id if entry is not None and entry.through >= task.turn else fresh
        await self._run(_Under(task, turn_id, place, Relay(task, turn_id, self._show)), stash)

    async def _woken(self, task: TaskContext) -> StoredGate | None:
        """The gate of this task that was settled elsewhere, if that is what the message says."""
        for data in task.data_parts:
            if isinstance(data, Mapping) and WAKE in data:
                try:
                    gate = await self._storage.gates.get(data[WAKE])
                except TurnStorageNotFound:
                    return None
                about = gate.about if isinstance(gate.about, Mapping) else {}
                return gate if gate.settled and about.get("taskId") == task.task_id else None
        return None

    async def _answered(self, task: TaskContext, entry: TaskTurn) -> bool:
        """Settle the gate with this message; if it is no answer, ask again."""
        assert entry.token is not None
        gates = self._storage.gates
        answer = read_gate_answer(task.user_text, task.data_parts)
        try:
            if answer.verb == "resolve":
                await gates.resolve(entry.token, answer.value)
            else:
                await getattr(gates, answer.verb)(entry.token, answer.reason or None)
        except InvalidTurnGateResolution as wrong:
            gate = await gates.get(entry.token)
            await task.request_input(f"{gate.reason} ({wrong.__cause__ or wrong})", data=_question(gate))
            return False
        except TurnStorageNotFound:  # it was erased; the turn will ask again
            pass
        return True

    def _stash(self, task: TaskContext) -> dict[str, Any]:
        who = task.principal
        about = {
            "taskId": task.task_id,
            "contextId": task.context_id,
            "owner": who.owner,
            "tenant": who.tenant,
            "askedTenant": who.asked_tenant,
        }
        more = {} if self._more is None else self._more(task)
        scope = {"tenant": who.partition, "thread": task.context_id, "agent": self._agent}
        return {**more, "scope": scope, "task": about}

    # ------------------------------------------------------------------------------------------------------ running it

    async def _run(self, under: _Under, stash: Mapping[str, Any]) -> None:
        """Run the turn to its end, or to a gate that is not settled at once."""
        task = under.task
        gate: asyncio.Future[TurnGate] = asyncio.get_running_loop().create_future()
        turning = asyncio.create_task(self._turn(under, stash, gate))
        pumping = asyncio.create_task(under.relay.pump())
        heeding = asyncio.create_task(_heed(task, under.controller))
        try:
            events: set[asyncio.Future[Any]] = {turning, pumping, gate}
            async with task.shielded():  # a cancel aborts the turn, which then ends by itself
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            if pumping.done():
                pumping.result()  # it ends by itself only by failing
            if not turning.done():
                await _ended(turning)
            under.relay.close(ended=not turning.cancelled())
            await pumping
            if turning.cancelled():
                await self._wait(under, gate.result())
            else:
                await self._end(under, turning.result())
        finally:
            for each in (turning, pumping, heeding):
                await _ended(each)

    async def _turn(self, under: _Under, stash: Mapping[str, Any], gate: asyncio.Future[TurnGate]) -> TurnResult:
        task, loop = under.task, asyncio.get_running_loop()

        def opened(found: TurnGate) -> None:  # listeners of the runner may settle it on the spot
            loop.call_soon(lambda: None if found.settled or gate.done() else gate.set_result(found))

        async def begin(ctx: TurnContext, further: Callable[[], Next]) -> None:
            if ctx.iterations_done:
                under.relay.catch_up(await self._storage.messages_of(ctx))
            if under.turn_id == f"{task.task_id}.{task.turn}":
                with contextlib.suppress(TurnStorageDuplicateId):  # an earlier attempt has stored it
                    await ctx.store_message(incoming(task))
            await further()

        prompt = self._prompt(task) if callable(self._prompt) else self._prompt
        turn = TurnInput(system_prompt=prompt, stash=stash, abort_controller=under.controller, turn_id=under.turn_id)
        hooks = {**under.relay.hooks(), "turn_gate_open": opened}
        return await self._runner.run_result(turn, before=[begin], hooks=hooks)

    async def _wait(self, under: _Under, gate: TurnGate) -> None:
        """Ask the user. The turn is over here; the answer goes on with it, in whatever process."""
        task, token = under.task, gate.token
        assert token is not None
        entry = TaskTurn(under.turn_id, task.turn, token, waiting=True)
        await self._turns.put(under.place, task.task_id, entry)
        await task.request_input(gate.reason, data=_question(await self._storage.gates.get(token)))

    async def _end(self, under: _Under, result: TurnResult) -> None:
        task = under.task
        if result.ok:
            await task.complete()
        elif result.status == "aborted":
            if not task.is_cancelled:  # else the engine ends it
                reason = result.context.abort_signal.reason
                await task.give_up(None if reason is None else str(reason))
        else:
            await self._fail(task, result.errors[-1])

    async def _fail(self, task: TaskContext, error: BaseException) -> None:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, StorageUnavailable):  # the task is given back, and the turn goes on when storage does
                raise cause
            cause = cause.__cause__
        logger.error("the turn of task %s failed", task.task_id, exc_info=error)
        words = str(error) if isinstance(error, DispatchNacked) else FAILED  # those are the executor's own
        await task.fail(words, data={"code": error.code} if isinstance(error, TurnError) else None)


def _question(gate: StoredGate) -> dict[str, Any]:
    """What a program needs to answer: see `keelbolt.turns.answers`."""
    asked = {"id": gate.id, "payload": gate.payload, "schema": gate.schema, "deadline": gate.to_json()["deadline"]}
    return {"gate": {name: value for name, value in asked.items() if value is not None}}


async def _heed(task: TaskContext, controller: AbortController) -> None:
    """Abort the turn when the task is cancelled."""
    while not task.is_cancelled:  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(CANCEL_SECONDS)
    controller.abort("the task was cancelled")


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
