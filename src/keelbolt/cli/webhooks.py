"""`keelbolt webhooks`: shows the state of webhook deliveries, and delivers again."""

from __future__ import annotations

from typing import Any

import click

from keelbolt.cli.failure import Refused
from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.options import whose_or_all
from keelbolt.cli.output import as_json, echo, print_json, print_table


@click.group()
def webhooks() -> None:
    """List webhooks with their last delivered event and error, and replay deliveries.

    Deliveries to a webhook that failed for too long, or whose receiver is gone, stop until it is replayed.

    \b
    Example:
      keelbolt webhooks list --failed --all --storage sqlite:///agent.db
    """


@webhooks.command("list")
@click.argument("task", required=False)
@operates
@whose_or_all
@click.option("--failed", is_flag=True, help="Only failed webhooks.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of rows.")
@as_json
def list_(
    api: Operations, task: str | None, *, whose: dict[str, Any], failed: bool, limit: int, json_output: bool
) -> None:
    """List the webhooks of one task or of all tasks, with the last delivered event and the last error.

    Tokens and credentials are not shown.

    \b
    Example:
      keelbolt webhooks list --failed --all --storage sqlite:///agent.db
    """
    if task is not None:
        _check_owner(whose)
        listed = api.get("tasks", task, "webhooks", **whose)["webhooks"]
        hooks = [hook for hook in listed if not failed or hook["status"] == "failed"]
        shown, more = hooks[:limit], len(hooks) > limit
    else:
        shown, more = api.gather("webhooks", limit, "webhooks", **whose, state="failed" if failed else None)
    if json_output:
        print_json({"webhooks": shown, "more": more})
        return
    names = ("taskId", "id", "partition", "url", "status", "cursor", "failures", "error")
    rows = [[str(hook[name]) for name in names] for hook in shown]
    print_table(["task", "config", "owner", "url", "status", ">delivered", ">failures", "error"], rows)
    if more:
        echo("there are more; use a larger --limit")


@webhooks.command()
@click.argument("task", required=False)
@click.argument("config", required=False)
@operates
@whose_or_all
@click.option("--failed", is_flag=True, help="All failed webhooks, instead of those of one task.")
@click.option("--after", type=click.IntRange(0), help="Repeat all events of the task after this one; 0: all events.")
@as_json
def replay(
    api: Operations,
    task: str | None,
    config: str | None,
    *,
    whose: dict[str, Any],
    failed: bool,
    after: int | None,
    json_output: bool,
) -> None:
    """Resume the delivery of webhooks, including failed ones, or repeat events with --after.

    An agent that runs on the storage delivers the events, with the same ids as before. Name a task, or a task and one
    of its configs; or use --failed for all failed webhooks.

    \b
    Example:
      keelbolt webhooks replay --failed --all --storage sqlite:///agent.db
    """
    if (task is None) != failed:
        raise click.UsageError("name a task or use --failed")
    if failed and after is not None:
        raise click.UsageError("--after applies to the events of one task; name the task")
    if task is not None:
        _check_owner(whose)
        replayed = _replay_task(api, task, config, whose, after)
    else:
        replayed = [each for page in api.pages("POST", "webhooks", "replay", **whose) for each in page["replayed"]]
    if json_output:
        print_json({"replayed": replayed})
    else:
        echo(f"replaying {len(replayed):,} webhook(s)")


def _replay_task(
    api: Operations, task: str, config: str | None, whose: dict[str, Any], after: int | None
) -> list[dict[str, str]]:
    listed = api.get("tasks", task, "webhooks", **whose)["webhooks"]
    wanted = [hook["id"] for hook in listed if config in (None, hook["id"])]
    if not wanted:
        raise Refused(f"task {task} has no webhook {config}" if config else f"task {task} has no webhooks")
    body = {} if after is None else {"after": after}
    return [
        each
        for config_id in wanted
        for each in api.post("tasks", task, "webhooks", config_id, "replay", **whose, body=body)["replayed"]
    ]


def _check_owner(whose: dict[str, Any]) -> None:
    if whose["all"]:
        raise click.UsageError("a task has one owner: use --owner and --tenant instead of --all")
