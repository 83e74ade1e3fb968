"""One claim of one task by this process: runs its turns until the task ends, pauses or is released."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from keelbolt.errors import CommitRefused, KeelboltError, LeaseLost, StorageUnavailable, TaskTerminalStateError
from keelbolt.kernel import Fence, Head
from keelbolt.protocol.types import Message, TaskState
from keelbolt.tasks.context import TaskContext
from keelbolt.tasks.families import INBOX
from keelbolt.tasks.inbox import InboxListener
from keelbolt.tasks.journal import InboxHasMore, TaskJournal
from keelbolt.tasks.lifecycle import End, ProgressReport
from keelbolt.tasks.notes import MessageNote, Note, OtherNote, error_note
from keelbolt.tasks.record import CurrentTurn, TaskRecord
from keelbolt.tasks.run_state import (
    Alarm,
    Begin,
    BeginEnd,
    CallWorker,
    CancelRaised,
    CancelRun,
    CleanUp,
    Event,
    FinishEnd,
    Interrupt,
    NextTurn,
    RunState,
    Stop,
    StopRun,
    TurnOver,
    step,
)
from keelbolt.tasks.steps import Steps, Suspend, Unwind
from keelbolt.tasks.stored_tasks import StoredTask, TaskKey
from keelbolt.tasks.telemetry import log_fields

if TYPE_CHECKING:
    from keelbolt.tasks.runner import Runner

logger = logging.getLogger("keelbolt.tasks")

AGAIN_SECONDS = 1.0  # delay before a task is retried that the store could not write
NO_PROGRESS = "The agent made no progress for too long."
YIELDING = (TaskState.completed, TaskState.input_required, TaskState.auth_required)


class TaskRun:
    """A claimed task in this process, from the claim to the end of the turn."""

    def __init__(self, runner: Runner, journal: TaskJournal) -> None:
        self.runner = runner
        self.store = runner.store
        self.settings = runner.settings
        self.dependencies = runner.dependencies
        self.scope = journal.claim.scope
        self.key: TaskKey = (self.scope, journal.claim.key)
        self.journal = journal
        view = journal.task.view
        self.state = RunState(
            runner.settings.cancel_seconds, replaying=view.run > 1, canceled=view.cancel is not None or view.cleanup
        )
        self._closed = False
        self._waiting: set[asyncio.Future[StoredTask | None]] = set()
        self._next: CurrentTurn | None = None
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._cancelling: asyncio.Handle | None = None
        self._outcome: StoredTask | None = None
        self._ear: InboxListener | None = None
        self.relays = 0  # agents that the worker waits for, which have their own time limits

    @property
    def _fields(self) -> dict[str, Any]:
        return log_fields(self.journal.claim, self.journal.task.record)

    @property
    def ended(self) -> bool:
        """Whether the turn ended here, or the task was released."""
        return self.state.phase == "over"

    @property
    def ending(self) -> bool:
        """Whether an end of the turn is being written."""
        return self.state.writing > 0

    @property
    def cancel_requested(self) -> bool:
        return self.state.canceled

    @property
    def ear(self) -> InboxListener:
        """The inbox of this run, created on first use; most runs end before that."""
        if self._ear is None:
            self._ear = InboxListener(self)
        return self._ear

    def _wake_listeners(self) -> None:
        if self._ear is not None:
            self._ear.wake()

    def check_cancel(self) -> None:
        """Raise CancelledError in a worker whose task was canceled, outside of shielded blocks."""
        state = self.state
        if state.canceled and not state.shielded and state.phase != "over":
            if self._cancelling is not None:  # raise once: a second error would interrupt the worker's cleanup
                self._cancelling.cancel()
                self.on(CancelRaised())
            raise asyncio.CancelledError("the task was canceled")

    @property
    def gives_up(self) -> bool:
        """Whether the result that the worker waits for is not needed any more; False if another process continues.

        Without a stop from outside, the worker's own code canceled an asyncio task that waits for it.
        """
        if self.state.stop is None and self._task is not None and not self._task.cancelling():
            return True
        return self.state.canceled or self.state.stop in ("interrupt", "no progress")

    def fence(self) -> tuple[Fence, ...]:
        """Return the check that refuses other writes once another process has the task; none after it ended here."""
        return () if self._outcome is not None else (self.journal.claim.fenced(),)

    # ----------------------------------------------------------------------------------------------------- running

    def start(self, message: Message | None = None) -> None:
        """Run it. ``message`` is the turn's message, if it is already loaded."""
        self._task = asyncio.create_task(self._go(message), name=f"task {self.journal.claim.key}")

    async def _go(self, message: Message | None) -> None:
        self.on(Begin())
        loop_ended = False
        try:
            await self._turns(message)
        except GeneratorExit:  # Python deletes the coroutine: its event loop ended, and nothing can run any more
            loop_ended = True
            raise
        except LeaseLost:
            logger.warning(
                "task %s: this process lost its lease; another process continues the task",
                self.journal.claim.key,
                extra=self._fields,
            )
        except TaskTerminalStateError:  # the task was ended outside this run
            await self._let_go()
        except (StorageUnavailable, asyncio.CancelledError) as error:
            if self.state.stop != "lost":
                why = str(error) or "the process stops"
                logger.warning("task %s is released: %s", self.journal.claim.key, why, extra=self._fields)
                await self._let_go(ready_in=AGAIN_SECONDS if isinstance(error, StorageUnavailable) else 0.0)
        except Exception as error:
            logger.exception("task %s could not be run", self.journal.claim.key, extra=self._fields)
            self.on(TurnOver())
            await self.runner.attempt_failed(self.journal.claim, error)
        finally:
            if not loop_ended:
                self._close()

    async def _turns(self, message: Message | None) -> None:
        if self.state.replaying:  # record the inbox entries that came while no process ran the task
            await self.ear.drain()
        while True:
            if self.cancel_requested and self.journal.task.view.run == 1:  # no worker started this turn
                await self._end_quietly(self._canceled())
                return
            await self._turn(message or await self.store.turn_message(self.journal.task))
            message = None
            if self._next is None or self._closed:
                return
            self._next = None
            self.on(NextTurn())

    async def _turn(self, message: Message) -> None:
        try:
            context = await self._context(message)
            if self.state.replaying:
                self.on(CallWorker())
                if self.cancel_requested:
                    self._clean_up(context._steps)  # noqa: SLF001
                elif self._interrupted():
                    await self._next_turn(ProgressReport(), ())
                    return
            await self.runner.handler(context)
        except Suspend as suspend:
            with self._uninterrupted():
                await self._suspend(suspend.seconds)
        except Unwind:
            pass
        except asyncio.CancelledError as error:
            if self._task is None or self._task.cancelling() or self.state.stop is not None:
                await self._stopped()
            else:  # no stop was requested: an awaitable of the worker was canceled
                await self._raised(error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a worker may raise anything, also SystemExit
            await self._raised(error)
        else:
            if not self.ended and self._next is None:
                await self._end_quietly(self._canceled())  # canceled: otherwise the return value ended the turn

    def _interrupted(self) -> bool:
        """Return whether a message waits that interrupts this turn."""
        return any(body.get("policy") == "interrupt" for body in self.journal.task.view.pending.values())

    def _clean_up(self, steps: Steps) -> None:
        """Cancel the worker that is called once more to clean up, after it has passed its recorded steps."""
        self.on(CleanUp())
        if steps.replaying:
            steps.after_replay = self._cancel_soon
        else:
            self._cancel_soon()

    def _cancel_soon(self) -> None:
        """Cancel the worker at its next await or call of ``ctx``. Called in the worker's asyncio task."""
        self._cancelling = asyncio.get_running_loop().call_soon(self.stop, "cancel")

    async def _raised(self, error: BaseException) -> None:
        if self.journal.broken is not None:  # no write is possible, even if the worker raised another error
            raise self.journal.broken from error
        if isinstance(error, StorageUnavailable):
            raise error
        if self.cancel_requested:
            said = "the worker failed in the canceled task %s"
            logger.warning(said, self.journal.claim.key, exc_info=error, extra=self._fields)
            await self._end_quietly(self._canceled(), [error_note(error)])
            return
        logger.error("the worker failed in task %s", self.journal.claim.key, exc_info=error, extra=self._fields)
        failed = self._failed("The agent failed while it worked on this task.")
        await self._end_quietly(failed, [error_note(error)])

    async def _stopped(self) -> None:
        """Handle a stop from outside, by its reason."""
        if self.state.stop is None or self._task is None:
            raise asyncio.CancelledError
        self._task.uncancel()
        match self.state.stop:
            case "cancel":
                await self._end_quietly(self._canceled())
            case "interrupt":
                if not self.ended:
                    await self._next_turn(ProgressReport(), ())
            case "no progress":
                await self._end_quietly(self._failed(NO_PROGRESS))
            case "drain":
                await self._let_go()
            case "lost":
                raise LeaseLost

    def _canceled(self) -> End:
        """Return the end of a canceled task, with the message of the cancel."""
        words = (self.journal.task.view.cancel or {}).get("words")
        return End(TaskState.canceled, self.journal.task.record.message(words) if words else None)

    def _failed(self, text: str) -> End:
        return End(TaskState.failed, self.journal.task.record.message(text))

    async def _context(self, message: Message) -> TaskContext:
        task = self.journal.task
        history, artifacts = b"", []
        if len(task.view.history.tail) > 1 or task.view.history.segments:
            history = await self.store.history_json(task, None)
            found = zip(await self.store.artifacts_json(task), task.view.artifacts.values(), strict=True)
            artifacts = [text for text, artifact in found if artifact.turn < task.view.turn]
        request = self.runner.requests.take((*self.key, message.message_id))
        return TaskContext(self, message, history, artifacts, await self.store.rewound(task), request)

    # ------------------------------------------------------------------------------------------------------- ends

    async def end(
        self, command: End, *, before: Sequence[Note] = (), direct: bool = False, asked: str | None = None
    ) -> None:
        """End the turn. If a message waits, start its turn instead of the end."""
        self.on(BeginEnd())
        try:
            await self._end(command, before, asked, direct=direct)
        finally:
            self.on(FinishEnd())

    async def _end(self, command: End, before: Sequence[Note], asked: str | None, *, direct: bool) -> None:
        def edit(record: TaskRecord) -> None:
            record.direct = direct
            record.turn.asked = asked

        claim = self.journal.claim
        if self.journal.task.view.cleanup:  # the task has already ended, and the worker has cleaned up
            await self.journal.cleaned(claim.complete(), before)
            self._turn_over()
            return
        while True:
            view = self.journal.task.view
            if self.cancel_requested and command.state.paused:  # a canceled task gets no answer
                command, asked = self._canceled(), None
            if view.pending and command.state in YIELDING and asked is None and not self.cancel_requested:
                await self._next_turn(ProgressReport(command.message), before, said=command.message)
                return
            try:
                drained = Head(INBOX, claim.key, view.inbox)
                await self.journal.move(command, claim.complete(), drained, before=before, edit=edit)
            except InboxHasMore:
                await self.ear.drain()
                continue
            self._turn_over()
            self._wake_listeners()
            self.runner.status_committed(self.journal.task)
            return

    def _turn_over(self) -> None:
        self.on(TurnOver())
        self._outcome = self.journal.task

    async def _suspend(self, seconds: float) -> None:
        """Release the task until it wakes up. Read the inbox first, because no process reads it during the sleep."""
        claim = self.journal.claim
        while True:
            await self.ear.drained()
            view = self.journal.task.view
            if self.cancel_requested:
                await self._end_quietly(self._canceled())
                return
            if self._interrupted():
                await self._next_turn(ProgressReport(), ())
                return
            try:
                drained = Head(INBOX, claim.key, view.inbox)
                await self.journal.write([], claim.release(ready_in=seconds), drained)
            except InboxHasMore:
                await self.ear.drain()
                continue
            self.on(TurnOver())
            return

    async def _end_quietly(self, command: End, before: Sequence[Note] = ()) -> None:
        if not self.ended:
            await self.end(command, before=before)

    async def _next_turn(self, report: ProgressReport, before: Sequence[Note], said: bytes | None = None) -> None:
        """Start the turn of the message that waits longest; a message that interrupts skips the ones before it."""
        view = self.journal.task.view
        waiting = sorted(view.pending.items())
        interrupts = [number for number, (_, body) in enumerate(waiting) if body.get("policy") == "interrupt"]
        taken = waiting[: max(interrupts, default=0) + 1]
        seq, body = taken[-1]
        messages = [MessageNote(to_json(body["message"])) for _, body in taken]
        turn = CurrentTurn(
            view.turn + 1,
            body["message"]["messageId"],
            body.get("accepts", []),
            body.get("request", {}),
            body.get("principal", {}),
            waited=True,
        )
        words: list[Note] = [] if said is None else [MessageNote(said)]
        notes = [*before, *words, *messages, self.runner.attempt_note(turn.number, self.journal.claim, seq)]

        def edit(record: TaskRecord) -> None:
            record.turn = turn

        with self._uninterrupted():
            await self.journal.move(report, before=notes, edit=edit)
            self._next = turn
            self.on(TurnOver())
        self._wake_listeners()

    @contextlib.contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """Block stops while a turn ends, because the outcome of its commit must be known."""
        self.on(BeginEnd())
        try:
            yield
        finally:
            self.on(FinishEnd())

    async def _let_go(self, *, ready_in: float = 0.0) -> None:
        """Release the task for another process. If the store fails, the release is retried, or the lease expires."""
        self.on(TurnOver())
        claim = self.journal.claim
        # After a failed or interrupted write, the view may have an end that is not stored: release the task, so that it
        # is read again.
        certain = self.journal.broken is None or isinstance(self.journal.broken, TaskTerminalStateError)
        over = certain and not self.journal.unsure and self.journal.task.view.over
        try:
            done = claim.complete() if over else claim.release(ready_in=ready_in)
            await self.scope.commit(done)
        except CommitRefused:
            pass
        except KeelboltError as error:
            logger.warning("task %s could not be released: %s", claim.key, error)
            self.runner.give_back_later(claim)

    def _close(self) -> None:
        self._drop_alarm()
        self.on(TurnOver())
        if self._ear is not None:
            self._ear.close()
            self._ear = None
        self.runner.finished(self)
        self._settle()

    def _settle(self) -> None:
        self._closed = True
        for future in self._waiting:
            if not future.done():
                future.set_result(self._outcome)

    async def settled(self) -> StoredTask | None:
        """Return the task when it ended or paused here; None: it was released, and another process continues."""
        if self._closed:
            return self._outcome
        # One future per caller, so that canceling one caller does not affect the others.
        future: asyncio.Future[StoredTask | None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            return await future
        finally:
            self._waiting.discard(future)

    # ------------------------------------------------------------------------------------------ stops from outside

    def on(self, event: Event) -> None:
        """Change the state of the run by an event, and perform the actions that follow."""
        self.state, actions = step(self.state, event, asyncio.get_running_loop().time())
        for action in actions:
            match action:
                case Alarm():
                    self._drop_alarm()
                    self._alarm = asyncio.get_running_loop().call_later(
                        action.seconds, self._on_while_alive, action.event
                    )
                case "cancel worker":
                    assert self._task is not None
                    self._task.cancel(self.state.stop)
                case "settle":
                    self._settle()
                case "drop alarm":
                    self._drop_alarm()
                case "overrule":
                    self._overrule()
                case "close":
                    self._close()

    def stop(self, why: Stop) -> None:
        """Stop the worker."""
        self._on_while_alive(StopRun(why))

    def _on_while_alive(self, event: Event) -> None:
        """Call `on`, unless the worker's asyncio task is done."""
        if self._task is not None and not self._task.done():
            self.on(event)

    def _drop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _overrule(self) -> None:
        """Write the end of the task without the worker, which was stopped and continues."""
        said = "task %s: its worker did not stop in time; the task ends without it"
        logger.warning(said, self.journal.claim.key, extra=self._fields)
        self._overruling = asyncio.create_task(self._end_without_worker())

    async def _end_without_worker(self) -> None:
        try:
            if self.state.stop == "drain":
                await self._let_go()
            elif self.state.stop == "no progress":
                await self._end_quietly(self._failed(NO_PROGRESS))
            elif self.state.stop == "interrupt" and self.journal.task.view.pending:
                await self._next_turn(ProgressReport(), ())
                self._next = None
                await self._let_go()  # a process whose worker can be stopped runs the message's turn
            else:
                await self._end_quietly(self._canceled())
        except LeaseLost:
            pass  # another process continues the task
        except Exception as error:  # noqa: BLE001 - the task is read again, by a process that can write its end
            said = "task %s is released: its end could not be written: %s"
            logger.warning(said, self.journal.claim.key, error, extra=self._fields)
            await self._let_go(ready_in=AGAIN_SECONDS)
        finally:
            self._close()

    async def finished(self) -> None:
        """Wait until the worker's asyncio task is done."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def check_progress(self) -> None:
        """Stop a worker that has written nothing for too long."""
        idle = 0.0 if self.relays else asyncio.get_running_loop().time() - self.journal.progress
        if idle > self.settings.no_progress_seconds > 0:
            self.stop("no progress")

    def take(self, note: OtherNote, *, late: float = 0.0) -> None:
        """Apply a recorded inbox entry, which was sent ``late`` seconds ago."""
        if note.body["kind"] == "cancel":
            self._on_while_alive(CancelRun(late))
        elif note.body.get("policy") == "interrupt":
            self._on_while_alive(Interrupt())
