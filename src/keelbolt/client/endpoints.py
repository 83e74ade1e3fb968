"""The endpoints of an agent, as its card declares them, in its order of preference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from keelbolt.client.address import check_url, origin_of
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
