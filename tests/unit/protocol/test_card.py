"""The agent card: one document, read by the official models of both versions."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from pydantic import ValidationError

from keelbolt.protocol.card import (
    AgentCardConfig,
    CapabilitiesConfig,
    CardSecurity,
    ExtensionConfig,
    Interface,
    ProviderConfig,
    SignatureConfig,
    SkillConfig,
    build_card,
)
from keelbolt.protocol.signatures import project_v1, signing_payload
from keelbolt.protocol.versions import ProtocolVersion
from tests.unit.protocol.official import MODELS_V03, PB_V1, parse_v1

CONFIG = AgentCardConfig(
    name="Echo",
    description="Says it again.",
    version="2.1.0",
    skills=[
        SkillConfig(
            id="echo",
            name="Echo",
            description="Says it again.",
            tags=["text"],
            examples=["hello"],
            input_modes=["text/plain"],
            security=[{"bearer": ["say"]}],
        ),
        SkillConfig(id="shout", name="Shout", description="", tags=["loud"]),
    ],
    extensions=[ExtensionConfig(uri="urn:one", required=True, params={"a": 1})],
    capabilities=CapabilitiesConfig(
        streaming=True, extended_agent_card=True, extensions=[ExtensionConfig(uri="urn:two", description="Two")]
    ),
    provider=ProviderConfig(organization="Us", url="https://example.com"),
    documentation_url="https://example.com/docs",
    icon_url="https://example.com/icon.png",
    signatures=[SignatureConfig(protected="e30", signature="x", header={"a": 1})],
)
INTERFACES = [
    Interface("https://example.com/", "JSONRPC"),
    Interface("https://example.com/", "HTTP+JSON", tenant="acme"),
    Interface("https://example.com/", "JSONRPC", ProtocolVersion.v0_3),
    Interface("https://example.com/", "HTTP+JSON", ProtocolVersion.v0_3),
]
SECURITY = CardSecurity(
    schemes_v03={
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    },
    schemes_v1={
        "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"}},
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
    },
    requirements=[{"bearer": ["say"]}, {"key": []}],
)


@pytest.fixture
def card() -> dict[str, Any]:
    found = build_card(CONFIG, INTERFACES, security=SECURITY)
    assert json.loads(json.dumps(found)) == found
    return found


def test_1_0_reads_its_members_strictly(card: dict[str, Any]) -> None:
    message = parse_v1("AgentCard", json.dumps(project_v1(card)).encode())
    assert [(one.protocol_binding, one.protocol_version, one.tenant) for one in message.supported_interfaces] == [
        ("JSONRPC", "1.0", ""),
        ("HTTP+JSON", "1.0", "acme"),
        ("JSONRPC", "0.3", ""),
        ("HTTP+JSON", "0.3", ""),
    ]
    assert message.capabilities.extended_agent_card
    assert not message.capabilities.push_notifications
    assert [one.uri for one in message.capabilities.extensions] == ["urn:one", "urn:two"]
    assert message.security_schemes["key"].api_key_security_scheme.location == "header"
    assert message.security_requirements[0].schemes["bearer"].list == ["say"]
    assert list(message.security_requirements[1].schemes) == ["key"]
    assert message.skills[0].security_requirements[0].schemes["bearer"].list == ["say"]


def test_a_reader_of_1_0_ignores_the_rest(card: dict[str, Any]) -> None:
    json_format: Any = import_module("google.protobuf.json_format")
    whole = json_format.ParseDict(card, PB_V1.AgentCard(), ignore_unknown_fields=True)
    assert whole == parse_v1("AgentCard", json.dumps(project_v1(card)).encode())


def test_0_3_reads_its_members(card: dict[str, Any]) -> None:
    model = MODELS_V03.AgentCard.model_validate(card)
    assert (model.url, model.protocol_version) == ("https://example.com/", "0.3.0")
    assert model.preferred_transport == "JSONRPC"
    assert [one.transport for one in model.additional_interfaces] == ["JSONRPC", "HTTP+JSON"]
    assert model.supports_authenticated_extended_card
    assert model.security == [{"bearer": ["say"]}, {"key": []}]
    assert model.security_schemes["bearer"].root.bearer_format == "JWT"
    assert model.security_schemes["key"].root.in_.value == "header"
    assert model.capabilities.state_transition_history is False
    assert model.skills[0].security == [{"bearer": ["say"]}]


def test_the_official_client_accepts_it(card: dict[str, Any]) -> None:
    resolver: Any = import_module("a2a.client.card_resolver")
    message = resolver.parse_agent_card(card)
    assert message.name == "Echo"
    assert len(message.supported_interfaces) == 4


def test_without_an_interface_of_0_3_its_members_are_absent() -> None:
    card = build_card(CONFIG, INTERFACES[:2])
    assert not {"url", "protocolVersion", "preferredTransport", "additionalInterfaces"} & card.keys()


def test_the_preferred_transport_of_0_3() -> None:
    config = CONFIG.model_copy(update={"protocol": "http+json"})
    assert build_card(config, INTERFACES)["preferredTransport"] == "HTTP+JSON"


def test_either_flag_of_the_extended_card_is_enough() -> None:
    card = build_card(AgentCardConfig(name="a", description="b", supports_authenticated_extended_card=True), [])
    assert card["capabilities"]["extendedAgentCard"]
    assert card["supportsAuthenticatedExtendedCard"]
    assert not build_card(AgentCardConfig(name="a", description="b"), [])["capabilities"]["extendedAgentCard"]


def test_schemes_of_the_config_are_passed_on() -> None:
    schemes = {"bearer": {"type": "http", "scheme": "bearer"}}
    card = build_card(AgentCardConfig(name="a", description="b", security_schemes=schemes), [])
    assert card["securitySchemes"] == schemes


@pytest.mark.parametrize("wrong", [{"nam": "x"}, {"name": ""}, {"skills": [{"id": "x"}]}, {"protocol": "soap"}])
def test_a_misspelled_config_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AgentCardConfig.model_validate({"name": "a", "description": "b"} | wrong)


def test_the_signed_text_is_the_example_of_the_specification() -> None:
    fragment = {
        "name": "Example Agent",
        "description": "",
        "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
        "skills": [],
        "signatures": [{"protected": "x", "signature": "y"}],
    }
    assert signing_payload(fragment) == (
        b'{"capabilities":{"pushNotifications":false,"streaming":false},'
        b'"description":"","name":"Example Agent","skills":[]}'
    )


def test_the_signed_text_survives_protobuf(card: dict[str, Any]) -> None:
    """A verifier that parses the card and writes it again gets the same bytes."""
    json_format: Any = import_module("google.protobuf.json_format")
    message = json_format.ParseDict(card, PB_V1.AgentCard(), ignore_unknown_fields=True)
    again = json_format.MessageToDict(message)
    again["skills"][1]["description"] = ""  # required, so it is present even when empty
    assert signing_payload(again) == signing_payload(card)


def test_params_of_extensions_are_signed_unchanged() -> None:
    extensions = [ExtensionConfig(uri="urn:x", description="", params={"empty": [], "no": False})]
    card = build_card(AgentCardConfig(name="a", description="b", extensions=extensions), [])
    assert b'"extensions":[{"params":{"empty":[],"no":false},"uri":"urn:x"}]' in signing_payload(card)
