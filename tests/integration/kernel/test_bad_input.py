"""Every bad input raises a typed error with advice, and leaves no partial writes.

The messages are for people: no traceback, no SQL, no path of this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import (
    BadCursor,
    BlobNotFound,
    CannotOpen,
    CommitInDoubt,
    CommitRefused,
    InvalidName,
    InvalidRequest,
    InvalidValue,
    KeelboltError,
    MissingExtra,
    NetworkFilesystem,
    NoIndex,
    NotDeclared,
    NotKeelbolt,
    SchemaMismatch,
    SchemaTooNew,
    StorageBroken,
    StorageBusy,
    StorageClosed,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageMissing,
    StorageReadOnly,
    TooLarge,
    UnknownScheme,
    WrittenTwice,
)
from keelbolt.kernel import (
    Absent,
    Append,
    Attach,
    Collection,
    Complete,
    Delete,
    Draft,
    Enqueue,
    Fence,
    FieldIn,
    Head,
    Index,
    Insert,
    Kernel,
    Patch,
    Present,
    Put,
    Query,
    Replace,
    Take,
    Version,
    open_storage,
)
from keelbolt.kernel.contract import MAX_VALUE_BYTES
from keelbolt.kernel.sqlite import files
from keelbolt.kernel.urls import migrate, pending_migrations

NOTES = Collection("note", {"state": str, "rank": int}, (Index("by_rank", (), "rank"),), counters=((),))
ENTRY = Draft("made", b"")

# Advice: an imperative, or the correct form.
ADVICE = re.compile(
    r"\b(use|choose|create|name|change|upgrade|declare|install|restore|run|make|put|merge|start|encode|pass|open|try|"
    r"must|needs?|expects?|is at most|at most|stage|no longer|takes|another worker|the field|write)\b",
    re.IGNORECASE,
)


def check_message(error: KeelboltError, *secrets: object) -> None:
    """Check that the message gives advice and leaks no secrets."""
    message = str(error)
    assert ADVICE.search(message), message
    assert len(message) < 400
    assert "Traceback" not in message
    assert not re.search(r"\b(SELECT|INSERT INTO|UPDATE|PRAGMA|BEGIN)\b", message), message
    assert not re.search(r"(^|[\s'\"(])/\w+/\w", message), message  # an absolute path
    assert "sqlite3." not in message
    assert not [secret for secret in secrets if str(secret) in message], message


async def refusal(url: Any, *, secrets: tuple[object, ...] = ()) -> KeelboltError:
    """Return the error of opening this URL."""
    with pytest.raises(KeelboltError) as caught:
        async with open_storage(url, declare=[NOTES]):
            pass
    check_message(caught.value, *secrets)
    return caught.value


# ------------------------------------------------------------------------------------------------------------ opening


@pytest.mark.parametrize("url", ["mysql://user:secret@host/db", "file.db", "", "sqlite://host/file.db", None, 7])
async def test_an_unknown_scheme(url: Any) -> None:
    assert isinstance(await refusal(url, secrets=("secret",)), UnknownScheme)


def test_a_missing_extra_says_how_to_install_it() -> None:
    error = MissingExtra("postgres", "asyncpg")
    check_message(error)
    assert str(error) == "asyncpg is not installed. Install it with: pip install 'keelbolt[postgres]'"


async def test_a_missing_directory(tmp_path: Path) -> None:
    error = await refusal(f"sqlite:///{tmp_path}/none/file.db", secrets=(tmp_path,))
    assert type(error) is StorageMissing
    assert "create it first" in str(error)
    assert list(tmp_path.iterdir()) == []


async def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    error = await refusal(f"sqlite:///{tmp_path}/folder", secrets=(tmp_path,))
    assert type(error) is StorageMissing
    assert "name a file in it" in str(error)
    assert list((tmp_path / "folder").iterdir()) == []


async def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert type(await refusal(f"sqlite:///{tmp_path}/file/file.db", secrets=(tmp_path,))) is StorageMissing


async def test_a_network_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\nfiler:/x {tmp_path} nfs4 rw 0 0\n")
    really = files.filesystem
    monkeypatch.setattr(files, "filesystem", lambda folder: really(folder, mounts))
    error = await refusal(f"sqlite:///{tmp_path}/file.db", secrets=(tmp_path, "filer"))
    assert type(error) is NetworkFilesystem
    assert [found.name for found in tmp_path.iterdir()] == ["mounts"]


# Root may write everywhere, so a child process switches to another user first.
STRANGER = """
import asyncio, json, os, sys, tempfile
from keelbolt.errors import KeelboltError
from keelbolt.kernel import open_storage
from keelbolt.kernel.sqlite import schema

async def attempt(url):
    try:
        async with open_storage(url):
            return ["opened", ""]
    except KeelboltError as error:
        return [type(error).__name__, str(error)]

