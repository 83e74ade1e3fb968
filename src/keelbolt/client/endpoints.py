"""Where and how an agent can be spoken to, as its card says, in its order of preference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from keelbolt.client.address import check_url, origin_of
from keelbolt.protocol.versions import Version

JSONRPC = "JSONRPC"
HTTP_JSON = "HTTP+JSON"
MAX_INTERFACES = 50


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An interface of the agent."""

    url: str
    binding: str
    version: Version
    tenant: str | None = None

    @property
    def origin(self) -> str:
        """Where it is. What is no address on the web, such as host:port, is a place of its own."""
        try:
            return origin_of(self.url)
        except ValueError:
            return self.url


def endpoints(card: Mapping[str, Any]) -> list[Endpoint]:
    """The interfaces that can be read: those of 1.0 first, then those that only the members of 0.3 name."""
    found: dict[Endpoint, None] = {}
    for item in _objects(card.get("supportedInterfaces")):
        version = _version(item.get("protocolVersion"))
        _note(found, item.get("url"), item.get("protocolBinding"), version, item.get("tenant"))
    if card.get("url") is not None:
        version = _version(card.get("protocolVersion") or "0.3")
        _note(found, card["url"], card.get("preferredTransport") or JSONRPC, version, None)
        for item in _objects(card.get("additionalInterfaces")):
            _note(found, item.get("url"), item.get("transport"), version, None)
    return list(found)


def _objects(value: object) -> Iterable[dict[str, Any]]:
    return [item for item in value[:MAX_INTERFACES] if isinstance(item, dict)] if isinstance(value, list) else []


def _version(text: object) -> Version | None:
    """The version by its first two numbers; 1.0.1 is 1.0."""
    if not isinstance(text, str):
        return None
    short = ".".join(text.strip().split(".")[:2])
    return next((version for version in Version if version.value == short), None)


def _note(found: dict[Endpoint, None], url: object, binding: object, version: Version | None, tenant: object) -> None:
    if not isinstance(url, str) or not isinstance(binding, str) or version is None:
        return
    if binding in (JSONRPC, HTTP_JSON):
        try:
            url = check_url(url) + ("/" if url.endswith("/") else "")
        except ValueError:
            return
    found[Endpoint(url, binding, version, tenant if isinstance(tenant, str) and tenant else None)] = None
