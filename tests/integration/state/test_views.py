"""The views with the specification's table names, read with the plain drivers."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from keelbolt.errors import CannotOpen, InvalidValue, StorageMissing
from keelbolt.kernel import open_storage
from keelbolt.state import ArtifactScope, StateStore
from keelbolt.state.views import NAMES, create_views, drop_views
from tests.integration.state.conftest import store_url
from tests.integration.state.things import binding, event, planned, steering, task, trajectory, update

ODD = "a/b %\0" + "x" * 400
Rows = list[dict[str, Any]]


@pytest.fixture(params=["sqlite", "postgres"])
def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store of each kind that has SQL."""
    return store_url(request.param, request, tmp_path)


async def rows(url: str, view: str) -> Rows:
    """Return the rows of this view, read with a plain driver and with decoded JSON."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        with closing(sqlite3.connect(parts.path[1:])) as connection:
            connection.row_factory = sqlite3.Row
            found = [dict(row) for row in connection.execute(f"SELECT * FROM {view}")]
    else:
        schema = parse_qs(parts.query)["schema"][0]
        plain = await asyncpg.connect(url.partition("?")[0])
        try:
            found = [dict(row) for row in await plain.fetch(f"SELECT * FROM {schema}.{view}")]
        finally:
            await plain.close()
    for row in found:
        for name in ("payload", "extra", "content", "context_snapshot", "trajectory", "state", "scope"):
            if isinstance(row.get(name), str):
                row[name] = json.loads(row[name])
    return found


async def fill(store: StateStore, name: str) -> None:
    """Store data for every view; events are grouped and repeated."""
    store.save_events([event(1.0, name, n=1), event(2.0, name, n=2), event(2.0, name, n=2)])
    await store.flush()
    store.save_event(event(3.0, None))
    store.save_event(event(2.0, name, n=2))
    store.save_event(event(4.0, name, odd=float("nan"), nul="\0", big=10**40))
    store.save_planner_event(name, planned(1))
    await store.flush()
    store.save_planner_event(name, planned(1))
    store.save_update(update(1, session=name))
    store.save_task(task(1, name))
    store.save_trajectory(name, name, trajectory())
    store.save_memory_state(name, {"deep": [1]})
    store.save_planner_state("token", {"step": 1})
    await store.save_steering(steering(1, session=name))
    await store.save_remote_binding(binding(trace_id=name))
    await store.artifact_store.put_bytes(b"\0bytes", mime_type="a/b", scope=ArtifactScope(session_id=name))
    await store.flush()


@pytest.mark.parametrize("name", ["plain", ODD], ids=["plain", "odd"])
async def test_views_show_real_columns(sql_url: str, name: str) -> None:
    async with StateStore(sql_url, types="own") as store, StateStore(sql_url, tenant="other") as other:
        await fill(store, name)
        await other.save_memory_state("its", {})
        await asyncio.to_thread(create_views, sql_url)
        await asyncio.to_thread(create_views, sql_url)  # created again
        seen = {view: await rows(sql_url, view) for view in NAMES}
        shown = name.replace("\0", "\ufffd")

        events = sorted(seen["flow_events"], key=lambda row: float(row["ts"]))
        assert [row["ts"] for row in events] == [1.0, 2.0, 3.0, 4.0]
        assert [row["trace_id"] for row in events] == [shown, shown, "__global__", shown]
        assert (events[0]["kind"], events[0]["payload"]) == ("node_start", {"n": 1})
        assert events[3]["payload"]["big"] == 10**40
        (planner,) = seen["planner_events"]
        assert (planner["trace_id"], planner["event_type"], planner["trajectory_step"]) == (shown, "step_complete", 1)
        (change,) = seen["state_updates"]
        assert (change["session_id"], change["update_id"], change["content"]) == (shown, "update-1", {"step": 1})
        assert str(change["created_at"]).startswith("20")
        (steered,) = seen["steering_events"]
        assert (steered["event_type"], steered["payload"]) == ("USER_MESSAGE", {"text": "hello"})
        (kept,) = seen["task_states"]
        assert (kept["task_id"], kept["status"], kept["priority"]) == ("task-1", "RUNNING", 5)
        assert kept["context_snapshot"]["llm_context"] == {"deep": [{"x": 1}]}
        assert str(kept["created_at"]).startswith("20")
        (path,) = seen["trajectories"]
        assert (path["trace_id"], path["session_id"], path["trajectory"]["query"]) == (shown, shown, "query")
        (bound,) = seen["remote_bindings"]
        assert (bound["context_id"], bound["agent_url"], bool(bound["is_terminal"])) == (
            "context",
            "https://agent",
            False,
        )
        (pause,) = seen["planner_pauses"]
        assert (pause["token"], pause["payload"]) == ("token", {"step": 1})
        assert {(row["tenant"], row["key"]) for row in seen["memory_states"]} == {("default", shown), ("other", "its")}
        (artifact,) = seen["artifacts"]
        assert (artifact["session_id"], artifact["mime_type"], artifact["size_bytes"]) == (shown, "a/b", 6)
        assert bytes(artifact["data"]) == b"\0bytes"

        await asyncio.to_thread(drop_views, sql_url)
        with pytest.raises((sqlite3.OperationalError, asyncpg.UndefinedTableError)):
            await rows(sql_url, "flow_events")
        assert len(await store.load_history(name)) == 3  # only the views were removed


async def test_every_event_of_a_burst_is_shown_in_order(sql_url: str) -> None:
    """A lone surrogate hides no other event, 1 and 1.0 are two events, and id orders events with equal times."""
    async with StateStore(sql_url, types="own") as store:
        numbers = [event(5.0, n=n) for n in (3, 1, 1.0, 2)]
        await store.save_events([*numbers, event(5.0, text="half \ud83d of a pair"), event(5.0, text="\U0001f427")])
        await store.save_event(event(1.0, "other"))
        assert len(await store.load_history("trace")) == 6
        await store.save_planner_state("token", {})
    await asyncio.to_thread(create_views, sql_url)
    found = [row for row in await rows(sql_url, "flow_events") if row["trace_id"] == "trace"]
    found.sort(key=lambda row: (row["ts"], row["id"]))
    assert [row["payload"].get("n") for row in found] == [3, 1, 1.0, 2, None, None]
    if sql_url.startswith("postgres"):
        assert [row["payload"]["text"] for row in found[4:]] == ["half \ufffd of a pair", "\U0001f427"]
    (pause,) = await rows(sql_url, "planner_pauses")
    assert str(pause["created_at"]) < str(pause["expires_at"])


async def test_one_trace_is_read_by_its_index(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = store_url("postgres", request, tmp_path)
    async with StateStore(url, types="own") as store:
        await store.save_events([event(float(n), f"trace-{n % 500}") for n in range(5000)])
    await asyncio.to_thread(create_views, url)
    schema = parse_qs(urlsplit(url).query)["schema"][0]
    plain = await asyncpg.connect(url.partition("?")[0])
    try:
        await plain.execute(f"ANALYZE {schema}.stream; ANALYZE {schema}.entry")
        lines = await plain.fetch(
            "EXPLAIN (ANALYZE, COSTS OFF) "
            f"SELECT * FROM {schema}.flow_events WHERE trace_id = 'trace-7' ORDER BY ts, id"
        )
    finally:
        await plain.close()
    plan = "\n".join(line[0] for line in lines)
    assert re.search(r"Index Scan using \w+ on entry .*rows=1(\.00)? loops=1\)", plan), plan


async def test_a_store_with_views_can_be_opened_checked_and_backed_up(sql_url: str, tmp_path: Path) -> None:
    from keelbolt.kernel.copies import backup_storage

    async with StateStore(sql_url, types="own") as store:
        await fill(store, "plain")
    await asyncio.to_thread(create_views, sql_url)
    async with open_storage(sql_url) as kernel:
        assert [problem async for problem in kernel.check()] == []
        await backup_storage(kernel, tmp_path / "copy")


def test_engines_without_sql_or_schema_raise(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="has no SQL"):
        create_views("redis://localhost:1")
    with pytest.raises(StorageMissing):
        create_views(f"sqlite:///{tmp_path}/none.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(CannotOpen, match="keelbolt migrate"):
        create_views(f"sqlite:///{tmp_path}/empty.db")
