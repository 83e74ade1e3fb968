"""The health service of gRPC: the result of /ready, for the agent and for each of its services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keelbolt.grpc.library import grpc, health, health_pb2
from keelbolt.server.health import HealthRoutes

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
