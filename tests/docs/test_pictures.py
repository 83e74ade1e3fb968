"""The pictures are drawn from their texts, and the lifecycle of a task equals that of the task engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.images.draw import FOLDER, draw, read
from keelbolt.tasks.lifecycle import TRANSITIONS

TEXTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_the_picture_is_drawn_from_its_text(text: Path) -> None:
    """After a change of the text: python docs/images/draw.py"""
    assert text.with_suffix(".svg").read_text() == draw(text.read_text())


def test_the_life_of_a_task_has_the_arrows_of_the_engine() -> None:
    """A box represents all states that it names; boxes without a state (a message, a kill) are not compared."""
    _, boxes, arrows = read((FOLDER / "task-life.txt").read_text())
    states = {state.name for state in TRANSITIONS}
    home = {
        word: box.name for box in boxes.values() for word in re.findall(r"\w+", " ".join(box.lines)) if word in states
    }
    assert set(home) == states
    drawn = {(arrow.start, arrow.end) for arrow in arrows if {arrow.start, arrow.end} <= set(home.values())}
    assert drawn == {(home[state.name], home[to.name]) for state, follows in TRANSITIONS.items() for to in follows}
