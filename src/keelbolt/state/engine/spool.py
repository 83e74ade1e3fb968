"""Holds saves during an outage of the storage: in memory, or in a directory where they survive the process.

Each process has its own file in the directory, locked while the process runs. A later process finds the unlocked files
of dead processes and replays them first. A line is a JSON object with one write; it begins with "#" if it was replayed.
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

from msgspec.structs import astuple

from keelbolt.errors import InvalidState, StorageFull
from keelbolt.kernel import Absent, Append, Complete, Delete, Draft, Drop, Fence, FieldIn, Operation, Put, Version
from keelbolt.kernel.private_files import create_private, ensure_private_folder
from keelbolt.state.engine.policy import logger
from keelbolt.state.engine.writes import StateWrite

MEMORY_BYTES = 64 * 1024 * 1024
FILE_BYTES = 256 * 1024 * 1024
_SUFFIX = ".spool"
_DONE = b"#"  # first byte of a replayed line


Place = tuple[StateWrite, int, int]
"""A write, with the file and the offset of its line."""


class WriteSpool(Protocol):
    """First in, first out."""

    def __len__(self) -> int: ...
    def append(self, write: StateWrite) -> None:
        """Append a write; raise StorageFull or OSError if it can't be kept."""

    def first(self) -> StateWrite | None:
        """Return the oldest write, or None."""

    def drop_first(self) -> None:
        """Remove the oldest write, which was replayed."""

    def close(self) -> None:
        """Release the spool; writes in a file stay there."""


class MemorySpool:
    """Keeps writes in memory until the process ends."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._writes: deque[StateWrite] = deque()

    def __len__(self) -> int:
        return len(self._writes)

    def append(self, write: StateWrite) -> None:
        if self._size + write.size > self._limit:
            raise StorageFull(f"the spool is full: its limit is {self._limit} bytes")
        self._size += write.size
        self._writes.append(write)

    def first(self) -> StateWrite | None:
        return self._writes[0] if self._writes else None

    def drop_first(self) -> None:
        self._size -= self._writes.popleft().size

    def close(self) -> None:
        pass


class FileSpool:
    """Keeps writes in a directory, where later processes find them."""

    def __init__(self, directory: str | os.PathLike[str], limit: int = FILE_BYTES) -> None:
        self._directory = Path(directory)
        self._limit = limit
        self._size = 0
        self._path: Path | None = None
        self._file: int | None = None
        self._left: list[tuple[Path, IO[bytes]]] = []  # files of dead processes; all their lines are in _writes
        self._writes: deque[Place] = deque()
        try:
            ensure_private_folder(self._directory)
            self._adopt()
        except OSError as error:  # an append will raise the error
            logger.warning("can't read the spool %s: %s", directory, error)
        self._adopted = len(self._writes)

    def __len__(self) -> int:
        return len(self._writes)

    def append(self, write: StateWrite) -> None:
        line = dump_write(write) + b"\n"
        if self._size + len(line) > self._limit:
            raise StorageFull(f"the spool is full: its limit is {self._limit} bytes")
        file = self._opened()
        try:
            _write_all(file, line, self._size)
            os.fsync(file)
        except OSError:
            os.ftruncate(file, self._size)  # a partial line would corrupt the next one
            raise
        self._writes.append((write, file, self._size))
        self._size += len(line)

    def first(self) -> StateWrite | None:
        return self._writes[0][0] if self._writes else None

    def drop_first(self) -> None:
        _, file, place = self._writes.popleft()
        with contextlib.suppress(OSError):
            os.pwrite(file, _DONE, place)  # so that a later process does not replay it again
        if self._adopted:
            self._adopted -= 1
            if not self._adopted:
                self._forget_orphans()
        if not self._writes and self._file is not None:
            os.ftruncate(self._file, 0)
            self._size = 0

    def close(self) -> None:
        for _, file in self._left:
            file.close()
        if self._file is not None and self._path is not None:
            if not self._writes:
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        """Return the file of this process. It is locked before it gets its name, so that it never looks orphaned."""
        if self._file is None:
            self._path = self._directory / f"{os.getpid()}-{uuid4().hex}{_SUFFIX}"
            unnamed = self._path.with_suffix(".new")
            file = create_private(unnamed)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                unnamed.rename(self._path)
            except OSError:
                os.close(file)
                unnamed.unlink(missing_ok=True)
                raise
            self._file, self._size = file, 0
        return self._file

    def _adopt(self) -> None:
        """Take over the writes of dead processes, the oldest first."""
        left = [(writes, path, file) for path in self._directory.glob(f"*{_SUFFIX}") for writes, file in _locked(path)]
        for writes, path, file in sorted(left, key=lambda found: found[0][0][0].spooled_at if found[0] else 0.0):
            if writes:
                self._writes.extend(writes)
                self._left.append((path, file))
            else:
                path.unlink(missing_ok=True)
                file.close()

    def _forget_orphans(self) -> None:
        for path, file in self._left:
            path.unlink(missing_ok=True)
            file.close()
        self._left.clear()


def _locked(path: Path) -> Iterator[tuple[list[Place], IO[bytes]]]:
    """Lock the file and yield its writes; nothing if its process lives or another process locked it first."""
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return
    writes: list[Place] = []
    place = 0
    for line in file:
        with contextlib.suppress(ValueError, KeyError):  # replayed, or the incomplete last line of a killed process
            writes.append((load_write(line), file.fileno(), place))
        place += len(line)
    yield writes, file


def _write_all(file: int, data: bytes, place: int) -> None:
    while data:
        written = os.pwrite(file, data, place)
        data, place = data[written:], place + written


# ---------------------------------------------------------------------------------------------------------- spool lines


def dump_write(write: StateWrite) -> bytes:
    """Return the write as one line of JSON."""
    return json.dumps(
        {
            "partition": write.partition,
            "method": write.method,
            "trace_id": write.trace_id,
            "spooled_at": write.spooled_at,
            "operations": [_dump(operation) for operation in (*write.guards, *write.certain)],
        }
    ).encode()


def load_write(line: bytes) -> StateWrite:
    """Return the write of such a line."""
    stored = json.loads(line)
    operations = tuple(_load(operation) for operation in stored["operations"])
    return StateWrite(
        stored["partition"],
        stored["method"],
        operations,
        len(line),
        trace_id=stored["trace_id"],
        spooled_at=stored["spooled_at"],
    )


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
        case Absent() | Version() | Fence() | Complete() | Drop():
            return {type(operation).__name__: list(astuple(operation))}
        case _:
            raise InvalidState(f"a {type(operation).__name__} can't be stored in a spool")


def _load(stored: dict[str, Any]) -> Operation:
    if "put" in stored:
        collection, key, body, fields, expires_in = stored["put"]
        return Put(collection, key, base64.b64decode(body), fields, expires_in)
    if "field_in" in stored:
        collection, key, field, values = stored["field_in"]
        return FieldIn(collection, key, field, tuple(values))
    if "delete" in stored:
        return Delete(*stored["delete"])
    for kind in (Absent, Version, Fence, Complete, Drop):
        if kind.__name__ in stored:
            return kind(*stored[kind.__name__])
    log, stream, entries = stored["append"]
    return Append(log, stream, tuple(Draft(kind, base64.b64decode(data), dedupe) for kind, data, dedupe in entries))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
