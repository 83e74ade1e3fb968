"""Addresses of agents, and their endpoints as the card declares them, in its order of preference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from keelbolt.protocol.versions import ProtocolVersion

JSONRPC = "JSONRPC"
HTTP_JSON = "HTTP+JSON"
GRPC = "GRPC"
MAX_INTERFACES = 50


@dataclass(frozen=True, slots=True)
class AgentEndpoint:
    """An interface of the agent."""

    url: str
    binding: str
    version: ProtocolVersion
    tenant: str | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port; for an unsupported binding, the URL itself."""
        try:
            return origin_of(self.url)
        except ValueError:
            return self.url


def endpoints(card: Mapping[str, Any], *, secure: bool = False) -> list[AgentEndpoint]:
    """Return the valid interfaces: those of 1.0 first, then those that only the fields of 0.3 declare.

    gRPC addresses are often only host:port; ``secure`` selects TLS for them.
    """
    found: dict[AgentEndpoint, None] = {}
    for url, binding, version, tenant in _interfaces(card):
        _note(found, url, binding, _version(version), tenant, secure=secure)
    return list(found)


def offered(card: Mapping[str, Any]) -> list[str]:
    """Return the bindings and versions of the card, supported or not, for an error message: "GRPC 1.0", …"""
    found = {f"{str(binding)[:40]} {str(version)[:10]}": None for _, binding, version, _ in _interfaces(card)}
    return list(found)


def _interfaces(card: Mapping[str, Any]) -> Iterable[tuple[object, object, object, object]]:
    for item in _objects(card.get("supportedInterfaces")):
        yield item.get("url"), item.get("protocolBinding"), item.get("protocolVersion"), item.get("tenant")
    if card.get("url") is not None:
        version = card.get("protocolVersion") or "0.3"
        yield card["url"], card.get("preferredTransport") or JSONRPC, version, None
        for item in _objects(card.get("additionalInterfaces")):
            yield item.get("url"), item.get("transport"), version, None


def _objects(value: object) -> Iterable[dict[str, Any]]:
    return [item for item in value[:MAX_INTERFACES] if isinstance(item, dict)] if isinstance(value, list) else []


def _version(text: object) -> ProtocolVersion | None:
    """Return the version by its first two numbers; 1.0.1 is 1.0."""
    if not isinstance(text, str):
        return None
    short = ".".join(text.strip().split(".")[:2])
    return next((version for version in ProtocolVersion if version.value == short), None)


def _note(
    found: dict[AgentEndpoint, None],
    url: object,
    binding: object,
    version: ProtocolVersion | None,
    tenant: object,
    *,
    secure: bool,
) -> None:
    if not isinstance(url, str) or not isinstance(binding, str) or version is None:
        return
    if binding == GRPC:
        scheme, mark, rest = url.rpartition("://")
        url = f"{_SCHEMES.get(scheme, scheme) if mark else 'https' if secure else 'http'}://{rest}"
    if binding in (JSONRPC, HTTP_JSON, GRPC):
        try:
            url = check_url(url) + ("/" if url.endswith("/") else "")
        except ValueError:
            return
    found[AgentEndpoint(url, binding, version, tenant if isinstance(tenant, str) and tenant else None)] = None


_SCHEMES = {"grpc": "http", "grpcs": "https", "dns": "http"}


# -------------------------------------------------------------------------------------------------------------- address


WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The path since 0.3, and the one before."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS = {"http": 80, "https": 443}


def check_url(url: str) -> str:
    """Return the URL of an agent without a trailing slash. Raise ValueError."""
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        raise ValueError("the URL of an agent must be a text that begins with https:// or http://")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        raise ValueError(f"the URL of an agent must begin with https:// or http://, not {url[:100]!r}")
    if not parts.hostname:
        raise ValueError("the URL of an agent must contain a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a password in it ends up in logs; pass auth= instead")
    if parts.query or parts.fragment:
        raise ValueError("the URL of an agent must not contain ? or #")
    if parts.port == 0:  # .port raises ValueError for an invalid port
        raise ValueError("0 is not a valid port")
    return url.rstrip("/")


def origin_of(url: str) -> str:
    """Return scheme, host and port. Raise ValueError. Credentials of one origin are never sent to another.

    All loopback names count as one host: a card often has a different one than the caller.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url[:100]!r} is not an http or https URL")
    host = "localhost" if parts.hostname in LOOPBACK else parts.hostname
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{parts.port or _PORTS[parts.scheme]}"


def place_of(url: str) -> str:
    """Return the agent's address for messages: scheme, host and port as given, without path and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"[:200]


def card_urls(url: str) -> tuple[str, ...]:
    """Return the URLs to try for the card of the agent; a URL that ends in .json is the card itself."""
    return (url,) if url.endswith(".json") else tuple(url + path for path in WELL_KNOWN)
