"""The gRPC server of the agent: both packages, health and reflection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self

from keelbolt.grpc.address import GrpcAddress, cannot_listen
from keelbolt.grpc.handlers import Handlers
from keelbolt.grpc.library import aio, grpc, health, health_pb2, health_pb2_grpc, reflection
from keelbolt.protocol.protobuf.methods import METHODS_V03, METHODS_V1, SERVICE_V03, SERVICE_V1, Method
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.dispatch import Dispatcher
from keelbolt.server.gate import RequestGuard
from keelbolt.server.health import HealthRoutes
from keelbolt.server.processes import connections_per_port
from keelbolt.server.settings import ServerSettings
from keelbolt.server.sse import Streams

SERVICES = {ProtocolVersion.v1_0: (SERVICE_V1, METHODS_V1), ProtocolVersion.v0_3: (SERVICE_V03, METHODS_V03)}
KEEPALIVE_TIMEOUT_SECONDS = 20.0  # until an unresponsive client counts as gone
FLUSH_SECONDS = 0.05  # time to send a response that was just written
STOP_SECONDS = 5.0  # after the drain of tasks, for calls that wait for one
LEAST_PING_SECONDS = 5.0  # shortest ping interval that clients may use
IDLE_SECONDS = 300.0  # a connection without calls is closed after this time; clients connect again


class GrpcServer:
    """Listens while its context is entered."""

    def __init__(
        self,
        at: GrpcAddress,
        *,
        gate: RequestGuard,
        dispatcher: Dispatcher,
        streams: Streams,
        health: HealthRoutes,
        grace_seconds: float = 0.0,
    ) -> None:
        self.at = at
        self._handlers = Handlers(gate, dispatcher, streams)
        self._settings = dispatcher.service.settings
        self._services = [SERVICES[version] for version in self._settings.versions]
        self._health = Healthy(health, [name for name, _ in self._services])
        self._grace = grace_seconds
        self._server: Any = None
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._server = aio.server(options=_options(self._settings, self.at))
        for name, methods in self._services:
            self._server.add_generic_rpc_handlers((self._service(name, methods),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [name for name, _ in self._services]
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        try:
            port = self._server.add_insecure_port(str(self.at))
        except RuntimeError:
            raise cannot_listen(self.at.host, self.at.port) from None
        self.at = GrpcAddress(self.at.host, port, self.at.shared)
        await self._health.begin()
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.drain()
        if self._stopping is not None:
            await self._stopping

    def drain(self) -> None:
        """Stop accepting calls; running ones may end within the grace period."""
        if self._stopping is None and self._server is not None:
            self._stopping = asyncio.ensure_future(self._stop())

    async def _stop(self) -> None:
        await self._health.enter_graceful_shutdown()
        stopping = asyncio.ensure_future(self._server.stop(self._grace + STOP_SECONDS))
        idle = asyncio.ensure_future(self._idle())
        await asyncio.wait((stopping, idle), return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        await self._server.stop(None)  # do not wait for clients that only watch the health
        await stopping

    async def _idle(self) -> None:
        await self._handlers.idle.wait()
        await asyncio.sleep(FLUSH_SECONDS)

    def _service(self, name: str, methods: Mapping[str, Method]) -> Any:
        return grpc.method_handlers_generic_handler(
            name, {method.name: self._handler(method) for method in methods.values()}
        )

    def _handler(self, method: Method) -> Any:
        """Return a handler without (de)serializers, so that invalid messages get our own error with details."""
        if method.operation.streams:
            return grpc.unary_stream_rpc_method_handler(self._handlers.streaming(method))
        return grpc.unary_unary_rpc_method_handler(self._handlers.unary(method))


def _options(settings: ServerSettings, at: GrpcAddress) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", int(at.shared)),
        ("grpc.max_receive_message_length", settings.body_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", connections_per_port(settings.connections, 2)),
        ("grpc.max_connection_idle_ms", int(IDLE_SECONDS * 1000)),
        ("grpc.max_metadata_size", settings.header_bytes),
        ("grpc.absolute_max_metadata_size", settings.header_bytes),
        # Detects clients that vanished, as the heartbeats of an event stream do.
        ("grpc.keepalive_time_ms", int(settings.heartbeat_stream_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", int(KEEPALIVE_TIMEOUT_SECONDS * 1000)),
        ("grpc.http2.min_ping_interval_without_data_ms", int(LEAST_PING_SECONDS * 1000)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", int(LEAST_PING_SECONDS * 1000)),
    ]


# --------------------------------------------------------------------------------------------------------------- health


_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Healthy(health.aio.HealthServicer):  # type: ignore[misc]  # an untyped class
    """Checks the store at each call; watching clients are notified when the agent stops."""

    def __init__(self, ours: HealthRoutes, services: Sequence[str]) -> None:
        super().__init__()
        self._ours = ours
        self._services = ("", *services)

    async def begin(self) -> None:
        for service in self._services:
            await self.set(service, _SERVING)

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        status, _ = await self._ours.ready()
        return health_pb2.HealthCheckResponse(status=_SERVING if status == 200 else _NOT_SERVING)
