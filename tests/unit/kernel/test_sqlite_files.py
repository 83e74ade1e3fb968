"""The location of the file, the lock between writers, and the reserve."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from keelbolt.errors import (
    CannotOpen,
    NetworkFilesystem,
    NotKeelbolt,
    StorageBusy,
    StorageFull,
    StorageMissing,
    StorageReadOnly,
)
from keelbolt.kernel.sqlite import files
from keelbolt.kernel.sqlite.files import Reserve, WriteLock, check_place, filesystem

MOUNTS = """\
overlay / overlay rw,relatime 0 0
proc /proc proc rw 0 0
server:/export {root}/net nfs4 rw,vers=4.2 0 0
/dev/sda1 {root}/net/local ext4 rw 0 0
//server/share {root}/with\\040space\\011tab cifs rw 0 0
tmpfs {root}/over tmpfs rw 0 0
server:/home {root}/over nfs rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    path = tmp_path / "mounts"
    path.write_text(MOUNTS.format(root=tmp_path))
    for name in ("net/local/deep", "network", "with space\ttab", "over"):
        (tmp_path / name).mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        (".", "overlay"),
        ("net", "nfs4"),
        ("net/local", "ext4"),
        ("net/local/deep", "ext4"),
        ("network", "overlay"),  # not below "net"
        ("with space\ttab", "cifs"),
        ("over", "nfs"),  # the later mount covers the earlier one
        ("net/../network", "overlay"),
    ],
)
def test_the_longest_mount_determines_the_filesystem(tmp_path: Path, mounts: Path, folder: str, kind: str) -> None:
    assert filesystem(tmp_path / folder, mounts) == kind


def test_links_are_followed(tmp_path: Path, mounts: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "net")
    assert filesystem(tmp_path / "link", mounts) == "nfs4"


def test_without_a_list_of_mounts_the_filesystem_is_unknown(tmp_path: Path) -> None:
    assert filesystem(tmp_path, tmp_path / "none") == ""


@pytest.mark.parametrize("kind", sorted(files._NETWORK))
def test_a_network_filesystem_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(files, "filesystem", lambda _folder: kind)
    with pytest.raises(NetworkFilesystem, match="use a local disk") as refusal:
        check_place(tmp_path / "file.db")
    assert kind in str(refusal.value)
    assert str(tmp_path) not in str(refusal.value)


def test_good_places_pass(tmp_path: Path) -> None:
    check_place(tmp_path / "new.db")
    (tmp_path / "old.db").touch()
    check_place(tmp_path / "old.db")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("none/file.db", StorageMissing, "create it first"),
        ("a-file/file.db", StorageMissing, "create it first"),
        ("a-folder", StorageMissing, "is a directory; name a file in it"),
        ("a-fifo", NotKeelbolt, "not a regular file"),
        ("x" * 300, StorageMissing, "File name too long"),
    ],
)
def test_bad_places_are_refused(tmp_path: Path, name: str, kind: type[CannotOpen], words: str) -> None:
    (tmp_path / "a-folder").mkdir()
    (tmp_path / "a-file").touch()
    os.mkfifo(tmp_path / "a-fifo")
    with pytest.raises(kind, match=words) as refusal:
        check_place(tmp_path / name)
    assert str(tmp_path) not in str(refusal.value)


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.db"
    path.touch()
    for closed, words in ((tmp_path, "the directory of 'file.db'"), (path, "'file.db' can't be written")):
        monkeypatch.setattr(os, "access", lambda asked, _mode, closed=closed: asked != closed)
        with pytest.raises(StorageReadOnly, match=f"{words}.*change the permissions or choose another place"):
            check_place(path)


# ------------------------------------------------------------------------------------------------------------- lock

HOLDER = """
import sys
from keelbolt.kernel.sqlite.files import WriteLock
lock = WriteLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
print("letting go", flush=True)
lock.release()
sys.stdin.readline()
"""


