"""Steering: the sanitizer equals penguiflow's for every input that the latter accepts, and always keeps its limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from penguiflow import steering as theirs

from keelbolt.errors import SteeringValidationError
from keelbolt.state.events import steering as ours
from keelbolt.state.types import SteeringEvent, SteeringEventType

TEXT = st.text(max_size=8) | st.integers(4090, 4100).map(lambda count: "ä" * count)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=4) | st.just(object)
KEYS = TEXT | st.integers() | st.integers(60, 70).map(lambda count: "k" * count)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(st.integers(), max_size=60)
        | st.lists(st.integers(), min_size=45, max_size=55)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(st.integers(), inner, min_size=60, max_size=70)
    ),
    max_leaves=60,
)


def nested(levels: int) -> Any:
    return {"a": nested(levels - 1)} if levels else "end"


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
@example({"a": nested(4)})
@example({"keys": dict.fromkeys(range(64)), "more": dict.fromkeys(range(65)), "items": [[0] * 50, [0] * 51]})
@example({"a": nested(5)})
@example({str(number): "x" * 4097 for number in range(5)})
@example({f"{'k' * 64}{number}": number for number in range(3)})
def test_the_sanitizer_equals_penguiflows(payload: dict[Any, Any]) -> None:
    """The comparison by repr treats NaN as equal, and True and 1 as different."""
    assert repr(ours.sanitize_payload(payload)) == repr(theirs.sanitize_payload(payload))


def test_the_limits_equal_penguiflows() -> None:
    names = [name for name in theirs.__all__ if name.startswith("MAX_")]
    assert len(names) == 5
    assert {name: getattr(ours, name) for name in names} == {name: getattr(theirs, name) for name in names}


class FailsToEncode:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "payload",
    [
        {"a": "\ud800"},
        {"\ud800": 1},
        {"a": 10**5000},
        {"a": FailsToEncode()},
        {FailsToEncode(): 1},
        {"a": 10**5000, "b": FailsToEncode()},
    ],
)
def test_values_that_penguiflows_sanitizer_rejects_are_cut(payload: dict[Any, Any]) -> None:
    """These are a lone surrogate, an integer of thousands of digits, and an object whose repr raises."""
    assert len(json.dumps(ours.sanitize_payload(payload), ensure_ascii=False).encode()) <= 16_384


def test_circular_values_are_bounded() -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    assert ours.sanitize_payload(circle) == theirs.sanitize_payload(circle)


VALID: dict[str, list[dict[str, Any]]] = {
    "INJECT_CONTEXT": [{"text": "a"}, {"text": "a", "scope": "task_only", "severity": "correction"}],
    "REDIRECT": [{"instruction": "a"}, {"goal": "a"}, {"query": "a", "constraints": {}}],
    "CANCEL": [{}, {"reason": "a", "hard": True}, {"more": 1}],
    "PRIORITIZE": [{"priority": 0}],
    "APPROVE": [{"resume_token": "a"}, {"patch_id": "a", "decision": "yes"}, {"event_id": "a"}],
    "REJECT": [{"patch_id": "a"}],
    "PAUSE": [{}, {"reason": "a"}],
    "RESUME": [{}],
    "USER_MESSAGE": [{"text": "a"}, {"text": "a", "active_tasks": ["t"]}],
}
INVALID: dict[str, list[dict[str, Any]]] = {
    "INJECT_CONTEXT": [{}, {"text": " "}, {"text": 1}, {"text": "a", "scope": "all"}, {"text": "a", "severity": "x"}],
    "REDIRECT": [{}, {"goal": 5}, {"goal": "a", "constraints": []}],
    "CANCEL": [{"reason": 1}, {"hard": "yes"}],
    "PRIORITIZE": [{}, {"priority": "1"}, {"priority": 1.0}],
    "APPROVE": [{}, {"patch_id": 5}, {"patch_id": "a", "decision": 1}],
    "REJECT": [{"resume_token": ""}],
    "PAUSE": [{"reason": 1}],
    "RESUME": [{"reason": []}],
    "USER_MESSAGE": [{}, {"text": ""}, {"text": "a", "active_tasks": "t"}],
}
CASES = [(name, payload, True) for name, payloads in VALID.items() for payload in payloads]
CASES += [(name, payload, False) for name, payloads in INVALID.items() for payload in payloads]


def event(name: str, payload: dict[str, Any]) -> SteeringEvent:
    return SteeringEvent(session_id="s", task_id="t", event_type=SteeringEventType(name), payload=payload)


@pytest.mark.parametrize(("name", "payload", "valid"), CASES)
def test_each_type_has_its_rule(name: str, payload: dict[str, Any], valid: bool) -> None:
    """The rules are those of penguiflow."""
    their_event = theirs.SteeringEvent(
        session_id="s", task_id="t", event_type=theirs.SteeringEventType(name), payload=payload
    )
    if valid:
        for one in (event(name, payload), their_event):
            kept, invalid = ours.checked(one)
            assert (kept.payload, invalid) == (payload, [])
        theirs.validate_steering_event(their_event)
        return
    _, invalid = ours.checked(event(name, payload))
    assert name in str(invalid)
    with pytest.raises(theirs.SteeringValidationError):
        theirs.validate_steering_event(their_event)


@pytest.mark.parametrize(
    ("name", "payload"),
    [("PRIORITIZE", {"priority": True}), ("INJECT_CONTEXT", {"text": "a", "scope": ["foreground"]})],
)
def test_rules_that_are_stricter_here(name: str, payload: dict[str, Any]) -> None:
    """True is not a priority, and a scope that is a list is refused with a message."""
    with pytest.raises(SteeringValidationError):
        ours.validate_steering_event(event(name, payload))


def test_all_validation_errors_are_reported() -> None:
    with pytest.raises(SteeringValidationError) as caught:
        ours.validate_steering_event(event("INJECT_CONTEXT", {"scope": 1, "severity": 2}))
    assert len(caught.value.errors) == 3
    with pytest.raises(SteeringValidationError, match="object"):
        ours.validate_steering_event(event("CANCEL", {}).model_copy(update={"payload": "text"}))


def test_an_oversized_message_is_valid_and_cut() -> None:
    """The original is validated, and the cut message is stored."""
    sent = event("USER_MESSAGE", {"text": "a", **{str(number): "x" * 4096 for number in range(5)}})
    kept, invalid = ours.checked(sent)
    assert not invalid
    assert set(kept.payload) == {"truncated", "summary"}
    assert len(sent.payload) == 6


def test_the_injection_equals_penguiflows() -> None:
    mine = event("USER_MESSAGE", {"text": "ä"})
    assert mine.to_injection() == theirs.SteeringEvent.model_validate(mine.model_dump()).to_injection()
