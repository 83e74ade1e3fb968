"""Notifications between the processes on one file: a datagram to the socket of each, in a folder next to the file.

Datagrams that can't be delivered at once are dropped; the safety poll finds the change.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from keelbolt.kernel.hints import Topic, topic_digest
from keelbolt.kernel.ids import new_id

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
