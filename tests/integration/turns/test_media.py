"""Files of A2A messages become media of turns, and media of the agent's messages become artifact parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from keelbolt.errors import AddressNotAllowed
from keelbolt.protocol.types import Part, TaskState
from keelbolt.turns import DispatchContext, DownloadRules, Media, Resolvers, durable_storage
from keelbolt.turns.durable.readers import URL_TAG, RemoteMediaReader, StoredMediaReader
from keelbolt.turns.in_memory import InMemoryMediaReader
from keelbolt.turns.relay import INLINE_BYTES, METADATA
from tests.integration.outbound.test_download import Files, answer, serving
from tests.integration.tasks.stage import Stage
from tests.integration.turns.stage import message as stored
from tests.integration.turns.test_worker import ALICE, agent

PNG = b"\x89PNG"
LARGE = bytes(range(256)) * (INLINE_BYTES // 256 + 1)


@pytest.fixture
async def stage(url: str) -> AsyncIterator[Stage]:
    async with Stage(url) as stage:
        yield stage


@pytest.fixture
async def memory() -> AsyncIterator[Stage]:
    async with Stage("memory:") as stage:
        yield stage


@pytest.fixture
async def files() -> AsyncIterator[Files]:
    async with serving() as files:
        yield files


async def test_inbound_bytes_are_media(stage: Stage) -> None:
    """Small files are in memory, larger ones in blobs; a later turn can read both."""
    found: list[list[bytes]] = []

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        (received,) = ctx.incoming
        if not received.attachments:
            earlier = [media for message in ctx.turn_messages for media in message.attachments]
            found.append([await media.as_bytes() for media in earlier])
        else:
            small, large = received.attachments
            assert str(received.content) == 'look\n{"a": 1}'
            assert (small.kind, small.mime_type, small.filename) == ("image", "image/png", "cat.png")
            assert (large.kind, large.mime_type, large.filename) == ("document", "application/octet-stream", "file")
            assert {small.trust_tier, large.trust_tier} == {"third-party-private"}
            assert isinstance(small.reader, InMemoryMediaReader)
            assert isinstance(large.reader, StoredMediaReader)
            found.append([await small.as_bytes(), await large.as_bytes()])
        ctx.ack()

    one = await agent(stage, execute)
    parts = [
        Part(text="look"),
        Part(data={"a": 1}),
        Part(raw=PNG, media_type="image/png", filename="cat.png"),
        Part(raw=LARGE),
    ]
    task = await one.say(parts=parts, context_id="c")
    assert task.status.state == TaskState.completed
    assert (await one.say("again", context_id="c")).status.state == TaskState.completed
    assert found == [[PNG, LARGE]] * 2


async def test_a_file_at_a_url_is_downloaded_when_it_is_read(stage: Stage, files: Files) -> None:
    """Receiving and storing the file send no request. The URL is stored."""
    files.answers["/papers/a%20b.pdf"] = answer(b"%PDF")
    asked: list[int] = []

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        (media,) = [media for message in ctx.turn_messages for media in message.attachments]
        assert (media.filename, media.source) == ("a b.pdf", files.url("/papers/a%20b.pdf"))
        assert await media.byte_length() is None
        asked.append(len(files.asked))
        assert await media.as_bytes() == b"%PDF"
        ctx.ack()

    one = await agent(stage, execute, storing={"remote_media": DownloadRules(loopback=True)})
    parts = [Part(url=files.url("/papers/a%20b.pdf"), media_type="application/pdf")]
    assert (await one.say(parts=parts, context_id="c")).status.state == TaskState.completed
    assert (await one.say("again", context_id="c")).status.state == TaskState.completed
    assert asked == [0, 1]
    rows = [row async for row in one.storage.export(ALICE.partition, thread="c")]
    reader = rows[0]["data"]["attachments"][0]["reader"]
    assert reader == {"tag": URL_TAG, "locator": {"url": files.url("/papers/a%20b.pdf")}}


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/", "https://169.254.169.254/", "file:///etc/passwd", "https://[", ""]
)
async def test_a_url_that_is_not_allowed_is_not_read(memory: Stage, url: str, files: Files) -> None:
    """The message is accepted, and reading the file raises. Loopback addresses are refused by default."""
    refused: list[str] = []

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        for media in ctx.incoming[0].attachments:
            with pytest.raises(AddressNotAllowed):
                await media.as_bytes()
            refused.append(media.filename)
        ctx.ack()

    one = await agent(memory, execute)
    parts = [Part(url=url), Part(url=files.url("/"))]
    assert (await one.say(parts=parts)).status.state == TaskState.completed
    assert len(refused) == 2
    assert files.asked == []


async def test_a_custom_resolver_reads_urls() -> None:
    """An agent can register its own resolver for URLs; the default rules do not replace it."""
    resolvers = Resolvers()
    resolvers.media(URL_TAG, lambda locator: InMemoryMediaReader(str(locator["url"]).encode()))
    async with durable_storage("memory:", resolvers=resolvers) as storage:
        reader = storage.media_at("s3://bucket/key")
        assert [piece async for piece in reader.stream()] == [b"s3://bucket/key"]
    async with durable_storage("memory:") as storage:
        assert isinstance(storage.media_at("https://example.com/"), RemoteMediaReader)


async def test_attachments_of_the_agent_are_artifacts(stage: Stage) -> None:
    """Small attachments contain their bytes, large ones the path of a file of the task."""

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        media = [
            Media.tool_generated(kind="image", mime_type="image/png", filename=name, reader=InMemoryMediaReader(data))
            for name, data in (("small.png", PNG), ("large.png", LARGE))
        ]
        await ctx.store_message(stored("m", "look", role="assistant", attachments=media))
        ctx.ack()

    one = await agent(stage, execute)
    task = await one.say()
    text, small, big = task.artifacts
    assert text.parts[0].text == "look"
    part = small.parts[0]
    assert (part.raw, part.media_type, part.filename) == (PNG, "image/png", "small.png")
    assert big.parts[0].url
    assert (big.metadata or {})[METADATA]["kind"] == "media"


async def test_a_file_that_was_sent_is_sent_back(stage: Stage) -> None:
    """The agent attaches the received file to its own message, without reading it."""

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_message(stored("m", "here", role="assistant", attachments=ctx.incoming[0].attachments))
        ctx.ack()

    one = await agent(stage, execute)
    task = await one.say(parts=[Part(raw=PNG, media_type="image/png"), Part(raw=LARGE, filename="large")])
    _, small, large = task.artifacts
    assert small.parts[0].raw == PNG
    assert large.parts[0].url
