"""Keelbolt's stores with the official SDK: its interfaces, and its own request handler on top of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from a2a.auth.user import User
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.cluster import ConcurrentTaskModificationError, TaskVersion
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers.default_request_handler_v2 import DefaultRequestHandlerV2
from a2a.server.tasks import TaskUpdater
from a2a.server.tasks.task_manager import append_artifact_to_task
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError

from keelbolt.a2a_sdk import SdkStores, sdk_stores
from keelbolt.a2a_sdk.tasks import ScopeResolver, owner_partition
from keelbolt.auth import Principal

pytest_plugins = ["keelbolt.testing.pytest"]

CONTEXT = ServerCallContext()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SdkStores]:
    match request.param:
        case "memory":
            url = "memory:"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/sdk.db"
        case name:
            url = request.getfixturevalue(f"{name}_url")
    async with sdk_stores(url) as opened:
        yield opened


def task(task_id: str = "t", state: Any = pb.TaskState.TASK_STATE_SUBMITTED) -> pb.Task:
    message = pb.Message(message_id="m", role=pb.Role.ROLE_USER, parts=[pb.Part(text="Hello")])
    return pb.Task(id=task_id, context_id="c", status=pb.TaskStatus(state=state), history=[message])


async def saved(stores: SdkStores, new: pb.Task, *, event: Any = None, prev: Any = None, version: Any = None) -> Any:
    given = version or TaskVersion.MISSING
    return await stores.tasks.save(new, event=event, prev=prev, prev_version=given, context=CONTEXT)


async def test_a_task_comes_back_as_it_was_saved(stores: SdkStores) -> None:
    """Every member of the protobuf survives."""
    whole = task(state=pb.TaskState.TASK_STATE_WORKING)
    whole.metadata.update({"a": 1, "b": {"c": [True, None]}})
    whole.status.message.CopyFrom(pb.Message(message_id="s", role=pb.Role.ROLE_AGENT, parts=[pb.Part(text="so far")]))
    whole.status.timestamp.FromJsonString("2026-01-02T03:04:05.678Z")
    part = pb.Part(raw=b"\x00\xff", filename="x.bin", media_type="application/octet-stream")
    whole.artifacts.append(pb.Artifact(artifact_id="a", name="n", parts=[part, pb.Part(url="https://example.org/x")]))
    version = await saved(stores, whole)
    found = await stores.tasks.get("t", CONTEXT)
    assert found is not None
    assert found.task == whole
    assert found.version == version


async def test_a_stale_version_is_refused(stores: SdkStores) -> None:
    first = await saved(stores, task())
    working = task(state=pb.TaskState.TASK_STATE_WORKING)
    second = await saved(stores, working, prev=task(), version=first)
    assert second.is_after(first)
    with pytest.raises(ConcurrentTaskModificationError):
        await saved(stores, working, prev=task(), version=first)
    with pytest.raises(ConcurrentTaskModificationError):
        await saved(stores, task())  # created twice


async def test_the_first_terminal_state_is_final(stores: SdkStores) -> None:
    """A cancel overwrites any version, but never a terminal state."""
    first = await saved(stores, task())
    canceled = task(state=pb.TaskState.TASK_STATE_CANCELED)
    ended = await saved(stores, canceled, version=first)
    for state in (pb.TaskState.TASK_STATE_CANCELED, pb.TaskState.TASK_STATE_COMPLETED):
        with pytest.raises(ConcurrentTaskModificationError):
            await saved(stores, task(state=state), prev=canceled, version=ended)
    with pytest.raises(ConcurrentTaskModificationError):
        await saved(stores, task("unknown", pb.TaskState.TASK_STATE_CANCELED))


async def test_chunks_are_appended_and_seen_by_subscribers(stores: SdkStores) -> None:
    """An artifact update costs as much as its own size, and reaches every replica in order."""
    now = task(state=pb.TaskState.TASK_STATE_WORKING)
    version = start = await saved(stores, now)
    for number in range(30):
        piece = pb.Artifact(artifact_id="a", parts=[pb.Part(text=str(number))])
        event = pb.TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=piece, append=number > 0)
        before = pb.Task()
        before.CopyFrom(now)
        if number == 0:
            now.artifacts.append(piece)
        else:
            now.artifacts[0].parts.extend(piece.parts)
        version = await saved(stores, now, event=event, prev=before, version=version)
    done = pb.Task()
    done.CopyFrom(now)
    done.status.state = pb.TaskState.TASK_STATE_COMPLETED
    await saved(stores, done, prev=now, version=version)
    found = await stores.tasks.get("t", CONTEXT)
    assert found is not None
    assert [part.text for part in found.task.artifacts[0].parts] == [str(number) for number in range(30)]
    async with asyncio.timeout(20):
        events = [event async for event in stores.events.subscribe("t", after=start)]
    assert [event.event.artifact.parts[0].text for event in events[:-1]] == [str(number) for number in range(30)]
    assert events[-1].event.status.state == pb.TaskState.TASK_STATE_COMPLETED
    assert all(later.version.is_after(earlier.version) for earlier, later in pairwise(events))


async def test_events_lead_to_the_task_of_the_sdk(stores: SdkStores) -> None:
    """Chunks change the stored task as the SDK changes its own, and subscribers get the metadata of events."""
    now = task(state=pb.TaskState.TASK_STATE_WORKING)
    now.status.timestamp.FromJsonString("2026-01-02T03:04:05.678Z")
    version = start = await saved(stores, now)
    for number in range(3):
        piece = pb.Artifact(artifact_id="a", name=f"n{number}", parts=[pb.Part(text=str(number))], extensions=["x:y"])
        piece.metadata.update({f"m{number}": number})
        event = pb.TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=piece, append=number > 0)
        event.metadata.update({"of": f"event {number}"})
        append_artifact_to_task(now, event)
        version = await saved(stores, now, event=event, version=version)
    found = await stores.tasks.get("t", CONTEXT)
    assert found is not None
    assert found.task == now
    now.status.state = pb.TaskState.TASK_STATE_COMPLETED
    ended = pb.TaskStatusUpdateEvent(task_id="t", context_id="c", status=now.status)
    ended.metadata.update({"of": "end"})
    now.metadata.MergeFrom(ended.metadata)
    await saved(stores, now, event=ended, version=version)
    async with asyncio.timeout(20):
        events = [each.event async for each in stores.events.subscribe("t", after=start)]
    assert [each.metadata["of"] for each in events] == ["event 0", "event 1", "event 2", "end"]
    assert dict(events[1].artifact.metadata) == {"m0": 0, "m1": 1}


async def test_a_save_without_an_event_changes_all_members_of_an_artifact(stores: SdkStores) -> None:
    now = task(state=pb.TaskState.TASK_STATE_WORKING)
    now.status.timestamp.FromJsonString("2026-01-02T03:04:05.678Z")
    now.artifacts.append(pb.Artifact(artifact_id="a", name="n", parts=[pb.Part(text="1")]))
    await stores.plain_tasks.save(now, CONTEXT)
    for name in ("renamed", ""):
        now.artifacts[0].name = name
        now.artifacts[0].parts.append(pb.Part(text=name or "2"))
        await stores.plain_tasks.save(now, CONTEXT)
        assert await stores.plain_tasks.get("t", CONTEXT) == now


@pytest.mark.parametrize("wrong", [{"page_token": "nonsense"}, {"page_size": 1000}, {"status": 99}])
async def test_a_list_with_invalid_parameters_raises_the_error_of_the_sdk(
    stores: SdkStores, wrong: dict[str, Any]
) -> None:
    await saved(stores, task())
    with pytest.raises(InvalidParamsError):
        await stores.tasks.list(pb.ListTasksRequest(**wrong), CONTEXT)


async def test_tasks_are_listed_and_deleted_for_their_owner(stores: SdkStores) -> None:
    for number in range(3):
        await saved(stores, task(f"t{number}"))
    page = await stores.tasks.list(pb.ListTasksRequest(page_size=2), CONTEXT)
    assert (len(page.tasks), page.total_size) == (2, 3)
    rest = await stores.tasks.list(pb.ListTasksRequest(page_size=2, page_token=page.next_page_token), CONTEXT)
    assert len(rest.tasks) == 1
    stranger = ServerCallContext(tenant="other")
    assert await stores.tasks.get("t0", stranger) is None
    assert (await stores.tasks.list(pb.ListTasksRequest(), stranger)).total_size == 0
    await stores.tasks.delete("t0", CONTEXT)
    assert await stores.tasks.get("t0", CONTEXT) is None


async def test_push_configs_are_stored_and_found_for_dispatch(stores: SdkStores) -> None:
    await saved(stores, task())
    config = pb.TaskPushNotificationConfig(url="https://example.org/hook", token="x")
    stored = await stores.push_configs.set_info("t", config, CONTEXT)
    assert stored.id == "t"
    assert await stores.push_configs.get_info("t", CONTEXT) == [stored]
    assert await stores.push_configs.get_info_for_dispatch("t") == [stored]
    assert await stores.push_configs.get_info("t", ServerCallContext(tenant="other")) == []
    await stores.push_configs.delete_info("t", CONTEXT)
    assert await stores.push_configs.get_info("t", CONTEXT) == []


async def test_push_configs_are_deleted_with_their_task(stores: SdkStores) -> None:
    """They contain credentials, and a new task with the same id must not use them."""
    await saved(stores, task())
    await stores.push_configs.set_info("t", pb.TaskPushNotificationConfig(url="https://example.org/hook"), CONTEXT)
    await stores.tasks.delete("t", CONTEXT)
    await saved(stores, task())
    assert await stores.push_configs.get_info("t", CONTEXT) == []


class Counter(AgentExecutor):
    """An agent of the SDK that streams an artifact."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        if context.current_task is None:
            await event_queue.enqueue_event(
                pb.Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=pb.TaskStatus(state=pb.TaskState.TASK_STATE_SUBMITTED),
                    history=[context.message] if context.message else [],
                )
            )
        await updater.start_work()
        for number in range(5):
            await updater.add_artifact([pb.Part(text=str(number))], artifact_id="a", append=number > 0)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


