"""Each test runs on four engines, with short delays for retries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keelbolt.tasks import runner
from keelbolt.webhooks import delivery
from tests.integration.tasks.conftest import ENGINES, store_url
from tests.integration.webhooks.receiver import Receiver, receiving
from tests.integration.webhooks.scenario import DeliveryScenario


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    return store_url(request.param, request, tmp_path)


@pytest.fixture
async def scenario(url: str) -> AsyncIterator[DeliveryScenario]:
    """A store of each kind with an engine, and any number of senders."""
    async with DeliveryScenario(url) as scenario:
        yield scenario


@pytest.fixture
async def quiet_scenario() -> AsyncIterator[DeliveryScenario]:
    """A store in memory, for tests that do not depend on the storage."""
    async with DeliveryScenario("memory:") as scenario:
        yield scenario


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.03)
    monkeypatch.setattr(delivery, "POLL_SECONDS", 0.03)
    monkeypatch.setattr(delivery, "LOOK_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "HOLD_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr("keelbolt.webhooks.receivers.FIRST_SECONDS", 0.02)
    monkeypatch.setattr("keelbolt.webhooks.receivers.LONGEST_SECONDS", 0.05)
