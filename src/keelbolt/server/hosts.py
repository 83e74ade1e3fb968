"""Protects an agent without authentication against web pages: DNS rebinding and cross-origin requests.

A browser on this machine or network can reach the agent. If a domain resolves to the agent's address, its page is
same-origin for the browser; only the Host header still names the domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from keelbolt.errors import ForeignOriginError, MisdirectedRequestError
from keelbolt.server.settings import ServerSettings

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
