"""Checks before a request is decoded: authentication, rate limits, version, extensions."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from msgspec.structs import replace
from starlette.types import Scope

from keelbolt.auth import ANONYMOUS, Principal, Resolver
from keelbolt.errors import CredentialsRefused, InvalidParamsError
from keelbolt.observability.tracing import CARRIER
from keelbolt.protocol import extensions, versions
from keelbolt.protocol.card import AgentCardConfig
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.caller import Caller
from keelbolt.server.http import Header, check_headers, header, header_list
from keelbolt.server.rates import LoginLimiter, RequestLimiter, RequestOrigin, client_of
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
