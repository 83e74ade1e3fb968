"""Log lines for operators about failures: one line each, with the task's fields in JSON logs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import Any

import pytest

from keelbolt.auth import new_secret
from keelbolt.observability.logs import JSONLines, masked
from keelbolt.observability.tracing import CARRIER
from keelbolt.tasks import Envelope, TaskContext, runner
from keelbolt.webhooks.signing import new_signing_secret
from tests.integration.tasks.stage import Stage, message, until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def lines(caplog: pytest.LogCaptureFixture, words: str) -> list[dict[str, Any]]:
    """Return the JSON lines that contain this text."""
    found = [json.loads(JSONLines().format(record)) for record in caplog.records if record.name.startswith("keelbolt")]
    return [line for line in found if words in line["message"]]


async def test_an_outage_a_lost_lease_and_a_takeover(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.02)
    begun: list[int] = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        if len(begun) == 1:
            await asyncio.sleep(60)
        await ctx.complete()

    with caplog.at_level(logging.INFO, "keelbolt"):
        async with Stage("memory:") as stage:
            engine = await stage.engine(worker, lease_seconds=0.5, heartbeat_seconds=0.1)
            request = {CARRIER: {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}}
            sent = await engine.tasks.send(message(), Envelope(stored=request))
            await until(lambda: begun)
            stage.lines[engine].cut = True
            await until(lambda: lines(caplog, "lease lost"))
            await until(lambda: lines(caplog, "storage lost"))
            stage.lines[engine].cut = False
            await until(lambda: len(lines(caplog, "storage found")) == 2)
            await until(lambda: begun == [1, 2])
    lost = lines(caplog, "storage lost")  # one line each, not one per poll or heartbeat
    assert sorted(line["message"].partition(" until")[0] for line in lost) == [
        "storage lost: no task can be claimed",
        "storage lost: the lease can't be renewed",
    ]
    assert {line["level"] for line in lost} == {"warning"}
    assert [line["level"] for line in lines(caplog, "lease lost")] == ["warning"]
    assert [line["level"] for line in lines(caplog, "storage found")] == ["warning", "warning"]
    task, context = sent.task.record.task_id, sent.task.record.context_id
    fields = {"task": task, "context": context, "trace": TRACE, "pid": os.getpid(), "level": "warning"}
    [left], [taken] = lines(caplog, "lost its lease"), lines(caplog, "is taken over")
    assert left.items() >= (fields | {"attempt": 1}).items()
    assert taken.items() >= (fields | {"attempt": 2}).items()


async def test_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[int] = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        await asyncio.sleep(60)

    with caplog.at_level(logging.INFO, "keelbolt"):
        async with Stage("memory:") as stage:
            first = await stage.engine(worker, max_attempts=2)
            sent = await first.tasks.send(message())
            await until(lambda: len(begun) == 1)
            await stage.crash(first)
            second = await stage.engine(worker, max_attempts=2)
            await until(lambda: len(begun) == 2)
            await stage.crash(second)
            await stage.engine(worker, max_attempts=2)
            await until(lambda: lines(caplog, "dead letter"))
    [line] = lines(caplog, "is a dead letter after 2 attempts")
    assert (line["task"], line["context"]) == (sent.task.record.task_id, sent.task.record.context_id)


@pytest.mark.parametrize("secret", [new_secret(), new_signing_secret()], ids=["key", "webhook"])
def test_keelbolts_own_secrets_are_masked(secret: str) -> None:
    assert masked(f"the receiver refused {secret} today") == "the receiver refused ••• today"


def test_a_password_with_an_at_sign_is_masked() -> None:
    """Clients of databases accept it without an escape."""
    assert masked("can't open postgresql://user:p@ss-word@host/db") == "can't open postgresql://user:•••@host/db"
