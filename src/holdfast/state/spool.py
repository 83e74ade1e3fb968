"""Where saves wait while the storage is away: in memory, or in a directory where they outlive the process.

Each process has a file of its own in the directory, locked while it lives. Whoever comes later finds the unlocked files
of those that died and replays them first. A line is a JSON object with one write; replaying it twice does no harm.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol
from uuid import uuid4

from holdfast.errors import InvalidState, StorageFull
from holdfast.state.writes import Write
from holdfast.storage import Append, Delete, Draft, FieldIn, Operation, Put

MEMORY_BYTES = 64 * 1024 * 1024
FILE_BYTES = 256 * 1024 * 1024
_SUFFIX = ".spool"


class Spool(Protocol):
    """First in, first out."""

    def __len__(self) -> int: ...
    def append(self, write: Write) -> None:
        """Keep a write; raises StorageFull or OSError when it can't."""

    def first(self) -> Write | None:
        """The write that waits longest."""

    def drop_first(self) -> None:
        """It was written."""

    def close(self) -> None:
        """Let go; what waits in a file waits on."""


class MemorySpool:
    """Waits as long as the process lives."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._writes: deque[Write] = deque()

    def __len__(self) -> int:
        return len(self._writes)

    def append(self, write: Write) -> None:
        if self._size + write.size > self._limit:
            raise StorageFull(f"the spool holds {self._limit} bytes and is full")
        self._size += write.size
        self._writes.append(write)

    def first(self) -> Write | None:
        return self._writes[0] if self._writes else None

    def drop_first(self) -> None:
        self._size -= self._writes.popleft().size

    def close(self) -> None:
        pass


class FileSpool:
    """Waits in a directory, also for the next process."""

    def __init__(self, directory: str | os.PathLike[str], limit: int = FILE_BYTES) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._limit = limit
        self._size = 0
        self._file: IO[bytes] | None = None
        self._left: list[tuple[Path, IO[bytes]]] = []  # files of the dead, all of whose lines are among the writes
        self._writes: deque[Write] = deque()
        self._adopted = 0
        for path, file, write in self._orphans():
            if not self._left or self._left[-1][0] != path:
                self._left.append((path, file))
            self._writes.append(write)
        self._adopted = len(self._writes)

    def __len__(self) -> int:
        return len(self._writes)

    def append(self, write: Write) -> None:
        line = dump_write(write) + b"\n"
        if self._size + len(line) > self._limit:
            raise StorageFull(f"the spool holds {self._limit} bytes and is full")
        file = self._opened()
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
        self._size += len(line)
        self._writes.append(write)

    def first(self) -> Write | None:
        return self._writes[0] if self._writes else None

    def drop_first(self) -> None:
        self._writes.popleft()
        if self._adopted:
            self._adopted -= 1
            if not self._adopted:
                self._forget_orphans()
        if not self._writes and self._file is not None:
            self._file.truncate(0)
            self._size = 0

    def close(self) -> None:
        for _, file in self._left:
            file.close()
        if self._file is not None:
            if not self._writes:
                Path(self._file.name).unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self._file = (self._directory / f"{os.getpid()}-{uuid4().hex}{_SUFFIX}").open("ab")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self._file

    def _orphans(self) -> Iterator[tuple[Path, IO[bytes], Write]]:
        for path in sorted(self._directory.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime):
            file = path.open("r+b")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # its process lives
                file.close()
                continue
            found = False
            for line in file:
                with contextlib.suppress(ValueError, KeyError):  # the last line of a process that was killed
                    yield path, file, load_write(line)
                    found = True
            if not found:
                path.unlink(missing_ok=True)
                file.close()

    def _forget_orphans(self) -> None:
        for path, file in self._left:
            path.unlink(missing_ok=True)
            file.close()
        self._left.clear()


def dump_write(write: Write) -> bytes:
    """The write as one line of JSON."""
    return json.dumps(
        {
            "partition": write.partition,
            "method": write.method,
            "trace_id": write.trace_id,
            "operations": [_dump(operation) for operation in write.certain],
        }
    ).encode()


def load_write(line: bytes) -> Write:
    """The write of such a line."""
    stored = json.loads(line)
    operations = tuple(_load(operation) for operation in stored["operations"])
    return Write(stored["partition"], stored["method"], operations, len(line), trace_id=stored["trace_id"])


def _dump(operation: Operation) -> dict[str, Any]:
    match operation:
        case Put(collection, key, body, fields, expires_in):
            return {"put": [collection, key, _text(body), dict(fields), expires_in]}
        case Append(log, stream, entries):
            return {"append": [log, stream, [[entry.kind, _text(entry.data), entry.dedupe] for entry in entries]]}
        case FieldIn(collection, key, field, values):
            return {"field_in": [collection, key, field, list(values)]}
        case Delete(collection, key, None):
            return {"delete": [collection, key]}
        case _:
            raise InvalidState(f"a {type(operation).__name__} can't wait in a spool")


def _load(stored: dict[str, Any]) -> Operation:
    if "put" in stored:
        collection, key, body, fields, expires_in = stored["put"]
        return Put(collection, key, base64.b64decode(body), fields, expires_in)
    if "field_in" in stored:
        collection, key, field, values = stored["field_in"]
        return FieldIn(collection, key, field, tuple(values))
    if "delete" in stored:
        return Delete(*stored["delete"])
    log, stream, entries = stored["append"]
    return Append(log, stream, tuple(Draft(kind, base64.b64decode(data), dedupe) for kind, data, dedupe in entries))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
