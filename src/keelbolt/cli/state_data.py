"""`keelbolt state views`: SQL views of the state."""

from __future__ import annotations

import click

from keelbolt.cli.options import storage_option
from keelbolt.cli.output import echo


@click.command()
@storage_option()
@click.option("--drop", is_flag=True, help="Drop the views; the data stays.")
def views(url: str, *, drop: bool) -> None:
    """Create SQL views with the table names and columns of the StateStore specification.

    The views are flow_events, remote_bindings, planner_pauses, memory_states, task_states, state_updates,
    steering_events, trajectories, planner_events and artifacts; on PostgreSQL in the schema of the storage (keelbolt,
    unless its URL names another). They cost nothing until they are read, for example with sqlite3 or psql.

    \b
    Example:
      keelbolt state views --storage sqlite:///state.db
    """
    from keelbolt.state.views import NAMES, create_views, drop_views

    if drop:
        drop_views(url)
        echo(f"{len(NAMES)} views dropped")
    else:
        create_views(url)
        echo(f"{len(NAMES)} views created: {', '.join(NAMES)}")
