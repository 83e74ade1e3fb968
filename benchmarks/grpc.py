"""Measures gRPC beside JSON-RPC: the same messages to the same agent in the same run."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable

from benchmarks.grpc_load import call_all
from benchmarks.http_load import Rate, answer, message, post_all, request
from benchmarks.processes import Served
from benchmarks.report import Report
from benchmarks.server import CARD, CONNECTIONS, served
from keelbolt.protocol.protobuf.methods import METHODS_V1

LEAST = 0.8
ROUNDS = 4
_SEND = METHODS_V1["SendMessage"]


async def run(url: str | None = None, *, quick: bool = False, progress: Callable[[str], None] = print) -> Report:
    """Return all figures of gRPC."""
    report = Report()
    each = 60 if quick else 300
    with tempfile.TemporaryDirectory() as folder:
        await _sends(report, "durable", url or f"sqlite:///{folder}/agent.db", each, progress)
        await _sends(report, "memory", "memory:", each, progress)
    return report


async def _sends(report: Report, name: str, url: str, each: int, progress: Callable[[str], None]) -> None:
    """Measure both in turn, several times, so that a slow period of the machine affects both."""
    by_grpc: list[Rate] = []
    by_json: list[Rate] = []
    cpu = {"gRPC": 0.0, "JSON-RPC": 0.0}
    async with served("grpc", url) as agent:
        port = await _grpc_port(agent)
        for round_ in range(ROUNDS):
            progress(f"SendMessage, {name}, round {round_ + 1} of {ROUNDS}")
            before = agent.cpu_seconds()
            json_rate = await post_all(agent.port, _bodies(f"j{round_}"), connections=CONNECTIONS, each=each)
            between = agent.cpu_seconds()
            grpc_rate = await call_all(
                port,
                _SEND.path,
                _messages(f"g{round_}"),
                connections=CONNECTIONS,
                each=each,
                expected=b"You said: Hello",
            )
            if round_ > 0:  # the first round warms up
                by_json.append(json_rate)
                by_grpc.append(grpc_rate)
                cpu["JSON-RPC"] += between - before
                cpu["gRPC"] += agent.cpu_seconds() - between
    calls = (ROUNDS - 1) * CONNECTIONS * each
    rates = {}
    for binding, measured in (("gRPC", by_grpc), ("JSON-RPC", by_json)):
        rates[binding] = sum(rate.per_second for rate in measured) / len(measured)
        report.note(f"SendMessage by {binding}, {name}", rates[binding], "per second")
        report.note(f"SendMessage by {binding}, {name}, p99", max(rate.p99 for rate in measured) * 1000, "ms")
        report.note(f"SendMessage by {binding}, {name}, CPU", cpu[binding] / calls * 1e6, "µs each")
    report.at_least(f"gRPC ÷ JSON-RPC, {name}", rates["gRPC"] / rates["JSON-RPC"], "×", LEAST)


def _bodies(tag: str) -> Callable[[int, int], bytes]:
    return lambda connection, number: message("Hello", f"{tag}-{connection}-{number}")


def _messages(tag: str) -> Callable[[int, int], bytes]:
    def made(connection: int, number: int) -> bytes:
        body = {"messageId": f"{tag}-{connection}-{number}", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
        return _SEND.write_request(json.dumps({"message": body}).encode())

    return made


async def _grpc_port(agent: Served) -> int:
    """Return the gRPC address in the card."""
    reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
    writer.write(request("GET", CARD))
    card = json.loads(await answer(reader))
    writer.close()
    where = next(one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
    return int(where.rpartition(":")[2])
