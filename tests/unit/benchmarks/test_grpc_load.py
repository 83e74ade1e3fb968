"""The load of `python -m benchmarks grpc` speaks gRPC well enough, and notices what goes wrong."""

from __future__ import annotations

import pytest

from benchmarks.grpc import _messages
from benchmarks.grpc_load import call_all
from keelbolt.protocol.protobuf.methods import METHODS_V1
from tests.integration.grpc.speaking import PB, talking

SEND = METHODS_V1["SendMessage"].path


async def test_every_call_is_answered() -> None:
    async with talking() as talk:
        assert talk.server.routes.grpc is not None
        port = talk.server.routes.grpc.at.port
        rate = await call_all(port, SEND, _messages("t"), connections=3, each=5, expected=b"turn 1: Hello")
        assert rate.per_second > 0
        assert (await talk.stub.ListTasks(PB.ListTasksRequest())).total_size == 15


async def test_a_wrong_answer_is_noticed() -> None:
    async with talking() as talk:
        assert talk.server.routes.grpc is not None
        port = talk.server.routes.grpc.at.port
        with pytest.raises(RuntimeError, match="the server returned"):
            await call_all(port, SEND, _messages("t"), connections=1, each=1, expected=b"something else")
        with pytest.raises(RuntimeError, match="the server"):
            await call_all(port, "/no/Method", _messages("t"), connections=1, each=1, expected=b"x")
