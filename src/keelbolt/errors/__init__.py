"""Every exception of Keelbolt.

    KeelboltError
    ├── MissingExtra                 an optional dependency is not installed
    ├── AddressNotAllowed            a URL leads into a private network, or is not https
    ├── DownloadFailed               a file could not be downloaded from its URL
    ├── UnsupportedVersion           an optional dependency is installed in a version that is not supported
    ├── ExtensionsError              an extensions directory of apcore modules can't be served
    │   ├── ExtensionsNotFound       it does not exist
    │   ├── ExtensionsUnreadable     its permissions forbid it
    │   ├── NoModulesFound           it has no module, or none that could be loaded
    │   └── ExtensionsBroken         its modules can't be loaded together
    ├── AuthError
    │   ├── AuthMisconfigured        an authenticator can't work as it was set up
    │   ├── AuthenticationFailed     the caller is not authenticated
    │   │   ├── CredentialsMissing   the request carries none
    │   │   └── CredentialsRefused   the request carries some that are not accepted
    │   └── AuthUnavailable          credentials can't be checked now (retry)
    ├── A2AClientError               a call of an agent failed
    │   ├── A2AConnectionError       the agent can't be reached, or the connection broke (retry)
    │   │   └── A2ATimeoutError      the agent did not answer in time (retry)
    │   ├── A2ADiscoveryError        there is no usable agent card
    │   └── A2AServerError           the agent returned an error that has no class of its own
    │       └── A2AResponseError     the response violates the protocol
    ├── ProtocolError
    │   ├── ParseError               the request is not JSON
    │   ├── InvalidRequestError      JSON, but not a request: no method, a batch, a wrong id
    │   │   ├── RequestTooLargeError  too many bytes, values, levels or items
    │   │   ├── HeadersTooLargeError  too many bytes before the body
    │   │   ├── RequestTimeoutError  the body did not arrive in time
    │   │   ├── MisdirectedRequestError  the Host header names a host that the agent does not serve
    │   │   ├── ForeignOriginError   a web page of another origin sent a write
    │   │   └── UnsupportedMediaTypeError  the Content-Type is not JSON
    │   ├── BusyError                the agent is busy; retry after ``retry_after`` seconds
    │   │   ├── RateLimitedError     the caller sends too many requests
    │   │   ├── TooManyStreamsError  too many streams are open
    │   │   └── StoppingError        the agent is stopping; the stream can be resumed
    │   ├── MethodNotFoundError      no operation has this name
    │   ├── TenantNotFoundError      the request names a tenant that is not the caller's
    │   ├── InvalidParamsError       a field is missing, wrong or unreadable; ``violations`` names it
    │   │   ├── SkillRequiredError   the message chooses no skill, and there are several
    │   │   └── SkillInputError      the message has no input that fits the skill
    │   ├── SkillNotFoundError       no such skill (or not one that this caller may call)
    │   ├── VersionNotSupportedError  neither 0.3 nor 1.0
    │   ├── ExtensionSupportRequiredError  the agent requires an extension that the client did not name
    │   ├── PushNotificationNotSupportedError  this agent sends no push notifications
    │   ├── ExtendedCardNotConfiguredError  this agent has no extended card
    │   └── CardSignatureError       no signature of the card is valid
    ├── TaskError
    │   ├── TaskNotFoundError        no such task (or not one of the caller's)
    │   ├── TaskTerminalStateError   the task is over; its state can't change
    │   ├── TaskNotAcceptingMessagesError  the task accepts no messages in its state
    │   ├── TaskNotCancelableError   the task is over; there is nothing to cancel
    │   ├── ContextMismatchError     the message names another context than its task's
    │   ├── ConcurrencyError         the task or context changed since it was read (also a StorageError)
    │   │   └── TaskGenerationMismatchError  the task has another generation than the message requires
    │   ├── UnsupportedOperationError  not possible here, or not in this state
    │   │   └── IllegalTransition    the lifecycle does not allow this change of state
    │   ├── ContentTypeNotSupportedError  the agent does not accept parts of this media type
    │   ├── InvalidAgentResponseError  the worker returned a value that can't be sent
    │   ├── InvalidTaskRequest       a wrong argument: message, query, page token, state, length
    │   │   ├── MessageReused        the same message id with another body (repeated_send="same")
    │   │   ├── IdempotencyKeyReused  the same Idempotency-Key with another message
    │   │   └── WebhookAddressError  a webhook into a private network, or not by https
    │   ├── SecretKeyMissing         stored credentials are encrypted with a key that this process does not have
    │   ├── TurnEnded                the worker has already ended its turn
    │   ├── LeaseLost                another process holds the task; writes are refused
    │   └── StepError
    │       ├── StepFailed           the client reported the step as failed
    │       └── RelayFailed          the other agent failed, rejected or canceled its task
    ├── TurnError                    of a turn; each has ``code`` (E_…), ``status`` and ``fatal``
    │   ├── TurnAborted              the turn was aborted
    │   ├── InvalidTurnRunnerConfig  the configuration of a turn runner is wrong; ``problems`` lists all
    │   ├── InvalidTurnContext       a turn can't begin with this input
    │   ├── InvalidLlmExecutionContext  a dispatch can't begin with this raw context
    │   ├── InvalidLlmDispatchInput  a dispatch needs a turn or a raw context, not both
    │   ├── InputPipelineError       a middleware of the turn's input pipeline raised
    │   ├── OutputPipelineError      a middleware of the turn's output pipeline raised
    │   ├── DispatchPipelineError    a middleware of a dispatch pipeline raised
    │   ├── PipelineShortCircuited   a middleware ended without calling next()
    │   ├── LlmExecutionExecutorError  the executor raised
    │   ├── LlmExecutionAlreadySignalled  ack() or nack() for the second time
    │   ├── LlmExecutionGateNotSupported  a gate in a dispatch without a turn
    │   ├── DispatchNacked           nack() without an error
    │   ├── DispatchFlushError       the writes of an iteration could not be stored
    │   ├── IterationLimitReached    max_iterations without ack() or nack()
    │   ├── ReportAfterCompletion    an id is reported again after it was complete
    │   ├── InvalidInitialValue      fields that don't fit
    │   │   ├── InvalidInitialRegistryValue
    │   │   ├── InvalidInitialMemoryValue
    │   │   ├── InvalidInitialRetrievableValue
    │   │   ├── InvalidInitialMessageValue
    │   │   ├── InvalidInitialIdentityValue
    │   │   ├── InvalidInitialThoughtValue
    │   │   ├── InvalidInitialToolCallValue
    │   │   ├── InvalidInitialToolValue
    │   │   ├── InvalidInitialMediaValue
    │   │   └── InvalidInitialTurnGateValue
    │   ├── TokenizableEvaluatorInvalid  the value is not a str
    │   ├── InvalidTurnGateResolution  a value that does not fit the gate's schema; it stays open
    │   ├── TurnGateTimeout          the gate was not settled in time
    │   ├── TurnGateRejected         the request at a gate was declined
    │   ├── TurnGateAborted          the gate or its turn was aborted
    │   ├── InvalidToolArgs          arguments that don't fit the tool's schema
    │   ├── ToolDownstreamError      the tool raised
    │   ├── ModelError               the model's provider failed or refused the request
    │   ├── ToolAlreadyRegistered    a tool of this name is registered
    │   ├── NotASpoolReader          methods of a spool reader are missing
    │   ├── NotAMediaReader          methods of a media reader are missing
    │   ├── ReaderNotDescribable     the reader has no describe()
    │   ├── NoReaderResolver         no resolver is registered for readers of this tag
    │   ├── ArtifactIdCollision      a tool call and a retrievable share an id
    │   └── TurnStorageError         from the durable storage of turns
    │       ├── TurnStorageScopeMissing  the turn has no scope
    │       ├── TurnStorageDuplicateId  another value is stored under this id
    │       ├── TurnStorageNotFound  nothing is stored under this id
    │       ├── TurnTakenOver        another process restarted the turn
    │       ├── TurnStorageCorrupt   stored bytes are not the bytes that were written
    │       └── TurnStorageSchema    stored by a newer version
    ├── StateStoreError              the state of agents
    │   ├── InvalidState             the method can't store this value
    │   ├── StateNotSaved            ``method`` could not save; the cause says why
    │   │   ├── StateConflict        the state changed since it was read
    │   │   └── StateErased          the session or trace was erased while this process used it
    │   ├── StateNotLoaded           ``method`` could not load; the cause says why
    │   ├── StateNotFound            nothing is stored under this id
    │   ├── StateTimeout             the storage did not answer in time (retry)
    │   ├── SteeringValidationError  a steering event that does not fit its type; ``errors`` lists why
    │   ├── MemoryBudgetExceeded     a turn does not fit into the memory's budget
    │   ├── InvalidMemoryState       the stored value is not the state of a memory
    │   ├── ArtifactTooLarge         larger than the limit for one artifact
    │   ├── ArtifactLimitExceeded    the session or trace is full
    │   ├── SessionLimitReached      the session has reached its limit of tasks or patches
    │   └── SteeringCancelled        the task was cancelled
    ├── DataError                    erasing, exporting, importing
    │   ├── SubjectNotFound          no data is stored for this subject
    │   ├── SubjectExists            a subject is already stored with other content
    │   ├── BadExport                not an export, or a damaged, truncated or newer one
    │   └── SubjectInUse             a worker or a process uses it (retry)
    └── StorageError
        ├── CommitRefused            a check of this commit failed; nothing of it was written
        ├── CheckpointConflict       another run has written to this LangGraph thread meanwhile
        ├── InvalidRequest           the call itself is wrong; nothing was tried
        │   ├── InvalidName          a partition, collection, log, stream, queue, key or holder
        │   ├── InvalidValue         a wrong type or a value out of range
        │   ├── TooLarge             a body, entry, key or commit over its limit
        │   ├── NotDeclared          a collection, field or write-behind family that is not declared
        │   ├── NoIndex              no declared index covers this query
        │   ├── BadCursor            a cursor of another query, or not a cursor
        │   ├── WrittenTwice         one commit writes the same key twice
        │   ├── WrongLoop            used from another event loop than it was opened in
        │   └── Forked               used in a child process after fork()
        ├── LogTrimmed               the requested entries are below the log's floor
        ├── BlobNotFound             no such blob in this partition
        ├── CannotOpen
        │   ├── UnknownScheme        the URL names no engine
        │   ├── StorageMissing       the file or its directory does not exist
        │   ├── StorageReadOnly      the file or its directory can't be written
        │   ├── NetworkFilesystem    the file is on a network filesystem
        │   ├── NotKeelbolt          the file belongs to another program
        │   ├── SchemaTooNew         a newer Keelbolt wrote it
        │   └── SchemaMismatch       a migration or declaration is not what was applied
        ├── StorageCorrupt           stored bytes are not the bytes that were written
        ├── TransferError
        │   ├── NotTransferable      this engine can't be copied
        │   ├── DestinationInUse     the destination holds data of its own
        │   ├── CopyOutdated         the source changed during the copy
        │   ├── CopyMismatch         the copy differs from the source
        │   └── BadBackup            not a backup, or a damaged one
        └── StorageUnavailable
            ├── StorageClosed        closed, or never opened
            ├── StorageUnreachable   the server does not answer (retry)
            ├── StorageBusy          another process holds it too long (retry)
            │   └── StoragePaused    it is being copied or backed up (retry)
            ├── StorageMoved         a copy replaces this storage
            ├── StorageFilling       a copy or a restore into it is not finished
            ├── StorageFull          no space left (retry when there is)
            └── StorageBroken        the disk failed; open the storage again
                └── CommitInDoubt    ... and this commit may or may not have been written

The docstring of a class is its default message. ``retryable`` says whether the same call may succeed later.

    try:
        await kernel.commit(...)
    except CommitRefused as refusal:
        print(refusal.reason, refusal.found)
"""

from __future__ import annotations

from keelbolt.errors.protocol import *
from keelbolt.errors.root import *
from keelbolt.errors.state import *
from keelbolt.errors.storage import *
from keelbolt.errors.tasks import *
from keelbolt.errors.turns import *
