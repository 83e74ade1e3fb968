"""The agent card: its configuration, and one JSON document for both versions.

1.0 and 0.3 use different members for most things, so one document holds both: `supportedInterfaces` beside `url`,
`protocolVersion`, `preferredTransport` and `additionalInterfaces`; `securityRequirements` beside `security`; a security
scheme with the members of both. Each reader uses its own members and ignores the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from keelbolt.protocol.types import Json
from keelbolt.protocol.versions import ProtocolVersion

Object = dict[str, Any]
Protocol = Literal["jsonrpc", "http+json", "grpc"]
Binding = Literal["JSONRPC", "HTTP+JSON", "GRPC"]

BINDINGS: Mapping[str, Binding] = {"jsonrpc": "JSONRPC", "http+json": "HTTP+JSON", "grpc": "GRPC"}


class Config(BaseModel):
    """Said by people in Python, so that a misspelt field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ExtensionConfig(Config):
    """An extension of the protocol that the agent understands, or requires."""

    uri: str = Field(min_length=1)
    description: str | None = None
    required: bool = False
    params: dict[str, Json] | None = None


class CapabilitiesConfig(Config):
    """What the agent can do beyond the mandatory."""

    streaming: bool = False
    push_notifications: bool = False
    state_transition_history: bool = False
    extended_agent_card: bool = False
    extensions: Sequence[ExtensionConfig] | None = None


class ProviderConfig(Config):
    """Who runs the agent."""

    organization: str
    url: str


class SignatureConfig(Config):
    """A JWS over the card that was made elsewhere; passed on as it is."""

    protected: str
    signature: str
    header: dict[str, Json] | None = None


class SkillConfig(Config):
    """Something the agent is good at."""

    id: str = Field(min_length=1)
    name: str
    description: str
    tags: Sequence[str] = ()
    examples: Sequence[str] | None = None
    input_modes: Sequence[str] | None = None
    output_modes: Sequence[str] | None = None
    security: Sequence[dict[str, list[str]]] | None = None
    extensions: dict[str, Json] | None = None  # not part of the protocol, which has extensions per agent only


class AgentCardConfig(Config):
    """What an agent says about itself.

    ``security`` are requirements as 0.3 writes them, ``[{"bearer": []}]``: alternatives, each a set of schemes with
    their scopes. ``security_schemes`` may be in the words of either version.
    """

    name: str = Field(min_length=1)
    description: str
    version: str = "1.0.0"
    protocol_version: str = "0.3.0"
    skills: Sequence[SkillConfig] = ()
    extensions: Sequence[ExtensionConfig] = ()
    capabilities: CapabilitiesConfig = CapabilitiesConfig()
    protocol: Protocol = "jsonrpc"
    supports_authenticated_extended_card: bool = False
    input_modes: Sequence[str] = ("application/json", "text/plain")
    output_modes: Sequence[str] = ("application/json", "text/plain")
    provider: ProviderConfig | None = None
    security_schemes: dict[str, dict[str, Json]] | None = None
    security: Sequence[dict[str, list[str]]] | None = None
    icon_url: str | None = None
    documentation_url: str | None = None
    signatures: Sequence[SignatureConfig] | None = None

    @property
    def all_extensions(self) -> tuple[ExtensionConfig, ...]:
        """The extensions given here and with the capabilities, without duplicates."""
        found = {item.uri: item for item in (*self.extensions, *(self.capabilities.extensions or ()))}
        return tuple(found.values())

    @property
    def extended_card(self) -> bool:
        """Whether the flag of either version is set."""
        return self.capabilities.extended_agent_card or self.supports_authenticated_extended_card


@dataclass(frozen=True, slots=True)
class Interface:
    """An address of the agent, with its binding and version."""

    url: str
    binding: Binding | str
    version: ProtocolVersion = ProtocolVersion.v1_0
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class CardSecurity:
    """Security schemes and requirements, already in the formats of both versions."""

    schemes_v03: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    schemes_v1: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    requirements: Sequence[Mapping[str, Sequence[str]]] = ()  # in the format of 0.3


def build_card(
    config: AgentCardConfig,
    interfaces: Sequence[Interface],
    *,
    security: CardSecurity | None = None,
    signatures: Sequence[Mapping[str, Json]] = (),
) -> Object:
    """Return the card as a JSON value. ``interfaces``: preferred first; those of 0.3 also set the members of 0.3."""
    card: Object = {
        "name": config.name,
        "description": config.description,
        "version": config.version,
        "supportedInterfaces": [_interface(interface) for interface in interfaces],
        **_endpoint_v03(config, interfaces),
        "capabilities": _capabilities(config),
        "defaultInputModes": list(config.input_modes),
        "defaultOutputModes": list(config.output_modes),
        "skills": [_skill(skill) for skill in config.skills],
    }
    if config.extended_card:
        card["supportsAuthenticatedExtendedCard"] = True
    if config.provider is not None:
        card["provider"] = {"organization": config.provider.organization, "url": config.provider.url}
    if config.documentation_url is not None:
        card["documentationUrl"] = config.documentation_url
    if config.icon_url is not None:
        card["iconUrl"] = config.icon_url
    card.update(_security(config, security))
    signed = [*(item.model_dump(exclude_none=True) for item in config.signatures or ()), *map(dict, signatures)]
    if signed:
        card["signatures"] = signed
    return card


