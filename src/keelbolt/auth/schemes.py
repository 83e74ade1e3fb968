"""Security schemes and requirements as agent cards describe them, in the words of A2A 0.3 and of A2A 1.0.

Inside, a scheme is an OpenAPI security scheme object, which is what A2A 0.3 uses: ``{"type": "http", "scheme":
"bearer"}``. A2A 1.0 says the same as ``{"httpAuthSecurityScheme": {"scheme": "bearer"}}``; both are accepted here. The
members of the two do not collide, so one card can say both.

Requirements are alternatives: a caller needs to satisfy one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from keelbolt.errors import AuthMisconfigured

Scheme = Mapping[str, Any]
Schemes = Sequence[Scheme] | Mapping[str, Scheme]
"""What `security_schemes()` of an authenticator may answer: schemes, or schemes by their name in the card."""

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
_UNSAFE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")  # what a quoted string of a challenge can't hold


def named(schemes: Schemes) -> dict[str, dict[str, Any]]:
    """The schemes by their names in the card, in OpenAPI form. Schemes without a name get one; equal ones are one."""
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
    """`securitySchemes` of a 0.3 card. What 0.3 has no word for (the device flow, PKCE) is left out."""
    found = {name: _without_news(scheme) for name, scheme in schemes.items()}
    return {name: scheme for name, scheme in found.items() if scheme["type"] != "oauth2" or scheme["flows"]}


def to_v10(schemes: Mapping[str, Scheme]) -> dict[str, dict[str, Any]]:
    """`securitySchemes` of a 1.0 card. There an OAuth scheme has one flow, so further flows get names of their own."""
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
    """`securitySchemes` that readers of 0.3 and of 1.0 understand: every object has the members of both."""
    found = to_v03(schemes)
    for name, scheme in to_v10(schemes).items():
        found[name] = {**found.get(name, {}), **scheme}
    return found


def requirements_v03(schemes: Mapping[str, Scheme], *, optional: bool = False) -> list[dict[str, list[str]]]:
    """`security` of a 0.3 card: any one of the schemes, or none at all where that is ``optional``."""
    found: list[dict[str, list[str]]] = [{name: []} for name in to_v03(schemes)]
    return [*found, {}] if optional else found


def requirements_v10(schemes: Mapping[str, Scheme], *, optional: bool = False) -> list[dict[str, Any]]:
    """`securityRequirements` of a 1.0 card: any one of the schemes, or none at all where that is ``optional``."""
    found: list[dict[str, Any]] = [{"schemes": {name: {"list": []}}} for name in to_v10(schemes)]
    return [*found, {"schemes": {}}] if optional else found


def credential_headers(schemes: Mapping[str, Scheme]) -> frozenset[str]:
    """The headers, in small letters, whose presence means that a caller tried to say who it is."""
    names = {"authorization"}
    for scheme in schemes.values():
        if scheme["type"] == "apiKey":
            names |= {"header": {scheme["name"].lower()}, "cookie": {"cookie"}}.get(scheme["in"], set())
    return frozenset(names)


def challenge(schemes: Mapping[str, Scheme], *, refused: str | None = None) -> str:
    """The value of WWW-Authenticate: what may be sent instead, and in ``refused`` why what was sent is not accepted."""
    found: list[str] = []
    for scheme in schemes.values():
        match scheme["type"]:
            case "http" if scheme["scheme"].lower() != "bearer":
                found.append(f'{scheme["scheme"].capitalize()} realm="agent"')
            case "apiKey":
                found.append(f'ApiKey realm="agent", name="{_UNSAFE.sub("?", scheme["name"])}"')
            case "mutualTLS":
                continue  # asked for below HTTP
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
        raise AuthMisconfigured(f"a security scheme has a type, one of {', '.join(_NEEDED)}; this one has {kind!r}")
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
