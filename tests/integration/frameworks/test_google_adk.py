"""ADK's services on every engine behave like its in-memory services; stale sessions are refused, races lose no data."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from google.adk.agents import LlmAgent
from google.adk.artifacts import InMemoryArtifactService
from google.adk.cli.service_registry import ServiceRegistry
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.memory import InMemoryMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from keelbolt.google_adk import KeelboltArtifactService, KeelboltMemoryService, KeelboltSessionService, register
from keelbolt.google_adk.artifacts import INLINE_BYTES
from keelbolt.google_adk.families import EVENTS, partition_of
from keelbolt.kernel import Scope, open_storage
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.testing.clock import FakeClock
from tests.integration.frameworks import adk_agents

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

WHO: Any = {"app_name": "shop", "user_id": "u"}


def text_event(text: str, number: int = 0, author: str = "user", **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta={key.replace("__", ":"): value for key, value in delta.items()})
    return Event(id=f"e{number}-{text}", author=author, timestamp=100.0 + number, content=content, actions=actions)


def shape(session: Session | None) -> Any:
    if session is None:
        return None
    return (session.id, dict(session.state), [event.model_dump(exclude_none=True) for event in session.events])


# ----------------------------------------------------------------------------------------------------------- sessions


async def walk(service: Any) -> list[Any]:
    """Call all methods, with the states of session, user and app."""
    seen: list[Any] = [await service.get_session(**WHO, session_id="none")]
    state = {"plain": [1, {"x": None}], "app:a": 1, "user:u": 2, "temp:t": 3}
    one = await service.create_session(**WHO, session_id=" one ", state=state)
    seen.append(shape(one))
    two = await service.create_session(**WHO, session_id="two", state={"user:v": "é"})
    other = await service.create_session(app_name="shop", user_id="other", session_id="one")
    seen.extend([shape(two), shape(other)])
    for number in range(5):
        await service.append_event(one, text_event("hello", number, plain=number, app__a=number, temp__t=number))
    seen.append(shape(one))
    await service.append_event(one, text_event("hello", 4, plain=4, app__a=4))  # repeated delivery
    partial = text_event("part", 9)
    partial.partial = True
    seen.append((await service.append_event(one, partial)).partial)
    configs = (
        None,
        GetSessionConfig(num_recent_events=2),
        GetSessionConfig(num_recent_events=0),
        GetSessionConfig(num_recent_events=100),
        GetSessionConfig(after_timestamp=102.0),
        GetSessionConfig(after_timestamp=102.0, num_recent_events=1),
        GetSessionConfig(after_timestamp=1.0),
    )
    seen.extend([shape(await service.get_session(**WHO, session_id="one", config=config)) for config in configs])
    seen.append(shape(await service.get_session(**WHO, session_id="two")))
    for user in ("u", "other", "unknown"):
        found = await service.list_sessions(app_name="shop", user_id=user)
        seen.append(sorted((s.user_id, s.id, sorted(s.state), s.events) for s in found.sessions))
    seen.append(sorted((s.user_id, s.id) for s in (await service.list_sessions(app_name="shop")).sessions))
    seen.append((await service.list_sessions(app_name="none")).sessions)
    seen.append(await service.get_user_state(**WHO))
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**WHO, session_id="one")
    await service.delete_session(**WHO, session_id="one")
    await service.delete_session(**WHO, session_id="one")
    seen.append(await service.get_session(**WHO, session_id="one"))
    with pytest.raises(SessionNotFoundError):
        await service.append_event(one, text_event("late", 10))
    fresh = await service.create_session(**WHO, session_id="one")
    seen.append(shape(await service.get_session(**WHO, session_id=fresh.id)))
    seen.append(bool((await service.create_session(**WHO)).id))
    return seen


async def test_sessions_behave_as_the_memory_service(any_url: str) -> None:
    async with KeelboltSessionService(any_url) as service:
        assert await walk(service) == await walk(InMemorySessionService())


async def test_a_stale_session_is_refused(any_url: str) -> None:
    """Of two holders of a session the second is refused, regardless of their clocks; after a reload it can write."""
    async with open_storage(any_url) as kernel:
        service, elsewhere = KeelboltSessionService(kernel), KeelboltSessionService(kernel)
        mine = await service.create_session(**WHO, session_id="s")
        theirs = await elsewhere.get_session(**WHO, session_id="s")
        assert theirs is not None
        await elsewhere.append_event(theirs, text_event("theirs", -50))  # from an older clock
        with pytest.raises(StaleSessionError):
            await service.append_event(mine, text_event("mine", 1))
        assert [event.id for event in mine.events] == []
        again = await service.get_session(**WHO, session_id="s")
        assert again is not None
        await service.append_event(again, text_event("mine", 1))
        stored = await service.get_session(**WHO, session_id="s")
        assert stored is not None
        assert [event.id for event in stored.events] == ["e-50-theirs", "e1-mine"]


async def test_a_session_of_the_same_id_is_another_one(any_url: str) -> None:
    """An object of a deleted session does not write to a new session with its id."""
    async with KeelboltSessionService(any_url) as service:
        old = await service.create_session(**WHO, session_id="s")
        await service.delete_session(**WHO, session_id="s")
        await service.create_session(**WHO, session_id="s")
        with pytest.raises(StaleSessionError):
            await service.append_event(old, text_event("late", 1))


async def test_an_event_is_not_stored_in_a_session_that_was_recreated_meanwhile(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is deleted and created again between the read and the commit; both have the same version."""
    async with KeelboltSessionService(any_url) as service:
        old = await service.create_session(**WHO, session_id="s", state={"of": "old"})
        share = service._share

        async def late(*args: Any, **options: Any) -> Any:
            monkeypatch.setattr(service, "_share", share)
            await service.delete_session(**WHO, session_id="s")
            await service.create_session(**WHO, session_id="s", state={"of": "new"})
            return await share(*args, **options)

        monkeypatch.setattr(service, "_share", late)
        with pytest.raises(StaleSessionError):
            await service.append_event(old, text_event("old"))
        found = await service.get_session(**WHO, session_id="s")
        assert found is not None
        assert (found.state, found.events) == ({"of": "new"}, [])


