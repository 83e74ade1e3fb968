"""Files of tasks over HTTP: ranges, browser headers, and access."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from starlette.types import Message, Scope

from keelbolt.kernel import BlobReader, open_storage
from keelbolt.kernel.blobs import CHUNK_BYTES
from keelbolt.server import A2AServer
from keelbolt.server.operations import send_file
from keelbolt.tasks import TaskContext
from keelbolt.tasks.files import TaskFile
from tests.integration.server import actor
from tests.integration.server.asgi import Reply, ask, call
from tests.integration.server.people import authenticator, bearer

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONTENT = b"0123456789"


async def keeps(ctx: TaskContext) -> None:
    for name, content in (("full", CONTENT), ("empty", b"")):
        file = await ctx.keep_file(content, media_type="text/html", filename='a"b\r\n.html')
        await ctx.emit_artifact(artifact_id=name, file_url=file.path)
    await ctx.complete()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[A2AServer]:
    async with A2AServer(worker=keeps, agent_card=actor.agent().agent_card, auth=authenticator()) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def paths(server: A2AServer) -> list[str]:
    """A file with content, and an empty one."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "keep"}]}
    headers = [("a2a-version", "1.0"), *bearer("alice")]
    reply = await call(server.app, "SendMessage", {"message": message}, headers=headers)
    return [urlsplit(artifact["parts"][0]["url"]).path for artifact in reply.json["result"]["task"]["artifacts"]]


async def get(server: A2AServer, path: str, who: str = "alice", **headers: str) -> Reply:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return await ask(server.app, "GET", path, headers=[*bearer(who), *named])


@pytest.mark.parametrize(
    ("asked", "status", "content", "content_range"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=7-99", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, CONTENT, "bytes 0-9/10"),
        ("bytes=-0", 416, b"{}", "bytes */10"),
        ("bytes=10-", 416, b"{}", "bytes */10"),
        ("bytes=0-1,3-4", 200, CONTENT, None),
        ("lines=1-2", 200, CONTENT, None),
    ],
)
async def test_ranges(
    server: A2AServer, paths: list[str], asked: str, status: int, content: bytes, content_range: str | None
) -> None:
    reply = await get(server, paths[0], range=asked)
    assert (reply.status, reply.body, reply.header("content-range")) == (status, content, content_range)
    assert reply.header("content-length") == str(len(content))
    empty = await get(server, paths[1], range=asked)
    assert (empty.status, empty.body, empty.header("content-range")) == (200, b"", None)


async def test_a_browser_saves_the_file_and_revalidates_it(server: A2AServer, paths: list[str]) -> None:
    reply = await get(server, paths[0])
    assert reply.header("content-disposition") == "attachment; filename*=UTF-8''a%22b%0D%0A.html"
    assert reply.header("content-security-policy") == "sandbox"
    assert reply.header("x-content-type-options") == "nosniff"
    assert reply.header("cross-origin-resource-policy") == "same-origin"
    assert reply.header("cache-control") == "private, no-cache"
    etag = reply.header("etag") or ""
    assert (await get(server, paths[0], if_none_match=f'"x", W/{etag}')).status == 304
    other, none = [await get(server, path, "bob", if_none_match=etag) for path in (paths[0], paths[0][:-1] + "_")]
    assert other.status == 404
    assert other.masked() == none.masked()


async def test_sending_stops_when_the_client_disconnects() -> None:
    """A server silently drops data for a closed connection."""
    sent: list[Message] = []
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if message.get("body"):
            left.set()
            await asyncio.sleep(0)

    scope: Scope = {"headers": []}
    async with open_storage("memory:") as kernel:
        blob = await kernel.stage_blob("p", bytes(5 * CHUNK_BYTES))
        reader: BlobReader = await kernel.open_blob("p", blob.digest)
        await send_file(scope, receive, send, TaskFile("t", blob.digest, blob.size), reader)
    assert len(sent) < 4
