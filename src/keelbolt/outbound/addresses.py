"""Restricts requests to addresses of the public internet, in any spelling.

`check_url` checks a URL as far as possible without network access. `resolve` resolves its host once before each
connection and checks every address; the connection uses an address that was checked.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from keelbolt.errors import AddressNotAllowed

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]

MAX_URL = 2048
NAME_THREADS = 32
MAX_TRIED = 3  # addresses per host
FIRST_FREE_PORT = 1024  # lower ports belong to services of other protocols

_FORBIDDEN_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
)
_GLOBAL_6 = IPv6Network("2000::/3")
_FORBIDDEN_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # Teredo, ORCHID, benchmarking and other special purposes
        "2001:db8::/32",
        "2002::/16",  # 6to4: embeds an IPv4 address
        "3fff::/20",
        "2620:4f:8000::/48",
    )
)
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_NUMERIC = re.compile(r"[0-9a-fx.]+", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The destination of a request: the parts of a checked URL."""

    url: str
    scheme: str
    host: str
    port: int
    path: str  # including the query
    netloc: str  # host and port as in the URL

    @property
    def certified(self) -> str:
        """The name that the certificate must be valid for."""
        return self.host.rstrip(".")


@functools.lru_cache(256)  # the events of a task go to one URL; clients often have a URL per task
def check_url(url: str, *, loopback: bool = False, hosts: tuple[str, ...] = ()) -> RequestTarget:
    """Return the target of this URL, or raise AddressNotAllowed.

    ``loopback`` allows this machine, also over plain HTTP. If ``hosts`` is not empty, only these are allowed: names,
    addresses, or ``*.example.com`` for all names below that one.
    """
    if len(url) > MAX_URL:
        raise AddressNotAllowed(f"the URL has more than {MAX_URL} characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise AddressNotAllowed("this is not a URL") from None
    if parts.scheme not in ("https", "http") or not host:
        raise AddressNotAllowed("the URL does not begin with https://")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise AddressNotAllowed("the URL holds a user name or a password")
    if not url.isascii() or not url.isprintable() or any(char in url for char in ' \\"<>^`{|}'):
        raise AddressNotAllowed("the URL is not plain ASCII; percent-encode other characters")
    if hosts and not any(_matches(host.rstrip(".").lower(), allowed.lower()) for allowed in hosts):
        raise AddressNotAllowed("the host of the URL is not among the hosts that this agent allows")
    literal = literal_address(host)
    local = loopback and (literal.is_loopback if literal is not None else host.rstrip(".").lower() == "localhost")
    if parts.scheme == "http" and not local:
        raise AddressNotAllowed("plain HTTP is not allowed; the URL must begin with https://")
    if literal is not None and not local:
        check_address(literal)
    if literal is None:
        _check_name(host, loopback=loopback)
    if port == 0 or (port is not None and port < FIRST_FREE_PORT and port != 443 and not local):
        raise AddressNotAllowed(f"the port of the URL is neither 443 nor at least {FIRST_FREE_PORT}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return RequestTarget(url, parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path, parts.netloc)


def _matches(host: str, allowed: str) -> bool:
    return host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed


def literal_address(host: str) -> Address | None:
    """Return the address that a host denotes, in any spelling that some resolver accepts; None if it is a name."""
    text = host.strip("[]").partition("%")[0].removesuffix(".")
    try:
        return ip_address(text)
    except ValueError:
        pass
    if _NUMERIC.fullmatch(text) and any(char.isdigit() for char in text):  # 2130706433, 0x7f.1, 0177.0.0.1
        try:
            return IPv4Address(socket.inet_aton(text))
        except OSError:
            return None
    return None


def check_address(address: Address) -> None:
    """Raise AddressNotAllowed unless this is an address of the public internet."""
    if isinstance(address, IPv4Address):
        if any(address in network for network in _FORBIDDEN_4):
            raise AddressNotAllowed
        return
    if address.ipv4_mapped is not None:
        check_address(address.ipv4_mapped)
        return
    if any(address in network for network in _NAT64):
        raise AddressNotAllowed
    if address not in _GLOBAL_6 or any(address in network for network in _FORBIDDEN_6):
        raise AddressNotAllowed


async def resolve(target: RequestTarget, *, loopback: bool = False, resolver: Resolver | None = None) -> list[str]:
    """Return the addresses to connect to. Raise AddressNotAllowed if any address of the host is not public."""
    literal = literal_address(target.host)
    answers = [str(literal)] if literal is not None else await (resolver or _ask)(target.host, target.port)
    if not answers:
        raise AddressNotAllowed("the host of the URL has no address")
    for answer in answers:
        address = ip_address(answer.partition("%")[0])
        if not (loopback and address.is_loopback):
            check_address(address)
            if target.scheme != "https":
                raise AddressNotAllowed("plain HTTP is not allowed; the URL must begin with https://")
    return [answer.partition("%")[0] for answer in answers[:MAX_TRIED]]


_names: ThreadPoolExecutor | None = None


def _asking() -> ThreadPoolExecutor:
    """Return a separate thread pool: slow name servers must not block the rest of the process."""
    global _names  # noqa: PLW0603 - one per process
    if _names is None:
        _names = ThreadPoolExecutor(NAME_THREADS, thread_name_prefix="keelbolt-names")
    return _names


async def _ask(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await loop.run_in_executor(_asking(), ask)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def _check_name(host: str, *, loopback: bool) -> None:
    if not _NAME.fullmatch(host) or len(host) > 253:
        raise AddressNotAllowed("this is not the name of a host")
    name = host.removesuffix(".").lower()
    if _NUMBER.fullmatch(name.rpartition(".")[2]):  # it ends like an address, but is not one
        raise AddressNotAllowed("this is not the address of a host")
    if loopback and name == "localhost":
        return
    if "." not in name or name.endswith((".localhost", ".local", ".internal", ".home.arpa", ".lan")):
        raise AddressNotAllowed
