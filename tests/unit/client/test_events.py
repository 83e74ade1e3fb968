"""The text of a response and of an event."""

from __future__ import annotations

from keelbolt.client.events import Event, text_of
from keelbolt.protocol.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus


def text_message(text: str, role: Role = Role.agent) -> Message:
    return Message(message_id=text, role=role, parts=[Part(text=text)])


def task(state: TaskState, **more: object) -> Task:
    message = more.pop("message", None)
    status = TaskStatus.model_validate({"state": state, "message": message})
    return Task.model_validate({"id": "t", "context_id": "c", "status": status, **more})


def test_the_text_of_a_response_is_the_first_available_one() -> None:
    """The text is that of the artifacts, or of the status, or of the agent's last message."""
    history = [
        text_message("question", Role.user),
        text_message("first"),
        text_message("second"),
        text_message("thanks", Role.user),
    ]
    made = [Artifact(artifact_id="a", parts=[Part(text="1 "), Part(text="2")])]
    done = TaskState.completed
    assert text_of(task(done, history=history, message=text_message("status"), artifacts=made)) == "1 2"
    assert text_of(task(done, history=history, message=text_message("status"))) == "status"
    assert text_of(task(done, history=history)) == "second"
    assert text_of(task(done)) == ""
    assert text_of(text_message("whole")) == "whole"


def test_a_snapshot_of_a_running_task_is_its_artifacts() -> None:
    """The status message is not part of the result; chunks are added to the result."""
    working = task(TaskState.working, message=text_message("Thinking"), history=[text_message("Let me see")])
    assert Event(working, snapshot=True).text == ""
    asking = task(TaskState.input_required, message=text_message("Which one?"))
    assert Event(asking, snapshot=True).text == "Which one?"
