"""SQL views with the specification's table names, for use in a SQL shell. Keelbolt does not read them.

Reading is safe while agents run; views can't be written to. Their columns are those of the specification, preceded by
`tenant`; ids are never truncated, and values that JSONB can't hold are replaced or NULL.
"""

from __future__ import annotations

from importlib.resources import files

from keelbolt.kernel.urls import run_script

NAMES = (
    "artifacts",
    "flow_events",
    "memory_states",
    "planner_events",
    "planner_pauses",
    "remote_bindings",
    "state_updates",
    "steering_events",
    "task_states",
    "trajectories",
)

_FUNCTIONS = ("state_id(text)", "state_json(bytea)", "state_time(jsonb)")


def create_views(url: str) -> None:
    """Create or replace the views."""
    sqlite, postgres = (files(__package__).joinpath(name).read_text() for name in ("sqlite.sql", "postgres.sql"))
    gone = _dropping()
    run_script(url, {"sqlite": gone["sqlite"] + sqlite, "postgresql": gone["postgresql"] + postgres})


def drop_views(url: str) -> None:
    """Drop the views; the data stays."""
    run_script(url, _dropping())


def _dropping() -> dict[str, str]:
    return {
        "sqlite": "".join(f"DROP VIEW IF EXISTS {name};\n" for name in NAMES),
        "postgresql": "".join(f"DROP VIEW IF EXISTS {{schema}}.{name};\n" for name in NAMES)
        + "".join(f"DROP FUNCTION IF EXISTS {{schema}}.{name};\n" for name in _FUNCTIONS),
    }
