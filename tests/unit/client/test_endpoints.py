"""The endpoints of a card are in the order of its interfaces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.client.endpoints import AgentEndpoint, endpoints, offered
from keelbolt.protocol.card import AgentCardConfig, Interface, build_card
from keelbolt.protocol.versions import ProtocolVersion


def test_a_card_for_both_versions() -> None:
    config = AgentCardConfig(name="A", description="")
    interfaces = [
        Interface("https://a/", "JSONRPC"),
        Interface("https://a", "HTTP+JSON", tenant="t"),
        Interface("https://a/", "JSONRPC", ProtocolVersion.v0_3),
        Interface("https://a", "HTTP+JSON", ProtocolVersion.v0_3),
    ]
    assert endpoints(build_card(config, interfaces)) == [
        AgentEndpoint("https://a/", "JSONRPC", ProtocolVersion.v1_0),
        AgentEndpoint("https://a", "HTTP+JSON", ProtocolVersion.v1_0, "t"),
        AgentEndpoint("https://a/", "JSONRPC", ProtocolVersion.v0_3),
        AgentEndpoint("https://a", "HTTP+JSON", ProtocolVersion.v0_3),
    ]


def test_a_card_of_0_3() -> None:
    card = {
        "url": "https://a/rpc",
        "protocolVersion": "0.3.0",
        "additionalInterfaces": [
            {"url": "https://a/rest", "transport": "HTTP+JSON"},
            {"url": "a:50051", "transport": "GRPC"},
        ],
    }
    found = endpoints(card, secure=True)
    assert [(each.url, each.binding) for each in found] == [
        ("https://a/rpc", "JSONRPC"),
        ("https://a/rest", "HTTP+JSON"),
        ("https://a:50051", "GRPC"),
    ]
    assert offered(card) == ["JSONRPC 0.3.0", "HTTP+JSON 0.3.0", "GRPC 0.3.0"]
    assert {each.version for each in found} == {ProtocolVersion.v0_3}
    assert endpoints({"url": "https://a"})[0].version is ProtocolVersion.v0_3


@pytest.mark.parametrize(
    ("url", "secure", "origin"),
    [
        ("a:50051", False, "http://a:50051"),
        ("a:50051", True, "https://a:50051"),
        ("grpc://a:50051", True, "http://a:50051"),
        ("grpcs://a:50051", False, "https://a:50051"),
        ("https://a", False, "https://a:443"),
        ("127.0.0.1:50051", False, "http://localhost:50051"),
    ],
)
def test_an_address_of_grpc_has_an_origin(url: str, secure: bool, origin: str) -> None:
    """Credentials belong to origins, also over gRPC."""
    card = {"supportedInterfaces": [{"url": url, "protocolBinding": "GRPC", "protocolVersion": "1.0"}]}
    assert [each.origin for each in endpoints(card, secure=secure)] == [origin]


def test_patch_numbers_are_ignored() -> None:
    card = {"supportedInterfaces": [{"url": "https://a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0.7"}]}
    assert endpoints(card)[0].version is ProtocolVersion.v1_0


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["url", "protocolBinding", "protocolVersion", "transport", "tenant"]), inner)
    ),
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["supportedInterfaces", "additionalInterfaces", "url", "protocolVersion", "preferredTransport"]
        ),
        JSON,
    )
)
def test_any_card_can_be_read(card: dict[str, Any]) -> None:
    endpoints(card)
