"""A callback, an option or an event of turns that is not in the reference is a failure."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from keelbolt.turns import durable_storage
from keelbolt.turns.callbacks import CALLBACKS
from keelbolt.turns.events import FUNCTIONAL, OBSERVED, WRITTEN
from keelbolt.turns.runner import TurnRunnerConfig

PAGE = (Path(__file__).parents[2] / "docs/reference/turns.md").read_text()


@pytest.mark.parametrize("name", sorted({*TurnRunnerConfig.__annotations__, *FUNCTIONAL, *(OBSERVED - WRITTEN)}))
def test_every_name_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_every_callback_is_shown_with_its_shape() -> None:
    lines = PAGE.splitlines()
    for callback in CALLBACKS.values():
        assert any(f"`{callback.name}`" in line and f"`{callback.shape}`" in line for line in lines), callback.name


@pytest.mark.parametrize("name", list(inspect.signature(durable_storage).parameters)[1:])
def test_every_option_of_durable_storage_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE.split("## durable_storage")[1]
