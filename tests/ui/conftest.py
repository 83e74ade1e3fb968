"""One browser for all tests of pages, agents in their own processes, and pages that report forbidden events."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from tests.ui.stage import Stage, watched

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

OpenPage = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium, in which the explorer is tested; install Debian's package of that name")
    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield found
        await found.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The agent that most tests share."""
    async with Stage(tmp_path_factory.mktemp("agent")) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def own_agent(tmp_path: Path) -> AsyncIterator[Stage]:
    """An agent for a test that stops or kills it."""
    async with Stage(tmp_path) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser) -> AsyncIterator[OpenPage]:
    """Opens pages that fail the test when a script fails, the policy is violated, or a request leaves the origin."""
    async with AsyncExitStack() as stack:

        async def opened(url: str, **options: Any) -> Page:
            page = await stack.enter_async_context(watched(browser, url, **options))
            await page.goto(url)
            await page.wait_for_selector("h1")
            return page

        yield opened
