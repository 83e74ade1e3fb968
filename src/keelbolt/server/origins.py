"""Origins of requests: loopback clients, CORS, and protection against DNS rebinding and cross-origin requests.

A browser on this machine or network can reach an agent without authentication. If a domain resolves to the agent's
address, its page is same-origin for the browser; only the Host header still names the domain.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from keelbolt.errors import ForeignOriginError, MisdirectedRequestError
from keelbolt.server.http import header, same_origin
from keelbolt.server.settings import ServerSettings

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


# ---------------------------------------------------------------------------------------------------------------- hosts


READING = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_KNOWN = 256  # Host headers whose result is cached


class HostCheck:
    """Checks the Host and the Origin of every request.

    A Host that is an IP address is always accepted: a page loaded from a domain can't send an address as its Host.
    Loopback names, the host of ``url``, and ``allowed_hosts`` (``*``: every host) are accepted too.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._names = frozenset(_names(settings))
        self._any = "*" in settings.allowed_hosts
        self._origins = frozenset(settings.cors_origins)
        self._all_origins = "*" in self._origins
        self._known: set[bytes] = set()

    def check(self, scope: Scope) -> None:
        """Raise MisdirectedRequestError for a foreign Host, ForeignOriginError for a foreign page that writes."""
        hosts: list[bytes] = []
        origin: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origin = value
        if not self._any:
            self._check_host(hosts)
        if origin is not None and scope["method"] not in READING:
            allowed = self._all_origins or origin.decode("latin-1") in self._origins
            if not allowed and origin.partition(b"://")[2] not in hosts[:1]:
                raise ForeignOriginError

    def _check_host(self, hosts: list[bytes]) -> None:
        if not hosts or (len(hosts) == 1 and hosts[0] in self._known):  # browsers always send a Host
            return
        name = host_name(hosts[0].decode("latin-1")) if len(hosts) == 1 else ""
        if not (name in self._names or is_loopback_name(name) or is_address(name)):
            raise MisdirectedRequestError
        if len(self._known) < MAX_KNOWN:
            self._known.add(hosts[0])


def _names(settings: ServerSettings) -> Iterable[str]:
    if settings.url:
        yield host_name(urlsplit(settings.url).netloc)
    for host in settings.allowed_hosts:
        yield host_name(host)


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port; empty if it is not a host."""
    try:
        parts = urlsplit(f"//{host}")
        plain = parts.netloc == host and parts.username is None and (parts.port or 1) > 0
    except ValueError:
        return ""
    return (parts.hostname or "").rstrip(".") if plain else ""


def is_loopback_name(name: str) -> bool:
    """Return whether a name always resolves to this machine."""
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Return whether this is a loopback address."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def is_address(name: str) -> bool:
    """Return whether this is an IP address and not a name."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


# ----------------------------------------------------------------------------------------------------------------- cors


logger = logging.getLogger("keelbolt.server")

HEADERS = (
    "A2A-Version",
    "A2A-Extensions",
    "X-A2A-Extensions",
    "Last-Event-ID",
    "Idempotency-Key",
    "Authorization",
    "X-API-Key",
    "Content-Type",
)
EXPOSED = ("A2A-Extensions", "X-A2A-Extensions", "ETag", "Retry-After", "Webhook-Secret", "WWW-Authenticate")


class Cors:
    """The application, wrapped in Starlette's middleware if origins are allowed."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        if origins:
            if "*" in origins:
                logger.warning("CORS: pages of every origin may call this agent")
            self._app = CORSMiddleware(
                app,
                allow_origins=origins,
                allow_methods=("GET", "POST", "DELETE"),
                allow_headers=HEADERS,
                expose_headers=EXPOSED,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
