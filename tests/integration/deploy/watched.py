"""A real Prometheus that scrapes a real agent of two processes on PostgreSQL, every three seconds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from keelbolt.testing.launch import free_port
from keelbolt.testing.proxy import Proxy

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"

WORKER = """
import asyncio, os, random

async def worker(ctx):
    word, _, rest = ctx.user_text.partition(" ")
    if word == "die":
        os._exit(1)
    if word == "fail":
        raise RuntimeError("as asked")
    if word == "hold":
        await asyncio.sleep(float(rest))
    if word == "steps":
        for number in range(3):
            await ctx.step("pause", asyncio.sleep, random.expovariate(20), idempotent=True)
    return "done"
"""


@dataclass
class Watched:
    """The agent, its Prometheus, and the proxy between the agent and its database."""

    agent: str
    prometheus: str
    proxy: Proxy
    client: httpx2.AsyncClient

    async def send(self, text: str, *, hook: str | None = None) -> None:
        """Start a task without waiting for it. The process that serves the request may die of an earlier task."""
        message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": text}]}
        configuration: dict[str, Any] = {"returnImmediately": True}
        if hook is not None:
            configuration["taskPushNotificationConfig"] = {"url": hook}
        body = {"message": message, "configuration": configuration}
        with contextlib.suppress(httpx2.TransportError):
            answer = await self.client.post(f"{self.agent}/message:send", json=body)
            assert answer.status_code == 200, answer.text

    async def query(self, expression: str) -> list[Any]:
        answer = await self.client.get(f"{self.prometheus}/api/v1/query", params={"query": expression})
        assert answer.status_code == 200, (expression, answer.text)
        found: list[Any] = answer.json()["data"]["result"]
        return found

    async def firing(self) -> set[str]:
        alerts = (await self.client.get(f"{self.prometheus}/api/v1/alerts")).json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def expression(written: str, *, window: str = "1m") -> str:
    """Return an expression of the dashboard as Grafana sends it."""
    return written.replace("$__rate_interval", window).replace("$job", ".*")


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana/keelbolt.json").read_text())["panels"]
    return found


def hurried(rules: str) -> str:
    """Return the alert rules with shorter times, so that a test can wait for them; the expressions stay."""
    rules = re.sub(r"for: \d+m", "for: 1s", rules)
    return rules.replace("[1m]", "[8s]").replace("> 300", "> 2")


@contextlib.contextmanager
def _running(command: list[str], folder: Path, log: str, environment: Mapping[str, str]) -> Iterator[None]:
    with (folder / log).open("w") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.asynccontextmanager
async def watched(postgres_url: str, *, concurrency: int = 2) -> AsyncIterator[Watched]:
    place = httpx2.URL(postgres_url)
    port, prometheus = free_port(), free_port()
    settings = {
        "KEELBOLT_LEASE_SECONDS": "1",
        "KEELBOLT_MAX_ATTEMPTS": "2",
        "KEELBOLT_CONCURRENCY": str(concurrency),
        "KEELBOLT_WEBHOOK_LOOPBACK": "true",
    }
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "agent.py").write_text(WORKER)
        (folder / "alerts.yml").write_text(hurried((DEPLOY / "prometheus/alerts.yml").read_text()))
        config = (DEPLOY / "prometheus/prometheus.yml").read_text()
        (folder / "prometheus.yml").write_text(config.replace("15s", "3s").replace(":8000", f":{port}"))
        async with Proxy(place.host, place.port or 5432) as proxy, httpx2.AsyncClient(timeout=30) as client:
            options = ["--port", str(port), "--processes", "2", "--metrics", "--storage", proxy.url(postgres_url)]
            serve = [sys.executable, "-m", "keelbolt", "serve", "agent:worker", *options]
            listen = f"--web.listen-address=127.0.0.1:{prometheus}"
            scrape = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", listen]
            stack.enter_context(_running(serve, folder, "agent.log", {**os.environ, **settings}))
            stack.enter_context(_running(scrape, folder, "prometheus.log", os.environ))
            found = Watched(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{prometheus}", proxy, client)
            async with asyncio.timeout(60):
                for url in (f"{found.agent}/ready", f"{found.prometheus}/-/ready"):
                    while True:
                        with contextlib.suppress(httpx2.HTTPError):
                            if (await client.get(url)).status_code == 200:
                                break
                        await asyncio.sleep(0.1)
            try:
                yield found
            finally:
                proxy.allow()
            await asyncio.to_thread(stack.close)
