"""`keelbolt webhooks`, on a real SQLite file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.kernel import Put, open_storage
from keelbolt.protocol.requests import Authentication, PushConfig
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.tasks import Envelope, TaskContext, TaskEngine
from keelbolt.tasks.families import PUSH_CURSORS, WEBHOOKS
from keelbolt.tasks.pushes import push_key
from keelbolt.webhooks.configs import PushConfigs
from keelbolt.webhooks.receivers import DeliveryCursor
from tests.unit.cli.test_tasks import keelbolt, read

ADA = Principal(owner="ada", tenant="acme")


async def worker(ctx: TaskContext) -> None:
    await ctx.complete("done")


async def tasks(url: str) -> list[str]:
    """An anonymous task with two webhooks, one of them failed; a task of Ada with a failed one."""
    ids = []
    async with open_storage(url) as kernel, TaskEngine(kernel, worker) as engine:
        configs = PushConfigs()
        for number, who in enumerate((ANONYMOUS, ADA)):
            secret = Authentication(scheme="Bearer", credentials="hidden")
            config = PushConfig(id="a", url="https://hook.example/a", token="hidden", authentication=secret)
            message = Message(message_id=f"m-{number}", role=Role.user, parts=[Part(text="hello")])
            sent = await engine.tasks.send(message, Envelope(who, push=configs.new(config)))
            task_id = (await engine.tasks.settled(sent)).task_id
            failed = DeliveryCursor(
                1, error="HTTP 410", failures=1, since=1000.0, status="failed", tried_at=1001.0, code=410
            )
            await kernel.commit(who.partition, Put(PUSH_CURSORS, push_key(task_id, "a"), failed.json()))
            ids.append(task_id)
        await configs.create(engine.tasks.scope(ANONYMOUS), ids[0], PushConfig(id="b", url="https://hook.example/b"))
    return ids


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db"


@pytest.fixture
def ids(url: str) -> list[str]:
    return asyncio.run(tasks(url))


def cursor(url: str, who: Principal, task_id: str, config: str) -> tuple[DeliveryCursor, str | None]:
    """Return the cursor of a webhook, and the state of its work."""

    async def look() -> tuple[DeliveryCursor, str | None]:
        async with open_storage(url) as kernel, TaskEngine(kernel) as engine:
            [found] = await PushConfigs().cursors(engine.tasks.scope(who), task_id, [config])
            item = await kernel.work(who.partition, WEBHOOKS, push_key(task_id, config))
            return found, item.state if item is not None else None

    return asyncio.run(look())


def test_webhooks_are_listed(url: str, ids: list[str]) -> None:
    mine = read("webhooks", "list", "--storage", url)
    assert [(each["taskId"], each["id"], each["status"]) for each in mine["webhooks"]] == [
        (ids[0], "a", "failed"),
        (ids[0], "b", "active"),
    ]
    assert mine["webhooks"][0]["error"] == "HTTP 410"
    assert (mine["webhooks"][0]["triedAt"], mine["webhooks"][0]["httpStatus"]) == ("1970-01-01T00:16:41.000Z", 410)
    assert (mine["webhooks"][1]["triedAt"], mine["webhooks"][1]["httpStatus"]) == (None, None)
    assert mine["webhooks"][0]["authentication"] == {"scheme": "Bearer"}
    everything = read("webhooks", "list", "--storage", url, "--all")
    assert [each["taskId"] for each in everything["webhooks"]] == [ids[1], ids[0], ids[0]] or [
        each["taskId"] for each in everything["webhooks"]
    ] == [ids[0], ids[0], ids[1]]
    adas = read("webhooks", "list", ids[1], "--storage", url, "--owner", "ada", "--tenant", "acme")
    assert [each["taskId"] for each in adas["webhooks"]] == [ids[1]]
    assert keelbolt("webhooks", "list", ids[1], "--storage", url).exit_code == 3
    failed = read("webhooks", "list", "--storage", url, "--all", "--failed", "--limit", "1")
    assert (len(failed["webhooks"]), failed["more"]) == (1, True)


def test_the_table_contains_no_secrets(url: str, ids: list[str]) -> None:
    for more in ((), ("--json",)):
        result = keelbolt("webhooks", "list", "--storage", url, *more)
        assert "https://hook.example/a" in result.stdout
        assert "HTTP 410" in result.stdout
        assert "hidden" not in result.stdout
    assert "larger --limit" in keelbolt("webhooks", "list", "--storage", url, "--limit", "1").stdout


def test_one_webhook_is_replayed(url: str, ids: list[str]) -> None:
    assert read("webhooks", "replay", ids[0], "a", "--storage", url) == {
        "replayed": [{"taskId": ids[0], "configId": "a"}],
    }
    found, state = cursor(url, ANONYMOUS, ids[0], "a")
    assert (found.status, found.seq, found.error, state) == ("active", 1, "", "waiting")


def test_a_task_is_replayed_from_its_beginning(url: str, ids: list[str]) -> None:
    result = keelbolt("webhooks", "replay", ids[0], "--after", "0", "--storage", url)
    assert result.stdout == "replaying 2 webhook(s)\n"
    assert [cursor(url, ANONYMOUS, ids[0], config)[0].seq for config in "ab"] == [0, 0]


def test_all_failed_webhooks_are_replayed(url: str, ids: list[str]) -> None:
    replayed = read("webhooks", "replay", "--failed", "--all", "--storage", url)["replayed"]
    assert {each["taskId"] for each in replayed} == set(ids)
    assert {each["configId"] for each in replayed} == {"a"}
    assert cursor(url, ADA, ids[1], "a")[0].status == "active"
    assert read("webhooks", "replay", "--failed", "--all", "--storage", url)["replayed"] == []


def test_a_missing_webhook_is_an_error(url: str, ids: list[str]) -> None:
    for wrong in ((ids[1],), (ids[0], "c"), ("nothing",)):
        assert keelbolt("webhooks", "replay", *wrong, "--storage", url).exit_code == 3


@pytest.mark.parametrize(
    "wrong", [(), ("task", "--failed"), ("task", "--all"), ("--failed", "--after", "0"), ("task", "--after", "-1")]
)
def test_wrong_arguments_are_explained(url: str, wrong: tuple[str, ...]) -> None:
    result = keelbolt("webhooks", "replay", *wrong, "--storage", url)
    assert result.exit_code == 2
    assert "Error" in result.stderr
