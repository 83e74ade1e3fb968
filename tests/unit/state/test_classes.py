"""The classes of loaded objects, and fields of newer versions of these classes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import penguiflow.state
import pytest
from pydantic import ConfigDict

from keelbolt.errors import InvalidState
from keelbolt.state import classes, types
from keelbolt.state.classes import Types, made
from keelbolt.state.codec import dump_fields


def test_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Types("auto").name == "penguiflow"
    assert Types("auto").StoredEvent is penguiflow.state.StoredEvent
    assert Types("own").StoredEvent is types.StoredEvent
    assert (
        Types("penguiflow").ArtifactRetentionConfig is types.ArtifactRetentionConfig
    )  # penguiflow's classes are not needed
    with pytest.raises(InvalidState, match="types must be 'auto', 'own' or 'penguiflow', not 'both'"):
        Types("both")  # type: ignore[arg-type]
    monkeypatch.setattr(classes, "find_spec", lambda _name: None)
    assert Types("auto").name == "own"
    with pytest.raises(InvalidState, match="penguiflow is not installed"):
        Types("penguiflow")


def test_penguiflow_is_imported_at_the_first_load() -> None:
    code = (
        "import sys, keelbolt.state as s; store = s.StateStore('memory:'); "
        "store.save_event(s.StoredEvent('t', 1.0, 'k', None, None, {})); assert 'penguiflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@dataclasses.dataclass
class Newer(types.StoredEvent):
    event_id: str = ""


class NewerUpdate(types.StateUpdate):
    model_config = ConfigDict(extra="allow")
    shade: str = "green"


def test_the_fields_of_a_newer_class_are_kept() -> None:
    stored = dump_fields(Newer("t", 1.0, "k", None, None, {"a": 1}, "id"))
    assert stored["event_id"] == "id"
    assert made(Newer, stored).event_id == "id"
    assert made(types.StoredEvent, stored).payload == {"a": 1}
    update = NewerUpdate.model_validate(
        {"session_id": "s", "task_id": "t", "update_type": "RESULT", "content": 1, "unknown": [1]}
    )
    again = made(NewerUpdate, dump_fields(update))
    assert (again.shade, again.unknown) == ("green", [1])


def test_an_unknown_kind_is_returned_unchanged() -> None:
    found = made(
        types.StateUpdate,
        {"session_id": "s", "task_id": "t", "update_id": "u", "update_type": "SHINY", "content": 1, "created_at": None},
    )
    assert (found.update_type, found.content) == ("SHINY", 1)
    task: Any = made(
        types.TaskState,
        {
            "task_id": "t",
            "session_id": "s",
            "status": "SLEEPING",
            "task_type": "BACKGROUND",
            "priority": 1,
            "context_snapshot": None,
        },
    )
    assert (task.status, task.task_type) == ("SLEEPING", types.TaskType.BACKGROUND)