# Load the migrations before the change of user: the other user may not be able to read them.
known = schema.migrations_of("keelbolt.kernel.sqlite")
schema.migrations_of = lambda package: known
with tempfile.TemporaryDirectory() as folder:
    assert asyncio.run(attempt(f"sqlite:///{folder}/file.db")) == ["opened", ""]
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
print(json.dumps(asyncio.run(attempt(sys.argv[1]))))
"""


def as_a_stranger(url: str) -> tuple[str, str]:
    ran = subprocess.run(
        [sys.executable, "-c", STRANGER, url], capture_output=True, text=True, check=False, cwd="/", timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    kind, message = json.loads(ran.stdout)
    return kind, message


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users can reach."""
    with tempfile.TemporaryDirectory(prefix="keelbolt-public-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "kind"),
    [
        (0o777, 0o666, "opened"),  # shows that the other cases fail for the right reason
        (0o555, 0o666, "StorageReadOnly"),
        (0o777, 0o444, "StorageReadOnly"),
        (0o777, 0o222, "StorageReadOnly"),
        (0o666, 0o666, "StorageReadOnly"),
        (0o555, None, "StorageReadOnly"),
        (0o777, None, "opened"),
    ],
)
def test_a_read_only_file_or_directory(public: Path, folder_mode: int, file_mode: int | None, kind: str) -> None:
    folder = public / "data"
    folder.mkdir()
    path = folder / "file.db"
    if file_mode is not None:
        migrate(f"sqlite:///{path}")
        for beside in folder.iterdir():
            if beside != path:
                beside.unlink()
        path.chmod(file_mode)
    folder.chmod(folder_mode)
    found, message = as_a_stranger(f"sqlite:///{path}")
    assert found == kind, message
    if kind != "opened":
        check_message(StorageReadOnly(message), public)
        assert "change the permissions or choose another place" in message
        folder.chmod(0o777)
        assert [found.name for found in folder.iterdir()] == (["file.db"] if file_mode is not None else [])


def test_lock_files_of_another_user(public: Path) -> None:
    """Other users can't use a file that root created and opened; the error states the reason."""
    folder = public / "data"
    folder.mkdir()
    folder.chmod(0o777)
    migrate(f"sqlite:///{folder}/file.db")
    (folder / "file.db").chmod(0o666)
    kind, message = as_a_stranger(f"sqlite:///{folder}/file.db")
    if os.getuid() == 0:
        assert kind == "StorageReadOnly"
        assert "must run as one user" in message
        check_message(StorageReadOnly(message), public)
    else:
        assert kind == "opened"


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (a)")
        connection.execute("INSERT INTO theirs VALUES ('kept')")


def numbered(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA application_id = 7")


def newer(path: Path) -> None:
    migrate(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO migration (number, name, checksum) VALUES (9999, 'future', 'x')")


def changed(path: Path) -> None:
    migrate(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE migration SET checksum = 'x'")


def truncated(path: Path) -> None:
    migrate(f"sqlite:///{path}")
    os.truncate(path, 5000)


def scrambled(path: Path) -> None:
    migrate(f"sqlite:///{path}")
    data = bytearray(path.read_bytes())
    data[100:4096] = random.Random(7).randbytes(3996)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("plant", "kind", "words"),
    [
        (foreign, NotKeelbolt, "choose another file"),
        (numbered, NotKeelbolt, "choose another file"),
        (lambda path: path.write_bytes(random.Random(1).randbytes(20_000)), StorageCorrupt, "choose another file"),
        (lambda path: path.write_text("Dear diary,\n" * 100), StorageCorrupt, "choose another file"),
        (lambda path: path.write_bytes(b"SQLite format 3\0"), StorageCorrupt, "choose another file"),
        (newer, SchemaTooNew, "upgrade this program"),
        (changed, SchemaMismatch, "use the program version that made it"),
        (truncated, StorageCorrupt, "restore it from a backup"),
        (scrambled, StorageCorrupt, "restore it from a backup"),
    ],
    ids=["foreign", "numbered", "random", "text", "header", "newer", "changed", "truncated", "scrambled"],
)
async def test_a_foreign_newer_or_damaged_file_is_refused(
    tmp_path: Path, plant: Callable[[Path], Any], kind: type[StorageError], words: str
) -> None:
    """Every way of opening refuses it, and neither the file nor its directory is changed."""
    path = tmp_path / "file.db"
    plant(path)
    for beside in tmp_path.iterdir():
        if beside != path:
            beside.unlink()
    before = path.read_bytes()
    error = await refusal(f"sqlite:///{path}", secrets=(tmp_path,))
    assert type(error) is kind
    assert words in str(error)
    for verb in (pending_migrations, migrate):
        with pytest.raises(kind):
            verb(f"sqlite:///{path}")
    assert [found.name for found in tmp_path.iterdir()] == ["file.db"]
    assert path.read_bytes() == before


async def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    path.touch()
    async with open_storage(f"sqlite:///{path}", declare=[NOTES]) as kernel:
        await kernel.commit("p", Put("note", "a", b"1"))
    async with open_storage(f"sqlite:///{path}", declare=[NOTES]) as kernel:
        assert await kernel.get("p", "note", "a") is not None


async def test_a_damaged_page_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    """The file opens, but its records were overwritten."""
    path = tmp_path / "file.db"
    async with open_storage(f"sqlite:///{path}", declare=[NOTES]) as kernel:
        for number in range(50):
            await kernel.commit("p", Put("note", f"key{number}", b"body %d " % number * 200))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"body 7 body 7", b"body 8 body 7"))
    async with open_storage(f"sqlite:///{path}", declare=[NOTES]) as kernel:
        with pytest.raises(StorageCorrupt) as caught:
            await kernel.get("p", "note", "key7")
        check_message(caught.value, tmp_path)
        assert await kernel.get("p", "note", "key8") is not None
        assert [problem.where async for problem in kernel.check()] == ["record note/key7"]


