"""What a turn refuses, and what can happen while it runs.

Each class has a ``code`` of its own (``E_…``), a ``status`` in the manner of HTTP, and says whether it is ``fatal``: a
mistake in the program, which trying again will not mend. All three can be given anew where one is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keelbolt.errors.root import KeelboltError


class TurnError(KeelboltError):
    """Something went wrong in a turn."""

    code: str = "E_TURN"
    status: int = 500
    fatal: bool = False

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        status: int | None = None,
        fatal: bool | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status
        if fatal is not None:
            self.fatal = fatal
        if cause is not None:
            self.__cause__ = cause


class TurnAborted(TurnError):
    """The turn was aborted."""

    code = "E_TURN_ABORTED"
    status = 499


# ------------------------------------------------------------------------------------------- what can't even start


class InvalidTurnRunnerConfig(TurnError):
    """The configuration of the turn runner is wrong."""

    code = "E_INVALID_TURN_RUNNER_CONFIG"
    status = 529
    fatal = True

    def __init__(self, problems: Sequence[str] | str | None = None, **rest: Any) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems or ())
        super().__init__("; ".join(self.problems) or None, **rest)


class InvalidTurnContext(TurnError):
    """A turn can't begin with this input."""

    code = "E_INVALID_TURN_CONTEXT"
    status = 529
    fatal = True


class InvalidLlmExecutionContext(TurnError):
    """A dispatch can't begin with this raw context."""

    code = "E_INVALID_LLM_EXECUTION_CONTEXT"
    status = 529
    fatal = True


class InvalidLlmDispatchInput(TurnError):
    """A dispatch needs either a turn (source) or a raw context (raw), not both."""

    code = "E_INVALID_LLM_DISPATCH_INPUT"
    status = 529
    fatal = True


# --------------------------------------------------------------------------------------------------- while it runs


class InputPipelineError(TurnError):
    """A middleware of the turn's input pipeline raised."""

    code = "E_INPUT_PIPELINE_ERROR"


class OutputPipelineError(TurnError):
    """A middleware of the turn's output pipeline raised."""

    code = "E_OUTPUT_PIPELINE_ERROR"


class DispatchPipelineError(TurnError):
    """A middleware of a dispatch pipeline raised."""

    code = "E_DISPATCH_PIPELINE_ERROR"


class PipelineShortCircuited(TurnError):
    """A middleware ended without calling next(); call it, or ctx.abort(reason) to refuse on purpose."""

    code = "E_PIPELINE_SHORT_CIRCUITED"

    def __init__(self, pipeline: str = "", **rest: Any) -> None:
        self.pipeline = pipeline
        super().__init__(f"{pipeline}: {self.__doc__}" if pipeline else None, **rest)


class LlmExecutionExecutorError(TurnError):
    """The executor raised"""

    code = "E_LLM_EXECUTION_EXECUTOR_ERROR"

    def __init__(self, cause: BaseException | None = None, **rest: Any) -> None:
        detail = f": {str(cause) or type(cause).__name__}" if cause is not None else ""
        super().__init__(f"{self.__doc__}{detail}", cause=cause, **rest)


class LlmExecutionAlreadySignalled(TurnError):
    """ack() or nack() was called already; a dispatch is signalled once."""

    code = "E_LLM_EXECUTION_ALREADY_SIGNALLED"
    fatal = True


class LlmExecutionGateNotSupported(TurnError):
    """This dispatch has no turn that can open a gate; pass wait_for= in its raw context."""

    code = "E_LLM_EXECUTION_GATE_NOT_SUPPORTED"
    status = 501


class DispatchNacked(TurnError):
    """The executor ended this dispatch with nack()."""

    code = "E_DISPATCH_NACKED"


class DispatchFlushError(TurnError):
    """The writes of an iteration could not be stored.

    ``applied`` are those that storage has, ``failed`` is the one that raised (None when the commit itself did), and
    ``pending`` are those that were not tried. With a unit of work nothing is applied. Where storing was cancelled
    half-way (``interrupted``), it is unknown whether storage has the failed write or, with a unit of work, all writes.
    """

    code = "E_DISPATCH_FLUSH_ERROR"

    def __init__(
        self, applied: Sequence[Any] = (), failed: Any = None, pending: Sequence[Any] = (), **rest: Any
    ) -> None:
        self.applied = tuple(applied)
        self.failed = failed
        self.pending = tuple(pending)
        cause = rest.get("cause")
        words = (
            f"the writes of this iteration could not be stored: {failed if failed is not None else 'the commit'} failed"
        )
        self.interrupted = cause is not None and not isinstance(cause, Exception)
        detail = f" ({str(cause) or type(cause).__name__})" if cause is not None else ""
        kept = f"{len(self.applied)} before it are stored" if self.applied else "none of them is stored"
        text = f"{words}{detail}; {kept}, {len(self.pending)} after it were not tried"
        if self.interrupted:
            text = (
                f"the writes of this iteration were interrupted{detail}; read the storage to see which of them "
                f"are stored"
            )
        super().__init__(text, **rest)


class IterationLimitReached(TurnError):
    """The dispatch reached its last allowed iteration without ack() or nack(); see max_iterations."""

    code = "E_ITERATION_LIMIT"

    def __init__(self, limit: int = 0, **rest: Any) -> None:
        self.limit = limit
        super().__init__(
            f"the dispatch ran its {limit} iterations without ack() or nack(); their writes are stored. "
            "Call ack() or nack() in the executor, or raise max_iterations",
            **rest,
        )


