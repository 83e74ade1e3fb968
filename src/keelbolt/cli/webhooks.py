"""`keelbolt webhooks`: how deliveries to webhooks stand, and delivering again."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.engine import engine_at, principal_of, storage_option, whose
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.remote import check_replay, list_webhooks, or_server, replay_webhooks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from keelbolt.tasks.store import TaskStore
    from keelbolt.webhooks.overview import Webhook

everyone_option = click.option("--all", "everyone", is_flag=True, help="The webhooks of all tenants and owners.")


@click.group()
def webhooks() -> None:
    """Look at webhooks: how far each was told about its task, and what went wrong.

    One that failed for too long, or whose receiver said that it is gone, is told nothing more until it is replayed.

    \b
    Example:
      keelbolt webhooks list --failed --all --storage sqlite:///agent.db
    """


@webhooks.command("list")
@click.argument("task", required=False)
@or_server(list_webhooks)
@storage_option
@whose
@everyone_option
@click.option("--failed", is_flag=True, help="Only those that were given up.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@as_json
def list_(
    task: str | None, url: str, *, owner: str, tenant: str, everyone: bool, failed: bool, limit: int, json_output: bool
) -> None:
    """List webhooks, of one task or of all, with the last event that arrived and the last error.

    Tokens and credentials are not shown.

    \b
    Example:
      keelbolt webhooks list --failed --all --storage sqlite:///agent.db
    """

    async def run() -> list[Webhook]:
        found: list[Webhook] = []
        async with (
            engine_at(url) as engine,
            aclosing(_webhooks(engine.store, owner, tenant, task, everyone=everyone)) as listed,
        ):
            async for webhook in listed:
                if not failed or webhook.cursor.status == "failed":
                    found.append(webhook)
                if len(found) > limit:
                    break
        return found

    found = asyncio.run(run())
    shown, more = found[:limit], len(found) > limit
    if json_output:
        print_json({"webhooks": [_json(webhook) for webhook in shown], "more": more})
        return
    rows = [
        [
            webhook.partition,
            webhook.task_id,
            webhook.config_id,
            webhook.config.url,
            webhook.cursor.status,
            str(webhook.cursor.seq),
            str(webhook.cursor.failures),
            webhook.cursor.error,
        ]
        for webhook in shown
    ]
    print_table(["partition", "task", "config", "url", "status", ">told", ">failures", "error"], rows)
    if more:
        echo("there are more; see them with a larger --limit")


@webhooks.command()
@click.argument("task", required=False)
@click.argument("config", required=False)
@or_server(replay_webhooks)
@storage_option
@whose
@everyone_option
@click.option("--failed", is_flag=True, help="All that were given up, instead of those of one task.")
@click.option("--after", type=click.IntRange(0), help="Repeat everything after this event of the task; 0: all of it.")
@as_json
def replay(
    task: str | None,
    config: str | None,
    url: str,
    *,
    owner: str,
    tenant: str,
    everyone: bool,
    failed: bool,
    after: int | None,
    json_output: bool,
) -> None:
    """Deliver again: go on where a webhook stands, also when it was given up, or repeat events with --after.

    An agent that runs on the storage delivers them, with the same ids as before. Name a task, or a task and one of its
    configs; or all that were given up, by --failed.

    \b
    Example:
      keelbolt webhooks replay --failed --all --storage sqlite:///agent.db
    """
    check_replay(task, everyone=everyone, failed=failed, after=after)
    replayed = asyncio.run(_replay(url, owner, tenant, task, config, everyone=everyone, after=after))
    if json_output:
        print_json({"replayed": [{"task": webhook.task_id, "config": webhook.config_id} for webhook in replayed]})
    else:
        echo(f"{len(replayed):,} webhook(s) are delivered to again")
    if task is not None and not replayed:
        raise SystemExit(1)


async def _replay(
    url: str, owner: str, tenant: str, task: str | None, config: str | None, *, everyone: bool, after: int | None
) -> list[Webhook]:
    from keelbolt.webhooks.configs import PushConfigs

    async with engine_at(url) as engine:
        configs = PushConfigs(engine.kernel)
        found = [webhook async for webhook in _webhooks(engine.store, owner, tenant, task, everyone=everyone)]
        if task is None:
            found = [webhook for webhook in found if webhook.cursor.status == "failed"]
        elif config is not None:
            found = [webhook for webhook in found if webhook.config_id == config]
        for webhook in found:
            await configs.replay(webhook.partition, webhook.task_id, webhook.config_id, after=after)
    return found


def _webhooks(
    store: TaskStore, owner: str, tenant: str, task: str | None, *, everyone: bool
) -> AsyncGenerator[Webhook, None]:
    from keelbolt.webhooks import overview

    if everyone and task is None:
        return overview.webhooks_everywhere(store)
    return overview.webhooks(store, principal_of(owner, tenant).partition, task)


def _json(webhook: Webhook) -> dict[str, Any]:
    return {"partition": webhook.partition, **webhook.json()}
