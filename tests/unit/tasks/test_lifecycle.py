"""The lifecycle of a task: only its transitions are possible, and each other command has its own error."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from keelbolt.errors import (
    IllegalTransition,
    TaskError,
    TaskNotAcceptingMessagesError,
    TaskNotCancelableError,
    TaskTerminalStateError,
)
from keelbolt.protocol.types import PAUSED, TERMINAL, TaskState
from keelbolt.tasks.lifecycle import (
    TRANSITIONS,
    ClientCancel,
    Command,
    End,
    ProgressReport,
    UserAnswer,
    WorkerStart,
    apply,
    check_transition,
)
from keelbolt.tasks.notes import MessageNote, StatusNote

S = TaskState
NOW = "2026-01-01T00:00:00.000Z"

# Written out by hand as a second source: the transitions of the lifecycle, and the three that were added to it.
ARROWS = {
    (S.submitted, S.working),
    (S.submitted, S.canceled),
    (S.submitted, S.failed),
    (S.working, S.completed),
    (S.working, S.failed),
    (S.working, S.canceled),
    (S.working, S.rejected),
    (S.working, S.input_required),
    (S.working, S.auth_required),
    (S.input_required, S.submitted),
    (S.input_required, S.canceled),
    (S.input_required, S.failed),
    (S.auth_required, S.submitted),
    (S.auth_required, S.canceled),
    (S.auth_required, S.failed),
}

STATES = st.sampled_from(list(S))
WORDS = st.none() | st.sampled_from([b'{"messageId":"m"}', b"{}"])
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.just(WorkerStart()),
    st.builds(ProgressReport, WORDS),
    st.builds(End, STATES, WORDS, st.none() | st.just(b'{"a":1}')),
    st.builds(UserAnswer, st.just(b'{"messageId":"m"}')),
    st.builds(ClientCancel, WORDS),
)


@pytest.mark.parametrize(("state", "to"), list(product(S, S)), ids=lambda state: state.name)
def test_transitions(state: TaskState, to: TaskState) -> None:
    """Only the listed transitions are possible; others raise, from a terminal state TaskTerminalStateError."""
    if (state, to) in ARROWS:
        check_transition("t", state, to)
        assert TRANSITIONS[state][to]  # the cause of the transition, for the docs
    else:
        with pytest.raises(TaskTerminalStateError if state in TERMINAL else IllegalTransition):
            check_transition("t", state, to)


def test_every_state_is_reachable() -> None:
    """Terminal states have no transition, all others have one, and each state can be reached."""
    assert set(TRANSITIONS) == set(S)
    assert {state for state in S if not TRANSITIONS[state]} == TERMINAL
    assert {to for ends in TRANSITIONS.values() for to in ends} == set(S)
    assert not TERMINAL & PAUSED


@given(STATES, COMMANDS)
def test_a_decision_follows_a_transition(state: TaskState, command: Command) -> None:
    """Each command's new state is one transition away (or stays working), and the last note records it."""
    try:
        decision = apply("t", state, command, now=NOW)
    except TaskError:
        return
    assert (state, decision.state) in ARROWS or (state, decision.state) == (S.working, S.working)
    last = decision.notes[-1]
    assert isinstance(last, StatusNote)
    assert last.state is decision.state
    status = from_json(last.data)["status"]
    assert status["state"] == decision.state.value
    assert status["timestamp"] == NOW


@given(STATES, COMMANDS)
def test_the_right_error(state: TaskState, command: Command) -> None:
    """Each wrong command has its own error, which names the task and its state."""
    try:
        apply("t", state, command, now=NOW)
    except TaskError as error:
        raised: TaskError | None = error
    else:
        raised = None
    if raised is not None:
        expected: type[TaskError] = TaskTerminalStateError if state in TERMINAL else IllegalTransition
        if isinstance(command, ClientCancel):
            expected = TaskNotCancelableError
        elif isinstance(command, UserAnswer) and state not in TERMINAL:
            expected = TaskNotAcceptingMessagesError
        assert type(raised) is expected
        assert state.name in str(raised)
    else:
        right: dict[type[Command], frozenset[TaskState]] = {
            WorkerStart: frozenset({S.submitted}),
            ProgressReport: frozenset({S.working, S.submitted}),
            UserAnswer: PAUSED,
            ClientCancel: frozenset(S) - TERMINAL,
        }
        assert isinstance(command, End) or state in right[type(command)]


@given(STATES, st.lists(COMMANDS, max_size=20))
def test_any_sequence_of_commands(state: TaskState, commands: list[Command]) -> None:
    """For any sequence of commands, an ended task stays unchanged, and each step is a transition."""
    way = [state]
    for command in commands:
        try:
            way.append(apply("t", way[-1], command, now=NOW).state)
        except TaskError:
            pass
        else:
            assert way[-2] not in TERMINAL
    assert all(step in ARROWS or step == (S.working, S.working) for step in pairwise(way))


@given(st.sampled_from(sorted(PAUSED)))
def test_an_answer_precedes_the_new_state(state: TaskState) -> None:
    """The user's answer is in the history before the task is submitted again."""
    message, status = apply("t", state, UserAnswer(b'{"messageId":"a"}'), now=NOW).notes
    assert message == MessageNote(b'{"messageId":"a"}')
    assert isinstance(status, StatusNote)
    assert status.said is None


def test_messages_of_ends_belong_to_the_history() -> None:
    """The message of an end or a cancel is part of the history; that of a report is shown and not stored."""
    words = b'{"messageId":"w"}'
    kept = [
        apply("t", S.working, End(S.completed, words), now=NOW).notes,
        apply("t", S.submitted, ClientCancel(words), now=NOW).notes,
    ]
    assert [note.said for (note,) in kept if isinstance(note, StatusNote)] == [words, words]
    (report,) = apply("t", S.working, ProgressReport(words), now=NOW).notes
    assert isinstance(report, StatusNote)
    assert report.said is None
    assert b'"w"' in report.data


def test_metadata_of_an_end() -> None:
    (note,) = apply("t", S.working, End(S.failed, None, b'{"a":1}'), now=NOW).notes
    assert from_json(note.data)["metadata"] == {"a": 1}
