"""How often one caller may ask, and how often one address may fail to log in: a token bucket each."""

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

MAX_BUCKETS = 10_000  # those used last; a caller that is evicted starts with a full bucket
IPV6_PREFIX = 64  # one customer has as many addresses as it likes within such a network

LOGIN_SECONDS = 60.0
PROXY_SHARE = 50  # clients of one proxy


class Buckets:
    """Token buckets by key: ``burst`` tokens each, refilled at ``per_second``."""

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key → (tokens, when)

    def take(self, key: str) -> float:
        """Take a token; 0, or the seconds until there is one."""
        now = self._clock()
        tokens = self._tokens(key, now)
        allowed = tokens >= 1
        self._kept[key] = (tokens - 1 if allowed else tokens, now)
        self._kept.move_to_end(key)
        if len(self._kept) > MAX_BUCKETS:
            self._kept.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self._per_second

    def wait(self, key: str) -> float:
        """The seconds until there is a token; takes none."""
        tokens = self._tokens(key, self._clock())
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_second

    def _tokens(self, key: str, now: float) -> float:
        tokens, when = self._kept.get(key, (self._burst, now))
        return min(self._burst, tokens + (now - when) * self._per_second)


class Rates:
    """Requests of one principal; anonymous callers have a bucket for each address. ``per_second`` 0: no limit."""

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._buckets = Buckets(per_second, burst, clock=clock) if per_second > 0 else None
        self.limited = self._buckets is not None

    def check(self, who: Principal, address: str = "") -> None:
        """Take a token. Raises RateLimitedError. ``address`` is that of a `Client`."""
        if self._buckets is None:
            return
        key = f"@{address}" if who.anonymous else who.partition
        if wait := self._buckets.take(key):
            raise RateLimitedError(retry_after=max(1, ceil(wait)))


class Logins:
    """Failed logins: ``each`` of one client within a minute, then none until a token is back. 0: no limit.

    Behind a proxy that is not trusted, all clients have the proxy's address. So that one of them can't lock out the
    others, clients are also told apart by the address that the proxy passes on; since a client can make that up,
    `PROXY_SHARE` times as many failures of the address itself are the limit for all of them.
    """

    def __init__(self, each: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limited = each > 0
        share = each * PROXY_SHARE
        self._clients = Buckets(each / LOGIN_SECONDS, each, clock=clock)
        self._addresses = Buckets(share / LOGIN_SECONDS, share, clock=clock)

    def check(self, client: Client) -> None:
        """Raises RateLimitedError for a client with too many failures."""
        if not self._limited:
            return
        if wait := max(self._clients.wait(client.name), self._addresses.wait(client.address)):
            raise RateLimitedError(
                "Too many logins failed from this address; come back later.", retry_after=max(1, ceil(wait))
            )

    def failed(self, client: Client) -> None:
        """Count a failure."""
        if self._limited:
            self._clients.take(client.name)
            self._addresses.take(client.address)


@dataclass(frozen=True, slots=True)
class Client:
    """Where a request comes from. ``name`` tells clients of one proxy apart, by what that proxy says of them."""

    address: str  # empty: unknown
    name: str


def client_of(scope: Scope, *, trust_proxy: bool = False) -> Client:
    """The client of a request; that of the proxy where the proxy is trusted."""
    client = scope.get("client")
    address = network_of(str(client[0])) if client else ""
    # The proxy that is next to us adds the last one; what stands before it is the word of the client.
    passed = network_of((header_list(scope, b"x-forwarded-for") or "").rpartition(",")[2].strip())
    if trust_proxy and passed:
        return Client(passed, passed)
    return Client(address, f"{address} {passed}" if passed else address)


@lru_cache(maxsize=4096)  # most requests come from few addresses
def network_of(address: str) -> str:
    """What is counted as one address; text that is no address is counted as unknown."""
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    if not isinstance(found, IPv6Address):
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped if mapped is not None else IPv6Network((int(found), IPV6_PREFIX), strict=False))
