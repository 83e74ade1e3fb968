"""Settings: arguments before the environment before the defaults; invalid values are refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from keelbolt.errors import InvalidValue
from keelbolt.tasks import TaskSettings


def test_defaults() -> None:
    settings = TaskSettings.of({})
    assert settings == TaskSettings()
    assert (settings.lease_seconds, settings.heartbeat_seconds, settings.max_attempts) == (15.0, 5.0, 5)
    assert settings.double_text == "enqueue"


def test_arguments_before_environment() -> None:
    environment = {"KEELBOLT_CONCURRENCY": "7", "KEELBOLT_MAX_ATTEMPTS": "3", "OTHER": "x"}
    settings = TaskSettings.of(environment, concurrency=2, cancel_seconds=None)
    assert (settings.concurrency, settings.max_attempts, settings.cancel_seconds) == (2, 3, 2.0)


def test_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEELBOLT_DOUBLE_TEXT", "interrupt")
    assert TaskSettings.of().double_text == "interrupt"


@pytest.mark.parametrize("field", [field.name for field in fields(TaskSettings)])
def test_every_setting_has_its_variable(field: str) -> None:
    """Each setting can be set in the environment, and then has the type of its default."""
    default = getattr(TaskSettings(), field)
    given = {"double_text": "reject", "repeated_send": "new", "lease_seconds": "60", "heartbeat_seconds": "2"}.get(
        field, "3"
    )
    value = getattr(TaskSettings.of({f"KEELBOLT_{field.upper()}": given}), field)
    assert type(value) is type(default)
    assert str(value).removesuffix(".0") == given


def test_a_lease_sets_its_heartbeat() -> None:
    """With only the lease set, the heartbeat is derived from it."""
    assert TaskSettings.of({}, lease_seconds=3).heartbeat_seconds == 1.0
    assert TaskSettings.of({"KEELBOLT_LEASE_SECONDS": "30"}).heartbeat_seconds == 10.0
    assert TaskSettings.of({}, lease_seconds=3, heartbeat_seconds=0.5).heartbeat_seconds == 0.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"concurrency": -1},
        {"concurrency": 1.5},
        {"concurrency": "5"},
        {"concurrency": True},
        {"max_attempts": 0},
        {"max_attempts": 2.5},
        {"lease_seconds": 1.0},
        {"heartbeat_seconds": 0},
        {"heartbeat_seconds": 8},
        {"cancel_seconds": -0.1},
        {"cancel_seconds": float("nan")},
        {"drain_seconds": "long"},
        {"double_text": "ignore"},
        {"double_text": 5},
    ],
    ids=str,
)
def test_invalid_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        TaskSettings(**wrong)


def test_unknown_settings() -> None:
    with pytest.raises(InvalidValue, match="there is no setting concurency"):
        TaskSettings.of({}, concurency=5)


@pytest.mark.parametrize("text", ["many", "", "1.5", "0x10", "nan"])
def test_an_invalid_environment(text: str) -> None:
    """The error names the variable."""
    with pytest.raises(InvalidValue, match=r"KEELBOLT_CONCURRENCY|concurrency"):
        TaskSettings.of({"KEELBOLT_CONCURRENCY": text})