# -------------------------------------------------------------------------------------------------------------- use

Use = Callable[[Kernel], Awaitable[Any]]


async def commit(kernel: Kernel, *operations: Any) -> Any:
    return await kernel.commit("p", *operations)


WRONG: dict[str, tuple[type[KeelboltError], Use]] = {
    "a list as partition": (InvalidName, lambda k: k.get(["p"], "note", "a")),  # type: ignore[arg-type]
    "a number as key": (InvalidName, lambda k: k.get("p", "note", 7)),  # type: ignore[arg-type]
    "an empty key": (InvalidName, lambda k: commit(k, Put("note", "", b""))),
    "a key with NUL": (InvalidName, lambda k: commit(k, Put("note", "a\0b", b""))),
    "a key of 4,001 characters": (InvalidName, lambda k: commit(k, Put("note", "k" * 4001, b""))),
    "text as body": (InvalidValue, lambda k: commit(k, Put("note", "b", "text"))),  # type: ignore[arg-type]
    "a field of another type": (InvalidValue, lambda k: commit(k, Put("note", "b", b"", {"rank": "1"}))),
    "an undeclared field": (NotDeclared, lambda k: commit(k, Put("note", "b", b"", {"nope": 1}))),
    "an undeclared collection": (NotDeclared, lambda k: commit(k, Put("other", "b", b""))),
    "no operation": (InvalidRequest, commit),
    "something else": (InvalidValue, lambda k: commit(k, "Put")),
    "a key twice": (WrittenTwice, lambda k: commit(k, Put("note", "b", b""), Delete("note", "b"))),
    "an oversized body": (TooLarge, lambda k: commit(k, Put("note", "b", bytes(MAX_VALUE_BYTES + 1)))),
    "an oversized entry": (
        TooLarge,
        lambda k: commit(k, Put("note", "b", b""), Append("log", "b", (Draft("x", bytes(MAX_VALUE_BYTES + 1)),))),
    ),
    "an oversized commit": (
        TooLarge,
        lambda k: commit(k, *(Put("note", f"b{number}", bytes(MAX_VALUE_BYTES)) for number in range(5))),
    ),
    "a query without an index": (NoIndex, lambda k: k.find("p", Query("note", {"state": "open"}))),
    "a cursor that is none": (BadCursor, lambda k: k.find("p", Query("note", order="rank"), cursor="x")),
    "a limit of nothing": (InvalidValue, lambda k: k.find("p", Query("note", order="rank"), limit=0)),
    "a blob of nothing": (InvalidValue, lambda k: k.stage_blob("p", None)),  # type: ignore[arg-type]
    "an unknown blob": (BlobNotFound, lambda k: k.open_blob("p", "0" * 64)),
    # The data changed since it was read.
    "a stale version": (CommitRefused, lambda k: commit(k, Put("note", "b", b""), Version("note", "a", 1))),
    "a stale replace": (CommitRefused, lambda k: commit(k, Replace("note", "a", 1, b""), Put("note", "b", b""))),
    "a stale patch": (CommitRefused, lambda k: commit(k, Patch("note", "a", {"rank": 1}, 1), Put("note", "b", b""))),
    "a stale delete": (CommitRefused, lambda k: commit(k, Delete("note", "a", 1), Put("note", "b", b""))),
    "an insert over another": (CommitRefused, lambda k: commit(k, Insert("note", "a", b""), Put("note", "b", b""))),
    "a presence": (CommitRefused, lambda k: commit(k, Absent("note", "a"), Put("note", "b", b""))),
    "an absence": (CommitRefused, lambda k: commit(k, Take("note", "b"), Append("log", "b", (ENTRY,)))),
    "another field": (
        CommitRefused,
        lambda k: commit(k, FieldIn("note", "a", "state", ("done",)), Append("log", "b", (ENTRY,))),
    ),
    "another head": (CommitRefused, lambda k: commit(k, Head("log", "a", 7), Put("note", "b", b""))),
    "a stale fence": (CommitRefused, lambda k: commit(k, Fence("jobs", "a", 1), Put("note", "b", b""))),
    "a stale holder": (CommitRefused, lambda k: commit(k, Complete("jobs", "a", 1), Put("note", "b", b""))),
    "a held item": (CommitRefused, lambda k: commit(k, Enqueue("jobs", "a", worker="x"), Put("note", "b", b""))),
    "no presence": (CommitRefused, lambda k: commit(k, Present("note", "b"), Append("log", "b", (ENTRY,)))),
    "a blob that is not there": (CommitRefused, lambda k: commit(k, Attach("none", "me"), Put("note", "b", b""))),
}


