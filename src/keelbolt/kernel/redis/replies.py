"""Parses replies from a buffer, and translates the server's errors into Keelbolt's.

The driver's own parser awaits every line of a reply, and a commit's reply has about ten lines: that cost a fifth of the
CPU time of a request. A translated error has cause and remedy, never the server's own text.
"""

from __future__ import annotations

from typing import Any

from redis import exceptions
from redis._parsers import _AsyncRESP2Parser
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import InvalidResponse

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

READ_BYTES = 1 << 18

_ERROR, _STATUS, _NUMBER, _BULK, _ARRAY = b"-+:$*"


class _Short(Exception):
    """The reply is incomplete: at least ``missing`` more bytes are needed."""

    def __init__(self, missing: int) -> None:
        self.missing = missing


class ReplyParser(_AsyncRESP2Parser):
    """A parser for the driver's connections; replies are bytes, integers, None and lists of these."""

    async def read_response(self, disable_decoding: bool = False) -> Any:  # noqa: ARG002, FBT001, FBT002 - the driver's
        if not self._connected:
            raise LostConnection("the connection is closed")
        while True:
            try:
                reply, self._pos = self._parsed(self._buffer, self._pos)
            except _Short as short:
                await self._read_more(short.missing)
                continue
            if self._pos == len(self._buffer):
                self._buffer, self._pos = b"", 0
            if isinstance(reply, LostConnection):
                raise reply
            return reply

    async def _read_more(self, missing: int) -> None:
        stream = self._stream
        assert stream is not None
        data = await stream.read(max(missing, READ_BYTES))
        if not data:
            raise LostConnection("the server closed the connection")
        parts = [self._buffer[self._pos :], data]
        missing -= len(data)
        while missing > 0:  # a large value: joined once, when it is complete
            data = await stream.read(missing)
            if not data:
                raise LostConnection("the server closed the connection")
            parts.append(data)
            missing -= len(data)
        self._buffer, self._pos = b"".join(parts), 0

    def _parsed(self, buffer: bytes, at: int) -> tuple[Any, int]:
        """Return the reply at this position, and the position of the next one."""
        end = buffer.find(b"\r\n", at)
        if end < 0:
            raise _Short(0)
        kind = buffer[at]
        if kind == _NUMBER:
            return int(buffer[at + 1 : end]), end + 2
        if kind == _BULK:
            size = int(buffer[at + 1 : end])
            if size < 0:
                return None, end + 2
            stop = end + 2 + size
            if stop + 2 > len(buffer):
                raise _Short(stop + 2 - len(buffer))
            return buffer[end + 2 : stop], stop + 2
        if kind == _ARRAY:
            count = int(buffer[at + 1 : end])
            at = end + 2
            if count < 0:
                return None, at
            items = []
            for _ in range(count):
                item, at = self._parsed(buffer, at)
                items.append(item)
            return items, at
        if kind == _STATUS:
            return buffer[at + 1 : end], end + 2
        if kind == _ERROR:
            return (
                self.parse_error(  # type: ignore[no-untyped-call]
                    buffer[at + 1 : end].decode("utf-8", "replace")
                ),
                end + 2,
            )
        raise InvalidResponse(f"an unknown kind of reply: {buffer[at : at + 20]!r}")


# ------------------------------------------------------------------------------------------------------------- failures


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
