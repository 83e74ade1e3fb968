"""Whether a caller sits at this machine: who may, without any authentication, be trusted with more."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from holdfast.server.http import header, same_origin

_FORWARDED = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"))


def at_this_machine(scope: Scope) -> bool:
    """Whether the caller sits at this machine, as far as can be told: a proxy here may hide that it is one.

    Whom a proxy at this machine passes on does not sit here; nor does a web page that a browser here shows, be it one
    of another origin or one whose name its owner let lead here.
    """
    client = scope.get("client")
    if client is None or not same_origin(scope) or any(name in _FORWARDED for name, _ in scope["headers"]):
        return False
    try:
        name = urlsplit(f"//{header(scope, b'host') or ''}").hostname or ""
    except ValueError:
        return False
    return _loopback(client[0]) and (name == "localhost" or _loopback(name))


def _loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
