"""Checks before a request is decoded: authentication, rate limits, version, extensions."""

from __future__ import annotations

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil
from typing import Any
from urllib.parse import parse_qsl

from msgspec.structs import replace
from starlette.types import Scope

from keelbolt.auth import ANONYMOUS, Principal, Resolver
from keelbolt.errors import CredentialsRefused, InvalidParamsError, RateLimitedError
from keelbolt.observability.tracing import CARRIER
from keelbolt.protocol import extensions, versions
from keelbolt.protocol.card import AgentCardConfig
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.caller import Caller
from keelbolt.server.http import Header, check_headers, header, header_list
from keelbolt.webhooks.signing import issued_secrets

logger = logging.getLogger("keelbolt.server")

MAX_TRACESTATE = 512  # characters, the limit of W3C Trace Context
MAX_BAGGAGE = 8192
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-|$)")


class RequestGuard:
    """Authenticates requests and builds their callers."""

    def __init__(
        self,
        card: AgentCardConfig,
        *,
        resolver: Resolver | None,
        rates: RequestLimiter,
        logins: LoginLimiter,
        header_bytes: int = 65_536,
        protocols: Sequence[ProtocolVersion] = versions.ALL,
        trust_proxy: bool = False,
    ) -> None:
        self._resolver = resolver
        self._rates = rates
        self._logins = logins
        self._trust_proxy = trust_proxy
        self._header_bytes = header_bytes
        self.versions = tuple(protocols)
        self._declared = [extensions.DeclaredExtension(item.uri, item.required) for item in card.all_extensions]
        self._required = any(item.required for item in self._declared)

    @property
    def authenticates(self) -> bool:
        """Return whether callers are authenticated."""
        return self._resolver is not None

    def asked(self, scope: Scope, query: Mapping[str, str]) -> tuple[ProtocolVersion, ...]:
        """Return the versions that the request asks for. Raise VersionNotSupportedError if none is supported."""
        return versions.asked(header_list(scope, b"a2a-version"), query.get(versions.HEADER), supported=self.versions)

    def version(self, candidates: Sequence[ProtocolVersion], asked: Collection[ProtocolVersion]) -> ProtocolVersion:
        """Return the version of a method or path. Raise VersionNotSupportedError if it is not supported."""
        return versions.chosen(candidates, asked, supported=self.versions)

    async def principal(self, scope: Scope) -> Principal:
        """Return the authenticated principal. Raise HeadersTooLargeError, an AuthError, or RateLimitedError."""
        check_headers(scope, self._header_bytes)
        if self._resolver is None and not self._rates.limited:
            return ANONYMOUS
        client = client_of(scope, trust_proxy=self._trust_proxy)
        who = ANONYMOUS if self._resolver is None else await self._known(self._resolver, scope, client)
        self._rates.check(who, client.address)
        return who

    async def _known(self, resolver: Resolver, scope: Scope, client: RequestOrigin) -> Principal:
        self._logins.check(client)
        try:
            return await resolver.principal(scope["headers"])
        except CredentialsRefused as refused:
            logger.info("login failed from %s: %s", client.name or "an unknown address", refused.reason)
            if refused.reason != "expired":  # an expired token has a valid signature: not a guess
                self._logins.failed(client)
            raise

    def caller(
        self,
        principal: Principal,
        scope: Scope,
        query: Mapping[str, str],
        version: ProtocolVersion = ProtocolVersion.v1_0,
    ) -> Caller:
        """Return the caller of the request. Raise ExtensionSupportRequiredError or InvalidParamsError."""
        asked = extensions.parse(header_list(scope, b"a2a-extensions"), header_list(scope, b"x-a2a-extensions"))
        active = extensions.activate(asked, self._declared) if asked or self._required else ()
        after = header(scope, b"last-event-id") or query.get("afterSeq")
        trace = _trace(scope)
        stored = {CARRIER: trace} if trace else {}
        key = header(scope, b"idempotency-key")
        return Caller(
            principal, active, _seq(after), version, stored=stored, trace=trace, key=key, headers=scope["headers"]
        )


def resumed(caller: Caller, params: Mapping[str, Any]) -> Caller:
    """Return the caller with the resume position from its parameters. Raise InvalidParamsError.

    A header or the query takes precedence. The metadata has the position under the extension:
    ``{"metadata": {"urn:keelbolt:a2a:resume:v1": {"afterSeq": 17}}}``.
    """
    metadata = params.get("metadata")
    place = metadata.get(extensions.RESUME) if isinstance(metadata, Mapping) else None
    if caller.after is not None or not isinstance(place, Mapping) or place.get("afterSeq") is None:
        return caller
    after = place["afterSeq"]
    if isinstance(after, bool) or not isinstance(after, int | float | str):
        raise InvalidParamsError("afterSeq must be a number: the id of an event of this stream")
    whole = int(after) if isinstance(after, float) and after.is_integer() else after
    return replace(caller, after=_seq(str(whole)))


def query_of(scope: Scope) -> dict[str, str]:
    raw = scope.get("query_string", b"")
    return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {}


def echoed(scope: Scope, caller: Caller) -> tuple[Header, ...]:
    """Return the header with the active extensions, under the header name that the client used."""
    if not caller.extensions:
        return ()
    old = header(scope, b"a2a-extensions") is None
    return ((b"x-a2a-extensions" if old else b"a2a-extensions", extensions.echo(caller.extensions).encode()),)


def issuing() -> list[str]:
    """Return a list that collects the signing secrets of webhooks created by the current request."""
    issued: list[str] = []
    issued_secrets.set(issued)
    return issued


def shown_secrets(issued: Iterable[str]) -> Iterator[Header]:
    """Yield the headers with these secrets when the response begins; the protocol's bodies have no field for them."""
    for secret in issued:
        yield b"webhook-secret", secret.encode()


def _trace(scope: Scope) -> dict[str, str] | None:
    """Return the trace headers of the request; None without a valid traceparent."""
    parent = header(scope, b"traceparent")
    if parent is None or _TRACEPARENT.match(parent) is None:
        return None
    found = {"traceparent": parent}
    for name, limit in (("tracestate", MAX_TRACESTATE), ("baggage", MAX_BAGGAGE)):
        value = header(scope, name.encode())
        if value and len(value) <= limit:
            found[name] = value
    return found


def _seq(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidParamsError("Last-Event-ID must be a number: the id of an event of this stream")
    return int(text)


# ---------------------------------------------------------------------------------------------------------------- rates


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
