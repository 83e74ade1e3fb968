"""Every exception of Holdfast.

    HoldfastError
    ├── MissingExtra                 an optional dependency is not installed
    ├── AuthError
    │   ├── AuthMisconfigured        an authenticator can't work as it was set up
    │   ├── AuthenticationFailed     nobody vouches for this caller
    │   │   ├── CredentialsMissing   the request carries none
    │   │   └── CredentialsRefused   the request carries some that are not accepted
    │   └── AuthUnavailable          who is calling can't be known now (retry)
    ├── A2AClientError               what a client meets when it calls an agent
    │   ├── A2AConnectionError       the agent can't be reached, or the connection broke (retry)
    │   │   └── A2ATimeoutError      the agent did not answer in time (retry)
    │   ├── A2ADiscoveryError        there is no agent card that can be used
    │   └── A2AServerError           the agent answered with an error that has no name of its own
    │       └── A2AResponseError     the answer is not what the protocol says
    ├── ProtocolError
    │   ├── ParseError               the request is not JSON
    │   ├── InvalidRequestError      JSON, but no request: no method, a batch, a wrong id
    │   │   ├── RequestTooLargeError  too many bytes, levels or parts
    │   │   ├── HeadersTooLargeError  too many bytes before the body
    │   │   ├── RequestTimeoutError  the body did not come in time
    │   │   └── UnsupportedMediaTypeError  the body is not said to be JSON
    │   ├── BusyError                not now: ``retry_after`` seconds later
    │   │   ├── RateLimitedError     this caller asks too often
    │   │   ├── TooManyStreamsError  too many streams are open
    │   │   └── StoppingError        the agent stops; the stream can be continued
    │   ├── MethodNotFoundError      no operation has this name
    │   ├── InvalidParamsError       a field is missing, wrong or unreadable; ``violations`` names it
    │   ├── VersionNotSupportedError  neither 0.3 nor 1.0
    │   ├── ExtensionSupportRequiredError  the agent requires an extension that the client did not name
    │   ├── PushNotificationNotSupportedError  this agent sends no push notifications
    │   ├── ExtendedCardNotConfiguredError  this agent has no extended card
    │   └── CardSignatureError       no signature of the card is good
    ├── TaskError
    │   ├── TaskNotFoundError        no such task (or not one of the caller's)
    │   ├── TaskTerminalStateError   the task is over; nothing leads out of its state
    │   ├── TaskNotAcceptingMessagesError  the task takes no message in its state
    │   ├── TaskNotCancelableError   the task is over; there is nothing to cancel
    │   ├── ContextMismatchError     the message names another context than its task's
    │   ├── ConcurrencyError         the task or context changed since it was read (also a StorageError)
    │   ├── UnsupportedOperationError  not possible here, or not in this state
    │   │   └── IllegalTransition    no arrow leads from this state to that one
    │   ├── ContentTypeNotSupportedError  the agent does not take parts of this media type
    │   ├── InvalidAgentResponseError  the worker answered with something that can't be sent
    │   ├── InvalidTaskRequest       a wrong argument: message, query, page token, state, length
    │   │   ├── MessageReused        the same message id with another body
    │   │   └── WebhookAddressError  a webhook into a private network, or not by https
    │   ├── TurnEnded                the worker has ended its turn already
    │   ├── LeaseLost                another process has the task; nothing that this one writes is taken
    │   └── StepError
    │       └── StepFailed           the step was answered as failed
    └── StorageError
        ├── CommitRefused            a check of this commit failed; nothing of it was written
        ├── InvalidRequest           the call itself is wrong; nothing was tried
        │   ├── InvalidName          a partition, collection, log, stream, queue, key or holder
        │   ├── InvalidValue         a wrong type or a value out of range
        │   ├── TooLarge             a body, entry, key or commit over its limit
        │   ├── NotDeclared          a collection, field or write-behind family nobody declared
        │   ├── NoIndex              no declared index covers this query
        │   ├── BadCursor            a cursor of another query, or not a cursor
        │   ├── WrittenTwice         one commit writes the same key twice
        │   ├── WrongLoop            used from another event loop than it was opened in
        │   └── Forked               used in a child process after fork()
        ├── LogTrimmed               the wanted entries lie below the log's floor
        ├── BlobNotFound             no such blob in this partition
        ├── CannotOpen
        │   ├── UnknownScheme        the URL names no engine
        │   ├── StorageMissing       the file or its directory does not exist
        │   ├── StorageReadOnly      the file or its directory can't be written
        │   ├── NetworkFilesystem    the file lies where locks and fsync can't be trusted
        │   ├── NotHoldfast          the file belongs to another program
        │   ├── SchemaTooNew         a newer Holdfast wrote it
        │   └── SchemaMismatch       a migration or declaration is not what was applied
        ├── StorageCorrupt           stored bytes are not the bytes that were written
        ├── TransferError
        │   ├── NotTransferable      this engine can't be copied
        │   ├── DestinationInUse     the destination holds data of its own
        │   ├── CopyOutdated         the source was changed meanwhile
        │   ├── CopyMismatch         the copy is not what was copied
        │   └── BadBackup            not a backup, or a damaged one
        └── StorageUnavailable
            ├── StorageClosed        closed, or never opened
            ├── StorageUnreachable   the server does not answer (retry)
            ├── StorageBusy          another process holds it too long (retry)
            │   └── StoragePaused    a copy of it is being finished (retry)
            ├── StorageMoved         another storage has taken its place
            ├── StorageFilling       a copy or a restore into it is not finished
            ├── StorageFull          no space left (retry when there is)
            └── StorageBroken        the disk failed; open it anew
                └── CommitInDoubt    ... and this commit may or may not have been written

The docstring of a class is its default message. ``retryable`` says whether the same call may succeed later.

    try:
        await kernel.commit(...)
    except CommitRefused as refusal:
        print(refusal.reason, refusal.found)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

Reason = Literal["version", "absent", "present", "field", "head", "fence", "held", "dead", "blob"]


class HoldfastError(Exception):
    """Something went wrong in Holdfast."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__doc__)


