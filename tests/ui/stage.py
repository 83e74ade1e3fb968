"""An agent in its own process, and a monitored page."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2
from playwright.async_api import Browser, Page

from tests.integration.server.serving import free_socket

ROOT = Path(__file__).parents[2]
PREFIX = "/keelbolt/v1"
MESSAGES = itertools.count()
LOUD = ("Content Security Policy", "TrustedHTML", "TrustedScript", "Trusted Type", "Uncaught")


class Stage:
    """The agent of `tests.ui.agent`, which can be stopped, killed and started again at the same address."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self._options = options
        with free_socket() as bound:
            self.port = bound.getsockname()[1]
        self.url = f"http://localhost:{self.port}"
        self.child: asyncio.subprocess.Process | None = None
        self.client = httpx2.AsyncClient(base_url=self.url, timeout=20)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop(signal.SIGKILL)
        await self.client.aclose()

    async def start(self) -> None:
        storage = f"sqlite:///{self.folder}/agent.db"
        command = ["-m", "tests.ui.agent", "--port", str(self.port), "--storage", storage, "--folder", str(self.folder)]
        self.child = await asyncio.create_subprocess_exec(sys.executable, *command, *self._options, cwd=ROOT)
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(httpx2.HTTPError):
                    if (await self.client.get("/ready")).status_code == 200:
                        return
                assert self.child.returncode is None
                await asyncio.sleep(0.02)

    async def stop(self, number: int = signal.SIGTERM) -> None:
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                self.child.send_signal(number)
            await self.child.wait()
            self.child = None

    async def gone(self) -> None:
        """Wait until the process has exited by itself."""
        assert self.child is not None
        await self.child.wait()
        self.child = None

    # ------------------------------------------------------------------------------------------------- the agent

    def at(self, place: str = "agent") -> str:
        """Return the URL of a view."""
        return f"{self.url}/explorer/#/{place}"

    async def send(self, text: str, *, now: bool = False, **more: Any) -> str:
        """Return the id of a task after its turn has ended; with ``now``, at once."""
        message = {"messageId": f"ui-{next(MESSAGES)}", "role": "ROLE_USER", "parts": [{"text": text}], **more}
        body: dict[str, Any] = {"message": message, "configuration": {"returnImmediately": now}}
        answer = await self.client.post("/message:send", json=body)
        task_id: str = answer.json()["task"]["id"]
        return task_id

    async def show(self, task_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"{PREFIX}/tasks/{task_id}")
        found: dict[str, Any] = answer.json()
        return found

    async def log(self, task_id: str) -> list[dict[str, Any]]:
        answer = await self.client.get(f"{PREFIX}/tasks/{task_id}/log", params={"limit": 500})
        entries: list[dict[str, Any]] = answer.json()["entries"]
        return entries


@contextlib.asynccontextmanager
async def made_run(folder: Path, *, log: Path | None = None) -> AsyncIterator[str]:
    """Run `make run`; yield the printed address of the page. ``log`` receives its warnings and errors."""
    target = re.search(r"^run: .*\n\t@\$\(BIN\)/python (.*) \$\(ARGS\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert target is not None
    options = ["--port", "0", "--storage", f"sqlite:///{folder}/run.db", "--log-level", "warning" if log else "error"]
    stderr = log.open("wb") if log else None
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *target[1].split(),
        *options,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "KEELBOLT_LEASE_SECONDS": "2"},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            while "in a browser" not in (line := (await process.stdout.readline()).decode()):
                assert line, "it ended"
        yield line.split()[-1]
    finally:
        process.terminate()
        await process.wait()
        if stderr is not None:
            stderr.close()


@contextlib.asynccontextmanager
async def watched(
    browser: Browser, url: str, *, expected: str = "nothing of this", also: str = "", **options: Any
) -> AsyncIterator[Page]:
    """A page in its own context. On exit, fail on errors and policy violations that are not expected.

    It may call its own origin, and that of ``also``.
    """
    options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options}
    context = await browser.new_context(**options)
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await context.new_page()
    loud: list[str] = []
    homes = {urlsplit(url).netloc, urlsplit(also).netloc}
    page.on("pageerror", lambda error: loud.append(f"a script failed: {error}"))
    page.on("console", lambda line: loud.append(line.text) if any(word in line.text for word in LOUD) else None)

    def check(request: Any) -> None:
        asked = urlsplit(request.url)
        if asked.scheme not in ("data", "blob") and asked.netloc not in homes:
            loud.append(f"a request left the origin: {request.url}")

    page.on("request", check)
    try:
        yield page
        assert await page.evaluate("() => window.hacked") is None
    finally:
        await context.close()
    unexpected = [line for line in loud if expected not in line]
    assert not unexpected, unexpected
