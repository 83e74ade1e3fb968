"""Notifications between the processes on one file: a datagram to the socket of each, in a folder next to the file.

Datagrams that can't be delivered at once are dropped; the safety poll finds the change.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from keelbolt.kernel.hints import Board, LogTopic, Topic, topic_digest
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.sqlite.connection import SQL, Connect, SqliteConnection
from keelbolt.kernel.sqlite.readers import only
from keelbolt.kernel.sqlite.worker_locks import WorkerLocks

DIGEST_BYTES = 8
DATAGRAM_BYTES = 8192
SETTLED_NANOSECONDS = 50_000_000
_PATH_LIMIT = 100  # a UNIX socket path has at most 108 bytes


class Datagrams:
    """Sends from the writer thread, receives in the event loop."""

    def __init__(self, folder: str, received: Callable[[list[bytes]], None]) -> None:
        self._folder = Path(folder)
        self._received = received
        self._socket: socket.socket | None = None
        self._name = f"{os.getpid()}-{new_id()[-12:]}"
        self._handle: int | None = None
        self._peers: list[str] = []
        self._changed_at = -1

    def open(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Open the socket. Return whether notifications work here."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            receiver.setblocking(False)
            try:
                receiver.bind(self._address(self._name))
                loop.add_reader(receiver.fileno(), self._receive)
            except (OSError, NotImplementedError):
                receiver.close()
                return False
            self._socket = receiver
            return True
        return False

    def _address(self, name: str) -> str:
        path = str(self._folder / name)
        if len(path.encode()) > _PATH_LIMIT:
            return f"/proc/self/fd/{self._handle}/{name}"
        return path

    def send(self, topics: Sequence[Topic]) -> None:
        peers = self._listen()
        if not peers or self._socket is None:
            return
        payload = b"".join(map(topic_digest, topics))
        for start in range(0, len(payload), DATAGRAM_BYTES):
            for peer in tuple(peers):
                try:
                    self._socket.sendto(payload[start : start + DATAGRAM_BYTES], self._address(peer))
                except OSError as error:
                    if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                        self._bury(peer)

    def _listen(self) -> list[str]:
        """Return the sockets of the other processes. The folder is read again only after it changed."""
        if self._handle is None:
            return []
        changed_at = os.fstat(self._handle).st_mtime_ns
        if changed_at != self._changed_at:
            with contextlib.suppress(OSError):  # the folder was removed, so there are no receivers
                self._peers = [place.name for place in self._folder.iterdir() if place.name != self._name]
            # A folder that changed just now may change again within the same clock tick.
            settled = abs(time.time_ns() - changed_at) > SETTLED_NANOSECONDS
            self._changed_at = changed_at if settled else -1
        return self._peers

    def _bury(self, peer: str) -> None:
        """Remove the socket of a process that died."""
        self._peers = [name for name in self._peers if name != peer]
        with contextlib.suppress(OSError):
            (self._folder / peer).unlink()

    def _receive(self) -> None:
        assert self._socket is not None
        digests: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            for _ in range(100):
                data = self._socket.recv(DATAGRAM_BYTES)
                digests += [data[start : start + DIGEST_BYTES] for start in range(0, len(data), DIGEST_BYTES)]
        self._received(digests)

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._socket is not None:
            loop.remove_reader(self._socket.fileno())
            self._socket.close()
            with contextlib.suppress(OSError):
                (self._folder / self._name).unlink()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


# ----------------------------------------------------------------------------------------------------------------- poll


POLL_SECONDS = 0.25
REST = 50  # pause after a poll, as a multiple of its duration: at most 2 % of a core
FORGOTTEN = 1000  # logs that are still compared although they are no longer watched


class Poll:
    """Polls the file in its own thread with its own connection, and wakes the watches.

    While `PRAGMA data_version` stays the same, no process has committed, and nothing else is read. Otherwise one
    statement compares the heads of all watched logs, which a temporary table keeps, with those in the file. When a
    worker's process has died, the poll wakes the watches of all queues: the next claim ends the worker's lease.
    """

    def __init__(self, connect: Connect, path: str, board: Board, locks: WorkerLocks, also: Callable[[], None]) -> None:
        self._locks = locks
        self._connect = connect
        self._path = path
        self._board = board
        self._also = also
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keelbolt-poll")
        self._connection: SqliteConnection | None = None
        self._version = -1
        self._queues: dict[Topic, None] = {}
        self._compared = 0  # number of compared topics; 0: none yet, or after an error
        self._task = asyncio.get_running_loop().create_task(self._run(), name="keelbolt-poll")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        board, took = self._board, 0.0
        while True:
            await asyncio.sleep(max(POLL_SECONDS, REST * took))
            self._also()
            if not len(board):
                continue
            began = time.perf_counter()
            again = self._compared > 2 * len(board) + FORGOTTEN or self._compared == 0
            fresh = board.fresh()
            try:
                topics = board.topics() if again else fresh
                board.wake(await loop.run_in_executor(self._thread, partial(self._look, topics, again=again)))
            except (sqlite3.Error, OSError):  # OSError: no file descriptor is left
                self._compared = 0  # retried at the next poll, from the start
            took = time.perf_counter() - began

    def _look(self, topics: Sequence[Topic], *, again: bool) -> list[Topic]:
        """Add ``topics`` (with ``again``, replace all), and return all watched topics that changed."""
        if self._connection is None:
            self._connection = self._connect(self._path)
            self._connection.execute("PRAGMA temp_store = MEMORY")
        connection = self._connection
        changed: list[Topic] = []
        if again:
            connection.execute(SQL["watch_none"])
            connection.execute(SQL["forget_watched"])
            self._queues.clear()
            self._compared = 0
        for topic in topics:
            if isinstance(topic, LogTopic):
                connection.execute(SQL["watch_log"], topic)
            else:
                self._queues[topic] = None
        self._compared += len(topics)
        seen = only(connection.execute("PRAGMA data_version").fetchone())
        if seen != self._version:
            rows = connection.execute(SQL["changed_heads"]).fetchall()
            connection.executemany(SQL["set_watched"], rows)
            changed += [LogTopic(*row[1:]) for row in rows]
        if seen != self._version or (self._queues and self._locks.dead().workers):
            changed += self._queues
        self._version = seen
        return changed

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await asyncio.to_thread(self._thread.shutdown)
        if self._connection is not None:
            self._connection.close()
