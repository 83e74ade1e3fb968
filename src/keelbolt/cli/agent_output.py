"""Terminal output of an agent: results on stdout, everything about them on stderr."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from keelbolt.cli.output import colour_of, echo, echo_json

if TYPE_CHECKING:
    from keelbolt.client import Event, Message, Task, TaskState

FAILED, REJECTED, UNFINISHED = 1, 3, 4  # exit codes; 2 is wrong usage


def print_answer(answer: Task | Message, url: str, *, json_output: bool) -> int:
    """Print a response and return the exit code."""
    from keelbolt.client import Task, text_of

    if json_output:
        from keelbolt.protocol import v1

        _print_line(v1.event(answer))
    else:
        if text := text_of(answer):
            echo(text)
        if isinstance(answer, Task):
            _print_files(answer, url)
            _print_state(answer.id, answer.status.state, url)
    return exit_code(answer.status.state) if isinstance(answer, Task) else 0


def print_task_json(task: Task) -> None:
    from keelbolt.protocol.types import encode

    _print_line(encode(task))


def _print_files(task: Task, url: str) -> None:
    for artifact in task.artifacts:
        for part in artifact.parts:
            if part.kind == "data":
                echo_json(json.dumps(part.data, indent=2, ensure_ascii=False))
            elif part.kind in ("raw", "url"):
                # Keelbolt agents send a path as the file's URL; a terminal user needs the full address.
                what = urljoin(f"{url}/", part.url) if part.url else f"{len(part.raw or b'')} bytes"
                print_note(f"file {part.filename or artifact.artifact_id}: {what}")


def _print_state(task_id: str, state: TaskState, url: str) -> None:
    echo(f"task {task_id} ", err=True, nl=False, dim=True)
    echo(state.name, err=True, fg=colour_of(state.name))
    if state.paused:
        print_note(f"reply with: keelbolt send {url} --task {task_id} …")


def exit_code(state: TaskState) -> int:
    """Return 0 for a completed task, otherwise the code of its state."""
    return {"completed": 0, "failed": FAILED, "canceled": FAILED, "rejected": REJECTED}.get(state.name, UNFINISHED)


def print_note(words: str) -> None:
    echo(words, err=True, dim=True)


def print_sent(task_id: str) -> None:
    """Print the id of a task while the command waits for it."""
    print_note(f"task {task_id} is sent; waiting for the result (Ctrl-C stops waiting; the task continues)")


def print_left(url: str, task_id: str) -> None:
    """Print how to follow a task that the command no longer waits for."""
    print_note(f"the task continues. Show it with: keelbolt get {url} {task_id}")
    print_note(f"cancel it with: keelbolt cancel {url} {task_id}")


def _print_line(data: bytes) -> None:
    echo_json(data.decode())


class StreamPrinter:
    """Prints a stream as it arrives: chunks one after the other, statuses on their own lines."""

    def __init__(self, url: str, *, json_output: bool) -> None:
        self._url = url
        self._json = json_output
        self._inside = False  # a line is unfinished
        self._artifact = ""
        self._shown = ""  # text of the artifacts printed so far
        self._task_id = ""
        self._state: TaskState | None = None

    def show(self, event: Event) -> None:
        self._task_id = event.task_id or self._task_id
        self._state = event.state or self._state
        if self._json:
            from keelbolt.protocol import v1

            value = json.loads(v1.event(event.value))
            echo_json(json.dumps({"id": event.id, "snapshot": event.snapshot, **value}, ensure_ascii=False))
            return
        if event.artifact is not None:
            if event.artifact.artifact_id != self._artifact or not getattr(event.value, "append", False):
                self._line()
            if event.artifact.artifact_id != self._artifact:
                self._shown += "\n" if self._shown else ""
            self._artifact = event.artifact.artifact_id
            self._shown += event.text
            self._write(event.text)
            for part in event.artifact.parts:
                if part.kind == "data":
                    self._line()
                    echo_json(json.dumps(part.data, ensure_ascii=False))
        elif event.snapshot:
            self._show_snapshot(event)
        elif event.message is not None:
            self._line()
            echo(event.text)

    def _show_snapshot(self, event: Event) -> None:
        """Print the new text of a snapshot, or all of it if it does not continue the printed text."""
        if event.text.startswith(self._shown):
            new = event.text[len(self._shown) :]
        else:
            self.note("the current state of the task:")
            new = event.text
        self._shown = event.text
        self._write(new)

    def note(self, words: str) -> None:
        if not self._json:
            self._line()
        print_note(words)

    def left(self) -> None:
        self._line()
        print_left(self._url, self._task_id)

    def end(self) -> int:
        """Print the state after the last event and return the exit code."""
        if not self._json:
            self._line()
            if self._state is not None and self._task_id:
                _print_state(self._task_id, self._state, self._url)
        return 0 if self._state is None else exit_code(self._state)

    def _write(self, text: str) -> None:
        if text:
            echo(text, nl=False)
            self._inside = not text.endswith("\n")

    def _line(self) -> None:
        if self._inside:
            echo()
            self._inside = False


def print_card(card: dict[str, Any]) -> None:
    """Print a card as text."""
    from keelbolt.client.endpoints import endpoints

    version = f" {card['version']}" if card.get("version") else ""
    echo(f"{card['name']}{version}", bold=True)
    if card.get("description"):
        echo(str(card["description"]))
    capabilities = card.get("capabilities")
    able = [name for name, value in capabilities.items() if value is True] if isinstance(capabilities, dict) else []
    schemes = card.get("securitySchemes")
    rows = [
        ("bindings", ", ".join(f"{each.binding} {each.version}" for each in endpoints(card)) or "none supported here"),
        ("capabilities", ", ".join(able) or "none"),
        ("security", ", ".join(schemes) if isinstance(schemes, dict) and schemes else "no credentials"),
        ("signed", "yes" if card.get("signatures") else "no"),
    ]
    for name, value in rows:
        echo(f"  {name:<12} {value}")
    skills = [skill for skill in card.get("skills") or () if isinstance(skill, dict)]
    if skills:
        echo("\nskills")
    for skill in skills:
        skill_id, name = str(skill.get("id", "")), str(skill.get("name", skill.get("id", "")))
        known_by = f" ({skill_id})" if skill_id not in ("", name) else ""
        echo(f"  {name}{known_by}: {skill.get('description', '')}")
        for example in skill.get("examples") or ():
            echo(f"    “{example}”", dim=True)
