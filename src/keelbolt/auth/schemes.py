"""Security schemes and requirements of agent cards, in the formats of A2A 0.3 and 1.0.

Internally, a scheme is an OpenAPI security scheme object, as in A2A 0.3: ``{"type": "http", "scheme": "bearer"}``. A2A
1.0 writes it as ``{"httpAuthSecurityScheme": {"scheme": "bearer"}}``; both are accepted here. The members of the two do
not collide, so one card can hold both.

Requirements are alternatives: a caller needs to satisfy one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from keelbolt.errors import AuthMisconfigured

Scheme = Mapping[str, Any]
Schemes = Sequence[Scheme] | Mapping[str, Scheme]
"""Result of an authenticator's `security_schemes()`: schemes, or schemes by their name in the card."""

_WRAPPERS = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}
_NEEDED = {
    "apiKey": ("in", "name"),
    "http": ("scheme",),
    "oauth2": ("flows",),
    "openIdConnect": ("openIdConnectUrl",),
    "mutualTLS": (),
}
_ONLY_NEW_FLOWS = {"deviceCode"}
_ONLY_NEW_MEMBERS = {"pkceRequired"}  # of a flow
_UNSAFE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")  # characters not allowed in a quoted string of a challenge


def named(schemes: Schemes) -> dict[str, dict[str, Any]]:
    """Return the schemes by their names in the card, in OpenAPI form, with generated names and without duplicates."""
    if isinstance(schemes, Mapping):
        return {name: _openapi(scheme) for name, scheme in schemes.items()}
    found: dict[str, dict[str, Any]] = {}
    for scheme in map(_openapi, schemes):
        if scheme in found.values():
            continue
        name = stem = _name(scheme)
        number = 2
        while name in found:
            name, number = f"{stem}{number}", number + 1
        found[name] = scheme
    return found


def to_v03(schemes: Mapping[str, Scheme]) -> dict[str, dict[str, Any]]:
    """Return `securitySchemes` of a 0.3 card, without features that 0.3 lacks (the device flow, PKCE)."""
    found = {name: _without_news(scheme) for name, scheme in schemes.items()}
    return {name: scheme for name, scheme in found.items() if scheme["type"] != "oauth2" or scheme["flows"]}


def to_v10(schemes: Mapping[str, Scheme]) -> dict[str, dict[str, Any]]:
    """Return `securitySchemes` of a 1.0 card. An OAuth scheme has one flow there, so further flows get own names."""
    found: dict[str, dict[str, Any]] = {}
    for name, scheme in schemes.items():
        members = {key: value for key, value in scheme.items() if key != "type"}
        if scheme["type"] == "apiKey":
            members["location"] = members.pop("in")
        wrapper = _WRAPPERS[scheme["type"]]
        if scheme["type"] != "oauth2":
            found[name] = {wrapper: members}
            continue
        for own_name, flow in _flow_names(name, scheme).items():
            found[own_name] = {wrapper: {**members, "flows": {flow: dict(members["flows"][flow])}}}
    return found


def to_both(schemes: Mapping[str, Scheme]) -> dict[str, dict[str, Any]]:
    """Return `securitySchemes` for readers of 0.3 and of 1.0: every object has the members of both."""
    found = to_v03(schemes)
    for name, scheme in to_v10(schemes).items():
        found[name] = {**found.get(name, {}), **scheme}
    return found


def requirements_v03(schemes: Mapping[str, Scheme], *, optional: bool = False) -> list[dict[str, list[str]]]:
    """Return `security` of a 0.3 card: any one of the schemes, or also none if ``optional``."""
    found: list[dict[str, list[str]]] = [{name: []} for name in to_v03(schemes)]
    return [*found, {}] if optional else found


def requirements_v10(schemes: Mapping[str, Scheme], *, optional: bool = False) -> list[dict[str, Any]]:
    """Return `securityRequirements` of a 1.0 card: any one of the schemes, or also none if ``optional``."""
    found: list[dict[str, Any]] = [{"schemes": {name: {"list": []}}} for name in to_v10(schemes)]
    return [*found, {"schemes": {}}] if optional else found


def credential_headers(schemes: Mapping[str, Scheme]) -> frozenset[str]:
    """Return the lower-case names of headers that carry credentials."""
    names = {"authorization"}
    for scheme in schemes.values():
        if scheme["type"] == "apiKey":
            names |= {"header": {scheme["name"].lower()}, "cookie": {"cookie"}}.get(scheme["in"], set())
    return frozenset(names)


def challenge(schemes: Mapping[str, Scheme], *, refused: str | None = None) -> str:
    """Return the value of WWW-Authenticate: the accepted schemes, and the reason in ``refused``, if given."""
    found: list[str] = []
    for scheme in schemes.values():
        match scheme["type"]:
            case "http" if scheme["scheme"].lower() != "bearer":
                found.append(f'{scheme["scheme"].capitalize()} realm="agent"')
            case "apiKey":
                found.append(f'ApiKey realm="agent", name="{_UNSAFE.sub("?", scheme["name"])}"')
            case "mutualTLS":
                continue  # requested below HTTP
            case _:
                found.append('Bearer realm="agent"' + _refusal(refused))
    return ", ".join(dict.fromkeys(found)) or 'Bearer realm="agent"' + _refusal(refused)


def _refusal(words: str | None) -> str:
    return "" if words is None else f', error="invalid_token", error_description="{_UNSAFE.sub("?", words)}"'


def _openapi(scheme: Scheme) -> dict[str, Any]:
    found = dict(scheme)
    for wrapped, wrapper in _WRAPPERS.items():
        if wrapper in found and "type" not in found:
            found = {"type": wrapped, **found[wrapper]}
            if "location" in found:
                found["in"] = found.pop("location")
    kind = found.get("type")
    if kind not in _NEEDED:
        raise AuthMisconfigured(
            f"a security scheme must have a type, one of {', '.join(_NEEDED)}; this one has {kind!r}"
        )
    if missing := [member for member in _NEEDED[kind] if not found.get(member)]:
        raise AuthMisconfigured(f"a security scheme of type {kind} needs {' and '.join(missing)}")
    return found


def _name(scheme: Scheme) -> str:
    return scheme["scheme"].lower() if scheme["type"] == "http" else str(scheme["type"])


def _flow_names(name: str, scheme: Scheme) -> dict[str, str]:
    return {name if number == 0 else f"{name}-{flow}": flow for number, flow in enumerate(scheme["flows"])}


def _without_news(scheme: Scheme) -> dict[str, Any]:
    found = dict(scheme)
    if scheme["type"] == "oauth2":
        found["flows"] = {
            name: {key: value for key, value in flow.items() if key not in _ONLY_NEW_MEMBERS}
            for name, flow in scheme["flows"].items()
            if name not in _ONLY_NEW_FLOWS
        }
    return found
