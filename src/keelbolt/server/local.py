"""Detects loopback clients, which may get more rights without authentication."""

from __future__ import annotations

from starlette.types import Scope

from keelbolt.server.hosts import host_name, is_loopback, is_loopback_name
from keelbolt.server.http import header, same_origin

_PROXIES = (b"forwarded", b"via", b"x-forwarded", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"x-envoy-", b"cf-")
"""Prefixes of headers that proxies add; each proxy adds different ones. X-Forwarded-Proto alone counts too."""


def at_this_machine(scope: Scope) -> bool:
    """Return whether the client is on this machine, as far as detectable: a local proxy may add no header.

    Clients behind a local proxy do not count, nor do web pages of another origin in a local browser, nor pages whose
    domain resolves to this machine (DNS rebinding).
    """
    client = scope.get("client")
    if client is None or _passed_on(scope) or _of_another_page(scope):
        return False
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    name = host_name(hosts[0].decode("latin-1")) if len(hosts) == 1 else ""
    return is_loopback(client[0]) and is_loopback_name(name)


def _passed_on(scope: Scope) -> bool:
    """Return whether a proxy forwarded the request. nginx adds no header by default, but uses HTTP/1.0."""
    return scope.get("http_version") == "1.0" or any(name.startswith(_PROXIES) for name, _ in scope["headers"])


def _of_another_page(scope: Scope) -> bool:
    """Return whether a page of another origin sent the request.

    Browsers send no Origin for images and scripts; Sec-Fetch-Site identifies them.
    """
    if not same_origin(scope):
        return True
    elsewhere = header(scope, b"sec-fetch-site") in ("cross-site", "same-site")
    return elsewhere and header(scope, b"sec-fetch-mode") != "navigate"  # following a link to here is allowed
