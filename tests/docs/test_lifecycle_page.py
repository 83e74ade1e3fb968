"""The page about the lifecycle of a task is generated from the code."""

from __future__ import annotations

import re

from keelbolt.protocol.types import PAUSED, TERMINAL, TaskState
from tests.docs.lifecycle_page import PAGE, drawn, parts


def test_the_page_is_drawn_from_the_code() -> None:
    _, between, _ = parts(PAGE.read_text())
    assert between == drawn(), "renew it with: python -m tests.docs.lifecycle_page"


def test_every_state_has_a_section() -> None:
    _, _, after = parts(PAGE.read_text())
    rows = re.findall(r"^\| `(\w+)` \| (terminal|paused|active) \|", after, re.MULTILINE)
    documented = {TaskState[name]: kind for name, kind in rows}
    assert set(documented) == set(TaskState)
    assert {state for state, kind in documented.items() if kind == "terminal"} == TERMINAL
    assert {state for state, kind in documented.items() if kind == "paused"} == PAUSED
