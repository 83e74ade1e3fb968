"""No request of at most 10 MiB stalls the agent or exhausts its memory, whatever it is made of.

`python -m benchmarks requests` prints the same measurements as a table; the bounds here are far above them, because a
loaded machine must not fail a test, and far below what an unbounded request costs (26 seconds and 7 GB).
"""

from __future__ import annotations

import http.client
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.security import large_requests

ROOT = Path(__file__).parents[2]
MOST_CPU_SECONDS = 0.25  # of the event loop's thread, without a pause
MOST_PAUSE_SECONDS = 5.0  # by the clock, on a machine that does other work, too
MOST_TIMES = 16  # the memory that a body may take, in its own sizes
FREE_BYTES = 48 * 1024 * 1024  # of memory: caches that are filled by the first requests

numbers = itertools.count()


@dataclass(slots=True)
class Measured:
    """An agent in another process, and what its last request cost."""

    process: subprocess.Popen[str]
    port: int
    grpc_port: int

    def report(self) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, float] = json.loads(self.process.stdout.readline())
        return found

    def post(self, path: str, body: bytes) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", path, body, {"content-type": "application/json", "a2a-version": "1.0"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def check(self, size: int) -> None:
        """Assert that the last request cost little."""
        cost = self.report()
        assert cost["cpu_seconds"] < MOST_CPU_SECONDS, cost
        assert cost["pause_seconds"] < MOST_PAUSE_SECONDS, cost
        assert cost["rise_bytes"] < MOST_TIMES * size + FREE_BYTES, cost


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    storage = f"sqlite:///{tmp_path_factory.mktemp('large')}/agent.db"
    command = [sys.executable, "-m", "tests.security.measured_agent", storage]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port, grpc_port = map(int, process.stdout.readline().split())
    agent = Measured(process, port, grpc_port)
    agent.post("/message:send", large_requests.rest(large_requests.ACCEPTED["data of 99,000 numbers"]()))
    yield agent
    process.kill()
    process.communicate()


BINDINGS = [("/", large_requests.jsonrpc), ("/message:send", large_requests.rest)]


@pytest.mark.parametrize(("path", "wrapped"), BINDINGS, ids=["jsonrpc", "rest"])
@pytest.mark.parametrize("name", large_requests.REFUSED)
def test_refused(measured: Measured, name: str, path: str, wrapped: Callable[[bytes], bytes]) -> None:
    body = wrapped(large_requests.REFUSED[name]())
    assert len(body) <= large_requests.MOST
    measured.report()
    assert measured.post(path, body) in ((200, 413) if path == "/" else (400, 413))
    measured.check(len(body))


@pytest.mark.parametrize(("path", "wrapped"), BINDINGS, ids=["jsonrpc", "rest"])
@pytest.mark.parametrize("name", large_requests.ACCEPTED)
def test_accepted(measured: Measured, name: str, path: str, wrapped: Callable[[bytes], bytes]) -> None:
    body = wrapped(large_requests.ACCEPTED[name]()).replace(b'"messageId":"m"', b'"messageId":"%d"' % next(numbers))
    assert len(body) <= large_requests.MOST
    measured.report()
    assert measured.post(path, body) == 200
    measured.check(len(body))


@pytest.mark.parametrize("name", large_requests.PROTOBUF)
def test_refused_by_grpc(measured: Measured, name: str) -> None:
    grpc: Any = import_module("grpc")
    data = large_requests.PROTOBUF[name]()
    assert len(data) <= large_requests.MOST
    with grpc.insecure_channel(f"127.0.0.1:{measured.grpc_port}") as channel:
        call = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
        measured.report()
        with pytest.raises(grpc.RpcError) as caught:
            call(data, timeout=120)
    refused = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
    assert caught.value.code() in refused
    measured.check(len(data))
