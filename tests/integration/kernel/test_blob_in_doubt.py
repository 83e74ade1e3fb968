"""A blob whose upload ended with an unknown result stays whole for other holders of the same bytes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import BlobNotFound, CommitInDoubt, StorageUnavailable
from keelbolt.kernel import Attach, Blob, open_storage
from keelbolt.kernel.blobs import CHUNK_BYTES
from keelbolt.testing.postgres import own_postgres
from keelbolt.testing.valkey import OwnValkey, own_valkey


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    match request.param:
        case "memory":
            yield "memory:"
        case "sqlite":
            yield f"sqlite:///{tmp_path}/file.db"
        case "postgres":
            with own_postgres() as postgres:
                yield postgres.create_database()
        case _:
            with own_valkey() as valkey:
                yield valkey.create_database()


async def test_another_caller_stores_the_same_bytes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = secrets.token_bytes(300_000)
    async with open_storage(url) as kernel:
        done = kernel._stage_done  # type: ignore[attr-defined]

        async def unknown(*args: Any) -> bool:
            await done(*args)
            monkeypatch.undo()
            other = await kernel.stage_blob("p", data)
            await kernel.commit("p", Attach(other.digest, "holder"))
            raise CommitInDoubt("the reply was lost")

        monkeypatch.setattr(kernel, "_stage_done", unknown)
        with pytest.raises(CommitInDoubt):
            await kernel.stage_blob("p", data)
        digest = (await kernel.stage_blob("p", data)).digest
        assert await (await kernel.open_blob("p", digest)).read() == data
        assert [problem async for problem in kernel.check()] == []


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_an_upload_is_swept_before_its_end(url: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that takes longer than the grace period of its parts is not acknowledged."""
    data = secrets.token_bytes(2 * CHUNK_BYTES)
    async with open_storage(url) as kernel:
        uploads: list[int] = []
        begin = kernel._stage  # type: ignore[attr-defined]

        async def begun(*args: Any) -> int:
            uploads.append(await begin(*args))
            return uploads[-1]

        async def source() -> AsyncIterator[bytes]:
            for at in range(3):
                if at == number:
                    await kernel._stage_undo("p", uploads[-1])  # type: ignore[attr-defined]
                if at < 2:
                    yield data[at * CHUNK_BYTES : (at + 1) * CHUNK_BYTES]

        monkeypatch.setattr(kernel, "_stage", begun)
        with pytest.raises(StorageUnavailable, match="Store it again"):
            await kernel.stage_blob("p", source())
        assert [problem async for problem in kernel.check()] == []
        with pytest.raises(BlobNotFound):
            await kernel.open_blob("p", hashlib.sha256(data).hexdigest())
        number = 3
        blob = await kernel.stage_blob("p", source())
        assert await (await kernel.open_blob("p", blob.digest)).read() == data


async def test_the_end_of_an_upload_is_repeated(url: str) -> None:
    """An engine repeats the end of an upload if its reply was lost."""
    data = secrets.token_bytes(1000)
    async with open_storage(url) as kernel:
        upload = await kernel._stage("p", 60.0)  # type: ignore[attr-defined]
        await kernel._stage_chunk("p", upload, 0, data, hashlib.sha256(data).digest())  # type: ignore[attr-defined]
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        for _ in range(2 if url.startswith(("postgres", "redis")) else 1):
            assert await kernel._stage_done("p", upload, blob, 60.0)  # type: ignore[attr-defined]
        assert await (await kernel.open_blob("p", blob.digest)).read() == data
        assert [problem async for problem in kernel.check()] == []


async def test_valkey_lost_a_chunk_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks do not wait for replicas, so a failover can lose one."""
    data = secrets.token_bytes(600_000)
    with own_valkey() as server:
        url = server.create_database()
        async with open_storage(url) as kernel:
            done = kernel._stage_done  # type: ignore[attr-defined]

            async def lost(partition: str, upload: int, blob: Blob, keep_seconds: float) -> bool:
                _lose(server, url, f"u/{upload:016x}/1")
                return bool(await done(partition, upload, blob, keep_seconds))

            monkeypatch.setattr(kernel, "_stage_done", lost)
            with pytest.raises(StorageUnavailable, match="Store it again"):
                await kernel.stage_blob("p", data)
            monkeypatch.undo()
            assert [problem async for problem in kernel.check()] == []
            blob = await kernel.stage_blob("p", data)
            assert await (await kernel.open_blob("p", blob.digest)).read() == data


def _lose(server: OwnValkey, url: str, end: str) -> None:
    (key,) = (key for key in server.execute("KEYS", "*", url=url) if key.decode().endswith(end))
    assert server.execute("UNLINK", key, url=url) == 1
