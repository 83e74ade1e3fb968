"""Holds saves during an outage of the storage, and replays them in order when the storage is back.

A spool is in memory, or in a directory where the saves survive the process. Each process has its own file in the
directory, locked while the process runs. A later process finds the unlocked files of dead processes and replays them
first. A line is a JSON object with one write; it begins with "#" if it was replayed.

While the spool is not empty, new writes are appended to it, so that order is kept across the outage. A write with an
unknown outcome may be written twice; all writes of a store are idempotent. For a record, the last save wins, not the
last replay: a later save by another process stays. Expiry times include the time in the spool.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol
from uuid import uuid4

from msgspec.structs import astuple, replace

from keelbolt.errors import CommitRefused, InvalidRequest, InvalidState, StorageFull
from keelbolt.kernel import (
    Absent,
    Append,
    Complete,
    Delete,
    Draft,
    Drop,
    Fence,
    FieldIn,
    Kernel,
    Operation,
    Put,
    Version,
)
from keelbolt.kernel.private_files import create_private, ensure_private_folder, sync_folder
from keelbolt.state.engine.connection import Breaker, Counters, StoreConnection, logger, tell_save_failed
from keelbolt.state.engine.writes import StateWrite, keys_of

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
        """Remove the oldest write. If its file can't be changed, a later process replays it again."""
        _, file, place = self._writes.popleft()
        with contextlib.suppress(OSError):
            os.pwrite(file, _DONE, place)
        if self._adopted:
            self._adopted -= 1
            if not self._adopted:
                self._forget_orphans()
        if not self._writes and self._file is not None:
            with contextlib.suppress(OSError):
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
                sync_folder(self._directory)
            except OSError:
                os.close(file)
                unnamed.unlink(missing_ok=True)
                self._path.unlink(missing_ok=True)
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
            with contextlib.suppress(OSError):
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
        if not line.startswith(_DONE) and line.endswith(b"\n"):  # a killed process may leave an incomplete last line
            try:
                writes.append((load_write(line), file.fileno(), place))
            except (ValueError, KeyError, TypeError) as error:
                logger.error("a save in the spool %s is damaged and lost: byte %d: %r", path, place, error)
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


# --------------------------------------------------------------------------------------------------------------- replay


class SpoolReplay:
    """Replays the spool. ``over`` is called whenever the spool has become empty."""

    def __init__(
        self,
        link: StoreConnection,
        spool: WriteSpool,
        breaker: Breaker,
        counters: Counters,
        *,
        timeout_seconds: float,
        over: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spool = spool
        self._link = link
        self._breaker = breaker
        self._counters = counters
        self._timeout = timeout_seconds
        self._over = over
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._hurry = asyncio.Event()  # set by a caller that waits for the next attempt
        self._attempt: asyncio.Future[bool] | None = None  # the result of that attempt
        self._newer: dict[tuple[str, str], int] = {}  # numbers of writes committed while older ones were spooled

        self._landed: set[int] = set()  # numbers of spooled writes that were committed after all

    @property
    def active(self) -> bool:
        """Whether the spool is being replayed."""
        return self._task is not None

    def add(self, write: StateWrite) -> None:
        """Append this write to the spool; raises if the spool can't take it."""
        write.spooled_at = self._clock()
        self.spool.append(write)
        self._counters.spooled += 1
        self.start()

    def start(self) -> None:
        """Start replaying the spool as soon as the storage is available."""
        if self._task is None and not self._ended and len(self.spool):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def written(self, writes: Iterable[StateWrite]) -> None:
        """Record writes that overtook older ones, whose versions of the same records are now outdated."""
        for write in writes:
            self._newer.update(dict.fromkeys(keys_of(write.operations), write.number))

    def landed(self, writes: Iterable[StateWrite]) -> None:
        """Record writes that had timed out but were committed after all."""
        if self.active:
            self._landed.update(write.number for write in writes)

    def overtaken(self, write: StateWrite) -> set[tuple[str, str]]:
        """Return the records of this write that later writes have already written."""
        return {key for key in keys_of(write.certain) if self._newer.get(key, 0) > write.number}

    def caught_up(self) -> None:
        """Clear the record of later writes: no older write is in progress."""
        if not self.active:
            self._newer.clear()

    async def replay(self) -> None:
        """Return when the spool is empty, or when the storage is still unavailable."""
        while self.active and self._breaker.allows():
            if self._attempt is None:
                self._attempt = asyncio.get_running_loop().create_future()
            self._hurry.set()
            if not await asyncio.shield(self._attempt):
                return

    async def stop(self) -> None:
        """Make a last attempt if the breaker allows it. The remaining writes stay in the spool."""
        await self.replay()
        self._ended = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._attempted(succeeded=False)

    async def _run(self) -> None:
        while (write := self.spool.first()) is not None:
            try:
                async with asyncio.timeout(self._timeout):
                    kernel = await self._link.opened()
                    if operations := await self._still_wanted(kernel, write):
                        await kernel.commit(write.partition, *write.guards, *operations)
            except (InvalidRequest, CommitRefused) as error:  # every retry would be refused as well
                if isinstance(error, CommitRefused) and any(life.goes_on(error) for life in write.lives):
                    continue
                tell_save_failed(write.method, write.trace_id, error, key=write.key)
                self._counters.lost += 1
            except Exception as error:  # noqa: BLE001  (drivers raise any type; the storage is unavailable)
                await self._link.broke(error)
                self._breaker.failed()
                self._attempted(succeeded=False)
                await self._rest()
                continue
            else:
                self._breaker.succeeded()
                self._counters.replayed += 1
                for life in write.lives:
                    life.written()
            self.spool.drop_first()
            self._attempted(succeeded=True)
        self._newer.clear()
        self._landed.clear()
        self._task = None
        self._over()

    async def _rest(self) -> None:
        """Wait until the breaker allows another attempt, or, while it is closed, until a caller requests one."""
        if self._breaker.allows():
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._breaker.seconds_left())
        else:
            await asyncio.sleep(self._breaker.seconds_left())

    def _attempted(self, *, succeeded: bool) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None and not attempt.done():
            attempt.set_result(succeeded)

    async def _still_wanted(self, kernel: Kernel, write: StateWrite) -> list[Operation]:
        """Return the operations without records that were saved again and without expired ones."""
        if write.number in self._landed:
            return []
        newer = await self._saved_again(kernel, write)
        waited = max(0.0, self._clock() - write.spooled_at)
        wanted: list[Operation] = []
        for operation in write.certain:
            if not isinstance(operation, Put):
                wanted.append(operation)
            elif (operation.collection, operation.key) not in newer:
                left = None if operation.expires_in is None else operation.expires_in - waited
                if left is None or left > 0:
                    wanted.append(replace(operation, expires_in=left))
        return wanted

    async def _saved_again(self, kernel: Kernel, write: StateWrite) -> set[tuple[str, str]]:
        """Return the records of this write that a later save has written, here or in another process."""
        keys = keys_of(write.certain)
        newer = self.overtaken(write)
        for operation in write.certain:
            if isinstance(operation, Put) and isinstance(mine := operation.fields.get("saved"), int):
                record = await kernel.get(write.partition, operation.collection, operation.key)
                its = record.fields.get("saved") if record is not None else None
                if isinstance(its, int) and its > mine:
                    newer |= {found for found in keys if found[1] == operation.key}  # a task includes its context
        return newer
