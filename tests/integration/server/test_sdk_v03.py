"""The official SDK's last client of 0.3 against our server, in the environment that `make test` creates for it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.integration.server.actor import TOKEN, agent
from tests.integration.server.serving import served

HERE = Path(__file__)
PYTHON = Path(sys.prefix) / "a2a-0.3/bin/python"  # created by tests/tools.sh


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
async def test_the_official_client_of_0_3(transport: str) -> None:
    """Send, stream, continue, cancel, resubscribe, push configs, the extended card, errors."""
    if not PYTHON.exists():
        pytest.skip("the official SDK 0.3 is not installed; `make test` does that")
    async with served(agent(extended=True)) as url:
        child = await asyncio.create_subprocess_exec(
            PYTHON,
            "-W",
            "ignore",
            HERE.with_name("old_sdk.py"),
            url,
            transport,
            TOKEN,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await child.communicate()
    found = json.loads(output)
    assert len(found) == 12
    for name, wrong in found.items():
        assert wrong is None, f"{name}: {wrong}"