class ReportAfterCompletion(TurnError):
    """This message, thought or tool call was reported complete already; report another id."""

    code = "E_REPORT_AFTER_COMPLETION"
    fatal = True


# -------------------------------------------------------------------------------------------------- wrong values


class InvalidInitialValue(TurnError):
    """A value was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_VALUE"
    fatal = True


class InvalidInitialRegistryValue(InvalidInitialValue):
    """A registry starts from a dict with string keys."""

    code = "E_INVALID_INITIAL_REGISTRY_VALUE"


class InvalidInitialMemoryValue(InvalidInitialValue):
    """A memory was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_MEMORY_VALUE"


class InvalidInitialRetrievableValue(InvalidInitialValue):
    """A retrievable was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_RETRIEVABLE_VALUE"


class InvalidInitialMessageValue(InvalidInitialValue):
    """A message was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_MESSAGE_VALUE"


class InvalidInitialIdentityValue(InvalidInitialValue):
    """An identity was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_IDENTITY_VALUE"


class InvalidInitialThoughtValue(InvalidInitialValue):
    """A thought was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_THOUGHT_VALUE"


class InvalidInitialToolCallValue(InvalidInitialValue):
    """A tool call was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_TOOL_CALL_VALUE"


class InvalidInitialToolValue(InvalidInitialValue):
    """A tool was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_TOOL_VALUE"


class InvalidInitialMediaValue(InvalidInitialValue):
    """Media was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_MEDIA_VALUE"


class InvalidInitialTurnGateValue(InvalidInitialValue):
    """A gate was made from fields that don't fit."""

    code = "E_INVALID_INITIAL_TURN_GATE_VALUE"


class TokenizableEvaluatorInvalid(TurnError):
    """A Tokenizable holds text; functions and other values are not evaluated. Pass a str."""

    code = "E_TOKENIZABLE_EVALUATOR_INVALID"
    fatal = True


# ---------------------------------------------------------------------------------------------------------- gates


class InvalidTurnGateResolution(TurnError):
    """This value does not fit the gate's schema; the gate stays open, resolve it again."""

    code = "E_INVALID_TURN_GATE_RESOLUTION"
    fatal = True


class TurnGateTimeout(TurnError):
    """The gate was not settled in time."""

    code = "E_TURN_GATE_TIMEOUT"
    status = 408


class TurnGateRejected(TurnError):
    """The request at the gate was declined."""

    code = "E_TURN_GATE_REJECTED"
    status = 403


class TurnGateAborted(TurnError):
    """The gate was aborted, or the turn that waited at it."""

    code = "E_TURN_GATE_ABORTED"
    status = 499


# ---------------------------------------------------------------------------------------------- tools and readers


class InvalidToolArgs(TurnError):
    """These arguments don't fit the tool's schema; the tool was not called."""

    code = "E_INVALID_TOOL_ARGS"
    status = 422


class ToolDownstreamError(TurnError):
    """The tool raised."""

    code = "E_TOOL_DOWNSTREAM_ERROR"


class ModelError(TurnError):
    """The model's provider could not be reached, refused the request, or broke off its answer."""

    code = "E_MODEL"
    status = 502


class ToolAlreadyRegistered(TurnError):
    """A tool of this name is registered; pass overwrite=True, or name it differently."""

    code = "E_TOOL_ALREADY_REGISTERED"
    status = 409
    fatal = True


class NotASpoolReader(TurnError):
    """A spool reader has the methods line, byte_length, line_count and read_all."""

    code = "E_NOT_A_SPOOL_READER"
    fatal = True


class NotAMediaReader(TurnError):
    """A media reader has the methods stream and byte_length."""

    code = "E_NOT_A_MEDIA_READER"
    fatal = True


class ReaderNotDescribable(TurnError):
    """This reader has no describe(), so its bytes could not be found again; store them first."""

    code = "E_READER_NOT_DESCRIBABLE"
    status = 422


class NoReaderResolver(TurnError):
    """No resolver is registered for readers of this tag; register one."""

    code = "E_NO_READER_RESOLVER"
    status = 422


class ArtifactIdCollision(TurnError):
    """A tool call and a retrievable share an id, so their artifacts can't be distinguished; rename one of them."""

    code = "E_ARTIFACT_ID_COLLISION"
    status = 409


# --------------------------------------------------------------------------------------------- the durable adapter


class TurnStorageError(TurnError):
    """The durable storage of turns failed."""

    code = "E_STORAGE"


class TurnStorageScopeMissing(TurnStorageError):
    """The turn has no scope: put one into the stash, or pass scope= to durable_storage."""

    code = "E_STORAGE_SCOPE_MISSING"
    status = 400


class TurnStorageDuplicateId(TurnStorageError):
    """Another value is stored under this id; use another id, or mutate the stored value."""

    code = "E_STORAGE_DUPLICATE_ID"
    status = 409


class TurnStorageNotFound(TurnStorageError):
    """Nothing is stored under this id."""

    code = "E_STORAGE_NOT_FOUND"
    status = 404


class TurnTakenOver(TurnStorageError):
    """Another process restarted this turn; later writes of this run are not stored."""

    code = "E_STORAGE_TURN_TAKEN_OVER"
    status = 409


class TurnStorageCorrupt(TurnStorageError):
    """Stored bytes are not the bytes that were written; restore them from a backup."""

    code = "E_STORAGE_CORRUPT"


class TurnStorageSchema(TurnStorageError):
    """A newer version stored this; run that version."""

    code = "E_STORAGE_SCHEMA"
