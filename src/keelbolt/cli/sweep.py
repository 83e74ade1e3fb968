"""`keelbolt sweep`: remove what has expired, and what is older or more than is to be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from keelbolt.cli.engine import opened, policies_of, retain_option, storage_option
from keelbolt.cli.output import as_json, echo, print_json, print_table, progress

if TYPE_CHECKING:
    from keelbolt.data.retention import Policy


@click.command()
@storage_option
@retain_option
@click.option("--dry-run", is_flag=True, help="Only count what --retain would remove; change nothing.")
@as_json
def sweep(url: str, retain: tuple[str, ...], *, dry_run: bool, json_output: bool) -> None:
    """Remove what is older or more than is to be kept, of all tenants and owners, once; and what has expired.

    An age is 90s, 15m, 12h, 30d or 4w, a number is of the newest that stay. Whatever is not named is kept. It works in
    small steps, so that agents go on; interrupted, it continues where it stopped. Processes that serve the storage
    sweep by themselves.

    \b
    Example:
      keelbolt sweep --storage sqlite:///agent.db --retain completed=30d --retain log=1h --retain updates=10000
    """
    policies = policies_of(retain)
    removed = asyncio.run(_sweep(url, policies, dry=dry_run))
    for policy in policies:
        if (hint := policy.hint()) is not None:
            echo(hint, err=True)
    if json_output:
        print_json({"dryRun": dry_run, "removed": removed})
        return
    rows = [[face, what, f"{count:,}"] for face, counts in removed.items() for what, count in counts.items()]
    if rows:
        print_table(["of", "would be removed" if dry_run else "removed", ">how many"], rows)
    else:
        echo("nothing to remove")


async def _sweep(url: str, policies: list[Policy], *, dry: bool) -> dict[str, Mapping[str, int]]:
    from keelbolt.data.sweeping import retain, sweep_expired

    removed: dict[str, Mapping[str, int]] = {}
    with progress("sweeping") as tell:
        async with await opened(url) as kernel:
            for policy in policies:
                tell(policy.face)
                removed[policy.face] = await retain(policy, kernel, dry=dry)
            if not dry:
                tell("what has expired")
                removed["expired"] = await sweep_expired(kernel)
    return removed
