"""`keelbolt sweep`: removes expired data, and data beyond its retention."""

from __future__ import annotations

import click

from keelbolt.cli.operations import Operations, operates
from keelbolt.cli.options import policies_of, retain_option
from keelbolt.cli.output import as_json, echo, print_json, print_table, progress


@click.command()
@operates
@retain_option
@click.option("--dry-run", is_flag=True, help="Count what --retain would remove, without removing it.")
@as_json
def sweep(api: Operations, retain: tuple[str, ...], *, dry_run: bool, json_output: bool) -> None:
    """Remove expired data, and data beyond the limits of --retain, of all tenants and owners, once.

    A limit is an age (90s, 15m, 12h, 30d, 4w) or the number of the newest items to keep. Data without a limit is kept.
    The sweep works in small steps while agents run; after an interruption, it continues where it stopped. Processes
    that serve the storage sweep by themselves.

    \b
    Example:
      keelbolt sweep --storage sqlite:///agent.db --retain completed=30d --retain log=1h --retain updates=10000
    """
    policies_of(retain)  # raises for a wrong policy before anything is removed
    with progress("sweeping") as tell:
        removed = api.work("sweep", body={"retain": list(retain), "dryRun": dry_run}, progress=tell)["removed"]
    if json_output:
        print_json({"dryRun": dry_run, "removed": removed})
        return
    rows = [[face, what, f"{count:,}"] for face, counts in removed.items() for what, count in counts.items()]
    if rows:
        print_table(["face", "would be removed" if dry_run else "removed", ">count"], rows)
    else:
        echo("nothing to remove")
