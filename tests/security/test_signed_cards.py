"""Attack: a caller sends its own host in the Host header, and gets a signed card that leads clients there.

And: an extended card that anonymous callers can read (A2A 1.0, 13.3 requires authentication).
"""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.auth import TokenAuthenticator
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.protocol.signatures import CardKey, verify_card
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.server.asgi import Headers, ask, call

TOKEN = "a-token-of-the-tests"
KNOWN = [("authorization", f"Bearer {TOKEN}")]
EVIL = "evil.example"
CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
FORGED: tuple[Headers, ...] = (
    [("host", EVIL)],
    [("host", "agent.example"), ("x-forwarded-host", EVIL)],
    [("host", "agent.example"), ("x-forwarded-proto", "https"), ("x-forwarded-host", EVIL)],
    [],
)


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(ctx.user_text)


def agent(*, auth: bool = True, url: str = "", trust_proxy: bool = False, **more: Any) -> A2AServer:
    card = AgentCardConfig(
        name="A", description="Is signed.", capabilities=CapabilitiesConfig(extended_agent_card=True)
    )
    return A2AServer(
        worker=echo,
        agent_card=card,
        auth=TokenAuthenticator.of({TOKEN: "alice"}) if auth else None,
        extended_card=lambda _caller: card.model_copy(update={"name": "For you alone"}),
        settings=ServerSettings.of({}, url=url, trust_proxy=trust_proxy),
        **more,
    )


@pytest.mark.parametrize("trust_proxy", [False, True])
@pytest.mark.parametrize("headers", FORGED)
async def test_no_host_header_gets_a_signature(headers: Headers, trust_proxy: bool) -> None:
    """This holds for the card and the extended card, with and without a trusted proxy."""
    async with agent(card_key=CardKey.generate("k"), trust_proxy=trust_proxy) as server:
        for path in CARDS:
            assert "signatures" not in (await ask(server.app, "GET", path, headers=headers)).json
        known = [*headers, *KNOWN]
        extended = await call(server.app, "GetExtendedAgentCard", {}, headers=known)
        assert "signatures" not in extended.json["result"]
        for path in ("/extendedAgentCard", "/agent/authenticatedExtendedCard", "/v1/card"):
            assert "signatures" not in (await ask(server.app, "GET", path, headers=known)).json


@pytest.mark.parametrize("headers", FORGED)
async def test_the_signature_covers_the_configured_address(headers: Headers) -> None:
    key = CardKey.generate("k")
    async with agent(card_key=key, url="https://agent.example.com", trust_proxy=True) as server:
        known = [*headers, *KNOWN]
        found = [(await ask(server.app, "GET", path, headers=headers)) for path in CARDS]
        found.append(await ask(server.app, "GET", "/extendedAgentCard", headers=known))
        for reply in found:
            assert verify_card(reply.json, key.jwks()) == "k"
            assert EVIL.encode() not in reply.body


async def test_a_key_without_an_address_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with agent(card_key=CardKey.generate("k")):
        assert "the card is not signed" in caplog.text


async def test_without_auth_there_is_no_extended_card(caplog: pytest.LogCaptureFixture) -> None:
    async with agent(auth=False) as server:
        assert "the extended card is not served" in caplog.text
        for method, code in (("GetExtendedAgentCard", -32004), ("agent/getAuthenticatedExtendedCard", -32004)):
            reply = await call(server.app, method, {}, headers=KNOWN)
            assert reply.json["error"]["code"] == code
        for path in ("/extendedAgentCard", "/agent/authenticatedExtendedCard", "/v1/card"):
            reply = await ask(server.app, "GET", path)
            assert reply.status in (400, 404), path
            assert b"For you alone" not in reply.body
        card = (await ask(server.app, "GET", CARDS[0])).json
        assert not card["capabilities"].get("extendedAgentCard")
        assert not card.get("supportsAuthenticatedExtendedCard")


async def test_optional_auth_shows_it_only_to_authenticated_callers() -> None:
    async with agent(require_auth=False) as server:
        assert (await ask(server.app, "GET", "/extendedAgentCard")).status == 401
        assert (await ask(server.app, "GET", "/extendedAgentCard", headers=KNOWN)).json["name"] == "For you alone"


async def test_a_card_that_changes_offers_no_extended_card_either() -> None:
    async with agent(auth=False) as server:
        card = server.agent_card
        server.routes.cards.replace(card.model_copy(update={"supports_authenticated_extended_card": True}))
        assert (await ask(server.app, "GET", "/extendedAgentCard")).status == 400
