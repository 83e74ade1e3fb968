"""Data of a StateStore: sessions, traces, memory and artifacts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import pytest_asyncio
from playwright.async_api import expect

from keelbolt.state import (
    ArtifactScope,
    PlannerEvent,
    StateStore,
    StateUpdate,
    SteeringEvent,
    SteeringEventType,
    StoredEvent,
    TaskContextSnapshot,
    TaskState,
    TaskStatus,
    TaskType,
    Trajectory,
    UpdateType,
)
from keelbolt.state.types.trajectories import PlannerAction, TrajectoryStep
from tests.ui.agent import EVIL
from tests.ui.conftest import OpenPage
from tests.ui.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

BAD = EVIL.format("state")
NOW = datetime.now(UTC)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def session(agent: Stage) -> str:
    """A session with data of every kind, in the storage of the agent."""
    name = "harbour/watch 1"
    async with StateStore(f"sqlite:///{agent.folder}/agent.db", types="own", write_behind=False) as store:
        for number in range(120):
            kind = "node_error" if number == 7 else "node_success"
            await store.save_event(StoredEvent("trace-1", NOW.timestamp(), kind, f"node {number}", "n", {"bad": BAD}))
        await store.save_planner_event("trace-1", PlannerEvent("step_start", NOW.timestamp(), 1, thought="Look out."))
        await store.save_trajectory(
            "trace-1",
            name,
            Trajectory(
                query="Is a ship coming?", steps=[TrajectoryStep(PlannerAction(next_node="look", args={"at": BAD}))]
            ),
        )
        context = TaskContextSnapshot(session_id=name, task_id="t-1", query="watch")
        await store.save_task(
            TaskState("t-1", name, TaskStatus.RUNNING, TaskType.FOREGROUND, 0, context, description="Watch the harbour")
        )
        await store.save_update(
            StateUpdate(
                session_id=name, task_id="t-1", update_id="u-1", update_type=UpdateType.PROGRESS, content="half"
            )
        )
        await store.save_steering(
            SteeringEvent(
                session_id=name,
                task_id="t-1",
                event_id="e-1",
                event_type=SteeringEventType.INJECT_CONTEXT,
                payload={"text": BAD},
            )
        )
        await store.save_planner_state("pause 1", {"reason": "approval_required", "question": BAD})
        await store.save_memory_state("watch:1", {"ships": ["Vega"], "api_token": "s3cret"})
        scope = ArtifactScope(session_id=name)
        await store.artifact_store.put_text("the log of the watch", filename="log.txt", scope=scope)
    return name


async def test_a_session_is_found_and_leads_to_its_traces(agent: Stage, session: str, open_page: OpenPage) -> None:
    page = await open_page(agent.at())
    await page.get_by_role("link", name="Sessions").click()
    await page.get_by_role("link", name=session).click()
    await expect(page.locator("h1")).to_have_text(session)
    await expect(page.locator("main")).to_contain_text("Watch the harbour")
    await page.get_by_role("tab", name="Updates").click()
    await page.locator(".vrow").first.click()
    await expect(page.locator(".detail")).to_contain_text("half")
    await page.get_by_role("tab", name="Steering").click()
    await expect(page.locator(".vrow")).to_have_count(1)
    await page.get_by_role("tab", name="Traces").click()
    await page.get_by_role("link", name="trace-1").click()
    await expect(page.locator("h1")).to_have_text("trace-1")
    await page.get_by_role("button", name="Load all").click()
    await expect(page.locator("main")).to_contain_text("120 entries")
    await expect(page.locator(".vrow .tag.bad")).to_have_text("node error")
    await page.get_by_role("tab", name="Planner").click()
    await expect(page.locator(".vrow")).to_contain_text("Look out.")
    await page.get_by_role("tab", name="Waterfall").click()
    await expect(page.locator(".waterfall")).to_contain_text("node 7")
    await page.get_by_role("tab", name="Trajectories").click()
    await expect(page.locator("main")).to_contain_text("Is a ship coming?")
    await expect(page.locator(".steps")).to_contain_text("look")
    again = await open_page(page.url)
    await expect(again.locator(".steps")).to_contain_text("look")


async def test_memory_and_artifacts_are_shown(agent: Stage, session: str, open_page: OpenPage) -> None:
    page = await open_page(agent.at("sessions?tab=memory"))
    await page.get_by_role("link", name="watch:1").click()
    await expect(page.locator("main")).to_contain_text("Vega")
    assert "s3cret" not in await page.locator("main").inner_text()
    await page.goto(agent.at("sessions?tab=artifacts"))
    await page.get_by_role("link", name="log.txt").click()
    await expect(page.locator("main")).to_contain_text("the log of the watch")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download").first.click()
    assert (await (await download.value).path()).read_bytes() == b"the log of the watch"


async def test_a_waiting_pause_is_shown_and_cancelled(agent: Stage, session: str, open_page: OpenPage) -> None:
    assert session
    page = await open_page(agent.at("sessions?tab=pauses"))
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("link", name="pause 1").click()
    await expect(page.get_by_text("approval_required").first).to_be_visible()
    await page.get_by_role("button", name="Cancel this pause").click()
    await expect(page.get_by_text("No pauses are waiting")).to_be_visible()


async def test_an_empty_store_is_shown_as_empty(own_agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(own_agent.at("sessions"))
    await expect(page.get_by_text("No stored state")).to_be_visible()
    await page.goto(own_agent.at("sessions/unknown"))
    await expect(page.get_by_role("alert")).to_contain_text("there is no such session")
