"""Cards are fetched once for all who wait, kept, asked for again by their ETag, and used on while the agent is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import httpx2
import pytest

from keelbolt.client import A2AClient, A2AConnectionError, A2ADiscoveryError, AgentCardFetcher
from tests.integration.client.bad_agent import CARD_PATH, Asked, BadAgent, bad_agent, http, result, task


@pytest.fixture
async def agent() -> AsyncIterator[BadAgent]:
    async with bad_agent() as agent:
        yield agent


async def test_a_fetcher_of_its_own(agent: BadAgent) -> None:
    now = 0.0
    async with httpx2.AsyncClient() as client:
        fetcher = AgentCardFetcher(client, agent.url, ttl=10.0, clock=lambda: now)
        assert fetcher.known is None
        cards = await asyncio.gather(*(fetcher.fetch() for _ in range(20)))
        assert all(card is cards[0] for card in cards)
        assert len(agent.asked) == 1
        now = 9.9
        await fetcher.fetch()
        assert len(agent.asked) == 1
        now = 10.0
        assert await fetcher.fetch() is not cards[0]  # without an ETag it is sent again
        assert len(agent.asked) == 2
        await client.get(agent.url)  # a client that was passed in stays open


async def test_an_etag_spares_the_card(agent: BadAgent) -> None:
    async def card(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.headers.get("if-none-match") == '"1"':
            writer.write(b"HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n")
        else:
            writer.write(agent.card().replace(b"connection: close", b'etag: "1"\r\nconnection: close', 1))
        await writer.drain()

    agent.answers[CARD_PATH] = card
    async with A2AClient(agent.url) as client:
        first = await client.discover()
        assert await client.discover(refresh=True) is first
    assert [each.headers.get("if-none-match") for each in agent.asked] == [None, '"1"']


async def test_an_old_card_is_better_than_none(agent: BadAgent, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    agent.calls.append(result(task()["task"], 1))
    async with A2AClient(agent.url, card_ttl=10.0, clock=lambda: now) as client:
        await client.get_task("t")
        agent.answers[CARD_PATH] = http(b"", 500)
        agent.calls[:] = [result(task()["task"], 2)]
        now = 11.0
        with caplog.at_level(logging.WARNING, "keelbolt.client"):
            await client.get_task("t")
        assert "the old card stays in use" in caplog.text
        with pytest.raises(A2ADiscoveryError):
            await client.discover(refresh=True)


async def test_a_card_that_was_given_is_not_fetched() -> None:
    async with bad_agent() as agent:
        agent.calls.append(result(task()["task"], 1))
        card = {"name": "A", "url": f"{agent.url}/", "protocolVersion": "1.0"}
        async with A2AClient(agent.url, card=card) as client:
            assert (await client.get_task("t")).id == "t"
            assert await client.agent_card == card
        assert len(agent.asked) == 1


async def test_keys_come_by_https_or_from_this_machine() -> None:
    with pytest.raises(ValueError, match="https"):
        AgentCardFetcher(None, "http://a", keys="http://keys.example/jwks.json")
    async with A2AClient("http://127.0.0.1:9", card_keys="https://keys.example/jwks.json") as client:
        with pytest.raises(A2AConnectionError):
            await client.discover()
