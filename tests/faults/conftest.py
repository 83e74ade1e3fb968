"""Figures: each fault says what it did and what came of it, in one table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.processes import Children

Figures = Callable[..., None]

_lines = pytest.StashKey[list[tuple[str, str]]]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """Call it with numbers by name: they are printed when the session ends."""
    lines = request.config.stash.setdefault(_lines, [])

    def note(fault: str, **numbers: object) -> None:
        lines.append(
            (fault, ", ".join(f"{_number(value)} {name.replace('_', ' ')}" for name, value in numbers.items()))
        )

    return note


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@pytest.fixture
def children() -> Iterator[Children]:
    """Starts processes, and leaves none behind."""
    with Children() as started:
        yield started


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_lines, [])
    if lines:
        terminalreporter.section("faults: figures")
        width = max(len(fault) for fault, _ in lines)
        for fault, text in lines:
            terminalreporter.line(f"{fault:<{width}}  {text}")