async def test_a_session_that_was_sent_as_json_is_not_stale(any_url: str) -> None:
    """A copy without ADK's marker is compared by its newest event."""
    async with KeelboltSessionService(any_url) as service:
        session = await service.create_session(**WHO, session_id="s")
        await service.append_event(session, text_event("one", 1))
        copied = Session.model_validate_json(session.model_dump_json())
        await service.append_event(copied, text_event("two", 2))
        with pytest.raises(StaleSessionError):
            await service.append_event(Session.model_validate_json(session.model_dump_json()), text_event("three", 3))


async def test_a_repeated_call_stores_an_event_once(any_url: str) -> None:
    """A caller that lost the response repeats the call with the unchanged session."""
    async with open_storage(any_url) as kernel:
        service = KeelboltSessionService(kernel)
        session = await service.create_session(**WHO, session_id="s")
        before = session.model_copy(deep=True)
        before._storage_update_marker = session._storage_update_marker
        await service.append_event(session, text_event("one", 1, n=1))
        await service.append_event(before, text_event("one", 1, n=1))
        assert len(before.events) == 1
        await service.append_event(before, text_event("two", 2))
        state = await kernel.scoped(partition_of("default")).log_state(EVENTS, "shop/u/s")
        assert state.head == 2


async def test_sessions_of_one_user_change_its_state_at_once(any_url: str) -> None:
    """Concurrent events of several sessions lose no key of the user's and the app's state."""
    async with open_storage(any_url) as kernel:
        service = KeelboltSessionService(kernel)
        sessions = [await service.create_session(**WHO, session_id=f"s{n}") for n in range(6)]

        async def work(session: Session) -> None:
            for number in range(5):
                delta: Any = {f"user__{session.id}-{number}": number, f"app__{session.id}-{number}": number}
                await service.append_event(session, text_event("x", number, **delta))

        await asyncio.gather(*map(work, sessions))
        assert len(await service.get_user_state(**WHO)) == 30
        found = await service.get_session(**WHO, session_id="s0")
        assert found is not None
        assert len([key for key in found.state if key.startswith("app:")]) == 30


