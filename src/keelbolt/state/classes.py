"""Selects the classes of returned objects: penguiflow's if it is installed, otherwise Keelbolt's.

Stores accept both. Fields are stored by their names, so that fields of a newer class are kept and returned to programs
that know them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ValidationError

from keelbolt.errors import InvalidState
from keelbolt.state import types as own

Choice = Literal["auto", "own", "penguiflow"]

_PLACES = {
    "penguiflow.state.models": (
        *("RemoteBinding", "StateUpdate", "SteeringEvent", "SteeringEventType", "StoredEvent", "TaskContextSnapshot"),
        *("TaskState", "TaskStatus", "TaskType", "UpdateType"),
    ),
    "penguiflow.planner": ("PlannerEvent", "Trajectory"),
    "penguiflow.artifacts": ("ArtifactRef", "ArtifactScope"),
}


class Types:
    """The classes of one store. ``name`` is "own" or "penguiflow".

    penguiflow is imported when the first of its classes is needed, which is never during a save.
    """

    def __init__(self, choice: Choice = "auto") -> None:
        if choice not in ("auto", "own", "penguiflow"):
            raise InvalidState(f"types must be 'auto', 'own' or 'penguiflow', not {choice!r}")
        installed = choice != "own" and find_spec("penguiflow") is not None
        if choice == "penguiflow" and not installed:
            raise InvalidState("types='penguiflow', but penguiflow is not installed: pip install penguiflow")
        self.name = "penguiflow" if installed else "own"
        self._found: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def get(self, name: str) -> Any:
        """Return the class with this name."""
        if name not in self._found:
            places = [place for place, names in _PLACES.items() if name in names]
            known = self.name == "penguiflow" and bool(places)
            self._found[name] = getattr(import_module(places[0]) if known else own, name)
        return self._found[name]

    def make(self, name: str, stored: Mapping[str, Any]) -> Any:
        """Return an object of this class with the stored fields. Fields unknown to the class stay in the store."""
        return made(self.get(name), stored)


def made(kind: Any, stored: Mapping[str, Any]) -> Any:
    """Return an object of this class. A value that the model rejects, such as a newer kind, is returned unchanged."""
    if issubclass(kind, BaseModel):
        try:
            return kind.model_validate(stored)
        except ValidationError:
            return kind.model_construct(**stored)
    enums, names = _shape(kind)
    fields = {name: stored[name] for name in names if name in stored}
    for name, enum in enums:
        member = enum._value2member_map_.get(fields[name]) if isinstance(fields.get(name), str) else None
        fields.update({name: member} if member is not None else {})
    return kind(**fields)


@lru_cache
def _shape(kind: Any) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
    """Return the enum fields of a dataclass, and the names of all fields."""
    hints = get_type_hints(kind)
    enums = tuple((name, hint) for name, hint in hints.items() if hasattr(hint, "_value2member_map_"))
    return enums, tuple(field.name for field in dataclasses.fields(kind) if field.init)
