"""Selects an endpoint of an agent, falls back to another one, and retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from keelbolt.client.card_fetcher import AgentCardFetcher
from keelbolt.client.endpoints import GRPC, HTTP_JSON, JSONRPC, AgentEndpoint, endpoints, offered, origin_of
from keelbolt.client.failures import from_status
from keelbolt.client.streams import Backoff
from keelbolt.client.transport import ClientTransport, Options, StreamFrame
from keelbolt.errors import (
    A2AConnectionError,
    A2ADiscoveryError,
    A2AResponseError,
    A2ATimeoutError,
    AuthenticationFailed,
    BusyError,
    CredentialsMissing,
    CredentialsRefused,
    InvalidParamsError,
    KeelboltError,
    MethodNotFoundError,
    MissingExtra,
    VersionNotSupportedError,
)
from keelbolt.protocol.extensions import RESUME
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.extra import require
from keelbolt.protocol.requests import Request
from keelbolt.protocol.validation import violations
from keelbolt.protocol.versions import ProtocolVersion

if TYPE_CHECKING:
    from keelbolt.client.http import Http

logger = logging.getLogger("keelbolt.client")

Failed = tuple[ClientTransport, KeelboltError]

READS = frozenset(
    {
        Operation.get_task,
        Operation.list_tasks,
        Operation.get_push_config,
        Operation.list_push_configs,
        Operation.delete_push_config,
        Operation.get_extended_card,
    }
)
"""Operations that are safe to repeat."""


class AgentCalls:
    """Calls the operations of one agent over the first endpoint that works."""

    def __init__(
        self,
        http: Http,
        fetcher: AgentCardFetcher,
        *,
        secret: bool,
        secure: bool,
        in_process: bool,
        idle_seconds: float,
        origins: frozenset[str],
        bindings: Sequence[str],
        versions: Sequence[ProtocolVersion],
        extensions: Sequence[str],
        retry_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._http = http
        self.fetcher = fetcher
        self._secret = secret
        self._secure = secure
        self._in_process = in_process
        self._idle = idle_seconds
        self._origins = origins
        self._bindings = bindings
        self._versions = versions
        self._extensions = tuple(extensions)
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._card: dict[str, Any] | None = None
        self._transports: list[ClientTransport] = []
        self.streams = False
        self._resumes = False
        self._asked: tuple[str, ...] = ()

    async def transports(self) -> list[ClientTransport]:
        """Return the transports in order of preference, the last working one first. Raise A2ADiscoveryError if none."""
        card = await self.fetcher.at_hand()
        if card is not self._card:
            usable = self._usable(card)
            declared = _extensions(card)
            self._resumes = RESUME in declared
            self.streams = _capable(card, "streaming")
            self._asked = (*self._extensions, RESUME) if self._resumes else self._extensions
            await self._replace(usable)
            self._card = card
        return self._transports

    async def _replace(self, usable: list[AgentEndpoint]) -> None:
        """Open the endpoints that a new card adds, and close those that it no longer has."""
        known = {transport.endpoint: transport for transport in self._transports}
        self._transports = [known.pop(each) if each in known else self._opened(each) for each in usable]
        for transport in known.values():
            await transport.close()

    @property
    def resumes(self) -> bool:
        """Return whether streams can be resumed and a message that is sent twice creates one task."""
        return self._resumes

    async def only_polls(self) -> bool:
        """Return whether polling is better than a subscription without a last event id.

        In 0.3 a subscription includes neither the task nor its start position, and the official 0.3 server applies
        every event to its task once more for each subscriber.
        """
        return not self._resumes and (await self.transports())[0].endpoint.version is ProtocolVersion.v0_3

    @property
    def asked_extensions(self) -> tuple[str, ...]:
        return self._asked

    def _usable(self, card: dict[str, Any]) -> list[AgentEndpoint]:
        found = endpoints(card, secure=self._secure)
        spoken = [each for each in found if each.binding in self._bindings and each.version in self._versions]
        if spoken and all(each.binding == GRPC for each in spoken):
            require()
        elif any(each.binding == GRPC for each in spoken) and not _has_grpc():
            spoken = [each for each in spoken if each.binding != GRPC]
        if not spoken:
            raise A2ADiscoveryError(
                f"the card offers {', '.join(offered(card)) or 'no interface'}; this client supports "
                f"{' and '.join(self._bindings)} of A2A {' and '.join(sorted(self._versions))}"
            )
        usable = [each for each in spoken if self._allowed(each)]
        if not usable:
            places = ", ".join(sorted({each.origin for each in spoken}))
            raise A2ADiscoveryError(
                f"the card refers to {places}, which is not the agent's origin; if you trust it, pass it "
                "as trusted_origins"
            )
        return usable

    def _allowed(self, endpoint: AgentEndpoint) -> bool:
        """Return whether the endpoint may be used: credentials stay at their origins, and https never becomes http."""
        if endpoint.origin in self._origins or self._in_process:
            return True
        secure = all(origin.startswith("https:") for origin in self._origins)
        return not self._secret and (endpoint.origin.startswith("https:") or not secure)

    def _opened(self, endpoint: AgentEndpoint) -> ClientTransport:
        from keelbolt.client.jsonrpc import JsonRpcTransport  # noqa: PLC0415 - these import httpx2
        from keelbolt.client.rest import RestTransport  # noqa: PLC0415

        if endpoint.binding == JSONRPC:
            return JsonRpcTransport(self._http, endpoint)
        if endpoint.binding == HTTP_JSON:
            return RestTransport(self._http, endpoint)
        from keelbolt.client.grpc import GrpcTransport  # noqa: PLC0415 - an extra

        # Other agents close a connection that is pinged more often than every five minutes.
        return GrpcTransport(self._http, endpoint, ping_seconds=self._idle if self._resumes else None)

    async def call(
        self,
        operation: Operation,
        make: Callable[[AgentEndpoint], Request],
        *,
        seconds: float | None = None,
        key: str | None = None,
    ) -> Any:
        """Return the result. If the agent can't be reached, retry safe operations for ``retry_seconds``."""
        again = operation in READS
        backoff = Backoff(self._retry_seconds, self._clock)
        while True:
            transports = await self.transports()
            try:
                return await self._any(transports, operation, make, seconds, key)
            except (A2AConnectionError, BusyError) as error:
                if not self._repeats(error, again=again or (operation is Operation.send_message and self._resumes)):
                    raise
                pause = backoff.next(float(getattr(error, "retry_after", 0)))
                if pause is None:
                    raise
                logger.info("%s failed; retried in %.1f seconds: %s", operation.value, pause, error)
            await asyncio.sleep(pause)

    @staticmethod
    def _repeats(error: KeelboltError, *, again: bool) -> bool:
        if isinstance(error, A2ATimeoutError) and error.sent:
            return False  # the caller set the timeout
        return again or isinstance(error, BusyError) or not getattr(error, "sent", True)

    async def _any(
        self,
        transports: list[ClientTransport],
        operation: Operation,
        make: Callable[[AgentEndpoint], Request],
        seconds: float | None,
        key: str | None,
    ) -> Any:
        failed: list[Failed] = []
        for transport in untried(transports, failed):
            try:
                options = Options(seconds, self._asked, key=key, again=operation in READS)
                with _encodable():
                    answer = await transport.call(operation, make(transport.endpoint), options)
            except KeelboltError as error:
                if not elsewhere(error):
                    raise self._seen(error) from error.__cause__
                failed.append((transport, error))
            else:
                self._works(failed)
                return answer
        raise self._seen(failed[0][1]) from failed[0][1].__cause__

    def _seen(self, error: KeelboltError) -> KeelboltError:
        """Return the precise error for a 401: agents send it for missing and for wrong credentials."""
        if isinstance(error, AuthenticationFailed):
            kind = CredentialsRefused if self._secret else CredentialsMissing
            words = None if str(error) == type(error).__doc__ else str(error)
            return kind(words, challenge=error.challenge)
        return error

    def _works(self, failed: list[Failed]) -> None:
        """After a fallback, move the failed endpoints to the end, except those that only lack the operation."""
        last = []
        for transport, error in failed:
            if not isinstance(error, MethodNotFoundError):
                last.append(transport)
                logger.warning(
                    "%s in A2A %s at %s failed (%s); another interface of the card is used",
                    transport.endpoint.binding,
                    transport.endpoint.version,
                    transport.endpoint.origin,
                    error,
                )
        if last:
            self._transports = [*(each for each in self._transports if each not in last), *last]

    @asynccontextmanager
    async def open(
        self, operation: Operation, make: Callable[[AgentEndpoint], Request], options: Options
    ) -> AsyncIterator[AsyncGenerator[StreamFrame, None]]:
        """Yield the frames of a stream, from the first endpoint that opens it."""
        failed: list[Failed] = []
        for transport in untried(await self.transports(), failed):
            options.hints.version = transport.endpoint.version
            async with AsyncExitStack() as stack:
                try:
                    with _encodable():
                        request = make(transport.endpoint)
                        frames = await stack.enter_async_context(transport.stream(operation, request, options))
                        first = await anext(frames, None)
                except KeelboltError as error:
                    if not elsewhere(error):
                        raise self._seen(error) from error.__cause__
                    failed.append((transport, error))
                    continue
                self._works(failed)
                yield _with_first(first, frames)
                return
        raise self._seen(failed[0][1]) from failed[0][1].__cause__

    async def download(self, url: str) -> bytes:
        """Return the bytes at a URL of the agent or of a trusted origin."""
        if not self._in_process and origin_of(url) not in self._origins:
            raise ValueError(f"the file is at {origin_of(url)}, which is not the agent's origin; see trusted_origins")
        reply = await self._http.ask("GET", url, again=True)
        if reply.status != 200:
            raise from_status(reply.status, reply.headers, url=url)
        return reply.body

    async def close(self) -> None:
        for transport in self._transports:
            await transport.close()
        await self._http.close()


