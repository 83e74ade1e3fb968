"""Durable steps: the result of a step is recorded, so that a repeated turn does not run it again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import from_json

from keelbolt.errors import InvalidValue, StepFailed
from keelbolt.kernel import Clock
from keelbolt.protocol.types import Message, TaskState
from keelbolt.tasks.lifecycle import End
from keelbolt.tasks.notes import Note, OtherNote
from keelbolt.tasks.parts import agent_message, bounded, data_part, json_bytes, plain, text_part
from keelbolt.tasks.telemetry import watched_step
from keelbolt.tasks.view import StepView

if TYPE_CHECKING:
    from keelbolt.tasks.run import TaskRun

Policy = Literal["retry", "verify", "ask"]
ANSWERS = ("retry", "done", "failed")
DETAIL = "~."  # prefix of keys that belong to another step
QUESTION = "~ask"  # key of a question of the worker
RELAYED = DETAIL + "ask "  # prefix of the keys of other agents' questions

_enclosing: ContextVar[tuple[str, ...]] = ContextVar("keelbolt_enclosing_steps", default=())
"""Keys of the steps that the current code runs in, outermost first."""


@dataclass(frozen=True, slots=True)
class Done:
    """Return value of a probe if the step took effect, with its result."""

    result: Any = None


Probe = Callable[..., "Awaitable[Done | None] | Done | None"]


class Unwind(BaseException):
    """Leaves the worker's code; `except Exception` does not catch it. The turn is over, or continues later."""


class Suspend(Unwind):
    """The turn continues after this many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__()


class Steps:
    """The steps of one run of a turn."""

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._names: dict[str, int] = {}
        # Steps that a worker recorded while it cleaned up come after the cancel, so they do not delay it.
        self._ahead = {
            key
            for key, step in run.journal.task.view.steps.items()
            # "retry": the step in which a question was asked runs again, up to that question
            if (step.state in ("done", "retry") or key.startswith("~"))
            and not step.after_cancel
            and not key.startswith(DETAIL)
        }
        self.after_replay: Callable[[], None] | None = None  # called once, when no recorded step is left

    @property
    def replaying(self) -> bool:
        """Whether recorded steps are left to replay."""
        return bool(self._ahead)

    def key(self, name: str) -> str:
        """Return the key of a step. A name that is used again in one turn is another step, with a number."""
        count = self._names[name] = self._names.get(name, 0) + 1
        key = name if count == 1 else f"{name}#{count}"
        if key in self._ahead:
            self._ahead.remove(key)
        else:  # no earlier run finished this step: later steps are new, even if steps were renamed
            self._ahead.clear()
        return key

    def passed(self) -> None:
        if not self._ahead and self.after_replay is not None:
            call, self.after_replay = self.after_replay, None
            call()

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        idempotent: bool,
        in_doubt: Policy | None,
        probe: Probe | None,
    ) -> Any:
        policy = _policy(name, in_doubt, probe, idempotent=idempotent)
        call = _call(name, function, args, kwargs)
        key = self.key(plain(name))
        known = self._run.journal.task.view.steps.get(key)
        if known is not None and known.state == "done":
            result = await self.result(key, known)
            self.passed()  # a cancel that waited for the replay is raised after the step
            return result
        self.passed()
        if not self.replaying:
            self._run.check_cancel()
        if known is not None:
            match known.state:
                case "refused":
                    raise StepFailed(f"the step {name!r} was in doubt, and the user answered 'failed'")
                case "started" | "asked":
                    doubt = await self._doubt(key, policy, probe, args, kwargs)
                    if doubt is not None:
                        return doubt.result
                case _:  # failed, or to be retried: run it now
                    pass
        await self._begin(key, barrier=policy != "retry")
        inside = _enclosing.set((*_enclosing.get(), key))
        try:
            with watched_step(self._run.runner, key):
                result = await _called(call)
        except Exception as error:
            await self.note(key, "failed", error=type(error).__name__)
            raise
        finally:
            _enclosing.reset(inside)
        return await self.done(key, result)

    async def result(self, key: str, known: StepView) -> Any:
        """Return the recorded result of a step."""
        if known.result is None and known.stored:
            task = self._run.journal.task
            known.result = await self._run.store.step_result(task, key)
        return known.result

    async def _begin(self, key: str, *, barrier: bool) -> None:
        note = OtherNote("step", {"step": key, "state": "started"})
        if barrier:  # the start must be recorded before the call
            await self._run.journal.write([note])
        else:
            await self._run.journal.note(note, 100)

    async def done(self, key: str, result: Any) -> Any:
        """Record the result of a step, and return it as recorded."""
        what = f"the result of the step {key!r}"
        value = from_json(bounded(json_bytes(result, what), what))
        await self.note(key, "done", result=value)
        return value

    async def note(self, key: str, state: str, **more: Any) -> None:
        await self._run.journal.write([OtherNote("step", {"step": key, "state": state, **more})])

    # ---------------------------------------------------------------------------------------------------- in doubt

    async def _doubt(
        self, key: str, policy: Policy, probe: Probe | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Done | None:
        """Handle a step that started in an earlier run and has no recorded end. Done: it took effect; None: run it."""
        if policy == "retry":
            return None
        if policy == "verify":
            assert probe is not None
            found = await _called(_call(f"{key} (probe)", probe, args, kwargs))
            if isinstance(found, Done):
                return Done(await self.done(key, found.result))
            return None
        await self.ask_in_doubt(key)
        raise Unwind

    async def ask_in_doubt(self, key: str) -> None:
        """End the turn, and ask the client whether the step took effect."""
        record = self._run.journal.task.record
        text = (
            f"The step {key!r} was started and then interrupted; it is unknown whether it took effect. "
            "Answer 'retry' (run it again), 'done' (it took effect) or 'failed' (it did not, and must not run again)."
        )
        data = {"step": key, "inDoubt": True, "answers": list(ANSWERS)}
        message = agent_message(record.task_id, record.context_id, text_part(text) + b"," + data_part(data))
        await self._run.end(
            End(TaskState.input_required, message),
            before=[OtherNote("step", {"step": key, "state": "asked"})],
            asked=key,
        )

    # -------------------------------------------------------------------------------------------------- questions

    async def ask(self, key: str, end: End, *, before: Sequence[Note] = ()) -> Message:
        """Ask the user, and return the answer in the run that follows it.

        The first call ends the turn with ``end`` and raises Unwind. Any message continues the same turn: `handle`
        starts again with the message of the turn, and this call returns the answer. The key starts with QUESTION or
        RELAYED.

        The steps that enclose the question then run again: their functions ask the same question, and continue with its
        answer. Steps that run concurrently stay started, and are in doubt.
        """
        known = self._run.journal.task.view.steps.get(key)
        if known is not None and known.state == "answered":
            answer = Message.model_validate(await self.result(key, known))
            self.passed()
            return answer
        self.passed()
        self._run.check_cancel()
        notes = [OtherNote("step", {"step": each, "state": "retry"}) for each in _enclosing.get()]
        notes.append(OtherNote("step", {"step": key, "state": "asked"}))
        await self._run.end(end, before=[*before, *notes], asked=key)
        raise Unwind

    # ------------------------------------------------------------------------------------------------------ sleep

    async def sleep(self, seconds: float) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise InvalidValue(f"seconds of a sleep must be a non-negative number, not {seconds!r}")
        key = self.key("~sleep")
        clock = self._run.store.clock
        known = self._run.journal.task.view.steps.get(key)
        if known is None:
            deadline = new_deadline(clock, seconds)
            await self.note(key, "started", result=deadline)
        else:
            deadline = await self.result(key, known)
        remaining = seconds_left(clock, deadline, otherwise=0.0)  # the engine's clock woke the task
        self.passed()
        if remaining > 0:
            self._run.check_cancel()
        if remaining > self._run.settings.sleep_hold_seconds:
            raise Suspend(remaining)
        if remaining > 0:
            await asyncio.sleep(remaining)


def read_answer(parts: list[Any]) -> tuple[str, Any] | None:
    """Return the client's answer about a step in doubt: one of ANSWERS, and the result if it took effect."""
    for part in parts:
        if isinstance(part.data, dict) and part.data.get("answer") in ANSWERS:
            return part.data["answer"], part.data.get("result")
        if part.text is not None and part.text.strip().strip("'\".").lower() in ANSWERS:
            return part.text.strip().strip("'\".").lower(), None
    return None


