"""Whether a caller sits at this machine: who may, without any authentication, be trusted with more."""

from __future__ import annotations

from starlette.types import Scope

from keelbolt.server.hosts import host_name, is_loopback, is_loopback_name
from keelbolt.server.http import header, same_origin

_PROXIES = (b"forwarded", b"via", b"x-forwarded", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"x-envoy-", b"cf-")
"""How headers begin that proxies add, each of them others: one that says no more than the scheme is one too."""


def at_this_machine(scope: Scope) -> bool:
    """Whether the caller sits at this machine, as far as can be told: a proxy here may hide that it is one.

    Whom a proxy at this machine passes on does not sit here; nor does a web page that a browser here shows, be it one
    of another origin or one whose name its owner let lead here.
    """
    client = scope.get("client")
    if client is None or _passed_on(scope) or _of_another_page(scope):
        return False
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    name = host_name(hosts[0].decode("latin-1")) if len(hosts) == 1 else ""
    return is_loopback(client[0]) and is_loopback_name(name)


def _passed_on(scope: Scope) -> bool:
    """Whether a proxy shows. nginx, told nothing else, adds no header, but speaks HTTP/1.0, as no client here does."""
    return scope.get("http_version") == "1.0" or any(name.startswith(_PROXIES) for name, _ in scope["headers"])


def _of_another_page(scope: Scope) -> bool:
    """Whether a page of another origin asks. Of an image or a script, a browser does not say the origin, but this."""
    if not same_origin(scope):
        return True
    elsewhere = header(scope, b"sec-fetch-site") in ("cross-site", "same-site")
    return elsewhere and header(scope, b"sec-fetch-mode") != "navigate"  # who follows a link to here comes here
