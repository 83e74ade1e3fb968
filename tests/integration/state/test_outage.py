"""A database outage under a resilient store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from keelbolt.state import StateStore
from keelbolt.testing.proxy import Proxy
from tests.integration.state.conftest import store_url
from tests.integration.state.things import event, task, update


@pytest.mark.parametrize("engine", ["postgres", "redis"])
async def test_nothing_is_lost_and_order_is_kept(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """After a broken connection and a database outage, each save is stored once, in call order."""
    url = store_url(engine, request, tmp_path)
    parts = urlsplit(url)
    async with Proxy(parts.hostname or "127.0.0.1", parts.port or 0) as proxy:
        store = StateStore(proxy.url(url), policy="resilient", spool=tmp_path / "spool", timeout_seconds=2.0)
        one = task()
        await store.save_task(one)
        for number in range(60):
            if number == 15:
                proxy.cut()
                proxy.refuse()
            if number == 45:
                proxy.allow()
            await store.save_update(update(number))
            store.save_event(event(float(number)))
            one.progress = {"step": number}
            await store.save_task(one)
        async with asyncio.timeout(60):
            while (await store.health()).in_spool:  # noqa: ASYNC110  (it is another loop that empties it)
                await asyncio.sleep(0.05)
        assert store.counters.lost == 0
        await store.close()
    async with StateStore(url, types="own") as straight:
        assert [found.content["step"] for found in await straight.list_updates("session")] == list(range(60))
        assert [found.ts for found in await straight.load_history("trace")] == [float(number) for number in range(60)]
        assert [found.progress for found in await straight.list_tasks("session")] == [{"step": 59}]
