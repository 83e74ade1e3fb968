"""The payload of an agent card's signature. `signatures` signs and verifies it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keelbolt.protocol.canonical import canonical_json
from keelbolt.protocol.types import Json

Object = dict[str, Any]


def signing_payload(card: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of the 1.0 card without its signatures.

    Presence follows protobuf: an empty array, map or string and a false are omitted unless the field is required or
    optional, because they are the same as absent.
    """
    found = _pruned({name: value for name, value in project_v1(card).items() if name != "signatures"}, described=True)
    return canonical_json(found)


def project_v1(card: Mapping[str, Any]) -> Object:
    """Return the card with the members that a 1.0 reader knows."""
    return {name: _PROJECTIONS.get(name, _same)(card[name]) for name in _MEMBERS if name in card}


_MEMBERS = (
    "name",
    "description",
    "supportedInterfaces",
    "provider",
    "version",
    "documentationUrl",
    "capabilities",
    "securitySchemes",
    "securityRequirements",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
    "signatures",
    "iconUrl",
)
_SCHEMES = (
    "apiKeySecurityScheme",
    "httpAuthSecurityScheme",
    "oauth2SecurityScheme",
    "openIdConnectSecurityScheme",
    "mtlsSecurityScheme",
)


def _same(value: Json) -> Json:
    return value


def _without(name: str, value: Object) -> Object:
    return {key: item for key, item in value.items() if key != name}


def _schemes(schemes: Object) -> Object:
    return {name: {key: item for key, item in one.items() if key in _SCHEMES} for name, one in schemes.items()}


_PROJECTIONS: dict[str, Callable[[Any], Json]] = {
    "capabilities": lambda value: _without("stateTransitionHistory", value),
    "skills": lambda value: [_without("security", skill) for skill in value],
    "securitySchemes": _schemes,
}

_KEPT = frozenset(
    {
        *("name", "supportedInterfaces", "version", "capabilities", "skills", "defaultInputModes"),
        *("defaultOutputModes", "url", "protocolBinding", "protocolVersion", "organization", "id", "tags"),
        *("location", "scheme", "flows", "openIdConnectUrl", "authorizationUrl", "tokenUrl"),
        *("deviceAuthorizationUrl", "scopes"),
        *("documentationUrl", "iconUrl", "streaming", "pushNotifications", "extendedAgentCard"),
    }
)
"""Members that are required, or optional with explicit presence: kept even if empty."""

_MAPS = ("securitySchemes", "schemes")


def _pruned(value: Json, *, described: bool = False) -> Json:
    """Return the value without members that protobuf treats as absent. Cards and skills require a description."""
    if isinstance(value, list):
        return [_pruned(item, described=described) for item in value]
    if not isinstance(value, dict):
        return value
    found: Object = {}
    for name, item in value.items():
        if name == "params":
            found[name] = item  # free-form data: an empty value is significant
        elif name in _KEPT or (described and name == "description") or not _empty(name, item):
            found[name] = _pruned(item, described=name == "skills")
    return found


def _empty(name: str, value: Json) -> bool:
    return value in ("", []) or value is False or value is None or (value == {} and name in _MAPS)
