"""The API of a worker: read the task, and change or end it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, TypeVarTuple, overload

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from keelbolt.errors import InvalidAgentResponseError, InvalidValue
from keelbolt.protocol.types import Message, Metadata, Part, Task, TaskState
from keelbolt.tasks.lifecycle import End
from keelbolt.tasks.listing import ListTasksQuery, list_tasks
from keelbolt.tasks.notes import Note, OtherNote, error_note
from keelbolt.tasks.parts import bounded, data_part, encoded_part, json_bytes, plain, text_part
from keelbolt.tasks.run_state import EnterShield, LeaveShield
from keelbolt.tasks.steps import QUESTION, Done, Policy, Probe
from keelbolt.tasks.turn_output import TurnOutput

if TYPE_CHECKING:
    from keelbolt.client.client import A2AClient
    from keelbolt.client.messages import Said

logger = logging.getLogger("keelbolt.tasks")

NO_ANSWER = (
    "the worker returned None and did not end its turn. Return a text or a JSON value, emit an artifact before you "
    "return, or end the turn with ctx.complete(), ctx.respond(), ctx.fail(), ctx.request_input(), …"
)
_UNCHANGED: Any = object()
CONVERSATION_TASKS = 20  # `conversation` reads the messages of at most this many tasks
QUESTION_CHARACTERS = 16  # length of the digest that identifies a question within its turn

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Ts = TypeVarTuple("Ts")


class TaskContext(TurnOutput):
    """One turn of one task, for the worker that handles it."""

    _state: Any = _UNCHANGED  # loaded from the task on first access

    # --------------------------------------------------------------------------------------------- ends of a turn

    async def complete(
        self, text: str | None = None, *, parts: Sequence[Part] = (), artifact_id: str = "final-answer"
    ) -> None:
        """Complete the task. A text or parts become the artifact."""
        json = [] if text is None else [text_part(text)]
        json += [encoded_part(part) for part in parts]
        before = [self._artifact(artifact_id, b",".join(json), last=True)] if json else []
        await self._end(TaskState.completed, before=before)

    async def complete_json(self, data: Any, *, artifact_id: str = "final-answer") -> None:
        """Complete the task with a JSON artifact."""
        await self._end(TaskState.completed, before=[self._artifact(artifact_id, data_part(data), last=True)])

    async def respond(self, text: str | None = None) -> None:
        """Complete the task. The text becomes the status message; there is no artifact."""
        await self._end(TaskState.completed, text)

    async def reply_directly(self, text: str) -> None:
        """Complete the task. The sender gets a message instead of a task; a stream still gets the task."""
        await self._end(TaskState.completed, text, direct=True)

    async def fail(self, reason: str, *, data: Any = None, error: BaseException | None = None) -> None:
        """End the task as failed. The caller gets ``reason`` as text and ``data`` as JSON.

        ``error`` is the exception that caused the failure. The task's log keeps it for operators; callers do not get
        it.
        """
        await self._end(TaskState.failed, reason, data=data, before=[] if error is None else [error_note(error)])

    async def reject(self, reason: str | None = None, *, data: Any = None) -> None:
        """Reject the task. The caller gets ``reason`` as text and ``data`` as JSON."""
        await self._end(TaskState.rejected, reason, data=data)

    async def give_up(self, reason: str | None = None) -> None:
        """End the task as canceled, without a cancel request from a client."""
        await self._end(TaskState.canceled, reason)

    async def request_input(self, question: str | None = None, *, data: Any = None, state: Any = _UNCHANGED) -> None:
        """Ask the user and end the turn. The answer is the message of the next turn, in any process.

        ``state`` becomes `ctx.state` in the same commit: the next turn sees it, and a repeat of this turn does not.
        """
        await self._end(TaskState.input_required, question, data=data, keep=state)

    async def request_auth(
        self,
        details: str | None = None,
        *,
        schemes: Sequence[str] | None = None,
        credentials_hint: str | None = None,
        auth_url: str | None = None,
        state: Any = _UNCHANGED,
    ) -> None:
        """Ask the user to authenticate with another service. The turn ends, as with `request_input`."""
        wanted = {"schemes": list(schemes or ()), "credentialsHint": credentials_hint, "authUrl": auth_url}
        data = {name: value for name, value in wanted.items() if value}
        await self._end(TaskState.auth_required, details, data=data or None, keep=state)

    async def _finish(self, result: Any) -> None:
        """Complete the task with the worker's return value. Called by the engine; does nothing after an end.

        A text becomes a text artifact, another value a JSON artifact. If the worker returns None, the turn must have
        emitted an artifact; otherwise the task fails.
        """
        if self._run.ended or self.is_cancelled:
            if result is not None:
                logger.warning("task %s: the worker's return value is dropped: its turn had ended", self.task_id)
        elif isinstance(result, str):
            await self.complete(result)
        elif result is not None:
            await self.complete_json(result)
        elif self._touched or self._run.journal.task.view.emitted:
            await self.complete()
        else:
            logger.error("the worker returned from task %s without ending its turn: %s", self.task_id, NO_ANSWER)
            hint = InvalidAgentResponseError(NO_ANSWER)
            await self.fail("The agent returned no result: its worker did not end the turn.", error=hint)

    async def _end(
        self,
        state: TaskState,
        text: str | None = None,
        *,
        data: Any = None,
        before: Sequence[Note] = (),
        direct: bool = False,
        keep: Any = _UNCHANGED,
    ) -> None:
        self._check()
        if keep is not _UNCHANGED:
            self.state = keep
        message = None if text is None and data is None else self._say(text, data)
        await self._run.end(End(state, message), before=[*before, *self._state_notes()], direct=direct)

    # ------------------------------------------------------------------------------------------------------- state

    @property
    def state(self) -> Any:
        """A JSON value of the task, committed at the end of each turn; None at first.

        Assign it, or change it in place. The next turn sees it. A repeated turn starts with the value that the previous
        turn committed.
        """
        if self._state is _UNCHANGED:
            self._state = from_json(self._run.journal.task.view.kept)
        return self._state

    @state.setter
    def state(self, value: Any) -> None:
        self._state = value

    def state_as(self, kind: type[S]) -> S | None:
        """Return `state` as this type (a Pydantic model, a dataclass, a TypedDict, …), or None if there is no state.

        The object becomes `state`: changes to it are committed at the end of the turn.
        """
        if self.state is None:
            return None
        try:
            found = TypeAdapter(kind).validate_json(json_bytes(self.state, "the state"))
        except ValidationError as error:
            raise InvalidValue(f"the task's state is not a valid {kind.__name__}: {error}") from None
        self._state = found
        return found

    def _state_notes(self) -> list[Note]:
        """Return the note that stores the state, if the worker changed it."""
        if self._state is _UNCHANGED:
            return []
        data = bounded(json_bytes(self._state, "the state"), "the state")
        return [] if data == self._run.journal.task.view.kept else [OtherNote("state", {"value": from_json(data)})]

    # ----------------------------------------------------------------------------------------------------- steps

    # Type checkers check the function's arguments: all kinds without a policy, only positional ones with a policy.
    @overload
    async def step(self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(
        self,
        name: str,
        function: Callable[[*Ts], Awaitable[R]],
        /,
        *args: *Ts,
        idempotent: bool = ...,
        in_doubt: Policy | None = ...,
        probe: Callable[[*Ts], Awaitable[Done | None] | Done | None] | None = ...,
    ) -> R: ...
    @overload
    async def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(
        self,
        name: str,
        function: Callable[[*Ts], R],
        /,
        *args: *Ts,
        idempotent: bool = ...,
        in_doubt: Policy | None = ...,
        probe: Callable[[*Ts], Awaitable[Done | None] | Done | None] | None = ...,
    ) -> R: ...
    async def step(  # type: ignore[misc]  # a policy together with the function's own keywords has no type
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        idempotent: bool = False,
        in_doubt: Policy | None = None,
        probe: Probe | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once and record its result. A repeated turn gets the recorded result without another call.

        The other arguments are passed to the function. A step that started and has no recorded end (its process died)
        is *in doubt*. Its policy decides what happens then: ``retry`` (the default if it is ``idempotent``), ``verify``
        (call the ``probe``; the default if there is one), or ``ask`` (ask the client; the default otherwise). Results
        are JSON.
        """
        self._check()
        return await self._steps.step(
            name, function, args, kwargs, idempotent=idempotent, in_doubt=in_doubt, probe=probe
        )

    async def ask(self, question: str | None = None, *, data: Any = None) -> Message:
        """Ask the user in the middle of a turn, and return the answer.

        No process waits for the answer: the call ends this run of the worker. After the answer, `handle` starts again
        with the same message, recorded steps return their results, and this call returns the answer. If the question
        has changed by then, it is asked again, because the answer belongs to the old question.
        """
        self._check()
        message = None if question is None and data is None else self._say(question, data)
        words = json_bytes([None if question is None else plain(question), data], "the question")
        key = self._steps.key(f"{QUESTION} {sha256(words).hexdigest()[:QUESTION_CHARACTERS]}")
        return await self._steps.ask(key, End(TaskState.input_required, message))

    async def relay(
        self,
        client: A2AClient,
        message: Said,
        *,
        name: str = "relay",
        stream: bool = True,
        seconds: float | None = None,
        in_doubt: Literal["retry", "ask"] | None = None,
        context_id: str | None = None,
        metadata: Metadata | None = None,
        skill: str | None = None,
        accepted_output_modes: Sequence[str] = (),
    ) -> Task | Message:
        """Send a message to another agent, follow its task, and return its answer: a durable step.

        With ``stream``, this task gets the other task's artifacts and progress reports while it runs. An answer without
        artifacts becomes the artifact ``answer``. The other agent's questions go to the user of this task, and the
        answers go back; no process is held meanwhile. A cancel of this task cancels the other agent's task. After a
        crash, the next run continues with the same remote task, after the last event that was passed on.

        Raises RelayFailed when the other agent fails, rejects or cancels its task, and TimeoutError when it works
        longer than ``seconds`` (its task is canceled then). Time spent waiting for the user does not count.

        ``in_doubt`` decides what happens when the process died before it was known whether the message arrived:
        ``retry`` (the default for an agent that recognises repeated messages, as Keelbolt agents do) or ``ask`` (the
        default otherwise). A turn that relays several messages gives each a ``name``.
        """
        from keelbolt.tasks.relay import Relay, RelayOptions  # noqa: PLC0415 - loads the client

        self._check()
        options = RelayOptions(name, stream, seconds, in_doubt, context_id, metadata, skill, accepted_output_modes)
        return await Relay(self, client, message, options).run()

    async def run_sync(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a blocking function in a thread, and return its result.

        A cancel raises CancelledError here immediately; the thread continues until the function returns.
        """
        self._check_cancel()
        return await asyncio.to_thread(function, *args, **kwargs)

    def idempotency_key(self, step: str) -> str:
        """Return an idempotency key for external calls that is the same in every attempt of this turn."""
        return f"{self.task_id}/{self._turn.number}/{plain(step)}"

    async def sleep(self, seconds: float) -> None:
        """Wait without holding a process: after a long sleep, `handle` starts again and returns to this point."""
        self._check()
        await self._steps.sleep(seconds)

    # ----------------------------------------------------------------------------------------------- conversation

    async def load_context(self) -> Any:
        """Return the value stored for this conversation (the tasks with this context id); None at first."""
        self._check_cancel()
        return await self._conversation.load()

    async def update_context(self, value: Any | Callable[[Any], Any | Awaitable[Any]]) -> Any:
        """Store a value for the conversation.

        A function is called with the current value, and called again if another writer committed first. A plain value
        raises ConcurrencyError if the stored value changed since `load_context`.
        """
        self._check_cancel()
        return await self._conversation.update(value)

    async def conversation(self, messages: int = 100) -> list[Message]:
        """Return the last messages before this one, oldest first: of this task, and of earlier ones with its context
        id.

        Earlier tasks are those of the same caller. A message that was sent without a context id begins a conversation.
        """
        found = self.history
        if self.message.context_id is not None and len(found) < messages:
            query = ListTasksQuery(context_id=self.context_id, page_size=CONVERSATION_TASKS)
            page = await list_tasks(self._run.store, self._run.scope, query)
            tasks = [each if isinstance(each, Task) else Task.model_validate_json(each) for each in page.tasks]
            tasks.sort(key=lambda task: task.id)  # ids are ordered by time
            found = [*(each for task in tasks if task.id != self.task_id for each in task.history), *found]
        return found[-messages:]

    # ------------------------------------------------------------------------------------------------------ cancel

    @contextlib.asynccontextmanager
    async def shielded(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Delay a cancel until the end of the block, for at most this many seconds. All methods work in the block.

        Use it for work that must not be interrupted, and to clean up after a cancel. None means ``cancel_seconds`` of
        the engine. One block extends the time that a canceled worker has; further blocks after the cancel do not.
        """
        run = self._run
        seconds = run.settings.cancel_seconds if seconds is None else seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise InvalidValue(f"seconds of ctx.shielded() must be a non-negative number, not {seconds!r}")
        run.on(EnterShield(seconds))
        try:
            yield
        finally:
            run.on(LeaveShield())
        await asyncio.sleep(0)  # a delayed cancel is raised here
