"""How a run handles cancels, interrupts, drains, lost leases and workers that do not stop. Pure: no clock, no I/O.

A state and an event give a new state and actions; `Run` performs the actions. The worker is stopped by an error at its
next await. A stop that arrives while an end of the turn is written waits for that commit. A cancel that arrives in a
shielded block waits for the end of the block, within limits. If a worker continues after its grace period, the end of
its task is written without it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

STUBBORN_SECONDS = 5.0  # grace period of a worker that was stopped for another reason than a cancel
LAST_SECONDS = 0.25  # grace period of a worker that is stopped when its grace period is already over

Stop = Literal["cancel", "interrupt", "no progress", "drain", "lost"]
Phase = Literal["new", "working", "over"]


class RunState(Struct, frozen=True, gc=False):
    """The state of a run.

    ``phase`` is new until the first step of the run, and over when the turn ended here or the task was released.
    ``replaying`` is true in a repeated turn until its worker is called.
    """

    cancel_seconds: float  # grace period of a canceled worker
    phase: Phase = "new"
    replaying: bool = False
    writing: int = 0  # number of ends of the turn that are being written
    stop: Stop | None = None  # reason why the worker was stopped
    later: Stop | None = None  # a stop that waits for a commit or for the end of a shielded block
    canceled: bool = False  # the client canceled the task
    cancel_at: float = 0.0  # when the grace period of the cancel began
    shields: int = 0  # nested shielded blocks
    shield_seconds: float = 0.0  # of the outermost block
    shielded: bool = False  # the block delays a cancel
    shield_used: bool = False  # a canceled worker gets one such block


# ---------------------------------------------------------------------------------------------------------- events


class Begin(Struct, frozen=True, gc=False):
    """The run starts."""


class CallWorker(Struct, frozen=True, gc=False):
    """The worker of a repeated turn is called now."""


class StopRun(Struct, frozen=True, gc=False):
    """Stop the worker."""

    why: Stop


class CancelRun(Struct, frozen=True, gc=False):
    """The client canceled the task. It sent the cancel ``late`` seconds ago and has waited since then."""

    late: float = 0.0


class Interrupt(Struct, frozen=True, gc=False):
    """A message arrived that interrupts the turn."""


class CleanUp(Struct, frozen=True, gc=False):
    """The worker of a canceled task is called once more, to clean up."""


class CancelRaised(Struct, frozen=True, gc=False):
    """A call of the context raised CancelledError in the worker."""


class EnterShield(Struct, frozen=True, gc=False):
    """The worker enters a block that delays a cancel by up to this many seconds."""

    seconds: float


class LeaveShield(Struct, frozen=True, gc=False):
    """The worker leaves the block."""


class ShieldOver(Struct, frozen=True, gc=False):
    """The block has delayed the cancel for the maximum time."""


class BeginEnd(Struct, frozen=True, gc=False):
    """An end of the turn is being written."""


class FinishEnd(Struct, frozen=True, gc=False):
    """The write of an end returned, or failed."""


class TurnOver(Struct, frozen=True, gc=False):
    """The turn ended, or the task was released."""


class NextTurn(Struct, frozen=True, gc=False):
    """The same run continues with the turn of a waiting message."""


class GraceOver(Struct, frozen=True, gc=False):
    """The grace period of the worker is over."""


Event = (
    Begin
    | CallWorker
    | StopRun
    | CancelRun
    | Interrupt
    | CleanUp
    | CancelRaised
    | EnterShield
    | LeaveShield
    | ShieldOver
    | BeginEnd
    | FinishEnd
    | TurnOver
    | NextTurn
    | GraceOver
)

# --------------------------------------------------------------------------------------------------------- actions


class Alarm(Struct, frozen=True, gc=False):
    """Send ``event`` after this many seconds; replaces an earlier alarm."""

    seconds: float
    event: ShieldOver | GraceOver


Action = Literal["cancel worker", "settle", "close", "drop alarm", "overrule"] | Alarm
"""cancel worker: raise CancelledError in it. settle: return the outcome to waiting callers. close: the run ended before
it started. overrule: write the end of the task without its worker.
"""

Step = tuple[RunState, tuple[Action, ...]]


def step(state: RunState, event: Event, now: float = 0.0) -> Step:
    """Return the new state and the actions for an event. ``now`` is the time of a monotonic clock, in seconds."""
    match event:
        case BeginEnd():
            return replace(state, writing=state.writing + 1), ()
        case FinishEnd():
            return _stop_later(replace(state, writing=state.writing - 1), now)
        case TurnOver():
            return replace(state, phase="over"), ()
        case Begin():
            return (replace(state, phase="working") if state.phase == "new" else state), ()
        case CallWorker():
            return replace(state, replaying=False), ()
        case NextTurn():  # a stop of the previous turn does not apply to this one
            return replace(state, phase="working", stop=None), ("drop alarm",)
        case StopRun():
            return _stop(state, event.why, now)
        case CancelRun():
            return _cancel(state, event.late, now)
        case Interrupt():
            return (state, ()) if state.canceled or state.replaying else _stop(state, "interrupt", now)
        case CleanUp():
            return replace(state, cancel_at=now), (Alarm(state.cancel_seconds, GraceOver()),)
        case CancelRaised():
            return replace(state, stop="cancel"), ()
        case EnterShield():
            return _enter_shield(state, event.seconds, now)
        case LeaveShield():
            left = replace(state, shields=state.shields - 1)
            return _end_shield(left, now) if left.shields == 0 else (left, ())
        case ShieldOver():
            return _end_shield(state, now)
        case GraceOver():
            return state, (() if state.phase == "over" else ("overrule",))


def _stop(state: RunState, why: Stop, now: float) -> Step:
    if state.stop == why:
        return state, ()
    actions: tuple[Action, ...]
    if why == "lost":  # another process runs the task already
        stopped, actions = replace(state, stop=why, phase="over"), ("cancel worker", "settle")
    elif state.writing:
        return replace(state, later=why), ()
    elif state.shielded and why == "cancel":
        return replace(state, later=why), (Alarm(state.shield_seconds, ShieldOver()),)
    elif state.phase == "over":
        return state, ()
    else:
        grace = _grace(state, now) if why == "cancel" else STUBBORN_SECONDS
        stopped, actions = replace(state, stop=why), ("cancel worker", Alarm(grace, GraceOver()))
    if state.phase == "new":  # an asyncio task that is canceled before its first step never runs
        actions = (*actions, "close")
    return stopped, actions


def _cancel(state: RunState, late: float, now: float) -> Step:
    """Start the grace period. At least half of it is left, because ``late`` may compare the clocks of two machines."""
    if state.canceled:
        return state, ()
    began = now - min(max(late, 0.0), state.cancel_seconds / 2)
    canceled = replace(state, canceled=True, cancel_at=began, shield_used=state.shielded)
    return (canceled, ()) if state.replaying else _stop(canceled, "cancel", now)


def _grace(state: RunState, now: float) -> float:
    return max(state.cancel_at + state.cancel_seconds - now, LAST_SECONDS)


def _enter_shield(state: RunState, seconds: float, now: float) -> Step:
    entered = replace(state, shields=state.shields + 1)
    if entered.shields > 1 or state.phase == "over":
        return entered, ()
    holds = not (state.canceled and state.shield_used)
    entered = replace(entered, shield_seconds=seconds, shielded=holds)
    if holds and state.canceled:  # the worker cleans up
        return replace(entered, shield_used=True), (Alarm(max(seconds, _grace(state, now)), GraceOver()),)
    return entered, ()


def _end_shield(state: RunState, now: float) -> Step:
    if not state.shielded:
        return state, ()
    open_ = replace(state, shielded=False)
    if open_.later is not None:
        return _stop_later(open_, now)
    if open_.stop == "cancel":
        return open_, (Alarm(_grace(open_, now), GraceOver()),)
    return open_, ()


def _stop_later(state: RunState, now: float) -> Step:
    """Apply a stop that waited for a commit or for the end of a shielded block."""
    if state.later is None or state.writing:
        return state, ()
    return _stop(replace(state, later=None), state.later, now)
