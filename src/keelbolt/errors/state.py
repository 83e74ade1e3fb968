"""What the state of agents refuses."""

from __future__ import annotations

from keelbolt.errors.root import KeelboltError


class StateStoreError(KeelboltError):
    """Something went wrong with the state of an agent."""


class InvalidState(StateStoreError, TypeError):
    """This value can't be stored by this method; nothing was stored."""


class StateNotSaved(StateStoreError):
    """The state could not be saved."""

    def __init__(self, method: str, cause: BaseException) -> None:
        self.method = method
        self.retryable = getattr(cause, "retryable", True)  # type: ignore[misc]  # as the cause is
        super().__init__(f"{method} could not save: {str(cause) or repr(cause)}")


class StateConflict(StateNotSaved):
    """The state changed since it was read; nothing was saved. Load it again and retry."""


class StateErased(StateNotSaved):
    """The session or trace was erased after this process had written to it; nothing was saved.

    Everything that this process saves to it is refused until the process loads the tasks of the session again, as
    opening a session does.
    """


class StateNotLoaded(StateStoreError):
    """The state could not be loaded."""

    def __init__(self, method: str, cause: BaseException) -> None:
        self.method = method
        self.retryable = getattr(cause, "retryable", True)  # type: ignore[misc]  # as the cause is
        super().__init__(f"{method} could not load: {str(cause) or repr(cause)}")


class StateNotFound(StateStoreError, LookupError):
    """Nothing is stored under this id."""


class StateTimeout(StateStoreError):
    """The storage did not answer in time."""

    retryable = True


class SteeringValidationError(StateStoreError, ValueError):
    """The payload of a steering event does not fit its type."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors
        super().__init__(f"{self.__doc__} {'; '.join(errors)}.")


class MemoryBudgetExceeded(StateStoreError, RuntimeError):
    """The turn does not fit into the memory's budget, and its overflow policy is "error"."""


class InvalidMemoryState(StateStoreError, ValueError):
    """The stored value is not the state of a memory."""


class ArtifactTooLarge(StateStoreError, ValueError):
    """The artifact is larger than the limit for one artifact."""


class ArtifactLimitExceeded(StateStoreError, ValueError):
    """The session or trace is full, and nothing in it may be removed; delete artifacts or raise the limit."""


class SessionLimitReached(StateStoreError, RuntimeError):
    """The session has reached a limit. ``code`` names it."""

    def __init__(self, code: str, limit: int) -> None:
        self.code = code
        self.limit = limit
        super().__init__(f"{code}: this session has reached its limit of {limit}")


class SteeringCancelled(StateStoreError, RuntimeError):
    """The task was cancelled."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason or "steering_cancelled"
        super().__init__(self.reason)
