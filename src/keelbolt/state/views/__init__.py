"""Views with the specification's table names, for people with a SQL shell. Nothing of ours reads them.

Reading is safe while agents run; writing to them is refused, as views are. Their columns are those of the
specification, with `tenant` before them; ids are never cut, and what JSONB can't hold is replaced or NULL.
"""

from __future__ import annotations

from importlib.resources import files

from keelbolt.storage.urls import run_script

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
    """Make the views, or make them anew."""
    sqlite, postgres = (files(__package__).joinpath(name).read_text() for name in ("sqlite.sql", "postgres.sql"))
    gone = _dropping()
    run_script(url, {"sqlite": gone["sqlite"] + sqlite, "postgresql": gone["postgresql"] + postgres})


def drop_views(url: str) -> None:
    """Take them away; what they showed stays."""
    run_script(url, _dropping())


def _dropping() -> dict[str, str]:
    return {
        "sqlite": "".join(f"DROP VIEW IF EXISTS {name};\n" for name in NAMES),
        "postgresql": "".join(f"DROP VIEW IF EXISTS {{schema}}.{name};\n" for name in NAMES)
        + "".join(f"DROP FUNCTION IF EXISTS {{schema}}.{name};\n" for name in _FUNCTIONS),
    }
