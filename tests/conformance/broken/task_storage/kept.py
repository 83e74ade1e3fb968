"""Faults of persistence: a storage that loses a part of its data at a reopen."""

from __future__ import annotations

from typing import Any, ClassVar

from keelbolt.conformance.task_storage import TaskStoragePlace
from tests.conformance.broken.task_storage.fault import caught_by
from tests.conformance.three_methods import ThreeMethods

_PLACES: dict[str, dict[str, Any]] = {}


class Kept(ThreeMethods):
    """Finds the data of the previous storage, except for ``lost``."""

    takes_a_place = True
    lost: ClassVar[str] = ""

    def __init__(self, place: TaskStoragePlace) -> None:
        super().__init__()
        left = _PLACES.setdefault(place.name, {})
        for name in ("tasks", "versions", "keys"):
            mine = {} if name == self.lost else left.get(name, {})
            left[name] = mine
            setattr(self, name, mine)


@caught_by("tasks_survive")
class LosesTasks(Kept):
    lost = "tasks"


@caught_by("keys_survive")
class LosesKeys(Kept):
    lost = "keys"


@caught_by("guards_survive")
class LosesVersions(Kept):
    def __init__(self, place: TaskStoragePlace) -> None:
        super().__init__(place)
        self.versions.update(dict.fromkeys(self.versions, 1))
