"""The served card: its address, its caching, and the headers that determine the agent's address."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from keelbolt.server.settings import ServerSettings
from tests.integration.server.actor import agent
from tests.integration.server.asgi import Reply, ask
from tests.unit.protocol.official import MODELS_V03, PB_V1

JSON_FORMAT: Any = import_module("google.protobuf.json_format")
PATH = "/.well-known/agent-card.json"


async def card(*headers: tuple[str, str], path: str = PATH, method: str = "GET", **settings: Any) -> Reply:
    async with agent(settings=ServerSettings.of({}, allowed_hosts=["*"], **settings)) as server:
        return await ask(server.app, method, path, headers=headers)


@pytest.mark.parametrize("path", [PATH, "/.well-known/agent.json"])
async def test_the_card_is_at_the_paths_of_both_versions(path: str) -> None:
    """Both paths serve one document that the 1.0 message and the 0.3 model can read."""
    reply = await card(("host", "agent.example"), path=path)
    assert (reply.status, reply.header("content-type")) == (200, "application/json")
    new = JSON_FORMAT.ParseDict(reply.json, PB_V1.AgentCard(), ignore_unknown_fields=True)
    spoken = [(one.protocol_binding, one.protocol_version, one.url) for one in new.supported_interfaces]
    assert spoken == [
        ("JSONRPC", "1.0", "http://agent.example"),
        ("HTTP+JSON", "1.0", "http://agent.example"),
        ("JSONRPC", "0.3", "http://agent.example"),
        ("HTTP+JSON", "0.3", "http://agent.example"),
    ]
    old = MODELS_V03.AgentCard.model_validate(reply.json)
    assert (old.url, old.preferred_transport, old.protocol_version) == ("http://agent.example", "JSONRPC", "0.3.0")


async def test_an_unchanged_card_is_not_sent_again() -> None:
    async with agent() as server:
        first = await ask(server.app, "GET", PATH)
        etag, modified = first.header("etag"), first.header("last-modified")
        assert etag is not None
        assert modified is not None
        assert "max-age=" in (first.header("cache-control") or "")
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            reply = await ask(server.app, "GET", PATH, headers=[("if-none-match", known)])
            assert (reply.status, reply.body, reply.header("etag")) == (304, b"", etag)
        assert (await ask(server.app, "GET", PATH, headers=[("if-modified-since", modified)])).status == 304
        for unknown in ([("if-none-match", '"other"')], [("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT")]):
            reply = await ask(server.app, "GET", PATH, headers=unknown)
            assert (reply.status, reply.body) == (200, first.body)


async def test_head_returns_the_headers_of_get() -> None:
    async with agent() as server:
        got = await ask(server.app, "GET", PATH)
        head = await ask(server.app, "HEAD", PATH)
        assert (head.status, head.body) == (200, b"")
        assert head.headers == got.headers


FORWARDED = (("x-forwarded-proto", "https"), ("x-forwarded-host", "public.example, inner.example"))


async def test_a_proxy_header_counts_only_if_trusted() -> None:
    reply = await card(("host", "inner:8000"), *FORWARDED)
    assert reply.json["url"] == "http://inner:8000"
    reply = await card(("host", "inner:8000"), *FORWARDED, trust_proxy=True)
    assert reply.json["url"] == "https://public.example"


async def test_the_configured_url_takes_precedence() -> None:
    reply = await card(("host", "inner"), *FORWARDED, trust_proxy=True, url="https://agent.example/a2a/")
    assert reply.json["url"] == "https://agent.example/a2a/"
    assert reply.json["supportedInterfaces"][1]["url"] == "https://agent.example/a2a"


@pytest.mark.parametrize(
    "host", ["evil.example/path", "user@evil.example", "a b", 'x"><script>', "x:99999999", "x" * 300]
)
async def test_an_invalid_host_is_not_in_the_card(host: str) -> None:
    reply = await card(("host", host))
    assert reply.json["url"] == "http://agent.example:80"


async def test_forged_hosts_do_not_fill_the_memory() -> None:
    async with agent(settings=ServerSettings.of({}, allowed_hosts=["*"])) as server:
        for i in range(200):
            reply = await ask(server.app, "GET", PATH, headers=[("host", f"h{i}.example")])
            assert reply.json["url"] == f"http://h{i}.example"
        assert len(server.routes.cards._known) <= 32
