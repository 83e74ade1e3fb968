"""What a task refuses."""

from __future__ import annotations

from keelbolt.errors.root import KeelboltError
from keelbolt.errors.storage import StorageError


class TaskError(KeelboltError):
    """Something went wrong with a task."""


class _OfTask(Exception):
    """Base of the task errors that carry the task's id and state."""

    def __init__(self, task_id: str, state: str | None = None, message: str | None = None) -> None:
        self.task_id = task_id
        self.state = state
        super().__init__(message or self._explain())

    def _explain(self) -> str:
        where = f" It is {plain_state(self.state)}." if self.state else ""
        return f"{(self.__doc__ or '').strip()}{where}"


class TaskNotFoundError(_OfTask, TaskError):
    """Task not found: there is no such task."""


class TaskTerminalStateError(_OfTask, TaskError):
    """The task is over: its state can't change any more."""


class TaskNotAcceptingMessagesError(_OfTask, TaskError):
    """The task accepts no messages in its state; start a new task in the same context."""


class TaskNotCancelableError(_OfTask, TaskError):
    """The task is over; there is nothing to cancel."""


class ContextMismatchError(TaskError):
    """The message names another context than its task's; leave contextId out, or send the task's own."""

    def __init__(self, task_id: str, context_id: str | None = None) -> None:
        self.task_id = task_id
        self.context_id = context_id
        super().__init__()


class ConcurrencyError(TaskError, StorageError):
    """The task or context changed since it was read; load it again and retry."""

    retryable = True

    def __init__(self, task_id: str, *, expected: int | None = None, found: int | None = None) -> None:
        self.task_id = task_id
        self.expected = expected
        self.found = found
        versions = f" (expected version {expected}, found {found})" if expected is not None else ""
        super().__init__(f"{self.__doc__}{versions}")


class TaskGenerationMismatchError(ConcurrencyError):
    """The task has another generation than the message requires; load it again before you send."""

    def __init__(self, task_id: str, *, expected: int | None = None, found: int | None = None) -> None:
        super().__init__(task_id, expected=expected, found=found)
        if expected is not None:
            self.args = (f"The task has generation {found}, not {expected}; load it again before you send.",)


class UnsupportedOperationError(TaskError):
    """This operation is not possible here, or not in the state of the task."""


class IllegalTransition(UnsupportedOperationError):
    """The task lifecycle does not allow this change of state."""

    def __init__(self, state: str, wanted: str) -> None:
        self.state = state
        self.wanted = wanted
        super().__init__(f"a task that is {plain_state(state)} can't become {plain_state(wanted)}")


class ContentTypeNotSupportedError(TaskError):
    """The agent does not accept parts of this media type; its card lists the accepted types."""


class InvalidAgentResponseError(TaskError):
    """The worker returned a value that can't be sent; return JSON, text or bytes."""


class InvalidTaskRequest(TaskError):
    """The request is wrong: a message, a query, a page token, a state or a length."""


class MessageReused(InvalidTaskRequest):
    """A message with this id was sent before, with another body; give each new message an id of its own."""


class IdempotencyKeyReused(InvalidTaskRequest):
    """This Idempotency-Key was sent before with another message; use a new random key for each message."""


class WebhookAddressError(InvalidTaskRequest):
    """A webhook must be reachable by https at a public address; this one is private, local or reserved."""


class SecretKeyMissing(TaskError):
    """The credentials of the webhook are encrypted, and this process has no key; set KEELBOLT_SECRET_KEY."""


class TurnEnded(TaskError):
    """The worker has already ended its turn; only one of complete, respond, fail, reject, request_… ends a turn."""


class LeaseLost(TaskError):
    """Another process holds this task now; writes of this process are refused."""


class StepError(TaskError):
    """Something went wrong with a step."""


class StepFailed(StepError):
    """The step was in doubt, and the client reported it as failed."""


class RelayFailed(StepError):
    """The other agent did not complete its task."""

    def __init__(self, task_id: str, state: str, reason: str = "") -> None:
        self.task_id = task_id
        self.state = state
        self.reason = reason
        """What the other agent reports about it; may be empty."""
        super().__init__(f"The other agent's task is {plain_state(state)}{f': {reason}' if reason else '.'}")


def plain_state(state: str) -> str:
    """TASK_STATE_INPUT_REQUIRED as people say it: input_required."""
    return state.removeprefix("TASK_STATE_").lower()
