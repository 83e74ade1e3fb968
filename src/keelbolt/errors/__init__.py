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
    │   │   ├── RequestTooLargeError  too many bytes, values, levels or items
    │   │   ├── HeadersTooLargeError  too many bytes before the body
    │   │   ├── RequestTimeoutError  the body did not come in time
    │   │   ├── MisdirectedRequestError  the Host header names a host that the agent does not serve
    │   │   ├── ForeignOriginError   a web page of another origin wants to change something
    │   │   └── UnsupportedMediaTypeError  the body is not said to be JSON
    │   ├── BusyError                not now: ``retry_after`` seconds later
    │   │   ├── RateLimitedError     this caller asks too often
    │   │   ├── TooManyStreamsError  too many streams are open
    │   │   └── StoppingError        the agent stops; the stream can be continued
    │   ├── MethodNotFoundError      no operation has this name
    │   ├── TenantNotFoundError      the request names a tenant that is not the caller's
    │   ├── InvalidParamsError       a field is missing, wrong or unreadable; ``violations`` names it
    │   │   ├── SkillRequiredError   the message chooses no skill, and there are several
    │   │   └── SkillInputError      the message holds no input that the skill takes
    │   ├── SkillNotFoundError       no such skill (or not one that this caller may call)
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
    │   │   └── TaskGenerationMismatchError  the task has another generation than the message requires
    │   ├── UnsupportedOperationError  not possible here, or not in this state
    │   │   └── IllegalTransition    no arrow leads from this state to that one
    │   ├── ContentTypeNotSupportedError  the agent does not take parts of this media type
    │   ├── InvalidAgentResponseError  the worker answered with something that can't be sent
    │   ├── InvalidTaskRequest       a wrong argument: message, query, page token, state, length
    │   │   ├── MessageReused        the same message id with another body (repeated_send="same")
    │   │   ├── IdempotencyKeyReused  the same Idempotency-Key with another message
    │   │   └── WebhookAddressError  a webhook into a private network, or not by https
    │   ├── SecretKeyMissing         stored credentials are encrypted with a key that this process does not have
    │   ├── TurnEnded                the worker has ended its turn already
    │   ├── LeaseLost                another process has the task; nothing that this one writes is taken
    │   └── StepError
    │       ├── StepFailed           the step was answered as failed
    │       └── RelayFailed          the other agent failed, rejected or canceled its task
    ├── TurnError                    in a turn; each has a code (E_…), a status, and says whether it is fatal
    │   ├── TurnAborted              the turn was aborted
    │   ├── InvalidTurnRunnerConfig  a turn runner was given a wrong configuration; ``problems`` lists all
    │   ├── InvalidTurnContext       a turn can't begin with this input
    │   ├── InvalidLlmExecutionContext  a dispatch can't begin with this raw context
    │   ├── InvalidLlmDispatchInput  a dispatch comes from a turn or a raw context, one of them
    │   ├── InputPipelineError       a middleware of the turn's input pipeline raised
    │   ├── OutputPipelineError      a middleware of the turn's output pipeline raised
    │   ├── DispatchPipelineError    a middleware of a dispatch pipeline raised
    │   ├── PipelineShortCircuited   a middleware ended without calling next()
    │   ├── LlmExecutionExecutorError  the executor raised
    │   ├── LlmExecutionAlreadySignalled  ack() or nack() for the second time
    │   ├── LlmExecutionGateNotSupported  a gate in a dispatch that stands alone
    │   ├── DispatchNacked           nack() without an error of its own
    │   ├── DispatchFlushError       the writes of an iteration could not be stored
    │   ├── IterationLimitReached    max_iterations without ack() or nack()
    │   ├── ReportAfterCompletion    what was reported complete is reported again
    │   ├── InvalidInitialValue      made from fields that don't fit
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
    │   ├── TokenizableEvaluatorInvalid  text that is not text
    │   ├── InvalidTurnGateResolution  a value that does not fit the gate's schema; it stays open
    │   ├── TurnGateTimeout          nobody settled the gate in time
    │   ├── TurnGateRejected         the request at a gate was declined
    │   ├── TurnGateAborted          the gate or its turn was aborted
    │   ├── InvalidToolArgs          arguments that don't fit the tool's schema
    │   ├── ToolDownstreamError      the tool raised
    │   ├── ModelError               the model's provider failed or refused the request
    │   ├── ToolAlreadyRegistered    a tool of this name is registered
    │   ├── NotASpoolReader          it has not the methods of one
    │   ├── NotAMediaReader          it has not the methods of one
    │   ├── ReaderNotDescribable     nothing could find this reader's bytes again
    │   ├── NoReaderResolver         nobody can open readers of this tag
    │   ├── ArtifactIdCollision      a tool call and a retrievable share an id
    │   └── TurnStorageError         from the durable storage of turns
    │       ├── TurnStorageScopeMissing  it is not known whose turn this is
    │       ├── TurnStorageDuplicateId  something else is stored under this id
    │       ├── TurnStorageNotFound  nothing is stored under this id
    │       ├── TurnTakenOver        the turn was begun again elsewhere
    │       ├── TurnStorageCorrupt   what is stored is not what was written
    │       └── TurnStorageSchema    stored by a newer version
    ├── StateStoreError              the state of agents
    │   ├── InvalidState             not what the method takes
    │   ├── StateNotSaved            ``method`` could not save; the cause says why
    │   │   ├── StateConflict        the state changed since it was read
    │   │   └── StateErased          the session or trace was erased while this process used it
    │   ├── StateNotLoaded           ``method`` could not load; the cause says why
    │   ├── StateNotFound            nothing is kept under this id
    │   ├── StateTimeout             the storage did not answer in time (retry)
    │   ├── SteeringValidationError  a steering event that does not fit its type; ``errors`` lists why
    │   ├── MemoryBudgetExceeded     a memory over its budget, whose policy is to refuse
    │   ├── InvalidMemoryState       what was stored of a memory can't be read
    │   ├── ArtifactTooLarge         larger than one artifact may be
    │   ├── ArtifactLimitExceeded    no room in the session or trace
    │   ├── SessionLimitReached      no room for another task or patch in a session
    │   └── SteeringCancelled        the task was told to stop
    ├── DataError                    erasing, exporting, importing
    │   ├── SubjectNotFound          nothing is kept of this subject
    │   ├── SubjectExists            what is imported is stored already, with other content
    │   ├── BadExport                no export, or a damaged, cut or newer one
    │   └── SubjectInUse             a worker or a process uses it (retry)
    └── StorageError
        ├── CommitRefused            a check of this commit failed; nothing of it was written
        ├── CheckpointConflict       another run has written to this LangGraph thread meanwhile
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
        │   ├── NotKeelbolt          the file belongs to another program
        │   ├── SchemaTooNew         a newer Keelbolt wrote it
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
            │   └── StoragePaused    it is being copied or backed up (retry)
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

from keelbolt.errors.apcore import *
from keelbolt.errors.auth import *
from keelbolt.errors.base import *
from keelbolt.errors.client import *
from keelbolt.errors.data import *
from keelbolt.errors.frameworks import *
from keelbolt.errors.protocol import *
from keelbolt.errors.skills import *
from keelbolt.errors.state import *
from keelbolt.errors.storage import *
from keelbolt.errors.tasks import *
from keelbolt.errors.turns import *