def untried(transports: Sequence[ClientTransport], failed: list[Failed]) -> Iterator[ClientTransport]:
    """Yield the transports in order, skipping origins that could not be reached."""
    for transport in tuple(transports):
        origin = transport.endpoint.origin
        if not any(each.endpoint.origin == origin and isinstance(error, A2AConnectionError) for each, error in failed):
            yield transport


def elsewhere(error: KeelboltError) -> bool:
    """Return whether another endpoint may work, because this one did not start the operation."""
    if isinstance(error, A2AConnectionError):
        return not error.sent
    if isinstance(error, VersionNotSupportedError | MethodNotFoundError):
        return True
    return isinstance(error, A2AResponseError) and error.status in (404, 405, 501)


@contextmanager
def _encodable() -> Iterator[None]:
    """Raise InvalidParamsError if the request can't be encoded: a lone surrogate, an object that is not JSON."""
    try:
        yield
    except ValidationError as error:
        raise InvalidParamsError(violations=violations(error)) from None
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise InvalidParamsError(f"the request is not JSON: {str(error).splitlines()[0][:200]}") from None


async def _with_first(
    first: StreamFrame | None, frames: AsyncGenerator[StreamFrame, None]
) -> AsyncGenerator[StreamFrame, None]:
    if first is not None:
        yield first
        async for frame in frames:
            yield frame


def _capable(card: dict[str, Any], name: str) -> bool:
    capabilities = card.get("capabilities")
    return isinstance(capabilities, dict) and capabilities.get(name) is True


def _extensions(card: dict[str, Any]) -> set[str]:
    capabilities = card.get("capabilities")
    found = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return {str(each.get("uri")) for each in found if isinstance(each, dict)} if isinstance(found, list) else set()


def _has_grpc() -> bool:
    try:
        require()
    except MissingExtra:
        return False
    return True


def origins_of(url: str, trusted: Sequence[str]) -> frozenset[str]:
    return frozenset({origin_of(url), *map(origin_of, trusted)})