class MissingExtra(HoldfastError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, module: str) -> None:
        self.extra = extra
        self.module = module
        super().__init__(f"{module} is not installed. Install it with: pip install 'holdfast[{extra}]'")


class AuthError(HoldfastError):
    """It is not known who is calling."""


class AuthMisconfigured(AuthError):
    """This authenticator can't work as it was set up; change its arguments."""


class AuthenticationFailed(AuthError):
    """Nobody vouches for this caller.

    The message may be shown to the caller: it never holds anything of a credential. ``reason`` is one word for logs and
    metrics, ``challenge`` the value of the WWW-Authenticate header.
    """

    default_reason: ClassVar[str] = "refused"

    def __init__(self, message: str | None = None, *, reason: str | None = None, challenge: str = "Bearer") -> None:
        self.reason = reason or self.default_reason
        self.challenge = challenge
        super().__init__(message)


class CredentialsMissing(AuthenticationFailed):
    """This request carries no credentials; send them as the agent card's securitySchemes say."""

    default_reason = "missing"


class CredentialsRefused(AuthenticationFailed):
    """These credentials are not accepted; get new ones."""


class AuthUnavailable(AuthError):
    """Credentials can't be checked now, since the keys for it can't be loaded; try again later."""

    retryable = True


class A2AClientError(HoldfastError):
    """An agent could not be called."""


