"""Figures: each fault test reports its numbers in one table at the end."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keelbolt.testing.postgres import OwnPostgres, own_postgres
from keelbolt.testing.valkey import OwnValkey, own_valkey
from tests.faults.processes import Children

Figures = Callable[..., None]

_lines = pytest.StashKey[list[tuple[str, str]]]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """Return a function that records numbers by name; they are printed when the session ends."""
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
    """Start processes, and kill them at the end of the test."""
    with Children() as started:
        yield started


@pytest.fixture(scope="session")
def strace() -> None:
    """Skip the test if system calls can't be traced."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trial = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        pytest.skip(f"strace may not trace here: {trial.stderr.strip()}")


# ---------------------------------------------------------------------------------------- one test, all shared engines

ENGINES = ("sqlite", "postgresql", "redis")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``task_url`` is on every engine; so is ``some_task_url`` with --full, otherwise only on SQLite."""
    full = metafunc.config.getoption("--full")
    for name, engines in (("task_url", ENGINES), ("some_task_url", ENGINES if full else ENGINES[:1])):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, engines, indirect=True)


@pytest.fixture(scope="session")
def task_postgres() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.fixture(scope="session")
def task_valkey() -> Iterator[OwnValkey]:
    with own_valkey() as started:
        yield started


@pytest.fixture
def task_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty storage that several processes can share."""
    match request.param:
        case "postgresql":
            with request.getfixturevalue("task_postgres").database() as url:
                yield url
        case "redis":
            yield request.getfixturevalue("task_valkey").create_database()
        case _:
            yield f"sqlite:///{tmp_path}/tasks.db"


some_task_url = task_url


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_lines, [])
    if lines:
        terminalreporter.section("faults: figures")
        width = max(len(fault) for fault, _ in lines)
        for fault, text in lines:
            terminalreporter.line(f"{fault:<{width}}  {text}")
