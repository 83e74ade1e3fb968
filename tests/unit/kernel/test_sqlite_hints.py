"""Notifications between processes: datagrams to all running processes; failed deliveries do no harm."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from keelbolt.kernel.hints import LogTopic, QueueTopic, topic_digest
from keelbolt.kernel.sqlite import hints
from keelbolt.kernel.sqlite.hints import DATAGRAM_BYTES, DIGEST_BYTES, Datagrams

TOPIC = LogTopic("p", "events", "a")


class Post:
    """Opens mailboxes in one folder, and records the topics that each one received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[tuple[Datagrams, asyncio.AbstractEventLoop]] = []

    def open(self) -> tuple[Datagrams, asyncio.Queue[list[bytes]]]:
        received: asyncio.Queue[list[bytes]] = asyncio.Queue()
        box = Datagrams(str(self.folder), received.put_nowait)
        loop = asyncio.get_running_loop()
        assert box.open(loop)
        self.opened.append((box, loop))
        return box, received

    def close(self) -> None:
        for box, loop in self.opened:
            box.close(loop)
        self.opened.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "file.db-hints"


@pytest.fixture
async def post(folder: Path) -> AsyncIterator[Post]:
    factory = Post(folder)
    yield factory
    factory.close()


async def next_digests(received: asyncio.Queue[list[bytes]]) -> list[bytes]:
    async with asyncio.timeout(10):
        return await received.get()


def sockets(folder: Path) -> list[str]:
    return sorted(place.name for place in folder.iterdir())


async def test_all_other_processes_are_notified(post: Post) -> None:
    sender, own = post.open()
    _, one = post.open()
    _, other = post.open()
    sender.send([TOPIC, QueueTopic("jobs")])
    expected = [topic_digest(TOPIC), topic_digest(QueueTopic("jobs"))]
    assert await next_digests(one) == await next_digests(other) == expected
    assert own.empty()


async def test_later_processes_are_found(post: Post) -> None:
    """The list of processes is read again when the folder has changed, also if processes start in quick succession."""
    sender, _ = post.open()
    for _ in range(5):
        sender.send([TOPIC])
        _, received = post.open()
        sender.send([TOPIC])
        assert await next_digests(received) == [topic_digest(TOPIC)]


async def test_a_settled_folder_is_not_read_again(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, _ = post.open()
    post.open()
    monkeypatch.setattr(hints, "SETTLED_NANOSECONDS", -1)
    sender.send([TOPIC])
    reads: list[Path] = []

    def note(folder: Path) -> Iterator[Path]:
        reads.append(folder)
        return iter(())

    monkeypatch.setattr(Path, "iterdir", note)
    sender.send([TOPIC])
    assert reads == []
    sender._changed_at = -1  # as if it had changed
    sender.send([TOPIC])
    assert len(reads) == 1


async def test_many_topics_go_in_several_datagrams(post: Post) -> None:
    sender, _ = post.open()
    _, received = post.open()
    topics = [QueueTopic(f"q{number}") for number in range(3 * DATAGRAM_BYTES // DIGEST_BYTES)]
    sender.send(topics)
    digests: list[bytes] = []
    while len(digests) < len(topics):
        digests += await next_digests(received)
    assert digests == [topic_digest(topic) for topic in topics]


async def test_a_long_path_works(tmp_path: Path) -> None:
    """The name of a UNIX socket is limited to 108 bytes."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    factory = Post(deep / "file.db-hints")
    try:
        sender, _ = factory.open()
        _, received = factory.open()
        assert len(sockets(factory.folder)) == 2
        sender.send([TOPIC])
        assert await next_digests(received) == [topic_digest(TOPIC)]
    finally:
        factory.close()
    assert sockets(factory.folder) == []


async def test_the_socket_of_a_dead_process_is_removed(post: Post, folder: Path) -> None:
    sender, _ = post.open()
    _, received = post.open()
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(f"/proc/self/fd/{sender._handle}/dead" if len(str(folder)) > 90 else str(folder / "dead"))
    dead.close()  # its socket file remains
    assert "dead" in sockets(folder)
    sender.send([TOPIC])
    assert "dead" not in sockets(folder)
    assert len(sockets(folder)) == 2
    assert await next_digests(received) == [topic_digest(TOPIC)]


async def test_a_full_receiver_does_not_block_the_sender(post: Post) -> None:
    """Datagrams that can't be delivered at once are dropped; the receiver stays in the list."""
    sender, _ = post.open()
    _, slow = post.open()
    for _ in range(5000):  # the loop does not run, so no datagram is received
        sender.send([TOPIC])
    count = len(await next_digests(slow))
    while not slow.empty():
        count += len(slow.get_nowait())
    assert 0 < count < 5000
    sender.send([QueueTopic("jobs")])
    while topic_digest(QueueTopic("jobs")) not in await next_digests(slow):
        pass


async def test_a_removed_folder_raises_no_error(post: Post, folder: Path) -> None:
    """The sender is the writer, which must never fail because of a notification."""
    sender, _ = post.open()
    post.open()
    sender.send([TOPIC])
    shutil.rmtree(folder)
    sender.send([TOPIC])
    sender.send([TOPIC])
    post.close()
    assert not folder.exists()


async def test_invalid_datagrams_are_ignored(post: Post) -> None:
    box, received = post.open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"odd", box._address(box._name))
    assert await next_digests(received) == [b"odd"]


async def test_without_a_folder_there_are_no_notifications(tmp_path: Path) -> None:
    box = Datagrams(str(tmp_path / "none" / "hints"), lambda _digests: None)
    loop = asyncio.get_running_loop()
    assert not box.open(loop)
    box.send([TOPIC])
    box.close(loop)
    assert list(tmp_path.iterdir()) == []


async def test_closing_leaves_nothing_open(folder: Path) -> None:
    numbers = Path("/proc/self/fd")
    before = len(list(numbers.iterdir())) if numbers.exists() else 0
    factory = Post(folder)
    for _ in range(3):
        factory.open()
    assert len(sockets(folder)) == 3
    assert all(name.startswith(f"{os.getpid()}-") for name in sockets(folder))
    factory.close()
    assert sockets(folder) == []
    assert (len(list(numbers.iterdir())) if numbers.exists() else 0) == before
