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
    """Look at webhooks: how far each was delivered to, and what went wrong.

    Deliveries to one that failed for too long, or whose receiver is gone, stop until it is replayed.

    \b
    Example:
      keelbolt webhooks list --failed --all --storage sqlite:///agent.db
    """


@webhooks.command("list")
@click.argument("task", required=False)
@operates
@whose_or_all
@click.option("--failed", is_flag=True, help="Only those that were given up.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@as_json
def list_(
    api: Operations, task: str | None, *, whose: dict[str, Any], failed: bool, limit: int, json_output: bool
) -> None:
    """List webhooks, of one task or of all, with the last event that arrived and the last error.

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
    print_table(["task", "config", "of", "url", "status", ">told", ">failures", "error"], rows)
    if more:
        echo("there are more; see them with a larger --limit")


@webhooks.command()
@click.argument("task", required=False)
@click.argument("config", required=False)
@operates
@whose_or_all
@click.option("--failed", is_flag=True, help="All that were given up, instead of those of one task.")
@click.option("--after", type=click.IntRange(0), help="Repeat everything after this event of the task; 0: all of it.")
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
    """Deliver again: go on where a webhook stands, also when it was given up, or repeat events with --after.

    An agent that runs on the storage delivers them, with the same ids as before. Name a task, or a task and one of its
    configs; or all that were given up, by --failed.

    \b
    Example:
      keelbolt webhooks replay --failed --all --storage sqlite:///agent.db
    """
    if (task is None) != failed:
        raise click.UsageError("name a task, or --failed")
    if failed and after is not None:
        raise click.UsageError("--after is about the events of one task; name it")
    if task is not None:
        _check_owner(whose)
        replayed = _replay_task(api, task, config, whose, after)
    else:
        replayed = [each for page in api.pages("POST", "webhooks", "replay", **whose) for each in page["replayed"]]
    if json_output:
        print_json({"replayed": replayed})
    else:
        echo(f"{len(replayed):,} webhook(s) are delivered to again")


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
        raise click.UsageError("a task is one owner's: name it with --owner and --tenant")