def card_v1(card: Mapping[str, Any]) -> Object:
    """Return the card with the members of 1.0 only, for a response to a 1.0 client."""
    found = {name: value for name, value in card.items() if name not in _ONLY_V03}
    found["capabilities"] = {
        name: value for name, value in card["capabilities"].items() if name != "stateTransitionHistory"
    }
    found["skills"] = [
        {name: value for name, value in skill.items() if name not in ("security", "extensions")}
        for skill in card["skills"]
    ]
    if "securitySchemes" in card:
        found["securitySchemes"] = {
            name: {member: value for member, value in scheme.items() if member.endswith("SecurityScheme")}
            for name, scheme in card["securitySchemes"].items()
        }
    return found


def card_v03_proto(card: Mapping[str, Any]) -> Object:
    """Return the card in the format of 0.3's protobuf, which wraps requirements and schemes as 1.0 does."""
    found = {name: value for name, value in card.items() if name != "security"}
    if "securityRequirements" in card:
        found["security"] = card["securityRequirements"]
    found["skills"] = [
        {**skill, "security": skill["securityRequirements"]} if "securityRequirements" in skill else skill
        for skill in card["skills"]
    ]
    return found


_ONLY_V03 = frozenset(
    {
        "protocolVersion",
        "url",
        "preferredTransport",
        "additionalInterfaces",
        "supportsAuthenticatedExtendedCard",
        "security",
    }
)


def _interface(interface: Interface) -> Object:
    grpc = interface.binding == "GRPC"
    found: Object = {
        "url": interface.url.rpartition("://")[2] if grpc else interface.url,
        "protocolBinding": interface.binding,
        "protocolVersion": interface.version.value,
    }
    if interface.tenant is not None:
        found["tenant"] = interface.tenant
    return found


def _endpoint_v03(config: AgentCardConfig, interfaces: Sequence[Interface]) -> Object:
    """Return the members that 0.3 clients read; none without an interface of 0.3, so that such clients do not try."""
    old = [interface for interface in interfaces if interface.version is ProtocolVersion.v0_3]
    if not old:
        return {}
    preferred = next((one for one in old if one.binding == BINDINGS[config.protocol]), old[0])
    return {
        "protocolVersion": config.protocol_version,
        "url": _url_v03(preferred),
        "preferredTransport": preferred.binding,
        "additionalInterfaces": [{"url": _url_v03(one), "transport": one.binding} for one in old],
    }


def _url_v03(interface: Interface) -> str:
    """Return the address as a URL, as 0.3 requires; in 1.0 a gRPC address is host:port."""
    if interface.binding != "GRPC" or "://" in interface.url:
        return interface.url
    return f"http://{interface.url}"


def _capabilities(config: AgentCardConfig) -> Object:
    given = config.capabilities
    found: Object = {
        "streaming": given.streaming,
        "pushNotifications": given.push_notifications,
        "stateTransitionHistory": given.state_transition_history,
        "extendedAgentCard": config.extended_card,
    }
    if config.all_extensions:
        found["extensions"] = [_extension(extension) for extension in config.all_extensions]
    return found


def _extension(extension: ExtensionConfig) -> Object:
    found: Object = {"uri": extension.uri}
    if extension.description is not None:
        found["description"] = extension.description
    if extension.required:
        found["required"] = True
    if extension.params is not None:
        found["params"] = extension.params
    return found


def _skill(skill: SkillConfig) -> Object:
    found: Object = {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "tags": list(skill.tags),
    }
    lists = (("examples", skill.examples), ("inputModes", skill.input_modes), ("outputModes", skill.output_modes))
    found.update((name, list(given)) for name, given in lists if given)
    if skill.security:
        found.update(_requirements(skill.security))
    if skill.extensions:
        found["extensions"] = skill.extensions
    return found


def _security(config: AgentCardConfig, security: CardSecurity | None) -> Object:
    schemes: dict[str, Object] = {}
    sources = (security.schemes_v03, security.schemes_v1) if security else (config.security_schemes or {},)
    for source in sources:
        for name, scheme in source.items():
            # The formats share no member: 0.3's are flat, 1.0's is one object named after the kind of scheme.
            schemes.setdefault(name, {}).update(scheme)
    found: Object = {"securitySchemes": schemes} if schemes else {}
    if requirements := (security.requirements if security and security.requirements else config.security):
        found.update(_requirements(requirements))
    return found


def _requirements(requirements: Sequence[Mapping[str, Sequence[str]]]) -> Object:
    return {
        "security": [{name: list(scopes) for name, scopes in one.items()} for one in requirements],
        "securityRequirements": [
            {"schemes": {name: {"list": list(scopes)} if scopes else {} for name, scopes in one.items()}}
            for one in requirements
        ],
    }
