"""Operators see the agent state in the server's storage, with any ids and values."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from keelbolt.operations.table import PREFIX
from keelbolt.server.settings import ServerSettings
from keelbolt.state import ArtifactRetentionConfig, ArtifactScope, StateStore
from tests.integration.server import actor
from tests.integration.server.serving import talking
from tests.integration.state.things import (
    binding,
    conversation,
    event,
    planned,
    steering,
    task,
    trajectory,
    update,
)

ODD = "a/b %~ü\0\ud800" + "x" * 500
RETENTION = ArtifactRetentionConfig(ttl_seconds=0)


@asynccontextmanager
async def looking(tmp_path: Path) -> AsyncIterator[tuple[StateStore, httpx2.AsyncClient]]:
    """A state store and a server with an operator, on one file."""
    url = f"sqlite:///{tmp_path}/both.db"
    settings = ServerSettings.of({}, operators="loopback")
    async with (
        talking(actor.agent(url, settings=settings)) as client,
        StateStore(url, types="own", artifact_retention=RETENTION) as store,
    ):
        yield store, client


async def get(client: httpx2.AsyncClient, path: str, status: int = 200, **query: Any) -> Any:
    answer = await client.get(f"{PREFIX}/state{path}", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


async def saved(store: StateStore, session: str, trace: str) -> None:
    """Save an object of every kind."""
    await store.save_event(event(1.0, trace, odd=float("nan"), when=datetime(2026, 1, 1, tzinfo=UTC)))
    await store.save_task(task(1, session))
    await store.save_update(update(1, session=session))
    await store.save_steering(steering(1, session=session))
    await store.save_trajectory(trace, session, trajectory())
    await store.save_planner_event(trace, planned(1))
    await store.save_remote_binding(binding(trace_id=trace, router_session_id=session))
    await store.save_memory_state(f"key of {session}", {"turns": [1, 2]})
    await store.artifact_store.put_text("hello", filename="a.txt", scope=ArtifactScope(session_id=session))
    await store.flush()


@pytest.mark.parametrize("name", ["plain", ODD], ids=["plain", "odd"])
async def test_everything_is_listed_and_shown(tmp_path: Path, name: str) -> None:
    async with looking(tmp_path) as (store, client):
        await saved(store, name, name)
        assert (await get(client, "/tenants"))["tenants"] == ["default"]
        (listed,) = (await get(client, "/sessions"))["sessions"]
        assert listed["id"] == name
        assert listed["counts"] == {"tasks": 1, "updates": 1, "steering": 1}
        path = f"/sessions/{quote(listed['ref'], safe='')}"
        shown = await get(client, path)
        assert (shown["id"], shown["more"]) == (name, [])
        assert shown["tasks"][0]["status"] == "RUNNING"
        assert shown["updates"][0]["data"]["content"] == {"step": 1}
        assert shown["steering"][0]["data"]["payload"] == {"text": "hello"}
        assert [trace["id"] for trace in shown["traces"]] == [name]
        assert shown["bindings"][0]["agent_url"] == "https://agent"
        one = await get(client, f"{path}/tasks/{shown['tasks'][0]['ref']}")
        assert one["context_snapshot"]["llm_context"] == {"deep": [{"x": 1}]}

        (listed,) = (await get(client, "/traces"))["traces"]
        trace = await get(client, f"/traces/{quote(listed['ref'], safe='')}")
        assert trace["events"][0]["data"]["payload"] == {"odd": "nan", "when": "2026-01-01T00:00:00+00:00"}
        assert trace["plannerEvents"][0]["data"]["event_type"] == "step_complete"
        assert trace["trajectories"][0]["trajectory"]["query"] == "query"
        assert trace["trajectories"][0]["session"] == name
        assert len(trace["bindings"]) == 1

        (listed,) = (await get(client, "/memory"))["memory"]
        assert listed["key"] == f"key of {name}"
        assert (await get(client, f"/memory/{quote(listed['ref'], safe='')}"))["state"] == {"turns": [1, 2]}

        (artifact,) = (await get(client, "/artifacts", session=shown["ref"]))["artifacts"]
        assert artifact == shown["artifacts"][0]
        assert (await get(client, "/artifacts"))["artifacts"] == [artifact]
        assert (await get(client, f"/artifacts/{artifact['ref']}"))["preview"] == {"text": "hello", "whole": True}
        content = await client.get(
            f"{PREFIX}/state/artifacts/{artifact['ref']}/content", headers={"range": "bytes=1-2"}
        )
        assert (content.status_code, content.content) == (206, b"el")
        assert "attachment" in content.headers["content-disposition"]


async def test_foreign_and_unknown_data_is_not_found(tmp_path: Path) -> None:
    async with looking(tmp_path) as (store, client):
        await saved(store, "session", "trace")
        assert (await get(client, "/sessions", tenant="other"))["sessions"] == []
        for path in (
            "/sessions/none",
            "/sessions/session/tasks/none",
            "/traces/none",
            "/memory/none",
            "/artifacts/none",
        ):
            assert "there is no such" in (await get(client, path, 404))["error"]["message"]
        await get(client, "/sessions/session", 404, tenant="other")
        await get(client, "/artifacts/none/content", 404)
        await get(client, "/sessions", 400, pageToken="nonsense")


async def test_lists_are_cut_and_paged(tmp_path: Path) -> None:
    async with looking(tmp_path) as (store, client):
        for number in range(60):
            store.save_task(task(number))
            store.save_update(update(number, "many"))
            store.save_remote_binding(conversation(f"remote-{number}"))
            store.save_memory_state(f"key-{number}", {})
        store.save_events(event(float(number)) for number in range(60))
        await store.flush()  # the events are one entry
        await store.save_event(event(61.0, text="long" * 50_000))
        await store.flush()
        shown = await get(client, "/sessions/session")
        assert shown["more"] == ["tasks", "updates", "bindings"]
        assert [one["task_id"] for one in shown["tasks"]] == [f"task-{number}" for number in range(10, 60)]
        page, steps = {"next": 0, "more": True}, []
        while page["more"]:
            page = await get(client, "/sessions/session/updates", after=page["next"], limit=25)
            steps += [entry["data"]["content"]["step"] for entry in page["entries"]]
        assert steps == list(range(60))
        events = await get(client, "/traces/trace/events", limit=1)
        assert [len(events["entries"]), events["more"], events["next"]] == [60, True, 1]
        (last,) = (await get(client, "/traces/trace/events", after=1))["entries"]
        assert len(json.dumps(last)) < 5000
        keys, token = set(), ""
        while True:
            memory = await get(client, "/memory", pageSize=25, pageToken=token)
            keys |= {found["key"] for found in memory["memory"]}
            if not (token := memory["nextPageToken"]):
                break
        assert len(keys) == 60