async def test_the_sdks_own_handler_works_on_our_stores(stores: SdkStores) -> None:
    """A message through the official request handler becomes a stored task with its complete artifact."""
    card = pb.AgentCard(name="Counter", description="Counts", version="1")
    card.capabilities.streaming = True
    handler = DefaultRequestHandlerV2(
        agent_executor=Counter(),
        task_store=stores.tasks,
        agent_card=card,
        event_stream=stores.events,
        push_config_store=stores.push_configs,
    )
    message = pb.Message(message_id="m1", role=pb.Role.ROLE_USER, parts=[pb.Part(text="go")])
    async with asyncio.timeout(30):
        answer = await handler.on_message_send(pb.SendMessageRequest(message=message), CONTEXT)
    assert isinstance(answer, pb.Task)
    assert answer.status.state == pb.TaskState.TASK_STATE_COMPLETED
    found = await stores.tasks.get(answer.id, CONTEXT)
    assert found is not None
    assert [part.text for part in found.task.artifacts[0].parts] == ["0", "1", "2", "3", "4"]
    assert found.task.status.state == pb.TaskState.TASK_STATE_COMPLETED


class Named(User):
    """An authenticated user."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


def test_a_requested_tenant_is_not_an_authenticated_tenant() -> None:
    """The requested tenant is not authenticated, so that it differs from an authenticated tenant of the same name."""
    bob = ServerCallContext(user=Named("bob"), tenant="acme")
    assert owner_partition(bob) == "bob//acme"
    assert owner_partition(bob) != Principal("bob", "acme").partition


async def test_another_owner_can_not_take_a_task_id(stores: SdkStores) -> None:
    """Creating or deleting a task with the same id does not redirect the owner's events and webhooks."""
    await saved(stores, task())
    other = ServerCallContext(user=Named("mallory"))
    with pytest.raises(ConcurrentTaskModificationError):
        await stores.tasks.save(task(), event=None, prev=None, prev_version=TaskVersion.MISSING, context=other)
    assert await stores.tasks.get("t", other) is None
    await stores.tasks.delete("t", other)
    directory: ScopeResolver = stores.tasks._directory
    assert await directory.find("t") == directory.scope(CONTEXT)
    assert await stores.tasks.get("t", CONTEXT) is not None
