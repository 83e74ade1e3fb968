"""Errors of the kernel, of its engines, and of erasing, exporting and importing stored data."""

from __future__ import annotations

from typing import Literal

from keelbolt.errors.root import KeelboltError

Reason = Literal["version", "absent", "present", "field", "head", "fence", "held", "blob"]


class StorageError(KeelboltError):
    """Something went wrong in the storage."""


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
    """The requested entries are below the log's floor: they were trimmed. Load a snapshot, then read from the floor."""

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
    """The database is on a network filesystem, where locks and fsync can't be trusted; use a local disk."""


class NotKeelbolt(CannotOpen):
    """This database belongs to another program; choose another file."""


class SchemaTooNew(CannotOpen):
    """A newer Keelbolt wrote this database; upgrade this program. Nothing was changed."""


class SchemaMismatch(CannotOpen):
    """The database does not have the schema this program expects."""


class StorageCorrupt(StorageError):
    """Stored bytes are not the bytes that were written; run `keelbolt storage check` and restore from a backup."""

    @classmethod
    def of(cls, what: str) -> StorageCorrupt:
        """The error for something stored whose checksum is wrong."""
        return cls(
            f"{what} is damaged: its bytes are not the bytes that were written. Run `keelbolt storage check`, and "
            "restore from a backup"
        )


class TransferError(StorageError):
    """A copy, backup or restore can't be done."""


class NotTransferable(TransferError):
    """This engine can't be copied: it offers no way to read and write a whole store."""


class DestinationInUse(TransferError):
    """The destination holds data of its own; choose an empty one. Nothing was changed."""


class CopyOutdated(TransferError):
    """The source changed during the copy; copy again with --restart."""


class CopyMismatch(TransferError):
    """The copy differs from the source; do not use it. Copy again with --restart."""


class BadBackup(TransferError):
    """This file is not a backup, or it is damaged; nothing was restored from it. Use another backup."""


class StorageUnavailable(StorageError):
    """The storage can't be used now."""


class StorageClosed(StorageUnavailable):
    """This storage is closed; open it with `async with open_storage(url)`."""


class StorageUnreachable(StorageUnavailable):
    """The storage server does not answer; nothing was written. Check that it runs and is reachable, then try again."""

    retryable = True


class StorageBusy(StorageUnavailable):
    """Another process holds the storage for too long; nothing was written. Try again."""

    retryable = True


class StoragePaused(StorageBusy):
    """A copy or a backup of this storage is being made; nothing was written. Try again when it is done."""


class StorageMoved(StorageUnavailable):
    """This storage was moved to a copy and refuses writes. Use the copy's URL."""


class StorageFilling(StorageUnavailable):
    """A copy or a restore into this storage is not finished, so it can't be used yet. Finish it, or choose another."""


class StorageFull(StorageUnavailable):
    """No space is left; nothing was written. Reading, deleting and releasing still work; free space and try again."""

    retryable = True


class StorageBroken(StorageUnavailable):
    """The disk reported an error; close this storage and open it again."""


class CommitInDoubt(StorageBroken):
    """The disk failed during this commit, which may or may not be stored. Open the storage again and read the data."""


class CheckpointConflict(StorageError):
    """Another run has written to this LangGraph thread meanwhile; the checkpoint was not saved.

    ``parent`` is the checkpoint on which the refused one was built, ``head`` the last checkpoint of the thread.
    """

    def __init__(self, thread: str, namespace: str, *, parent: str | None, head: str | None, why: str) -> None:
        self.thread = thread
        self.namespace = namespace
        self.parent = parent
        self.head = head
        where = f"thread {thread!r}" + (f", namespace {namespace!r}" if namespace else "")
        super().__init__(
            f"{where}: a checkpoint built on {parent or 'an empty thread'} was not saved, because {why} (its last "
            f'checkpoint is {head or "none"}). Run the graph again, or allow branches with on_conflict="fork"'
        )


# ----------------------------------------------------------------------------------------------------------------- data


class DataError(KeelboltError):
    """Data could not be erased, exported or imported."""


class SubjectNotFound(DataError, LookupError):
    """No data is stored for this subject."""


class SubjectExists(DataError):
    """A subject of the export is already stored with other content, which was not changed."""


class BadExport(DataError, ValueError):
    """The file is not an export, is damaged or truncated, or has a newer format."""


class SubjectInUse(DataError):
    """A worker or a process uses this subject; nothing was erased. Try again later, or erase it without if_idle."""

    retryable = True
