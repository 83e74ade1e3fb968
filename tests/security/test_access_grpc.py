"""Over gRPC, too, a caller sees only its own data: every method of both packages, by the same table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from starlette.types import ASGIApp

from keelbolt.grpc.library import aio, grpc
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.methods import METHODS_V03, METHODS_V1, Method
from tests.integration.server.alice import SECRET_WORDS, Alice, agent, alices_things, fresh, invented, started
from tests.integration.server.asgi import IDS, TIMES, Headers, call
from tests.integration.server.calls import METHODS, request
from tests.integration.server.entries import HOOK, RequestFields
from tests.integration.server.people import bearer
from tests.security.matrix import MATRIX, Row

pytestmark = pytest.mark.asyncio(loop_scope="module")

CASES = [
    pytest.param(method, name, id=f"{method.path} [{name}]")
    for method in METHODS
    for name in MATRIX.get(method.operation, {"missing": None})
]


class Agent(NamedTuple):
    app: ASGIApp
    channel: Any


class Outcome(NamedTuple):
    """Everything that a caller can distinguish."""

    code: Any
    words: str
    trailing: tuple[tuple[str, bytes], ...]
    answer: bytes


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grpc_agent() -> AsyncIterator[Agent]:
    async with agent(grpc_port=0) as server:
        assert server.routes.grpc is not None
        async with aio.insecure_channel(f"127.0.0.1:{server.routes.grpc.at.port}") as channel:
            yield Agent(server.app, channel)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alices(grpc_agent: Agent) -> dict[str, Alice]:
    return await alices_things(grpc_agent.app)


async def asked(channel: Any, method: Method, fields: RequestFields, who: Headers) -> Outcome:
    """Send the request; of a stream, only the first event counts."""
    metadata = [*who, *([("after-seq", fields.after)] if fields.after else [])]
    data = request(method, fields)
    try:
        async with asyncio.timeout(20):
            if method.operation.streams:
                stream = channel.unary_stream(method.path)(data, metadata=metadata)
                answer = await stream.read()
                stream.cancel()
            else:
                answer = await channel.unary_unary(method.path)(data, metadata=metadata)
    except aio.AioRpcError as error:
        trailing = tuple((name, _bytes(value)) for name, value in error.trailing_metadata() or ())
        return Outcome(error.code(), error.details() or "", trailing, b"")
    assert isinstance(answer, bytes)
    return Outcome(grpc.StatusCode.OK, "", (), answer)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def masked(method: Method, outcome: Outcome, things: Alice) -> tuple[Any, ...]:
    """Return the response without the caller's own data, new ids and times."""
    answer = json.dumps(method.read_answer(outcome.answer), sort_keys=True).encode() if outcome.answer else b""
    parts = [value for _, value in outcome.trailing] + [answer]
    for word in things.words:
        parts = [part.replace(word.encode(), b"<sent>") for part in parts]
    parts = [TIMES.sub(b"<time>", IDS.sub(b"<id>", part)) for part in parts]
    return outcome.code, outcome.words, [name for name, _ in outcome.trailing], parts


async def reach(at: Agent, method: Method, row: Row, things: Alice, who: Headers) -> Outcome:
    fields = RequestFields()
    if row.own:
        fields = replace(fields, task=(await started(at.app, "input", who))["id"])
    return await asked(at.channel, method, row.reach(things, fields), who)


async def test_every_method_has_a_row() -> None:
    assert {method.operation for method in METHODS_V1.values()} == set(Operation) == set(MATRIX)
    assert {method.operation for method in METHODS_V03.values()} <= set(MATRIX)


@pytest.mark.parametrize(("method", "name"), CASES)
async def test_data_of_another_owner_does_not_exist(
    grpc_agent: Agent, alices: dict[str, Alice], method: Method, name: str
) -> None:
    row = MATRIX[method.operation][name]
    alice = alices["input"]
    guessed_ids = invented(alice)
    for named, housed in (("", "acme"), ("alice", ""), ("", "")):
        seen = []
        for things in (alice, guessed_ids):
            who = bearer(named or fresh("m"), housed or fresh("t"))
            outcome = await reach(grpc_agent, method, row, things, who)
            assert SECRET_WORDS.encode() not in outcome.answer
            seen.append(masked(method, outcome, things))
        assert seen[0] == seen[1]


@pytest.mark.parametrize("expired", [False, True], ids=["anonymous", "expired"])
@pytest.mark.parametrize(("method", "name"), CASES)
async def test_anonymous_callers_get_only_a_challenge(
    grpc_agent: Agent, alices: dict[str, Alice], method: Method, name: str, expired: bool
) -> None:
    who = bearer("alice", expires_in=-3600) if expired else []
    row = replace(MATRIX[method.operation][name], own=False)
    seen = []
    for things in (alices["input"], invented(alices["input"])):
        outcome = await reach(grpc_agent, method, row, things, who)
        assert outcome.code is grpc.StatusCode.UNAUTHENTICATED
        assert dict(outcome.trailing)["www-authenticate"].startswith(b"Bearer")
        seen.append(masked(method, outcome, things))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
async def test_the_owner_gets_its_data(grpc_agent: Agent, method: Method) -> None:
    who = bearer(fresh("m"))
    task = (await started(grpc_agent.app, "input", who))["id"]
    hook = {"taskId": task, "id": "config", "url": HOOK}
    await call(grpc_agent.app, "CreateTaskPushNotificationConfig", hook, headers=who)
    outcome = await asked(grpc_agent.channel, method, RequestFields(task=task, config="config"), who)
    assert outcome.code is grpc.StatusCode.OK, outcome


async def test_alices_data_is_unchanged(grpc_agent: Agent, alices: dict[str, Alice]) -> None:
    for alice in alices.values():
        task = (await call(grpc_agent.app, "GetTask", {"id": alice.task}, headers=bearer("alice"))).json["result"]
        assert len([message for message in task["history"] if message["role"] == "ROLE_USER"]) == 1
        configs = await call(
            grpc_agent.app, "ListTaskPushNotificationConfigs", {"taskId": alice.task}, headers=bearer("alice")
        )
        assert len(configs.json["result"]["configs"]) == 2
