"""No request of at most 10 MiB blocks the agent or exhausts its memory, with any content.

`python -m benchmarks requests` prints the same measurements as a table; the bounds here are far above them, because a
loaded machine must not fail a test, and far below the cost of an unbounded request (26 seconds and 7 GB).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security import large_requests
from tests.security.measured import Measured, measured_agent

MOST_CPU_SECONDS = 0.25  # of the event loop's thread, without a pause
MOST_PAUSE_SECONDS = 5.0  # wall-clock time, on a machine that also does other work
MOST_TIMES = 16  # the memory that a body may use, as a multiple of its size
FREE_BYTES = 48 * 1024 * 1024  # of memory: caches that are filled by the first requests


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with measured_agent(f"sqlite:///{tmp_path_factory.mktemp('large')}/agent.db") as agent:
        yield agent


def check(measured: Measured, size: int) -> None:
    """Assert that the last request cost little."""
    cost = measured.report()
    assert cost["cpu_seconds"] < MOST_CPU_SECONDS, cost
    assert cost["pause_seconds"] < MOST_PAUSE_SECONDS, cost
    assert cost["rise_bytes"] < MOST_TIMES * size + FREE_BYTES, cost


@pytest.mark.parametrize("path", large_requests.BINDINGS)
@pytest.mark.parametrize("name", large_requests.REFUSED)
def test_refused(measured: Measured, name: str, path: str) -> None:
    body = large_requests.BINDINGS[path](large_requests.REFUSED[name]())
    assert len(body) <= large_requests.MOST
    measured.report()
    assert measured.post(path, body) in ((200, 413) if path == "/" else (400, 413))
    check(measured, len(body))


@pytest.mark.parametrize("path", large_requests.BINDINGS)
@pytest.mark.parametrize("name", large_requests.ACCEPTED)
def test_accepted(measured: Measured, name: str, path: str) -> None:
    body = large_requests.fresh(large_requests.BINDINGS[path](large_requests.ACCEPTED[name]()))
    assert len(body) <= large_requests.MOST
    measured.report()
    assert measured.post(path, body) == 200
    check(measured, len(body))


@pytest.mark.parametrize("name", large_requests.PROTOBUF)
def test_refused_by_grpc(measured: Measured, name: str) -> None:
    data = large_requests.PROTOBUF[name]()
    assert len(data) <= large_requests.MOST
    measured.report()
    assert measured.call(data) in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT")
    check(measured, len(data))