class A2AConnectionError(A2AClientError):
    """The agent can't be reached, or the connection broke.

    ``sent`` is False when nothing of the request left this process; otherwise the agent may have received it.
    """

    retryable = True

    def __init__(self, message: str | None = None, *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


class A2ATimeoutError(A2AConnectionError):
    """The agent did not answer in time; it may still be at work."""


class A2ADiscoveryError(A2AClientError):
    """There is no agent card that can be used."""


class A2AServerError(A2AClientError):
    """The agent answered with an error.

    ``code`` is that of JSON-RPC, ``status`` that of HTTP, where there was one.
    """

    def __init__(self, message: str | None = None, *, code: int | None = None, status: int | None = None) -> None:
        self.code = code
        self.status = status
        super().__init__(message)


class A2AResponseError(A2AServerError):
    """The agent answered with something that is no A2A."""


class FieldViolation(NamedTuple):
    """What is wrong with one field: ``message.parts[0].text``, and why. Never holds the value itself."""

    field: str
    description: str


class ProtocolError(HoldfastError):
    """A request is not what the protocol says.

    ``request_id`` is the JSON of the JSON-RPC id to answer with, once it was read.
    """

    request_id: bytes = b"null"


class ParseError(ProtocolError):
    """The request is not JSON."""


class InvalidRequestError(ProtocolError):
    """This is JSON, but not a request."""


class RequestTooLargeError(InvalidRequestError):
    """The request is larger than this agent takes."""


class HeadersTooLargeError(InvalidRequestError):
    """The path, the query and the headers are larger than this agent takes."""


class RequestTimeoutError(InvalidRequestError):
    """The body did not arrive in time; send the request again."""

    retryable = True


class UnsupportedMediaTypeError(InvalidRequestError):
    """The body must be JSON, and its Content-Type must say so."""


class BusyError(ProtocolError):
    """Not now; try again later."""

    retryable = True

    def __init__(self, message: str | None = None, *, retry_after: int = 5) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class RateLimitedError(BusyError):
    """Too many requests; slow down."""


class TooManyStreamsError(BusyError):
    """Too many streams are open; close some, or try again later."""


class StoppingError(BusyError):
    """The agent stops. The task goes on; continue the stream after the last event that arrived."""


class MethodNotFoundError(ProtocolError):
    """There is no such method."""


class InvalidParamsError(ProtocolError):
    """The parameters are not valid."""

    def __init__(self, message: str | None = None, violations: Sequence[FieldViolation] = ()) -> None:
        self.violations = tuple(violations)
        if message is None and violations:
            first = violations[0]
            message = f"{first.field}: {first.description}" if first.field else first.description
        super().__init__(message)


class VersionNotSupportedError(ProtocolError):
    """This version of A2A is not spoken here; send A2A-Version: 1.0, or 0.3."""


class ExtensionSupportRequiredError(ProtocolError):
    """The agent requires an extension; name it in the A2A-Extensions header."""


class PushNotificationNotSupportedError(ProtocolError):
    """This agent sends no push notifications."""


class ExtendedCardNotConfiguredError(ProtocolError):
    """This agent has no extended card."""


class StorageError(HoldfastError):
    """Something went wrong in the storage."""


class CardSignatureError(ProtocolError):
    """No signature of this card was made by a key that is trusted: it may have been changed on its way."""


class TaskError(HoldfastError):
    """Something went wrong with a task."""


class _OfTask(Exception):
    """A task error that names its task and where it stands."""

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
    """The task takes no message now; start a new task in the same context instead."""


class TaskNotCancelableError(_OfTask, TaskError):
    """The task is over; there is nothing to cancel."""


class ContextMismatchError(TaskError):
    """The message names another context than its task's; leave contextId out, or send the task's own."""

    def __init__(self, task_id: str, context_id: str | None = None) -> None:
        self.task_id = task_id
        self.context_id = context_id
        super().__init__()


class ConcurrencyError(TaskError, StorageError):
    """It changed since it was read; load it again and retry."""

    retryable = True

    def __init__(self, task_id: str, *, expected: int | None = None, found: int | None = None) -> None:
        self.task_id = task_id
        self.expected = expected
        self.found = found
        versions = f" (expected version {expected}, found {found})" if expected is not None else ""
        super().__init__(f"{self.__doc__}{versions}")


class UnsupportedOperationError(TaskError):
    """This operation is not possible here, or not in the state of the task."""


class IllegalTransition(UnsupportedOperationError):
    """No arrow leads from this state to that one."""

    def __init__(self, state: str, wanted: str) -> None:
        self.state = state
        self.wanted = wanted
        super().__init__(f"a task that is {plain_state(state)} can't become {plain_state(wanted)}")


class ContentTypeNotSupportedError(TaskError):
    """The agent does not take parts of this media type; its card lists what it takes."""


class InvalidAgentResponseError(TaskError):
    """The worker answered with something that can't be sent: only JSON, text and bytes can."""


class InvalidTaskRequest(TaskError):
    """The request is wrong: a message, a query, a page token, a state or a length."""


class MessageReused(InvalidTaskRequest):
    """A message with this id was sent before, with another body; give each new message an id of its own."""


class WebhookAddressError(InvalidTaskRequest):
    """A webhook must be reachable by https at a public address; this one is private, local or reserved."""


class TurnEnded(TaskError):
    """The worker has ended its turn already; only one of complete, respond, fail, reject, request_… ends a turn."""


class LeaseLost(TaskError):
    """Another process has this task now; nothing that this one writes is taken."""


class StepError(TaskError):
    """Something went wrong with a step."""


class StepFailed(StepError):
    """The step was in doubt, and was answered as failed."""


def plain_state(state: str) -> str:
    """TASK_STATE_INPUT_REQUIRED as people say it: input_required."""
    return state.removeprefix("TASK_STATE_").lower()


class CommitRefused(StorageError):
    """A check of this commit failed; nothing of it was written.

    ``reason`` names the kind of check, ``check`` is the operation that carried it, ``found`` is what is stored now:
    the current version (0 = no such record), field value, log head or fence.
    """

    def __init__(self, reason: Reason, check: object, *, found: object = None) -> None:
        self.reason: Reason = reason
        self.check = check
        self.found = found
        super().__init__(f"refused: {_explain(reason, check, found)}; nothing of this commit was written")


def _explain(reason: Reason, check: object, found: object) -> str:
    subject = f"{type(check).__name__} of {_subject(check)}"
    match reason:
        case "version":
            return f"{subject} expects version {getattr(check, 'version', None)} but it is at {found}"
        case "absent":
            return f"{subject} needs it absent but it is at version {found}"
        case "present":
            return f"{subject} needs it present but there is none"
        case "field":
            return f"{subject}: the field {getattr(check, 'field', '?')!r} is {found!r}"
        case "head":
            return f"{subject} expects the log's head at {getattr(check, 'seq', None)} but it is at {found}"
        case "fence":
            return f"{subject}: fence {getattr(check, 'fence', None)} no longer holds this work (now {found})"
        case "held":
            return f"{subject}: another worker holds it (fence {found})"
        case "dead":
            return f"{subject} needs it dead but it is {found}"
        case "blob":
            return f"{subject}: no such staged or committed blob in this partition; stage it again"


def _subject(check: object) -> str:
    for family, name in (("collection", "key"), ("log", "stream"), ("queue", "key")):
        if hasattr(check, family):
            return f"{getattr(check, family)}/{_short(getattr(check, name))}"
    return _short(getattr(check, "digest", "?"))


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:60]}… ({len(name)} characters)"


