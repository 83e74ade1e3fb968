"""Starts `measured_agent` and sends requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.security import large_requests

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Measured:
    """An agent in another process, and the cost of its last request."""

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

    def call(self, data: bytes) -> str:
        """Send a SendMessageRequest by gRPC, and return the name of the status."""
        grpc: Any = import_module("grpc")
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            try:
                channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")(data, timeout=120)
            except grpc.RpcError as error:
                return str(error.code().name)
        return "OK"


@contextlib.contextmanager
def measured_agent(storage: str) -> Iterator[Measured]:
    """Start an agent and fill its caches."""
    command = [sys.executable, "-m", "tests.security.measured_agent", storage]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port, grpc_port = map(int, process.stdout.readline().split())
        agent = Measured(process, port, grpc_port)
        agent.post("/message:send", large_requests.rest(large_requests.ACCEPTED["one large text"]()))
        yield agent
    finally:
        process.kill()
        process.communicate()