def _policy(name: str, in_doubt: Policy | None, probe: Probe | None, *, idempotent: bool) -> Policy:
    if not isinstance(name, str) or not name or name.startswith("~"):
        raise InvalidValue(f"the name of a step must be a non-empty string that does not begin with ~, not {name!r}")
    policy = in_doubt or ("retry" if idempotent else "verify" if probe is not None else "ask")
    if policy not in ("retry", "verify", "ask"):
        raise InvalidValue(f"in_doubt must be 'retry', 'verify' or 'ask', not {policy!r}")
    if policy == "verify" and probe is None:
        raise InvalidValue("in_doubt='verify' needs a probe that returns Done(result) or None")
    return policy


def _call(name: str, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    """Return the call of the step; raise InvalidValue if the function does not take these arguments."""
    if not callable(function):
        if inspect.iscoroutine(function):
            function.close()
        raise InvalidValue(
            f"the step {name!r} takes a function and its arguments, not {type(function).__name__}: "
            "write ctx.step(name, function, argument), not ctx.step(name, function(argument))"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have no signature: the call raises their own error
        return partial(function, *args, **kwargs)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        called = getattr(function, "__name__", type(function).__name__)
        raise InvalidValue(f"the step {name!r} can't call {called}{signature}: {error}") from None
    return partial(function, *args, **kwargs)


async def _called(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if inspect.isawaitable(result) else result


# ------------------------------------------------------------------------------------------------------------- deadline


MICROSECONDS = 1_000_000


def new_deadline(clock: Clock, seconds: float) -> dict[str, Any]:
    """Return the JSON of a deadline in ``seconds``. ``until`` is its wall time in microseconds, for display."""
    wait = int(seconds * MICROSECONDS)
    return {
        "until": clock.wall() + wait,
        "steady": clock.steady() + wait,
        "boot": clock.boot(),
        "seconds": seconds,
    }


def seconds_left(clock: Clock, deadline: dict[str, Any] | int, *, otherwise: float) -> float:
    """Return the time until a deadline; 0 or less: it is over.

    On the machine that set the deadline, its steady clock decides, so that a wall clock that is set back or forward
    changes nothing. After a reboot, and on other machines, the wall clock decides. ``otherwise`` is returned if it is
    wrong: the deadline is further away than the requested time.
    """
    if isinstance(deadline, int):  # of version 0.1.0
        return (deadline - clock.wall()) / MICROSECONDS
    if deadline["boot"] == clock.boot():
        left = (deadline["steady"] - clock.steady()) / MICROSECONDS
    else:
        left = (deadline["until"] - clock.wall()) / MICROSECONDS
    return left if left <= deadline["seconds"] else otherwise