async def test_a_long_session_is_read_from_its_end(any_url: str) -> None:
    """With recent_events a turn loads only the newest events."""
    async with KeelboltSessionService(any_url, recent_events=3) as service:
        session = await service.create_session(**WHO, session_id="s")
        for number in range(20):
            await service.append_event(session, text_event("x", number))
        found = await service.get_session(**WHO, session_id="s")
        assert found is not None
        assert [event.id for event in found.events] == ["e17-x", "e18-x", "e19-x"]
        await service.append_event(found, text_event("x", 20))
        whole = await service.get_session(**WHO, session_id="s", config=GetSessionConfig())
        assert whole is not None
        assert len(whole.events) == 21


class Counting(BaseLlm):
    async def generate_content_async(
        self,
        llm_request: Any,
        stream: bool = False,  # noqa: FBT002
    ) -> AsyncGenerator[LlmResponse, None]:
        text = f"{len(llm_request.contents)} messages"
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


async def test_a_runner_continues_a_session(any_url: str) -> None:
    async with KeelboltSessionService(any_url) as service:
        agent = LlmAgent(name="counting", model=Counting(model="scripted"))
        runner = Runner(app_name="shop", agent=agent, session_service=service)
        await service.create_session(**WHO, session_id="s")
        answers: list[Any] = []
        for text in ("one", "two"):
            message = types.Content(role="user", parts=[types.Part(text=text)])
            events: Any = runner.run_async(user_id="u", session_id="s", new_message=message)
            answers.extend([event.content.parts[0].text async for event in events])
        assert answers == ["1 messages", "3 messages"]


# ---------------------------------------------------------------------------------------------------------- artifacts


async def files(service: Any) -> list[Any]:
    where: Any = {**WHO, "session_id": "s"}
    image = types.Part.from_bytes(data=b"\x89PNG" * 10_000, mime_type="image/png")
    small = types.Part.from_bytes(data=b"", mime_type="text/csv")
    seen: list[Any] = [
        await service.load_artifact(**where, filename="a.png"),
        await service.save_artifact(**where, filename="a.png", artifact=image, custom_metadata={"by": "me"}),
        await service.save_artifact(**where, filename="a.png", artifact=small),
        await service.save_artifact(**where, filename="a.png", artifact={"text": "third"}),
        await service.save_artifact(**where, filename="user:b/ü.txt", artifact=types.Part(text="of the user")),
        await service.save_artifact(
            **where,
            filename="far",
            artifact=types.Part(file_data=types.FileData(file_uri="gs://b/x", mime_type="image/gif")),
        ),
        await service.save_artifact(
            **where,
            filename="ref",
            artifact=types.Part(
                file_data=types.FileData(
                    file_uri="artifact://apps/shop/users/u/sessions/s/artifacts/a.png/versions/0", mime_type=""
                )
            ),
        ),
    ]
    for name, version in (("a.png", None), ("a.png", 0), ("a.png", 1), ("a.png", 7), ("user:b/ü.txt", None)):
        seen.append(await service.load_artifact(**where, filename=name, version=version))
    seen.extend([await service.load_artifact(**where, filename=name) for name in ("far", "ref", "none")])
    seen.append(await service.list_artifact_keys(**where))
    seen.append(await service.list_artifact_keys(**WHO))
    seen.append(await service.list_artifact_keys(**WHO, session_id="other"))
    seen.append(await service.list_versions(**where, filename="a.png"))
    seen.append(await service.list_versions(**where, filename="none"))
    described = [await service.get_artifact_version(**where, filename="a.png", version=n) for n in (None, 0, 9)]
    described.extend(await service.list_artifact_versions(**where, filename="a.png"))
    seen.append([each and (each.version, each.mime_type, each.custom_metadata) for each in described])
    await service.delete_artifact(**where, filename="a.png")
    seen.append(await service.list_artifact_keys(**where))
    seen.append(await service.save_artifact(**where, filename="a.png", artifact=types.Part(text="anew")))
    for bad in ({**WHO, "filename": "x"}, {"app_name": "../x", "user_id": "u", "filename": "x", "session_id": "s"}):
        with pytest.raises(InputValidationError):
            await service.save_artifact(**bad, artifact=types.Part(text=""))
    with pytest.raises(InputValidationError):
        await service.save_artifact(**where, filename="x", artifact=types.Part())
    return seen


