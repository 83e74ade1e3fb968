"""Spools are first in, first out; spools in a directory survive their process."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from keelbolt.errors import InvalidState, StorageFull
from keelbolt.kernel import Append, Delete, Draft, FieldIn, Head, Put
from keelbolt.state.engine.spool import FileSpool, MemorySpool, WriteSpool, dump_write, load_write
from keelbolt.state.engine.writes import StateWrite


def write(number: int = 1) -> StateWrite:
    operations = (
        FieldIn("c", "k", "hash", ("x",)),
        Put("c", f"key-{number}", b"\0\xff", {"n": number}, 60.0),
        Append("l", "s", (Draft("kind", b"data", "once"), Draft("kind", b"more"))),
        Delete("c", "gone"),
    )
    return StateWrite("partition", "save_task", operations, 100, trace_id="trace", number=number, spooled_at=12.5)


def keys(spool: WriteSpool) -> list[str]:
    found = []
    while (first := spool.first()) is not None:
        found.append(first.operations[1].key)  # type: ignore[union-attr]
        spool.drop_first()
    return found


def test_a_write_comes_back_from_its_line() -> None:
    back = load_write(dump_write(write()))
    assert (back.partition, back.method, back.trace_id, back.spooled_at, back.operations) == (
        "partition",
        "save_task",
        "trace",
        12.5,
        write().operations,
    )
    with pytest.raises(InvalidState, match="a Head can't be stored in a spool"):
        dump_write(StateWrite("p", "m", (Head("l", "s", 1),), 0))


def test_first_in_first_out(tmp_path: Path) -> None:
    for spool in (MemorySpool(), FileSpool(tmp_path)):
        for number in range(3):
            spool.append(write(number))
        assert len(spool) == 3
        assert keys(spool) == ["key-0", "key-1", "key-2"]
        spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_spool_raises(tmp_path: Path) -> None:
    for spool in (MemorySpool(250), FileSpool(tmp_path, 800)):
        spool.append(write())
        spool.append(write())
        with pytest.raises(StorageFull):
            spool.append(write())
        keys(spool)
        spool.append(write())
        spool.close()


def test_files_of_dead_processes_are_replayed_first(tmp_path: Path) -> None:
    living, dead = FileSpool(tmp_path), FileSpool(tmp_path)
    living.append(write(1))
    dead.append(write(2))
    dead.close()
    heir = FileSpool(tmp_path)
    heir.append(write(3))
    assert keys(heir) == ["key-2", "key-3"]
    heir.close()
    assert len(list(tmp_path.iterdir())) == 1
    living.close()
    assert keys(FileSpool(tmp_path)) == ["key-1"]
    (tmp_path / "empty.spool").write_bytes(b"half a li")
    assert len(FileSpool(tmp_path)) == 0
    assert list(tmp_path.iterdir()) == []


def test_replayed_writes_are_not_replayed_again(tmp_path: Path) -> None:
    """The process, or the one that took over its file, is killed during the replay."""
    dead = FileSpool(tmp_path)
    for number in range(4):
        dead.append(write(number))
    dead.drop_first()
    dead.append(write(4))
    dead.close()
    heir = FileSpool(tmp_path)
    assert len(heir) == 4
    heir.drop_first()
    heir.close()
    last = FileSpool(tmp_path)
    assert keys(last) == ["key-2", "key-3", "key-4"]
    assert list(tmp_path.iterdir()) == []


def test_an_incomplete_line_does_not_affect_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up in the middle of a line, and has space again later."""
    spool = FileSpool(tmp_path)
    spool.append(write(1))
    whole = os.pwrite

    def half(file: int, data: bytes, place: int) -> int:
        whole(file, data[: len(data) // 2], place)
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", half)
        with pytest.raises(OSError, match="no space left"):
            spool.append(write(2))
    spool.append(write(3))
    spool.close()
    assert keys(FileSpool(tmp_path)) == ["key-1", "key-3"]


def test_a_damaged_line_is_reported_and_does_not_affect_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a line that a killed process wrote is missing; that save was never acknowledged."""
    spool = FileSpool(tmp_path)
    for number in range(1, 4):
        spool.append(write(number))
    spool.close()
    (file,) = tmp_path.iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"[1]\n" + b"\0" * 20 + b"\n" + lines[1] + lines[2][:-10])
    assert keys(FileSpool(tmp_path)) == ["key-1", "key-2"]
    assert [record.getMessage().partition(" is damaged")[1] for record in caplog.records] == [" is damaged"] * 2


def test_a_new_file_is_not_taken_for_one_of_a_dead_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process looks for files of dead processes after a file is created and before it is locked."""
    lock = fcntl.flock
    others: list[FileSpool | None] = []

    def slow(file: int, how: int) -> None:
        if not others:
            others.append(None)
            others.append(FileSpool(tmp_path))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    spool = FileSpool(tmp_path)
    spool.append(write(1))
    spool.close()
    assert keys(FileSpool(tmp_path)) == ["key-1"]


def test_the_name_of_a_new_file_survives_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is synced too, after the file got its name and before the save is acknowledged."""
    synced: list[list[str]] = []
    sync = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            synced.append([path.suffix for path in tmp_path.iterdir()])
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    spool = FileSpool(tmp_path)
    spool.append(write())
    assert synced == [[".spool"]]
    spool.close()


def test_a_replayed_write_leaves_the_spool_if_its_file_can_not_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the replay would end, and all later writes would stay in the spool."""
    dead = FileSpool(tmp_path)
    dead.append(write(1))
    dead.close()
    spool = FileSpool(tmp_path)
    spool.append(write(2))

    def fails(*_args: object, **_options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", fails)
        broken.setattr(os, "ftruncate", fails)
        broken.setattr(os, "pwrite", fails)
        assert keys(spool) == ["key-1", "key-2"]
    spool.append(write(3))
    assert keys(spool) == ["key-3"]
    spool.close()


def test_appending_raises_if_the_directory_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spool = FileSpool(tmp_path / "file" / "spool")
    with pytest.raises(OSError, match="Not a directory"):
        spool.append(write())
    assert len(spool) == 0
    spool.close()
