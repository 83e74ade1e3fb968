"""Retention policies in text form."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.data.retention import days, hours, minutes, read_age
from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import TaskState
from keelbolt.tasks.settings import RetentionPolicy


def test_a_policy_as_text() -> None:
    policy = RetentionPolicy.parse(["completed=30d", "failed=12w, log=1h", " every=90s"])
    assert policy == RetentionPolicy(completed=days(30), failed=days(84), log=hours(1), every=minutes(1.5))
    assert dict(policy.ages()) == {TaskState.completed: days(30), TaskState.failed: days(84)}


def test_nothing_is_erased_by_default() -> None:
    assert list(RetentionPolicy().ages()) == []
    assert RetentionPolicy().log is None


@pytest.mark.parametrize("text", ["30", "d", "1 d", "-1d", "1y", "1e3s", "٣d", "inf", "", "1dd"])
def test_invalid_ages(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not an age"):
        read_age(text)


@pytest.mark.parametrize("text", ["completed", "completed=3", "working=1d", "submitted=1d", "=1d", "COMPLETED=1d"])
def test_invalid_policies(text: str) -> None:
    with pytest.raises(InvalidValue):
        RetentionPolicy.parse([text])


@pytest.mark.parametrize(
    "bad", [{"completed": -1}, {"failed": "30d"}, {"log": float("nan")}, {"every": 0}, {"log": True}]
)
def test_invalid_seconds(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        RetentionPolicy(**bad)
