"""Translates the server's errors into Keelbolt's: cause and remedy, never the server's own text."""

from __future__ import annotations

from redis import exceptions

from keelbolt.errors import (
    KeelboltError,
    StorageBroken,
    StorageBusy,
    StorageFilling,
    StorageFull,
    StorageMoved,
    StoragePaused,
    StorageUnavailable,
)

# Transient errors: nothing was done, and the same call can be sent again.
_PASSING = ("LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY ")
_NO_FUNCTION = "function not found"


# Errors that the Lua functions return while the store is marked.
_MARKED: dict[str, type[StorageUnavailable]] = {
    "HFPAUSED": StoragePaused,
    "HFMOVED": StorageMoved,
    "HFFILLING": StorageFilling,
}

# For these, the driver strips the code and raises a class instead.
_CODES: dict[type[Exception], str] = {
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.MovedError: "MOVED",
    exceptions.AskError: "ASK",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterCrossSlotError: "CROSSSLOT",
}


def text_of(error: Exception) -> str:
    """Return an error reply as the server wrote it, with its code in front."""
    code = _CODES.get(type(error))
    return f"{code} {error}" if code else str(error)


class Disconnected(KeelboltError):
    """The server can't be reached, or the connection broke."""


def passes(error: str) -> bool:
    return error.startswith(_PASSING)


def lacks_functions(error: str) -> bool:
    return _NO_FUNCTION in error.lower()


def is_moved(error: str) -> bool:
    return error.startswith(("MOVED ", "ASK "))


def is_replica(error: str) -> bool:
    """Return whether the server is no longer primary. After a reconnect, the address may lead to a primary again."""
    return error.startswith("READONLY")


def failure_of(error: str) -> KeelboltError:
    """Return the exception for an error reply."""
    code = error.split(" ", 1)[0]
    if code in _MARKED:
        return _MARKED[code]()
    match code:
        case "OOM":
            return StorageFull(
                "the server's memory is full (maxmemory); nothing was written. Reading, deleting and releasing still "
                "work; free space or raise maxmemory, and try again"
            )
        case "READONLY":
            return StorageUnavailable(
                "this server is a replica now, and can't be written; nothing was written. Point the URL at the primary"
            )
        case "MISCONF":
            if "space" in error.lower():
                return StorageFull("the server's disk is full; nothing was written. Free space and try again")
            return StorageBroken("the server can't write to its disk and refuses writes; see its log")
        case "LOADING":
            return StorageBusy("the server is loading its data; nothing was written. Try again")
        case "BUSY":
            return StorageBusy("the server is busy with a long script; nothing was written. Try again")
        case "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN":
            return StorageBusy("the cluster is not complete at the moment; nothing was written. Try again")
        case "NOREPLICAS":
            return StorageBusy("too few replicas are connected (min-replicas-to-write); nothing was written. Try again")
        case "NOAUTH" | "WRONGPASS":
            return StorageUnavailable("the server no longer accepts this user and password")
        case "NOPERM":
            return StorageUnavailable(
                "this user lacks rights; it needs all keys and channels of its namespace, and the functions commands"
            )
        case "CROSSSLOT" | "MOVED" | "ASK":
            return StorageUnavailable("the server is part of a cluster that has changed; open the storage again")
        case _:
            pass
    return StorageBroken("the server refused a call that should work; see its log, and run `keelbolt storage check`")