async def test_an_artifact_that_is_saved_while_it_is_deleted_is_complete_or_gone(tmp_path: Path) -> None:
    service = KeelboltArtifactService(f"sqlite:///{tmp_path}/file.db")
    where: Any = {**WHO, "session_id": "s", "filename": "a"}

    async def save() -> int:
        return await service.save_artifact(**where, artifact=types.Part(text="a"))

    for _ in range(30):
        await asyncio.gather(save(), service.delete_artifact(**where), save())
        names = await service.list_artifact_keys(**WHO, session_id="s")
        assert bool(names) == bool(await service.list_versions(**where))
    await service.close()


@pytest.mark.parametrize("later", [None, b"new"])
async def test_an_artifact_that_is_deleted_while_it_is_loaded(
    later: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded as it is after that: None, or the artifact that replaced it."""
    where: Any = {**WHO, "session_id": "s", "filename": "a"}
    clock = FakeClock()
    async with MemoryKernel(clock=clock) as kernel:
        service = KeelboltArtifactService(kernel)

        async def save(data: bytes) -> None:
            blob = types.Blob(mime_type="image/png", data=data * INLINE_BYTES)
            await service.save_artifact(**where, artifact=types.Part(inline_data=blob))

        await save(b"old")
        opened = Scope.open_blob

        async def late(scope: Scope, digest: str) -> Any:
            monkeypatch.setattr(Scope, "open_blob", opened)
            await service.delete_artifact(**where)
            clock.advance(7 * 86_400)
            await kernel.sweep()
            if later is not None:
                await save(later)
            return await opened(scope, digest)

        monkeypatch.setattr(Scope, "open_blob", late)
        found = await service.load_artifact(**where)
    if later is None:
        assert found is None
    else:
        assert found is not None
        assert found.inline_data is not None
        assert found.inline_data.data == later * INLINE_BYTES


async def test_an_artifact_with_many_versions_can_be_deleted() -> None:
    """A commit of the storage has at most 1,000 operations."""
    service = KeelboltArtifactService("memory:")
    where: Any = {**WHO, "session_id": "s", "filename": "a"}
    for _ in range(1100):
        await service.save_artifact(**where, artifact=types.Part(text="a"))
    await service.delete_artifact(**where)
    assert await service.list_versions(**where) == []
    await service.close()


async def test_artifacts_behave_as_the_memory_service(any_url: str) -> None:
    async with KeelboltArtifactService(any_url) as service:
        assert await files(service) == await files(InMemoryArtifactService())


async def test_versions_have_no_gaps_under_concurrent_saves(any_url: str) -> None:
    async with open_storage(any_url) as kernel:
        services = [KeelboltArtifactService(kernel) for _ in range(3)]
        part = types.Part.from_bytes(data=b"x" * 20_000, mime_type="text/plain")
        saves = [s.save_artifact(**WHO, filename="user:f", artifact=part) for s in services for _ in range(5)]
        assert sorted(await asyncio.gather(*saves)) == list(range(15))


# ------------------------------------------------------------------------------------------------------------- memory


async def memories(service: Any) -> list[Any]:
    texts = ["The cat sat", "cats and dogs", "私はPythonを使う", "the cat and the dog", "Ünïcödé words"]
    events = [text_event(text, number) for number, text in enumerate(texts)]
    session = Session(id="s", app_name="shop", user_id="u", events=[*events[:3], Event(author="user")])
    await service.add_session_to_memory(session)
    await service.add_events_to_memory(**WHO, events=events[3:], session_id="t")
    await service.add_events_to_memory(**WHO, events=events[3:], session_id="t")

    async def found(query: str, user: str = "u") -> list[Any]:
        response = await service.search_memory(app_name="shop", user_id=user, query=query)
        return [(memory.id, memory.author, memory.content) for memory in response.memories]

    seen: list[Any] = [
        await found(query) for query in ("cat", "the cat and", "python", "thon", "ünïcödé", "nothing", "")
    ]
    seen.append(await found("cat", "other"))
    await service.delete_memory(**WHO, memory_id=events[0].id)
    await service.add_session_to_memory(session)  # does not restore the deleted memory
    seen.append(await found("cat"))
    session.events = session.events[2:]
    await service.add_session_to_memory(session)  # replaces the stored memories
    seen.append(await found("cats"))
    return seen


async def test_memories_behave_as_the_memory_service(any_url: str) -> None:
    async with KeelboltMemoryService(any_url) as service:
        assert await memories(service) == await memories(InMemoryMemoryService())
        entry = MemoryEntry(content=types.Content(parts=[types.Part(text="likes zebras")]), author="notes")
        await service.add_memory(**WHO, memories=[entry], custom_metadata={"source": "form"})
        (kept,) = (await service.search_memory(**WHO, query="zebras")).memories
        assert (kept.author, kept.custom_metadata, bool(kept.id)) == ("notes", {"source": "form"}, True)


# -------------------------------------------------------------------------------------------------------- command line


async def test_adks_command_line_accepts_keelbolt_urls(tmp_path: Path) -> None:
    """`adk api_server` with Keelbolt's services: a conversation continues after the server was killed."""
    (tmp_path / "agents").mkdir()
    agents = adk_agents.write(tmp_path / "agents")
    url = f"keelbolt+sqlite:///{tmp_path}/adk.db"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "google.adk.cli", "api_server", str(agents), "--port", str(port)]
    for service in ("session", "artifact", "memory"):
        command += [f"--{service}_service_uri", url]
    base = f"http://127.0.0.1:{port}"
    answers = []
    for text in ("one", "two"):
        with (tmp_path / "log").open("ab") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            async with httpx.AsyncClient(base_url=base, timeout=60) as client:
                for _ in range(600):
                    try:
                        await client.get("/list-apps")
                        break
                    except httpx.TransportError:
                        assert server.poll() is None, (tmp_path / "log").read_text()
                        await asyncio.sleep(0.1)
                await client.post("/apps/counting/users/u/sessions/s", json={})
                message = {"role": "user", "parts": [{"text": text}]}
                asked = {"app_name": "counting", "user_id": "u", "session_id": "s", "new_message": message}
                response = await client.post("/run", json=asked)
                assert response.status_code == 200, response.text
                answers.append(response.json()[0]["content"]["parts"][0]["text"])
        finally:
            server.kill()
            server.wait()
    assert answers == ["1 messages", "3 messages"]


async def test_the_registry_opens_task_stores(tmp_path: Path) -> None:
    """The A2A task store of ADK's agents is opened by URL; tasks are found when it is opened again."""
    registry = ServiceRegistry()
    register(registry=registry)
    task = pb.Task(id="t", context_id="c", status=pb.TaskStatus(state=pb.TaskState.TASK_STATE_WORKING))
    for number in range(2):
        store = registry._create_task_store_service(f"keelbolt+sqlite:///{tmp_path}/tasks.db")
        if not number:
            await store.save(task, ServerCallContext())
        found = await store.get("t", ServerCallContext())
        assert found.id == "t"
        await store.close()