async def seen(kernel: Kernel) -> Any:
    """Return all data that a reader can see."""
    stats = await kernel.stats()
    return (
        await kernel.get_many("p", "note", ["a", "b"]),
        (await kernel.find("p", Query("note", order="rank"))).records,
        await kernel.count("p", Query("note")),
        await kernel.log_state("p", "log", "a"),
        await kernel.log_state("p", "log", "b"),
        (await kernel.list_work("p", "jobs", state="held")).items[0].fence,
        (stats.records, stats.entries, stats.blobs, stats.work, stats.partitions),
    )


async def test_wrong_calls_are_refused_and_change_nothing(url: str, tmp_path: Path) -> None:
    async with open_storage(url, declare=[NOTES]) as kernel:
        await kernel.commit(
            "p", Put("note", "a", b"1", {"rank": 1}), Append("log", "a", (ENTRY,)), Enqueue("jobs", "a")
        )
        await kernel.commit("p", Put("note", "a", b"2", {"state": "open", "rank": 2}))
        (first,) = await kernel.claim("jobs", "w")
        await kernel.commit("p", first.release())
        (second,) = await kernel.claim("jobs", "w")
        assert second.fence > first.fence == 1
        before = await seen(kernel)
        for name, (kind, use) in WRONG.items():
            with pytest.raises(KeelboltError) as caught:
                await use(kernel)
            assert type(caught.value) is kind, name
            check_message(caught.value, tmp_path)
            assert await seen(kernel) == before, name
        assert (await kernel.health()).writes


async def test_a_refusal_says_what_is_stored(url: str) -> None:
    async with open_storage(url, declare=[NOTES]) as kernel:
        for _ in range(3):
            await kernel.commit("p", Put("note", "a", b""))
        with pytest.raises(CommitRefused) as caught:
            await kernel.commit("p", Replace("note", "a", 2, b""))
        error = caught.value
        assert (error.reason, error.check, error.found) == ("version", Replace("note", "a", 2, b""), 3)
        assert str(error) == (
            "refused: Replace of note/a expects version 2 but it is at 3; nothing of this commit was written"
        )


async def test_a_refused_call_does_not_affect_others(url: str) -> None:
    async with open_storage(url, declare=[NOTES]) as kernel:
        answers = await asyncio.gather(
            *(
                commit(kernel, Put("note", f"k{n}", b""), *([Version("note", "none", 1)] if n % 3 == 0 else []))
                for n in range(60)
            ),
            return_exceptions=True,
        )
        assert [isinstance(answer, CommitRefused) for answer in answers] == [n % 3 == 0 for n in range(60)]
        assert (await kernel.count("p", Query("note"))).value == 40


async def test_a_closed_storage(url: str, tmp_path: Path) -> None:
    async with open_storage(url, declare=[NOTES]) as kernel:
        await kernel.commit("p", Put("note", "a", b""))
    for use in (lambda: kernel.get("p", "note", "a"), lambda: commit(kernel, Put("note", "b", b"")), kernel.flush):
        with pytest.raises(StorageClosed) as caught:
            await use()
        check_message(caught.value, tmp_path)


def test_every_error_of_opening_has_advice_by_itself() -> None:
    """The docstring is the default message."""
    kinds: list[type[StorageError]] = [*CannotOpen.__subclasses__(), *InvalidRequest.__subclasses__()]
    kinds += [StorageClosed, StorageCorrupt, StorageBusy, StorageFull, StorageBroken, CommitInDoubt]
    assert len(kinds) >= 20
    for kind in kinds:
        if kind not in (SchemaMismatch, InvalidName, InvalidValue):  # always raised with a message of their own
            check_message(kind())
