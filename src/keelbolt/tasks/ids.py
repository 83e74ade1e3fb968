"""The rules for task ids and context ids, for the wire, the storages and the operations API."""

from __future__ import annotations

from keelbolt.errors import InvalidTaskRequest

MAX_CONTEXT_ID = 1000  # characters
MAX_TASK_ID = 200  # characters


def check_context_id(context_id: str) -> None:
    """Raise InvalidTaskRequest unless this is a context id: 1 to 1000 characters of valid text without NUL.

    Clients choose context ids, so any other character is allowed: tabs, emoji with joiners, control characters.
    """
    if not isinstance(context_id, str) or not 0 < len(context_id) <= MAX_CONTEXT_ID or not _is_text(context_id):
        raise InvalidTaskRequest(f"a context id must be 1 to {MAX_CONTEXT_ID} characters of valid text without NUL")


def is_task_id(task_id: str) -> bool:
    """Return whether this can be a task id. Servers choose task ids, so they are short and printable."""
    return isinstance(task_id, str) and 0 < len(task_id) <= MAX_TASK_ID and task_id.isprintable()


def _is_text(text: str) -> bool:
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
