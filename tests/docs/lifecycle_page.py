"""Draws the lifecycle of a task from the code. After a change of the code: python -m tests.docs.lifecycle_page"""

from __future__ import annotations

from pathlib import Path

from keelbolt.protocol.types import TaskState
from keelbolt.tasks.lifecycle import TRANSITIONS

PAGE = Path(__file__).parents[2] / "docs/reference/lifecycle.md"
BEGIN = "<!-- drawn from keelbolt.tasks.lifecycle.TRANSITIONS: begin -->\n"
END = "<!-- drawn from keelbolt.tasks.lifecycle.TRANSITIONS: end -->\n"


def kind(state: TaskState) -> str:
    return "terminal" if state.terminal else "paused" if state.paused else "active"


def drawing() -> str:
    arrows = [
        f"    {state.name} --> {to.name}: {why}"
        for state, follows in TRANSITIONS.items()
        for to, why in follows.items()
    ]
    ends = [f"    {state.name} --> [*]" for state in TRANSITIONS if state.terminal]
    return "\n".join(["stateDiagram-v2", "    [*] --> submitted: a message is sent", *arrows, *ends])


def table() -> str:
    rows = [
        f"| `{state.name}` | {kind(state)} | `{to.name}` | {why} |"
        for state, follows in TRANSITIONS.items()
        for to, why in follows.items()
    ]
    ends = [
        f"| `{state.name}` | {kind(state)} | | nothing leads out of it |" for state in TRANSITIONS if state.terminal
    ]
    return "\n".join(["| from | which is | to | what brings it about |", "|---|---|---|---|", *rows, *ends])


def drawn() -> str:
    """Return the generated text between the two marks of the page."""
    return f"\n```mermaid\n{drawing()}\n```\n\n{table()}\n\n"


def parts(page: str) -> tuple[str, str, str]:
    """Return the page before the marks, between them, and after them."""
    before, rest = page.split(BEGIN)
    between, after = rest.split(END)
    return before, between, after


if __name__ == "__main__":
    before, _, after = parts(PAGE.read_text())
    PAGE.write_text(before + BEGIN + drawn() + END + after)