def test_two_processes_never_hold_it_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "file.db")
    command = [sys.executable, "-c", HOLDER, path]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
        closing(WriteLock(path)) as lock,
    ):
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StorageBusy):
            lock.acquire(seconds=0.05)
        taken = threading.Event()

        def wait() -> None:
            lock.acquire()
            taken.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not taken.wait(0.1)
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "letting go\n"
        waiting.join(30)
        assert taken.is_set()
        lock.release()
        other.stdin.write("\n")


def test_it_is_free_again_when_its_holder_is_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "file.db")
    command = [sys.executable, "-c", HOLDER, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        other.kill()
    with closing(WriteLock(path)) as lock:
        lock.acquire(seconds=10)
        lock.release()


def test_two_locks_of_one_process_exclude_each_other_too(tmp_path: Path) -> None:
    path = str(tmp_path / "file.db")
    with closing(WriteLock(path)) as one, closing(WriteLock(path)) as other:
        one.acquire()
        with pytest.raises(StorageBusy):
            other.acquire(seconds=0.02)
        one.release()
        other.acquire(seconds=0.02)
        other.release()


def open_files() -> int:
    """Return the number of open files of this process; 0 if unknown."""
    numbers = Path("/proc/self/fd")
    return len(list(numbers.iterdir())) if numbers.exists() else 0


@pytest.mark.parametrize("name", ["file.db-lock", "file.db-turn"])
def test_a_lock_file_that_cannot_be_opened_is_a_typed_error(tmp_path: Path, name: str) -> None:
    before = open_files()
    (tmp_path / name).mkdir()
    with pytest.raises(StorageReadOnly, match=f"'{name}' can't be written.*run as one user") as refusal:
        WriteLock(str(tmp_path / "file.db"))
    assert str(tmp_path) not in str(refusal.value)
    assert open_files() == before


def test_a_full_disk_at_the_lock_raises_storage_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StorageFull):
        WriteLock(str(tmp_path / "file.db"))


# ---------------------------------------------------------------------------------------------------------- reserve


def test_the_reserve_takes_up_space_and_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / "file.db-reserve"
    reserve = Reserve(str(path), 1 << 20)
    assert reserve.keep()
    assert path.stat().st_size == 1 << 20
    assert path.stat().st_blocks * 512 >= 1 << 20
    assert reserve.keep()
    assert not reserve.given_back()
    assert reserve.release()
    assert path.stat().st_size == 0
    assert not reserve.release()
    assert Reserve(str(path), 1 << 20).given_back()  # every process sees it
    assert reserve.room()  # there is room when the reserve could be allocated again
    assert path.stat().st_size == 1 << 20
    assert not reserve.given_back()


def test_the_reserve_never_takes_the_last_space(tmp_path: Path) -> None:
    path = tmp_path / "file.db-reserve"
    state = os.statvfs(tmp_path)
    reserve = Reserve(str(path), state.f_bavail * state.f_frsize)
    assert not reserve.keep()
    assert not path.exists()
    path.touch()
    assert not reserve.room()
    assert reserve.given_back()


def test_a_reserve_without_enough_space_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, _start: int, size: int) -> None:
        os.pwrite(file, b"half", 0)
        raise OSError(28, f"No space left for {size}")

    monkeypatch.setattr(os, "posix_fallocate", full)
    path = tmp_path / "file.db-reserve"
    assert not Reserve(str(path), 1 << 20).keep()
    assert not path.exists()


def test_a_reserve_without_its_folder_is_no_error(tmp_path: Path) -> None:
    reserve = Reserve(str(tmp_path / "none" / "reserve"), 10)
    assert not reserve.room()
    assert not reserve.keep()
    reserve.release()


def test_without_fallocate_the_reserve_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    path = tmp_path / "reserve"
    assert Reserve(str(path), 3 * (1 << 19)).keep()
    assert path.stat().st_size == 3 * (1 << 19)
