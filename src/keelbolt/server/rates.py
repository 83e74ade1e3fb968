"""Rate limits by token bucket: requests per caller, and failed logins per address."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil

from starlette.types import Scope

from keelbolt.auth import Principal
from keelbolt.errors import RateLimitedError
from keelbolt.server.http import header_list

MAX_BUCKETS = 10_000  # the most recently used; an evicted caller starts with a full bucket
IPV6_PREFIX = 64  # one customer controls all addresses of such a network

LOGIN_SECONDS = 60.0
PROXY_SHARE = 50  # assumed clients of one proxy


class Buckets:
    """Token buckets by key: ``burst`` tokens each, refilled at ``per_second``."""

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key → (tokens, time)

    def take(self, key: str) -> float:
        """Take a token. Return 0, or the seconds until one is available."""
        now = self._clock()
        tokens = self._tokens(key, now)
        allowed = tokens >= 1
        self._kept[key] = (tokens - 1 if allowed else tokens, now)
        self._kept.move_to_end(key)
        if len(self._kept) > MAX_BUCKETS:
            self._kept.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self._per_second

    def wait(self, key: str) -> float:
        """Return the seconds until a token is available; take none."""
        tokens = self._tokens(key, self._clock())
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_second

    def _tokens(self, key: str, now: float) -> float:
        tokens, when = self._kept.get(key, (self._burst, now))
        return min(self._burst, tokens + (now - when) * self._per_second)


class RequestLimiter:
    """Limits requests per principal; anonymous callers have a bucket per address. ``per_second`` 0: no limit."""

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._buckets = Buckets(per_second, burst, clock=clock) if per_second > 0 else None
        self.limited = self._buckets is not None

    def check(self, who: Principal, address: str = "") -> None:
        """Take a token, or raise RateLimitedError. ``address`` is that of a `RequestOrigin`."""
        if self._buckets is None:
            return
        key = f"@{address}" if who.anonymous else who.partition
        if wait := self._buckets.take(key):
            raise RateLimitedError(retry_after=max(1, ceil(wait)))


class LoginLimiter:
    """Limits failed logins: ``each`` per client and minute, then none until a token is available. 0: no limit.

    Behind an untrusted proxy, all clients have the proxy's address. So that one client can't lock out the others,
    clients are also distinguished by the address that the proxy forwards. A client can forge that address; therefore
    the proxy's own address has a limit of `PROXY_SHARE` times as many failures for all its clients.
    """

    def __init__(self, each: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limited = each > 0
        share = each * PROXY_SHARE
        self._clients = Buckets(each / LOGIN_SECONDS, each, clock=clock)
        self._addresses = Buckets(share / LOGIN_SECONDS, share, clock=clock)

    def check(self, client: RequestOrigin) -> None:
        """Raise RateLimitedError for a client with too many failures."""
        if not self._limited:
            return
        if wait := max(self._clients.wait(client.name), self._addresses.wait(client.address)):
            raise RateLimitedError(
                "Too many failed logins from this address; try again later.", retry_after=max(1, ceil(wait))
            )

    def failed(self, client: RequestOrigin) -> None:
        """Count a failed login."""
        if self._limited:
            self._clients.take(client.name)
            self._addresses.take(client.address)


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """The origin of a request. ``name`` distinguishes clients of one proxy by the address that the proxy forwards."""

    address: str  # empty: unknown
    name: str


def client_of(scope: Scope, *, trust_proxy: bool = False) -> RequestOrigin:
    """Return the client of a request; with ``trust_proxy``, the client that the proxy forwards."""
    client = scope.get("client")
    address = network_of(str(client[0])) if client else ""
    # The nearest proxy adds the last address; the client can forge those before it.
    passed = network_of((header_list(scope, b"x-forwarded-for") or "").rpartition(",")[2].strip())
    if trust_proxy and passed:
        return RequestOrigin(passed, passed)
    return RequestOrigin(address, f"{address} {passed}" if passed else address)


@lru_cache(maxsize=4096)  # most requests come from few addresses
def network_of(address: str) -> str:
    """Return the address to count by: an IPv4 address or an IPv6 network; "" for text that is no address."""
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    if not isinstance(found, IPv6Address):
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped if mapped is not None else IPv6Network((int(found), IPV6_PREFIX), strict=False))