class InvalidRequest(StorageError):
    """The call itself is wrong; nothing was tried."""


class InvalidName(InvalidRequest):
    """A name or key is empty, too long, or holds a character that is not allowed."""


class InvalidValue(InvalidRequest):
    """A value has the wrong type or is out of range."""


class TooLarge(InvalidRequest):
    """A value is over its limit; put large bytes into a blob and keep its digest."""


class NotDeclared(InvalidRequest):
    """Declare the collection, field or family first: open_storage(url, declare=[...])."""


class NoIndex(InvalidRequest):
    """No declared index covers this query; declare one, or change the filters or the order."""


class BadCursor(InvalidRequest):
    """This cursor belongs to another query or is damaged; start again without a cursor."""


class WrittenTwice(InvalidRequest):
    """One commit writes the same key twice; merge the two writes or make two commits."""


class WrongLoop(InvalidRequest):
    """This storage was opened in another event loop; open one storage per loop."""


class Forked(InvalidRequest):
    """This storage was opened before fork() and can't be used after it; open one in each process, after the fork."""


class LogTrimmed(StorageError):
    """The wanted entries lie below the log's floor: they were trimmed. Load a snapshot, then go on from the floor."""

    def __init__(self, *, after: int, floor: int, head: int) -> None:
        self.after = after
        self.floor = floor
        self.head = head
        super().__init__(
            f"entries {after + 1} to {floor} were trimmed; load a snapshot, then read on after {floor} (head {head})"
        )


