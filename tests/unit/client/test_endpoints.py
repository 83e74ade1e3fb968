"""Which interfaces a card names, in its order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from keelbolt.client.endpoints import Endpoint, endpoints
from keelbolt.protocol.card import AgentCardConfig, Interface, build_card
from keelbolt.protocol.versions import Version


def test_a_card_for_both_versions() -> None:
    config = AgentCardConfig(name="A", description="")
    interfaces = [
        Interface("https://a/", "JSONRPC"),
        Interface("https://a", "HTTP+JSON", tenant="t"),
        Interface("https://a/", "JSONRPC", Version.v0_3),
        Interface("https://a", "HTTP+JSON", Version.v0_3),
    ]
    assert endpoints(build_card(config, interfaces)) == [
        Endpoint("https://a/", "JSONRPC", Version.v1_0),
        Endpoint("https://a", "HTTP+JSON", Version.v1_0, "t"),
        Endpoint("https://a/", "JSONRPC", Version.v0_3),
        Endpoint("https://a", "HTTP+JSON", Version.v0_3),
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
    found = endpoints(card)
    assert [(each.url, each.binding) for each in found] == [
        ("https://a/rpc", "JSONRPC"),
        ("https://a/rest", "HTTP+JSON"),
        ("a:50051", "GRPC"),
    ]
    assert {each.version for each in found} == {Version.v0_3}
    assert endpoints({"url": "https://a"})[0].version is Version.v0_3


def test_patch_numbers_do_not_count() -> None:
    card = {"supportedInterfaces": [{"url": "https://a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0.7"}]}
    assert endpoints(card)[0].version is Version.v1_0


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
def test_any_card_can_be_looked_at(card: dict[str, Any]) -> None:
    endpoints(card)
