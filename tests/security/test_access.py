"""A caller sees only its own data: at every entry, another owner's data looks like data that does not exist."""

from __future__ import annotations

import base64
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from starlette.types import ASGIApp

from keelbolt.kernel import new_id
from keelbolt.kernel.keys import PageCursor, write_cursor
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.tasks.families import TASKS
from tests.integration.server.alice import (
    SECRET_WORDS,
    STATES,
    Alice,
    agent,
    alices_things,
    fresh,
    hook,
    invented,
    started,
)
from tests.integration.server.asgi import Headers, Reply, call
from tests.integration.server.entries import ENTRIES, Entry, RequestFields, send_fields
from tests.integration.server.people import bearer
from tests.security.matrix import MATRIX, TASK, Row

pytestmark = pytest.mark.asyncio(loop_scope="module")

CASES = [
    pytest.param(entry, name, id=f"{entry} [{name}]")
    for entry in ENTRIES
    for name in MATRIX.get(entry.operation, {"missing": TASK})
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[ASGIApp]:
    async with agent() as server:
        yield server.app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alices(app: ASGIApp) -> dict[str, Alice]:
    return await alices_things(app)


async def reach(app: ASGIApp, entry: Entry, row: Row, things: Alice, *, who: Headers, tenant: str) -> Reply:
    """Request the data that ``things`` names at this entry."""
    fields = RequestFields(tenant=tenant if entry.tenant else "")
    if row.own:
        fields = replace(fields, task=(await started(app, "input", who))["id"])
    return await send_fields(app, entry, row.reach(things, fields), who)


async def test_every_operation_has_a_row() -> None:
    """A new operation without a row fails here."""
    assert set(MATRIX) == set(Operation)
    assert {entry.operation for entry in ENTRIES if not entry.path} == set(Operation)
    assert {entry.operation for entry in ENTRIES if entry.path} == set(Operation)
    for version in ProtocolVersion:
        assert {entry.operation for entry in ENTRIES if entry.version is version} == set(Operation)


@pytest.mark.parametrize(("entry", "name"), CASES)
async def test_data_of_another_owner_does_not_exist(
    app: ASGIApp, alices: dict[str, Alice], entry: Entry, name: str
) -> None:
    """Another owner, the same name in another tenant, and another owner there get the response for an invented id;
    so does a caller with tasks that guesses.
    """
    row = MATRIX[entry.operation][name]
    for alice in alices.values():
        guessed_ids = invented(alice)
        for named, housed in (("", "acme"), ("alice", ""), ("", "")):
            seen = []
            for things in (alice, guessed_ids):
                owner, tenant = named or fresh("m"), housed or fresh("t")  # new callers: they have done nothing else
                reply = await reach(app, entry, row, things, who=bearer(owner, tenant), tenant=tenant)
                assert SECRET_WORDS.encode() not in reply.body
                seen.append(reply.masked(tenant, *things.words))
            assert seen[0] == seen[1]
            if name != "nothing":
                guessed = await reach(app, entry, row, guessed_ids, who=bearer("amy"), tenant="acme")
                assert guessed.masked("acme", *guessed_ids.words) == seen[0]


@pytest.mark.parametrize("expired", [False, True], ids=["anonymous", "expired"])
@pytest.mark.parametrize(("entry", "name"), CASES)
async def test_anonymous_callers_get_only_a_challenge(
    app: ASGIApp, alices: dict[str, Alice], entry: Entry, name: str, expired: bool
) -> None:
    who = bearer("alice", expires_in=-3600) if expired else []
    row = replace(MATRIX[entry.operation][name], own=False)
    alice = alices["input"]
    seen = []
    for things in (alice, invented(alice)):
        reply = await reach(app, entry, row, things, who=who, tenant="acme")
        seen.append(reply.masked(*things.words))
        assert reply.status == 401
        challenge = reply.header("www-authenticate") or ""
        assert challenge.startswith("Bearer")
        assert ("invalid_token" in challenge) is expired
        for word in (SECRET_WORDS, *things.words):
            assert word.encode() not in reply.body
    assert seen[0] == seen[1]


TENANTED = [entry for entry in ENTRIES if entry.tenant or not entry.path]


@pytest.mark.parametrize("entry", TENANTED, ids=str)
async def test_another_tenant_does_not_exist(app: ASGIApp, alices: dict[str, Alice], entry: Entry) -> None:
    """A request that names another tenant gets the same response, whether the tenant exists or not."""
    alice = alices["input"]
    fields = RequestFields(task=alice.task, context=alice.context, config=alice.config)
    seen = []
    for tenant in ("acme", "emca"):
        reply = await send_fields(app, entry, replace(fields, tenant=tenant), bearer(fresh("m"), "globex"))
        assert SECRET_WORDS.encode() not in reply.body
        seen.append(reply.masked(tenant, *alice.words))
    assert seen[0] == seen[1]
    assert b"result" not in seen[0][2]


@pytest.mark.parametrize("newest_first", [True, False])
async def test_a_forged_page_token_shows_nothing(app: ASGIApp, alices: dict[str, Alice], newest_first: bool) -> None:
    """A page token is a position; a forged one gives no access to other callers' data."""
    owner = "a"  # sorts before alice's partition
    raw = base64.urlsafe_b64decode(alices["completed"].page + "==")
    start = f"acme/{owner}".encode()
    for last in (b"\xff" * 60, raw[16:], b""):
        for index in range(4):
            low = b"\x20" + start + b"\0"
            high = low + b"\xfd"
            token = write_cursor(PageCursor(last, 1), "find", TASKS, newest_first, index, low.hex(), high.hex())
            reply = await call(app, "ListTasks", {"pageToken": token}, headers=bearer(owner))
            assert "error" in reply.json
            assert not any(alice.task.encode() in reply.body for alice in alices.values())


async def test_response_times_do_not_reveal_existence(app: ASGIApp, alices: dict[str, Alice]) -> None:
    """The response for another owner's task takes as long as for a missing one: within a millisecond, at the median."""
    alice, headers = alices["completed"], bearer("mallory")
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(300):
        real = number % 2 == 0
        begin = time.perf_counter()
        await call(app, "GetTask", {"id": alice.task if real else new_id()}, headers=headers)
        took[real].append(time.perf_counter() - begin)
    assert abs(statistics.median(took[True]) - statistics.median(took[False])) < 0.001


async def test_alices_data_is_unchanged(app: ASGIApp, alices: dict[str, Alice]) -> None:
    """After all the requests above, Alice's tasks, their configs and her list are unchanged."""
    headers = bearer("alice")
    listed = await call(app, "ListTasks", {"includeArtifacts": True}, headers=headers)
    assert listed.json["result"]["totalSize"] == 2 * len(STATES)
    states = {"completed": "COMPLETED", "input": "INPUT_REQUIRED", "working": "WORKING"}
    for state, alice in alices.items():
        task = (await call(app, "GetTask", {"id": alice.task}, headers=headers)).json["result"]
        assert task["status"]["state"] == f"TASK_STATE_{states[state]}"
        assert [message["parts"][0]["text"] for message in task["history"] if message["role"] == "ROLE_USER"] == [
            f"{state} {SECRET_WORDS}"
        ]
        configs = await call(app, "ListTaskPushNotificationConfigs", {"taskId": alice.task}, headers=headers)
        assert len(configs.json["result"]["configs"]) == 2


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
async def test_the_owner_gets_its_data(app: ASGIApp, entry: Entry) -> None:
    """The matrix is meaningful only if its requests are valid: the owner succeeds at every entry."""
    who = bearer(fresh("m"))
    task = (await started(app, "input", who))["id"]
    config = (await call(app, "CreateTaskPushNotificationConfig", hook(task), headers=who)).json["result"]["id"]
    fields = RequestFields(task=task, config=config, tenant="acme" if entry.tenant else "")
    reply = await send_fields(app, entry, fields, who)
    assert reply.status in (200, 204)
    if not entry.path:
        assert all("result" in answer for answer in (reply.events if entry.operation.streams else [reply.json]))
