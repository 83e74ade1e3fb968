"""The state machine of a run: its rules hold for any sequence of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from keelbolt.tasks.run_state import (
    LAST_SECONDS,
    STUBBORN_SECONDS,
    Action,
    Alarm,
    Begin,
    BeginEnd,
    CallWorker,
    CancelRaised,
    CancelRun,
    CleanUp,
    EnterShield,
    Event,
    FinishEnd,
    GraceOver,
    Interrupt,
    LeaveShield,
    NextTurn,
    RunState,
    ShieldOver,
    Stop,
    StopRun,
    TurnOver,
    step,
)

GRACE = 10.0
NEW = RunState(GRACE)
WORKING = replace(NEW, phase="working")
STOPS: tuple[Stop, ...] = ("cancel", "interrupt", "no progress", "drain", "lost")

plain: list[Event] = [
    Begin(),
    CallWorker(),
    Interrupt(),
    CleanUp(),
    LeaveShield(),
    ShieldOver(),
    BeginEnd(),
    FinishEnd(),
    TurnOver(),
    NextTurn(),
    GraceOver(),
]
seconds = st.floats(0, 100)
EVENTS = st.one_of(
    st.sampled_from(plain),
    st.builds(StopRun, st.sampled_from(STOPS)),
    st.builds(CancelRun, st.floats(-100, 100)),
    st.builds(EnterShield, seconds),
)


def possible(state: RunState, event: Event) -> bool:
    """Whether the driver can report this event now: each started action finishes once."""
    match event:
        case LeaveShield():
            return state.shields > 0
        case FinishEnd():
            return state.writing > 0
        case NextTurn():
            return state.phase == "over" and state.stop != "lost"
        case _:
            return True


@given(st.booleans(), st.lists(st.tuples(EVENTS, st.floats(0, 5)), max_size=40))
def test_rules_hold_for_any_sequence_of_events(replaying: bool, events: list[tuple[Event, float]]) -> None:
    state, now = replace(NEW, replaying=replaying), 100.0
    alarm: Alarm | None = None
    for event, passed in events:
        if not possible(state, event):
            continue
        before, now = state, now + passed
        state, actions = step(state, event, now)
        alarms = [action for action in actions if isinstance(action, Alarm)]
        alarm = alarms[-1] if alarms else None if "drop alarm" in actions else alarm
        if "cancel worker" in actions:
            if state.stop == "lost":
                assert actions[1] == "settle"
                assert state.phase == "over"
            else:
                assert not state.writing, "a worker is stopped while an end is written"
                assert before.phase != "over", "a worker is stopped after its turn"
                assert len(alarms) == 1, "a worker that continues would never be overruled"
                assert not (state.stop == "cancel" and state.shielded)
            assert ("close" in actions) is (before.phase == "new")
        for ringing in alarms:
            assert ringing.seconds >= 0
            if isinstance(ringing.event, GraceOver):
                longest = max(GRACE, STUBBORN_SECONDS, state.shield_seconds)
                assert LAST_SECONDS <= ringing.seconds <= longest + 1e-6
        if before.canceled:
            assert state.canceled, "a cancel is never forgotten"
        if before.phase == "over" and not isinstance(event, NextTurn):
            assert state.phase == "over"
        assert state.shielded <= (state.shields > 0)
    assert state.later is None or state.writing or state.shielded, "a stop waits for something that is over"


@given(st.lists(EVENTS, max_size=20))
def test_a_cancel_of_a_working_worker_stops_it_in_the_end(events: list[Event]) -> None:
    """After a cancel, once all commits and shielded blocks are over, the worker is stopped or its turn has ended."""
    state, now = WORKING, 0.0
    for event in [CancelRun(), *events]:
        if possible(state, event) and not isinstance(event, NextTurn):
            state, _ = step(state, event, now)
    while state.writing:
        state, _ = step(state, FinishEnd(), now)
    while state.shields:
        state, _ = step(state, LeaveShield(), now)
    assert state.phase == "over" or state.stop is not None


def after(state: RunState, *events: Event, now: float = 0.0) -> tuple[RunState, tuple[Action, ...]]:
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event, now)
    return state, actions


@pytest.mark.parametrize("why", ["cancel", "interrupt", "no progress", "drain"])
def test_a_stop_waits_for_the_commit_of_an_end(why: Stop) -> None:
    state, actions = after(WORKING, BeginEnd(), StopRun(why))
    assert (state.later, actions) == (why, ())
    assert after(state, FinishEnd())[1][0] == "cancel worker"
    ended, actions = after(state, TurnOver(), FinishEnd())
    assert (ended.stop, actions) == (None, ())


def test_a_lost_lease_waits_for_nothing() -> None:
    state, actions = after(WORKING, EnterShield(5.0), BeginEnd(), StopRun("lost"))
    assert (state.phase, actions) == ("over", ("cancel worker", "settle"))


def test_a_shielded_block_delays_one_cancel_for_its_time() -> None:
    state, actions = after(WORKING, EnterShield(5.0), CancelRun())
    assert actions == (Alarm(5.0, ShieldOver()),)
    for over in (ShieldOver(), LeaveShield()):
        assert after(state, over)[1] == ("cancel worker", Alarm(GRACE, GraceOver()))
    assert not after(state, LeaveShield(), EnterShield(5.0))[0].shielded


def test_a_canceled_worker_cleans_up_in_one_block_that_extends_its_grace() -> None:
    state, actions = after(WORKING, CancelRun(), EnterShield(30.0))
    assert actions == (Alarm(30.0, GraceOver()),)
    assert after(state, LeaveShield())[1] == (Alarm(GRACE, GraceOver()),)


def test_the_grace_of_a_cancel_runs_from_its_send_but_at_least_half_is_left() -> None:
    assert after(WORKING, CancelRun(3.0))[1][1] == Alarm(GRACE - 3.0, GraceOver())
    assert after(WORKING, CancelRun(3600.0))[1][1] == Alarm(GRACE / 2, GraceOver())
    assert after(WORKING, CancelRun(-3600.0))[1][1] == Alarm(GRACE, GraceOver())


def test_a_turn_that_is_run_again_is_not_stopped_before_its_worker_is_called() -> None:
    replaying = replace(WORKING, replaying=True)
    state, actions = after(replaying, CancelRun())
    assert (state.canceled, state.stop, actions) == (True, None, ())
    assert after(replaying, Interrupt())[1] == ()
    assert after(state, CallWorker(), CleanUp(), now=7.0)[0].cancel_at == 7.0
    assert after(state, CancelRaised())[0].stop == "cancel"


def test_a_worker_that_does_not_stop_is_overruled_once_its_grace_is_over() -> None:
    stopped, _ = after(WORKING, StopRun("drain"))
    assert after(stopped, GraceOver())[1] == ("overrule",)
    assert after(stopped, TurnOver(), GraceOver())[1] == ()


def test_the_next_turn_clears_the_stop_of_the_previous_one() -> None:
    state, actions = after(WORKING, Interrupt(), TurnOver(), NextTurn())
    assert (state.phase, state.stop, actions) == ("working", None, ("drop alarm",))