class BlobNotFound(StorageError):
    """There is no such blob in this partition: it was never written, or it expired."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(
            f"no blob {_short(digest)} in this partition: it was never written, or it expired; stage it again"
        )


class CannotOpen(StorageError):
    """The storage can't be opened."""


class UnknownScheme(CannotOpen):
    """The URL names no engine; use memory:, sqlite:///path, postgresql://... or redis://..."""


class StorageMissing(CannotOpen):
    """The directory of the database does not exist; create it first."""


class StorageReadOnly(CannotOpen):
    """The database or its directory can't be written; change its permissions or choose another place."""


class NetworkFilesystem(CannotOpen):
    """The database lies on a network filesystem, where locks and fsync can't be trusted; use a local disk."""


class NotHoldfast(CannotOpen):
    """This database belongs to another program; choose another file."""


class SchemaTooNew(CannotOpen):
    """A newer Holdfast wrote this database; upgrade this program. Nothing was changed."""


class SchemaMismatch(CannotOpen):
    """The database does not have the schema this program expects."""


class StorageCorrupt(StorageError):
    """Stored bytes are not the bytes that were written; run `holdfast storage check` and restore from a backup."""


class TransferError(StorageError):
    """A copy, backup or restore can't be done."""


class NotTransferable(TransferError):
    """This engine can't be copied: it offers no way to read and write a whole store."""


class DestinationInUse(TransferError):
    """The destination holds data of its own; choose an empty one. Nothing was changed."""


class CopyOutdated(TransferError):
    """The source was changed while it was copied; copy it with --follow, or anew with --restart."""


class CopyMismatch(TransferError):
    """The copy is not what was copied; do not use it. Copy anew with --restart."""


class BadBackup(TransferError):
    """This file is not a backup, or it is damaged; nothing was restored from it. Use another backup."""


class StorageUnavailable(StorageError):
    """The storage can't be used now."""


class StorageClosed(StorageUnavailable):
    """This storage is closed; open it with `async with open_storage(url)`."""


class StorageUnreachable(StorageUnavailable):
    """The storage server does not answer; nothing was written. See that it runs and can be reached, and try again."""

    retryable = True


class StorageBusy(StorageUnavailable):
    """Another process holds the storage for too long; nothing was written. Try again."""

    retryable = True


class StoragePaused(StorageBusy):
    """Writing pauses while a copy of this storage is being finished; nothing was written. Try again in a moment."""


class StorageMoved(StorageUnavailable):
    """This storage was moved: a copy has taken its place, so nothing is written here any more. Use the copy's URL."""


class StorageFilling(StorageUnavailable):
    """A copy or a restore into this storage is not finished, so it can't be used yet. Finish it, or choose another."""


class StorageFull(StorageUnavailable):
    """No space is left; nothing was written. Reading, deleting and releasing still work; free space and try again."""

    retryable = True


class StorageBroken(StorageUnavailable):
    """The disk reported an error; close this storage and open it anew before going on."""


class CommitInDoubt(StorageBroken):
    """The disk failed while this was being written: it may or may not be there. Open the storage anew and look."""
