"""A call passes the same checks as a request: identity, rate, version, extensions."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.protocol.card import ExtensionConfig
from keelbolt.server.settings import ServerSettings
from tests.integration.grpc.speaking import OLD, PB, Talk, refused, talking
from tests.integration.server.people import authenticator, bearer


async def test_calls_without_credentials_are_refused() -> None:
    async with talking(auth=authenticator()) as talk:
        missing = await refused(talk.stub.GetTask(PB.GetTaskRequest(id="x")))
        assert (missing.code, missing.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        assert missing.trailing["www-authenticate"].startswith("Bearer")
        wrong = await refused(talk.stub.ListTasks(PB.ListTasksRequest(), metadata=[("authorization", "Bearer no")]))
        assert wrong.code == "UNAUTHENTICATED"
        stream = talk.old.SendStreamingMessage(talk.old_request("echo"))
        assert (await refused(stream)).code == "UNAUTHENTICATED"


async def test_a_caller_sees_only_its_own_tasks() -> None:
    """By gRPC and by JSON-RPC, the task does not exist for other callers."""
    async with talking(auth=authenticator()) as talk:
        alice, bob = bearer("alice"), bearer("bob")
        task = await talk.send("echo mine", metadata=alice)
        got = await talk.stub.GetTask(PB.GetTaskRequest(id=task.id), metadata=alice)
        assert got.id == task.id
        assert (await talk.json("GetTask", {"id": task.id}, alice))["id"] == task.id
        theirs = await refused(talk.stub.GetTask(PB.GetTaskRequest(id=task.id), metadata=bob))
        unknown = await refused(talk.stub.GetTask(PB.GetTaskRequest(id="0" * 36), metadata=bob))
        assert (theirs.code, theirs.reason, theirs.message) == (unknown.code, unknown.reason, unknown.message)


async def test_duplicate_credentials_are_refused() -> None:
    async with talking(auth=authenticator()) as talk:
        both = [*bearer("alice"), *bearer("bob")]
        failed = await refused(talk.stub.ListTasks(PB.ListTasksRequest(), metadata=both))
        assert failed.code == "UNAUTHENTICATED"


async def test_the_tenant_is_a_field() -> None:
    async with talking() as talk:
        request = PB.SendMessageRequest(message=talk.message("echo"), tenant="acme")
        task = (await talk.stub.SendMessage(request)).task
        assert (await talk.stub.GetTask(PB.GetTaskRequest(id=task.id, tenant="acme"))).id == task.id
        for other in ("", "other"):
            failed = await refused(talk.stub.GetTask(PB.GetTaskRequest(id=task.id, tenant=other)))
            assert failed.reason == "TASK_NOT_FOUND"


async def test_a_tenant_of_another_caller() -> None:
    async with talking(auth=authenticator()) as talk:
        request = PB.ListTasksRequest(tenant="other")
        assert (await refused(talk.stub.ListTasks(request, metadata=bearer("alice")))).code == "NOT_FOUND"


async def test_the_rate_limit() -> None:
    async with talking(settings=ServerSettings.of({}, requests_per_second=0.1, request_burst=2)) as talk:
        for _ in range(2):
            await talk.stub.ListTasks(PB.ListTasksRequest())
        failed = await refused(talk.old.GetTask(OLD.GetTaskRequest(name="tasks/x")))
        assert (failed.code, failed.reason) == ("RESOURCE_EXHAUSTED", "RATE_LIMITED")
        assert int(failed.trailing["retry-after"]) > 0


async def _version(talk: Talk, version: str, *, old: bool = False) -> str:
    given = [("a2a-version", version)]
    if old:
        return (await refused(talk.old.GetTask(OLD.GetTaskRequest(name="tasks/x"), metadata=given))).reason
    return (await refused(talk.stub.GetTask(PB.GetTaskRequest(id="x"), metadata=given))).reason


@pytest.mark.parametrize(
    ("version", "spoken"),
    [
        ("1.0", True),
        ("1.0.7", True),
        ("0.3", True),
        ("", True),
        ("2.0, 1.0", True),
        ("99.0", False),
        ("!nonsense", False),
    ],
)
async def test_the_package_decides_the_version(version: str, spoken: bool) -> None:
    """Both packages accept every version that the agent supports, and refuse requests for only other versions."""
    async with talking() as talk:
        assert (await _version(talk, version) == "TASK_NOT_FOUND") is spoken
        assert (await _version(talk, version, old=True) == "TASK_NOT_FOUND") is spoken
        assert await _version(talk, "99.0") == "VERSION_NOT_SUPPORTED"


@pytest.mark.parametrize(("protocol", "new"), [("1.0", True), ("0.3", False)])
async def test_a_disabled_package_does_not_exist(protocol: str, new: bool) -> None:
    async with talking(settings=ServerSettings.of({}, protocols=(protocol,))) as talk:
        ours = await refused((talk.stub if new else talk.old).GetTask(_get(old=not new)))
        other = await refused((talk.old if new else talk.stub).GetTask(_get(old=new)))
        assert (ours.code, other.code) == ("NOT_FOUND", "UNIMPLEMENTED")


def _get(*, old: bool) -> Any:
    return OLD.GetTaskRequest(name="tasks/x") if old else PB.GetTaskRequest(id="x")


async def test_extensions() -> None:
    extensions = (ExtensionConfig(uri="urn:must", required=True), ExtensionConfig(uri="urn:may"))
    async with talking(extensions=extensions) as talk:
        request = PB.ListTasksRequest()
        missing = await refused(talk.stub.ListTasks(request))
        assert (missing.code, missing.reason) == ("FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED")
        call = talk.stub.ListTasks(request, metadata=[("a2a-extensions", "urn:may, urn:unknown, urn:must")])
        assert dict(await call.initial_metadata())["a2a-extensions"] == "urn:may, urn:must"
        await call
        old = talk.old.SendStreamingMessage(talk.old_request("echo"), metadata=[("x-a2a-extensions", "urn:must")])
        assert dict(await old.initial_metadata())["x-a2a-extensions"] == "urn:must"
        assert [event async for event in old]
