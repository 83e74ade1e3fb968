"""What a run does about cancels, interrupts, drains, lost leases and stubborn workers. Pure: no clock, no I/O.

A state and an event give a new state and actions; `Run` performs the actions. The worker is stopped by an error at its
next await. A stop that arrives while an end of the turn is written waits for that commit. A cancel that arrives in a
shielded block waits for the end of the block, within limits. A worker that continues after its grace is overruled: the
end of its task is written without it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

STUBBORN_SECONDS = 5.0  # grace of a worker that was stopped for another reason than a cancel
LAST_SECONDS = 0.25  # grace of a worker that is stopped when its grace is used up already

Stop = Literal["cancel", "interrupt", "no progress", "drain", "lost"]
Phase = Literal["new", "working", "over"]


class RunState(Struct, frozen=True, gc=False):
    """Where a run stands.

    ``phase`` is new until the first step of the run, and over when the turn ended here or the task was let go.
    ``replaying`` is true while a turn that is run again has not called its worker yet.
    """

    cancel_seconds: float  # grace of a canceled worker
    phase: Phase = "new"
    replaying: bool = False
    writing: int = 0  # ends of the turn that are being written
    stop: Stop | None = None  # why the worker was stopped
    later: Stop | None = None  # a stop that waits for a commit or for the end of a shielded block
    canceled: bool = False  # the client cancelled the task
    cancel_at: float = 0.0  # when the grace of the cancel began
    shields: int = 0  # nested shielded blocks
    shield_seconds: float = 0.0  # of the outermost
    shielded: bool = False  # the block holds a cancel off
    shield_used: bool = False  # a canceled worker gets one such block


# ---------------------------------------------------------------------------------------------------------- events


class Begin(Struct, frozen=True, gc=False):
    """The run takes its first step."""


class Call(Struct, frozen=True, gc=False):
    """The worker of a turn that is run again is called now."""


class StopRun(Struct, frozen=True, gc=False):
    """The worker shall stop."""

    why: Stop


class Cancel(Struct, frozen=True, gc=False):
    """The client cancels the task. It sent the cancel ``late`` seconds ago and waits since then."""

    late: float = 0.0


class Interrupt(Struct, frozen=True, gc=False):
    """A message arrived that does not wait for the end of the turn."""


class CleanUp(Struct, frozen=True, gc=False):
    """The worker of a canceled task is called once more, to clean up."""


class CancelRaised(Struct, frozen=True, gc=False):
    """The worker got the error of its cancel from a call of its context."""


class EnterShield(Struct, frozen=True, gc=False):
    """The worker begins a block that a cancel stops only after so many seconds."""

    seconds: float


class LeaveShield(Struct, frozen=True, gc=False):
    """The worker leaves the block."""


class ShieldOver(Struct, frozen=True, gc=False):
    """The block held the cancel off for as long as it may."""


class BeginEnd(Struct, frozen=True, gc=False):
    """An end of the turn is being written."""


class FinishEnd(Struct, frozen=True, gc=False):
    """The write of an end returned, or failed."""


class TurnOver(Struct, frozen=True, gc=False):
    """The turn ended, or the task was let go."""


class NextTurn(Struct, frozen=True, gc=False):
    """The same run continues with the turn of a message that waited."""


class GraceOver(Struct, frozen=True, gc=False):
    """The worker had its time to stop."""


Event = (
    Begin
    | Call
    | StopRun
    | Cancel
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
    """Report ``event`` after so many seconds; an earlier alarm is dropped."""

    seconds: float
    event: ShieldOver | GraceOver


Action = Literal["cancel worker", "settle", "close", "drop alarm", "overrule"] | Alarm
"""cancel worker: raise CancelledError in it. settle: answer the callers that wait for the end. close: the run is over
before it began. overrule: write the end of the task without its worker."""

Step = tuple[RunState, tuple[Action, ...]]


def step(state: RunState, event: Event, now: float = 0.0) -> Step:
    """What an event does to a run. ``now`` is the time of a steady clock, in seconds."""
    match event:
        case BeginEnd():
            return replace(state, writing=state.writing + 1), ()
        case FinishEnd():
            return _stop_later(replace(state, writing=state.writing - 1), now)
        case TurnOver():
            return replace(state, phase="over"), ()
        case Begin():
            return (replace(state, phase="working") if state.phase == "new" else state), ()
        case Call():
            return replace(state, replaying=False), ()
        case NextTurn():  # what was meant for the turn before is not meant for this one
            return replace(state, phase="working", stop=None), ("drop alarm",)
        case StopRun():
            return _stop(state, event.why, now)
        case Cancel():
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
    if why == "lost":  # another process runs the task, whatever this worker does
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
    if state.phase == "new":  # an asyncio task that is cancelled before its first step never takes one
        actions = (*actions, "close")
    return stopped, actions


def _cancel(state: RunState, late: float, now: float) -> Step:
    """Half of the grace is left in any case: ``late`` may compare the clocks of two machines."""
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
    """Do what waited for a commit, or for the end of a shielded block."""
    if state.later is None or state.writing:
        return state, ()
    return _stop(replace(state, later=None), state.later, now)
